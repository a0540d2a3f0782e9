import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pcea_examples import Q0, Q1, Q1_OF_SECTION_4, Q2, hierarchical_variables, queries, query_of

from cer_gpu.automaton.conjunctive import (
    ConjunctAtom,
    Crossing,
    crossing,
    is_acyclic,
    is_connected,
    join_tree,
    q_tree,
    why_not_hierarchical,
)

T0, S0, R0 = range(3)
R, S, T, U = range(4)


# ---- the paper's examples ---------------------------------------------------------------------------------------


def test_q0_is_hierarchical_and_q1_of_section_4_is_not():
    assert crossing(Q0) is None
    assert crossing(Q1_OF_SECTION_4) is not None
    assert is_acyclic(Q0)
    assert is_acyclic(Q1_OF_SECTION_4)


def test_the_reason_names_variables_and_atoms():
    assert crossing(Q1_OF_SECTION_4) == Crossing("x", "y", only_first=0, both=1, only_second=2)
    reason = why_not_hierarchical(Q1_OF_SECTION_4, ["T", "R", "S", "T_2"])
    assert reason == "R has both x and y, T has x but not y, and S has y but not x"
    assert why_not_hierarchical(Q1_OF_SECTION_4).startswith("atom 1 has both x and y, atom 0 has x")
    assert why_not_hierarchical(Q0) is None


def test_q_tree_of_figure_2():
    tree = q_tree(Q0)
    assert tree.edges == (("x", None), (T0, "x"), ("y", "x"), (S0, "y"), (R0, "y"))
    assert tree.compact() == tree


def test_q_trees_of_figures_3_and_4():
    tree = q_tree(Q1)
    assert dict(tree.edges) == {"x": None, "y": "x", "w": "x", "z": "y", "v": "y", R: "z", S: "v", T: "w", U: "y"}
    assert tree.compact().edges == (("x", None), ("y", "x"), (R, "y"), (S, "y"), (U, "y"), (T, "x"))
    # of the two valid q-trees of Q2 the one with x above y, by the order of the names
    assert dict(q_tree(Q2).edges) == {"x": None, "y": "x", "z": "y", "v": "y", 0: "z", 1: "v", 2: "y"}
    assert q_tree(Q2).compact().edges == (("x", None), (0, "x"), (1, "x"), (2, "x"))


def test_incomplete_states_of_figure_4():
    """The paper says that C_{y,U} is {R, S, T}, but T does not hang below y: that is C_{x,U}."""
    tree = q_tree(Q1).compact()
    assert set(tree.incomplete("y", [U])) == {R, S}
    assert set(tree.incomplete("x", [U])) == {R, S, T}
    assert set(tree.incomplete("x", [T])) == {"y"}


def test_incomplete_states_of_self_joins():
    tree = q_tree(Q2).compact()
    assert tree.incomplete("x", [0]) == (1, 2)
    assert tree.incomplete("x", [0, 1]) == (2,)
    wide = q_tree(query_of("R(x, y), S(x, y), R(x, z), T(x, z)")).compact()
    assert wide.incomplete("x", [0]) == (1, "z")
    assert wide.incomplete("x", [0, 2]) == (1, 3)
    assert wide.incomplete("y", [0]) == (1,)


# ---- edges ------------------------------------------------------------------------------------------------------


def test_unconnected_queries_hang_below_a_fresh_variable():
    query = query_of("R(x), S(x), T()")
    assert not is_connected(query)
    tree = q_tree(query)
    assert tree.edges == (("*", None), ("x", "*"), (0, "x"), (1, "x"), (2, "*"))
    assert tree.shared("x", 2) == frozenset()
    assert q_tree(query_of("R(*), S(x)")).root == "**"


def test_atom_without_variables_is_connected_only_to_itself():
    assert is_connected(query_of("T()"))
    assert not is_connected(query_of("T(), T()"))
    assert q_tree(query_of("T(), T()")).edges == (("*", None), (0, "*"), (1, "*"))


def test_single_atom():
    tree = q_tree(query_of("R(y, x)"))
    assert tree.edges == (("x", None), ("y", "x"), (0, "y"))
    assert tree.compact().edges == ((0, None),)
    assert tree.leaves() == (0,)
    assert tree.compact().root == 0
    assert q_tree(query_of("T()")).edges == ((0, None),)


def test_atoms_of_equal_variables():
    query = query_of("R(x, y), R(x, y)")
    assert q_tree(query).edges == (("x", None), ("y", "x"), (0, "y"), (1, "y"))
    assert q_tree(query).compact().edges == (("x", None), (0, "x"), (1, "x"))


