"""Parallelized complex event automata: the paper's examples, and the automata of hierarchical conjunctive queries."""

from dataclasses import replace

import pytest
import reference_pcea_construction
from hypothesis import given
from hypothesis import strategies as st
from pcea_examples import (
    DOT,
    STREAM,
    at,
    atom,
    atoms_of,
    by_last_event,
    c0,
    hierarchical_atoms,
    joins,
    p0,
    stream_of,
    streams,
    t_homomorphisms,
    to_atoms,
)
from reference_pcea import (
    PCEA,
    Event,
    PceaTransition,
    RunTree,
    accepting_runs,
    ambiguous_runs,
    chain,
    equality,
    outputs,
    run_trees,
)
from reference_pcea_construction import build_pcea, merged, with_self_joins, without_self_joins

from cer_gpu.errors import QueryTooLargeError

Q0 = atoms_of("T(x), S(x, y), R(x, y)")
NOTHING = set()


# ---- predicates -------------------------------------------------------------------------------------------------


def test_an_atom_holds_for_its_instances():
    assert atom("S(x, y)").holds(Event("S", (1, 2)))
    assert not atom("S(x, y)").holds(Event("R", (1, 2)))
    assert not atom("S(x, y)").holds(Event("S", (1,)))
    assert atom("S(x, x)").holds(Event("S", (1, 1)))
    assert not atom("S(x, x)").holds(Event("S", (1, 2)))
    assert not atom("S(2, y)").holds(Event("S", (1, 2)))


def test_equality_predicate_of_two_atoms():
    """The predicate (Tx, Sxy) of section 2."""
    predicate = joins("T(x)", "S(x, y)")
    assert predicate.holds(Event("T", (1,)), Event("S", (1, 2)))
    assert not predicate.holds(Event("T", (2,)), Event("S", (1, 2)))
    assert not predicate.holds(Event("S", (1, 2)), Event("T", (1,)))
    assert predicate.left.value(Event("R", (1, 2))) is None
    assert str(predicate) == "(T(x), S(x, y))"


def test_equality_predicate_of_several_earlier_relations():
    """The predicate (?xy, Tx) of figure 2."""
    predicate = joins("S(x, y), R(x, y)", "T(x)")
    assert predicate.holds(Event("S", (1, 2)), Event("T", (1,)))
    assert predicate.holds(Event("R", (1, 2)), Event("T", (1,)))
    assert str(predicate) == "(S(x, y) or R(x, y), T(x))"
    with pytest.raises(ValueError, match="share the same variables"):
        joins("S(x, y), R(x, y), U(y)", "T(x)")


# ---- the paper's examples ---------------------------------------------------------------------------------------


def test_example_2_1():
    (run,) = accepting_runs(c0(), STREAM)[5]
    assert [(node.state, node.position) for node in run.nodes()] == [("q2", 5), ("q1", 3), ("q0", 1)]
    assert outputs(c0(), STREAM) == [NOTHING] * 5 + [{at(1, 3, 5)}] + [NOTHING] * 2
    assert c0().is_chain


def test_a_chain_has_one_initial_predicate_for_each_state():
    with pytest.raises(ValueError, match="one initial predicate"):
        chain(["q"], [("q", atom("T(x)"), DOT), ("q", atom("S(x, y)"), DOT)], [], ["q"])


def test_example_3_3():
    def run(*positions):
        t, s, r = positions
        dot = frozenset(DOT)
        return RunTree("q2", r, dot, frozenset([RunTree("q0", t, dot), RunTree("q1", s, dot)]))

    assert set(accepting_runs(p0(), STREAM)[5]) == {run(1, 3, 5), run(1, 0, 5)}
    assert outputs(p0(), STREAM) == [NOTHING] * 5 + [{at(1, 3, 5), at(0, 1, 5)}] + [NOTHING] * 2
    assert not p0().is_chain
    assert ambiguous_runs(p0(), STREAM) == ()
    assert p0().size == 3 + 1 + 1 + 3


