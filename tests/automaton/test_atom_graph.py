"""Atom graphs of conjunctions: the product of both sides' steps."""

from __future__ import annotations

import pyarrow as pa
import pytest
import reference as ref
import strategies
from hypothesis import assume
from hypothesis import strategies as st
from rendering import to_ceql

import cer_gpu
from cer_gpu.ceql.parser import parse
from cer_gpu.errors import QueryTooLargeError
from cer_gpu.planning.passes import plan_of


def planned(text):
    text = text if text.startswith("SELECT") else f"SELECT * FROM S WHERE {text}"
    return plan_of(parse(text), "type", None, None, in_parallel=False)


def graph_of(text):
    graph = planned(text).graph
    assert graph is not None
    return graph


def places_of(graph):
    return sorted(atom.places for atom in graph.atoms)


SETS = range(2, 8)


@pytest.mark.parametrize("m", SETS)
def test_atoms_of_distinct_types_are_those_of_the_sets_before_them(m):
    """For each of m events, and each set of the others that came before it, an atom."""
    graph = graph_of(" ALL ".join("ABCDEFG"[:m]))
    assert len(graph.atoms) == m * 2 ** (m - 1)
    assert all(len(atom.places) == 1 for atom in graph.atoms)
    for place in range(m):
        assert sum(atom.places == (place,) for atom in graph.atoms) == 2 ** (m - 1)
    assert sum(atom.initial for atom in graph.atoms) == m
    assert sum(atom.final for atom in graph.atoms) == m
    assert len(graph.edges) == sum(m - 1 - n for n in range(m) for _ in range(sets_before(m, n)))
    assert not any(edge.contiguous for edge in graph.edges)
    assert not graph.ambiguous


def sets_before(m, n):
    """Return the number of atoms of m events with n events before them."""
    found = m
    for k in range(n):
        found = found * (m - 1 - k) // (k + 1)
    return found


def test_nesting_does_not_matter_for_distinct_types():
    shapes = ["((A ALL B) ALL C) ALL D", "A ALL (B ALL (C ALL D))", "(A ALL B) ALL (C ALL D)"]
    graphs = [graph_of(text) for text in shapes]
    assert len({len(graph.atoms) for graph in graphs}) == 1
    assert len({len(graph.edges) for graph in graphs}) == 1


def test_too_many_sides_are_refused():
    types = "ABCDEFGHIJ"
    with pytest.raises(QueryTooLargeError, match="at most 1000 atoms") as error:
        graph_of(" ALL ".join(types))
    assert "one side less halves them" in str(error.value)


MERGED = {
    "A ALL B": [],
    "A ALL A": [(0, 1)],
    "A ALL B ALL A": [(0, 2)],
    "A ALL A ALL A": [(0, 1), (0, 1, 2), (0, 2), (1, 2)],
    "(A ; B) ALL A": [(0, 2)],
    "(A ; B) ALL (B ; A)": [(0, 3), (1, 2)],
    "(A OR B) ALL B": [(1, 2)],
    "A+ ALL A": [(0, 1)],
    "NOT(A) ALL A": [],
    "NOT(A) ALL B": [(0, 1)],
    "NOT(A) ALL NOT(B)": [(0, 1)],
    "(A AS x FILTER x[n > 1]) ALL (A AS y FILTER y[n < 0])": [(0, 1)],
}


@pytest.mark.parametrize("text", MERGED)
def test_one_event_is_at_several_places_only_if_its_type_allows_that(text):
    graph = graph_of(text)
    assert sorted({places for places in places_of(graph) if len(places) > 1}) == MERGED[text]


def test_an_event_at_two_places_passes_the_tests_of_both_and_is_kept_by_both():
    graph = graph_of("(A AS x FILTER x[n > 1]) ALL (A AS y FILTER y[m > 1])")
    (both,) = [atom for atom in graph.atoms if atom.places == (0, 1)]
    (left, *_), (right, *_) = ([atom for atom in graph.atoms if atom.places == (k,)] for k in (0, 1))
    assert set(both.tests) == set(left.tests) | set(right.tests)
    assert {"x", "y"} <= both.selected
    assert both.initial
    assert both.final


def test_streams_rule_out_one_event_as_types_do():
    graph = graph_of("SELECT * FROM S, T WHERE S>A ALL T>A")
    assert {len(places) for places in places_of(graph)} == {1}


def test_a_side_goes_on_at_the_next_position_only_after_its_own_step():
    """In (A : C) ALL B no B lies between A and C."""
    graph = graph_of("(A : C) ALL B")
    steps = {(graph.atoms[e.source].places, graph.atoms[e.target].places, e.contiguous) for e in graph.edges}
    assert {step for step in steps if step[1] == (1,)} == {((0,), (1,), True)}
    assert {((1,), (2,), False), ((2,), (0,), False)} <= steps


