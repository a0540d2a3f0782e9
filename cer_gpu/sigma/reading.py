"""Rules as they are given, as objects of pySigma with the files that they are from."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from sigma.collection import SigmaCollection
from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaError, SigmaRuleLocation
from sigma.filters import SigmaFilter
from sigma.modifiers import SigmaWideModifier, modifier_mapping
from sigma.rule import SigmaRule
from sigma.rule.base import SigmaYAMLLoader

from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.errors import OptionError, did_you_mean
from cer_gpu.sigma.files import files_in, is_given_as_path
from cer_gpu.sigma.nesting import check_condition
from cer_gpu.sigma.values import POLICY

_PARTS = ("detection", "correlation", "filter", "action")
"""Keys of YAML documents of Sigma: one of them is in each."""

modifier_mapping.setdefault("utf16le", SigmaWideModifier)  # of the specification; pySigma knows its other name

AnyRule = SigmaRule | SigmaCorrelationRule


@dataclass
class GivenRules:
    """Rules that were read.

    Attributes
    ----------
    rules : list of SigmaRule, SigmaCorrelationRule and SigmaFilter
    faults : list of (str, Exception)
        Names of files or rules, and what is wrong with them.
    passed_over : Counter
        YAML documents that are no rules, by their kind.
    """

    rules: list[AnyRule | SigmaFilter] = field(default_factory=list)
    faults: list[tuple[str, Exception]] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)


def read_rules(rules: Any, into: GivenRules) -> None:
    """Read rules as `cer_gpu.sigma.load` takes them.

    Raises
    ------
    OptionError
        When they are nothing that can be read.
    """
    if is_given_as_path(rules):
        if not Path(rules).exists():
            raise OptionError(f"{rules}: expected a file or folder of Sigma's rules, found nothing")
        for path in files_in(Path(rules)):
            try:
                text = read_query_file(path)
            except OptionError as error:
                into.faults.append((str(path), error))
                continue
            _read_yaml(text, path, into)
    elif isinstance(rules, str):
        _read_yaml(rules, None, into)
    elif isinstance(rules, SigmaCollection):
        own = copy.deepcopy(rules)  # pipelines change rules
        into.rules += [*own.rules, *own.filters]
    elif isinstance(rules, (SigmaRule, SigmaCorrelationRule, SigmaFilter)):
        into.rules.append(copy.deepcopy(rules))
    elif isinstance(rules, Iterable) and not isinstance(rules, (Mapping, bytes)):
        for each in rules:
            read_rules(each, into)
    else:
        raise OptionError(
            f"rules must be a path, YAML, rules of pySigma, or a list of these, got {type(rules).__name__}"
        )


def _read_yaml(text: str, path: Path | None, into: GivenRules) -> None:
    name = "the text" if path is None else str(path)
    try:
        documents = [each for each in yaml.load_all(text, SigmaYAMLLoader) if each is not None]
    except (yaml.YAMLError, RecursionError) as error:
        into.faults.append((name, error))
        return
    known = [each for each in documents if isinstance(each, dict) and any(part in each for part in _PARTS)]
    into.passed_over["YAML without a detection"] += len(documents) - len(known)
    for each in documents:
        if isinstance(each, dict) and each not in known and {"title", "logsource"} <= each.keys():
            close = did_you_mean("detection", [str(key) for key in each], "keys")
            hint = f"\nhint: {close}" if close else ""
            into.faults.append((str(each["title"]), OptionError(f"expected a detection, found none{hint}")))
            into.passed_over["YAML without a detection"] -= 1
    source = None if path is None else SigmaRuleLocation(path)
    # a document that is wrong stops no others, unless they tell of one another
    together = [known] if any("action" in each for each in known) else [[each] for each in known]
    for some in together:
        try:
            for each in some:  # pySigma parses those of correlations as it reads them
                if isinstance(each.get("correlation"), dict):
                    check_condition(each["correlation"].get("condition"))
            read = SigmaCollection.from_dicts(
                some, collect_errors=True, source=source, collect_filters=True, resolve_references=False, policy=POLICY
            )
        except Exception as error:  # anything may come of YAML that is no rule
            title = some[0].get("title") if len(some) == 1 else None
            into.faults.append((str(title or name), error))
            continue
        into.rules += [*read.rules, *read.filters]
        told = [error for rule in (*read.rules, *read.filters) for error in rule.errors]
        into.faults += [(name, error) for error in read.errors if not any(error is each for each in told)]


def title_of_rule(rule: AnyRule | SigmaFilter) -> str:
    """Return the title of a rule, else the name of its file."""
    if rule.title:
        return str(rule.title)
    return "without a title" if rule.source is None else rule.source.path.stem


def file_of_rule(rule: AnyRule | SigmaFilter) -> Path | None:
    """Return the file of a rule; None: it was given as a text or an object."""
    return None if rule.source is None else rule.source.path


def words_of(error: Exception) -> str:
    """Return what an error says, without the file, which stands elsewhere."""
    if isinstance(error, SigmaError):
        error = copy.copy(error)
        error.source = None
    if isinstance(error, RecursionError):
        return "is nested too deep for a rule"
    return str(error) or type(error).__name__
