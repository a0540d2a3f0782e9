"""Register match automata as in the paper: figure 1 by hand, its run, its matches, and structural properties."""

import itertools

import pytest
from rma_examples import SENSORS, compare, holds, unwritten_reads
from rma_interpreter import Configuration, initial, matches, recognised, successors

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.automaton.rma import CURRENT, RMA, RegisterCondition, RegisterTransition, live_registers, silent_closure

T = (RegisterCondition(Guard("T")),)
H_OF_SAME_SENSOR = (
    RegisterCondition(Guard("H")),
    RegisterCondition(compare("z.id", "=", "w.id"), (CURRENT, 0), ("z", "w")),
)


def figure_1():
    """States 0 (q^s), 1 (q^1) and 2 (q^f)."""
    transitions = (
        RegisterTransition(0, (), 0),
        RegisterTransition(0, ((T, True),), 1, frozenset({0}), marked=True),
        RegisterTransition(1, (), 1),
        RegisterTransition(1, ((H_OF_SAME_SENSOR, True),), 2, marked=True),
    )
    return RMA(3, 0, frozenset({2}), ("x",), transitions)


def test_run_3_of_the_paper_is_a_run():
    run = [
        Configuration(0, 0, (None,)),
        Configuration(1, 0, (None,)),
        Configuration(2, 1, (1,), frozenset({1})),
        Configuration(3, 1, (1,), frozenset({1})),
        Configuration(4, 2, (1,), frozenset({1, 3})),
    ]
    automaton = figure_1()
    assert run[0] == initial(automaton)
    for before, after in itertools.pairwise(run):
        assert after in successors(automaton, before, SENSORS, holds)
    assert automaton.is_final(run[-1].state)


def test_a_configuration_has_a_successor_for_each_transition_that_applies():
    found = successors(figure_1(), Configuration(1, 0, (None,)), SENSORS, holds)
    assert found == {Configuration(2, 0, (None,)), Configuration(2, 1, (1,), frozenset({1}))}
    # the fourth event is of the sensor with id 1, and the register holds one of the sensor with id 2
    assert {c.state for c in successors(figure_1(), Configuration(3, 1, (2,)), SENSORS, holds)} == {1}


def test_figure_1_has_the_matches_of_the_paper():
    assert matches(figure_1(), SENSORS, holds) == {
        3: {frozenset({0, 3}), frozenset({1, 3})},
        4: {frozenset({0, 4}), frozenset({1, 4})},
    }
    assert recognised(figure_1(), SENSORS, holds) == {3, 4}


def test_a_negated_formula_holds_where_the_formula_is_not_true():
    automaton = RMA(2, 0, frozenset({1}), (), (RegisterTransition(0, ((T, False),), 1, marked=True),))
    assert matches(automaton, SENSORS[3:], holds) == {0: {frozenset({0})}}
    assert matches(automaton, SENSORS, holds) == {}


def test_a_negated_condition_holds_where_the_test_does_not():
    not_t = (RegisterCondition(Guard("T"), negated=True),)
    automaton = RMA(2, 0, frozenset({1}), (), (RegisterTransition(0, ((not_t, True),), 1),))
    assert recognised(automaton, SENSORS[3:], holds) == {0}
    assert recognised(automaton, SENSORS, holds) == set()


def test_reading_an_empty_register_is_an_error():
    automaton = RMA(2, 0, frozenset({1}), ("x",), (RegisterTransition(0, ((H_OF_SAME_SENSOR, True),), 1),))
    with pytest.raises(ValueError, match="register 0, which is empty"):
        matches(automaton, SENSORS[3:], holds)
    assert unwritten_reads(automaton) == set(automaton.transitions)


def test_figure_1_writes_its_register_before_it_reads_it():
    assert unwritten_reads(figure_1()) == set()


def test_a_register_written_on_one_trail_alone_may_be_empty():
    automaton = figure_1()
    around = RegisterTransition(0, (), 1)
    automaton = RMA(3, 0, automaton.finals, automaton.registers, (*automaton.transitions, around))
    assert {t.source for t in unwritten_reads(automaton)} == {1}


def test_registers_are_live_until_they_are_read_for_the_last_time():
    assert live_registers(figure_1()) == [frozenset(), frozenset({0}), frozenset()]


def test_silent_transitions_read_no_event():
    transitions = (RegisterTransition(1, ((T, True),), 2, marked=True),)
    automaton = RMA(4, 0, frozenset({3}), (), transitions, silent=((0, 1), (2, 3), (3, 0)))
    assert silent_closure(automaton, 2) == [2, 3, 0, 1]
    ends = {0: {frozenset({0})}, 1: {frozenset({0, 1})}, 2: {frozenset({0, 1, 2})}}
    assert matches(automaton, SENSORS, holds) == ends
