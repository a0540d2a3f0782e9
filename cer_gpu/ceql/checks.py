"""Checks of a query before any schema is known: names, clauses, regular expressions.

All errors are collected, up to `MAX_ERRORS`, to be shown together; `notes` are remarks on a correct query.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import names_of
from cer_gpu.ceql.traversal import fold
from cer_gpu.ceql.variables import Variables, combine, defined_names, variables
from cer_gpu.errors import QueryError, did_you_mean

NEEDS_TIME = "WITHIN in HOURS, MINUTES or SECONDS needs a time column"
MAX_ERRORS = 20
"""Most errors collected: each costs a search for the nearest name."""


@dataclass
class Findings:
    """Errors, with which a query cannot be evaluated, and notes, with which it can."""

    errors: list[QueryError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check(
    query: s.QuerySyntax, *, has_time_column: bool, has_type_column: bool = True, moments: Sequence[str] = ()
) -> Findings:
    """Check a parsed query.

    `moments` are the columns of timestamps, if they are known: a single one is proposed as the time column.
    """
    found = Findings()
    checker = _Checker(query, found)
    checker.streams(has_type_column)
    fold(query.formula, checker.formula, s.subformulas)
    checker.select()
    checker.partition()
    checker.window(has_time_column, moments)
    return found


class _Checker:
    def __init__(self, query: s.QuerySyntax, found: Findings) -> None:
        self.query = query
        self.found = found
        self._noted: set[str] = set()
        self._streams = dict.fromkeys(name.name for name in query.streams)
        self._whole = variables(query.formula)

    def error(self, message: str, span: s.Span, hint: Callable[[], str | None] = lambda: None) -> None:
        if len(self.found.errors) < MAX_ERRORS:
            self.found.errors.append(QueryError(message, self.query.text, *span, hint=hint()))

    def note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.found.notes.append(text)

    # ---- clauses ----------------------------------------------------------------------------------------

    def streams(self, has_type_column: bool) -> None:
        streams = self._streams
        for name in _again(self.query.streams):
            self.error(f"FROM names stream {name.name!r} twice", name.span)
        if not has_type_column and not streams:
            self.error(
                "type_column=None makes the stream's name the type of its events, and the query has no FROM",
                (0, len(self.query.text)),
                lambda: "add FROM and the name of the stream",
            )
        for event in s.event_names(self.query.formula):
            self.stream_of(event)
            if not has_type_column and streams and event.name not in streams:
                self.error(
                    f"no events of type {event.name!r}: with type_column=None the stream's name is the only type",
                    event.span,
                    partial(did_you_mean, event.name, streams, "streams in FROM"),
                )
            elif not has_type_column and event.stream is not None and event.stream != event.name:
                self.error(
                    f"no events of type {event.name!r} in stream {event.stream!r}: with type_column=None the "
                    "stream's name is the type of its events",
                    event.span,
                )

    def stream_of(self, name: s.Name) -> None:
        """Check the stream before ``>``."""
        if name.stream is None or name.stream in self._streams:
            return
        hint = partial(did_you_mean, name.stream, self._streams, "streams in FROM")
        self.error(f"stream {name.stream!r} is not in FROM", name.span, lambda: hint() or f"add FROM {name.stream}")

    def select(self) -> None:
        for item in self.query.select.items or ():
            self.stream_of(item.variable)
            self.variable(item.variable, self._whole, partial(defined_names, self.query.formula), "SELECT")
            for attribute in item.attributes or ():
                other = _other_variable(attribute.name, item.variable, self._whole)
                if other is not None:
                    message = f"SELECT {item.variable.name}[...] lists attributes of {item.variable.name!r}"
                    self.error(f"{message}, and {other!r} is another variable", attribute.span)

    def partition(self) -> None:
        for key in _again(names[0] for names in self.query.partition):
            self.error(f"PARTITION BY has two keys named {key.name!r}", key.span)

    def window(self, has_time_column: bool, moments: Sequence[str]) -> None:
        within = self.query.within
        if within is not None and within.kind == "time" and not has_time_column:
            name = "name it: time_column=... (--time-column)"
            if len(moments) == 1:
                name = f"time_column={moments[0]!r} (--time-column {moments[0]})"
            hint = f"{name}, or write WITHIN n EVENTS or WITHIN n [attribute]"
            self.error(NEEDS_TIME, within.span, lambda: hint)

    # ---- formulas and filters -----------------------------------------------------------------------------

    def formula(self, formula: s.Formula, below: list[Variables]) -> Variables:
        """Check a formula after its sub-formulas, and return its variables."""
        match formula:
            case s.Negation(filter=filter_) if filter_ is not None:
                held = [formula.event.name] + ([formula.variable.name] if formula.variable else [])
                known = Variables(set(held), set(), set(held), one_event=True, some_event=True)
                self.filter(filter_, known, lambda: held)
            case s.Assign():
                if not below[0]:
                    self.note(f"variable {formula.variable.name!r} never holds an event: NOT(...) holds none")
            case s.Filtered():
                self.filter(formula.filter, below[0], partial(defined_names, formula.formula))
        return combine(formula, below)

    def filter(self, filter_: s.Filter, known: Variables, in_order: Callable[[], list[str]]) -> None:
        for item in s.variable_filters(filter_):
            self.stream_of(item.variable)
            self.variable(item.variable, known, in_order, "FILTER")
            self.own_attributes(item, known)
            self.patterns(item.predicate)

    def variable(self, name: s.Name, known: Variables, in_order: Callable[[], list[str]], clause: str) -> None:
        """Check a variable that a clause names against the known ones, whose names `in_order` lists."""
        if name.name not in known:
            message = f"{clause} names {name.name!r}, which the formula does not define"
            self.error(message, name.span, lambda: did_you_mean(name.name, in_order(), "variables here"))
        elif name.name not in known.always:
            self.note(
                f"variable {name.name!r} is not bound in every match (another branch of OR); "
                f"{'a filter on it holds' if clause == 'FILTER' else 'it keeps nothing'} where it is empty"
            )
        elif clause == "FILTER" and name.name in self._whole.several:
            self.note(f"variable {name.name!r} can hold several events; a filter on it must hold for each of them")

    def own_attributes(self, item: s.VariableFilter, known: Container[str]) -> None:
        """Refuse attributes of other variables than the filtered one."""
        for attribute in s.attributes(item.predicate):
            other = _other_variable(attribute.name, item.variable, known)
            if other is not None:
                self.error(
                    f"filters between variables are not there yet: {other!r} is another variable than "
                    f"{item.variable.name!r}",
                    attribute.span,
                    lambda: "a filter reads the attributes of one variable: x[price > 100]",
                )

    def patterns(self, predicate: s.Predicate) -> None:
        for like in _likes(predicate):
            if "%" in like.pattern and not set(like.pattern) & set(_REGULAR):
                self.note(f"LIKE takes a regular expression, in which % means itself: write {_regular(like.pattern)!r}")
            try:
                pc.match_substring_regex(pa.array([""]), like.pattern)
            except pa.ArrowInvalid as error:
                reason = str(error).split("Invalid regular expression: ")[-1]
                self.error(f"not a regular expression (RE2): {reason}", like.span)


def _other_variable(attribute: str, variable: s.Name, known: Container[str]) -> str | None:
    """Return the `known` variable, other than `variable`, whose attribute a path names; None: there is none."""
    first, *rest = names_of(attribute)
    return first if rest and first in known and first != variable.name else None


_REGULAR = r".^$*+?()[]{}|\\"
"""Characters with a meaning in a regular expression."""


def _regular(pattern: str) -> str:
    """Translate a pattern of SQL into a regular expression."""
    begin, end = "" if pattern.startswith("%") else "^", "" if pattern.endswith("%") else "$"
    return begin + pattern.strip("%").replace("%", ".*") + end


def _again(names: Iterable[s.Name]) -> Iterator[s.Name]:
    """Yield each name that repeats an earlier one."""
    seen: set[str] = set()
    for name in names:
        if name.name in seen:
            yield name
        seen.add(name.name)


def _likes(predicate: s.Predicate) -> Iterator[s.Like]:
    return (leaf for leaf in s.leaves(predicate) if isinstance(leaf, s.Like))
