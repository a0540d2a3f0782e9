"""States of the columns that mark events by those before them: descent of processes, rising edges of conditions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Array, Bools
from cer_gpu.backend.over.descent import mark_descents
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions.over_aggregates import OverColumn


class DescentState:
    """Descent of processes: the ids of processes that are marked, or descend from such, in the whole stream."""

    def __init__(self, column: OverColumn) -> None:
        self._ids, self._marks = pa.array([], pa.large_string()), np.zeros(0, np.uint8)
        self.rebind(column)

    def rebind(self, column: OverColumn) -> None:
        """Go on with the column of another schema."""
        self.column = column

    def make(self, block: Block, chosen: Bools) -> pa.Array:
        """Return the column of the next block, from the mask of events that mark their process."""
        results = np.zeros(block.n_rows, np.bool_)
        if not len(self._ids) and not chosen.any():
            return pa.array(results)
        (processes, parents), ids = block.coded_together(self.column.aggregate.ids)
        places = pc.index_in(ids, value_set=self._ids)
        existing = places.is_valid().to_numpy(zero_copy_only=False)
        places = places.fill_null(0).to_numpy()[existing]
        marks = np.zeros(len(ids), np.uint8)
        marks[existing] = self._marks[places]
        mark_descents(processes, parents, read_only(chosen), marks, results)
        self._marks[places] = marks[existing]
        (new,) = np.nonzero(marks.astype(np.bool_) & ~existing)
        if len(new):
            self._ids = pa.concat_arrays([self._ids, ids.take(pa.array(new))])
            self._marks = np.concatenate([self._marks, marks[new]])
        return pa.array(results)

    def snapshot(self, n_keys: int) -> dict[str, Array]:
        """Return the state as arrays."""
        return {"known": self._marks}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from a snapshot."""
        self._marks = np.array(arrays["known"])

    def strings(self) -> pa.Array:
        """Return the ids."""
        return self._ids

    def restore_strings(self, strings: pa.Array) -> None:
        """Go on with the ids of a snapshot."""
        self._ids = strings


class RisesState:
    """Rising edges of a condition, computed from its aggregate before and after the event; stateless."""

    def __init__(self, column: OverColumn) -> None:
        self.rebind(column)

    def rebind(self, column: OverColumn) -> None:
        """Go on with the column of another schema."""
        self.column = column

    def make(self, rows: Array, rises: Bools) -> pa.Array:
        """Return the column of the next block, from its events that have a key and the mask of rising edges."""
        results = np.zeros(len(rises), np.bool_)
        results[rows] = rises[rows]
        return pa.array(results)

    def snapshot(self, n_keys: int) -> dict[str, Array]:
        """Return the state as arrays."""
        return {}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from a snapshot."""
