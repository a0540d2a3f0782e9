"""Conditions of Sigma as formulas of tests, written as predicates of CEQL.

Sigma has two truths: a test of a value that is missing does not hold, and its negation does.  CEQL has three, so that
negations are pushed down to the tests: a negated ``a GLOB 'x'`` is ``(a NOT GLOB 'x' OR a IS NULL)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

_PLAIN = re.compile(r"[^\W\d]\w*\Z")
_WORDS = frozenset(
    word
    for line in (
        "ALL AND ANY AS BETWEEN BY CONSUME DAY DAYS DISTINCT EACH EVENT EVENTS EVERY FALSE FILTER FOR FROM GLOB HAVING",
        "HOUR HOURS IN IS LAST LIKE LIMIT MAX MINUTE MINUTES NEXT NOCASE NONE NOT NULL NXT OR OVER PARTITION RANGE",
        "RECENT SECOND SECONDS SELECT STEP STRICT THEN TRUE UNTIL WHERE WITHIN",
    )
    for word in line.split()
)
"""Words of CEQL, which are written in backquotes where they are names."""
_SIGNS = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})

COUNTED = "counted"
"""Variable of the events that counted for a correlation."""
ANY_TEXT = "`*`"
"""The pseudo column that denotes every string column."""


@dataclass(frozen=True)
class EventColumn:
    """A column of the events, or a value made of some.

    Attributes
    ----------
    text : str
        As it is written in CEQL.
    names : tuple of str
        Names of the columns that it reads.
    """

    text: str
    names: tuple[str, ...]


def column(name: str) -> EventColumn:
    """Return the column of a name, in backquotes if CEQL needs them.

    Raises
    ------
    ValueError
        For a name that no query can hold.
    """
    if "`" in name or not name:
        raise ValueError(f"{name!r} cannot be the name of a column: it is empty, or holds a backquote")
    is_plain = _PLAIN.match(name) and name.upper() not in _WORDS
    return EventColumn(name if is_plain else f"`{name}`", (name,))


def verbatim(text: str) -> str:
    """Return the pattern of GLOB that matches a text alone."""
    return text.translate(_SIGNS)


@dataclass(frozen=True)
class FieldTestKind:
    """A kind of tests of one column against values.

    Attributes
    ----------
    one : str
        The test of ``{column}`` against ``{values}``, of one value.
    several : str
        The same for several values of which one must match; empty if each value has a test of its own.
    negated, negated_several : str
        The tests that hold where a column that has a value does not pass.
    """

    one: str
    several: str = ""
    negated: str = ""
    negated_several: str = ""


_SET = "{{{values}}}"


def _patterns(operator: str, behind: str = "") -> FieldTestKind:
    passed, failed = (
        [f"{{column}} {negation}{operator} {values}{behind}" for values in ("{values}", _SET)]
        for negation in ("", "NOT ")
    )
    return FieldTestKind(*passed, *failed)


def _plain_test_kind(test: str, several: str = "") -> FieldTestKind:
    return FieldTestKind(test, several, f"NOT {test}", several and f"NOT {several}")


GLOB = _patterns("GLOB", " NOCASE")
GLOB_CASED = _patterns("GLOB")
REGEX = FieldTestKind("{column} LIKE {values}", "", "{column} NOT LIKE {values}")
NETWORK = _plain_test_kind("CIDR({column}, {values})", "CIDR({column}, {values})")
EQUAL = FieldTestKind(
    "{column} = {values}", f"{{column}} IN {_SET}", "{column} <> {values}", f"{{column}} NOT IN {_SET}"
)
PARTS_OF_TIME = {
    part: _plain_test_kind(f"{part}({{column}}) = {{values}}", f"{part}({{column}}) IN {_SET}")
    for part in ("minute", "hour", "day", "week", "month", "year")
}
"""Parts of times by the names of Sigma, which are CEQL's, too."""
_COMPARISONS = ("<", "<=", ">", ">=", "<>")
COMPARED = {
    (part, operator): _plain_test_kind(f"{f'{part}({{column}})' if part else '{column}'} {operator} {{values}}")
    for part in ("", *PARTS_OF_TIME)
    for operator in _COMPARISONS
}
"""Comparisons of a number, or of a part of a time, by that part and the operator."""


@dataclass(frozen=True)
class FieldTest:
    """A test of a field.

    Attributes
    ----------
    field : str or None
        A field of Sigma, or None for all string columns (keywords).
    kind : FieldTestKind
    values : tuple of str
        As they are written in CEQL.
    """

    field: str | None
    kind: FieldTestKind
    values: tuple[str, ...]


@dataclass(frozen=True)
class Presence:
    """A test that a field has a value, or has none."""

    field: str
    has_value: bool


@dataclass(frozen=True)
class Likeness:
    """A test of a field against another one: equal (no function), or a function of CEQL of both."""

    field: str
    other: str
    function: str = ""
    cased: bool = False


@dataclass(frozen=True)
class Verbatim:
    """A test that a pipeline wrote in CEQL, with ``{field}`` for the column."""

    field: str | None
    text: str


@dataclass(frozen=True)
class All:
    """Formulas that hold together."""

    parts: tuple[DetectionFormula, ...]


@dataclass(frozen=True)
class Some:
    """Formulas of which one holds, at least."""

    parts: tuple[DetectionFormula, ...]


@dataclass(frozen=True)
class Negated:
    """A formula that does not hold."""

    part: DetectionFormula


DetectionFormula = FieldTest | Presence | Likeness | Verbatim | All | Some | Negated


