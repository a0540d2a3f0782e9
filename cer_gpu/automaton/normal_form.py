"""Locally parametrised (LP) normal form of a formula: every filter is at the event type that it filters.

papers: CEL, section 5.2 and theorem 2.  ``AS`` and ``FILTER`` disappear: an `Atom` carries all the variables that hold
its event, and the conjunction of all the predicates that the event must satisfy.  A join predicate remains around
the formula that it filters (`Related`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.scopes import one_predicate
from cer_gpu.ceql.traversal import Node, children, fold, walk, with_children
from cer_gpu.ceql.variables import Variables, combine
from cer_gpu.errors import QueryTooLargeError

MAX_ATOMS = 20_000
"""Most atoms of a query, as ``FILTER a OR b`` copies the formula that it filters."""
MAX_PARTS = 1_000_000
"""Most variables and filters of all atoms together: ``AS`` and ``FILTER`` count for each atom that they enclose."""


@dataclass(frozen=True)
class Guard:
    """Test of one event: its type (None: any), a predicate on it (None: true), and its stream (None: any)."""

    event_type: str | None
    predicate: s.Predicate | None = None
    stream: str | None = None


@dataclass(frozen=True)
class Atom(Node):
    """One event that satisfies a guard, or, when `negated`, one that does not; the variables in `labels` hold it.

    `sites` are the definitions around it that join predicates name (`syntax.EventType.site`); `stream` is the
    stream that it is from, where FROM names streams.
    """

    guard: Guard
    labels: frozenset[str]
    negated: bool = False
    sites: frozenset[int] = frozenset()
    stream: str | None = None


@dataclass(frozen=True)
class Either(Node):
    """``left OR right``."""

    left: NormalForm
    right: NormalForm
    parts: ClassVar[tuple[str, ...]] = ("left", "right")


@dataclass(frozen=True)
class Absent:
    """Events that must not lie in a gap: they satisfy `guard` (do not, when `negated`), and all `relations`.

    `sites` are the definitions of such an event that the relations name; `stream` as that of an `Atom`.  With a
    `length` they must also not come within that length after the end of what precedes the gap, whatever follows.
    """

    guard: Guard
    relations: tuple[s.Relation, ...] = ()
    negated: bool = False
    sites: frozenset[int] = frozenset()
    stream: str | None = None
    length: s.Within | None = None


@dataclass(frozen=True)
class Then(Node):
    """`left`, then `right`: later, or at the very next position when `contiguous`.

    None of `absent` lies strictly between the two.  A side that is `optional` may be missing: the other is then
    alone.  No normal form has an empty match.
    """

    left: NormalForm
    right: NormalForm
    contiguous: bool
    absent: tuple[Absent, ...] = ()
    optional: tuple[bool, bool] = (False, False)
    parts: ClassVar[tuple[str, ...]] = ("left", "right")


@dataclass(frozen=True)
class Both(Node):
    """``left ALL right``: both, in any order, interleaved or sharing events.

    One is alone where the other is `optional` and missing.
    """

    left: NormalForm
    right: NormalForm
    optional: tuple[bool, bool] = (False, False)
    parts: ClassVar[tuple[str, ...]] = ("left", "right")


@dataclass(frozen=True)
class Repeat(Node):
    """`body` from `n_min` (1 or more) to `n_max` times (None if unbounded).

    They are joined by ``;``, or by ``:`` when `contiguous`.  None of `absent` lies strictly between two of them.
    """

    body: NormalForm
    contiguous: bool
    n_min: int = 1
    n_max: int | None = None
    absent: tuple[Absent, ...] = ()
    parts: ClassVar[tuple[str, ...]] = ("body",)


@dataclass(frozen=True)
class Trailing(Node):
    """`body` at the end of a whole pattern: none of `absent` comes after it until its window has passed.

    With a `length` it is the window of that length that begins with its last event.
    """

    body: NormalForm
    absent: tuple[Absent, ...]
    length: s.Within | None = None
    parts: ClassVar[tuple[str, ...]] = ("body",)


@dataclass(frozen=True)
class Related(Node):
    """The matches of `body` that pass a join predicate."""

    body: NormalForm
    relation: s.Relation
    parts: ClassVar[tuple[str, ...]] = ("body",)


NormalForm = Atom | Either | Then | Both | Repeat | Related | Trailing


@dataclass(frozen=True)
class Joint:
    """Relation of an operand of a sequence to the operands before it: the fields are those of `Then`.

    For the first operand of all they are those of no `Then`.
    """

    contiguous: bool = False
    absent: tuple[Absent, ...] = ()
    optional: tuple[bool, bool] = (False, False)


def sequence(formula: NormalForm) -> Iterator[tuple[NormalForm, Joint]]:
    """Yield the operands of a sequence, from left to right, each with its joint to all operands before it.

    The joint speaks of those before it as a whole: when ``optional[0]``, all of them may be missing.  A sequence that
    may be missing as a whole, or that begins with an operand that may, is an operand of its own to the right of others.
    """
    todo: list[tuple[NormalForm, Joint | None]] = [(formula, None)]
    while todo:
        part, joint = todo.pop()
        if isinstance(part, Then) and not (joint is not None and (joint.optional[1] or _may_begin_later(part))):
            own = Joint(part.contiguous, part.absent, part.optional)
            if part.optional[0] and isinstance(part.left, Then):
                yield part.left, joint or Joint()
                todo.append((part.right, own))
            else:
                todo += [(part.right, own), (part.left, joint)]
        else:
            yield part, joint or Joint()


def _may_begin_later(formula: NormalForm) -> bool:
    """Return True for a sequence whose first operand may be missing."""
    while isinstance(formula, Then):
        if formula.optional[0]:
            return True
        formula = formula.left
    return False


def choices(formula: NormalForm) -> Iterator[NormalForm]:
    """Yield the operands of OR, from left to right."""
    todo = [formula]
    while todo:
        part = todo.pop()
        if isinstance(part, Either):
            todo += [part.right, part.left]
        else:
            yield part


def guards_of(formula: NormalForm) -> tuple[Guard, ...]:
    """Return the guards of the atoms and absences of a formula, each once, from left to right."""
    # a guard that many atoms share is hashed once
    guards: dict[int, Guard] = {}
    todo: list[NormalForm | Absent] = [formula]
    while todo:
        part = todo.pop()
        match part:
            case Atom() | Absent():
                guards[id(part.guard)] = part.guard
            case Then():
                todo += [part.right, *reversed(part.absent), part.left]
            case Repeat() | Trailing():
                todo += [*reversed(part.absent), part.body]
            case _:
                todo += reversed(children(part))
    return tuple(dict.fromkeys(guards.values()))


def is_plain(formula: NormalForm) -> bool:
    """Return True for a formula without absences, options and counted repetitions, which the papers do not have."""
    for part in walk(formula):
        match part:
            case Trailing():
                return False
            case Then() if part.absent or any(part.optional):
                return False
            case Both() if any(part.optional):
                return False
            case Repeat() if part.absent or (part.n_min, part.n_max) != (1, None):
                return False
    return True


def copies_of(repeat: Repeat) -> int:
    """Return how many copies of its body stand for a repetition: the last one repeats where there is no bound."""
    return repeat.n_max or repeat.n_min


def absences(formula: NormalForm) -> Iterator[Absent]:
    """Yield the absences in a formula, from the outermost on."""
    for part in walk(formula):
        if isinstance(part, Then | Repeat | Trailing):
            yield from part.absent


def unrelated(formula: NormalForm) -> NormalForm:
    """Return a formula without its join predicates: the skeleton, from whose matches they choose.

    An absence with such a filter is left out, as it only removes matches; one without stays.  If nothing changes,
    it is the formula itself.
    """
    related = any(isinstance(part, Related) for part in walk(formula))
    if not related and not any(absent.relations for absent in absences(formula)):
        return formula

    def strip(part: NormalForm, below: list[NormalForm]) -> NormalForm:
        if isinstance(part, Related):
            return below[0]
        stripped: NormalForm = with_children(part, below)
        if isinstance(stripped, Then | Repeat | Trailing):
            absent = tuple(absent for absent in stripped.absent if not absent.relations)
            if isinstance(stripped, Trailing) and not absent:
                return stripped.body
            stripped = replace(stripped, absent=absent)
        return stripped

    return fold(formula, strip, children)


Windows = Callable[[NormalForm, s.Windowed | s.Preceded], NormalForm]
"""Maker of the normal form of a local window or an absence counted back, given that of the formula within."""


def normal_form(
    formula: s.Formula, *, typed: bool = True, streams: Sequence[str] = (), windows: Windows | None = None
) -> NormalForm:
    """Push every filter on single events to the atoms, and keep every join predicate around what it filters.

    Parameters
    ----------
    formula
        A checked formula.
    typed
        False: the stream's name is the type of its events (``type_column=None``), and atoms test no type.
    streams
        The streams of FROM: ``stream>x`` holds the events of each variable ``x`` too, and atoms test the stream if
        there are several.
    windows
        Makes the normal forms of local windows and of absences counted back, or None if there are none.

    Raises
    ------
    QueryTooLargeError
        When disjunctions of filters copy the formula too often, or atoms have too many variables and filters.
    """
    return _Normaliser(formula, typed, streams, windows).result


_Ending = tuple[NormalForm, tuple[Absent, ...]]
"""A formula, and the absences that it ends in: they lie in the gap before what follows."""


@dataclass
class _PartToNormalise:
    """A formula and the filters to be pushed down into it, the innermost first.

    Attributes
    ----------
    pushed : list of (dict, str)
        Entries to remove when the part is left: the table and the name.
    relations : list of Relation
        Join predicates on the formula, the last one first.
    copied : bool
        True if a disjunction of filters copies the formula: below the part are the copies.
    """

    formula: s.Formula
    filters: tuple[s.Filter, ...] = ()
    pushed: list[tuple[dict[str, list[Any]], str]] = field(default_factory=list)
    relations: list[s.Relation] = field(default_factory=list)
    copied: bool = False


class _Normaliser:
    """Pass that pushes the filters of a formula down.

    The ``AS`` and ``FILTER`` around the current part are stored by variable, each with its depth, the outermost first:
    an atom looks up only the filters on its own variables.
    """

    def __init__(self, formula: s.Formula, typed: bool, streams: Sequence[str], windows: Windows | None = None) -> None:
        self.typed = typed
        self.windows = windows
        self.streams = streams
        self.n_atoms = self.n_parts = 0
        # by the id of a filtered formula: variables that its filter names and that can hold several events
        self._several: dict[int, set[str]] = {}
        self._empty: set[int] = set()  # ids of the formulas that may have the empty match
        self._assigned: dict[str, list[int]] = {}
        self._filters: dict[str, list[tuple[int, s.Predicate]]] = {}
        self._sites: dict[str, list[int]] = {}  # of the AS around, as far as join predicates name them
        self._depth = 0
        self._alike: dict[tuple[str, str | None, int], Atom] = {}  # by type, stream and site, since `_depth` changed
        fold(formula, self._note_several, s.subformulas)
        self.result = _with_one_ending(fold(_PartToNormalise(formula), self._leave_part, self._enter_part))

    def _note_several(self, formula: s.Formula, below: list[Variables]) -> Variables:
        if isinstance(formula, s.Filtered):
            names = {item.variable.name for item in s.variable_filters(formula.filter)}
            self._several[id(formula.formula)] = names & below[0].several
        variables = combine(formula, below)
        if variables.empty:
            self._empty.add(id(formula))
        return variables

    # ---- down: AS and FILTER ------------------------------------------------------------------------------------

    def _enter_part(self, part: _PartToNormalise) -> list[_PartToNormalise]:
        """Push the AS or FILTER of a part, and return the parts below it: copies for a disjunction of filters."""
        formula, filters = part.formula, list(part.filters)
        while filters:
            filter_ = filters.pop()
            match filter_:
                case s.VariableFilter():
                    self._push(part, self._filters, variable_name(filter_.variable), (self._depth, filter_.predicate))
                case s.Relation():
                    part.relations.append(filter_)
                case s.FilterAnd():
                    filters += filter_.operands
                case s.FilterOr():
                    choices = _filter_choices(filter_, self._several[id(formula)])
                    if len(choices) > 1:
                        part.copied = True
                        return [_PartToNormalise(formula, (*filters, choice)) for choice in choices]
                    filters += choices
        match formula:
            case s.Assign():
                self._push(part, self._assigned, formula.variable.name, self._depth)
                if formula.site >= 0:
                    self._push(part, self._sites, formula.variable.name, formula.site)
                return [_PartToNormalise(formula.formula)]
            case s.Filtered():
                return [_PartToNormalise(formula.formula, (formula.filter,))]
            case _:
                return [_PartToNormalise(below) for below in s.subformulas(formula)]

    def _push(self, part: _PartToNormalise, table: dict[str, list[Any]], name: str, entry: object) -> None:
        table.setdefault(name, []).append(entry)
        part.pushed.append((table, name))
        self._depth += 1
        self._alike.clear()

    # ---- up: normal forms ---------------------------------------------------------------------------------------

    def _leave_part(self, part: _PartToNormalise, below: list[NormalForm]) -> NormalForm:
        """Return the normal form of a part, and remove its entries."""
        normal = reduce(Either, below) if part.copied else self._build_node(part.formula, below)
        for table, name in part.pushed:
            table[name].pop()
            if not table[name]:
                del table[name]
            self._depth -= 1
            self._alike.clear()
        for relation in reversed(part.relations):
            normal = _disjoin_endings((Related(body, relation), absent) for body, absent in _endings(normal))
        return normal

    def _build_node(self, formula: s.Formula, below: list[NormalForm]) -> NormalForm:
        match formula:
            case s.EventType():
                streams = self._streams_of(formula.event)
                atoms: list[NormalForm] = [self._atom_of_event(formula, stream) for stream in streams]
                return reduce(Either, atoms)
            case s.Negation():
                stream = formula.event.stream if self.typed or formula.event.name == s.ANY_TYPE else formula.event.name
                predicate = None if formula.filter is None else one_predicate(formula.filter)
                return self._atom(formula.event, stream, predicate, frozenset())
            case s.Assign() | s.Filtered():
                return below[0]
            case s.Disjunction():
                return Either(below[0], below[1])
            case s.Sequence():
                absent = (*(self._next(formula.right) if formula.next else ()), *self._absent(formula.absent))
                return self._sequence(formula, _endings(below[0]), _endings(below[1]), absent)
            case s.TrailingAbsence():
                own = self._absent(formula.absent)
                return _disjoin_endings((body, (*absent, *own)) for body, absent in _endings(below[0]))
            case s.Conjunction():
                return Both(below[0], below[1], self._optional(formula))
            case s.Iteration():
                if formula.n_max == 1:
                    return below[0]
                least = 1 if id(formula.formula) in self._empty else max(formula.n_min, 1)
                absent = self._next(formula.formula) if formula.next else ()
                ((body, ending),) = _endings(below[0])
                absent = tuple(dict.fromkeys([*absent, *self._absent(formula.until), *ending]))
                return _disjoin_endings([(Repeat(body, formula.contiguous, least, formula.n_max, absent), ending)])
            case s.Windowed() | s.Preceded():
                assert self.windows is not None
                return self.windows(below[0], formula)

    def _sequence(
        self, formula: s.Sequence, lefts: list[_Ending], rights: list[_Ending], absent: tuple[Absent, ...]
    ) -> NormalForm:
        """Return a sequence of two formulas that may end in absences: those of the left one come between the two."""
        optional = self._optional(formula)
        alternatives: list[_Ending] = []
        for left, before in lefts:
            for right, after in rights:
                between = tuple(dict.fromkeys([*before, *absent]))
                without = (optional[0] and not before, optional[1] and not after)
                alternatives.append((Then(left, right, formula.contiguous, between, without), after))
        if optional[0] and any(before for _, before in lefts):
            alternatives += rights
        if optional[1] and any(after for _, after in rights):
            alternatives += lefts
        return _disjoin_endings(alternatives)

    def _optional(self, formula: s.Sequence | s.Conjunction) -> tuple[bool, bool]:
        return id(formula.left) in self._empty, id(formula.right) in self._empty

    # ---- absences -----------------------------------------------------------------------------------------------

    def _next(self, formula: s.Formula) -> tuple[Absent, ...]:
        """Return the absences before the next event that satisfies a formula by itself, without its context."""
        own = _Normaliser(formula, self.typed, self.streams)
        self._count_parts(own.n_atoms, own.n_parts)
        todo: list[tuple[NormalForm, tuple[s.Relation, ...]]] = [(own.result, ())]
        absences: list[Absent] = []
        while todo:
            part, relations = todo.pop()
            match part:
                case Atom():
                    absences.append(Absent(part.guard, relations, part.negated, part.sites, part.stream))
                case Either():
                    todo += [(part.right, relations), (part.left, relations)]
                case Repeat():
                    todo.append((part.body, relations))
                case Related():
                    todo.append((part.body, (part.relation, *relations)))
                case _:
                    raise AssertionError(f"not one event: {part}")
        return tuple(dict.fromkeys(absences))

    def _absent(self, absences: Sequence[s.Absence]) -> tuple[Absent, ...]:
        """Return the absences of a gap: each alternative of a disjunction of filters is one of its own."""
        return tuple(dict.fromkeys(absent for absence in absences for absent in self._absent_of(absence)))

    def _absent_of(self, absence: s.Absence) -> Iterator[Absent]:
        """Yield the absences of one `!`: that of an event which is filtered as it would be in a formula."""
        event: s.Formula = s.EventType(absence.event, absence.event.span, absence.site)
        if absence.variable is not None:
            event = s.Assign(event, absence.variable, absence.span, absence.site)
        if absence.filter is not None:
            event = s.Filtered(event, absence.filter, absence.span)
        yield from (replace(absent, length=absence.length) for absent in self._next(event))

    def _streams_of(self, event: s.Name) -> Sequence[str | None]:
        """Return the streams from which an event may come; None: any."""
        if not self.streams:
            return [None]
        if event.stream is not None:
            return [event.stream]
        return self.streams if self.typed or event.name == s.ANY_TYPE else [event.name]

    def _atom_of_event(self, formula: s.EventType, stream: str | None) -> Atom:
        """Return the atom of an event of a stream, with the variables that hold it and the filters on them."""
        event = formula.event
        alike = self._alike.get((event.name, stream, formula.site))
        if alike is not None:
            self._count_parts(atoms=1)
            return alike
        depths: dict[str, float] = {name: assigned[-1] for name, assigned in self._assigned.items()}
        if formula.defines:
            depths[event.name] = math.inf
        if stream is not None:
            depths |= {f"{stream}>{name}": depth for name, depth in depths.items()}
        # a filter applies to variables bound inside the formula that it filters; the innermost filter comes first
        filters = [entry for name, depth in depths.items() for entry in self._filters.get(name, ()) if entry[0] < depth]
        filters.sort(key=lambda entry: -entry[0])
        sites = frozenset([formula.site] if formula.site >= 0 else []).union(*self._sites.values())
        self._count_parts(parts=len(depths) + len(filters) + len(sites))
        predicates = list(dict.fromkeys(predicate for _, predicate in filters))
        predicate = s.joined(s.And, predicates) if len(predicates) > 1 else predicates[0] if predicates else None
        atom = self._atom(event, stream, predicate, frozenset(depths), sites)
        self._alike[event.name, stream, formula.site] = atom
        return atom

    def _atom(
        self,
        event: s.Name,
        stream: str | None,
        predicate: s.Predicate | None,
        labels: frozenset[str],
        sites: frozenset[int] = frozenset(),
    ) -> Atom:
        """Return the atom of an event; without labels, of NOT."""
        self._count_parts(atoms=1)
        event_type = event.name if self.typed and event.name != s.ANY_TYPE else None
        guard = Guard(event_type, predicate, stream if len(self.streams) > 1 else None)
        return Atom(guard, labels, not labels, sites, stream if labels else None)

    def _count_parts(self, atoms: int = 0, parts: int = 0) -> None:
        self.n_atoms += atoms
        self.n_parts += parts
        if self.n_atoms > MAX_ATOMS:
            raise QueryTooLargeError(
                f"the query has more than {MAX_ATOMS} atoms once its disjunctions of filters are spread out",
                hint="x[p] OR x[q] can often be written x[p OR q], which copies nothing",
            )
        if self.n_parts > MAX_PARTS:
            raise QueryTooLargeError(
                f"the events of the query have more than {MAX_PARTS} variables and filters together",
                hint="a filter or AS that is around many events counts for each of them: let it stand at fewer",
            )


def _endings(formula: NormalForm) -> list[_Ending]:
    """Return the alternatives of a formula, each with the absences that it ends in."""
    if isinstance(formula, Trailing):
        return [(formula.body, formula.absent)]
    if isinstance(formula, Either) and any(isinstance(choice, Trailing) for choice in choices(formula)):
        return [ending for choice in choices(formula) for ending in _endings(choice)]
    return [(formula, ())]


def _with_one_ending(formula: NormalForm) -> NormalForm:
    """Return a whole pattern with the absences at its end, which copies of it share, after all of its alternatives."""
    endings = _endings(formula)
    if len(endings) < 2 or not endings[0][1]:
        return formula
    assert len({absent for _, absent in endings}) == 1
    return Trailing(reduce(Either, (body for body, _ in endings)), endings[0][1])


def _disjoin_endings(endings: Iterable[_Ending]) -> NormalForm:
    """Return the disjunction of formulas, each with the absences that it ends in."""
    return reduce(Either, [Trailing(body, absent) if absent else body for body, absent in endings])


def _filter_choices(filter_: s.FilterOr, several: set[str]) -> list[s.Filter]:
    """Return the alternatives of a disjunction of filters, merged as far as possible.

    If x holds at most one event, x[p] OR x[q] is x[p OR q]: filters on x alone become one, which copies nothing.
    """
    groups: dict[str | int, list[s.Filter]] = {}
    for number, operand in enumerate(filter_.operands):
        names = {variable_name(item.variable): item.variable.name for item in s.variable_filters(operand)}
        single = len(names) == 1 and several.isdisjoint(names.values())
        alone = single and next(s.relations(operand), None) is None
        groups.setdefault(next(iter(names)) if alone else number, []).append(operand)
    return [group[0] if len(group) == 1 else _one_filter(s.FilterOr(tuple(group))) for group in groups.values()]


def _one_filter(filter_: s.Filter) -> s.VariableFilter:
    """Merge a filter on one variable alone into one predicate on it."""
    return s.VariableFilter(next(s.variable_filters(filter_)).variable, one_predicate(filter_), filter_.span)


def variable_name(variable: s.Name) -> str:
    """Return the name of a variable as written, with its stream if it has one."""
    return variable.name if variable.stream is None else f"{variable.stream}>{variable.name}"
