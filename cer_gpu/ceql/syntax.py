"""Abstract syntax of CEQL: immutable nodes, one class per construct of docs/reference/ceql_grammar.md.

Equality of nodes ignores their span in the text, which is for error messages.  Each class names the
fields that hold its children (`cer_gpu.ceql.traversal.Node.parts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from cer_gpu.ceql.step_keys import StepwiseKeys
from cer_gpu.ceql.traversal import Node, children, walk
from cer_gpu.ceql.values import COUNTED_POSITION as COUNTED_POSITION
from cer_gpu.ceql.values import SATISFIED_BY_ALL as SATISFIED_BY_ALL
from cer_gpu.ceql.values import SATISFIED_BY_NONE as SATISFIED_BY_NONE
from cer_gpu.ceql.values import Aggregate as Aggregate
from cer_gpu.ceql.values import And as And
from cer_gpu.ceql.values import AnyElement as AnyElement
from cer_gpu.ceql.values import Apart as Apart
from cer_gpu.ceql.values import Arithmetic as Arithmetic
from cer_gpu.ceql.values import Attribute as Attribute
from cer_gpu.ceql.values import Call as Call
from cer_gpu.ceql.values import Comparison as Comparison
from cer_gpu.ceql.values import Duration as Duration
from cer_gpu.ceql.values import Element as Element
from cer_gpu.ceql.values import Expression as Expression
from cer_gpu.ceql.values import Flat, _span
from cer_gpu.ceql.values import IsNull as IsNull
from cer_gpu.ceql.values import Leaf as Leaf
from cer_gpu.ceql.values import Like as Like
from cer_gpu.ceql.values import Literal as Literal
from cer_gpu.ceql.values import Membership as Membership
from cer_gpu.ceql.values import Name as Name
from cer_gpu.ceql.values import Negative as Negative
from cer_gpu.ceql.values import Not as Not
from cer_gpu.ceql.values import Or as Or
from cer_gpu.ceql.values import OverAggregate as OverAggregate
from cer_gpu.ceql.values import OwnKey as OwnKey
from cer_gpu.ceql.values import Predicate as Predicate
from cer_gpu.ceql.values import Span as Span
from cer_gpu.ceql.values import StringTest as StringTest
from cer_gpu.ceql.values import Within as Within
from cer_gpu.ceql.values import aggregates_in as aggregates_in
from cer_gpu.ceql.values import attributes as attributes
from cer_gpu.ceql.values import compared_times as compared_times
from cer_gpu.ceql.values import descends as descends
from cer_gpu.ceql.values import is_whole as is_whole
from cer_gpu.ceql.values import leaves as leaves
from cer_gpu.ceql.values import within_bounds as within_bounds

# ---- filters: predicates on the events of a variable ------------------------------------------------------


@dataclass(frozen=True)
class VariableFilter(Node):
    """``variable[predicate]``: every event that the variable holds satisfies the predicate."""

    variable: Name
    predicate: Predicate
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("predicate",)


@dataclass(frozen=True)
class Role:
    """A variable of a join predicate, and the places in the formula that define it.

    Attributes
    ----------
    variable : Name
    sites : frozenset of int
        The `site` of each event type and AS that defines the variable for this filter; empty if none does.
    always : bool
        True if the variable holds an event wherever the filter is tested.
    single : bool
        True if the variable holds at most one event there.
    """

    variable: Name
    sites: frozenset[int] = frozenset()
    always: bool = True
    single: bool = field(default=True, compare=False, repr=False)


@dataclass(frozen=True)
class Relation(Node):
    """A join predicate: `predicate` is TRUE for every choice of one event of each variable in `roles`.

    All attributes of the predicate name their variable.  `roles` are made by `cer_gpu.ceql.scopes`.
    """

    predicate: Predicate
    roles: tuple[Role, ...] = ()
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("predicate",)


class FilterAnd(Flat["Filter"]):
    """``filter AND filter``: two or more, none of them a conjunction itself."""


class FilterOr(Flat["Filter"]):
    """``filter OR filter``: two or more, none of them a disjunction itself."""


Filter = VariableFilter | Relation | FilterAnd | FilterOr


# ---- formulas of complex event logic (papers: CEL, section 3; CEQL, table of semantics) ---------------------


ANY_TYPE = "*"
"""Name of an event type that events of all types have."""


@dataclass(frozen=True)
class EventType(Node):
    """``R`` or ``stream>R``; `site` numbers the definition of a variable that a `Relation` names, else it is -1.

    It `defines` a variable of its name, but for conjunctive queries, in which only the AS around it names the event.
    """

    event: Name
    span: Span = _span()
    site: int = field(default=-1, compare=False, repr=False)
    defines: bool = True


@dataclass(frozen=True)
class _OneEvent(Node):
    """``(R [AS x] [FILTER filter])`` after NOT or ``!``."""

    event: Name
    variable: Name | None
    filter: Filter | None
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("filter",)

    @property
    def names(self) -> list[Name]:
        """The names of the one event: its type and its variable."""
        return [self.event] if self.variable is None else [self.event, self.variable]


class Negation(_OneEvent):
    """``NOT(R [AS x] [FILTER x[p]])``: one event that is not such an event."""


@dataclass(frozen=True)
class Assign(Node):
    """``formula AS variable``; `site` as that of an `EventType`."""

    formula: Formula
    variable: Name
    span: Span = _span()
    site: int = field(default=-1, compare=False, repr=False)
    parts: ClassVar[tuple[str, ...]] = ("formula",)


@dataclass(frozen=True)
class Filtered(Node):
    """``formula FILTER filter``."""

    formula: Formula
    filter: Filter
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("formula", "filter")


@dataclass(frozen=True)
class _Sides(Node):
    """Two formulas of which neither comes first."""

    left: Formula
    right: Formula
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("left", "right")


class Disjunction(_Sides):
    """``left OR right``."""


@dataclass(frozen=True)
class Absence(_OneEvent):
    """``!(R [AS x] [FILTER filter])`` in the gap of a sequence, or at the end of a pattern: no such event is there.

    `site` numbers the event as a definition, as that of an `EventType`, for filters between it and other events.
    `length` is that of ``FOR``: how far it reaches back from what follows, or on from what ends.
    """

    site: int = field(default=-1, compare=False, repr=False)
    length: Within | None = None


@dataclass(frozen=True)
class Sequence(Node):
    """``left ; right``; ``left : right`` when `contiguous`; ``left -> right`` when `next`.

    `absent` are the events that must not come between the two: ``left ; !R ; right``, ``left ; !R -> right``.
    """

    left: Formula
    right: Formula
    contiguous: bool
    span: Span = _span()
    next: bool = False
    absent: tuple[Absence, ...] = ()
    parts: ClassVar[tuple[str, ...]] = ("left", "absent", "right")


@dataclass(frozen=True)
class Preceded(Node):
    """``!(R) FOR d ; formula``: no such event strictly before its start, and at most d before it."""

    absent: tuple[Absence, ...]
    formula: Formula
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("absent", "formula")


@dataclass(frozen=True)
class TrailingAbsence(Node):
    """``formula ; !R`` at the end of a whole pattern: no such event until the window that begins there has passed.

    With ``FOR d`` it lasts until d after the end of the formula.
    """

    formula: Formula
    absent: tuple[Absence, ...]
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("formula", "absent")


class Conjunction(_Sides):
    """``left ALL right``: a match of each, in any order, interleaved or sharing events."""


@dataclass(frozen=True)
class Iteration(Node):
    """`formula` from `n_min` to `n_max` times (None if unbounded): ``+``, ``?``, ``*``, ``{n,m}`` and their kin.

    They are joined by ``;``, by ``:`` when `contiguous`, or by ``->`` when `next`.  None of `until` comes strictly
    between two of them.
    """

    formula: Formula
    contiguous: bool
    span: Span = _span()
    n_min: int = 1
    n_max: int | None = None
    next: bool = False
    until: tuple[Absence, ...] = ()
    parts: ClassVar[tuple[str, ...]] = ("formula", "until")


@dataclass(frozen=True)
class Windowed(Node):
    """``(formula WITHIN d)``: the matches that last no longer."""

    formula: Formula
    within: Within
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("formula",)


Formula = (
    EventType
    | Negation
    | Assign
    | Filtered
    | Disjunction
    | Sequence
    | Preceded
    | TrailingAbsence
    | Conjunction
    | Iteration
    | Windowed
)


# ---- the query ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectItem:
    """``[stream>]name[[attribute, ...]]``; `attributes` is None if none are listed.

    It is `written` unless only measures name the variable.
    """

    variable: Name
    attributes: tuple[Name, ...] | None = None
    span: Span = _span()
    written: bool = True


@dataclass(frozen=True)
class Measure(Node):
    """``expression [AS name]`` in SELECT; `name` is its alias, else its text."""

    expression: Expression
    name: str
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("expression",)


@dataclass(frozen=True)
class Select:
    """The SELECT clause: `items` is None for ``*`` and empty for ``NONE``.

    `measures` are the columns of its measures, in the order of the clause; `items` are then the variables next to them,
    and those that the measures or HAVING name.  They are None with ``COUNT(*)`` alone, which counts all events.
    """

    items: tuple[SelectItem, ...] | None = None
    strategy: str = "ALL"
    span: Span = _span()
    measures: tuple[Measure, ...] = ()


@dataclass(frozen=True)
class LetColumn:
    """``name = expression`` of the LET clause.

    Attributes
    ----------
    name : str
        As it is written.
    expression : Expression
        Over the columns of the events, and over the columns that LET makes where `is_made` of these is True.
    column : str
        Name of its column: no other LET, of any query, gives another expression that name.
    is_made : bool
        True if something reads it by name, so that a column is made; filters have its expression in its place.
    is_read : bool
        True if anything reads it.
    """

    name: str
    expression: Expression
    span: Span = _span()
    column: str = ""
    is_made: bool = False
    is_read: bool = field(default=True, compare=False)


@dataclass(frozen=True)
class HeadVariable:
    """A variable in the head of a conjunctive query, and where the first atom that names it has its value."""

    name: str
    atom: Name
    attribute: str
    span: Span = _span()


@dataclass(frozen=True)
class Pipe:
    """A choice among all results of a query, in the order of their ends (CEQL has no way to write it).

    `kind` is "head", for the first `n`, or "tail", for the last `n`, known at the end of the stream.
    """

    kind: str
    n: int
    span: Span = _span()


@dataclass(frozen=True)
class QuerySyntax:
    """A whole query, clause by clause.

    Attributes
    ----------
    head : tuple of HeadVariable or None
        Head of a conjunctive query, or None for other queries.
    unread : tuple of Name
        Attributes in its atoms that no filter reads, as their variables occur once: a schema must have them, too.
    relations : tuple of (str, tuple of str)
        Types of its atoms with arguments by position, and the columns of each: the option to parse the text again.
    each_step : Within or None
        Longest gap between two neighbours among the events of a match (``EACH STEP``).
    every : Within or None
        Length in which LIMIT counts (``LIMIT n EVERY d``), or None if it counts each end by itself.
    chooses_first : bool
        True for ``THEN WITHIN``: the strategy chooses among all matches of an end, and the window then drops.
    having : Predicate or None
        The condition over measures of HAVING: an attribute without a variable is the name of a measure.
    pipes : tuple of Pipe
        Choices among all results, each among those that the one before it selects.
    let : tuple of LetColumn
        Columns of LET, in the order in which they are written.
    step_keys : StepwiseKeys or None
        Keys of events by their steps, in place of `partition`.
    """

    text: str = field(compare=False, repr=False)
    select: Select
    formula: Formula
    streams: tuple[Name, ...] = ()
    partition: tuple[tuple[Name, ...], ...] = ()
    within: Within | None = None
    consume: str = "NONE"
    consume_span: Span = _span()
    limit: int | None = None
    head: tuple[HeadVariable, ...] | None = None
    unread: tuple[Name, ...] = ()
    relations: tuple[tuple[str, tuple[str, ...]], ...] = ()
    chooses_first: bool = False
    having: Predicate | None = None
    each_step: Within | None = None
    every: Within | None = None
    pipes: tuple[Pipe, ...] = ()
    let: tuple[LetColumn, ...] = ()
    step_keys: StepwiseKeys | None = None


def subformulas(formula: Formula) -> list[Formula]:
    """Return the direct sub-formulas of a formula, from left to right."""
    return [child for child in children(formula) if isinstance(child, Formula)]


def absences_of(formula: Formula) -> tuple[Absence, ...]:
    """Return the absences of a formula itself, from left to right, without those of its sub-formulas."""
    match formula:
        case Sequence() | TrailingAbsence() | Preceded():
            return formula.absent
        case Iteration():
            return formula.until
    return ()


def event_names(formula: Formula) -> Iterator[Name]:
    """Yield the event types in a formula, from left to right, those under NOT and in absences included."""
    return (node.event for node in walk(formula) if isinstance(node, EventType | Negation | Absence))


def variable_filters(node: Formula | Filter) -> Iterator[VariableFilter]:
    """Yield the ``x[p]`` of a filter, or of all filters of a formula, from left to right, with NOT and absences."""
    return (below for below in walk(node) if isinstance(below, VariableFilter))


def relations(node: Formula | Filter) -> Iterator[Relation]:
    """Yield the join predicates of a filter, or of all filters of a formula, from left to right."""
    return (below for below in walk(node) if isinstance(below, Relation))


def lengths(query: QuerySyntax) -> Iterator[Within]:
    """Yield the lengths of the stream that a query names: of its clauses, local windows, absences and aggregates."""
    for node in walk(query.formula):
        if isinstance(node, Windowed):
            yield node.within
        elif isinstance(node, Absence) and node.length is not None:
            yield node.length
        elif isinstance(node, Attribute) and node.aggregate is not None:
            yield from (aggregate.over for aggregate in aggregates_in(node) if aggregate.over is not None)
    yield from (each for each in (query.within, query.each_step, query.every) if each is not None)


Joined = TypeVar("Joined", And, Or, FilterAnd, FilterOr)


def distinct_from(left: Expression, right: Expression, span: Span) -> Predicate:
    """Return ``left IS DISTINCT FROM right``, which is TRUE or FALSE: they differ, or one of them alone is NULL."""
    absent = [None if isinstance(each, Literal | Duration) else IsNull(each, span) for each in (left, right)]
    differ: list[Predicate] = [Comparison("<>", left, right, span)]
    differ += [Not(each, span) for each in absent if each is not None]
    alternatives: list[Predicate] = [joined(And, differ, span)]
    for each, other in (absent, absent[::-1]):
        if each is not None:
            alternatives.append(each if other is None else joined(And, [each, Not(other, span)], span))
    return joined(Or, alternatives, span)


def joined(kind: type[Joined], operands: Iterable[Any], span: Span = (0, 0)) -> Joined:
    """Return the conjunction or disjunction (`kind`) of operands; an operand of that kind is flattened into it."""
    flat: list[Any] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, kind) else [operand]
    return kind(tuple(flat), span)
