"""Formula -> locally parametrised (LP) normal form: every filter stands at the event type that it filters.

papers: CEL, section 5.2 and theorem 2.  ``AS`` and ``FILTER`` disappear: an `Atom` carries all the variables
that hold its event and the conjunction of all the predicates that the event must satisfy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.checks import repeated_variables
from cer_gpu.errors import QueryTooLargeError

MAX_ATOMS = 20_000
"""``FILTER a OR b`` copies the formula it filters; a query with more atoms than this is refused."""


@dataclass(frozen=True)
class Guard:
    """What one event must be: its type (None: any), a predicate (None: true), and its stream (None: any)."""

    event_type: str | None
    predicate: s.Predicate | None = None
    stream: str | None = None


@dataclass(frozen=True)
class Atom:
    """One event that satisfies a guard, or, when `negated`, one that does not; held by `labels`."""

    guard: Guard
    labels: frozenset[str]
    negated: bool = False


@dataclass(frozen=True)
class Either:
    """One of the two."""

    left: NormalForm
    right: NormalForm


@dataclass(frozen=True)
class Then:
    """`left`, then `right`: later, or at the very next position when `contiguous`."""

    left: NormalForm
    right: NormalForm
    contiguous: bool


@dataclass(frozen=True)
class Repeat:
    """`body` one or more times, joined by ``;`` or, when `contiguous`, by ``:``."""

    body: NormalForm
    contiguous: bool


NormalForm = Atom | Either | Then | Repeat

# what stands around a sub-formula, innermost first: a variable (AS) or a variable with its predicate (FILTER)
_Context = tuple[str | tuple[str, s.Predicate], ...]


def normal_form(formula: s.Formula, *, typed: bool = True, streams: Sequence[str] = ()) -> NormalForm:
    """Push every filter to the atoms.

    Parameters
    ----------
    formula
        A checked formula.
    typed
        False where the stream's name is the type of its events (``type_column=None``): atoms then test no type.
    streams
        The streams of FROM: events are held by each variable ``x`` as ``stream>x`` too, and where there are several,
        atoms test the stream.

    Raises
    ------
    QueryTooLargeError
        When disjunctions of filters copy the formula too often.
    """
    return _Normaliser(typed, streams).walk(formula, ())


class _Normaliser:
    def __init__(self, typed: bool, streams: Sequence[str]) -> None:
        self.typed = typed
        self.streams = streams
        self.n_atoms = 0

    def walk(self, formula: s.Formula, context: _Context) -> NormalForm:
        match formula:
            case s.EventType():
                atoms = [self.event(formula.event, stream, context) for stream in self.streams_of(formula.event)]
                return reduce(Either, atoms)
            case s.Negation():
                predicates = [] if formula.filter is None else [_as_predicate(formula.filter)]
                stream = formula.event.stream if self.typed else formula.event.name
                return self.atom(formula.event, stream, predicates, frozenset(), negated=True)
            case s.Assign():
                return self.walk(formula.formula, (formula.variable.name, *context))
            case s.Filtered():
                return self.filtered(formula.formula, formula.filter, context)
            case s.Disjunction():
                return Either(self.walk(formula.left, context), self.walk(formula.right, context))
            case s.Sequence():
                left, right = self.walk(formula.left, context), self.walk(formula.right, context)
                return Then(left, right, formula.contiguous)
            case s.Iteration():
                return Repeat(self.walk(formula.formula, context), formula.contiguous)

    def filtered(self, formula: s.Formula, filter_: s.Filter, context: _Context) -> NormalForm:
        match filter_:
            case s.VariableFilter():
                return self.walk(formula, ((variable_name(filter_.variable), filter_.predicate), *context))
            case s.FilterAnd():
                inner = s.Filtered(formula, filter_.left, filter_.span)
                return self.filtered(inner, filter_.right, context)
            case s.FilterOr():
                variables = [item.variable for item in s.variable_filters(filter_)]
                names = {variable_name(variable) for variable in variables}
                if len(names) == 1 and variables[0].name not in repeated_variables(formula):
                    # x holds at most one event, so that x[p] OR x[q] is x[p OR q]: nothing is copied
                    return self.walk(formula, ((names.pop(), _as_predicate(filter_)), *context))
                return Either(
                    self.filtered(formula, filter_.left, context),
                    self.filtered(formula, filter_.right, context),
                )

    def streams_of(self, event: s.Name) -> Sequence[str | None]:
        """Return the streams in which an event is looked for; None is any."""
        if not self.streams:
            return [None]
        if event.stream is not None:
            return [event.stream]
        return self.streams if self.typed else [event.name]

    def event(self, event: s.Name, stream: str | None, context: _Context) -> NormalForm:
        labels, predicates = _apply(context, {event.name}, stream)
        return self.atom(event, stream, predicates, frozenset(labels))

    def atom(
        self,
        event: s.Name,
        stream: str | None,
        predicates: list[s.Predicate],
        labels: frozenset[str],
        negated: bool = False,
    ) -> Atom:
        self.n_atoms += 1
        if self.n_atoms > MAX_ATOMS:
            raise QueryTooLargeError(
                f"the query has more than {MAX_ATOMS} atoms once its disjunctions of filters are spread out",
                hint="x[p] OR x[q] can often be written x[p OR q], which copies nothing",
            )
        predicate: s.Predicate | None = None
        for part in dict.fromkeys(predicates):
            predicate = part if predicate is None else s.And(predicate, part)
        event_type = event.name if self.typed else None
        return Atom(Guard(event_type, predicate, stream if len(self.streams) > 1 else None), labels, negated)


def _apply(context: _Context, labels: set[str], stream: str | None) -> tuple[set[str], list[s.Predicate]]:
    """Return the variables that hold an event of a stream, and the predicates of the filters on them."""
    predicates = []
    if stream is not None:
        labels |= {f"{stream}>{name}" for name in labels}
    for item in context:
        if isinstance(item, str):
            labels |= {item} if stream is None else {item, f"{stream}>{item}"}
        elif item[0] in labels:
            predicates.append(item[1])
    return labels, predicates


def variable_name(variable: s.Name) -> str:
    """Return the name of a variable as it is written, with its stream if it has one."""
    return variable.name if variable.stream is None else f"{variable.stream}>{variable.name}"


def _as_predicate(filter_: s.Filter) -> s.Predicate:
    """Read a filter on a single event as one predicate on it."""
    match filter_:
        case s.VariableFilter():
            return filter_.predicate
        case s.FilterAnd():
            return s.And(_as_predicate(filter_.left), _as_predicate(filter_.right), filter_.span)
        case s.FilterOr():
            return s.Or(_as_predicate(filter_.left), _as_predicate(filter_.right), filter_.span)
