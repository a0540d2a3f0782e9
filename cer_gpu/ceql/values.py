"""Abstract syntax of the language of values: expressions and predicates over the attributes of events.

Immutable nodes, from which `cer_gpu.ceql.syntax` builds filters and formulas; that module exports all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Generic, TypeVar

from cer_gpu.ceql.functions import DESCENDANT
from cer_gpu.ceql.traversal import Node, children, mapped, walk

Span = tuple[int, int]
"""Offsets into the query text, end exclusive."""


def _span() -> Span:
    return field(default=(0, 0), compare=False, repr=False)


@dataclass(frozen=True)
class Name:
    """An identifier; `stream` is the name before ``>``.

    `nullable`, of a name in PARTITION BY: NULL is a key like any other (CEQL has no way to write it).  `nocase`, of a
    key, too: strings that differ in the case of letters alone are one.
    """

    name: str
    stream: str | None = None
    span: Span = _span()
    nullable: bool = False
    nocase: bool = False


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
    """``5 MINUTES``: a duration, compared with differences of timestamps; `length` in seconds."""

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
class OwnKey:
    """A column of a key of an OVER aggregate, for events that satisfy `predicate`, or None for all.

    The attributes of `predicate` name no variable.
    """

    name: Name
    predicate: Predicate | None = None


@dataclass(frozen=True)
class OverAggregate:
    """``function(event.attribute FILTER predicate) OVER over``: an aggregate over the events before, and this one.

    `function` is a name of `cer_gpu.ceql.functions.OVER_AGGREGATES`.  `event` is None for events of any type;
    `attribute` is None where COUNT counts events.  `nocase`: of distinct strings the case of letters does not matter.
    The attributes of `predicate` name no variable.  `over` is None for all events before.  "DESCENDANT" reads those of
    whatever key; `ids` are its columns of a process and of its parent.  "RISES" is TRUE where an event satisfies
    `predicate` and `condition`, and did not satisfy `condition` just before, by the aggregates that this reads,
    `itself` False: without the event.  `keys` are its own, each the first of some columns that an event has, in place
    of those of the query: () for none, or None if it is of the substream.
    """

    function: str
    event: Name | None
    attribute: str | None
    predicate: Predicate | None
    over: Within | None
    span: Span = _span()
    ids: tuple[str, ...] = ()
    condition: Predicate | None = None
    keys: tuple[tuple[OwnKey, ...], ...] | None = None
    itself: bool = True
    nocase: bool = False

    @property
    def before(self) -> Predicate | None:
        """The condition of "RISES" just before an event."""

        def without(attribute: Attribute) -> Attribute:
            aggregate = attribute.aggregate
            if aggregate is None or aggregate.over is None:
                return attribute
            return replace(attribute, aggregate=replace(aggregate, itself=False))

        return None if self.condition is None else mapped(self.condition, Attribute, without)

    @property
    def below(self) -> tuple[Predicate, ...]:
        """Predicates on the events before."""
        of_keys = (part.predicate for key in self.keys or () for part in key)
        return tuple(each for each in (self.predicate, self.condition, *of_keys) if each is not None)


@dataclass(frozen=True)
class Attribute(Node):
    """A column of an event, or a field of a struct (`cer_gpu.ceql.paths`).

    `variable` is None for the filtered event itself; `event` says which event of the variable: "EACH", "FIRST", "LAST",
    or "PREV" (the event of the variable just before the chosen one).  With `lag` n > 0 it is the attribute of the event
    n before in the stream, or in the substream of PARTITION BY (``LAG(a, n)``).  With `aggregate` it is an aggregate
    over the events before, and `name` its text.  `in_match`: that earlier event is one of the match, as the pattern
    has neighbours there.
    """

    name: str
    span: Span = _span()
    variable: Name | None = None
    event: str = "EACH"
    lag: int = 0
    aggregate: OverAggregate | None = None
    in_match: bool = False

    @property
    def looks_back(self) -> bool:
        """True if it depends on events before its own: ``LAG``, or an OVER aggregate."""
        return self.lag > 0 or self.aggregate is not None


@dataclass(frozen=True)
class Negative(Node):
    """``-operand``."""

    operand: Expression
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("operand",)


@dataclass(frozen=True)
class Operation(Node):
    """``left op right``."""

    op: str
    left: Expression
    right: Expression
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("left", "right")


class Arithmetic(Operation):
    """``left op right`` with op one of ``+ - * / %``."""


@dataclass(frozen=True)
class Call(Node):
    """``function(operand, ...)``: a scalar function, its name in lower case (`abs`, `round`, `hour`, ...)."""

    function: str
    operands: tuple[Expression, ...]
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("operands",)


@dataclass(frozen=True)
class Aggregate(Node):
    """``function(x.attribute)`` in a measure, over the events that a variable holds.

    `function` is "COUNT", "SUM", "AVG", "MIN", "MAX" or "LIST"; COUNT has no attribute, and COUNT(*) no variable: it
    counts all selected events.
    """

    function: str
    variable: Name | None
    attribute: Attribute | None
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("attribute",)


@dataclass(frozen=True)
class Element(Node):
    """``ANY(list)``: the element of a list of the event that a test is of; `fields` lead to a field of a struct."""

    list: Attribute
    fields: tuple[str, ...] = ()
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("list",)


Expression = Literal | Duration | Attribute | Negative | Arithmetic | Call | Aggregate | Element


class Comparison(Operation):
    """``left op right`` with op one of ``= <> < <= > >=``."""


@dataclass(frozen=True)
class StringTest(Node):
    """``operand LIKE 'pattern'`` and its kin: one of `cer_gpu.ceql.patterns.STRING_TESTS` (`name`).

    It is TRUE if the string matches one of the patterns; `nocase`: without regard to letter case.
    """

    name: str
    operand: Expression
    patterns: tuple[Literal, ...]
    nocase: bool = False
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("operand",)

    @property
    def strings(self) -> tuple[str, ...]:
        """The patterns."""
        return tuple(str(pattern.value) for pattern in self.patterns)


class Like(StringTest):
    """``operand LIKE 'regex'``."""

    @property
    def pattern(self) -> str:
        """The regular expression."""
        return self.strings[0]


@dataclass(frozen=True)
class Membership(Node):
    """``operand IN {v, ...}``."""

    operand: Expression
    values: tuple[Expression, ...]
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("operand", "values")


@dataclass(frozen=True)
class IsNull(Node):
    """``operand IS NULL``: TRUE or FALSE, never unknown."""

    operand: Expression
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("operand",)


@dataclass(frozen=True)
class Not(Node):
    """Three-valued negation."""

    operand: Predicate
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("operand",)


_Operand = TypeVar("_Operand")


@dataclass(frozen=True)
class Flat(Node, Generic[_Operand]):
    """A conjunction or disjunction of two or more, flat; `left` and `right` are its left-associative binary form."""

    operands: tuple[_Operand, ...]
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("operands",)

    @property
    def left(self) -> Any:
        """All operands but the last; a single one is returned by itself."""
        first = self.operands[:-1]
        return first[0] if len(first) == 1 else type(self)(first)

    @property
    def right(self) -> Any:
        """The last operand."""
        return self.operands[-1]


class And(Flat["Predicate"]):
    """Three-valued conjunction of two or more, none of them a conjunction itself."""


class Or(Flat["Predicate"]):
    """Three-valued disjunction of two or more, none of them a disjunction itself."""


@dataclass(frozen=True)
class AnyElement(Node):
    """``ANY(list) = v`` and its kin: a test that one element of a list passes; its `Element` is that element.

    Three-valued: TRUE if the test is TRUE of one element, else UNKNOWN if the list is NULL or the test is UNKNOWN of
    one, else FALSE.
    """

    test: Predicate
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("test",)

    @property
    def element(self) -> Element:
        """The element in the test; where it occurs twice, as in BETWEEN, both are the same."""
        return next(node for node in walk(self.test) if isinstance(node, Element))


@dataclass(frozen=True)
class Apart(Node):
    """One event is at most a length after another, by the clock of that length: a window within a pattern.

    The parser makes none: they express local windows, EACH STEP and FOR (`cer_gpu.planning.pattern_spans`).

    Attributes
    ----------
    later, earlier : Attribute
        The clocks of the two events: the time column, a column, or `COUNTED_POSITION` for EVENTS.
    within : Within
    time_unit : str or None
        Unit of a time column of integers.
    """

    later: Attribute
    earlier: Attribute
    within: Within
    time_unit: str | None = None
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("later", "earlier")


SATISFIED_BY_NONE = Comparison("=", Literal(0, "0"), Literal(1, "1"))
"""A predicate that no event satisfies."""

SATISFIED_BY_ALL = Comparison("=", Literal(0, "0"), Literal(0, "0"))
"""A predicate that every event satisfies."""

PROCESS_IDS = ("process.entity_id", "process.parent.entity_id")
"""Columns of the id of an event's process, and of the parent of that."""


