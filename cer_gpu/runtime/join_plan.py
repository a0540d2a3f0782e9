"""Plan of join predicates: where each is tested, and which index finds what passes.

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

from cer_gpu.automaton.atom_graph import AtomGraph, Edge
from cer_gpu.expressions.bands import Band, Difference, bands
from cer_gpu.expressions.relation_terms import EACH, LAST, PREV, Comparison
from cer_gpu.expressions.relations import BoundRelations
from cer_gpu.expressions.side_columns import MAX_COLUMNS, GridCell
from cer_gpu.expressions.terms import MIRRORED

_ZONED = ("=", "<", "<=", ">", ">=")

ALL_TESTED, BY_HASH, BY_ZONES, NEXT_TO, NO_FILTER = "tested one by one", "hash", "zone maps", "the one before", "all"
BY_GRID, BY_HASH_AND_GRID = "grid", "hash and grid"
_DIMENSIONS = 2
"""Maximum number of bands that a grid serves: an instance has two places for each."""


@dataclass(frozen=True)
class Pair:
    """A filter on two events: variable indices of the earlier and the later one.

    `nearest`: the earlier one is the one just before among those of the variable; `adjacent`: the one just before in
    the path, always.
    """

    relation: int
    earlier: int
    later: int
    nearest: bool = False
    adjacent: bool = False


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
    """Place of each join predicate of a query.

    Parameters
    ----------
    graph : AtomGraph
    bound : BoundRelations
    partitioned : bool
        True if there are partitions; events of others are separated by hash.

    Attributes
    ----------
    edges : list of EdgePlan
    far : list of EdgePlan
        Edges of no path: their target has passed an event of their source that it must pass filters with, on its way
        from a start, but not just before.
    general : list of int
        Relations that are tested on whole paths.
    distant : dict from atom to list of Pair
    own : dict from atom to list of Pair
        Filters whose two variables hold one and the same event.
    watched : set of (int, int)
        Absences and the atoms before their gaps for which the event before the gap alone decides what bars.
    reach : list of frozenset of int
        The atoms to which one or more edges lead from each atom.
    columns : dict from GridCell to int
        Columns of the cells of grids, which come after those of `bound` until the plan is made, and then are in it.
    """

    graph: AtomGraph
    bound: BoundRelations
    partitioned: bool
    edges: list[EdgePlan] = field(default_factory=list)
    far: list[EdgePlan] = field(default_factory=list)
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
        self.reach: list[frozenset[int]] = [self._reachable(atom) for atom in range(len(graph.atoms))]
        pairs = [pair for r in range(graph.n_tested) for pair in self._pairs(r)]
        barring = self._barring()
        self.edges = [self._edge(edge, barring if edge.bars else pairs) for edge in graph.edges]
        for pair in pairs:
            relation = graph.relations[pair.relation]
            earlier, later = relation.holds[pair.earlier], relation.holds[pair.later]
            if not pair.nearest and relation.local[pair.earlier]:
                for atom in sorted(earlier & later):
                    self.own.setdefault(atom, []).append(pair)
            for atom in () if pair.adjacent else sorted(earlier):
                # atoms of the later event that may follow, but not at once
                inner = [b for b in self._after[atom] if not (pair.nearest and b in later)]
                if any(self.reach[b] & later for b in inner):
                    self.distant.setdefault(atom, []).append(pair)
        self.far = list(self._far_edges())
        self.bound = replace(self.bound, columns=(*self.bound.columns, *self.columns))

    def _far_edges(self) -> Iterator[EdgePlan]:
        """Yield edges between atoms with filters that are not neighbours, ordered by their targets."""
        graph, passed = self.graph, self._passed
        for target, source in product(range(len(graph.atoms)), sorted(self.distant)):
            always = passed[target] >> source & 1 and target in self.reach[source]
            if not always or source in self.reach[source] or target in self._after[source]:
                continue
            pairs = [pair for pair in self.distant[source] if self._is_far(pair, source, target)]
            if pairs:
                yield self._indexed(Edge(target, source, contiguous=False), pairs)

    def _is_far(self, pair: Pair, source: int, target: int) -> bool:
        """Return True if each event of an atom must pass a filter with the only one of another, before it."""
        relation = self.graph.relations[pair.relation]
        always = not pair.nearest and not relation.level(self.graph.atoms[source])
        return always and target in relation.holds[pair.later]

    def _barring(self) -> list[Pair]:
        """Return the filters of absences that read a single event before the gap, and note where they suffice."""
        graph, barring = self.graph, list[Pair]()
        for number, absence in enumerate(graph.absences):
            sources = {edge.source for edge in graph.edges if number in edge.absent and not absence.begins}
            for relation in absence.relations:
                pairs = [] if self.chooses(relation) else list(self._pairs(relation, barring=True))
                sources &= graph.relations[relation].holds[pairs[0].earlier] if pairs else frozenset()
                barring += pairs
            self.watched |= {(number, source) for source in sources}
        return barring

    def chooses(self, relation: int) -> bool:
        """Return True if the filter of an absence holds for each choice among several events before the gap."""
        placed, arguments = self.graph.relations[relation], self.bound.conditions[relation].arguments
        chosen = {argument.variable for argument in arguments if argument.event == EACH}
        roles = zip(placed.variables, placed.local, placed.several, strict=True)
        return any(several and not local for name, local, several in roles if name in chosen)

    def _reachable(self, atom: int) -> frozenset[int]:
        """Return the atoms to which one or more edges lead from an atom."""
        reachable: set[int] = set()
        todo = list(self._after[atom])
        while todo:
            each = todo.pop()
            if each not in reachable:
                reachable.add(each)
                todo += self._after[each]
        return frozenset(reachable)

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
        elif len(variables) == 2 == len(events) and kinds == {EACH, LAST}:
            (later,) = (variable for variable, event in events if event == EACH)
            (earlier,) = variables - {later}
            if self._is_just_behind(number, earlier, later):
                yield Pair(number, earlier, later, adjacent=True)
                return
        if not barring:
            self.general.append(number)

    def _is_just_behind(self, number: int, earlier: int, later: int) -> bool:
        """Return True if the last event of one variable is always the one just before that of another."""
        relation, graph = self.graph.relations[number], self.graph
        before, behind = relation.holds[earlier], relation.holds[later]
        if relation.repeats or not (relation.local[earlier] and relation.local[later]):
            return False
        sources = {edge.source for edge in graph.edges if edge.target in behind and not edge.bars}
        after = frozenset[int]().union(*(self.reach[atom] for atom in behind))
        return sources <= before and after.isdisjoint(before | behind) and before.isdisjoint(behind)

    def _edge(self, edge: Edge, pairs: list[Pair]) -> EdgePlan:
        graph, source = self.graph, self.graph.atoms[edge.source]
        on_edge = []
        for pair in pairs:
            relation = graph.relations[pair.relation]
            joins_edge = edge.source in relation.holds[pair.earlier] and edge.target in relation.holds[pair.later]
            if joins_edge and (relation.loop_level(edge.loops) >= relation.level(source)):
                on_edge.append(pair)
        if edge.contiguous:
            return EdgePlan(edge, NEXT_TO, (), tuple(on_edge))
        return self._indexed(edge, on_edge)

    def _indexed(self, edge: Edge, on_edge: Sequence[Pair]) -> EdgePlan:
        """Return the way to find what passes the filters of an edge."""
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

    def _bands(self, pairs: Sequence[Pair], n_max: int) -> tuple[tuple[Band, ...], tuple[Pair, ...]]:
        """Return at most `n_max` bands of some filters, and the filters that they come from."""
        of_pairs = {pair: list(self._differences(pair)) for pair in pairs}
        selected = tuple(bands(chain.from_iterable(of_pairs.values()))[:n_max])
        cells = [cell for band in selected for cell in (band.earlier, band.later) if cell not in self.columns]
        first = len(self.bound.columns) + len(self.columns)
        if first + len(cells) > MAX_COLUMNS:
            return (), ()
        self.columns |= {cell: first + n for n, cell in enumerate(dict.fromkeys(cells))}
        terms = {(band.later.term, band.earlier.term) for band in selected}
        proposed = [pair for pair, each in of_pairs.items() if any((d.value, d.other) in terms for d in each)]
        return selected, tuple(proposed)

    def _differences(self, pair: Pair) -> Iterator[Difference]:
        """Yield the differences of the later and the earlier event of a pair that its filter bounds."""
        variables = self.graph.relations[pair.relation].variables
        for each in self.bound.differences[pair.relation]:
            forwards = each.event.event != PREV if pair.nearest else each.event.variable == variables[pair.later]
            yield each if forwards else each.mirror()

    def oriented(self, pair: Pair) -> Comparison | None:
        """Return the comparison of a pair with the earlier event at the left, or None if it is a program."""
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
