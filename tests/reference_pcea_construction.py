"""Construction of parallelized complex event automata from hierarchical conjunctive queries.

papers: PCEA, theorem 4.1 and appendix B.  The nodes of the compact q-tree are the states: the event that completes a
variable gathers the runs of what hangs from its path in the tree.

We differ in these points:

- The theorem calls an automaton equivalent to a query if it outputs, at each position n, all t-homomorphisms to the
  events up to n.  An automaton reads the event at n at the root of its run, and the one built here outputs those
  t-homomorphisms that use it: each is output once, when its last event arrives.
- An encoding of C_{x,A} holds nothing beside its atoms and one pair for each of its variables.  The paper does not ask
  for that; with further pairs in it, the labels of a run would mark more than one position each.
- With constants the atom of lemma B.3 does not always exist (R(1, x) and R(2, y) have no common instance), nor do those
  of lemma B.4: no event satisfies such a self join, so that its transitions are left out.
- Without self joins the size is quadratic in that of the query, which counts the terms of each atom.  In the number of
  its atoms it is cubic at worst: R1(x), R2(x, y), R3(x, y, z), ... has a q-tree as deep as it has atoms.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reference_pcea import PCEA, Equality, Pattern, PceaTransition, StateKey, Variable, equality

from cer_gpu.automaton.conjunctive import ConjunctAtom, QTree, QTreeNode, q_tree
from cer_gpu.errors import QueryTooLargeError

MAX_TRANSITIONS = 1 << 14
"""Most transitions of an automaton that is built here."""

SelfJoin = tuple[int, ...]
"""Numbers of atoms of one relation, in order, that one event may satisfy together (the paper's A)."""
PairState = tuple[str, SelfJoin]
"""State (x, A) of a query with self joins: an event that satisfies the atoms A has completed the variable x."""


def query_atoms(query: Iterable[Pattern]) -> tuple[ConjunctAtom, ...]:
    """Return the atoms of a query without the order of their terms and their constants."""
    return tuple(
        ConjunctAtom(atom.relation, frozenset(term.name for term in atom.terms if isinstance(term, Variable)))
        for atom in query
    )


def build_pcea(query: Sequence[Pattern]) -> PCEA:
    """Return an unambiguous automaton of a hierarchical query, whose labels are the numbers of the atoms (theorem 4.1).

    Raises
    ------
    ValueError
        If the query has no atoms, or is not hierarchical.
    QueryTooLargeError
        If the automaton would have more than `MAX_TRANSITIONS` transitions.
    """
    has_self_joins = len({atom.relation for atom in query}) < len(query)
    return with_self_joins(query) if has_self_joins else without_self_joins(query)


def without_self_joins(query: Sequence[Pattern]) -> PCEA:
    """Return the automaton of a query whose atoms have distinct relations; its states are the nodes of the q-tree."""
    if len({atom.relation for atom in query}) < len(query):
        raise ValueError("expected atoms of distinct relations")
    tree = q_tree(query_atoms(query)).compact()
    made = _Transitions(query)
    for i, atom in enumerate(query):
        for x in tree.path(i):
            joins = [(node, equality(_below(query, tree, node), atom)) for node in tree.incomplete(x, [i])]
            made.add(PceaTransition(tuple(joins), atom, frozenset([i]), x))
    return PCEA(tree.nodes, tuple(made.transitions), frozenset([tree.root]))


def _below(query: Sequence[Pattern], tree: QTree, node: QTreeNode) -> list[Pattern]:
    return [query[i] for i in tree.leaves(node)]


def with_self_joins(query: Sequence[Pattern]) -> PCEA:
    """Return the automaton of a query in which one event may satisfy several atoms; its states are atoms and (x, A).

    Raises
    ------
    QueryTooLargeError
        If there are more than `MAX_TRANSITIONS` transitions: their number grows exponentially with the atoms of one
        relation.
    """
    tree = q_tree(query_atoms(query)).compact()
    made = _Transitions(query)
    predicates: dict[tuple[SelfJoin, SelfJoin], Equality | None] = {}

    def predicate(earlier: SelfJoin, later: SelfJoin) -> Equality | None:
        if (earlier, later) not in predicates:
            sides = merged([query[i] for i in earlier], [query[i] for i in later])
            predicates[earlier, later] = None if sides is None else equality([sides[0]], sides[1])
        return predicates[earlier, later]

    self_joins = {x: list(_self_joins(query, tree.leaves(x))) for x in tree.inner}
    for x in tree.inner:
        for a, unary in self_joins[x]:
            ways: list[list[tuple[StateKey, Equality]]] = []
            for node in tree.incomplete(x, a):
                states: list[tuple[StateKey, SelfJoin]]
                states = [((node, b), b) for b, _ in self_joins[node]] if isinstance(node, str) else [(node, (node,))]
                joins = ((state, predicate(b, a)) for state, b in states)
                ways.append([(state, found) for state, found in joins if found is not None])
            for encoding in itertools.product(*ways):
                made.add(PceaTransition(encoding, unary, frozenset(a), (x, a)))
    pairs: list[StateKey] = [(x, a) for x in tree.inner for a, _ in self_joins[x]]
    finals = [(tree.root, a) for a, _ in self_joins[tree.root]] if isinstance(tree.root, str) else [tree.root]
    return PCEA((*tree.leaves(), *pairs), tuple(made.transitions), frozenset[StateKey](finals))


class _Transitions:
    """The transitions made, those that start a run at each atom first."""

    def __init__(self, query: Sequence[Pattern]) -> None:
        self.transitions: list[PceaTransition] = []
        for i, atom in enumerate(query):
            self.add(PceaTransition((), atom, frozenset([i]), i))

    def add(self, transition: PceaTransition) -> None:
        if len(self.transitions) == MAX_TRANSITIONS:
            raise _too_large()
        self.transitions.append(transition)


def _too_large() -> QueryTooLargeError:
    return QueryTooLargeError(
        f"the automaton of the query has more than {MAX_TRANSITIONS:,} transitions",
        hint="their number grows exponentially with the atoms that one event can satisfy together",
    )


def _self_joins(query: Sequence[Pattern], atoms: Sequence[int]) -> Iterator[tuple[SelfJoin, Pattern]]:
    """Yield the self joins among atoms that some event satisfies, with the atom t_A (lemma B.3) of each."""
    of_relation: dict[str, list[int]] = {}
    for i in sorted(atoms):
        of_relation.setdefault(query[i].relation, []).append(i)
    n_found = 0
    for numbers in of_relation.values():
        waiting: list[SelfJoin] = [(i,) for i in reversed(numbers)]
        while waiting:
            a = waiting.pop()
            found = merged([query[i] for i in a])
            if found is not None:  # else no event satisfies a larger self join either
                n_found += 1
                if n_found > MAX_TRANSITIONS:
                    raise _too_large()
                yield a, found[0]
                waiting += [(*a, i) for i in reversed(numbers) if i > a[-1]]


def merged(*sides: Sequence[Pattern]) -> tuple[Pattern, ...] | None:
    """Return one atom for each side, whose common instances are the events that satisfy all atoms of the sides.

    With one side that is t_A of lemma B.3, with two the atoms of lemma B.4.  Places that hold the same term belong
    together, and so do those linked by others (the transitive closure).  None: no events satisfy all atoms, as two
    constants would have to be equal.

    Raises
    ------
    ValueError
        If the atoms of one side differ in relation or in number of terms.
    """
    for side in sides:
        if len({(atom.relation, len(atom.terms)) for atom in side}) != 1:
            raise ValueError(f"expected atoms of one relation, got {', '.join(map(str, side))}")
    classes: list[tuple[set[tuple[int, int]], set[Any]]] = []
    for number, side in enumerate(sides):
        for place in range(len(side[0].terms)):
            places, terms = {(number, place)}, {atom.terms[place] for atom in side}
            apart = []
            for one in classes:
                if one[1].isdisjoint(terms):
                    apart.append(one)
                else:
                    places |= one[0]
                    terms |= one[1]
            classes = [*apart, (places, terms)]
    term_of: dict[tuple[int, int], Any] = {}
    for places, terms in classes:
        constants = [term for term in terms if not isinstance(term, Variable)]
        if len(constants) > 1:
            return None
        term_of |= dict.fromkeys(places, constants[0] if constants else min(terms))
    return tuple(
        Pattern(side[0].relation, tuple(term_of[number, place] for place in range(len(side[0].terms))))
        for number, side in enumerate(sides)
    )
