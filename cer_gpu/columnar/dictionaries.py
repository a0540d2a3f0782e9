"""Tables computed once for each dictionary of a string column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array

FEW_VALUES = 4
"""Values of a dictionary for each one that is asked for, from which on only these are computed."""


class DictionaryCache:
    """Table computed from the dictionary of a string column, and kept until the dictionary changes.

    Parameters
    ----------
    compute
        Makes the table, one row for each value, from the values of the dictionary.
    of_null : array, optional
        Last row of the table, that of NULL; None: zeros.
    """

    def __init__(self, compute: Callable[[pa.Array], Array], of_null: Array | None = None) -> None:
        self._compute, self._of_null = compute, of_null
        self._values: pa.Array | None = None  # kept alive, so that no other array gets its address
        self._table: Array | None = None

    def fresh(self) -> DictionaryCache:
        """Return a new one with the same function, without a table."""
        return DictionaryCache(self._compute, self._of_null)

    def __call__(self, values: pa.Array) -> Array:
        """Return the table of a dictionary, with a last row for NULL (so that code 0 can always be looked up)."""
        if self._table is None or self._values is None or not same_memory(values, self._values):
            if self._table is None or not values.equals(self._values):
                rows = self._compute(values)
                last = np.zeros_like(rows, shape=(1, *rows.shape[1:]))
                last[:] = 0 if self._of_null is None else self._of_null
                self._table = np.concatenate([rows, last])
            self._values = values
        return self._table

    @property
    def is_expensive(self) -> bool:
        """True if asking for few values may cost much less than asking for all."""
        return True

    def at(self, values: pa.Array, codes: Array) -> Array:
        """Return the rows of a dictionary's table at some codes."""
        known = self._table is not None and self._values is not None and same_memory(values, self._values)
        if not known and FEW_VALUES * len(codes) < len(values):
            few, places = np.unique(codes, return_inverse=True)
            found: Array = self._compute(values.take(pa.array(few)))[places]
            return found
        at: Array = self(values)[codes]
        return at

    def codes(self, values: pa.Array) -> Array:
        """Return the values of a dictionary, ascending, of which the table, of truths, is True."""
        return np.flatnonzero(self(values)[:-1])


def same_memory(a: pa.Array, b: pa.Array) -> bool:
    """Return True if two arrays, both alive, are views of the same memory."""
    return (
        len(a) == len(b)
        and a.offset == b.offset
        and a.type == b.type
        and all(
            (x is None and y is None) or (x is not None and y is not None and x.address == y.address)
            for x, y in zip(a.buffers(), b.buffers(), strict=True)
        )
    )
