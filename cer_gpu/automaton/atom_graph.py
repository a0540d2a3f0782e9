"""Atom graph of a pattern with join predicates: its atoms, the atoms that may follow each, and its relations.

papers: RMA, section 4.  The paper's runs carry the events that later guards read in registers, one run for each choice
of them.  Here an event is stored once for each atom that it satisfies, as an instance, and a run is a path of instances
from the end of a match back to its start.  The graph is the position automaton of the normal form (Glushkov,
1961): a state for each atom, an edge for each pair that may follow one another.  The two sides of a conjunction make
their steps in any order, or with one event: its atoms are those of their product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from cer_gpu.arrays import Bools, Int32
from cer_gpu.automaton.alphabet import NumberedAlphabet
from cer_gpu.automaton.atom_product import BEGIN, ProductState, ProductStep, Side, moves
from cer_gpu.automaton.encoding import END_OF_LIST
from cer_gpu.automaton.normal_form import (
    Absent,
    Atom,
    Both,
    Either,
    Guard,
    NormalForm,
    Related,
    Repeat,
    Then,
    Trailing,
    copies_of,
)
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.one_event import are_apart, may_be_one
from cer_gpu.ceql.syntax import Predicate
from cer_gpu.ceql.traversal import fold
from cer_gpu.errors import QueryTooLargeError

_MAX_ATOMS = 1000
MAX_EDGES = 20_000


@dataclass(frozen=True)
class GraphAtom:
    """An event of the pattern, at one place of the formula, or at several at once within a conjunction.

    Attributes
    ----------
    places : tuple of int
        Numbers of the atoms of the formula, from left to right, that the event is.
    tests : tuple of (int, bool)
        Guards (indexes of `CEA.guards`) that it satisfies (False), or does not (True).
    selected : frozenset of str
        The selected variables that hold the event.
    repeats : tuple of tuple of int
        For each place the iterations around it, the outermost first.
    initial, final : bool
        An initial atom may begin a match, a final one may end it.
    bars : bool
        True if the event must be absent from a gap: no match holds it.
    """

    places: tuple[int, ...]
    tests: tuple[tuple[int, bool], ...]
    selected: frozenset[str]
    repeats: tuple[tuple[int, ...], ...]
    initial: bool = False
    final: bool = False
    bars: bool = False

    def satisfied(self, word: int) -> bool:
        """Return True for the bit vector of an event that passes the tests (bit g: it satisfies guard g)."""
        return all((word >> guard & 1) != negated for guard, negated in self.tests)


@dataclass(frozen=True, order=True)
class Edge:
    """The atom `target` may come after `source`, at the very next position if `contiguous`.

    `loops` are the iterations that begin anew on the way: none or one, or one on each side of a conjunction.  `absent`
    are the absences (indexes of `AtomGraph.absences`) of the gap.  An edge that `bars` leads to an atom that bars: an
    event there may end what is to go on from the source.
    """

    target: int
    source: int
    contiguous: bool
    loops: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    bars: bool = False


@dataclass(frozen=True)
class PlacedAbsence:
    """Events that a gap must not hold: those of an atom that bars, where they pass all `relations`.

    `relations` are indexes of `AtomGraph.relations`.  The gap begins with the last event at one of the atoms `begins`
    before its end, where a conjunction may put others between; if empty, with the event before it.
    """

    atom: int
    relations: tuple[int, ...]
    begins: frozenset[int] = frozenset()


@dataclass(frozen=True)
class PlacedRelation:
    """A join predicate, and the atoms whose events it reads.

    Attributes
    ----------
    predicate : Predicate
    variables : tuple of str
        Names of its variables.
    holds : tuple of frozenset of int
        For each variable, the atoms whose events it holds.
    local : tuple of bool
        For each variable, True if the filtered formula itself defines it; else a formula before it does.
    body : frozenset of int
        The atoms of the filtered formula.
    repeats : tuple of int
        The iterations around the filtered formula, the outermost first.
    several : tuple of bool
        For each variable, True if it may hold several events.
    """

    predicate: Predicate
    variables: tuple[str, ...]
    holds: tuple[frozenset[int], ...]
    local: tuple[bool, ...]
    body: frozenset[int]
    repeats: tuple[int, ...]
    several: tuple[bool, ...] = ()

    def level(self, atom: GraphAtom) -> int:
        """Return how many iterations enclose both the filtered formula and an atom.

        An event of the atom is read by the filter only if none of these begins anew between the two.
        """
        return max(map(self._common, atom.repeats))

    def _common(self, repeats: tuple[int, ...]) -> int:
        n = 0
        for ours, its in zip(self.repeats, repeats, strict=False):
            if ours != its:
                break
            n += 1
        return n

    def loop_level(self, loops: tuple[int, ...]) -> int:
        """Return the least index among `repeats` of iterations that begin anew, or their number if it has none."""
        return min((self.repeats.index(loop) for loop in loops if loop in self.repeats), default=len(self.repeats))


@dataclass(frozen=True)
class AtomGraph:
    """An atom graph.

    Attributes
    ----------
    atoms : tuple of GraphAtom
    edges : tuple of Edge
        Ordered by their targets.
    relations : tuple of PlacedRelation
        Those of absences come last.
    ambiguous : bool
        True if one match may be found on several paths.
    absences : tuple of PlacedAbsence
    """

    atoms: tuple[GraphAtom, ...]
    edges: tuple[Edge, ...]
    relations: tuple[PlacedRelation, ...]
    ambiguous: bool
    absences: tuple[PlacedAbsence, ...] = ()

    def after(self, atom: int) -> list[int]:
        """Return the atoms that may follow one."""
        return [edge.target for edge in self.edges if edge.source == atom and not edge.bars]

    def satisfied(self, word: int) -> int:
        """Return the atoms that an event may be at, as bits, given its bit vector (bit g: it satisfies guard g)."""
        return sum(1 << i for i, atom in enumerate(self.atoms) if atom.satisfied(word))

    @property
    def n_tested(self) -> int:
        """Number of relations that matches must pass: the first ones, without those of absences."""
        return len(self.relations) - sum(len(absence.relations) for absence in self.absences)


def build_atom_graph(
    formula: NormalForm, guards: Sequence[Guard], selected: frozenset[str], n_steps: int = 0
) -> AtomGraph:
    """Build the atom graph of a formula.

    Parameters
    ----------
    formula
        The WHERE clause in LP-normal form.
    guards
        `CEA.guards` of the automaton of the formula without its relations.
    selected
        The selected variables.
    n_steps
        Steps if the formula, without its relations, is a chain (`cer_gpu.automaton.chain.find_chain`), else 0.

    Raises
    ------
    QueryTooLargeError
        When there are too many atoms or edges.
    """
    return _GraphBuilder(guards, selected).graph(formula, n_steps)


def build_place_graph(
    formula: NormalForm, guards: Sequence[Guard], selected: frozenset[str], n_steps: int = 0
) -> AtomGraph:
    """Build the graph of the places of a formula: that of `build_atom_graph`, without products.

    The sides of a conjunction have no edges between them, and all of their last atoms lead to what follows.
    """
    return _GraphBuilder(guards, selected, multiplied=False).graph(formula, n_steps)


@dataclass(frozen=True)
class _GraphPart:
    """A part of the formula: its nodes (those from `begin` on), and the nodes that may begin it and end it."""

    begin: int
    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(frozen=True)
class _Gap:
    """An absence: the node of the events that bar, and the nodes with which the gap begins; if empty, the one before.

    If there are several nodes, the last one on a path counts.
    """

    absent: Absent
    node: int
    begins: frozenset[int] = frozenset()

    def placed_in(self, states: dict[ProductState, int], begin: int) -> _Gap:
        """Return the gap with the nodes of a product in place of those from `begin` on."""
        if not self.begins or min(self.begins) < begin:
            return self
        return replace(self, begins=frozenset(at for s, at in states.items() if not self.begins.isdisjoint(s.moved)))


@dataclass
class _GraphBuilder:
    """Construction of the graph; `nodes` are the atoms, each as the places of the formula that its event is."""

    guards: Sequence[Guard]
    selected: frozenset[str]
    multiplied: bool = True
    places: list[Atom] = field(default_factory=list)
    repeats: list[tuple[int, ...]] = field(default_factory=list)
    nodes: list[tuple[int, ...]] = field(default_factory=list)
    edges: dict[Edge, None] = field(default_factory=dict)
    placed: list[tuple[s.Relation, range, tuple[int, ...]]] = field(default_factory=list)
    absent: list[_Gap] = field(default_factory=list)
    n_copied: int = 0
    n_repeats: int = 0
    _repeats: list[int] = field(default_factory=list)
    _begins: list[int] = field(default_factory=list)

    def graph(self, formula: NormalForm, n_steps: int) -> AtomGraph:
        self._number = {guard: i for i, guard in enumerate(self.guards)}
        whole = fold(formula, self._leave_node, self._enter_node)
        first, last = set(whole.first), set(whole.last)
        barring = {gap.node for gap in self.absent}
        atoms = tuple(
            self._atom(places, initial=i in first, final=i in last, bars=i in barring)
            for i, places in enumerate(self.nodes)
        )
        edges = tuple(sorted(self.edges))
        relations = [self._relation(*placed) for placed in self.placed]
        absences = []
        for gap in self.absent:
            (place,) = self.nodes[gap.node]
            own = [self._relation(relation, [place], self.repeats[place]) for relation in gap.absent.relations]
            numbers = tuple(range(len(relations), len(relations) + len(own)))
            absences.append(PlacedAbsence(gap.node, numbers, gap.begins))
            relations += own
        # in a chain the selected events determine their steps, and a step of one atom has one path
        is_decided = 0 < n_steps == len(atoms) - len(barring) - self.n_copied or self._distinguishes_paths(edges)
        before = {(i, edge.source) for edge in edges for i in edge.absent if not self.absent[i].begins}
        ways = {Edge(self.absent[i].node, source, False, bars=True) for i, source in before}
        return AtomGraph(atoms, tuple(sorted([*edges, *ways])), tuple(relations), not is_decided, tuple(absences))

    def _atom(self, places: tuple[int, ...], *, initial: bool, final: bool, bars: bool = False) -> GraphAtom:
        atoms = [self.places[place] for place in places]
        tests = dict.fromkeys((self._number[atom.guard], atom.negated) for atom in atoms)
        selected = frozenset(chain.from_iterable(atom.labels & self.selected for atom in atoms))
        repeats = tuple(self.repeats[place] for place in places)
        return GraphAtom(places, tuple(tests), selected, repeats, initial, final, bars)

    # ---- down -------------------------------------------------------------------------------------------------

    def _enter_node(self, part: NormalForm) -> list[NormalForm]:
        match part:
            case Atom():
                return []
            case Repeat():
                self._repeats.append(self.n_repeats)
                self.n_repeats += 1
                return [part.body] * copies_of(part)
            case Related():
                self._begins.append(len(self.places))
                return [part.body]
            case Trailing():
                return [part.body]
            case Either() | Then() | Both():
                return [part.left, part.right]

    # ---- up ---------------------------------------------------------------------------------------------------

    def _leave_node(self, part: NormalForm, below: list[_GraphPart]) -> _GraphPart:
        match part:
            case Atom():
                node = self._node(part)
                return _GraphPart(node, (node,), (node,))
            case Both() if self.multiplied:
                left, right = below
                return self._product(left, right, part.optional)
            case Either() | Both():
                left, right = below
                return _GraphPart(left.begin, left.first + right.first, left.last + right.last)
            case Then():
                left, right = below
                self._connect(left.last, right.first, part.contiguous, absent=self._bar(part.absent))
                first = left.first + right.first if part.optional[0] else left.first
                last = left.last + right.last if part.optional[1] else right.last
                return _GraphPart(left.begin, first, last)
            case Repeat():
                return self._repeat(part, below)
            case Trailing():
                return below[0]
            case Related():
                self.placed.append((part.relation, range(self._begins.pop(), len(self.places)), tuple(self._repeats)))
                return below[0]

    def _repeat(self, part: Repeat, below: list[_GraphPart]) -> _GraphPart:
        """Join the copies of the body of a repetition; on the way from one to the next the iteration begins anew."""
        onward = below[1:] if part.n_max is not None else [*below[1:], below[-1]]
        # an absence of the gap reads the repetition before it, and no other
        absent = self._bar(part.absent) if onward else ()
        loops = (self._repeats.pop(),)
        for one, other in zip(below, onward, strict=False):
            self._connect(one.last, other.first, part.contiguous, loops, absent)
        last = tuple(chain.from_iterable(each.last for each in below[part.n_min - 1 :]))
        self.n_copied += below[-1].begin - below[0].begin
        return _GraphPart(below[0].begin, below[0].first, last)

    def _bar(self, absent: tuple[Absent, ...]) -> tuple[int, ...]:
        """Add the atoms of absences, and return the numbers of these."""
        numbers = []
        for each in absent:
            node = self._node(Atom(each.guard, frozenset(), each.negated, each.sites, each.stream))
            numbers.append(len(self.absent))
            self.absent.append(_Gap(each, node))
        return tuple(numbers)

    def _node(self, atom: Atom) -> int:
        """Add a place, and return its node."""
        self._check_size(atoms=1)
        self.places.append(atom)
        self.repeats.append(tuple(self._repeats))
        self.nodes.append((len(self.places) - 1,))
        return len(self.nodes) - 1

    def _connect(
        self,
        last: tuple[int, ...],
        first: tuple[int, ...],
        contiguous: bool,
        loops: tuple[int, ...] = (),
        absent: tuple[int, ...] = (),
    ) -> None:
        self._check_size(edges=len(last) * len(first))
        for source in last:
            for target in first:
                self.edges[Edge(target, source, contiguous, loops, absent)] = None

    def _check_size(self, atoms: int = 0, edges: int = 0) -> None:
        what = "a query with join predicates, or with ALL,"
        if len(self.nodes) + atoms > _MAX_ATOMS:
            raise QueryTooLargeError(f"{what} has at most {_MAX_ATOMS} atoms", hint=_HINT)
        if len(self.edges) + edges > MAX_EDGES:
            raise QueryTooLargeError(
                f"{what} has at most {MAX_EDGES} pairs of atoms that follow one another", hint=_HINT
            )

    # ---- conjunctions -----------------------------------------------------------------------------------------

    def _product(self, left: _GraphPart, right: _GraphPart, optional: tuple[bool, bool]) -> _GraphPart:
        """Replace the nodes of both sides of a conjunction by those of their product."""
        sides = Side(left.first, left.last), Side(right.first, right.last)
        for edge in [edge for edge in self.edges if edge.target >= left.begin]:
            del self.edges[edge]
            step = ProductStep(edge.target, edge.contiguous, edge.loops, edge.absent)
            sides[edge.target >= right.begin].steps.setdefault(edge.source, []).append(step)
        nodes, self.nodes = self.nodes, self.nodes[: left.begin]
        states: dict[ProductState, int] = {}
        waited: dict[tuple[int, int], int] = {}  # absences of gaps of a side into which the other side reaches
        todo: list[ProductState] = []

        def number(state: ProductState) -> int:
            if state not in states:
                self._check_size(atoms=1)
                states[state] = len(self.nodes)
                self.nodes.append(tuple(sorted(chain.from_iterable(nodes[node] for node in state.moved))))
                todo.append(state)
            return states[state]

        def are_one(one: int, other: int) -> bool:
            atoms = (self.places[place] for place in nodes[one] + nodes[other])
            return may_be_one((atom.guard, atom.negated) for atom in atoms)

        def numbered(gap: tuple[int, int]) -> int:
            """Return the number of an absence whose gap begins with the last step of a side."""
            if self.absent[gap[0]].begins:
                return gap[0]  # a conjunction on that side has already set where it begins
            if gap not in waited:
                waited[gap] = len(self.absent)
                self.absent.append(self.absent[gap[0]])
            return waited[gap]

        first = [number(move.target) for move in moves(BEGIN, *sides, are_one)]
        while todo:
            state = todo.pop()
            for move in list(moves(state, *sides, are_one)):
                self._check_size(edges=1)
                absent = (*move.absent, *map(numbered, move.waited))
                edge = Edge(number(move.target), states[state], move.contiguous, move.loops, absent)
                self.edges[edge] = None
        for i, gap in enumerate(self.absent):
            self.absent[i] = gap.placed_in(states, left.begin)
        for (_, side), i in waited.items():
            begins = frozenset(at for state, at in states.items() if state[2 + side])
            self.absent[i] = replace(self.absent[i], begins=begins)
        self._move_barring(nodes, left.begin)
        last = [
            at
            for state, at in states.items()
            if sides[0].ends_at(state.left, optional=optional[0])
            and sides[1].ends_at(state.right, optional=optional[1])
        ]
        return _GraphPart(left.begin, tuple(first), tuple(last))

    def _move_barring(self, nodes: list[tuple[int, ...]], begin: int) -> None:
        """Put the nodes that bar after those of a product, which has replaced the nodes from `begin` on."""
        moved: dict[int, int] = {}
        for i, gap in enumerate(self.absent):
            if gap.node >= begin:
                if gap.node not in moved:
                    self._check_size(atoms=1)
                    moved[gap.node] = len(self.nodes)
                    self.nodes.append(nodes[gap.node])
                self.absent[i] = replace(gap, node=moved[gap.node])

    # ---- relations --------------------------------------------------------------------------------------------

    def _relation(self, relation: s.Relation, body: Sequence[int], repeats: tuple[int, ...]) -> PlacedRelation:
        """Place a filter: on the places `body`, or of an absence, between the event of the gap and those before it."""
        holds, local = [], []
        for role in relation.roles:
            stream = role.variable.stream
            bound = frozenset(
                i for i, atom in enumerate(self.places) if atom.sites & role.sites and stream in (None, atom.stream)
            )
            inside = bound & frozenset(body)
            local.append(bool(inside))
            holds.append(self._nodes_at(inside or bound))
        names = tuple(role.variable.name for role in relation.roles)
        at_body = self._nodes_at(frozenset(body))
        several = tuple(not role.single for role in relation.roles)
        return PlacedRelation(relation.predicate, names, tuple(holds), tuple(local), at_body, repeats, several)

    def _nodes_at(self, places: frozenset[int]) -> frozenset[int]:
        return frozenset(i for i, node in enumerate(self.nodes) if not places.isdisjoint(node))

    def _distinguishes_paths(self, edges: tuple[Edge, ...]) -> bool:
        """Return True if the selected positions of a match determine its path: each event is at one place alone."""
        pairs = {(edge.source, edge.target) for edge in edges}
        if len(pairs) < len(edges):
            return False
        barring = {place for gap in self.absent for place in self.nodes[gap.node]}
        places = [atom for place, atom in enumerate(self.places) if place not in barring]
        if any(atom.negated or not atom.labels & self.selected for atom in places):
            return False
        return are_apart([atom.guard] for atom in places)


_HINT = "a conjunction has an atom for each set of its events that came before; one side less halves them"


class AtomTable(NumberedAlphabet):
    """Symbol table of an atom graph, with the symbols met so far.

    Attributes
    ----------
    graph : AtomGraph
    atoms_of : int32 array, shape (symbols, atoms + 1)
        Atoms that events of each symbol satisfy, ascending, then `END_OF_LIST`.
    ending : bool array, shape (symbols,)
        True for symbols whose events may end matches.
    labels : list of frozenset of str
        Variables of each mark.
    marks : int32 array, shape (atoms,)
        Mark of each atom's events; 0 where they are not selected.
    has_gaps : bool
        True if any edge is contiguous, or selected events must follow one another (`strict`).
    """

    def __init__(self, graph: AtomGraph, *, strict: bool = False) -> None:
        self.graph = graph
        atoms = graph.atoms
        labels = list(dict.fromkeys([frozenset[str](), *(atom.selected for atom in atoms)]))
        self.labels = labels
        self.marks: Int32 = np.array([labels.index(atom.selected) for atom in atoms], np.int32)
        self.has_gaps: bool = strict or any(edge.contiguous for edge in graph.edges)
        self.atoms_of: Int32 = np.full((4, len(atoms) + 1), END_OF_LIST, np.int32)
        self.ending: Bools = np.zeros(4, np.bool_)
        super().__init__()

    def passed_tests(self, word: int) -> int:
        """Return the tests that an event passes, given its bit vector."""
        return self.graph.satisfied(word)

    def add_symbol(self, symbol: int, passed: int) -> None:
        """Add a new symbol to the tables."""
        if symbol == len(self.atoms_of):
            self.atoms_of = np.concatenate([self.atoms_of, np.full_like(self.atoms_of, END_OF_LIST)])
            self.ending = np.concatenate([self.ending, np.zeros_like(self.ending)])
        atoms = [i for i in range(len(self.graph.atoms)) if passed >> i & 1]
        self.atoms_of[symbol, : len(atoms)] = atoms
        self.ending[symbol] = any(self.graph.atoms[i].final for i in atoms)
