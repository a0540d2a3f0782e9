"""Cases of rule tests as files have them (docs/guides/detection.md), their YAML with lines, and events within.

A file ``NAME.test.yml`` is next to the rules.  It is a case, or has several under ``cases``; what is above them
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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.errors import CerError, OptionError, did_you_mean
from cer_gpu.rule import TEST_ENDINGS

YAML_MISSING = "rule tests need PyYAML\nhint: pip install 'cer-gpu[yaml]'"


class WrittenValue:
    """A value in a YAML file.

    Parameters
    ----------
    node
        Node of PyYAML.
    loader
        Loader that created it, which converts it to plain data.
    file
        Name of the file, for errors.

    Attributes
    ----------
    line : int
    """

    def __init__(self, node: Any, loader: Any, file: str) -> None:
        self._node = node
        self._loader = loader
        self.file = file
        self._checked: set[int] = vars(loader).setdefault("checked_mappings", set())
        self.line: int = node.start_mark.line + 1

    @property
    def plain(self) -> Any:
        """The value as plain data."""
        import yaml

        try:
            return self._loader.construct_object(self._node, deep=True)
        except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date
            raise self.error(getattr(error, "problem", None) or str(error)) from None

    def error(self, message: str) -> OptionError:
        """Return the error for this value."""
        return OptionError(f"{self.file}:{self.line}: {message}")

    def mapping(self, what: str, allowed: Iterable[str] | None = None) -> dict[str, WrittenValue]:
        """Return the values of a mapping by their keys; raises OptionError if it is none, or for an unknown key.

        Parameters
        ----------
        what
            Words for the mapping.
        allowed
            The keys that it may have, or None for any string.
        """
        if self._node.id != "mapping":
            raise self.error(f"expected {what}: keys with values, got {self.shown()}")
        self._check_keys(what)
        self._loader.flatten_mapping(self._node)
        names = None if allowed is None else list(allowed)
        values: dict[str, WrittenValue] = {}
        for key, node in self._node.value:
            place = WrittenValue(key, self._loader, self.file)
            name = place.plain
            if not isinstance(name, str):
                raise place.error(f"expected a string as a key of {what}, got {name!r}")
            if names is not None and name not in names:
                raise place.error(f"unknown key {name!r} of {what}\nhint: {did_you_mean(name, names, 'keys')}")
            values[name] = WrittenValue(node, self._loader, self.file)
        return values

    def _check_keys(self, what: str) -> None:
        """Refuse a duplicate key in the mapping itself: keys from ``<<`` are overwritten."""
        if id(self._node) in self._checked:  # and merges them with its own since then
            return
        self._checked.add(id(self._node))
        lines: dict[str, int] = {}
        for key, _ in self._node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines and not key.tag.endswith(":merge"):
                place = WrittenValue(key, self._loader, self.file)
                raise place.error(f"{what} has the key {name!r} twice, first in line {lines[name]}")
            lines[name] = line

    def items(self, what: str) -> list[WrittenValue]:
        """Return the items of a list; raises OptionError if it is none."""
        if self._node.id != "sequence":
            raise self.error(f"expected {what}: a list, got {self.shown()}")
        return [WrittenValue(node, self._loader, self.file) for node in self._node.value]

    @property
    def is_list(self) -> bool:
        """True for a list."""
        return bool(self._node.id == "sequence")

    def text(self, what: str) -> str:
        """Return a string; raises OptionError if it is none."""
        value = self.plain
        if not isinstance(value, str) or not value:
            raise self.error(f"expected {what}: a string, got {self.shown()}")
        if not value.isascii() and value.encode("utf-8", "replace") != value.encode("utf-8", "surrogatepass"):
            raise self.error(f"expected {what}: a string, got one with an unpaired surrogate: {value!a}")
        return value

    def shown(self) -> str:
        """Return the value in short, for a message."""
        kinds = {"mapping": "keys with values", "sequence": "a list"}
        return kinds.get(self._node.id) or ("nothing" if self.plain is None else repr(self.plain))


def read_yaml(path: Path) -> WrittenValue:
    """Read a YAML file; raises OptionError if it cannot be read, is not YAML, or is empty."""
    try:
        import yaml
    except ImportError:
        raise OptionError(YAML_MISSING) from None
    text = read_query_file(path)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        problem = getattr(error, "problem", None) or str(error)
        raise OptionError(f"{path}:{line}: is not YAML: {problem}") from None
    except RecursionError:
        raise OptionError(f"{path}:{loader.line + 1}: is nested too deeply for cases of a rule test") from None
    if node is None:
        raise OptionError(f"{path}:1: expected cases of a rule test, found nothing")
    return WrittenValue(node, loader, str(path))


def inline_rows(written: WrittenValue) -> list[dict[str, Any]]:
    """Return the events of a list; raises OptionError if it has none, or other items."""
    rows: list[dict[str, Any]] = []
    for each in written.items("events"):
        each.mapping("an event")
        rows.append(each.plain)
    if not rows:
        raise written.error("expected at least one event")
    return rows


def inline_table(written: WrittenValue, types: Mapping[str, pa.DataType], time_column: str | None) -> pa.Table:
    """Return the table of a list of mappings.

    A column has the type of its values; one without a value is left out, unless `types` has it.

    Parameters
    ----------
    written
    types
        Types of columns that differ from the types of the values.
    time_column
        Column whose strings are times in ISO 8601, or None.
    """
    rows = inline_rows(written)
    columns: dict[str, list[Any]] = {name: [] for row in rows for name in row}
    for row in rows:
        for name, values in columns.items():
            values.append(row.get(name))
    arrays = {}
    for name, values in columns.items():
        wanted = types.get(name)
        if wanted is None and all(value is None for value in values):
            continue
        times = name == time_column and wanted is None
        try:
            arrays[name] = pa.array(_in_one_zone([_parse_time(v) for v in values] if times else values), wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError) as error:
            kinds = ", ".join(sorted({type(value).__name__ for value in values if value is not None}))
            reason = "" if wanted is None else f", which cannot be {wanted} ({error})"
            raise written.error(
                f"expected values of one type in the column {name!r} of the events, got {kinds}{reason}"
            ) from None
    return pa.table(arrays)


def _parse_time(value: Any) -> Any:
    """Return a text in ISO 8601 as a time; other values as they are."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _in_one_zone(values: list[Any]) -> list[Any]:
    """Return times without a zone as UTC, if others have one."""
    if not any(isinstance(value, datetime) and value.tzinfo is not None for value in values):
        return values
    return [value.replace(tzinfo=value.tzinfo or UTC) if isinstance(value, datetime) else value for value in values]


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
        Names, files or patterns; empty for the rules of the file that has the name of the case's file.
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
            Column whose strings are times, or None.
        """
        if self.events.is_list:
            return inline_table(self.events, self.types, time_column)
        path = self.path.parent / self.events.text("events")
        if not path.exists():
            raise self.events.error(f"expected events: a list, or a path relative to this file; there is no {path}")
        return path


def read_cases(path: Path) -> tuple[list[RuleCase], list[CerError]]:
    """Return the cases of a file, and the errors in it: the others can be run."""
    try:
        whole = read_yaml(path)
        above, cases = _cases(whole)
    except OptionError as error:
        return [], [error]
    read: list[RuleCase] = []
    errors: list[CerError] = []
    for number, case in enumerate(cases, 1):
        try:
            read.append(_case(path, case, above, number))
        except OptionError as error:
            errors.append(error)
    return read, errors


def case_files(path: Path) -> list[Path]:
    """Return the files of cases of a folder and of those in it, in order; of a file, itself.

    Raises
    ------
    OptionError
        When there are none.
    """
    if path.is_file():
        return [path]
    endings = ", ".join(f"*{ending}" for ending in TEST_ENDINGS)
    if not path.is_dir():
        raise OptionError(f"{path}: expected a folder with rule tests ({endings}), found nothing")
    files = sorted(each for each in path.rglob("*") if each.name.endswith(TEST_ENDINGS) and each.is_file())
    if not files:
        raise OptionError(f"{path}: expected rule tests ({endings}), found none")
    return files


def _cases(whole: WrittenValue) -> tuple[dict[str, WrittenValue], list[WrittenValue]]:
    """Return what holds for all cases of a file, and the cases."""
    top = whole.mapping("a file of cases", (*_KEYS, "cases"))
    if "cases" not in top:
        return {}, [whole]
    if "expect" in top or "name" in top:
        wrong = "expect" if "expect" in top else "name"
        raise top[wrong].error(f"with 'cases', {wrong!r} is a key of each case")
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
            raise written.error(f"a case needs {needed!r}, and this one does not have it")
    if both["events"].is_list:
        inline_rows(both["events"])  # whose errors are reported once, not for each rule
    options: dict[str, Any] = {}
    for part in (above, own):
        if "options" in part:
            options |= _options(part["options"])
    return RuleCase(
        name=own["name"].text("the name of a case") if "name" in own else f"case {number}",
        path=path,
        line=written.line,
        rules=_parse_rules(both["rule"]) if "rule" in both else (),
        events=both["events"],
        expected=_expected(own["expect"]),
        types=_parse_types(both["types"]) if "types" in both else {},
        options=options,
        output=both["output"].text("an output") if "output" in both else None,
    )


def _parse_rules(written: WrittenValue) -> tuple[str, ...]:
    what = "a rule, by its name, its file or a pattern"
    listed = written.items("rules") if written.is_list else [written]
    if not listed:
        raise written.error("expected rules, got an empty list")
    return tuple(each.text(what) for each in listed)


def _options(written: WrittenValue) -> dict[str, Any]:
    return {name: each.plain for name, each in written.mapping("options", CASE_OPTIONS).items()}


def _parse_types(written: WrittenValue) -> dict[str, pa.DataType]:
    types = {}
    for column, each in written.mapping("types").items():
        try:
            types[column] = pa.type_for_alias(each.text("the Arrow type of a column"))
        except ValueError:
            raise each.error(f"expected an Arrow type, such as int32 or string, got {each.shown()}") from None
    return types


def _expected(written: WrittenValue) -> dict[str, Any]:
    """Return the expectations of a case."""
    if written.plain == NO_MATCH:
        return {"count": 0}
    listed = f"{NO_MATCH}, or {', '.join(EXPECTATIONS[:-1])} or {EXPECTATIONS[-1]}"
    if isinstance(written.plain, str):
        hint = did_you_mean(written.plain, (NO_MATCH,)) or f"write expect: {NO_MATCH}"
        raise written.error(f"expected {listed}, got {written.shown()}\nhint: {hint}")
    expectations = written.mapping("expect", EXPECTATIONS) if written.plain is not None else {}
    if not expectations:
        raise written.error(f"expected {listed}, got nothing")
    return {name: _CHECKS[name](each) for name, each in expectations.items()}


def _parse_count(written: WrittenValue) -> int:
    n = written.plain
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise written.error(f"expected a number of matches: a whole number, 0 or more, got {written.shown()}")
    return n


def _positions(written: WrittenValue) -> list[list[int]]:
    return [list(_row_numbers(each)) for each in written.items("positions of each match")]


def _row_numbers(written: WrittenValue) -> Iterator[int]:
    for each in written.items("the positions of a match, such as [0, 3]"):
        if not isinstance(each.plain, int) or isinstance(each.plain, bool):
            raise each.error(f"expected the number of a row, 0 or more, got {each.shown()}")
        yield each.plain


def _parse_rows(written: WrittenValue) -> list[dict[str, Any]]:
    rows = []
    for each in written.items("rows"):
        each.mapping("a row")
        rows.append(each.plain)
    return rows


_CHECKS = {"count": _parse_count, "at_least": _parse_count, "positions": _positions, "rows": _parse_rows}