def test_tree_has_parents_children_ancestors_and_descendants():
    tree = q_tree(Q0)
    assert tree.nodes == ("x", T0, "y", S0, R0)
    assert tree.inner == ("x", "y")
    assert dict(tree.edges)[S0] == "y"
    assert dict(tree.edges)["x"] is None
    assert tree.children("x") == (T0, "y")
    assert tree.children(T0) == ()
    assert tree.ancestors(R0) == ("x", "y", R0)
    assert tree.path(R0) == ("x", "y")
    assert tree.descendants("y") == ("y", S0, R0)
    assert tree.leaves() == (T0, S0, R0)
    assert tree.leaves("y") == (S0, R0)
    assert tree.shared("y", T0) == {"x"}
    assert tree.shared(S0, R0) == {"x", "y"}


def test_no_tree_for_queries_that_are_not_hierarchical_or_empty():
    with pytest.raises(ValueError, match="expected a hierarchical query, but atom 1 has both x and y"):
        q_tree(Q1_OF_SECTION_4)
    with pytest.raises(ValueError, match="at least one atom"):
        q_tree(())


def test_triangle_is_cyclic_until_an_atom_covers_it():
    assert join_tree(query_of("R(x, y), S(y, z), T(z, x)")) is None
    assert join_tree(query_of("R(x, y), S(y, z), T(z, x), U(x, y, z)")) == (None, 3, 3, 0)


# ---- definitions by brute force ---------------------------------------------------------------------------------


def connects(parents, members):
    """True if the edges between members connect them."""
    return sum(parents[i] in members for i in members) == len(members) - 1


def is_join_tree(atoms, parents):
    names = frozenset().union(*(atom.variables for atom in atoms))
    return parents.count(None) == 1 and all(
        connects(parents, {i for i, atom in enumerate(atoms) if name in atom.variables}) for name in names
    )


def rooted_trees(n):
    """All trees on 0 .. n-1 with root 0."""
    for parents in itertools.product(range(n), repeat=n - 1):
        tree = [None, *parents]
        if all(reaches_root(tree, i) for i in range(n)):
            yield tree


def reaches_root(tree, i):
    for _ in tree:
        i = i and tree[i]
    return i == 0


@given(queries(most=4, names="wxyz"))
def test_join_tree_exists_where_some_tree_is_one(atoms):
    found = join_tree(atoms)
    assert (found is not None) == any(is_join_tree(atoms, tree) for tree in rooted_trees(len(atoms)))
    assert found is None or is_join_tree(atoms, list(found))


@given(queries())
def test_hierarchical_by_its_definition(atoms):
    names = sorted(frozenset().union(*(atom.variables for atom in atoms)))
    sets = [{i for i, atom in enumerate(atoms) if name in atom.variables} for name in names]
    holds = all(a <= b or b <= a or not a & b for a, b in itertools.combinations(sets, 2))
    assert (crossing(atoms) is None) == holds
    found = crossing(atoms)
    if found is not None:
        first, second = (sets[names.index(x)] for x in (found.first, found.second))
        assert found.both in first & second
        assert found.only_first in first - second
        assert found.only_second in second - first


@st.composite
def hierarchical_queries(draw):
    return tuple(ConjunctAtom(draw(st.sampled_from("RS")), variables) for variables in draw(hierarchical_variables()))


@given(hierarchical_queries())
def test_q_tree_of_any_hierarchical_query(atoms):
    """Theorem B.1 and the definition of q-trees; a hierarchical query is acyclic."""
    assert crossing(atoms) is None
    assert is_acyclic(atoms)
    tree = q_tree(atoms)
    assert sorted(tree.leaves()) == list(range(len(atoms)))
    assert len(set(tree.nodes)) == len(tree.nodes)
    fresh = set() if is_connected(atoms) else {"*"}
    for i, atom in enumerate(atoms):
        assert set(tree.path(i)) == atom.variables | fresh
    assert all(tree.children(variable) for variable in tree.inner)

    compact = tree.compact()
    assert sorted(compact.leaves()) == list(range(len(atoms)))
    assert all(len(compact.children(variable)) > 1 for variable in compact.inner)
    for i in range(len(atoms)):
        assert set(compact.path(i)) <= set(tree.path(i))
    assert compact.compact() == compact
    ways = [{frozenset(t.leaves(x)) for x in t.inner if len(t.leaves(x)) > 1} for t in (tree, compact)]
    assert ways[0] == ways[1]


@given(hierarchical_queries(), st.data())
def test_incomplete_states_and_the_event_complete_each_atom_once(atoms, data):
    tree = q_tree(atoms).compact()
    if not tree.inner:
        return
    variable = data.draw(st.sampled_from(tree.inner))
    chosen = data.draw(st.frozensets(st.sampled_from(tree.leaves(variable)), min_size=1))
    below = [leaf for node in tree.incomplete(variable, chosen) for leaf in tree.leaves(node)]
    assert sorted([*below, *chosen]) == sorted(tree.leaves(variable))
    for node in tree.incomplete(variable, chosen):
        parent = dict(tree.edges)[node]
        assert any(parent in tree.path(i) for i in chosen)
