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
- A query with filters between events or with ALL has WITHIN before its strategy: rivals outside of the window beat
  nothing.
- The operands of ALL stand beside each other: a filter in one reads nothing of the other, only what stands before the
  whole conjunction in enclosing sequences.
- What a variable holds for a filter between events: what the valuation of the filtered formula assigns to it, if that
  formula defines it anywhere; else what the left operands of the enclosing sequences assign to it, all levels united,
  in the same iteration of all that enclose both. A filter in an iteration is thus a filter of each iteration.
- PREV(x) chooses an event of x, and there is no test, not even of the other operand of an OR, where that is the first.
- CONSUME BY is triggered by the complex events that are left after WITHIN; LIMIT and the choice of ANY never change it.
- The key of an event is, for each bracket of PARTITION BY, the first of its names that is not NULL; if all are NULL,
  the event is in no substream. Keys are compared by value: 0.0 and -0.0 are one key, and NaN is equal to NaN.
- With several streams, `R` is an event of type R of any stream, `S>R` one of type R of S, and NOT(S>R) any event but
  those. The variable `S>x` holds the events of stream S that x holds, however the formula names the types.
- A row of "bindings" is a complex event with the positions of each selected variable; valuations that agree on all of
  it are one row. LIMIT n keeps n rows at each end there (LIMIT 0 none), and ANY one.
- An answer of a conjunctive query is a t-homomorphism (papers: PCEA): each choice of one event for each atom is a row,
  and is counted, even if other rows have the same positions and the same head.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reference_predicates import Arith as Arith
from reference_predicates import Attr as Attr
from reference_predicates import Between as Between
from reference_predicates import Compare as Compare
from reference_predicates import Const as Const
from reference_predicates import DurationConst as DurationConst
from reference_predicates import Event as Event
from reference_predicates import Expression as Expression
from reference_predicates import In as In
from reference_predicates import InRange as InRange
from reference_predicates import IsNull as IsNull
from reference_predicates import Like as Like
from reference_predicates import Neg as Neg
from reference_predicates import PredAnd as PredAnd
from reference_predicates import Predicate as Predicate
from reference_predicates import PredNot as PredNot
from reference_predicates import PredOr as PredOr
from reference_predicates import Truth as Truth
from reference_predicates import VarAttr as VarAttr
from reference_predicates import and_ as and_
from reference_predicates import attribute as attribute
from reference_predicates import children as children
from reference_predicates import compare as compare
from reference_predicates import descendants as descendants
from reference_predicates import events_read as events_read
from reference_predicates import holds as holds
from reference_predicates import not_ as not_
from reference_predicates import or_ as or_
from reference_predicates import truth as truth
from reference_predicates import value_of as value_of
from reference_predicates import wrap as wrap

TYPE = "type"
TIME = "ts"
STREAM = "$stream"
UNNAMED = ""  # holds the event of a type that defines no variable, until an AS around it names the event

Row = tuple[int, int, tuple[int, ...]]  # (start, end, kept positions)
Binding = tuple[tuple[str, tuple[int, ...]], ...]  # ((variable, positions), ...)
BoundRow = tuple[int, int, tuple[int, ...], Binding]
HeadRow = tuple[int, int, tuple[int, ...], tuple[Any, ...]]  # (..., values of the head)
Assignments = frozenset[tuple[str, int]]  # {(variable, position)}
Valuation = tuple[int, int, Assignments]  # (start, end, ...)


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


@dataclass(frozen=True)
class Relation:
    """Predicate between events, TRUE for every choice of one event that each of its variables holds.

    All attributes name their variable (`VarAttr`).
    """

    predicate: Predicate


FilterExpr = Unary | Relation | FilterAnd | FilterOr


@dataclass(frozen=True)
class EventType:
    """R, or S>R; where it does not define a variable of its name, only an AS around it names the event."""

    name: str
    stream: str | None = None
    defines: bool = True


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
class All:
    """F ALL g."""

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


Formula = EventType | Not | As | Filter | Or | Seq | Contig | All | Plus | ContigPlus

Within = None | tuple[str, int] | tuple[str, int, str]


