"""One stream on several threads: ranges of it, each with the window before it, reporting only what ends in it.

The loops release the GIL, so that ranges are evaluated at once; their results come in the order of the stream.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from cer_gpu.engine.channel import Channel
from cer_gpu.engine.clocks import ordered
from cer_gpu.engine.columns import Block
from cer_gpu.engine.dealing import at_or_before
from cer_gpu.engine.evaluator import Evaluator

RANGE_ROWS = 1 << 22
"""Rows of a range, at most, unless the window is longer."""
RANGE_ROWS_IN_MEMORY = 1 << 24
"""The same where the events are in memory already, so that a range takes none."""
FEWEST_RANGE_ROWS = 1 << 16
"""Rows of a range, at least, where there are so many complex events that ranges are made short."""
BATCHES_A_RANGE = 16
"""Batches of results that a range has, about, where ranges are made short: they wait while those before are read."""
WINDOWS_A_RANGE = 8
"""A range has at least so many times the rows of the window before it."""
LONGEST_WINDOW = 1 << 20
"""Rows of a window under which ranges pay; longer ones are evaluated in one."""
FEWEST_ROWS = 1 << 20
"""A stream of fewer rows is evaluated in one, unless a number of threads is asked for."""
SAMPLE_ROWS = 1 << 16
"""Rows of the first range, which tells how much is found."""
CROWDED = 0.5
"""Rows of results for each event from which on handing them from thread to thread costs more than it gains."""
MOST_WAITING = 16
"""Batches of results of one range that wait to be read."""


@dataclass(frozen=True)
class Window:
    """What a range needs of the events before it.

    Attributes
    ----------
    column
        That the window is measured in; None: in events.
    length : numpy.uint64 or numpy.float64
        In units of the column, or in events.
    """

    column: str | None
    length: np.uint64 | np.float64


@dataclass(frozen=True)
class Range:
    """A part of the stream.

    Attributes
    ----------
    begin
        The position of its first row, which is in the window before it.
    first
        The position from which it reports.
    batches
        Its rows, with those of the window before it.
    """

    begin: int
    first: int
    batches: Iterable[pa.RecordBatch]


def threads_that_help(n_rows: int | None) -> int:
    """Return how many threads to use where none are asked for.

    One for a stream of unknown length: its events may come slowly, and results are not to wait for a whole range.
    """
    if n_rows is None or n_rows < FEWEST_ROWS:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Sizes:
    """How many rows a range is to have: fewer where many complex events are found.

    Parameters
    ----------
    n_threads
    n_rows
        Of the stream, where that is known: each thread then gets as many ranges of the same size.
    in_memory
        Whether the stream is in memory.

    Attributes
    ----------
    next : int
        Rows of the next range.
    in_one : bool
        Whether the rest is better evaluated in one.
    """

    def __init__(self, n_threads: int, n_rows: int | None = None, *, in_memory: bool = False) -> None:
        self.in_one = False
        self._most = RANGE_ROWS
        if n_rows is not None:
            turns = max(1, -(-n_rows // (n_threads * (RANGE_ROWS_IN_MEMORY if in_memory else RANGE_ROWS))))
            self._most = max(1, -(-n_rows // (n_threads * turns)))
        self.next = min(self._most, SAMPLE_ROWS)

    def sampled(self, n_rows: int, n_found: int) -> None:
        """Note how many rows of results the first range had."""
        self.in_one = n_found > CROWDED * n_rows
        self.next = self._most

    def found(self, n_rows: int, n_batches: int) -> None:
        """Note how many batches of results a range had."""
        if n_batches > BATCHES_A_RANGE:
            self.next = min(max(n_rows * BATCHES_A_RANGE // n_batches, FEWEST_RANGE_ROWS), self.next)


def ranges(batches: Iterable[pa.RecordBatch], window: Window, sizes: Sizes) -> Iterator[Range]:
    """Cut a stream into ranges; the last one has all the rest where there are to be no more of them."""
    stream = _Cut(batches)
    before: list[pa.RecordBatch] = []
    n_before = position = 0
    while True:
        if n_before > LONGEST_WINDOW or sizes.in_one:
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


class _Cut:
    """Batches, of which the next rows can be taken."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._rest: pa.RecordBatch | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self.next(RANGE_ROWS)) is not None:
            yield batch

    def next(self, n_rows: int) -> pa.RecordBatch | None:
        """Return what comes next, at most so many rows; None at the end."""
        batch = next(self._batches, None) if self._rest is None else self._rest
        self._rest = None
        if batch is not None and batch.num_rows > n_rows:
            batch, self._rest = batch.slice(0, n_rows), batch.slice(n_rows)
        return batch


