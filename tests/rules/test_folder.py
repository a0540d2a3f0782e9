"""Rules of a folder: their names, what their files say of them, and the files that are no rules."""

import pytest

from cer_gpu.errors import OptionError, QueryError
from cer_gpu.rule import urgency
from cer_gpu.rules import LEVELS, Rule, read_folder
from cer_gpu.rules.folder import skipped_files_note

QUERY = "SELECT * FROM S WHERE A"
DETECTION = '''
[metadata]
maturity = "production"

[transform]
query = "not the rule's"

[rule]
name = "Guessed password"
severity = "high"
rule_id = "4f-1"
risk_score = 47
language = "eql"
type = "eql"
tags = ["Domain: Endpoint", "OS: Windows"]
query = """
any where true
  and false
"""

[[rule.threat]]
framework = "MITRE ATT&CK"
[rule.threat.tactic]
id = "TA0006"
name = "Credential Access"
[[rule.threat.technique]]
id = "T1110"
[[rule.threat.technique.subtechnique]]
id = "T1110.001"
[[rule.threat.technique.subtechnique]]
id = "T1110.003"

[[rule.threat]]
[rule.threat.tactic]
name = "Lateral Movement"
[[rule.threat.technique]]
id = "T1110"
'''
BEHAVIOR = """
[rule]
name = "Copied by cat"
id = "25ae"
query = '''sequence [a where true] [b where true]'''

[[threat]]
[threat.tactic]
name = "Exfiltration"
[[threat]]
[threat.tactic]
id = "TA0011"
"""


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_texts_have_the_names_of_their_files_without_the_endings(tmp_path):
    write(tmp_path, dict.fromkeys(["b.ceql", "a.sql", "inner/c.eql", "notes.txt", "d.ceql.bak"], QUERY))
    found = read_folder(tmp_path)
    assert list(found.rules) == ["a", "b", "inner/c"]
    assert [rule.language for rule in found.rules.values()] == [None, None, "eql"]
    assert found.rules["b"] == Rule("b", QUERY, file=str(tmp_path / "b.ceql"))
    assert (found.skipped_files, found.errors) == ({}, [])


def test_rules_of_one_name_are_told_apart_by_their_files(tmp_path):
    write(tmp_path, {"a.ceql": QUERY, "a.sql": QUERY, "x.toml": BEHAVIOR, "y.toml": BEHAVIOR})
    assert list(read_folder(tmp_path).rules) == ["a", "a (a.sql)", "Copied by cat", "Copied by cat (y.toml)"]


def test_a_detection_rule_says_its_level_tags_and_techniques(tmp_path):
    write(tmp_path, {"r.toml": DETECTION})
    (rule,) = read_folder(tmp_path).rules.values()
    assert rule == Rule(
        name="Guessed password",
        text="any where true\n  and false\n",
        language="eql",
        level="high",
        tags=("Domain: Endpoint", "OS: Windows"),
        id="4f-1",
        tactics=("Credential Access", "Lateral Movement"),
        techniques=("T1110", "T1110.001", "T1110.003"),
        file=str(tmp_path / "r.toml"),
        line=17,
    )


def test_a_behavior_rule_has_its_threats_beside_it(tmp_path):
    write(tmp_path, {"r.toml": BEHAVIOR})
    (rule,) = read_folder(tmp_path).rules.values()
    assert (rule.language, rule.id, rule.level) == ("eql", "25ae", None)
    assert (rule.tactics, rule.techniques) == (("Exfiltration", "TA0011"), ())
    assert rule.line == 5


@pytest.mark.parametrize("quotes", ["'''", '"""', "'''\n", '"""\n'])
def test_an_error_is_placed_in_its_file(tmp_path, quotes):
    text = f"# a comment\n[rule]\nname = 'r'\nquery = {quotes}one\ntwo\nthree{quotes.strip()}\n"
    write(tmp_path, {"r.toml": text})
    (rule,) = read_folder(tmp_path).rules.values()
    line = text.split("\n").index("three" + quotes.strip()) + 1
    assert rule.place(QueryError("wrong", rule.text, rule.text.index("three"))) == f"{tmp_path / 'r.toml'}:{line}"
    assert rule.place(QueryError("wrong")) == str(tmp_path / "r.toml")


def test_an_error_in_a_file_that_is_a_query_needs_no_line(tmp_path):
    write(tmp_path, {"a.ceql": QUERY})
    assert read_folder(tmp_path).rules["a"].place(QueryError("wrong", QUERY, 3)) == str(tmp_path / "a.ceql")


def test_rules_in_other_languages_are_counted(tmp_path):
    others = {f"k{i}.toml": "[rule]\nlanguage = 'kuery'\nquery = 'x:y'" for i in range(3)}
    others["m.toml"] = "[rule]\ntype = 'machine_learning'\n"
    others["project.toml"] = "[project]\nname = 'no rule'\n"
    write(tmp_path, {"a.ceql": QUERY, **others})
    found = read_folder(tmp_path)
    assert list(found.rules) == ["a"]
    assert found.skipped_files == {"kuery": 3, "machine_learning": 1}
    assert skipped_files_note(found.skipped_files) == (
        "4 skipped, not rules in a supported language: 3 kuery, 1 machine_learning"
    )
    assert skipped_files_note({}) is None


def test_a_folder_of_other_languages_alone_is_refused_with_their_number(tmp_path):
    write(tmp_path, {"k.toml": "[rule]\nlanguage = 'kuery'\nquery = 'x:y'"})
    with pytest.raises(OptionError, match="found only 1 kuery"):
        read_folder(tmp_path)


@pytest.mark.parametrize(("name", "message"), [("none", "found nothing"), ("file", "found a file"), ("", "found none")])
def test_a_folder_without_rules_is_refused(tmp_path, name, message):
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match=message):
        read_folder(tmp_path / name)


def test_files_that_cannot_be_read_are_told_with_the_rest(tmp_path):
    write(tmp_path, {"a.ceql": QUERY, "b.toml": "[rule", "c.toml": "[rule]\nlanguage = 'eql'\nquery = 3"})
    (tmp_path / "d.ceql").write_bytes(b"\xff")
    found = read_folder(tmp_path)
    assert list(found.rules) == ["a"]
    messages = [str(error).removeprefix(str(tmp_path)) for _, error in found.errors]
    assert messages[0].startswith("/b.toml: is not TOML: ")
    assert messages[1] == "/c.toml: expected rule.query, a string, got int"
    assert messages[2].startswith("/d.ceql: is not text in UTF-8")
    with pytest.raises(OptionError, match="is not TOML"):
        found.checked()


def test_levels_are_ranked_by_urgency():
    assert sorted([None, "odd", *LEVELS[::-1]], key=urgency) == [*LEVELS, "odd", None]
