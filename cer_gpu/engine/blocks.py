"""Batches of events and the blocks they are cut into: one set of columns, which several pipelines share."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Int64
from cer_gpu.columnar.clocks import Clock
from cer_gpu.columnar.columns import Block, numbers_of
from cer_gpu.columnar.dictionary_encoding import DictionaryEncoder
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.errors import EventsError

BLOCK_ROWS = 1 << 18
"""Rows of a block, so few that the temporaries of the predicates stay in the cache."""


@dataclass(frozen=True)
class EventBlock:
    """A block with checked clocks.

    Attributes
    ----------
    columns : Block
    first : int
        Number of its first event.
    explicit_positions : int64 array, shape (n,), or None
        Positions of its events from the position column, or None if events are counted.
    times : dict from column to array, shape (n,)
        Values of the clocks.
    """

    columns: Block
    first: int
    explicit_positions: Int64 | None
    times: dict[str, Array]


@dataclass(frozen=True)
class Batch:
    """A batch of events and its place in the stream.

    Attributes
    ----------
    events : pyarrow.RecordBatch
    first : int
        Number of its first event.
    explicit_positions : int64 array, shape (n,), or None
        Positions of its events from the position column, or None if events are counted.
    ends : int or None
        Number of all events of the stream, or None if it is not known, and they may come slowly.
    """

    events: pa.RecordBatch
    first: int
    explicit_positions: Int64 | None
    ends: int | None = None

    @property
    def is_last(self) -> bool:
        """True if no events follow it."""
        n_read: int = self.first + self.events.num_rows
        return n_read == self.ends

    def rows_at(self, positions: Int64) -> Int64:
        """Return the rows of the events at these positions of the batch."""
        if self.explicit_positions is None:
            return positions - self.first
        rows: Int64 = np.searchsorted(self.explicit_positions, positions)
        return rows


class Blocks:
    """Columns of a stream, block by block: strings keep their codes, and clocks are checked once.

    Parameters
    ----------
    clocks
        Columns of times, which must not decrease.
    position_column
        Column of the positions of events, or None if events are counted.
    begin
        Number of the first event.

    Attributes
    ----------
    clocks : dict from column to Clock
    n_events : int
        Number of the next event.
    last_position : int
        Last position of the position column, or -1.
    end : int or None
        Number of all events of the stream, if it is known.
    """

    def __init__(self, clocks: tuple[str, ...], position_column: str | None, begin: int) -> None:
        self.clocks: dict[str, Clock] = {name: Clock(name, begin) for name in clocks}
        self.n_events: int = begin
        self.last_position: int = -1
        self.end: int | None = None
        self._position_column = position_column
        self._coders: dict[str, DictionaryEncoder] = {}

    def watch(self, clocks: tuple[str, ...]) -> None:
        """Check further columns of times from the next event on."""
        for name in clocks:
            self.clocks.setdefault(name, Clock(name, self.n_events))

    def keep(self, clocks: Collection[str]) -> None:
        """Check no other columns of times from the next event on."""
        self.clocks = {name: clock for name, clock in self.clocks.items() if name in clocks}

    def restart(self, begin: int) -> None:
        """Go on at another event, whose clocks may be earlier; strings keep their codes."""
        self.clocks = {name: Clock(name, begin) for name in self.clocks}
        self.n_events = begin

    def advance(self, column: str, key: int) -> None:
        """Refuse times of a clock from now on that are earlier than that of a key."""
        self.clocks[column].advance(key)

    def batch(self, events: pa.RecordBatch) -> Batch:
        """Return a batch with its place in the stream.

        Raises
        ------
        EventsError
            When the positions of the position column do not ascend.
        """
        name = self._position_column
        explicit = None if name is None else self._ascending_positions(events.column(name))
        return Batch(events, self.n_events, explicit, self.end)

    def cut(self, events: pa.RecordBatch, n_rows: int) -> Iterator[Block]:
        """Yield the blocks of a batch of events, of at most `n_rows` rows."""
        for start in range(0, events.num_rows, n_rows):
            yield Block(events.slice(start, n_rows), self._coders)

    def read(self, block: Block) -> EventBlock:
        """Return the next block with its clocks.

        Raises
        ------
        TimeOrderError
            When a clock decreases, or is missing.
        """
        name = self._position_column
        explicit = None if name is None else block.numbers(name)
        times = {column: clock.read(block, explicit) for column, clock in self.clocks.items()}
        first, self.n_events = self.n_events, self.n_events + block.n_rows
        return EventBlock(block, first, explicit, times)

    def _ascending_positions(self, column: pa.Array) -> Int64:
        """Return the positions of the position column after checking that they ascend."""
        positions = numbers_of(column)
        before = np.concatenate([[self.last_position], positions])
        if column.null_count or (before[1:] <= before[:-1]).any():
            raise EventsError(f"the positions in {self._position_column!r} must ascend from 0, and none may be missing")
        self.last_position = int(before[-1])
        return positions

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the clocks and the last position to a checkpoint."""
        state.facts["last_position"] = self.last_position
        for name, clock in self.clocks.items():
            state.facts[f"clock.{name}"], state.tables[f"clock.{name}"] = clock.snapshot()

    def restore(self, state: NamedState) -> None:
        """Go on from a checkpoint, with the same clocks."""
        self.n_events, self.last_position = state.facts["n_events"], state.facts["last_position"]
        for name, clock in self.clocks.items():
            if f"clock.{name}" in state.tables:
                clock.restore(state.facts[f"clock.{name}"], state.tables[f"clock.{name}"])
