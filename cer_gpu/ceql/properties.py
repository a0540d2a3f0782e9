"""Whether a formula is well-formed, safe and bounded: what filters between variables need, shown by `explain`.

papers: CEL, section 5.1 (well-formed, safe); RMA, definition 3.2 (bounded).  A variable of the papers is one event.
Ours hold sets, so that ``f AS x`` binds x where f always is exactly one event; and a type is a variable where a filter
names it.  Filters on a single variable mean something everywhere, and need none of the three.
"""

from __future__ import annotations

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.checks import always_holds_an_event, at_most_one_event

Names = frozenset[str]
_NONE: Names = frozenset()


def against_properties(formula: s.Formula) -> dict[str, str | None]:
    """Return for "well-formed", "safe" and "bounded" why a formula is not; None: it is."""
    named = {item.variable.name for filter_ in s.filters(formula) for item in s.variable_filters(filter_)}
    search = _Search(frozenset(named))
    search.walk(formula, _NONE)
    well_formed, safe, bounded = search.against_well_formed, search.against_safe, search.against_bounded
    return {"well-formed": well_formed, "safe": safe, "bounded": well_formed or bounded}


class _Search:
    """Walks a formula and keeps the first reason against each property.

    `named` are the names that filters use: of types, only these count as variables.
    """

    def __init__(self, named: Names) -> None:
        self.named = named
        self.against_well_formed: str | None = None
        self.against_safe: str | None = None
        self.against_bounded: str | None = None

    def walk(self, formula: s.Formula, outside: Names) -> None:
        """Look at a formula; `outside` are the variables that formulas around it bind."""
        inside = outside | self.bound(formula)
        match formula:
            case s.EventType() | s.Negation():
                pass
            case s.Assign() | s.Iteration():
                self.walk(formula.formula, inside)
            case s.Filtered():
                self.filtered(formula, inside)
                self.walk(formula.formula, inside)
            case s.Disjunction():
                apart = self.defined(formula.left) ^ self.defined(formula.right)
                self.bounded_unless(apart, "is defined in one branch of OR only")
                self.walk(formula.left, inside)
                self.walk(formula.right, inside)
            case s.Sequence():
                twice = self.defined(formula.left, once=True) & self.defined(formula.right, once=True)
                if twice and self.against_safe is None:
                    self.against_safe = (
                        f"{_first(twice)} is defined on both sides of {':' if formula.contiguous else ';'}"
                    )
                both = self.mentioned(formula.left) & self.mentioned(formula.right)
                self.bounded_unless(both, f"is used on both sides of {':' if formula.contiguous else ';'}")
                self.walk(formula.left, inside)
                self.walk(formula.right, inside)

    def filtered(self, formula: s.Filtered, bound: Names) -> None:
        names = frozenset(item.variable.name for item in s.variable_filters(formula.filter))
        loose = names - bound
        if loose and self.against_well_formed is None:
            self.against_well_formed = f"a filter names {_first(loose)}, which need not be exactly one event there"
        self.bounded_unless(names - self.bound(formula.formula), "is not bound inside the formula that is filtered")

    def bounded_unless(self, names: Names, reason: str) -> None:
        if names and self.against_bounded is None:
            self.against_bounded = f"{_first(names)} {reason}"

    def bound(self, formula: s.Formula) -> Names:
        """Return the variables that are exactly one event in every valuation (CEL, 5.1: ``bound``)."""
        match formula:
            case s.EventType():
                return frozenset({formula.event.name})
            case s.Negation() | s.Iteration():
                return _NONE
            case s.Assign():
                inner = self.bound(formula.formula)
                single = always_holds_an_event(formula.formula) and at_most_one_event(formula.formula)
                return inner | {formula.variable.name} if single else inner
            case s.Filtered():
                return self.bound(formula.formula)
            case s.Disjunction():
                return self.bound(formula.left) & self.bound(formula.right)
            case s.Sequence():
                return self.bound(formula.left) | self.bound(formula.right)

    def defined(self, formula: s.Formula, *, once: bool = False) -> Names:
        """Return the variables that a formula defines (CEL, 5.1: ``vdef``); `once`: outside of every ``+``."""
        match formula:
            case s.EventType():
                return frozenset({formula.event.name}) & self.named
            case s.Negation():
                return _NONE
            case s.Assign():
                return self.defined(formula.formula, once=once) | {formula.variable.name}
            case s.Iteration() if once:
                return _NONE
            case s.Filtered() | s.Iteration():
                return self.defined(formula.formula, once=once)
            case s.Disjunction() | s.Sequence():
                return self.defined(formula.left, once=once) | self.defined(formula.right, once=once)

    def mentioned(self, formula: s.Formula) -> Names:
        """Return the variables that a formula defines or filters (``var``)."""
        used = {item.variable.name for filter_ in s.filters(formula) for item in s.variable_filters(filter_)}
        return self.defined(formula) | used


def _first(names: Names) -> str:
    return repr(min(names))
