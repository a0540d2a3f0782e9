"""Construction of register match automata: the paper's expressions, what is refused, and the definition."""

import pytest
import strategies
from hypothesis import event
from rma_examples import (
    SENSORS,
    atom,
    attribute,
    compare,
    either,
    expression_1,
    expression_4,
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
from rma_interpreter import matches

from cer_gpu.automaton.normal_form import Guard, normal_form
from cer_gpu.automaton.rma import CURRENT, RegisterTransition
from cer_gpu.automaton.rma_construction import UnboundedFilterError, build_rma, without_silent
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import parse
from cer_gpu.errors import QueryError


def found(formula, stream=SENSORS):
    return matches(build_rma(formula), stream, holds)


def sets(*ends):
    """Matches given as lists of indices, by their last index."""
    made = {}
    for indices in ends:
        made.setdefault(max(indices), set()).add(frozenset(indices))
    return made


def sensors(text):
    """A stream from events such as ``T1:5``: type, id and value."""
    events = [event.partition(":") for event in text.split()]
    return [{"type": name[0], "id": int(name[1:] or 0), "value": int(value or 0)} for name, _, value in events]


def filters(automaton):
    """Transitions that test more than a guard, as (guards' types, register selections, registers written)."""
    made = []
    for t in automaton.transitions:
        for formula, required in t.guard:
            assert required
            selections = [c.selection for c in formula if not isinstance(c.test, Guard)]
            if selections:
                made.append((formula[0].test.event_type, selections, t.writes))
    return made


# ---- the paper's examples -------------------------------------------------------------------------------------------


def test_a_sequence_without_filter_has_all_pairs():
    assert found(then(atom("T"), atom("H"))) == sets([0, 3], [0, 4], [1, 3], [1, 4], [2, 3], [2, 4])


def test_expression_1_has_the_matches_of_the_paper():
    assert found(expression_1()) == sets([0, 3], [0, 4], [1, 3], [1, 4])


def test_expression_1_gives_figure_1():
    automaton = build_rma(expression_1())
    start, middle, final = 0, 2, 1
    loop, read, wait, last = automaton.transitions
    assert (automaton.n_states, automaton.start, automaton.finals) == (3, start, {final})
    assert automaton.registers == ("x",)
    assert automaton.silent == ()
    assert loop == RegisterTransition(start, (), start)
    assert (read.source, read.target, read.selection, read.writes, read.marked) == (0, middle, (CURRENT,), {0}, True)
    assert wait == RegisterTransition(middle, (), middle)
    assert (last.source, last.target, last.selection, last.writes, last.marked) == (
        (middle, final, (CURRENT, 0), set(), True)
    )
    (((guard, predicate), required),) = last.guard
    assert required
    assert guard.test == Guard("H")
    assert (predicate.variables, predicate.selection) == (("x", "y"), (0, CURRENT))


def test_expression_2_is_refused():
    # (T AS x FILTER x.id = y.id)+ ; (H AS y)
    inner = related(atom("T", 0), compare("x.id", "=", "y.id"), x=0, y=1)
    with pytest.raises(UnboundedFilterError, match="no event of 'y' comes before the filter is tested"):
        build_rma(then(plus(inner), atom("H", 1)))


def test_expression_2_with_its_filter_outside_is_refused():
    # (T AS x)+ ; (H AS y) FILTER x.id = y.id
    formula = related(then(plus(atom("T", 0)), atom("H", 1)), compare("x.id", "=", "y.id"), x=0, y=1)
    with pytest.raises(UnboundedFilterError, match="'x' can hold several events there"):
        build_rma(formula)


def test_a_refusal_is_an_error_in_the_query_with_the_place_of_the_filter():
    formula = related(then(plus(atom("T", 0)), atom("H", 1)), compare("x.id", "=", "y.id"), x=0, y=1)
    relation = s.Relation(formula.relation.predicate, formula.relation.roles, (7, 20))
    with pytest.raises(QueryError) as caught:
        build_rma(type(formula)(formula.body, relation))
    assert (caught.value.start, caught.value.end) == (7, 20)


def test_expression_4_gives_figure_2():
    automaton = build_rma(expression_4())
    assert automaton.registers == ("x",)
    writing = [t for t in automaton.transitions if t.writes]
    assert [t.writes for t in writing] == [{0}, {0}]  # both branches of OR write the one register of x
    assert [t.selection for t in writing] == [(CURRENT,), (CURRENT,)]
    assert filters(automaton) == [("T", [(CURRENT, 0)], frozenset())]
    # OR adds silent transitions from its start to its branches, and from these to its end
    (first, second), end = writing, next(t.source for t in automaton.transitions if t.target in automaton.finals)
    assert set(automaton.silent) == {(0, first.source), (0, second.source), (first.target, end), (second.target, end)}


def test_expression_4_reports_measurements_after_one_out_of_range():
    stream = sensors("T1:60 T2:-50 T1:20 T2:20 T3:20 T2:60 T2:1 H1:7")
    assert found(expression_4(), stream) == sets([0, 2], [1, 3], [1, 5], [1, 6], [5, 6])


def test_the_nested_expression_has_its_matches():
    stream = sensors("T:1 T:1 T:2 H:5 H:6 H:5 H:7 H:7")
    assert found(nested(), stream) == sets([0, 1, 3, 5], [0, 1, 6, 7], [0, 1, 3, 5, 6, 7])
    assert len(build_rma(nested()).registers) == 2


def test_the_nested_expression_overwrites_its_registers_in_each_iteration():
    stream = sensors("T:1 T:1 H:5 H:5 T:2 T:2 H:6 H:6")
    twice = [0, 1, 2, 3, 4, 5, 6, 7]
    assert found(nested(), stream) == sets([0, 1, 2, 3], [0, 1, 6, 7], [4, 5, 6, 7], [0, 1, 2, 3, 6, 7], twice)


def test_a_filter_in_an_iteration_may_name_an_event_before_it():
    # the paper's example of an automaton for an expression that is not bounded: (T AS x) ; (H AS y FILTER y.id = x.id)+
    formula = then(atom("T", 0), plus(related(atom("H", 1), compare("y.id", "=", "x.id"), x=0, y=1)))
    assert found(formula, SENSORS) == sets([0, 3], [0, 4], [1, 3], [1, 4], [0, 3, 4], [1, 3, 4])
    assert found(formula, sensors("T1 H1 H2 H1")) == sets([0, 1], [0, 3], [0, 1, 3])
    assert filters(build_rma(formula)) == [("H", [(0, CURRENT)], frozenset())]


EXPRESSIONS = {
    "T AS x ; H AS y FILTER x.id = y.id": sets([0, 3], [0, 4], [1, 3], [1, 4]),
    "T AS x ; (H AS y FILTER y.id = x.id)+": sets([0, 3], [0, 4], [1, 3], [1, 4], [0, 3, 4], [1, 3, 4]),
    "((T AS x FILTER x[value < 23]) OR (T AS x FILTER x[value > 30])) ; T AS y FILTER y.id = x.id": sets(
        [0, 1], [2, 5]
    ),
    "((T AS a ; T AS b FILTER a.id = b.id) ; (H AS c ; H AS d FILTER c.id = d.id)+)+": sets([0, 1, 3, 4]),
    "T ; H AS y FILTER y[value > 69] AND T.id = y.id": sets([0, 3], [1, 3]),
    "T AS x : T AS y FILTER y.id <> x.id": sets([1, 2]),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_as_texts_have_their_matches(text):
    assert found(normal_form(parse(f"SELECT * FROM S WHERE {text}").formula)) == EXPRESSIONS[text]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(T AS x FILTER x.id = y.id)+ ; H AS y", "no event of 'y' comes before the filter is tested"),
        ("(T AS x)+ ; H AS y FILTER x.id = y.id", "'x' can hold several events there"),
        ("T AS x OR H AS y FILTER x.id = y.id", "'x' can be empty there"),
        ("(T AS x)+ FILTER x.id > PREV(x).id", r"PREV\(x\) is chosen among all events of 'x'"),
    ],
)
def test_texts_that_registers_cannot_test_are_refused(text, reason):
    formula = normal_form(parse(f"SELECT * FROM S WHERE {text}").formula)
    with pytest.raises(UnboundedFilterError, match=reason):
        build_rma(formula)


