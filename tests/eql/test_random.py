"""EQL against its reference: random queries and events, any cut into batches, structs, threads."""

import random

import pyarrow as pa
from hypothesis import example, given, note, settings
from hypothesis import strategies as st
from sizes import scaled
from small_sizes import small_sizes

import cer_gpu
from tests.eql import reference as ref
from tests.eql import strategies as drawn

SEEDS = st.integers(0, 2**32)


class Case:
    """A random query of a kind, compiled, and random events."""

    def __init__(self, seed, kind, n=24, nested=False):
        self.rnd = random.Random(seed)
        draw = drawn.Draw(self.rnd)
        self.query = {"event": draw.event, "sequence": draw.sequence, "sample": draw.sample}.get(
            kind, lambda: draw.sequence(absent=True)
        )()
        self.text = ref.text(self.query, drawn.spelling(self.rnd))
        note(self.text)
        self.rows = drawn.rows_of(self.rnd, n)
        self.table = drawn.table_of(self.rows, nested)
        for name in self.table.column_names if self.rnd.random() < 0.3 else ():
            if pa.types.is_string(self.table[name].type):
                self.table = self.table.set_column(
                    self.table.column_names.index(name), name, self.table[name].dictionary_encode()
                )
        schema = self.table.schema if self.rnd.random() < 0.5 else None
        self.compiled = cer_gpu.compile(self.text, language="eql", time_column=ref.TIME, schema=schema)

    @property
    def expected(self):
        return ref.evaluate(self.query, self.rows, here=True)

    def found(self, table=None, **options):
        answer = self.compiled.evaluate(self.table if table is None else table, **options)
        return [tuple(row["positions"]) for row in answer.to_pylist()]

    def pushed(self):
        """The answers of an evaluator that is given random pieces, and put down and taken up in between."""
        evaluator = self.compiled.evaluator()
        answers, begin = [], 0
        while begin < self.table.num_rows:
            n = self.rnd.randint(1, 7)
            answers += [evaluator.push(b) for b in self.table.slice(begin, n).combine_chunks().to_batches()]
            begin += n
            if self.rnd.random() < 0.3:
                evaluator = self.compiled.restore(evaluator.checkpoint())
        answers.append(evaluator.finish())
        return [tuple(row["positions"]) for row in pa.Table.from_batches(answers).to_pylist()]


@settings(max_examples=scaled(600), deadline=None)
@given(SEEDS, st.booleans())
def test_event_queries_find_what_the_reference_says(seed, nested):
    case = Case(seed, "event", nested=nested)
    assert case.found() == case.expected


@settings(max_examples=scaled(200), deadline=None)
@given(SEEDS)
def test_conditions_as_values_have_three_truths(seed):
    rnd = random.Random(seed)
    query = ref.Query("event", (ref.Term(None, drawn.Draw(rnd, missing=False).condition_as_value()),))
    note(ref.text(query))
    rows = drawn.rows_of(rnd, 16, rare=0.3)
    table = drawn.table_of(rows)
    found = cer_gpu.compile(ref.text(query), language="eql", time_column=ref.TIME).evaluate(table)["positions"]
    assert [tuple(each) for each in found.to_pylist()] == ref.evaluate(query, rows)


@settings(max_examples=scaled(400), deadline=None)
@given(SEEDS, st.booleans())
def test_sequences_find_what_the_reference_says(seed, nested):
    case = Case(seed, "sequence", nested=nested)
    assert case.found() == case.expected


@settings(max_examples=scaled(200), deadline=None)
@given(SEEDS)
def test_sequences_with_missing_events_find_what_the_reference_says(seed):
    case = Case(seed, "absent")
    assert case.found() == case.expected


@settings(max_examples=scaled(200), deadline=None)
@given(SEEDS, st.booleans())
def test_samples_find_what_the_reference_says(seed, nested):
    case = Case(seed, "sample", nested=nested)
    assert case.found() == [tuple(sorted(each)) for each in case.expected]


@settings(max_examples=scaled(150), deadline=None)
@given(SEEDS, st.sampled_from(["event", "sequence", "absent", "sample"]), st.booleans())
def test_any_cut_into_batches_finds_the_same(seed, kind, nested):
    case = Case(seed, kind, nested=nested)
    with small_sizes():
        assert case.pushed() == case.found()


@settings(max_examples=scaled(60), deadline=None)
@example(796234271, "event", False)  # a function of a text and a list, of few rows
@given(SEEDS, st.sampled_from(["event", "sequence", "absent", "sample"]), st.booleans())
def test_threads_and_sets_find_the_same(seed, kind, nested):
    case = Case(seed, kind, nested=nested)
    whole = case.compiled.evaluate(case.table)
    assert case.compiled.evaluate(case.table, threads=2).equals(whole)
    others = {"one": case.text, "other": "any where true"}
    found = cer_gpu.compile_all(others, language="eql", time_column=ref.TIME)
    assert found.evaluate(case.table)["one"].select(["positions"]).equals(whole.select(["positions"]))
