"""Reference: the meaning of a CEQL query by brute force from the definitions, written as plainly as possible.

A formula is evaluated literally to its set of valuations, bottom up, and nothing is clever. The result is
exponential in the length of the stream, so streams are short. This module imports no engine, so that the two
can only agree by both being right.

A stream is a list of dicts, one per event: the type under ``"type"``, the time under ``"ts"`` if a window
needs one, the name of its stream under ``"$stream"`` if a formula or SELECT names one (`merged` makes one stream
of several), and the attributes. ``None`` and a missing key are both NULL. Integers are int64. A struct is a dict, and
``st.p`` its field p, which is NULL where the struct is.

Decisions that the papers leave open:

- A selection strategy chooses among the complex events that lie in the window. It compares kept positions only;
  complex events with equal ones and different starts all stay. With THEN WITHIN it chooses before the window drops: a
  complex event outside the window still beats its rivals, which are then not reported either. ANY always chooses among
  those in the window: at every end of one, one is reported.
- The empty valuation (of `f?`) passes AS, OR, iterations and every FILTER. In a sequence the other operand then stands
  alone, and nothing is asked of what lies before or behind it: neither `:` nor `->` nor `!R`. It is the same in ALL.
- `f{n,m}` of an f that may be empty joins those of the n to m that are not.
- `!R` and the gap of `->` are about the positions strictly between the two operands. Filters inside the parentheses of
  `!(R AS x FILTER ...)`, and of the event behind `->`, belong to the absence; filters further out do not. They may
  read what the left operand and enclosing sequences hold.
- An absence at the end of a pattern is about all events behind the end of f in the window that begins at the start of
  f, in the substream. What is left is known at the first event of the input beyond that window, or at the end of the
  input: that is its moment (`moments`). Where complex events of one end are compared, counted or chosen from, all of
  that end have the latest of their moments.
- LAG(a, n) counts the events of the substream (of the merged stream without PARTITION BY), whatever CONSUME forgets.
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
  it are one row. LIMIT n keeps n rows at each end there (LIMIT 0 none), and ANY one. Without variables in SELECT, a
  type is a variable there only if some event of it has no alias.
- A query with measures has the rows of "bindings" over the variables that its items and measures name, each with the
  values of its measures; HAVING drops some of these rows, before LIMIT and after ANY, and changes nothing that CONSUME
  forgets. Aggregates pass over NULL, COUNT(x) and LIST(x.a) do not. COUNT(*) names all variables.
- An answer of a conjunctive query is a t-homomorphism (papers: PCEA): each choice of one event for each atom is a row,
  and is counted, even if other rows have the same positions and the same head.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reference_formulas import ANY as ANY
from reference_formulas import EMPTY as EMPTY
from reference_formulas import STREAM as STREAM
from reference_formulas import TIME as TIME
from reference_formulas import TYPE as TYPE
from reference_formulas import UNNAMED as UNNAMED
from reference_formulas import All as All
from reference_formulas import As as As
from reference_formulas import Assignments as Assignments
from reference_formulas import Contig as Contig
from reference_formulas import ContigPlus as ContigPlus
from reference_formulas import EventType as EventType
from reference_formulas import Filter as Filter
from reference_formulas import FilterAnd as FilterAnd
from reference_formulas import FilterExpr as FilterExpr
from reference_formulas import FilterOr as FilterOr
from reference_formulas import Formula as Formula
from reference_formulas import Next as Next
from reference_formulas import Not as Not
from reference_formulas import Or as Or
from reference_formulas import Plus as Plus
from reference_formulas import Relation as Relation
from reference_formulas import Seq as Seq
from reference_formulas import Times as Times
from reference_formulas import TooLarge as TooLarge
from reference_formulas import Trailing as Trailing
from reference_formulas import Unary as Unary
from reference_formulas import Valuation as Valuation
from reference_formulas import Windowed as Windowed
from reference_formulas import Within as Within
from reference_formulas import absence_lasts as absence_lasts
from reference_formulas import absences as absences
from reference_formulas import compares_durations as compares_durations
from reference_formulas import defined_variables as defined_variables
from reference_formulas import defines as defines
from reference_formulas import in_window as in_window
from reference_formulas import is_one_event as is_one_event
from reference_formulas import may_be_empty as may_be_empty
from reference_formulas import outer_variables as outer_variables
from reference_formulas import parts as parts
from reference_formulas import relates_events as relates_events
from reference_formulas import trails as trails
from reference_formulas import types_of_an_alias as types_of_an_alias
from reference_formulas import valuations as valuations
from reference_formulas import variables_in_order as variables_in_order
from reference_formulas import variables_of_several as variables_of_several
from reference_formulas import variables_of_streams as variables_of_streams
from reference_past import BEFORE as BEFORE
from reference_past import AbsentFor as AbsentFor
from reference_past import Over as Over
from reference_past import Preceded as Preceded
from reference_predicates import Aggregate as Aggregate
from reference_predicates import AnyOf as AnyOf
from reference_predicates import Arith as Arith
from reference_predicates import Attr as Attr
from reference_predicates import Between as Between
from reference_predicates import Call as Call
from reference_predicates import Cidr as Cidr
from reference_predicates import Compare as Compare
from reference_predicates import Const as Const
from reference_predicates import DurationConst as DurationConst
from reference_predicates import Element as Element
from reference_predicates import Event as Event
from reference_predicates import Expression as Expression
from reference_predicates import Glob as Glob
from reference_predicates import In as In
from reference_predicates import InRange as InRange
from reference_predicates import IsNull as IsNull
from reference_predicates import Like as Like
from reference_predicates import Neg as Neg
from reference_predicates import PredAnd as PredAnd
from reference_predicates import Predicate as Predicate
from reference_predicates import PredNot as PredNot
from reference_predicates import PredOr as PredOr
from reference_predicates import Rises as Rises
from reference_predicates import Strings as Strings
from reference_predicates import Truth as Truth
from reference_predicates import VarAttr as VarAttr
from reference_predicates import and_ as and_
from reference_predicates import attribute as attribute
from reference_predicates import children as children
from reference_predicates import compare as compare
from reference_predicates import descendants as descendants
from reference_predicates import events_read as events_read
from reference_predicates import holds as holds
from reference_predicates import measured_variables as measured_variables
from reference_predicates import not_ as not_
from reference_predicates import or_ as or_
from reference_predicates import truth as truth
from reference_predicates import value_of as value_of

Row = tuple[int, int, tuple[int, ...]]  # (start, end, kept positions)
Binding = tuple[tuple[str, tuple[int, ...]], ...]  # ((variable, positions), ...)
BoundRow = tuple[int, int, tuple[int, ...], Binding]
HeadRow = tuple[int, int, tuple[int, ...], tuple[Any, ...]]  # (..., values of the head)


@dataclass(frozen=True)
class Query:
    """A whole query.

    `select` is ``"*"``, ``"NONE"`` or a tuple of variables (``"x"``, or ``"S>x"`` for the events of stream S that x
    holds); `within` is None, ``("events", n)``, ``("time", n)`` (n in the unit of the values under ``"ts"``) or
    ``("attribute", n, name)``; `partition_by` holds one tuple of attribute names for each key; `brackets`, unless it
    is empty, holds for each selected variable the attributes in brackets behind it, or None if there are none; `head`,
    of a conjunctive query, holds (column, variable of an atom, attribute) for each column of its head; `named` holds
    attributes that the text names, even if nothing reads them; `chooses_first` is THEN WITHIN; `measures` holds (name,
    expression) for each measure, beside the variables in `select`, and in `having` an `Attr` is a measure by its name;
    `each_step`, as `within`, is that of EACH STEP, and `every` that of LIMIT n EVERY, which `kept_at_ends` reads;
    `let` holds (name, expression) for each column of LET, which `computed` adds to the events.
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
    chooses_first: bool = False
    measures: tuple[tuple[str, Expression], ...] = ()
    having: Predicate | None = None
    each_step: Within = None
    every: Within = None
    let: tuple[tuple[str, Expression], ...] = ()


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


