"""The command line: exit codes, messages without tracebacks, and files that appear whole or not at all."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from command_line import EVENTS, ROOT, finish, said_to_a_terminal, start

import cer_gpu
from cer_gpu.predicates import placement

QUERY = "SELECT * FROM S WHERE A AS a ; B FILTER a[price > 10] WITHIN 3 SECONDS"
ENDLESS = "SELECT * FROM S WHERE A ; A ; A ; A ; A ; A"

FORMATS = ["parquet", "arrow", "csv", "jsonl"]


def names():
    return sorted(os.listdir())


def reread(name):
    """Read a file of complex events back, with the types of the API."""
    match name.rsplit(".", 1)[1]:
        case "parquet":
            return pq.read_table(name)
        case "arrow":
            return pa.ipc.open_file(name).read_all()
        case "csv":
            types = pa_csv.ConvertOptions(column_types={"positions": pa.string()}, strings_can_be_null=False)
            rows = pa_csv.read_csv(name, convert_options=types).to_pylist()
            rows = [{**row, "positions": [int(p) for p in row["positions"].split()]} for row in rows]
        case "jsonl":
            rows = [json.loads(line) for line in Path(name).read_text().splitlines()]
    times = {
        k: pa.array([r[k] for r in rows]).cast("timestamp[ms]") for k in ("start_time", "end_time") if k in rows[0]
    }
    plain = {k: [r[k] for r in rows] for k in ("start", "end", "positions")}
    schema = pa.schema([("start", pa.int64()), ("end", pa.int64()), ("positions", pa.list_(pa.int64()))])
    table = pa.table(plain, schema)
    for name, column in times.items():
        table = table.append_column(name, column)
    return table


# ---- run ----------------------------------------------------------------------------------------------------------


def test_the_preview_shows_rows_and_the_summary_counts(cli):
    code, out, err = cli("run", QUERY, "events.parquet", "--time-column", "ts")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["start", "end", "positions", "start_time", "end_time"]
    assert lines[2] == ["0", "1", "0", "1", "1970-01-01T00:00:00.000", "1970-01-01T00:00:01.000"]
    assert out.endswith("4 matches\n")
    assert re.fullmatch(r"7 rows, 4 matches, \d+\.\d\d s\n", err)


def test_a_run_without_results_says_so(cli):
    code, out, err = cli("run", "SELECT * FROM S WHERE C ; A", "events.parquet")
    assert (code, out) == (0, "no matches\n")
    assert err.startswith("7 rows, 0 matches, ")


def test_the_preview_is_short_and_shortens_positions(cli):
    pq.write_table(pa.table({"type": ["A"] * 30}), "long.parquet")
    code, out, _ = cli("run", "SELECT * FROM S WHERE A:+", "long.parquet")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 2 + 20 + 1
    assert lines[-1] == "the first 20 of 465 matches"
    code, out, _ = cli("run", "SELECT * FROM S WHERE " + " : ".join("A" * 10), "long.parquet", "--limit", 1)
    assert out.splitlines()[2].split(maxsplit=2) == ["0", "9", "0 1 2 3 ... 9 (10 events)"]


@pytest.mark.parametrize("query", [QUERY, "SELECT NONE FROM S WHERE A ; B WITHIN 9 SECONDS"])
@pytest.mark.parametrize("ending", FORMATS)
def test_files_hold_what_evaluate_returns(cli, ending, query):
    code, out, err = cli("run", query, "events.parquet", "--time-column", "ts", "-o", f"out.{ending}")
    assert (code, out) == (0, "")
    assert err.endswith(f" -> out.{ending}\n")
    assert names() == sorted(["events.parquet", f"out.{ending}"])
    expected = cer_gpu.compile(query, time_column="ts").evaluate(EVENTS)
    assert expected.num_rows >= 4
    assert reread(f"out.{ending}").equals(expected)


@pytest.mark.long("writes many batches in each format")
@pytest.mark.parametrize("ending", FORMATS)
def test_a_file_holds_the_rows_of_many_batches(cli, ending):
    """More rows than one write gathers; several input files are one stream."""
    pq.write_table(pa.table({"type": ["A"] * 300}), "part1.parquet")
    pq.write_table(pa.table({"type": ["A"] * 300}), "part2.parquet")
    query = "SELECT * FROM S WHERE A ; A"
    assert cli("run", query, "part1.parquet", "part2.parquet", "-o", f"out.{ending}")[0] == 0
    expected = cer_gpu.compile(query).evaluate(pa.table({"type": ["A"] * 600}))
    assert expected.num_rows == 179_700
    assert reread(f"out.{ending}").equals(expected)
    if ending == "parquet":
        assert pq.ParquetFile("out.parquet").num_row_groups <= 2


@pytest.mark.parametrize("ending", FORMATS)
def test_a_file_without_rows_can_be_read(cli, ending):
    assert cli("run", "SELECT * FROM S WHERE C ; A", "events.parquet", "-o", f"out.{ending}")[0] == 0
    if ending == "jsonl":
        assert Path("out.jsonl").read_text() == ""
    elif ending == "csv":
        assert Path("out.csv").read_text() == "start,end,positions\n"
    else:
        table = reread(f"out.{ending}")
        assert (table.num_rows, table.column_names) == (0, ["start", "end", "positions"])


@pytest.mark.parametrize(
    ("times", "first"),
    [
        (pa.array([1, 2], pa.timestamp("ns", "Europe/Paris")), "1970-01-01T00:00:00.000000001Z"),
        (pa.array([1, 2], pa.timestamp("s")), "1970-01-01T00:00:01"),
        (pa.array([1, 2], pa.date32()), "1970-01-02"),
        (pa.array([1, 2], pa.int32()), 1),
        (pa.array([1, 2], pa.duration("ms")), "PT0.001S"),
    ],
    ids=lambda v: str(v.type) if isinstance(v, pa.Array) else "",
)
def test_times_are_written_as_text(cli, times, first):
    pa.feather.write_feather(pa.table({"type": ["A", "B"], "t": times}), "times.arrow")  # Parquet has no seconds
    query = "SELECT * FROM S WHERE A ; B"
    for ending in FORMATS:
        assert cli("run", query, "times.arrow", "--time-column", "t", "-o", f"out.{ending}")[0] == 0
    assert json.loads(Path("out.jsonl").read_text())["start_time"] == first
    assert Path("out.csv").read_text().splitlines()[1].split(",")[3] == str(first)
    expected = cer_gpu.compile(query, time_column="t").evaluate("times.arrow")
    assert reread("out.arrow").equals(expected)


def test_limit_stops_early(cli):
    pq.write_table(pa.table({"type": ["A"] * 100_000}), "long.parquet")
    code, out, err = cli("run", ENDLESS, "long.parquet", "-o", "out.csv", "--limit", 100_003)
    assert (code, out) == (0, "")
    assert "100,003 matches" in err
    assert "stopped at --limit 100003" in err
    assert len(Path("out.csv").read_text().splitlines()) == 100_004
    code, out, _ = cli("run", ENDLESS, "long.parquet", "--limit", 3)
    assert out.endswith("3 matches, possibly more\n")
    assert len(out.splitlines()) == 2 + 3 + 1


def test_a_query_is_read_from_a_file(cli):
    Path("q.ceql").write_text(f"-- a comment\n{QUERY}\n", encoding="utf-8-sig")
    Path("q.txt").write_text(QUERY)
    for name in ("q.ceql", "q.txt"):
        code, _, err = cli("run", name, "events.parquet", "--time-column", "ts", "-o", "out.csv")
        assert code == 0, err


def test_the_type_column_is_named_or_left_out(cli):
    pq.write_table(EVENTS.rename_columns(["kind", "price", "ts"]), "kinds.parquet")
    code, out, _ = cli("run", "SELECT * FROM S WHERE A", "kinds.parquet", "--type-column", "kind")
    assert code == 0
    assert out.endswith("3 matches\n")
    code, out, _ = cli("run", "SELECT * FROM S WHERE S FILTER S[price > 10]", "events.parquet", "--no-type-column")
    assert code == 0
    assert out.endswith("2 matches\n")


def test_an_integer_time_column_needs_a_unit(cli):
    pq.write_table(EVENTS.set_column(2, "ts", EVENTS["ts"].cast(pa.int64())), "ints.parquet")
    code, _, err = cli("run", QUERY, "ints.parquet", "--time-column", "ts")
    assert code == 1
    assert "--time-unit" in err
    code, out, _ = cli("run", QUERY, "ints.parquet", "--time-column", "ts", "--time-unit", "ms")
    assert code == 0
    assert out.endswith("4 matches\n")


# ---- errors ---------------------------------------------------------------------------------------------------------


def bad_events():
    Path("empty.parquet").touch()
    Path("empty.csv").touch()
    Path("events.txt").write_text("type\nA\n")
    Path("no.parquet").write_text("this is no Parquet file at all")
    Path("no.arrow").write_text("this is no Arrow file at all")
    Path("bad.ceql").write_bytes(b"SELECT * FROM S WHERE \xff")
    Path("folder.parquet").mkdir()
    falling = EVENTS.take([1, 0])
    pq.write_table(falling, "falling.parquet")
    good = Path("events.parquet").read_bytes()
    Path("cut.parquet").write_bytes(good[: len(good) // 2])
    Path("zeroed.parquet").write_bytes(good[:4] + bytes(200) + good[204:])


A = "SELECT * FROM S WHERE A"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([A, "missing.parquet"], "missing.parquet: no such file"),
        ([A, "no_folder/missing.parquet"], "no such file"),
        ([A, "empty.parquet"], "empty.parquet: cannot be read"),
        ([A, "empty.csv"], "empty.csv: cannot be read"),
        ([A, "events.txt"], "cannot tell the format from the name"),
        ([A, "no.parquet"], "no.parquet: cannot be read"),
        ([A, "no.arrow"], "no.arrow: cannot be read"),
        ([A, "cut.parquet"], "cut.parquet: cannot be read"),
        ([A, "zeroed.parquet"], "zeroed.parquet: cannot be read"),
        ([A, "folder.parquet"], "folder.parquet: no "),
        ([A, "events.parquet", "--type-column", "typ"], "did you mean 'type'?"),
        ([A, "events.parquet", "--type-column", "price"], "type column 'price' must hold strings"),
        ([A, "events.parquet", "--time-column", "tz"], "no column 'tz'"),
        ([A, "events.parquet", "--time-column", "type"], "the time column 'type' must be"),
        ([A, "falling.parquet", "--time-column", "ts"], "the 'ts' of event 1 "),
        ([f"{A} FILTER A[prize > 1]", "events.parquet"], "did you mean 'price'?"),
        ([f"{A} FILTER A[price > 'x']", "events.parquet"], "^"),
        (["SELEC * FROM S WHERE A", "events.parquet"], "hint: did you mean SELECT?"),
        (["SELECT * FROM S WHERE", "events.parquet"], "expected"),
        ([f"{A} ; B WITHIN 3 HOURS", "events.parquet"], "--time-column"),
        (["missing.ceql", "events.parquet"], "'missing.ceql' is neither a file nor"),
        (["Q(x)<-A(nope=x)", "events.parquet"], "no column 'nope'"),
        (["late_query", "events.parquet"], "'late_query' is neither a file nor"),
        (["bad.ceql", "events.parquet"], "bad.ceql: is not text in UTF-8"),
        ([A, "events.parquet", "--device", "cuda"], "device='cpu'"),
        ([A, "events.parquet", "-o", "out.xlsx"], "expected a name that ends in .parquet, .arrow, .csv, .jsonl"),
        ([A, "events.parquet", "-o", "out"], "expected a name that ends in"),
        ([A, "events.parquet", "-o", "nowhere/out.csv"], "there is no folder nowhere"),
        ([A, "events.parquet", "-o", "folder.parquet"], "is not a file"),
        ([A, "events.parquet", "-o", "events.parquet"], "would be overwritten"),
        ([A, "events.parquet", "-o", "link.parquet"], "would be overwritten"),
        ([A, ".", "-o", "./out.parquet"], "would lie among the input"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_bad_input_is_a_message_and_exit_code_1(cli, args, message, monkeypatch):
    if "cuda" in args:
        monkeypatch.setattr(placement, "missing", lambda: "there is none\nhint: device='cpu'")
    bad_events()
    os.symlink("events.parquet", "link.parquet")
    if args[1] == ".":  # a folder of good events
        for name in names():
            if name not in ("events.parquet", "folder.parquet"):
                os.unlink(name)
    before = {name: Path(name).stat() for name in names()}
    code, out, err = cli("run", *args)
    assert code == 1
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert {name: Path(name).stat().st_mtime_ns for name in names()} == {n: s.st_mtime_ns for n, s in before.items()}


def test_all_errors_of_a_query_are_told(cli):
    query = "SELECT x FROM S WHERE A AS a ; B FILTER b[price > 1] AND c[price > 1] WITHIN 3 SECONDS"
    for command in (["run", query, "events.parquet"], ["check", query], ["check", query, "events.parquet"]):
        code, _, err = cli(*command)
        assert code == 1
        assert err.count("error: ") == 4
        assert re.findall(r"names '(\w)'", err) == ["x", "b", "c"]


def test_an_error_late_in_the_run_leaves_nothing(cli):
    times = list(range(200_000))
    times[-1] = 0
    pq.write_table(pa.table({"type": ["A"] * 200_000, "t": times}), "falls.parquet")
    Path("out.csv").write_text("from before")
    code, _, err = cli("run", A, "falls.parquet", "--time-column", "t", "-o", "out.csv")
    assert code == 1
    assert "of event 199999 " in err
    assert names() == ["events.parquet", "falls.parquet", "out.csv"]
    assert Path("out.csv").read_text() == "from before"
    # and a good run replaces it
    assert cli("run", A, "events.parquet", "-o", "out.csv")[0] == 0
    assert Path("out.csv").read_text() == "start,end,positions\n0,0,0\n2,2,2\n3,3,3\n"


def test_a_link_stays_a_link(cli):
    Path("real.csv").touch()
    os.symlink("real.csv", "out.csv")
    assert cli("run", A, "events.parquet", "-o", "out.csv")[0] == 0
    assert Path("out.csv").is_symlink()
    assert Path("real.csv").read_text().startswith("start,end")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_a_message(cli):
    Path("locked").mkdir(mode=0o500)
    code, _, err = cli("run", A, "events.parquet", "-o", "locked/out.csv")
    assert code == 1
    assert err == "error: locked/out.csv: cannot be written: Permission denied\n"


def test_wrong_usage_is_exit_code_2(cli):
    for args in (
        [],
        ["run"],
        ["run", A],
        ["walk", A],
        ["run", A, "events.parquet", "--limit", "0"],
        ["run", A, "events.parquet", "--limit", "many"],
        ["run", A, "events.parquet", "--device", "tpu"],
        ["run", A, "events.parquet", "--output", "poems"],
        ["run", A, "events.parquet", "--no-such-option"],
        ["run", A, "events.parquet", "--type-column", "type", "--no-type-column"],
    ):
        code, out, err = cli(*args)
        assert (code, out) == (2, ""), args
        assert "Usage: cer-gpu" in err


def test_the_rate_leaves_the_first_batch_out(cli):
    """The first batch loads the engine; a file of few batches has no rate."""
    pq.write_table(pa.table({"type": ["A"] * 600_000}), "long.parquet", row_group_size=100_000)
    _, _, err = cli("run", "SELECT * FROM S WHERE B", "long.parquet")
    assert re.match(r"600,000 rows, 0 matches, \d+\.\d\d s \(\d+\.\d\d s to start\), [\d,]+ rows/s\n", err)
    _, _, err = cli("run", "SELECT * FROM S WHERE B", "long.parquet", "--threads", 2)
    assert re.match(r"600,000 rows, 0 matches, \d+\.\d\d s", err)


# ---- check ----------------------------------------------------------------------------------------------------------


def test_check_says_ok_and_notes(cli):
    code, out, err = cli("check", "SELECT * FROM S WHERE A+ FILTER A[price > 1] WITHIN 9 EVENTS")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("note: variable 'A' can hold several events")
    assert out.splitlines()[-1] == "ok: the query has no errors"


def test_check_compares_the_query_with_the_columns_of_events(cli):
    code, out, err = cli("check", QUERY, "events.parquet", "--time-column", "ts")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "ok: the query fits events.parquet, and reads type, price, ts"
    pq.write_table(EVENTS.drop_columns("price"), "other.parquet")
    code, out, err = cli("check", QUERY, "events.parquet", "other.parquet", "gone.parquet", "--time-column", "ts")
    assert (code, out) == (1, "")
    assert "no column 'price'" in err
    assert "(for the events in other.parquet)" in err
    assert "gone.parquet: no such file" in err
    assert err.endswith("2 errors\n")


def test_check_names_the_file_of_the_query(cli):
    Path("q.ceql").write_text("SELECT *\nWHERE A\nFILTER B[price > 1]")
    code, _, err = cli("check", "q.ceql")
    assert code == 1
    assert err.startswith("error: q.ceql: FILTER names 'B'")
    assert "line 3: FILTER B[price > 1]" in err


# ---- as a process ---------------------------------------------------------------------------------------------------


def test_python_m_runs_the_command_line():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    for args, said in (["--version"], f"cer-gpu {cer_gpu.__version__}\n"), (["--help"], "Usage: cer-gpu"):
        done = subprocess.run(
            [sys.executable, "-m", "cer_gpu", *args], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(said)


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_leaves_no_file(signum, code, ending):
    pq.write_table(pa.table({"type": ["A"] * 2000}), "long.parquet")
    process = start("run", ENDLESS, "long.parquet", "-o", f"out.{ending}", stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    # wait until rows are written
    while not any(n.endswith(".part") and os.stat(n).st_size > 1000 for n in names()):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signum)
    returned, _, err = finish(process)
    assert returned == code
    assert err == ("interrupted\n" if signum == signal.SIGINT else "stopped by SIGTERM\n")
    assert names() == ["events.parquet", "long.parquet"]


@pytest.mark.parametrize("ending", FORMATS)
def test_a_full_disk_is_a_message(ending):
    pytest.importorskip("resource")
    pq.write_table(pa.table({"type": ["A"] * 2000}), "long.parquet")
    process = start(
        "run",
        "SELECT * FROM S WHERE A ; A ; A",
        "long.parquet",
        "-o",
        f"out.{ending}",
        stderr=subprocess.PIPE,
        # compiled kernels are stored too, in files smaller than this limit
        before=f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({4 << 20}, {4 << 20}))",
    )
    code, _, err = finish(process, 180)
    assert (code, err) == (1, f"error: out.{ending}: cannot be written: File too large\n")
    assert names() == ["events.parquet", "long.parquet"]


def test_progress_is_shown_on_a_terminal_only():
    pytest.importorskip("pty")
    for options, is_shown in ([], True), (["--no-progress"], False):
        args = ["run", A, "events.parquet", "-o", "out.csv", *options]
        code, said = said_to_a_terminal(*args, stdout=subprocess.DEVNULL)
        assert code == 0
        assert (b"rows/s  " in said) == is_shown
        assert (b"evaluating, mostly " in said) == is_shown
        assert b"7 rows, 3 matches" in said


# ---- documentation --------------------------------------------------------------------------------------------------


@pytest.mark.long("runs every command of the documentation")
def test_the_examples_of_the_documentation_work(cli, monkeypatch, here):
    os.symlink(ROOT / "examples", "examples")
    Path("bin").mkdir()
    Path("bin/cer-gpu").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cer_gpu "$@"\n')
    os.chmod("bin/cer-gpu", 0o755)
    monkeypatch.setenv("PATH", os.pathsep.join(["bin", os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    text = (ROOT / "docs" / "guides" / "command_line.md").read_text(encoding="utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 26
    for command in commands:
        program, *args = shlex.split(command)
        assert program == "cer-gpu"
        if "|" in args:
            done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
            err = done.stderr
            assert done.stdout
        else:
            if "--follow" in args:  # until there is nothing more to read
                os.mkdir("landings")
                shutil.copy(ROOT / "examples" / "data" / "flights.parquet", "landings")
                args += ["--once", "--settle", "0"]
            code, _, err = cli(*args)
            assert code == 0, err
        assert "error" not in err
