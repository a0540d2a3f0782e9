"""Cases of rule tests as files have them (docs/guides/detection.md).

A file ``NAME.test.yml`` lies beside the rules.  It is a case, or has several under ``cases``; what stands above them
holds for all of them.

| key | |
| --- | --- |
| `name` | of the case |
| `rule` | the rule: its name, its file, or a pattern such as ``"*"``; or a list of these |
| `events` | a list of mappings, or the path of a file of events, seen from this file |
| `types` | Arrow types of columns of such a list, by name |
| `options` | options of `cer_gpu.rules.load`, and `sort` |
| `output` | the form of the rows |
| `expect` | ``none``, or a mapping with `count`, `at_least`, `positions`, `rows` |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cer_gpu.errors import CerError, OptionError, did_you_mean
from cer_gpu.rule import TEST_ENDINGS
from cer_gpu.rule_tests.inline import inline_rows, inline_table
from cer_gpu.rule_tests.written import WrittenValue, read_yaml

NO_MATCH = "none"
EXPECTATIONS = ("count", "at_least", "positions", "rows")
_SHARED = ("rule", "events", "types", "options", "output")
_KEYS = ("name", *_SHARED, "expect")
CASE_OPTIONS = (
    "type_column",
    "time_column",
    "time_unit",
    "language",
    "missing_fields",
    "selection",
    "pipelines",
    "columns",
    "sort",
)
"""Options of a case."""


@dataclass(frozen=True)
class RuleCase:
    """A case of a rule test.

    Attributes
    ----------
    name : str
    path : Path
        Its file.
    line : int
        The line of the file on which it begins.
    rules : tuple of str
        Names, files or patterns; empty: those in the file of rules that has the name of the case's file.
    events : WrittenValue
        A list of events, or the path of some.
    types : dict from str to pyarrow.DataType
    options : dict from str to object
    output : str or None
    expected : dict from str to object
        By `EXPECTATIONS`; one that has no match has the count 0.
    """

    name: str
    path: Path
    line: int
    rules: tuple[str, ...]
    events: WrittenValue
    expected: Mapping[str, Any]
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    output: str | None = None

    def open_events(self, time_column: str | None) -> Any:
        """Return the events: a table, or the path of a file.

        Parameters
        ----------
        time_column
            Column whose texts are times; None: none.
        """
        if self.events.is_list:
            return inline_table(self.events, self.types, time_column)
        path = self.path.parent / self.events.text("events")
        if not path.exists():
            raise self.events.error(f"expected events, a list or the path of some seen from this file, found no {path}")
        return path


def read_cases(path: Path) -> tuple[list[RuleCase], list[CerError]]:
    """Return the cases of a file, and the errors in it: the others can be run."""
    try:
        whole = read_yaml(path)
        above, cases = _cases(whole)
    except OptionError as error:
        return [], [error]
    found: list[RuleCase] = []
    errors: list[CerError] = []
    for number, case in enumerate(cases, 1):
        try:
            found.append(_case(path, case, above, number))
        except OptionError as error:
            errors.append(error)
    return found, errors


def case_files(given: Path) -> list[Path]:
    """Return the files of cases of a folder and of those in it, in order; of a file, itself.

    Raises
    ------
    OptionError
        When there are none.
    """
    if given.is_file():
        return [given]
    endings = ", ".join(f"*{ending}" for ending in TEST_ENDINGS)
    if not given.is_dir():
        raise OptionError(f"{given}: expected a folder with rule tests ({endings}), found nothing")
    found = sorted(each for each in given.rglob("*") if each.name.endswith(TEST_ENDINGS) and each.is_file())
    if not found:
        raise OptionError(f"{given}: expected rule tests ({endings}), found none")
    return found


def _cases(whole: WrittenValue) -> tuple[dict[str, WrittenValue], list[WrittenValue]]:
    """Return what holds for all cases of a file, and the cases."""
    top = whole.mapping("a file of cases", (*_KEYS, "cases"))
    if "cases" not in top:
        return {}, [whole]
    if "expect" in top or "name" in top:
        wrong = "expect" if "expect" in top else "name"
        raise top[wrong].error(f"{wrong!r} is a key of each case where there are 'cases'")
    cases = top.pop("cases")
    listed = cases.items("cases")
    if not listed:
        raise cases.error("expected cases: a list, got none")
    return top, listed


def _case(path: Path, written: WrittenValue, above: Mapping[str, WrittenValue], number: int) -> RuleCase:
    own = written.mapping("a case", _KEYS)
    both = {**above, **own}
    for needed in ("events", "expect"):
        if needed not in both:
            raise written.error(f"a case needs {needed!r}, and this one has none")
    if both["events"].is_list:
        inline_rows(both["events"])  # of which errors are told once, not for each rule
    options: dict[str, Any] = {}
    for part in (above, own):
        if "options" in part:
            options |= _options(part["options"])
    return RuleCase(
        name=own["name"].text("the name of a case") if "name" in own else f"case {number}",
        path=path,
        line=written.line,
        rules=_rules(both["rule"]) if "rule" in both else (),
        events=both["events"],
        expected=_expected(own["expect"]),
        types=_types(both["types"]) if "types" in both else {},
        options=options,
        output=both["output"].text("an output") if "output" in both else None,
    )


def _rules(written: WrittenValue) -> tuple[str, ...]:
    what = "a rule, by its name, its file or a pattern"
    listed = written.items("rules") if written.is_list else [written]
    if not listed:
        raise written.error("expected rules, got an empty list")
    return tuple(each.text(what) for each in listed)


def _options(written: WrittenValue) -> dict[str, Any]:
    return {name: each.plain for name, each in written.mapping("options", CASE_OPTIONS).items()}


def _types(written: WrittenValue) -> dict[str, pa.DataType]:
    found = {}
    for column, each in written.mapping("types").items():
        try:
            found[column] = pa.type_for_alias(each.text("the Arrow type of a column"))
        except ValueError:
            raise each.error(f"expected an Arrow type, such as int32 or string, got {each.shown()}") from None
    return found


def _expected(written: WrittenValue) -> dict[str, Any]:
    """Return the expectations of a case."""
    if written.plain == NO_MATCH:
        return {"count": 0}
    listed = f"{NO_MATCH}, or {', '.join(EXPECTATIONS[:-1])} or {EXPECTATIONS[-1]}"
    if isinstance(written.plain, str):
        hint = did_you_mean(written.plain, (NO_MATCH,)) or f"write expect: {NO_MATCH}"
        raise written.error(f"expected {listed}, got {written.shown()}\nhint: {hint}")
    found = written.mapping("expect", EXPECTATIONS) if written.plain is not None else {}
    if not found:
        raise written.error(f"expected {listed}, got nothing")
    return {name: _CHECKS[name](each) for name, each in found.items()}


def _count(written: WrittenValue) -> int:
    n = written.plain
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise written.error(f"expected a number of matches: a whole number from 0 on, got {written.shown()}")
    return n


def _positions(written: WrittenValue) -> list[list[int]]:
    return [list(_row_numbers(each)) for each in written.items("positions of each match")]


def _row_numbers(written: WrittenValue) -> Iterator[int]:
    for each in written.items("the positions of a match, such as [0, 3]"):
        if not isinstance(each.plain, int) or isinstance(each.plain, bool):
            raise each.error(f"expected the number of a row from 0 on, got {each.shown()}")
        yield each.plain


def _rows(written: WrittenValue) -> list[dict[str, Any]]:
    rows = []
    for each in written.items("rows"):
        each.mapping("a row")
        rows.append(each.plain)
    return rows


_CHECKS = {"count": _count, "at_least": _count, "positions": _positions, "rows": _rows}
