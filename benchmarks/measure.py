"""Measure one workload: the time of its query, the floors below it, and its memory.

The floor of a query is the least work of any engine: read once the columns that the query names, and write the result
once.  Calls of the query and of its floor alternate, so that their ratio holds when the machine's speed drifts.
Seconds are CPU seconds of the one thread that works, or wall time if several threads work.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import cer_gpu
from cer_gpu.ceql.parser import parse
from cer_gpu.planning.passes import plan_of

Row = dict[str, object]
WARM_UP = 100_000
"""Events of the evaluation that compiles the kernels."""


@dataclass(frozen=True)
class Workload:
    """A query over a stream; one row of a table.

    Attributes
    ----------
    name : str
        The row's name; rows that differ by a number alone share it.
    text : str
        The query.
    events : callable, pyarrow.Table or Path
        Function of the number of events that makes them, and can be pickled; or the events, or their Parquet file.
    at : dict
        The number that tells it from others of its name, as a column: the window, the length of the sequence, ...
    times : float
        Number of events made, as a multiple of the number that the caller asks for.
    by_automaton : bool
        True: the automaton evaluates the query, even if stacks could.
    in_parallel : bool
        False: the pattern is not made a parallelised automaton, even if it could be one.
    relevant : float, optional
        The share of events that the query's window holds, to measure the memory of each of them.
    """

    name: str
    text: str
    events: Callable[[int], pa.Table] | pa.Table | Path
    at: dict[str, float] | None = None
    times: float = 1.0
    output: str = "positions"
    time_column: str | None = None
    by_automaton: bool = False
    in_parallel: bool = True
    relevant: float | None = None

    def query(self) -> cer_gpu.Query:
        """Return the query, compiled."""
        if not self.in_parallel:
            return cer_gpu.Query(plan_of(parse(self.text), "type", self.time_column, None, in_parallel=False))
        query = cer_gpu.compile(self.text, time_column=self.time_column)
        return cer_gpu.Query(replace(query._plan, chain=None)) if self.by_automaton else query

    def table(self, n_events: int) -> pa.Table:
        """Return the events: `n_events` of them, if they are made."""
        if isinstance(self.events, pa.Table):
            return self.events
        assert not isinstance(self.events, Path)
        return self.events(max(int(n_events * self.times), 10))

    def row(self) -> Row:
        """Return the columns that name the workload."""
        return {"workload": self.name, **(self.at or {})}


def seconds(*runs: Callable[[], object], repeat: int, clock: Callable[[], float] = time.thread_time) -> list[float]:
    """Return the median seconds of several functions, called in turn; the first call of each is not counted."""
    taken: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat + 1):
        for run, times in zip(runs, taken, strict=True):
            before = clock()
            run()
            times.append(clock() - before)
    return [statistics.median(times[1:]) for times in taken]


def drain(query: cer_gpu.Query, events: object, output: str, threads: int | None = 1) -> Iterator[pa.RecordBatch]:
    """Yield the batches of matches, without keeping them."""
    yield from query.stream(events, output=output, threads=threads)


def count(query: cer_gpu.Query, events: object, output: str = "positions", threads: int | None = 1) -> int:
    """Return the number of matches, after forming all of them (for counts, their sum)."""
    found = 0
    for batch in drain(query, events, output, threads):
        found += pc.sum(batch["count"]).as_py() or 0 if output == "count" else batch.num_rows
    return found


def bare_pass(table: pa.Table, columns: list[str]) -> tuple[Callable[[], object], int]:
    """Return a function that reads columns once, and the bytes that it reads.

    It takes the sum of numbers, of times and of a dictionary's codes, and the greatest byte of strings.
    """
    parts: list[pa.Array | np.ndarray] = []
    for chunk in (chunk for name in columns for chunk in table[name].chunks):
        if pa.types.is_dictionary(chunk.type):
            parts.append(chunk.indices)
        elif pa.types.is_timestamp(chunk.type):
            parts.append(chunk.view(pa.int64()))
        elif pa.types.is_string(chunk.type):
            ends = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
            parts += [pa.array(ends), np.frombuffer(chunk.buffers()[2], np.uint8)[ends[0] : ends[-1]]]
        else:
            parts.append(chunk)

    def run() -> None:
        for part in parts:
            if isinstance(part, np.ndarray):
                part.max(initial=0)
            else:
                pc.sum(part)

    return run, sum(part.nbytes for part in parts)


def copy(n_bytes: int, block: int) -> Callable[[], object]:
    """Return a function that copies `n_bytes` from one block of memory to another, over and over."""
    source = np.ones(max(min(block, n_bytes), 1), np.uint8)
    target = np.empty_like(source)

    def run() -> None:
        for _ in range(-(-n_bytes // len(source))):
            np.copyto(target, source)

    return run


class Peak:
    """Peak memory of the process inside a ``with`` block, above its memory before; None if not known."""

    n_bytes: int | None = None

    def __enter__(self) -> Peak:
        """Note the memory at the start."""
        import psutil  # not where timing alone is needed

        pa.default_memory_pool().release_unused()
        self._before = psutil.Process().memory_info().rss
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # sets the peak to the present memory
            self._known = True
        except OSError:
            self._known = False
        return self

    def __exit__(self, *_: object) -> None:
        """Note the peak."""
        if self._known:
            status = Path("/proc/self/status").read_text(encoding="ascii")
            peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
            self.n_bytes = max(peak * 1024 - self._before, 0)

    @property
    def mebibytes(self) -> float | None:
        """The peak in MiB."""
        return None if self.n_bytes is None else self.n_bytes / 2**20


def in_memory(workload: Workload, n_events: int, repeat: int) -> Row:
    """Measure a query over Arrow data in memory, on one thread."""
    query, table = workload.query(), workload.table(n_events)
    n = len(table)
    for _ in drain(query, table.slice(0, WARM_UP), workload.output):
        pass
    n_found = n_bytes = block = 0
    with Peak() as peak:
        for batch in drain(query, table, workload.output):
            n_found += pc.sum(batch["count"]).as_py() if workload.output == "count" else batch.num_rows
            n_bytes, block = n_bytes + batch.nbytes, max(block, batch.nbytes)
    row: Row = {**workload.row(), "events": n, "matches": n_found}
    if workload.relevant is not None:
        held = workload.relevant * min(n, (workload.at or {}).get("window", n))
        return row | {
            "relevant events held": int(held),
            "peak, MiB": peak.mebibytes,
            "bytes for each": None if peak.n_bytes is None or not held else peak.n_bytes / held,
        }
    read, n_read = bare_pass(table, query.columns(table.schema, workload.output))
    taken, reading, copying = seconds(
        lambda: count(query, table, workload.output), read, copy(n_bytes, block), repeat=repeat
    )
    return row | {
        "million events/s": n / taken / 1e6,
        "ns/event": taken / n * 1e9,
        "million matches/s": n_found / taken / 1e6,
        "GB/s read": n_read / taken / 1e9,
        "times the floor": taken / (reading + copying),
        "peak, MiB": peak.mebibytes,
    }


def threads_gain(workload: Workload, n_events: int, repeat: int) -> Row:
    """Measure a query on one thread and on as many as there are cores."""
    query, table, n_cores = workload.query(), workload.table(n_events), len(os.sched_getaffinity(0))
    one, several = seconds(
        *(lambda n=n: count(query, table, workload.output, n) for n in (1, n_cores)),
        repeat=repeat,
        clock=time.perf_counter,
    )
    return {
        **workload.row(),
        "events": len(table),
        "one thread, million events/s": len(table) / one / 1e6,
        f"{n_cores} threads, million events/s": len(table) / several / 1e6,
        "times as fast": one / several,
    }


def from_file(workload: Workload, n_events: int, repeat: int) -> Row:
    """Measure a query from a Parquet file, beside a bare scan of the same columns, by pyarrow's threads or without."""
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(workload.events, Path):
            path = workload.events
        else:
            path = Path(folder) / "events.parquet"
            pq.write_table(workload.table(n_events), path, row_group_size=1 << 20)
        query, file = workload.query(), pq.ParquetFile(path)
        columns = query.columns(file.schema_arrow, workload.output)
        texts = [name for name in columns if pa.types.is_string(file.schema_arrow.field(name).type)]

        def scan(use_threads: bool) -> None:
            opened = pq.ParquetFile(path, memory_map=True, pre_buffer=False, read_dictionary=texts)
            for _ in opened.iter_batches(batch_size=1 << 17, columns=columns, use_threads=use_threads):
                pass

        n_found = count(query, path)
        with Peak() as peak:
            count(query, path)
        taken, *scans = seconds(
            lambda: count(query, path, threads=None),
            lambda: scan(True),
            lambda: scan(False),
            repeat=repeat,
            clock=time.perf_counter,
        )
    n, scanned = file.metadata.num_rows, min(scans)
    return {
        **workload.row(),
        "events": n,
        "matches": n_found,
        "million events/s": n / taken / 1e6,
        "bare scan, million events/s": n / scanned / 1e6,
        "times the bare scan": taken / scanned,
        "peak, MiB": peak.mebibytes,
    }


def floors(workload: Workload, n_events: int, repeat: int) -> Row:
    """Measure the floor of all queries over the stream of a workload: reading its columns, and copying as much."""
    table = workload.table(n_events)
    read, n_bytes = bare_pass(table, workload.query().columns(table.schema))
    reading, copying = seconds(read, copy(n_bytes, n_bytes), repeat=repeat)
    return {
        **workload.row(),
        "events": len(table),
        "bytes/event": n_bytes / len(table),
        "bare pass, million events/s": len(table) / reading / 1e6,
        "bare pass, GB/s": n_bytes / reading / 1e9,
        "memcpy, GB/s": n_bytes / copying / 1e9,
    }
