"""Brute force from the definitions: what a CEQL query means, written as plainly as it can be.

A formula is evaluated literally to its set of valuations, bottom up, and nothing is clever. The result is
exponential in the length of the stream, so streams are short. This module imports no engine, so that the two
can only agree by both being right.

A stream is a list of dicts, one per event: the type under ``"type"``, the time under ``"ts"`` where a window
needs one, and the attributes. ``None`` and a missing key are both NULL. Integers are int64.
"""

from __future__ import annotations

import math
import operator
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

TYPE = "type"
TIME = "ts"

Event = dict[str, Any]
Row = tuple[int, int, tuple[int, ...]]  # (start, end, kept positions)
Valuation = tuple[int, int, frozenset[tuple[str, int]]]  # (start, end, {(variable, position)})
Truth = bool | None  # None is UNKNOWN


# ---------------------------------------------------------------------------------------------- expressions


@dataclass(frozen=True)
class Attr:
    """The value of an attribute of the event."""

    name: str


@dataclass(frozen=True)
class Const:
    """A literal; `text` is how CEQL writes it where that is not plain from the value (a date, say)."""

    value: bool | int | float | str
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


Expression = Attr | Const | Neg | Arith


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

    attribute: Attr
    pattern: str


@dataclass(frozen=True)
class In:
    """`attribute [NOT] IN {v, ...}`."""

    attribute: Attr
    values: tuple[Const, ...]
    negated: bool = False


@dataclass(frozen=True)
class InRange:
    """`attribute IN {low..high}`, either bound absent; or `expression IN RANGE(low, high)` (`function`)."""

    operand: Expression
    low: Expression | None
    high: Expression | None
    function: bool = False


Predicate = Compare | PredNot | PredAnd | PredOr | Like | In | InRange


# ------------------------------------------------------------------------------------- filters and formulas


@dataclass(frozen=True)
class Unary:
    """`x[p]`: every event that x holds satisfies p."""

    variable: str
    predicate: Predicate


@dataclass(frozen=True)
class FilterAnd:
    """A AND B, of filters."""

    left: FilterExpr
    right: FilterExpr


@dataclass(frozen=True)
class FilterOr:
    """A OR B, of filters."""

    left: FilterExpr
    right: FilterExpr


FilterExpr = Unary | FilterAnd | FilterOr


@dataclass(frozen=True)
class EventType:
    """R."""

    name: str


@dataclass(frozen=True)
class Not:
    """NOT(R), or NOT(R FILTER R[p])."""

    name: str
    predicate: Predicate | None = None


@dataclass(frozen=True)
class As:
    """F AS x."""

    body: Formula
    name: str


@dataclass(frozen=True)
class Filter:
    """F FILTER condition."""

    body: Formula
    condition: FilterExpr


@dataclass(frozen=True)
class Or:
    """F OR g."""

    left: Formula
    right: Formula


@dataclass(frozen=True)
class Seq:
    """F ; g."""

    left: Formula
    right: Formula


@dataclass(frozen=True)
class Contig:
    """F : g."""

    left: Formula
    right: Formula


@dataclass(frozen=True)
class Plus:
    """F +."""

    body: Formula


@dataclass(frozen=True)
class ContigPlus:
    """F :+."""

    body: Formula


Formula = EventType | Not | As | Filter | Or | Seq | Contig | Plus | ContigPlus

Within = None | tuple[str, int] | tuple[str, int, str]


@dataclass(frozen=True)
class Query:
    """A whole query.

    `select` is ``"*"``, ``"NONE"`` or a tuple of variables; `within` is None, ``("events", n)``,
    ``("time", n)`` (n in the unit of the values under ``"ts"``) or ``("attribute", n, name)``; `partition_by`
    holds one tuple of attribute names for each key.
    """

    formula: Formula
    select: str | tuple[str, ...] = "*"
    within: Within = None
    limit: int | None = None
    partition_by: tuple[tuple[str, ...], ...] = ()
    strategy: str = "ALL"
    consume: str = "NONE"


class TooLarge(Exception):
    """The brute force would hold more valuations than allowed."""


# ------------------------------------------------------------------------------------- values of expressions


def wrap(value: int) -> int:
    """The int64 that the low 64 bits of `value` are."""
    return (value + 2**63) % 2**64 - 2**63


