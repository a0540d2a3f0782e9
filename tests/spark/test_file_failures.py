"""Files that vanish, change or are broken, and workers that die: the rows of one process, or an error that says why."""

import datetime as dt
import os
import shutil
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.errors import CerError, EventsError
from spark_glue.files.file_evaluation import evaluate_piece
from spark_glue.files.footers import find_footers
from spark_glue.files.pieces import plan
from spark_glue.files.scan import scan_of_paths
from spark_glue.work import work_of

N_ROWS = 900
QUERY = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b FILTER a[x > 6] WITHIN 20 SECONDS", time_column="ts")


def events(n_rows=N_ROWS, first=0):
    times = [dt.datetime(2024, 1, 1) + dt.timedelta(seconds=i) for i in range(first, first + n_rows)]
    return pa.table(
        {
            "type": ["ABC"[i * 7 % 3] for i in range(first, first + n_rows)],
            "ts": pa.array(times, pa.timestamp("us")),
            "x": pa.array([i * 11 % 13 for i in range(first, first + n_rows)], pa.int64()),
        }
    )


@pytest.fixture
def folder(tmp_path):
    """Three files in order."""
    folder = tmp_path / "events"
    folder.mkdir()
    for i in range(3):
        pq.write_table(events(300, 300 * i), folder / f"part-{i}.parquet", row_group_size=50, use_dictionary=False)
    return folder


def sorted_rows(table):
    return sorted(map(repr, table.to_pylist()))


def planned(paths, distribution="range", n_tasks=3, query=QUERY, output="positions"):
    scan = scan_of_paths([str(path) for path in (paths if isinstance(paths, list) else [paths])])
    return plan(find_footers(scan, query.type_column, "ts"), work_of(query, output), ["ts"], distribution, n_tasks)


def evaluated(plan):
    return pa.Table.from_batches(
        [b for number in range(plan.n_pieces) for b in evaluate_piece(plan, number)], plan.schema
    )


def test_files_as_they_were_give_the_rows_of_one_process(folder):
    expected = QUERY.evaluate(events())
    assert expected.num_rows > 100
    for distribution in ("range", "broadcast"):
        assert sorted_rows(evaluated(planned(folder, distribution)).cast(expected.schema)) == sorted_rows(expected)


# ---- files that change after the job was planned ----------------------------------------------------------------


def overwritten(file: Path) -> None:
    """Write a file again, with other values in as many bytes."""
    before = file.stat()
    other = events(300, 300).set_column(2, "x", [[(i * 11 + 5) % 13 for i in range(300)]])
    pq.write_table(other, file, row_group_size=50, use_dictionary=False)
    grown = file.read_bytes()
    file.write_bytes(grown[: before.st_size].ljust(before.st_size, b"\0"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1000))
    assert file.stat().st_size == before.st_size


