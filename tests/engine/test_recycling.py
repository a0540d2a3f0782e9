"""Memory of results is taken again, and never while anything refers to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.engine import matches
from cer_gpu.engine.recycling import MOST_FREE, Recycler


def address(array: npt.NDArray[Any]) -> int:
    where: int = array.__array_interface__["data"][0]
    return where


def taken(recycler: Recycler, n: int = 1000) -> list[npt.NDArray[Any]]:
    return recycler.arrays(((2, n), np.int64), ((n,), np.float64), ((0,), np.int64), ((n + 1,), np.int32))


def test_arrays_lie_apart_and_aligned() -> None:
    arrays = taken(Recycler())
    assert [array.shape for array in arrays] == [(2, 1000), (1000,), (0,), (1001,)]
    for value, array in enumerate(arrays):
        array[:] = value
        assert array.flags.aligned
        assert array.flags.writeable
    assert all((array == value).all() for value, array in enumerate(arrays))


def test_what_nobody_uses_is_taken_again() -> None:
    recycler = Recycler()
    first = address(taken(recycler)[0])
    assert address(taken(recycler)[0]) == first
    assert address(taken(recycler, 999)[0]) != 0  # of another size: fresh
    assert address(taken(recycler, 999)[0]) != 0


KEEPERS: dict[str, Callable[[npt.NDArray[Any]], Any]] = {
    "array": lambda array: array,
    "slice": lambda array: array[5:],
    "arrow": pa.array,
    "arrow slice": lambda array: pa.array(array).slice(3, 4),
    "memoryview": memoryview,
}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_somebody_uses_is_not(keeper: str) -> None:
    recycler = Recycler()
    arrays = taken(recycler)
    arrays[1][:] = 7
    kept = KEEPERS[keeper](arrays[1])
    used = address(arrays[0])
    del arrays
    others = [taken(recycler) for _ in range(MOST_FREE + 2)]
    for other in others:
        assert address(other[0]) != used
        other[1][:] = 0
    assert set(np.asarray(kept)) == {7}
    del kept
    assert address(taken(recycler)[0]) == used


def test_few_blocks_wait() -> None:
    recycler = Recycler()
    many = [taken(recycler) for _ in range(MOST_FREE + 5)]
    del many
    assert len(recycler._free) == MOST_FREE


@pytest.mark.parametrize("output", ["positions", "bindings", "events", "count"])
def test_results_that_are_kept_stay(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "OUTPUT_ROWS", 4)
    events = pa.table({"type": ["A", "B"] * 40, "x": range(80)})
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b WITHIN 20 EVENTS")
    kept, copies = [], []
    for batch in query.stream(events, output=output):
        kept.append(batch)
        copies.append(batch.to_pylist())
    assert len(kept) > 5
    assert [batch.to_pylist() for batch in kept] == copies