def value_of(expression: Expression, event: Event) -> Any:
    """Value of an arithmetic expression, None for NULL."""
    match expression:
        case Attr(name):
            return event.get(name)
        case Const(value):
            return value
        case Neg(operand):
            value = value_of(operand, event)
            if value is None:
                return None
            return wrap(-value) if isinstance(value, int) else -value
        case Arith(op, left, right):
            a, b = value_of(left, event), value_of(right, event)
            if a is None or b is None:
                return None
            if isinstance(a, int) and isinstance(b, int):
                return _int_arithmetic(op, a, b)
            return _float_arithmetic(op, float(a), float(b))
    raise TypeError(expression)


def _int_arithmetic(op: str, a: int, b: int) -> int | None:
    if op == "+":
        return wrap(a + b)
    if op == "-":
        return wrap(a - b)
    if op == "*":
        return wrap(a * b)
    if b == 0:
        return None
    if a == -(2**63) and b == -1:
        return 0
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


def compare(op: str, a: Any, b: Any) -> Truth:
    """Three-valued comparison; Python's own order of strings is by code point, its floats are IEEE's."""
    if a is None or b is None:
        return None
    if isinstance(a, float) or isinstance(b, float):
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


def truth(predicate: Predicate, event: Event) -> Truth:
    """Truth of a predicate for one event."""
    match predicate:
        case Compare(op, left, right):
            return compare(op, value_of(left, event), value_of(right, event))
        case PredNot(operand):
            return not_(truth(operand, event))
        case PredAnd(left, right):
            return and_(truth(left, event), truth(right, event))
        case PredOr(left, right):
            return or_(truth(left, event), truth(right, event))
        case Like(attribute, pattern):
            text = value_of(attribute, event)
            return None if text is None else re.search(pattern, text) is not None
        case In(attribute, values, negated):
            value = value_of(attribute, event)
            found: Truth = False
            for v in values:
                found = or_(found, compare("=", value, v.value))
            return not_(found) if negated else found
        case InRange(operand, low, high):
            value = value_of(operand, event)
            above = True if low is None else compare(">=", value, value_of(low, event))
            below = True if high is None else compare("<=", value, value_of(high, event))
            return and_(above, below)
    raise TypeError(predicate)


def holds(predicate: Predicate, event: Event) -> bool:
    """Whether the predicate is TRUE of the event: neither FALSE nor UNKNOWN."""
    return truth(predicate, event) is True


# ------------------------------------------------------------------------------------ valuations of formulas


def valuations(formula: Formula, stream: Sequence[Event], most: int | None = None) -> set[Valuation]:
    """All valuations of the formula, by the table of meanings; TooLarge beyond `most` of them."""

    def checked(found: Iterable[Valuation]) -> set[Valuation]:
        kept: set[Valuation] = set()
        for valuation in found:
            kept.add(valuation)
            if most is not None and len(kept) > most:
                raise TooLarge
        return kept

    def of(formula: Formula) -> set[Valuation]:
        match formula:
            case EventType(name):
                return {(i, i, frozenset({(name, i)})) for i, e in enumerate(stream) if e.get(TYPE) == name}
            case Not(name, predicate):
                return {
                    (i, i, frozenset())
                    for i, e in enumerate(stream)
                    if not (e.get(TYPE) == name and (predicate is None or holds(predicate, e)))
                }
            case As(body, name):
                return {(i, j, mu | {(name, p) for _, p in mu}) for i, j, mu in of(body)}
            case Filter(body, Unary(variable, predicate)):
                return {
                    (i, j, mu)
                    for i, j, mu in of(body)
                    if all(holds(predicate, stream[p]) for x, p in mu if x == variable)
                }
            case Filter(body, FilterAnd(left, right)):
                return of(Filter(Filter(body, left), right))
            case Filter(body, FilterOr(left, right)):
                return of(Or(Filter(body, left), Filter(body, right)))
            case Or(left, right):
                return of(left) | of(right)
            case Seq(left, right):
                return checked(_joined(of(left), of(right), contiguous=False))
            case Contig(left, right):
                return checked(_joined(of(left), of(right), contiguous=True))
            case Plus(body) | ContigPlus(body):
                once = of(body)
                total, newest = set(once), once
                while newest:
                    longer = checked(_joined(newest, once, contiguous=isinstance(formula, ContigPlus)))
                    newest = longer - total
                    total = checked(total | newest)
                return total
        raise TypeError(formula)

    return of(formula)


