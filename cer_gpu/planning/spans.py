"""Windows within a pattern, as filters between events: local windows, gaps at each step, and absences with FOR.

``(f WITHIN d)`` holds where every event that may end f lies at most d behind every event that may begin it: clocks do
not decrease, so that the last and the first event decide.  ``EACH STEP`` compares each event of a match with the one
before it.  The variables of these filters hold the events of NOT(...), too, as those begin and end a valuation like
others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count

from cer_gpu.automaton.normal_form import Atom, Either, NormalForm, Related, Repeat, Then, Trailing, choices
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children, fold, mapped, with_children

UNLIMITED = Fraction(2**200)
"""Length of a window that no stream leaves."""


def _hidden_sites() -> Iterator[int]:
    """Yield numbers of definitions that the query has not; those of its own are not negative."""
    return count(-2, -1)


@dataclass
class Spans:
    """Filters for the windows within one pattern.

    Parameters
    ----------
    time_column
        Clock of lengths of time.
    time_unit
        Unit of a time column of integers.
    """

    time_column: str | None
    time_unit: str | None
    _sites: Iterator[int] = field(default_factory=_hidden_sites)

    def two_sites(self) -> tuple[int, int]:
        """Return the numbers of two definitions more."""
        return next(self._sites), next(self._sites)

    def windowed(self, body: NormalForm, within: s.Within) -> NormalForm:
        """Return ``(body WITHIN within)``: its last event lies at most that behind its first."""
        if all(isinstance(part, Atom) for part in choices(body)):
            return body
        first, last = self.two_sites()
        relation = self._distance_filter(within, ("the last of these", last), ("the first of these", first))
        return Related(_with_ends(body, first, last), relation)

    def each_step(self, formula: NormalForm, within: s.Within) -> NormalForm:
        """Return a whole pattern of which each event lies at most a length behind the one before it."""
        if isinstance(formula, Trailing):
            return replace(formula, body=self.each_step(formula.body, within))
        site = next(self._sites)
        one = "each event", site
        return Related(_everywhere(formula, site), self._distance_filter(within, one, one, "PREV"))

    def behind(
        self, body: NormalForm, event: NormalForm, within: s.Within, sites: tuple[int, int] | None = None
    ) -> tuple[NormalForm, NormalForm, s.Relation]:
        """Return a body, an event that may follow it, and the filter that it lies at most a length behind its last.

        `sites` are the hidden definitions of both; None: new ones.
        """
        last, site = self.two_sites() if sites is None else sites
        relation = self._distance_filter(within, ("it", site), ("the last event", last), "LAST")
        return _everywhere(body, last), _everywhere(event, site), relation

    def _distance_filter(
        self, within: s.Within, later: tuple[str, int], earlier: tuple[str, int], which: str = "EACH"
    ) -> s.Relation:
        """Return the filter that one event, of a variable and its definition, lies at most so far behind another."""
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


def most_events(formula: NormalForm) -> int | None:
    """Return the greatest number of events of a match; None: there is no bound."""

    def most(part: NormalForm, below: list[int | None]) -> int | None:
        match part:
            case Atom():
                return 1
            case Repeat():
                return None if part.most is None or below[0] is None else part.most * below[0]
            case Related() | Trailing():
                return below[0]
        left, right = below
        if left is None or right is None:
            return None
        return max(left, right) if isinstance(part, Either) else left + right

    return fold(formula, most, children)


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
        made: NormalForm = with_children(formula, parts)
        return made

    return fold((formula, True, True), marked, below)