def test_p0_needs_r_last():
    """Section 3 shows with this stream that chains do not suffice for P0, which has no output over it.

    The automaton of figure 2 has one (proposition 3.4), and for P0 the events S, T, R show the same: no chain
    compares the second values of S and R, with T between them.
    """
    stream = stream_of("R(1, 2), T(1), S(1, 2)")
    assert outputs(p0(), stream) == [NOTHING] * 3
    assert outputs(build_pcea(Q0), stream) == [NOTHING] * 2 + [{to_atoms(1, 2, 0)}]
    assert outputs(p0(), stream_of("S(1, 2), T(1), R(1, 2)"))[2] == {at(0, 1, 2)}


def test_figure_2():
    """The transitions are those that the proof of proposition 3.4 lists."""
    t, s, r = Q0
    assert build_pcea(Q0) == PCEA(
        ("x", 0, "y", 1, 2),
        (
            PceaTransition((), t, frozenset([0]), 0),
            PceaTransition((), s, frozenset([1]), 1),
            PceaTransition((), r, frozenset([2]), 2),
            PceaTransition((("y", equality([s, r], t)),), t, frozenset([0]), "x"),
            PceaTransition(((0, equality([t], s)), (2, equality([r], s))), s, frozenset([1]), "x"),
            PceaTransition(((2, equality([r], s)),), s, frozenset([1]), "y"),
            PceaTransition(((0, equality([t], r)), (1, equality([s], r))), r, frozenset([2]), "x"),
            PceaTransition(((1, equality([s], r)),), r, frozenset([2]), "y"),
        ),
        frozenset(["x"]),
    )
    assert build_pcea(Q0).size == 5 + 3 * 1 + 3 * 2 + 2 * 3


def test_results_of_figure_2():
    """Both t-homomorphisms of section 4, when their last event arrives."""
    assert outputs(build_pcea(Q0), STREAM) == [NOTHING] * 5 + [{to_atoms(1, 3, 5), to_atoms(1, 0, 5)}] + [NOTHING] * 2


def test_a_result_is_output_once():
    """Theorem 4.1 asks for all t-homomorphisms to the events so far at each position, and no automaton has them."""
    expected = t_homomorphisms(Q0, STREAM[:7])
    assert expected == {to_atoms(1, 3, 5), to_atoms(1, 0, 5)}
    assert outputs(build_pcea(Q0), STREAM)[6] == NOTHING


def test_outputs_in_a_window():
    assert outputs(build_pcea(Q0), STREAM, window=4)[5] == {to_atoms(1, 3, 5)}
    assert outputs(build_pcea(Q0), STREAM, window=3)[5] == NOTHING


# ---- ambiguity --------------------------------------------------------------------------------------------------


def test_a_run_that_marks_a_position_twice_is_not_simple():
    t, s = atoms_of("T(x), S(x)")
    dot = frozenset(DOT)
    both = (("p", equality([t], s)), ("q", equality([t], s)))
    starts = PceaTransition((), t, dot, "p"), PceaTransition((), t, dot, "q")
    automaton = PCEA(("p", "q", "r"), (*starts, PceaTransition(both, s, dot, "r")), frozenset("r"))
    (found,) = ambiguous_runs(automaton, stream_of("T(1), S(1)"))
    assert not found.is_simple
    assert found.valuation == at(0, 1)
    assert outputs(automaton, stream_of("T(1), S(1)"))[1] == {at(0, 1)}


def test_two_runs_with_one_valuation_are_ambiguous():
    automaton = chain("pq", [("p", atom("T(x)"), DOT), ("q", atom("T(1)"), DOT)], [], "pq")
    assert len(ambiguous_runs(automaton, stream_of("T(1)"))) == 2
    assert ambiguous_runs(automaton, stream_of("T(2)")) == ()


def test_two_transitions_may_give_one_run_tree():
    starts = (
        PceaTransition((), atom("T(x)"), frozenset(DOT), "p"),
        PceaTransition((), atom("T(1)"), frozenset(DOT), "p"),
    )
    automaton = PCEA(("p",), starts, frozenset("p"))
    assert [len(trees) for trees in run_trees(automaton, stream_of("T(1), T(2)"))] == [1, 1]