def _joined(left: Iterable[Valuation], right: Iterable[Valuation], contiguous: bool) -> Iterator[Valuation]:
    """Every valuation of `left` followed by one of `right`."""
    by_start = defaultdict(list)
    for valuation in right:
        by_start[valuation[0]].append(valuation)
    for i, end, mu in left:
        for start, group in by_start.items():
            if start == end + 1 or (start > end and not contiguous):
                for _, j, nu in group:
                    yield i, j, mu | nu


# ------------------------------------------------------------------------------------- the clauses of a query


def evaluate(query: Query, stream: Sequence[Event], most: int | None = None) -> list[Row]:
    """Every complex event of the query, sorted; LIMIT is ignored, ANY is refused.

    What LIMIT or ANY may keep is not one answer but several: see `is_legal_answer`.
    """
    if query.strategy == "ANY":
        raise ValueError("ANY has more than one right answer")
    if query.consume == "ANY":
        rows = _consumed(stream, lambda s: _evaluate_partitions(query, s, most))
    elif query.consume == "PARTITION":
        rows = set()
        for positions in substreams(query, stream):
            part = [stream[p] for p in positions]
            found = _consumed(part, lambda s: _evaluate_substream(query, s, most))
            rows |= _renumbered(found, positions)
    else:
        rows = _evaluate_partitions(query, stream, most)
    return sorted(rows)


def evaluate_long(query: Query, stream: Sequence[Event], most: int | None = None) -> list[Row]:
    """The same as `evaluate` of a plain query WITHIN n EVENTS, for streams too long for it.

    A valuation depends on the events of its own interval only, so those that end at j are found in the n + 1
    events up to j. (A strategy would also look at rivals that start before the window.)
    """
    if query.within is None or query.within[0] != "events":
        raise ValueError("needs WITHIN n EVENTS")
    if query.strategy != "ALL" or query.partition_by or query.consume != "NONE":
        raise ValueError("needs a query without strategy, partition and CONSUME")
    rows: set[Row] = set()
    for end in range(len(stream)):
        positions = range(max(0, end - query.within[1]), end + 1)
        found = _evaluate_substream(query, [stream[p] for p in positions], most)
        rows |= {row for row in _renumbered(found, positions) if row[1] == end}
    return sorted(rows)


def _evaluate_partitions(query: Query, stream: Sequence[Event], most: int | None) -> set[Row]:
    rows: set[Row] = set()
    for positions in substreams(query, stream):
        part = [stream[p] for p in positions]
        rows |= _renumbered(_evaluate_substream(query, part, most), positions)
    return rows


def _evaluate_substream(query: Query, stream: Sequence[Event], most: int | None) -> set[Row]:
    """WHERE, then SELECT with its strategy, then WITHIN, over one substream."""
    rows = projected(query, valuations(query.formula, stream, most))
    rows = selected(query.strategy, rows)
    return {row for row in rows if in_window(query.within, stream, row)}


def _renumbered(rows: set[Row], positions: Sequence[int]) -> set[Row]:
    return {(positions[i], positions[j], tuple(positions[p] for p in kept)) for i, j, kept in rows}


def _consumed(stream: Sequence[Event], evaluator: Any) -> set[Row]:
    """Forget everything read so far at each position that ends a complex event."""
    reported: set[Row] = set()
    first = 0
    while first < len(stream):
        rest = range(first, len(stream))
        rows = _renumbered(evaluator([stream[p] for p in rest]), rest)
        if not rows:
            break
        end = min(row[1] for row in rows)
        reported |= {row for row in rows if row[1] == end}
        first = end + 1
    return reported


def substreams(query: Query, stream: Sequence[Event]) -> list[list[int]]:
    """The positions of each substream; an event with NULL in one of the keys is in none."""
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for position, event in enumerate(stream):
        key = tuple(
            next((event[name] for name in names if event.get(name) is not None), None) for names in query.partition_by
        )
        if None not in key:
            groups[key].append(position)
    return list(groups.values())


