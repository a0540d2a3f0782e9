"""The abstract syntax of CEQL: immutable nodes, one class per construct of docs/language.md.

Nodes are equal when they say the same; where in the text they stand (`span`) is carried for error messages
and does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

Span = tuple[int, int]
"""Offsets into the query text, end exclusive."""


def _span() -> Span:
    return field(default=(0, 0), compare=False, repr=False)


@dataclass(frozen=True)
class Name:
    """An identifier; `stream` is what stands before ``>``."""

    name: str
    stream: str | None = None
    span: Span = _span()


# ---- expressions and predicates over the attributes of one event ------------------------------------------


@dataclass(frozen=True)
class Literal:
    """A number, string or boolean; `text` is a number as it was written (decimals are compared exactly)."""

    value: int | float | str | bool
    text: str = ""
    span: Span = _span()

    def __eq__(self, other: object) -> bool:
        """``1``, ``1.0`` and ``TRUE`` are equal in Python and different here."""
        return (
            isinstance(other, Literal)
            and type(self.value) is type(other.value)
            and (self.value, self.text) == (other.value, other.text)
        )

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash((type(self.value).__name__, self.value, self.text))


@dataclass(frozen=True)
class Attribute:
    """A column of the event."""

    name: str
    span: Span = _span()


@dataclass(frozen=True)
class Negative:
    """``-operand``."""

    operand: Expression
    span: Span = _span()


@dataclass(frozen=True)
class Arithmetic:
    """``left op right`` with op one of ``+ - * / %``."""

    op: str
    left: Expression
    right: Expression
    span: Span = _span()


Expression = Literal | Attribute | Negative | Arithmetic


@dataclass(frozen=True)
class Comparison:
    """``left op right`` with op one of ``= <> < <= > >=``."""

    op: str
    left: Expression
    right: Expression
    span: Span = _span()


@dataclass(frozen=True)
class Like:
    """``operand LIKE 'pattern'``: an unanchored search for a regular expression (RE2)."""

    operand: Expression
    pattern: str
    span: Span = _span()


@dataclass(frozen=True)
class Membership:
    """``operand IN {v, ...}``."""

    operand: Expression
    values: tuple[Expression, ...]
    span: Span = _span()


@dataclass(frozen=True)
class Not:
    """Three-valued negation."""

    operand: Predicate
    span: Span = _span()


@dataclass(frozen=True)
class And:
    """Three-valued conjunction."""

    left: Predicate
    right: Predicate
    span: Span = _span()


@dataclass(frozen=True)
class Or:
    """Three-valued disjunction."""

    left: Predicate
    right: Predicate
    span: Span = _span()


Leaf = Comparison | Like | Membership
Predicate = Leaf | Not | And | Or


# ---- filters: predicates on what a variable holds ---------------------------------------------------------


@dataclass(frozen=True)
class VariableFilter:
    """``variable[predicate]``: every event that the variable holds satisfies the predicate."""

    variable: Name
    predicate: Predicate
    span: Span = _span()


@dataclass(frozen=True)
class FilterAnd:
    """``left AND right``."""

    left: Filter
    right: Filter
    span: Span = _span()


@dataclass(frozen=True)
class FilterOr:
    """``left OR right``."""

    left: Filter
    right: Filter
    span: Span = _span()


Filter = VariableFilter | FilterAnd | FilterOr


# ---- formulas of complex event logic (papers: CEL, section 3; CEQL, table of semantics) ---------------------


@dataclass(frozen=True)
class EventType:
    """``R`` or ``stream>R``."""

    event: Name
    span: Span = _span()


@dataclass(frozen=True)
class Negation:
    """``NOT(R [AS x] [FILTER x[p]])``: one event that is not such an event."""

    event: Name
    variable: Name | None
    filter: Filter | None
    span: Span = _span()


@dataclass(frozen=True)
class Assign:
    """``formula AS variable``."""

    formula: Formula
    variable: Name
    span: Span = _span()


@dataclass(frozen=True)
class Filtered:
    """``formula FILTER filter``."""

    formula: Formula
    filter: Filter
    span: Span = _span()


@dataclass(frozen=True)
class Disjunction:
    """``left OR right``."""

    left: Formula
    right: Formula
    span: Span = _span()


@dataclass(frozen=True)
class Sequence:
    """``left ; right``, or ``left : right`` when contiguous."""

    left: Formula
    right: Formula
    contiguous: bool
    span: Span = _span()


@dataclass(frozen=True)
class Iteration:
    """``formula +``, or ``formula :+`` when contiguous."""

    formula: Formula
    contiguous: bool
    span: Span = _span()


Formula = EventType | Negation | Assign | Filtered | Disjunction | Sequence | Iteration


# ---- the query ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectItem:
    """``[stream>]name[[attribute, ...]]``; `attributes` is None where none are listed."""

    variable: Name
    attributes: tuple[Name, ...] | None = None
    span: Span = _span()


@dataclass(frozen=True)
class Select:
    """What is kept: `items` is None for ``*`` and empty for ``NONE``."""

    items: tuple[SelectItem, ...] | None = None
    strategy: str = "ALL"
    strategy_span: Span = _span()
    span: Span = _span()


@dataclass(frozen=True)
class Within:
    """A window: ``kind`` is "events", "time" (`length` in seconds) or "attribute" (in the attribute's unit)."""

    kind: str
    length: Fraction
    attribute: Name | None = None
    span: Span = _span()


@dataclass(frozen=True)
class QuerySyntax:
    """A whole query, clause by clause."""

    text: str = field(compare=False, repr=False)
    select: Select
    formula: Formula
    streams: tuple[Name, ...] = ()
    partition: tuple[tuple[Name, ...], ...] = ()
    partition_span: Span = _span()
    within: Within | None = None
    consume: str = "NONE"
    consume_span: Span = _span()
    limit: int | None = None


def event_names(formula: Formula) -> Iterator[Name]:
    """Yield the event types that a formula names, from left to right, those under NOT included."""
    match formula:
        case EventType() | Negation():
            yield formula.event
        case Assign() | Filtered() | Iteration():
            yield from event_names(formula.formula)
        case Disjunction() | Sequence():
            yield from event_names(formula.left)
            yield from event_names(formula.right)


def filters(formula: Formula) -> Iterator[Filter]:
    """Yield the filters of a formula from left to right, those under NOT included."""
    match formula:
        case Negation():
            if formula.filter is not None:
                yield formula.filter
        case Filtered():
            yield from filters(formula.formula)
            yield formula.filter
        case Assign() | Iteration():
            yield from filters(formula.formula)
        case Disjunction() | Sequence():
            yield from filters(formula.left)
            yield from filters(formula.right)


def variable_filters(filter_: Filter) -> Iterator[VariableFilter]:
    """Yield the ``x[p]`` of a filter from left to right."""
    if isinstance(filter_, VariableFilter):
        yield filter_
    else:
        yield from variable_filters(filter_.left)
        yield from variable_filters(filter_.right)


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield the tests that a predicate is made of, from left to right."""
    match predicate:
        case Not():
            yield from leaves(predicate.operand)
        case And() | Or():
            yield from leaves(predicate.left)
            yield from leaves(predicate.right)
        case _:
            yield predicate


def attributes(node: Expression | Predicate) -> Iterator[Attribute]:
    """Yield the attributes that an expression or predicate reads, from left to right."""
    match node:
        case Attribute():
            yield node
        case Negative() | Not() | Like():
            yield from attributes(node.operand)
        case Membership():
            yield from attributes(node.operand)
            for value in node.values:
                yield from attributes(value)
        case Arithmetic() | Comparison() | And() | Or():
            yield from attributes(node.left)
            yield from attributes(node.right)
