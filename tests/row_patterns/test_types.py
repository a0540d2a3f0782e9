"""Columns of all types of Arrow: those that row patterns order, divide, compare and pass on, and those refused."""

import pickle
from decimal import Decimal
from itertools import pairwise

import polars as pl
import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.errors import EventsError, QueryTypeError
from cer_gpu.predicates import guards
from cer_gpu.row_patterns.ordering import whole_array

NARROW = [pa.decimal32(5, 2), pa.decimal64(12, 2), pa.float16()]


def result(clauses, events):
    return cer_gpu.compile(f"SELECT * FROM p MATCH_RECOGNIZE ({clauses})").evaluate(events)


@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_narrow_numbers_have_an_order(kind):
    rows = pa.table({"e": pa.array([2, 1, None, 4, 3], kind), "t": [1, 0, 9, 3, 2]})
    found = result("ORDER BY e NULLS LAST MEASURES LAST(t) AS l PATTERN (a b?) DEFINE b AS t > PREV(t)", rows)
    assert found["l"].to_pylist() == [1, 3, 9]
    found = result("ORDER BY e DESC NULLS LAST MEASURES LAST(t) AS l PATTERN (a b?) DEFINE b AS t > 100", rows)
    assert found["l"].to_pylist() == [3, 2, 1, 0, 9]


@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_narrow_numbers_are_keys_and_extremes(kind):
    rows = pa.table({"e": pa.array([1, 2, None, 1, 2, None, 3], kind), "x": pa.array([-5, 2, 3, 4, None, 6, 7], kind)})
    clauses = "MEASURES MIN(x) AS low, MAX(x) AS high, COUNT(*) AS n PATTERN (a+ b?) DEFINE b AS x > 9"
    found = result(f"PARTITION BY e {clauses}", rows)
    assert found.schema.types == [kind, kind, kind, pa.int64()]
    numbers = [found[name].cast(pa.float64()).to_pylist() for name in found.column_names]
    assert numbers == [[1, 2, None, 3], [-5, 2, 3, 7], [4, 2, 6, 7], [2, 2, 2, 1]]


def test_files_and_batches_of_other_types_are_widened_or_refused(tmp_path):
    clauses = "MEASURES LAST(x) AS x PATTERN (a b?) DEFINE b AS x > 16777216"

    def batches(*arrays):
        return iter([pa.record_batch({"x": array}) for array in arrays])

    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    (tmp_path / "b.csv").write_text("x\n1.5\n2.5\n")
    widened = result("MEASURES LAST(x) AS x PATTERN (a a a a) DEFINE a AS TRUE", tmp_path)
    assert widened["x"].to_pylist() == [2.5], "files of text have one type"
    small, large = pa.array([1.0], pa.float32()), pa.array([16777217.0], pa.float64())
    narrow, wide = pa.array([1], pa.int32()), pa.array([2**40])
    for events, first, other in (
        (batches(narrow, wide), "int32", "int64"),
        (batches(pa.nulls(1), wide), "null", "int64"),
        (batches(small, large), "float", "double"),
        (batches(pa.array([1.0]), pa.array([Decimal("1.00000000000000001")])), "double", r"decimal128\(18, 17\)"),
    ):
        with pytest.raises(EventsError, match=f"column 'x' was {first} at first and is {other} now"):
            result(clauses, events)
    fits = batches(small, pa.array([2.0**25, float("nan"), None]))
    assert str(result(clauses, fits)["x"].to_pylist()) == f"[{2.0**25}, nan, None]"
    assert result(clauses, batches(wide, narrow))["x"].to_pylist() == [2**40, 1]


NO_KEYS = [
    pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
    pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
]


@pytest.mark.parametrize("column", NO_KEYS, ids=lambda column: str(column.type))
def test_values_that_arrow_cannot_compare_are_no_keys(column):
    with pytest.raises(QueryTypeError, match="PARTITION BY needs columns of plain values, and 'e' is "):
        result("PARTITION BY e MEASURES LAST(e) AS l PATTERN (a b?) DEFINE b AS e IS NULL", pa.table({"e": column}))


@pytest.mark.parametrize("values", [pa.array([None, "a", "b"]), pa.array([None, 1, 2], pa.float16())], ids=str)
def test_dictionaries_may_hold_null_and_any_value(values):
    codes = [pa.array(each, pa.uint8()) for each in ([1, 1, 0], [0, 2, None, 2, 2])]
    rows = pa.table({"e": pa.chunked_array([pa.DictionaryArray.from_arrays(each, values) for each in codes])})
    found = result("MEASURES COUNT(*) AS n, LAST(e) AS e PATTERN (a b*) DEFINE b AS e = PREV(e)", rows)
    assert found["n"].to_pylist() == [2, 1, 1, 1, 1, 2]
    assert found["e"].to_pylist() == [values[1].as_py(), None, None, values[2].as_py(), None, values[2].as_py()]
    listed = result("ALL ROWS PER MATCH PATTERN (a b*) DEFINE b AS e = PREV(e)", rows)["e"]
    assert listed.to_pylist() == rows["e"].to_pylist()
    assert listed.type == (pa.float16() if values.type == pa.float16() else rows["e"].type)
    found = result("PARTITION BY e MEASURES COUNT(*) AS n PATTERN (a b*) DEFINE b AS e IS NULL OR e = PREV(e)", rows)
    assert found["n"].to_pylist() == [2, 3, 3]


