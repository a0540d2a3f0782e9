"""Ranges of Parquet files: threads read their row groups in parallel, and find the table of one thread."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import sorted_rows
from sizes import scaled, seeds

import cer_gpu
from cer_gpu.io import formats
from cer_gpu.io.source import Parts, Source
from cer_gpu.io.sources import open_events
from cer_gpu.parallel import range_threads as module
from cer_gpu.parallel.range_threads import RangeWindow, Sizes, ranges_of_parts

SEEDS = seeds(scaled(25, most=600))
PATTERNS = ["A ; B", "A ; B+ ; C", "A : B+", "(A OR B) ; C", "A AS a ; C FILTER a[x > 3]"]
WINDOWS = ["6 EVENTS", "25 EVENTS", "9 SECONDS", "0 SECONDS", "7 [x]", "7 [f]", "12 [f]"]


def random_events(rng: random.Random, n: int) -> pa.Table:
    times = sorted(rng.choices(range(n), k=n))
    floats = [-np.inf] * rng.choice([0, 0, 5]) + [t / 2 - 5 for t in times] + [np.inf] * rng.choice([0, 0, 5])
    return pa.table(
        {
            "type": rng.choices("ABCD", k=n),
            "k": rng.choices([1, 2, 3, None], k=n),
            "ts": pa.array([1000 * t for t in times], pa.timestamp("ms")),
            "x": pa.array(times, pa.int32()),
            "f": pa.array(floats[:n], pa.float64()),
        }
    )


def write(events: pa.Table, folder: Path, rng: random.Random) -> Path:
    """Write events to one to three files of row groups of several sizes, some of them empty."""
    n_files = rng.randint(1, 3)
    cuts = sorted(rng.choices(range(len(events) + 1), k=n_files - 1))
    for i, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(events)], strict=True)):
        with pq.ParquetWriter(folder / f"{i}.parquet", events.schema) as writer:
            while begin < end:
                n = rng.choice([0, 1, 3, 20, 50])
                writer.write_table(events.slice(begin, min(n, end - begin)), row_group_size=max(n, 1))
                begin += n
    return folder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(module, "RANGE_ROWS_IN_MEMORY", 30)
    monkeypatch.setattr(module, "SAMPLE_ROWS", 5)
    monkeypatch.setattr(formats, "FILE_ROWS", 7)
    return monkeypatch


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_over_files_find_the_table_of_one_thread(small: pytest.MonkeyPatch, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    small.setattr(module, "RANGE_ROWS_IN_MEMORY", rng.randint(1, 40))
    small.setattr(module, "SAMPLE_ROWS", rng.choice([1, 9, 60]))
    small.setattr(module, "WINDOWS_A_RANGE", rng.choice([0, 1, 3]))
    small.setattr(module, "LONGEST_WINDOW", rng.choice([4, 30, 1000]))
    small.setattr(module, "RESULT_BYTES", rng.choice([1, 1000, 1 << 20]))
    small.setattr(module, "MIN_RANGE_ROWS", rng.choice([1, 20]))
    small.setattr(module, "MAX_WAITING", rng.choice([1, 2, 64]))
    small.setattr(formats, "FILE_ROWS", rng.choice([1, 8, 1000]))
    strategy, keys = ["ALL", "STRICT"][seed % 2], rng.choice(["", "PARTITION BY [k]"])
    text = f"SELECT {strategy} * FROM S WHERE {rng.choice(PATTERNS)} {keys} WITHIN {rng.choice(WINDOWS)}"
    query = cer_gpu.compile(text, time_column="ts")
    events = random_events(rng, rng.randint(0, 250))
    output = ["positions", "bindings", "events", "count", "ends"][seed % 5]
    expected = query.evaluate(events, output=output, threads=1)
    source = query._open_source(write(events, tmp_path, rng))
    evaluator = query.evaluator(output=output)
    found = pa.Table.from_batches(query._match_source(source, evaluator, rng.randint(2, 4)), expected.schema)
    assert sorted_rows(found) == sorted_rows(expected)
    assert found["end"].to_pylist() == expected["end"].to_pylist()
    assert evaluator.n_events == evaluator.n_pushed == len(events)
    n_found = sum(expected["count"].to_pylist()) if output == "count" else len(expected)
    assert evaluator.n_matches == n_found


@pytest.mark.parametrize(
    ("window", "follows"), [(RangeWindow(None, np.uint64(4)), 5), (RangeWindow("x", np.uint64(8)), 5)]
)
def test_a_range_reads_on_until_the_next_one_reports(
    small: pytest.MonkeyPatch, tmp_path: Path, window: RangeWindow, follows: int
) -> None:
    small.setattr(module, "WINDOWS_A_RANGE", 1)
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"x": range(0, 200, 2)}), path, row_group_size=20)
    parts = open_events(path).parts
    assert parts is not None
    sizes = Sizes(2, 100, in_memory=True)
    coming = ranges_of_parts(parts, ["x"], window, sizes)
    cut = [next(coming)]
    sizes.adapt(5, 0)
    cut += coming
    read = [[x for batch in each.batches for x in batch["x"].to_pylist()] for each in cut]
    assert [(each.begin, each.first) for each in cut] == [
        (0, 0), (0, 5), (40, 40 + follows), (80, 80 + follows),
    ]  # fmt: skip
    ends = [5, 40 + follows, 80 + follows, 100]
    assert read == [list(range(2 * each.begin, 2 * end, 2)) for each, end in zip(cut, ends, strict=True)]


def test_each_row_group_is_read_once_except_in_windows(small: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The exceptions are the sample, and the windows where ranges begin."""
    path = tmp_path / "events.parquet"
    events = pa.table({"type": ["A", "B", "C", "C", "C"] * 200})
    pq.write_table(events, path, row_group_size=20)
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 2 EVENTS")
    source = query._open_source(path)
    assert source.parts is not None
    n_read = []

    def read(columns, begin, end):
        for batch in source.parts.read(columns, begin, end):
            n_read.append(batch.num_rows)
            yield batch

    watched = Source(source.schema, source.batches, source.n_rows, parts=Parts(source.parts.begins, read))
    found = pa.Table.from_batches(query._match_source(watched, query.evaluator(), 3))
    assert found.equals(query.evaluate(events))
    n_ranges = 1000 // 40 + 1
    assert 1000 < sum(n_read) <= 1000 + 5 + 3 * n_ranges