# ---- queries without self joins -----------------------------------------------------------------------------------


def size_of_query(query):
    return sum(1 + len(pattern.terms) for pattern in query)


def star(n, relation="R{}"):
    """R0(x, y0), R1(x, y1), ..."""
    return atoms_of(", ".join(f"{relation.format(i)}(x, y{i})" for i in range(n)))


def caterpillar(n):
    """R0(x0), R1(x0, x1), R2(x0, x1, x2), ..."""
    return atoms_of(", ".join(f"R{i}({', '.join(f'x{j}' for j in range(i + 1))})" for i in range(n)))


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20])
def test_size_of_a_star_is_quadratic(n):
    """The variable and n atoms; n starts; and n transitions to the variable, with n - 1 sources each."""
    assert without_self_joins(star(n)).size == (n + 1) + n + n * n


@pytest.mark.parametrize("n", [2, 3, 10, 30])
def test_size_of_a_deep_q_tree_is_cubic_in_its_atoms_and_quadratic_in_its_terms(n):
    """Atom i has a transition to each of i + 1 variables, with as many sources as nodes hang from the path to it."""
    sizes = [i - j + 2 for i in range(n - 1) for j in range(i + 1)] + [n - j for j in range(n - 1)]
    size = without_self_joins(caterpillar(n)).size
    assert size == (2 * n - 1) + n + sum(sizes)
    assert size > n**3 / 6
    assert size <= 2 * size_of_query(caterpillar(n)) ** 2


@given(hierarchical_atoms({"A": 1, "B": 2, "C": 2, "D": 3, "E": 3, "F": 0}, distinct=True, most=6))
def test_size_is_at_most_quadratic(query):
    assert without_self_joins(query).size <= 2 * size_of_query(query) ** 2


def check(query, stream, automaton):
    assert outputs(automaton, stream) == by_last_event(query, stream)
    assert ambiguous_runs(automaton, stream) == ()


DISTINCT = {"R": 2, "S": 2, "T": 1, "U": 3}
JOINED = {"R": 2, "S": 2}


@given(st.data())
def test_outputs_are_the_t_homomorphisms_without_self_joins(data):
    query = data.draw(hierarchical_atoms(DISTINCT, distinct=True))
    stream = data.draw(streams(query))
    check(query, stream, without_self_joins(query))
    check(query, stream, with_self_joins(query))


# ---- queries with self joins --------------------------------------------------------------------------------------


def test_one_event_satisfies_two_atoms():
    query = atoms_of("R(x, y), R(x, z), T(x)")
    stream = stream_of("R(1, 2), T(1), R(1, 3)")
    assert outputs(build_pcea(query), stream) == [
        NOTHING,
        {to_atoms(0, 0, 1)},
        {to_atoms(0, 2, 1), to_atoms(2, 0, 1), to_atoms(2, 2, 1)},
    ]
    assert ambiguous_runs(build_pcea(query), stream) == ()


def test_states_of_a_self_join():
    query = atoms_of("R(x, y), R(x, z), T(x)")
    automaton = build_pcea(query)
    assert automaton.states == (0, 1, 2, ("x", (0,)), ("x", (0, 1)), ("x", (1,)), ("x", (2,)))
    assert automaton.finals == {("x", a) for a in [(0,), (0, 1), (1,), (2,)]}
    into = {t.target: t.sources for t in automaton.transitions if t.joins}
    assert into == {("x", (0,)): (1, 2), ("x", (0, 1)): (2,), ("x", (1,)): (0, 2), ("x", (2,)): (0, 1)}


@pytest.mark.parametrize("n", range(2, 9))
def test_size_with_self_joins_is_exponential(n):
    """A transition for each set of atoms, with the others as sources."""
    assert with_self_joins(star(n, "R")).size == (n + 2**n - 1) + n + (2**n - 1) * n


