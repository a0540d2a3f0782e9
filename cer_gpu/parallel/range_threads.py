"""One stream on several threads, by ranges: each with the window before it, reporting only what ends in the range.

The loops release the GIL, so that ranges are evaluated in parallel; their results come in the order of the stream.
"""

from __future__ import annotations

import os
import queue
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.clocks import ordered
from cer_gpu.columnar.columns import Block
from cer_gpu.engine.execution_group import ExecutionGroup, NamedBatches
from cer_gpu.errors import EventsError
from cer_gpu.io.source import Parts, Source, prefetch
from cer_gpu.parallel.channel import Channel, ChannelReader
from cer_gpu.parallel.stream_splitter import StreamSplitter, Tallies
from cer_gpu.planning.distribution import at_or_before

RANGE_ROWS = 1 << 22
"""Most rows of a range, unless the window is longer."""
RANGE_ROWS_IN_MEMORY = 1 << 24
"""Most rows of a range that takes no memory: its events are in memory already, or read while they are evaluated."""
MIN_RANGE_ROWS = 1 << 13
"""Fewest rows of a range, however short many matches would make it."""
RESULT_BYTES = 48 << 20
"""Most bytes of the results of a range, about: they wait for earlier ranges, and should still be in the cache then."""
WINDOWS_A_RANGE = 8
"""Fewest rows of a range, as a multiple of the rows of the window before it."""
LONGEST_WINDOW = 1 << 20
"""Most rows of a window for which ranges pay; with a longer one, the rest of the stream is one range."""
SAMPLE_ROWS = 1 << 16
"""Rows of the first range, a sample of how many bytes of results the rows have."""


@dataclass(frozen=True)
class RangeWindow:
    """Window of a query: the events before a range that the range needs.

    Attributes
    ----------
    column
        Column that the window is measured in, or None if it is measured in events.
    length : numpy.uint64 or numpy.float64
        In units of the column, or in events.
    """

    column: str | None
    length: np.uint64 | np.float64


@dataclass(frozen=True)
class Range:
    """Range of the stream, with the window before it.

    Attributes
    ----------
    begin
        Position of its first row, that of the window before it.
    first
        Position from which on matches must end to be reported.
    batches
        Rows of the window before it, and its own.
    """

    begin: int
    first: int
    batches: Iterable[pa.RecordBatch]


