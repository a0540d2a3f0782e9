"""Standard input and output: a run as part of a pipeline."""

import contextlib
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from command_line import EVENTS, finish, start

import cer_gpu

A = "SELECT * FROM S WHERE A"
QUERY = "SELECT * FROM S WHERE A AS a ; B FILTER a[price > 10] WITHIN 3 SECONDS"
ENDLESS = "SELECT * FROM S WHERE A ; A ; A ; A ; A ; A"
PIPE = subprocess.PIPE


@pytest.fixture
def buffering(request, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", request.param)


def unbuffered_or_not(test):
    """Run a test with standard output that has a buffer, and with one that has none, as with `python -u`."""
    parameters = pytest.mark.parametrize("buffering", ["", "1"], ids=["buffered", "unbuffered"], indirect=True)
    return pytest.mark.usefixtures("buffering")(parameters(test))


def ipc(table, new=pa.ipc.new_stream, **options):
    """Return a table as bytes of Arrow IPC."""
    file = io.BytesIO()
    with new(file, table.schema) as writer:
        writer.write_table(table, **options)
    return file.getvalue()


# ---- standard output ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--format", "jsonl"]], ids=["default", "named"])
def test_json_lines_are_the_default_on_stdout(piped, options):
    code, out, err = piped("run", A, "events.parquet", "-o", "-", *options)
    assert code == 0
    assert out.decode().splitlines() == [f'{{"start": {i}, "end": {i}, "positions": [{i}]}}' for i in (0, 2, 3)]
    assert re.fullmatch(r"7 rows, 3 matches, \d+\.\d\d s\n", err)


def test_csv_is_written_to_stdout(piped):
    code, out, _ = piped("run", A, "events.parquet", "-o", "-", "--format", "csv", "--limit", 2)
    assert (code, out) == (0, b"start,end,positions\n0,0,0\n2,2,2\n")


@pytest.mark.parametrize("query", [QUERY, "SELECT * FROM S WHERE C ; A"], ids=["rows", "no rows"])
def test_an_arrow_stream_is_written_to_stdout(piped, query):
    code, out, _ = piped("run", query, "events.parquet", "--time-column", "ts", "-o", "-", "--format", "arrow")
    assert code == 0
    expected = cer_gpu.compile(query, time_column="ts").evaluate(EVENTS)
    assert pa.ipc.open_stream(out).read_all().equals(expected)


def test_the_output_of_one_run_is_the_input_of_another(piped):
    _, out, _ = piped("run", A, "events.parquet", "-o", "-", "--format", "arrow")
    query = "SELECT * FROM A WHERE A AS x ; A FILTER x[end > 0]"
    code, out, _ = piped("run", query, "-", "--no-type-column", "-o", "-", stdin=out)
    assert code == 0
    assert [json.loads(line)["positions"] for line in out.splitlines()] == [[1, 2]]


def test_formats_that_do_not_fit_are_wrong_usage(piped):
    for options, message in (
        (["-o", "-", "--format", "parquet"], "--format arrow"),
        (["--format", "csv"], "-o"),
        (["-o", "-", "--format", "xml"], "'xml' is not one of"),
    ):
        code, out, err = piped("run", A, "events.parquet", *options)
        assert (code, out) == (2, b"")
        assert "Usage: cer-gpu" in err
        assert message in err


def test_arrow_is_not_written_to_a_terminal():
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    process = start("run", A, "events.parquet", "-o", "-", "--format", "arrow", stdout=theirs, stderr=PIPE)
    os.close(theirs)
    code, _, err = finish(process)
    os.close(ours)
    assert code == 2
    assert "a terminal cannot show Arrow" in err


def test_the_format_goes_before_the_ending_of_a_file(piped):
    assert piped("run", A, "events.parquet", "-o", "found.data", "--format", "csv")[0] == 0
    assert Path("found.data").read_text() == "start,end,positions\n0,0,0\n2,2,2\n3,3,3\n"
    assert piped("run", A, "events.parquet", "-o", "found.csv", "--format", "parquet")[0] == 0
    assert pq.read_table("found.csv").num_rows == 3
    # a file named as standard output is
    assert piped("run", A, "events.parquet", "-o", "./-", "--format", "csv")[0] == 0
    assert Path("-").read_text() == Path("found.data").read_text()


@pytest.mark.parametrize("format", ["jsonl", "csv", "arrow"])
def test_rows_come_out_while_events_come_in(format):
    """The results of a batch can be read before the next one is written."""
    process = start("run", A, "-", "-o", "-", "--format", format, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=False)
    batch = EVENTS.combine_chunks().to_batches()[0]
    with pa.ipc.new_stream(process.stdin, batch.schema) as writer:
        reader = None
        for k in range(3):
            writer.write_batch(batch)
            process.stdin.flush()
            if format == "arrow":
                reader = reader or pa.ipc.open_stream(process.stdout)
                starts = reader.read_next_batch().column("start").to_pylist()
            else:
                lines = [process.stdout.readline() for _ in range(3 + (format == "csv" and k == 0))]
                starts = [int(re.search(rb"\d+", line)[0]) for line in lines[-3:]]
            assert starts == [7 * k, 7 * k + 2, 7 * k + 3]
    process.stdin.close()
    process.stdin = None
    code, _, err = finish(process)
    assert code == 0
    assert err.startswith(b"21 rows, 9 matches")


@pytest.mark.parametrize("format", ["jsonl", "csv", "arrow"])
@unbuffered_or_not
def test_a_reader_that_goes_away_ends_the_run_quietly(format):
    pq.write_table(pa.table({"type": ["A"] * 2000}), "long.parquet")
    process = start("run", ENDLESS, "long.parquet", "-o", "-", "--format", format, stdout=PIPE, stderr=PIPE, text=False)
    assert len(process.stdout.read(100)) == 100
    process.stdout.close()
    process.stdout = None
    code, _, err = finish(process)
    assert (code, err) == (141, b"")


@unbuffered_or_not
def test_a_preview_without_a_reader_is_quiet_too():
    process = start("run", A, "events.parquet", stdout=PIPE, stderr=PIPE)
    process.stdout.close()
    process.stdout = None
    code, _, err = finish(process)
    assert (code, err) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@unbuffered_or_not
def test_a_full_disk_behind_stdout_is_a_message():
    with open("/dev/full", "wb") as full:
        process = start("run", A, "events.parquet", "-o", "-", stdout=full, stderr=PIPE)
        code, _, err = finish(process)
    assert (code, err) == (1, "error: standard output: cannot be written: No space left on device\n")


@pytest.mark.parametrize("format", ["jsonl", "csv", "arrow"])
@unbuffered_or_not
def test_a_run_that_is_stopped_has_written_whole_rows(format):
    pq.write_table(pa.table({"type": ["A"] * 2000}), "long.parquet")
    process = start("run", ENDLESS, "long.parquet", "-o", "-", "--format", format, stdout=PIPE, stderr=PIPE, text=False)
    begun = os.read(process.stdout.fileno(), 1 << 16)  # finish reads on from there
    process.send_signal(signal.SIGINT)
    code, rest, err = finish(process)
    assert (code, err) == (130, b"interrupted\n")
    out = begun + rest
    if format == "arrow":
        assert pa.ipc.open_stream(out).read_all().num_rows > 0
        return
    assert out.endswith(b"\n")
    lines = out.decode().splitlines()
    if format == "csv":
        assert {len(row) for row in csv.reader(lines)} == {3}
    else:
        assert all(len(json.loads(line)["positions"]) == 6 for line in lines)


@pytest.mark.parametrize("n_rows", [10, 10000])  # less and more than a buffer
@unbuffered_or_not
def test_a_signal_does_not_wait_for_a_reader_that_does_not_read(n_rows):
    pq.write_table(pa.table({"type": ["A"] * 2000}), "long.parquet")
    before = f"import cer_gpu.io.sinks as s; s.TEXT_ROWS = {n_rows}"
    args = ["run", ENDLESS, "long.parquet", "-o", "-"]
    process = start(*args, before=before, stdout=PIPE, stderr=PIPE, text=False)
    assert os.read(process.stdout.fileno(), 1) == b"{"
    time.sleep(0.5)  # the pipe is full, and stays so
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    assert process.poll() == 143
    assert finish(process)[2] == b"stopped by SIGTERM\n"


# ---- standard input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [pa.ipc.new_stream, pa.ipc.new_file], ids=["stream", "file"])
def test_events_are_read_from_stdin(piped, new):
    for command in (["run", QUERY, "-", "-o", "-"], ["check", QUERY, "-"]):
        code, out, err = piped(*command, "--time-column", "ts", stdin=ipc(EVENTS, new, max_chunksize=2))
        assert code == 0, err
        if command[0] == "check":
            assert out.startswith(b"ok: the query fits -, and reads type, price, ts\n")
        else:
            found = [json.loads(line)["positions"] for line in out.splitlines()]
            expected = cer_gpu.compile(QUERY, time_column="ts").evaluate(EVENTS)
            assert found == expected["positions"].to_pylist()


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (b"", "standard input is empty: expected an Arrow IPC stream"),
        (b"type,price\nA,1,2\n", "standard input cannot be read: CSV parse error: Expected 2 columns, got 3"),
        (b"PAR1....", "got Parquet, which cannot be read from a pipe"),
        (ipc(EVENTS)[:100], "cannot be read: "),
        (ipc(EVENTS)[:-20], "the stream of events broke: "),
        (b"\xff\xff\xff\xff", "cannot be read: "),
    ],
    ids=["empty", "csv", "parquet", "cut in the schema", "cut in a batch", "cut in the first mark"],
)
def test_stdin_that_is_no_arrow_stream_is_a_message(piped, stdin, message):
    code, out, err = piped("run", A, "-", stdin=stdin)
    assert (code, out) == (1, b"")
    assert err.startswith("error: ")
    assert message in err


