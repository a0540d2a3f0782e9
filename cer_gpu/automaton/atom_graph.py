"""Atom graph of a pattern with filters between events: its atoms, the atoms that may follow each, and its relations.

papers: RMA, section 4.  The paper's runs carry the events that later guards read in registers, one run for each choice
of them.  Here an event is stored once for each atom that it satisfies, as an instance, and a run is a path of instances
from the end of a complex event back to its start.  The graph is the position automaton of the normal form (Glushkov,
1961): a state for each atom, an edge for each pair that may follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.automaton.encoding import END_OF_LIST
from cer_gpu.automaton.normal_form import Atom, Either, Guard, NormalForm, Related, Repeat, Then
from cer_gpu.automaton.table import Table
from cer_gpu.ceql.syntax import Predicate
from cer_gpu.ceql.traversal import fold
from cer_gpu.errors import QueryTooLargeError

MAX_ATOMS = 1000
MAX_EDGES = 20_000
NO_LOOP = -1
"""Loop of an edge that begins no new iteration."""


@dataclass(frozen=True)
class GraphAtom:
    """An atom: one event that satisfies a guard (an index of `CEA.guards`), or, when `negated`, one that does not.

    `kept` are the selected variables that hold the event; `repeats` the iterations around the atom, the outermost
    first.  An `initial` atom may begin a complex event, a `final` one may end it.
    """

    guard: int
    negated: bool
    kept: frozenset[str]
    repeats: tuple[int, ...]
    initial: bool = False
    final: bool = False


@dataclass(frozen=True)
class Edge:
    """The atom `target` may come after `source`, at the very next position if `contiguous`.

    `loop` is the iteration that begins anew on the way, or `NO_LOOP`.
    """

    source: int
    target: int
    contiguous: bool
    loop: int = NO_LOOP


@dataclass(frozen=True)
class PlacedRelation:
    """A filter between events, and the atoms whose events it reads.

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
    """

    predicate: Predicate
    variables: tuple[str, ...]
    holds: tuple[frozenset[int], ...]
    local: tuple[bool, ...]
    body: frozenset[int]
    repeats: tuple[int, ...]

    def level(self, atom: GraphAtom) -> int:
        """Return how many iterations enclose both the filtered formula and an atom.

        An event of the atom is read by the filter only if none of these begins anew between the two.
        """
        n = 0
        for ours, its in zip(self.repeats, atom.repeats, strict=False):
            if ours != its:
                break
            n += 1
        return n

    def loop_level(self, loop: int) -> int:
        """Return the index of an iteration among `repeats`, or their number if it is none of them."""
        return self.repeats.index(loop) if loop in self.repeats else len(self.repeats)


@dataclass(frozen=True)
class AtomGraph:
    """An atom graph.

    Attributes
    ----------
    atoms : tuple of GraphAtom
    edges : tuple of Edge
        Ordered by their targets.
    relations : tuple of PlacedRelation
    n_repeats : int
        Number of iterations.
    ambiguous : bool
        True if one complex event may be found on several paths.
    """

    atoms: tuple[GraphAtom, ...]
    edges: tuple[Edge, ...]
    relations: tuple[PlacedRelation, ...]
    n_repeats: int
    ambiguous: bool

    def after(self, atom: int) -> list[int]:
        """Return the atoms that may follow one."""
        return [edge.target for edge in self.edges if edge.source == atom]


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
        Variables that SELECT keeps.
    n_steps
        Steps if the formula, without its relations, is a chain (`cer_gpu.automaton.chain.find_chain`), else 0.

    Raises
    ------
    QueryTooLargeError
        When there are too many atoms or edges.
    """
    return _Builder(guards, selected).graph(formula, n_steps)


@dataclass(frozen=True)
class _Part:
    """Atoms that may begin a part of the formula, and those that may end it."""

    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass
