"""Checks of SELECT RECENT, which is for chains of steps."""

from __future__ import annotations

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.structure import Report, is_event
from cer_gpu.ceql.traversal import walk

_CHAINS = "RECENT is for chains of steps by ';'"
_OTHER = "SELECT ALL, NEXT or LAST take it"


def check_recent(query: s.QuerySyntax, report: Report) -> None:
    """Report the parts of a query that SELECT RECENT has no meaning for."""
    for part in walk(query.formula):
        match part:
            case s.Iteration() if part.contiguous or part.next:
                sign = ":" if part.contiguous else "->"
                report(f"{_CHAINS}, and '{sign}' joins these", part.span, f"write A{{3}} for three events; {_OTHER}")
            case s.Iteration() if part.least != part.most:
                message = f"{_CHAINS}, and the number of events of this part is not fixed"
                report(message, part.span, f"write A{{3}} for three events; {_OTHER}")
            case s.Sequence() if part.contiguous or part.next:
                sign = ":" if part.contiguous else "->"
                report(f"{_CHAINS}, and '{sign}' joins these", part.span, f"write A ; B; {_OTHER}")
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
