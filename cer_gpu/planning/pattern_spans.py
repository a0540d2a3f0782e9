"""Windows of a plan: that of the query, those within its pattern, gaps at each step, and absences at its end.

``(f WITHIN d)`` holds where every event that may end f is at most d after every event that may begin it: clocks do
not decrease, so that the last and the first event decide.  ``EACH STEP`` compares each event of a match with the one
before it.  Both become join predicates, whose variables hold the events of NOT(...), too, as those begin and end
a match like others.

``f ; !R`` holds for a match of f unless ``f -> R`` has one that begins with it, within the window.  Both are found
at once, as those of f after which the next R may come, and each R retracts what it follows.  With ``FOR d`` the next
R is at most d after the end of f, whatever the window of f.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from itertools import count

from cer_gpu.automaton.normal_form import Absent, Atom, Either, NormalForm, Related, Repeat, Then, Trailing, choices
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children, fold, mapped, walk, with_children

UNLIMITED = Fraction(2**200)
"""Length of a window that no stream leaves."""


def _hidden_sites() -> Iterator[int]:
    """Yield numbers of definitions that the query does not have; its own are not negative."""
    return count(-2, -1)


@dataclass
class Spans:
    """Filters for the windows within one pattern.

    Parameters
    ----------
    time_column
        Clock of durations.
    time_unit
        Unit of a time column of integers.
    sites
        Numbers of definitions that the query does not have.
    """

    time_column: str | None
    time_unit: str | None
    sites: Iterator[int] = field(default_factory=_hidden_sites)

    def two_sites(self) -> tuple[int, int]:
        """Return the numbers of two more definitions."""
        return next(self.sites), next(self.sites)

    def windowed(self, body: NormalForm, within: s.Within) -> NormalForm:
        """Return ``(body WITHIN within)``: its last event is at most that long after its first."""
        if all(isinstance(part, Atom) for part in choices(body)):
            return body
        first, last = self.two_sites()
        relation = self._distance_filter(within, ("the last of these", last), ("the first of these", first))
        return Related(_with_ends(body, first, last), relation)

    def each_step(self, formula: NormalForm, within: s.Within) -> NormalForm:
        """Return a whole pattern, each event of which is at most a length after the one before it."""
        if isinstance(formula, Trailing):
            return replace(formula, body=self.each_step(formula.body, within))
        site = next(self.sites)
        one = "each event", site
        return Related(_everywhere(formula, site), self._distance_filter(within, one, one, "PREV"))

    def following_within(
        self, body: NormalForm, event: NormalForm, within: s.Within, sites: tuple[int, int] | None = None
    ) -> tuple[NormalForm, NormalForm, s.Relation]:
        """Return a body, an event that may follow it, and the filter that bounds the time between the two.

        `sites` are the hidden definitions of both, or None for new ones.
        """
        last, site = self.two_sites() if sites is None else sites
        relation = self._distance_filter(within, ("it", site), ("the last event", last), "LAST")
        return _everywhere(body, last), _everywhere(event, site), relation

    def _distance_filter(
        self, within: s.Within, later: tuple[str, int], earlier: tuple[str, int], which: str = "EACH"
    ) -> s.Relation:
        """Return the filter that one event, of a variable and its definition, is at most a length after another."""
        column, span = self._clock(within), within.span
        clocks = [
            s.Attribute(column, span, s.Name(name, None, span), event)
            for (name, _), event in ((later, "EACH"), (earlier, which))
        ]
        roles = {name: s.Role(s.Name(name), frozenset({site}), True, False) for name, site in (later, earlier)}
        return s.Relation(s.Apart(clocks[0], clocks[1], within, self.time_unit, span), tuple(roles.values()), span)

    def _clock(self, within: s.Within) -> str:
        if within.attribute is not None:
            return within.attribute.name
        if within.kind == "events":
            return s.COUNTED_POSITION
        assert self.time_column is not None
        return self.time_column


def max_events(formula: NormalForm) -> int | None:
    """Return the greatest number of events of a match, or None if there is no bound."""

    def count_events(part: NormalForm, below: list[int | None]) -> int | None:
        match part:
            case Atom():
                return 1
            case Repeat():
                return None if part.n_max is None or below[0] is None else part.n_max * below[0]
            case Related() | Trailing():
                return below[0]
        left, right = below
        if left is None or right is None:
            return None
        return max(left, right) if isinstance(part, Either) else left + right

    return fold(formula, count_events, children)


def _everywhere(formula: NormalForm, site: int) -> NormalForm:
    """Return a formula whose events are all those of one more definition."""
    marked: NormalForm = mapped(formula, Atom, lambda atom: replace(atom, sites=atom.sites | {site}))
    return marked


def _with_ends(formula: NormalForm, first: int, last: int) -> NormalForm:
    """Return a formula whose events that may begin it, and end it, are those of two more definitions."""

    def below(part: tuple[NormalForm, bool, bool]) -> list[tuple[NormalForm, bool, bool]]:
        formula, begins, ends = part
        if isinstance(formula, Then):
            may_lack_left, may_lack_right = formula.optional
            left = formula.left, begins, ends and may_lack_right
            return [left, (formula.right, begins and may_lack_left, ends)]
        return [(each, begins, ends) for each in children(formula)]

    def marked(part: tuple[NormalForm, bool, bool], parts: list[NormalForm]) -> NormalForm:
        formula, begins, ends = part
        if isinstance(formula, Atom):
            own = ({first} if begins else set()) | ({last} if ends else set())
            return replace(formula, sites=formula.sites | own)
        rebuilt: NormalForm = with_children(formula, parts)
        return rebuilt

    return fold((formula, True, True), marked, below)


PASSED = "\0passed"
"""Variable of every event of a pattern before its absence, so that all of them are selected."""
TAKES_BACK = "\0takes back"
"""Variable of an event that is to be absent at the end of a pattern."""


def followed(formula: NormalForm, spans: Spans, within: s.Within | None) -> NormalForm | None:
    """Return the pattern without its absence at the end, after which the next absent event may come.

    Join predicates around the absence are filters of the pattern before it, and where the absence has a length,
    so is the window `within`.  None if there is no such absence.
    """
    relations, part = [], formula
    while isinstance(part, Related):
        relations.append(part.relation)
        part = part.body
    if not isinstance(part, Trailing):
        return None
    marked = mapped(part.body, Atom, lambda atom: replace(atom, labels=atom.labels | {PASSED}))
    body = reduce(Related, reversed(relations), marked)
    event = reduce(Either, map(_taking_back, part.absent))
    if part.length is None or max_events(part.body) == 1:  # of one event, the window says all
        return Then(body, event, False, part.absent, (False, True))
    if within is not None:
        body = spans.windowed(body, within)
    body, event, relation = spans.following_within(body, event, part.length)
    return Related(Then(body, event, False, part.absent, (False, True)), relation)


def lasting(formula: NormalForm, length: s.Within, within: s.Within | None) -> s.Within:
    """Return the window of a pattern and of what may retract its matches, if its absence has a length.

    `within` is the window of the pattern alone, by the same clock, or None if there is none, or by another clock.
    """
    if max_events(formula) == 1:
        return length
    return replace(length, length=UNLIMITED if within is None else within.length + length.length)


def _taking_back(absent: Absent) -> NormalForm:
    event: NormalForm = Atom(absent.guard, frozenset({TAKES_BACK}), absent.negated, absent.sites, absent.stream)
    return reduce(Related, reversed(absent.relations), event)


_SLACK = 1 + Fraction(1, 2**40)
"""Factor of a sum of lengths of a column, for the rounding of its floats; each length is also tested exactly."""


def hoisted(syntax: s.QuerySyntax) -> s.QuerySyntax:
    """Return a query with WITHIN in place of a local window around the whole pattern.

    AS and FILTER may be around it, and an absence with FOR after it.
    """
    around: list[s.Assign | s.Filtered | s.TrailingAbsence] = []
    part = syntax.formula
    while isinstance(part, s.Assign | s.Filtered) or (
        isinstance(part, s.TrailingAbsence) and part.absent[0].length is not None
    ):
        around.append(part)
        part = part.formula
    if not isinstance(part, s.Windowed) or syntax.head is not None:
        return syntax
    own, within = part.within, syntax.within
    if within is not None and not same_clock(own, within):
        return syntax
    if within is None or own.length < within.length:
        within = own
    formula = part.formula
    for outer in reversed(around):
        formula = replace(outer, formula=formula)
    return hoisted(replace(syntax, formula=formula, within=within))


def same_clock(one: s.Within, other: s.Within) -> bool:
    """Return True if two lengths are measured by the same clock."""
    return one.kind == other.kind and one.attribute == other.attribute


def window_of(syntax: s.QuerySyntax, formula: NormalForm) -> s.Within | None:
    """Return the window outside of which no event matters, given the query and the normal form of its pattern.

    Without WITHIN it is what gaps at each step allow; it reaches to the end of an absence with FOR.  None if there
    is no such window.
    """
    within, step = syntax.within, syntax.each_step
    n_max = None if step is None else max_events(formula)
    if within is None and step is not None and n_max is not None:
        within = _longer(step, (n_max - 1) * step.length)
    length = lasts_for(syntax.formula)
    if length is None:
        return within
    spanned = within if within is not None and same_clock(within, length) else None
    total = lasting(formula, length, spanned)
    return total if total.length == length.length else _longer(total, total.length)


def _longer(within: s.Within, length: Fraction) -> s.Within:
    return replace(within, length=length * _SLACK if within.kind == "attribute" else length)


def lasts_for(formula: s.Formula) -> s.Within | None:
    """Return the longest FOR of absences after a pattern or a part of it, or None if there is none.

    All absences of one pattern use one clock.
    """
    parts = (part for part in walk(formula) if isinstance(part, s.TrailingAbsence))
    lengths = [absence.length for part in parts for absence in part.absent if absence.length is not None]
    return max(lengths, key=lambda length: length.length, default=None)
