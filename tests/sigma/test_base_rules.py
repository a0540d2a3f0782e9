"""Rules that a correlation refers to: they give no results of their own, also where the correlation is wrong."""

import pytest

pytest.importorskip("sigma", reason="pySigma is an extra")

from sigma.collection import SigmaCollection

import cer_gpu
import cer_gpu.sigma
from cer_gpu.rules import load

BASE = """
title: Failed logon
name: failed_logon
id: 5638f7c0-ac70-491d-8465-2a65075e0d86
logsource: {product: windows, service: security}
detection: {s: {EventID: 4625}, condition: s}
---
title: Logon
name: logon
level: low
logsource: {product: windows, service: security}
detection: {s: {EventID: 4624}, condition: s}
---
title: Other
logsource: {product: windows, service: security}
detection: {s: {EventID: 1}, condition: s}
"""
MANY = """
title: Many
name: many
correlation:
  type: event_count
  rules: [failed_logon, logon]
  group-by: [User]
  timespan: 5m
  condition: {gte: 10}
"""
WRONG = {
    "type": ("event_count", "event_cont"),
    "type that is a number": ("event_count", "5"),
    "no type": ("  type: event_count\n", ""),
    "timespan": ("5m", "5 m"),
    "number": ("gte: 10", "gte: ten"),
    "operator": ("gte: 10", "gt3: 10"),
    "condition": ("{gte: 10}", "many"),
    "condition in words": ("{gte: 10}", "'failed_logon and (logon'"),
    "groups": ("[User]", "{a: b}"),
    "key of the document": ("correlation:", "corelation:"),
    "another key of the document": ("correlation:", "count:"),
    "key of the rules": ("rules:", "rule:"),
    "rules as one text": ("[failed_logon, logon]", "failed_logon, logon"),
    "a rule that is not there": ("logon]", "logon, nobody]"),
    "not YAML after the rules": ("5m", "["),
    "not YAML before the rules": ("correlation:\n", "correlation: [\n"),
    "a field that is missing": ("event_count", "value_count"),
    "an empty range": ("gte: 10", "gt: 5, lt: 5"),
    "generate": ("  timespan", "  generate: sometimes\n  timespan"),
    "no query": ("event_count", "temporal_ordered"),
}


def changed(name):
    old, new = WRONG[name]
    assert old in MANY
    return MANY.replace(old, new)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_correlation_does_not_let_its_base_rules_loose(name):
    rules = cer_gpu.sigma.load(f"{BASE}---\n{changed(name)}")
    assert list(rules) == ["Other"]
    assert len(rules.errors) == 1
    assert list(rules.silenced.values()) == [("Failed logon", "Logon")]
    assert "'Failed logon', 'Logon' give no results: the correlation 'Many' has no text" in rules.summary()


@pytest.mark.parametrize("name", WRONG)
def test_a_folder_does_not_either_and_says_so(tmp_path, name):
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "base.yml").write_text(BASE)
    (tmp_path / "rules" / "many.yml").write_text(changed(name))
    rules = load(tmp_path / "rules", errors="skip", time_column="ts")
    assert list(rules) == ["Other"]
    assert len(rules.skipped) == 1
    assert rules.notes == ("'Failed logon', 'Logon' give no results: the correlation 'Many' has no text",)


def test_rules_are_named_by_id_too_and_a_good_correlation_is_no_news():
    by_id = MANY.replace("failed_logon,", "5638F7C0-ac70-491d-8465-2a65075e0d86,")
    assert list(cer_gpu.sigma.load(f"{BASE}---\n{by_id.replace('5m', '5 m')}")) == ["Other"]
    good = cer_gpu.sigma.load(f"{BASE}---\n{by_id}")
    assert (list(good), good.silenced) == (["Other", "Many"], {})


@pytest.mark.parametrize("where", ["correlation", "document"])
def test_a_correlation_that_generates_leaves_its_rules_results(where):
    of_correlation = MANY.replace("  timespan", "  generate: true\n  timespan")
    text = of_correlation if where == "correlation" else f"{MANY}generate: true\n"
    assert list(cer_gpu.sigma.load(f"{BASE}---\n{text}")) == ["Failed logon", "Logon", "Other", "Many"]
    wrong = cer_gpu.sigma.load(f"{BASE}---\n{text.replace('5m', '5 m')}")
    assert (list(wrong), wrong.silenced) == (["Failed logon", "Logon", "Other"], {})


def test_correlations_in_a_circle_are_named_and_their_base_rules_silent():
    inner = MANY.replace("many", "a").replace("Many", "A").replace("[failed_logon, logon]", "[b]")
    outer = MANY.replace("many", "b").replace("Many", "B").replace("[failed_logon, logon]", "[a, failed_logon]")
    above = MANY.replace("many", "c").replace("Many", "C").replace("[failed_logon, logon]", "[a]")
    rules = cer_gpu.sigma.load("---".join([BASE, inner, outer, above]))
    assert list(rules) == ["Logon", "Other"]
    told = {name: str(error) for name, error in rules.errors}
    assert told["A"] == "correlations refer to each other in a circle: a -> b -> a"
    assert told["B"] == "correlations refer to each other in a circle: b -> a -> b"
    assert "'a' has no query" in told["C"]
    assert rules.silenced == {"B": ("Failed logon",)}


def test_a_rule_that_is_not_there_is_named_with_the_nearest():
    rules = cer_gpu.sigma.load(f"{BASE}---\n{MANY.replace('logon]', 'logn]')}")
    assert "Rule 'logn' not found" in str(rules.errors[0][1])
    assert "did you mean 'logon'?" in rules.summary()


def test_rules_of_pysigma_are_silent_too():
    given = SigmaCollection.from_yaml(f"{BASE}---\n{MANY}".replace("event_count", "temporal_ordered"))
    rules = cer_gpu.sigma.load(given)
    assert (list(rules), list(rules.silenced)) == (["Other"], ["Many"])


def test_a_correlation_in_a_file_that_is_no_yaml_is_known_by_its_words(tmp_path):
    (tmp_path / "base.yml").write_text(BASE)
    (tmp_path / "many.yml").write_text(f"title: x\ndetection: {{}}\n---\n{MANY}\n  [")
    rules = cer_gpu.sigma.load(tmp_path)
    assert list(rules) == ["Other"]
    assert f"{tmp_path}/many.yml: document 2, line 14: " in "\n".join(str(error) for _, error in rules.errors)
