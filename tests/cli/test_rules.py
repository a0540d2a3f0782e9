"""``cer-gpu run --queries FOLDER`` of rules: alerts, near misses, and rules that are wrong."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from command_line import EVENTS

from cer_gpu.rules import load

PAIR = """
[rule]
name = "A, then B"
severity = "high"
language = "ceql"
query = '''
SELECT * FROM S
WHERE A ; B WITHIN 3 SECONDS
'''
[[rule.threat]]
tactic = { name = "Impact" }
technique = [{ id = "T1" }]
"""
CHAIN = """
[rule]
name = "B, C, A"
severity = "critical"
language = "ceql"
query = '''SELECT * FROM S WHERE B ; C ; A WITHIN 3 SECONDS'''
"""
ASKED = ["run", "--queries", "rules", "events.parquet", "--time-column", "ts"]


@pytest.fixture(autouse=True)
def rules(here):
    """Write the folder of rules."""
    write({"pair.toml": PAIR, "chain.toml": CHAIN, "one.ceql": "SELECT * FROM S WHERE C"})


def write(files):
    for name, text in files.items():
        path = Path("rules", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def expected():
    return load("rules", time_column="ts").alerts(EVENTS)


def test_alerts_are_shown_by_level_and_rule(cli):
    code, out, err = cli(*ASKED)
    assert code == 0
    lines = [line.split("  ") for line in out.splitlines()]
    shown = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert shown[0] == ["level", "rule", "alerts", "first end", "last end"]
    assert shown[2:4] == [
        ["high", "A, then B", "6", "1970-01-01T00:00:01", "1970-01-01T00:00:04.500"],
        ["one", "1", "1970-01-01T00:00:04", "1970-01-01T00:00:04"],
    ]
    assert out.endswith("2 of 3 rules raised 7 alerts: 6 high, 1 no level\n")
    assert err.startswith("7 rows, 7 alerts of 3 queries, ")


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "jsonl"])
def test_alerts_are_written_in_the_order_of_their_ends(cli, ending):
    code, out, _ = cli(*ASKED, "-o", f"out.{ending}")
    assert (code, out) == (0, "")
    want = expected()
    if ending in ("parquet", "arrow"):
        read = pq.read_table("out.parquet") if ending == "parquet" else pa.ipc.open_file("out.arrow").read_all()
        assert read.to_pylist() == want.to_pylist()
        assert read.schema.equals(want.schema)
        return
    if ending == "csv":
        rows = pa_csv.read_csv("out.csv").to_pylist()
        assert json.loads(rows[0]["events"])[0]["type"] == "A"
    else:
        rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [(row["rule"], row["start"], row["end"]) for row in rows] == [
        (row["rule"], row["start"], row["end"]) for row in want.to_pylist()
    ]


def test_the_summary_has_the_alerts_of_each_level(cli):
    said = json.loads(cli(*ASKED, "--json")[1])
    assert said["levels"] == {"high": 6, "no level": 1}
    assert said["queries"]["A, then B"]["n_rows"] == 6
    assert said["output"] == "alerts"


def test_every_level_has_some_of_the_rows_that_are_shown(cli):
    for number in range(60):
        level = ("high", "medium", "low")[number // 20]
        rule = PAIR.replace("A, then B", f"rule {number:02}").replace("high", level)
        write({f"{number}.toml": rule})
    Path("rules/pair.toml").unlink()
    out = cli(*ASKED)[1]
    shown = [line.split()[0] for line in out.splitlines() if " rule " in line and "1970" in line]
    assert [shown.count(level) for level in ("high", "medium", "low")] == [20, 14, 5]
    assert "\nand 21 more rules: 6 medium, 15 low (-o FILE has all alerts)\n" in out
    assert out.endswith("61 of 62 rules raised 361 alerts: 120 high, 120 medium, 120 low, 1 no level\n")


def test_no_alerts_are_told(cli):
    Path("rules/one.ceql").unlink()
    Path("rules/pair.toml").unlink()
    assert cli(*ASKED)[1] == "no alerts of 1 rule\n"


def test_folders_without_levels_have_the_outputs_of_queries(cli):
    Path("rules/pair.toml").unlink()
    Path("rules/chain.toml").unlink()
    assert "1 of 1 query found 1 match" in cli(*ASKED)[1]
    assert "1 of 1 rule raised 1 alert" in cli(*ASKED, "--output", "alerts")[1]
    code, _, err = cli("run", "SELECT * FROM S WHERE A", "events.parquet", "--output", "alerts")
    assert (code, "alerts need rules" in err) == (2, True)


def test_near_misses_come_first(cli):
    code, out, _ = cli(*ASKED, "--output", "funnel")
    assert code == 0
    lines = [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in out.splitlines()]
    assert lines[0] == ["rule", "level", "starts", "reached", "step", "so far", "stopped by"]
    assert lines[2] == ["B, C, A", "critical", "3", "2 of 3", "C", "2", "window 1, end 1"]
    assert lines[3][:4] == ["A, then B", "high", "3", "2 of 2"]
    assert lines[4] == ["of 2 rules with several steps, 2 started and 1 completed; 1 rule with one step"]


def test_the_steps_of_each_rule_are_written(cli):
    assert cli(*ASKED, "--output", "funnel", "-o", "out.parquet")[0] == 0
    assert set(pq.read_table("out.parquet")["query"].to_pylist()) == {"A, then B", "B, C, A", "one"}


def test_rules_without_steps_are_set_aside(cli):
    write({"max.ceql": "SELECT MAX * FROM S WHERE A+"})
    code, _, err = cli(*ASKED, "--output", "funnel")
    assert code == 0
    assert "note: 1 rule without a sequence of steps: max\n" in err


def test_all_wrong_rules_end_a_run_unless_they_are_left_out(cli):
    write(
        {
            "bad.toml": PAIR.replace("WITHIN 3 SECONDS", "WITHIN"),
            "broken.toml": "[rule",
            "gone.ceql": "SELECT * FROM S WHERE A FILTER A[no > 1]",
        }
    )
    for asked in ASKED, ["check", "--queries", "rules", "events.parquet", "--time-column", "ts"]:
        code, _, err = cli(*asked)
        assert code == 1
        assert "error: rules/bad.toml:8: the query ends too early" in err
        assert "error: rules/broken.toml: is not TOML: " in err
    assert "error: rules/gone.ceql: the events have no column 'no'" in err
    assert err.endswith("\n3 errors in 3 of 6 queries\n")
    code, out, err = cli(*ASKED, "--skip-invalid")
    assert code == 0
    assert "2 of 3 rules raised 7 alerts" in out
    assert "note: 3 rules skipped because of errors (cer-gpu check lists them all)\n" in err
    assert "note: skipped: gone: the events have no column 'no'\n" in err
    assert "note: skipped: rules/broken.toml: is not TOML: " in err


def test_a_folder_whose_rules_are_all_wrong_is_an_error(cli):
    for name in "pair.toml", "chain.toml", "one.ceql":
        write({name: "[rule"})
    code, _, err = cli(*ASKED, "--skip-invalid")
    assert (code, err.count("error: ")) == (1, 3)


def test_rules_in_other_languages_are_told_once(cli):
    write({f"k{i}.toml": "[rule]\nlanguage = 'kuery'\nquery = 'x:y'" for i in range(3)})
    said = "note: 3 skipped, not rules in a supported language: 3 kuery\n"
    assert said in cli(*ASKED)[2]
    assert said in cli("check", "--queries", "rules", "events.parquet", "--time-column", "ts")[1]
    assert json.loads(cli("check", "--queries", "rules", "--time-column", "ts", "--json")[1])["skipped_files"] == {
        "kuery": 3
    }


def test_a_file_of_a_rule_is_a_query(cli):
    code, out, _ = cli("run", "rules/pair.toml", "events.parquet", "--time-column", "ts")
    assert (code, out.endswith("\n6 matches\n")) == (0, True)
    assert "A" in cli("explain", "rules/pair.toml", "--time-column", "ts")[1]
    write({"k.toml": "[rule]\nlanguage = 'kuery'\nquery = 'x:y'"})
    code, _, err = cli("check", "rules/k.toml")
    assert (code, err) == (1, "error: rules/k.toml: expected a query, found none in a supported language: kuery\n")
