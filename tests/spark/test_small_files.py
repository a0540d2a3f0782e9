"""Many small files, and a key with most of the events: the same matches, in as many tasks as there are."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.errors import CerError
from spark_glue import match, run

N_FILES, N_ROWS = 400, 50
RANGED = "SELECT * FROM S WHERE A ; B ; C WITHIN 10 SECONDS"
KEYED = "SELECT * FROM S WHERE A ; B ; C PARTITION BY [k]"


def events(n: int, seed: int = 0) -> pa.Table:
    """Events a second apart, half of them of the key 0."""
    rng = np.random.default_rng(seed)
    keys = np.where(rng.random(n) < 0.5, 0, rng.integers(1, 40, n))
    return pa.table(
        {
            "type": rng.choice(list("ABCDEFGH"), n),
            "ts": pa.array(np.arange(n) * 1_000_000, pa.timestamp("us", "UTC")),
            "k": keys.astype(np.int32),
        }
    )


@pytest.fixture(scope="module")
def small_files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    table = events(N_FILES * N_ROWS)
    for i in range(N_FILES):
        pq.write_table(table.slice(i * N_ROWS, N_ROWS), folder / f"part-{i:05}.parquet")
    return folder


@pytest.fixture
def footers_by_tasks(monkeypatch):
    from spark_glue.files import file_job

    monkeypatch.setattr(file_job, "MAX_FOOTERS_HERE", 10)


def ends(table: pa.Table) -> list[tuple[int, ...]]:
    return sorted(tuple(positions) for positions in table["positions"].to_pylist())


def times(table: pa.Table) -> list[int]:
    return sorted(table["end_time"].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist())


def test_tasks_read_the_footers_of_many_files(spark, small_files, footers_by_tasks, tmp_path):
    query = cer_gpu.compile(RANGED, time_column="ts")
    expected = query.evaluate(events(N_FILES * N_ROWS), output="positions")
    assert len(expected) > 100
    for given in (str(small_files), spark.read.parquet(str(small_files))):
        summary = run(given, query, str(tmp_path / "out"), order_by="ts", output="positions", tasks=5, overwrite=True)
        assert (summary.source, summary.distribution, summary.n_parts) == ("files", "range", 5)
        assert len(summary.stages) >= 2, "the footers are read by a job"
        assert summary.n_rows == N_FILES * N_ROWS
        assert ends(pq.read_table(tmp_path / "out")) == ends(expected)


def test_a_damaged_file_among_many_is_named(spark, small_files, footers_by_tasks, tmp_path):
    for path in sorted(small_files.iterdir())[:30]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "part-00017.parquet").write_bytes(b"PAR1 and no more")
    query = cer_gpu.compile(RANGED, time_column="ts")
    with pytest.raises(CerError, match=r"part-00017\.parquet"):
        match(str(tmp_path), query, order_by="ts", source="files")


def test_small_files_that_overlap_are_merged(spark, small_files, tmp_path):
    """Each row group begins before 20 others end."""
    table = events(N_FILES * N_ROWS)
    numbers = np.arange(len(table))
    files = (numbers // (20 * N_ROWS)) * 20 + numbers % 20
    for i in range(N_FILES):
        pq.write_table(table.take(pa.array(np.flatnonzero(files == i))), tmp_path / f"part-{i:05}.parquet")
    query = cer_gpu.compile(RANGED, time_column="ts")
    found = match(str(tmp_path), query, order_by="ts", output="positions", tasks=3, source="files").toArrow()
    expected = query.evaluate(table, output="positions")
    assert len(found) == len(expected)
    assert times(found) == times(expected)


def test_folders_of_keys(spark, footers_by_tasks, tmp_path):
    rows = events(4000)
    keys = np.random.default_rng(3).integers(0, 500, len(rows)).astype(np.int32)
    for key in range(500):
        (tmp_path / f"k={key}").mkdir()
        own = rows.filter(pa.array(keys == key)).drop_columns("k")
        pq.write_table(own, tmp_path / f"k={key}" / "part.parquet")
    query = cer_gpu.compile(KEYED, time_column="ts")
    expected = query.evaluate(rows.set_column(2, "k", pa.array(keys)), output="ends")
    assert len(expected) > 20
    for given in (str(tmp_path), spark.read.parquet(str(tmp_path))):
        summary = run(given, query, str(tmp_path) + "-out", order_by="ts", output="ends", tasks=3, overwrite=True)
        assert (summary.source, summary.distribution, summary.n_parts) == ("files", "key", 3)
        assert summary.skew < 1.2
        found = pq.read_table(str(tmp_path) + "-out")
        assert times(found) == times(expected)


@pytest.mark.parametrize(
    ("window", "at_once", "largest"),
    # half of the events are 4 of 8 parts; ranges of the last window would read all before them
    [("30 SECONDS", 8, 1.6), ("30 SECONDS", 2, 4.6), ("5 HOURS", 8, 4.6)],
)
def test_a_key_with_half_of_all_events_is_cut_by_time_where_it_pays(
    spark, tmp_path, monkeypatch, window, at_once, largest
):
    monkeypatch.setattr("spark_glue.heavy_keys.SAMPLED", 4)
    monkeypatch.setattr("spark_glue.heavy_keys.PASS_SECONDS", 0.01)
    monkeypatch.setattr("spark_glue.heavy_keys.ROW_SECONDS", 2e-6)
    monkeypatch.setattr("spark_glue.heavy_keys.CUT_ROW_SECONDS", 0.0)
    monkeypatch.setattr("spark_glue.row_distribution.most_tasks_at_once", lambda spark, n: min(n, at_once))
    rows = events(20_000)
    path = str(tmp_path / "events.parquet")
    pq.write_table(rows, path, row_group_size=2000)
    query = cer_gpu.compile(f"{KEYED} WITHIN {window}".replace("A ; B ; C", "A : B : C"), time_column="ts")
    options = {"order_by": "ts", "distribution": "key", "tasks": 8, "source": "rows", "output": "ends"}
    summary = run(spark.read.parquet(path), query, str(tmp_path / "out"), **options)
    assert largest - 1.2 < summary.skew < largest
    expected = query.evaluate(rows, output="ends")
    assert len(expected) > 10
    assert times(pq.read_table(tmp_path / "out")) == times(expected)
