"""Rules of Sigma as texts of CEQL, kept as JSON for later processes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from cer_gpu.errors import CerError, OptionError, QueryError
from cer_gpu.rule import Rule
from cer_gpu.sigma.loaded import Refused, SigmaRules

_LISTS = ("tags", "tactics", "techniques")


def write_rules(found: SigmaRules) -> bytes:
    """Return rules as JSON; ValueError: the error of one is of a kind that is not known here."""
    kept = {
        "rules": {name: asdict(rule) for name, rule in found.rules.items()},
        "fields": found.fields,
        "refused": [[each.name, _plain_error(each.error), each.kind, each.file] for each in found._refused],
        "passed_over": found.passed_over,
        "silenced": found.silenced,
        "log_sources": found.log_sources,
    }
    return json.dumps(kept).encode()


def read_rules_of(content: bytes) -> SigmaRules:
    """Return the rules that `write_rules` was given."""
    kept = json.loads(content)
    refused = [Refused(name, _error_of_plain(plain), kind, file) for name, plain, kind, file in kept["refused"]]
    fields, silenced = ({name: tuple(of) for name, of in kept[each].items()} for each in ("fields", "silenced"))
    rules = {name: _rule_of_plain(of) for name, of in kept["rules"].items()}
    return SigmaRules(rules, fields, refused, kept["passed_over"], silenced, kept["log_sources"])


def _rule_of_plain(plain: dict[str, Any]) -> Rule:
    groups = tuple(map(tuple, plain["column_groups"]))
    return Rule(**plain | {name: tuple(plain[name]) for name in _LISTS} | {"column_groups": groups})


def _plain_error(error: CerError) -> list[Any]:
    if type(error) is OptionError and len(error.args) == 1:
        return ["option", str(error.args[0])]
    if type(error) is QueryError:
        return ["query", error.message, error.text, error.start, error.end, error.hint]
    raise ValueError(f"{type(error).__name__} is not kept")


def _error_of_plain(plain: list[Any]) -> CerError:
    kind, *of = plain
    return OptionError(*of) if kind == "option" else QueryError(*of)