class Sizes:
    """Numbers of rows for the ranges of a stream: fewer if many matches are found.

    Parameters
    ----------
    n_threads
    n_rows
        Rows of the stream, if known: each thread then gets equally many ranges of the same size.
    in_memory
        True if a range takes no memory, as for `RANGE_ROWS_IN_MEMORY`.

    Attributes
    ----------
    next : int
        Rows of the next range.
    """

    def __init__(self, n_threads: int, n_rows: int | None = None, *, in_memory: bool = False) -> None:
        self._max_rows = RANGE_ROWS
        if n_rows is not None:
            turns = max(1, -(-n_rows // (n_threads * (RANGE_ROWS_IN_MEMORY if in_memory else RANGE_ROWS))))
            self._max_rows = max(1, -(-n_rows // (n_threads * turns)))
        self.next: int = min(self._max_rows, SAMPLE_ROWS)

    def adapt(self, n_rows: int, n_bytes: int) -> None:
        """Choose the size of the next range by the bytes of results of a range of `n_rows` rows."""
        self.next = min(self._max_rows, max(RESULT_BYTES * n_rows // max(n_bytes, 1), MIN_RANGE_ROWS))


def cut(source: Source, columns: list[str], window: RangeWindow, n_threads: int) -> tuple[Iterator[Range], Sizes]:
    """Cut a source into ranges for threads; also return their sizes, which adapt to the results."""
    parts = source.parts_for(n_threads)
    sizes = Sizes(n_threads, source.n_rows, in_memory=source.in_memory or parts is not None)
    if parts is None:
        return cut_ranges(source.batches(columns), window, sizes), sizes
    return ranges_of_parts(parts, columns, window, sizes), sizes


def cut_ranges(batches: Iterable[pa.RecordBatch], window: RangeWindow, sizes: Sizes) -> Iterator[Range]:
    """Cut a stream into ranges; the last one takes the rest of the stream once the window is too long for ranges."""
    stream = _Cut(batches)
    before: list[pa.RecordBatch] = []
    n_before = position = 0
    while True:
        if n_before > LONGEST_WINDOW:
            yield Range(position - n_before, position, chain(before, stream))
            return
        own: list[pa.RecordBatch] = []
        n_own, wanted = 0, max(sizes.next, WINDOWS_A_RANGE * n_before)
        while n_own < wanted and (batch := stream.next(wanted - n_own)) is not None:
            own.append(batch)
            n_own += batch.num_rows
        if not own and position:
            return
        yield Range(position - n_before, position, [*before, *own])
        if n_own < wanted:
            return
        position += n_own
        before = _tail([*before, *own], window)
        n_before = sum(batch.num_rows for batch in before)


def ranges_of_parts(parts: Parts, columns: list[str], window: RangeWindow, sizes: Sizes) -> Iterator[Range]:
    """Cut a source in parts into ranges; the last one takes the rest once the window is too long for ranges.

    A range begins where a part begins, and reports from the first event on whose window does not reach back before it;
    the previous range reads up to that event.
    """
    n_rows = parts.begins[-1]
    begin, first = 0, min(sizes.next, n_rows)
    yield Range(0, 0, parts.read(columns, 0, first))
    n_window = 0
    while first < n_rows:
        wanted = max(begin + max(sizes.next, WINDOWS_A_RANGE * n_window), first)
        following = parts.begins[bisect_left(parts.begins, min(wanted, n_rows))]
        end = _after_a_window(parts, following, window) if following < n_rows else n_rows
        batches = parts.read(columns, begin, end)
        yield Range(begin, first, prefetch(batches) if following < end == n_rows else batches)
        n_window = end - following
        begin, first = following, end


def _after_a_window(parts: Parts, begin: int, window: RangeWindow) -> int:
    """Return the position of the first event whose window does not reach back before `begin`, or the end if far."""
    n_rows = parts.begins[-1]
    if window.column is None:
        return min(begin + int(window.length) + 1, n_rows) if window.length <= LONGEST_WINDOW else n_rows
    start: Any = None
    position = begin
    # the evaluation of the range refuses values that are missing or cannot be read
    with suppress(EventsError), np.errstate(all="ignore"):
        for batch in parts.read([window.column], begin, min(begin + LONGEST_WINDOW, n_rows)):
            block = Block(batch, {})
            clocks = ordered(block.numbers(window.column))
            start = clocks[0] if start is None else start
            n_inside = bisect_left(range(len(clocks)), True, key=lambda i: clocks[i] - start > window.length)
            if block.column(window.column).null_count:
                break
            position += n_inside
            if n_inside < len(clocks):
                return position
    return n_rows


class _Cut:
    """Iterator of batches from which any number of next rows can be taken."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._rest: pa.RecordBatch | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self.next(RANGE_ROWS)) is not None:
            yield batch

    def next(self, n_rows: int) -> pa.RecordBatch | None:
        """Return the next rows, up to a limit, or None at the end."""
        batch = next(self._batches, None) if self._rest is None else self._rest
        self._rest = None
        if batch is not None and batch.num_rows > n_rows:
            batch, self._rest = batch.slice(0, n_rows), batch.slice(n_rows)
        return batch


def _tail(batches: list[pa.RecordBatch], window: RangeWindow) -> list[pa.RecordBatch]:
    """Return the last rows: at least one, and all that are in the window of any later row."""
    tail: list[pa.RecordBatch] = []
    wanted = max(int(window.length), 1) if window.column is None else 0
    least = None
    for batch in reversed(batches):
        if not batch.num_rows:
            continue
        begin = 0
        if window.column is None:
            begin = max(batch.num_rows - wanted, 0)
            wanted -= batch.num_rows - begin
        else:
            block = Block(batch, {})
            values = block.numbers(window.column)
            if least is None:
                last = ordered(values[-1:])[0]
                whole = last.dtype.kind == "u"
                least = last - min(window.length, last) if whole else at_or_before(float(last), float(window.length))
            # the evaluation of the range refuses missing values
            if not block.column(window.column).null_count:
                begin = bisect_left(values, least, key=lambda value: ordered(np.array([value]))[0])
            begin = min(begin, batch.num_rows - 1) if not tail else begin
        tail.append(batch.slice(begin))
        if begin or (window.column is None and not wanted):
            break
    return tail[::-1]


MIN_ROWS_FOR_THREADS = 1 << 20
"""Fewest rows of a stream that is evaluated on several threads unasked."""
MAX_WAITING = 16
"""Most batches of results of one range that wait to be read."""


def threads_that_help(source: Source, *, by_range: bool) -> int:
    """Return the number of threads to use by default, by ranges or by keys.

    One for a stream of unknown length: its events may come slowly, and results should not wait for a whole range.
    """
    if source.n_rows is None or source.n_rows < MIN_ROWS_FOR_THREADS:
        return 1
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    in_parts = by_range and source.parts_for(n_cores) is not None
    return max(n_cores - (source.reads_ahead and not in_parts), 1)


class _GroupPool:
    """Pool of groups that evaluate ranges; one that has finished a range is used for another, with the same memory."""

    def __init__(self, splitter: StreamSplitter) -> None:
        self._splitter = splitter
        self._spare: list[ExecutionGroup] = []
        self._lock = threading.Lock()

    @contextmanager
    def lease(self, begin: int, report_from: int) -> Iterator[ExecutionGroup]:
        """Lend a group for the events from `begin` on, which lists matches that end from `report_from` on."""
        try:
            group = self._spare.pop()
        except IndexError:
            group = self._splitter.range_group(begin, report_from)
        else:
            self._splitter.restart(group, begin, report_from)
        yield group
        self._spare.append(group)

    def count(self, n_rows: int) -> None:
        """Add to the number of evaluated events, in some thread."""
        with self._lock:
            self._splitter.count_pushed(n_rows)


class _Results:
    """Results of one range, handed from the thread that finds them to the one that reads them."""

    def __init__(self, reading: ChannelReader, part: Range) -> None:
        self._channel: Channel[tuple[str, pa.RecordBatch]] = Channel(reading, MAX_WAITING)
        self._part = part
        self.n_events = self.n_bytes = 0
        self.n_matches: dict[str, int] = {}
        self.tallies: Tallies = {}

    @property
    def n_rows(self) -> int:
        """Events of the range evaluated so far."""
        return max(self.n_events - self._part.first, 0)

    def find(self, pool: _GroupPool) -> None:
        """Evaluate the range."""
        part = self._part
        with self._channel.filling(), pool.lease(part.begin, part.first) as group:
            try:
                for batch in part.batches:
                    self._channel.check()
                    for name, matches in group.push(batch):
                        self._channel.check()
                        if matches.num_rows:
                            self._channel.put((name, matches))
                    n_before, self.n_events = self.n_rows, group.blocks.n_events
                    pool.count(self.n_rows - n_before)
                for named in group.finish():
                    self._channel.put(named)
            finally:
                self.n_events, self.n_matches = group.blocks.n_events, group.n_matches
                # the others are counted by queries that no two threads evaluate
                self.tallies = {name: (0, 0, n) for name, (_, _, n) in StreamSplitter.tallies(group).items()}

    def read(self) -> NamedBatches:
        """Yield the results as they are found; raise the error of the evaluation instead."""
        while (result := self._channel.get()) is not None:
            self.n_bytes += result[1].get_total_buffer_size()
            yield result


def on_threads(splitter: StreamSplitter, coming: Iterator[Range], sizes: Sizes, n_threads: int) -> NamedBatches:
    """Yield the matches of a stream, in the order of their ends.

    Parameters
    ----------
    splitter
        Splitter of a group that `may_split`, whose counts become the totals of all ranges.
    coming
        Ranges of the stream, in order.
    sizes
        Sizes of the ranges, adapted to the bytes of results of each.
    n_threads
    """
    reading = ChannelReader()
    waiting: deque[_Results] = deque()
    pool = _GroupPool(splitter)
    to_do: queue.Queue[_Results | None] = queue.Queue()  # in order, so no range waits for a later one

    def work() -> None:
        while (results := reading.next_of(to_do)) is not None:
            results.find(pool)

    threads = [threading.Thread(target=work, name="cer_gpu") for _ in range(n_threads)]
    try:
        for thread in threads:
            thread.start()
        while True:
            while len(waiting) <= n_threads and (part := next(coming, None)) is not None:
                waiting.append(_Results(reading, part))
                to_do.put(waiting[-1])
            if not waiting:
                break
            results = waiting.popleft()
            try:
                yield from results.read()
            finally:
                splitter.take_over(results.n_events, results.n_matches, results.tallies)
            sizes.adapt(results.n_rows, results.n_bytes)
    finally:
        reading.stop()
        for _ in threads:
            to_do.put(None)
        for thread in threads:
            thread.join()
    group = splitter.group
    group.input.n_pushed = group.blocks.n_events
    yield from group.finish()
