"""Variables that a formula defines, computed for all of its sub-formulas in one pass.

papers: CEL, 5.1 (``vdef`` and ``bound``); ours hold sets of events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import fold, mapped, walk


@dataclass(slots=True)
class Variables:
    """Variables of a formula, and bounds on the number of events in its matches.

    Attributes
    ----------
    single, several : set of str
        Variables that hold at most one event, and those that can hold more: under ``+``, or defined more than once.
    always : set of str
        Variables (of both sets) that every match binds.
    one_event : bool
        True if every match holds at most one position.
    some_event : bool
        True if every match holds an event (``NOT(...)`` and the empty match hold none).
    empty : bool
        True if the formula may have the empty match, of ``?``, ``*`` and ``{0,m}``.
    """

    single: set[str]
    several: set[str]
    always: set[str]
    one_event: bool
    some_event: bool
    empty: bool = False

    def __contains__(self, name: object) -> bool:
        """Return True if the formula defines a variable."""
        return name in self.single or name in self.several

    def __len__(self) -> int:
        """Return the number of variables that the formula defines."""
        return len(self.single) + len(self.several)


def of_event(node: Any) -> Any:
    """Return an expression or predicate over one event, without the variable before its attributes."""
    return mapped(node, s.Attribute, lambda attribute: replace(attribute, variable=None, event="EACH"))


def variables(formula: s.Formula) -> Variables:
    """Compute the variables of a formula."""
    return fold(formula, combine, s.subformulas)


def defined_names(formula: s.Formula) -> list[str]:
    """Return the names of the variables that a formula defines, in the order of the text, each once."""
    names: dict[str, None] = {}

    def define(formula: s.Formula, below: list[None]) -> None:
        match formula:
            case s.EventType(defines=True):
                names[formula.event.name] = None
            case s.Assign():
                names[formula.variable.name] = None

    fold(formula, define, s.subformulas)
    return list(names)


def column_names(formula: s.Formula) -> list[str]:
    """Return the variables of ``SELECT *``, in the order of the text: those of AS, and types that have no other name.

    A type is left out where each of its events is directly under an AS, perhaps filtered: that variable holds just
    this event.
    """
    bare: set[str] = set()

    def own(formula: s.Formula, below: list[str | None]) -> str | None:
        """Return the type whose events alone a formula without AS holds."""
        match formula:
            case s.EventType(defines=True):
                return formula.event.name
            case s.Filtered() | s.Windowed() | s.Preceded():
                return below[0]
            case s.Assign():
                return None
            case _:
                bare.update(name for name in below if name is not None)
                return None

    last = fold(formula, own, s.subformulas)
    bare.update([] if last is None else [last])
    assigned = {node.variable.name for node in walk(formula) if isinstance(node, s.Assign)}
    return [name for name in defined_names(formula) if name in bare or name in assigned]


def combine(formula: s.Formula, below: list[Variables]) -> Variables:
    """Compute the variables of a formula from those of its sub-formulas, which it consumes.

    Smaller sets are merged into larger ones: O(n log n) in the whole formula.
    """
    match formula:
        case s.EventType():
            names = {formula.event.name} if formula.defines else set[str]()
            return Variables(names, set(), set(names), one_event=True, some_event=True)
        case s.Negation():
            return Variables(set(), set(), set(), one_event=True, some_event=False)
        case s.Filtered() | s.TrailingAbsence() | s.Preceded() | s.Windowed():
            return below[0]
        case s.Assign():
            return _assigned(below[0], formula.variable.name)
        case s.Iteration():
            return _repeated(below[0], formula)
        case s.Sequence() | s.Conjunction() | s.Disjunction():
            return _join_variables(below[0], below[1], either=isinstance(formula, s.Disjunction))


def _assigned(inner: Variables, name: str) -> Variables:
    if not inner.one_event:
        inner.single.discard(name)
        inner.several.add(name)
    elif name not in inner.several:
        inner.single.add(name)
    if inner.some_event:
        inner.always.add(name)
    return inner


def _repeated(inner: Variables, formula: s.Iteration) -> Variables:
    if formula.n_max != 1:
        inner.several |= inner.single
        inner.single = set()
        inner.one_event = False
    if formula.n_min == 0:
        inner.always = set()
        inner.some_event = False
        inner.empty = True
    return inner


def _join_variables(left: Variables, right: Variables, *, either: bool) -> Variables:
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
        empty=(left.empty or right.empty) if either else (left.empty and right.empty),
    )
