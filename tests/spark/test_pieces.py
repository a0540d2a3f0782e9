"""Pieces of stored files, evaluated by themselves, give the rows of one process together, in any layout of files."""

from __future__ import annotations

import dataclasses
import os
import pickle
import random
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cases import sorted_rows
from sizes import scaled, seeds
from stored_files import (
    counted,
    evaluated,
    found_of,
    in_spark_order,
    random_events,
    random_files,
    random_order,
    random_work,
)

import cer_gpu
from cer_gpu.errors import CerError, OptionError
from spark_glue.files.file_evaluation import evaluate_piece
from spark_glue.files.file_plan import Limits
from spark_glue.files.footers import find_footers
from spark_glue.files.pieces import plan
from spark_glue.files.scan import scan_of_paths
from spark_glue.files.stored_events import DirectReadError
from spark_glue.work import work_of

SEEDS = seeds(int(os.environ.get("CER_GPU_FILE_CASES", scaled(20, most=20))))
MAX_FOUND = 4_000
FILTERS = [pc.field("x") > 2, pc.field("name") == "x", pc.field("k").is_valid() & (pc.field("x") < 8)]


def comparable(table: pa.Table) -> list[object]:
    """Return the rows in an order of their own; numbers of complex events only tell which rows belong together."""
    if "match" not in table.column_names:
        return sorted_rows(table)
    of_match = defaultdict(list)
    for row in table.to_pylist():
        of_match[row.get("query"), row.pop("match")].append(repr(row))
    return sorted(map(repr, of_match.values()))


def case(seed: int, folder: str, *, many: bool):
    """Return what is found by one process, and by the pieces of each distribution; errors stand for themselves."""
    rng = random.Random(seed)
    work = random_work(rng, many=many)
    events = random_events(rng, rng.choice([rng.choice([0, 1, 5]), *[rng.randint(50, 400)] * 9]))
    order = random_order(rng, work)
    if rng.random() < 0.12 and len(events):
        t = events["t"].to_numpy().copy()
        t[rng.randrange(len(t))] -= rng.randrange(4)
        events = events.set_column(events.column_names.index("t"), "t", pa.array(t))
    keys = [names[0] for names in work.partition_keys if len(names) == 1]
    scan, lying = random_files(rng, events, order, folder, keys)
    filters = tuple(rng.sample(FILTERS, rng.choice([0, 0, 0, 1, 2])))
    if scan.folders:
        filters = tuple(each for each in filters if rng.random() < 0.5)
    read = pa.schema([field for field in scan.schema if filters and field.name in ("x", "name", "k")])
    scan = dataclasses.replace(scan, filters=filters, filter_columns=read)
    lying = lying.append_column("$row", pa.array(np.arange(len(lying), dtype=np.int64)))
    for each in filters:
        lying = lying.filter(each)
    try:
        given = in_spark_order(lying, order)
        if counted(work, given) > MAX_FOUND:
            return
        expected = evaluated(work, given)
    except CerError as error:
        expected = error
    found = found_of(scan, work, order)
    limits = Limits(
        buffered_rows=rng.choice([3, 30, 1 << 22]),
        batch=rng.choice([rng.choice([1, 7]), 64, 64, 1 << 20]),
        gathered=rng.choice([1, 50, 200, 1 << 16, 1 << 16]),
        memory=rng.choice([1, 1 << 28]),
        times_read=rng.choice([8, 100]),
    )
    n_tasks = rng.choice([1, 2, 3, 5, 7])
    for distribution in ("range", "key", "broadcast", "auto"):
        try:
            planned = plan(found, work, order, distribution, n_tasks, limits=limits)
        except (OptionError, DirectReadError) as error:
            yield distribution, None, error, expected
            continue
        packed = pickle.loads(pickle.dumps(planned))
        try:
            batches = [batch for number in range(packed.n_pieces) for batch in evaluate_piece(packed, number)]
        except CerError as error:
            yield distribution, planned, error, expected
            continue
        yield distribution, planned, pa.Table.from_batches(batches, planned.schema), expected


def verify(seed: int, folder: str, *, many: bool = False) -> Counter[str]:
    """Compare the pieces of one random case with one process; return how often each way was taken."""
    seen: Counter[str] = Counter()
    for distribution, planned, result, expected in case(seed, folder, many=many):
        if planned is None:
            seen["refused: " + str(result)[:60]] += 1
            continue
        if isinstance(expected, CerError):
            assert isinstance(result, CerError), (seed, distribution)
            seen["errors"] += 1
            continue
        assert not isinstance(result, CerError), (seed, distribution, str(result))
        assert comparable(result.cast(expected.schema)) == comparable(expected), (seed, distribution)
        shares = dict.fromkeys(str(piece.part.sharded_by) for piece in planned.pieces)
        seen[f"{planned.distribution} {' and '.join(shares)} {min(planned.n_pieces, 2)}"] += 1
        split_ranges = [split_range for piece in planned.pieces for split_range in piece.split_ranges]
        seen["rows"] += len(expected)
        for name in ("presorted", "flows", "on_disk"):
            seen[name] += any(getattr(split_range, name) for split_range in split_ranges)
        seen["at a value"] += any(split_range.low is not None for split_range in split_ranges)
        seen["window of row groups"] += any(split_range.n_before for split_range in split_ranges)
        seen["small streams together"] += any(
            len({unit.file for unit in split_range.units}) > 1 and planned.way.endswith("of some keys")
            for split_range in split_ranges
        )
        seen["read again"] += planned.n_read > planned.n_rows
    return seen


@pytest.mark.parametrize("many", [False, True], ids=["query", "set"])
@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_give_the_rows_of_one_process(seed, many, tmp_path):
    verify(seed, str(tmp_path), many=many)


@pytest.mark.parametrize(("order", "n_first"), [(["t"], 40), (["t", "x"], 40), (["t", "x"], 60)])
def test_rows_that_come_out_of_order_late_change_results_of_earlier_ones(tmp_path, order, n_first):
    rng = np.random.default_rng(3)
    runs = [np.sort(rng.integers(low, 40, n)) for low, n in [(0, n_first), (0, 60 - n_first), (39, 30)]]
    t = np.concatenate(runs)
    t[56:64] = 39  # a further column decides between rows of two row groups
    x = np.concatenate([np.arange(60), np.arange(30)])
    events = pa.table({"type": [str(c) for c in rng.choice(["A", "B"], 90)], "t": t, "x": x})
    with pq.ParquetWriter(tmp_path / "e.parquet", events.schema) as writer:
        writer.write_table(events.slice(0, 60))
        writer.write_table(events.slice(60))
    query = cer_gpu.compile("SELECT * FROM S WHERE A : B WITHIN 20 [t]")
    found = find_footers(scan_of_paths(tmp_path / "e.parquet"), "type", "t")
    planned = plan(found, work_of(query, "positions"), order, "auto", 1, limits=Limits(batch=7, gathered=1))
    assert "as they lie" in planned.in_order
    result = pa.Table.from_batches(evaluate_piece(planned, 0), planned.schema)
    by = np.lexsort([events[name].to_numpy() for name in reversed(order)])
    expected = query.evaluate(events.take(pa.array(by)), output="positions")
    pairs = zip(expected["start"].to_pylist(), expected["end"].to_pylist(), strict=True)
    assert expected.num_rows > 10
    given = zip(result["start"].to_pylist(), result["end"].to_pylist(), strict=True)
    assert sorted(given) == sorted((by[start], by[end]) for start, end in pairs)
