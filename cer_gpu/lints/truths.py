"""Necessary conditions for predicates to be TRUE or FALSE, derived from their constants.

For each node of a predicate two sets of conditions are computed, for it to be TRUE and for it to be FALSE: what has to
hold of single values (`x` is in an interval), of NULL, of the order of two values, and of other tests.  They are
necessary, and not always sufficient: where they contradict each other, the node is never TRUE, or never FALSE.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import fold

MAX_INTERVALS = 256
"""Most intervals of a set; a larger set is ignored."""


class Interval(NamedTuple):
    """Interval from `low` to `high`; an open end excludes its bound, and None means unbounded."""

    low: Any
    low_open: bool
    high: Any
    high_open: bool

    @property
    def is_empty(self) -> bool:
        """True if no value is in it."""
        if self.low is None or self.high is None:
            return False
        return bool(self.low > self.high or (self.low == self.high and (self.low_open or self.high_open)))


@dataclass(frozen=True)
class ValueSet:
    """A set of values.

    Attributes
    ----------
    intervals : tuple of Interval
    nan : bool
        True if NaN is in it.
    """

    intervals: tuple[Interval, ...]
    nan: bool = False

    def __bool__(self) -> bool:
        """Return True if there are values in it."""
        return bool(self.intervals) or self.nan

    def meet(self, other: ValueSet) -> ValueSet:
        """Return the values that are in both sets."""
        both = (_both(mine, its) for mine in self.intervals for its in other.intervals)
        return _value_set(both, self.nan and other.nan)

    def join(self, other: ValueSet) -> ValueSet | None:
        """Return the values that are in one of the sets, or None for too many intervals."""
        joined = tuple(dict.fromkeys((*self.intervals, *other.intervals)))
        return ValueSet(joined, self.nan or other.nan) if len(joined) <= MAX_INTERVALS else None

    def of_integers(self, low: int | None = None, high: int | None = None) -> ValueSet:
        """Return the values that are integers from `low` to `high`."""
        between = Interval(low, False, high, False)
        return _value_set(_both(_whole_numbers(each), between) for each in self.intervals)


def values_that_are(op: str, constant: Any) -> ValueSet:
    """Return the values that are ``= <> < <= > >=`` a constant."""
    below, above = Interval(None, False, constant, True), Interval(constant, True, None, False)
    point = Interval(constant, False, constant, False)
    return {
        "=": ValueSet((point,)),
        "<>": ValueSet((below, above)),
        "<": ValueSet((below,)),
        "<=": ValueSet((Interval(None, False, constant, False),)),
        ">": ValueSet((above,)),
        ">=": ValueSet((Interval(constant, False, None, False),)),
    }[op]


def one_of(constants: Iterable[Any], *, negated: bool = False) -> ValueSet:
    """Return the values that are among constants, or not among them."""
    points = sorted(set(constants))
    if not negated:
        return ValueSet(tuple(Interval(point, False, point, False) for point in points))
    ends = [None, *points, None]
    return ValueSet(tuple(Interval(low, True, high, True) for low, high in itertools.pairwise(ends)))


def _value_set(intervals: Iterable[Interval], nan: bool = False) -> ValueSet:
    return ValueSet(tuple(dict.fromkeys(each for each in intervals if not each.is_empty)), nan)


def _both(one: Interval, other: Interval) -> Interval:
    """Return the values in two intervals."""
    low, low_open = one.low, one.low_open
    if other.low is not None and (low is None or other.low > low or (other.low == low and other.low_open)):
        low, low_open = other.low, other.low_open
    high, high_open = one.high, one.high_open
    if other.high is not None and (high is None or other.high < high or (other.high == high and other.high_open)):
        high, high_open = other.high, other.high_open
    return Interval(low, low_open, high, high_open)


def _whole_numbers(interval: Interval) -> Interval:
    """Return the integers in an interval of numbers."""
    low, high = interval.low, interval.high
    if low is not None:
        low = math.floor(low) + 1 if interval.low_open else math.ceil(low)
    if high is not None:
        high = math.ceil(high) - 1 if interval.high_open else math.floor(high)
    return Interval(None if low is None else Fraction(low), False, None if high is None else Fraction(high), False)


_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_NAN = "NaN"
_OF_BOOLEANS = {"=": operator.eq, "<>": operator.ne}
OF_VALUE, OF_NULL, OF_ORDER, OF_TEST = "value", "null", "order", "test"

TypeOf = Callable[[s.Attribute], pa.DataType | None]
"""Function that returns the type of an attribute, or None if it is not known."""


@dataclass(frozen=True)
class Contradiction:
    """Why conditions contradict each other.

    Attributes
    ----------
    kind : str
        "value", "null", "order" or "test"; "" for constants.
    of : object
        The expressions, or the test, that would have to be two things at once.
    """

    kind: str
    of: Any


NecessaryConditions = Mapping[Hashable, Any] | Contradiction
"""Conditions by the values that they are on, or the reason why they cannot be satisfied."""


@dataclass(frozen=True)
class Truths:
    """Conditions that must hold for a node to be TRUE, and for it to be FALSE."""

    if_true: NecessaryConditions
    if_false: NecessaryConditions


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about values: types of attributes, and whether floats may be NaN."""

    type_of: TypeOf
    nan: bool


