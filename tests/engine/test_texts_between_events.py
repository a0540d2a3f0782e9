"""Strings of two events, of which one contains, begins or ends with the other: against the reference, in any cut."""

from __future__ import annotations

from dataclasses import replace

import join_strategies as joins
import pyarrow as pa
import pytest
import reference as ref
import strategies
from answers import assert_right, candidates_of, with_and_without_checkpoints
from cases import Case, assert_same, pushed
from hypothesis import strategies as st
from written_nodes import compiled_as

import cer_gpu
from cer_gpu.ceql import syntax as s
from cer_gpu.errors import QueryTypeError


@st.composite
def formulas(draw):
    """Draw a formula whose filters test texts of two events, perhaps beside others."""
    types = st.sampled_from("AAB")
    x, y, z = (ref.As(ref.EventType(draw(types)), name) for name in "xyz")
    spots = [("x", "EACH"), ("y", "EACH"), ("z", "EACH")]

    def tests(*of):
        first = draw(joins.parts_of_texts(*of[:2]))
        match draw(st.sampled_from(["one", "one", "not", "and", "or", "both"])):
            case "not":
                return ref.PredNot(first)
            case "and":
                return ref.PredAnd(first, draw(joins.tests_of(list(of))))
            case "or":
                return ref.PredOr(draw(joins.tests_of(list(of))), first)
            case "both":
                return ref.PredAnd(first, draw(joins.parts_of_texts(of[1], of[0])))
        return first

    pair = ref.Relation(tests(*spots[:2]))
    match draw(st.sampled_from(["pair", "three", "absence", "plus", "prev", "all"])):
        case "pair":
            return ref.Filter(ref.Seq(x, y), pair)
        case "three":
            return ref.Filter(ref.Seq(ref.Seq(x, y), z), ref.FilterAnd(pair, ref.Relation(tests(spots[2], spots[0]))))
        case "absence":
            return ref.Seq(x, z, (ref.Filter(y, pair),))
        case "plus":
            return ref.Filter(ref.Seq(x, ref.Plus(y)), pair)
        case "prev":
            return ref.Filter(ref.Plus(x), ref.Relation(tests(("x", "EACH"), ("x", "PREV"))))
    return ref.Filter(ref.All(x, y), pair)


def cases(**kinds):
    return strategies.full_cases(stream_for=joins.join_streams, formula=formulas(), **kinds)


@pytest.mark.parametrize("output", ["positions", "bindings", "count", "ends"])
@strategies.property_test(0.15)
def test_queries_give_the_rows_of_the_reference(output, data):
    case = Case(data, cases())
    candidates = candidates_of(case, output)
    answer = case.compiled.evaluate(case.table, output=output)
    assert_right(case, candidates, answer, output)
    if case.query.limit is None and case.query.strategy != "ANY":
        assert_same(pushed(case.compiled, case.batches, output=output), answer)


@strategies.property_test(0.05)
def test_a_checkpoint_between_any_two_batches_changes_nothing(data):
    assert_same(*with_and_without_checkpoints(data, Case(data, cases()), "positions"))


TEXTS = {
    "contains": lambda text, part: part in text if part else False,
    "startswith": str.startswith,
    "endswith": str.endswith,
}
WORDS = ["", "a", "b", "ab", "ba", "aab", "Ab", "ÄB", "äb", "b\0", "\0", "\U0001f525a", "\U0001f525", None]


@pytest.mark.parametrize("strategy", ["ALL", "RECENT"])
@pytest.mark.parametrize("nocase", ["", "~"])
@pytest.mark.parametrize("function", TEXTS)
def test_all_pairs_of_words(function, nocase, strategy):
    words = [word for word in WORDS for _ in WORDS], WORDS * len(WORDS)
    pairs = [(x, y) for x, y in zip(*words, strict=True)]
    column = [text for pair in pairs for text in pair]
    events = {"type": ["A", "B"] * len(pairs), "k": [n // 2 for n in range(len(column))]}
    small = str.lower if nocase else str
    truth = [None if None in pair else TEXTS[function](*map(small, pair)) for pair in pairs]
    plain = pa.array(column)
    for negation, wanted in (("", True), ("NOT ", False)):
        text = f"SELECT {strategy} * FROM S WHERE A AS x ; B AS y FILTER y.k = x.k AND {negation}{function}(x.s, y.s)"
        query = compiled_as(text, s.Call, lambda call: replace(call, function=call.function + nocase))
        for texts in (plain, plain.cast(pa.string_view()), plain.dictionary_encode()):
            table = pa.table({**events, "s": texts})
            found = [row[0] // 2 for row in query.evaluate(table)["positions"].to_pylist()]
            assert found == [k for k, each in enumerate(truth) if each is wanted]


def test_other_places_are_told_what_they_take():
    def error_of(test):
        schema = {"type": pa.string(), "s": pa.string(), "n": pa.int64(), "flag": pa.bool_()}
        with pytest.raises(QueryTypeError) as told:
            cer_gpu.compile(f"SELECT * FROM S WHERE A AS x ; B AS y FILTER {test}", schema=pa.schema(schema))
        return str(told.value)

    assert "contains of several events is TRUE or FALSE" in error_of("contains(x.s, y.s) = y.flag")
    assert "contains of several events is TRUE or FALSE" in error_of("contains(x.s, y.s) < TRUE")
    assert "cannot compare the test contains(x.s, y.s) with the number 1" in error_of("contains(x.s, y.s) = 1")
    assert "contains takes a text there" in error_of("contains(x.s, y.n)")
    assert "concat reads one event, and this one several" in error_of("contains(concat(x.s, y.s), y.s)")
    assert "arithmetic needs numbers, and the test" in error_of("contains(x.s, y.s) + 1 > 0")


def test_explanations_write_it_as_it_was_written():
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS x ; B AS y FILTER contains(y.path, lower(x.name), 'a')")
    assert "contains(y.path, lower(x.name), 'a')" in str(query.explain())
