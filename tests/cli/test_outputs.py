"""Outputs, their previews and files; limits, streams, sorting and late events."""

import csv
import json
import os
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from command_line import EVENTS

import cer_gpu

FORMATS = ["parquet", "arrow", "csv", "jsonl"]
OUTPUTS = ["positions", "bindings", "events", "count", "ends", "rows"]
ROWS = pa.table(
    {
        "type": pa.array(["A", "A", "B", "A", "B", "B"]).dictionary_encode(),
        "ts": pa.array([0, 1, 2, 3, 4, 5], pa.timestamp("s")),
        "who": ["x", 'say "hi", you', "x", "", "", 'say "hi", you'],
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal("0.01"), Decimal("3.00"), None]),
        "part": pa.array([1.5, float("nan"), 0.1, None, -0.0, 1e300]),
        "tags": [["a", None], [], None, ["\n"], ["é"], ['"']],
    }
)
QUERY = "SELECT * FROM S WHERE A AS first ; B+ AS rest WITHIN 4 SECONDS"
BY_WHO = "SELECT * FROM S WHERE A AS first ; B+ AS rest PARTITION BY [who] WITHIN 4 SECONDS"


@pytest.fixture(autouse=True)
def rows(here):
    """Work where ROWS are in rows.arrow."""
    with pa.ipc.new_file("rows.arrow", ROWS.schema) as writer:
        writer.write_table(ROWS)


def rows_of(text):
    """Return the rows of a preview, between its head and its count, as cells."""
    lines = text.splitlines()
    assert lines[1].strip(" ─") == ""
    return [re.split(r"\s{2,}", line.strip()) for line in lines[2:-1]]


def assert_same(found, expected):
    """Compare results; NaN is equal to itself."""
    assert found.schema == expected.schema
    assert str(found.to_pylist()) == str(expected.to_pylist())


# ---- files --------------------------------------------------------------------------------------------------------


def as_json(value):
    """Return a value of a result as JSON Lines hold it, read with exact numbers."""
    if isinstance(value, dict):
        return {name: as_json(v) for name, v in value.items()}
    if isinstance(value, list):
        return [as_json(v) for v in value]
    if isinstance(value, float):
        return None if value != value else Decimal(repr(value))
    return value.isoformat() if hasattr(value, "isoformat") else value


@pytest.mark.parametrize("query", [QUERY, BY_WHO], ids=["whole", "partitioned"])
@pytest.mark.parametrize("output", [output for output in OUTPUTS if output != "rows"])
def test_files_hold_what_evaluate_returns(cli, output, query):
    expected = cer_gpu.compile(query, time_column="ts").evaluate(ROWS, output=output)
    assert expected.num_rows >= 2
    names = expected.column_names
    for format in FORMATS:
        args = ["run", query, "rows.arrow", "--time-column", "ts", "--output", output, "-o", f"out.{format}"]
        code, out, err = cli(*args)
        assert (code, out) == (0, ""), err
    assert_same(pa.ipc.open_file("out.arrow").read_all(), expected)
    # Parquet has no seconds
    assert str(pq.read_table("out.parquet").to_pylist()) == str(expected.to_pylist())
    rows = [json.loads(line, parse_float=Decimal) for line in Path("out.jsonl").read_text().splitlines()]
    assert rows == as_json(expected.to_pylist())
    with open("out.csv", newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file, strict=True)
    assert header == names
    for line, row in zip(lines, as_json(expected.to_pylist()), strict=True):
        for field, name in zip(line, names, strict=True):
            value = row[name]
            if name == "events" or (isinstance(value, list) and not all(isinstance(v, int) for v in value)):
                assert json.loads(field, parse_float=Decimal) == value
            elif value is None:
                assert field == ""
            else:
                assert field == (" ".join(map(str, value)) if isinstance(value, list) else str(value))


def test_a_format_that_cannot_hold_the_results_is_a_message(cli):
    table = ROWS.append_column("span", pa.array([(1, 2, 3)] * 6, pa.month_day_nano_interval()))
    with pa.ipc.new_file("spans.arrow", table.schema) as writer:
        writer.write_table(table)
    code, _, err = cli("run", "SELECT * FROM S WHERE A", "spans.arrow", "--output", "events", "-o", "out.parquet")
    assert code == 1
    assert err.startswith("error: out.parquet: the format cannot hold these results: ")
    assert not Path("out.parquet").exists()
    assert cli("run", "SELECT * FROM S WHERE A", "spans.arrow", "--output", "events", "-o", "out.jsonl")[0] == 0
    assert '"span": [1, 2, 3]' in Path("out.jsonl").read_text()


# ---- previews and summaries ---------------------------------------------------------------------------------------