def test_too_large_automata_are_refused(monkeypatch):
    with pytest.raises(QueryTooLargeError, match=r"more than 16,384 transitions\nhint: their number grows exp"):
        build_pcea(star(40, "R"))
    monkeypatch.setattr(reference_pcea_construction, "MAX_TRANSITIONS", 7)
    with pytest.raises(QueryTooLargeError, match="more than 7 transitions"):
        build_pcea(Q0)


def test_a_self_join_that_no_event_satisfies_has_no_transition():
    query = atoms_of("R(1, x), R(2, x), R(y, x)")
    automaton = build_pcea(query)
    assert [a for x, a in automaton.finals]
    assert {a for x, a in automaton.finals} == {(0,), (1,), (2,), (0, 2), (1, 2)}
    assert len(build_pcea(atoms_of(", ".join(f"R({i}, x)" for i in range(100)))).transitions) == 200


def test_an_encoding_holds_no_further_pairs():
    """By the paper's words an encoding of C_{x,{0}} may have the pair (x, {0}) too, but then atom 0 is marked twice."""
    query = atoms_of("T(x), R(x, y), R(x, y)")
    automaton = build_pcea(query)
    (gathered,) = [t for t in automaton.transitions if t.target == ("x", (0,)) and ("y", (1, 2)) in t.sources]
    again = ("x", (0,)), equality([query[0]], query[0])
    wrong = replace(gathered, joins=(*gathered.joins, again))
    stream = stream_of("R(1, 1), T(1), T(1)")
    (run,) = ambiguous_runs(replace(automaton, transitions=(*automaton.transitions, wrong)), stream)
    assert run.valuation == to_atoms(1, 0, 0) | to_atoms(2, 0, 0)
    check(query, stream, automaton)


def test_lemma_b_3_is_transitive():
    assert merged(atoms_of("R(x, y), R(y, z)")) == atoms_of("R(x, x)")
    assert merged(atoms_of("R(x, y, u), R(z, x, v)")) == atoms_of("R(x, x, u)")
    assert merged(atoms_of("R(x, 1), R(2, x)")) is None
    assert merged(atoms_of("R(x, 1), R(x, y)")) == atoms_of("R(x, 1)")
    with pytest.raises(ValueError, match="one relation"):
        merged(atoms_of("R(x), S(x)"))


def test_lemma_b_4_links_both_sides():
    left, right = merged(atoms_of("R(x, y), R(x, 1)"), atoms_of("S(y, z)"))
    assert (left, right) == atoms_of("R(x, 1), S(1, z)")
    left, right = merged(atoms_of("R(x, y)"), atoms_of("R(y, z), R(x, z)"))
    assert (left, right) == atoms_of("R(x, x), R(x, z)")


@given(st.data())
def test_outputs_are_the_t_homomorphisms_with_self_joins(data):
    query = data.draw(hierarchical_atoms(JOINED))
    check(query, data.draw(streams(query, n_more=2)), build_pcea(query))


@pytest.mark.parametrize(
    "text",
    [
        "T(x)",
        "T(1)",
        "T(x), T(x)",
        "T(x), T(y)",
        "T(1), T(2)",
        "T(1), R(x, y)",
        "R(x, y), R(y, x)",
        "R(x, x), R(x, 1), T(x)",
        "R(x, y), S(x, y), R(x, z), S(x, z)",
        "R(x, y), R(x, y), R(x, z), R(x, z)",
    ],
)
def test_outputs_of_queries_by_hand(text):
    query = atoms_of(text)
    stream = stream_of("R(1, 1), T(1), S(1, 1), R(1, 2), T(2), R(2, 1), S(1, 2), R(1, 1)")
    check(query, stream, build_pcea(query))


def test_queries_that_are_not_hierarchical_are_refused():
    with pytest.raises(ValueError, match="hierarchical"):
        build_pcea(atoms_of("T(x), R(x, y), S(y)"))
    with pytest.raises(ValueError, match="distinct relations"):
        without_self_joins(atoms_of("T(x), T(y)"))