def kept_at_ends(
    query: Query,
    stream: Sequence[Event],
    counts: Sequence[tuple[int, int]],
    survivors: Sequence[Any] = (),
) -> list[tuple[int, int]]:
    """Return how many complex events of each end LIMIT n EVERY d keeps, given how many each end has.

    One is kept if fewer than n of those kept before, in its substream, end at most d before it.  Behind an absence up
    to the end of the window, they become known in the order of their starts, all of one end with the latest: it is the
    latest starts of the `survivors` (see `moments`) that are at most d apart.
    """
    assert query.limit is not None
    measured = {end: end for end, _ in counts}
    if trails(query.formula) and absence_lasts(query.formula) is None:
        measured = {end: max(start for start, other, *_ in survivors if other == end) for end in measured}
    kept = []
    for own in substreams(query, stream):
        part, place_of = [stream[p] for p in own], {p: k for k, p in enumerate(own)}
        before: list[int] = []
        chosen: Counter[int] = Counter()
        for end, n in sorted(counts, key=lambda each: (measured[each[0]], each[0])):
            if end not in place_of:
                continue
            place = place_of[measured[end]]
            for _ in range(n):
                if sum(in_window(query.every, part, (other, place)) for other in before) < query.limit:
                    before.append(place)
                    chosen[end] += 1
        kept += chosen.items()
    return sorted(kept)


