"""The queries of a folder (--queries): evaluated in one pass, checked together, and errors that name their files."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from command_line import EVENTS, finish, start

import cer_gpu
from cer_gpu.cli import result_streams, run_command

RULES = {
    "late": "SELECT * FROM S WHERE A AS a ; B FILTER a[price > 10] WITHIN 3 SECONDS",
    "inner/longest": "SELECT MAX * FROM S WHERE A ; B WITHIN 3 SECONDS",
    "never": "SELECT * FROM S WHERE C ; A",
}
ASKED = ["run", "--queries", "rules", "events.parquet", "--time-column", "ts"]


@pytest.fixture(autouse=True)
def rules(here):
    """Write the folder of queries."""
    write(RULES)


def write(texts):
    for name, text in texts.items():
        path = Path("rules", f"{name}.ceql")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def expected(**options):
    return cer_gpu.compile_all(RULES, time_column="ts").stream(EVENTS, **options).read_all()


def by_query(table):
    """Return the rows of each query, in their order."""
    rows = {}
    for row in table.to_pylist():
        rows.setdefault(row["query"], []).append(row)
    return rows


def test_a_table_has_a_row_for_each_query(cli):
    code, out, err = cli(*ASKED)
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["query", "found", "first", "end", "last", "end"]
    assert lines[2:5] == [
        ["inner/longest", "6", "1970-01-01T00:00:01.000", "1970-01-01T00:00:04.500"],
        ["late", "4", "1970-01-01T00:00:01.000", "1970-01-01T00:00:04.500"],
        ["never", "0"],
    ]
    assert out.endswith("2 of 3 queries found 10 matches\n")
    assert re.fullmatch(r"7 rows, 10 matches of 3 queries, \d+\.\d\d s\n", err)


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "jsonl"])
def test_a_file_holds_the_rows_of_all_queries(cli, ending):
    code, out, err = cli(*ASKED, "-o", f"out.{ending}")
    assert (code, out) == (0, "")
    assert err.endswith(f" -> out.{ending}\n")
    assert sorted(os.listdir()) == ["events.parquet", f"out.{ending}", "rules"]
    want = by_query(expected())
    if ending in ("parquet", "arrow"):
        read = pq.read_table("out.parquet") if ending == "parquet" else pa.ipc.open_file("out.arrow").read_all()
        assert by_query(read) == want
        assert read.schema.equals(expected().schema)
        return
    if ending == "csv":
        rows = pa_csv.read_csv("out.csv").to_pylist()
    else:
        rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    ends = [(row["query"], row["start"], row["end"]) for row in rows]
    assert sorted(ends) == sorted((name, row["start"], row["end"]) for name in want for row in want[name])


def test_standard_output_and_options_work_for_a_folder(piped):
    code, out, err = piped(*ASKED, "-o", "-", "--output", "count", "--limit", 1, "--lateness", "1s", "--late", "drop")
    assert code == 0
    assert [json.loads(line)["query"] for line in out.splitlines()] == ["inner/longest", "late"]
    assert "0 late events dropped" in err
    backwards = EVENTS.take(pa.array([6, 5, 4, 3, 2, 1, 0]))
    pq.write_table(backwards, "events.parquet")
    code, out, _ = piped(*ASKED, "--sort", "-o", "-")
    assert code == 0
    assert len(out.splitlines()) == 10


def test_json_has_the_totals_of_each_query(cli):
    code, out, err = cli(*ASKED, "--json", "--limit", 3)
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert said["queries"] == {
        "inner/longest": {"output": "positions", "n_rows": 3, "n_matches": 3, "limit_reached": True},
        "late": {"output": "positions", "n_rows": 3, "n_matches": 3, "limit_reached": True},
        "never": {"output": "positions", "n_rows": 0, "n_matches": 0, "limit_reached": False},
    }
    assert (said["n_rows"], said["n_matches"], said["limit_reached"], said["notes"]) == (6, 6, False, [])


def test_outputs_of_several_kinds_are_told_apart(cli):
    write({"never": "SELECT MAX(A.price) AS top FROM S WHERE A+ WITHIN 1 SECONDS"})
    code, out, err = cli(*ASKED)
    assert code == 0
    assert "found 10 matches and 4 rows of measures\n" in out
    assert err.startswith("7 rows, 10 matches and 4 rows of measures of 3 queries, ")
    assert json.loads(cli(*ASKED, "--json")[1])["output"] is None


def test_notes_name_their_query(cli):
    write({"never": "SELECT * FROM S WHERE A ; Bs"})
    assert "note: never: no event has the type 'Bs'; did you mean 'B'?" in cli(*ASKED)[2]


def test_all_wrong_queries_are_told_with_their_files(cli):
    write({"late": "SELECT * FROM S WHERE A ;", "never": "SELECT x, y FROM S WHERE A"})
    for command in ASKED, ["check", "--queries", "rules", "--time-column", "ts"]:
        code, out, err = cli(*command)
        assert (code, out.replace("note", "")) == (1, out)
        assert re.findall(r"^error: (.*?):", err, re.MULTILINE) == ["rules/late.ceql", *2 * ["rules/never.ceql"]]
        assert err.count("^") == 3
    assert err.endswith("\n3 errors in 2 of 3 queries\n")
    _, _, err = cli(*ASKED, "--json")
    assert [error["file"] for error in json.loads(err)["errors"]] == ["rules/late.ceql", *2 * ["rules/never.ceql"]]


def test_all_queries_that_do_not_fit_the_events_are_told(cli):
    write(
        {"late": "SELECT * FROM S WHERE A FILTER A[pice > 1]", "never": "SELECT * FROM S WHERE A FILTER A[prize > 1]"}
    )
    code, _, err = cli(*ASKED)
    assert code == 1
    assert re.findall(r"^error: (.*?):.*'(\w+)'$", err, re.MULTILINE) == [
        ("rules/late.ceql", "pice"),
        ("rules/never.ceql", "prize"),
    ]
    code, _, err = cli(*ASKED, "--output", "measures")
    assert (code, err.count("error: rules/")) == (1, 3)


def test_columns_of_two_types_do_not_go_to_one_file(cli):
    write({"late": "SELECT COUNT(A) AS x FROM S WHERE A", "never": "SELECT AVG(A.price) AS x FROM S WHERE A"})
    code, out, err = cli(*ASKED, "-o", "out.csv")
    assert (code, out) == (1, "")
    assert "column 'x' of the results is int64 in query 'late' and double in query 'never'\nhint: " in err
    assert sorted(os.listdir()) == ["events.parquet", "rules"]
    assert cli(*ASKED)[0] == 0  # each by itself is fine


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["run", "--queries", "rules"], 2, "Missing argument 'EVENTS...'"),
        (["run"], 2, "Missing argument 'QUERY'"),
        (["run", "q.ceql", "events.parquet", "--queries", "rules"], 2, "'q.ceql' is a query"),
        (["run", "SELECT * FROM S WHERE A", "events.parquet", "--queries", "rules"], 2, "all arguments are EVENTS"),
        (["run", "--queries", "none", "events.parquet"], 1, "none: expected a folder of query files"),
        (["run", "--queries", "rulez", "events.parquet"], 1, "found nothing\nhint: did you mean 'rules'?"),
        (["run", "--queries", "events.parquet", "events.parquet"], 1, "found a file\nhint: give its folder"),
        (["run", "--queries", "rules.zip", "events.parquet"], 1, "found a file\nhint: unpack the archive"),
        (["run", "--queries", ".hidden", "events.parquet"], 1, ".hidden: expected query files (*.ceql, *.eql, "),
        ([*ASKED, "-o", "rules/late.ceql", "--format", "csv"], 1, "would be overwritten"),
        (
            ["check", "--queries", "rules", "gone.parquet", "--time-column", "ts"],
            1,
            "error: gone.parquet: no such file",
        ),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_wrong_arguments_are_told(cli, args, code, message):
    Path(".hidden").mkdir()
    Path("rules.zip").write_bytes(b"PK")
    found, _, err = cli(*args)
    assert found == code
    assert message in err
    assert cli("run", "--queries", "rules", "events.parquet", "--time-column", "ts", "--threads", 2)[0] == 0


def test_the_device_is_that_of_all_queries(cli, monkeypatch):
    monkeypatch.setattr("cer_gpu.predicates.placement.missing", lambda: "there is none\nhint: get one")
    code, _, err = cli(*ASKED, "--device", "cuda")
    assert (code, err) == (1, "error: device='cuda' needs a GPU, and none can be used: there is none\nhint: get one\n")


def test_an_error_of_the_events_is_told_once(cli):
    code, _, err = cli("check", "--queries", "rules", "gone.parquet", "--time-column", "ts")
    assert (code, err.count("error: ")) == (1, 1)
    assert err.endswith("\n1 error\n")


def test_check_says_that_all_queries_fit(cli):
    code, out, err = cli("check", "--queries", "rules", "events.parquet", "--time-column", "ts")
    assert (code, err) == (0, "")
    assert "\nok: the 3 queries fit events.parquet, and read type, ts, price\n" in out
    said = json.loads(cli("check", "--queries", "rules", "--time-column", "ts", "--json")[1])
    assert said["ok"]
    assert list(said["queries"]) == ["inner/longest", "late", "never"]


def test_very_many_complex_events_of_a_folder_are_counted(cli, monkeypatch):
    types = np.array(["A", "B", "C"])[np.random.default_rng(1).integers(0, 3, 400)]
    pq.write_table(pa.table({"type": types, "ts": pa.array(np.arange(400), pa.timestamp("ms"))}), "events.parquet")
    write(dict.fromkeys(RULES, "SELECT * FROM S WHERE A ; B ; C"))
    listed = cli(*ASKED)
    monkeypatch.setattr(run_command, "MANY", 1)
    counts = []
    monkeypatch.setattr(
        result_streams.CommandEvaluation, "counting", counted(result_streams.CommandEvaluation.counting, counts)
    )
    found = cli(*ASKED)
    assert counts == ["count"]
    assert found[:2] == listed[:2]


def counted(counting, outputs):
    def made(self):
        found = counting(self)
        outputs.append(found.options.output)
        return found

    return made


def test_ctrl_c_keeps_the_table_and_the_summary():
    types = np.array(["A", "B", "C"])[np.random.default_rng(1).integers(0, 3, 100_000)]
    pq.write_table(pa.table({"type": types, "ts": pa.array(np.arange(100_000), pa.timestamp("ms"))}), "events.parquet")
    write(dict.fromkeys(RULES, "SELECT * FROM S WHERE A ; B ; C"))
    before = (
        "import cer_gpu.cli.preview as p; take = p.QueryTable.take;"
        "p.QueryTable.take = lambda *given: (print('taken', file=sys.stderr, flush=True), take(*given))[1]"
    )
    process = start(*ASKED, "--output", "bindings", stdout=subprocess.PIPE, stderr=subprocess.PIPE, before=before)
    while process.stderr.readline() != "taken\n":
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert code == 130
    assert re.search(r"[123] of 3 queries found [\d,]+ rows of bindings so far\n$", out)
    assert re.search(r"\n0 rows, [\d,]+ rows of bindings of 3 queries, .*\ninterrupted\n$", f"\n{err}")
