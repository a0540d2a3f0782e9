"""Conjunctive queries: connected, acyclic and hierarchical ones, and the q-trees of hierarchical ones.

papers: PCEA, section 4 and appendix B; the test for acyclic queries is the reduction of Graham, Yu and Özsoyoğlu (GYO).
Queries are full: each variable belongs to the head, so that a head has no place here.  Constants have none either.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

QTreeNode = str | int
"""Node of a q-tree: a variable, or the number of an atom (its identifier in I(Q))."""
FRESH = "*"
"""Variable that connects the atoms of a query that is not connected (the paper's ``x*``)."""


@dataclass(frozen=True)
class ConjunctAtom:
    """An atom of a conjunctive query.

    Attributes
    ----------
    kind : hashable
        One event may satisfy several atoms of equal kind (a self join), but never two of different kinds; in the paper
        the relation name.
    variables : frozenset of str
        The variables of the atom; an atom whose terms are all constants has none.
    """

    kind: Hashable
    variables: frozenset[str]


Atoms = Sequence[ConjunctAtom]


def is_connected(atoms: Atoms) -> bool:
    """Return True if shared variables connect all atoms; an atom without variables is connected to no other."""
    waiting = set(range(1, len(atoms)))
    reached = [0]
    for i in reached:  # the body appends to it
        neighbours = sorted(j for j in waiting if atoms[i].variables & atoms[j].variables)
        waiting.difference_update(neighbours)
        reached += neighbours
    return not waiting


# ---- acyclic queries --------------------------------------------------------------------------------------------


def is_acyclic(atoms: Atoms) -> bool:
    """Return True if a query has a join tree."""
    return join_tree(atoms) is not None


def join_tree(atoms: Atoms) -> tuple[int | None, ...] | None:
    """Return the parent of each atom in a join tree (None for its root), or None for a cyclic query.

    In a join tree the atoms of each variable are connected.  The GYO reduction removes one ear after the other: an atom
    whose variables in other atoms that remain are all variables of one of these, its parent.
    """
    parents: list[int | None] = [None] * len(atoms)
    remaining = list(range(len(atoms)))
    while len(remaining) > 1:
        ear = next(_ears(atoms, remaining), None)
        if ear is None:
            return None
        atom, parents[atom] = ear
        remaining.remove(atom)
    return tuple(parents)


def _ears(atoms: Atoms, remaining: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ears among the atoms that remain, with the parents that they can have; the last atoms come first."""
    for i in reversed(remaining):
        others = [j for j in remaining if j != i]
        shared = atoms[i].variables & frozenset().union(*(atoms[j].variables for j in others))
        yield from ((i, j) for j in others if shared <= atoms[j].variables)


# ---- hierarchical queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crossing:
    """Two variables that keep a query from being hierarchical, and atoms that show it.

    Attributes
    ----------
    first, second : str
        The variables.
    only_first, both, only_second : int
        Numbers of atoms that have the first variable without the second, both, and the second without the first.
    """

    first: str
    second: str
    only_first: int
    both: int
    only_second: int


def crossing(atoms: Atoms) -> Crossing | None:
    """Return variables whose sets of atoms overlap with neither within the other, or None if there are none.

    A query is hierarchical if and only if there are none (section 4): the atoms of any two variables are disjoint, or
    those of one are all atoms of the other.
    """
    atoms_of = _atoms_of(atoms)
    names = sorted(atoms_of)
    for i, x in enumerate(names):
        for y in names[i + 1 :]:
            both = atoms_of[x] & atoms_of[y]
            only_x, only_y = atoms_of[x] - both, atoms_of[y] - both
            if both and only_x and only_y:
                return Crossing(x, y, min(only_x), min(both), min(only_y))
    return None


def why_not_hierarchical(atoms: Atoms, names: Sequence[str] | None = None) -> str | None:
    """Return the reason why a query is not hierarchical, or None if it is.

    Parameters
    ----------
    atoms
        The query.
    names
        Names of the atoms for the message; without them atoms are called by their numbers.
    """
    witness = crossing(atoms)
    if witness is None:
        return None
    named = [f"atom {i}" for i in range(len(atoms))] if names is None else names
    x, y = witness.first, witness.second
    return (
        f"{named[witness.both]} has both {x} and {y}, {named[witness.only_first]} has {x} but not {y}, "
        f"and {named[witness.only_second]} has {y} but not {x}"
    )


def _atoms_of(atoms: Atoms) -> dict[str, set[int]]:
    """Return the atoms of each variable (the paper's ``atoms(x)``)."""
    atoms_of: dict[str, set[int]] = {}
    for i, atom in enumerate(atoms):
        for variable in atom.variables:
            atoms_of.setdefault(variable, set()).add(i)
    return atoms_of


# ---- q-trees ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QTree:
    """A q-tree: its inner nodes are variables, its leaves are atoms.

    The variables on the path from the root to an atom are those of the atom, and `FRESH` if the query is not connected;
    a compact tree lacks those that lead to a single node.

    Attributes
    ----------
    edges : tuple of (node, parent)
        Every node with its parent (None for the root) in depth-first order; of two children, the one with the lesser
        atom below it comes first.
    variables : tuple of frozenset of str
        The variables of each atom as they stand in the query.
    """

    edges: tuple[tuple[QTreeNode, QTreeNode | None], ...]
    variables: tuple[frozenset[str], ...]

    @property
    def root(self) -> QTreeNode:
        """The root: a variable, or the atom of a compact tree of one atom."""
        return self.edges[0][0]

    @property
    def nodes(self) -> tuple[QTreeNode, ...]:
        """The nodes in depth-first order."""
        return tuple(node for node, _ in self.edges)

    @property
    def inner(self) -> tuple[str, ...]:
        """The variables of the tree in depth-first order."""
        return tuple(node for node, _ in self.edges if isinstance(node, str))

    @cached_property
    def _parents(self) -> dict[QTreeNode, QTreeNode | None]:
        return dict(self.edges)

    @cached_property
    def _children(self) -> dict[QTreeNode, tuple[QTreeNode, ...]]:
        children: dict[QTreeNode, tuple[QTreeNode, ...]] = {node: () for node, _ in self.edges}
        for node, parent in self.edges:
            if parent is not None:
                children[parent] += (node,)
        return children

    def children(self, node: QTreeNode) -> tuple[QTreeNode, ...]:
        """Return the children of a node."""
        return self._children[node]

    def ancestors(self, node: QTreeNode) -> tuple[QTreeNode, ...]:
        """Return the nodes from the root to a node, the node itself included (the paper's ``ancst``)."""
        path = [node]
        while (above := self._parents[path[-1]]) is not None:
            path.append(above)
        return tuple(reversed(path))

    def descendants(self, node: QTreeNode) -> tuple[QTreeNode, ...]:
        """Return the nodes below a node in depth-first order, the node itself included (the paper's ``desc``)."""
        nodes: list[QTreeNode] = []
        waiting = [node]
        while waiting:
            nodes.append(waiting.pop())
            waiting += reversed(self._children[nodes[-1]])
        return tuple(nodes)

    def leaves(self, node: QTreeNode | None = None) -> tuple[int, ...]:
        """Return the atoms below a node, or all atoms, in depth-first order."""
        below = self.nodes if node is None else self.descendants(node)
        return tuple(node_below for node_below in below if isinstance(node_below, int))

    def path(self, atom: int) -> tuple[str, ...]:
        """Return the variables of the tree from the root to an atom."""
        return tuple(node for node in self.ancestors(atom) if isinstance(node, str))

    def shared(self, node: QTreeNode, atom: int) -> frozenset[str]:
        """Return the variables that an atom shares with each atom below a node that is not one of its variables."""
        return self.variables[self.leaves(node)[0]] & self.variables[atom]

    def compact(self) -> QTree:
        """Return the tree without inner nodes that have a single child (appendix B).

        The topmost of several variables in a row remains, as in the paper's figure 4, and of variables that lead to a
        single atom, only the atom.
        """
        edges: list[tuple[QTreeNode, QTreeNode | None]] = []
        waiting: list[tuple[QTreeNode, QTreeNode | None]] = [(self.root, None)]
        while waiting:
            node, parent = waiting.pop()
            bottom = node
            while len(self.children(bottom)) == 1:
                (bottom,) = self.children(bottom)
            top = node if isinstance(bottom, str) else bottom
            edges.append((top, parent))
            waiting += [(child, top) for child in reversed(self.children(bottom))]
        return QTree(tuple(edges), self.variables)

    def incomplete(self, node: QTreeNode, atoms: Collection[int]) -> tuple[QTreeNode, ...]:
        """Return the incomplete states of a variable given atoms that one event satisfies (C_{x,A} of appendix B).

        These are the nodes that hang from the paths from the variable down to the atoms, in depth-first order: a run
        that has completed them all completes the variable with that event.
        """
        on_paths = {variable for atom in atoms for variable in self.path(atom)}
        hanging = on_paths.intersection(self.descendants(node))
        return tuple(
            below for below, parent in self.edges if parent in hanging and below not in on_paths and below not in atoms
        )


def q_tree(atoms: Atoms) -> QTree:
    """Return the q-tree of a hierarchical query (theorem B.1).

    Several variables of the same atoms stand in the order of their names.  In a query that is not connected a fresh
    variable stands above all, by the name of `FRESH`.

    Raises
    ------
    ValueError
        If the query has no atoms, or is not hierarchical.
    """
    if not atoms:
        raise ValueError("expected at least one atom")
    if reason := why_not_hierarchical(atoms):
        raise ValueError(f"expected a hierarchical query, but {reason}")
    atoms_of = _atoms_of(atoms)
    above = () if is_connected(atoms) else (_fresh(atoms_of),)
    edges: dict[QTreeNode, QTreeNode | None] = {}
    for i, atom in enumerate(atoms):
        # the atoms of a variable are among those of the variables above it
        path = [*above, *sorted(atom.variables, key=lambda x: (-len(atoms_of[x]), x)), i]
        edges |= dict(zip(path, [None, *path], strict=False))
    children: dict[QTreeNode | None, list[QTreeNode]] = {}
    for node, parent in edges.items():  # first come those with the least atoms below them
        children.setdefault(parent, []).append(node)
    waiting = list(children[None])
    ordered: list[QTreeNode] = []
    while waiting:
        ordered.append(waiting.pop())
        waiting += reversed(children.get(ordered[-1], []))
    return QTree(tuple((node, edges[node]) for node in ordered), tuple(atom.variables for atom in atoms))


def _fresh(taken: Collection[str]) -> str:
    name = FRESH
    while name in taken:
        name += FRESH
    return name