def test_enumerations_and_categories_within_lists_and_structs():
    kinds = pl.Enum(["a", "b"])
    structs = [{"u": "a", "v": 1}, None, {"u": None, "v": 2}, {"u": "b", "v": 3}]
    rows = {"l": [["a"], ["b", None], None, []], "s": structs}
    types = {"l": pl.List(kinds), "s": pl.Struct({"u": pl.Categorical(), "v": pl.Int64})}
    events = pl.DataFrame({**rows, "t": [4, 3, 2, 1]}, schema={**types, "t": pl.Int64})
    found = result("ORDER BY t ALL ROWS PER MATCH PATTERN (a b?) DEFINE b AS t > 9", events)
    assert found.select(["l", "s"]).to_pydict() == {name: column[::-1] for name, column in rows.items()}
    found = result("MEASURES LAST(s) AS s PATTERN (a b?) DEFINE b AS t < PREV(t)", events[1:])
    assert found["s"].to_pylist() == [*structs[2:]]


def test_a_column_that_arrow_cannot_move_is_refused():
    events = pl.DataFrame({"e": pl.Series([["a"]], dtype=pl.Array(pl.String, 1))})
    with pytest.raises(EventsError, match=r"column 'e' is fixed_size_list.*, and events with such a column cannot be"):
        result("ALL ROWS PER MATCH PATTERN (a b?) DEFINE b AS MATCH_NUMBER() = 1", events)


LAYOUTS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.uint8(), pa.string()),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("few", [0, 10**6], ids=["together", "one by one"])
def test_several_conditions_on_one_column_of_strings(monkeypatch, layout, few):
    monkeypatch.setattr(guards, "FEW_STRINGS", few)
    texts = ["a", None, "b", "", "c", "a", "b", None, "long enough to lie outside", "c"]
    rows = pa.table({"s": pa.array(texts).cast(layout), "i": range(len(texts))})
    define = "a AS s = 'a', b AS s IN ('b', 'c'), c AS s <> 'a' AND s <> 'b', d AS s LIKE 'long%', e AS s IS NULL"
    found = result(f"MEASURES CLASSIFIER() AS v, FIRST(i) AS i PATTERN (a | b | c | d | e) DEFINE {define}", rows)
    of = {"a": "A", "b": "B", "c": "B", None: "E"}
    assert found["v"].to_pylist() == [of.get(text, "C") for text in texts]
    found = result(f"MEASURES CLASSIFIER() AS v, FIRST(i) AS i PATTERN (e | d | c | b | a) DEFINE {define}", rows)
    of = {"a": "A", "b": "B", None: "E", "long enough to lie outside": "D"}
    assert found["v"].to_pylist() == [of.get(text, "C") for text in texts]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3, 4, 5]),
        pa.array([True, None, False, True, True]),
        pa.array(["a", None, "", "dd", "e"]),
        pa.array([b"a", None, b"", b"dd", b"e"], pa.large_binary()),
        pa.array(["a", None, "", "a", "e"]).dictionary_encode(),
        pa.array([[1], None, [], [2, 3], [4]]),
        pa.array([{"x": 1}, None, {"x": None}, {"x": 2}, {"x": 3}]),
        pa.nulls(5),
    ],
    ids=lambda column: str(column.type),
)
def test_slices_of_an_array_are_one_array_again(column):
    for cuts in ([0, 2, 2, 3, 5], [1, 2, 5], [0, 5], [2, 4], [3, 3]):
        slices = [column.slice(a, b - a) for a, b in pairwise(cuts)]
        assert (
            whole_array(pa.chunked_array(slices)).to_pylist() == column.slice(cuts[0], cuts[-1] - cuts[0]).to_pylist()
        )
    other = pa.concat_arrays([column])
    for parts in ([(3, 5), (0, 2)], [(0, 2), (3, 5)], [(0, 3), (2, 5)]):
        slices = [column.slice(a, b - a) for a, b in parts]
        assert whole_array(pa.chunked_array(slices)).to_pylist() == [
            v for a, b in parts for v in other[a:b].to_pylist()
        ]


def test_slices_are_not_copied():
    column = pa.array(["a", None, "ccc", "d"])
    whole = whole_array(pa.chunked_array([column.slice(1, 1), column.slice(2)]))
    assert whole.buffers()[2].address == column.buffers()[2].address
    assert whole.null_count == 1


def test_a_statement_is_bound_once_to_each_schema():
    query = cer_gpu.compile(
        "SELECT * FROM p MATCH_RECOGNIZE (MEASURES LAST(x) AS x PATTERN (a b) DEFINE b AS x > PREV(x))"
    )
    integers, floats = pa.table({"x": [1, 2]}), pa.table({"x": [1.0, 2.0]})
    assert query.evaluate(integers)["x"].to_pylist() == [2]
    bound = query._bound(integers.schema)
    assert query.evaluate(integers)["x"].to_pylist() == [2]
    assert all(a is b for a, b in zip(query._bound(integers.schema), bound, strict=True))
    assert query.evaluate(floats).schema.types == [pa.float64()]
    assert query.evaluate(integers).schema.types == [pa.int64()]
    with pytest.raises(QueryTypeError, match="no column 'x'"):
        query.evaluate(pa.table({"y": [1]}))
    copy = pickle.loads(pickle.dumps(query))
    assert copy == query
    assert copy.evaluate(floats)["x"].to_pylist() == [2.0]