CHANGES = {
    "vanished": (lambda file: file.unlink(), "it is gone"),
    "was renamed": (lambda file: file.rename(file.with_name("other.parquet")), "it is gone"),
    "was truncated": (lambda file: os.truncate(file, file.stat().st_size // 2), "bytes, and has"),
    "was emptied": (lambda file: os.truncate(file, 0), "bytes, and has 0"),
    "grew": (lambda file: file.write_bytes(file.read_bytes() + b"PAR1"), "bytes, and has"),
    "has as many other bytes": (overwritten, "written again"),
    "is another's copy": (lambda file: shutil.copy(file.with_name("part-0.parquet"), file), "changed since"),
    "is a folder by now": (lambda file: (file.unlink(), file.mkdir()), "changed since"),
}


@pytest.mark.parametrize("distribution", ["range", "broadcast"])
@pytest.mark.parametrize("how", CHANGES)
def test_a_file_that_changed_is_an_error_that_names_it(folder, distribution, how):
    plan = planned(folder, distribution)
    change, message = CHANGES[how]
    change(folder / "part-1.parquet")
    with pytest.raises(EventsError, match=rf"part-1\.parquet.*{message}"):
        evaluated(plan)


def test_a_file_that_changes_while_it_is_read_is_an_error(folder):
    plan = planned(folder, n_tasks=1)
    results = evaluate_piece(plan, 0)
    next(results)
    replaced = folder / "new"
    pq.write_table(events(300, 600), replaced)
    replaced.rename(folder / "part-2.parquet")
    with pytest.raises(EventsError, match=r"part-2\.parquet: changed since the job was planned"):
        list(results)


def test_a_new_file_does_not_change_a_planned_job(folder):
    plan = planned(folder)
    pq.write_table(events(50, 900), folder / "part-3.parquet")
    assert evaluated(plan).num_rows == QUERY.evaluate(events()).num_rows


# ---- files that are broken, or are not there --------------------------------------------------------------------


def with_bytes(file: Path, begin: int, data: bytes) -> None:
    whole = bytearray(file.read_bytes())
    whole[begin : begin + len(data)] = data
    file.write_bytes(bytes(whole))


BROKEN = {
    "has no footer": lambda file: os.truncate(file, file.stat().st_size - 20),
    "has a broken footer": lambda file: with_bytes(file, file.stat().st_size - 200, b"\xff" * 150),
    "is empty": lambda file: os.truncate(file, 0),
    "is text": lambda file: file.write_text("type,ts,x\n"),
    "has a broken page": lambda file: with_bytes(file, 4, b"\xff" * 64),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_an_error_that_names_it(folder, how):
    BROKEN[how](folder / "part-1.parquet")
    with pytest.raises(CerError, match=r"part-1\.parquet"):
        evaluated(planned(folder))


@pytest.mark.parametrize("names", [[], ["_SUCCESS", ".part-0.parquet.crc"]])
def test_a_folder_without_files_of_events_is_an_error(tmp_path, names):
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(EventsError, match=str(tmp_path)):
        planned(tmp_path)


def test_a_path_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(EventsError, match=r"nowhere\.parquet: no such file"):
        planned(tmp_path / "nowhere.parquet")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_must_not_be_read_is_an_error(folder):
    (folder / "part-1.parquet").chmod(0)
    with pytest.raises(EventsError, match=r"part-1\.parquet: .*[Pp]ermission denied"):
        planned(folder)


def changed(table, **columns):
    for name, values in columns.items():
        at = table.column_names.index(name)
        table = table.remove_column(at) if values is None else table.set_column(at, name, values)
    return table


OTHER_SCHEMAS = {
    "x": changed(events(300, 300), x=None),
    "ts": changed(events(300, 300), ts=events(300, 300)["ts"].cast(pa.string())),
    "type": changed(events(300, 300), type=events(300, 300)["x"]),
}


@pytest.mark.parametrize("column", OTHER_SCHEMAS)
def test_a_file_of_another_schema_is_an_error_that_names_the_column(folder, column):
    pq.write_table(OTHER_SCHEMAS[column], folder / "part-1.parquet")
    with pytest.raises(CerError, match=rf"(?s)part-1\.parquet.*'{column}'"):
        planned(folder)


def test_columns_that_the_query_does_not_read_may_differ(folder):
    other = events(300, 300).append_column("y", [list("ab" * 150)]).select(["y", "x", "ts", "type"])
    pq.write_table(other, folder / "part-1.parquet", row_group_size=50)
    expected = QUERY.evaluate(events())
    assert sorted_rows(evaluated(planned(folder)).cast(expected.schema)) == sorted_rows(expected)


def test_times_of_another_unit_in_one_file_are_the_same_times(folder):
    other = changed(events(300, 300), ts=events(300, 300)["ts"].cast(pa.timestamp("ms")))
    pq.write_table(other, folder / "part-1.parquet", row_group_size=50)
    expected = QUERY.evaluate(events())
    assert sorted_rows(evaluated(planned(folder)).cast(expected.schema)) == sorted_rows(expected)


# ---- in Spark ---------------------------------------------------------------------------------------------------


def job(spark, plan, report=None):
    from spark_glue.files.file_job import FileTask
    from spark_glue.schema import to_spark

    numbers = spark.range(0, plan.n_pieces, 1, plan.n_pieces)
    return numbers.mapInArrow(FileTask(plan, report), to_spark(plan.schema))


class DieOnce:
    """Kills its process when the first piece is done, after all of its rows were given."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def add(self, done: object) -> None:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_piece_whose_worker_is_killed_is_evaluated_again(spark, folder, tmp_path):
    expected = QUERY.evaluate(events())
    mark = tmp_path / "killed"
    found = job(spark, planned(folder), DieOnce(mark)).toArrow()
    assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)
    assert mark.exists()


def test_a_job_over_a_file_that_vanished_writes_nothing(spark, folder, tmp_path):
    from spark_glue import plain_errors

    df = job(spark, planned(folder))
    (folder / "part-2.parquet").unlink()
    gone = r"part-2\.parquet: changed since the job was planned: it is gone"
    with pytest.raises(EventsError, match=gone), plain_errors():
        df.write.parquet(str(tmp_path / "out"))
    assert not [path for path in (tmp_path / "out").rglob("*.parquet") if "_temporary" not in path.parts]
    assert not (tmp_path / "out" / "_SUCCESS").exists()
