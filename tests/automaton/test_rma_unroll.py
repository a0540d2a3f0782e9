"""Automata of windowed expressions: figure 3, the window, and output-agnostic automata that recognise its matches."""

import pytest
import strategies
from hypothesis import event
from rma_examples import (
    SENSORS,
    atom,
    compare,
    expression_1,
    formulas,
    holds,
    matches_by_definition,
    nested,
    plus,
    related,
    streams,
    then,
    unwritten_reads,
)
from rma_interpreter import matches, recognised

from cer_gpu.automaton.recogniser import output_agnostic_rma, unroll, unroll_in_phases, windowed_rma
from cer_gpu.automaton.rma import RMA, DeterministicRMA, RegisterTransition, SharedRegisterError, live_registers
from cer_gpu.automaton.rma_construction import build_rma, without_silent
from cer_gpu.errors import QueryTooLargeError

FIGURE_1 = build_rma(expression_1())


def looped(automaton):
    return RMA(
        automaton.n_states,
        automaton.start,
        automaton.finals,
        automaton.registers,
        (RegisterTransition(automaton.start, (), automaton.start), *automaton.transitions),
    )


def shape(automaton):
    return [(t.source, t.target, set(t.writes), t.selection, t.marked) for t in automaton.transitions]


# ---- figure 3 -------------------------------------------------------------------------------------------------------


def test_figure_3_a_for_windows_of_two_events():
    unrolled = unroll(FIGURE_1, 2)
    assert shape(unrolled) == [(0, 1, {0}, (-1,), True), (1, 2, set(), (-1, 0), True)]
    assert unrolled.finals == {2}
    assert unrolled.registers == ("x",)


def test_figure_3_a_for_windows_of_three_events():
    unrolled = unroll(FIGURE_1, 3)
    assert shape(unrolled) == [
        (0, 1, set(), (-1,), False),  # the loop of the start state
        (0, 2, {0}, (-1,), True),
        (1, 3, {1}, (-1,), True),
        (2, 4, set(), (-1,), False),  # the waiting loop
        (2, 5, set(), (-1, 0), True),
        (3, 6, set(), (-1, 1), True),
        (4, 7, set(), (-1, 0), True),
    ]
    assert unrolled.finals == {5, 6, 7}
    assert unrolled.n_registers == 2  # two consecutive T events before an H event


def test_figure_3_b():
    deterministic = DeterministicRMA(looped(unroll(FIGURE_1, 2)), output_agnostic=True)
    explored = deterministic.explored()
    inside = [set(deterministic.states_of(state)) for state in range(deterministic.n_states)]
    assert sorted(map(sorted, inside)) == [[0], [0, 1], [0, 2]]
    ends = {(*sorted(inside[t.source]), "to", *sorted(inside[t.target]), *t.writes) for t in explored.transitions}
    assert ends == {
        (0, "to", 0),
        (0, "to", 0, 1, 0),
        (0, 1, "to", 0),
        (0, 1, "to", 0, 1, 0),
        (0, 1, "to", 0, 2),
        (0, 2, "to", 0),
        (0, 2, "to", 0, 1, 0),
    }


def test_the_single_run_marks_both_t_events():
    # the paper's example: two T events, then an H event
    stream = [SENSORS[0], SENSORS[1], SENSORS[3]]
    automaton = looped(unroll(FIGURE_1, 2))
    assert matches(automaton, stream, holds) == {2: {frozenset({1, 2})}}
    single = DeterministicRMA(automaton, output_agnostic=True)
    assert matches(single, stream, holds) == {2: {frozenset({0, 1, 2})}}


def test_corollary_6_7_does_not_hold_for_the_tree():
    # after T, T the loop of the start state has put the second T into the register of the first
    tree = looped(unroll(FIGURE_1, 3))
    stream = [SENSORS[0], SENSORS[2], SENSORS[3]]
    assert recognised(tree, stream, holds) == {2}
    assert recognised(DeterministicRMA(tree, output_agnostic=True, checked=False), stream, holds) == set()
    with pytest.raises(SharedRegisterError):
        recognised(DeterministicRMA(tree, output_agnostic=True), stream, holds)
    assert recognised(output_agnostic_rma(expression_1(), 3), stream, holds) == {2}


