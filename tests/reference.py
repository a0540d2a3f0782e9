"""Reference: the meaning of a CEQL query by brute force from the definitions, written as plainly as possible.

A formula is evaluated literally to its set of valuations, bottom up, and nothing is clever. The result is
exponential in the length of the stream, so streams are short. This module imports no engine, so that the two
can only agree by both being right.

A stream is a list of dicts, one per event: the type under ``"type"``, the time under ``"ts"`` if a window
needs one, the name of its stream under ``"$stream"`` if a formula or SELECT names one (`merged` makes one stream
of several), and the attributes. ``None`` and a missing key are both NULL. Integers are int64. A struct is a dict, and
``st.p`` its field p, which is NULL where the struct is.

Decisions that the papers leave open:

- A selection strategy chooses before WITHIN drops: a complex event outside the window still beats its rivals, which
  are then not reported either. It compares kept positions only; complex events with equal ones and different starts
  all stay. ANY chooses among those in the window: at every end of one, one is reported.
- CONSUME BY is triggered by the complex events that are left after WITHIN; LIMIT and the choice of ANY never change it.
- The key of an event is, for each bracket of PARTITION BY, the first of its names that is not NULL; if all are NULL,
  the event is in no substream. Keys are compared by value: 0.0 and -0.0 are one key, and NaN is equal to NaN.
- With several streams, `R` is an event of type R of any stream, `S>R` one of type R of S, and NOT(S>R) any event but
  those. The variable `S>x` holds the events of stream S that x holds, however the formula names the types.
- A row of "bindings" is a complex event with the positions of each selected variable; valuations that agree on all of
  it are one row. LIMIT n keeps n rows at each end there (LIMIT 0 none), and ANY one.
"""

from __future__ import annotations

import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

TYPE = "type"
TIME = "ts"
STREAM = "$stream"

Event = dict[str, Any]
Row = tuple[int, int, tuple[int, ...]]  # (start, end, kept positions)
Binding = tuple[tuple[str, tuple[int, ...]], ...]  # ((variable, positions), ...)
BoundRow = tuple[int, int, tuple[int, ...], Binding]
Valuation = tuple[int, int, frozenset[tuple[str, int]]]  # (start, end, {(variable, position)})
Truth = bool | None  # None is UNKNOWN


# ---------------------------------------------------------------------------------------------- expressions


@dataclass(frozen=True)
class Attr:
    """Value of an attribute of the event: of a column, or of a field of a struct by its path, as in ``st.p``."""

    name: str


@dataclass(frozen=True)
class Const:
    """Literal; `text` is its form in CEQL if that does not follow from the value (a date, say)."""

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
    """R, or S>R."""

    name: str
    stream: str | None = None