def truths(predicate: s.Predicate, type_of: TypeOf, *, nan: bool) -> dict[int, Truths]:
    """Return the truths of all nodes of a predicate by their `id`; `nan`: a number may be NaN."""
    by_node: dict[int, Truths] = {}
    about = Assumptions(type_of, nan)

    def combine(node: s.Predicate, below: list[Truths]) -> Truths:
        match node:
            case s.And():
                own = Truths(_all([each.if_true for each in below]), _any([each.if_false for each in below]))
            case s.Or():
                own = Truths(_any([each.if_true for each in below]), _all([each.if_false for each in below]))
            case s.Not():
                own = Truths(below[0].if_false, below[0].if_true)
            case _:
                own = _of_leaf(node, about)
        by_node[id(node)] = own
        return own

    fold(predicate, combine, below_of)
    return by_node


def below_of(node: s.Predicate) -> tuple[s.Predicate, ...]:
    """Return the direct sub-predicates of a predicate."""
    match node:
        case s.And() | s.Or():
            return node.operands
        case s.Not():
            return (node.operand,)
    return ()


def _all(parts: list[NecessaryConditions]) -> NecessaryConditions:
    """Return conditions that all hold."""
    conditions: dict[Hashable, Any] = {}
    for part in parts:
        if isinstance(part, Contradiction):
            return part
        for key, allowed in part.items():
            both = allowed if key not in conditions else _meet(conditions[key], allowed)
            if not both:
                return _contradiction(key)
            conditions[key] = both
    return conditions


def _any(parts: list[NecessaryConditions]) -> NecessaryConditions:
    """Return what holds under one of several conditions."""
    possible = [part for part in parts if not isinstance(part, Contradiction)]
    if not possible:
        return parts[0]
    conditions: dict[Hashable, Any] = dict(possible[0])
    for part in possible[1:]:
        for key in list(conditions):
            either = None if key not in part else _join(conditions[key], part[key])
            if either is None:
                del conditions[key]
            else:
                conditions[key] = either
    return conditions


def _meet(one: Any, other: Any) -> Any:
    return one.meet(other) if isinstance(one, ValueSet) else one & other


def _join(one: Any, other: Any) -> Any:
    return one.join(other) if isinstance(one, ValueSet) else one | other


def _contradiction(key: Any) -> Contradiction:
    kind, *of = key
    return Contradiction(kind, of[-1] if kind != OF_ORDER else tuple(of))


# ---- leaves ---------------------------------------------------------------------------------------------------------


def _of_leaf(leaf: Any, about: Assumptions) -> Truths:
    match leaf:
        case s.IsNull():
            return Truths({(OF_NULL, leaf.operand): frozenset({True})}, {(OF_NULL, leaf.operand): frozenset({False})})
        case s.Comparison():
            return _of_comparison(leaf, about)
        case s.Membership():
            return _of_membership(leaf, about)
    there = _there(leaf.operand) if isinstance(leaf, s.StringTest) else {}
    return Truths({(OF_TEST, leaf): frozenset({True}), **there}, {(OF_TEST, leaf): frozenset({False}), **there})


