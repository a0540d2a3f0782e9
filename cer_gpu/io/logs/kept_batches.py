"""Batches kept while a process lasts: compressed, in memory up to a budget, and beyond it in files without a name."""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import IO

import pyarrow as pa

MEMORY_BYTES = 1 << 28
"""Bytes of compressed batches in memory, over all files of the process."""
SPILL_BYTES = 1 << 30
"""Bytes of one file without a name, after which the next is begun; it is deleted with the last of its batches."""
_CODEC = "zstd"


class Budget:
    """Bytes that all kept batches may have in memory.

    Parameters
    ----------
    n_bytes
    make_room
        Called when there is no room; returns True if it dropped something.
    """

    def __init__(self, n_bytes: int, make_room: Callable[[], bool] = lambda: False) -> None:
        self.n_bytes: int = n_bytes
        self.make_room: Callable[[], bool] = make_room
        self.n_used: int = 0
        self._changing = threading.RLock()  # a batch may be dropped while another is kept

    def take(self, n_bytes: int) -> bool:
        """Return True if there was room for so many bytes, which are in use now."""
        while True:
            with self._changing:
                if self.n_used + n_bytes <= self.n_bytes:
                    self.n_used += n_bytes
                    return True
            if not self.make_room():
                return False

    def give_back(self, n_bytes: int) -> None:
        """Count bytes that are in use no more."""
        with self._changing:
            self.n_used -= n_bytes


class _SpillFile:
    """File without a name, to which batches are appended; the system deletes it with the process, however that ends."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(prefix="cer_gpu-")  # noqa: SIM115 - closed with this object
        self.pid = os.getpid()
        self.n_bytes = 0
        self._changing = threading.Lock()
        weakref.finalize(self, self.file.close)

    def append(self, data: pa.Buffer) -> int:
        """Return the place of data after writing them."""
        with self._changing:
            place = self.n_bytes
            self.file.seek(place)
            self.file.write(data)
            self.file.flush()
            self.n_bytes += data.size
            return place

    def read(self, place: int, n_bytes: int) -> bytes:
        """Return data that were appended."""
        if hasattr(os, "pread"):  # a copy of the process has the same position in the file
            parts, end = [], place + n_bytes
            while place < end and (part := os.pread(self.file.fileno(), end - place, place)):
                parts.append(part)
                place += len(part)
            return b"".join(parts)
        with self._changing:
            self.file.seek(place)
            return self.file.read(n_bytes)


@lru_cache(maxsize=1 << 10)
def shared_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema, the same one for equal ones: thousands of files have the columns of a few kinds of events."""
    return schema


@dataclass(eq=False)
class KeptBatch:
    """A batch that is kept.

    Attributes
    ----------
    schema : pyarrow.Schema
    n_rows : int
    n_bytes : int
        Compressed.
    """

    schema: pa.Schema
    n_rows: int
    n_bytes: int
    _load: Callable[[], pa.Buffer | bytes]

    def read(self, columns: list[str]) -> pa.RecordBatch:
        """Return some of its columns, one at least if it has any; only these are decompressed."""
        indices = [self.schema.get_field_index(name) for name in columns or self.schema.names[:1]]
        options = pa.ipc.IpcReadOptions(included_fields=indices, use_threads=False)
        with pa.ipc.open_stream(pa.py_buffer(self._load()), options=options) as reader:
            return reader.read_next_batch()


def compressed_batch(batch: pa.RecordBatch) -> pa.Buffer:
    """Return a batch as a stream of Arrow IPC."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=_CODEC, use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


class BatchKeeper:
    """Keeper of batches.

    Parameters
    ----------
    budget
        For those in memory.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget: Budget = budget
        self._spill: weakref.ref[_SpillFile] | None = None
        self._changing = threading.Lock()

    def keep(self, batch: pa.RecordBatch) -> KeptBatch:
        """Compress and keep a batch, while what is returned lives."""
        return self.keep_compressed(compressed_batch(batch), batch.schema, batch.num_rows)

    def keep_compressed(self, data: pa.Buffer, schema: pa.Schema, n_rows: int) -> KeptBatch:
        """Keep a batch that `compressed_batch` made."""
        if self.budget.take(data.size):
            kept = KeptBatch(shared_schema(schema), n_rows, data.size, lambda: data)
            weakref.finalize(kept, self.budget.give_back, data.size)
            return kept
        spill, n_bytes = self._spill_file(), data.size
        place = spill.append(data)
        return KeptBatch(shared_schema(schema), n_rows, n_bytes, lambda: spill.read(place, n_bytes))

    def _spill_file(self) -> _SpillFile:
        with self._changing:
            spill = None if self._spill is None else self._spill()
            # a copy of the process has its own: both would write at one place
            if spill is None or spill.n_bytes >= SPILL_BYTES or spill.pid != os.getpid():
                spill = _SpillFile()
                self._spill = weakref.ref(spill)
            return spill