def test_the_preview_of_bindings_has_a_column_for_each_variable(cli):
    code, out, err = cli("run", QUERY, "rows.arrow", "--time-column", "ts", "--output", "bindings", "--limit", 3)
    assert code == 0
    assert out.split()[:8] == ["start", "end", "positions", "start_time", "end_time", "first", "B", "rest"]
    assert len(rows_of(out)) == 3
    assert out.endswith("3 rows of bindings, possibly more\n")
    assert ", 3 rows of bindings, " in err


def test_the_preview_of_counts_has_a_row_for_each_position(cli):
    code, out, err = cli("run", QUERY, "rows.arrow", "--time-column", "ts", "--output", "count")
    assert code == 0
    expected = cer_gpu.compile(QUERY, time_column="ts").evaluate(ROWS, output="count").to_pylist()
    shown = [[str(row["end"]), str(row["count"]), row["end_time"].isoformat()] for row in expected]
    assert rows_of(out) == shown
    n = sum(row["count"] for row in expected)
    assert out.endswith(f"\n{n} matches at 3 positions\n")
    assert err.startswith(f"6 rows, {n} matches at 3 positions, ")


def test_the_sum_of_counts_may_pass_64_bits(cli):
    """Counts of up to 2**62 over a hundred positions."""
    pq.write_table(pa.table({"type": ["A"] * 60 + ["B"] * 100}), "long.parquet")
    code, _, err = cli("run", "SELECT * FROM S WHERE A+ ; B", "long.parquet", "--output", "count")
    assert code == 0
    assert f"160 rows, {100 * (2**60 - 1):,} matches at 100 positions, " in err


def test_the_preview_of_events_has_a_line_for_each_event(cli):
    args = ["--time-column", "ts", "--output", "events"]
    code, out, _ = cli("run", "SELECT * FROM S WHERE A ; B+ WITHIN 2 SECONDS", "rows.arrow", *args, "--limit", 1)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["start", "end", "positions", "start_time", "end_time", "events"]
    first = r"  1     2   1 2 .*  type: A, .*who: say \"hi\", you, price: null, part: nan, tags: \[\]$"
    assert re.search(first, lines[2])
    assert re.match(r" {60,}type: B, .*price: -2\.25, part: 0\.1, tags: null$", lines[3])
    assert lines[4:] == ["1 match, possibly more"]


def test_the_preview_shortens_long_values(cli):
    table = pa.table({"type": ["A"] * 9, "text": ["x" * 100, "\x1b[2J\n\u202e", None, *"abcdef"], "z": range(9)})
    pq.write_table(table, "long.parquet")
    code, out, _ = cli("run", "SELECT * FROM S WHERE " + " : ".join("A" * 9), "long.parquet", "--output", "events")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()[2:-1]]
    assert lines[0].endswith(f"type: A, text: {'x' * 39}…, z: 0")
    assert lines[1] == r"type: A, text: \x1b[2J\n\u202e, z: 1"
    assert lines[2:] == [
        "type: A, text: null, z: 2",
        "type: A, text: a, z: 3",
        "... (9 events)",
        "type: A, text: f, z: 8",
    ]
    pq.write_table(pa.table({"type": ["A"] * 9, "key": ["a\tb", "x" * 50, "null", "", "é", *"cdef"]}), "keys.parquet")
    code, out, _ = cli("run", "SELECT * FROM S WHERE A PARTITION BY [key]", "keys.parquet")
    assert code == 0
    shown = [line.rstrip().split(maxsplit=3)[3:] for line in out.splitlines()[2:-1]]
    assert shown[:5] == [[r"a\tb"], [f"{'x' * 39}…"], ["null"], [], ["é"]]


def test_the_preview_of_events_has_eight_rows(cli):
    pq.write_table(pa.table({"type": ["A"] * 30}), "long.parquet")
    code, out, _ = cli("run", "SELECT * FROM S WHERE A", "long.parquet", "--output", "events")
    assert code == 0
    assert len(out.splitlines()) == 2 + 8 + 1
    assert out.endswith("the first 8 of 30 matches\n")


NOTHING = {"bindings": "rows of bindings", "ends": "ends"}
MEASURES = (
    "SELECT first.price, COUNT(rest) AS n, LIST(rest.who) AS names "
    "FROM S WHERE A AS first ; B+ AS rest WITHIN 4 SECONDS"
)


