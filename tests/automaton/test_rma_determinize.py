"""Determinisation of register match automata: exact if it is not refused, and wrong on shared registers."""

import pytest
import strategies
from hypothesis import assume, event
from rma_examples import (
    SENSORS,
    atom,
    compare,
    either,
    expression_1,
    formulas,
    holds,
    matches_by_definition,
    plus,
    related,
    streams,
    then,
)
from rma_interpreter import matches, recognised

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.automaton.rma import DeterministicRMA, RegisterTransition, SharedRegisterError
from cer_gpu.automaton.rma_construction import build_rma, without_silent
from cer_gpu.errors import QueryTooLargeError

AMBIGUOUS = related(
    then(plus(atom("A")), atom("A", 0), plus(atom("A")), atom("B", 1)), compare("y.k", "=", "x.k"), x=0, y=1
)
"""``A+ ; A AS x ; A+ ; B AS y FILTER y.k = x.k``: the same marks hold for several choices of x."""


def automaton_of(formula):
    return without_silent(build_rma(formula))


def events(text):
    return [{"type": word[0], "k": int(word[1:])} for word in text.split()]


def test_figure_1_is_deterministic():
    automaton = automaton_of(expression_1())
    deterministic = DeterministicRMA(automaton)
    assert matches(deterministic, SENSORS, holds) == matches(automaton, SENSORS, holds)
    # a marked and an unmarked transition out of the start state merge one transition each
    explored = deterministic.explored()
    assert [len(deterministic.states_of(state)) for state in range(deterministic.n_states)] == [1, 1, 1]
    assert explored.n_states == automaton.n_states
    assert {(t.source, t.target, t.marked) for t in explored.transitions} == {
        (0, 0, False),
        (0, 1, True),
        (1, 1, False),
        (1, 2, True),
    }


def test_runs_with_the_same_marks_are_merged():
    deterministic = DeterministicRMA(automaton_of(then(either(atom("A"), atom("A")), atom("B"))))
    explored = deterministic.explored()
    assert sorted(len(deterministic.states_of(state)) for state in range(explored.n_states)) == [1, 1, 1, 2]


def test_no_min_term_excludes_true():
    explored = DeterministicRMA(automaton_of(expression_1())).explored()
    assert all(formula for t in explored.transitions for formula, _ in t.guard)


def test_no_min_term_requires_two_types():
    explored = DeterministicRMA(automaton_of(plus(either(atom("A"), either(atom("B"), atom("C")))))).explored()
    required = [{c.test for f, positive in t.guard if positive for c in f} for t in explored.transitions]
    assert set(map(frozenset, required)) == {
        frozenset(),
        frozenset({Guard("A")}),
        frozenset({Guard("B")}),
        frozenset({Guard("C")}),
    }


def test_states_are_made_on_demand():
    deterministic = DeterministicRMA(automaton_of(expression_1()))
    assert deterministic.n_states == 1
    matches(deterministic, SENSORS[:3], holds)
    assert deterministic.n_states == 2
    matches(deterministic, SENSORS, holds)
    assert deterministic.n_states == 3


def test_more_states_than_the_bound_are_refused():
    deterministic = DeterministicRMA(automaton_of(expression_1()), max_states=2)
    matches(deterministic, SENSORS[:3], holds)
    with pytest.raises(QueryTooLargeError, match="more than 2 states"):
        matches(deterministic, SENSORS, holds)


def test_silent_transitions_are_refused():
    with pytest.raises(ValueError, match="without silent transitions"):
        DeterministicRMA(build_rma(plus(atom("A"))))


# ---- registers that several runs share ------------------------------------------------------------------------------


def test_merged_runs_that_store_different_events_are_refused():
    with pytest.raises(SharedRegisterError, match="different events as 'x'"):
        DeterministicRMA(automaton_of(AMBIGUOUS)).explored()


