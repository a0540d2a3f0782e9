"""Jobs over what is new, from and to tables and files: all runs together find what one run finds; what is refused."""

import io
import json
import os
import resource
import shutil
from contextlib import redirect_stderr

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from follow.jobs import END, PLACES, Job
from follow.live import QUERY, follower
from follow.test_following import KilledHere, kill_at
from pyiceberg.types import StringType
from written_tables import use_catalogue

from cer_gpu.errors import CheckpointError
from cer_gpu.follow import following
from cer_gpu.follow.following import PASSING
from cer_gpu.follow.log import locked
from cer_gpu.follow.tables import TableArrivals, TableTarget
from cer_gpu.io.tables import table_sinks
from cer_gpu.io.tables.table_sinks import committed_step
from spark_glue.cli import main

N_RUNS = int(os.environ.get("CER_GPU_JOB_RUNS", "12"))
"""Number of small runs, of each kind of source and target; `make test-soak` makes a thousand."""


@pytest.fixture(params=PLACES)
def job(request, tmp_path, monkeypatch):
    catalogue = use_catalogue(monkeypatch, tmp_path) if request.param == "iceberg" else None
    return Job(tmp_path, request.param, catalogue, n_events=8 * N_RUNS + 100)


@pytest.fixture
def delta_job(tmp_path):
    return Job(tmp_path, "delta")