def test_measures_are_the_default_output_of_a_query_that_has_some(cli):
    args = ["run", MEASURES, "rows.arrow", "--time-column", "ts"]
    code, out, _err = cli(*args)
    assert code == 0
    assert out.split()[:7] == ["start", "end", "start_time", "end_time", "first.price", "n", "names"]
    assert 'x, say "hi", you' in out
    assert out.endswith(" rows of measures\n")
    expected = cer_gpu.compile(MEASURES, time_column="ts").evaluate(ROWS)
    assert cli(*args, "-o", "out.csv")[0] == cli(*args, "-o", "out.jsonl", "--limit", 1)[0] == 0
    header, *lines = Path("out.csv").read_text().splitlines()
    assert header.replace('"', "").split(",") == expected.column_names
    assert len(lines) == expected.num_rows
    assert [json.loads(line)["n"] for line in Path("out.jsonl").read_text().splitlines()] == [1]


def test_every_output_says_that_there_are_no_results(cli):
    for output in OUTPUTS:
        code, out, err = cli("run", "SELECT * FROM S WHERE C", "rows.arrow", "--output", output)
        assert (code, out) == (0, "no matches\n")
        assert err.startswith(f"6 rows, 0 {NOTHING.get(output, 'matches')}")


@pytest.mark.parametrize("output", [output for output in OUTPUTS if output != "rows"])
@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_the_limit_counts_rows(cli, output, limit):
    expected = cer_gpu.compile(QUERY, time_column="ts").evaluate(ROWS, output=output)
    args = ["run", QUERY, "rows.arrow", "--time-column", "ts", "--output", output, "--limit", limit]
    code, _, err = cli(*args, "-o", "out.arrow")
    assert code == 0
    n = min(limit, expected.num_rows)
    assert_same(pa.ipc.open_file("out.arrow").read_all(), expected.slice(0, n))
    assert (f"stopped at --limit {limit}" in err) == (limit == n)
    code, out, _ = cli(*args)
    assert sum(line.split()[0].isdecimal() for line in out.splitlines()[2:-1]) >= n
    assert out.endswith(", possibly more\n") == (limit == n)


# ---- several streams, and events out of order ----------------------------------------------------------------------

BOTH = "SELECT * FROM X, Y WHERE X>A AS a ; Y>B AS b FILTER a[price > 10]"


def test_streams_are_given_by_name(cli):
    pq.write_table(EVENTS.slice(0, 3), "x1.parquet")
    pq.write_table(EVENTS.slice(3), "x2.parquet")
    args = ["--time-column", "ts", "-o", "out.arrow"]
    code, _, err = cli("run", BOTH, "X=x1.parquet", "Y=events.parquet", "X=x2.parquet", *args)
    assert code == 0, err
    expected = cer_gpu.compile(BOTH, time_column="ts").evaluate({"X": EVENTS, "Y": EVENTS})
    assert expected.num_rows > 0
    assert_same(pa.ipc.open_file("out.arrow").read_all(), expected)
    code, out, err = cli("check", BOTH, "X=events.parquet", "Y=events.parquet", "--time-column", "ts")
    assert (code, err) == (0, "")
    assert "ok: the query fits X=events.parquet, Y=events.parquet, and reads type, price, ts\n" in out


def test_a_stream_name_may_be_in_backquotes(cli):
    query = "SELECT * FROM `my stream` WHERE A"
    code, out, err = cli("run", query, "`my stream`=events.parquet")
    assert code == 0, err
    assert out.endswith("3 matches\n")


def test_wrong_names_of_streams_are_messages(cli):
    for events, message in (
        (["X=events.parquet", "events.parquet"], "name all of them, or none"),
        (["events.parquet", "Y=events.parquet"], "name all of them, or none"),
        (["X=events.parquet", "Y="], "'Y=' has no path"),
        ([""], "'' has no path"),
    ):
        code, out, err = cli("run", BOTH, *events, "--time-column", "ts")
        assert (code, out) == (2, "")
        assert message in err
    for events, message in (
        (["X=events.parquet"], "no events of stream 'Y'"),
        (["X=events.parquet", "Z=events.parquet"], "'Z', which is not in FROM"),
        (["X=events.parquet", "Y=missing.parquet"], "missing.parquet: no such file"),
        (["events.parquet"], "the query names the streams X, Y"),
    ):
        code, out, err = cli("run", BOTH, *events, "--time-column", "ts")
        assert (code, out) == (1, "")
        assert message in err


def test_a_path_with_an_equals_sign_needs_its_folder_if_it_could_be_a_stream(cli):
    query = "SELECT * FROM S WHERE A"
    for name in ("S=x.parquet", "2024-01=x.parquet"):
        os.symlink("events.parquet", name)
    code, _, err = cli("run", query, "S=x.parquet")
    assert code == 2
    assert "for the file, write ./S=x.parquet" in err
    for path in ("./S=x.parquet", "2024-01=x.parquet"):
        code, out, err = cli("run", query, path)
        assert code == 0, err
        assert out.endswith("3 matches\n")