def test_a_conjunction_is_one_step_of_what_is_around_it():
    graph = graph_of("(A ALL B) ; C")
    assert [len([atom for atom in graph.atoms if atom.places == (k,)]) for k in range(3)] == [2, 2, 1]
    last = next(i for i, atom in enumerate(graph.atoms) if atom.places == (2,))
    assert sum(edge.target == last for edge in graph.edges) == 2
    loops = graph_of("(A ALL B)+").edges
    assert sorted(edge.loops for edge in loops) == [(), ()] + [(0,)] * 4


# --------------------------------------------------------------------------------------- paths and the reference


def formulas():
    """Return a strategy for formulas with ALL, without filters."""
    names = st.sampled_from(["A", "A", "B", "C", ref.ANY])
    event = names.map(ref.EventType)
    named = st.builds(ref.As, event, st.sampled_from("xy"))
    leaves = event | named | named | st.builds(ref.Not, names)
    join = st.sampled_from([ref.All, ref.All, ref.Seq, ref.Contig, ref.Or])
    return st.recursive(
        leaves,
        lambda part: (
            st.builds(lambda kind, one, other: kind(one, other), join, part, part)
            | st.builds(lambda kind, body: kind(body), st.sampled_from([ref.Plus, ref.ContigPlus]), part)
        ),
        max_leaves=4,
    )


def paths(graph, guards, stream):
    """Yield the paths of a graph over a stream, as lists of (atom, position)."""
    onward = {}
    for edge in graph.edges:
        onward.setdefault(edge.source, []).append((edge.target, edge.contiguous))

    def satisfied(atom, event):
        return all(
            (guards[g].event_type in (None, event[ref.TYPE])) is not negated for g, negated in graph.atoms[atom].tests
        )

    waiting = [
        [(atom, i)] for atom, made in enumerate(graph.atoms) if made.initial for i, event in enumerate(stream)
        if satisfied(atom, event)
    ]  # fmt: skip
    n = 0
    while waiting:
        path = waiting.pop()
        n += 1
        if n > 20_000:
            raise ref.TooLarge
        atom, position = path[-1]
        if graph.atoms[atom].final:
            yield path
        for target, contiguous in onward.get(atom, ()):
            for i in range(position + 1, position + 2 if contiguous else len(stream)):
                if i < len(stream) and satisfied(target, stream[i]):
                    waiting.append([*path, (target, i)])


@strategies.property_test()
def test_paths_are_the_bindings_of_the_reference(data):
    query = ref.Query(data.draw(formulas(), label="formula"))
    assume(any(isinstance(node, ref.All) for node in ref.descendants(query.formula)))
    types = data.draw(st.lists(st.sampled_from("AABBC"), min_size=2, max_size=6), label="types")
    stream = [{ref.TYPE: type_, ref.STREAM: "S"} for type_ in types]
    plan = planned(to_ceql(query))
    variables, found = ref.bound_variables(query), []
    try:
        expected = ref.bindings(query, stream, most=3_000)
        for path in paths(plan.graph, plan.guards, stream):
            held = {v: [i for atom, i in path if v in plan.graph.atoms[atom].selected] for v in variables}
            positions = sorted({i for each in held.values() for i in each})
            binding = tuple((v, tuple(sorted(set(each)))) for v, each in held.items())
            found.append((path[0][1], path[-1][1], tuple(positions), binding))
    except ref.TooLarge:
        assume(False)
    assert set(found) == set(expected)
    if not plan.graph.ambiguous:
        assert len(found) == len({(start, end, positions) for start, end, positions, _ in found})


def test_the_engine_refuses_what_the_graph_refuses():
    with pytest.raises(QueryTooLargeError):
        cer_gpu.compile("SELECT * FROM S WHERE " + " ALL ".join(f"({a} ; Z)" for a in "ABCDEFGHIJ"))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x FROM S WHERE (A AS x ; !C ; B AS y FILTER y.v >= x.v){1,3}",
        "SELECT x FROM S WHERE ((A AS x){3} ; B AS y FILTER y.v >= FIRST(x).v){2}",
    ],
)
def test_copies_of_a_repetition_do_not_hide_that_several_paths_have_the_same_kept_events(text):
    assert graph_of(text).ambiguous
    stream = pa.table({"type": list("AAABBAAAB"), "v": [1] * 9})
    found = cer_gpu.compile(text).evaluate(stream)
    rows = [str(row) for row in found.to_pylist()]
    assert rows
    assert len(rows) == len(set(rows))
    assert sum(cer_gpu.compile(text).evaluate(stream, output="count")["count"].to_pylist()) == len(rows)
