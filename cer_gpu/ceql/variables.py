"""The variables that a formula defines, computed for all of its sub-formulas in one pass.

papers: CEL, 5.1 (``vdef`` and ``bound``); ours hold sets of events.
"""

from __future__ import annotations

from dataclasses import dataclass

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import fold


@dataclass(slots=True)
class Variables:
    """The variables of a formula, and how many events its valuations hold.

    Attributes
    ----------
    single, several : set of str
        The variables that hold at most one event, and those that can hold more: under ``+``, or defined more than once.
    always : set of str
        Those of both that every valuation binds.
    one_event : bool
        Whether every valuation holds at most one position.
    some_event : bool
        Whether every valuation holds an event (all but those of ``NOT(...)`` do).
    """

    single: set[str]
    several: set[str]
    always: set[str]
    one_event: bool
    some_event: bool

    def __contains__(self, name: object) -> bool:
        """Return whether the formula defines a variable."""
        return name in self.single or name in self.several

    def __len__(self) -> int:
        """Return how many variables the formula defines."""
        return len(self.single) + len(self.several)


def variables(formula: s.Formula) -> Variables:
    """Return the variables of a formula."""
    return fold(formula, combine, s.subformulas)


def defined_names(formula: s.Formula) -> list[str]:
    """Return the names of the variables that a formula defines, as they come in it, each once."""
    found: dict[str, None] = {}

    def define(formula: s.Formula, below: list[None]) -> None:
        match formula:
            case s.EventType():
                found[formula.event.name] = None
            case s.Assign():
                found[formula.variable.name] = None

    fold(formula, define, s.subformulas)
    return list(found)


def combine(formula: s.Formula, below: list[Variables]) -> Variables:
    """Return the variables of a formula from those of its sub-formulas, which are used up.

    The sets of the smaller side go into those of the larger: linear, but for a logarithm, in the whole formula.
    """
    match formula:
        case s.EventType():
            name = formula.event.name
            return Variables({name}, set(), {name}, one_event=True, some_event=True)
        case s.Negation():
            return Variables(set(), set(), set(), one_event=True, some_event=False)
        case s.Filtered():
            return below[0]
        case s.Assign():
            return _assigned(below[0], formula.variable.name)
        case s.Iteration():
            inner = below[0]
            inner.several |= inner.single
            inner.single = set()
            inner.one_event = False
            return inner
        case s.Sequence() | s.Disjunction():
            return _joined(below[0], below[1], either=isinstance(formula, s.Disjunction))


def _assigned(inner: Variables, name: str) -> Variables:
    if not inner.one_event:
        inner.single.discard(name)
        inner.several.add(name)
    elif name not in inner.several:
        inner.single.add(name)
    if inner.some_event:
        inner.always.add(name)
    return inner


def _joined(left: Variables, right: Variables, *, either: bool) -> Variables:
    large, small = (left, right) if len(left) >= len(right) else (right, left)
    several = small.several if either else small.several | (small.single & large.single)
    large.several |= several
    large.single -= several
    large.single |= small.single - large.several
    if either:
        always = left.always & right.always
    else:
        always, fewer = sorted((left.always, right.always), key=len, reverse=True)
        always |= fewer
    return Variables(
        large.single,
        large.several,
        always,
        one_event=either and left.one_event and right.one_event,
        some_event=(left.some_event and right.some_event) if either else (left.some_event or right.some_event),
    )
