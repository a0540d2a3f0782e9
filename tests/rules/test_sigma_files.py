"""Rules of Sigma in folders: what they say of themselves, rules of other files that they need, and other YAML."""

import uuid

import pyarrow as pa
import pytest

from cer_gpu.errors import OptionError, QueryError
from cer_gpu.rules import load, read_folder
from cer_gpu.rules.folder import OTHER_YAML, READERS, FieldColumns, read_file, skipped_files_note
from cer_gpu.sigma import loading

pytest.importorskip("sigma.rule")

WHOAMI = r"""
title: Whoami
id: 3f1c8f5e-6a0e-4b56-8f0b-0d4d5a2c9a11
level: high
tags: [attack.discovery, attack.credential_access, attack.t1033, attack.t1059.001, attack.g0032, attack.s0039, cve.2024]
logsource: {product: windows, category: process_creation}
detection:
  selection: {Image|endswith: '\whoami.exe'}
  condition: selection
"""
FAILURE = """
title: Failed logon
name: failed
logsource: {product: windows, service: security}
detection:
  selection: {EventID: 4625}
  condition: selection
"""
MANY = """
title: Many failed logons
level: medium
correlation:
  type: event_count
  rules: [failed]
  group-by: [TargetUserName]
  timespan: 5m
  condition: {gte: 3}
"""
WORKFLOW = "on: push\njobs: {test: {steps: []}}\n"
CASES = "rule: Whoami\ncases:\n  - events: [{Image: x}]\n    positions: []\n"
EVENTS = pa.table(
    {
        "EventID": [1, 4625, 4625, 1],
        "Channel": ["Microsoft-Windows-Sysmon/Operational", "Security", "Security", "Security"],
        "Image": [r"C:\Windows\WHOAMI.exe", None, None, r"C:\whoami.exe"],
        "TargetUserName": [None, "ann", "ann", None],
        "ts": pa.array(range(4), pa.timestamp("s")),
    }
)


@pytest.fixture(autouse=True)
def none_kept(monkeypatch, tmp_path):
    """Keep nothing from one test to the next."""
    monkeypatch.setenv("CER_GPU_CACHE", str(tmp_path / "kept"))


def write(folder, files):
    for name, text in files.items():
        path = folder / "rules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "rules"


def test_a_rule_says_its_level_tags_and_techniques(tmp_path):
    folder = write(tmp_path, {"discovery/whoami.yml": WHOAMI})
    (rule,) = read_folder(folder).rules.values()
    assert (rule.name, rule.language, rule.level) == ("Whoami", "sigma", "high")
    assert rule.id == "3f1c8f5e-6a0e-4b56-8f0b-0d4d5a2c9a11"
    assert rule.tactics == ("Discovery", "Credential Access")
    assert rule.techniques == ("T1033", "T1059.001")
    assert rule.tags[-3:] == ("attack.g0032", "attack.s0039", "cve.2024")
    assert rule.file == str(folder / "discovery" / "whoami.yml")
    assert rule.text.startswith("-- Sigma: Whoami\n")


def test_rules_of_all_languages_are_one_set(tmp_path):
    folder = write(
        tmp_path,
        {
            "a.yml": WHOAMI,
            "b.ceql": "SELECT * FROM events WHERE * AS e FILTER e[EventID = 4625]",
            "c.eql": "any where EventID == 4625",
            "d.toml": "[rule]\nname = 'D'\nseverity = 'low'\nquery = 'any where EventID == 1'\n",
            "e.sql": "SELECT * FROM events MATCH_RECOGNIZE (ORDER BY ts MEASURES A.EventID AS event PATTERN (A) "
            "DEFINE A AS EventID = 1)",
        },
    )
    rules = load(folder, time_column="ts", type_column="Channel", pipelines=["windows"])
    alerts = rules.alerts(EVENTS)
    found = {name: [row["end"] for row in alerts.to_pylist() if row["rule"] == name] for name in rules}
    assert found == {"Whoami": [0], "b": [1, 2], "c": [1, 2], "D": [0, 3], "e": [None, None]}
    (alert,) = (row for row in alerts.to_pylist() if row["rule"] == "Whoami")
    assert (alert["level"], alert["techniques"]) == ("high", ["T1033", "T1059.001"])


def test_fields_are_columns_of_pipelines_and_of_names_that_are_given(tmp_path):
    folder = write(tmp_path, {"a.yml": WHOAMI})
    assert load(folder, time_column="ts").alerts(EVENTS)["end"].to_pylist() == [0, 3]
    assert load(folder, time_column="ts", pipelines="windows").alerts(EVENTS)["end"].to_pylist() == [0]
    renamed = EVENTS.rename_columns({"Image": "exe"})
    columns = {"Image": "exe"}
    assert load(folder, time_column="ts", columns=columns).alerts(renamed)["end"].to_pylist() == [0, 3]
    assert load(folder, time_column="ts").alerts(renamed).num_rows == 0
    with pytest.raises(OptionError, match="there is no pipeline 'window'"):
        read_folder(folder, FieldColumns(["window"]))


