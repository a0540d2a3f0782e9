"""Cases of rule tests, run: how results differ from what a case expects, and JUnit XML."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any
from xml.etree import ElementTree

from cer_gpu.cache import whole_file
from cer_gpu.compilation import TYPE_COLUMN, CompiledQuery
from cer_gpu.errors import CerError, OptionError, QueryError, did_you_mean, without_events_warnings
from cer_gpu.io.sources import open_events
from cer_gpu.printable import counted, printable_lines
from cer_gpu.resolution.fields import field_names
from cer_gpu.rule import TEST_ENDINGS, Rule
from cer_gpu.rule_tests.cases import NO_MATCH, RuleCase
from cer_gpu.rules.folder import AS_NAMED, READERS, FieldColumns, RuleFolder, read_file, read_folder
from cer_gpu.rules.rule_set import analyse_rule, options_of_rules

_NEAR = 0.8
"""Least similarity of names, of which one may be misspelt."""
_SHOWN = 5
"""Most rows that a difference shows of each kind."""


def different_count(expected: int, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return lines on a number of rows that differs; none: it does not."""
    if expected == len(rows):
        return []
    return [f"expected {_matches_in_words(expected)}, got {_matches_in_words(len(rows))}", *_listed_rows("got", rows)]


def too_few(expected: int, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return lines on rows of which there are fewer than expected; none: there are enough."""
    if len(rows) >= expected:
        return []
    return [
        f"expected at least {_matches_in_words(expected)}, got {_matches_in_words(len(rows))}",
        *_listed_rows("got", rows),
    ]


def different_positions(expected: Sequence[Sequence[int]], got: Sequence[Sequence[int]]) -> list[str]:
    """Return lines on the positions of matches that differ, in whatever order the matches are."""
    missing, more = _without_partner(
        list(map(list, expected)), list(map(list, got)), lambda wanted, actual: wanted == actual
    )
    if not missing and not more:
        return []
    return [
        _count_difference(expected, got) or "expected other positions",
        *_listed_rows("missing", missing),
        *_listed_rows("unexpected", more),
    ]


def different_rows(expected: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return lines on rows that differ in the columns that are named, in whatever order the rows are."""
    missing, more = _without_partner(expected, got, is_as_expected)
    if not missing and not more:
        return []
    named = {name for row in expected for name in row} or {name for row in got for name in row}
    return [
        _count_difference(expected, got) or "expected other values",
        *_listed_rows("missing", missing),
        *_listed_rows("unexpected", [{name: value for name, value in row.items() if name in named} for row in more]),
    ]


def is_as_expected(wanted: Any, actual: Any) -> bool:
    """Return True for a value as a case expects it: of a mapping, only the keys that it names are compared."""
    match wanted:
        case dict():
            if not isinstance(actual, dict):
                return False
            return all(name in actual and is_as_expected(value, actual[name]) for name, value in wanted.items())
        case list():
            if not isinstance(actual, list) or len(wanted) != len(actual):
                return False
            return all(map(is_as_expected, wanted, actual))
        case bool() | None:
            return wanted is actual
        case int() | float():
            return _same_number(wanted, actual)
    if isinstance(actual, datetime | date | time | timedelta):
        return bool(_json_timestamp(wanted) == _json_timestamp(actual))
    return bool(wanted == actual)


def _same_number(wanted: float, actual: Any) -> bool:
    if isinstance(actual, bool) or not isinstance(actual, int | float | Decimal):
        return False
    if isinstance(actual, float) or isinstance(wanted, float):
        return math.isclose(wanted, float(actual), rel_tol=1e-9) or (math.isnan(wanted) and math.isnan(actual))
    return wanted == actual


def _json_timestamp(value: Any) -> Any:
    """Return a time or date, or a text of one, so that equal ones are equal: those without a zone are of UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return value
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):  # also pandas.Timestamp, of nanoseconds
        return value.replace(tzinfo=value.tzinfo or UTC)
    return value


def _without_partner(
    expected: Sequence[Any], got: Sequence[Any], fits: Callable[[Any, Any], bool]
) -> tuple[list[Any], list[Any]]:
    """Return what of the expected has no partner among the got, and the got without one, in a largest matching."""
    partners = [[j for j, actual in enumerate(got) if fits(wanted, actual)] for wanted in expected]
    of_got: dict[int, int] = {}

    def place(first: int) -> bool:
        """Find a partner for one more of the expected; others may change theirs (breadth first, along parents)."""
        came_from: dict[int, int] = {}
        todo = [first]
        for i in todo:
            for j in partners[i]:
                if j in came_from:
                    continue
                came_from[j] = i
                if j in of_got:
                    todo.append(of_got[j])
                    continue
                while True:  # each one along the augmenting path takes the partner assigned to it
                    owner = came_from[j]
                    before = next((k for k, own in of_got.items() if own == owner), None)
                    of_got[j] = owner
                    if before is None:
                        return True
                    del of_got[before]
                    j = before
        return False

    missing = [wanted for i, wanted in enumerate(expected) if not place(i)]
    return missing, [actual for j, actual in enumerate(got) if j not in of_got]


def _count_difference(expected: Sequence[Any], got: Sequence[Any]) -> str:
    """Return a line on two numbers of matches; empty if they are equal."""
    return (
        ""
        if len(expected) == len(got)
        else f"expected {_matches_in_words(len(expected))}, got {_matches_in_words(len(got))}"
    )


def _matches_in_words(n: int) -> str:
    return "no match" if n == 0 else counted(n, "match")


def _listed_rows(head: str, rows: Sequence[Any]) -> list[str]:
    lines = [f"  {head}: {_row_as_text(row)}" for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        lines.append(f"  and {len(rows) - _SHOWN:,} more {head}")
    return lines


def _row_as_text(row: Any) -> str:
    if isinstance(row, dict):
        return ", ".join(f"{name} = {_row_as_text(value)}" for name, value in row.items())
    if isinstance(row, list):
        elements = (f"{{{_row_as_text(each)}}}" if isinstance(each, dict) else _row_as_text(each) for each in row)
        return f"[{', '.join(elements)}]"
    return row.isoformat() if isinstance(row, datetime | date | time) else repr(row)


AS_EXPECTED, FAILED, ERROR = "passed", "failed", "error"


@dataclass(frozen=True)
class CaseOutcome:
    """Outcome of a case for one rule.

    Attributes
    ----------
    path : Path
        File of the case.
    line : int or None
    name : str
        Name of the case.
    rule : str or None
        Name of the rule, or None if the case does not come to one.
    status : str
        "passed", "failed" or "error".
    differences : tuple of str
        Lines on what differs, or on the error.
    seconds : float
    """

    path: Path
    line: int | None
    name: str
    rule: str | None = None
    status: str = AS_EXPECTED
    differences: tuple[str, ...] = ()
    seconds: float = 0.0


class CaseRunner:
    """Runs cases over the rules of a folder.

    Parameters
    ----------
    root
        Folder of the rules.
    options
        Options of `cer_gpu.rules.load` for all cases; options of a case override them.
    fields
        Columns of the fields of Sigma.

    Attributes
    ----------
    tested : set of str
        Names of the rules of the folder that had a case so far.
    notes : list of str
        Remarks on fields of rules that the events of a case seem to have by another name.
    """

    def __init__(self, root: Path, options: Mapping[str, Any] | None = None, fields: FieldColumns = AS_NAMED) -> None:
        self._root = root
        self._options = dict(options or {})
        self._fields = fields
        self._folders: dict[str, _Rules] = {}
        self._queries: dict[tuple[Any, ...], CompiledQuery] = {}
        self.tested: set[str] = set()
        self.notes: list[str] = []

    @property
    def untested(self) -> list[str]:
        """Names of the rules of the folder that had no case so far."""
        return [name for name in self._rules_of_fields(self._fields).folder.rules if name not in self.tested]

    def run(self, case: RuleCase) -> Iterator[CaseOutcome]:
        """Yield the outcome of a case for each of its rules."""
        begun = perf_counter()
        try:
            options = self._options | {name: value for name, value in case.options.items() if name not in _OF_FIELDS}
            fields = self._fields
            if any(name in case.options for name in _OF_FIELDS):
                fields = FieldColumns(
                    case.options.get("pipelines", fields.pipelines),
                    case.options.get("columns") or fields.columns,
                    fields.nocase_groups,
                )
            folder_rules = self._rules_of_fields(fields)
            rules = folder_rules.rules_of(case)
        except CerError as error:
            yield CaseOutcome(case.path, case.line, case.name, None, ERROR, _lines(error), perf_counter() - begun)
            return
        for name, rule in rules.items():
            begun = perf_counter()
            if name in folder_rules.folder.rules:
                self.tested.add(name)
            try:
                differences = self._different(case, rule, folder_rules, options)
                status = FAILED if differences else AS_EXPECTED
            except CerError as error:
                status, differences = ERROR, list(_lines(error, rule))
            seconds = perf_counter() - begun
            yield CaseOutcome(case.path, case.line, case.name, name, status, tuple(differences), seconds)

    def _rules_of_fields(self, fields: FieldColumns) -> _Rules:
        key = repr(fields)
        if key not in self._folders:
            self._folders[key] = _Rules(self._root, fields)
        return self._folders[key]

    @without_events_warnings()
    def _different(self, case: RuleCase, rule: Rule, folder_rules: _Rules, options: Mapping[str, Any]) -> list[str]:
        """Return what differs from what a case expects."""
        sort = options.get("sort", False)
        query = self._query(rule, folder_rules, {name: value for name, value in options.items() if name != "sort"})
        events = case.open_events(query.time_column)
        self._note_misspelt(case, rule, query, events)
        wanted = dict(case.expected)
        lines: list[str] = []
        if "positions" in wanted:
            table = query.evaluate(events, output=query.resolve_output("positions"), sort=sort)
            lines += different_positions(wanted.pop("positions"), table.column("positions").to_pylist())
        if wanted:
            table = query.evaluate(events, output=query.resolve_output(case.output), sort=sort)
            rows = table.to_pylist()
            if "count" in wanted:
                lines += different_count(wanted["count"], rows)
            if "at_least" in wanted:
                lines += too_few(wanted["at_least"], rows)
            if "rows" in wanted:
                for name in dict.fromkeys(name for row in wanted["rows"] for name in row):
                    if name not in table.column_names:
                        raise OptionError(_no_column(name, query, case.output, table.column_names))
                lines += different_rows(wanted["rows"], rows)
        return lines

    def _note_misspelt(self, case: RuleCase, rule: Rule, query: CompiledQuery, events: Any) -> None:
        """Note fields that the events do not have, but for their spelling, among those that the rule does not read."""
        schema = open_events(events).schema
        names = list(field_names(schema))
        unread = {name.casefold(): name for name in names if name not in rule.text}
        for field in rule.missing(query.bind(schema).missing_fields, set(names)):
            for near in get_close_matches(field.casefold(), unread, n=1, cutoff=_NEAR):
                note = f"{rule.name}: the events of a case have no {field!r}: did you mean {unread[near]!r}?"
                self.notes += [note] * (note not in self.notes)

    def _query(self, rule: Rule, folder_rules: _Rules, options: Mapping[str, Any]) -> CompiledQuery:
        key = (rule, repr(sorted(options.items())))
        if key not in self._queries:
            query, errors = analyse_rule(rule, **folder_rules.options_of(rule, options))
            if query is None:
                raise errors[0]
            self._queries[key] = query
        return self._queries[key]


_OF_FIELDS = ("pipelines", "columns")


class _Rules:
    """The rules that a case can name, with some columns of the fields of Sigma."""

    def __init__(self, root: Path, fields: FieldColumns) -> None:
        self._root = root
        self._fields = fields
        self._options: dict[str, dict[str, Any]] = {}

    def options_of(self, rule: Rule, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options by which a rule is compiled, with the columns of the folder if it is in that."""
        usual = {"type_column": TYPE_COLUMN, "time_column": None, "missing_fields": "null"}
        if id(rule) not in self._ids:
            return options_of_rules([rule], usual | dict(options))
        cache_key = repr(sorted(options.items()))
        if cache_key not in self._options:
            self._options[cache_key] = options_of_rules(self.folder.rules.values(), usual | dict(options))
        return self._options[cache_key]

    @cached_property
    def _ids(self) -> set[int]:
        return set(map(id, self.folder.rules.values()))

    @cached_property
    def folder(self) -> RuleFolder:
        """The rules of the folder; none, if there is no file of rules in it."""
        if any(path.suffix in READERS and not path.name.endswith(TEST_ENDINGS) for path in self._root.rglob("*")):
            return read_folder(self._root, self._fields)
        return RuleFolder({})

    def rules_of(self, case: RuleCase) -> dict[str, Rule]:
        """Return the rules of a case by their names; raises OptionError for an unknown name."""
        rules: dict[str, Rule] = {}
        for name in case.rules or [self._file_of(case)]:
            rules |= self._rules_named(name, case)
        return rules

    def _file_of(self, case: RuleCase) -> str:
        """Return the name of the rule file next to a case and named like it."""
        stem = case.path.name
        for ending in TEST_ENDINGS:
            stem = stem.removesuffix(ending)
        names = [f"{stem}{ending}" for ending in READERS]
        beside = [name for name in names if (case.path.parent / name).is_file()]
        if len(beside) != 1:
            seen = f"{' and '.join(beside)} next to it" if beside else f"no {stem}{{{','.join(READERS)}}} next to it"
            raise OptionError(f"{case.path}:{case.line}: expected the rule of the case, found {seen}\nhint: rule: NAME")
        return beside[0]

    def _rules_named(self, requested: str, case: RuleCase) -> dict[str, Rule]:
        if requested in self.folder.rules:
            return {requested: self.folder.rules[requested]}
        path = case.path.parent / requested
        if path.is_file():
            return self._in_file(path)
        patterns = {name: rule for name, rule in self.folder.rules.items() if fnmatchcase(name, requested)}
        if patterns:
            return patterns
        for name, error in self.folder.errors:
            if name == requested:
                raise error
        files = [path.name for path in case.path.parent.iterdir() if path.suffix in READERS]
        candidates = [*self.folder.rules, *(name for name in files if not name.endswith(TEST_ENDINGS))]
        hint = did_you_mean(requested, candidates, "rules") or "the folder has none"
        raise OptionError(f"{case.path}:{case.line}: expected a rule, found none called {requested!r}\nhint: {hint}")

    def _in_file(self, path: Path) -> dict[str, Rule]:
        """Return the rules of a file; rules of the folder by the names that they have in it."""
        here = path.resolve()
        own_rules = {name: rule for name, rule in self.folder.rules.items() if Path(rule.file or "").resolve() == here}
        if own_rules:
            return own_rules
        for name, error in self.folder.errors:
            if Path(name).resolve() == here:
                raise error
        rules = {rule.name or path.stem: rule for rule in read_file(path, self._fields).rules}
        if not rules:
            raise OptionError(f"{path}: expected a rule, found none")
        return rules


def _lines(error: CerError, rule: Rule | None = None) -> tuple[str, ...]:
    in_text = rule is not None and isinstance(error, QueryError) and error.text is not None
    place = rule.place(error) if rule is not None and in_text else None
    return tuple(f"{f'{place}: ' if place else ''}{error}".splitlines())


def _no_column(name: str, query: CompiledQuery, output: str | None, columns: Sequence[str]) -> str:
    others = [each for each in query.outputs if each not in (NO_MATCH, query.resolve_output(output))]
    more = f"; other outputs have others: output: {' or '.join(others)}" if others else ""
    return f"expected the column {name!r} in the results\nhint: {did_you_mean(name, columns, 'columns')}{more}"


def in_all(outcomes: Iterable[CaseOutcome]) -> dict[str, int]:
    """Return the number of outcomes by status."""
    counts = {AS_EXPECTED: 0, FAILED: 0, ERROR: 0}
    for each in outcomes:
        counts[each.status] += 1
    return counts


_ELEMENTS = {FAILED: "failure", ERROR: "error"}


def write_junit(outcomes: Mapping[str, Sequence[CaseOutcome]], path: Path) -> None:
    """Write outcomes, by the names of their files, to a file that appears whole or not at all."""
    root = ElementTree.Element("testsuites", _suite_counts([each for of_file in outcomes.values() for each in of_file]))
    for file, of_file in outcomes.items():
        suite = ElementTree.SubElement(
            root, "testsuite", {"name": printable_lines(file), **_suite_counts(of_file), "skipped": "0"}
        )
        for each in of_file:
            _add_testcase(suite, file, each)
    with whole_file(path, 0o644) as out:
        ElementTree.indent(root)
        ElementTree.ElementTree(root).write(out, encoding="utf-8", xml_declaration=True)
        out.write(b"\n")


def _add_testcase(suite: ElementTree.Element, file: str, outcome: CaseOutcome) -> None:
    name = outcome.name if outcome.rule is None else f"{outcome.name} [{outcome.rule}]"
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {"name": printable_lines(name), "classname": printable_lines(file), "time": f"{outcome.seconds:.3f}"},
    )
    if outcome.status in _ELEMENTS:
        first = outcome.differences[0] if outcome.differences else outcome.status
        element = ElementTree.SubElement(
            case, _ELEMENTS[outcome.status], {"message": printable_lines(first), "type": outcome.status}
        )
        place = f"{outcome.path}:{outcome.line}" if outcome.line is not None else str(outcome.path)
        element.text = printable_lines("\n".join([place, *outcome.differences]))


def _suite_counts(outcomes: Sequence[CaseOutcome]) -> dict[str, str]:
    counts = in_all(outcomes)
    return {
        "tests": str(len(outcomes)),
        "failures": str(counts[FAILED]),
        "errors": str(counts[ERROR]),
        "time": f"{sum(each.seconds for each in outcomes):.3f}",
    }