@dataclass(frozen=True)
class Query:
    """A whole query.

    `select` is ``"*"``, ``"NONE"`` or a tuple of variables (``"x"``, or ``"S>x"`` for the events of stream S that x
    holds); `within` is None, ``("events", n)``, ``("time", n)`` (n in the unit of the values under ``"ts"``) or
    ``("attribute", n, name)``; `partition_by` holds one tuple of attribute names for each key; `brackets`, unless it
    is empty, holds for each selected variable the attributes in brackets behind it, or None if there are none; `head`,
    of a conjunctive query, holds (column, variable of an atom, attribute) for each column of its head; `named` holds
    attributes that the text names, even if nothing reads them.
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
    head: tuple[tuple[str, str, str], ...] | None = None
    named: tuple[str, ...] = ()


class TooLarge(Exception):
    """Refusal of a case for which brute force would hold more valuations than allowed."""


# ------------------------------------------------------------------------------------ valuations of formulas


def valuations(formula: Formula, stream: Sequence[Event], most: int | None = None) -> set[Valuation]:
    """Return all valuations of the formula, by the table of meanings; TooLarge beyond `most` of them."""
    known: dict[int, tuple[Formula, set[Valuation]]] = {}  # by identity, of formulas that read nothing before them
    tested = [0]  # number of valuations that filters between events have tested

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

    def followed(
        left: Iterable[Valuation], right: Formula, before: Assignments, contiguous: bool
    ) -> Iterator[Valuation]:
        """Yield each valuation of `left` followed by one of `right`, whose filters may read what `left` holds."""
        needed = outer_variables(right)
        groups: dict[Assignments, list[Valuation]] = defaultdict(list)
        for valuation in left:
            groups[frozenset((x, p) for x, p in before | valuation[2] if x in needed)].append(valuation)
        for assigned, group in groups.items():
            yield from _joined(group, of(right, assigned), contiguous)

    def of(formula: Formula, before: Assignments) -> set[Valuation]:
        """Return the valuations; `before` is held by what stands before the formula in enclosing sequences."""
        if outer_variables(formula):
            return found_by(formula, before)
        if id(formula) not in known:
            known[id(formula)] = (formula, found_by(formula, frozenset()))
        return known[id(formula)][1]

    def found_by(formula: Formula, before: Assignments) -> set[Valuation]:
        match formula:
            case EventType(name, of_stream, defines):
                return {
                    (i, i, frozenset(held(name, i) if defines else {(UNNAMED, i)}))
                    for i, e in enumerate(stream)
                    if is_of(e, name, of_stream)
                }
            case Not(name, predicate, of_stream):
                return {
                    (i, i, frozenset())
                    for i, e in enumerate(stream)
                    if not (is_of(e, name, of_stream) and (predicate is None or holds(predicate, e)))
                }
            case As(body, name):
                named = ((i, j, mu.union(*(held(name, p) for _, p in mu))) for i, j, mu in of(body, before))
                return {(i, j, frozenset((x, p) for x, p in mu if x != UNNAMED)) for i, j, mu in named}
            case Filter(body, Unary(variable, predicate)):
                return {
                    (i, j, mu)
                    for i, j, mu in of(body, before)
                    if all(holds(predicate, stream[p]) for x, p in mu if x == variable)
                }
            case Filter(body, Relation(predicate)):
                own, candidates = defined_variables(body), of(body, before)
                tested[0] += len(candidates)
                if most is not None and tested[0] > 3 * most:
                    raise TooLarge
                return {(i, j, mu) for i, j, mu in candidates if _related(predicate, own, mu, before, stream)}
            case Filter(body, FilterAnd(left, right)):
                return of(Filter(Filter(body, left), right), before)
            case Filter(body, FilterOr(left, right)):
                return of(Or(Filter(body, left), Filter(body, right)), before)
            case Or(left, right):
                return of(left, before) | of(right, before)
            case Seq(left, right):
                return checked(followed(of(left, before), right, before, contiguous=False))
            case Contig(left, right):
                return checked(followed(of(left, before), right, before, contiguous=True))
            case All(left, right):
                one, other = of(left, before), of(right, before)
                if most is not None and len(one) * len(other) > 20 * most:
                    raise TooLarge
                return checked((min(i, k), max(j, m), mu | nu) for i, j, mu in one for k, m, nu in other)
            case Plus(body) | ContigPlus(body):
                once = of(body, before)
                total, newest = set(once), once
                while newest:
                    longer = checked(_joined(newest, once, contiguous=isinstance(formula, ContigPlus)))
                    newest = longer - total
                    total = checked(total | newest)
                return total
        raise TypeError(formula)

    return {(i, j, frozenset((x, p) for x, p in mu if x != UNNAMED)) for i, j, mu in of(formula, frozenset())}


def _related(
    predicate: Predicate, own: set[str], mu: Assignments, before: Assignments, stream: Sequence[Event]
) -> bool:
    """Return True if the predicate is TRUE for every choice of one event of each variable.

    A variable of the filtered formula (`own`) holds what its valuation `mu` assigns to it, another one what stands
    `before` the formula.
    """
    read = events_read(predicate)
    held = {x: sorted(p for y, p in (mu if _plain(x) in own else before) if x == y) for x, _ in read}
    if not all(held.values()):
        return True
    chosen = {(x, "FIRST"): stream[positions[0]] for x, positions in held.items()}
    chosen |= {(x, "LAST"): stream[positions[-1]] for x, positions in held.items()}
    choosing = sorted({x for x, which in read if which in ("EACH", "PREV")})
    for choice in itertools.product(*(range(len(held[x])) for x in choosing)):
        if any(k == 0 and (x, "PREV") in read for x, k in zip(choosing, choice, strict=True)):
            continue  # no event before the first one: no test
        for x, k in zip(choosing, choice, strict=True):
            chosen[x, "EACH"] = stream[held[x][k]]
            chosen[x, "PREV"] = stream[held[x][k - 1]]
        if not holds(predicate, {}, chosen):
            return False
    return True


def _plain(variable: str) -> str:
    """Return the variable x of `S>x`."""
    return variable.rpartition(">")[2]


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


def head_rows(query: Query, stream: Sequence[Event], most: int | None = None) -> list[HeadRow]:
    """Return every row of a conjunctive query: one for each of its bindings, with the values of the head."""
    return sorted((headed(query, stream, row) for row in bindings(query, stream, most)), key=repr)


def head_rows_long(query: Query, stream: Sequence[Event], most: int | None = None) -> list[HeadRow]:
    """Return the same as `head_rows`, under the conditions of `evaluate_long`."""
    return sorted((headed(query, stream, row) for row in bindings_long(query, stream, most)), key=repr)


def headed(query: Query, stream: Sequence[Event], row: BoundRow) -> HeadRow:
    """Return a row of "bindings" with the values of the head in place of the positions that the atoms hold."""
    at = {atom: held[0] for atom, held in row[3]}
    values = (attribute(stream[at[atom]], name) for _, atom, name in query.head or ())
    return *row[:3], tuple("NaN" if value != value else value for value in values)


def counts(query: Query, stream: Sequence[Event], most: int | None = None) -> list[tuple[int, int]]:
    """Return every end of complex events (or answers, if there is a head) with their number after LIMIT or ANY."""
    rows = evaluate if query.head is None else bindings
    return counts_of(query, rows(every_candidate(query), stream, most))


def counts_of(query: Query, candidates: Sequence[Any]) -> list[tuple[int, int]]:
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
    events of its substream that are in its window. (Other strategies also compare rivals that start before it, unless
    they choose in the window.) Events that CONSUME has forgotten by then are not among them.
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
    """Apply WHERE, then SELECT with its strategy, then WITHIN, to one substream.

    With filters between events, and with ALL, WITHIN comes before the strategy.
    """
    rows = projected(query, valuations(query.formula, stream, most), variables)
    if chooses_in_window(query.formula):
        rows = {row for row in rows if in_window(query.within, stream, row)}
    winners = selected(query.strategy, {row[:3] for row in rows})
    return {row for row in rows if row[:3] in winners and in_window(query.within, stream, row)}


def _evaluate_long(query: Query, stream: Sequence[Event], most: int | None, variables: Sequence[str]) -> set[BoundRow]:
    if query.within is None or not (query.strategy in ("ALL", "STRICT") or chooses_in_window(query.formula)):
        raise ValueError("needs WITHIN, and no strategy but ALL or STRICT that chooses before it")
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

    No row comes more often than among the candidates, and each end has as many as they allow.
    """
    everything, answer = _by_end(candidates), _by_end(rows)
    return set(answer) <= set(everything) and all(
        Counter(answer[end]) <= Counter(group) and len(answer[end]) == _how_many(query, len(group))
        for end, group in everything.items()
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


def defined_variables(formula: Formula) -> set[str]:
    """Return the variables that the formula defines, in some branch at least; NOT(R) defines none."""
    return {node.name for node in descendants(formula) if _defines(node)}


def _defines(node: Any) -> bool:
    """Return True for AS, and for a type that defines the variable of its name."""
    return isinstance(node, As) or (isinstance(node, EventType) and node.defines)


def outer_variables(formula: Formula) -> set[str]:
    """Return the variables that filters in the formula read and that stand before it in enclosing sequences."""
    found = {x for part in children(formula) if isinstance(part, Formula) for x in outer_variables(part)}
    if isinstance(formula, Filter):
        own = defined_variables(formula.body)
        found |= {x for x, _ in events_read(formula.condition) if _plain(x) not in own}
    return found


def chooses_in_window(formula: Formula) -> bool:
    """Return True if a strategy chooses among the complex events that lie in the window."""
    return relates_events(formula) or any(isinstance(node, All) for node in descendants(formula))


def relates_events(formula: Formula) -> bool:
    """Return True if the formula has a filter between events: one that is no ``x[p]`` of the filtered formula.

    FIRST(x) and LAST(x) of a variable that holds one event at most are x itself.
    """
    for node in descendants(formula):
        if isinstance(node, Filter):
            own, several = defined_variables(node.body), variables_of_several(node.body)[0]
            for relation in descendants(node.condition):
                if isinstance(relation, Relation):
                    read = {
                        (x, which if which == "PREV" or _plain(x) in several else "EACH")
                        for x, which in events_read(relation)
                    }
                    if len(read) > 1 or any(which != "EACH" or _plain(x) not in own for x, which in read):
                        return True
    return False


def variables_of_several(formula: Formula) -> tuple[set[str], bool]:
    """Return the variables that may hold several events, and True if every valuation holds one position at most."""
    match formula:
        case EventType() | Not():
            return set(), True
        case Filter(body, _):
            return variables_of_several(body)
        case As(body, name):
            several, one = variables_of_several(body)
            return (several if one else several | {name}), one
        case Plus(body) | ContigPlus(body):
            return defined_variables(body), False
        case Or(left, right):
            (a, a_one), (b, b_one) = variables_of_several(left), variables_of_several(right)
            return a | b, a_one and b_one
        case Seq(left, right) | Contig(left, right) | All(left, right):
            both = defined_variables(left) & defined_variables(right)
            return variables_of_several(left)[0] | variables_of_several(right)[0] | both, False
    raise TypeError(formula)


def variables_in_order(formula: Formula) -> list[str]:
    """Return the defined variables in the order in which the text defines them, from left to right."""
    inside = [name for part in children(formula) for name in variables_in_order(part)]
    own = [formula.name] if _defines(formula) else []
    return list(dict.fromkeys(inside + own))


def variables_of_streams(formula: Formula, streams: Sequence[str]) -> set[str]:
    """Return the variables such as `S>x` that can hold events: x holds events of a type of S, or of any stream."""
    found = set()
    for node in descendants(formula):
        if _defines(node):
            of = {atom.stream for atom in descendants(node) if isinstance(atom, EventType)}
            found |= {f"{stream}>{node.name}" for stream in streams if {None, stream} & of}
    return found


def compares_durations(formula: Formula) -> bool:
    """Return True if a filter compares with a length of time, so that the times must be times to the engine too."""
    return any(isinstance(node, DurationConst) for node in descendants(formula))


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
    found = {node.name for node in descendants(query.formula) if isinstance(node, Attr | VarAttr)}
    found |= {name for names in query.partition_by for name in names}
    found |= {name for names in query.brackets for name in names or ()}
    found |= {*query.named}
    if query.within is not None and query.within[0] == "attribute":
        found.add(query.within[2])
    return found - {TYPE, TIME}
