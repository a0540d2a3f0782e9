"""Tables of filters between events for the loops: where each is tested, and which index finds what passes.

A filter of two events is tested on the edge between their atoms where they are neighbours in a path (`EdgePlan`), and
against all later events of the path where they are not (`distant`); all others are tested on whole paths (`general`).
An edge with equalities has a hash index, one with bands (differences bounded from both sides) a grid: a hash index of
cells, besides the equal values.  One with other inequalities has zone maps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, product
from typing import Any

import numpy as np

from cer_gpu.arrays import Array, Int32, Int64
from cer_gpu.automaton import encoding as codes
from cer_gpu.automaton.atom_graph import AtomGraph, Edge
from cer_gpu.backend.joins.whole_paths import (
    BARRING_EVENT,
    EACH_EVENT,
    EVENT_BEFORE,
    FIRST_EVENT,
    LAST_EVENT,
    N_PROGRAM,
)
from cer_gpu.expressions.bands import Band, Difference, bands
from cer_gpu.expressions.relation_terms import EACH, FIRST, LAST, PREV, Argument, Comparison
from cer_gpu.expressions.relations import BoundRelations
from cer_gpu.expressions.side_columns import MAX_COLUMNS, GridCell
from cer_gpu.expressions.terms import COMPARISONS, MIRRORED
from cer_gpu.runtime.path_tests import ANY_EVENT, WholePathTests, choices_of

_EVENTS = {EACH: EACH_EVENT, PREV: EVENT_BEFORE, FIRST: FIRST_EVENT, LAST: LAST_EVENT}
_ZONED = ("=", "<", "<=", ">", ">=")

ALL_TESTED, BY_HASH, BY_ZONES, NEXT_TO, NO_FILTER = "tested one by one", "hash", "zone maps", "the one before", "all"
BY_GRID, BY_HASH_AND_GRID = "grid", "hash and grid"
_DIMENSIONS = 2
"""Most bands that a grid serves: an instance has two places for each."""

_COLUMN = codes.CONDITION.names.index("column")  # type: ignore[union-attr]


@dataclass(frozen=True)
class Pair:
    """A filter on two events: variable indices of the earlier and the later one; `nearest`: the one just before it."""

    relation: int
    earlier: int
    later: int
    nearest: bool = False


@dataclass(frozen=True)
class EdgePlan:
    """Way to find the instances before one along an edge.

    Attributes
    ----------
    edge : Edge
    index : str
        `BY_HASH`, `BY_GRID`, `BY_HASH_AND_GRID`, `BY_ZONES`, `ALL_TESTED`, `NEXT_TO` (contiguous) or `NO_FILTER`.
    guaranteed, tested : tuple of Pair
        Filters that the index guarantees, and those to be tested.
    bands : tuple of Band
        Dimensions of the grid.
    proposed : tuple of Pair
        Filters of which the bands are.
    """

    edge: Edge
    index: str
    guaranteed: tuple[Pair, ...]
    tested: tuple[Pair, ...]
    bands: tuple[Band, ...] = ()
    proposed: tuple[Pair, ...] = ()

    @property
    def hashed(self) -> bool:
        """True if the index is a hash index."""
        return self.index in (BY_HASH, BY_GRID, BY_HASH_AND_GRID)


@dataclass
class JoinPlan:
    """Place of each filter between events of a query.

    Parameters
    ----------
    graph : AtomGraph
    bound : BoundRelations
    partitioned : bool
        True if there are partitions; events of others are kept apart by hash.

    Attributes
    ----------
    edges : list of EdgePlan
    general : list of int
        Relations that are tested on whole paths.
    distant : dict from atom to list of Pair
    own : dict from atom to list of Pair
        Filters whose two variables hold one and the same event.
    watched : set of (int, int)
        Absences and the atoms before their gaps for which the event before the gap tells by itself what bars.
    reach : list of frozenset of int
        The atoms to which one or more edges lead from each atom.
    columns : dict from GridCell to int
        Columns of the cells of grids, which come after those of `bound` until the plan is made, and then are in it.
    """

    graph: AtomGraph
    bound: BoundRelations
    partitioned: bool
    edges: list[EdgePlan] = field(default_factory=list)
    general: list[int] = field(default_factory=list)
    distant: dict[int, list[Pair]] = field(default_factory=dict)
    own: dict[int, list[Pair]] = field(default_factory=dict)
    watched: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Place the filters."""
        graph = self.graph
        self._oriented: dict[Pair, Comparison | None] = {}
        self.columns: dict[GridCell, int] = {}
        self._after = [sorted(set(graph.after(atom))) for atom in range(len(graph.atoms))]
        self.reach = [self._reachable(atom) for atom in range(len(graph.atoms))]
        pairs = [pair for r in range(graph.n_tested) for pair in self._pairs(r)]
        barring = self._barring()
        self.edges = [self._edge(edge, barring if edge.bars else pairs) for edge in graph.edges]
        self.bound = replace(self.bound, columns=(*self.bound.columns, *self.columns))
        for pair in pairs:
            relation = graph.relations[pair.relation]
            earlier, later = relation.holds[pair.earlier], relation.holds[pair.later]
            if not pair.nearest and relation.local[pair.earlier]:
                for atom in sorted(earlier & later):
                    self.own.setdefault(atom, []).append(pair)
            for atom in sorted(earlier):
                # atoms of the later event that may follow, but not at once
                inner = [b for b in self._after[atom] if not (pair.nearest and b in later)]
                if any(self.reach[b] & later for b in inner):
                    self.distant.setdefault(atom, []).append(pair)

    def _barring(self) -> list[Pair]:
        """Return the filters of absences that read one event before the gap alone, and note where they suffice."""
        graph, found = self.graph, list[Pair]()
        for number, absence in enumerate(graph.absences):
            sources = {edge.source for edge in graph.edges if number in edge.absent and not absence.begins}
            for relation in absence.relations:
                pairs = list(self._pairs(relation, barring=True))
                sources &= graph.relations[relation].holds[pairs[0].earlier] if pairs else frozenset()
                found += pairs
            self.watched |= {(number, source) for source in sources}
        return found

    def _reachable(self, atom: int) -> frozenset[int]:
        """Return the atoms to which one or more edges lead from an atom."""
        found: set[int] = set()
        todo = list(self._after[atom])
        while todo:
            each = todo.pop()
            if each not in found:
                found.add(each)
                todo += self._after[each]
        return frozenset(found)

    def unavoidable(self, atom: int) -> list[int]:
        """Return the atoms that every path from an atom back to a start passes, with a repeated atom on the way."""
        atoms = self.graph.atoms
        if self.partitioned or atoms[atom].initial:
            return []
        repeated = {a for a in range(len(atoms)) if a in self.reach[a] and (a == atom or atom in self.reach[a])}
        if not repeated:
            return []
        passed = self._passed[atom]
        others = (other for other in range(len(atoms)) if passed >> other & 1 and atom in self.reach[other])
        return [other for other in others if other != atom and not repeated.isdisjoint(self.reach[other])]

    @cached_property
    def _passed(self) -> list[int]:
        """For each atom the atoms that every path from a start to it passes before, as bits; all if there is none."""
        atoms = self.graph.atoms
        passed = [0 if atom.initial else -1 for atom in atoms]
        todo = [i for i, atom in enumerate(atoms) if atom.initial]
        while todo:
            atom = todo.pop()
            seen = passed[atom] | 1 << atom
            for target in self._after[atom]:
                if passed[target] & ~seen:
                    passed[target] &= seen
                    todo.append(target)
        return passed

    def _pairs(self, number: int, *, barring: bool = False) -> Iterator[Pair]:
        """Yield the ways to test a relation on two events.

        For none, note that it is tested on whole paths, unless it is one of an absence (`barring`).
        """
        relation, arguments = self.graph.relations[number], self.bound.conditions[number].arguments
        events = {(relation.variables.index(a.variable), a.event) for a in arguments}
        variables = {variable for variable, _ in events}
        kinds = {event for _, event in events}
        if len(variables) == 1 and kinds <= {EACH, PREV} and PREV in kinds:
            variable = variables.pop()
            if relation.local[variable]:
                yield Pair(number, variable, variable, nearest=True)
                return
        elif len(variables) == 2 and len(relation.variables) == 2 and kinds == {EACH}:
            one, other = sorted(variables)
            if relation.local[one] or relation.local[other]:
                if relation.local[other]:
                    yield Pair(number, one, other)
                if relation.local[one]:
                    yield Pair(number, other, one)
                return
        if not barring:
            self.general.append(number)

    def _edge(self, edge: Edge, pairs: list[Pair]) -> EdgePlan:
        graph, source = self.graph, self.graph.atoms[edge.source]
        on_edge = []
        for pair in pairs:
            relation = graph.relations[pair.relation]
            held = edge.source in relation.holds[pair.earlier] and edge.target in relation.holds[pair.later]
            if held and (relation.loop_level(edge.loops) >= relation.level(source)):
                on_edge.append(pair)
        if edge.contiguous:
            return EdgePlan(edge, NEXT_TO, (), tuple(on_edge))
        by_column: dict[int, Pair] = {}
        for pair in on_edge:
            oriented = self.oriented(pair)
            if oriented is not None and oriented.op == "=":
                by_column.setdefault(oriented.left_column, pair)
        keys = [by_column[column] for column in sorted(by_column)]
        keyed = bool(keys) or self.partitioned
        rest = tuple(pair for pair in on_edge if pair not in keys)
        dimensions, proposed = self._bands(rest, 1 if keyed else _DIMENSIONS)
        if dimensions:
            return EdgePlan(edge, BY_HASH_AND_GRID if keyed else BY_GRID, tuple(keys), rest, dimensions, proposed)
        if keyed:
            return EdgePlan(edge, BY_HASH, tuple(keys), rest)
        zoned = [pair for pair in on_edge if self.is_zoned(pair)]
        others = [pair for pair in on_edge if pair not in zoned]
        index = BY_ZONES if zoned else ALL_TESTED if others else NO_FILTER
        return EdgePlan(edge, index, (), (*zoned, *others))

    def _bands(self, pairs: Sequence[Pair], most: int) -> tuple[tuple[Band, ...], tuple[Pair, ...]]:
        """Return at most so many bands among some filters, and the filters of which they are."""
        of_pairs = {pair: list(self._differences(pair)) for pair in pairs}
        found = tuple(bands(chain.from_iterable(of_pairs.values()))[:most])
        cells = [cell for band in found for cell in (band.earlier, band.later) if cell not in self.columns]
        first = len(self.bound.columns) + len(self.columns)
        if first + len(cells) > MAX_COLUMNS:
            return (), ()
        self.columns |= {cell: first + n for n, cell in enumerate(dict.fromkeys(cells))}
        terms = {(band.later.term, band.earlier.term) for band in found}
        proposed = [pair for pair, each in of_pairs.items() if any((d.value, d.other) in terms for d in each)]
        return found, tuple(proposed)

    def _differences(self, pair: Pair) -> Iterator[Difference]:
        """Yield the differences of the later and the earlier event of a pair that its filter bounds."""
        variables = self.graph.relations[pair.relation].variables
        for each in self.bound.differences[pair.relation]:
            forwards = each.event.event != PREV if pair.nearest else each.event.variable == variables[pair.later]
            yield each if forwards else each.mirrored()

    def oriented(self, pair: Pair) -> Comparison | None:
        """Return the comparison of a pair with the earlier event at the left; None: it is a program."""
        if pair not in self._oriented:
            self._oriented[pair] = self._comparison(pair)
        return self._oriented[pair]

    def _comparison(self, pair: Pair) -> Comparison | None:
        condition = self.bound.conditions[pair.relation]
        if not isinstance(condition, Comparison):
            return None
        variables = self.graph.relations[pair.relation].variables
        one = condition.left
        forwards = one.event == PREV if pair.nearest else one.variable == variables[pair.earlier]
        if forwards:
            return condition
        return Comparison(
            MIRRORED[condition.op],
            condition.right,
            condition.right_column,
            condition.left,
            condition.left_column,
            condition.ranked,
        )

    def is_zoned(self, pair: Pair) -> bool:
        """Return True if zone maps serve a pair."""
        oriented = self.oriented(pair)
        return oriented is not None and oriented.op in _ZONED and not oriented.ranked


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
        self.n_columns = 1 + len(plan.bound.columns)
        self._watched: list[list[int]] = []
        self.n_ended = 0
        self.general = self._general()
        self.graph = self._graph()
        self.conditions = records_of(self._rows, codes.CONDITION)

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
        for edge_plan in plan.edges:
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
            edges.append([*row, *self._absences(edge), len(edge_plan.bands)])
        # the conditions of an edge stand in a row: one that several edges share is copied
        order = [self._rows[c] for c in conditions_of_edges]
        self._rows, self._conditions = order, {}
        own = [[self._condition(pair, q) for pair in plan.own.get(q, ())] for q in range(n_atoms)]
        distant = [self._distant(q) for q in range(n_atoms)]
        aheads = [self._aheads(q) for q in range(n_atoms)]
        flags = [
            (codes.INITIAL_ATOM if atom.initial else 0)
            | (codes.FINAL_ATOM if atom.final else 0)
            | (codes.STACKED_ATOM if any(edge.source == q for edge in graph.edges) or q in self._searched else 0)
            | (codes.BARRING_ATOM if atom.bars else 0)
            | (0 if any(edge.target == q for edge in graph.edges) or plan.distant.get(q) else codes.LEAF_ATOM)
            for q, atom in enumerate(atoms)
        ]
        targets = np.array([edge.target for edge in graph.edges])
        self.n_zones = max(map(len, self._zones), default=0)
        self.n_incoming = max([int((targets == q).sum()) for q in range(n_atoms)], default=0)
        sets = np.zeros((len(self._sets), n_atoms), np.bool_)
        for held, number in self._sets.items():
            sets[number, sorted(held)] = True
        self.general["sets"] = sets
        return {
            "flags": np.array(flags, np.int32),
            "incoming": np.searchsorted(targets, np.arange(n_atoms + 1)).astype(np.int32),
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
        }

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
        gaps, barring = self._gaps(arguments)
        return {
            "programs": table_of(programs, N_PROGRAM),
            "due": tests.due(),
            "ways": tests.ways(),
            "choices": np.array(choices, np.int32),
            "arguments": table_of(arguments, 2),
            "gaps": table_of(gaps, 4),
            "barring": table_of(barring, 5),
        }

    # ---- absences -----------------------------------------------------------------------------------------

    def _gaps(self, arguments: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the rows of `General.gaps` and `General.barring`; add the arguments of the latter."""
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
                    first_argument = len(arguments)
                    arguments += [self._argument_of_absence(relation, a) for a in self._arguments(relation)]
                    barring.append([relation, first_argument, len(arguments), *self._program(relation)])
                begins = self._set(absence.begins) if absence.begins else codes.NO_SET
                gaps.append([absence.atom, begins, begin, len(barring)])
            self._gaps_of[edge] = first, len(gaps)
        return gaps, barring

    def _arguments(self, relation: int) -> Sequence[Argument]:
        return self.plan.bound.conditions[relation].arguments

    def _argument_of_absence(self, number: int, argument: Argument) -> list[int]:
        """Return the row of an argument of an absence's filter: its variables hold one event, or are FIRST or LAST."""
        relation = self.plan.graph.relations[number]
        variable = relation.variables.index(argument.variable)
        if relation.local[variable]:
            return [0, BARRING_EVENT]
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
        """Return the column of `Instances.ended` for an absence behind an atom."""
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
