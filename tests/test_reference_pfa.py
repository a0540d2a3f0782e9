"""Parallelized finite automata: run trees by their definition, and determinisation."""

import itertools

import pytest
import reference_pfa
from hypothesis import given
from hypothesis import strategies as st
from reference_pfa import PFA, FiniteRunTree, TreeStep, determinize

from cer_gpu.errors import QueryTooLargeError


def pfa(steps, initial, final, states="", alphabet="TSR"):
    """An automaton of steps such as "p1,p3 R p4"; no source is written "-"."""
    made = []
    for step in steps:
        sources, symbol, target = step.split()
        made.append(TreeStep(frozenset(sources.split(",")) - {"-"}, symbol, target))
    named = {step.target for step in made}.union(states.split(), *(step.sources for step in made))
    return PFA(frozenset(named), frozenset(alphabet), tuple(made), frozenset(initial.split()), frozenset(final.split()))


def figure_1():
    loops = [f"p{i} {symbol} p{i}" for i in range(5) for symbol in "TSR"]
    return pfa(["p0 T p1", "p2 S p3", "p1,p3 R p4", *loops], "p0 p2", "p4")


def strings(longest, alphabet="TSR"):
    for n in range(longest + 1):
        yield from itertools.product(alphabet, repeat=n)


def test_figure_1_accepts_t_and_s_in_any_order_before_r():
    automaton, deterministic = figure_1(), determinize(figure_1())
    for string in strings(5):
        expected = any(symbol == "R" and {"T", "S"} <= {*string[:i]} for i, symbol in enumerate(string))
        assert automaton.accepts(string) == expected
        assert deterministic.accepts(string) == expected


def test_sizes_of_figure_1():
    """Five states, two transitions and 15 loops with a single source, and one with two."""
    assert figure_1().size == 5 + 17 * 2 + 3
    assert len(determinize(figure_1()).sets) == 5
    assert determinize(figure_1()).sets[0] == {"p0", "p2"}


def test_run_tree_of_figure_1_has_all_leaves_at_one_depth():
    (tree,) = figure_1().run_trees("TSR")
    upper = FiniteRunTree("p1", frozenset([FiniteRunTree("p1", frozenset([FiniteRunTree("p0")]))]))
    lower = FiniteRunTree("p3", frozenset([FiniteRunTree("p2", frozenset([FiniteRunTree("p2")]))]))
    assert tree == FiniteRunTree("p4", frozenset([upper, lower]))


def test_transition_without_sources_is_in_no_run_tree():
    """The determinisation of appendix A takes it nevertheless, and accepts a string that the automaton does not."""
    automaton = pfa(["- T q"], initial="", final="q")
    assert not automaton.accepts("T")
    assert not determinize(automaton).accepts("T")

    def as_written(reached, symbol):
        return {step.target for step in automaton.steps if step.symbol == symbol and step.sources <= reached}

    assert as_written(automaton.initial, "T") & automaton.final


def test_a_nondeterministic_automaton_is_one_whose_run_trees_are_lines():
    automaton = pfa(["a T a", "a S a", "a T b", "b S c"], "a", "c", alphabet="TS")
    for string in strings(4, "TS"):
        assert automaton.accepts(string) == (string[-2:] == ("T", "S"))


def exponential(n):
    """All 2^n sets of n states are reached: a symbol i moves a run out of state i or into it."""
    states = [str(i) for i in range(n)]
    stays = [f"{j} {kind}{i} {j}" for i in range(n) for j in range(n) for kind in "io" if i != j or kind == "i"]
    enters = [f"{(i + 1) % n} i{i} {i}" for i in range(n)]
    symbols = [f"{kind}{i}" for kind in "io" for i in range(n)]
    return pfa([*stays, *enters], " ".join(states), "0", alphabet=symbols)


def test_determinisation_reaches_at_most_2_to_the_n_sets(monkeypatch):
    assert len(determinize(exponential(5)).sets) == 2**5
    monkeypatch.setattr(reference_pfa, "MAX_TREE_STATES", 31)
    with pytest.raises(QueryTooLargeError, match="more than 31 states"):
        determinize(exponential(5))


@st.composite
def automata(draw):
    names = "abcd"
    sets = st.frozensets(st.sampled_from(names), max_size=3)
    step = st.builds(TreeStep, sets, st.sampled_from("TS"), st.sampled_from(names))
    steps = draw(st.lists(step, max_size=8))
    return PFA(frozenset(names), frozenset("TS"), tuple(steps), draw(sets), draw(sets))


@given(automata())
def test_acceptance_and_determinisation_agree_with_run_trees(automaton):
    deterministic = determinize(automaton)
    assert len(deterministic.sets) <= 2 ** len(automaton.states)
    for string in strings(4, "TS"):
        expected = next(automaton.run_trees(string), None) is not None
        assert automaton.accepts(string) == expected
        assert deterministic.accepts(string) == expected


@given(automata(), st.text("TS", max_size=3))
def test_run_trees_fulfil_the_definition(automaton, string):
    for tree in itertools.islice(automaton.run_trees(string), 20):
        assert tree.state in automaton.final
        level = [tree]
        for symbol in reversed(string):
            for node in level:
                sources = frozenset(child.state for child in node.children)
                assert len(sources) == len(node.children) > 0
                assert TreeStep(sources, symbol, node.state) in automaton.steps
            level = [child for node in level for child in node.children]
        assert all(leaf.state in automaton.initial and not leaf.children for leaf in level)