def test_without_the_check_theorem_5_5_does_not_hold():
    automaton = automaton_of(AMBIGUOUS)
    wrong = DeterministicRMA(automaton, checked=False)
    stream = events("A0 A1 A2 A3 B1")
    everything = frozenset({0, 1, 2, 3, 4})
    assert everything in matches(automaton, stream, holds)[4]
    assert everything not in matches(wrong, stream, holds).get(4, set())


def test_without_the_check_there_are_false_matches_too():
    # x is the third event before B
    before = then(plus(atom("A")), atom("A", 0), atom("A"), atom("A"), atom("B", 1))
    automaton = automaton_of(related(before, compare("y.k", "=", "x.k"), x=0, y=1))
    wrong = DeterministicRMA(automaton, checked=False)
    stream = events("A0 A1 A2 A3 A4 B4")
    everything = frozenset(range(6))
    assert everything not in matches(automaton, stream, holds).get(5, set())
    assert everything in matches(wrong, stream, holds)[5]


def test_figure_1_is_not_output_agnostic_determinisable():
    # theorem 6.2: a single run would have to remember every T event
    automaton = automaton_of(expression_1())
    with pytest.raises(SharedRegisterError):
        DeterministicRMA(automaton, output_agnostic=True).explored()
    wrong = DeterministicRMA(automaton, output_agnostic=True, checked=False)
    stream = [SENSORS[0], SENSORS[2], SENSORS[3]]
    assert recognised(automaton, stream, holds) == {2}
    assert recognised(wrong, stream, holds) == set()


def test_output_agnostic_automata_without_registers_need_no_window():
    automaton = automaton_of(then(atom("T"), plus(atom("H"))))
    single = DeterministicRMA(automaton, output_agnostic=True)
    assert recognised(single, SENSORS, holds) == recognised(automaton, SENSORS, holds) == {3, 4}


# ---- random formulas ------------------------------------------------------------------------------------------------


def drawn(data):
    formula = data.draw(formulas())
    return formula, automaton_of(formula), data.draw(streams())


@strategies.property_test()
def test_deterministic_automata_have_the_same_matches(data):
    formula, automaton, stream = drawn(data)
    try:
        found = matches(DeterministicRMA(automaton), stream, holds)
    except SharedRegisterError:
        event("refused")
        assume(False)
    event(f"registers: {automaton.n_registers}")
    assert found == matches_by_definition(formula, stream)


@strategies.property_test(0.5)
def test_output_agnostic_automata_recognise_the_same_ends(data):
    _, automaton, stream = drawn(data)
    try:
        found = recognised(DeterministicRMA(automaton, output_agnostic=True), stream, holds)
    except SharedRegisterError:
        assume(False)
    assert found == recognised(automaton, stream, holds)


@strategies.property_test(0.5)
def test_at_most_one_transition_with_an_output_applies(data):
    _, automaton, stream = drawn(data)
    agnostic = data.draw(strategies.st.booleans())
    deterministic = DeterministicRMA(automaton, output_agnostic=agnostic, checked=False)
    taken = []

    class Watched:
        start, n_registers = 0, deterministic.n_registers
        is_final, silent_targets = deterministic.is_final, deterministic.silent_targets

        def applicable(self, state, applies):
            transitions: list[RegisterTransition] = list(deterministic.applicable(state, applies))
            taken.append([t.marked for t in transitions])
            return transitions

    recognised(Watched(), stream, holds)
    assert taken
    assert all(len(outputs) <= 1 if agnostic else len(outputs) == len(set(outputs)) for outputs in taken)


@strategies.property_test(0.25)
def test_the_explored_automaton_has_the_same_runs(data):
    _, automaton, stream = drawn(data)
    deterministic = DeterministicRMA(automaton)
    try:
        explored = deterministic.explored()
    except (SharedRegisterError, QueryTooLargeError):
        assume(False)
    assert matches(explored, stream, holds) == matches(deterministic, stream, holds)
