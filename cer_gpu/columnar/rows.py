"""Relevant events of a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cer_gpu.arrays import Int32, Int64


class SelectedRows(NamedTuple):
    """Relevant events of a block.

    Attributes
    ----------
    symbols : int32, shape (n,)
    rows : int32, shape (n,)
    some : callable or None
        Returns the rows that any query of the set reads, ascending, or None if they are many; None: they are not known.
    """

    symbols: Int32
    rows: Int32
    some: Callable[[], Int32 | None] | None = None

    def at(self, kept: Int64) -> SelectedRows:
        """Return some of the events."""
        return SelectedRows(self.symbols[kept], self.rows[kept], self.some)