@dataclass(frozen=True)
class Not:
    """NOT(R), NOT(S>R), or one of them with a filter: NOT(R FILTER R[p])."""

    name: str
    predicate: Predicate | None = None
    stream: str | None = None


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

    `select` is ``"*"``, ``"NONE"`` or a tuple of variables (``"x"``, or ``"S>x"`` for the events of stream S that x
    holds); `within` is None, ``("events", n)``, ``("time", n)`` (n in the unit of the values under ``"ts"``) or
    ``("attribute", n, name)``; `partition_by` holds one tuple of attribute names for each key; `brackets`, unless it
    is empty, holds for each selected variable the attributes in brackets behind it, or None if there are none.
    """

    formula: Formula
    select: str | tuple[str, ...] = "*"
    within: Within = None
    limit: int | None = None
    partition_by: tuple[tuple[str, ...], ...] = ()
    strategy: str = "ALL"
    consume: str = "NONE"
    streams: tuple[str, ...] = ("S",)
    brackets: tuple[tuple[str, ...] | None, ...] = ()


class TooLarge(Exception):
    """Refusal of a case for which brute force would hold more valuations than allowed."""


# ------------------------------------------------------------------------------------- values of expressions


def wrap(value: int) -> int:
    """Return the int64 with the low 64 bits of `value`."""
    return (value + 2**63) % 2**64 - 2**63


def attribute(event: Event, name: str) -> Any:
    """Return the value of an attribute, None for NULL."""
    value: Any = event
    for part in name.split("."):
        value = None if value is None else value.get(part)
    return value


def value_of(expression: Expression, event: Event) -> Any:
    """Return the value of an arithmetic expression, None for NULL."""
    match expression:
        case Attr(name):
            return attribute(event, name)
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
    """Compare in three-valued logic; Python's own order of strings is by code point, its floats are IEEE's."""
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
    """Return the truth value of a predicate for one event."""
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
        case In(operand, values, negated):
            value = value_of(operand, event)
            found: Truth = False
            for v in values:
                found = or_(found, compare("=", value, value_of(v, event)))
            return not_(found) if negated else found
        case InRange(operand, low, high):
            value = value_of(operand, event)
            above = True if low is None else compare(">=", value, value_of(low, event))
            below = True if high is None else compare("<=", value, value_of(high, event))
            return and_(above, below)
    raise TypeError(predicate)


def holds(predicate: Predicate, event: Event) -> bool:
    """Return True if the predicate is TRUE of the event: neither FALSE nor UNKNOWN."""
    return truth(predicate, event) is True


# ------------------------------------------------------------------------------------ valuations of formulas


def valuations(formula: Formula, stream: Sequence[Event], most: int | None = None) -> set[Valuation]:
    """Return all valuations of the formula, by the table of meanings; TooLarge beyond `most` of them."""

    def is_of(event: Event, name: str, of_stream: str | None) -> bool:
        return event.get(TYPE) == name and of_stream in (None, event.get(STREAM))

    def held(variable: str, position: int) -> set[tuple[str, int]]:
        """Return the assignments of a position: to the variable, and to its variable of the event's stream."""
        of_stream = stream[position].get(STREAM)
        return {(variable, position)} | ({(f"{of_stream}>{variable}", position)} if of_stream else set())

    def checked(found: Iterable[Valuation]) -> set[Valuation]:
        kept: set[Valuation] = set()
        for valuation in found:
            kept.add(valuation)
            if most is not None and len(kept) > most:
                raise TooLarge
        return kept

    def of(formula: Formula) -> set[Valuation]:
        match formula:
            case EventType(name, of_stream):
                return {(i, i, frozenset(held(name, i))) for i, e in enumerate(stream) if is_of(e, name, of_stream)}
            case Not(name, predicate, of_stream):
                return {
                    (i, i, frozenset())
                    for i, e in enumerate(stream)
                    if not (is_of(e, name, of_stream) and (predicate is None or holds(predicate, e)))
                }
            case As(body, name):
                return {(i, j, mu.union(*(held(name, p) for _, p in mu))) for i, j, mu in of(body)}
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
    """Yield every valuation of `left` followed by one of `right`."""
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
    """Return every complex event of the query, sorted; LIMIT is ignored, ANY is refused.

    LIMIT and ANY allow several answers: see `is_legal_answer`.
    """
    return sorted(row[:3] for row in _evaluate(query, stream, most, ()))


def bindings(query: Query, stream: Sequence[Event], most: int | None = None) -> list[BoundRow]:
    """Return every row of "bindings", sorted; LIMIT is ignored, ANY is refused."""
    return sorted(_evaluate(query, stream, most, bound_variables(query)))


def counts(query: Query, stream: Sequence[Event], most: int | None = None) -> list[tuple[int, int]]:
    """Return every end of complex events with their number, reduced by LIMIT or ANY."""
    return counts_of(query, evaluate(every_candidate(query), stream, most))


def counts_of(query: Query, candidates: Sequence[Row]) -> list[tuple[int, int]]:
    """Return the counts, given the complex events that LIMIT and ANY choose from."""
    counted = [(end, _how_many(query, len(rows))) for end, rows in sorted(_by_end(candidates).items())]
    return [(end, n) for end, n in counted if n]


def kept_events(query: Query, stream: Sequence[Event], row: Row) -> list[Event]:
    """Return the events at the kept positions, with the attributes that SELECT names."""
    names = selected_attributes(query)
    if names is None:
        return [{name: value for name, value in stream[p].items() if name != STREAM} for p in row[2]]
    return [{name: attribute(stream[p], name) for name in names} for p in row[2]]


def evaluate_long(query: Query, stream: Sequence[Event], most: int | None = None) -> list[Row]:
    """Return the same as `evaluate`, for streams too long for it, with WITHIN, and with strategy ALL or STRICT.

    A valuation depends on the events of its own interval only, so those that end at an event are found among the
    events of its substream that are in its window. (Other strategies also compare rivals that start before it.) Events
    that CONSUME has forgotten by then are not among them.
    """
    return sorted(row[:3] for row in _evaluate_long(query, stream, most, ()))


def bindings_long(query: Query, stream: Sequence[Event], most: int | None = None) -> list[BoundRow]:
    """Return the same as `bindings`, under the conditions of `evaluate_long`."""
    return sorted(_evaluate_long(query, stream, most, bound_variables(query)))


