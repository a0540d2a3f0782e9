"""Expressions and predicates of the reference, with their values: of one event, or of several that were chosen."""

from __future__ import annotations

import datetime as dt
import ipaddress
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from reference_past import BEFORE, Over, aggregated, attribute, within_reach
from reference_texts import STRING_FUNCTIONS

Event = dict[str, Any]
Truth = bool | None  # None is UNKNOWN
Chosen = Mapping[tuple[str, str], Event]  # events by (variable, "EACH", "FIRST", "LAST" or "PREV")
ELEMENT = "$element"  # key of an event: the element of a list that is tested


# ---------------------------------------------------------------------------------------------- expressions


@dataclass(frozen=True)
class Attr:
    """Value of an attribute of the event: of a column, or of a field of a struct by its path, as in ``st.p``.

    With `lag` n > 0, of the event n before: LAG(a, n).
    """

    name: str
    lag: int = 0


@dataclass(frozen=True)
class VarAttr:
    """Value of an attribute of an event of a variable: ``x.a``, or ``FIRST(x).a`` and the like by `event`.

    `event` is ``"EACH"`` (the event that is chosen for the variable), ``"FIRST"``, ``"LAST"`` (of those that it holds)
    or ``"PREV"`` (of those, the one just before the chosen one).  With `lag` n > 0, of the event n before that one in
    the stream: LAG(a, n) in ``x[...]``.
    """

    variable: str
    name: str
    event: str = "EACH"
    lag: int = 0


@dataclass(frozen=True)
class DurationConst:
    """`5 MINUTES`, in milliseconds, as differences of times are."""

    ticks: int


@dataclass(frozen=True)
class Const:
    """Literal, or NULL; `text` is its form in CEQL if that does not follow from the value (a date, say)."""

    value: bool | int | float | str | None
    text: str | None = None


@dataclass(frozen=True)
class Neg:
    """Unary minus."""

    operand: Expression


@dataclass(frozen=True)
class Arith:
    """`left op right` for op in + - * / %."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Call:
    """`function(operand)`: abs, round, lower, upper, length, or a part of a time, NULL of NULL.

    `digits` are those behind the point that round keeps.
    """

    function: str
    operand: Expression
    digits: int = 0


@dataclass(frozen=True)
class Strings:
    """`function(operand, ...)`: one of `reference_texts.STRING_FUNCTIONS`, NULL if an operand is NULL."""

    function: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Aggregate:
    """COUNT(x), SUM(x.a), AVG(x.a), MIN(x.a), MAX(x.a) or LIST(x.a) in a measure; COUNT(*) has no variable."""

    function: str
    variable: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Element:
    """`ANY(list)` in a test: the element of the list that is tested."""


Expression = Attr | VarAttr | DurationConst | Const | Neg | Arith | Call | Strings | Aggregate | Element | Over


# ----------------------------------------------------------------------------------------------- predicates


@dataclass(frozen=True)
class Compare:
    """`left op right` for op in = <> < <= > >=."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class PredNot:
    """NOT p."""

    operand: Predicate


@dataclass(frozen=True)
class PredAnd:
    """P AND q."""

    left: Predicate
    right: Predicate


@dataclass(frozen=True)
class PredOr:
    """P OR q."""

    left: Predicate
    right: Predicate


@dataclass(frozen=True)
class Like:
    """`attribute LIKE 'regex'`: an unanchored search."""

    attribute: Attr | VarAttr | Element
    pattern: str


@dataclass(frozen=True)
class Glob:
    """`attribute GLOB {'pattern', ...} [NOCASE]`: the whole text matches one of the patterns."""

    attribute: Attr | VarAttr | Element
    patterns: tuple[str, ...]
    nocase: bool = False


@dataclass(frozen=True)
class Cidr:
    """`CIDR(attribute, 'network', ...)`: the text is an address in one of the networks."""

    attribute: Attr | VarAttr | Element
    networks: tuple[str, ...]


