"""Live sources for tests: a query over files of a folder, and its results in memory."""

import contextlib
import json
import os
import random

import pyarrow as pa
import pyarrow.parquet as pq

import cer_gpu
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.follow.folder_watcher import FolderWatcher
from cer_gpu.follow.following import Follower
from cer_gpu.follow.targets import live_target

TEXT = "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 4 SECONDS"
QUERY = cer_gpu.compile(TEXT, time_column="ts")
US = pa.timestamp("us")


class Followed:
    """A query as the loop evaluates it."""

    missing = frozenset()

    def __init__(self, query, schema, **options):
        self.evaluator = query._checked_evaluator(EvaluationOptions(output="events", **options))
        self.schema = query.output_schema(schema, "events")

    def rows(self, name, batch):
        return batch

    def ordered(self, sink):
        return contextlib.nullcontext(sink)


def follower(folder, out="found", query=QUERY, options=None, facts=None, state=None, ends=None, **given):
    """Return the follower of FOLDER/in with results in FOLDER/OUT, or from and to `ends`."""
    arrivals, target = ends or (
        FolderWatcher(str(folder / "in"), 0),
        live_target(folder / out, state=None if state is None else folder / state),
    )
    return Follower(
        arrivals,
        target,
        lambda schema: Followed(query, schema, **(options or {})),
        facts or {},
        **given,
    )


def followed(folder, out="found", **given):
    """Read all that is there, and return the steps."""
    steps = []
    with follower(folder, out, **given).opened() as live:
        while (step := live.step()) is not None:
            steps.append(step)
    return steps


def random_events(seed, n):
    rng = random.Random(seed)
    times = sorted(rng.sample(range(100 * n), n))
    return pa.table(
        {
            "type": [rng.choice("ABC") for _ in range(n)],
            "ts": pa.array([3_000 * time for time in times], US),
            "k": [rng.randrange(4) for _ in range(n)],
        }
    )


def add_file(folder, name, table, write=None):
    """Let a file appear whole."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{name}.part"
    if name.endswith(".jsonl"):
        part.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))
    elif name.endswith(".arrow"):
        with pa.ipc.new_file(part, table.schema) as file:
            file.write(table)
    else:
        pq.write_table(table, part)
    os.replace(part, folder / name)


def add_files(folder, table, n_files, ending="parquet", first=0):
    size = -(-len(table) // n_files)
    for i in range(n_files):
        add_file(folder, f"{first + i:04}.{ending}", table.slice(i * size, size))


def found_in(out):
    """Return the rows of a target as texts."""
    if out.suffix == ".jsonl":
        return [json.dumps(json.loads(line)) for line in out.read_text().splitlines()] if out.exists() else []
    tables = [pq.read_table(path) for path in sorted(out.glob("part-*.parquet"))]
    return [json.dumps(row, default=str) for table in tables for row in table.to_pylist()]


def expected_rows(table, query=QUERY, **options):
    return [json.dumps(row, default=str) for row in query.evaluate(table, output="events", **options).to_pylist()]