def _evaluate(query: Query, stream: Sequence[Event], most: int | None, variables: Sequence[str]) -> set[BoundRow]:
    if query.strategy == "ANY":
        raise ValueError("ANY has more than one right answer")
    if query.consume == "ANY":
        return _consumed(stream, lambda s: _evaluate_partitions(query, s, most, variables))
    if query.consume == "NONE":
        return _evaluate_partitions(query, stream, most, variables)
    rows: set[BoundRow] = set()
    for positions in substreams(query, stream):
        part = [stream[p] for p in positions]
        found = _consumed(part, lambda s: _evaluate_substream(query, s, most, variables))
        rows |= _renumbered(found, positions)
    return rows


def _evaluate_partitions(
    query: Query, stream: Sequence[Event], most: int | None, variables: Sequence[str]
) -> set[BoundRow]:
    rows: set[BoundRow] = set()
    for positions in substreams(query, stream):
        part = [stream[p] for p in positions]
        rows |= _renumbered(_evaluate_substream(query, part, most, variables), positions)
    return rows


def _evaluate_substream(
    query: Query, stream: Sequence[Event], most: int | None, variables: Sequence[str]
) -> set[BoundRow]:
    """Apply WHERE, then SELECT with its strategy, then WITHIN, to one substream."""
    rows = projected(query, valuations(query.formula, stream, most), variables)
    winners = selected(query.strategy, {row[:3] for row in rows})
    return {row for row in rows if row[:3] in winners and in_window(query.within, stream, row)}


