"""Conversion of logs by several processes, for formats whose records are parsed in Python.

Each process runs `serve_files`: it reads files from standard input, and writes their batches to standard output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from cer_gpu.errors import CerError
from cer_gpu.io.formats import log_format_of, log_identity, log_stream
from cer_gpu.io.logs.converted import CONVERTER, CachedBatch, ConvertedLog, batches_of, compressed_batch
from cer_gpu.io.logs.log_formats import LOG_FORMATS, LogFormat
from cer_gpu.io.logs.records import Skipped
from cer_gpu.io.source import READ_ERRORS
from cer_gpu.io.stores import StoredFile

WORTHWHILE_BYTES = 1 << 30
"""Minimum size of logs for which processes are started: each takes a second or two to start."""
MAX_CONVERTERS = 16
_ROOT = Path(__file__).resolve().parents[3]
_Job = tuple[Any, LogFormat, StoredFile]


def convert_ahead(files: Sequence[StoredFile]) -> list[ConvertedLog]:
    """Convert the logs among files of this machine, several at once, if they are large.

    Files that cannot be read are skipped; opening them raises the error.

    Returns
    -------
    list of ConvertedLog
        Logs that stay in the cache of `CONVERTER` as long as this list lives.
    """
    n_processes = min(_cores(), MAX_CONVERTERS)
    local = [file for file in files if file.store is None]
    if n_processes < 2 or len(local) < 2 or _bytes_of(local) < WORTHWHILE_BYTES:
        return []
    logs = [(format, file) for file in local if (format := log_format_of(file)) is not None]
    jobs: deque[_Job] = deque()
    with suppress(OSError):
        for format, file in logs:
            identity = log_identity(format, file)
            if CONVERTER.cached(identity) is None:
                jobs.append((identity, format, file))
    n_processes = min(n_processes, len(jobs))
    if n_processes < 2 or _bytes_of([file for _, _, file in jobs]) < WORTHWHILE_BYTES:
        return []
    converted: list[ConvertedLog] = []
    threads = [threading.Thread(target=_serve, args=(jobs, converted), daemon=True) for _ in range(n_processes)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        jobs.clear()  # the processes end after their current files
        raise
    return converted


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _bytes_of(files: Sequence[StoredFile]) -> int:
    n_bytes = 0
    for path in {file.path for file in files}:
        with suppress(OSError):
            n_bytes += os.stat(path).st_size
    return n_bytes


def _serve(jobs: deque[_Job], converted: list[ConvertedLog]) -> None:
    """Send files to a process, one after the other, and cache the batches that it returns."""
    path = os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
    with (
        suppress(OSError, EOFError, pickle.UnpicklingError),  # it died: its files are converted when they are opened
        subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve_files; serve_files()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        while True:
            try:
                identity, format, file = jobs.popleft()
            except IndexError:
                process.stdin.close()
                return
            pickle.dump((LOG_FORMATS.index(format), file), process.stdin)
            process.stdin.flush()
            batches: list[CachedBatch] = []
            while isinstance(reply := pickle.load(process.stdout), tuple):
                data, schema, n_rows = reply
                batches.append(CONVERTER.batch_cache.add_compressed(pa.py_buffer(data), schema, n_rows))
            if isinstance(reply, Skipped):
                converted.append(CONVERTER.add(identity, batches, reply))


def _convert(requests: IO[bytes], out: IO[bytes]) -> None:
    """Convert files until there are no more: write batches as tuples, then Skipped, or None after an error."""
    while True:
        try:
            number, file = pickle.load(requests)
        except EOFError:
            return
        format, skipped = LOG_FORMATS[number], Skipped()
        end: Skipped | None = skipped
        try:
            with log_stream(format, file) as stream:
                for batch in batches_of(format.records(stream, skipped)):
                    pickle.dump((compressed_batch(batch).to_pybytes(), batch.schema, batch.num_rows), out)
        except (CerError, *READ_ERRORS):
            end = None
        pickle.dump(end, out)
        out.flush()


def serve_files() -> None:
    """Convert the files that the parent process requests, until it closes the pipe."""
    with suppress(BrokenPipeError, KeyboardInterrupt):
        _convert(sys.stdin.buffer, sys.stdout.buffer)
