"""One stream on several threads: ranges of it, each with the window before it, reporting only what ends in it.

The loops release the GIL, so that ranges are evaluated at once; their results come in the order of the stream.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cer_gpu.engine.clocks import ordered
from cer_gpu.engine.columns import Block
from cer_gpu.engine.dealing import at_or_before
from cer_gpu.engine.evaluator import Evaluator

RANGE_ROWS = 1 << 21
"""Rows of a range, unless the window is longer."""
WINDOWS_A_RANGE = 8
"""A range has at least so many times the rows of the window before it."""
LONGEST_WINDOW = 1 << 20
"""Rows of a window under which ranges pay; longer ones are evaluated in one."""
FEWEST_ROWS = 1 << 20
"""A stream of fewer rows is evaluated in one, unless a number of threads is asked for."""
MOST_WAITING = 64
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


def ranges(batches: Iterable[pa.RecordBatch], window: Window) -> Iterator[Range]:
    """Cut a stream into ranges; the last one has all the rest where the window is too long for more of them."""
    stream = (batch.slice(i, RANGE_ROWS) for batch in batches for i in range(0, batch.num_rows, RANGE_ROWS))
    before: list[pa.RecordBatch] = []
    n_before = position = 0
    while True:
        if n_before > LONGEST_WINDOW:
            yield Range(position - n_before, position, _chained(before, stream))
            return
        own: list[pa.RecordBatch] = []
        n_own, wanted = 0, max(RANGE_ROWS, WINDOWS_A_RANGE * n_before)
        for batch in stream:
            own.append(batch)
            n_own += batch.num_rows
            if n_own >= wanted:
                break
        if not own and position:
            return
        yield Range(position - n_before, position, [*before, *own])
        if n_own < wanted:
            return
        position += n_own
        before = _tail([*before, *own], window)
        n_before = sum(batch.num_rows for batch in before)


def _chained(first: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from first
    yield from rest


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
            values = ordered(Block(batch, {}).numbers(window.column))
            if least is None:
                last = values[-1]
                whole = values.dtype.kind == "u"
                least = last - min(window.length, last) if whole else at_or_before(float(last), float(window.length))
            # missing values are found, and refused, where the range is evaluated
            begin = int(np.searchsorted(values, least)) if not batch.column(window.column).null_count else 0
            begin = min(begin, batch.num_rows - 1) if not kept else begin
        kept.append(batch.slice(begin))
        if begin or (window.column is None and not wanted):
            break
    return kept[::-1]


class _Stop(Exception):
    """Nobody reads the results any more."""


class _Results:
    """The results of one range, handed from the thread that finds them to the one that reads them."""

    def __init__(self, stop: threading.Event) -> None:
        self._queue: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(MOST_WAITING)
        self._stop = stop
        self.n_events = 0
        self.n_matches = 0

    def find(self, evaluator: Evaluator, batches: Iterable[pa.RecordBatch]) -> None:
        """Evaluate all batches."""
        end: BaseException | None = None
        try:
            for batch in batches:
                if self._stop.is_set():
                    return
                for found in evaluator.push_batches(batch):
                    self._put(found)
            for found in evaluator.finish_batches():
                self._put(found)
        except _Stop:
            return
        except BaseException as error:
            end = error
        self.n_events, self.n_matches = evaluator.n_events, evaluator.n_matches
        self._put(end)

    def _put(self, found: pa.RecordBatch | BaseException | None) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(found, timeout=0.1)
                return
            except queue.Full:
                continue
        if isinstance(found, pa.RecordBatch):
            raise _Stop

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield what was found, as it is found; an error is raised where it came."""
        while True:
            found = self._queue.get()
            if found is None:
                return
            if isinstance(found, BaseException):
                raise found
            yield found


def on_threads(evaluator: Evaluator, batches: Iterable[pa.RecordBatch], n_threads: int) -> Iterator[pa.RecordBatch]:
    """Yield the complex events of a stream, in the order of their ends.

    Parameters
    ----------
    evaluator
        One that `may_be_cut`, and knows the schema; it only counts.
    batches
    n_threads
    """
    stop = threading.Event()
    waiting: deque[_Results] = deque()
    parts = ranges(batches, Window(*evaluator.window))
    with ThreadPoolExecutor(n_threads, thread_name_prefix="cer_gpu") as pool:
        try:
            while True:
                while len(waiting) <= n_threads and (part := next(parts, None)) is not None:
                    results = _Results(stop)
                    pool.submit(results.find, evaluator.part(part.begin, part.first), part.batches)
                    waiting.append(results)
                if not waiting:
                    break
                results = waiting.popleft()
                try:
                    yield from results.read()
                finally:
                    evaluator.n_events = evaluator.n_pushed = results.n_events
                    evaluator.n_matches += results.n_matches
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
    yield from evaluator.finish_batches()
