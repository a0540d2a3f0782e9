"""Abstract syntax of CEQL: immutable nodes, one class per construct of docs/language.md.

Equality of nodes ignores their place in the text (`span`), which is there for error messages.  Each class names the
fields that hold its children (`cer_gpu.ceql.traversal.Node.parts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, TypeVar

from cer_gpu.ceql.traversal import Node, children, walk

Span = tuple[int, int]
"""Offsets into the query text, end exclusive."""


def _span() -> Span:
    return field(default=(0, 0), compare=False, repr=False)


@dataclass(frozen=True)
class Name:
    """An identifier; `stream` is the name before ``>``."""

    name: str
    stream: str | None = None
    span: Span = _span()


# ---- expressions and predicates over the attributes of events ------------------------------------------


@dataclass(frozen=True)
class Literal(Node):
    """A number, string or boolean; `text` is a number as written (decimals are compared exactly)."""

    value: int | float | str | bool
    text: str = ""
    span: Span = _span()

    def __eq__(self, other: object) -> bool:
        """Compare values with their types: ``1``, ``1.0`` and ``TRUE`` are equal in Python and different here."""
        return (
            isinstance(other, Literal)
            and type(self.value) is type(other.value)
            and (self.value, self.text) == (other.value, other.text)
        )

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash((type(self.value).__name__, self.value, self.text))


@dataclass(frozen=True)
class Duration(Node):
    """``5 MINUTES``: a length of time, compared with differences of times; `length` in seconds."""

    length: Fraction
    span: Span = _span()


@dataclass(frozen=True)
class Within:
    """The WITHIN clause, or another length of the stream.

    `kind` is "events", "time" (`length` in seconds) or "attribute" (in its unit).
    """

    kind: str
    length: Fraction
    attribute: Name | None = None
    span: Span = _span()


@dataclass(frozen=True)
class Past:
    """``function(event.attribute FILTER predicate) OVER over``: an aggregate over the events before, and this one.

    `function` is "COUNT", "COUNT DISTINCT", "SUM", "AVG", "MIN", "MAX" or "STDDEV".  `event` None: events of any type;
    `attribute` None: COUNT counts events.  The attributes of `predicate` name no variable.
    """

    function: str
    event: Name | None
    attribute: str | None
    predicate: Predicate | None
    over: Within
    span: Span = _span()


@dataclass(frozen=True)
class Attribute(Node):
    """A column of an event, or a field of a struct (`cer_gpu.ceql.paths`).

    `variable` is None for the filtered event itself; `event` says which event of the variable: "EACH", "FIRST", "LAST",
    or "PREV" (the event of the variable just before the chosen one).  With `lag` n > 0 it is the attribute of the event
    n before in the stream, or in the substream of PARTITION BY (``LAG(a, n)``).  With `past` it is an aggregate over
    the events before, and `name` its text.
    """

    name: str
    span: Span = _span()
    variable: Name | None = None
    event: str = "EACH"
    lag: int = 0
    past: Past | None = None

    @property
    def looks_back(self) -> bool:
        """True if it depends on events before its own: ``LAG``, or an aggregate OVER the past."""
        return self.lag > 0 or self.past is not None


@dataclass(frozen=True)
class Negative(Node):
    """``-operand``."""

    operand: Expression
    span: Span = _span()
    parts = ("operand",)


@dataclass(frozen=True)
class _Operation(Node):
    """``left op right``."""

    op: str
    left: Expression
    right: Expression
    span: Span = _span()
    parts = ("left", "right")


class Arithmetic(_Operation):
    """``left op right`` with op one of ``+ - * / %``."""


@dataclass(frozen=True)
class Call(Node):
    """``function(operand, ...)``: a scalar function, its name in lower case (`abs`, `round`, `hour`, ...)."""

    function: str
    operands: tuple[Expression, ...]
    span: Span = _span()
    parts = ("operands",)


@dataclass(frozen=True)
class Aggregate(Node):
    """``function(x.attribute)`` in a measure, over the events that a variable holds.

    `function` is "COUNT", "SUM", "AVG", "MIN", "MAX" or "LIST"; COUNT has no attribute, and COUNT(*) no variable: it
    counts all kept events.
    """

    function: str
    variable: Name | None
    attribute: Attribute | None
    span: Span = _span()
    parts = ("attribute",)


@dataclass(frozen=True)
class Element(Node):
    """``ANY(list)``: the element of a list of the event that a test is of; `fields` lead to a field of a struct."""

    list: Attribute
    fields: tuple[str, ...] = ()
    span: Span = _span()
    parts = ("list",)


Expression = Literal | Duration | Attribute | Negative | Arithmetic | Call | Aggregate | Element


class Comparison(_Operation):
    """``left op right`` with op one of ``= <> < <= > >=``."""


@dataclass(frozen=True)
class TextTest(Node):
    """``operand LIKE 'pattern'`` and its kin: one of `cer_gpu.ceql.patterns.TEXT_TESTS` (`name`).

    It is TRUE if the text passes for one of the patterns; `nocase`: without regard to letter case.
    """

    name: str
    operand: Expression
    patterns: tuple[Literal, ...]
    nocase: bool = False
    span: Span = _span()
    parts = ("operand",)

    @property
    def texts(self) -> tuple[str, ...]:
        """The patterns."""
        return tuple(str(pattern.value) for pattern in self.patterns)


class Like(TextTest):
    """``operand LIKE 'regex'``."""

    @property
    def pattern(self) -> str:
        """The regular expression."""
        return self.texts[0]


@dataclass(frozen=True)
class Membership(Node):
    """``operand IN {v, ...}``."""

    operand: Expression
    values: tuple[Expression, ...]
    span: Span = _span()
    parts = ("operand", "values")


@dataclass(frozen=True)
class IsNull(Node):
    """``operand IS NULL``: TRUE or FALSE, never unknown."""

    operand: Expression
    span: Span = _span()
    parts = ("operand",)


@dataclass(frozen=True)
class Not(Node):
    """Three-valued negation."""

    operand: Predicate
    span: Span = _span()
    parts = ("operand",)


_Operand = TypeVar("_Operand")


@dataclass(frozen=True)
class _Flat(Node, Generic[_Operand]):
    """A conjunction or disjunction of two or more, flat; `left` and `right` are its left-associative binary form."""

    operands: tuple[_Operand, ...]
    span: Span = _span()
    parts = ("operands",)

    @property
    def left(self) -> Any:
        """All operands but the last; a single one stands for itself."""
        first = self.operands[:-1]
        return first[0] if len(first) == 1 else type(self)(first)

    @property
    def right(self) -> Any:
        """The last operand."""
        return self.operands[-1]


class And(_Flat["Predicate"]):
    """Three-valued conjunction of two or more, none of them a conjunction itself."""


class Or(_Flat["Predicate"]):
    """Three-valued disjunction of two or more, none of them a disjunction itself."""


@dataclass(frozen=True)
class AnyElement(Node):
    """``ANY(list) = v`` and its kin: a test that one element of a list passes, for which its `Element` stands.

    Three-valued: TRUE if the test is TRUE of one element, else UNKNOWN if the list is NULL or the test is UNKNOWN of
    one, else FALSE.
    """

    test: Predicate
    span: Span = _span()
    parts = ("test",)

    @property
    def element(self) -> Element:
        """The element in the test; where it stands twice, as in BETWEEN, both are the same."""
        return next(node for node in walk(self.test) if isinstance(node, Element))


Leaf = Comparison | TextTest | Membership | IsNull | AnyElement
Predicate = Leaf | Not | And | Or


# ---- filters: predicates on the events of a variable ------------------------------------------------------


@dataclass(frozen=True)
class VariableFilter(Node):
    """``variable[predicate]``: every event that the variable holds satisfies the predicate."""

    variable: Name
    predicate: Predicate
    span: Span = _span()
    parts = ("predicate",)


@dataclass(frozen=True)
class Role:
    """A variable of a filter between events, and the places in the formula that define it.

    Attributes
    ----------
    variable : Name
    sites : frozenset of int
        The `site` of each event type and AS that defines the variable for this filter; empty: none does.
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
    """A filter between events: `predicate` is TRUE for every choice of one event of each variable in `roles`.

    All attributes of the predicate name their variable.  `roles` are made by `cer_gpu.ceql.scopes`.
    """

    predicate: Predicate
    roles: tuple[Role, ...] = ()
    span: Span = _span()
    parts = ("predicate",)


