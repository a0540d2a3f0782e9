"""The command line over folders with rules of Sigma, and one such rule as a query."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cer_gpu import cache
from cer_gpu.preparing import over_schema, sets
from cer_gpu.resolution.resolved_query import SchemaDependentQuery

pytest.importorskip("sigma.rule")

WHOAMI = r"""
title: Whoami
level: high
tags: [attack.discovery, attack.t1033]
logsource: {product: windows, category: process_creation}
detection:
  selection: {Image|endswith: '\whoami.exe', Company: Microsoft}
  condition: selection
"""
LOGON = """
title: Failed logon
level: low
logsource: {product: windows, service: security}
detection:
  selection: {EventID: 4625, TargetUserName: ann}
  filter: {Company: x}
  condition: selection and not filter
"""
EVENTS = pa.table(
    {
        "EventID": [1, 4625, 4625, 1],
        "Channel": ["Microsoft-Windows-Sysmon/Operational", "Security", "Security", "Security"],
        "exe": [r"C:\Windows\WHOAMI.exe", None, None, r"C:\whoami.exe"],
        "TargetUserName": [None, "ann", "ben", None],
        "ts": pa.array(range(4), pa.timestamp("s")),
    }
)
ASKED = [
    "--queries",
    "rules",
    "events.parquet",
    "--time-column",
    "ts",
    "--pipeline",
    "windows",
    "--columns",
    "Image=exe",
]


@pytest.fixture(autouse=True)
def rules(here):
    """Write the folder of rules."""
    pq.write_table(EVENTS, "events.parquet")
    write(
        {
            "a/whoami.yml": WHOAMI,
            "logon.yml": LOGON,
            "failed.ceql": "SELECT * FROM S WHERE * AS e FILTER e[EventID = 4625]",
        }
    )


def write(files):
    for name, text in files.items():
        path = Path("rules", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(out):
    return [line.split()[:3] for line in out.splitlines() if line.startswith((" high", " low", "  "))]


def test_rules_of_all_languages_raise_alerts(cli):
    write({"ci.yml": "on: push\n"})
    code, out, err = cli("run", *ASKED)
    assert code == 0, err
    assert "2 of 3 rules raised 3 alerts: 1 low, 2 no level\n" in out
    assert "note: 3 rules: 2 Sigma, 1 CEQL\n" in err
    assert "note: 1 skipped, not rules in a supported language: 1 YAML without a detection\n" in err
    assert "note: 2 of 3 rules name fields that the events do not have, read as null: Company (2); by " in err
    (note,) = [line for line in err.splitlines() if "read as null" in line]
    assert sorted(note.partition("; by ")[2].split(", ")) == ["Failed logon", "Whoami"], note


def test_a_run_without_a_pipeline_notes_that_log_sources_are_not_tested(cli):
    note = "the log sources of 2 Sigma rules are not tested: without --pipeline, a condition applies to all events"
    code, out, err = cli("run", "--queries", "rules", ASKED[2], "--json")
    assert code == 0, err
    assert json.loads(out)["notes"].count(note) == 1
    assert not [each for each in json.loads(cli("run", *ASKED, "--json")[1])["notes"] if "not tested" in each]
    code, out, _ = cli("run", "rules/logon.yml", ASKED[2], "--json")
    assert note.replace("2 Sigma rules", "1 Sigma rule") in json.loads(out)["notes"]


def test_check_report_and_progress_take_them_too(cli):
    code, out, _ = cli("check", *ASKED)
    assert code == 0
    assert "note: 3 rules: 2 Sigma, 1 CEQL\n" in out
    code, _, err = cli("report", *ASKED, "-o", "alerts.html")
    assert (code, "3 alerts of 3 queries" in err) == (0, True)
    assert '<h2 class="level">low</h2>' in Path("alerts.html").read_text()
    assert cli("run", *ASKED, "--output", "funnel")[0] == 0


def test_a_page_of_alerts_fits_no_kept_rule_anew_that_finds_nothing(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "WORTH_SECONDS", 0)
    for module in (sets, over_schema):
        monkeypatch.setattr(module, "FROM_QUERIES", 1)
    write({f"{i}.yml": WHOAMI.replace("whoami.exe", f"{i}.exe").replace("Whoami", f"R{i}") for i in range(20)})
    first = cli("report", *ASKED, "-o", "alerts.html")
    fitted = []
    over = SchemaDependentQuery.bind
    monkeypatch.setattr(SchemaDependentQuery, "bind", lambda query, schema: fitted.append(query) or over(query, schema))
    again = cli("report", *ASKED, "-o", "alerts.html")
    assert (first[0], first[2]) == (again[0], again[2])
    assert "3 alerts of 23 queries" in again[2]
    assert len(fitted) <= 3


def test_wrong_rules_are_told_or_left_out(cli):
    write({"wrong.yml": LOGON.replace("and not filter", "and not nothing"), "open.yml": "title: ["})
    for command in "run", "check":
        code, _, err = cli(command, *ASKED)
        assert code == 1
        assert "error: rules/wrong.yml: " in err
        assert "error: rules/open.yml: " in err
    said = json.loads(cli("check", *ASKED, "--json")[1])
    assert (said["ok"], said["queries"]["Whoami"]["ok"]) == (False, True)
    code, out, err = cli("run", *ASKED, "--skip-invalid")
    assert (code, "note: 2 rules skipped because of errors" in err) == (0, True)
    assert "2 of 3 rules raised 3 alerts" in out


def test_a_wrong_correlation_does_not_let_its_rules_loose(cli):
    many = "correlation: {type: event_count, rules: [failed], timespan: 5x, condition: {gte: 10}}"
    write({"logon.yml": f"name: failed{LOGON}", "many.yml": f"title: Many\n{many}"})
    code, out, err = cli("run", *ASKED, "--skip-invalid")
    assert (code, "Failed logon" in out) == (0, False)
    assert "note: 'Failed logon' gives no results: the correlation 'Many' has no text\n" in err
    assert "note: skipped: rules/many.yml: Timespan '5x' is invalid.\n" in err
    code, _, err = cli("run", *ASKED)
    assert (code, "error: rules/many.yml: " in err) == (1, True)


def test_a_field_in_another_letter_case_is_named_with_the_nearest(cli):
    write({"a/whoami.yml": WHOAMI.replace("Company", "targetusername")})
    for command in "run", "check":
        code, out, err = cli(command, *ASKED)
        assert (code, "note: targetusername: did you mean TargetUserName?\n" in out + err) == (0, True)
    write({"a/whoami.yml": WHOAMI.replace("process_creation", "proces_creation")})
    code, _, err = cli("run", *ASKED)
    assert (code, "hint: did you mean category 'process_creation'?" in err) == (1, True)


def test_an_error_of_yaml_names_its_document_and_line(cli):
    write({"two.yml": WHOAMI + "---\ntitle: b\ndetection: {a: [}\n"})
    code, _, err = cli("check", *ASKED)
    assert (code, "error: rules/two.yml: document 2, line 11: " in err) == (1, True), err


def test_a_rule_is_a_query(cli):
    code, out, err = cli(
        "run", "rules/logon.yml", "events.parquet", "--pipeline", "windows", "--output", "ends", "-o", "-"
    )
    assert (code, [json.loads(line)["end"] for line in out.splitlines()]) == (0, [1]), err
    code, out, _ = cli("explain", "rules/logon.yml", "--pipeline", "windows")
    assert (code, "EventID = 4625" in out) == (0, True)
    write({"two.yml": WHOAMI + "---" + LOGON})
    code, _, err = cli("check", "rules/two.yml")
    assert (code, "expected a query, found 2 rules\nhint: --queries takes all rules of a folder" in err) == (1, True)


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (["--queries", "rules", "--pipeline", "window"], 1, "there is no pipeline 'window'"),
        (["--queries", "rules", "--columns", "Image"], 2, "--columns: expected FIELD=COLUMN, got 'Image'"),
        (
            ["SELECT * FROM S WHERE A", "--pipeline", "windows"],
            2,
            "options of Sigma rules (*.yml), and QUERY is not one",
        ),
    ],
)
def test_options_that_are_wrong_are_told(cli, asked, code, said):
    got, _, err = cli("check", *asked)
    assert (got, said in err) == (code, True), err


def test_columns_are_given_in_pairs_together_or_one_by_one(cli):
    write({"exe.yml": WHOAMI.replace("Image|endswith", "a").replace("Company", "b")})
    for columns in (["--columns", "a=exe, b=Channel"], ["--columns", "a=exe", "--columns", "b=Channel"]):
        said = json.loads(cli("check", "rules/exe.yml", "events.parquet", *columns, "--json")[1])
        assert said["columns"] == ["Channel", "exe"]
