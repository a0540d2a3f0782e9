"""Formulas of the reference, their valuations by brute force from the table of meanings, and facts about them.

A formula is evaluated literally to its set of valuations, bottom up.  `reference` has the decisions that the papers
leave open, and the clauses of a query.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reference_past import Preceded, clear_before
from reference_predicates import DurationConst, Event, Predicate, attribute, descendants, events_read, holds

TYPE = "type"
TIME = "ts"
ANY = "*"  # the type that events of all types have
STREAM = "$stream"
UNNAMED = ""  # holds the event of a type that defines no variable, until an AS around it names the event
PASSED = "\0"  # holds every event of a valuation, those of NOT too, where EACH STEP asks for them

Assignments = frozenset[tuple[str, int]]  # {(variable, position)}
Valuation = tuple[int, int, Assignments]  # (start, end, ...)
EMPTY: Valuation = (-1, -1, frozenset())  # holds nothing, and is nowhere: that of `f?` without f
Within = None | tuple[str, int] | tuple[str, int, str]


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
    """R, S>R, or `*` for R; where it does not define a variable of its name, only an AS around it names the event."""

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
    """F ; g, or `f ; !R ; g`: `absent` are the events R, each as a formula: `R`, `R AS x`, or one with a FILTER."""

    left: Formula
    right: Formula
    absent: tuple[Formula, ...] = ()


@dataclass(frozen=True)
class Contig:
    """F : g."""

    left: Formula
    right: Formula


@dataclass(frozen=True)
class Next:
    """F -> g: g is one event, or an iteration of one; with none of `absent` strictly between (f ; !R -> g)."""

    left: Formula
    right: Formula
    absent: tuple[Formula, ...] = ()


@dataclass(frozen=True)
class All:
    """F ALL g."""

    left: Formula
    right: Formula


@dataclass(frozen=True)
class Plus:
    """F +, or `f + UNTIL (R)`: `until` are events as in `Seq`, none of which lies between two repetitions."""

    body: Formula
    until: tuple[Formula, ...] = ()


@dataclass(frozen=True)
class ContigPlus:
    """F :+."""

    body: Formula


@dataclass(frozen=True)
class Times:
    """`f{least,most}`, joined by ``;``, ``:`` or ``->``; without bound where `most` is None.

    ``f?`` is `Times(f, 0, 1)`, ``f*`` is `Times(f, 0, None)`, ``f ->+`` is `Times(f, 1, None, "->")`; `until` as in
    `Plus`.
    """

    body: Formula
    least: int
    most: int | None = None
    joint: str = ";"
    until: tuple[Formula, ...] = ()


@dataclass(frozen=True)
class Windowed:
    """`(f WITHIN d)`."""

    body: Formula
    within: Within


@dataclass(frozen=True)
class Trailing:
    """`f ; !R` at the end of a whole pattern; `absent` as in `Seq`, and `length` is that of FOR, or None."""

    body: Formula
    absent: tuple[Formula, ...]
    length: Within = None


Formula = (
    EventType
    | Not
    | As
    | Filter
    | Or
    | Seq
    | Contig
    | Next
    | All
    | Plus
    | ContigPlus
    | Times
    | Windowed
    | Trailing
    | Preceded
)


class TooLarge(Exception):
    """Refusal of a case for which brute force would hold more valuations than allowed."""


# ------------------------------------------------------------------------------------ valuations of formulas


def valuations(
    formula: Formula,
    stream: Sequence[Event],
    most: int | None = None,
    within: Within = None,
    each_step: Within = None,
) -> set[Valuation]:
    """Return all valuations of the formula, by the table of meanings; TooLarge beyond `most` of them.

    Only an absence at the end of the pattern reads the window.  Neighbouring events are `each_step` apart at most.
    """
    known: dict[int, tuple[Formula, set[Valuation]]] = {}  # by identity, of formulas that read nothing before them
    tested = [0]  # number of valuations that filters between events have tested

    def is_of(event: Event, name: str, of_stream: str | None) -> bool:
        return name in (ANY, event.get(TYPE)) and of_stream in (None, event.get(STREAM))

    def passed(position: int) -> set[tuple[str, int]]:
        return set() if each_step is None else {(PASSED, position)}

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

    def grouped(
        left: Iterable[Valuation], before: Assignments, *readers: Formula
    ) -> Iterator[tuple[Assignments, list[Valuation]]]:
        """Yield the valuations by all that filters of the readers, which stand behind them, may read."""
        needed = {x for reader in readers for x in outer_variables(reader)}
        groups: dict[Assignments, list[Valuation]] = defaultdict(list)
        for valuation in left:
            groups[frozenset((x, p) for x, p in before | valuation[2] if x in needed)].append(valuation)
        yield from groups.items()

    def positions(events: Iterable[Formula], before: Assignments) -> list[int]:
        """Return the positions of all that is one of the events."""
        return sorted({i for event in events for i, _, _ in of(event, before)})

    def followed(
        left: Iterable[Valuation],
        right: Formula,
        before: Assignments,
        contiguous: bool = False,
        absent: tuple[Formula, ...] = (),
    ) -> Iterator[Valuation]:
        """Yield each valuation of `left` followed by one of `right`, whose filters may read what `left` holds.

        None of the events `absent`, whose filters may read that too, lies between them.
        """
        for assigned, group in grouped(left, before, right, *absent):
            yield from _joined(group, of(right, assigned), contiguous, positions(absent, assigned))

    def repeated_until(
        iteration: Plus | Times, least: int, most: int | None, joint: str, before: Assignments
    ) -> set[Valuation]:
        """Return the iterations with none of the events of UNTIL, which read the repetition before them, in a gap."""
        body, until = iteration.body, iteration.until
        once = of(body, before)
        if EMPTY in once:
            raise ValueError("UNTIL beside a formula that may be empty")
        needed = {x for each in until for x in outer_variables(each)}
        following = positions((_event_of(body),), before) if joint == "->" else []
        newest = {(valuation, valuation[2]) for valuation in once}  # with what the last repetition holds
        total = {EMPTY} if least == 0 else set()
        for n in itertools.count(1):
            if not newest or (most is not None and n > most):
                return total
            if n >= least:
                total = checked(total | {valuation for valuation, _ in newest})
            longer: set[tuple[Valuation, Assignments]] = set()
            for (i, end, mu), last in newest:
                assigned = frozenset((x, p) for x, p in before | last if x in needed)
                barred = [*positions(until, assigned), *following]
                for start, j, nu in once:
                    if start > end and not any(end < p < start for p in barred):
                        longer.add(((i, j, mu | nu), nu))
            checked(valuation for valuation, _ in longer)
            newest = longer
        raise AssertionError

    def repeated(body: Formula, least: int, most: int | None, joint: str, before: Assignments) -> set[Valuation]:
        once = of(body, before)
        barred = positions((_event_of(body),), before) if joint == "->" else []

        def longer(found: set[Valuation]) -> set[Valuation]:
            return checked(_joined(found, once, joint == ":", barred))

        newest, total = {EMPTY}, {EMPTY} if least == 0 else set()  # nothing before the first: it stands alone
        for n in itertools.count(1):
            if not newest or (most is not None and n > most):
                return total
            newest = longer(newest)
            if n >= least:
                newest = newest - total if n > least else newest
                total = checked(total | newest)
        raise AssertionError

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
                    (i, i, frozenset((held(name, i) if defines else {(UNNAMED, i)}) | passed(i)))
                    for i, e in enumerate(stream)
                    if is_of(e, name, of_stream)
                }
            case Not(name, predicate, of_stream):
                return {
                    (i, i, frozenset(passed(i)))
                    for i, e in enumerate(stream)
                    if not (is_of(e, name, of_stream) and (predicate is None or holds(predicate, e)))
                }
            case As(body, name):
                named = (
                    (i, j, mu.union(*(held(name, p) for x, p in mu if x != PASSED))) for i, j, mu in of(body, before)
                )
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
                return {
                    (i, j, mu)
                    for i, j, mu in candidates
                    if (i, j, mu) == EMPTY or _related(predicate, own, mu, before, stream)
                }
            case Filter(body, FilterAnd(left, right)):
                return of(Filter(Filter(body, left), right), before)
            case Filter(body, FilterOr(left, right)):
                return of(Or(Filter(body, left), Filter(body, right)), before)
            case Or(left, right):
                return of(left, before) | of(right, before)
            case Seq(left, right, absent):
                return checked(followed(of(left, before), right, before, absent=absent))
            case Contig(left, right):
                return checked(followed(of(left, before), right, before, contiguous=True))
            case Next(left, right, absent):
                return checked(followed(of(left, before), right, before, absent=(_event_of(right), *absent)))
            case All(left, right):
                one, other = of(left, before), of(right, before)
                if most is not None and len(one) * len(other) > 20 * most:
                    raise TooLarge
                return checked(_both(a, b) for a in one for b in other)
            case Plus(until=(_, *_)):
                return repeated_until(formula, 1, None, ";", before)
            case Times(_, least, greatest, joint, (_, *_)):
                return repeated_until(formula, least, greatest, joint, before)
            case Plus(body):
                return repeated(body, 1, None, ";", before)
            case ContigPlus(body):
                return repeated(body, 1, None, ":", before)
            case Times(body, least, greatest, joint):
                return repeated(body, least, greatest, joint, before)
            case Preceded(absent, body):
                return {
                    v for v in of(body, before) if clear_before(absent, stream[v[0]], lambda f, e: valuations(f, [e]))
                }
            case Windowed(body, length):
                return {v for v in of(body, before) if v == EMPTY or in_window(length, stream, v)}
            case Trailing(body, absent, length):
                return {
                    (i, j, mu)
                    for assigned, group in grouped(of(body, before), before, *absent)
                    for barred in [positions(absent, assigned)]
                    for i, j, mu in group
                    for first, lasts in [(i, within) if length is None else (j, length)]
                    if not any(p > j and in_window(lasts, stream, (first, p)) for p in barred)
                }
        raise TypeError(formula)

    found = of(formula, frozenset())
    if EMPTY in found:
        raise ValueError("the whole pattern could be empty")
    if each_step is not None:
        found = {
            valuation
            for valuation in found
            for steps in [sorted(p for x, p in valuation[2] if x == PASSED)]
            if all(in_window(each_step, stream, pair) for pair in itertools.pairwise(steps))
        }
    return {(i, j, frozenset((x, p) for x, p in mu if x not in (UNNAMED, PASSED))) for i, j, mu in found}


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


def _joined(
    left: Iterable[Valuation], right: Iterable[Valuation], contiguous: bool, barred: Sequence[int] = ()
) -> Iterator[Valuation]:
    """Yield every valuation of `left` followed by one of `right`, with none of the positions `barred` between them.

    Beside the empty valuation the other one stands alone: there is nothing between.
    """
    by_start = defaultdict(list)
    for valuation in right:
        by_start[valuation[0]].append(valuation)
    nothing_after = by_start.pop(EMPTY[0], None)
    for i, end, mu in left:
        if (i, end, mu) == EMPTY:
            yield from itertools.chain.from_iterable(by_start.values())
            if nothing_after:
                yield EMPTY
            continue
        if nothing_after:
            yield i, end, mu
        k = bisect_right(barred, end)
        first_barred = barred[k] if k < len(barred) else None
        for start, group in by_start.items():
            free = first_barred is None or start <= first_barred
            if start == end + 1 or (start > end and not contiguous and free):
                for _, j, nu in group:
                    yield i, j, mu | nu


def _both(one: Valuation, other: Valuation) -> Valuation:
    """Return the valuation of ALL; beside the empty one the other stands alone."""
    if EMPTY in (one, other):
        return other if one == EMPTY else one
    return min(one[0], other[0]), max(one[1], other[1]), one[2] | other[2]


def _event_of(formula: Formula) -> Formula:
    """Return the event behind ``->``: the formula itself, or the body of the iteration that it is."""
    match formula:
        case Plus(body) | ContigPlus(body) | Times(body):
            return _event_of(body)
        case As(Plus() | ContigPlus() | Times() as iteration, _):
            return _event_of(iteration)
    if not is_one_event(formula):
        raise TypeError(formula)
    return formula


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


# ---------------------------------------------------------------------------------------- facts of a formula


def parts(formula: Formula) -> Iterator[Formula]:
    """Yield the direct subformulas; events that must be absent are none."""
    for name in getattr(formula, "__dataclass_fields__", ()):
        part = getattr(formula, name)
        if isinstance(part, Formula):
            yield part


def absences(formula: Formula) -> tuple[Formula, ...]:
    """Return the events that must be absent between the direct subformulas, or behind them."""
    if isinstance(formula, Plus | Times):
        return formula.until
    return formula.absent if isinstance(formula, Seq | Next | Trailing) else ()


def defined_variables(formula: Formula) -> set[str]:
    """Return the variables that the formula defines, in some branch at least; NOT(R) and !R define none."""
    own = {formula.name} if defines(formula) else set()
    return own.union(*(defined_variables(part) for part in parts(formula)))


def defines(formula: Any) -> bool:
    """Return True for AS, and for a type that defines the variable of its name."""
    return isinstance(formula, As) or (isinstance(formula, EventType) and formula.defines)


def outer_variables(formula: Formula) -> set[str]:
    """Return the variables that filters in the formula read and that stand before it in enclosing sequences.

    Filters of absences read what stands before them inside the formula, too.
    """
    found = {x for part in (*parts(formula), *absences(formula)) for x in outer_variables(part)}
    if isinstance(formula, Filter):
        own = defined_variables(formula.body)
        found |= {x for x, _ in events_read(formula.condition) if _plain(x) not in own}
    return found


def is_one_event(formula: Formula) -> bool:
    """Return True for one event: `R`, NOT(R), with AS or FILTER, or an OR of such."""
    match formula:
        case EventType() | Not():
            return True
        case As(body, _) | Filter(body, _):
            return is_one_event(body)
        case Or(left, right):
            return is_one_event(left) and is_one_event(right)
    return False


def may_be_empty(formula: Formula) -> bool:
    """Return True if the formula has the empty valuation, on some stream at least."""
    match formula:
        case EventType() | Not():
            return False
        case Times(body, least):
            return least == 0 or may_be_empty(body)
        case Or(left, right):
            return may_be_empty(left) or may_be_empty(right)
    return all(may_be_empty(part) for part in parts(formula))


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
        case Filter(body) | Times(body, _, 1) | Trailing(body) | Windowed(body) | Preceded(_, body):
            return variables_of_several(body)
        case As(body, name):
            several, one = variables_of_several(body)
            return (several if one else several | {name}), one
        case Plus(body) | ContigPlus(body) | Times(body):
            return defined_variables(body), False
        case Or(left, right):
            (a, a_one), (b, b_one) = variables_of_several(left), variables_of_several(right)
            return a | b, a_one and b_one
        case Seq(left, right) | Contig(left, right) | Next(left, right) | All(left, right):
            both = defined_variables(left) & defined_variables(right)
            return variables_of_several(left)[0] | variables_of_several(right)[0] | both, False
    raise TypeError(formula)


def variables_in_order(formula: Formula) -> list[str]:
    """Return the defined variables in the order in which the text defines them, from left to right."""
    inside = [name for part in parts(formula) for name in variables_in_order(part)]
    own = [formula.name] if defines(formula) else []
    return list(dict.fromkeys(inside + own))


def types_of_an_alias(formula: Formula) -> set[str]:
    """Return the types whose events have an alias each time: their names are no columns of "bindings"."""

    def bare(node: Formula, named: bool = False) -> set[str]:
        match node:
            case EventType(name):
                return set() if named else {name}
            case As(body, _):
                return bare(body, named=True)
            case Filter(body, _):
                return bare(body, named)
        return {name for part in parts(node) for name in bare(part)}

    types = {node.name for node in _walk(formula) if isinstance(node, EventType)}
    return types - bare(formula) - {node.name for node in _walk(formula) if isinstance(node, As)}


def variables_of_streams(formula: Formula, streams: Sequence[str]) -> set[str]:
    """Return the variables such as `S>x` that can hold events: x holds events of a type of S, or of any stream."""
    found = set()
    for node in _walk(formula):
        if defines(node):
            of = {atom.stream for atom in _walk(node) if isinstance(atom, EventType)}
            found |= {f"{stream}>{node.name}" for stream in streams if {None, stream} & of}
    return found


def _walk(formula: Formula) -> Iterator[Formula]:
    """Yield the formula and all of its subformulas."""
    yield formula
    for part in parts(formula):
        yield from _walk(part)


def trails(formula: Formula) -> bool:
    """Return True if an absence ends the pattern."""
    return any(isinstance(node, Trailing) for node in _walk(formula))


def absence_lasts(formula: Formula) -> Within:
    """Return the length of FOR of an absence at the end of the pattern; None: it has none, or there is none."""
    return next((node.length for node in _walk(formula) if isinstance(node, Trailing)), None)


def compares_durations(formula: Formula) -> bool:
    """Return True if a filter compares with a length of time, so that the times must be times to the engine too."""
    return any(isinstance(node, DurationConst) for node in descendants(formula))
