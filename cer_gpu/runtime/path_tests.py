"""Places at which filters that read whole paths are tested, and what a step of a path tells of those still to come.

A path is found from its end backwards.  A filter is tested once no event still to come can be one that it reads; until
then the listing must tell apart paths that differ in an event which it may read (`cer_gpu.backend.joins.matching`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cer_gpu.automaton.atom_graph import Edge, PlacedRelation
from cer_gpu.backend.joins.whole_paths import N_WAY, WAY_LASTS, WAY_OPENS, WAY_PLAIN, WAY_RESETS
from cer_gpu.expressions.relation_terms import EACH, FIRST, LAST, PREV, Condition

if TYPE_CHECKING:
    from cer_gpu.runtime.join_plan import EdgePlan, JoinPlan

MAX_LASTS = 60
"""Most LAST of different variables that bits are for."""

ANY_EVENT = -1
"""In place of a variable: any event of the filtered formula."""


def choices_of(relation: PlacedRelation, condition: Condition) -> list[int]:
    """Return the variables of which one event is chosen, or ANY_EVENT; in an iteration, the first one tells it."""
    arguments = [(relation.variables.index(a.variable), a.event) for a in condition.arguments]
    variables = list(dict.fromkeys(variable for variable, event in arguments if event in (EACH, PREV)))
    local = [variable for variable in variables if relation.local[variable]]
    if local:
        return [local[0], *(variable for variable in variables if variable != local[0])]
    if not relation.repeats and any(relation.local[variable] for variable, _ in arguments):
        return variables  # where the path holds such an event, it holds one of the filtered formula
    return [ANY_EVENT, *variables]


class _Program:
    """A filter that reads whole paths, by the atoms whose events it reads."""

    def __init__(self, relation: PlacedRelation, condition: Condition) -> None:
        arguments = [(relation.variables.index(a.variable), a.event) for a in condition.arguments]
        choices = choices_of(relation, condition)
        self.is_local = all(relation.local[variable] for variable, _ in arguments)
        self.reads = frozenset[int]().union(*(relation.holds[variable] for variable, _ in arguments))
        if ANY_EVENT in choices:
            self.reads |= relation.body
        self.each = [relation.holds[variable] for variable in choices if variable != ANY_EVENT]
        if not any(relation.local[variable] for variable, _ in arguments):
            self.each.append(relation.body)
        self.firsts = [relation.holds[variable] for variable, event in arguments if event == FIRST]
        self.lasts = [relation.holds[variable] for variable, event in arguments if event == LAST]
        self.repeats = frozenset(relation.repeats)


class WholePathTests:
    """The fields `due` and `ways` of `cer_gpu.backend.joins.whole_paths.General`.

    Parameters
    ----------
    plan : JoinPlan
    """

    def __init__(self, plan: JoinPlan) -> None:
        self._plan, graph = plan, plan.graph
        self._programs = [_Program(graph.relations[r], plan.bound.conditions[r]) for r in plan.general]
        n_atoms = len(graph.atoms)
        self._before = [frozenset(a for a in range(n_atoms) if b in plan.reach[a]) for b in range(n_atoms)]
        self._repeats = frozenset(loop for relation in graph.relations for loop in relation.repeats)

    def due(self) -> npt.NDArray[np.bool_]:
        """Return the programs to test at each place, behind whether there are any; shape (places, 1 + programs)."""
        graph, before = self._plan.graph, self._before
        found, searched = list[list[bool]](), list[list[bool]]()
        for edge in graph.edges:
            source, target = before[edge.source], before[edge.target]
            decided = [program.reads.isdisjoint(source | {edge.source}) for program in self._programs]
            found.append(
                [program.reads.isdisjoint(source) and not d for program, d in zip(self._programs, decided, strict=True)]
            )
            searched.append(
                [
                    (d and not program.reads.isdisjoint(target))
                    or (program.is_local and not program.repeats.isdisjoint(edge.loops))
                    for program, d in zip(self._programs, decided, strict=True)
                ]
            )
        at_once = [[program.reads.isdisjoint(before[a]) for program in self._programs] for a in range(len(graph.atoms))]
        at_last = [[not decided for decided in row] for row in at_once]
        rows = [*found, *searched, *at_once, *at_last]
        return np.array([[any(row), *row] for row in rows], np.bool_)

    def ways(self) -> npt.NDArray[np.int64]:
        """Return what each edge tells, shape (edges, 4)."""
        bits: dict[frozenset[int], int] = {}
        ways = np.zeros((len(self._plan.edges), N_WAY), np.int64)
        for way, edge_plan in zip(ways, self._plan.edges, strict=True):
            edge = edge_plan.edge
            lasts = self._lasts_at(edge)
            numbers = [bits.setdefault(held, len(bits)) for held in lasts]
            resets = not self._repeats.isdisjoint(edge.loops)
            way[WAY_OPENS] = resets or self._opens(edge) or any(number >= MAX_LASTS for number in numbers)
            way[WAY_LASTS] = sum(1 << number for number in set(numbers) if number < MAX_LASTS)
            way[WAY_RESETS] = resets
            way[WAY_PLAIN] = self._is_plain(edge_plan)
        return ways

    def _open_programs(self, edge: Edge) -> list[_Program]:
        """Return the programs that may read events before the source of an edge."""
        return [program for program in self._programs if not program.reads.isdisjoint(self._before[edge.source])]

    def _lasts_at(self, edge: Edge) -> list[frozenset[int]]:
        programs = self._open_programs(edge)
        return [held for program in programs for held in program.lasts if edge.target in held]

    def _opens(self, edge: Edge) -> bool:
        """Return True if the event behind an edge matters for events before the one that the edge finds."""
        source, target, before = edge.source, edge.target, self._before[edge.source]
        for program in self._open_programs(edge):
            if any(target in held for held in program.each):
                return True
            if any(target in held and source not in held for held in program.firsts):
                return True
        for pair in {pair for pairs in self._plan.distant.values() for pair in pairs}:
            relation = self._plan.graph.relations[pair.relation]
            earlier, later = relation.holds[pair.earlier], relation.holds[pair.later]
            replaced = pair.nearest and source in later
            if target in later and not replaced and not before.isdisjoint(earlier):
                return True
        return False

    def _is_plain(self, edge_plan: EdgePlan) -> bool:
        """Return True if the event behind an edge has no part in what passes on the edge, or right before it."""
        edge = edge_plan.edge
        tested = edge_plan.guaranteed or edge_plan.tested or edge.contiguous or edge.absent
        return not tested and all(
            edge.source not in program.reads or not program.reads.isdisjoint(self._before[edge.source])
            for program in self._programs
        )
