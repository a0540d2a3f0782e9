"""Converted logs: each file is read once, as records, and kept as batches from which queries read their columns."""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import IO, Any

import pyarrow as pa

from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.fields import retyped
from cer_gpu.errors import EventsError
from cer_gpu.io.logs.batches import batches_of, joined_type, texts_of
from cer_gpu.io.logs.kept_batches import MEMORY_BYTES, BatchKeeper, Budget, KeptBatch, shared_schema
from cer_gpu.io.logs.log_formats import LogFormat
from cer_gpu.io.logs.records import Skipped
from cer_gpu.io.source import Parts, Source
from cer_gpu.io.text_types import first_misfit, fitted

KEPT_LOG_BYTES = 1 << 32
"""Compressed bytes of logs that are kept for another opening after their last use, in memory and on disk."""


@dataclass(eq=False)
class ConvertedLog:
    """A log as batches.

    Attributes
    ----------
    batches : list of KeptBatch
    schema : pyarrow.Schema
        Columns of all batches.  One that has two types in them is text.
    skipped : Skipped
        Parts of the file that could not be read.
    """

    batches: list[KeptBatch]
    schema: pa.Schema
    skipped: Skipped

    @property
    def n_bytes(self) -> int:
        """Compressed bytes of all batches."""
        return sum(batch.n_bytes for batch in self.batches)

    def source(self, name: str, types: Mapping[str, pa.DataType] | None = None) -> Source:
        """Return the rows.

        Parameters
        ----------
        name
            Name of the file, for messages.
        types
            Types of columns in place of their own; those that the log has not are NULL.
        """
        schema = shared_schema(retyped(self.schema, dict(types or {})))
        begins = [0, *accumulate(batch.n_rows for batch in self.batches)]

        def read(columns: list[str], begin: int, end: int) -> Iterator[pa.RecordBatch]:
            kinds = {each: schema.field(each).type if each in schema.names else pa.null() for each in columns}
            for at in range(bisect_right(begins, begin) - 1, len(self.batches)):
                if begins[at] >= end:
                    return
                yield _with_types(self.batches[at], kinds, name, begins[at])

        return Source(
            schema,
            lambda columns: read(columns, 0, begins[-1]),
            begins[-1],
            rereadable=True,
            parts=Parts(begins, read) if self.batches else None,
            as_types=partial(self.source, name),
            notes=self.notes(name),
            is_log=True,
        )

    def notes(self, name: str) -> list[str]:
        """Return what was skipped, in words, with the name of the file."""
        return [
            f"{name}: skipped {count:,} x {reason} (first: {self.skipped.first[reason]})"
            for reason, count in self.skipped.reasons.most_common()
        ]


def _with_types(kept: KeptBatch, kinds: Mapping[str, pa.DataType], name: str, first: int) -> pa.RecordBatch:
    """Return columns of a batch with the types that they have in the whole log."""
    own = set(kept.schema.names)
    batch = kept.read([each for each in kinds if each in own])
    if not kinds:
        return batch
    arrays = [
        _as_type(batch.column(each), kind, each, name, first) if each in own else pa.nulls(kept.n_rows, kind)
        for each, kind in kinds.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(kinds))


def _as_type(array: pa.Array, kind: pa.DataType, column: str, name: str, first: int) -> pa.Array:
    if array.type == kind:
        return array
    try:
        return texts_of(array) if is_string(kind) else fitted(array, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row = first_misfit(array, kind) or 0
        raise EventsError(
            f"{name}: column {column!r} is {array.type}, and read as {kind} for all files; it has "
            f"{array[row].as_py()!r} in row {first + row:,}: {error}"
        ) from None


# ---- converting ------------------------------------------------------------------------------------------------------


class LogConverter:
    """Converter of logs, which keeps what it has converted.

    Parameters
    ----------
    memory_bytes
        Budget of compressed batches in memory; the others are in files without a name.
    kept_bytes
        Bytes of logs that are kept after their last use.

    Attributes
    ----------
    keeper : BatchKeeper
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES, kept_bytes: int = KEPT_LOG_BYTES) -> None:
        self.keeper: BatchKeeper = BatchKeeper(Budget(memory_bytes, self._drop_one))
        self._kept_bytes = kept_bytes
        self._in_use: weakref.WeakValueDictionary[Any, ConvertedLog] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[Any, ConvertedLog] = OrderedDict()
        self._n_recent_bytes = 0
        self._changing = threading.RLock()

    def converted(self, identity: Any, format: LogFormat, opened: Callable[[], IO[bytes]]) -> ConvertedLog:
        """Return a log as batches: those that were kept, or new ones.

        Parameters
        ----------
        identity
            Tells the file, and its state, from all others; None: it cannot be told, and is not kept.
        format
        opened
            Opens the decompressed file.
        """
        found = None if identity is None else self.kept(identity)
        if found is not None:
            return found
        skipped = Skipped()
        with opened() as stream:
            batches = [self.keeper.keep(batch) for batch in batches_of(format.records(stream, skipped))]
        return self.add(identity, batches, skipped)

    def kept(self, identity: Any) -> ConvertedLog | None:
        """Return a log that was converted before, or None if it is not kept."""
        with self._changing:
            if identity in self._recent:
                self._recent.move_to_end(identity)
            return self._in_use.get(identity)

    def add(self, identity: Any, batches: list[KeptBatch], skipped: Skipped) -> ConvertedLog:
        """Return a log of batches that `keeper` keeps, for all that ask for it while it is kept."""
        log = ConvertedLog(batches, _schema_of(batches), skipped)
        if identity is not None:
            with self._changing:
                self._in_use[identity] = log
                before = self._recent.pop(identity, None)  # two threads may have converted one file
                self._recent[identity] = log
                self._n_recent_bytes += log.n_bytes - (0 if before is None else before.n_bytes)
                while self._n_recent_bytes > self._kept_bytes and self._drop_one():
                    pass
        return log

    def _drop_one(self) -> bool:
        """Forget the log that was used least recently, so that its memory is free unless it is read now."""
        with self._changing:
            if not self._recent:
                return False
            self._n_recent_bytes -= self._recent.popitem(last=False)[1].n_bytes
            return True


def _schema_of(batches: Sequence[KeptBatch]) -> pa.Schema:
    kinds: dict[str, pa.DataType] = {}
    for batch in batches:
        for field in batch.schema:
            kinds[field.name] = joined_type(kinds.get(field.name, field.type), field.type)
    return shared_schema(pa.schema(list(kinds.items())))


CONVERTER = LogConverter()
"""The converter of this process."""