def _of_comparison(leaf: s.Comparison, about: Assumptions) -> Truths:
    op, left, right = leaf.op, leaf.left, leaf.right
    one, other = _constant_kind(left), _constant_kind(right)
    if one is not None and other is not None:
        return _of_constants(op, one, other)
    if one is not None:
        op, left, other = _FLIPPED[op], right, one
    if other is not None:
        kind, constant = other
        if kind == "boolean" and op not in _OF_BOOLEANS:
            return Truths({}, {})
        return Truths(
            _on_value(left, kind, _allowed(op, kind, constant), about, nan=op == "<>"),
            _on_value(left, kind, _allowed(_OPPOSITE[op], kind, constant), about, nan=op != "<>"),
        )
    if left == right:  # x <> x tests for NaN
        return Truths({}, {})
    if repr(left) > repr(right):
        op, left, right = _FLIPPED[op], right, left
    key, there = (OF_ORDER, left, right), {**_there(left), **_there(right)}
    nan = {_NAN} if about.nan else set()
    if_true = frozenset(op) | (nan if op == "<>" else set())
    if_false = frozenset(_OPPOSITE[op]) | (set() if op == "<>" else nan)
    return Truths({key: if_true, **there}, {key: if_false, **there})


def _of_constants(op: str, one: tuple[str, Any], other: tuple[str, Any]) -> Truths:
    if one[0] != other[0]:
        return Truths({}, {})
    tests = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, **_OF_BOOLEANS}
    never = Contradiction("", None)
    return Truths({}, never) if tests[op](one[1], other[1]) else Truths(never, {})


def _of_membership(leaf: s.Membership, about: Assumptions) -> Truths:
    constants = [_constant_kind(value) for value in leaf.values]
    kinds = {None if each is None else each[0] for each in constants}
    if len(kinds) != 1 or None in kinds or _constant_kind(leaf.operand) is not None or len(constants) >= MAX_INTERVALS:
        return Truths({(OF_TEST, leaf): frozenset({True})}, {(OF_TEST, leaf): frozenset({False})})
    kind = next(each[0] for each in constants if each is not None)
    values = [each[1] for each in constants if each is not None]
    if kind == "boolean":
        among = frozenset(values)
        return Truths(
            _on_value(leaf.operand, kind, among, about),
            _on_value(leaf.operand, kind, frozenset({True, False}) - among, about),
        )
    return Truths(
        _on_value(leaf.operand, kind, one_of(values), about),
        _on_value(leaf.operand, kind, one_of(values, negated=True), about, nan=True),
    )


def _allowed(op: str, kind: str, constant: Any) -> Any:
    if kind == "boolean":
        return frozenset(value for value in (True, False) if _OF_BOOLEANS[op](value, constant))
    return values_that_are(op, constant)


def _on_value(
    operand: s.Expression, kind: str, allowed: Any, about: Assumptions, *, nan: bool = False
) -> NecessaryConditions:
    """Return the conditions for the value of an expression to be among some, with NaN if `nan`, and not NULL."""
    if kind == "number":
        data_type = about.type_of(operand) if isinstance(operand, s.Attribute) else None
        if data_type is not None and pa.types.is_integer(data_type):
            signed = pa.types.is_signed_integer(data_type)
            limit = 2 ** (data_type.bit_width - signed)
            allowed = allowed.of_integers(-limit if signed else 0, limit - 1)
        elif nan and about.nan:
            allowed = replace(allowed, nan=True)
    # a number and a string are never compared here: whether '1' is 1 depends on the language
    key = (OF_VALUE, kind, operand)
    return {key: allowed, **_there(operand)} if allowed else _contradiction(key)


def _there(operand: s.Expression) -> dict[Hashable, Any]:
    return {(OF_NULL, operand): frozenset({False})} if isinstance(operand, s.Attribute) else {}


def _constant_kind(expression: s.Expression) -> tuple[str, Any] | None:
    """Return the kind and the value of a constant, or None if it is none."""
    match expression:
        case s.Literal(value=bool()):
            return "boolean", expression.value
        case s.Literal(value=str()):
            return "text", expression.value
        case s.Literal():
            try:
                return "number", Fraction(expression.text or expression.value)  # decimals exactly
            except (ValueError, OverflowError):  # infinite, or no number
                return None
        case s.Duration():
            return "duration", expression.length
        case s.Negative():
            inner = _constant_kind(expression.operand)
            return (inner[0], -inner[1]) if inner is not None and inner[0] in ("number", "duration") else None
    return None
