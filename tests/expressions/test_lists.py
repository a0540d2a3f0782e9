"""Tests of the elements of lists (`ANY`) against the reference, in every layout of lists."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import reference as ref
import rendering
import strategies as s
from hypothesis import strategies as st
from strategies import property_test

import cer_gpu
from cer_gpu.ceql.parser import parse
from cer_gpu.columnar.columns import Block
from cer_gpu.explain.ceql_text import predicate_text
from cer_gpu.expressions import lists, string_sets
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.targets.numpy import rows_of

INTS = [0, 1, 2, -1, 100]
TEXTS = ["a", "ab", "", "B", "é", "10.1.2.3"]
ELEMENT = ref.Element()
comparison = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
ints, texts = st.sampled_from(INTS).map(ref.Const), st.sampled_from(TEXTS).map(ref.Const)
GLOBS = st.lists(st.sampled_from(["a*", "?", "B", "*", "b"]), min_size=1, max_size=2).map(tuple)


def sets(values):
    return st.builds(ref.In, st.just(ELEMENT), st.lists(values, min_size=1, max_size=2).map(tuple), st.booleans())


likes = st.builds(ref.Like, st.just(ELEMENT), st.sampled_from(["a", "^$", "b$"]))
of_strings = st.one_of(
    st.builds(ref.Compare, comparison, st.just(ELEMENT), texts | st.just(ref.Attr("s"))),
    st.builds(ref.Compare, comparison, texts, st.just(ELEMENT)),
    likes,
    likes.map(ref.PredNot),
    st.builds(ref.Glob, st.just(ELEMENT), GLOBS, st.booleans()),
    st.just(ref.Cidr(ELEMENT, ("10.0.0.0/8",))),
    sets(texts),
    st.builds(ref.IsNull, st.just(ELEMENT), st.booleans()),
)
of_ints = st.one_of(
    st.builds(ref.Compare, comparison, st.just(ELEMENT), ints),
    st.builds(ref.Compare, comparison, st.just(ELEMENT), st.just(ref.Arith("+", ref.Attr("n"), ref.Const(1)))),
    sets(ints),
    st.builds(ref.Between, st.just(ELEMENT), ints, ints, st.booleans()),
    st.builds(ref.InRange, st.just(ELEMENT), st.none(), ints),
    st.builds(ref.IsNull, st.just(ELEMENT), st.booleans()),
)
tests = st.builds(ref.AnyOf, st.sampled_from(["ts", "st.ts"]).map(ref.Attr), of_strings) | st.builds(
    ref.AnyOf, st.just(ref.Attr("ns")), of_ints
)
predicates = st.recursive(
    tests | tests.map(ref.PredNot),
    lambda part: st.builds(ref.PredNot, part) | st.builds(ref.PredAnd, part, part) | st.builds(ref.PredOr, part, part),
    max_leaves=3,
)


def lists_of(values):
    return st.none() | st.lists(st.sampled_from([*values, None]), max_size=4)


events = st.fixed_dictionaries(
    {
        "type": st.just("A"),
        "ts": lists_of(TEXTS),
        "ns": lists_of(INTS),
        "st": st.none() | st.fixed_dictionaries({"ts": lists_of(TEXTS)}),
        "s": st.sampled_from([*TEXTS, None]),
        "n": st.sampled_from([*INTS, None]),
    }
)
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


def table_of(stream, texts, ints, make, cut):
    """Return the events as two chunks, each behind an offset."""
    types = {
        "type": pa.string(), "ts": make(texts), "ns": make(ints), "st": pa.struct({"ts": make(texts)}),
        "s": pa.string(), "n": pa.int64(),
    }  # fmt: skip
    schema = pa.schema(types)
    before = {"type": "A", "ts": ["a"], "ns": [1, 2], "st": {"ts": ["b", None]}, "s": "x", "n": 5}
    whole = pa.RecordBatch.from_arrays(
        [pa.array([before[name], *(event[name] for event in stream)], kind) for name, kind in types.items()],
        schema=schema,
    )
    return pa.Table.from_batches([whole[1 : 1 + cut], whole[1 + cut :]], schema)


def text_of(predicate, formula=None, seed=0):
    formula = ref.EventType("A") if formula is None else formula
    return rendering.to_ceql(ref.Query(ref.Filter(formula, ref.Unary("A", predicate))), random.Random(seed))


@property_test(2)
def test_elements_are_tested_as_in_the_reference(data):
    stream = data.draw(st.lists(events, min_size=1, max_size=9), label="events")
    predicate = data.draw(predicates, label="predicate")
    texts = data.draw(st.sampled_from(TEXT_TYPES))
    ints = data.draw(st.sampled_from([pa.int64(), pa.int8(), pa.float64()]))
    make = data.draw(st.sampled_from([pa.list_, pa.large_list]))
    table = table_of(stream, texts, ints, make, data.draw(st.integers(0, len(stream))))
    query = cer_gpu.compile(text_of(predicate, seed=data.draw(st.integers(0, 99))), schema=table.schema)
    expected = [i for i, event in enumerate(stream) if ref.holds(predicate, event)]
    assert query.evaluate(table)["start"].to_pylist() == expected


@property_test(2)
def test_elements_are_tested_by_many_queries_at_once(data):
    stream = data.draw(st.lists(events, min_size=1, max_size=12), label="events")
    drawn = data.draw(st.lists(predicates, min_size=1, max_size=12), label="predicates")
    make = data.draw(st.sampled_from([pa.list_, pa.large_list]))
    kind = data.draw(st.sampled_from(TEXT_TYPES))
    table = table_of(stream, kind, pa.int64(), make, data.draw(st.integers(0, len(stream))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "FEW_ELEMENTS_OF", data.draw(st.sampled_from([0, 2, 8]), label="few of"))
        patch.setattr(string_sets, "TOGETHER_FROM", data.draw(st.sampled_from([0, 1 << 25]), label="together from"))
        found = cer_gpu.compile_all({f"q{k}": text_of(each) for k, each in enumerate(drawn)}).evaluate(table)
    for name, predicate in zip(found, drawn, strict=True):
        expected = [i for i, event in enumerate(stream) if ref.holds(predicate, event)]
        assert found[name]["start"].to_pylist() == expected


def test_elements_of_a_block_are_taken_out_once_for_all_tests(monkeypatch):
    taken = []
    block = lists.Elements.block
    monkeypatch.setattr(lists.Elements, "block", lambda *given: taken.append(1) or block(*given))
    table = pa.table({"type": ["A"] * 50, "ts": [[f"x{i}", f"y{i % 9}"] for i in range(50)]})
    rules = [
        f"SELECT * FROM S WHERE A FILTER A[ANY(ts) GLOB '*Y{k}' NOCASE AND NOT ANY(ts) = 'x{k}']" for k in range(9)
    ]
    found = cer_gpu.compile_all({str(k): rule for k, rule in enumerate(rules)}).evaluate(table)
    assert [len(each) for each in found.values()] == [5] * 5 + [4] * 4
    assert len(taken) == 1


@property_test()
def test_elements_are_tested_in_filters_between_events(data):
    stream = [*data.draw(st.lists(events, min_size=2, max_size=7), label="events")]
    stream = [{**event, "type": "AB"[i % 2]} for i, event in enumerate(stream)]
    predicate = data.draw(tests | tests.map(ref.PredNot), label="predicate")
    table = table_of(stream, pa.string(), pa.int64(), pa.list_, data.draw(st.integers(0, len(stream))))
    (inside,) = [part.split("A[", 1)[1].removesuffix("]") for part in [rendering.to_ceql(
        ref.Query(ref.Filter(ref.EventType("A"), ref.Unary("A", predicate)))
    )]]  # fmt: skip
    text = f"SELECT * FROM S WHERE A ; B FILTER A[({inside}) OR n > B.n]"
    found = cer_gpu.compile(text).evaluate(table)
    expected = {
        (i, j)
        for j, b in enumerate(stream)
        for i, a in enumerate(stream[:j])
        if (a["type"], b["type"]) == ("A", "B")
        and (ref.holds(predicate, a) or (None not in (a["n"], b["n"]) and a["n"] > b["n"]))
    }
    assert set(zip(found["start"].to_pylist(), found["end"].to_pylist(), strict=True)) == expected


@property_test()
def test_written_predicates_parse_to_themselves(data):
    predicate = data.draw(predicates | s.predicates, label="predicate")
    tree = tree_of(text_of(predicate, seed=data.draw(st.integers(0, 99))))
    assert tree_of(f"SELECT * FROM S WHERE A FILTER A[{predicate_text(tree)}]") == tree


def tree_of(text):
    return parse(text).formula.filter.predicate


def rows(predicate, table, negated=False):
    tree = tree_of(f"SELECT * FROM S WHERE A FILTER A[{predicate}]")
    binder = Binder(table.schema, predicate)
    test = binder.bind(tree, negated)
    (batch,) = table.to_batches()
    found = np.broadcast_to(rows_of(test, binder.inputs, Block(batch)), (batch.num_rows,))
    return np.flatnonzero(found).tolist()


@pytest.mark.parametrize("size", [0, 1, 2])
def test_lists_of_fixed_size_are_lists(size):
    values = [None, [1, 2][:size], [None, 5][:size], [3, 3][:size]]
    table = pa.table({"p": pa.array([[9] * size, *values], pa.list_(pa.int64(), size))})[1:]
    for text, test in [("ANY(p) > 1", lambda v: v > 1), ("ANY(p) <> 3", lambda v: v != 3)]:

        def truth(elements, test=test):
            if elements is None:
                return None
            truths = [None if v is None else test(v) for v in elements]
            return True if True in truths else None if None in truths else False

        known = [truth(value) for value in values]
        assert rows(text, table) == [i for i, truth in enumerate(known) if truth is True]
        assert rows(text, table, negated=True) == [i for i, truth in enumerate(known) if truth is False]


def test_values_under_a_list_that_is_null_are_not_read():
    hidden = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array([7, 7]), mask=pa.array([True, False]))
    table = pa.table({"p": hidden})
    assert rows("ANY(p) = 7", table) == [1]
    assert rows("ANY(p) = 8", table, negated=True) == [1]


def test_fields_of_elements_are_read_by_their_path():
    table = pa.table({"items": [[{"n": 1, "at": {"m": "a"}}], [], None, [{"n": 7, "at": None}, None]]})
    assert rows("ANY(items).n > 3", table) == [3]
    assert rows("ANY(items).at.m = 'a'", table) == [0]
    assert rows("ANY(items).at.m = 'b'", table, negated=True) == [0, 1]


def test_columns_without_values_are_unknown():
    table = pa.table({"p": pa.nulls(2), "q": pa.array([[None], []], pa.list_(pa.null()))})
    assert rows("ANY(p) = 1", table) == rows("ANY(p) = 1", table, negated=True) == []
    assert rows("ANY(q) = 1", table) == []
    assert rows("ANY(q) = 1", table, negated=True) == [1]


def test_functions_and_lags_stand_beside_elements():
    table = pa.table({"type": ["A"] * 3, "ts": [["x"], ["y"], ["x"]], "s": ["X", "X", "y"]})
    for text, expected in [("ANY(ts) = lower(s)", [0]), ("ANY(ts) <> LAG(s)", [1, 2]), ("ANY(ts) = LAG(s)", [])]:
        found = cer_gpu.compile(f"SELECT * FROM S WHERE A FILTER A[{text}]").evaluate(table)
        assert found["start"].to_pylist() == expected


def test_only_the_columns_that_are_read_come_from_files(tmp_path, monkeypatch):
    read = []

    class Watched(pq.ParquetFile):
        def iter_batches(self, *given, columns, **named):
            read.append(columns)
            return super().iter_batches(*given, columns=columns, **named)

    monkeypatch.setattr("cer_gpu.io.formats.pq.ParquetFile", Watched)
    table = pa.table({"type": ["A", "B"], "tags": [["x"], ["y"]], "st": [{"ts": ["a"], "o": 1}, None], "other": [1, 2]})
    pq.write_table(table, tmp_path / "events.parquet")
    query = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[ANY(tags) = 'x' AND ANY(st.ts) = 'a']")
    assert query.evaluate(tmp_path / "events.parquet")["start"].to_pylist() == [0]
    assert read == [["type", "tags", "st.ts"]]


def test_lists_are_sorted_and_kept_from_batch_to_batch():
    table = pa.table({"type": ["A", "B", "A"], "ts": [3, 2, 1], "tags": [["x"], None, ["x", "y"]]})
    text = "SELECT * FROM S WHERE A AS a ; A AS b FILTER b[ANY(tags) = 'x' AND ts > a.ts]"
    query = cer_gpu.compile(text, time_column="ts", time_unit="s")
    assert len(query.evaluate(table, sort=True)) == 1