def kept_events(query: Query, stream: Sequence[Event], row: Row) -> list[Event]:
    """Return the events at the kept positions, with the attributes that SELECT names."""
    names = selected_attributes(query)
    if names is None:
        return [{name: value for name, value in stream[p].items() if name != STREAM} for p in row[2]]
    return [{name: attribute(stream[p], name) for name in names} for p in row[2]]


def evaluate_long(query: Query, stream: Sequence[Event], most: int | None = None) -> list[Row]:
    """Return the same as `evaluate`, for streams too long for it, with WITHIN.

    A valuation depends on the events of its own interval only, so those that end at an event are found among the
    events of its substream that are in its window. (With THEN WITHIN most strategies also compare rivals that start
    before it.) Events that CONSUME has forgotten by then are not among them.  An absence at the end of the pattern
    depends on the events behind it in its window, too.
    """
    return sorted(row[:3] for row in _evaluate_long(query, stream, most, ()))


def bindings_long(query: Query, stream: Sequence[Event], most: int | None = None) -> list[BoundRow]:
    """Return the same as `bindings`, under the conditions of `evaluate_long`."""
    return sorted(_evaluate_long(query, stream, most, bound_variables(query)))


def _evaluate(query: Query, stream: Sequence[Event], most: int | None, variables: Sequence[str]) -> set[BoundRow]:
    if query.strategy == "ANY":
        raise ValueError("ANY has more than one right answer")
    stream = linked(query, stream)
    if query.consume != "NONE" and trails(query.formula):
        raise ValueError("what an absence at the end leaves is known too late to be consumed")
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
    """Apply WHERE, then WITHIN, then SELECT with its strategy, to one substream; with THEN WITHIN, the window last."""
    rows = projected(query, valuations(query.formula, stream, most, query.within, query.each_step), variables)
    if not query.chooses_first:
        rows = {row for row in rows if in_window(query.within, stream, row)}
    winners = selected(query.strategy, {row[:3] for row in rows})
    return {row for row in rows if row[:3] in winners and in_window(query.within, stream, row)}


def _evaluate_long(query: Query, stream: Sequence[Event], most: int | None, variables: Sequence[str]) -> set[BoundRow]:
    if query.within is None or (query.chooses_first and query.strategy not in ("ALL", "STRICT")):
        raise ValueError("needs WITHIN, and no strategy but ALL or STRICT that chooses before it")
    stream = linked(query, stream)
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
        behind = last + 1
        lasts = absence_lasts(query.formula) or query.within
        while trails(query.formula) and behind < len(events) and in_window(lasts, events, (last, behind)):
            behind += 1
        piece = slice(first, behind)
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


def linked(query: Query, stream: Sequence[Event]) -> list[Event]:
    """Return the events, each with the one before it in its substream."""
    events = [dict(event) for event in stream]
    for positions in substreams(query, stream):
        for before, position in itertools.pairwise(positions):
            events[position][BEFORE] = events[before]
    return events


