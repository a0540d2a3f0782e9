"""External sort of events by time, in bounded memory, and of events of one time by further columns."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.columns import Block, kind_of, plain_array, take_rows
from cer_gpu.columnar.fields import column_type
from cer_gpu.errors import EventsError, QueryTypeError
from cer_gpu.io.source import BATCH_ROWS, Source, with_field_column
from cer_gpu.io.stores import open_local
from cer_gpu.order.layouts import Layouts, n_bytes
from cer_gpu.order.row_column import ROW_COLUMN, check_no_rows, with_rows
from cer_gpu.order.times import TimeKeys, Times, order_column_type, stable_order, to_keys
from cer_gpu.private_files import forget_unfinished, note_unfinished


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
        """Yield the events, converted by the layouts of `merge_runs`."""


def merge_runs(runs: Sequence[SortedRun], layouts: Layouts, n_rows: int) -> Iterator[pa.RecordBatch]:
    """Merge sorted runs by time; equal times are in the order of the sorted runs, and within one in its own.

    One chunk of each sorted run is in memory, from the time of its first event on.  Each round takes all events to the
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
        Batch to convert back by `layouts`.
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
    n_pending = 0
    while True:
        while waiting and (not opened.any() or runs[waiting[-1]].first <= int(lasts[opened].min())):
            run = waiting.pop()
            iterators[run] = runs[run].chunks()
            advance(run)
        active = np.flatnonzero(opened)
        if not len(active):
            break
        # the first sorted run whose chunk ends at this time; later ones wait, as it may continue with equal times
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
            n_pending += stop - start
        advance(ends)
        if n_pending >= n_rows:
            yield from sort_chunks(parts, layouts, n_rows)
            n_pending = 0
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
    pending: list[pa.RecordBatch] = []
    n_pending = 0
    for batch in batches:
        for start in range(0, batch.num_rows, n_rows):
            pending.append(batch.slice(start, n_rows))
            n_pending += pending[-1].num_rows
            if n_pending >= n_rows // 2:
                yield layouts.concat(pending)
                n_pending = 0
    if pending:
        yield layouts.concat(pending)


def order_ties(source: Source, column: str, further: Sequence[str]) -> Source:
    """Return a source in which events of one time are in the order of further columns, ascending, NULL last.

    Events equal in all of them keep their order.  All events of one time are in memory at once.

    Parameters
    ----------
    source
        In the order of `column`.
    column
    further
        Columns, or paths of fields of structs.

    Raises
    ------
    QueryTypeError
        When there is no such column, or its values have no order.
    """
    for name in further:
        kind = column_type(source.schema, name, None, None)
        if kind_of(kind) is None:
            raise QueryTypeError(f"sort needs values in an order, and {name!r} is {kind}")
        source = with_field_column(source, name)
    ordered = source

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        wanted = list(dict.fromkeys([*columns, column, *further]))
        tied: list[pa.RecordBatch] = []
        for batch in ordered.batches(wanted):
            keys = to_keys(Block(batch).numbers(column))
            if not len(keys):
                continue
            last = int(np.searchsorted(keys, keys[-1]))  # events of the last time may continue in the next batch
            first = int(np.searchsorted(keys, keys[0], side="right"))
            if tied and _last_key(tied[-1], column) == int(keys[0]):
                tied.append(batch.slice(0, first))
            else:
                yield from _order_ties(tied, column, further, columns)
                tied, first = [], 0
            if first == len(keys):
                continue
            yield from _order_ties(tied, column, further, columns)
            if first < last:
                yield from _order_ties([batch.slice(first, last - first)], column, further, columns)
            tied = [batch.slice(max(first, last))]
        yield from _order_ties(tied, column, further, columns)

    return replace(ordered, read=read, reads_fields=False, parts=None, rereadable=False, in_memory=False)


def _last_key(batch: pa.RecordBatch, column: str) -> int:
    return int(to_keys(Block(batch.slice(batch.num_rows - 1)).numbers(column))[0])