@dataclass(frozen=True)
class AnyOf:
    """A test of `ANY(list)`: of the elements of a list, each of which stands for `Element()` in turn."""

    list: Attr | VarAttr
    test: Predicate


@dataclass(frozen=True)
class In:
    """`expression [NOT] IN {v, ...}`."""

    operand: Expression
    values: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True)
class InRange:
    """`expression IN {low..high}`, either bound absent; or `expression IN RANGE(low, high)` (`function`)."""

    operand: Expression
    low: Expression | None
    high: Expression | None
    function: bool = False


@dataclass(frozen=True)
class Between:
    """`expression [NOT] BETWEEN low AND high`."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True)
class IsNull:
    """`expression IS [NOT] NULL`, which is never UNKNOWN."""

    operand: Expression
    negated: bool = False


@dataclass(frozen=True)
class Rises:
    """`RISES(condition, chosen)`: both hold, and `condition` did not just before: over the past without the event."""

    condition: Predicate
    chosen: Predicate


Predicate = Compare | PredNot | PredAnd | PredOr | Like | Glob | Cidr | In | InRange | Between | IsNull | AnyOf | Rises


# ---------------------------------------------------------------------------------------- the parts of a tree


def children(node: Any) -> Iterator[Any]:
    """Yield the direct children of a formula, filter, predicate or expression."""
    for name in getattr(node, "__dataclass_fields__", ()):
        part = getattr(node, name)
        if isinstance(part, tuple):
            yield from part
        elif hasattr(part, "__dataclass_fields__"):
            yield part


def descendants(node: Any) -> Iterator[Any]:
    """Yield the node and everything in it."""
    yield node
    for child in children(node):
        yield from descendants(child)


def events_read(*nodes: Expression | Predicate) -> set[tuple[str, str]]:
    """Return the events of variables that expressions or predicates read, as (variable, event)."""
    found = [part for node in nodes for part in descendants(node) if isinstance(part, VarAttr | Over)]
    return {(part.variable, "EACH" if isinstance(part, Over) else part.event) for part in found if part.variable}


def measured_variables(measure: Expression) -> tuple[str, ...]:
    """Return the variables that a measure names, in the order of its text."""
    named = [part.variable for part in descendants(measure) if isinstance(part, VarAttr | Aggregate)]
    return tuple(dict.fromkeys(variable for variable in named if variable is not None))


# ------------------------------------------------------------------------------------- values of expressions


def lagged(event: Event, name: str, lag: int) -> Any:
    """Return the value of an attribute of the event `lag` before, NULL if there is none."""
    before: Event | None = event
    for _ in range(lag):
        before = before and before.get(BEFORE)
    return None if before is None else attribute(before, name)


def rises(test: Rises, event: Event) -> bool:
    """Return True if a condition begins to hold at an event."""
    return holds(test.chosen, event) and holds(test.condition, event) and not holds(just_before(test.condition), event)


def just_before(node: Any) -> Any:
    """Return a predicate in whose aggregates the event itself does not count; what is below these stays."""
    if isinstance(node, Over):
        return replace(node, itself=False)
    if isinstance(node, Rises) or not hasattr(node, "__dataclass_fields__"):
        return node
    parts = {name: getattr(node, name) for name in node.__dataclass_fields__}
    changed = {
        name: tuple(map(just_before, part)) if isinstance(part, tuple) else just_before(part)
        for name, part in parts.items()
    }
    return replace(node, **changed)


def over(aggregate: Over, event: Event) -> Any:
    """Return the value of an OVER aggregate at an event."""
    found = [
        before
        for before in itertools.islice(within_reach(event, aggregate.within), not aggregate.itself, None)
        if aggregate.type in (None, before.get("type"))
        and (aggregate.condition is None or holds(aggregate.condition, before))
    ]
    if aggregate.of is None:
        return len(found)
    values = [attribute(before, aggregate.of.name) for before in found]
    return aggregated(aggregate.function, [value for value in values if value is not None])


NOTHING_CHOSEN: Chosen = {}


def value_of(expression: Expression, event: Event, chosen: Chosen = NOTHING_CHOSEN) -> Any:
    """Return the value of an arithmetic expression over an event and the `chosen` ones, None for NULL."""
    match expression:
        case Attr(name, lag):
            return lagged(event, name, lag)
        case VarAttr(variable, name, which, lag):
            return lagged(chosen[variable, which], name, lag)
        case Over(variable=variable):
            return over(expression, event if variable is None else chosen[variable, "EACH"])
        case Const(value):
            return value
        case DurationConst(ticks):
            return ticks
        case Element():
            return event[ELEMENT]
        case Neg(operand):
            value = value_of(operand, event, chosen)
            if value is None:
                return None
            return -value if isinstance(value, int) else -float(value)
        case Arith(op, left, right):
            a, b = value_of(left, event, chosen), value_of(right, event, chosen)
            if a is None or b is None:
                return None
            if isinstance(a, int) and isinstance(b, int):
                return _int_arithmetic(op, a, b)
            return _float_arithmetic(op, float(a), float(b))
        case Strings(function, operands):
            values = [value_of(operand, event, chosen) for operand in operands]
            return None if None in values else STRING_FUNCTIONS[function](*values)
        case Call("round", operand, digits):
            return _rounded(value_of(operand, event, chosen), digits)
        case Call(function, operand):
            value = value_of(operand, event, chosen)
            return None if value is None else FUNCTIONS[function](value)
    raise TypeError(expression)


def _rounded(value: float | None, digits: int) -> float | None:
    """Return the nearest number with so many digits, of the same type, the even one of two as near."""
    if value is None or isinstance(value, int) or not math.isfinite(value):
        return value
    return math.copysign(round(value, digits), value)


def _moment(milliseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "abs": abs,
    "lower": str.lower,
    "upper": str.upper,
    "length": len,  # in code points
    "minute": lambda moment: _moment(moment).minute,
    "hour": lambda moment: _moment(moment).hour,
    "day": lambda moment: _moment(moment).day,  # of the month
    "weekday": lambda moment: _moment(moment).weekday(),  # Monday is 0
    "week": lambda moment: _moment(moment).isocalendar().week,  # of ISO 8601
    "month": lambda moment: _moment(moment).month,
    "year": lambda moment: _moment(moment).year,
}


def _int_arithmetic(op: str, a: int, b: int) -> int | None:
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if b == 0:
        return None
    quotient = abs(a) // abs(b)
    if (a < 0) != (b < 0):
        quotient = -quotient
    return quotient if op == "/" else a - b * quotient


def _float_arithmetic(op: str, a: float, b: float) -> float:
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if op == "/":
        if b != 0:
            return a / b
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    if b == 0 or math.isinf(a) or math.isnan(a) or math.isnan(b):
        return math.nan
    return math.fmod(a, b)


COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(op: str, a: Any, b: Any, exact: bool = False) -> Truth:
    """Compare in three-valued logic; Python's own order of strings is by code point, its floats are IEEE's.

    An integer becomes a float64 where it meets one, unless the comparison is `exact`; a decimal always does.
    """
    if a is None or b is None:
        return None
    rounded = not exact or isinstance(a, Decimal) or isinstance(b, Decimal)
    if rounded and (isinstance(a, float) or isinstance(b, float)):
        a, b = float(a), float(b)
    return COMPARISONS[op](a, b)


# --------------------------------------------------------------------------------------- truth of predicates


def not_(a: Truth) -> Truth:
    """Kleene's negation."""
    return None if a is None else not a


