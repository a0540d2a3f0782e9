"""Columns of all types of Arrow: those that row patterns order, divide, compare and pass on, and those refused."""

from decimal import Decimal

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.errors import EventsError

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
    small, large = pa.array([1.0], pa.float32()), pa.array([16777217.0], pa.float64())
    narrow, wide = pa.array([1], pa.int32()), pa.array([2**40])
    for events, first, other in (
        (tmp_path, "int64", "double"),
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
