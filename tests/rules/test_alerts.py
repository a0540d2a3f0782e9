"""Alerts: the results of all rules as rows of one table, beside the results of each query."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.columnar.record_batches import empty_batch
from cer_gpu.rules import Rule, compile_rules, load
from cer_gpu.rules.alerts import AlertRows

EVENTS = pa.table(
    {
        "type": ["A", "B", "A", "A", "B", "C", "B"],
        "user": ["ann", "ann", "bob", None, "bob", 'c"d', "ann"],
        "price": [11, 1, 5, 20, None, 3, 4],
        "args": [["x", "y"], None, [], ["z"], ["a b"], None, None],
        "ts": pa.array([0, 1000, 1500, 2000, 2500, 4000, 4500], pa.timestamp("ms")),
    }
)
RULES = {
    "pair": Rule("pair", "SELECT * FROM S WHERE A ; B PARTITION BY [user] WITHIN 9 SECONDS", level="high", id="1"),
    "c": Rule("c", "SELECT C[user] FROM S WHERE C", level="low", tags=("t", "u"), techniques=("T1",), tactics=("X",)),
    "any": Rule("any", "SELECT * FROM S WHERE A : B"),
}


@pytest.fixture
def rules():
    return compile_rules(RULES, time_column="ts")


def test_alerts_have_one_schema_and_come_in_the_order_of_their_ends(rules):
    found = rules.alerts(EVENTS)
    texts, positions, time = pa.list_(pa.string()), pa.list_(pa.int64()), pa.timestamp("ms")
    assert found.schema == pa.schema(
        [
            *((name, pa.string()) for name in ("rule", "id", "level")),
            *((name, texts) for name in ("tags", "tactics", "techniques")),
            ("host", pa.string()),
            ("key", pa.map_(pa.string(), pa.string())),
            ("start", pa.int64()),
            ("end", pa.int64()),
            ("start_time", time),
            ("end_time", time),
            ("positions", positions),
            ("events", pa.large_string()),
        ]
    )
    assert found.select(["rule", "level", "start", "end", "positions"]).to_pylist() == [
        {"rule": "pair", "level": "high", "start": 0, "end": 1, "positions": [0, 1]},
        {"rule": "any", "level": None, "start": 0, "end": 1, "positions": [0, 1]},
        {"rule": "pair", "level": "high", "start": 2, "end": 4, "positions": [2, 4]},
        {"rule": "any", "level": None, "start": 3, "end": 4, "positions": [3, 4]},
        {"rule": "c", "level": "low", "start": 5, "end": 5, "positions": [5]},
        {"rule": "pair", "level": "high", "start": 0, "end": 6, "positions": [0, 6]},
    ]
    assert found["key"].to_pylist() == [[("user", "ann")], [], [("user", "bob")], [], [], [("user", "ann")]]
    first = found.slice(4, 1).to_pylist()[0]
    assert {name: first[name] for name in ("id", "tags", "tactics", "techniques")} == {
        "id": None,
        "tags": ["t", "u"],
        "tactics": ["X"],
        "techniques": ["T1"],
    }


def test_events_are_json_without_what_is_null(rules):
    found = [json.loads(text) for text in rules.alerts(EVENTS)["events"].to_pylist()]
    assert found[0] == [
        {"type": "A", "user": "ann", "price": 11, "args": ["x", "y"], "ts": "1970-01-01T00:00:00.000"},
        {"type": "B", "user": "ann", "price": 1, "ts": "1970-01-01T00:00:01.000"},
    ]
    assert found[2][1] == {"type": "B", "user": "bob", "args": ["a b"], "ts": "1970-01-01T00:00:02.500"}
    assert found[4] == [{"user": 'c"d'}]


def test_alerts_are_the_results_of_each_rule(rules):
    alerts, alone = rules.alerts(EVENTS, threads=2), rules.evaluate(EVENTS)
    for name, table in alone.items():
        own = alerts.filter(pa.compute.equal(alerts["rule"], name))
        assert own.select(["start", "end", "positions"]).sort_by("start").to_pylist() == (
            table.select(["start", "end", "positions"]).sort_by("start").to_pylist()
        )


def test_without_a_time_column_there_are_no_times(tmp_path):
    (tmp_path / "r.ceql").write_text("SELECT * FROM S WHERE A ; B")
    found = load(tmp_path).alerts(EVENTS, limit=1)
    assert "start_time" not in found.schema.names
    assert found.num_rows == 1


def test_a_statement_gives_its_rows(tmp_path):
    (tmp_path / "r.sql").write_text(
        "SELECT * FROM e MATCH_RECOGNIZE (MEASURES A.price AS p PATTERN (A) DEFINE A AS price > 10)"
    )
    (tmp_path / "s.ceql").write_text("SELECT * FROM S WHERE C")
    found = load(tmp_path).alerts(EVENTS)
    assert found.select(["rule", "end", "events"]).to_pylist()[1:] == [
        {"rule": "r", "end": None, "events": '[{"p": 11}]'},
        {"rule": "r", "end": None, "events": '[{"p": 20}]'},
    ]


def test_measures_stand_in_place_of_events():
    text = "SELECT MAX(a.price) AS top, COUNT(a) AS n FROM S WHERE A AS a PARTITION BY [user] HAVING top > 9"
    found = compile_rules({"m": Rule("m", text)}, time_column="ts").alerts(EVENTS)
    assert found.select(["key", "start", "end", "positions", "events"]).to_pylist() == [
        {"key": [("user", "ann")], "start": 0, "end": 0, "positions": None, "events": '[{"top": 11, "n": 1}]'}
    ]


def test_keys_of_several_columns_are_all_told():
    rule = Rule("r", "SELECT * FROM S WHERE A PARTITION BY [user], [price]")
    found = compile_rules({"r": rule}).alerts(EVENTS)
    assert found["key"].to_pylist()[0] == [("user", "ann"), ("price", "11")]


def test_nothing_found_is_an_empty_table(rules):
    assert rules.alerts(EVENTS.slice(0, 0)).schema == rules.alerts(EVENTS).schema


def test_wrong_rules_are_named_or_left_out():
    wrong = {**RULES, "bad": Rule("bad", "SELECT * FROM S WHERE", file="bad.ceql")}
    with pytest.raises(cer_gpu.QueryError, match="query 'bad'"):
        compile_rules(wrong, time_column="ts")
    left = compile_rules(wrong, errors="skip", time_column="ts")
    assert list(left) == list(RULES)
    assert list(left.skipped) == ["bad"]


def test_options_of_results_are_refused(rules):
    with pytest.raises(cer_gpu.OptionError, match="no option 'output' here"):
        rules.alerts(EVENTS, output="events")


def test_alerts_go_to_parquet_and_back(rules, tmp_path):
    found = rules.alerts(EVENTS)
    pq.write_table(found, tmp_path / "alerts.parquet")
    assert pq.read_table(tmp_path / "alerts.parquet").to_pylist() == found.to_pylist()


def test_alerts_show_the_last_events_of_many(monkeypatch):
    rule = Rule("r", "SELECT MAX * FROM S WHERE A+ ; B PARTITION BY [user]")
    events = pa.table({"type": ["A"] * 5 + ["B", "A", "B"], "user": ["ann"] * 8, "n": range(8)})
    whole = compile_rules({"r": rule}).alerts(events).to_pylist()
    monkeypatch.setattr("cer_gpu.rules.alerts.MAX_EVENTS", 3)
    found = compile_rules({"r": rule}).alerts(events).to_pylist()
    assert [row["positions"] for row in found] == [row["positions"][-3:] for row in whole] == [[3, 4, 5], [4, 6, 7]]
    assert [[each["n"] for each in json.loads(row["events"])] for row in found] == [[3, 4, 5], [4, 6, 7]]
    assert [(row["start"], row["end"]) for row in found] == [(0, 5), (0, 7)]


def test_of_no_results_there_are_no_alerts():
    rules = {"a": Rule("a", "SELECT * FROM S WHERE A WITHIN 3 EVENTS", tags=("t", "u"))}
    query = compile_rules(rules)["a"]
    schema = query.output_schema(pa.schema({"type": pa.string()}), "events")
    alerts = AlertRows(rules, {"a": query}, None)
    assert alerts.from_results("a", empty_batch(schema)) == empty_batch(alerts.schema)


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_alerts_name_the_file_of_their_last_event_where_there_are_several(rules, tmp_path, form, sort):
    for i, name in enumerate(("b", "a")):  # by name, the later events come first
        part = EVENTS.slice(4 * i, 4 - i)
        if form == "parquet":
            pq.write_table(part, tmp_path / f"{name}.parquet")
            continue
        rows = [{**row, "ts": row["ts"].isoformat()} for row in part.to_pylist()]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    paths = [str(tmp_path / f"{name}.{form}") for name in ("a", "b")]
    if not sort:
        paths.reverse()
    found = rules.alerts(paths, sort=sort)
    assert found.schema.names[7] == "file"
    first = [tuple(row.values()) for row in found.select(["rule", "end_time"]).to_pylist()]
    expected = [tuple(row.values()) for row in rules.alerts(EVENTS).select(["rule", "end_time"]).to_pylist()]
    assert sorted(map(repr, first)) == sorted(map(repr, expected))
    names = {True: f"b.{form}", False: f"a.{form}"}
    of_time = [names[str(time) < "1970-01-01 00:00:02.5"] for _, time in first]
    assert [name.rpartition("/")[2] for name in found["file"].to_pylist()] == of_time
    assert "file" not in rules.alerts(paths[0], sort=sort).schema.names


def test_a_measure_may_be_called_file(tmp_path):
    for i in range(2):
        pq.write_table(EVENTS.slice(3 * i, 3), tmp_path / f"{i}.parquet")
    rules = compile_rules({"c": Rule("c", "SELECT c.price AS file FROM S WHERE C AS c", level="low")}, time_column="ts")
    (row,) = rules.alerts(str(tmp_path)).to_pylist()
    assert (row["file"], row["events"]) == (str(tmp_path / "1.parquet"), '[{"file": 3}]')