def descends(
    event: Name | None,
    predicate: Predicate | None,
    ids: tuple[str, str] = PROCESS_IDS,
    span: Span = (0, 0),
    variable: Name | None = None,
) -> Comparison:
    """Return the test that a process above that of an event had an event before, of a type, that satisfies a predicate.

    The text of a query has no such test.

    Parameters
    ----------
    event
        Type of those events before, or None for any.
    predicate
        Condition of those events; its attributes name no variable.
    ids
        Columns of a process and of its parent: strings or integers.  NULL: the test is FALSE, or knows no parent.
    span
    variable
        Variable of the event, in a join predicate.
    """
    aggregate = OverAggregate(DESCENDANT, event, None, predicate, None, span, ids)
    column = Attribute("`descendant`", span, variable, aggregate=aggregate)
    return Comparison("=", column, Literal(True, "", span), span)


COUNTED_POSITION = "`POSITION`"
"""Name of the column of the positions of events in the stream, or in the substream of PARTITION BY."""


Leaf = Comparison | StringTest | Membership | IsNull | AnyElement | Apart
Predicate = Leaf | Not | And | Or


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield the atomic predicates in a predicate, from left to right."""
    todo: list[Any] = [predicate]
    while todo:
        node = todo.pop()
        if isinstance(node, Leaf):
            yield node
        else:
            todo += reversed(children(node))


def aggregates_in(node: Expression | Predicate) -> Iterator[OverAggregate]:
    """Yield the OVER aggregates of an expression or predicate, each after those that it reads."""
    for attribute in attributes(node):
        if attribute.aggregate is not None:
            for predicate in attribute.aggregate.below:
                yield from aggregates_in(predicate)
            yield attribute.aggregate


def attributes(node: Expression | Predicate) -> Iterator[Attribute]:
    """Yield the attributes in an expression or predicate, from left to right."""
    return (below for below in walk(node) if isinstance(below, Attribute))


def compared_times(op: str, left: Expression, right: Expression, span: Span) -> Comparison:
    """Return ``left op right``, lengths of time that are added to a side moved to the right of a difference.

    ``b.ts < a.ts + 1 HOURS`` is ``b.ts - a.ts < 1 HOURS``.
    """
    (x, before), (y, after) = _without_lengths(left), _without_lengths(right)
    if (x is left and y is right) or isinstance(x, Literal) or isinstance(y, Literal):
        return Comparison(op, left, right, span)
    length = after - before
    if isinstance(x, Duration):
        return Comparison(op, replace(x, length=x.length - length), y, span)
    if isinstance(y, Duration):
        return Comparison(op, x, replace(y, length=y.length + length), span)
    return Comparison(op, Arithmetic("-", x, y, span), Duration(length, span), span)


def _without_lengths(side: Expression) -> tuple[Expression, Fraction]:
    """Return a side of a comparison without the lengths that are added to it, and their sum."""
    length = Fraction(0)
    while isinstance(side, Arithmetic) and side.op in "+-":
        if isinstance(side.right, Duration):
            length += side.right.length if side.op == "+" else -side.right.length
            side = side.left
        elif isinstance(side.left, Duration) and side.op == "+":
            length += side.left.length
            side = side.right
        else:
            break
    return side, length


def within_bounds(operand: Expression, low: Expression | None, high: Expression | None, span: Span) -> Predicate:
    """Return ``low <= operand <= high``; a side that is None is unbounded."""
    tests = [compared_times(op, operand, bound, span) for op, bound in ((">=", low), ("<=", high)) if bound is not None]
    return tests[0] if len(tests) == 1 else And(tuple(tests), span)


def is_whole(expression: Expression) -> bool:
    """Return True for an integer as written, with or without a sign."""
    if isinstance(expression, Negative):
        return is_whole(expression.operand)
    return isinstance(expression, Literal) and type(expression.value) is int
