"""Columns of times and types that are fields of structs, named by their paths."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.cli.group import main
from cer_gpu.io.sources import open_events

TIME, KIND, KEY = "System.TimeCreated.SystemTime", "System.kind", "System.Computer"
ROWS = [
    {
        "System": {
            "TimeCreated": {"SystemTime": f"2024-03-01T05:00:0{i}Z"},
            "EventID": i % 3,
            "Computer": "c1" if i < 5 else "c2",
            "kind": "AB"[i % 2],
        }
    }
    for i in range(8)
]
FLAT = {
    TIME: [row["System"]["TimeCreated"]["SystemTime"] for row in ROWS],
    **{name: [row["System"][name.split(".")[1]] for row in ROWS] for name in (KIND, KEY)},
}
TEXT = f"SELECT * WHERE A ; B PARTITION BY [{KEY}] WITHIN 2 SECONDS"


@pytest.fixture
def query():
    return cer_gpu.compile(TEXT, time_column=TIME, type_column=KIND)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path / "e.jsonl"


@pytest.fixture
def wanted():
    """The positions over the same events with columns in place of fields."""
    flat = pa.table({**FLAT, TIME: pa.array(FLAT[TIME]).cast(pa.timestamp("us", "UTC"))})
    text = TEXT.replace(KEY, f"`{KEY}`")
    return cer_gpu.compile(text, time_column=TIME, type_column=KIND).evaluate(flat)["positions"].to_pylist()


def test_every_way_of_reading_takes_paths(query, path, wanted, tmp_path):
    assert query.evaluate(path)["positions"].to_pylist() == wanted
    table = pa.Table.from_batches(open_events(path).batches(["System"]))
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=3)
    for events in (table, tmp_path / "e.parquet", table.to_reader(), iter(table.to_batches(max_chunksize=2))):
        assert query.evaluate(events)["positions"].to_pylist() == wanted
    assert query.count(tmp_path / "e.parquet") == len(wanted)
    assert query.evaluate(tmp_path / "e.parquet", threads=2)["positions"].to_pylist() == wanted
    evaluator = query.evaluator()
    assert evaluator.push(table.combine_chunks().to_batches()[0]).column("positions").to_pylist() == wanted


def test_sorted_late_and_merged_events(query, path, wanted, tmp_path):
    lines = path.read_text().splitlines(keepends=True)
    (tmp_path / "back.jsonl").write_text("".join(lines[::-1]))
    back = [[7 - p for p in positions] for positions in wanted]
    for options in ({"sort": True}, {"lateness": "20s"}):
        found = query.evaluate(tmp_path / "back.jsonl", **options)
        assert sorted(found["positions"].to_pylist()) == sorted(back)
    events = query.evaluate(tmp_path / "back.jsonl", sort=True, output="events")["events"].type.value_type
    assert [field.name for field in events] == ["System"]
    merged = cer_gpu.compile("SELECT * FROM X, Y WHERE X>A ; Y>B WITHIN 2 SECONDS", time_column=TIME, type_column=KIND)
    assert merged.evaluate({"X": path, "Y": path}).num_rows == 4


def test_a_column_with_dots_comes_before_a_path(query):
    column = pa.array(FLAT[TIME]).cast(pa.timestamp("us", "UTC"))
    other = pa.StructArray.from_arrays([pa.array(["A"] * 8)], names=["kind"])
    events = pa.table({**FLAT, TIME: column, "System": other})
    text = TEXT.replace(KEY, f"`{KEY}`")
    assert cer_gpu.compile(text, time_column=TIME, type_column=KIND).evaluate(events).num_rows == 3


def test_a_path_that_leads_nowhere(path):
    with pytest.raises(cer_gpu.QueryTypeError, match=r"no column 'System\.TimeCreated\.Time'"):
        cer_gpu.compile(TEXT, time_column="System.TimeCreated.Time", type_column=KIND).evaluate(path)
    with pytest.raises(cer_gpu.QueryTypeError, match=r"no column 'System\.type'"):
        cer_gpu.compile(TEXT, time_column=TIME, type_column="System.type").evaluate(path)


def test_statements_order_and_divide_by_fields(path):
    statement = f"""SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY {KEY} ORDER BY {TIME} DESC
        MEASURES FIRST(A.System.EventID) AS f, SUM(B.System.EventID) AS s ONE ROW PER MATCH
        PATTERN (A B) DEFINE A AS A.System.kind = 'B', B AS B.System.kind = 'A')"""
    found = cer_gpu.compile(statement).evaluate(path)
    assert found.to_pydict() == {KEY: ["c1", "c1", "c2"], "f": [0, 1, 1], "s": [2, 0, 0]}
    every = cer_gpu.compile(statement.replace("ONE ROW", "ALL ROWS")).evaluate(path)
    assert every.column_names == [KEY, TIME, "f", "s", "System"]


def test_the_command_line(path, capsys):
    options = ["--time-column", TIME, "--type-column", KIND]
    assert main(["run", TEXT, str(path), *options, "--no-progress"]) == 0
    assert "3 matches" in capsys.readouterr().out
    assert main(["check", TEXT, str(path), *options]) == 0
    assert main(["columns", str(path), *options, "--json"]) == 0
    out = json.loads("{" + capsys.readouterr().out.split("{", 1)[1])
    assert out["types"] == [{"type": "A", "n_events": 4}, {"type": "B", "n_events": 4}]
    assert main(["explain", TEXT, str(path), *options]) == 0
    assert "(all events)        8" in capsys.readouterr().out
    assert main(["columns", str(path), "--time-column", "System"]) == 1
    assert "the time column 'System' must be a timestamp" in capsys.readouterr().err
