"""Rules: queries in files, with what detections say of themselves, and the alerts that they raise."""

from cer_gpu.rule import LEVELS, Rule
from cer_gpu.rules.alerts import ALERTS
from cer_gpu.rules.folder import FieldColumns, RuleFolder, read_folder
from cer_gpu.rules.rule_set import RuleSet, compile_rules, load

__all__ = ["ALERTS", "LEVELS", "FieldColumns", "Rule", "RuleFolder", "RuleSet", "compile_rules", "load", "read_folder"]
