"""Reordering of events that arrive late by a bounded time, as they arrive."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.clocks import _time_string
from cer_gpu.columnar.columns import Block
from cer_gpu.errors import CerError, EventsError, OptionError, TimeOrderError
from cer_gpu.io.source import BATCH_ROWS
from cer_gpu.order.layouts import Layouts, compact
from cer_gpu.order.merge import Chunk, joined_chunks, sort_chunks
from cer_gpu.order.times import TimeKeys, Times, stable_order, time_of_key, to_floats, to_keys

LATE = ("raise", "drop")


class ReorderBuffer:
    """Buffer that holds events back until no event may come that belongs before them.

    An event is late when its time is less than the greatest time of all events that arrived before it, minus the
    lateness.  The others come out in the order of time, equal times in the order of their arrival.  The cut of the
    events into batches changes neither.

    An event costs O(log n) steps on average, with n events held, however few events a batch has.  Held events keep
    about twice their own memory alive at most.

    Parameters
    ----------
    column
        Name of the time column: integers, timestamps, dates, durations or floats.
    lateness
        In units of the column, not negative; for floats, the difference is computed in float64.
    late
        "raise" ends the stream with an error at the first late event; "drop" leaves late events out.

    Attributes
    ----------
    n_events : int
        Events that arrived.
    n_late : int
        Late ones among them.
    n_held : int
        Events held back now.

    Raises
    ------
    OptionError
        For a lateness that is negative or not finite, or another `late`.
    """

    def __init__(self, column: str, lateness: int | float, late: str) -> None:
        if late not in LATE:
            raise OptionError(f"late must be one of {', '.join(LATE)}, got {late!r}")
        if isinstance(lateness, bool) or not isinstance(lateness, int | float) or not 0 <= lateness < math.inf:
            raise OptionError(f"the lateness must be a number that is not negative, got {lateness!r}")
        self.column = column
        self.lateness = lateness
        self.late = late
        self.n_late: int = 0
        self._times = Times(column)
        self._greatest: int | None = None  # the key of the greatest time
        self._advanced: int | None = None  # the key of the time before which no event is to come
        self._layouts = Layouts()
        # sorted runs: all events of one arrived before those of the next
        self._runs: list[Chunk] = []
        self._refusal = ""

    @property
    def n_events(self) -> int:
        """Events that arrived."""
        return self._times.n_rows

    @property
    def n_held(self) -> int:
        """Events held back now."""
        return sum(len(run.keys) for run in self._runs)

    def push(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take the next events, and return, in order, those that no later arrival may precede.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Its columns may change from batch to batch, and so may their types, except that of the time.

        Returns
        -------
        list of pyarrow.RecordBatch
            Events with the columns that they came with; strings may come in another layout, and integers or floats
            wider.  One batch, unless it would be large or columns changed.

        Raises
        ------
        TimeOrderError
            When a time is missing (NULL or NaN), or an event is late and `late` is "raise".  The error ends the
            stream: no more events are taken, and held events are not given out.
        EventsError
            When the time column changes its type.
        """
        self._check_open()
        if not isinstance(batch, pa.RecordBatch):
            raise EventsError(f"expected a pyarrow.RecordBatch, got {type(batch).__name__}")
        try:
            self._take_until(batch)
            return self._release(self._limit())
        except CerError:
            self._refusal = "an error ended the stream"
            raise

    def advance_watermark(self, key: int) -> list[pa.RecordBatch]:
        """Take the promise that no event earlier than a time is to come, and return the events up to that time.

        Events that come earlier than it all the same are late.  Going back changes nothing.

        Parameters
        ----------
        key
            Key of the time (`cer_gpu.order.times`).
        """
        self._check_open()
        if self._advanced is None or key > self._advanced:
            self._advanced = key
        return self._release(self._limit())

    @property
    def greatest(self) -> int | None:
        """Key of the greatest time of all events that arrived, or None if none did."""
        return self._greatest

    @property
    def least(self) -> int | None:
        """Key of the earliest held event, or None if none is held."""
        return min((int(run.keys[0]) for run in self._runs if len(run.keys)), default=None)

    def finish(self) -> list[pa.RecordBatch]:
        """End the stream and return the rest of the events, in order."""
        self._check_open()
        self._refusal = "the stream is finished"
        return self._release((1 << 64) - 1)

    def _check_open(self) -> None:
        if self._refusal:
            raise OptionError(f"{self._refusal}: make a new Reorder")

    # ---- arrival ----------------------------------------------------------------------------------------

    def _take_until(self, batch: pa.RecordBatch) -> None:
        keys = self._times.keys_before_gap(batch)
        late = np.zeros(len(keys), np.bool_)
        if len(keys):
            first = int(keys[0]) if self._greatest is None else self._greatest
            greatest = np.maximum.accumulate(np.concatenate([np.array([first], np.uint64), keys]))
            lowest = self._lowest(greatest[:-1])
            late = keys < lowest
            if self._advanced is not None:
                late |= keys < np.uint64(self._advanced)
            if late.any() and self.late == "raise":
                row = int(np.argmax(late))
                self._refuse(row, int(keys[row]), int(greatest[row]) if keys[row] < lowest[row] else None)
            self._greatest = int(greatest[-1])
        if len(keys) < batch.num_rows:
            self._times.fail_at_gap(batch, len(keys))
        self._times.count(batch.num_rows)
        self.n_late += int(np.count_nonzero(late))
        events = self._layouts.take_in(batch)
        rows = np.flatnonzero(~late) if late.any() else None
        keys = keys if rows is None else keys[rows]
        order = stable_order(keys)
        if order is not None:
            keys = keys[order]
            rows = order if rows is None else rows[order]
        if len(keys):
            self._runs.append(Chunk(keys, events if rows is None else events.take(pa.array(rows))))

    def _lowest(self, greatest: TimeKeys) -> TimeKeys:
        """Return the least keys that are not late, after events of these greatest keys."""
        if self._floating():
            return self._less(greatest)
        lateness = np.uint64(min(math.floor(self.lateness), (1 << 64) - 1))
        return np.where(greatest > lateness, greatest - lateness, np.uint64(0))

    def _limit(self) -> int:
        """Return the greatest key that no later arrival may precede, or -1 if there is none."""
        advanced = -1 if self._advanced is None else self._advanced
        if self._greatest is None:
            return advanced
        if self._floating():
            return max(advanced, int(self._less(np.array([self._greatest], np.uint64))[0]))
        return max(advanced, self._greatest - math.floor(self.lateness))

    def _floating(self) -> bool:
        return bool(pa.types.is_floating(self._times.type))

    def _less(self, keys: TimeKeys) -> TimeKeys:
        """Return the keys of floats, given by their keys, minus the lateness."""
        with np.errstate(over="ignore"):
            return to_keys(to_floats(keys) - float(min(self.lateness, sys.float_info.max)))

    def _refuse(self, row: int, key: int, greatest: int | None) -> None:
        """Raise the error of an event that is late after one with the key `greatest`, or after an advance."""
        data_type = self._times.type
        assert data_type is not None
        number = self.n_events + row
        event = f"the {self.column!r} of event {number} ({_time_string(time_of_key(key, data_type))}) is late"
        if greatest is None:
            assert self._advanced is not None
            advanced = _time_string(time_of_key(self._advanced, data_type))
            raise TimeOrderError(
                f"{event}: the stream has advanced to {advanced}\nexpected: no event earlier than that\n"
                "hint: advance less, or late='drop' (--late drop) to leave late events out",
                number,
            )
        before = _time_string(time_of_key(greatest, data_type))
        unit = f" {data_type.unit}" if hasattr(data_type, "unit") else ""
        raise TimeOrderError(
            f"{event}: {before} came before it, and the lateness is {self.lateness}{unit}\n"
            "expected: events out of the order of time by the lateness at most\n"
            "hint: a larger lateness, or late='drop' (--late drop) to leave late events out",
            number,
        )

    # ---- held events ------------------------------------------------------------------------------------

    def _release(self, limit: int) -> list[pa.RecordBatch]:
        """Give out the events up to a key, in order."""
        parts: list[Chunk] = []
        left: list[Chunk] = []
        for i, run in enumerate(self._runs):
            stop = 0 if limit < 0 else int(np.searchsorted(run.keys, np.uint64(limit), "right"))
            if stop:
                parts.append(run.slice(0, stop))
            if stop < len(run.keys):
                touched = stop > 0 or i == len(self._runs) - 1
                left.append(_trimmed(run.slice(stop, len(run.keys))) if touched else run)
        self._runs = left
        self._join_runs()
        if len(parts) == 1:
            parts = [_trimmed(parts[0])]
        batches = sort_chunks(parts, self._layouts, BATCH_ROWS)
        return [given for batch in batches for given in self._layouts.give_out(batch)]

    def _join_runs(self) -> None:
        """Join the last sorted runs until each is twice as long as all after it together: O(log n) are left."""
        first = len(self._runs) - 1
        n_rows = len(self._runs[first].keys) if self._runs else 0
        while first > 0 and len(self._runs[first - 1].keys) < 2 * n_rows:
            first -= 1
            n_rows += len(self._runs[first].keys)
        if 0 <= first < len(self._runs) - 1:
            self._runs[first:] = [self._join_pieces(self._runs[first:])]

    def _join_pieces(self, runs: list[Chunk]) -> Chunk:
        made = joined_chunks(list(runs), self._layouts)
        order = stable_order(made.keys)
        return made if order is None else Chunk(made.keys[order], made.events.take(pa.array(order)))

    # ---- checkpoints ------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return the state that `restore` needs to go on from here.

        Returns
        -------
        table : pyarrow.Table or None
            The held events, in the columns of the layouts; None before the first batch.
        state : dict
            The rest of the state, in types that JSON has.
        """
        self._check_open()
        state = {
            "column": self.column,
            "lateness": self.lateness,
            "late": self.late,
            "n_events": self.n_events,
            "n_late": self.n_late,
            "greatest": self._greatest,
            "advanced": self._advanced,
            "layouts": self._layouts.state(),
        }
        if self._times.type is None:
            return None, state
        if len(self._runs) > 1:
            self._runs = [self._join_pieces(self._runs)]
        held = [self._layouts.conform(run.events) for run in self._runs]
        return pa.Table.from_batches(held, self._layouts.schema), state

    @classmethod
    def restore(cls, table: pa.Table | None, state: dict[str, Any]) -> ReorderBuffer:
        """Make a Reorder that goes on where `snapshot` was taken."""
        reorder = cls(state["column"], state["lateness"], state["late"])
        reorder._advanced = state.get("advanced")
        if table is None:
            return reorder
        events = reorder._layouts.restore(state["layouts"], table)
        name = reorder._layouts.column(reorder.column)
        reorder._times.resume(state["n_events"], events.schema.field(name).type)
        reorder.n_late = state["n_late"]
        reorder._greatest = state["greatest"]
        if events.num_rows:
            reorder._runs = [Chunk(to_keys(Block(events).numbers(name)), events)]
        return reorder


def _trimmed(chunk: Chunk) -> Chunk:
    """Return a chunk that keeps at most twice its own memory alive."""
    keys = chunk.keys
    if keys.base is not None and keys.base.nbytes > 2 * keys.nbytes:
        keys = keys.copy()
    return Chunk(keys, compact(chunk.events))
