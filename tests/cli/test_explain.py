"""`cer-gpu explain`: text, JSON, pictures, measurements and errors."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from command_line import EVENTS

import cer_gpu

QUERY = "SELECT * FROM S WHERE A AS a ; B FILTER a[price > 10] WITHIN 3 SECONDS"


@pytest.fixture
def query():
    return cer_gpu.compile(QUERY, time_column="ts")


def test_explain_prints_the_explanation(cli, query):
    code, out, err = cli("explain", QUERY, "--time-column", "ts")
    assert (code, err) == (0, "")
    assert out == f"{query.explain()}\n"


@pytest.mark.parametrize("detail", ["plan", "automaton", "all"])
def test_an_option_shows_more_of_the_explanation(cli, query, detail):
    code, out, err = cli("explain", QUERY, "--time-column", "ts", f"--{detail}")
    assert (code, err) == (0, "")
    assert out == f"{query.explain(detail=detail)}\n"


def test_json_holds_the_whole_explanation(cli, query):
    code, out, err = cli("explain", QUERY, "--time-column", "ts", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == query.explain().to_dict()


def test_passes_are_shown_line_by_line(cli, query):
    code, out, err = cli("explain", QUERY, "--time-column", "ts", "--passes")
    assert (code, err) == (0, "")
    assert out.splitlines() == query.explain().passes
    assert "normal form        A[price > 10] AS a ; B" in out.splitlines()
    passes = json.loads(cli("explain", QUERY, "--time-column", "ts", "--passes", "--json")[1])["passes"]
    assert passes[1] == {"name": "normal form", "did": "A[price > 10] AS a ; B"}


def test_pictures_are_written(cli, query):
    code, _, err = cli("explain", QUERY, "--time-column", "ts", "--svg", "a.svg", "--dot", "a.dot")
    assert (code, err) == (0, "")
    assert Path("a.svg").read_text() == query.explain().to_svg()
    assert Path("a.dot").read_text() == query.explain().to_dot()
    assert ElementTree.parse("a.svg").getroot().tag.endswith("svg")


def test_events_are_counted(cli, query):
    code, out, _ = cli("explain", QUERY, "--time-column", "ts", "--events", "events.parquet", "--json")
    assert code == 0
    assert json.loads(out) == query.explain(EVENTS).to_dict()
    code, out, _ = cli("explain", QUERY, "--time-column", "ts", "--events", "events.parquet")
    assert [line.split() for line in out.splitlines() if "price > 10" in line][1:3] == [
        ["price", ">", "10", "2", "28.6%"],
        ["A[price", ">", "10]", "2", "28.6%"],
    ]


def test_several_files_are_one_stream(cli):
    pq.write_table(EVENTS, "more.parquet")
    code, out, _ = cli(
        "explain", "SELECT * FROM S WHERE A", "--events", "events.parquet", "--events", "more.parquet", "--json"
    )
    assert code == 0
    assert json.loads(out)["events"] == {"n": 14, "n_relevant": 6}


def test_streams_have_names(cli):
    both = ("--events", "S=events.parquet", "--events", "T=events.parquet")
    code, out, _ = cli(
        "explain", "SELECT * FROM S, T WHERE S>A ; T>B", *both, "--time-column", "ts", "--analyze", "--json"
    )
    assert code == 0
    said = json.loads(out)
    assert [fact["n_events"] for fact in said["types"]] == [3, 3]
    found = cer_gpu.compile("SELECT * FROM S, T WHERE S>A ; T>B", time_column="ts").evaluate({"S": EVENTS, "T": EVENTS})
    assert said["analysis"]["n_matches"] == found.num_rows


def test_analyze_measures_the_stages(cli, query):
    code, out, _ = cli("explain", QUERY, "--time-column", "ts", "--events", "events.parquet", "--analyze")
    assert code == 0
    run = out[out.index("\nRun\n") :].splitlines()
    assert ["matches", str(query.evaluate(EVENTS).num_rows)] in [line.split() for line in run]
    assert [line.split()[0] for line in run if line.endswith("%")] == [
        "decode",
        "predicates",
        "loop",
        "listing",
        "output",
        "rest",
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([QUERY], "--time-column"),
        (["SELECT * FROM S WHERE"], "expected"),
        (["missing.ceql"], "'missing.ceql' is neither a file nor"),
        ([QUERY, "--time-column", "ts", "--events", "gone.parquet"], "gone.parquet: no such file"),
        (["SELECT * FROM S WHERE A FILTER A[prize > 1]", "--events", "events.parquet"], "did you mean 'price'?"),
        (["SELECT * FROM S WHERE A", "--svg", "nowhere/a.svg"], "there is no folder nowhere"),
        (["SELECT * FROM S WHERE A", "--dot", "folder"], "is not a file"),
        (["SELECT * FROM S WHERE A", "--events", "events.parquet", "--dot", "events.parquet"], "would be overwritten"),
        (["q.ceql", "--svg", "q.ceql"], "would be overwritten"),
        (["SELECT * FROM S WHERE A", "--events", "falling.parquet", "--analyze", "--time-column", "ts"], "event 1 "),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_bad_input_is_a_message_and_leaves_nothing(cli, args, message):
    Path("folder").mkdir()
    Path("q.ceql").write_text("SELECT * FROM S WHERE A")
    pq.write_table(EVENTS.take([1, 0]), "falling.parquet")
    before = {name: Path(name).stat().st_mtime_ns for name in os.listdir()}
    code, out, err = cli("explain", *args, *(["--svg", "new.svg"] if "--svg" not in args else []))
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert {name: Path(name).stat().st_mtime_ns for name in os.listdir()} == before


def test_a_folder_without_write_permission_is_a_message(cli, here):
    (here / "locked").mkdir(mode=0o500)
    if os.access("locked", os.W_OK):
        pytest.skip("permissions do not hold for this user")
    code, _, err = cli("explain", "SELECT * FROM S WHERE A", "--svg", "locked/a.svg")
    assert (code, err) == (1, "error: locked/a.svg: cannot be written: Permission denied\n")


def test_analyze_needs_events(cli):
    code, out, err = cli("explain", "SELECT * FROM S WHERE A", "--analyze")
    assert (code, out) == (2, "")
    assert "--analyze runs the query on events: cer-gpu explain QUERY EVENTS --analyze" in err
