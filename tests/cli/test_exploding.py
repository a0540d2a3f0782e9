"""Queries that find very many complex events: the first are shown, the rest is counted, and Ctrl-C keeps both."""

import itertools
import os
import re
import signal
import subprocess
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from command_line import finish, said_to_a_terminal, start

from cer_gpu.cli import result_streams, run_command
from cer_gpu.cli import run_command as run_module

QUERY = "SELECT * FROM S WHERE A ; B ; C"


def write(n_rows, path="many.parquet"):
    types = np.array(["A", "B", "C"])[np.random.default_rng(1).integers(0, 3, n_rows)]
    table = pa.table({"type": types, "k": np.arange(n_rows) % 3, "ts": np.arange(n_rows)})
    (pc.write_csv if path.endswith(".csv") else pq.write_table)(table, path)


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr(run_command, "MANY", 1)


def told(text):
    """Return a summary without its time."""
    return re.sub(r", [\d.]+ s.*", "", text)


@pytest.mark.parametrize("path", ["many.parquet", "many.csv"])
@pytest.mark.parametrize("output", ["positions", "events", "bindings"])
@pytest.mark.parametrize("end", ["", " PARTITION BY [k]", " WITHIN 100 EVENTS LIMIT 7"])
def test_counted_rows_are_as_many_as_listed_ones(cli, monkeypatch, path, output, end):
    write(400, path)
    listed = cli("run", QUERY + end, path, "--output", output)
    monkeypatch.setattr(run_command, "MANY", 1)
    counted = cli("run", QUERY + end, path, "--output", output)
    assert counted[0] == 0
    assert counted[:2] == listed[:2]
    assert told(counted[2]) == told(listed[2])


def test_more_complex_events_than_can_be_listed_are_counted(cli):
    write(100_000)
    code, out, err = cli("run", QUERY, "many.parquet")
    assert code == 0
    assert out.endswith("the first 20 of 6,263,970,585,419 matches\n")
    assert err.startswith("100,000 rows, 6,263,970,585,419 matches, ")


@pytest.mark.parametrize("options", [["--limit", "900"], ["-o", "found.parquet"], ["--output", "bindings"]], ids=str)
def test_rows_that_are_asked_for_are_listed(cli, few_are_many, monkeypatch, options):
    write(60)
    monkeypatch.setattr(result_streams.CommandEvaluation, "batches", once(result_streams.CommandEvaluation.batches))
    assert cli("run", QUERY, "many.parquet", *options)[0] == 0


def once(batches):
    calls = itertools.count()

    def first_call(*args):
        assert not next(calls), "evaluated twice"
        return batches(*args)

    return first_call


