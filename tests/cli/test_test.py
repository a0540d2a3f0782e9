"""``cer-gpu test FOLDER``: its lines, its exit codes, and JUnit XML."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("yaml")
EVENTS = "events: [{type: A, x: 1}, {type: B, x: 2}, {type: A, x: 3}]\n"
FILES = {
    "pair.ceql": "SELECT * FROM S WHERE A ; B",
    "sum.ceql": "SELECT SUM(A.x) AS total FROM S WHERE A+ ",
    "pair.test.yml": EVENTS + "expect: {positions: [[0, 1]], count: 1, rows: [{start: 0}]}\n",
}


@pytest.fixture(autouse=True)
def rules(here):
    """Write the folder of rules."""
    write(FILES)


def write(files):
    for name, text in files.items():
        path = Path("rules", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_cases_that_pass(cli):
    code, out, err = cli("test", "rules")
    assert code == 0
    assert out.splitlines()[0] == "ok     pair.test.yml: case 1 [pair]"
    assert out.splitlines()[1].startswith("1 case in 1 file: 1 passed, ")
    assert err == "note: 1 rule without a test case: sum\n"


def test_one_file_of_cases(cli):
    code, out, err = cli("test", "rules/pair.test.yml")
    assert (code, err) == (0, "")
    assert out.startswith("ok     pair.test.yml: case 1 [pair]\n")


def test_what_differs_is_told(cli):
    cases = (
        "cases:\n- name: sums\n  expect: {rows: [{total: 1}, {total: 4}, {total: 2}]}\n- {name: none, expect: none}\n"
    )
    write({"sum.test.yml": EVENTS + cases})
    code, out, _ = cli("test", "rules")
    assert code == 1
    assert out.splitlines()[1:-1] == [
        "FAILED sum.test.yml:3: sums [sum]",
        "         expected other values",
        "           missing: total = 2",
        "           unexpected: total = 3",
        "FAILED sum.test.yml:5: none [sum]",
        "         expected no match, got 3 matches",
        "           got: start = 0, end = 0, total = 1",
        "           got: start = 0, end = 2, total = 4",
        "           got: start = 2, end = 2, total = 3",
    ]
    assert out.splitlines()[-1].startswith("3 cases in 2 files: 1 passed, 2 failed, ")


ERRORS = {
    "rule: pare\n" + EVENTS: "expected a rule, found none called 'pare'",
    "rule: pare.ceql\n" + EVENTS: "hint: did you mean 'pair.ceql'?",
    EVENTS: "expected the rule of the case, found no wrong{.ceql",
    "rule: pair\nevents: nowhere.csv\n": "there is no rules/nowhere.csv",
    "rule: pair\nevents: [{x: 1}]\n": "'type'",
    "rule: bad.ceql\n" + EVENTS: "rules/bad.ceql: expected",
    "rule: pair\noptions: {time_unit: days}\n" + EVENTS: "time_unit must be one of",
    "rule: pair\noutput: bindngs\n" + EVENTS: "did you mean 'bindings'?",
    "rule: sum\n" + EVENTS.replace("x: 1", "x: a").replace("x: 2", "x: b").replace("x: 3", "x: c"): "SUM",
}


@pytest.mark.parametrize("text", ERRORS)
def test_cases_that_cannot_be_run(cli, text):
    write({"wrong.test.yml": text + "expect: none\n", "bad.ceql": "SELECT * FROM S WHERE A ;; B"})
    code, out, _ = cli("test", "rules")
    assert code == 1
    assert "ERROR  wrong.test.yml:1: case 1" in out
    assert ERRORS[text] in out
    assert "2 cases in 2 files: 1 passed, 1 with an error" in out


def test_a_column_that_the_rows_have_not_is_an_error(cli):
    write({"pair.test.yml": EVENTS + "expect: {rows: [{strat: 0}]}\n"})
    code, out, _ = cli("test", "rules")
    assert code == 1
    assert "expected the column 'strat' in the results" in out
    assert "hint: did you mean 'start'?; other outputs have others: output: bindings or " in out


def test_a_pattern_names_several_rules(cli):
    write({"all.test.yml": "rule: '*'\nevents: [{type: C, x: 1}]\nexpect: none\n"})
    code, out, err = cli("test", "rules")
    assert code == 0
    assert out.splitlines()[:2] == ["ok     all.test.yml: case 1 [pair]", "ok     all.test.yml: case 1 [sum]"]
    assert err == ""


def test_options_of_the_command_line_and_of_cases(cli):
    text = "rule: timed.ceql\nevents: [{kind: A, at: 0}, {kind: B, at: 5}]\n"
    options = "options: {type_column: kind, time_column: at, time_unit: s}\n"
    write({"timed.ceql": "SELECT * FROM S WHERE A ; B WITHIN 3 SECONDS"})
    write({"timed.test.yml": text + options + "expect: none\n"})
    assert cli("test", "rules/timed.test.yml")[0] == 0
    write({"timed.test.yml": text + "expect: none\n"})
    assert cli("test", "rules/timed.test.yml")[0] == 1
    asked = ("--type-column", "kind", "--time-column", "at", "--time-unit", "s")
    assert cli("test", "rules/timed.test.yml", *asked)[0] == 0


def test_events_in_files_beside_the_case(cli):
    Path("rules/e.jsonl").write_text('{"type": "A", "x": 1}\n{"type": "B", "x": 1}\n')
    write({"pair.test.yml": "events: e.jsonl\nexpect: {positions: [[0, 1]]}\n"})
    assert cli("test", "rules")[0] == 0


def test_a_folder_without_cases(cli):
    Path("rules/pair.test.yml").unlink()
    code, _, err = cli("test", "rules")
    assert (code, err) == (1, "error: rules: expected rule tests (*.test.yml, *.test.yaml), found none\n")


def test_cases_are_no_rules(cli):
    pytest.importorskip("sigma")
    code, out, _ = cli("check", "--queries", "rules")
    assert (code, out.splitlines()[-1]) == (0, "ok: the 2 queries have no errors")


WHOAMI = r"""
title: Whoami
logsource: {product: windows, category: process_creation}
detection:
  selection: {Image|endswith: '\whoami.exe'}
  condition: selection
