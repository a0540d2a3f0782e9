"""A function for ``mapInArrow`` whose process is killed in the middle, so many times in all."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


@dataclass
class KilledInside:
    """A task whose process is killed, while a file of a folder can be made for it.

    It is killed before it reads its second batch, after it gave its first one, or after it wrote its first rows to a
    file: whatever comes first.  With `executor`, its executor is killed: the process that started the one which all its
    workers were forked from.
    """

    function: Any
    folder: Path
    n_kills: int
    executor: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        write_batch = pq.ParquetWriter.write_batch

        def half(writer: pq.ParquetWriter, *args: Any) -> None:
            write_batch(writer, *args)
            self._kill()

        pq.ParquetWriter.write_batch = half
        try:
            for found in self.function(self._read(batches)):
                yield found
                self._kill()
        finally:
            pq.ParquetWriter.write_batch = write_batch

    def _read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for i, batch in enumerate(batches):
            if i == 1:
                self._kill()
            yield batch

    def _kill(self) -> None:
        for number in range(self.n_kills):
            with contextlib.suppress(FileExistsError):
                (self.folder / str(number)).touch(exist_ok=False)
                os.kill(_parent_of(os.getppid()) if self.executor else os.getpid(), signal.SIGKILL)
                time.sleep(60)  # a worker does not outlive its executor for long


def _parent_of(pid: int) -> int:
    about = Path(f"/proc/{pid}/stat").read_text()
    return int(about.rpartition(")")[2].split()[1])
