"""Rules in TOML, in the two layouts in which Elastic publishes its rules: ``[rule]`` with a query, and its threats.

| what | in the file |
| --- | --- |
| name, query | ``rule.name``, ``rule.query`` |
| language | ``rule.language``, else EQL |
| level | ``rule.severity`` |
| id | ``rule.rule_id``, else ``rule.id`` |
| tags | ``rule.tags`` |
| tactics | ``tactic.name`` of each table ``rule.threat``, else ``threat`` |
| techniques | ``id`` of its ``technique`` and ``subtechnique`` |

Rules in other languages, and of kinds that are no query over events (thresholds, indicators, jobs of machine learning),
are passed over, and so are files without a rule.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.errors import OptionError
from cer_gpu.rule import Rule
from cer_gpu.rules.found import RulesFound

_TAKEN = {"eql": "eql", "ceql": None}
"""Languages of rules in TOML, and those of `cer_gpu.compile`; None: the text tells it."""
_QUERY = re.compile(r"""^[ \t]*(?:query|"query")[ \t]*=[ \t]*('''|\"{3}|'|")(\r?\n)?""", re.MULTILINE)


def read_toml(path: Path, name: str) -> RulesFound:
    """Read a file with one rule.

    Raises
    ------
    OptionError
        When the file is not TOML, or its rule has no query.
    """
    text = read_query_file(path)
    try:
        held = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{path}: is not TOML: {error}") from None
    except RecursionError:
        raise OptionError(f"{path}: is nested too deep for a rule in TOML") from None
    rule = held.get("rule")
    if not isinstance(rule, dict):
        return RulesFound()
    language = str(rule.get("language", "eql" if "query" in rule else rule.get("type", "no query"))).lower()
    if language not in _TAKEN:
        return RulesFound(skipped_files=[language])
    query = rule.get("query")
    if not isinstance(query, str):
        raise OptionError(f"{path}: expected rule.query, a text, got {_told(query)}")
    threats = list(_tables(rule.get("threat", held.get("threat"))))
    return RulesFound(
        [
            Rule(
                name=str(rule.get("name", name)),
                text=query,
                language=_TAKEN[language],
                level=_text(rule.get("severity")),
                tags=tuple(map(str, rule.get("tags", ()))),
                id=_text(rule.get("rule_id", rule.get("id"))),
                tactics=_each(_tactics(threats)),
                techniques=_each(_techniques(threats)),
                file=str(path),
                line=_line_of(text, query),
            )
        ]
    )


def _tactics(threats: Iterable[dict[str, Any]]) -> Iterator[Any]:
    for threat in threats:
        for tactic in _tables(threat.get("tactic")):
            yield tactic.get("name", tactic.get("id"))


def _techniques(threats: Iterable[dict[str, Any]]) -> Iterator[Any]:
    for threat in threats:
        for technique in _tables(threat.get("technique")):
            yield technique.get("id")
            for below in _tables(technique.get("subtechnique")):
                yield below.get("id")


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the tables of a list, or a table alone."""
    yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))


def _each(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(value) for value in values if value is not None))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _told(value: Any) -> str:
    return "none" if value is None else type(value).__name__


def _line_of(text: str, query: str) -> int:
    """Return the line of a file on which a query begins: that of the first ``query =`` which is followed by it."""
    first = query.split("\n", 1)[0].rstrip()
    line = 1
    for found in _QUERY.finditer(text):
        line = text.count("\n", 0, found.end()) + 1
        if text.startswith(first, found.end()):
            break
    return line
