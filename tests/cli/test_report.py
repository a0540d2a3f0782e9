"""`cer-gpu report`: a page that appears whole or not at all, its summary and errors."""

import io
import json
import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from command_line import EVENTS, finish, said_to_a_terminal, start

QUERY = "SELECT * FROM S WHERE A AS a ; B FILTER a[price > 10] WITHIN 3 SECONDS"


def test_report_writes_a_page(cli):
    code, out, err = cli("report", QUERY, "events.parquet", "--time-column", "ts", "-o", "report.html")
    assert (code, out) == (0, "")
    assert err == "7 rows, 4 matches, 0.1 MB -> report.html\n"
    assert sorted(os.listdir()) == ["events.parquet", "report.html"]
    page = Path("report.html").read_text(encoding="utf-8")
    assert "<title>SELECT * FROM S WHERE A AS a ; B FILTER \u2026 in events.parquet</title>" in page


def test_report_prints_its_summary_as_json(cli):
    asked = ["report", QUERY, "events.parquet", "--time-column", "ts", "-o", "report.html", "--json"]
    code, out, err = cli(*asked)
    assert (code, err) == (0, "")
    size = os.path.getsize("report.html")
    expected = {"n_events": 7, "n_matches": 4, "n_bytes": size, "out": "report.html", "notes": []}
    assert json.loads(out) == expected
    code, out, err = cli(*asked[:2], "none.parquet", *asked[3:])
    assert (code, out) == (1, "")
    assert json.loads(err)["errors"][0]["type"] == "EventsError"


def test_the_title_names_the_query_file_or_is_given(cli):
    Path("late.ceql").write_text(QUERY)
    asked = ["report", "late.ceql", "events.parquet", "--time-column", "ts", "-o", "report.html"]
    assert cli(*asked)[0] == 0
    assert "<title>late.ceql in events.parquet</title>" in Path("report.html").read_text(encoding="utf-8")
    assert cli(*asked, "--title", "Late & <again>")[0] == 0
    assert "<h1>Late &amp; &lt;again&gt;</h1>" in Path("report.html").read_text(encoding="utf-8")


def test_report_reads_events_from_standard_input(piped):
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, EVENTS.schema) as writer:
        writer.write(EVENTS)
    code, _, err = piped("report", "SELECT * FROM S WHERE A ; B", "-", "-o", "report.html", stdin=stream.getvalue())
    assert (code, err[:19]) == (0, "7 rows, 7 matches, "), err


def test_report_has_the_queries_of_a_folder(cli):
    Path("rules").mkdir()
    Path("rules/late.ceql").write_text(QUERY)
    Path("rules/never.ceql").write_text("SELECT * FROM S WHERE C ; As")
    asked = ["report", "--queries", "rules", "events.parquet", "--time-column", "ts", "-o", "report.html"]
    code, out, err = cli(*asked)
    assert (code, out) == (0, "")
    note = "note: never: no event has the type 'As'; did you mean 'A'?\n"
    assert err == "7 rows, 4 matches of 2 queries, 0.1 MB -> report.html\n" + note
    assert "<title>rules in events.parquet</title>" in Path("report.html").read_text(encoding="utf-8")
    assert json.loads(cli(*asked, "--json")[1])["queries"] == {
        "late": {"n_matches": 4},
        "never": {"n_matches": 0},
    }
    Path("rules/never.ceql").write_text("SELECT * FROM S WHERE C FILTER C[x > 1]")
    Path("rules/late.ceql").write_text("SELECT * FROM S WHERE C FILTER C[y > 1]")
    code, _, err = cli(*asked)
    assert (code, err.count("error: rules/")) == (1, 2)
    assert cli(*asked[:6], "-o", "rules/late.ceql")[2].count("error: rules/") == 2


@pytest.mark.long("lists a hundred thousand matches")
def test_report_says_how_many_there_are_if_it_lists_some(cli):
    pq.write_table(pa.table({"type": ["A"] * 3000}), "long.parquet")
    code, _, err = cli("report", "SELECT * FROM S WHERE A ; A ; A", "long.parquet", "-o", "report.html")
    assert code == 0
    first, last = err.splitlines()
    assert first == "4,495,501,000 matches: the page has at most 667 per end event"
    assert last.startswith("3,000 rows, 4,495,501,000 matches, ")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["SELECT * FROM S WHERE A ;", "events.parquet", "-o", "r.html"], 1, "the query ends too early"),
        (["SELECT * FROM S WHERE A FILTER A[pice > 1]", "events.parquet", "-o", "r.html"], 1, "did you mean 'price'?"),
        (["SELECT * FROM S WHERE A", "event.parquet", "-o", "r.html"], 1, "did you mean 'events.parquet'?"),
        (["SELECT * FROM S WHERE A", "events.parquet", "-o", "no/r.html"], 1, "there is no folder no"),
        (["SELECT * FROM S WHERE A", "events.parquet", "-o", "events.parquet"], 1, "is an input"),
        (["SELECT * FROM S WHERE A", "events.parquet", "-o", "-"], 2, "a report needs a file: -o report.html"),
        (["SELECT * FROM S WHERE A", "events.parquet"], 2, "Missing option '-o'"),
        (["SELECT * FROM S WHERE A", "events.parquet", "--sort", "-o", "r.html"], 2, "--sort needs a time"),
    ],
)
def test_bad_input_is_a_message_and_leaves_no_page(cli, args, code, message):
    found, out, err = cli("report", *args)
    assert (found, out) == (code, "")
    assert message in err
    assert os.listdir() == ["events.parquet"]


def test_an_error_points_into_the_query_file(cli):
    Path("late.ceql").write_text("SELECT * FROM S WHERE A FILTER A[pice > 1]")
    _, _, err = cli("report", "late.ceql", "events.parquet", "-o", "report.html")
    assert err.startswith("error: late.ceql: the events have no column 'pice'")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
def test_a_terminal_shows_the_status():
    code, said = said_to_a_terminal("report", QUERY, "events.parquet", "--time-column", "ts", "-o", "report.html")
    assert code == 0
    assert b"evaluating" in said
    assert said.endswith(b"7 rows, 4 matches, 0.1 MB -> report.html\r\n")


def test_an_interrupted_report_leaves_no_file(tmp_path):
    pq.write_table(pa.table({"type": ["A"] * 1_000_000}), "long.parquet")
    process = start("report", "SELECT * FROM S WHERE A ; A ; A ; A ; A", "long.parquet", "-o", "r.html", stderr=-1)
    while not list(tmp_path.glob(".cer-gpu-*.part")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert (code, err) == (130, "interrupted\n")
    assert sorted(os.listdir()) == ["events.parquet", "long.parquet"]
