"""Jobs whose Python workers are killed: the rows of one process if Spark tries again, else an error and no output."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_settings import BATCH_ROWS, setting

import cer_gpu
from cer_gpu.errors import CerError
from spark_glue import match, plain_errors, run
from tests.spark.killed_tasks import KilledInside

pytest.importorskip("pyspark")

pytestmark = pytest.mark.long("jobs of Spark whose workers start again")
if os.name != "posix":
    pytest.skip("needs SIGKILL", allow_module_level=True)

N_ROWS = 1500
QUERY = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 60 SECONDS", time_column="ts")
WAYS = [("key", "rows"), ("range", "rows"), ("range", "files")]
ENDLESS = 1000
"""Kills that no number of attempts of `local[2, 4]` outlives."""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    events = pa.table(
        {
            "type": ["ABC"[i * 7 % 3] for i in range(N_ROWS)],
            "k": pa.array([i * 5 % 11 for i in range(N_ROWS)], pa.int64()),
            "ts": pa.array([1_000_000 * i for i in range(N_ROWS)], pa.timestamp("us")),
        }
    )
    path = tmp_path_factory.mktemp("killed") / "events.parquet"
    pq.write_table(events, path, row_group_size=250)
    return str(path)


@pytest.fixture
def killed(spark, monkeypatch, tmp_path):
    """Return a function that lets the next so many tasks be killed in the middle, and one that counts the kills."""
    frames, marks = type(spark.range(1)), tmp_path / "kills"
    map_in_arrow = frames.mapInArrow
    marks.mkdir()

    def kill(n):
        monkeypatch.setattr(
            frames,
            "mapInArrow",
            lambda df, function, *args, **named: map_in_arrow(df, KilledInside(function, marks, n), *args, **named),
        )

    return kill, lambda: len(list(marks.iterdir()))


def rows_of(table):
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize(("distribution", "source"), WAYS)
def test_workers_that_are_killed_change_no_row(spark, path, killed, tmp_path, distribution, source):
    kill, n_killed = killed
    expected = QUERY.evaluate(path, output="events")
    assert expected.num_rows > 100
    kill(3)  # no task fails four times
    out = tmp_path / "found"
    with setting(spark, BATCH_ROWS, "50"):
        summary = run(
            spark.read.parquet(path),
            QUERY,
            str(out),
            order_by="ts",
            distribution=distribution,
            source=source,
            row_numbers=True,
            tasks=3,
            show_progress=False,
        )
    found = pq.read_table(out).cast(expected.schema)
    assert rows_of(found) == rows_of(expected)
    assert (summary.n_matches, n_killed()) == (expected.num_rows, 3)
    assert sorted(os.listdir(tmp_path)) == ["found", "kills"]
    assert not [name for name in os.listdir(out) if "unfinished" in name or "_temporary" in name]


@pytest.mark.parametrize(("distribution", "source"), WAYS[1:])
def test_workers_always_killed_are_an_error_without_output(spark, path, killed, tmp_path, distribution, source):
    kill, n_killed = killed
    kill(ENDLESS)
    df = spark.read.parquet(path)
    options = {"order_by": "ts", "distribution": distribution, "source": source, "tasks": 3}
    with setting(spark, BATCH_ROWS, "50"), pytest.raises(CerError) as caught:
        run(df, QUERY, str(tmp_path / "found"), show_progress=False, **options)
    told = str(caught.value)
    assert told.startswith("a worker was lost: "), told
    assert "hint: it may have run out of memory" in told
    assert "\tat " not in told
    assert n_killed() >= 4
    assert os.listdir(tmp_path) == ["kills"]


def test_a_result_that_spark_writes_is_not_marked_as_whole(spark, path, killed, tmp_path):
    """What `match` gives is written by Spark: without _SUCCESS, and without a file that readers see."""
    kill, n_killed = killed
    kill(ENDLESS)
    df = match(spark.read.parquet(path), QUERY, order_by="ts", distribution="range", source="files", tasks=3)
    with pytest.raises(CerError), plain_errors():
        df.write.parquet(str(tmp_path / "found"))
    assert n_killed() >= 4
    out = tmp_path / "found"
    assert not (out / "_SUCCESS").exists()
    assert not [each for each in out.rglob("*.parquet") if "_temporary" not in each.parts]
