"""The arrays of a `JoinPlan` for the loops, and the places at which filters that read whole paths are tested.

A path is found from its end backwards.  A filter is tested once no event still to come can be one that it reads; until
then the listing must tell apart paths that differ in an event which it may read (`cer_gpu.backend.joins.matching`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Array, Int32, Int64
from cer_gpu.automaton import encoding as codes
from cer_gpu.automaton.atom_graph import Edge, PlacedRelation
from cer_gpu.backend.joins.whole_paths import (
    BARRING_EVENT,
    EACH_EVENT,
    EVENT_BEFORE,
    FIRST_EVENT,
    LAST_EVENT,
    N_BARRING,
    N_PROGRAM,
    N_WAY,
    WAY_LASTS,
    WAY_OPENS,
    WAY_PLAIN,
    WAY_RESETS,
)
from cer_gpu.expressions.bands import Band
from cer_gpu.expressions.relation_terms import EACH, FIRST, LAST, PREV, Argument, Condition
from cer_gpu.expressions.terms import COMPARISONS
from cer_gpu.runtime.join_plan import BY_ZONES, NEXT_TO, JoinPlan, Pair

if TYPE_CHECKING:
    from cer_gpu.runtime.join_plan import EdgePlan, JoinPlan

MAX_LASTS = 60
"""Most LAST of different variables that bits are for."""

ANY_EVENT = -1
"""In place of a variable: any event of the filtered formula."""


def choices_of(relation: PlacedRelation, condition: Condition) -> list[int]:
    """Return the variables of which one event is chosen, or ANY_EVENT; in an iteration, the first one identifies it."""
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
    """The fields `scheduled` and `ways` of `cer_gpu.backend.joins.whole_paths.General`.

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

    def scheduled(self) -> npt.NDArray[np.bool_]:
        """Return the programs to test at each place, after a flag that there are any; shape (places, 1 + programs)."""
        graph, before = self._plan.graph, self._before
        at_edges, searched = list[list[bool]](), list[list[bool]]()
        for edge in graph.edges:
            source, target = before[edge.source], before[edge.target]
            decided = [program.reads.isdisjoint(source | {edge.source}) for program in self._programs]
            at_edges.append(
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
        rows = [*at_edges, *searched, *at_once, *at_last]
        return np.array([[any(row), *row] for row in rows], np.bool_)

    def ways(self) -> npt.NDArray[np.int64]:
        """Return the columns WAY_OPENS to WAY_PLAIN of each edge, shape (edges, 4)."""
        bits: dict[frozenset[int], int] = {}
        ways = np.zeros((len(self._plan.edges), N_WAY), np.int64)
        for way, edge_plan in zip(ways, self._plan.edges, strict=True):
            edge = edge_plan.edge
            lasts = self._lasts_at(edge)
            numbers = [bits.setdefault(atoms, len(bits)) for atoms in lasts]
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
        return [atoms for program in programs for atoms in program.lasts if edge.target in atoms]

    def _opens(self, edge: Edge) -> bool:
        """Return True if the event after an edge matters for events before the one that the edge finds."""
        source, target, before = edge.source, edge.target, self._before[edge.source]
        for program in self._open_programs(edge):
            if any(target in atoms for atoms in program.each):
                return True
            if any(target in atoms and source not in atoms for atoms in program.firsts):
                return True
        for pair in {pair for pairs in self._plan.distant.values() for pair in pairs}:
            relation = self._plan.graph.relations[pair.relation]
            earlier, later = relation.holds[pair.earlier], relation.holds[pair.later]
            replaced = pair.nearest and source in later
            if target in later and not replaced and not before.isdisjoint(earlier):
                return True
        return False

    def _is_plain(self, edge_plan: EdgePlan) -> bool:
        """Return True if the event after an edge has no part in what passes on the edge, or right before it."""
        edge = edge_plan.edge
        tested = edge_plan.guaranteed or edge_plan.tested or edge.contiguous or edge.absent
        return not tested and all(
            edge.source not in program.reads or not program.reads.isdisjoint(self._before[edge.source])
            for program in self._programs
        )


_EVENTS = {EACH: EACH_EVENT, PREV: EVENT_BEFORE, FIRST: FIRST_EVENT, LAST: LAST_EVENT}

_WIDEST = 1 << 40
"""Widest cells of integers that are looked ahead for: there are as many as slots of a table, or more."""

_COLUMN = codes.CONDITION.names.index("column")  # type: ignore[union-attr]


class JoinTables:
    """The tables of a `JoinPlan`, as arrays.

    Attributes
    ----------
    plan : JoinPlan
    graph : dict of arrays
        Fields of `cer_gpu.backend.joins.instances.Graph` besides those that grow with the symbols.
    conditions, code
        Fields of `cer_gpu.backend.joins.filters.Filters`.
    general : dict of arrays
        Fields of `cer_gpu.backend.joins.whole_paths.General`.
    n_zones, n_indexes, n_incoming, n_ended, n_columns : int
    """

    def __init__(self, plan: JoinPlan) -> None:
        self.plan = plan
        self._sets: dict[frozenset[int], int] = {frozenset(): 0}
        self._conditions: dict[tuple[Pair, int], int] = {}
        self._rows: list[list[int]] = []
        self.code: list[tuple[int, int, int]] = []
        self._lines: dict[int, tuple[int, int]] = {}
        self._zones: list[list[int]] = [[] for _ in plan.graph.atoms]
        self._indexes: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        self.n_columns: int = 1 + len(plan.bound.columns)
        self._watched: list[list[int]] = []
        self.n_ended: int = 0
        self.general: dict[str, Any] = self._general()
        self.graph: dict[str, Any] = self._graph()
        self.conditions: Array = records_of(self._rows, codes.CONDITION)

    @property
    def n_indexes(self) -> int:
        """Number of hash indexes."""
        return len(self._indexes)

    # ---- conditions ---------------------------------------------------------------------------------------

    def _condition(self, pair: Pair, source: int, *, zoned: bool = False) -> int:
        """Return the number of the condition of a pair, whose earlier event is of an atom."""
        zone = codes.NO_ZONE
        oriented = self.plan.oriented(pair)
        if zoned and oriented is not None:
            zones = self._zones[source]
            column = 1 + oriented.left_column
            if column not in zones:
                zones.append(column)
            zone = zones.index(column)
        key = (pair, zone)
        if key in self._conditions:
            return self._conditions[key]
        if oriented is not None:
            kind = codes.COMPARE_RANKED if oriented.ranked else codes.COMPARE
            columns = [COMPARISONS.index(oriented.op), 1 + oriented.left_column, 1 + oriented.right_column]
            row = [kind, *columns, 0, 0, 0, pair.relation, zone]
        else:
            condition = self.plan.bound.conditions[pair.relation]
            first = condition.arguments[0]
            variables = self.plan.graph.relations[pair.relation].variables
            forwards = first.event == PREV if pair.nearest else first.variable == variables[pair.earlier]
            row = [codes.PROGRAM, 0, 0, 0, int(not forwards), *self._program(pair.relation), pair.relation, zone]
        self._rows.append(row)
        self._conditions[key] = len(self._rows) - 1
        return len(self._rows) - 1

    def _equal_cells(self, band: Band) -> int:
        """Return the number of the condition that the cells of a band are equal, for the hash index."""
        columns = [1 + self.plan.columns[cell] for cell in (band.earlier, band.later)]
        self._rows.append([codes.COMPARE, codes.EQUAL, *columns, 0, 0, 0, 0, codes.NO_ZONE])
        return len(self._rows) - 1

    def _program(self, relation: int) -> tuple[int, int]:
        """Return the lines of the program of a relation; a comparison becomes one, too."""
        if relation not in self._lines:
            begin = len(self.code)
            self.code += self.plan.bound.conditions[relation].instructions
            self._lines[relation] = begin, len(self.code)
        return self._lines[relation]

    def _set(self, atoms: frozenset[int]) -> int:
        return self._sets.setdefault(atoms, len(self._sets))

    # ---- tables -------------------------------------------------------------------------------------------

    def _graph(self) -> dict[str, Any]:
        plan, graph = self.plan, self.plan.graph
        atoms, n_atoms = graph.atoms, len(graph.atoms)
        edges, conditions_of_edges = list[list[int]](), list[int]()
        loops = {each: i for i, each in enumerate(dict.fromkeys(edge.loops for edge in graph.edges if edge.loops))}
        loops[()] = -1
        for edge_plan in (*plan.edges, *plan.far):
            edge = edge_plan.edge
            first = len(conditions_of_edges)
            guaranteed = [self._condition(pair, edge.source) for pair in edge_plan.guaranteed]
            guaranteed += [self._equal_cells(band) for band in edge_plan.bands]
            zoned = edge_plan.index == BY_ZONES
            tested = [
                self._condition(pair, edge.source, zoned=zoned and plan.is_zoned(pair)) for pair in edge_plan.tested
            ]
            conditions_of_edges += guaranteed + tested
            index = codes.NO_INDEX
            if edge_plan.hashed or (plan.partitioned and edge_plan.index == NEXT_TO):
                columns = tuple(self._rows[c][_COLUMN] for c in guaranteed)
                steps = (*(0 for _ in edge_plan.guaranteed), *(band.step for band in edge_plan.bands))
                index = self._indexes.setdefault((edge.source, columns, steps), len(self._indexes))
            test = first + len(guaranteed)
            last = len(conditions_of_edges)
            row = [edge.source, edge.target, edge.contiguous, loops[edge.loops], index, first, test, last, int(zoned)]
            edges.append([*row, *self._absences(edge), len(edge_plan.bands), self._through(edge)])
        # the conditions of an edge are adjacent: one that several edges share is copied
        order = [self._rows[c] for c in conditions_of_edges]
        self._rows, self._conditions = order, {}
        own = [[self._condition(pair, q) for pair in plan.own.get(q, ())] for q in range(n_atoms)]
        distant = [self._distant(q) for q in range(n_atoms)]
        aheads = [self._aheads(q) for q in range(n_atoms)]
        onward = [self._onward(q) for q in range(n_atoms)]
        flags = [
            (codes.INITIAL_ATOM if atom.initial else 0)
            | (codes.FINAL_ATOM if atom.final else 0)
            | (codes.STACKED_ATOM if any(edge.source == q for edge in graph.edges) or q in self._searched else 0)
            | (codes.BARRING_ATOM if atom.bars else 0)
            | (0 if any(edge.target == q for edge in graph.edges) or plan.distant.get(q) else codes.LEAF_ATOM)
            for q, atom in enumerate(atoms)
        ]
        targets = np.array([edge.target for edge in graph.edges])
        far_targets = np.array([each.edge.target for each in plan.far])
        self.n_zones: int = max(map(len, self._zones), default=0)
        self.n_incoming: int = max([int((targets == q).sum()) for q in range(n_atoms)], default=0)
        sets = np.zeros((len(self._sets), n_atoms), np.bool_)
        for members, number in self._sets.items():
            sets[number, sorted(members)] = True
        self.general["sets"] = sets
        return {
            "flags": np.array(flags, np.int32),
            "incoming": np.searchsorted(targets, np.arange(n_atoms + 1)).astype(np.int32),
            "far": (len(targets) + np.searchsorted(far_targets, np.arange(n_atoms + 1))).astype(np.int32),
            "edges": records_of(edges, codes.EDGE),
            "watched": table_of(self._watched, 2),
            "tests": offsets_of(own),
            "own_tests": np.array(list(chain.from_iterable(own)), np.int32),
            "distants": offsets_of(distant),
            "distant": table_of(list(chain.from_iterable(distant)), 3),
            "aheads": offsets_of(aheads),
            "lookahead": table_of(list(chain.from_iterable(aheads)), 3),
            "sets": sets,
            "levels": table_of([[r.level(atom) for atom in atoms] for r in graph.relations], n_atoms),
            "loop_levels": table_of(
                [[r.loop_level(each) for each in loops] for r in graph.relations],
                len(loops),
            ),
            "zones": padded(self._zones),
            "index_atoms": np.array([atom for atom, _, _ in self._indexes], np.int32),
            "index_columns": padded([columns for _, columns, _ in self._indexes]),
            "index_steps": steps_of([steps for _, _, steps in self._indexes]),
            "index_shifts": np.array([np.count_nonzero(steps) for _, _, steps in self._indexes], np.int32),
            "index_bits": np.array(
                [int(steps[-1]).bit_length() - 1 if steps else 0 for _, _, steps in self._indexes], np.int32
            ),
            "onward": offsets_of(onward),
            "onward_edges": np.array(list(chain.from_iterable(onward)), np.int32),
        }

    def _onward(self, atom: int) -> list[int]:
        """Return the edges from an atom, if some event must follow its own, and each edge has a hash index."""
        numbered = enumerate(self.plan.edges)
        edges = [(n, each) for n, each in numbered if each.edge.source == atom and not each.edge.bars]
        always = not self.plan.graph.atoms[atom].final and not self.plan.graph.atoms[atom].bars
        indexed = all(each.hashed and all(band.step <= _WIDEST for band in each.bands) for _, each in edges)
        return [n for n, _ in edges] if always and indexed else []

    def _through(self, edge: Edge) -> int:
        """Return the only edge into the source of an edge, if it comes from where the target's first far edge does."""
        far = next((each.edge for each in self.plan.far if each.edge.target == edge.target), None)
        into = [n for n, each in enumerate(self.plan.graph.edges) if each.target == edge.source]
        if far is None or len(into) != 1 or self.plan.graph.atoms[edge.source].initial or edge == far:
            return codes.NO_EDGE
        only = self.plan.graph.edges[into[0]]
        return into[0] if only.source == far.source and not only.contiguous else codes.NO_EDGE

    def _distant(self, atom: int) -> list[list[int]]:
        rows = []
        for pair in self.plan.distant.get(atom, ()):
            later = self.plan.graph.relations[pair.relation].holds[pair.later]
            rows.append([self._condition(pair, atom), self._set(later), int(pair.nearest)])
        return rows

    def _aheads(self, atom: int) -> list[list[int]]:
        """Return the filters of the events that every path from an atom back to a start has to pass."""
        rows = []
        for earlier in self.plan.unavoidable(atom):
            for pair in self.plan.distant.get(earlier, ()):
                relation = self.plan.graph.relations[pair.relation]
                if not pair.nearest and not relation.level(self.plan.graph.atoms[earlier]):
                    rows.append([earlier, self._condition(pair, earlier), self._set(relation.holds[pair.later])])
        return rows

    def _general(self) -> dict[str, Any]:
        programs, choices, arguments = [], list[int](), list[list[int]]()
        tests = WholePathTests(self.plan)
        for number in self.plan.general:
            relation = self.plan.graph.relations[number]
            condition = self.plan.bound.conditions[number]
            first_choice, first_argument = len(choices), len(arguments)
            picked = choices_of(relation, condition)
            choices += [self._set(relation.body if v == ANY_EVENT else relation.holds[v]) for v in picked]
            for argument in condition.arguments:
                variable = relation.variables.index(argument.variable)
                if argument.event in (EACH, PREV):
                    arguments.append([picked.index(variable), _EVENTS[argument.event]])
                else:
                    arguments.append([self._set(relation.holds[variable]), _EVENTS[argument.event]])
            begin, end = self._program(number)
            programs.append(
                [number, first_choice, len(choices), first_argument, len(arguments), begin, end, bool(relation.repeats)]
            )
        gaps, barring = self._gaps(choices, arguments)
        return {
            "programs": table_of(programs, N_PROGRAM),
            "scheduled": tests.scheduled(),
            "ways": tests.ways(),
            "choices": np.array(choices, np.int32),
            "arguments": table_of(arguments, 2),
            "gaps": table_of(gaps, 4),
            "barring": table_of(barring, N_BARRING),
        }

    # ---- absences -----------------------------------------------------------------------------------------

    def _gaps(self, choices: list[int], arguments: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the rows of `General.gaps` and `General.barring`; add the choices and arguments of the latter."""
        gaps, barring = list[list[int]](), list[list[int]]()
        self._gaps_of: dict[Edge, tuple[int, int]] = {}
        self._searched: set[int] = set()
        graph = self.plan.graph
        for edge in graph.edges:
            first = len(gaps)
            for number in edge.absent:
                if (number, edge.source) in self.plan.watched:
                    continue
                absence = graph.absences[number]
                self._searched.add(absence.atom)
                begin = len(barring)
                for relation in absence.relations:
                    first_choice, first_argument = len(choices), len(arguments)
                    chosen = self._chosen(relation)
                    placed = graph.relations[relation]
                    choices += [self._set(placed.holds[placed.variables.index(name)]) for name in chosen]
                    arguments += [self._argument_of_absence(relation, a, chosen) for a in self._arguments(relation)]
                    lines = self._program(relation)
                    barring.append([relation, first_argument, len(arguments), *lines, first_choice, len(choices)])
                begins = self._set(absence.begins) if absence.begins else codes.NO_SET
                gaps.append([absence.atom, begins, begin, len(barring)])
            self._gaps_of[edge] = first, len(gaps)
        self._gaps_of |= {each.edge: (len(gaps), len(gaps)) for each in self.plan.far}
        return gaps, barring

    def _arguments(self, relation: int) -> Sequence[Argument]:
        return self.plan.bound.conditions[relation].arguments

    def _chosen(self, relation: int) -> list[str]:
        """Return the variables of an absence's filter of which each event is tested; none if all hold one event."""
        if not self.plan.chooses(relation):
            return []
        placed = self.plan.graph.relations[relation]
        each = dict.fromkeys(a.variable for a in self._arguments(relation) if a.event == EACH)
        return [name for name in each if not placed.local[placed.variables.index(name)]]

    def _argument_of_absence(self, number: int, argument: Argument, chosen: Sequence[str]) -> list[int]:
        """Return the row of an argument of an absence's filter; choices come after the event before the gap."""
        relation = self.plan.graph.relations[number]
        variable = relation.variables.index(argument.variable)
        if relation.local[variable]:
            return [0, BARRING_EVENT]
        if argument.event == EACH and argument.variable in chosen:
            return [1 + chosen.index(argument.variable), EACH_EVENT]
        event = FIRST_EVENT if argument.event == FIRST else LAST_EVENT
        return [self._set(relation.holds[variable]), event]

    def _absences(self, edge: Edge) -> list[int]:
        """Return the fields `watched` to `ended` of an edge."""
        first = len(self._watched)
        for number in edge.absent:
            if (number, edge.source) in self.plan.watched:
                unconditional = not self.plan.graph.absences[number].relations
                self._watched.append([self._ended(number, edge.source), int(unconditional)])
        ended = codes.NO_COLUMN
        if edge.bars:
            for number, absence in enumerate(self.plan.graph.absences):
                if absence.atom == edge.target and (number, edge.source) in self.plan.watched:
                    ended = self._ended(number, edge.source)
        return [first, len(self._watched), *self._gaps_of[edge], ended]

    def _ended(self, absence: int, source: int) -> int:
        """Return the column of `Instances.ended` for an absence after an atom."""
        columns = sorted(number for number, atom in self.plan.watched if atom == source)
        self.n_ended = max(self.n_ended, len(columns))
        return columns.index(absence)


def table_of(rows: list[Any], width: int) -> Int32:
    """Return rows of codes as an array."""
    return np.array(rows, np.int32).reshape(len(rows), width)


def records_of(rows: Sequence[Sequence[int]], dtype: np.dtype[Any]) -> Array:
    """Return rows of codes as an array of records."""
    return np.array([tuple(row) for row in rows], dtype)


def padded(rows: Sequence[Sequence[int]], filler: int = -1) -> Int32:
    """Return rows of unlike lengths as an array, each filled up to the longest."""
    width = max(map(len, rows), default=0)
    return table_of([[*row] + [filler] * (width - len(row)) for row in rows], width)


def steps_of(rows: Sequence[Sequence[int]]) -> Int64:
    """Return what is added to the columns of each index for each place of an instance (`Graph.index_steps`)."""
    n_bands = [sum(map(bool, row)) for row in rows]
    steps = np.zeros((len(rows), 1 << max(n_bands, default=0), max(map(len, rows), default=0)), np.int64)
    for index, row in enumerate(rows):
        first = len(row) - n_bands[index]  # those of a grid come last
        for place, band in product(range(1 << n_bands[index]), range(n_bands[index])):
            steps[index, place, first + band] = row[first + band] * (place >> band & 1)
    return steps


def offsets_of(lists: list[list[Any]]) -> Int32:
    """Return the index of the first element of each list in all, and the number of all."""
    return np.cumsum([0, *map(len, lists)]).astype(np.int32)