def projected(query: Query, found: Iterable[Valuation]) -> set[Row]:
    """The complex events of valuations: the interval and the positions of the selected variables."""
    if query.select == "*":
        return {(i, j, tuple(sorted({p for _, p in mu}))) for i, j, mu in found}
    kept = () if query.select == "NONE" else query.select
    return {(i, j, tuple(sorted({p for x, p in mu if x in kept}))) for i, j, mu in found}


def selected(strategy: str, rows: set[Row]) -> set[Row]:
    """What a selection strategy keeps; it compares the kept positions of complex events with the same end."""
    if strategy == "ALL":
        return rows
    if strategy == "STRICT":
        return {row for row in rows if all(b == a + 1 for a, b in zip(row[2], row[2][1:], strict=False))}
    beaten_by = {"NEXT": _next_below, "LAST": _last_below, "MAX": _strictly_contained}[strategy]
    return {
        row for row in rows if not any(rival[1] == row[1] and beaten_by(set(row[2]), set(rival[2])) for rival in rows)
    }


def _next_below(c: set[int], d: set[int]) -> bool:
    return c != d and min(c ^ d) in d


def _last_below(c: set[int], d: set[int]) -> bool:
    return c != d and max(c ^ d) in d


def _strictly_contained(c: set[int], d: set[int]) -> bool:
    return c < d


def in_window(within: Within, stream: Sequence[Event], row: Row) -> bool:
    """Whether the complex event lies in the window; positions are those of its substream."""
    start, end, _ = row
    match within:
        case None:
            return True
        case ("events", n):
            return end - start <= n
        case ("time", n):
            return stream[end][TIME] - stream[start][TIME] <= n
        case ("attribute", n, name):
            return stream[end][name] - stream[start][name] <= n
    raise TypeError(within)


# ------------------------------------------------------------------------- answers that are one among several


def is_legal_answer(query: Query, stream: Sequence[Event], rows: Sequence[Row], most: int | None = None) -> bool:
    """Whether `rows` is one of the right answers to a query with LIMIT or ANY (without CONSUME).

    No row twice, none that the query does not have, and at each end as many as LIMIT allows. ANY chooses
    before WITHIN drops, so an end may have none if a choice outside the window was open to it.
    """
    everything = replace(query, strategy="ALL", within=None) if query.strategy == "ANY" else query
    candidates = _by_end(evaluate(everything, stream, most))
    answer = _by_end(rows)
    if len(set(rows)) != len(rows) or not set(answer) <= set(candidates):
        return False
    for end, group in candidates.items():
        given = answer.get(end, [])
        if not set(given) <= set(group):
            return False
        if query.strategy == "ANY":
            fits = [row for row in group if _in_window_of_its_substream(query, stream, row)]
            if not set(given) <= set(fits) or len(given) > 1 or (not given and len(fits) == len(group)):
                return False
        elif len(given) != min(len(group), len(group) if query.limit is None else query.limit):
            return False
    return True


def _by_end(rows: Iterable[Row]) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[1]].append(row)
    return groups


def _in_window_of_its_substream(query: Query, stream: Sequence[Event], row: Row) -> bool:
    for positions in substreams(query, stream):
        if row[1] in positions:
            local = (positions.index(row[0]), positions.index(row[1]), ())
            return in_window(query.within, [stream[p] for p in positions], local)
    return False


# ------------------------------------------------------------------------------------------ facts of a query


def children(node: Any) -> Iterator[Any]:
    """The direct parts of a formula, filter, predicate or expression."""
    for name in getattr(node, "__dataclass_fields__", ()):
        part = getattr(node, name)
        if isinstance(part, tuple):
            yield from part
        elif hasattr(part, "__dataclass_fields__"):
            yield part


def descendants(node: Any) -> Iterator[Any]:
    """The node and everything in it."""
    yield node
    for child in children(node):
        yield from descendants(child)


def defined_variables(formula: Formula) -> set[str]:
    """Variables that the formula defines, in some branch at least; NOT(R) defines none."""
    return {node.name for node in descendants(formula) if isinstance(node, EventType | As)}


def attributes(query: Query) -> set[str]:
    """Attributes that the query reads, besides the type and the time."""
    found = {node.name for node in descendants(query.formula) if isinstance(node, Attr)}
    found |= {name for names in query.partition_by for name in names}
    if query.within is not None and query.within[0] == "attribute":
        found.add(query.within[2])
    return found - {TIME}
