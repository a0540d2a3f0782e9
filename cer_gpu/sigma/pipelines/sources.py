"""Log sources: the tests that tell the events of one, and the columns of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cer_gpu.sigma.formulas import (
    EQUAL,
    GLOB,
    All,
    Column,
    FieldTest,
    Formula,
    Negation,
    Predicate,
    Some,
    Writer,
    all_of,
    column,
    quoted,
    some_of,
    verbatim,
)

Columns = Mapping[str, str]
"""Columns by the names of fields, or of columns in their place."""


class ChosenName(str):
    """The name of a column that was asked for: no pipeline has another one for it."""


@dataclass(frozen=True)
class LogSource:
    """A log source: a kind of events that a rule is about.

    Attributes
    ----------
    test : Formula or None
        Over columns; None: all events are of it.
    fields : mapping from str to str or Column
        Columns of fields; others keep their names, or get the name that `others` gives.
    values : mapping from str to callable
        By fields, the function from a value of Sigma, as a string of CEQL, to the value that the column has for it.
    others : callable or None
    """

    test: Formula | None = None
    fields: Mapping[str, str | Column] = field(default_factory=dict)
    values: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    others: Callable[[str], str] | None = None

    def column_of(self, name: str, columns: Columns) -> Column:
        """Return the column of a field; `columns` has the last word."""
        if isinstance(name, ChosenName):
            return column(str(name))
        if name in columns:
            return column(columns[name])
        found = self.fields.get(name)
        if found is None:
            found = name if self.others is None else self.others(name)
        return found if isinstance(found, Column) else column(columns.get(found, found))

    def adapted(self, formula: Formula) -> Formula:
        """Return a condition with the values that the columns have."""
        match formula:
            case FieldTest(str(name), _, values) if name in self.values:
                adapt = self.values[name]
                return replace(formula, values=tuple(dict.fromkeys(adapt(value) for value in values)))
            case All(parts) if self.values:
                return All(tuple(map(self.adapted, parts)))
            case Some(parts) if self.values:
                return Some(tuple(map(self.adapted, parts)))
            case Negation(part):
                return Negation(self.adapted(part))
        return formula


EVERY_EVENT = LogSource()
"""The source of rules for which there is no pipeline."""


def is_text(name: str, *texts: str) -> Formula:
    """Return the test that a column is one of some texts, in any letter case."""
    return FieldTest(name, GLOB, tuple(quoted(verbatim(text)) for text in texts))


def is_number(name: str, *numbers: int) -> Formula:
    """Return the test that a column is one of some numbers."""
    return FieldTest(name, EQUAL, tuple(map(str, numbers)))


def values_of(table: Mapping[str, str]) -> Callable[[str], str]:
    """Return the function for `LogSource.values` that replaces some texts, given in small letters."""
    replaced = {quoted(known): quoted(meant) for known, meant in table.items()}
    return lambda value: replaced.get(value.lower(), value)


def predicate_of(formula: Formula, sources: Sequence[LogSource], columns: Columns) -> Predicate:
    """Return the predicate of a condition: for each log source its test first, then the condition over its columns."""
    tests: dict[str, list[Formula | None]] = {}
    names: dict[str, None] = {}
    for source in sources:
        writer = Writer(lambda name, source=source: source.column_of(name, columns))  # type: ignore[misc]
        tests.setdefault(writer.predicate(source.adapted(formula)), []).append(source.test)
        names.update(writer.columns)
    writer = Writer(lambda name: column(columns.get(name, name)))
    written = []
    for text, of_sources in tests.items():
        known = [test for test in of_sources if test is not None]
        written.append(f"({writer.predicate(some_of(known))}) AND ({text})" if len(known) == len(of_sources) else text)
    text = written[0] if len(written) == 1 else " OR ".join(f"({each})" for each in written)
    return Predicate(text, tuple(writer.columns | names), _Places(tuple(sources), columns))


@dataclass(frozen=True)
class _Places:
    """The columns that fields become in the log sources of a rule."""

    sources: Sequence[LogSource]
    columns: Columns

    def __call__(self, name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(source.column_of(name, self.columns).text for source in self.sources))


def in_channel(channels: Iterable[str], *numbers: int) -> Formula:
    """Return the test of Windows events of some channels, and of some numbers if any are given."""
    channel = is_text("Channel", *channels)
    return all_of([is_number("EventID", *numbers), channel]) if numbers else channel
