"""``cer-gpu run --follow``: files that appear in a folder, step by step, until a signal comes."""

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import EVENTS, finish, start

import cer_gpu
from cer_gpu.rules import load

QUERY = "SELECT * FROM S WHERE A ; B WITHIN 2 SECONDS"
FOLLOW = ["--time-column", "ts", "--follow", "in", "--settle", "0"]
ONCE = [*FOLLOW, "--once"]


def add(name, events=EVENTS, folder="in"):
    Path(folder).mkdir(exist_ok=True)
    pq.write_table(events, f"{name}.new")
    os.replace(f"{name}.new", Path(folder, f"{name}.parquet"))


def part_files(out="out"):
    return sorted(path.name for path in Path(out).glob("part-*"))


def rows(out="out"):
    return pa.concat_tables(pq.read_table(Path(out, name)) for name in part_files(out)).to_pylist()


def test_each_run_reads_the_files_that_have_come(cli):
    add("0", EVENTS.slice(0, 4))
    code, out, err = cli("run", QUERY, *ONCE, "-o", "out")
    assert (code, out) == (0, "")
    assert err == "0.parquet: 4 rows, 1 match -> part-000000001.parquet\n1 file, 4 rows, 1 match -> out\n"
    code, _, err = cli("run", QUERY, *ONCE, "-o", "out")
    assert (code, err) == (0, "0 files, 0 rows, 0 matches -> out\n")
    add("1", EVENTS.slice(4))
    code, out, err = cli("run", QUERY, *ONCE, "-o", "out", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert (facts["n_files"], facts["n_events"], facts["n_events_of_all_runs"], facts["out"]) == (1, 3, 7, "out")
    assert facts["n_rows"] == len(rows()) - 1 > 0
    assert rows() == cer_gpu.compile(QUERY, time_column="ts").evaluate(EVENTS).to_pylist()


@pytest.mark.parametrize("format", ["jsonl", "csv", "arrow"])
def test_part_files_have_a_format(cli, format):
    add("0")
    assert cli("run", QUERY, *ONCE, "-o", "out", "--format", format)[0] == 0
    assert part_files() == [f"part-000000001.{format}"]
    code, _, err = cli("run", QUERY, *ONCE, "-o", "out")
    assert code == 1
    assert f"the state is of --format '{format}', and not of 'parquet'" in err


def test_rules_of_a_folder_raise_alerts_in_lines(cli):
    Path("rules").mkdir()
    Path("rules", "pair.ceql").write_text(QUERY)
    Path("rules", "any.eql").write_text("any where no.such.field == null and price > 4")
    options = ["--queries", "rules", *ONCE, "--type-column", "type", "--output", "alerts", "-o", "found.jsonl"]
    for i in range(2):
        add(str(i), EVENTS.slice(4 * i, 4))
        code, _, err = cli("run", *options)
        assert code == 0
        assert " alerts (" in err
        assert " -> found.jsonl\n" in err
        assert ("note: the query names fields" in err) or "1 of 2 rules names fields" in err
    found = [json.loads(line) for line in Path("found.jsonl").read_text().splitlines()]
    expected = load("rules", time_column="ts", type_column="type").alerts(EVENTS).to_pylist()
    told = [(row["rule"], row["positions"], row["events"]) for row in expected]
    assert sorted((row["rule"], row["positions"], row["events"]) for row in found) == sorted(told)
    add("2", EVENTS.slice(6).append_column("no", pa.array([{"such": {"field": 1}}])))
    code, _, err = cli("run", *options)
    assert code == 1
    assert (
        "error: in/2.parquet: has fields that the queries read and the first file did not have, so that matches would "
        "be lost: 'no.such.field'\nhint: --schema-of FOLDER"
    ) in err


def start_following(*args):
    options = ["--poll", "0.01", "-o", "out"]
    return start("run", QUERY, *FOLLOW, *options, *args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_a_whole_state(signum):
    Path("in").mkdir()
    process = start_following()
    for i in range(2):  # the first comes after the start
        add(str(i), EVENTS.slice(4 * i, 4))
        assert f"{i}.parquet: " in process.stderr.readline()
    process.send_signal(signum)
    code, out, err = finish(process)
    assert (code, out) == (0, "")
    assert err == "2 files, 7 rows, 3 matches -> out\n"
    assert rows() == cer_gpu.compile(QUERY, time_column="ts").evaluate(EVENTS).to_pylist()


def test_files_that_are_still_written_are_left_for_the_next_run(cli):
    options = ["--time-column", "ts", "--follow", "in", "--once", "-o", "out", "--settle"]
    add("0", EVENTS.slice(0, 4))
    os.utime("in/0.parquet", (1_000, 1_000))
    add("1", EVENTS.slice(4))
    with open("in/1.parquet", "ab") as file, Writing(file):
        code, _, err = cli("run", QUERY, *options, "0.5")
    assert code == 0
    assert "1 file, 4 rows" in err
    assert "note: 1 file left for the next run, changed less than 0.5 s ago or after one that was: 1.parquet\n" in err
    add("1", EVENTS.slice(4))
    # it may have come from a machine whose clock is ahead
    os.utime("in/1.parquet", (time.time() + 1_000, time.time() + 1_000))
    assert "1 file, 3 rows" in cli("run", QUERY, *options, "0.1")[2]


class Writing(threading.Thread):
    """Thread that goes on writing to a file during a block."""

    def __init__(self, file):
        super().__init__()
        self.file, self.ended = file, threading.Event()

    def run(self):
        while not self.ended.wait(0.05):
            self.file.write(b"x")
            self.file.flush()

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def test_files_that_cannot_be_read_stop_the_run_or_are_left_out(cli):
    add("0", EVENTS.slice(0, 4))
    add("2", EVENTS.slice(4))
    Path("in", "1.parquet").write_bytes(b"PAR1 and no more")
    code, _, err = cli("run", QUERY, *ONCE, "-o", "out")
    assert code == 1
    assert err.startswith("error: in/1.parquet: cannot be read: ")
    assert err.endswith("\nhint: repair or remove it and restart, or use --skip-unreadable\n")
    assert part_files() == []
    code, _, err = cli("run", QUERY, *ONCE, "-o", "out", "--skip-unreadable")
    assert code == 0
    assert "note: skipped: in/1.parquet: cannot be read: " in err
    assert rows() == cer_gpu.compile(QUERY, time_column="ts").evaluate(EVENTS).to_pylist()
    assert cli("run", QUERY, *ONCE, "-o", "out")[2] == "0 files, 0 rows, 0 matches -> out\n"


def test_late_events_need_a_lateness(cli):
    add("1", EVENTS.slice(4))
    cli("run", QUERY, *ONCE, "-o", "out")
    add("2", EVENTS.slice(0, 4))
    code, _, err = cli("run", QUERY, *ONCE, "-o", "out")
    assert code == 1
    assert "in/2.parquet (its first event is 3)" in err
    assert "\nhint: --lateness TIME puts late events in order" in err
    assert "--sort" not in err
    code, _, err = cli("run", QUERY, *ONCE, "-o", "late", "--lateness", "1s", "--late", "drop")
    assert code == 0
    assert err.endswith(", 4 late events dropped -> late\n")


def test_another_query_is_refused(cli):
    add("0")
    cli("run", QUERY, *ONCE, "-o", "out")
    code, _, err = cli("run", QUERY.replace("2", "3"), *ONCE, "-o", "out")
    assert code == 1
    assert "the state is of another query (its text differs)\nhint: run it with the query as it was: " in err
    assert err.endswith("; or begin again with results and state in another place (-o)\n")


def test_a_changed_or_new_rule_ends_the_run_with_a_hint_for_the_command_line(cli):
    Path("rules").mkdir()
    Path("rules", "pair.ceql").write_text(QUERY)
    Path("rules", "other.ceql").write_text("SELECT * FROM S WHERE A")
    add("0")
    command = ["run", "--queries", "rules", *ONCE, "-o", "out"]
    assert cli(*command)[0] == 0
    Path("rules", "pair.ceql").write_text(QUERY.replace("2", "3"))
    code, _, err = cli(*command)
    assert code == 1
    assert "the state is of another query 'pair' (its text differs)\nhint: run it with the query as it was" in err
    Path("rules", "pair.ceql").write_text(QUERY)
    Path("rules", "more.ceql").write_text("SELECT * FROM S WHERE B")
    code, _, err = cli(*command)
    assert code == 1
    assert "the state is of other queries: " in err
    assert (
        "hint: run it with the rules as they were; or begin again with results and state in another place (-o)" in err
    )


def test_the_schema_of_a_file_counts(cli):
    Path("in").mkdir()
    Path("in", "0.jsonl").write_text('{"type": "A", "ts": "2026-01-01T00:00:00"}\n')
    pq.write_table(EVENTS, "all.parquet")
    query = "SELECT * FROM S WHERE A FILTER A[price IS NULL]"
    assert "price" in cli("run", query, *ONCE, "-o", "out")[2]  # is not there
    code, _, err = cli("run", query, *ONCE, "-o", "out", "--schema-of", "all.parquet")
    assert (code, err.splitlines()[-1]) == (0, "1 file, 1 row, 1 match -> out")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([QUERY, *ONCE], "--follow needs an output"),
        ([QUERY, *ONCE, "-o", "-"], "--follow needs an output"),
        (
            [QUERY, *ONCE, "-o", "out", "events.parquet"],
            "expected --follow or EVENTS, got both; EVENTS: events.parquet",
        ),
        (
            [QUERY, *ONCE, "-o", "out", "--sort"],
            "--sort cannot be used with --follow; --lateness puts late events in order",
        ),
        ([QUERY, *ONCE, "-o", "out", "--limit", "3"], "--limit cannot be used with --follow"),
        ([QUERY, *ONCE, "-o", "out", "--threads", "3"], "--threads cannot be used with --follow"),
        ([QUERY, "events.parquet", "--once"], "--once is an option of --follow DIR"),
        ([QUERY, "events.parquet", "--poll", "3"], "--poll is an option of --follow DIR"),
        ([QUERY, *ONCE, "-o", "in/out"], "is in the folder"),
        ([QUERY, *ONCE, "-o", "out.parquet"], "cannot grow as events come"),
        ([QUERY, "--time-column", "ts", "--follow", "nowhere", "-o", "out"], "nowhere: no such file"),
        (["SELECT * FROM A, B WHERE A>C ; B>D", *ONCE, "-o", "out"], "reads the streams A, B"),
    ],
)
def test_what_cannot_be_followed_is_told(cli, args, said):
    add("0")
    code, _, err = cli("run", *args)
    assert code in (1, 2)
    assert said in err
    assert not Path("out").exists()