# ---- windows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("w", "found"), [(1, []), (2, []), (3, [(1, 3)]), (4, [(0, 3), (1, 3), (1, 4)])])
def test_windows_of_expression_1(w, found):
    expected = {}
    for pair in found:
        expected.setdefault(pair[1], set()).add(frozenset(pair))
    assert matches(windowed_rma(expression_1(), w), SENSORS, holds) == expected
    assert recognised(output_agnostic_rma(expression_1(), w), SENSORS, holds) == set(expected)


def test_an_unrolled_automaton_has_no_cycle_but_the_loop_of_its_start():
    automaton = windowed_rma(nested(), 8)
    assert automaton.transitions[0] == RegisterTransition(0, (), 0)
    assert all(t.source < t.target for t in automaton.transitions[1:])
    targets = [t.target for t in automaton.transitions[1:]]
    assert len(targets) == len(set(targets)) == automaton.n_states - 1


def test_no_walk_of_an_unrolled_automaton_is_in_vain():
    automaton = windowed_rma(nested(), 8)
    before = {t.target: t.source for t in automaton.transitions[1:]}
    useful = set()
    for state in automaton.finals:
        while state not in useful:
            useful.add(state)
            state = before.get(state, state)
    assert useful == set(range(automaton.n_states))


def test_an_automaton_in_phases_has_one_register_for_each_earlier_event_of_a_window():
    automaton = without_silent(build_rma(nested(), loop=False))
    for w in (2, 4, 7):
        assert unroll_in_phases(automaton, w).n_registers <= w - 1


def test_an_automaton_in_phases_without_filters_has_no_register():
    automaton = unroll_in_phases(without_silent(build_rma(then(atom("A"), atom("B")), loop=False)), 5)
    assert automaton.n_registers == 0
    assert live_registers(automaton) == [frozenset()] * automaton.n_states


def test_more_states_than_the_bounds_are_refused():
    with pytest.raises(QueryTooLargeError, match="unrolled automaton has more than 50 states"):
        windowed_rma(nested(), 12, max_states=50)
    with pytest.raises(QueryTooLargeError, match="unrolled automaton has more than 50 states"):
        output_agnostic_rma(nested(), 12, max_unrolled=50)
    small = output_agnostic_rma(expression_1(), 4, max_states=3)
    with pytest.raises(QueryTooLargeError, match="deterministic automaton has more than 3 states"):
        recognised(small, SENSORS, holds)


def test_a_single_run_finds_the_ends_of_iterated_filters():
    formula = then(atom("T", 0), plus(related(atom("H", 1), compare("y.id", "=", "x.id"), x=0, y=1)))
    assert recognised(output_agnostic_rma(formula, 4), SENSORS, holds) == {3, 4}
    assert recognised(output_agnostic_rma(formula, 3), SENSORS, holds) == {3}


# ---- random formulas ------------------------------------------------------------------------------------------------


def drawn(data):
    formula, w = data.draw(formulas()), data.draw(strategies.st.integers(1, 6))
    event(f"registers: {build_rma(formula).n_registers}")
    return formula, w, data.draw(streams(7))


@strategies.property_test()
def test_windowed_automata_have_the_matches_within_the_window(data):
    formula, w, stream = drawn(data)
    automaton = windowed_rma(formula, w)
    assert unwritten_reads(automaton) == set()
    assert matches(automaton, stream, holds) == matches_by_definition(formula, stream, w)


@strategies.property_test(0.5)
def test_automata_in_phases_have_the_same_matches(data):
    formula, w, stream = drawn(data)
    automaton = unroll_in_phases(without_silent(build_rma(formula, loop=False)), w)
    assert unwritten_reads(automaton) == set()
    assert matches(automaton, stream, holds) == matches_by_definition(formula, stream, w)


@strategies.property_test(0.5)
def test_unrolling_the_loop_of_the_start_adds_no_match(data):
    formula, w, stream = drawn(data)
    automaton = looped(unroll(without_silent(build_rma(formula)), w))
    assert matches(automaton, stream, holds) == matches_by_definition(formula, stream, w)


@strategies.property_test()
def test_output_agnostic_automata_recognise_the_ends_of_matches(data):
    formula, w, stream = drawn(data)
    automaton = output_agnostic_rma(formula, w)
    assert recognised(automaton, stream, holds) == set(matches_by_definition(formula, stream, w))
