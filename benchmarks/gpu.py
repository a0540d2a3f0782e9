"""Measure predicates on a GPU beside the CPU, with floors measured at the same time; without a GPU, say so.

    python benchmarks/gpu.py [--events N] [--repeat K]

The floor below events of the host is the bandwidth of copies from pinned memory, and that below events on the device
the bandwidth of its memory.  `make bench` has the same rows; this script needs no packages but those of gpu-check.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

import cer_gpu
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend import cupy_backend
from cer_gpu.ceql.parser import parse
from cer_gpu.columnar.columns import Block
from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates import placement
from cer_gpu.predicates.guards import COMPILED, GuardWords
from cer_gpu.predicates.symbols import SymbolTable

Row = dict[str, object]
TITLE = "GPU"
ABOUT = "Predicates on float32 columns, of which about 1% of the events satisfy one, and whole queries."
N_PREDICATES = (1, 4, 16, 64)
N_BYTES = (4, 16, 64)
BLOCK_ROWS = 1 << 20
SHARE = 0.01
QUERIES = {
    "A ; B+ ; C": "SELECT * FROM S WHERE A ; B+ ; C WITHIN 100 EVENTS",
    "A ; B+ ; C, filters": (
        "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.5] AND B[x < 0.3] AND C[x >= 0] WITHIN 100 EVENTS"
    ),
}


def median_seconds(run: Callable[[], object], repeat: int) -> float:
    """Return the median wall time of some calls, in seconds; the first call is not counted."""
    taken = []
    for _ in range(repeat + 1):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken[1:])


class Numbered:
    """Stand-in for the symbols of an automaton: words are numbered, and that without a guard is quiet."""

    def __init__(self) -> None:
        self._symbols = {0: 0}

    def symbol(self, word: int) -> int:
        """Return the number of a word."""
        return self._symbols.setdefault(word, len(self._symbols))


def guards(n: int, n_columns: int) -> tuple[Guard, ...]:
    """Return `n` comparisons over `n_columns` columns."""
    thresholds = [1 - SHARE * (k + 1) / n / n_columns for k in range(n)]
    parsed = [parse(f"SELECT * FROM S WHERE S FILTER S[x{k % n_columns} > {x}]") for k, x in enumerate(thresholds)]
    return tuple(Guard(None, query.formula.filter.predicate) for query in parsed)  # type: ignore[union-attr]


def selecting(n: int, batch: pa.RecordBatch, device: str) -> Callable[[], int]:
    """Return a function that selects the relevant events of a batch, and returns their number."""
    words = GuardWords(guards(n, batch.num_columns), batch.schema, None, "", device=device)
    symbols = SymbolTable(Numbered(), words.dtype, n)  # type: ignore[arg-type]

    def run() -> int:
        blocks = (Block(batch.slice(first, BLOCK_ROWS)) for first in range(0, batch.num_rows, BLOCK_ROWS))
        return sum(len(words.select(block, symbols)[0]) for block in words.ahead(blocks, symbols))

    return run


def bandwidths(repeat: int, n_bytes: int = 1 << 28) -> tuple[float, float]:
    """Return bytes per second: of copies from pinned memory to the device, and of reads and writes of its memory."""
    import cupy

    device = placement.open_device()
    queue, pinned = device.queue(), device.pinned(n_bytes)
    one, other = device.allocate(n_bytes), device.allocate(n_bytes)
    runtime = cupy.cuda.runtime

    def upload() -> None:
        queue.write(one.address, pinned)
        queue.wait()

    def copy() -> None:
        for _ in range(16):
            runtime.memcpyAsync(other.address, one.address, n_bytes, runtime.memcpyDeviceToDevice, 0)
        runtime.deviceSynchronize()

    return n_bytes / median_seconds(upload, repeat), 32 * n_bytes / median_seconds(copy, repeat)


def predicate_rows(n_events: int, repeat: int) -> Iterator[Row]:
    """Yield the rows of the stage of predicates alone."""
    import cupy

    copying, memory = bandwidths(repeat)
    yield {"workload": "floor: copies from pinned memory", "GB/s": copying / 1e9}
    yield {"workload": "floor: reads and writes of device memory", "GB/s": memory / 1e9}
    rng = np.random.default_rng(0)
    columns = {f"x{k}": rng.random(n_events, np.float32) for k in range(max(N_BYTES) // 4)}
    on_device = {name: cupy.asarray(values) for name, values in columns.items()}
    for n_bytes in N_BYTES:
        names = list(columns)[: n_bytes // 4]
        on_host = pa.record_batch({name: columns[name] for name in names})
        resident = cer_gpu.DeviceEvents({name: on_device[name] for name in names}).batch()
        for n in N_PREDICATES:
            predicates.TIER = COMPILED
            on_cpu = selecting(n, on_host, "cpu")
            predicates.TIER = None
            cpu = median_seconds(on_cpu, repeat)
            for where, batch, floor in (("host", on_host, copying), ("device", resident, memory)):
                on_gpu = selecting(n, batch, "cuda")
                assert on_gpu() == on_cpu()
                gpu = median_seconds(on_gpu, repeat)
                yield {
                    "workload": f"predicates, events on the {where}",
                    "predicates": n,
                    "bytes of an event": n_bytes,
                    "CPU, million events/s": n_events / cpu / 1e6,
                    "GPU, million events/s": n_events / gpu / 1e6,
                    "times as fast": cpu / gpu,
                    "times the floor": gpu / (n_events * n_bytes / floor),
                }


def query_rows(n_events: int, repeat: int) -> Iterator[Row]:
    """Yield the rows of whole queries, from events of the host."""
    rng = np.random.default_rng(0)
    codes = rng.choice(9, n_events, p=[*[(1 - 1e-6) / 8] * 2, 1e-6, *[(1 - 1e-6) / 8] * 6]).astype(np.int32)
    types = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list("ABCDEFGHI")))
    table = pa.table({"type": types, "x": rng.random(n_events)})
    for name, text in QUERIES.items():
        query = cer_gpu.compile(text)
        assert query.evaluate(table, device="cuda").equals(query.evaluate(table, device="cpu", threads=1))
        run = partial(query.evaluate, table, threads=1)
        cpu, gpu = (median_seconds(partial(run, device=device), repeat) for device in ("cpu", "cuda"))
        yield {
            "workload": f"{name}, whole query",
            "CPU, million events/s": n_events / cpu / 1e6,
            "GPU, million events/s": n_events / gpu / 1e6,
            "times as fast": cpu / gpu,
        }


def rows(n_events: int, repeat: int) -> list[Row]:
    """Return all rows; without a GPU, one that says that they are left out."""
    why = cupy_backend.missing()
    if why is not None:
        return [{"workload": "left out", "why": why.partition("\n")[0]}]
    return [
        {"workload": f"on {placement.open_device().name}"},
        *predicate_rows(n_events, repeat),
        *query_rows(n_events, repeat),
    ]


def main(arguments: list[str]) -> int:
    """Print all rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args(arguments)
    for row in rows(options.events, options.repeat):
        cells = (
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
        )
        sys.stdout.write("; ".join(cells) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