def test_other_yaml_is_passed_over_and_cases_of_tests_are_left_aside(tmp_path):
    folder = write(tmp_path, {"a.yml": WHOAMI, "w.yaml": WORKFLOW, "a.test.yml": CASES})
    found = read_folder(folder)
    assert (list(found.rules), found.errors) == (["Whoami"], [])
    assert found.skipped_files == {OTHER_YAML: 1}
    assert skipped_files_note(found.skipped_files) == (
        "1 skipped, not rules in a supported language: 1 YAML without a detection"
    )


def test_files_that_are_wrong_are_told_with_their_names(tmp_path):
    files = {
        "ok.yml": WHOAMI,
        "none.yml": WHOAMI.replace("condition: selection", "condition: other"),
        "open.yml": "title: [",
        "look.yml": WHOAMI.replace("Whoami", "Look").replace(r"Image|endswith: '\whoami.exe'", "Image|re: 'a(?=b)'"),
    }
    folder = write(tmp_path, files)
    (folder / "latin.yml").write_bytes(b"title: \xff")
    found = read_folder(folder)
    assert list(found.rules) == ["Whoami"]
    told = {str(error).removeprefix(f"{folder}/").split(":")[0] for _, error in found.errors}
    assert told == {"none.yml", "open.yml", "look.yml", "latin.yml"}
    with pytest.raises((QueryError, OptionError)):
        load(folder)
    rules = load(folder, errors="skip")
    assert (list(rules), len(rules.skipped)) == (["Whoami"], 4)


def test_titles_of_several_rules_are_told_apart(tmp_path):
    files = {"a.yml": WHOAMI, "b.yml": WHOAMI.replace("3f1c8f5e", "4f1c8f5e"), "Whoami.ceql": "SELECT * FROM S WHERE A"}
    found = read_folder(write(tmp_path, files))
    assert len(found.rules) == 3
    assert {rule.file for rule in found.rules.values()} == {str(tmp_path / "rules" / name) for name in files}


def test_a_correlation_counts_what_a_rule_of_another_file_finds(tmp_path):
    folder = write(tmp_path, {"z/failed.yml": FAILURE, "many.yml": MANY})
    rules = load(folder, time_column="ts", pipelines="windows")
    assert list(rules) == ["Many failed logons"]
    users = ["ann", "ben", "ann", "ann", "ben", "ann", "ben"]
    times = [0, 10, 20, 30, 40, 50, 330]
    columns = {"EventID": [4625] * 7, "Channel": ["Security"] * 7, "TargetUserName": users}
    alerts = rules.alerts(pa.table({**columns, "ts": pa.array(times, pa.timestamp("s"))})).to_pylist()
    assert [(each["end"], each["level"], dict(each["key"])) for each in alerts] == [
        (3, "medium", {"TargetUserName": "ann"}),
    ]
    (folder / "many.yml").write_text(MANY.replace("correlation:", "correlation:\n  generate: true"))
    assert list(load(folder, time_column="ts")) == ["Many failed logons", "Failed logon"]
    (folder / "z" / "failed.yml").unlink()
    ((_, error),) = read_folder(folder).errors
    assert f"{folder}/many.yml: " in str(error)
    assert "failed" in str(error)


def test_a_file_with_a_rule_is_a_query(tmp_path):
    folder = write(tmp_path, {"a.yml": WHOAMI, "w.yml": WORKFLOW})
    (rule,) = read_file(folder / "a.yml").rules
    assert rule.language == "sigma"
    assert read_file(folder / "w.yml").skipped_files == [OTHER_YAML]


def test_rules_need_pysigma_and_other_yaml_does_not(tmp_path, monkeypatch):
    def missing(name):
        raise loading.PackageNotFoundError(name)

    monkeypatch.setattr(loading, "version", missing)
    files = {"w.yml": WORKFLOW, "b.ceql": "SELECT * FROM S WHERE A"}
    found = read_folder(write(tmp_path, files))
    assert (list(found.rules), found.skipped_files, found.errors) == (["b"], {OTHER_YAML: 1}, [])
    folder = write(tmp_path, {"a.yml": WHOAMI, "c.yml": FAILURE})
    ((_, error),) = read_folder(folder).errors
    assert str(error) == (f"{folder}/a.yml and 1 more: Sigma's rules need pySigma\nhint: pip install 'cer-gpu[sigma]'")


def test_thousands_of_files_are_read_together(tmp_path, monkeypatch):
    from cer_gpu.rules import folder as folder_module

    asked = []
    monkeypatch.setattr(
        folder_module,
        "load",
        lambda files, *given, **options: asked.append(files) or loading.load(files, *given, **options),
    )
    ids = {f"{i}.yml": WHOAMI.replace("3f1c8f5e-6a0e-4b56-8f0b-0d4d5a2c9a11", str(uuid.UUID(int=i))) for i in range(20)}
    assert len(read_folder(write(tmp_path, ids)).rules) == 20
    assert [len(files) for files in asked] == [20]
    assert READERS[".yml"] is READERS[".yaml"]
