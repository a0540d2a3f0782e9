"""Rules in EQL, beside others: columns by default, fields that the events have not, and wrong ones."""

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.rules import Rule, compile_rules, load

EVENTS = pa.table(
    {
        "event.category": ["process", "file", "process", "process"],
        "process.name": ["cmd.exe", None, "CMD.EXE", "calc.exe"],
        "host.id": ["a", "a", "b", "a"],
        "@timestamp": pa.array([0, 1, 2, 3], pa.timestamp("s")),
    }
)
RULES = {
    "cmd": Rule("cmd", 'process where process.name : "cmd.exe"', language="eql", level="low"),
    "pair": Rule("pair", "sequence by host.id with maxspan=1m [process where true] [file where true]", language="eql"),
    "ceql": Rule("ceql", "SELECT * FROM S WHERE file ; process WITHIN 2 SECONDS"),
    "gone": Rule("gone", 'process where no.such == "x"', language="eql"),
}


def found(alerts):
    return [(row["rule"], row["positions"]) for row in alerts.select(["rule", "positions"]).to_pylist()]


def test_rules_of_all_languages_read_the_columns_of_eql():
    alerts = compile_rules(RULES, missing_fields="null").alerts(EVENTS)
    assert found(alerts) == [("cmd", [0]), ("pair", [0, 1]), ("cmd", [2]), ("ceql", [1, 2]), ("ceql", [1, 3])]
    assert alerts["key"].to_pylist()[1] == [("host.id", "a")]
    assert alerts.schema.field("end_time").type == pa.timestamp("s")


def test_named_columns_are_those_of_all_rules():
    events = EVENTS.rename_columns(["kind", "process.name", "host.id", "time"])
    rules = compile_rules(RULES, missing_fields="null", type_column="kind", time_column="time")
    assert found(rules.alerts(events)) == found(compile_rules(RULES, missing_fields="null").alerts(EVENTS))


def test_events_without_a_time_have_alerts_without_one():
    rules = {"cmd": RULES["cmd"]}
    alerts = compile_rules(rules).alerts(EVENTS.drop_columns("@timestamp"))
    assert found(alerts) == [("cmd", [0]), ("cmd", [2])]
    assert "end_time" not in alerts.schema.names


def test_a_field_that_the_events_have_not_is_an_error_if_asked_for():
    with pytest.raises(cer_gpu.QueryError, match=r"query 'gone'.*no\.such"):
        compile_rules(RULES, missing_fields="error").alerts(EVENTS)


def test_all_matches_of_a_sequence_may_be_asked_for():
    text = "sequence by host.id with maxspan=1m [process where true] [process where true]"
    events = EVENTS.set_column(0, "event.category", pa.array(["process"] * 4))
    counts = {
        selection: compile_rules({"r": Rule("r", text, language="eql")}, selection=selection).alerts(events).num_rows
        for selection in ("recent", "all")
    }
    assert counts == {"recent": 2, "all": 3}


def test_a_folder_is_loaded_with_its_endings_as_languages(tmp_path):
    (tmp_path / "a.eql").write_text('process where process.name : "cmd.exe"')
    (tmp_path / "b.toml").write_text(
        "[rule]\nname = 'named'\nseverity = 'high'\nquery = 'file where true'\n[[rule.threat]]\ntactic = {name = 'T'}"
    )
    (tmp_path / "c.eql").write_text("process where (")
    with pytest.raises(cer_gpu.QuerySyntaxError, match="query 'c'"):
        load(tmp_path)
    rules = load(tmp_path, errors="skip")
    assert found(rules.alerts(EVENTS)) == [("a", [0]), ("named", [1]), ("a", [2])]
    assert list(rules.skipped) == ["c"]
    assert rules.rules["named"].tactics == ("T",)
