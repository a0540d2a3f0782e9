"""Merge of sorted runs of events into one, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from cer_gpu.order.layouts import Layouts
from cer_gpu.order.times import TimeKeys, stable_order


@dataclass(frozen=True)
class Chunk:
    """Events with the keys of their times, shape (n,)."""

    keys: TimeKeys
    events: pa.RecordBatch

    def slice(self, start: int, stop: int) -> Chunk:
        """Return the events from `start` up to `stop`, without a copy."""
        return Chunk(self.keys[start:stop], self.events.slice(start, stop - start))


def joined_chunks(chunks: list[Chunk], layouts: Layouts) -> Chunk:
    """Return the events of chunks, one after the other; the list is emptied."""
    keys = np.concatenate([chunk.keys for chunk in chunks])
    events = [chunk.events for chunk in chunks]
    chunks.clear()
    return Chunk(keys, layouts.concat(events))


class SortedRun(Protocol):
    """Sorted run: events in the order of time."""

    @property
    def first(self) -> int:
        """Lower bound of the keys: that of the first event, or less."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield the events, taken in by the layouts that `merge_runs` is given."""


def merge_runs(runs: Sequence[SortedRun], layouts: Layouts, n_rows: int) -> Iterator[pa.RecordBatch]:
    """Merge sorted runs by time; equal times are in the order of the sorted runs, and within one in its own.

    One chunk of each sorted run is held, from the time of its first event on.  Each round takes all events up to the
    end of the chunk that ends first.

    Parameters
    ----------
    runs
        Any number of sorted runs.
    layouts
        Layouts that took the events in.
    n_rows
        Events of a batch, about.

    Yields
    ------
    pyarrow.RecordBatch
        Batch to be given out by `layouts`.
    """
    iterators: list[Iterator[Chunk]] = [iter(())] * len(runs)
    chunks: list[Chunk | None] = [None] * len(runs)
    n_taken = [0] * len(runs)
    firsts, lasts = np.zeros((2, len(runs)), np.uint64)  # keys of the rest of each chunk
    opened = np.zeros(len(runs), np.bool_)
    waiting = sorted(range(len(runs)), key=lambda i: (runs[i].first, i), reverse=True)

    def advance(run: int) -> None:
        chunk = next((c for c in iterators[run] if len(c.keys)), None)
        chunks[run], n_taken[run], opened[run] = chunk, 0, chunk is not None
        if chunk is not None:
            firsts[run], lasts[run] = chunk.keys[0], chunk.keys[-1]

    parts: list[Chunk] = []
    n_held = 0
    while True:
        while waiting and (not opened.any() or runs[waiting[-1]].first <= int(lasts[opened].min())):
            run = waiting.pop()
            iterators[run] = runs[run].chunks()
            advance(run)
        active = np.flatnonzero(opened)
        if not len(active):
            break
        # the first sorted run whose chunk ends at this time; later ones wait, as it may go on with equal times
        ends = int(active[np.argmin(lasts[active])])
        cut = lasts[ends]
        for run in active[firsts[active] <= cut].tolist():
            chunk, start = chunks[run], n_taken[run]
            assert chunk is not None
            stop = len(chunk.keys)
            if run != ends:
                stop = start + int(np.searchsorted(chunk.keys[start:], cut, "right" if run < ends else "left"))
                firsts[run] = chunk.keys[stop]
            parts.append(chunk.slice(start, stop))
            n_taken[run] = stop
            n_held += stop - start
        advance(ends)
        if n_held >= n_rows:
            yield from sort_chunks(parts, layouts, n_rows)
            n_held = 0
    yield from sort_chunks(parts, layouts, n_rows)


def sort_chunks(chunks: list[Chunk], layouts: Layouts, n_rows: int) -> Iterator[pa.RecordBatch]:
    """Sort events stably by their keys and yield them in batches of about `n_rows`; the list is emptied."""
    if not chunks:
        return
    keys = np.concatenate([chunk.keys for chunk in chunks])
    events = [chunk.events for chunk in chunks]
    chunks.clear()
    order = stable_order(keys)
    del keys
    if order is None:
        yield from rebatch(events, layouts, n_rows)
        return
    joined = layouts.concat(events)
    for start in range(0, len(order), n_rows):
        yield joined.take(pa.array(order[start : start + n_rows]))


def rebatch(batches: Iterable[pa.RecordBatch], layouts: Layouts, n_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same events in batches of about `n_rows`: small ones are joined, large ones cut."""
    held: list[pa.RecordBatch] = []
    n_held = 0
    for batch in batches:
        for start in range(0, batch.num_rows, n_rows):
            held.append(batch.slice(start, n_rows))
            n_held += held[-1].num_rows
            if n_held >= n_rows // 2:
                yield layouts.concat(held)
                n_held = 0
    if held:
        yield layouts.concat(held)
