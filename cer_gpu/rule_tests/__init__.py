"""Tests of rules: cases next to the rules, in YAML, with events and the matches that a rule has in them."""

from cer_gpu.rule_tests.case_runner import CaseOutcome, CaseRunner, write_junit
from cer_gpu.rule_tests.cases import RuleCase, read_cases

__all__ = ["CaseOutcome", "CaseRunner", "RuleCase", "read_cases", "write_junit"]