def and_(a: Truth, b: Truth) -> Truth:
    """Kleene's conjunction."""
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def or_(a: Truth, b: Truth) -> Truth:
    """Kleene's disjunction."""
    return not_(and_(not_(a), not_(b)))


def truth(predicate: Predicate, event: Event, chosen: Chosen = NOTHING_CHOSEN) -> Truth:
    """Return the truth value of a predicate for one event and the `chosen` ones.

    A comparison that reads more than one event is exact; sets and ranges compare with each of their values.
    """

    def of(part: Predicate) -> Truth:
        return truth(part, event, chosen)

    def compared(op: str, left: Expression, right: Expression) -> Truth:
        exact = len(events_read(left, right)) > 1
        return compare(op, value_of(left, event, chosen), value_of(right, event, chosen), exact)

    match predicate:
        case Compare(op, left, right):
            return compared(op, left, right)
        case Rises():
            return rises(predicate, event)
        case PredNot(operand):
            return not_(of(operand))
        case PredAnd(left, right):
            return and_(of(left), of(right))
        case PredOr(left, right):
            return or_(of(left), of(right))
        case Like(attribute, pattern):
            text = value_of(attribute, event, chosen)
            return None if text is None else re.search(pattern, text) is not None
        case Glob(attribute, patterns, nocase):
            text = value_of(attribute, event, chosen)
            return None if text is None else any(glob_matches(pattern, text, nocase) for pattern in patterns)
        case Cidr(attribute, networks):
            text = value_of(attribute, event, chosen)
            return None if text is None else any(lies_in(text, network) for network in networks)
        case AnyOf(column, test):
            elements = value_of(column, event, chosen)
            if elements is None:
                return None
            some: Truth = False
            for element in elements:
                some = or_(some, truth(test, {**event, ELEMENT: element}, chosen))
            return some
        case In(operand, values, negated):
            found: Truth = False
            for value in values:
                found = or_(found, compared("=", operand, value))
            return not_(found) if negated else found
        case InRange(operand, low, high):
            above = True if low is None else compared(">=", operand, low)
            below = True if high is None else compared("<=", operand, high)
            return and_(above, below)
        case Between(operand, low, high, negated):
            inside = and_(compared("<=", low, operand), compared("<=", operand, high))
            return not_(inside) if negated else inside
        case IsNull(operand, negated):
            return (value_of(operand, event, chosen) is None) is not negated
    raise TypeError(predicate)


