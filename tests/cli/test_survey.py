"""`cer-gpu columns`, the width of tables, and proposals for misspelt names."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cer_gpu.io.formats import FORMAT_NAMES

EVENTS = pa.table(
    {
        "type": pa.array(["A", "B", "A", None]).dictionary_encode(),
        "ts": pa.array([0, 1000, 2000, 3000], pa.timestamp("ms")),
        "n": [None, 5, 5, 7],
    }
)


@pytest.fixture(autouse=True)
def flights():
    pq.write_table(EVENTS, "flights.parquet")


# ---- columns --------------------------------------------------------------------------------------------------------


def test_columns_have_names_types_and_first_values(cli):
    code, out, err = cli("columns", "flights.parquet")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "column type first values"
    assert lines[2:5] == [
        "type string A, B",
        "ts timestamp[ms] 1970-01-01T00:00:00.000, 1970-01-01T00:…",
        "n int64 5, 7",
    ]
    assert lines[-1] == "3 columns, 4 events"


def test_types_are_counted_on_request(cli):
    code, out, _ = cli("columns", "flights.parquet", "--type-column", "type")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[lines.index("event type events") + 2 :][:3] == ["A 2", "B 1", "(null) 1"]


def test_columns_are_printed_as_json(cli):
    _, out, _ = cli("columns", "flights.parquet", "--type-column", "type", "--json")
    found = json.loads(out)
    assert found["n_events"] == 4
    assert [(c["name"], c["type"], c["dictionary"]) for c in found["columns"]] == [
        ("type", "string", True),
        ("ts", "timestamp[ms]", False),
        ("n", "int64", False),
    ]
    assert found["columns"][2]["values"] == ["5", "7"]
    assert found["types"][0] == {"type": "A", "n_events": 2}
    assert json.loads(cli("columns", "flights.parquet", "--json")[1])["types"] is None


def test_columns_are_those_of_empty_and_of_several_files(cli):
    pq.write_table(EVENTS.slice(0, 0), "none.parquet")
    code, out, _ = cli("columns", "none.parquet")
    assert code == 0
    assert out.endswith("3 columns, 0 events\n")
    _, out, _ = cli("columns", "none.parquet", "flights.parquet", "--json")
    found = json.loads(out)
    assert (found["n_events"], found["columns"][0]["values"]) == (4, ["A", "B"])


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["flights.parquet", "--type-column", "typ"], 1, "did you mean 'type'?"),
        (["flights.parquet", "--type-column", "n"], 1, "the type column 'n' must hold strings"),
        (["S=flights.parquet"], 2, "without a stream name"),
        (["-", "--type-column", "type"], 2, "standard input can be read only once"),
        (["gone.parquet"], 1, "gone.parquet: no such file"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_wrong_arguments_of_columns_are_messages(cli, args, code, message):
    returned, out, err = cli("columns", *args)
    assert (returned, out) == (code, "")
    assert message in err


# ---- the width of tables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "is_cut"), [(60, True), (100, True), (200, False)])
def test_events_are_as_wide_as_columns_says(cli, monkeypatch, width, is_cut):
    monkeypatch.setenv("COLUMNS", str(width))
    wide = EVENTS.append_column("text", pa.array(["x" * 30] * 4))
    pq.write_table(wide, "wide.parquet")
    code, out, _ = cli("run", "SELECT * FROM S WHERE A : B", "wide.parquet", "--output", "events")
    assert code == 0
    assert ("(events are cut: " in out) == is_cut
    assert max(map(len, out.splitlines()[:4])) <= width
    assert len(out.splitlines()) == 2 + 2 + is_cut + 1


def test_times_make_room_for_events(cli, monkeypatch):
    args = ("run", "SELECT * FROM S WHERE A : B", "flights.parquet", "--time-column", "ts", "--output", "events")
    monkeypatch.setenv("COLUMNS", "119")
    _, out, _ = cli(*args)
    assert out.split()[:4] == ["start", "end", "positions", "events"]
    assert "(without start_time and end_time: COLUMNS=120 shows them)" in out
    monkeypatch.setenv("COLUMNS", "120")
    _, out, _ = cli(*args)
    assert out.split()[:5] == ["start", "end", "positions", "start_time", "end_time"]
    assert "without" not in out


def test_cut_columns_are_noted(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    query = "SELECT * FROM S WHERE A : B"
    assert "(cut to the terminal width: " in cli("run", query, "flights.parquet", "--time-column", "ts")[1]
    assert "(cut to the terminal width: " not in cli("run", query, "flights.parquet")[1]


# ---- proposals for misspelt names -----------------------------------------------------------------------------------


def test_the_nearest_command_is_proposed(cli):
    code, _, err = cli("chek", "SELECT * FROM S WHERE A")
    assert code == 2
    assert "No such command 'chek'.\nhint: did you mean 'check'?" in err
    assert "hint: commands: check, " in cli("zzz")[2]


def test_only_files_of_events_are_proposed(cli, here):
    (here / "flight.txt").write_text("")
    (here / "flights.ceql").write_text("")
    query = "SELECT * FROM S WHERE A"
    assert "hint: did you mean 'flights.parquet'?" in cli("run", query, "flights")[2]
    (here / "empty").mkdir()
    (here / "empty" / "flights.txt").write_text("")
    _, _, err = cli("run", query, "empty/flights.parquet")
    assert err.endswith(f"hint: no {FORMAT_NAMES} file in that folder\n")


def test_first_sentences_of_help_are_whole(cli):
    code, out, _ = cli("--help")
    assert code == 0
    assert "..." not in out[out.index("Commands:") : out.index("Examples:")]


def test_a_forgotten_time_column_is_named_where_there_is_one(cli):
    query = "SELECT * FROM S WHERE A ; B WITHIN 1 HOUR"
    hint = "hint: time_column='ts' (--time-column ts), or write WITHIN n EVENTS"
    for command in (["run"], ["check"], ["report", "-o", "page.html"]):
        code, _, err = cli(*command, query, "flights.parquet")
        assert code == 1
        assert hint in err
    assert hint in cli("explain", query, "--events", "flights.parquet")[2]
    pq.write_table(EVENTS.append_column("again", EVENTS["ts"]), "two.parquet")
    for path in ("two.parquet", "gone.parquet"):
        assert "hint: name it: time_column=... (--time-column), or" in cli("run", query, path)[2]


def test_query_and_events_in_the_wrong_order_are_told(cli, here):
    query = "SELECT * FROM S WHERE A"
    for command in ("run", "check"):
        code, _, err = cli(command, "flights.parquet", query)
        assert code == 2
        assert f"'flights.parquet' names events, and QUERY must come before them: cer-gpu {command} '{query}'" in err
    for events in ("no.csv", ".", "s3://bucket/x", "-"):
        code, _, err = cli("run", events, "flights.parquet")
        assert (code, "names events, and QUERY must come before them: cer-gpu run QUERY EVENTS" in err) == (2, True)


def test_the_null_device_takes_every_result(cli, here):
    query = "SELECT * FROM S WHERE A"
    before = sorted(here.iterdir())
    for more in ([], ["--format", "csv"]):
        code, _, err = cli("run", query, "flights.parquet", "-o", os.devnull, *more)
        assert (code, "-> /dev/null" in err) == (0, True)
    assert cli("explain", query, "--svg", os.devnull)[0] == 0
    assert sorted(here.iterdir()) == before
    assert not os.path.isfile(os.devnull)


def test_a_glob_is_read_and_its_files_are_not_overwritten(cli, here):
    query = "SELECT * FROM S WHERE A"
    assert cli("run", query, "fl*.parquet")[0] == 0
    code, _, err = cli("run", query, "fl*.parquet", "-o", "flights.parquet")
    assert (code, "is an input, and would be overwritten" in err) == (1, True)
