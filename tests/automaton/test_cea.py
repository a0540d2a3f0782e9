"""Construction of the CEA: linear size, and marks as SELECT demands."""

import itertools

import pytest

from cer_gpu.automaton.cea import ANY, FINAL, INITIAL, build_cea
from cer_gpu.automaton.normal_form import normal_form
from cer_gpu.ceql.parser import parse


def automaton(where, select="*"):
    syntax = parse(f"SELECT {select} FROM S WHERE {where}")
    items = syntax.select.items
    selected = None if items is None else frozenset(item.variable.name for item in items)
    return build_cea(normal_form(syntax.formula), selected)


def size(cea):
    return cea.n_states + len(cea.transitions) + len(cea.silent)


def test_a_sequence_waits_between_its_events():
    cea = automaton("A ; B")
    assert cea.n_states == 3
    assert [g.event_type for g in cea.guards] == ["A", "B"]
    assert {(t.source, t.guard, *t.selected, t.target) for t in cea.transitions} == {
        (INITIAL, 0, "A", 2),
        (2, ANY, 2),  # the waiting loop
        (2, 1, "B", FINAL),
    }
    assert cea.silent == ()


def test_a_contiguous_sequence_does_not_wait():
    cea = automaton("A : B")
    assert {(t.source, t.guard, t.target) for t in cea.transitions} == {(INITIAL, 0, 2), (2, 1, FINAL)}


def test_not_is_a_negated_transition_without_a_mark():
    (transition,) = automaton("NOT(A)").transitions
    assert (transition.negated, transition.selected) == (True, frozenset())


def test_equal_guards_are_stored_once():
    assert len(automaton("A ; A ; A FILTER A[a=1]").guards) == 1
    assert len(automaton("A ; (A FILTER A[a=1]) ; (A FILTER A[a=1])").guards) == 2


@pytest.mark.parametrize(
    ("select", "kept"),
    [
        ("*", [{"A", "x"}, {"B", "y"}]),
        ("NONE", [set(), set()]),
        ("x", [{"x"}, set()]),
        ("y, x", [{"x"}, {"y"}]),
        ("B", [set(), {"B"}]),
    ],
)
def test_transitions_keep_the_variables_of_select(select, kept):
    cea = automaton("A AS x : B AS y", select)
    assert [t.selected for t in cea.transitions] == kept


@pytest.mark.parametrize("select", ["*", "NONE", "x", "y, x"])
def test_labels_include_variables_that_select_does_not_keep(select):
    cea = automaton("(A AS x)+ AS z ; NOT(B AS n) : B AS y", select)
    bound = {g.event_type: [t.labels for t in cea.transitions if t.guard == i] for i, g in enumerate(cea.guards)}
    assert bound == {"A": [{"A", "x", "z"}], "B": [set(), {"B", "y"}]}
    assert all(t.labels == set() for t in cea.transitions if t.guard == ANY)
    assert all(t.selected <= t.labels for t in cea.transitions)


SHAPES = {
    "A ; A ; ...": lambda n: " ; ".join("A" for _ in range(n)),
    "T0 : T1 : ...": lambda n: " : ".join(f"T{i}" for i in range(n)),
    "T0 OR T1 OR ...": lambda n: " OR ".join(f"T{i}" for i in range(n)),
    "(A OR B) ; (A OR B) ; ...": lambda n: " ; ".join("(A OR B)" for _ in range(n)),
    "(T0 OR T1 OR ...) ; (T0 OR T1 OR ...)": lambda n: " ; ".join(
        ["(" + " OR ".join(f"T{i}" for i in range(n)) + ")"] * 2
    ),
    "A+ ; A+ ; ...": lambda n: " ; ".join("A+" for _ in range(n)),
    "A++...": lambda n: "A" + "+" * n,
    "((A OR B)+ OR (A OR B)+ ...)+": lambda n: "(" + " OR ".join("(A OR B)+" for _ in range(n)) + ")+",
    "(((A ; B)+ ; B)+ ; B)+": lambda n: "(" * n + "A" + " ; B)+" * n,
    "(A+ OR B) : (A+ OR B) : ...": lambda n: " : ".join("(A+ OR B)" for _ in range(n)),
    "NOT(A) ; NOT(A) ; ...": lambda n: " ; ".join("NOT(A)" for _ in range(n)),
    "A FILTER A[..] AND A[..] ...": lambda n: "A FILTER " + " AND ".join(f"A[a <> {i}]" for i in range(n)),
    "A FILTER A[..] OR A[..] ...": lambda n: "A FILTER " + " OR ".join(f"A[a = {i}]" for i in range(n)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_size_is_linear_in_the_formula(shape):
    build = SHAPES[shape]
    sizes = [size(automaton(build(n))) for n in (6, 12, 24, 48)]
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    # doubling the formula doubles the increase in size; a copy anywhere would more than double it
    assert steps[1] == 2 * steps[0]
    assert steps[2] == 2 * steps[1]
    assert sizes[-1] <= 10 * (len(build(48).split()) + build(48).count("+"))


def test_nothing_enters_the_initial_state_and_nothing_leaves_the_final_one():
    for build in SHAPES.values():
        cea = automaton(build(5))
        edges = [(t.source, t.target) for t in cea.transitions] + list(cea.silent)
        assert all(target != INITIAL and source != FINAL for source, target in edges)
        assert all(0 <= state < cea.n_states for edge in edges for state in edge)
