"""Rules of Sigma as one set, on a GPU and on the CPU: their guards alone, and whole evaluations.

The rules and the events are those of `sigma_rules.py`, and are not part of this repository: without them there is
nothing to measure.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import Row
from sigma_rules import windows_rules

import cer_gpu
import cer_gpu.sigma
from cer_gpu.columnar.columns import Block

GUARDS, WHOLE = "guards of rules alone", "rules, from events to matches"
SHARES_OF_RULES = 10, 1
COPIES = 1, 8
"""Times that the events are repeated, one after the other in time."""


def rules_of(packed: Path) -> dict[str, str]:
    """Return SigmaHQ's rules about Windows, as texts of queries by name."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(packed) as rules:
        rules.extractall(folder)
        return dict(cer_gpu.sigma.load(windows_rules(Path(folder)), pipelines=["windows"]))


def repeated(events: pa.Table, copies: int) -> pa.Table:
    """Return events several times, each a millisecond after the one before."""
    if copies == 1:
        return events
    n = copies * events.num_rows
    moments = pa.array(np.arange(n, dtype=np.int64) * 1000, pa.timestamp("us"))
    return pa.concat_tables([events] * copies).set_column(events.column_names.index("ts"), "ts", moments)


def guards_alone(rules: cer_gpu.QuerySet, batch: pa.RecordBatch, device: str) -> Callable[[], int]:
    """Return a function that finds the rows of all guards in a batch, and returns their number."""
    evaluator: Any = rules.evaluator(device=device, threads=1)
    evaluator.expect(batch.schema)
    shared = evaluator._group.shared.guards(batch.schema, "type" if "type" in batch.schema.names else None)

    def run(queries: Any = evaluator) -> int:  # which are asked for as long as they are held
        assert queries is not None
        for block in shared.prefetch([Block(batch)]):
            assert device == "cpu" or shared._on_device is not None
            return sum(len(shared.rows(number, block)[0]) for number in range(len(shared._guards)))
        raise AssertionError

    return run


def set_rows(
    packed: Path, recorded: Path, measured: Callable[..., list[float]], left: Callable[[], float]
) -> Iterator[Row]:
    """Yield the rows of some of the rules and of all, over the events once and repeated.

    Parameters
    ----------
    packed, recorded
        The rules (a zip file) and the events (Parquet).
    measured
        Function of a name, a number of rows and functions, that returns the seconds of each.
    left
        Function that returns the seconds that are left.
    """
    if not packed.exists() or not recorded.exists():
        yield {"workload": WHOLE, "why not": "there are no rules, or no events"}
        return
    texts, events = rules_of(packed), pq.read_table(recorded)
    cores = len(os.sched_getaffinity(0))
    for share in SHARES_OF_RULES:
        some = dict(list(texts.items())[::share])
        rules = cer_gpu.compile_all(some, time_column="ts")
        named: Row = {"rules": len(some)}
        batch = events.combine_chunks().to_batches()[0]
        on_cpu, on_gpu = (guards_alone(rules, batch, device) for device in ("cpu", "cuda"))
        assert on_cpu() == on_gpu()
        cpu, gpu = measured((GUARDS, share), batch.num_rows, on_cpu, on_gpu)
        yield _row(GUARDS, named, batch.num_rows, 1, cpu, gpu) | {"GB/s": batch.nbytes / gpu / 1e9}
        for copies in COPIES:
            table = repeated(events, copies)
            for threads, n_cores in ((1, 1), (None, cores)):
                run = partial(rules.evaluate, table, threads=threads)
                if left() < 30 * copies:
                    yield {"workload": WHOLE, **named, "rows": table.num_rows, "why not": "there is no time left"}
                    continue
                assert run(device="cpu") == run(device="cuda")
                cpu, gpu = measured(
                    (WHOLE, share, threads), table.num_rows, *(partial(run, device=d) for d in ("cpu", "cuda"))
                )
                yield _row(WHOLE, named, table.num_rows, n_cores, cpu, gpu)


def _row(name: str, named: Row, rows: int, cores: int, cpu: float, gpu: float) -> Row:
    return {
        "workload": name,
        **named,
        "rows": rows,
        "cores": cores,
        "CPU, million events/s": rows / cpu / 1e6,
        "GPU, million events/s": rows / gpu / 1e6,
        "times as fast": cpu / gpu,
    }