"""
WHOAMI_CASES = r"""
rule: Whoami
options: {pipelines: [windows], columns: {Image: path}}
events:
  - {EventID: 1, Channel: Microsoft-Windows-Sysmon/Operational, path: 'C:\Windows\System32\WHOAMI.exe'}
  - {EventID: 3, Channel: Microsoft-Windows-Sysmon/Operational, path: 'C:\Windows\System32\whoami.exe'}
expect: {positions: [[0]]}
"""


def test_rules_of_sigma(cli):
    pytest.importorskip("sigma")
    write({"whoami.yml": WHOAMI, "whoami.test.yml": WHOAMI_CASES})
    code, out, _ = cli("test", "rules")
    assert code == 0
    assert "ok     whoami.test.yml: case 1 [Whoami]" in out.splitlines()
    write({"whoami.test.yml": WHOAMI_CASES.replace("[windows]", "[nowhere]")})
    code, out, _ = cli("test", "rules")
    assert code == 1
    assert "nowhere" in out


def test_a_misspelt_column_is_a_note(cli):
    write(
        {
            "start.eql": 'process where process.name == "x" and process.parent.name != "y"',
            "start.test.yml": "events: [{event.category: process, process.nmae: x}]\nexpect: none\n",
        }
    )
    code, _, err = cli("test", "rules/start.test.yml")
    assert code == 0
    assert err == "note: start: the events of a case have no 'process.name': did you mean 'process.nmae'?\n"


def test_wrong_usage(cli):
    assert cli("test")[0] == 2


def test_without_pyyaml_the_error_says_what_to_install(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    code, out, _ = cli("test", "rules")
    assert code == 1
    assert "rule tests need PyYAML" in out
    assert "hint: pip install 'cer-gpu[yaml]'" in out


# ---- JUnit XML: the elements and attributes of the schema of Jenkins' plugin "xUnit", junit-10.xsd -----------------

ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "disabled", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname", "id"},
    "testcase": {"name", "assertions", "time", "classname", "status"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error"},
    "failure": set(),
    "error": set(),
}


def test_junit_xml(cli):
    cases = "cases: [{name: 'a <b> \"c\" \u00e9', expect: none}, {rule: nowhere, expect: none}]\n"
    write({"sum.test.yml": EVENTS + cases})
    Path("junit.xml").write_text("before")
    code, _, _ = cli("test", "rules", "--junit", "junit.xml")
    assert code == 1
    root = ElementTree.parse("junit.xml").getroot()
    for node in root.iter():
        assert set(node.attrib) <= ATTRIBUTES[node.tag]
        assert {child.tag for child in node} <= CHILDREN[node.tag]
        float(node.get("time", 0))
    assert [root.get(name) for name in ("tests", "failures", "errors")] == ["3", "1", "1"]
    pair, own = root
    assert (pair.get("name"), own.get("name")) == ("pair.test.yml", "sum.test.yml")
    assert [own.get(name) for name in ("tests", "failures", "errors")] == ["2", "1", "1"]
    failed, wrong = own
    assert failed.get("name").startswith('a <b> "c" \u00e9 [sum]')
    assert failed[0].tag == "failure"
    assert failed[0].get("message") == "expected no match, got 3 matches"
    assert "rules/sum.test.yml:2" in failed[0].text
    assert wrong[0].tag == "error"
    assert list(pair[0]) == []


def test_control_characters_do_not_break_the_xml(cli):
    write({"sum.test.yml": 'events: [{type: A, x: 1}]\nname: "bell \\x07"\nexpect: none\n'})
    cli("test", "rules", "--junit", "junit.xml")
    names = [case.get("name") for case in ElementTree.parse("junit.xml").iter("testcase")]
    assert names == ["case 1 [pair]", r"bell \x07 [sum]"]


def test_a_junit_file_that_cannot_be_written(cli):
    code, _, err = cli("test", "rules", "--junit", "nowhere/junit.xml")
    assert code == 1
    assert err.startswith("error: nowhere/junit.xml: cannot be written: No such file")