# ---- filters beyond the paper ---------------------------------------------------------------------------------------


def test_one_variable_may_hold_several_events_if_the_others_are_known_before():
    formula = related(then(atom("T", 0), plus(atom("H", 1))), compare("y.id", "=", "x.id"), x=0, y=1)
    assert found(formula, sensors("T1 H1 H2 H1")) == sets([0, 1], [0, 3], [0, 1, 3])


def test_a_filter_on_events_before_the_formula_alone_is_tested_at_its_first_event():
    filtered = related(plus(atom("H", 2)), compare("x.id", "=", "y.id"), x=0, y=1)
    formula = then(atom("T", 0), atom("T", 1), filtered)
    assert found(formula, SENSORS) == sets([0, 1, 3], [0, 1, 4], [0, 1, 3, 4])
    assert filters(build_rma(formula)) == [("H", [(0, 1)], frozenset())]


def test_a_filter_on_events_before_a_sequence_is_tested_once():
    filtered = related(then(atom("H", 1), atom("A", 2)), compare("x.id", "<", "x.value"), x=0)
    assert filters(build_rma(then(atom("T", 0), filtered))) == [("H", [(0,)], frozenset())]


def test_two_names_of_one_event_need_no_register():
    automaton = build_rma(related(atom("T", 0), compare("x.id", "<", "T.value"), x=0, T=0))
    assert automaton.registers == ()
    assert filters(automaton) == [("T", [(CURRENT, CURRENT)], frozenset())]


