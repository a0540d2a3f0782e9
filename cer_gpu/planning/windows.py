"""Windows of a plan: that of the query, and those that windows within its pattern imply."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from cer_gpu.automaton.normal_form import NormalForm
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import walk
from cer_gpu.planning.spans import most_events
from cer_gpu.planning.trailing import lasting

_SLACK = 1 + Fraction(1, 2**40)
"""Factor of a sum of lengths of a column, for the rounding of its floats; each length is tested exactly besides."""


def hoisted(syntax: s.QuerySyntax) -> s.QuerySyntax:
    """Return a query in which WITHIN stands for a local window around the whole pattern.

    AS and FILTER may stand around it, and an absence with FOR behind it.
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
    """Return the window outside of which nothing matters, given the query and the normal form of its pattern.

    Without WITHIN it is what gaps at each step allow; it reaches to the end of an absence with FOR.  None: there is
    none.
    """
    within, step = syntax.within, syntax.each_step
    most = None if step is None else most_events(formula)
    if within is None and step is not None and most is not None:
        within = _longer(step, (most - 1) * step.length)
    length = lasts_for(syntax.formula)
    if length is None:
        return within
    spanned = within if within is not None and same_clock(within, length) else None
    total = lasting(formula, length, spanned)
    return total if total.length == length.length else _longer(total, total.length)


def _longer(within: s.Within, length: Fraction) -> s.Within:
    return replace(within, length=length * _SLACK if within.kind == "attribute" else length)


def lasts_for(formula: s.Formula) -> s.Within | None:
    """Return the longest FOR of absences behind a pattern or a part of it; None: there is none.

    Those of one pattern have one clock.
    """
    parts = (part for part in walk(formula) if isinstance(part, s.TrailingAbsence))
    lengths = [absence.length for part in parts for absence in part.absent if absence.length is not None]
    return max(lengths, key=lambda length: length.length, default=None)
