"""Random queries over random stored files, in real jobs of Spark, give the rows of one process.

CER_GPU_FILE_JOBS sets the number of cases; of more than 1,000, jobs by all exact distributions run, by files and as
rows.  A failing case prints its seed.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter, defaultdict
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from cases import sorted_rows
from sizes import seeds
from stored_files import in_spark_order, random_events, random_files, random_order, random_query

from cer_gpu.errors import OptionError
from spark_glue import plain_errors
from spark_glue.distribution import DISTRIBUTIONS
from spark_glue.files.stored_events import DirectReadError
from spark_glue.match import plan_match
from spark_glue.work import work_of

pytest.importorskip("pyspark")

CASES = int(os.environ.get("CER_GPU_FILE_JOBS", "10"))
GROUP = 10
ROWS_EVERY = 5
"""One case in so many is evaluated as rows of Spark too, which takes a shuffle and some seconds."""

MAX_FOUND = 20_000
"""Most complex events of a case: a driver of a test has little memory."""

VALUES = {
    pa.bool_(): [True, False],
    pa.int8(): [-1, 2],
    pa.int16(): [-300, 4],
    pa.int32(): [70_000],
    pa.int64(): [1 << 40, -5],
    pa.float32(): [0.5, float("nan")],
    pa.float64(): [-0.0, 1e300],
    pa.string(): ["", "a text of more than twelve bytes", "ß"],
    pa.binary(): [b"", b"\xff\x00"],
    pa.date32(): [dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    pa.timestamp("us"): [dt.datetime(1890, 1, 1), dt.datetime(2024, 3, 31, 2, 30)],
    pa.timestamp("us", "UTC"): [dt.datetime(2024, 3, 31, 1, tzinfo=dt.UTC)],
    pa.decimal128(20, 3): [Decimal("-7.125"), Decimal("12345678901234567.001")],
    pa.list_(pa.string()): [[], ["x", None]],
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int32()))]): [{"a": 1, "b": [1, None]}, {"a": None, "b": None}],
}


def widened(rng: random.Random, table: pa.Table, n_columns: int) -> pa.Table:
    """Return a table with more columns, of all types that Spark has, some of them NULL everywhere."""
    kinds = list(VALUES)
    for i in range(n_columns - table.num_columns):
        kind = kinds[i % len(kinds)]
        known = [None] if rng.random() < 0.1 else [*VALUES[kind], None]
        table = table.append_column(f"more {i}", pa.array(rng.choices(known, k=len(table)), kind))
    return table


def comparable(table: pa.Table) -> list[object]:
    """Return the rows in an order of their own; numbers of complex events only tell which rows belong together."""
    if "match" not in table.column_names:
        return sorted_rows(table)
    of_match = defaultdict(list)
    for row in table.to_pylist():
        of_match[row.pop("match")].append(repr(row))
    return sorted(map(repr, of_match.values()))


def verify(seed: int, folder: str, *, rows: bool, thorough: bool = False) -> Counter[str]:
    """Compare the jobs of one case with one process; return how often each way was taken.

    With `thorough` jobs by all exact distributions run, else one by files and, with `rows`, one by rows.
    """
    rng = random.Random(seed)
    query, output = random_query(rng)
    events = random_events(rng, rng.choice([0, 1, 2]) if rng.random() < 0.2 else rng.randint(50, 300))
    if rng.random() < 0.3:
        events = widened(rng, events, 50)
    if sum(query.evaluate(events, output="count")["count"].to_pylist()) > MAX_FOUND:
        return Counter(["too many complex events"])
    events = events.append_column("id", pa.array(rng.sample(range(len(events)), len(events)), pa.int64()))
    order = random_order(rng, work_of(query, output))
    scan, lying = random_files(
        rng, events, order, folder, [names[0] for names in query.partition_keys if len(names) == 1]
    )
    events = folder if scan.folders else list(scan.paths)
    lying = lying.select([*(name for name in lying.column_names if name not in scan.folders), *scan.folders])
    # Spark gives a column whose folders are all for NULL a type that no query can read
    told = all(lying[name].null_count < len(lying) for name in scan.folders)
    rows = rows and told and all(path.endswith("parquet") for path in scan.paths)
    # by files positions are places in the files, so that ties keep them; as rows they count the rows in their order
    numbered = lying.append_column("$row", pa.array(np.arange(len(lying), dtype=np.int64)))
    ways = [("files", order, numbered), *([("rows", [*order, "id"], lying)] if rows else [])]
    seen: Counter[str] = Counter()
    for source, columns, stream in ways:
        expected = query.evaluate(in_spark_order(stream, columns), output=output)
        for distribution in rng.sample(DISTRIBUTIONS, len(DISTRIBUTIONS)):
            options = {
                "distribution": distribution,
                "tasks": rng.choice([1, 2, 3, 5]),
                "output": output,
                "source": source,
            }
            try:
                with plain_errors():
                    found = plan_match(events, query, order_by=columns, **options)
                    result = found.df.toArrow()
            except (OptionError, DirectReadError):
                continue
            assert comparable(result.cast(expected.schema)) == comparable(expected), (seed, options)
            seen[f"{source}, {found.distribution}"] += 1
            seen["complex events"] += len(expected)
            if not thorough:
                break
    return seen


@pytest.mark.parametrize("group", range(-(-CASES // GROUP)))
@pytest.mark.usefixtures("spark")
def test_jobs_over_stored_files_give_the_rows_of_one_process(group, tmp_path):
    seen: Counter[str] = Counter()
    for seed in seeds(CASES)[group * GROUP : (group + 1) * GROUP]:
        folder = tmp_path / str(seed)
        folder.mkdir()
        thorough = CASES > 1000
        seen += verify(seed, str(folder), rows=thorough or seed % ROWS_EVERY == 0, thorough=thorough)
    print(dict(seen))
    assert seen["complex events"] > 0
