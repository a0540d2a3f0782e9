"""Well-formed, safe and bounded formulas: properties of filters between variables, shown by `explain`.

papers: CEL, section 5.1 (well-formed, safe); RMA, definition 3.2 (bounded).  A variable of the papers holds one event.
Ours hold sets: ``f AS x`` binds x if f always holds exactly one event, and a type is a variable if a filter names it.
The papers have no ALL; here it is treated as a sequence: a variable on both sides would hold two events.
Filters on a single variable have a meaning everywhere, and need none of the three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import fold

Names = set[str]


def why_not_properties(formula: s.Formula) -> dict[str, str | None]:
    """Return, for "well-formed", "safe" and "bounded", the reason why a formula is not, or None if it is."""
    search = _Search(formula)
    well_formed, safe, bounded = search.why_not_well_formed, search.why_not_safe, search.why_not_bounded
    return {"well-formed": well_formed, "safe": safe, "bounded": well_formed or bounded}


@dataclass(slots=True)
class _Scope:
    """Variables of a formula.

    Attributes
    ----------
    bound
        Variables that hold exactly one event in every match (CEL, 5.1: ``bound``).
    defined, once
        Variables that the formula defines (CEL, 5.1: ``vdef``), and those that it defines outside of every ``+``.
    mentioned
        Variables that the formula defines or filters (``var``).
    one_event, some_event
        True if every match holds at most one position; at least one.
    """

    bound: Names
    defined: Names
    once: Names
    mentioned: Names
    one_event: bool
    some_event: bool


class _Search:
    """Search for the first reason against each property, from the whole formula to its parts, from left to right.

    The pass up makes scopes and consumes those below; it stores, by the id of a formula, the facts that the pass down
    needs.  Only types that a filter names count as variables.
    """

    def __init__(self, formula: s.Formula) -> None:
        self.why_not_well_formed: str | None = None
        self.why_not_safe: str | None = None
        self.why_not_bounded: str | None = None
        self._named = _filtered_names(formula)
        self._newly_bound: dict[int, Names] = {}  # bound by a formula, but not by the enclosing one
        self._unsafe: dict[int, str] = {}
        self._unbounded: dict[int, str] = {}
        self._inside: Counter[str] = Counter()  # in the pass down: number of enclosing formulas that bind a variable
        self._newly_bound[id(formula)] = fold(formula, self._scope, s.subformulas).bound
        fold(formula, self._leave_formula, self._enter_formula)

    # ---- down ---------------------------------------------------------------------------------------------------

    def _enter_formula(self, formula: s.Formula) -> list[s.Formula]:
        self._inside.update(self._newly_bound.get(id(formula), ()))
        if self.why_not_safe is None:
            self.why_not_safe = self._unsafe.get(id(formula))
        if self.why_not_bounded is None:
            self.why_not_bounded = self._unbounded.get(id(formula))
            if isinstance(formula, s.Disjunction) and self.why_not_bounded == _APART:
                apart = self._defined(formula.left) ^ self._defined(formula.right)
                self.why_not_bounded = f"{_least_name(apart)} {_APART}"
        if self.why_not_well_formed is None:
            used = _filtered_names(formula.filter) if isinstance(formula, s.Filtered) else _names_in_absences(formula)
            loose = [name for name in used if not self._inside[name]]
            if loose:
                self.why_not_well_formed = (
                    f"a filter names {_least_name(loose)}, which need not be exactly one event there"
                )
        return s.subformulas(formula)

    def _leave_formula(self, formula: s.Formula, below: list[None]) -> None:
        self._inside.subtract(self._newly_bound.get(id(formula), ()))

    def _defined(self, formula: s.Formula) -> Names:
        return fold(formula, self._scope, s.subformulas).defined

    # ---- up -----------------------------------------------------------------------------------------------------

    def _scope(self, formula: s.Formula, below: list[_Scope]) -> _Scope:
        match formula:
            case s.EventType():
                name = {formula.event.name} if formula.defines else set[str]()
                defined = name & self._named
                return _Scope(name, defined, set(defined), set(defined), one_event=True, some_event=True)
            case s.Negation():
                used = set() if formula.filter is None else _filtered_names(formula.filter)
                return _Scope(set(), set(), set(), used, one_event=True, some_event=False)
            case s.Assign():
                inner = below[0]
                names = [inner.defined, inner.once, inner.mentioned]
                for variables in [*names, inner.bound] if inner.one_event and inner.some_event else names:
                    variables.add(formula.variable.name)
                return inner
            case s.Filtered():
                inner = below[0]
                used = _filtered_names(formula.filter)
                self._note_unbounded(formula, used - inner.bound, "is not bound inside the formula that is filtered")
                inner.mentioned |= used
                return inner
            case s.Windowed():
                return below[0]
            case s.Preceded():
                used = _names_in_absences(formula)
                self._note_unbounded(formula, used, "is not bound inside the formula that is filtered")
                below[0].mentioned |= used
                return below[0]
            case s.Iteration():
                inner = below[0]
                self._note_absences(formula, inner)
                self._newly_bound[id(formula.formula)] = inner.bound
                inner.bound = set()
                if formula.n_max != 1:
                    inner.once, inner.one_event = set(), False
                inner.some_event &= formula.n_min > 0
                return inner
            case s.TrailingAbsence():
                self._note_absences(formula, below[0])
                return below[0]
            case s.Sequence():
                self._note_absences(formula, below[0])
                return self._both(formula, *below)
            case s.Conjunction():
                return self._both(formula, *below)
            case s.Disjunction():
                return self._disjunction(formula, *below)

    def _both(self, formula: s.Sequence | s.Conjunction, left: _Scope, right: _Scope) -> _Scope:
        sign = "ALL"
        if isinstance(formula, s.Sequence):
            sign = ":" if formula.contiguous else "->" if formula.next else ";"
        twice = left.once & right.once
        if twice:
            self._unsafe[id(formula)] = f"{_least_name(twice)} is defined on both sides of {sign}"
        self._note_unbounded(formula, left.mentioned & right.mentioned, f"is used on both sides of {sign}")
        some_event = left.some_event or right.some_event
        return _join_scopes(left, right, _union(left.bound, right.bound), one_event=False, some_event=some_event)

    def _disjunction(self, formula: s.Disjunction, left: _Scope, right: _Scope) -> _Scope:
        if left.defined != right.defined:
            self._unbounded[id(formula)] = _APART  # named only for the first reason: variables may be many
        bound = left.bound & right.bound
        self._newly_bound[id(formula.left)] = left.bound - bound
        self._newly_bound[id(formula.right)] = right.bound - bound
        one_event, some_event = left.one_event and right.one_event, left.some_event and right.some_event
        return _join_scopes(left, right, bound, one_event=one_event, some_event=some_event)

    def _note_absences(self, formula: s.Formula, left: _Scope) -> None:
        """Treat the filters of absences as filters of the formula before them."""
        used = _names_in_absences(formula)
        self._note_unbounded(formula, used - left.bound, "is not bound inside the formula that is filtered")
        left.mentioned |= used

    def _note_unbounded(self, formula: s.Formula, names: Names, reason: str) -> None:
        if names:
            self._unbounded[id(formula)] = f"{_least_name(names)} {reason}"


_APART = "is defined in one branch of OR only"


def _join_scopes(left: _Scope, right: _Scope, bound: Names, *, one_event: bool, some_event: bool) -> _Scope:
    defined, once = _union(left.defined, right.defined), _union(left.once, right.once)
    return _Scope(bound, defined, once, _union(left.mentioned, right.mentioned), one_event, some_event)


def _union(left: Names, right: Names) -> Names:
    """Add the smaller of two sets to the larger, and return the larger."""
    large, small = (left, right) if len(left) >= len(right) else (right, left)
    large |= small
    return large


def _filtered_names(node: s.Formula | s.Filter) -> Names:
    """Return the variables that a filter, or the filters of a formula, name."""
    related = {role.variable.name for relation in s.relations(node) for role in relation.roles}
    return related | {item.variable.name for item in s.variable_filters(node)}


def _names_in_absences(formula: s.Formula) -> Names:
    """Return the variables that the filters of absences between its operands name, but for that of the absent event."""
    used: Names = set()
    for absence in s.absences_of(formula):
        own = {name.name for name in absence.names}
        used |= (_filtered_names(absence.filter) if absence.filter is not None else set()) - own
    return used


def _least_name(names: Iterable[str]) -> str:
    return repr(min(names))
