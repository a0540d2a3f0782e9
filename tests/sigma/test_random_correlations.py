"""Correlations of Sigma against their reference: random rules and events, any cut into batches, sets, threads."""

import random

import pyarrow as pa
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from sizes import scaled
from small_sizes import small_sizes

import cer_gpu

pytest.importorskip("sigma", reason="pySigma is an extra")

import yaml

import cer_gpu.sigma
from tests.sigma import correlation_reference as ref
from tests.sigma import correlation_strategies as drawn

SEEDS = st.integers(0, 2**32)
ALL = (*drawn.COUNTS, *drawn.METRICS, *drawn.TEMPORAL)


class CorrelationCase:
    """Random rules, loaded and compiled, and random events."""

    def __init__(self, seed, types, chained=False, n=30, **drawing):
        self.rnd = random.Random(seed)
        self.draw = drawn.CorrelationDraw(self.rnd, types, chained=chained, **drawing)
        text = yaml.safe_dump_all(self.draw.documents, sort_keys=False)
        note(text)
        nocase = self.rnd.random() < 0.4 and not drawing.get("aliased")  # which orders cannot have
        note(f"nocase_groups={nocase}")
        self.loaded = cer_gpu.sigma.load(text, nocase_groups=nocase)
        assume(not any("correlations on correlations" in str(error) for _, error in self.loaded.errors))  # too long
        assert not self.loaded.errors
        self.rows = drawn.rows_of(self.rnd, n)
        lacking = self.rnd.choice(["user", "target", "host", "name", "x", "n"]) if self.rnd.random() < 0.15 else None
        self.rows = [{name: value for name, value in row.items() if name != lacking} for row in self.rows]
        self.table = drawn.table_of(self.rows, lacking)
        rules = ref.CorrelatedRules(self.draw.documents, self.rows, drawn.detects, nocase)
        self.expected = {each["title"]: rules.found(each) for each in self.draw.documents}
        self.text = self.loaded["Correlation outer"]
        note(self.text)
        if self.rnd.random() < 0.3:
            codes = {"user", "name", "target"} & set(self.table.column_names)
            for name in codes:  # as few files and frames have them
                self.table = self.table.set_column(
                    self.table.column_names.index(name), name, self.table[name].dictionary_encode()
                )
        self.compiled = cer_gpu.compile(self.text, time_column=ref.TIME)

    def pieces(self):
        begin = 0
        while begin < self.table.num_rows:
            n = self.rnd.randint(1, 7)
            yield from self.table.slice(begin, n).combine_chunks().to_batches()
            begin += n

    def pushed(self):
        """The answers of an evaluator that is given random pieces, and put down and taken up in between."""
        evaluator, found = self.compiled.evaluator(), []
        for batch in self.pieces():
            found.append(evaluator.push(batch))
            if self.rnd.random() < 0.3:
                evaluator = self.compiled.restore(evaluator.checkpoint())
        found.append(evaluator.finish())
        return positions(pa.Table.from_batches(found))


def positions(found):
    rows = [tuple(row["positions"]) for row in found.to_pylist()]
    return sorted(rows, key=lambda places: (places[-1], places))


@pytest.mark.parametrize("kind", ALL)
@settings(max_examples=scaled(150), deadline=None)
@given(seed=SEEDS)
def test_a_correlation_fires_where_the_reference_says(seed, kind):
    case = CorrelationCase(seed, (kind,))
    assert positions(case.compiled.evaluate(case.table)) == case.expected["Correlation outer"]


@pytest.mark.long("many events for each draw")
@settings(max_examples=scaled(300), deadline=None)
@given(SEEDS)
def test_chained_correlations_fire_where_the_reference_says(seed):
    case = CorrelationCase(seed, ALL, chained=True)
    assert positions(case.compiled.evaluate(case.table)) == case.expected["Correlation outer"]


@settings(max_examples=scaled(100), deadline=None)
@given(SEEDS)
def test_aliases_tell_the_groups_of_ordered_rules(seed):
    case = CorrelationCase(seed, ("temporal_ordered",), aliased=True)
    assert positions(case.compiled.evaluate(case.table)) == case.expected["Correlation outer"]


@pytest.mark.long("many events for each draw")
@settings(max_examples=scaled(100), deadline=None)
@given(SEEDS)
def test_aliases_and_correlations_below_others_have_groups_of_their_own(seed):
    case = CorrelationCase(seed, ALL, chained=seed % 2 == 1, aliased=True, own_groups=True)
    assert positions(case.compiled.evaluate(case.table)) == case.expected["Correlation outer"]


@settings(max_examples=scaled(100), deadline=None)
@given(SEEDS, st.booleans())
def test_any_cut_with_checkpoints_finds_the_same(seed, chained):
    case = CorrelationCase(seed, ALL, chained, aliased=chained, own_groups=chained)
    with small_sizes():
        assert case.pushed() == case.expected["Correlation outer"]


@pytest.mark.long("hundreds of rules")
@settings(max_examples=scaled(100), deadline=None)
@given(SEEDS, st.booleans())
def test_all_rules_that_are_generated_find_the_same_as_one_set(seed, chained):
    case = CorrelationCase(seed, ALL, chained, aliased=chained, own_groups=chained)
    assert sorted(case.loaded) == sorted(ref.generated(case.draw.documents))
    found = cer_gpu.compile_all(case.loaded, time_column=ref.TIME).evaluate(case.table)
    assert {name: positions(rows) for name, rows in found.items()} == {
        name: case.expected[name] for name in case.loaded
    }