def test_a_stream_that_is_an_input_is_not_overwritten(cli):
    code, _, err = cli("run", "SELECT * FROM S WHERE A", "S=events.parquet", "-o", "events.parquet")
    assert code == 1
    assert "would be overwritten" in err


SHUFFLED = [1, 0, 2, 4, 3, 6, 5]
"""The rows of EVENTS in a shuffled file, and the other way around: neighbours change places."""


def shuffled():
    pq.write_table(EVENTS.take(SHUFFLED), "shuffled.parquet")


def in_shuffled(found):
    """Return complex events with the rows of the shuffled file in place of those of EVENTS."""
    for name in "start", "end":
        found = found.set_column(
            found.column_names.index(name), name, pa.array([SHUFFLED[p] for p in found[name].to_pylist()])
        )
    lists = [[SHUFFLED[p] for p in held] for held in found["positions"].to_pylist()]
    return found.set_column(found.column_names.index("positions"), "positions", pa.array(lists, pa.list_(pa.int64())))


def test_sort_puts_the_events_in_the_order_of_time(cli):
    shuffled()
    query = "SELECT * FROM S WHERE A AS a ; B FILTER a[price > 10]"
    expected = in_shuffled(cer_gpu.compile(query, time_column="ts").evaluate(EVENTS))
    code, _, err = cli("run", query, "shuffled.parquet", "--time-column", "ts", "--sort", "-o", "out.arrow")
    assert code == 0, err
    assert_same(pa.ipc.open_file("out.arrow").read_all(), expected)


def test_late_events_are_put_in_order_refused_or_dropped(cli):
    shuffled()
    query = "SELECT * FROM S WHERE A ; B"
    args = ["run", query, "shuffled.parquet", "--time-column", "ts"]
    compiled = cer_gpu.compile(query, time_column="ts")
    # event 3 is half a second late, and event 0 a second
    code, _, err = cli(*args, "--lateness", "1s", "-o", "out.arrow")
    assert code == 0, err
    assert err.startswith("7 rows, ")
    assert "late" not in err
    assert_same(pa.ipc.open_file("out.arrow").read_all(), in_shuffled(compiled.evaluate(EVENTS)))
    code, _, err = cli(*args, "--lateness", "500ms", "-o", "out.csv")
    assert code == 1
    assert "is late" in err
    code, _, err = cli(*args, "--lateness", "500ms", "--late", "drop", "-o", "out.arrow")
    assert code == 0, err
    assert err.startswith("7 rows, ")
    assert ", 1 late event dropped, " in err
    found = pa.ipc.open_file("out.arrow").read_all()
    expected = compiled.evaluate(EVENTS.slice(1))["positions"].to_pylist()
    rows = [[SHUFFLED[1 + p] for p in held] for held in expected]  # the dropped event has a row, too
    assert found["positions"].to_pylist() == rows
    code, _, err = cli(*args, "--late", "drop")
    assert code == 0, err
    assert ", 3 late events dropped, " in err
    code, _, err = cli(*args, "--lateness", "soon")
    assert code == 1
    assert "'soon'" in err


def test_options_of_order_need_a_time_column(cli):
    for options in (["--sort"], ["--lateness", "5s"], ["--late", "drop"]):
        code, out, err = cli("run", "SELECT * FROM S WHERE A", "events.parquet", *options)
        assert (code, out) == (2, "")
        assert f"{options[0]} needs a time column: --time-column" in err


def test_the_summary_of_ends_counts_no_complex_events(cli):
    n = cer_gpu.compile(QUERY, time_column="ts").evaluate(ROWS, output="ends").num_rows
    args = ["run", QUERY, "rows.arrow", "--time-column", "ts", "--output", "ends"]
    assert cli(*args)[2].startswith(f"6 rows, {n} ends")
    said = json.loads(cli(*args, "--json")[1])
    assert (said["n_rows"], said["n_matches"]) == (n, None)


# ---- LIMIT n EVERY d ------------------------------------------------------------------------------------------------


def test_the_summary_tells_what_every_leaves_out(cli):
    query = "SELECT * FROM S WHERE A ; B LIMIT 1 EVERY 2  SECONDS"
    code, out, err = cli("run", query, "events.parquet", "--time-column", "ts")
    assert code == 0
    assert out.splitlines()[-1] == "2 matches"
    assert "7 rows, 2 matches; 1 suppressed by LIMIT 1 EVERY 2 SECONDS" in err
    assert json.loads(cli("run", query, "events.parquet", "--time-column", "ts", "--json")[1])["n_suppressed"] == 1
    code, out, err = cli("run", "SELECT * FROM S WHERE A ; B LIMIT 1", "events.parquet")
    assert "left out" not in err