def test_filters_share_the_register_of_a_variable():
    body = related(then(atom("T", 0), atom("H", 1)), compare("x.id", "=", "y.id"), x=0, y=1)
    automaton = build_rma(related(body, compare("y.value", ">", "T.value"), y=1, T=0))
    assert automaton.registers == ("x, T",)
    assert filters(automaton) == [("H", [(0, CURRENT), (CURRENT, 0)], frozenset())]


def test_the_last_event_of_a_filter_may_differ_between_branches():
    formula = either(then(atom("T", 0), atom("H", 1)), then(atom("H", 1), atom("T", 0)))
    automaton = build_rma(related(formula, compare("x.id", "=", "y.id"), x=0, y=1))
    assert matches(automaton, sensors("T1 H1 T2 T1"), holds) == sets([0, 1], [1, 3])


def test_a_contiguous_sequence_does_not_wait():
    formula = related(then(atom("T", 0), atom("H", 1), contiguous=True), compare("x.id", "<>", "y.id"), x=0, y=1)
    assert found(formula, SENSORS) == sets([2, 3])


def test_unknown_is_not_true():
    stream = [{"type": "T", "k": None}, {"type": "H", "k": 1}]
    body = then(atom("T", 0), atom("H", 1))
    equal = compare("x.k", "=", "y.k")
    assert found(related(body, equal, x=0, y=1), stream) == {}
    assert found(related(body, s.Not(equal), x=0, y=1), stream) == {}


def test_select_decides_on_the_marks():
    formula = then(atom("T", labels=("T", "x")), atom("H", labels=("H",)))
    only_x = matches(build_rma(formula, frozenset({"x"})), SENSORS, holds)
    assert only_x[3] == only_x[4] == {frozenset({0}), frozenset({1}), frozenset({2})}
    assert matches(build_rma(formula, frozenset()), SENSORS, holds)[3] == {frozenset()}


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        (
            related(then(either(atom("T", 0), atom("A", 9)), atom("H", 1)), compare("x.id", "=", "y.id"), x=0, y=1),
            "'x' can be empty there",
        ),
        (
            related(
                then(either(atom("T", 0), atom("A", 9)), either(atom("H", 1), atom("A", 9))),
                compare("x.id", "=", "y.id"),
                x=0,
                y=1,
            ),
            "'x' can be empty there",
        ),
        (
            then(
                either(atom("T", 0), atom("A", 9)),
                related(atom("H", 1), compare("x.id", "=", "y.id"), x=0, y=1),
            ),
            "'x' can be empty there",
        ),
        (
            then(plus(atom("T", 0)), related(atom("H", 1), compare("x.id", "=", "y.id"), x=0, y=1)),
            "'x' can hold several events there",
        ),
        (
            then(atom("T", 0), atom("T", 0), related(atom("H", 1), compare("x.id", "=", "y.id"), x=0, y=1)),
            "'x' can hold several events there",
        ),
        (
            related(plus(then(atom("T", 0), atom("H", 1))), compare("x.id", "=", "y.id"), x=0, y=1),
            "'x' can hold several events there",
        ),
        (
            related(then(plus(atom("T", 0)), plus(atom("H", 1))), compare("x.id", "=", "y.id"), x=0, y=1),
            "'x' can hold several events there",
        ),
    ],
)
def test_filters_that_registers_cannot_test_are_refused(formula, reason):
    with pytest.raises(UnboundedFilterError, match=reason):
        build_rma(formula)


@pytest.mark.parametrize("which", ["PREV", "FIRST", "LAST"])
def test_events_chosen_among_all_of_a_variable_are_refused(which):
    predicate = s.Comparison(">", attribute("x.id"), attribute("x.id", which))
    with pytest.raises(UnboundedFilterError, match=rf"{which}\(x\) is chosen among all events of 'x'"):
        build_rma(related(atom("T", 0), predicate, x=0))


# ---- the definition -------------------------------------------------------------------------------------------------


def drawn(data):
    """A random formula, its automaton and a stream."""
    formula = data.draw(formulas())
    automaton = build_rma(formula)
    event(f"registers: {automaton.n_registers}")
    return formula, automaton, data.draw(streams())


@strategies.property_test()
def test_automata_have_the_matches_of_the_definition(data):
    formula, automaton, stream = drawn(data)
    assert matches(automaton, stream, holds) == matches_by_definition(formula, stream)


@strategies.property_test(0.5)
def test_automata_without_silent_transitions_have_the_same_matches(data):
    _, automaton, stream = drawn(data)
    plain = without_silent(automaton)
    assert plain.silent == ()
    assert matches(plain, stream, holds) == matches(automaton, stream, holds)


@strategies.property_test(0.5)
def test_no_transition_reads_a_register_that_may_be_empty(data):
    _, automaton, _ = drawn(data)
    assert unwritten_reads(automaton) == set()
    assert unwritten_reads(without_silent(automaton)) == set()
