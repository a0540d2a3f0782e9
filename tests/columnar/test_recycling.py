"""Memory of results is reused, but never while anything refers to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.columnar.buffer_leases import MAX_FREE, Recycler
from cer_gpu.runtime import matches


def address(array: npt.NDArray[Any]) -> int:
    where: int = array.__array_interface__["data"][0]
    return where


def test_arrays_have_their_shapes_and_lie_apart() -> None:
    recycler = Recycler()
    arrays = [recycler.empty(*each) for each in (((2, 10), np.int64), ((20,), np.float64), ((0,), np.int64))]
    assert [array.shape for array in arrays] == [(2, 10), (20,), (0,)]
    for value, array in enumerate(arrays):
        array[:] = value
        assert array.flags.aligned
    assert all((array == value).all() for value, array in enumerate(arrays))


def test_unreferenced_memory_is_reused() -> None:
    recycler = Recycler()
    first = address(recycler.empty((1000,), np.int64))
    assert address(recycler.empty((2, 500), np.float64)) == first
    assert address(recycler.empty((999,), np.int64)) != first


KEEPERS: dict[str, Callable[[npt.NDArray[Any]], Any]] = {
    "array": lambda array: array,
    "slice": lambda array: array[5:],
    "arrow": pa.array,
    "arrow slice": lambda array: pa.array(array).slice(3, 4),
    "memoryview": memoryview,
}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_referenced_memory_is_not_reused(keeper: str) -> None:
    recycler = Recycler()
    array = recycler.empty((1000,), np.float64)
    array[:] = 7
    kept = KEEPERS[keeper](array)
    used = address(array)
    del array
    others = [recycler.empty((1000,), np.float64) for _ in range(MAX_FREE + 2)]
    for other in others:
        assert address(other) != used
        other[:] = 0
    assert set(np.asarray(kept)) == {7}
    del kept
    assert address(recycler.empty((1000,), np.float64)) == used


def test_few_free_arrays_are_kept() -> None:
    recycler = Recycler()
    many = [recycler.empty((1000,), np.int64) for _ in range(MAX_FREE + 5)]
    del many
    assert len(recycler._free[8000]) == MAX_FREE


@pytest.mark.parametrize("output", ["positions", "bindings", "events", "count"])
def test_kept_results_do_not_change(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "OUTPUT_ROWS", 4)
    events = pa.table({"type": ["A", "B"] * 40, "x": range(80)})
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b WITHIN 20 EVENTS")
    kept, copies = [], []
    for batch in query.stream(events, output=output):
        kept.append(batch)
        copies.append(batch.to_pylist())
    assert len(kept) > 5
    assert [batch.to_pylist() for batch in kept] == copies
