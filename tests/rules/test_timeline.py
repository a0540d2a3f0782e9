"""Alerts as a timeline, their hosts, and the summary at the end of a run."""

from __future__ import annotations

import csv
import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cer_gpu.cli import main
from cer_gpu.rules import Rule, compile_rules
from cer_gpu.rules.alerts import HOST_COLUMNS, TIMELINE_SCHEMA, hosts_of, timeline_rows

RULES = {
    "start": ("high", ["execution", "persistence"], "category: process_creation", "Image: a"),
    "stop": ("low", ["impact"], "category: process_termination", "Image: a"),
    "keys": ("low", [], "category: registry_set", "Details: x"),
}
EVENTS = pa.table(
    {
        "ts": pa.array([dt.datetime(2026, 11, 27, 12, 0, second, 5) for second in range(4)], pa.timestamp("us")),
        "EventID": [1, 1, 5, 3],
        "Channel": ["Microsoft-Windows-Sysmon/Operational"] * 4,
        "Computer": ["pc1", "pc2", "pc1", None],
        "Image": ["a", "A", "a", "a"],
    }
)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    pytest.importorskip("sigma")
    (tmp_path / "rules").mkdir()
    for title, (level, tactics, source, test) in RULES.items():
        tags = ", ".join(f"attack.{each}" for each in tactics)
        text = (
            f"title: {title}\nid: 00000000-0000-4000-8000-00000000000{len(title)}\nlevel: {level}\ntags: [{tags}]\n"
            f"logsource: {{product: windows, {source}}}\ndetection: {{selection: {{{test}}}, condition: selection}}\n"
        )
        (tmp_path / "rules" / f"{title}.yml").write_text(text, encoding="utf-8")
    pq.write_table(EVENTS, tmp_path / "events.parquet")
    given = ["--queries", str(tmp_path / "rules"), str(tmp_path / "events.parquet"), "--pipeline", "windows"]
    return ["run", *given, "--time-column", "ts"]


def test_a_timeline_has_the_names_that_tools_take(command: list[str], tmp_path: Path) -> None:
    out = tmp_path / "timeline.csv"
    assert main([*command, "--output", "timeline", "-o", str(out)]) == 0
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["message"] for row in rows] == ["start (high) on pc1", "start (high) on pc2", "stop (low) on pc1"]
    times = [dt.datetime.fromisoformat(row["datetime"]) for row in rows]
    assert times == [dt.datetime(2026, 11, 27, 12, 0, second, 5, dt.UTC) for second in range(3)]
    assert {row["timestamp_desc"] for row in rows} == {"Alert: last event"}
    assert rows[0]["tags"] == "attack.execution,attack.persistence"
    assert rows[0]["tactics"] == "Execution,Persistence"
    assert json.loads(rows[2]["events"])[0]["EventID"] == 5


def test_a_run_ends_with_numbers_by_level_tactic_rule_and_host(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "-o", str(tmp_path / "found.jsonl")]) == 0
    told = capsys.readouterr().err
    assert "levels: high 2, low 1\n" in told
    assert "tactics: Execution 2, Persistence 2, Impact 1\n" in told
    assert "rules: start 2, stop 1\n" in told
    assert "hosts: pc1 2, pc2 1\n" in told
    assert main([*command, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["hosts"] == {"pc1": 2, "pc2": 1}
    assert facts["tactics"] == {"Execution": 2, "Persistence": 2, "Impact": 1}


def test_a_log_source_without_events_is_named_once(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 0
    told = " ".join(capsys.readouterr().err.split())
    said = "no events of the log sources of 1 rule, which cannot match: product windows, category registry_set (1)"
    assert told.count(said) == 1
    assert "Details" not in told, "fields of rules without events are not named"


@pytest.mark.parametrize("given", [["--output", "timeline"], ["--output", "timeline", "--follow", "."]])
def test_a_timeline_is_refused_where_there_is_none(
    command: list[str], given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    timeless = [each for each in command if each not in ("--time-column", "ts")]
    events = [each for each in timeless if not each.endswith(".parquet")] if "--follow" in given else timeless
    assert main([*events, *given]) == 2
    assert "--output timeline" in capsys.readouterr().err


@pytest.mark.parametrize("name", HOST_COLUMNS)
def test_hosts_are_those_of_last_events(name: str) -> None:
    first, *rest = name.split(".")
    kind, value = pa.string(), "h"
    nested: object = value
    for each in reversed(rest):
        kind, nested = pa.struct([(each, kind)]), {each: nested}
    events = pa.array(
        [[{first: None, "x": 1}, {first: nested, "x": 2}], [{first: None, "x": 3}], [], None],
        pa.list_(pa.struct([(first, kind), ("x", pa.int64())])),
    )
    assert hosts_of(pa.record_batch({"events": events})).to_pylist() == ["h", None, None, None]
    plain = pa.array([[{name: "h"}]], pa.list_(pa.struct([(name, pa.string())])))
    assert hosts_of(pa.record_batch({"events": plain})).to_pylist() == ["h"]
    assert hosts_of(pa.record_batch({name: ["m"], "n": [1]})).to_pylist() == ["m"]


@pytest.mark.parametrize("kind", [pa.timestamp("ns", "Europe/Paris"), pa.date32(), pa.timestamp("s")])
def test_times_of_a_timeline_are_in_utc(kind: pa.DataType) -> None:
    events = pa.table({"type": ["A", "B"], "ts": pa.array([0, 1], pa.timestamp("s")).cast(kind)})
    rules = compile_rules({"r": Rule("r", "SELECT * FROM S WHERE A ; B", level=None)}, time_column="ts")
    (alerts,) = rules.alerts(events).to_batches()
    rows = timeline_rows(alerts)
    assert rows.schema == TIMELINE_SCHEMA
    assert dt.datetime.fromisoformat(rows.column("start_time")[0].as_py()) == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert rows.column("message").to_pylist() == ["r"]
