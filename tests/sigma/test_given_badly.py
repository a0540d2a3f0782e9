"""Rules, pipelines and columns that are given badly: what is told, and what is not lost."""

import pytest

import cer_gpu
import cer_gpu.sigma
from cer_gpu.errors import OptionError

GOOD = "title: Good\nlogsource: {product: x}\ndetection: {s: {a: 1}, condition: s}\n"


@pytest.mark.parametrize(
    "wrong",
    [
        "title: Bad\ncorrelation: {type: value_count, rules: [x], timespan: 1m, condition: {gte: 2}}",
        "title: Bad\ncorrelation: {type: event_count, rules: [x], timespan: 1m, condition: {gt: 1, lt: 4}}",
        "title: Bad\nid: 12\nlogsource: {product: x}\ndetection: {s: {a: 1}, condition: s}",
    ],
)
def test_a_rule_that_is_wrong_stops_no_other_of_its_file(wrong):
    rules = cer_gpu.sigma.load(f"{GOOD}---\n{wrong}\n")
    assert list(rules) == ["Good"]
    assert rules.errors


def test_a_rule_whose_detection_is_mistyped_is_an_error():
    rules = cer_gpu.sigma.load(f"{GOOD}---\n{GOOD.replace('detection', 'detections').replace('Good', 'Typo')}")
    assert list(rules) == ["Good"]
    ((name, error),) = rules.errors
    assert name == "Typo"
    assert "detections" in str(error)


def test_an_empty_text_holds_no_rules(tmp_path, monkeypatch):
    (tmp_path / "rule.yml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    assert list(cer_gpu.sigma.load("")) == []


def test_cases_of_rules_are_no_rules(tmp_path):
    (tmp_path / "rule.yml").write_text(GOOD)
    (tmp_path / "rule.test.yml").write_text("events: [{a: 1}]\nexpect: {count: 1}\n")
    rules = cer_gpu.sigma.load(tmp_path)
    assert (list(rules), rules.errors, dict(rules.skipped_files)) == (["Good"], [], {})


@pytest.mark.parametrize("options", [{"columns": ["a"]}, {"columns": {"a": 3}}, {"pipelines": 3}])
def test_options_of_another_kind_are_refused(options):
    with pytest.raises(OptionError, match=next(iter(options))):
        cer_gpu.sigma.load(GOOD, **options)
