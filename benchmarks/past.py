"""What asks of the past and of each start: events each second for OVER aggregates, runs of neighbours, and "funnel".

    .venv/bin/python benchmarks/past.py [--events 4000000] [--repeat 4]

The column of each aggregate is made alone: all events are of its type, of one key or of a million, with about a
thousand or a million of them in the window.  Runs are of rising values, of 50 keys, and are read alone, before a later
event, and before one that is compared with their last.  For "funnel" a funnel of four steps is evaluated as a whole, of
16 types of which four take part, without filters between events, and with some, by which each start is tested.  Seconds
are CPU seconds of the one thread that works; shown is the fastest run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

import cer_gpu
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.dictionary_encoding import DictionaryEncoder
from cer_gpu.engine.blocks import BLOCK_ROWS
from cer_gpu.engine.stream_columns import StreamColumns

AGGREGATES = ("COUNT(R)", "SUM(R.i)", "SUM(R.x)", "AVG(R.x)", "MIN(R.i)", "COUNT(DISTINCT R.i)", "STDDEV(R.x)")
WINDOWS = (1_000, 1_000_000)
MANY = 1_000_000
KEYS_OF_PROGRESS = (1, 1_000, 100_000)
RISING = "R:{6} AS r"
RUNS = {
    "alone": f"{RISING} FILTER r.x > PREV(r).x",
    "then S": f"{RISING} ; S AS s FILTER r.x > PREV(r).x",
    "then S above the last": f"{RISING} ; S AS s FILTER r.x > PREV(r).x AND s.x > LAST(r).x",
}
FUNNELS = {
    "steps alone": "A ; B ; C ; D",
    "each above the last": "A AS a ; B AS b ; C AS c ; D AS d FILTER b.x > a.x AND c.x > b.x AND d.x > c.x",
}
OUTPUTS_OF_RUNS = ("positions", "count", "ends")


def events(n: int, n_keys: int, types: str) -> pa.Table:
    """Return random events with a key, an integer, a float, and their number t."""
    rng = np.random.default_rng(1)
    codes = pa.array(rng.integers(0, len(types), n).astype(np.int32))
    columns = {"k": rng.integers(0, n_keys, n), "i": rng.integers(0, 1000, n), "x": rng.normal(size=n)}
    kinds = pa.DictionaryArray.from_arrays(codes, pa.array(list(types)))
    return pa.table({"type": kinds, **columns, "t": np.arange(n)})


def fastest(run: Callable[[], object], repeat: int) -> float:
    """Return the CPU seconds of the fastest of several runs."""
    best = float("inf")
    for _ in range(repeat):
        begin = time.thread_time()
        run()
        best = min(best, time.thread_time() - begin)
    return best


def columns_of(text: str, table: pa.Table) -> Callable[[], None]:
    """Return a function that makes the columns of the past of a query for all events."""
    query = cer_gpu.compile(text)
    assert isinstance(query, cer_gpu.Query)
    binding = query._bind(table.schema)
    batch = table.combine_chunks().to_batches()[0]

    def run() -> None:
        columns, coders = (
            StreamColumns(binding.partition_keys, binding.derived, binding.over_aggregates),
            dict[str, DictionaryEncoder](),
        )
        for first in range(0, len(batch), BLOCK_ROWS):
            columns.add_to(Block(batch.slice(first, BLOCK_ROWS), coders))

    return run


def main() -> None:
    """Measure each aggregate, the runs, and the funnel, and print tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--repeat", type=int, default=4)
    asked = parser.parse_args()
    print(f"{'million events/s':24}" + "".join(f"{f'{k:,} keys, {w:,}':>24}" for k in (1, MANY) for w in WINDOWS))
    tables = {n_keys: events(asked.events, n_keys, "R") for n_keys in (1, MANY)}
    for aggregate in AGGREGATES:
        rates = []
        for n_keys, table in tables.items():
            for window in WINDOWS:
                keys = "" if n_keys == 1 else "PARTITION BY [k]"
                text = f"SELECT * FROM S WHERE R FILTER R[{aggregate} OVER {window} [t] < 0] {keys}"
                rates.append(asked.events / fastest(columns_of(text, table), asked.repeat) / 1e6)
        print(f"{aggregate:24}" + "".join(f"{rate:>24.1f}" for rate in rates), flush=True)
    print(f"\n{'six rising values':24}" + "".join(f"{output:>16}" for output in OUTPUTS_OF_RUNS))
    table = events(asked.events, 50, "RRRRRRRRRS")
    for name, text in RUNS.items():
        query = cer_gpu.compile(f"SELECT * FROM S WHERE {text} PARTITION BY [k] WITHIN 600 [t]")
        rates = []
        for output in OUTPUTS_OF_RUNS:
            run = partial(query.evaluate, table, output=output, threads=1)
            run()  # compiles
            rates.append(asked.events / fastest(run, asked.repeat) / 1e6)
        print(f"{name:24}" + "".join(f"{rate:>16.1f}" for rate in rates), flush=True)
    print(f"\n{'progress, four steps':24}" + "".join(f"{f'{n:,} keys':>16}" for n in KEYS_OF_PROGRESS))
    tables = {n_keys: events(asked.events, n_keys, "ABCDEFGHIJKLMNOP") for n_keys in KEYS_OF_PROGRESS}
    for name, text in FUNNELS.items():
        rates = []
        for n_keys, table in tables.items():
            keys = "" if n_keys == 1 else "PARTITION BY [k]"
            query = cer_gpu.compile(f"SELECT * FROM S WHERE {text} {keys} WITHIN 1000000 [t]")
            query.evaluate(table.slice(0, 100_000), output="funnel")  # compiles

            run = partial(query.evaluate, table, output="funnel", threads=1)
            rates.append(asked.events / fastest(run, asked.repeat) / 1e6)
        print(f"{name:24}" + "".join(f"{rate:>16.1f}" for rate in rates), flush=True)


if __name__ == "__main__":
    main()
