"""Log sources: the tests that select the events of one, and the columns of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cer_gpu.ceql.paths import string_literal
from cer_gpu.sigma.formulas import (
    EQUAL,
    GLOB,
    All,
    DetectionFormula,
    EventColumn,
    FieldTest,
    Likeness,
    Negated,
    PredicateWriter,
    Presence,
    RulePredicate,
    Some,
    Verbatim,
    all_of,
    column,
    some_of,
    verbatim,
)

ChosenColumns = Mapping[str, str]
"""Columns by the names of fields, or of columns that replace them."""


CHOSEN = "\0"
"""Sign before the name of a requested column: no pipeline has another one for it."""


@dataclass(frozen=True)
class FieldColumn:
    """A column that may have the value of a field.

    Attributes
    ----------
    column : str
        Its name, or one of `LogSource.fields`.
    test : DetectionFormula or None
        Over columns: where it holds, the column is that of the field; None for all events.
    """

    column: str
    test: DetectionFormula | None = None


TestOfField = FieldTest | Presence | Likeness | Verbatim
"""A test of a field."""


@dataclass(frozen=True)
class LogSource:
    """A log source: a kind of events that a rule is about.

    Attributes
    ----------
    test : DetectionFormula or None
        Over columns, or None if all events are of it.
    fields : mapping from str to str or EventColumn
        ChosenColumns of fields; others keep their names, or get the name that `others` gives.
    values : mapping from str to callable
        By fields, the function from a test of its values to the condition over the values that columns have for them.
    others : callable or None
    choices : callable or None
        The function from a field to the columns of which one has its value, if there are several: a test holds where
        it holds of one of them.
    base : LogSource or None
        The log source whose columns are the fields of this one.
    category_fields : tuple of str
        Columns of `test`, and of the tests of similar sources, of which events need only have one.
    """

    test: DetectionFormula | None = None
    fields: Mapping[str, str | EventColumn] = field(default_factory=dict)
    values: Mapping[str, Callable[[FieldTest], DetectionFormula]] = field(default_factory=dict)
    others: Callable[[str], str] | None = None
    choices: Callable[[str], Sequence[FieldColumn]] | None = None
    base: LogSource | None = None
    category_fields: tuple[str, ...] = ()

    def column_of(self, name: str, columns: ChosenColumns) -> EventColumn:
        """Return the column of a field, the first of several; `columns` has the last word."""
        if CHOSEN in name:
            return column(name.partition(CHOSEN)[2])
        if name in columns:
            return column(columns[name])
        if self.base is not None:
            under = self.base.fields.get(name, name)
            name = under if isinstance(under, str) else name
        mapped = self.fields.get(name)
        if mapped is None:
            mapped = name if self.others is None else self.others(name)
        return mapped if isinstance(mapped, EventColumn) else column(columns.get(mapped, mapped))

    def adapted(self, formula: DetectionFormula, columns: ChosenColumns) -> DetectionFormula:
        """Return a condition with the values that the columns have, and over each of several columns of a field."""
        if self.base is not None:
            formula = over_fields(self.base.adapted(formula, columns), self._under_base)
        if not self.values and self.choices is None:
            return formula
        return _with_leaves(formula, lambda leaf: self._adapted_leaf(leaf, columns))

    def groups(self, formula: DetectionFormula, columns: ChosenColumns) -> Iterator[tuple[str, ...]]:
        """Yield the names of columns of which events need have one only: for a field, and for the test."""
        if self.category_fields:
            yield self.category_fields
        if self.choices is None:
            return
        names = dict.fromkeys(name for leaf in _leaves(formula) for name in _field_names(leaf))
        for name in names if self.base is None else map(self._under_base, names):
            choices = self._column_choices(name, columns)
            if len(choices) > 1:
                parts = (self.column_of(each.column, columns).names for each in choices)
                yield tuple(dict.fromkeys(each for part in parts for each in part))

    def _under_base(self, name: str) -> str:
        assert self.base is not None
        under = self.base.fields.get(name, name)
        return under if isinstance(under, str) else name

    def _adapted_leaf(self, leaf: TestOfField, columns: ChosenColumns) -> DetectionFormula:
        if not isinstance(leaf, FieldTest) or leaf.field is None or leaf.field in columns:
            return self._choose_columns(leaf, columns)
        meant = self.values.get(leaf.field)
        if meant is None:
            return self._choose_columns(leaf, columns)
        return _with_leaves(meant(leaf), lambda each: self._choose_columns(each, columns))

    def _choose_columns(self, leaf: TestOfField, columns: ChosenColumns) -> DetectionFormula:
        """Return the test of a field as one of the columns that may have its value."""
        if isinstance(leaf, Likeness):
            pairs = [
                (a, b)
                for a in self._column_choices(leaf.field, columns)
                for b in self._column_choices(leaf.other, columns)
            ]
            return some_of(
                _where(replace(leaf, field=a.column, other=b.column), *(each.test for each in (a, b))) for a, b in pairs
            )
        if leaf.field is None:
            return leaf
        choices = self._column_choices(leaf.field, columns)
        if isinstance(leaf, Presence) and not leaf.has_value:
            return Negated(some_of(_where(Presence(each.column, True), each.test) for each in choices))
        return some_of(_where(replace(leaf, field=each.column), each.test) for each in choices)

    def _column_choices(self, name: str, columns: ChosenColumns) -> Sequence[FieldColumn]:
        if self.choices is None or CHOSEN in name or name in columns:
            return (FieldColumn(name),)
        return self.choices(name) or (FieldColumn(name),)


def _where(test: DetectionFormula, *conditions: DetectionFormula | None) -> DetectionFormula:
    return all_of([*(each for each in conditions if each is not None), test])


def _leaves(formula: DetectionFormula) -> Iterator[TestOfField]:
    match formula:
        case All(parts) | Some(parts):
            for each in parts:
                yield from _leaves(each)
        case Negated(part):
            yield from _leaves(part)
        case _:
            yield formula


def _field_names(leaf: TestOfField) -> Iterator[str]:
    if isinstance(leaf, Likeness):
        yield from (leaf.field, leaf.other)
    elif leaf.field is not None:
        yield leaf.field


def _with_leaves(formula: DetectionFormula, replaced: Callable[[TestOfField], DetectionFormula]) -> DetectionFormula:
    """Return a formula with its tests replaced."""
    match formula:
        case All(parts):
            return all_of([_with_leaves(each, replaced) for each in parts])
        case Some(parts):
            return some_of([_with_leaves(each, replaced) for each in parts])
        case Negated(part):
            return Negated(_with_leaves(part, replaced))
    return replaced(formula)


def over_fields(formula: DetectionFormula, name_of: Callable[[str], str]) -> DetectionFormula:
    """Return a formula over other names of fields."""

    def renamed(leaf: TestOfField) -> TestOfField:
        if isinstance(leaf, Likeness):
            return replace(leaf, field=name_of(leaf.field), other=name_of(leaf.other))
        return leaf if leaf.field is None else replace(leaf, field=name_of(leaf.field))

    return _with_leaves(formula, renamed)


EVERY_EVENT = LogSource()
"""The source of rules for which there is no pipeline."""


def has_text(name: str, *texts: str) -> DetectionFormula:
    """Return the test that a column is one of some strings, in any letter case."""
    return FieldTest(name, GLOB, tuple(string_literal(verbatim(text)) for text in texts))


def has_number(name: str, *numbers: int) -> DetectionFormula:
    """Return the test that a column is one of some numbers."""
    return FieldTest(name, EQUAL, tuple(map(str, numbers)))


def replaced_values(table: Mapping[str, str]) -> Callable[[FieldTest], FieldTest]:
    """Return the function for `LogSource.values` that replaces some strings, given in lower case."""
    replaced = {string_literal(from_value): string_literal(meant) for from_value, meant in table.items()}
    return with_values(lambda value: (replaced.get(value.lower(), value),))


def with_values(meant: Callable[[str], Iterable[str]]) -> Callable[[FieldTest], FieldTest]:
    """Return the function for `LogSource.values` that replaces each value by one or several."""
    return lambda test: replace(
        test, values=tuple(dict.fromkeys(each for value in test.values for each in meant(value)))
    )


def predicate_of(formula: DetectionFormula, sources: Sequence[LogSource], columns: ChosenColumns) -> RulePredicate:
    """Return the predicate of a condition: for each log source its test first, then the condition over its columns."""
    tests: dict[str, list[DetectionFormula | None]] = {}
    names: dict[str, None] = {}
    groups: dict[tuple[str, ...], None] = {}
    for source in sources:
        writer = PredicateWriter(lambda name, source=source: source.column_of(name, columns))  # type: ignore[misc]
        tests.setdefault(writer.predicate(source.adapted(formula, columns)), []).append(source.test)
        names.update(writer.columns)
        groups.update(dict.fromkeys(source.groups(formula, columns)))
    groups.update(dict.fromkeys(_groups_over(formula, sources, columns)))
    writer = PredicateWriter(lambda name: column(columns.get(name, name)))
    written = []
    for text, of_sources in tests.items():
        own_tests = [test for test in of_sources if test is not None]
        written.append(
            f"({writer.predicate(some_of(own_tests))}) AND ({text})" if len(own_tests) == len(of_sources) else text
        )
    text = written[0] if len(written) == 1 else " OR ".join(f"({each})" for each in written)
    places = _Places(tuple(sources), columns)
    return RulePredicate(text, tuple(writer.columns | names), places, places.tested, tuple(groups))


def _groups_over(
    formula: DetectionFormula, sources: Sequence[LogSource], columns: ChosenColumns
) -> Iterator[tuple[str, ...]]:
    """Yield the columns of each test that log sources have in different columns, of which events need have only one."""
    for leaf in _leaves(formula) if len(sources) > 1 else ():
        names: dict[str, None] = {}
        by_source = set()
        for source in sources:
            writer = PredicateWriter(lambda name, source=source: source.column_of(name, columns))  # type: ignore[misc]
            writer.predicate(source.adapted(leaf, columns))
            names.update(dict.fromkeys(sorted(writer.columns)))
            by_source.add(frozenset(writer.columns))
        if len(by_source) > 1:
            yield tuple(names)


def test_of_sources(sources: Sequence[LogSource], columns: ChosenColumns) -> str | None:
    """Return the test that an event is of one of some log sources, or None if every event is."""
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
