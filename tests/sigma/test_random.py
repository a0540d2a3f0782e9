"""Rules of Sigma against their reference: random rules and events, each alone and all as a set."""

import random

import pyarrow as pa
import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st
from sizes import scaled
from small_sizes import small_sizes

import cer_gpu
import cer_gpu.sigma
from tests.sigma import reference as ref
from tests.sigma import strategies as drawn

yaml = pytest.importorskip("yaml")
pytest.importorskip("sigma")

SEEDS = st.integers(0, 2**32)


class Case:
    """Random rules as texts of YAML, loaded, and random events."""

    def __init__(self, seed, n_rules=1, n=40):
        self.rnd = random.Random(seed)
        draw = drawn.Draw(self.rnd)
        self.rules = {f"rule {number}": draw.rule() | {"title": f"rule {number}"} for number in range(n_rules)}
        written = yaml.safe_dump_all(self.rules.values(), allow_unicode=True, sort_keys=False)
        note(written)
        self.rules = {rule["title"]: rule for rule in yaml.safe_load_all(written)}
        self.events = drawn.events_of(self.rnd, n)
        self.table = pa.Table.from_pylist(self.events, drawn.SCHEMA)
        self.loaded = cer_gpu.sigma.load(written)
        assert self.loaded.errors == []
        for text in self.loaded.values():
            note(text)

    @property
    def expected(self):
        tests = {name: ref.test_of(rule) for name, rule in self.rules.items()}
        return {name: [i for i, event in enumerate(self.events) if test(event)] for name, test in tests.items()}


def ends(answer):
    return answer.column("end").to_pylist()


@settings(max_examples=scaled(250), deadline=None)
@given(SEEDS, st.booleans())
def test_a_rule_finds_what_the_reference_says(seed, knows_schema):
    case = Case(seed)
    schema = case.table.schema if knows_schema else None
    query = cer_gpu.compile(case.loaded["rule 0"], schema=schema)
    assert ends(query.evaluate(case.table)) == case.expected["rule 0"]


@settings(max_examples=scaled(40), deadline=None)
@example(315)
@given(SEEDS)
def test_a_set_of_rules_finds_what_the_reference_says(seed):
    case = Case(seed, n_rules=12)
    found = cer_gpu.compile_all(case.loaded).evaluate(case.table)
    assert {name: ends(answer) for name, answer in found.items()} == case.expected


@settings(max_examples=scaled(30), deadline=None)
@given(SEEDS)
def test_any_cut_into_batches_finds_the_same(seed):
    case = Case(seed, n_rules=3)
    found = {name: [] for name in case.rules}
    with small_sizes():
        evaluator = cer_gpu.compile_all(case.loaded, schema=case.table.schema).evaluator()
        begin, answers = 0, []
        while begin < case.table.num_rows:
            n = case.rnd.randint(1, 9)
            answers += [evaluator.push(b) for b in case.table.slice(begin, n).combine_chunks().to_batches()]
            begin += n
        answers.append(evaluator.finish())
    for answer in answers:
        for name, batch in answer.items():
            found[name] += ends(batch)
    assert found == case.expected
