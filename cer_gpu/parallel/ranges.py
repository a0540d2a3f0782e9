"""A stream as ranges: each with the window before the first event that it reports.

Those of a stream that comes batch by batch are cut as it comes, and hold their rows.  Those of a source in parts are
read by who evaluates them; they overlap where parts begin, as little of a part has to be read for a window there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.clocks import ordered
from cer_gpu.columnar.columns import Block
from cer_gpu.errors import EventsError
from cer_gpu.io.sources import Parts, Source, ahead
from cer_gpu.planning.dealing import at_or_before

RANGE_ROWS = 1 << 22
"""Rows of a range, at most, unless the window is longer."""
RANGE_ROWS_IN_MEMORY = 1 << 24
"""The same where a range takes no memory: the events are there already, or read while they are evaluated."""
FEWEST_RANGE_ROWS = 1 << 13
"""Rows of a range, at least, where there are so many complex events that ranges are made short."""
RESULT_BYTES = 48 << 20
"""Of a range, at most, about: they wait while those before are read, and are to be in the cache still."""
WINDOWS_A_RANGE = 8
"""A range has at least so many times the rows of the window before it."""
LONGEST_WINDOW = 1 << 20
"""Rows of a window under which ranges pay; longer ones are evaluated in one."""
SAMPLE_ROWS = 1 << 16
"""Rows of the first range, which tells how much is found."""


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


class Sizes:
    """How many rows a range is to have: fewer where many complex events are found.

    Parameters
    ----------
    n_threads
    n_rows
        Of the stream, where that is known: each thread then gets as many ranges of the same size.
    in_memory
        Whether a range takes no memory: it is there already, or read while it is evaluated.

    Attributes
    ----------
    next : int
        Rows of the next range.
    """

    def __init__(self, n_threads: int, n_rows: int | None = None, *, in_memory: bool = False) -> None:
        self._most = RANGE_ROWS
        if n_rows is not None:
            turns = max(1, -(-n_rows // (n_threads * (RANGE_ROWS_IN_MEMORY if in_memory else RANGE_ROWS))))
            self._most = max(1, -(-n_rows // (n_threads * turns)))
        self.next = min(self._most, SAMPLE_ROWS)

    def found(self, n_rows: int, n_bytes: int) -> None:
        """Note how many bytes of results a range had."""
        self.next = min(self._most, max(RESULT_BYTES * n_rows // max(n_bytes, 1), FEWEST_RANGE_ROWS))


def cut(source: Source, columns: list[str], window: Window, n_threads: int) -> tuple[Iterator[Range], Sizes]:
    """Cut a source into ranges for so many threads; also return their sizes, which are to follow what is found."""
    parts = source.parts_for(n_threads)
    sizes = Sizes(n_threads, source.n_rows, in_memory=source.in_memory or parts is not None)
    if parts is None:
        return ranges(source.batches(columns), window, sizes), sizes
    return ranges_of_parts(parts, columns, window, sizes), sizes


def ranges(batches: Iterable[pa.RecordBatch], window: Window, sizes: Sizes) -> Iterator[Range]:
    """Cut a stream into ranges; the last one has all the rest where there are to be no more of them."""
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


def ranges_of_parts(parts: Parts, columns: list[str], window: Window, sizes: Sizes) -> Iterator[Range]:
    """Cut a source in parts into ranges; the last one has all the rest where there are to be no more of them.

    A range begins with a part, and reports from the first event on whose window does not reach before it; the range
    before it reads up to there.
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
        yield Range(begin, first, ahead(batches) if following < end == n_rows else batches)
        n_window = end - following
        begin, first = following, end


def _after_a_window(parts: Parts, begin: int, window: Window) -> int:
    """Return the position of the first event whose window does not reach before `begin`; of the end, if that is far."""
    n_rows = parts.begins[-1]
    if window.column is None:
        return min(begin + int(window.length) + 1, n_rows) if window.length <= LONGEST_WINDOW else n_rows
    start: Any = None
    position = begin
    # what cannot be read, or is missing, is refused where it is evaluated
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
            block = Block(batch, {})
            values = block.numbers(window.column)
            if least is None:
                last = ordered(values[-1:])[0]
                whole = last.dtype.kind == "u"
                least = last - min(window.length, last) if whole else at_or_before(float(last), float(window.length))
            # missing values are found, and refused, where the range is evaluated
            if not block.column(window.column).null_count:
                begin = bisect_left(values, least, key=lambda value: ordered(np.array([value]))[0])
            begin = min(begin, batch.num_rows - 1) if not kept else begin
        kept.append(batch.slice(begin))
        if begin or (window.column is None and not wanted):
            break
    return kept[::-1]