def _tail(batches: list[pa.RecordBatch], window: Window) -> list[pa.RecordBatch]:
    """Return the last rows: at least one, and all that are in the window of any row to come."""
    kept: list[pa.RecordBatch] = []
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
            values = Block(batch, {}).numbers(window.column)
            if least is None:
                last = ordered(values[-1:])[0]
                whole = last.dtype.kind == "u"
                least = last - min(window.length, last) if whole else at_or_before(float(last), float(window.length))
            # missing values are found, and refused, where the range is evaluated
            if not batch.column(window.column).null_count:
                begin = bisect_left(values, least, key=lambda value: ordered(np.array([value]))[0])
            begin = min(begin, batch.num_rows - 1) if not kept else begin
        kept.append(batch.slice(begin))
        if begin or (window.column is None and not wanted):
            break
    return kept[::-1]


class _Parts:
    """Evaluators of ranges; what is done with one range is used for another."""

    def __init__(self, whole: Evaluator) -> None:
        self._whole = whole
        self._spare: list[Evaluator] = []

    @contextmanager
    def one(self, begin: int, first_end: int) -> Iterator[Evaluator]:
        """Give one for the events from `begin` on, which lists what ends from `first_end` on."""
        try:
            evaluator = self._spare.pop()
        except IndexError:
            evaluator = self._whole.part(begin, first_end)
        else:
            evaluator.restart(begin, first_end)
        yield evaluator
        self._spare.append(evaluator)

    def evaluated(self, part: Range) -> Iterator[pa.RecordBatch]:
        """Yield the complex events of a range, evaluated in this thread."""
        whole = self._whole
        with self.one(part.begin, part.first) as evaluator:
            try:
                for found in evaluator.over(part.batches):
                    whole.n_events = whole.n_pushed = evaluator.n_events
                    yield found
            finally:
                whole.n_events = whole.n_pushed = evaluator.n_events
                whole.n_matches += evaluator.n_matches


class _Results:
    """The results of one range, handed from the thread that finds them to the one that reads them."""

    def __init__(self, stop: threading.Event, first: int) -> None:
        self._channel: Channel[pa.RecordBatch] = Channel(stop, MOST_WAITING)
        self.first = first
        self.n_events = self.n_batches = 0
        self.n_matches = 0

    def find(self, parts: _Parts, begin: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Evaluate all batches, of which the first event is at `begin`."""
        with self._channel.filling(), parts.one(begin, self.first) as evaluator:
            try:
                for batch in batches:
                    self._channel.check()
                    for found in evaluator.push_batches(batch):
                        self._channel.put(found)
                for found in evaluator.finish_batches():
                    self._channel.put(found)
            finally:
                self.n_events, self.n_matches = evaluator.n_events, evaluator.n_matches

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield what was found, as it is found; an error is raised where it came."""
        while (found := self._channel.get()) is not None:
            self.n_batches += 1
            yield found


def on_threads(
    evaluator: Evaluator, batches: Iterable[pa.RecordBatch], n_threads: int, sizes: Sizes
) -> Iterator[pa.RecordBatch]:
    """Yield the complex events of a stream, in the order of their ends.

    Parameters
    ----------
    evaluator
        One that `may_be_cut`, and knows the schema; it only counts.
    batches
    n_threads
    sizes
        Of the ranges.
    """
    stop = threading.Event()
    waiting: deque[_Results] = deque()
    parts = _Parts(evaluator)
    coming = ranges(batches, Window(*evaluator.window), sizes)
    n_found = 0
    for found in parts.evaluated(next(coming)):
        n_found += 0 if evaluator.output == "count" else found.num_rows
        yield found
    sizes.sampled(evaluator.n_events, n_found)
    if sizes.in_one:
        for rest in coming:
            yield from parts.evaluated(rest)
    with ThreadPoolExecutor(n_threads, thread_name_prefix="cer_gpu") as pool:
        try:
            while True:
                while len(waiting) <= n_threads and (part := next(coming, None)) is not None:
                    results = _Results(stop, part.first)
                    pool.submit(results.find, parts, part.begin, part.batches)
                    waiting.append(results)
                if not waiting:
                    break
                results = waiting.popleft()
                try:
                    yield from results.read()
                finally:
                    evaluator.n_events = evaluator.n_pushed = results.n_events
                    evaluator.n_matches += results.n_matches
                sizes.found(results.n_events - results.first, results.n_batches)
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
    yield from evaluator.finish_batches()
