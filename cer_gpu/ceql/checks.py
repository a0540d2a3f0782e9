"""Checks of a query before any schema is known: names, clauses, patterns of strings.

All errors are collected, up to `MAX_ERRORS`, to be shown together; `notes` are remarks on a correct query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, product

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.one_event import NameTest, may_be_one, name_test
from cer_gpu.ceql.paths import names_of
from cer_gpu.ceql.patterns import STRING_TESTS
from cer_gpu.ceql.structure import check_recent, check_structure
from cer_gpu.ceql.traversal import fold, walk
from cer_gpu.ceql.variables import Variables, combine, defined_names, variables
from cer_gpu.errors import QueryError, did_you_mean

Place = s.Filtered | s.Negation | s.Absence
"""A formula, or a part of one, with a filter."""


class Surroundings:
    """The formulas around each part of a formula, computed for the first error that needs them."""

    def __init__(self, formula: s.Formula) -> None:
        self._formula = formula

    @cached_property
    def _around(self) -> dict[int, s.Formula]:
        """The formula around each sub-formula, by the id of the latter."""
        formulas = (node for node in walk(self._formula) if isinstance(node, s.Formula))
        around: dict[int, s.Formula] = {}
        for formula in formulas:
            around |= {id(below): formula for below in s.subformulas(formula)}
            around |= {id(absence): formula for absence in s.absences_of(formula)}
        return around

    def names(self, place: Place) -> list[str]:
        """Return the names of the variables that a filter sees, in the order of the text, each once."""
        if isinstance(place, s.Filtered):
            names = [defined_names(place)]
        else:
            names = [[name.name for name in place.names]]
            if isinstance(place, s.Negation):
                return names[0]
        below: s.Formula | s.Absence = place
        while id(below) in self._around:
            around = self._around[id(below)]
            if isinstance(around, s.TrailingAbsence | s.Iteration) and below is not around.formula:
                names.append(defined_names(around.formula))
            if isinstance(around, s.Sequence) and below is not around.left:
                names.append(defined_names(around.left))
            below = around
        return list(dict.fromkeys(name for level in reversed(names) for name in level))

    def why_not(self, name: str, place: Place) -> tuple[str, str]:
        """Return the reason why a filter does not see a variable that the formula defines, and a hint."""
        if isinstance(place, s.Negation):
            own = " or ".join(self.names(place))
            return (
                "and within NOT(...) a filter reads the one event that it stands for",
                f"the filter in NOT(...) names {own} alone",
            )
        below: s.Formula | s.Absence = place
        branch = False
        while id(below) in self._around:
            around = self._around[id(below)]
            match around:
                case s.Assign() if around.variable.name == name:
                    return "which the AS around it defines", f"let the FILTER stand behind AS {name}"
                case s.Sequence() if isinstance(below, s.Absence) and name in defined_names(around.right):
                    return (
                        "which stands after the absence",
                        f"an absence is compared with what stands before it; it ends where {name} begins",
                    )
                case s.Sequence() if around.left is below and name in defined_names(around.right):
                    return (
                        "which stands after the filtered formula",
                        f"let the FILTER stand behind {name}: it sees what it filters, and what stands before that",
                    )
                case s.Conjunction() if name in defined_names(around.right if around.left is below else around.left):
                    return (
                        "which stands on the other side of ALL",
                        "let the FILTER stand behind the whole conjunction: (A ALL B) FILTER ...",
                    )
                case s.Preceded() if below is not around.formula:
                    return (
                        "which stands after the absence",
                        "an absence counted back reads its own event alone; for one user, say, PARTITION BY [user]",
                    )
                case s.Disjunction():
                    other = around.right if around.left is below else around.left
                    branch |= name in defined_names(other)
            below = around
        assert branch
        return (
            "which another branch of OR defines",
            "let the FILTER stand behind the whole OR; it holds where a variable is empty",
        )


NEEDS_TIME = "a length in DAYS, HOURS, MINUTES or SECONDS needs a time column"
MAX_ERRORS = 20
"""Most errors collected: each costs a search for the nearest name."""


@dataclass
class Findings:
    """Errors, with which a query cannot be evaluated, and notes, with which it can."""

    errors: list[QueryError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check(
    query: s.QuerySyntax, *, has_time_column: bool, has_type_column: bool = True, time_columns: Sequence[str] = ()
) -> Findings:
    """Check a parsed query.

    `time_columns` are the columns of timestamps, if they are known: a single one is proposed as the time column.
    """
    findings = Findings()
    checker = _Checker(query, findings)
    checker.streams(has_type_column)
    fold(query.formula, checker.formula, s.subformulas)
    check_structure(query, checker.report)
    if query.select.strategy == "RECENT":
        check_recent(query, checker.report)
    checker.on_both_sides()
    checker.other_events()
    checker.select()
    checker.partition()
    checker.window(has_time_column, time_columns)
    return findings


class _Checker:
    def __init__(self, query: s.QuerySyntax, findings: Findings) -> None:
        self.query = query
        self.findings = findings
        self._noted: set[str] = set()
        self._streams = dict.fromkeys(name.name for name in query.streams)
        self._whole = variables(query.formula)
        self._surroundings = Surroundings(query.formula)
        self._spares = _spares(query.formula)
        self._types = {name.name for name in s.event_names(query.formula)}

    def error(self, message: str, span: s.Span, hint: Callable[[], str | None] = lambda: None) -> None:
        errors = self.findings.errors
        again = any((error.message, error.start, error.end) == (message, *span) for error in errors)
        if len(errors) < MAX_ERRORS and not again:
            errors.append(QueryError(message, self.query.text, *span, hint=hint()))

    def report(self, message: str, span: s.Span, hint: str) -> None:
        self.error(message, span, lambda: hint)

    def note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.findings.notes.append(text)

    # ---- clauses ----------------------------------------------------------------------------------------

    def streams(self, has_type_column: bool) -> None:
        streams = self._streams
        for name in _again(self.query.streams):
            self.error(f"FROM names stream {name.name!r} twice", name.span)
        if not has_type_column and self.query.head is not None:
            self.error(
                "type_column=None makes the stream's name the type of its events, and a conjunctive query names none",
                (0, len(self.query.text)),
                lambda: "name the column of types, or write SELECT ... FROM ... WHERE A AS a ALL B AS b",
            )
        elif (
            not has_type_column and not streams and any(n.name != s.ANY_TYPE for n in s.event_names(self.query.formula))
        ):
            self.error(
                "type_column=None makes the stream's name the type of its events, and the query has no FROM",
                (0, len(self.query.text)),
                lambda: "add FROM and the name of the stream",
            )
        read = (node for node in walk(self.query.formula) if isinstance(node, s.Attribute))
        of_aggregates = (
            aggregate.event for each in read for aggregate in s.aggregates_in(each) if aggregate.event is not None
        )
        for event in (*s.event_names(self.query.formula), *of_aggregates):
            self.stream_of(event)
            if event.name == s.ANY_TYPE:
                continue
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
            if not item.written:
                continue
            self.stream_of(item.variable)
            if item.variable.name in self._whole:
                self.note_unbound(item.variable, self._whole.always, "it keeps nothing")
            else:
                names = partial(defined_names, self.query.formula)
                self.refuse_undefined(item.variable, names, "SELECT")
            for attribute in item.attributes or ():
                other = _other_variable(attribute.name, item.variable, self._whole)
                if other is not None:
                    message = f"SELECT {item.variable.name}[...] lists attributes of {item.variable.name!r}"
                    self.error(f"{message}, and {other!r} is another variable", attribute.span)

    def partition(self) -> None:
        for key in _again(names[0] for names in self.query.partition):
            self.error(f"PARTITION BY has two keys named {key.name!r}", key.span)
        for names in self.query.partition:
            if len(names) > 1:
                one = ", ".join(name.name for name in names)
                several = ", ".join(f"[{name.name}]" for name in names)
                self.note(f"PARTITION BY [{one}] is one key, the first of these that an event has; several: {several}")

    def window(self, has_time_column: bool, time_columns: Sequence[str]) -> None:
        within = self.query.within
        if within is not None and self.query.chooses_first:
            self.chosen_first(within)
        name = "name it: time_column=... (--time-column)"
        if len(time_columns) == 1:
            name = f"time_column={time_columns[0]!r} (--time-column {time_columns[0]})"
        for length in s.lengths(self.query) if not has_time_column else ():
            if length.kind != "time":
                continue
            before = "WITHIN " if length is within else ""
            hint = f"{name}, or write {before}n EVENTS or {before}n [attribute]"
            self.error(NEEDS_TIME, length.span, lambda hint=hint: hint)  # type: ignore[misc]

    def chosen_first(self, within: s.Within) -> None:
        """Check that THEN WITHIN, which lets the strategy choose before the window, has a meaning."""
        reasons = {
            s.Relation: "join predicates: they choose among what lies within the window",
            s.Conjunction: "ALL: its matches are joined within the window",
            s.TrailingAbsence: "an absence at the end, which lasts until the window has passed",
            s.Windowed: "a window within the pattern: they choose among what lies within it",
        }
        nodes = list(walk(self.query.formula))
        conflicts = [reason for kind, reason in reasons.items() if any(isinstance(node, kind) for node in nodes)]
        if self.query.each_step is not None:
            conflicts.append("EACH STEP: they choose among what has no longer gap")
        if conflicts:
            message = f"THEN WITHIN has no meaning with {conflicts[0]}"
            self.error(message, within.span, lambda: "write WITHIN without THEN")
            return
        if self.query.select.strategy in ("ALL", "ANY"):
            strategy = self.query.select.strategy
            self.note(f"THEN WITHIN is WITHIN where no match beats another, as with {strategy}")

    # ---- formulas and filters -----------------------------------------------------------------------------

    def formula(self, formula: s.Formula, below: list[Variables]) -> Variables:
        """Check a formula after its sub-formulas, and return its variables."""
        match formula:
            case s.Negation():
                self.of_one_event(formula)
            case s.Assign():
                if not below[0] and not below[0].some_event:
                    self.note(f"variable {formula.variable.name!r} never holds an event: NOT(...) holds none")
            case s.Iteration(n_min=0, n_max=1) if _RELUCTANT.search(self.query.text[slice(*formula.span)]):
                self.note("+? is + or nothing, as *: no quantifier is reluctant, as every match is found")
            case s.Preceded():
                self.note("an absence counted back holds at the beginning of the stream: nothing came before")
            case s.Filtered():
                self.filter(formula.filter, below[0], formula)
        for absence in s.absences_of(formula):
            self.of_one_event(absence)
        return combine(formula, below)

    def of_one_event(self, place: s.Negation | s.Absence) -> None:
        """Check the filter of NOT(...) or of an absence, in which its one event is the only one of its names."""
        if place.filter is not None:
            names = {name.name for name in place.names}
            scope = Variables(names, set(), set(names), one_event=True, some_event=True)
            self.filter(place.filter, scope, place)

    def on_both_sides(self) -> None:
        """Note the types of which one event can be on both sides of ALL."""
        same = _SAME if self.query.head is None else _SAME_ATOMS

        def tests(formula: s.Formula, below: list[_TestsOfTypes]) -> _TestsOfTypes:
            if isinstance(formula, s.EventType):
                test = name_test(formula.event)
                return {test.event_type: {test}}
            small, *large = sorted(below, key=len) or [{}]
            if not large:
                return small
            if isinstance(formula, s.Conjunction):
                for name in sorted(set(_of_one(small, large[0]))):
                    self.note(same.format(name))
            for event_type, of_type in small.items():
                large[0].setdefault(event_type, set()).update(of_type)
            return large[0]

        fold(self.query.formula, tests, s.subformulas)

    def other_events(self) -> None:
        """Note each ``; NOT(R)``, which is one event more, and no absence."""
        for part in walk(self.query.formula):
            if isinstance(part, s.Sequence) and not part.contiguous and not part.next:
                other = part.right
                while isinstance(other, s.Assign | s.Filtered):
                    other = other.formula
                if isinstance(other, s.Negation):
                    name = other.event.name
                    self.note(
                        f"NOT({name}) is one event, that is not {name}; that no {name} lies between is ; !{name} ;"
                    )

    def filter(self, filter_: s.Filter, scope: Variables, place: Place) -> None:
        """Check a filter on a formula, or within NOT, that defines the `scope` variables."""
        for item in walk(filter_):
            match item:
                case s.VariableFilter():
                    self.check_role(s.Role(item.variable, always=item.variable.name in scope.always), scope, place)
                    self.patterns(item.predicate)
                    self.over_aggregates(item.predicate)
                case s.Relation():
                    each = {a.variable.name for a in s.attributes(item.predicate) if a.variable and a.event == "EACH"}
                    for role in item.roles:
                        self.check_role(role, scope, place, each=role.variable.name in each)
                    self.note_skipped(item, scope, place)
                    self.patterns(item.predicate)
                    self.over_aggregates(item.predicate)

    def check_role(self, role: s.Role, scope: Variables, place: Place, *, each: bool = True) -> None:
        """Check a variable of a filter; `each`: the filter reads each event that it holds."""
        variable = role.variable
        self.stream_of(variable)
        if variable.name not in scope and not role.sites:
            self.refuse_unseen(variable, place)
        elif variable.name not in scope.always and not role.always and variable.stream is None:
            self.note_unbound(variable, (), "a filter on it holds")
        elif each and variable.name in self._whole.several:
            self.note(f"variable {variable.name!r} can hold several events; a filter on it must hold for each of them")

    def over_aggregates(self, predicate: s.Predicate) -> None:
        """Check the OVER aggregates of a predicate: they know types, and no variables of the pattern."""
        for aggregate in s.aggregates_in(predicate):
            name = None if aggregate.event is None else aggregate.event.name
            if aggregate.event is not None and name in self._whole and name not in self._types:
                message = f"{aggregate.function} OVER is of events of a type, and {name!r} is a variable"
                self.error(message, aggregate.event.span, lambda: "name their type: AVG(BUY.amount) OVER 30 DAYS")
            for inner in (each for below in aggregate.below for each in s.attributes(below)):
                first, *rest = names_of(inner.name)
                if rest and first in self._whole:
                    message = "a filter of an OVER aggregate reads the event that it counts"
                    hint = "for events of one user, say, write PARTITION BY [user]"
                    self.error(f"{message}, and {first!r} is a variable", inner.span, partial(str, hint))

    def note_skipped(self, relation: s.Relation, scope: Variables, place: Place) -> None:
        """Note a PREV(x) where x holds one event at most; within NOT, refuse it."""
        for attribute in s.attributes(relation.predicate):
            if attribute.event != "PREV" or attribute.variable is None:
                continue
            name = attribute.variable.name
            if name in scope and isinstance(place, s.Negation):
                self.error(f"PREV({name}) is no event: NOT(...) stands for one event", attribute.span)
            elif name in (scope.single if name in scope else self._whole.single):
                self.note(f"PREV({name}) is no event, as {name!r} holds one event here: the filter always holds")

    def note_unbound(self, name: s.Name, always: Container[str], outcome: str) -> None:
        """Note a variable that is not `always` bound."""
        if name.name not in always:
            reason = f"is not bound in every match ({self._spares})"
            self.note(f"variable {name.name!r} {reason}; {outcome} where it is empty")

    def refuse_undefined(self, name: s.Name, names: Callable[[], list[str]], clause: str) -> None:
        """Refuse a variable that is not in the formula, with the nearest of the `names` names."""
        message = f"{clause} names {name.name!r}, which the formula does not define"
        self.error(message, name.span, lambda: did_you_mean(name.name, names(), "variables here"))

    def refuse_unseen(self, name: s.Name, place: Place) -> None:
        """Refuse a variable that a filter at a place does not see, and say why."""
        around = self._surroundings
        absent = {name.name for node in walk(self.query.formula) if isinstance(node, s.Absence) for name in node.names}
        if name.name not in self._whole and name.name in absent:
            self.error(
                f"FILTER names {name.name!r}, an event that must not be there",
                name.span,
                lambda: f"let its filter stand within the absence: !({name.name} FILTER {name.name}.price > 100)",
            )
        elif name.name not in self._whole:
            self.refuse_undefined(name, partial(around.names, place), "FILTER")
        else:
            why, hint = around.why_not(name.name, place)
            self.error(f"FILTER names {name.name!r}, {why}", name.span, lambda: hint)

    def patterns(self, predicate: s.Predicate) -> None:
        for test in (node for node in walk(predicate) if isinstance(node, s.StringTest)):
            kind = STRING_TESTS[test.name]
            for pattern, text in zip(test.patterns, test.strings, strict=True):
                if test.name == "LIKE" and _OF_SQL.search(text) and not set(text) & set(_REGULAR):
                    sign = "%" if "%" in text else "_"
                    self.note(
                        f"LIKE searches for a regular expression (RE2), in which {sign} means itself: "
                        f"write {_regular(text)!r}"
                    )
                try:
                    kind.check(text)
                except ValueError as error:
                    self.error(str(error), pattern.span, partial(str, kind.hint))


_SAME = "an event of {} can stand on both sides of ALL at once: it asks for no second one"
_SAME_ATOMS = "two atoms of {} can be the same event"
_TestsOfTypes = dict[str | None, set[NameTest]]


def _of_one(some: _TestsOfTypes, others: _TestsOfTypes) -> Iterator[str]:
    """Yield the types of which one event may satisfy a test of both."""
    for event_type in sorted(some, key=lambda each: each is not None):
        near = others if event_type is None else {event_type, None} & others.keys()
        for one, other in product(some[event_type], chain.from_iterable(others[each] for each in near)):
            if may_be_one(((one, False), (other, False))):
                shared = one.event_type or other.event_type, one.stream or other.stream
                yield _guard_name(*shared)
                if shared == (None, None):
                    return  # no type need be named


def _guard_name(event_type: str | None, stream: str | None) -> str:
    if event_type is None:
        return "any type" if stream is None else f"any type of stream {stream!r}"
    return f"type {event_type!r}" if stream is None else f"type {f'{stream}>{event_type}'!r}"


def _spares(formula: s.Formula) -> str:
    """Return the reason why a formula may leave a variable empty."""
    nodes = list(walk(formula))
    missing = any(isinstance(node, s.Iteration) and node.n_min == 0 for node in nodes)
    branches = any(isinstance(node, s.Disjunction) for node in nodes)
    if missing:
        return "another branch of OR, or none of ? or *" if branches else "none of ? or *"
    return "another branch of OR"


def _other_variable(attribute: str, variable: s.Name, names: Container[str]) -> str | None:
    """Return the `names` variable, other than `variable`, whose attribute a path names, or None if there is none."""
    first, *rest = names_of(attribute)
    return first if rest and first in names and first != variable.name else None


_RELUCTANT = re.compile(r"[+*}]\s*\?$")
_OF_SQL = re.compile(r"%|^_|_$")
"""Signs of an SQL pattern; in the middle, _ is common in names."""
_REGULAR = r".^$*+?()[]{}|\\"
"""Characters with a meaning in a regular expression."""


def _regular(pattern: str) -> str:
    """Translate an SQL pattern into a regular expression."""
    begin, end = "" if pattern.startswith("%") else "^", "" if pattern.endswith("%") else "$"
    return begin + pattern.strip("%").replace("%", ".*").replace("_", ".") + end


def _again(names: Iterable[s.Name]) -> Iterator[s.Name]:
    """Yield each name that repeats an earlier one."""
    seen: set[str] = set()
    for name in names:
        if name.name in seen:
            yield name
        seen.add(name.name)