def test_stdin_is_read_once(piped):
    for events in (["-", "-"], ["X=-", "Y=-"], ["events.parquet", "-"], ["X=-", "X=events.parquet"]):
        code, out, err = piped("run", A, *events, stdin=ipc(EVENTS))
        assert (code, out) == (2, b"")
        assert "standard input (-)" in err


def test_a_terminal_as_stdin_is_a_message():
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    process = start("run", A, "-", stdin=theirs, stdout=PIPE, stderr=PIPE)
    os.close(theirs)
    code, out, err = finish(process)
    os.close(ours)
    assert (code, out) == (1, "")
    assert err.startswith("error: standard input is a terminal: expected an Arrow IPC stream")


def test_closed_streams_are_messages(monkeypatch, capsys):
    from cer_gpu.cli import main

    monkeypatch.setattr(sys, "stdin", None)
    assert main(["run", A, "-"]) == 1
    assert "standard input is closed" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["run", A, "events.parquet", "-o", "-"]) == 2
    assert "standard output is closed" in capsys.readouterr().err


@pytest.mark.parametrize("n_rows", [0, 7], ids=["before the first event", "between batches"])
def test_waiting_for_events_can_be_interrupted(n_rows):
    end = len(ipc(EVENTS.schema.empty_table())) - 8
    args = ["run", A, "-", "-o", "-", "--format", "csv"]
    process = start(*args, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=False)
    process.stdin.write(ipc(EVENTS)[:-8] if n_rows else ipc(EVENTS)[:end])
    process.stdin.flush()
    for _ in range(4 if n_rows else 1):
        assert process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    assert process.poll() == 130
    assert finish(process)[2] == b"interrupted\n"
