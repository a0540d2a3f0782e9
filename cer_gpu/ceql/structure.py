"""Checks of the structure of a formula: empty valuations, absences, and the operands of ``->``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import fold, walk
from cer_gpu.ceql.variables import Variables, combine

Report = Callable[[str, s.Span, str], None]
"""Receiver of an error: its message, its place and a hint."""


def check_structure(query: s.QuerySyntax, report: Report) -> None:
    """Report where a formula may be empty as a whole, or where an absence or a ``->`` has no meaning."""
    _Structure(query, report).check()


class _Structure:
    def __init__(self, query: s.QuerySyntax, report: Report) -> None:
        self._query = query
        self._report = report
        self._empty: set[int] = set()  # ids of the formulas that may have the empty valuation

    def check(self) -> None:
        """Check the whole formula and its parts."""
        formula = self._query.formula
        fold(formula, self._note_empty, s.subformulas)
        if id(formula) in self._empty:
            self._report(
                "the pattern may be empty: it would ask for no event at all", formula.span, self._not_empty(formula)
            )
        self._ending(formula)
        for part in walk(formula):
            match part:
                case s.Sequence(next=True):
                    self._next(part.right, _is_step, "one event or an iteration of one")
                case s.Preceded():
                    self._preceding(part)
                case s.Sequence():
                    self._absences(part.absent, [part.left, part.right])
                    for absence in part.absent:
                        if absence.length is not None:
                            self._report(
                                "an absence FOR a time between two formulas may count from either",
                                absence.span,
                                _EITHER,
                            )
                case s.TrailingAbsence():
                    self._absences(part.absent, [part.formula])
                case s.Iteration(next=True):
                    self._next(part.formula, _is_event, "one event")
                    self._absences(part.until, [])
                case s.Iteration():
                    self._absences(part.until, [part.formula])

    def _note_empty(self, formula: s.Formula, below: list[Variables]) -> Variables:
        found = combine(formula, below)
        if found.empty:
            self._empty.add(id(formula))
        return found

    # ---- absences -----------------------------------------------------------------------------------------------

    def _ending(self, formula: s.Formula) -> None:
        """Refuse absences at the end of a part, or of a pattern without a window."""
        todo: list[tuple[s.Formula, s.Formula | None]] = [(formula, None)]
        while todo:
            part, around = todo.pop()
            if isinstance(part, s.TrailingAbsence):
                self._end(part, around)
            # AS and FILTER may stand around the absences at the end of a pattern
            outer = around if around is None and isinstance(part, s.Assign | s.Filtered) else part
            if isinstance(part, s.Assign | s.Filtered) and around is not None:
                outer = around
            todo += [(below, outer) for below in reversed(s.subformulas(part))]

    def _end(self, part: s.TrailingAbsence, around: s.Formula | None) -> None:
        span = (part.absent[0].span[0], part.absent[-1].span[1])
        query = self._query
        if around is not None:
            beside, hint = _beside(around)
            self._report(f"an absence at the end of {beside} has no end", span, hint)
        elif query.within is None:
            message = "an absence at the end of a pattern lasts until the window has passed, and there is no WITHIN"
            self._report(message, span, "add WITHIN, or let an event stand behind it: A ; !B ; C")
        elif query.consume != "NONE":
            self._report(
                f"CONSUME BY {query.consume} has no meaning with an absence at the end, whose matches are known late",
                query.consume_span,
                "leave CONSUME BY out, or let an event stand behind the absence: A ; !B ; C",
            )

    def _not_empty(self, formula: s.Formula) -> str:
        reluctant = isinstance(formula, s.Iteration) and isinstance(formula.formula, s.Iteration)
        return (f"{_RELUCTANT}; " if reluctant else "") + _NOT_EMPTY

    def _preceding(self, part: s.Preceded) -> None:
        for absence in part.absent:
            if absence.length is None:
                self._report(
                    "an absence at the beginning has nothing before it: it needs FOR",
                    absence.span,
                    "say how far back it reaches: !B FOR 5 MINUTES ; A, or let an event stand before it: A ; !B ; C",
                )
        self._absences(part.absent, [part.formula])

    def _absences(self, absences: tuple[s.Absence, ...], beside: Iterable[s.Formula]) -> None:
        if absences and any(id(formula) in self._empty for formula in beside):
            self._report("an absence stands beside a formula that may be empty", absences[0].span, _BESIDE_EMPTY)
        for absence in absences:
            self._relations(absence.filter)

    # ---- the next event -----------------------------------------------------------------------------------------

    def _next(self, formula: s.Formula, fits: Callable[[s.Formula], bool], expected: str) -> None:
        if not fits(formula):
            self._report(f"-> asks for the next of {expected}, and this is not", formula.span, _NEXT_OF_ONE)
            return
        for part in walk(formula):
            if isinstance(part, s.Filtered):
                self._relations(part.filter)

    def _relations(self, filter_: s.Filter | None) -> None:
        """Refuse filters of absent events that read the event before another one."""
        for relation in s.relations(filter_) if filter_ is not None else ():
            for attribute in s.attributes(relation.predicate):
                if attribute.variable is not None and attribute.event == "PREV":
                    name = attribute.variable.name
                    message = f"an absent event is compared with one event, and PREV({name}) is before another"
                    self._report(message, attribute.span, f"FIRST({name}) and LAST({name}) are one event each")


def _is_event(formula: s.Formula) -> bool:
    """Return True for one event: a type or NOT(...), with AS, FILTER and OR around."""
    match formula:
        case s.EventType() | s.Negation():
            return True
        case s.Assign() | s.Filtered():
            return _is_event(formula.formula)
        case s.Disjunction():
            return _is_event(formula.left) and _is_event(formula.right)
        case _:
            return False


def _is_step(formula: s.Formula) -> bool:
    """Return True for one event or an iteration of one; a filter between events stands inside of the iteration."""
    around: list[s.Filter] = []
    while isinstance(formula, s.Iteration | s.Assign | s.Filtered):
        if isinstance(formula, s.Filtered):
            around.append(formula.filter)
        if isinstance(formula, s.Iteration) and any(True for filter_ in around for _ in s.relations(filter_)):
            return False
        formula = formula.formula
    return _is_event(formula)


def _beside(around: s.Formula) -> tuple[str, str]:
    match around:
        case s.Sequence(contiguous=True):
            return "a side of ':'", "an absence stands between two ';': A ; !B ; C"
        case s.Sequence(next=True):
            return "a side of '->'", "an absence stands between two ';': A ; !B ; C"
        case s.Sequence() | s.TrailingAbsence():
            return "a part in parentheses", "write A ; !B ; C without parentheses around A ; !B"
        case s.Conjunction():
            return "a side of ALL", "an absence stands between two events, A ; !B ; C, or ends the whole pattern"
        case s.Disjunction():
            return "a branch of OR", "an absence stands between two events, A ; !B ; C, or ends the whole pattern"
        case _:
            return "an iteration", "an absence stands between two events, A ; !B ; C, or ends the whole pattern"


_RELUCTANT = "no quantifier is reluctant, as every match is found: write A+ for A+?"
_NOT_EMPTY = "let one part be there always: A+ for A*, or B ; A? for A?"
_EITHER = (
    "write (A ; !B FOR 5 MINUTES) ; C, counted from the end of A, or A ; (!B FOR 5 MINUTES ; C), counted back from C"
)
_BESIDE_EMPTY = "write the cases out: (A ; !B ; C) OR C for A? ; !B ; C"
_NEXT_OF_ONE = "A -> B, A -> (B AS b FILTER b.k = A.k), A -> B+; of a longer part name its first event: A -> B ; C"
