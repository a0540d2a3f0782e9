"""Reusable and growing memory, gathered numbers, and the first decrease of a clock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cer_gpu.backend.windows import FALL_CHUNK, first_fall
from cer_gpu.columnar.memory import GROWS_IN_PLACE, LARGE, GatherBuffer, GrowableArray, Scratch

DTYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)] + ["float32", "float64"]


def test_scratch_memory_is_reused_and_grows() -> None:
    scratch = Scratch(np.int64, 3)
    first = scratch.empty(5)
    assert first.shape == (5, 3)
    assert np.shares_memory(first, scratch.empty(8))
    assert not np.shares_memory(first, scratch.empty(9))
    assert scratch.empty(0).shape == (0, 3)


@pytest.mark.parametrize("viewed", [False, True])
@pytest.mark.parametrize("n_bytes", [800, LARGE - 16, 2 * LARGE])
def test_rows_keep_their_values_as_they_grow(n_bytes: int, viewed: bool) -> None:
    """The memory grows in place, or is copied if another view of it exists."""
    rows = GrowableArray(n_bytes // 16, 2)
    expected = np.arange(n_bytes // 8).reshape(-1, 2)
    rows.array[:] = expected
    views = []
    for factor in (1.5, 2, 40):
        if viewed:
            views.append(rows.array[1:])
        before = rows._memory
        rows.grow(int(factor * len(expected)))
        if GROWS_IN_PLACE and before is not None:
            assert (rows._memory is before) == (not viewed)
        assert rows.array.shape == (int(factor * len(expected)), 2)
        np.testing.assert_array_equal(rows.array[: len(expected)], expected)
        rows.array[len(expected) :] = -1
    for view in views:
        np.testing.assert_array_equal(view[: len(expected) - 1], expected[1:])


@pytest.mark.parametrize("stride", [1, 2, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gathered_numbers_have_64_bits(dtype: str, stride: int) -> None:
    numbers = np.random.default_rng(1).integers(0, 256, 400, np.uint8).view(dtype)[::stride]
    rows = np.arange(0, len(numbers), 3, dtype=np.int32)
    taken = GatherBuffer().take(numbers, rows)
    assert taken.dtype.itemsize == 8
    assert taken.dtype.kind == numbers.dtype.kind
    np.testing.assert_array_equal(taken, numbers[rows].astype(taken.dtype))


@given(st.integers(1, 2 * FALL_CHUNK + 2), st.data())
def test_first_fall_finds_the_first_decrease(n: int, data: st.DataObject) -> None:
    floats = data.draw(st.booleans())
    values = np.repeat(np.arange(n, dtype=np.float64 if floats else np.int64), 2)[:n]
    wrong = sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=3)))
    for row in wrong:
        values[row] = np.nan if floats and data.draw(st.booleans()) else -1 - row  # below all values before it
    expected = next((row for row in wrong if row or np.isnan(values[0])), n)
    # a low value in the first row is no decrease
    assert first_fall(values) == expected