@pytest.mark.long("runs a job many times over tables")
def test_many_small_runs_find_what_one_run_finds(job, monkeypatch):
    n_runs = N_RUNS if job.kind != "iceberg" else max(N_RUNS // 5, 12)  # each commit writes all snapshots anew
    monkeypatch.setattr(following, "LONGEST_LOG", max(n_runs // 5, 4))
    noun = {"files": "file", "delta": "version", "iceberg": "snapshot"}[job.kind]
    for run in range(n_runs):
        n_commits = 1 + (run % 3 == 1)  # the first run reads all of a table as one
        for _ in range(n_commits):
            job.add_some(8)
        code, out, said = job.run("--json")
        assert (code, said) == (0, "")
        facts = json.loads(out)
        assert (facts[f"n_{noun}s"], facts["n_events_of_all_runs"]) == (n_commits, job.n_events)
    assert job.run()[2] == f"0 {noun}s, 0 rows, 0 matches -> {job.out}\n"
    job.add(END)
    code, _, said = job.run()
    assert code == 0
    assert f"1 {noun}, 2 rows, " in said
    assert len(job.expected) > 2 * n_runs
    assert job.found == job.expected
    logs = list((job.folder / "state").glob("log*"))
    assert len(logs) > 4
    assert len((job.folder / "state" / "log.jsonl").read_text().splitlines()) <= max(n_runs // 5, 4) + 2
    for line in (job.folder / "state" / "log.jsonl").read_text().splitlines()[1:2]:
        assert len(json.loads(line)["read"]) == 1 or job.kind == "files"  # of a table, the newest version is enough


def table_follower(job, **given):
    ends = TableArrivals(job.input, "ts"), TableTarget(job.out, job.folder / "state")
    return follower(job.folder, ends=ends, **given)


def steps_of(live):
    with live.opened():
        while live.step() is not None:
            pass


APPEND = table_sinks.append_once


def append_and_die(*given):
    assert APPEND(*given)
    raise KilledHere


@pytest.mark.parametrize("job", ["delta", "iceberg"], indirect=True)
def test_a_kill_at_each_part_of_a_step_appends_each_row_once(job, monkeypatch):
    for part in [*PASSING, "appended"]:
        job.add_some()
        with monkeypatch.context() as patch:
            if part == "appended":
                patch.setattr(table_sinks, "append_once", append_and_die)
            with pytest.raises(KilledHere):
                steps_of(table_follower(job, passed=kill_at(part, 0), options={"lateness": "1s"}))
    job.add(END)
    steps_of(table_follower(job, options={"lateness": "1s"}))
    found = sorted(row["positions"] for row in job.found_rows)
    assert found == sorted(QUERY.evaluate(job.input)["positions"].to_pylist())
    assert not list((job.folder / "state").glob("rows-*"))
    assert len(list((job.folder / "state").glob("state-*"))) == 1


def test_compactions_are_passed_over_and_their_versions_forgotten(delta_job):
    job, path = delta_job, delta_job.folder / "events"
    for _ in range(2):
        for _ in range(3):
            job.add_some()
        assert job.run()[0] == 0
        DeltaTable(path).optimize.compact()
    assert "1 version, 0 rows, 0 matches" in job.run()[2]
    DeltaTable(path).create_checkpoint()
    for log in sorted((path / "_delta_log").glob("*.json"))[:-1]:
        log.unlink()  # as the clean-up of an old log does
    job.add(END)
    assert job.run()[0] == 0
    assert job.times(job.found_rows) == job.times(job.expected_rows)  # a compaction moves positions


def test_a_lost_or_older_state_and_another_table_are_refused(job):
    state = job.folder / "state"
    for _ in range(2):
        job.add_some(90, 90)
        code, _, said = job.run()
        assert (code, " 0 matches" in said) == (0, False)
        if not (job.folder / "older").exists():
            shutil.copytree(state, job.folder / "older")
    if job.kind == "files":
        return
    state.rename(job.folder / "newer")
    before = job.found
    code, _, said = job.run()
    assert code == 1
    assert "has the rows of 2 steps of a state in" in said
    for kept, told in (("older", "up to step 1, and found those up to step 2"), ("newer", None)):
        shutil.copytree(job.folder / kept, state, dirs_exist_ok=True)
        code, _, said = job.run()
        assert (code, told is None or told in said) == (told is not None, True)
        shutil.rmtree(state)
    assert job.found == before
    shutil.copytree(job.folder / "newer", state)
    moved = TableTarget(job.out, state)
    moved.resume([{"application": f"cer-gpu:{state.resolve()}"}, {"step": 2, "target": job.out}])
    with pytest.raises(CheckpointError, match="up to step 2, and found none"):
        TableTarget(job.out + "2", state).resume([{"application": "x"}, {"step": 2, "target": job.out}])


@pytest.mark.parametrize(
    ("lateness", "said"), [("1s", "hint: a larger lateness"), (None, "hint: --lateness TIME puts")]
)
def test_an_event_out_of_order_names_its_version_and_the_option(lateness, said, tmp_path):
    job = Job(tmp_path, "delta")
    args = [arg for arg in job.args if arg not in ("--lateness", "1s")]
    args += [] if lateness is None else ["--lateness", lateness]
    codes = []
    for time in (9, 2, 8):
        job.add(pa.table({"type": ["A"], "ts": pa.array([time * 10**6], END["ts"].type), "k": [0]}))
        with redirect_stderr(io.StringIO()) as errors:
            codes.append(main(args))
    assert codes == [0, 1, 1]
    assert "events@1 (its first event is 1): the 'ts' of event 1 " in errors.getvalue()
    assert said in errors.getvalue()


def test_a_log_without_its_first_line_loses_nothing(delta_job):
    delta_job.add_some()
    assert delta_job.run()[0] == 0
    log = delta_job.folder / "state" / "log.jsonl"
    log.write_bytes(log.read_bytes()[:50])
    delta_job.add_some()
    code, _, said = delta_job.run()
    assert code == 1
    assert "has the rows of 1 steps of a state in" in said


def test_a_full_disk_is_told_with_its_file_and_loses_nothing(delta_job):
    delta_job.add_some(400, 400)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    try:
        code, _, said = delta_job.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (code, said) == (1, f"error: {delta_job.folder}/state: cannot be written: File too large\n")
    assert delta_job.run()[0] == 0
    delta_job.add(END)
    assert delta_job.run()[0] == 0
    assert delta_job.found == delta_job.expected


def test_two_runs_at_once_are_refused(delta_job):
    delta_job.add_some()
    assert delta_job.run()[0] == 0
    with locked(delta_job.folder / "state"):
        code, _, said = delta_job.run()
    assert code == 1
    assert "another process writes these results" in said
    assert delta_job.run()[0] == 0


def test_rows_that_were_deleted_and_another_table_in_its_place_are_told(job):
    job.add_some()
    assert job.run()[0] == 0
    job.add_some()
    if job.kind == "delta":
        DeltaTable(job.folder / "events").delete("k = 1")
    elif job.kind == "iceberg":
        job.catalogue.load_table("ns.events").delete("k = 1")
    else:
        return
    code, _, said = job.run()
    assert code == 1
    assert "deleted or rewrote rows that were read before\nhint: " in said
    if job.kind == "delta":
        shutil.rmtree(job.folder / "events")
    else:
        job.catalogue.drop_table("ns.events")
        job.n_commits = 0
    job.add_some()
    code, _, said = job.run()
    assert code == 1
    assert "the state is of --input '" in said


def test_columns_that_come_and_go(tmp_path, monkeypatch):
    job = Job(tmp_path, "iceberg", use_catalogue(monkeypatch, tmp_path))
    job.add_some()
    assert job.run()[0] == 0
    table = job.catalogue.load_table("ns.events")
    with table.update_schema() as changed:
        changed.add_column("more", StringType())
    job.add(job.events.slice(job.n_events, 9).append_column("more", pa.array(["x"] * 9)))
    job.add(END.append_column("more", pa.array(["x"] * 2)))
    assert job.run()[0] == 0
    assert job.found == job.expected
    with table.update_schema() as changed:
        changed.rename_column("k", "key")
    job.add(END.append_column("more", pa.array(["x"] * 2)).rename_columns({"k": "key"}))
    code, _, said = job.run()
    assert code == 1
    assert "the table has no column 'k' any more\nhint: it was renamed or dropped" in said


def test_results_that_do_not_fit_the_table_leave_nothing_behind(delta_job):
    job = delta_job
    write_deltalake(str(job.folder / "found"), pa.table({"query": ["x"], "start": ["text"]}))
    job.add_some()
    code, _, said = job.run()
    assert code == 1
    assert "the table has no column 'end'" in said
    shutil.rmtree(job.folder / "found")
    job.add(END)
    assert job.run()[0] == 0
    assert job.found == job.expected


@pytest.mark.long("runs a job many times over tables")
def test_steps_are_known_when_their_snapshots_have_expired(tmp_path, monkeypatch):
    job = Job(tmp_path, "iceberg", use_catalogue(monkeypatch, tmp_path))
    job.add_some()
    assert job.run()[0] == 0
    table = job.catalogue.load_table("ns.found")
    own = table.current_snapshot().snapshot_id
    table.append(table.scan(limit=1).to_arrow())  # of somebody else
    table.maintenance.expire_snapshots().by_id(own).commit()
    assert committed_step(job.out, f"cer-gpu:{tmp_path.resolve()}/state") == 1
    job.add_some()
    assert job.run()[0] == 0
    assert committed_step(job.out, f"cer-gpu:{tmp_path.resolve()}/state") == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--input", "delta:events@3"], "expected a table without a version"),
        (["--settle", "1"], "--settle applies to a folder of files"),
        (["--state", "s3://box/state"], "expected a local or mounted folder"),
        (["--state", "events/state"], "is in the folder events, from which events are read"),
        (["-o", "delta:events"], "is in the folder events, from which events are read"),
        (["-o", "delta:found@1"], "expected a table to append to"),
        (["-o", "delta:found", "--format", "csv"], "is a table, which has its own format"),
        (["-o", "found.parquet"], "one parquet file cannot grow"),
        (["--queries", "none"], "none"),
        (["SELECT * WHERE A"], ", got both"),
    ],
)
def test_arguments_that_do_not_go_together(delta_job, monkeypatch, given, said):
    delta_job.add_some()
    monkeypatch.chdir(delta_job.folder)
    usual = {"--queries": "rules", "--input": "delta:events", "--state": "state", "-o": "found", "--time-column": "ts"}
    own = dict(zip(given[::2], given[1::2], strict=True)) if len(given) % 2 == 0 else {}
    args = [each for pair in {**usual, **own}.items() for each in pair] + ([] if own else given)
    with redirect_stderr(io.StringIO()) as err:
        assert main(["job", *args]) in (1, 2)
    assert said in err.getvalue()
