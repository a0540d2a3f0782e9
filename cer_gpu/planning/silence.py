"""Absences with FOR in the middle of a pattern: ``(f ; !R FOR d) ; g``, counted from the end of f whatever g does.

R lies behind the end of f in one of three places: in a gap between two later events of the match, at such an event, or
behind the last one.  The absence thus becomes one in each gap that follows, a test of each event that follows, and one
at the end of the pattern; all of them compare the clock of R with that of the last event of f.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from cer_gpu.automaton.normal_form import (
    Absent,
    Atom,
    Both,
    Either,
    NormalForm,
    Related,
    Repeat,
    Then,
    Trailing,
    absences,
)
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.one_event import may_be_one
from cer_gpu.ceql.traversal import children, fold, with_children
from cer_gpu.errors import QueryError
from cer_gpu.planning.pattern_spans import Spans


@dataclass(frozen=True)
class _Silence:
    """An absence behind a part of a pattern: compared with the last event of that, and the filter that does it."""

    absent: Absent
    near: s.Relation


_Spread = tuple[NormalForm, list[_Silence]]


class Silences:
    """Rewriting of the absences with FOR in the middle of one pattern.

    Parameters
    ----------
    spans
        Makes the filters that compare clocks.
    text
        The query, for messages.
    """

    def __init__(self, spans: Spans, text: str) -> None:
        self._spans, self._text = spans, text
        # by the place of FOR in the text, which copies share: hidden definitions of the event before, and of the absent
        self._sites: dict[s.Span, tuple[int, int]] = {}

    def spread(self, formula: NormalForm, length: s.Within | None) -> NormalForm:
        """Return a whole pattern whose absences with FOR all stand in gaps, or at its end.

        Parameters
        ----------
        formula
        length
            Longest FOR behind a part of the pattern, and behind the whole (`cer_gpu.planning.pattern_spans.lasts_for`).

        Raises
        ------
        QueryError
            When an event that follows could be the absent one, and only a filter within the absence tells.
        """
        body, ending = (formula.body, formula.absent) if isinstance(formula, Trailing) else (formula, ())
        pending: list[_Silence] = []
        if any(absent.length is not None for absent in absences(body)):
            body, pending = fold(body, self._spread, children)
        own: list[Absent] = []
        for absent in ending:
            if absent.length is None or absent.length == length:
                own.append(replace(absent, length=None))
            else:
                body, silence = self._behind(body, absent, absent.length)
                own.append(silence.absent)
        own += (silence.absent for silence in pending)
        return Trailing(body, tuple(own), length) if own else body

    def _spread(self, formula: NormalForm, below: list[_Spread]) -> _Spread:
        """Return a part of the pattern, and the absences that reach beyond it; no absence with FOR stands elsewhere."""
        match formula:
            case Then():
                (left, pending), (right, later) = below
                between: list[Absent] = []
                for absent in formula.absent:
                    if absent.length is None:
                        between.append(absent)
                    else:
                        left, silence = self._behind(left, absent, absent.length)
                        pending = [*pending, silence]
                right = reduce(self._silent, pending, right)
                gap = () if formula.contiguous else (*between, *(silence.absent for silence in pending))
                return replace(formula, left=left, right=right, absent=gap), [*pending, *later]
            case Related():
                return replace(formula, body=below[0][0]), below[0][1]
            case Either():
                # copies, for a disjunction of filters: the same absences reach beyond both
                (left, pending), (right, others) = below
                assert pending == others
                return Either(left, right), pending
        return formula, []

    def _behind(self, left: NormalForm, absent: Absent, length: s.Within) -> tuple[NormalForm, _Silence]:
        """Return what stands before an absence, which names its last event, and the absence."""
        event = Atom(absent.guard, frozenset(), absent.negated, absent.sites, absent.stream)
        sites = self._sites.setdefault(length.span, self._spans.two_sites())
        left, marked, near = self._spans.behind(left, event, length, sites)
        assert isinstance(marked, Atom)
        own = replace(absent, relations=(*absent.relations, near), sites=marked.sites, length=None)
        return left, _Silence(own, near)

    def _silent(self, formula: NormalForm, silence: _Silence) -> NormalForm:
        """Return a part that follows an absence: none of its events is the absent one, nor lies one in its gaps."""

        def without(part: NormalForm, below: list[NormalForm]) -> NormalForm:
            match part:
                case Atom():
                    return self._other(part, silence)
                case Both():
                    raise self._silence_error(silence, "ALL follows an absence FOR a time")
                case Then() | Repeat() if not part.contiguous:
                    part = replace(part, absent=(*part.absent, silence.absent))
            made: NormalForm = with_children(part, below)
            return made

        return fold(formula, without, children)

    def _other(self, atom: Atom, silence: _Silence) -> NormalForm:
        """Return an event that is not the absent one, or lies beyond its time."""
        absent = silence.absent
        if not may_be_one(((absent.guard, absent.negated), (atom.guard, atom.negated))):
            return atom
        negated = atom.negated or absent.negated
        if not negated and absent.guard.predicate is None and len(absent.relations) == 1:
            predicate = s.Not(silence.near.predicate, silence.near.span)
            (site,) = (site for role in silence.near.roles[:1] for site in role.sites)
            return Related(replace(atom, sites=atom.sites | {site}), replace(silence.near, predicate=predicate))
        raise self._silence_error(
            silence, "what follows an absence FOR a time could itself be the event that must be absent"
        )

    def _silence_error(self, silence: _Silence, message: str) -> QueryError:
        return QueryError(message, self._text, *silence.near.span, hint=_HINT)


_HINT = "let an event of another type follow, or leave the filter out of the absence; of the whole gap it is A ; !B ; C"