def _order_ties(
    batches: Sequence[pa.RecordBatch], column: str, further: Sequence[str], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches, which are in the order of time, with the named columns."""
    batches = [batch for batch in batches if batch.num_rows]
    if not batches:
        return
    piece = batches[0] if len(batches) == 1 else _concat_batches(batches)
    keys = to_keys(Block(piece).numbers(column))
    if (keys[1:] == keys[:-1]).any():
        names = [str(i) for i in range(len(further) + 1)]
        arrays = [pa.array(keys), *(_comparable(piece.column(name)) for name in further)]
        order = [(name, "ascending") for name in names]
        rows = pc.sort_indices(pa.table(arrays, names=names), sort_keys=order)  # NULL at the end
        piece = pa.RecordBatch.from_arrays([take_rows(each, rows) for each in piece.columns], names=piece.schema.names)
    yield piece.select(list(dict.fromkeys(columns)))


def _concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    names = batches[0].schema.names
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays([plain_array(batch.column(name)) for batch in batches]) for name in names], names=names
    )


def _comparable(values: pa.Array) -> pa.Array:
    values = plain_array(values)
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


WAYS = 64
"""Maximum number of sorted runs merged at once: each has its file open and a chunk in memory."""

_ROW_BYTES = 32
"""Bytes that sorting needs for each row besides its columns: keys, digits, rows."""


def sort_source(source: Source, column: str, *, memory: int = 1 << 28) -> Source:
    """Return the same events in the order of time; equal times keep their order.

    Events that do not fit in memory are written to files in a temporary folder, as sorted runs, which are then
    merged.  The folder is removed at the end, on an error, and when the generator is closed.  Nothing is written for
    events that fit, nor for a rereadable source that is already sorted.

    Parameters
    ----------
    source
        Read once, or twice if it is rereadable.
    column
        A column of integers, timestamps, dates, durations or floats; read even if it is not requested.
    memory
        Approximate number of bytes of events in memory at once.

    Returns
    -------
    Source
        The same events, and `ROW_COLUMN`.  Strings may come in another layout (plain, or as a dictionary), other
        dictionaries decoded, and integers or floats wider if their widths differ between batches.

    Raises
    ------
    QueryTypeError
        When there is no such column, or its values are no times.

    While it is read:

    TimeOrderError
        When a time is missing (NULL or NaN); its position is that in the unsorted input.
    EventsError
        When the temporary folder cannot be written, or the time column changes its type.
    """
    order_column_type(source.schema, column)
    if not source.numbered:
        check_no_rows(source.schema)

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        numbered = ROW_COLUMN in columns
        wanted = [name for name in dict.fromkeys([*columns, column]) if name != ROW_COLUMN]
        if numbered and source.numbered:
            wanted.append(ROW_COLUMN)
        return _sort_events(source, wanted, column, memory, numbered)

    schema = source.schema if source.numbered else source.schema.append(pa.field(ROW_COLUMN, pa.int64()))
    return Source(schema, read, source.n_rows, remarks=source.remarks, notes=source.notes, files=source.files)


def _sort_events(
    source: Source, columns: list[str], column: str, memory: int, numbered: bool
) -> Iterator[pa.RecordBatch]:
    if source.rereadable and _is_in_order(source, column):
        n_rows = 0
        for batch in source.batches(columns):
            yield with_rows(batch, n_rows) if numbered else batch
            n_rows += batch.num_rows
        return
    layouts = Layouts()
    chunks: list[Chunk] = []
    size = 0
    with _Spill(layouts, column, memory) as spill:
        n_rows = 0
        for keys, piece in _read_keyed(source, columns, column):
            chunks.append(Chunk(keys, layouts.take_in(with_rows(piece, n_rows) if numbered else piece)))
            n_rows += len(keys)
            # joining and then sorting the events takes twice their bytes
            size += 2 * n_bytes(chunks[-1].events) + _ROW_BYTES * len(keys)
            if size >= memory:
                spill.add(chunks)
                size = 0
        if spill.files:
            spill.add(chunks)
        for batch in spill.merged() if spill.files else sort_chunks(chunks, layouts, BATCH_ROWS):
            yield from layouts.give_out(batch)


def _read_keyed(source: Source, columns: list[str], column: str) -> Iterator[tuple[TimeKeys, pa.RecordBatch]]:
    """Yield the events in pieces of bounded length, with the keys of their times."""
    times = Times(column)
    for batch in source.batches(columns):
        for start in range(0, batch.num_rows, BATCH_ROWS):
            piece = batch.select(columns).slice(start, BATCH_ROWS)
            try:
                keys = times.keys(piece)
            except EventsError as error:
                where = source.locate(times.n_rows)
                raise type(error)(f"{where}: {error}" if where else str(error)) from None
            yield keys, piece


def _is_in_order(source: Source, column: str) -> bool:
    last = 0
    for keys, _ in _read_keyed(source, [column], column):
        if int(keys[0]) < last or (keys[1:] < keys[:-1]).any():
            return False
        last = int(keys[-1])
    return True


# ---- sorted runs in files ---------------------------------------------------------------------------------------


class _File:
    """A sorted run in a file: an Arrow IPC stream, with codes in place of dictionaries.

    Attributes
    ----------
    first, last : int
        Keys of its first and last event.
    """

    def __init__(self, path: Path, layouts: Layouts, column: str) -> None:
        self.path = path
        self.n_rows = 0
        self.first = self.last = 0
        self.schema = layouts.schema
        self._layouts = layouts
        self._column = column
        self._open = ExitStack()
        self._writer: pa.RecordBatchStreamWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append events of the file's schema."""
        bare = self._layouts.bare(batch)
        if self._writer is None:
            sink = self._open.enter_context(open_local(self.path, "wb"))
            self._writer = self._open.enter_context(pa.ipc.new_stream(sink, bare.schema))
        self._writer.write_batch(bare)
        self.n_rows += batch.num_rows

    def close(self) -> None:
        """End writing."""
        self._open.close()

    def chunks(self) -> Iterator[Chunk]:
        """Yield the events, and remove the file."""
        with open_local(self.path) as file, pa.ipc.open_stream(file) as reader:
            for bare in reader:
                events = self._layouts.conform(self._layouts.named(bare, self.schema))
                yield Chunk(to_keys(Block(events).numbers(self._layouts.column(self._column))), events)
        self.path.unlink()


class _Spill:
    """Sorted runs in a temporary folder, which exists from the first of them until the end of the `with` block."""

    def __init__(self, layouts: Layouts, column: str, memory: int) -> None:
        self.files: list[_File] = []
        self._layouts = layouts
        self._column = column
        self._memory = memory
        self._folder: Path | None = None
        self._remove: Callable[[], object] | None = None
        self._n_files = 0
        self._chunk_rows = BATCH_ROWS

    def __enter__(self) -> _Spill:
        """Return the spill; its folder is created with the first sorted run."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the folder."""
        with suppress(OSError):
            for file in self.files:
                file.close()
        if self._remove is not None:
            self._remove()

    def add(self, chunks: list[Chunk]) -> None:
        """Sort events and write them as a sorted run; the list is emptied."""
        if not chunks:
            return
        first = min(int(chunk.keys.min()) for chunk in chunks)
        last = max(int(chunk.keys.max()) for chunk in chunks)
        size, n_rows = sum(n_bytes(chunk.events) for chunk in chunks), sum(len(chunk.keys) for chunk in chunks)
        # the chunks of the sorted runs that are merged at once fit in a quarter of the memory
        self._chunk_rows = min(self._chunk_rows, max(1, self._memory // (4 * WAYS) * n_rows // max(1, size)))
        batches = sort_chunks(chunks, self._layouts, self._chunk_rows)
        with self._readable_errors():
            if self.files and first >= self.files[-1].last and self.files[-1].schema.equals(self._layouts.schema):
                file = self.files[-1]  # the sorted run continues
            else:
                if self.files:
                    self.files[-1].close()
                file = self._new(first)
                self.files.append(file)
            for batch in batches:
                file.write(batch)
            file.last = last

    def merged(self) -> Iterator[pa.RecordBatch]:
        """Yield all events in order, to be converted back by the layouts."""
        with self._readable_errors():
            self.files[-1].close()
            while _depth(self.files) > WAYS:
                self._merge_some()
            yield from merge_runs(self.files, self._layouts, BATCH_ROWS)

    def _merge_some(self) -> None:
        """Merge the neighbours with the fewest events: enough to leave `WAYS` sorted runs, at most `WAYS` at once."""
        n = min(WAYS, len(self.files) - WAYS + 1)
        sizes = np.array([file.n_rows for file in self.files])
        at = int(np.argmin(np.convolve(sizes, np.ones(n, np.int64), "valid")))
        group = self.files[at : at + n]
        merged = self._new(min(file.first for file in group))
        merged.last = max(file.last for file in group)
        self.files[at : at + n] = [merged]
        for batch in rebatch(merge_runs(group, self._layouts, BATCH_ROWS), self._layouts, self._chunk_rows):
            merged.write(batch)
        merged.close()

    def _new(self, first: int) -> _File:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="cer_gpu-"))
            note_unfinished(self._folder)
            # also called if the interpreter ends before the generator is closed
            self._remove = weakref.finalize(self, _remove_folder, self._folder)
        self._n_files += 1
        file = _File(self._folder / f"{self._n_files}.arrows", self._layouts, self._column)
        file.first = first
        return file

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            folder = "" if self._folder is None else f" {self._folder}"
            raise EventsError(
                f"the events do not fit the memory for sorting, and the temporary folder{folder} cannot hold them: "
                f"{error}\nexpected: a folder that can be written, with room for all events\n"
                "hint: name another one by the environment variable TMPDIR"
            ) from error


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    forget_unfinished(folder)


def _depth(files: Iterable[_File]) -> int:
    """Return the greatest number of sorted runs that overlap at one time, which is how many are open at once."""
    ends = sorted([(file.first, 1) for file in files] + [(file.last + 1, -1) for file in files])
    return max(accumulate(step for _, step in ends))
