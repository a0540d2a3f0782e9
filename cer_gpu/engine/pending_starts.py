"""Starts of a funnel that are not handed over yet: their keys, and the order in which they are known.

The runtime (`cer_gpu.runtime.progress`) holds the starts.  A start is known when it has stopped, and handed over when
all starts before it are; the keys of a start are read with its own event, and wait here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.output.choice import part_of
from cer_gpu.runtime.events import RelevantEvents
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.progress.buffers import ProgressBuffers
from cer_gpu.runtime.protocol import HoldsStarts

NO_POSITION = np.iinfo(np.int64).max
"""Position behind all events."""
_MAX_CHUNKS = 64
"""Most pieces of a column of keys: beyond, they become one."""


class PendingStarts:
    """The rows of "funnel" of one evaluation; takes the place of `cer_gpu.engine.pending_matches.PendingMatches`.

    Parameters
    ----------
    runtime
    labels
        Variables of each mark of the runtime.
    share
        (k, n): hand over part k of n of what is known; None for all.

    Attributes
    ----------
    labels : list of frozenset of str
    """

    def __init__(self, runtime: HoldsStarts, labels: list[frozenset[str]], shard: tuple[int, int] | None) -> None:
        self.labels = labels
        self._runtime, self._share, self._n_known = runtime, shard, 0
        self._keys: list[pa.ChunkedArray] = []  # of the starts that the runtime holds, in their order
        self._ended = False

    def note(self, events: RelevantEvents) -> None:
        """Do nothing: the runtime reads the events."""

    def take(self, found: MatchBuffers, keys: list[pa.Array]) -> None:
        """Let the keys of new starts wait."""
        if len(found):
            held = self._keys or [pa.chunked_array([], key.type) for key in keys]
            self._keys = [pa.chunked_array([*old.chunks, key], old.type) for old, key in zip(held, keys, strict=True)]
            if self._keys and self._keys[0].num_chunks > _MAX_CHUNKS:
                self._keys = [pa.chunked_array([key.combine_chunks()]) for key in self._keys]

    def pass_clocks(self, clocks: Array, first: int) -> None:
        """Read the clocks of all events of a block."""
        if len(clocks):
            self._runtime.pass_clock(clocks[-1])

    def pass_events(self, partitions: Int32, ordinals: Int64, positions: Int64) -> None:
        """Do nothing: the runtime has read all events of the partitions."""

    @property
    def next_deadline(self) -> int | None:
        """Least clock of an event that makes a start known; None: none waits for it."""
        return self._runtime.next_deadline

    @property
    def first_held(self) -> int:
        """Position of the first start that is not handed over; `NO_POSITION` if there is none."""
        return NO_POSITION if self._runtime.first_held is None else self._runtime.first_held

    def finish(self) -> None:
        """End the stream: all starts are known."""
        self._ended = True

    def known(self) -> tuple[ProgressBuffers, list[pa.Array]] | None:
        """Return the next starts that are known, with the keys of their partitions; None: there are no more."""
        while (found := self._runtime.known(ended=self._ended)) is not None:
            n = len(found)
            keys = [_one(key.slice(0, n)) for key in self._keys]
            self._keys = [key.slice(n) for key in self._keys]
            if self._share is not None:
                chosen = part_of(self._share, self._n_known)
                self._n_known += n
                found = found.at(chosen)
                keys = [key.take(pa.array(np.arange(n)[chosen])) for key in keys]
            if len(found):
                return found, keys
        return None

    def live(self) -> Int64:
        """Return no positions: the runtime tells them."""
        return np.empty(0, np.int64)

    def holds(self, n_partitions: int) -> Bools:
        """Return which of the first partitions have something here: none."""
        return np.zeros(n_partitions, np.bool_)

    def keep_partitions(self, kept: Bools) -> None:
        """Do nothing: starts have their keys here, and the numbers of their partitions in the runtime."""

    def snapshot(self) -> tuple[dict[str, Any], pa.Table]:
        """Return the state as arrays by name, and the keys."""
        names = [str(i) for i in range(len(self._keys))]
        return {"n_known": np.array([self._n_known])}, pa.table(self._keys, names)

    def restore(self, arrays: dict[str, Any], keys: pa.Table) -> None:
        """Go on from a snapshot."""
        self._n_known = int(arrays["n_known"][0])
        self._keys = keys.columns


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