class _Builder:
    guards: Sequence[Guard]
    selected: frozenset[str]
    atoms: list[GraphAtom] = field(default_factory=list)
    sources: list[Atom] = field(default_factory=list)
    edges: dict[Edge, None] = field(default_factory=dict)
    placed: list[tuple[Related, range, tuple[int, ...]]] = field(default_factory=list)
    n_repeats: int = 0
    _repeats: list[int] = field(default_factory=list)
    _begins: list[int] = field(default_factory=list)

    def graph(self, formula: NormalForm, n_steps: int) -> AtomGraph:
        self._number = {guard: i for i, guard in enumerate(self.guards)}
        whole = fold(formula, self._leave, self._enter)
        first, last = set(whole.first), set(whole.last)
        atoms = tuple(
            GraphAtom(a.guard, a.negated, a.kept, a.repeats, i in first, i in last) for i, a in enumerate(self.atoms)
        )
        edges = tuple(sorted(self.edges, key=lambda e: (e.target, e.source, e.contiguous, e.loop)))
        relations = tuple(self._relation(*placed) for placed in self.placed)
        # in a chain the kept events tell their steps, and a step of one atom has one path
        told = len(atoms) == n_steps or self._apart(edges)
        return AtomGraph(atoms, edges, relations, self.n_repeats, not told)

    # ---- down -------------------------------------------------------------------------------------------------

    def _enter(self, part: NormalForm) -> list[NormalForm]:
        match part:
            case Atom():
                return []
            case Repeat():
                self._repeats.append(self.n_repeats)
                self.n_repeats += 1
                return [part.body]
            case Related():
                self._begins.append(len(self.atoms))
                return [part.body]
            case Either() | Then():
                return [part.left, part.right]

    # ---- up ---------------------------------------------------------------------------------------------------

    def _leave(self, part: NormalForm, below: list[_Part]) -> _Part:
        match part:
            case Atom():
                return self._atom(part)
            case Either():
                left, right = below
                return _Part(left.first + right.first, left.last + right.last)
            case Then():
                left, right = below
                self._connect(left.last, right.first, part.contiguous)
                return _Part(left.first, right.last)
            case Repeat():
                self._connect(below[0].last, below[0].first, part.contiguous, self._repeats.pop())
                return below[0]
            case Related():
                self.placed.append((part, range(self._begins.pop(), len(self.atoms)), tuple(self._repeats)))
                return below[0]

    def _atom(self, atom: Atom) -> _Part:
        number = len(self.atoms)
        if number == MAX_ATOMS:
            raise QueryTooLargeError(f"a query with filters between events has at most {MAX_ATOMS} atoms")
        kept = atom.labels & self.selected
        self.atoms.append(GraphAtom(self._number[atom.guard], atom.negated, kept, tuple(self._repeats)))
        self.sources.append(atom)
        return _Part((number,), (number,))

    def _connect(self, last: tuple[int, ...], first: tuple[int, ...], contiguous: bool, loop: int = NO_LOOP) -> None:
        if len(self.edges) + len(last) * len(first) > MAX_EDGES:
            raise QueryTooLargeError(
                f"a query with filters between events has at most {MAX_EDGES} pairs of atoms that follow one another"
            )
        for source in last:
            for target in first:
                self.edges[Edge(source, target, contiguous, loop)] = None

    # ---- relations --------------------------------------------------------------------------------------------

    def _relation(self, part: Related, body: range, repeats: tuple[int, ...]) -> PlacedRelation:
        holds, local = [], []
        for role in part.relation.roles:
            stream = role.variable.stream
            held = frozenset(
                i for i, a in enumerate(self.sources) if a.sites & role.sites and stream in (None, a.stream)
            )
            inside = held & frozenset(body)
            local.append(bool(inside))
            holds.append(inside or held)
        names = tuple(role.variable.name for role in part.relation.roles)
        return PlacedRelation(part.relation.predicate, names, tuple(holds), tuple(local), frozenset(body), repeats)

    def _apart(self, edges: tuple[Edge, ...]) -> bool:
        """Return True if the kept positions of a complex event tell its path: each event is of one atom alone."""
        pairs = {(edge.source, edge.target) for edge in edges}
        if len(pairs) < len(edges) or any(not atom.kept or atom.negated for atom in self.atoms):
            return False
        kinds = [(self.guards[a.guard].event_type, self.guards[a.guard].stream) for a in self.atoms]
        return all(a != b for a, b in combinations(kinds, 2))


class AtomTable(Table):
    """Symbol table of an atom graph, with the symbols met so far.

    Attributes
    ----------
    graph : AtomGraph
    atoms_of : int32 array, shape (symbols, atoms + 1)
        Atoms that events of each symbol satisfy, ascending, then `END_OF_LIST`.
    ending : bool array, shape (symbols,)
        True for symbols whose events may end complex events.
    labels : list of frozenset of str
        Variables of each mark.
    marks : int32 array, shape (atoms,)
        Mark of each atom's events; 0 where they are not kept.
    has_gaps : bool
        True if any edge is contiguous, or kept events must follow one another (`strict`).
    """

    def __init__(self, graph: AtomGraph, *, strict: bool = False) -> None:
        self.graph = graph
        atoms = graph.atoms
        labels = list(dict.fromkeys([frozenset[str](), *(atom.kept for atom in atoms)]))
        self.labels = labels
        self.marks: npt.NDArray[np.int32] = np.array([labels.index(atom.kept) for atom in atoms], np.int32)
        self.has_gaps = strict or any(edge.contiguous for edge in graph.edges)
        self.atoms_of: npt.NDArray[np.int32] = np.full((4, len(atoms) + 1), END_OF_LIST, np.int32)
        self.ending: npt.NDArray[np.bool_] = np.zeros(4, np.bool_)
        self._symbols: dict[int, int] = {}  # symbol by the bit mask of the atoms
        self._symbol(0)  # that of events that satisfy no atom

    def symbol(self, word: int) -> int:
        """Return the symbol of a bit vector (bit g: the event satisfies guard g)."""
        return self._symbol(
            sum(1 << i for i, atom in enumerate(self.graph.atoms) if (word >> atom.guard & 1) != atom.negated)
        )

    def _symbol(self, satisfied: int) -> int:
        symbol = self._symbols.get(satisfied)
        if symbol is None:
            symbol = self._symbols[satisfied] = len(self._symbols)
            if symbol == len(self.atoms_of):
                self.atoms_of = np.concatenate([self.atoms_of, np.full_like(self.atoms_of, END_OF_LIST)])
                self.ending = np.concatenate([self.ending, np.zeros_like(self.ending)])
            atoms = [i for i in range(len(self.graph.atoms)) if satisfied >> i & 1]
            self.atoms_of[symbol, : len(atoms)] = atoms
            self.ending[symbol] = any(self.graph.atoms[i].final for i in atoms)
        return symbol

    def met(self, most: int) -> None:
        """Return None: an atom graph has no determinised states."""

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the numbering of symbols, for JSON."""
        return {"symbols": [hex(satisfied) for satisfied in self._symbols]}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Adopt the numbering of another evaluation of the same query."""
        for satisfied in snapshot["symbols"]:
            self._symbol(int(satisfied, 16))
