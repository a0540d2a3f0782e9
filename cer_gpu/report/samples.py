"""Bounded samples of complex events, spread evenly, and the same however the results are cut into batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64, UInt64


class Sample:
    """Sample of every complex event whose number is a multiple of `step`, a power of two that grows with the stream.

    Parameters
    ----------
    bound
        Greatest sum of the weights of the sample; the first complex event is kept in any case.

    Attributes
    ----------
    step : int
    """

    def __init__(self, bound: int) -> None:
        self.step: int = 1
        self._bound = bound
        self._kept: list[pa.Table] = []
        self._weight = 0

    def of_step(self, rows: pa.Table) -> pa.Table:
        """Return the rows that may enter the sample: those whose number is a multiple of `step`."""
        return rows if self.step == 1 else _every(rows, self.step)

    def add(self, rows: pa.Table, weights: Int64) -> None:
        """Add rows, one for each complex event; the column ``number`` counts them from 0."""
        rows = self.of_step(rows.append_column("weight", pa.array(weights)))
        self._kept.append(rows)
        self._weight += int(rows["weight"].to_numpy().sum())
        while self._weight > self._bound and sum(kept.num_rows for kept in self._kept) > 1:
            self.step *= 2
            self._kept = [_every(kept, self.step) for kept in self._kept]
            self._weight = sum(int(kept["weight"].to_numpy().sum()) for kept in self._kept)

    def rows(self) -> pa.Table | None:
        """Return the sample, or None if nothing was added."""
        return pa.concat_tables(self._kept).drop_columns(["weight"]) if self._kept else None


def _every(rows: pa.Table, step: int) -> pa.Table:
    wanted = rows["number"].to_numpy() % step == 0
    return rows.filter(pa.array(wanted))


def fingerprints(rows: pa.RecordBatch | pa.Table) -> UInt64:
    """Return a hash of ``start``, ``end`` and ``positions`` for each complex event."""
    starts, ends = (rows.column(name).to_numpy().astype(np.uint64) for name in ("start", "end"))
    lists = rows.column("positions")
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    offsets = lists.offsets.to_numpy()
    values = lists.values.to_numpy()[offsets[0] : offsets[-1]].astype(np.uint64)
    # positions are a set, so the sum of their mixed values is a hash of it, whatever the order
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(values), dtype=np.uint64)])
    sums = before[offsets[1:] - offsets[0]] - before[offsets[:-1] - offsets[0]]
    return _mixed(_mixed(starts + np.uint64(1)) + _mixed(ends ^ np.uint64(1 << 63)) + sums)


def _mixed(values: UInt64) -> UInt64:
    """Return values under a random-looking permutation of 64-bit integers: the mixer of the generator SplitMix64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