def test_standard_input_is_read_once(piped, few_are_many):
    sink = pa.BufferOutputStream()
    table = pa.table({"type": ["A", "A", "B", "C"]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    code, out, err = piped("run", QUERY, "-", stdin=sink.getvalue().to_pybytes())
    assert (code, told(err).strip()) == (0, "4 rows, 2 matches")
    assert out.endswith(b"2 matches\n")


def interrupted_after_the_first_rows(*options):
    process = start(
        "run", QUERY, "many.parquet", "--output", "bindings", *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    # standard output is not a terminal: the rows are there before the end, as they are flushed
    first = [process.stdout.readline() for _ in range(22)]
    process.send_signal(signal.SIGINT)
    code, rest, err = finish(process)
    return code, first, rest, err


def test_the_first_rows_are_shown_at_once_and_ctrl_c_keeps_what_was_found():
    write(100_000)
    code, first, rest, err = interrupted_after_the_first_rows()
    assert code == 130
    assert first[0].split() == ["start", "end", "positions", "A", "B", "C"]
    assert len(first[-1].split()) == 8
    assert re.fullmatch(r"the first 20 of [\d,]+ rows of bindings so far\n", rest)
    told = re.fullmatch(r"([\d,]+) rows, [\d,]+ rows of bindings, .*\ninterrupted\n", err)
    assert 0 < int(told[1].replace(",", "")) < 20_000  # as far as the rows that were listed go


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
def test_a_terminal_shows_advice_and_no_other_does(few_are_many, cli):
    write(100)
    before = "import cer_gpu.cli.run_command; cer_gpu.cli.run_command.MANY = 1"
    code, said = said_to_a_terminal("run", QUERY, "many.parquet", stdout=subprocess.DEVNULL, before=before)
    assert code == 0
    said = b" ".join(said.split())
    assert b"WITHIN reduces them, --limit stops early, --output count only counts them" in said
    assert re.search(rb"[\d,]+ match(?:es)? in [\d,]+ of 100 rows \([\d.]+%\); ", said)
    _, _, err = cli("run", QUERY, "many.parquet")
    assert "WITHIN" not in err


def test_a_choice_among_too_many_matches_is_a_message(cli):
    query = "SELECT LAST * FROM S WHERE ((C AS a ; C AS b) ; (A+ AS c ; A AS d)) FILTER c.y <> b.x"
    rng = np.random.default_rng(1)
    types = np.array([*"ABCD"])[rng.integers(0, 4, 300)]
    pq.write_table(pa.table({"type": types, "x": np.arange(300), "y": rng.integers(0, 600, 300)}), "choice.parquet")
    code, out, err = cli("run", query, "choice.parquet", "--max-memory", "50MB", "-o", "found.csv")
    assert (code, out) == (1, "")
    told = r"event \d+ ends [\d,]+ matches so far, and choosing among them needs more than "
    assert re.search(told + r"max_memory \(47\.7 MiB\)\n.*--max-memory", err), err
    assert not os.path.exists("found.csv")
    code, out, err = cli("run", query, "choice.parquet", "--max-memory", "much")
    assert code == 2
    assert "expected a size such as 2GiB or 500MB, got 'much'" in err


def test_memory_that_runs_out_is_a_message(cli, monkeypatch):
    monkeypatch.setattr(run_module, "to_json", lambda facts: bytearray(1 << 62))
    code, _, err = cli("run", QUERY, "events.parquet", "--json")
    assert code == 1
    assert "memory ran out" in err
    assert "--limit" in err


ENDLESS = ["a.x + b.x + c.x > 1000", "b.x + PREV(b).x + c.x > 1000", "FIRST(b).x + b.x > 1000"]


@pytest.mark.parametrize(
    ("condition", "output", "signum"),
    [
        *((condition, "positions", signal.SIGINT) for condition in ENDLESS),
        *(("a.x + b.x + c.x > 1000", output, signal.SIGTERM) for output in ("positions", "count", "ends")),
    ],
)
def test_a_search_in_vain_among_very_many_is_stopped_at_once(condition, output, signum):
    """No row is found, so that no buffer ever is full: the search itself has to come back."""
    pq.write_table(pa.table({"type": ["A", *"B" * 60, "C"], "x": [1] * 62}), "small.parquet")
    query = f"SELECT * FROM S WHERE A AS a ; B+ AS b ; C AS c FILTER {condition}"
    before = sorted(os.listdir())
    said = """
import cer_gpu.runtime.instances as module
run = module.InstanceGraph._run_loop
def told(self, *args):
    open("begun", "w").close()
    return run(self, *args)
module.InstanceGraph._run_loop = told
"""
    process = start(
        "run", query, "small.parquet", "-o", "out.parquet", "--output", output, before=said, stderr=subprocess.PIPE
    )
    wait_for("begun", process)
    os.remove("begun")
    wait_for("begun", process)  # the loop came back for the first time: it is compiled
    time.sleep(0.3)
    begun = time.monotonic()
    process.send_signal(signum)
    code, _, err = finish(process)
    assert time.monotonic() - begun < 10  # below a second, where nothing else runs
    expected = (130, "interrupted\n") if signum == signal.SIGINT else (143, "stopped by SIGTERM\n")
    assert (code, err) == expected
    os.remove("begun")
    assert sorted(os.listdir()) == before


def wait_for(path, process):
    deadline = time.monotonic() + 300
    while not os.path.exists(path):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