def _evaluate_long(query: Query, stream: Sequence[Event], most: int | None, variables: Sequence[str]) -> set[BoundRow]:
    if query.within is None or query.strategy not in ("ALL", "STRICT"):
        raise ValueError("needs WITHIN, and no strategy but ALL or STRICT")
    parts = [(positions, [stream[p] for p in positions]) for positions in substreams(query, stream)]
    place_of = {p: (n, k) for n, (positions, _) in enumerate(parts) for k, p in enumerate(positions)}
    rows: set[BoundRow] = set()
    remembered_from = [0] * len(parts)  # first position of each that CONSUME has left
    # a longer stream allows fewer valuations in each window, so that all of the work is bounded
    most_in_piece = None if most is None else min(most, max(100, 30 * most // (len(stream) + 1)))
    for end in sorted(place_of):
        n, last = place_of[end]
        positions, events = parts[n]
        first = last
        while (
            first > 0
            and positions[first - 1] >= remembered_from[n]
            and in_window(query.within, events, (first - 1, last))
        ):
            first -= 1
        piece = slice(first, last + 1)
        found = _renumbered(_evaluate_substream(query, events[piece], most_in_piece, variables), positions[piece])
        ending = {row for row in found if row[1] == end}
        rows |= ending
        if most is not None and len(rows) > most:
            raise TooLarge
        if ending and query.consume == "ANY":
            remembered_from = [end + 1] * len(parts)
        elif ending and query.consume == "PARTITION":
            remembered_from[n] = end + 1
    return rows


def _renumbered(rows: set[BoundRow], positions: Sequence[int]) -> set[BoundRow]:
    def of(kept: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(positions[p] for p in kept)

    return {
        (positions[i], positions[j], of(kept), tuple((variable, of(held)) for variable, held in binding))
        for i, j, kept, binding in rows
    }


def _consumed(stream: Sequence[Event], evaluator: Callable[[Sequence[Event]], set[BoundRow]]) -> set[BoundRow]:
    """Forget everything read so far at each position that ends a complex event."""
    reported: set[BoundRow] = set()
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


def merged(streams: Mapping[str, Sequence[Event]]) -> list[Event]:
    """Merge several streams by time; equal times are in the order of the mapping, and within a stream in its own."""
    events = [{**event, STREAM: name} for name, stream in streams.items() for event in stream]
    return sorted(events, key=lambda event: event[TIME])  # sorted() keeps the order of equals


def partition_key(query: Query, event: Event) -> tuple[Any, ...] | None:
    """Return the event's key for each bracket, or None if one of them is NULL."""
    key = tuple(
        next((value for name in names if (value := attribute(event, name)) is not None), None)
        for names in query.partition_by
    )
    if None in key:
        return None
    return tuple("NaN" if value != value else value for value in key)  # 0.0 and -0.0 are equal, here too


def substreams(query: Query, stream: Sequence[Event]) -> list[list[int]]:
    """Return the positions of each substream; an event with NULL in one of the keys is in none."""
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for position, event in enumerate(stream):
        key = partition_key(query, event)
        if key is not None:
            groups[key].append(position)
    return list(groups.values())


def projected(query: Query, found: Iterable[Valuation], variables: Sequence[str] = ()) -> set[BoundRow]:
    """Return the complex events of valuations (the interval and the positions of the selected variables), each with
    the positions that the given variables hold."""
    if query.select == "*":
        kept = {x for _, _, mu in found for x, _ in mu}
    else:
        kept = set() if query.select == "NONE" else set(query.select)

    def held_by(some: set[str], mu: frozenset[tuple[str, int]]) -> tuple[int, ...]:
        return tuple(sorted({p for x, p in mu if x in some}))

    return {(i, j, held_by(kept, mu), tuple((x, held_by({x}, mu)) for x in variables)) for i, j, mu in found}


def selected(strategy: str, rows: set[Row]) -> set[Row]:
    """Return the rows that a selection strategy keeps; it compares the kept positions of rows with the same end."""
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


def in_window(within: Within, stream: Sequence[Event], row: tuple[Any, ...]) -> bool:
    """Return True if the complex event lies in the window; positions are those of its substream."""
    start, end = row[:2]
    match within:
        case None:
            return True
        case ("events", n):
            return end - start <= n
        case ("time", n):
            return stream[end][TIME] - stream[start][TIME] <= n
        case ("attribute", n, name):
            return bool(attribute(stream[end], name) - attribute(stream[start], name) <= n)
    raise TypeError(within)


# --------------------------------------------------------------------- one of several legal answers


def is_legal_answer(
    query: Query,
    stream: Sequence[Event],
    rows: Sequence[Row] | Sequence[BoundRow],
    most: int | None = None,
    candidates: Callable[[Query, Sequence[Event], int | None], Sequence[Any]] = evaluate,
) -> bool:
    """Return True if `rows` is one of the right answers to a query with LIMIT or ANY.

    `candidates` finds all rows: `evaluate`, `bindings`, or one of those for long streams.
    """
    return is_choice(query, candidates(every_candidate(query), stream, most), rows)


def is_choice(query: Query, candidates: Sequence[Any], rows: Sequence[Any]) -> bool:
    """Return True if LIMIT and ANY may leave `rows` of the candidates.

    No row comes twice, each is a candidate, and each end has as many as they allow.
    """
    everything, answer = _by_end(candidates), _by_end(rows)
    return (
        len(set(rows)) == len(rows)
        and set(answer) <= set(everything)
        and all(
            set(answer[end]) <= set(group) and len(answer[end]) == _how_many(query, len(group))
            for end, group in everything.items()
        )
    )


def every_candidate(query: Query) -> Query:
    """Return the query whose complex events ANY and LIMIT choose from."""
    return replace(query, limit=None, strategy="ALL" if query.strategy == "ANY" else query.strategy)


def _how_many(query: Query, n: int) -> int:
    """Return the number of rows that are reported, of n with the same end."""
    n = min(n, 1) if query.strategy == "ANY" else n
    return n if query.limit is None else min(n, query.limit)


def _by_end(rows: Iterable[Any]) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        groups[row[1]].append(row)
    return groups


# ------------------------------------------------------------------------------------------ facts of a query


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


def defined_variables(formula: Formula) -> set[str]:
    """Return the variables that the formula defines, in some branch at least; NOT(R) defines none."""
    return {node.name for node in descendants(formula) if isinstance(node, EventType | As)}


def variables_in_order(formula: Formula) -> list[str]:
    """Return the defined variables in the order in which the text defines them, from left to right."""
    inside = [name for part in children(formula) for name in variables_in_order(part)]
    own = [formula.name] if isinstance(formula, EventType | As) else []
    return list(dict.fromkeys(inside + own))


def variables_of_streams(formula: Formula, streams: Sequence[str]) -> set[str]:
    """Return the variables such as `S>x` that can hold events: x holds events of a type of S, or of any stream."""
    found = set()
    for node in descendants(formula):
        if isinstance(node, EventType | As):
            of = {atom.stream for atom in descendants(node) if isinstance(atom, EventType)}
            found |= {f"{stream}>{node.name}" for stream in streams if {None, stream} & of}
    return found


def bound_variables(query: Query) -> tuple[str, ...]:
    """Return the variables that "bindings" shows, in the order of its columns."""
    if query.select == "*":
        return tuple(variables_in_order(query.formula))
    return () if query.select == "NONE" else tuple(query.select)


def selected_attributes(query: Query) -> tuple[str, ...] | None:
    """Return the attributes that "events" shows: those in brackets; None: all, as an item without brackets asks."""
    if query.select in ("*", "NONE") or not query.brackets or None in query.brackets:
        return None
    return tuple(dict.fromkeys(name for names in query.brackets for name in names))


def attributes(query: Query) -> set[str]:
    """Return the attributes that the query names, besides the type and the time."""
    found = {node.name for node in descendants(query.formula) if isinstance(node, Attr)}
    found |= {name for names in query.partition_by for name in names}
    found |= {name for names in query.brackets for name in names or ()}
    if query.within is not None and query.within[0] == "attribute":
        found.add(query.within[2])
    return found - {TYPE, TIME}
