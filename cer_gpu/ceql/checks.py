"""What must be true of a query before any schema is known: names, clauses, regular expressions.

All errors are collected, so that a person sees them at once; `notes` are remarks on a query that is right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import names_of
from cer_gpu.errors import QueryError, did_you_mean

NEEDS_TIME = "WITHIN in HOURS, MINUTES or SECONDS needs a time column"


@dataclass
class Findings:
    """Errors (the query cannot run) and notes (it can, and this is worth knowing)."""

    errors: list[QueryError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check(
    query: s.QuerySyntax, *, has_time_column: bool, has_type_column: bool = True, moments: Sequence[str] = ()
) -> Findings:
    """Check a parsed query (SPEC: "checks before any row is read").

    `moments` are the columns of timestamps, where they are known: one that is alone is proposed as the time column.
    """
    found = Findings()
    checker = _Checker(query, found)
    checker.streams(has_type_column)
    checker.formula(query.formula)
    checker.select()
    checker.partition()
    checker.window(has_time_column, moments)
    return found


def defined_variables(formula: s.Formula) -> dict[str, bool]:
    """Return the variables that a formula defines; True where every valuation binds it.

    (papers: CEL, 5.1, ``vdef`` and ``bound``.)
    """
    match formula:
        case s.EventType():
            return {formula.event.name: True}
        case s.Negation():
            return {}
        case s.Assign():
            inner = defined_variables(formula.formula)
            return {**inner, formula.variable.name: always_holds_an_event(formula.formula)}
        case s.Filtered():
            return defined_variables(formula.formula)
        case s.Iteration():
            return defined_variables(formula.formula)
        case s.Sequence():
            left, right = defined_variables(formula.left), defined_variables(formula.right)
            return {name: left.get(name, False) or right.get(name, False) for name in {**left, **right}}
        case s.Disjunction():
            left, right = defined_variables(formula.left), defined_variables(formula.right)
            return {name: left.get(name, False) and right.get(name, False) for name in {**left, **right}}


def always_holds_an_event(formula: s.Formula) -> bool:
    """Return whether every valuation of the formula holds an event (all but ``NOT(...)`` do)."""
    match formula:
        case s.EventType():
            return True
        case s.Negation():
            return False
        case s.Assign() | s.Filtered() | s.Iteration():
            return always_holds_an_event(formula.formula)
        case s.Sequence():
            return always_holds_an_event(formula.left) or always_holds_an_event(formula.right)
        case s.Disjunction():
            return always_holds_an_event(formula.left) and always_holds_an_event(formula.right)


def repeated_variables(formula: s.Formula) -> set[str]:
    """Return the variables that can hold more than one event: under ``+``, or defined more than once."""
    match formula:
        case s.EventType() | s.Negation():
            return set()
        case s.Filtered():
            return repeated_variables(formula.formula)
        case s.Iteration():
            return set(defined_variables(formula.formula))
        case s.Assign():
            repeated = repeated_variables(formula.formula)
            return repeated if at_most_one_event(formula.formula) else repeated | {formula.variable.name}
        case s.Disjunction():
            return repeated_variables(formula.left) | repeated_variables(formula.right)
        case s.Sequence():
            both = set(defined_variables(formula.left)) & set(defined_variables(formula.right))
            return repeated_variables(formula.left) | repeated_variables(formula.right) | both


def at_most_one_event(formula: s.Formula) -> bool:
    """Return whether every valuation of the formula holds at most one position."""
    match formula:
        case s.EventType() | s.Negation():
            return True
        case s.Assign() | s.Filtered():
            return at_most_one_event(formula.formula)
        case s.Disjunction():
            return at_most_one_event(formula.left) and at_most_one_event(formula.right)
        case _:
            return False


class _Checker:
    def __init__(self, query: s.QuerySyntax, found: Findings) -> None:
        self.query = query
        self.found = found
        self._noted: set[str] = set()

    def error(self, message: str, span: s.Span, hint: str | None = None) -> None:
        self.found.errors.append(QueryError(message, self.query.text, *span, hint=hint))

    def note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.found.notes.append(text)

    # ---- clauses ----------------------------------------------------------------------------------------

    def streams(self, has_type_column: bool) -> None:
        streams = [n.name for n in self.query.streams]
        for i, name in enumerate(self.query.streams):
            if name.name in streams[:i]:
                self.error(f"FROM names stream {name.name!r} twice", name.span)
        if not has_type_column and not streams:
            self.error(
                "type_column=None makes the stream's name the type of its events, and the query has no FROM",
                (0, len(self.query.text)),
                "add FROM and the name of the stream",
            )
        for event in s.event_names(self.query.formula):
            self.stream_of(event)
            if not has_type_column and streams and event.name not in streams:
                self.error(
                    f"no events of type {event.name!r}: with type_column=None the stream's name is the only type",
                    event.span,
                    did_you_mean(event.name, streams, "streams in FROM"),
                )
            elif not has_type_column and event.stream is not None and event.stream != event.name:
                self.error(
                    f"no events of type {event.name!r} in stream {event.stream!r}: with type_column=None the "
                    "stream's name is the type of its events",
                    event.span,
                )

    def stream_of(self, name: s.Name) -> None:
        """Check what stands before ``>``."""
        streams = [n.name for n in self.query.streams]
        if name.stream is None or name.stream in streams:
            return
        hint = did_you_mean(name.stream, streams, "streams in FROM") or f"add FROM {name.stream}"
        self.error(f"stream {name.stream!r} is not in FROM", name.span, hint)

    def select(self) -> None:
        known = defined_variables(self.query.formula)
        for item in self.query.select.items or ():
            self.stream_of(item.variable)
            self.variable(item.variable, known, "SELECT")
            for attribute in item.attributes or ():
                other = _other_variable(attribute.name, item.variable, known)
                if other is not None:
                    message = f"SELECT {item.variable.name}[...] lists attributes of {item.variable.name!r}"
                    self.error(f"{message}, and {other!r} is another variable", attribute.span)

    def partition(self) -> None:
        keys = [names[0] for names in self.query.partition]
        for i, key in enumerate(keys):
            if key.name in (other.name for other in keys[:i]):
                self.error(f"PARTITION BY has two keys named {key.name!r}", key.span)

    def window(self, has_time_column: bool, moments: Sequence[str]) -> None:
        within = self.query.within
        if within is not None and within.kind == "time" and not has_time_column:
            name = "name it: time_column=... (--time-column)"
            if len(moments) == 1:
                name = f"time_column={moments[0]!r} (--time-column {moments[0]})"
            self.error(NEEDS_TIME, within.span, f"{name}, or write WITHIN n EVENTS or WITHIN n [attribute]")

    # ---- formulas and filters -----------------------------------------------------------------------------

    def formula(self, formula: s.Formula) -> None:
        match formula:
            case s.EventType():
                pass
            case s.Negation():
                self.negation(formula)
            case s.Assign():
                self.formula(formula.formula)
                if not defined_variables(formula.formula):
                    self.note(f"variable {formula.variable.name!r} never holds an event: NOT(...) holds none")
            case s.Iteration():
                self.formula(formula.formula)
            case s.Sequence() | s.Disjunction():
                self.formula(formula.left)
                self.formula(formula.right)
            case s.Filtered():
                self.formula(formula.formula)
                known = defined_variables(formula.formula)
                for item in s.variable_filters(formula.filter):
                    self.stream_of(item.variable)
                    self.variable(item.variable, known, "FILTER")
                    self.own_attributes(item, known)
                    self.patterns(item.predicate)

    def negation(self, formula: s.Negation) -> None:
        if formula.filter is None:
            return
        names = [formula.event.name] + ([formula.variable.name] if formula.variable else [])
        for item in s.variable_filters(formula.filter):
            self.stream_of(item.variable)
            self.variable(item.variable, dict.fromkeys(names, True), "FILTER")
            self.own_attributes(item, names)
            self.patterns(item.predicate)

    def variable(self, name: s.Name, known: dict[str, bool], clause: str) -> None:
        if name.name not in known:
            hint = did_you_mean(name.name, known, "variables here")
            self.error(f"{clause} names {name.name!r}, which the formula does not define", name.span, hint)
        elif not known[name.name]:
            self.note(
                f"variable {name.name!r} is not bound in every match (another branch of OR); "
                f"{'a filter on it holds' if clause == 'FILTER' else 'it keeps nothing'} where it is empty"
            )
        elif clause == "FILTER" and name.name in repeated_variables(self.query.formula):
            self.note(f"variable {name.name!r} can hold several events; a filter on it must hold for each of them")

    def own_attributes(self, item: s.VariableFilter, known: Collection[str]) -> None:
        """Refuse attributes of other variables than the one that is filtered."""
        for attribute in s.attributes(item.predicate):
            other = _other_variable(attribute.name, item.variable, known)
            if other is not None:
                self.error(
                    f"filters between variables are not there yet: {other!r} is another variable than "
                    f"{item.variable.name!r}",
                    attribute.span,
                    "a filter reads the attributes of one variable: x[price > 100]",
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


def _other_variable(attribute: str, variable: s.Name, known: Collection[str]) -> str | None:
    """Return the variable whose attribute a path names, where it is one of those `known` and not `variable`."""
    first, *rest = names_of(attribute)
    return first if rest and first in known and first != variable.name else None


_REGULAR = r".^$*+?()[]{}|\\"
"""What means something in a regular expression."""


def _regular(pattern: str) -> str:
    """Return the regular expression for what SQL would find."""
    begin, end = "" if pattern.startswith("%") else "^", "" if pattern.endswith("%") else "$"
    return begin + pattern.strip("%").replace("%", ".*") + end


def _likes(predicate: s.Predicate) -> Iterator[s.Like]:
    return (leaf for leaf in s.leaves(predicate) if isinstance(leaf, s.Like))
