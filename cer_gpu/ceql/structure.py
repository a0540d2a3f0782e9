"""Checks of the structure of a formula: empty matches, absences, operands of ``->``, and chains for RECENT."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import fold, walk
from cer_gpu.ceql.variables import Variables, combine

Report = Callable[[str, s.Span, str], None]
"""Receiver of an error: its message, its span and a hint."""


def check_structure(query: s.QuerySyntax, report: Report) -> None:
    """Report where a formula may be empty as a whole, or where an absence or a ``->`` has no meaning."""
    _Structure(query, report).check()


class _Structure:
    def __init__(self, query: s.QuerySyntax, report: Report) -> None:
        self._query = query
        self._report = report
        self._empty: set[int] = set()  # ids of the formulas that may have the empty match

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
                case s.Preceded():
                    self._preceding(part)
                case s.Sequence():
                    if part.next:
                        self._next(part.right, _is_step, "one event or an iteration of one")
                    self._check_absences(part.absent, [part.left, part.right])
                    for absence in part.absent:
                        if absence.length is not None:
                            self._report(
                                "an absence FOR a time between two formulas may count from either",
                                absence.span,
                                _EITHER,
                            )
                case s.TrailingAbsence():
                    self._check_absences(part.absent, [part.formula])
                case s.Iteration():
                    if part.next:
                        self._next(part.formula, is_event, "one event")
                    self._until(part)

    def _note_empty(self, formula: s.Formula, below: list[Variables]) -> Variables:
        variables = combine(formula, below)
        if variables.empty:
            self._empty.add(id(formula))
        return variables

    # ---- absences -----------------------------------------------------------------------------------------------

    def _ending(self, formula: s.Formula) -> None:
        """Refuse absences at the end of a part that no ``;`` or ``->`` follows, or of a pattern without a window."""
        todo: list[tuple[s.Formula, _Context]] = [(formula, _END)]
        steps = {id(part) for part in _unconditional_parts(formula)}
        lasting: list[s.Absence] = []  # with FOR, in the middle of the pattern
        while todo:
            part, context = todo.pop()
            if isinstance(part, s.TrailingAbsence):
                if context == _NEXT and id(part) in steps:
                    lasting += (absence for absence in part.absent if absence.length is not None)
                elif context in (_NEXT, _AGAIN) and any(absence.length is not None for absence in part.absent):
                    span = (part.absent[0].span[0], part.absent[-1].span[1])
                    self._report("an absence FOR a time behind a part that may be missing or come again", span, _ONCE)
                    continue
                self._end(part, context)
            match part:
                case s.Sequence(contiguous=False):
                    left = ("an absence stands beside a formula that may be empty", _BESIDE_EMPTY)
                    todo += [(part.right, context), (part.left, left if id(part.right) in self._empty else _NEXT)]
                case s.Iteration(contiguous=False, next=False) if context in (_NEXT, _AGAIN):
                    todo.append((part.formula, context if part.n_max == 1 else _AGAIN))
                case s.Disjunction() if context == _NEXT:
                    todo += [(part.right, context), (part.left, context)]
                case s.Assign() | s.Filtered() | s.TrailingAbsence() | s.Preceded():
                    todo.append((part.formula, context))
                case _:
                    todo += [(below, _no_end(part)) for below in reversed(s.subformulas(part))]
        self._last(formula, lasting)

    def _last(self, formula: s.Formula, lasting: list[s.Absence]) -> None:
        """Refuse absences with FOR that do not go with others, or with the clauses; `lasting` are in the middle."""
        ending: list[s.Absence] = []
        while isinstance(formula, s.Assign | s.Filtered | s.TrailingAbsence):
            ending += formula.absent if isinstance(formula, s.TrailingAbsence) else ()
            formula = formula.formula
        lengths = [absence.length for absence in (*lasting, *ending)]
        clocks = {None if length is None else (length.kind, length.attribute) for length in lengths}
        if len(clocks) > 1:
            message = "absences of this pattern last by different clocks, or for a time and until the window has passed"
            self._report(message, (lasting or ending)[0].span, _ONE_CLOCK)
        elif lasting:
            self._consumes()

    def _end(self, part: s.TrailingAbsence, context: _Context) -> None:
        span = (part.absent[0].span[0], part.absent[-1].span[1])
        query = self._query
        lengths = dict.fromkeys(absence.length for absence in part.absent)
        if isinstance(context, tuple):
            self._report(context[0], span, context[1])
        elif context == _AGAIN and any(
            isinstance(node, s.Relation) for absence in part.absent for node in walk(absence)
        ):
            message = "an absence at the end of an iteration is that of its own event alone"
            self._report(message, span, "let its filter name no other event, or write the iteration out")
        elif context == _END and query.within is None and None in lengths:
            message = "an absence at the end of a pattern lasts until the window has passed, and there is no WITHIN"
            self._report(message, span, _ADD_WITHIN)
        elif context == _END:
            self._consumes()

    def _consumes(self) -> None:
        """Refuse CONSUME BY with an absence that is decided late."""
        consume = self._query.consume
        if consume != "NONE":
            self._report(
                f"CONSUME BY {consume} has no meaning with an absence at the end, whose matches are known late",
                self._query.consume_span,
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
            relation = None if absence.filter is None else next(s.relations(absence.filter), None)
            if relation is not None:
                self._report(
                    "an absence counted back is that of its own event alone, and this filter names another",
                    relation.span,
                    "events of one value of an attribute are those of one group: PARTITION BY [user]",
                )
        self._check_absences(part.absent, [part.formula])
        for first in _firsts(part.formula):
            if isinstance(first, s.Negation | s.Conjunction):
                what = "NOT(...)" if isinstance(first, s.Negation) else "ALL"
                self._report(
                    f"an absence counted back needs one event that begins what follows, and {what} has none",
                    part.absent[0].span,
                    f"let an event stand between: !B FOR 5 MINUTES ; A ; {'NOT(C)' if what != 'ALL' else '(C ALL D)'}",
                )

    def _until(self, part: s.Iteration) -> None:
        if not part.until:
            return
        if part.contiguous:
            self._report(
                "UNTIL has no meaning with ':', as nothing lies between neighbours", part.until[0].span, _LATER
            )
        elif part.n_max is not None and part.n_max < 2:
            self._report("UNTIL has no meaning where nothing is repeated", part.until[0].span, _GAPS)
        else:
            self._check_absences(part.until, [part.formula])

    def _check_absences(self, absences: tuple[s.Absence, ...], beside: Iterable[s.Formula]) -> None:
        if absences and any(id(formula) in self._empty for formula in beside):
            self._report("an absence stands beside a formula that may be empty", absences[0].span, _BESIDE_EMPTY)
        for absence in absences:
            self._relations(absence.filter)

    # ---- the next event -----------------------------------------------------------------------------------------

    def _next(self, formula: s.Formula, is_valid: Callable[[s.Formula], bool], expected: str) -> None:
        if not is_valid(formula):
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


def _unconditional_parts(formula: s.Formula) -> Iterator[s.Formula]:
    """Yield the parts of a formula that every match holds once, one after another."""
    todo = [formula]
    while todo:
        part = todo.pop()
        yield part
        match part:
            case s.Sequence():
                todo += [part.right, part.left]
            case s.Assign() | s.Filtered() | s.TrailingAbsence() | s.Preceded():
                todo.append(part.formula)


def is_event(formula: s.Formula) -> bool:
    """Return True for one event: a type or NOT(...), with AS, FILTER and OR around."""
    match formula:
        case s.EventType() | s.Negation():
            return True
        case s.Assign() | s.Filtered():
            return is_event(formula.formula)
        case s.Disjunction():
            return is_event(formula.left) and is_event(formula.right)
        case _:
            return False


def _firsts(formula: s.Formula) -> Iterator[s.Formula]:
    """Yield the parts of a formula that may begin it: event types, NOT(...) and ALL."""
    todo = [formula]
    while todo:
        part = todo.pop()
        match part:
            case s.EventType() | s.Negation() | s.Conjunction():
                yield part
            case s.Sequence():
                may_lack = fold(part.left, combine, s.subformulas).empty
                todo += [part.right, part.left] if may_lack else [part.left]
            case _:
                todo += reversed(s.subformulas(part))


def _is_step(formula: s.Formula) -> bool:
    """Return True for one event or an iteration of one; a join predicate is inside the iteration."""
    around: list[s.Filter] = []
    while isinstance(formula, s.Iteration | s.Assign | s.Filtered):
        if isinstance(formula, s.Filtered):
            around.append(formula.filter)
        if isinstance(formula, s.Iteration) and any(True for filter_ in around for _ in s.relations(filter_)):
            return False
        formula = formula.formula
    return is_event(formula)


def _no_end(around: s.Formula) -> tuple[str, str]:
    """Return why nothing ends an absence at the end of a part of a formula, and a hint."""
    match around:
        case s.Sequence():
            beside, hint = "a side of ':'", "an absence stands between two ';': A ; !B ; C"
        case s.Windowed():
            beside, hint = (
                "a local window",
                "let WITHIN stand at the end: A ; !B WITHIN 5 MINUTES, or (A WITHIN ...) ; !B",
            )
        case s.Conjunction():
            beside, hint = "a side of ALL", _BETWEEN
        case s.Disjunction():
            beside, hint = "a branch of OR", _BETWEEN
        case _:
            beside, hint = "an iteration", _BETWEEN
    return f"an absence at the end of {beside} has no end", hint


_Context = str | tuple[str, str]
"""Context after a part of a formula: one of the following, or why no absence may end it, and a hint."""
_END, _NEXT, _AGAIN = "the end of the pattern", "a formula, behind ';'", "the part again, behind ';', and a formula"
_BETWEEN = "an absence stands between two events, A ; !B ; C, or ends the whole pattern"
_RELUCTANT = "no quantifier is reluctant, as every match is found: write A+ for A+?"
_NOT_EMPTY = "let one part be there always: A+ for A*, or B ; A? for A?"
_EITHER = "counted from the end of A: (A ; !B FOR 5 MINUTES) ; C; back from C: A ; (!B FOR 5 MINUTES ; C)"
_ADD_WITHIN = "add WITHIN, or FOR: A ; !B FOR 5 MINUTES; or let an event stand behind it: A ; !B ; C"
_ONCE = "write the cases out; of the gap up to what follows it is A ; !B ; C"
_ONE_CLOCK = "let all of them have a FOR of one kind, or write a query for each of them"
_LATER = "repetitions joined by ; have others between them: A+ UNTIL (B), A{2,4} UNTIL (B), A ->+ UNTIL (B)"
_GAPS = "UNTIL tells what lies in no gap between two repetitions: A+ UNTIL (B), A{2,4} UNTIL (B)"
_BESIDE_EMPTY = "write the cases out: (A ; !B ; C) OR C for A? ; !B ; C"
_NEXT_OF_ONE = "A -> B, A -> (B AS b FILTER b.k = A.k), A -> B+; of a longer part name its first event: A -> B ; C"


# ---- SELECT RECENT, which is for chains of steps ---------------------------------------------------------------

_CHAINS = "RECENT is for chains of steps"
_OTHER = "SELECT ALL, NEXT or LAST take it"


def check_recent(query: s.QuerySyntax, report: Report) -> None:
    """Report the parts of a query that have no meaning with SELECT RECENT."""
    for part in walk(query.formula):
        match part:
            case s.Conjunction():
                report(f"{_CHAINS}, and the sides of ALL come in any order", part.span, f"write A ; B; {_OTHER}")
            case s.Disjunction() if not is_event(part):
                report(f"{_CHAINS}, and OR stands between longer parts", part.span, _ONE_EACH)
            case s.Sequence() if any(absence.length is not None for absence in part.absent):
                report(f"{_CHAINS}, between which an absence lasts without FOR", part.absent[0].span, _STEP_BEHIND)
    length = query.within or query.each_step
    if length is not None and query.chooses_first:
        report(
            "THEN WITHIN has no meaning with RECENT, which tests the window when a partial match moves on",
            length.span,
            "write WITHIN without THEN",
        )


_ONE_EACH = "OR between single events is one step: A ; (B OR C); else write one query for each alternative"
_STEP_BEHIND = "let a step stand behind it: A ; !B ; C"
