"""Tasks that read their pieces by themselves: numbers in, results in Spark's types out, errors by name."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cases import sorted_rows

import cer_gpu
from cer_gpu.errors import EventsError, OptionError, QueryTypeError, TimeOrderError
from spark_glue.files.file_evaluation import evaluate_piece
from spark_glue.files.file_job import FileTask
from spark_glue.files.file_plan import FilePlan, Limits
from spark_glue.files.footers import find_footers
from spark_glue.files.pieces import plan
from spark_glue.files.stored_events import DirectReadError, Scan
from spark_glue.work import work_of

N = 600
QUERY = "SELECT * FROM S WHERE A ; B ; C WITHIN 4 SECONDS"


class Reports:
    """Accumulator of reports."""

    def __init__(self):
        self.done = {}

    def add(self, value):
        self.done.update(value)


@pytest.fixture
def events():
    """Events in the order of ts, two of them each second."""
    rng = np.random.default_rng(7)
    times = [dt.datetime(2024, 1, 1) + dt.timedelta(seconds=i // 2) for i in range(N)]
    return pa.table(
        {
            "type": pa.array(rng.choice(list("ABCD"), N)),
            "ts": pa.array(times, pa.timestamp("us")),
            "n": pa.array(range(N)),
            "k": pa.array(rng.integers(0, 4, N), pa.int32()),
        }
    )


def stored(folder, *tables, size=50) -> Scan:
    paths = []
    for i, table in enumerate(tables):
        paths.append(os.path.join(folder, f"part-{i}.parquet"))
        pq.write_table(table, paths[-1], row_group_size=size)
    return Scan(tuple(paths), tables[0].schema)


def planned(
    scan, text=QUERY, n_tasks=3, *, order=("ts",), distribution="auto", output="positions", **options
) -> FilePlan:
    query = cer_gpu.compile(text, time_column="ts")
    return plan(find_footers(scan, "type", order[0]), work_of(query, output), order, distribution, n_tasks, **options)


def ran(made: FilePlan, report=None) -> pa.Table:
    numbers = [pa.record_batch({"id": pa.array([i], pa.int64())}) for i in range(made.n_pieces)]
    task = pickle.loads(pickle.dumps(FileTask(made)))
    return pa.Table.from_batches(FileTask(task.plan, report)(iter(numbers)), made.schema)


def test_ranges_read_whole_row_groups_and_the_windows_before_them(tmp_path, events):
    made = planned(stored(tmp_path, events.slice(0, 300), events.slice(300)))
    assert (made.distribution, made.n_pieces) == ("range", 3)
    assert [piece.n_rows for piece in made.pieces] == [200, 250, 250]
    reports = Reports()
    expected = cer_gpu.compile(QUERY, time_column="ts").evaluate(events)
    assert sorted_rows(ran(made, reports)) == sorted_rows(expected)
    assert sum(done.n_matches for done in reports.done.values()) == len(expected)
    # of the row group before a range, only the rows in the window are evaluated: 4 seconds, of two rows each
    assert [reports.done[i].n_rows for i in range(3)] == [200, 208, 208]


def test_a_window_of_events_is_counted_by_the_rows_of_row_groups(tmp_path, events):
    text = "SELECT * FROM S WHERE A ; B ; C WITHIN 60 EVENTS"
    made = planned(stored(tmp_path, events), text, output="count")
    assert [piece.n_rows for piece in made.pieces] == [200, 300, 300]
    expected = cer_gpu.compile(text, time_column="ts").evaluate(events, output="count")
    assert sorted_rows(ran(made)) == sorted_rows(expected)


def test_partition_by_is_dealt_by_range(tmp_path, events):
    text = "SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 9 SECONDS"
    made = planned(stored(tmp_path, events), text)
    assert made.distribution == "range"
    expected = cer_gpu.compile(text, time_column="ts").evaluate(events)
    assert sorted_rows(ran(made)) == sorted_rows(expected)


def test_row_groups_without_needed_types_are_left_out(tmp_path, events):
    types = ["D"] * N
    types[::100], types[7::100] = ["A"] * 6, ["B"] * 6
    types[550:] = ["Z"] * 50
    events = events.set_column(0, "type", pa.array(types))
    text = "SELECT * FROM S WHERE A ; B WITHIN 30 EVENTS"
    made, reports = planned(stored(tmp_path, events), text, n_tasks=2), Reports()
    expected = cer_gpu.compile(text, time_column="ts").evaluate(events)
    assert len(expected) == 6
    assert sorted_rows(ran(made, reports)) == sorted_rows(expected)
    assert sum(done.n_rows for done in reports.done.values()) < N / 2 + 100


def test_rows_out_of_order_within_a_row_group_are_found_while_results_are_given(tmp_path, events):
    """The results before them are not given twice."""
    rows = np.arange(N)
    rows[[410, 420]] = rows[[420, 410]]
    lying = events.take(pa.array(rows))
    query = cer_gpu.compile(QUERY, time_column="ts")
    made = planned(stored(tmp_path, lying), n_tasks=1, limits=Limits(gathered=1))
    found = ran(made)
    expected = query.evaluate(lying, sort=True)
    assert len(expected) > 50
    assert sorted_rows(found) == sorted_rows(expected)


def test_results_have_the_declared_types(tmp_path, events):
    """Text comes without a dictionary, and times in microseconds, whatever the files have."""
    files = events.set_column(1, "ts", events["ts"].cast(pa.timestamp("ms")))
    scan = dataclasses.replace(stored(tmp_path, files), schema=events.schema)
    made = planned(scan, "SELECT * FROM S WHERE A ; B PARTITION BY [type] WITHIN 4 SECONDS", output="events")
    made = planned(scan, output="events")
    found = ran(made)
    assert found.schema == made.schema
    assert found.schema.field("start_time").type == pa.timestamp("us")
    expected = cer_gpu.compile(QUERY, time_column="ts").evaluate(events, output="events")
    assert sorted_rows(found) == sorted_rows(expected)


def test_numbers_of_complex_events_are_unique(tmp_path, events):
    made = planned(stored(tmp_path, events), output="rows")
    found = ran(made)
    expected = cer_gpu.compile(QUERY, time_column="ts").evaluate(events, output="rows")
    assert made.n_pieces == 3
    assert pc.count_distinct(found["match"]).as_py() == pc.count_distinct(expected["match"]).as_py()
    assert sorted_rows(found.drop_columns("match")) == sorted_rows(expected.drop_columns("match"))


def columns_of(events, *names):
    """Return the schema of some columns."""
    return pa.schema([events.schema.field(name) for name in names])


def test_filters_and_folders(tmp_path, events):
    paths = []
    for value in range(4):
        paths.append(tmp_path / f"k={value}" / "part.parquet")
        paths[-1].parent.mkdir()
        own = events.filter(pc.equal(events["k"], value)).drop_columns("k")
        pq.write_table(own, paths[-1], row_group_size=20)
    filters = (pc.field("n") > 99, pc.field("k") < 3)
    scan = Scan(
        tuple(map(str, paths)),
        events.schema,
        folders=("k",),
        filters=filters,
        filter_columns=columns_of(events, "n", "k"),
    )
    text = "SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 9 EVENTS"
    made = planned(scan, text, n_tasks=2, output="measures" if "AS m" in text else "events")
    assert (made.distribution, made.way, made.n_pieces) == ("key", "each task reads folders of some keys", 2)
    kept = events.filter((pc.field("n") > 99) & (pc.field("k") < 3))
    expected = cer_gpu.compile(text, time_column="ts").evaluate(kept, output="events")
    columns = ["k", "start_time", "end_time", "events"]
    assert sorted_rows(ran(made).select(columns)) == sorted_rows(expected.select(columns))


@pytest.mark.parametrize("change", ["gone", "longer", "written again"])
def test_a_file_that_changed_is_refused_by_name(tmp_path, events, change):
    scan = stored(tmp_path, events.slice(0, 300), events.slice(300))
    made = planned(scan)
    path = scan.paths[1]
    if change == "gone":
        os.remove(path)
    elif change == "longer":
        pq.write_table(events, path)
    else:
        os.utime(path, ns=(1, 1))
    with pytest.raises(EventsError, match=r"part-1\.parquet: changed since the job was planned"):
        ran(made)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, events):
    scan = stored(tmp_path, events)
    made = planned(scan, n_tasks=1, limits=Limits(batch=10, gathered=1))
    found = evaluate_piece(made, 0)
    next(found)
    os.utime(scan.paths[0], ns=(1, 1))
    with pytest.raises(EventsError, match=r"part-0\.parquet: changed since the job was planned"):
        list(found)


def test_null_in_the_order_is_counted_before_anything_runs(tmp_path, events):
    times = events["ts"].to_pylist()
    times[5] = times[500] = None
    events = events.set_column(1, "ts", pa.array(times, pa.timestamp("us")))
    with pytest.raises(QueryTypeError, match="ordered by 'ts', which is NULL in 2 of 600 rows"):
        planned(stored(tmp_path, events))


def test_null_in_the_order_counts_only_for_rows_that_pass(tmp_path, events):
    times = events["ts"].to_pylist()
    times[5] = times[500] = None
    given = events.set_column(1, "ts", pa.array(times, pa.timestamp("us")))
    scan = stored(tmp_path, given)
    some = dataclasses.replace(scan, filters=(pc.field("n") > 400,), filter_columns=columns_of(events, "n"))
    with pytest.raises(QueryTypeError, match=r"part-0\.parquet, row 500: the stream is ordered by 'ts', which is NULL"):
        ran(planned(some))
    none = dataclasses.replace(some, filters=((pc.field("n") > 5) & (pc.field("n") != 500),))
    expected = cer_gpu.compile(QUERY, time_column="ts").evaluate(given.filter(none.filters[0]))
    found = ran(planned(none))
    assert sorted_rows(found.select(["start_time", "end_time"])) == sorted_rows(
        expected.select(["start_time", "end_time"])
    )


def test_statistics_that_are_wrong_are_seen(tmp_path, events):
    found = find_footers(stored(tmp_path, events), "type", "ts")
    groups = list(found.groups)
    groups[4] = dataclasses.replace(groups[4], high=groups[4].high - 1_000_000)
    query = cer_gpu.compile(QUERY, time_column="ts")
    made = plan(dataclasses.replace(found, groups=tuple(groups)), work_of(query, "positions"), ("ts",), "auto", 3)
    with pytest.raises(EventsError, match=r"part-0\.parquet: the statistics of 'ts' in row group 4 are wrong"):
        ran(made)


def test_times_that_fall_between_two_ranges_are_seen(tmp_path, events):
    """The order is another column than that of times, and the fall is where one range ends and the next begins."""
    n = pa.array(range(N))
    for place in (200, 400, 333):
        times = events["ts"].to_pylist()
        times[place:] = [value - dt.timedelta(days=1) for value in times[place:]]
        fallen = events.set_column(1, "ts", pa.array(times, pa.timestamp("us"))).set_column(2, "n", n)
        made = planned(stored(tmp_path, fallen), "SELECT * FROM S WHERE A ; B WITHIN 0 [n]", order=("n",))
        assert (made.distribution, made.n_pieces) == ("range", 3)
        with pytest.raises(TimeOrderError, match=r"part-0\.parquet, row .* is less than the one before"):
            ran(made)


@pytest.mark.parametrize(
    ("text", "distribution", "options", "kind", "reason"),
    [
        (QUERY, "rnage", {}, OptionError, "distribution must be one of"),
        (QUERY, "key", {}, OptionError, "no PARTITION BY"),
        ("SELECT * FROM S WHERE A ; B", "range", {}, OptionError, "no WITHIN"),
        (QUERY, "range", {"order": ("n",)}, DirectReadError, "measured by 'ts', and the stream is ordered by 'n'"),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k]", "key", {"n_tasks": 65}, DirectReadError, "each of 65"),
    ],
)
def test_refusals(tmp_path, events, text, distribution, options, kind, reason):
    with pytest.raises(kind, match=reason):
        planned(stored(tmp_path, events), text, distribution=distribution, **options)


@pytest.mark.parametrize(
    ("text", "n_tasks", "distribution", "share"),
    [
        (QUERY, 1, "range", None),
        (QUERY, 4, "range", None),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k]", 4, "key", "keys"),
        ("SELECT * FROM S WHERE A ; B PARTITION BY [k]", 65, "broadcast", "ends"),
        ("SELECT * FROM S WHERE A ; B", 4, "broadcast", "ends"),
    ],
)
def test_what_auto_chooses(tmp_path, events, text, n_tasks, distribution, share):
    made = planned(stored(tmp_path, events), text, n_tasks)
    assert (made.distribution, made.pieces[0].part.sharded_by) == (distribution, share)
    assert made.n_pieces == n_tasks


def test_rows_in_no_order_are_left_to_sparks_sort_if_there_are_many(tmp_path, events):
    shuffled = events.take(pa.array(np.random.default_rng(1).permutation(N)))
    scan = stored(tmp_path, shuffled)
    with pytest.raises(DirectReadError, match="12 tasks would read 7,200 rows of 600"):
        planned(scan, n_tasks=12)
    made = planned(scan, n_tasks=3)
    assert made.in_order == "row groups overlap, and tasks merge them; 1,800 rows are read of 600"
    expected = cer_gpu.compile(QUERY, time_column="ts").evaluate(shuffled, sort=True)
    assert sorted_rows(ran(made).select(["start_time", "end_time"])) == sorted_rows(
        expected.select(["start_time", "end_time"])
    )
    # ties are of equal times in both, in the order of the rows
    assert sorted_rows(ran(made)) == sorted_rows(expected)


def test_small_folders_of_keys_are_evaluated_together(tmp_path, events):
    """Of 300 folders a task sorts many at once, and the rows of others are not unpacked for it."""
    k = pa.array(np.arange(N) // 2, pa.int32())
    events = events.set_column(events.schema.get_field_index("k"), "k", k)
    paths = [tmp_path / f"k={value}" / "part.parquet" for value in range(N // 2)]
    for value, path in enumerate(paths):
        path.parent.mkdir()
        pq.write_table(events.slice(2 * value, 2).drop_columns("k"), path)
    scan = Scan(tuple(sorted(map(str, paths))), events.schema, folders=("k",))
    text = "SELECT * FROM S WHERE A ; B PARTITION BY [k]"
    made = planned(scan, text, n_tasks=3)
    assert (made.distribution, made.n_pieces) == ("key", 3)
    assert [len(piece.split_ranges) for piece in made.pieces] == [4, 4, 4]
    assert [piece.n_rows for piece in made.pieces] == [200, 200, 200]
    packed = pickle.loads(pickle.dumps(made))
    assert [len(packed.alone(i)[0].footers.files) for i in range(3)] == [100, 100, 100]
    stored_order = np.concatenate([[2 * v, 2 * v + 1] for v in sorted(range(N // 2), key=lambda v: str(paths[v]))])
    expected = cer_gpu.compile(text, time_column="ts").evaluate(events.take(pa.array(stored_order)), sort=True)
    assert len(expected) > 5
    assert sorted_rows(ran(made)) == sorted_rows(expected)


def test_buckets_of_the_key_are_streams_of_their_own(tmp_path, events):
    parts = [events.filter(pc.equal(pc.bit_wise_and(events["k"], 1), bit)) for bit in (0, 1)]
    scan = dataclasses.replace(stored(tmp_path, *parts), bucket_by=("k",))
    found = find_footers(dataclasses.replace(scan, bucket_by=()), "type", "ts")
    files = tuple(dataclasses.replace(file, bucket=i) for i, file in enumerate(found.files))
    found = dataclasses.replace(found, scan=scan, files=files)
    text = "SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 9 EVENTS"
    query = cer_gpu.compile(text, time_column="ts")
    made = plan(found, work_of(query, "positions"), ("ts",), "auto", 5)
    assert (made.distribution, made.way, made.n_pieces) == ("key", "each task reads buckets of some keys", 2)
    expected = query.evaluate(list(scan.paths), sort=True)
    assert sorted_rows(ran(made)) == sorted_rows(expected)