def computed(query: Query, stream: Sequence[Event]) -> list[Event]:
    """Return the events with the columns of LET, each of which may read those before it.

    LAG and aggregates OVER read the events before in the substream: the keys must be among the first columns.
    """
    events = [dict(event) for event in stream]
    for name, expression in query.let:
        values = [value_of(expression, event) for event in linked(query, events)]
        for event, value in zip(events, values, strict=True):
            event[name] = value
    return events


def projected(query: Query, found: Iterable[Valuation], variables: Sequence[str] = ()) -> set[BoundRow]:
    """Return the complex events of valuations (the interval and the positions of the selected variables), each with
    the positions that the given variables hold."""
    kept = {x for _, _, mu in found for x, _ in mu} if query.select == "*" else set(bound_variables(query))

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


# ------------------------------------------------------------------------- absence at the end of a pattern


def moments(query: Query, stream: Sequence[Event], survivors: Sequence[Any]) -> dict[tuple[int, int], int]:
    """Return the moment of each (start, end): the position of the event that tells it, or the length of the stream.

    `survivors` are the rows that the window and the absence leave, before the strategy and LIMIT choose.
    """
    lasts = absence_lasts(query.formula)
    window, which = (query.within, 0) if lasts is None else (lasts, 1)
    found = {row[:2]: _moment(query, window, stream, row[which]) for row in survivors}
    if query.strategy in ("ALL", "STRICT") and query.limit is None:
        return found
    latest: dict[int, int] = {}
    for (_, end), moment in found.items():
        latest[end] = max(moment, latest.get(end, 0))
    return {(start, end): latest[end] for start, end in found}


def _moment(query: Query, window: Within, stream: Sequence[Event], first: int) -> int:
    """Return the position of the first event beyond the window that begins at an event."""
    if window is not None and window[0] == "events":
        positions = next(found for found in substreams(query, stream) if first in found)
        beyond = positions.index(first) + window[1] + 1
        return positions[beyond] if beyond < len(positions) else len(stream)
    later = range(first, len(stream))
    return next((p for p in later if not in_window(window, stream, (first, p))), len(stream))


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


def bound_variables(query: Query) -> tuple[str, ...]:
    """Return the variables that "bindings" shows, in the order of its columns; those of measures stand last."""
    if query.select == "*":
        aliased = types_of_an_alias(query.formula)
        return tuple(name for name in variables_in_order(query.formula) if name not in aliased)
    named = [] if query.select == "NONE" else [*query.select]
    for _, measure in query.measures:
        counts_all = any(isinstance(node, Aggregate) and node.variable is None for node in descendants(measure))
        named += variables_in_order(query.formula) if counts_all else measured_variables(measure)
    return tuple(dict.fromkeys(named))


def selected_attributes(query: Query) -> tuple[str, ...] | None:
    """Return the attributes that "events" shows: those in brackets; None: all, as an item without brackets asks."""
    if query.select in ("*", "NONE") or not query.brackets or None in query.brackets:
        return None
    return tuple(dict.fromkeys(name for names in query.brackets for name in names))


def windows_of(query: Query) -> list[tuple[Any, ...]]:
    """Return the windows of the query and within its formula, and the lengths of gaps and absences."""
    windows = [query.within, query.each_step, query.every, absence_lasts(query.formula)]
    windows += [node.within for node in descendants(query.formula) if isinstance(node, Windowed)]
    return [window for window in windows if window is not None]


def lengths_back(formula: Formula) -> list[tuple[Any, ...]]:
    """Return how far OVER aggregates, and absences counted back, reach back."""
    return [node.within for node in descendants(formula) if isinstance(node, Over | AbsentFor)]


def attributes(query: Query) -> set[str]:
    """Return the attributes that the query names, besides the type and the time."""
    found = {node.name for node in descendants(query.formula) if isinstance(node, Attr | VarAttr)}
    in_measures = [node for _, measure in query.measures for node in descendants(measure)]
    found |= {node.name for node in in_measures if isinstance(node, VarAttr | Aggregate) and node.name is not None}
    found |= {name for names in query.partition_by for name in names}
    found |= {name for names in query.brackets for name in names or ()}
    found |= {*query.named}
    lengths = [*windows_of(query), *lengths_back(query.formula)]
    found |= {length[2] for length in lengths if length[0] == "attribute"}
    return found - {TYPE, TIME}