class FilterAnd(_Flat["Filter"]):
    """``filter AND filter``: two or more, none of them a conjunction itself."""


class FilterOr(_Flat["Filter"]):
    """``filter OR filter``: two or more, none of them a disjunction itself."""


Filter = VariableFilter | Relation | FilterAnd | FilterOr


# ---- formulas of complex event logic (papers: CEL, section 3; CEQL, table of semantics) ---------------------


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
    """``(R [AS x] [FILTER filter])`` behind NOT or ``!``."""

    event: Name
    variable: Name | None
    filter: Filter | None
    span: Span = _span()
    parts = ("filter",)

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
    parts = ("formula",)


@dataclass(frozen=True)
class Filtered(Node):
    """``formula FILTER filter``."""

    formula: Formula
    filter: Filter
    span: Span = _span()
    parts = ("formula", "filter")


@dataclass(frozen=True)
class _Sides(Node):
    """Two formulas of which neither comes first."""

    left: Formula
    right: Formula
    span: Span = _span()
    parts = ("left", "right")


class Disjunction(_Sides):
    """``left OR right``."""


@dataclass(frozen=True)
class Absence(_OneEvent):
    """``!(R [AS x] [FILTER filter])`` in the gap of a sequence, or at the end of a pattern: no such event lies there.

    `site` numbers the event as a definition, as that of an `EventType`, for filters between it and other events.
    `length` is that of ``FOR``: how far it reaches back from what follows, or on from what ends.
    """

    site: int = field(default=-1, compare=False, repr=False)
    length: Within | None = None


