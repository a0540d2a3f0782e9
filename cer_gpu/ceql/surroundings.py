"""Surroundings of a filter: the names that it sees, and the reason why it does not see another."""

from __future__ import annotations

from functools import cached_property

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import walk
from cer_gpu.ceql.variables import defined_names

Place = s.Filtered | s.Negation | s.Absence
"""A formula, or a part of one, with a filter."""


class Surroundings:
    """The formulas around each part of a formula, found when the first error asks for them."""

    def __init__(self, formula: s.Formula) -> None:
        self._formula = formula

    @cached_property
    def _around(self) -> dict[int, s.Formula]:
        """The formula around each sub-formula, by the id of that."""
        formulas = (node for node in walk(self._formula) if isinstance(node, s.Formula))
        around: dict[int, s.Formula] = {}
        for formula in formulas:
            around |= {id(below): formula for below in s.subformulas(formula)}
            around |= {id(absence): formula for absence in s.absences_of(formula)}
        return around

    def names(self, place: Place) -> list[str]:
        """Return the names of the variables that a filter sees, in the order of the text, each once."""
        if isinstance(place, s.Filtered):
            names = [defined_names(place)]
        else:
            names = [[name.name for name in place.names]]
            if isinstance(place, s.Negation):
                return names[0]
        below: s.Formula | s.Absence = place
        while id(below) in self._around:
            around = self._around[id(below)]
            if isinstance(around, s.TrailingAbsence | s.Iteration) and below is not around.formula:
                names.append(defined_names(around.formula))
            if isinstance(around, s.Sequence) and below is not around.left:
                names.append(defined_names(around.left))
            below = around
        return list(dict.fromkeys(name for level in reversed(names) for name in level))

    def why_not(self, name: str, place: Place) -> tuple[str, str]:
        """Return the reason why a filter does not see a variable that the formula defines, and a hint."""
        if isinstance(place, s.Negation):
            own = " or ".join(self.names(place))
            return (
                "and within NOT(...) a filter reads the one event that it stands for",
                f"the filter in NOT(...) names {own} alone",
            )
        below: s.Formula | s.Absence = place
        branch = False
        while id(below) in self._around:
            around = self._around[id(below)]
            match around:
                case s.Assign() if around.variable.name == name:
                    return "which the AS around it defines", f"let the FILTER stand behind AS {name}"
                case s.Sequence() if isinstance(below, s.Absence) and name in defined_names(around.right):
                    return (
                        "which stands after the absence",
                        f"an absence is compared with what stands before it; it ends where {name} begins",
                    )
                case s.Sequence() if around.left is below and name in defined_names(around.right):
                    return (
                        "which stands after the filtered formula",
                        f"let the FILTER stand behind {name}: it sees what it filters, and what stands before that",
                    )
                case s.Conjunction() if name in defined_names(around.right if around.left is below else around.left):
                    return (
                        "which stands on the other side of ALL",
                        "let the FILTER stand behind the whole conjunction: (A ALL B) FILTER ...",
                    )
                case s.Preceded() if below is not around.formula:
                    return (
                        "which stands after the absence",
                        "an absence counted back reads its own event alone; for one user, say, PARTITION BY [user]",
                    )
                case s.Disjunction():
                    other = around.right if around.left is below else around.left
                    branch |= name in defined_names(other)
            below = around
        assert branch
        return (
            "which another branch of OR defines",
            "let the FILTER stand behind the whole OR; it holds where a variable is empty",
        )