@pytest.mark.parametrize("row", [3, 39, 40, 41, 119, 120, 299])
@pytest.mark.parametrize("value", [-1, None])
def test_a_wrong_time_is_reported_with_its_file_as_on_one_thread(
    small: pytest.MonkeyPatch, tmp_path: Path, row: int, value: int | None
) -> None:
    times: list[int | None] = list(range(300))
    times[row] = value
    events = pa.table({"type": ["A", "B"] * 150, "ts": pa.array(times, pa.int64())})
    for i in range(3):
        pq.write_table(events.slice(100 * i, 100), tmp_path / f"{i}.parquet", row_group_size=20)
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 9 [ts]", time_column="ts")
    seen = []
    for n_threads in (1, 3):
        reader = query._match_source(query._open_source(tmp_path), query.evaluator(), n_threads)
        with pytest.raises(cer_gpu.TimeOrderError) as error:
            list(reader)
        seen.append(str(error.value))
    assert seen[0] == seen[1]
    assert f"{row // 100}.parquet" in seen[0]
    assert f"event {row} " in seen[0]


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_a_damaged_row_group_raises_after_the_results_before_it(
    small: pytest.MonkeyPatch, tmp_path: Path, n_threads: int
) -> None:
    path = tmp_path / "events.parquet"
    events = pa.table({"type": ["A", "B"] * 5000, "x": np.random.default_rng(0).integers(0, 1 << 60, 10_000)})
    pq.write_table(events, path, row_group_size=1000, compression="zstd", use_dictionary=["type"])
    where = pq.ParquetFile(path).metadata.row_group(5).column(1).data_page_offset
    with path.open("r+b") as file:
        file.seek(where + 30)
        file.write(b"\0" * 4000)
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[x >= 0] WITHIN 2 EVENTS")
    found: list[int] = []
    with pytest.raises(cer_gpu.EventsError, match=r"events\.parquet: cannot be read"):
        found.extend(b.num_rows for b in query._match_source(query._open_source(path), query.evaluator(), n_threads))
    assert sum(found) > 1000  # the results of the row groups before it


def test_threads_over_files_end_with_their_reader(small: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small.setattr(module, "MAX_WAITING", 1)
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"type": ["A"] * 5000}), path, row_group_size=100)
    before = threading.active_count()
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; A ; A WITHIN 20 EVENTS")
    reader = query._match_source(query._open_source(path), query.evaluator(), 3)
    assert next(reader).num_rows
    reader.close()
    for _ in range(100):
        if threading.active_count() == before:
            return
        threading.Event().wait(0.05)
    raise AssertionError(threading.enumerate())


def test_too_few_row_groups_are_not_read_by_the_evaluating_threads(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    events = pa.table({"type": ["A", "B", "C"] * 100})
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 2 EVENTS")
    for size, in_parts in ((20, True), (150, True), (200, False), (300, False)):
        pq.write_table(events, path, row_group_size=size)
        source = query._open_source(path)
        coming, _ = module.cut(source, ["type"], RangeWindow(None, np.uint64(2)), 2)
        assert (coming.__name__ == "ranges_of_parts") == in_parts
        assert query.evaluate(path, threads=2).equals(query.evaluate(events))


@pytest.mark.parametrize(
    ("columns", "n_rows"),
    [
        ({"type": ["A"]}, 1 << 20),
        ({"type": ["A"], "x": [1.0]}, 1 << 20),
        ({"type": ["A"], **{f"x{i}": [1] for i in range(9)}}, (1 << 24) // 77),
        ({"type": ["A"], "text": ["x" * 1000]}, (1 << 24) // 1010),
        ({"type": ["A"], "bytes": [b"x"]}, 500),
        ({"type": ["A"], "list": [[1]]}, 500),
    ],
)
def test_long_rows_are_decoded_fewer_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: dict, n_rows: int
) -> None:
    monkeypatch.setattr(formats, "BATCH_ROWS", 500)
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({name: values * 1000 for name, values in columns.items()}), path, use_dictionary=False)
    file = pq.ParquetFile(path)
    types = {name: file.schema_arrow.field(name).type for name in columns}
    found = formats._rows_at_once(file, types)
    assert found == pytest.approx(n_rows, rel=0.02)  # pages have headers