@dataclass(frozen=True)
class Sequence(Node):
    """``left ; right``; ``left : right`` when `contiguous`; ``left -> right`` when `next`.

    `absent` are the events that must not lie between the two: ``left ; !R ; right``.
    """

    left: Formula
    right: Formula
    contiguous: bool
    span: Span = _span()
    next: bool = False
    absent: tuple[Absence, ...] = ()
    parts = ("left", "absent", "right")


@dataclass(frozen=True)
class Preceded(Node):
    """``!(R) FOR d ; formula``: no such event strictly before its start, and at most d before it."""

    absent: tuple[Absence, ...]
    formula: Formula
    span: Span = _span()
    parts = ("absent", "formula")


@dataclass(frozen=True)
class TrailingAbsence(Node):
    """``formula ; !R`` at the end of a whole pattern: no such event until the window that begins there has passed.

    With ``FOR d`` it lasts until d after the end of the formula.
    """

    formula: Formula
    absent: tuple[Absence, ...]
    span: Span = _span()
    parts = ("formula", "absent")


class Conjunction(_Sides):
    """``left ALL right``: a valuation of each, in any order, interleaved or sharing events."""


@dataclass(frozen=True)
class Iteration(Node):
    """`formula` from `least` to `most` times (None: no bound): ``+``, ``?``, ``*``, ``{n,m}`` and their kin.

    They are joined by ``;``, by ``:`` when `contiguous`, or by ``->`` when `next`.  None of `until` lies strictly
    between two of them.
    """

    formula: Formula
    contiguous: bool
    span: Span = _span()
    least: int = 1
    most: int | None = None
    next: bool = False
    until: tuple[Absence, ...] = ()
    parts = ("formula", "until")


@dataclass(frozen=True)
class Windowed(Node):
    """``(formula WITHIN d)``: the valuations that last no longer."""

    formula: Formula
    within: Within
    span: Span = _span()
    parts = ("formula",)


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
    """``[stream>]name[[attribute, ...]]``; `attributes` None: none are listed.

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
    parts = ("expression",)


@dataclass(frozen=True)
class Select:
    """The SELECT clause: `items` is None for ``*`` and empty for ``NONE``.

    `measures` are the columns of its measures, in the order of the clause; `items` are then the variables beside them,
    and those that the measures or HAVING name.  They are None with ``COUNT(*)`` alone, which counts all events.
    """

    items: tuple[SelectItem, ...] | None = None
    strategy: str = "ALL"
    span: Span = _span()
    measures: tuple[Measure, ...] = ()


@dataclass(frozen=True)
class HeadVariable:
    """A variable in the head of a conjunctive query, and where the first atom that names it has its value."""

    name: str
    atom: Name
    attribute: str
    span: Span = _span()


@dataclass(frozen=True)
class QuerySyntax:
    """A whole query, clause by clause.

    Attributes
    ----------
    head : tuple of HeadVariable or None
        Head of a conjunctive query; None: the query is none.
    unread : tuple of Name
        Attributes in its atoms that no filter reads, as their variables stand once: a schema must have them, too.
    relations : tuple of (str, tuple of str)
        Types of its atoms with arguments by position, and the columns of each: the option that reads the text again.
    each_step : Within or None
        Longest gap between two neighbours among the events of a match (``EACH STEP``).
    every : Within or None
        Length in which LIMIT counts (``LIMIT n EVERY d``); None: each end by itself.
    chooses_first : bool
        True for ``THEN WITHIN``: the strategy chooses among all complex events of an end, and the window then drops.
    having : Predicate or None
        The condition over measures of HAVING: an attribute without a variable is the name of a measure.
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
    """Yield the filters between events of a filter, or of all filters of a formula, from left to right."""
    return (below for below in walk(node) if isinstance(below, Relation))


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield the atomic predicates in a predicate, from left to right."""
    todo: list[Any] = [predicate]
    while todo:
        node = todo.pop()
        if isinstance(node, Leaf):
            yield node
        else:
            todo += reversed(children(node))


def attributes(node: Expression | Predicate) -> Iterator[Attribute]:
    """Yield the attributes in an expression or predicate, from left to right."""
    return (below for below in walk(node) if isinstance(below, Attribute))


def lengths(query: QuerySyntax) -> Iterator[Within]:
    """Yield the lengths of the stream that a query names: of its clauses, local windows, absences and aggregates."""
    for node in walk(query.formula):
        if isinstance(node, Windowed):
            yield node.within
        elif isinstance(node, Absence) and node.length is not None:
            yield node.length
        elif isinstance(node, Attribute) and node.past is not None:
            yield node.past.over
    yield from (each for each in (query.within, query.each_step, query.every) if each is not None)


Joined = TypeVar("Joined", And, Or, FilterAnd, FilterOr)


def joined(kind: type[Joined], operands: Iterable[Any], span: Span = (0, 0)) -> Joined:
    """Return the conjunction or disjunction (`kind`) of operands; an operand of that kind is flattened into it."""
    flat: list[Any] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, kind) else [operand]
    return kind(tuple(flat), span)
