"""One stream on several threads, by ranges: each with the window before it, reporting only what ends in the range.

The loops release the GIL, so that ranges are evaluated in parallel; their results come in the order of the stream.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from cer_gpu.engine.execution_group import ExecutionGroup, NamedBatches
from cer_gpu.io.source import Source
from cer_gpu.parallel.channel import Channel, ChannelReader
from cer_gpu.parallel.ranges import Range, Sizes
from cer_gpu.parallel.stream_splitter import StreamSplitter, Tallies

MIN_ROWS_FOR_THREADS = 1 << 20
"""Fewest rows of a stream that is evaluated on several threads unasked."""
MAX_WAITING = 16
"""Most batches of results of one range that wait to be read."""


def threads_that_help(source: Source, *, by_range: bool) -> int:
    """Return the number of threads to use if none is asked for, by ranges or by keys.

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
        """Count so many more events as evaluated, in some thread."""
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
                    for name, found in group.push(batch):
                        self._channel.check()
                        if found.num_rows:
                            self._channel.put((name, found))
                    n_before, self.n_events = self.n_rows, group.blocks.n_events
                    pool.count(self.n_rows - n_before)
                for named in group.finish():
                    self._channel.put(named)
            finally:
                self.n_events, self.n_matches = group.blocks.n_events, group.n_matches
                # the others are counted by queries that no two threads evaluate
                self.tallies = {name: (0, 0, n) for name, (_, _, n) in StreamSplitter.tallies(group).items()}

    def read(self) -> NamedBatches:
        """Yield the results as they are found; raise the error of the evaluation in its place."""
        while (found := self._channel.get()) is not None:
            self.n_bytes += found[1].get_total_buffer_size()
            yield found


def on_threads(splitter: StreamSplitter, coming: Iterator[Range], sizes: Sizes, n_threads: int) -> NamedBatches:
    """Yield the matches of a stream, in the order of their ends.

    Parameters
    ----------
    splitter
        Splitter of a group that `may_split`, whose counts become those of all ranges together.
    coming
        Ranges of the stream, in order.
    sizes
        Sizes of the ranges, told how many bytes of results each had.
    n_threads
    """
    reading = ChannelReader()
    waiting: deque[_Results] = deque()
    pool = _GroupPool(splitter)
    to_do: queue.Queue[_Results | None] = queue.Queue()  # in order, so no range waits behind a later one

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
            sizes.found(results.n_rows, results.n_bytes)
    finally:
        reading.stop()
        for _ in threads:
            to_do.put(None)
        for thread in threads:
            thread.join()
    group = splitter.group
    group.input.n_pushed = group.blocks.n_events
    yield from group.finish()
