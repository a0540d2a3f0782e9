"""Batches joined to larger ones."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cer_gpu.columnar import record_batches as module
from cer_gpu.columnar.record_batches import coalesce_batches


def _batch(first: int, n: int, *, coded: bool = False) -> pa.RecordBatch:
    numbers = range(first, first + n)
    texts = pa.array([f"t{i % 3}" for i in numbers], pa.string())
    return pa.record_batch(
        {"i": pa.array(range(first, first + n), pa.int64()), "s": texts.dictionary_encode() if coded else texts}
    )


@pytest.mark.parametrize("coded", [False, True])
def test_rows_stay_and_batches_are_as_large_as_allowed(coded: bool) -> None:
    given = [_batch(0, 3, coded=coded), _batch(3, 0, coded=coded), _batch(3, 4, coded=coded), _batch(7, 9, coded=coded)]
    joined = list(coalesce_batches(iter(given), 8))
    assert [each.num_rows for each in joined] == [7, 9]
    assert [i for each in joined for i in each["i"].to_pylist()] == list(range(16))
    assert [s for each in joined for s in each["s"].to_pylist()] == [f"t{i % 3}" for i in range(16)]


def test_batches_of_other_schemas_stay_apart() -> None:
    other = pa.record_batch({"i": [5.0], "s": ["x"]})
    joined = list(coalesce_batches([_batch(0, 1), other, other, _batch(1, 1)], 10))
    assert [each.num_rows for each in joined] == [1, 2, 1]


def test_joined_batches_are_not_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [_batch(0, 4), _batch(4, 4), _batch(8, 4)]
    monkeypatch.setattr(module, "MAX_BYTES", 2 * given[1].nbytes)
    assert [each.num_rows for each in coalesce_batches(given, 100)] == [8, 4]


def test_nothing_gives_nothing() -> None:
    assert list(coalesce_batches([], 10)) == []
