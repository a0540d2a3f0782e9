"""Columns of all types of Arrow: those that row patterns order, divide, compare and pass on, and those refused."""

import pyarrow as pa
import pytest

import cer_gpu

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
    found = result("PARTITION BY e MEASURES MIN(x) AS low, MAX(x) AS high, COUNT(*) AS n PATTERN (a+ b?) DEFINE b AS x > 9", rows)
    assert found.schema.types == [kind, kind, kind, pa.int64()]
    assert [tuple(map(float, row[:2])) for row in zip(*found.to_pydict().values(), strict=True) if row[0]] == [
        (1, -5),
        (2, 2),
        (3, 7),
    ]
    assert found["high"].cast(pa.float64()).to_pylist() == [4, 2, 6, 7]
    assert found["n"].to_pylist() == [2, 2, 2, 1]
