"""Formula -> locally parametrised (LP) normal form: every filter stands at the event type that it filters.

papers: CEL, section 5.2 and theorem 2.  ``AS`` and ``FILTER`` disappear: an `Atom` carries all the variables
that hold its event and the conjunction of all the predicates that the event must satisfy.
"""

from __future__ import annotations

from dataclasses import dataclass

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.checks import repeated_variables
from cer_gpu.errors import QueryTooLargeError

MAX_ATOMS = 20_000
"""``FILTER a OR b`` copies the formula it filters; a query with more atoms than this is refused."""


@dataclass(frozen=True)
class Guard:
    """What one event must be: its type (None: any) and a predicate (None: true).  `negated`: must not be."""

    event_type: str | None
    predicate: s.Predicate | None = None


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


def normal_form(formula: s.Formula, *, typed: bool = True) -> NormalForm:
    """Push every filter to the atoms.

    Parameters
    ----------
    formula
        A checked formula.
    typed
        False where all events have the same type (``type_column=None``): atoms then test no type.

    Raises
    ------
    QueryTooLargeError
        When disjunctions of filters copy the formula too often.
    """
    return _Normaliser(typed).walk(formula, ())


class _Normaliser:
    def __init__(self, typed: bool) -> None:
        self.typed = typed
        self.n_atoms = 0

    def walk(self, formula: s.Formula, context: _Context) -> NormalForm:
        match formula:
            case s.EventType():
                labels, predicates = _apply(context, {formula.event.name})
                return self.atom(formula.event, predicates, frozenset(labels))
            case s.Negation():
                predicates = [] if formula.filter is None else [_as_predicate(formula.filter)]
                return self.atom(formula.event, predicates, frozenset(), negated=True)
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
                return self.walk(formula, ((filter_.variable.name, filter_.predicate), *context))
            case s.FilterAnd():
                inner = s.Filtered(formula, filter_.left, filter_.span)
                return self.filtered(inner, filter_.right, context)
            case s.FilterOr():
                names = {item.variable.name for item in s.variable_filters(filter_)}
                if len(names) == 1 and not names & repeated_variables(formula):
                    # x holds at most one event, so that x[p] OR x[q] is x[p OR q]: nothing is copied
                    return self.walk(formula, ((names.pop(), _as_predicate(filter_)), *context))
                return Either(
                    self.filtered(formula, filter_.left, context),
                    self.filtered(formula, filter_.right, context),
                )

    def atom(self, event: s.Name, predicates: list[s.Predicate], labels: frozenset[str], negated: bool = False) -> Atom:
        self.n_atoms += 1
        if self.n_atoms > MAX_ATOMS:
            raise QueryTooLargeError(
                f"the query has more than {MAX_ATOMS} atoms once its disjunctions of filters are spread out",
                hint="x[p] OR x[q] can often be written x[p OR q], which copies nothing",
            )
        predicate: s.Predicate | None = None
        for part in dict.fromkeys(predicates):
            predicate = part if predicate is None else s.And(predicate, part)
        return Atom(Guard(event.name if self.typed else None, predicate), labels, negated)


def _apply(context: _Context, labels: set[str]) -> tuple[set[str], list[s.Predicate]]:
    """Return the variables that hold the event, and the predicates of the filters on them."""
    predicates = []
    for item in context:
        if isinstance(item, str):
            labels.add(item)
        elif item[0] in labels:
            predicates.append(item[1])
    return labels, predicates


def _as_predicate(filter_: s.Filter) -> s.Predicate:
    """Read a filter on a single event as one predicate on it."""
    match filter_:
        case s.VariableFilter():
            return filter_.predicate
        case s.FilterAnd():
            return s.And(_as_predicate(filter_.left), _as_predicate(filter_.right), filter_.span)
        case s.FilterOr():
            return s.Or(_as_predicate(filter_.left), _as_predicate(filter_.right), filter_.span)