def all_of(parts: Iterable[DetectionFormula]) -> DetectionFormula:
    """Return a conjunction, flat."""
    flat = [part for each in parts for part in (each.parts if isinstance(each, All) else (each,))]
    return flat[0] if len(flat) == 1 else All(tuple(flat))


def some_of(parts: Iterable[DetectionFormula]) -> DetectionFormula:
    """Return a disjunction, flat, in which the values of one field with one kind of test share one test."""
    values: dict[tuple[str | None, FieldTestKind], dict[str, None]] = {}
    flat: list[DetectionFormula] = []
    for part in (part for each in parts for part in (each.parts if isinstance(each, Some) else (each,))):
        if isinstance(part, FieldTest) and part.kind.several:
            values_of_field = values.setdefault((part.field, part.kind), {})
            if not values_of_field:
                flat.append(part)
            values_of_field.update(dict.fromkeys(part.values))
        elif part not in flat:
            flat.append(part)
    for place, part in enumerate(flat):
        if isinstance(part, FieldTest) and part.kind.several:
            flat[place] = replace(part, values=tuple(values[part.field, part.kind]))
    return flat[0] if len(flat) == 1 else Some(tuple(flat))


_AS_FUNCTIONS = {each: (each,) for each in ("", "startswith", "endswith")} | {"contains": ("contains", "startswith")}
"""Functions by the kind of test; all string tests except `contains` have the one without characters."""
_SOME, _ALL, _TEST = range(3)
"""Precedence of predicates: alternatives, a conjunction, a test or one in parentheses."""


@dataclass
class PredicateWriter:
    """The writer of formulas as predicates over the columns of one log source.

    Parameters
    ----------
    column_of
        Function from a field to its column.

    Attributes
    ----------
    columns : dict from str to None
        Names of the columns that were read, in their order.
    """

    column_of: Callable[[str], EventColumn]
    columns: dict[str, None] = field(default_factory=dict)

    def predicate(self, formula: DetectionFormula) -> str:
        """Return the predicate that is TRUE where the formula holds."""
        return self._write_formula(formula, True)[0]

    def conjunct(self, formula: DetectionFormula) -> str:
        """Return the predicate as a part of a conjunction."""
        text, level = self._write_formula(formula, True)
        return text if level >= _ALL else f"({text})"

    def _write_formula(self, formula: DetectionFormula, holds: bool) -> tuple[str, int]:
        match formula:
            case Negated(part):
                return self._write_formula(part, not holds)
            case All(parts):
                return self._join_parts(parts, holds, together=holds)
            case Some(parts):
                return self._join_parts(parts, holds, together=not holds)
            case FieldTest():
                return self._write_test(formula, holds)
            case Presence(name, has_value):
                return f"{self._mark_column(name)} IS {'NOT ' if has_value == holds else ''}NULL", _TEST
            case Likeness():
                return self._likeness(formula, holds)
            case Verbatim(name, text):
                written = text.replace("{field}", self._mark_column(name) if name else "")
                return f"{'' if holds else 'NOT '}({written})", _TEST

    def _join_parts(self, parts: Sequence[DetectionFormula], holds: bool, together: bool) -> tuple[str, int]:
        written = [self._write_formula(part, holds) for part in parts]
        if len(written) == 1:
            return written[0]
        level = _ALL if together else _SOME
        texts = [text if inner >= level else f"({text})" for text, inner in written]
        return (" AND " if together else " OR ").join(dict.fromkeys(texts)), level

    def _write_test(self, test: FieldTest, holds: bool) -> tuple[str, int]:
        kind, several = test.kind, len(test.values) > 1
        column = ANY_TEXT if test.field is None else self._mark_column(test.field)
        values = ", ".join(test.values)
        if holds:
            return (kind.several if several else kind.one).format(column=column, values=values), _TEST
        if test.field is None:
            return f"NOT {(kind.several if several else kind.one).format(column=column, values=values)}", _TEST
        failed = (kind.negated_several if several else kind.negated).format(column=column, values=values)
        return f"{failed} OR {column} IS NULL", _SOME

    def _likeness(self, test: Likeness, holds: bool) -> tuple[str, int]:
        a, b = self._mark_column(test.field), self._mark_column(test.other)
        left, right = (f"string({each})" if test.cased else f"lower(string({each}))" for each in (a, b))
        passed = [f"{name}({left}, {right})" if name else f"{left} = {right}" for name in _AS_FUNCTIONS[test.function]]
        if holds:
            return " OR ".join(passed), _TEST if len(passed) == 1 else _SOME
        failed = " AND ".join(f"NOT {each}" for each in passed)
        return f"{failed} OR {a} IS NULL OR {b} IS NULL", _SOME

    def _mark_column(self, name: str) -> str:
        column = self.column_of(name)
        self.columns.update(dict.fromkeys(column.names))
        return column.text


@dataclass(frozen=True)
class RulePredicate:
    """The predicate of a detection rule.

    Attributes
    ----------
    text : str
        In CEQL, without parentheses around it.
    columns : tuple of str
        Names of the columns that it reads.
    column_of : callable
        From a field to the columns that it becomes: one for each log source that has another one.
    tested : callable
        The same, each column with the test of the log source whose events have it; empty for all events.
    groups : tuple of tuple of str
        Those of the columns of which events have one or another, for the same field.
    """

    text: str
    columns: tuple[str, ...]
    column_of: Callable[[str], tuple[str, ...]]
    tested: Callable[[str], tuple[tuple[str, str], ...]]
    groups: tuple[tuple[str, ...], ...] = ()
