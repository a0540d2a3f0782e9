"""Log sources: the tests that tell the events of one, and the columns of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cer_gpu.sigma.formulas import (
    EQUAL,
    GLOB,
    All,
    DetectionFormula,
    EventColumn,
    FieldTest,
    Negated,
    PredicateWriter,
    RulePredicate,
    Some,
    all_of,
    column,
    quoted_text,
    some_of,
    verbatim,
)

ChosenColumns = Mapping[str, str]
"""Columns by the names of fields, or of columns in their place."""


CHOSEN = "\0"
"""Sign before the name of a column that was asked for: no pipeline has another one for it."""


@dataclass(frozen=True)
class LogSource:
    """A log source: a kind of events that a rule is about.

    Attributes
    ----------
    test : DetectionFormula or None
        Over columns; None: all events are of it.
    fields : mapping from str to str or EventColumn
        ChosenColumns of fields; others keep their names, or get the name that `others` gives.
    values : mapping from str to callable
        By fields, the function from a value of Sigma, as a string of CEQL, to the value that the column has for it.
    others : callable or None
    """

    test: DetectionFormula | None = None
    fields: Mapping[str, str | EventColumn] = field(default_factory=dict)
    values: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    others: Callable[[str], str] | None = None

    def column_of(self, name: str, columns: ChosenColumns) -> EventColumn:
        """Return the column of a field; `columns` has the last word."""
        if CHOSEN in name:
            return column(name.partition(CHOSEN)[2])
        if name in columns:
            return column(columns[name])
        found = self.fields.get(name)
        if found is None:
            found = name if self.others is None else self.others(name)
        return found if isinstance(found, EventColumn) else column(columns.get(found, found))

    def adapted(self, formula: DetectionFormula) -> DetectionFormula:
        """Return a condition with the values that the columns have."""
        match formula:
            case FieldTest(str(name), _, values) if name in self.values:
                adapt = self.values[name]
                return replace(formula, values=tuple(dict.fromkeys(adapt(value) for value in values)))
            case All(parts) if self.values:
                return All(tuple(map(self.adapted, parts)))
            case Some(parts) if self.values:
                return Some(tuple(map(self.adapted, parts)))
            case Negated(part):
                return Negated(self.adapted(part))
        return formula


EVERY_EVENT = LogSource()
"""The source of rules for which there is no pipeline."""


def has_text(name: str, *texts: str) -> DetectionFormula:
    """Return the test that a column is one of some texts, in any letter case."""
    return FieldTest(name, GLOB, tuple(quoted_text(verbatim(text)) for text in texts))


def has_number(name: str, *numbers: int) -> DetectionFormula:
    """Return the test that a column is one of some numbers."""
    return FieldTest(name, EQUAL, tuple(map(str, numbers)))


def replaced_values(table: Mapping[str, str]) -> Callable[[str], str]:
    """Return the function for `LogSource.values` that replaces some texts, given in small letters."""
    replaced = {quoted_text(known): quoted_text(meant) for known, meant in table.items()}
    return lambda value: replaced.get(value.lower(), value)


def predicate_of(formula: DetectionFormula, sources: Sequence[LogSource], columns: ChosenColumns) -> RulePredicate:
    """Return the predicate of a condition: for each log source its test first, then the condition over its columns."""
    tests: dict[str, list[DetectionFormula | None]] = {}
    names: dict[str, None] = {}
    for source in sources:
        writer = PredicateWriter(lambda name, source=source: source.column_of(name, columns))  # type: ignore[misc]
        tests.setdefault(writer.predicate(source.adapted(formula)), []).append(source.test)
        names.update(writer.columns)
    writer = PredicateWriter(lambda name: column(columns.get(name, name)))
    written = []
    for text, of_sources in tests.items():
        known = [test for test in of_sources if test is not None]
        written.append(f"({writer.predicate(some_of(known))}) AND ({text})" if len(known) == len(of_sources) else text)
    text = written[0] if len(written) == 1 else " OR ".join(f"({each})" for each in written)
    places = _Places(tuple(sources), columns)
    return RulePredicate(text, tuple(writer.columns | names), places, places.tested)


def test_of_sources(sources: Sequence[LogSource], columns: ChosenColumns) -> str | None:
    """Return the test that an event is of one of some log sources; None: every event is."""
    tests = [source.test for source in sources if source.test is not None]
    if len(tests) < len(sources):
        return None
    return PredicateWriter(lambda name: column(columns.get(name, name))).predicate(some_of(tests))


@dataclass(frozen=True)
class _Places:
    """The columns that fields become in the log sources of a rule."""

    sources: Sequence[LogSource]
    columns: ChosenColumns

    def __call__(self, name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for column, _ in self.tested(name)))

    def tested(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return each column with the test of its log source."""
        writer = PredicateWriter(lambda name: column(self.columns.get(name, name)))
        tests = (("" if each.test is None else writer.conjunct(each.test), each) for each in self.sources)
        return tuple(dict.fromkeys((each.column_of(name, self.columns).text, test) for test, each in tests))


def in_channel(channels: Iterable[str], *numbers: int) -> DetectionFormula:
    """Return the test of Windows events of some channels, and of some numbers if any are given."""
    channel = has_text("Channel", *channels)
    return all_of([has_number("EventID", *numbers), channel]) if numbers else channel