def folded(character: str) -> str:
    """Return a character without its case: by Unicode's simple folding, which makes one character of each."""
    return next((c for c in (character.casefold(), character.lower()) if len(c) == 1), character)


def glob_matches(pattern: str, text: str, nocase: bool) -> bool:
    """Return True if a whole text matches a pattern of GLOB, read character by character."""
    same = folded if nocase else str
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(glob_matches(pattern[1:], text[n:], nocase) for n in range(len(text) + 1))
    if pattern[0] != "[":
        return (
            text != ""
            and (pattern[0] == "?" or same(pattern[0]) == same(text[0]))
            and glob_matches(pattern[1:], text[1:], nocase)
        )
    negated = pattern[1] in "!^"
    begin = 2 if negated else 1
    end = pattern.index("]", begin + 1)
    inside, members = pattern[begin:end], set[str]()
    while inside:
        last = inside[2] if inside[1:2] == "-" and len(inside) > 2 else inside[0]
        members |= {same(chr(code)) for code in range(ord(inside[0]), ord(last) + 1)}
        inside = inside[3 if inside[1:2] == "-" and len(inside) > 2 else 1 :]
    return (
        text != "" and (same(text[0]) in members) is not negated and glob_matches(pattern[end + 1 :], text[1:], nocase)
    )


def lies_in(text: str, network: str) -> bool:
    """Return True if a text is an address in a network; no other text lies in any."""
    try:
        return ipaddress.ip_address(text) in ipaddress.ip_network(network)
    except ValueError:
        return False


def holds(predicate: Predicate, event: Event, chosen: Chosen = NOTHING_CHOSEN) -> bool:
    """Return True if the predicate is TRUE of the events: neither FALSE nor UNKNOWN."""
    return truth(predicate, event, chosen) is True
