"""Parallelised automata of patterns: the paper's examples, and a plain interpreter held to the definitions."""

from __future__ import annotations

import functools
import itertools

import pytest
import reference as ref
import strategies
from hypothesis import assume, given
from hypothesis import strategies as st
from pcea_examples import hierarchical_atoms
from reference_pcea import Variable
from reference_pcea_construction import query_atoms, without_self_joins
from rendering import to_ceql

import cer_gpu
from cer_gpu.automaton.conjunctive import q_tree
from cer_gpu.automaton.parallel_pattern import variables_at
from cer_gpu.errors import QueryTooLargeError

Q0 = "T ALL S ALL R FILTER T.a = S.a AND S.a = R.a AND S.b = R.b"


def plan_of(text):
    whole = "<-" in text or text.startswith("SELECT")
    return cer_gpu.compile(text if whole else f"SELECT * FROM S WHERE {text}")._plan


def pattern_of(text):
    plan = plan_of(text)
    assert plan.parallel is not None, plan.why_not_parallel
    return plan.parallel


def transitions(pattern):
    """Return the transitions, with states by the places that they hold: (places read, {source: its key}, target)."""
    held = pattern.states
    return {
        (t.places, frozenset((held[s.state], s.key) for s in t.sources), held[t.target]) for t in pattern.transitions
    }


def steps(*rows):
    return {(places, frozenset(sources.items()), target) for places, sources, target in rows}


# ------------------------------------------------------------------------------------------------ worked examples


def test_figure_2():
    """papers: PCEA, proposition 3.4: T, S and R in any order, by x (variable 0) and y (variable 1)."""
    pattern = pattern_of(Q0)
    whole, x, xy = (0, 1, 2), (0,), (0, 1)
    assert transitions(pattern) == steps(
        ((0,), {}, (0,)),
        ((1,), {}, (1,)),
        ((2,), {}, (2,)),
        ((0,), {(1, 2): x}, whole),
        ((1,), {(0,): x, (2,): xy}, whole),
        ((1,), {(2,): xy}, (1, 2)),
        ((2,), {(0,): x, (1,): xy}, whole),
        ((2,), {(1,): xy}, (1, 2)),
    )
    assert {pattern.states[final] for final in pattern.finals} == {whole}
    assert [{member.place for member in members} for members in pattern.variables] == [{0, 1, 2}, {1, 2}]
    assert len(pattern.transitions) == 8
    assert not pattern.ambiguous
    assert not pattern.shares_events


def test_figure_2_as_a_conjunctive_query():
    query = "Q0(x, y) <- T(a = x), S(a = x, b = y), R(a = x, b = y)"
    assert transitions(pattern_of(query)) == transitions(pattern_of(Q0))


def test_figure_1():
    """R gathers T and S, which need no order between them."""
    pattern = pattern_of("(T ALL S) ; R FILTER T.a = R.a AND S.a = R.a AND S.b = R.b")
    assert transitions(pattern) == steps(
        ((0,), {}, (0,)), ((1,), {}, (1,)), ((2,), {(0,): (0,), (1,): (0, 1)}, (2,))
    )  # fmt: skip
    assert {pattern.states[final] for final in pattern.finals} == {(2,)}


def test_figure_1_with_parts_that_are_connected():
    """S and U share a value that R does not have: they are gathered as one."""
    pattern = pattern_of("(T ALL S ALL U) ; R FILTER T.a = R.a AND S.a = R.a AND U.a = R.a AND S.c = U.c")
    assert {t for t in transitions(pattern) if t[0] == (3,)} == steps(((3,), {(0,): (0,), (1, 2): (0,)}, (3,)))


def test_a_chain_keeps_one_state_for_each_step():
    pattern = pattern_of("A ; B ; C FILTER A.k = B.k AND B.m = C.m")
    assert transitions(pattern) == steps(((0,), {}, (0,)), ((1,), {(0,): (0,)}, (1,)), ((2,), {(1,): (1,)}, (2,)))
    assert pattern.n_conjunction == 0


def test_a_value_goes_through_a_chain():
    pattern = pattern_of("A ; B ; C FILTER A.k = B.k AND B.k = C.k")
    assert transitions(pattern) == steps(((0,), {}, (0,)), ((1,), {(0,): (0,)}, (1,)), ((2,), {(1,): (0,)}, (2,)))
    assert len(pattern.variables) == 1


def test_steps_under_or_are_states_of_their_own():
    pattern = pattern_of("A AS x ; (B AS y OR C AS y) ; D AS z FILTER x.k = y.k AND y.k = z.k")
    assert transitions(pattern) == steps(
        ((0,), {}, (0,)),
        ((1,), {(0,): (0,)}, (1,)),
        ((2,), {(0,): (0,)}, (2,)),
        ((3,), {(1,): (0,)}, (3,)),
        ((3,), {(2,): (0,)}, (3,)),
    )


def test_a_step_without_values_gathers_all_before_it():
    pattern = pattern_of("A ; B ; C FILTER A.k = B.k")
    assert ((2,), frozenset({((1,), ())}), (2,)) in transitions(pattern)


def test_an_event_is_both_sides_of_a_self_join():
    pattern = pattern_of("A AS x ALL A AS y FILTER x.k = y.m")
    whole = (0, 1)
    assert transitions(pattern) == steps(
        ((0,), {}, (0,)),
        ((1,), {}, (1,)),
        ((0,), {(1,): (0,)}, whole),
        ((1,), {(0,): (0,)}, whole),
        ((0, 1), {}, whole),
    )
    assert pattern.shares_events


@pytest.mark.parametrize("n", range(2, 7))
def test_self_joins_are_exponential(n):
    text = " ALL ".join(f"A AS a{i}" for i in range(n))
    equal = " AND ".join(f"a0.k = a{i}.k" for i in range(1, n))
    assert len(pattern_of(f"{text} FILTER {equal}").transitions) == n + 2**n - 1


def test_unconnected_events_are_gathered_without_a_key():
    assert transitions(pattern_of("A ALL B")) == steps(
        ((0,), {}, (0,)), ((1,), {}, (1,)), ((0,), {(1,): ()}, (0, 1)), ((1,), {(0,): ()}, (0, 1))
    )  # fmt: skip


REASONS = {
    "A AS a : (B OR C) AS b FILTER a.k = b.k": "without a gap",
    "A ; B FILTER A.k < B.k": "not an equality",
    "A ; B FILTER A.k = B.k + A.m": "not an equality",
    "A ; B FILTER A.k = B.k OR A.m = B.m": None,
    "A ; B+ FILTER A.k = B.k": "iteration",
    "A ; B+ ; C FILTER B.k = C.k": "iteration",
    "A ; B ; C FILTER A.k = C.k": "do not directly follow",
    "A AS a ; (C AS c OR (B AS b ; C AS c)) FILTER a.k = b.k AND b.k = c.k": None,
    "A ; (B ALL C)": "behind another step",
    "(A ALL B) ; (C ALL D)": "behind another step",
    "(A ALL B)+": "iteration",
    "(A ; B) ALL C": "not a single event",
    "(A OR B) ALL C": "not a single event",
    "A ALL B ALL C FILTER A.k = B.k AND B.m = C.m": "not hierarchical",
    "A ALL B ALL C FILTER A.k = B.k AND B.m = C.m AND A.n = C.n": "not hierarchical",
    "(A ALL B) ; C FILTER A.k = B.k AND B.m = C.m": "another of that may come after it",
}


@pytest.mark.parametrize("text", REASONS)
def test_patterns_that_are_not_parallel_have_a_reason(text):
    plan = plan_of(text)
    assert plan.parallel is None
    assert plan.graph is not None
    assert plan.why_not_parallel
    if REASONS[text] is not None:
        assert REASONS[text] in plan.why_not_parallel


def test_too_many_self_joins_are_refused():
    text = " ALL ".join(f"A AS a{i}" for i in range(9))
    with pytest.raises(QueryTooLargeError):
        plan_of(text)  # neither has the other automaton so few atoms


# -------------------------------------------------------------------------------------------------- theorem 4.1


@given(hierarchical_atoms({"A": 1, "B": 2, "C": 2, "D": 3, "E": 3}, distinct=True, most=5))
def test_transitions_are_those_of_the_theorem(query):
    """Without self joins, and up to the names of states and variables."""
    assume(len(query) > 1)
    terms = lambda atom: ", ".join(f"c{i} = {term}" for i, term in enumerate(atom.terms))  # noqa: E731
    pattern = pattern_of("Q() <- " + ", ".join(f"{atom.relation}({terms(atom)})" for atom in query))
    tree, automaton = q_tree(query_atoms(query)).compact(), without_self_joins(query)
    atoms_of = {
        v: tuple(i for i, atom in enumerate(query) if v in atom.places) for v in set().union(*map(terms_of, query))
    }

    def held(node):
        return tuple(sorted(tree.leaves(node)))

    def key(equality):
        (pattern, places), *_ = equality.right.cases
        return tuple(sorted(atoms_of[pattern.terms[place]] for place in places))

    expected = {
        (tuple(t.labels), frozenset((held(state), key(predicate)) for state, predicate in t.joins), held(t.target))
        for t in automaton.transitions
    }
    of_variable = [tuple(sorted({member.place for member in members})) for members in pattern.variables]
    found = {
        (
            places,
            frozenset((tuple(sorted(s)), tuple(sorted(of_variable[v] for v in k))) for s, k in sources),
            tuple(sorted(target)),
        )
        for places, sources, target in transitions(pattern)
    }
    assert found == expected
    assert len(pattern.transitions) == len(automaton.transitions)
    assert len(pattern.states) == len(automaton.states)


def terms_of(atom):
    return {term for term in atom.terms if isinstance(term, Variable)}


# ---------------------------------------------------------------------------------------------- an interpreter


def partial_matches(pattern, guards, stream):
    """Yield the complex events, each as {place: position}, by algorithm 1 over plain lists."""
    lists = [[] for _ in pattern.states]

    def value(v, place, event):
        """Return the value of a variable by the event of a place; None if it has none, or several."""
        values = {event[m.expression.name] for m in pattern.variables[v] if m.place == place}
        return values.pop() if len(values) == 1 else None

    def known(places, event):
        """Return the values that the event of some places has, or None if it is not one of them."""
        for place in places:
            tests = pattern.graph.atoms[place].tests
            if any((guards[g].event_type in (None, event[ref.TYPE])) is negated for g, negated in tests):
                return None
        found = {}
        for place in places:
            for v in variables_at(pattern.variables, place):
                own = value(v, place, event)
                if own is None or found.setdefault(v, own) != own:
                    found[v] = None  # equal to nothing
        # an event at several places has one value of what they share
        shared = [v for v in found if sum(v in variables_at(pattern.variables, place) for place in places) > 1]
        return None if any(found[v] is None for v in shared) else found

    for position, event in enumerate(stream):
        new = []
        for transition in pattern.transitions:
            values = known(transition.places, event)
            if values is None:
                continue
            ways = [
                [
                    (held, its)
                    for held, its in lists[source.state]
                    if all(values.get(v) is not None and its.get(v) == values[v] for v in source.key)
                ]
                for source in transition.sources
            ]
            for chosen in itertools.product(*ways):
                held = dict.fromkeys(transition.places, position)
                of_all = dict(values)
                for other, its in chosen:
                    assert held.keys().isdisjoint(other)
                    held |= other
                    of_all = its | of_all
                new.append((transition.target, held, of_all))
        yield from (held for target, held, _ in new if target in pattern.finals)
        for target, held, values in new:
            lists[target].append((held, values))


NAMES = "xyzu"


@st.composite
def equal_joins(draw):
    """Draw a conjunction, a chain, or a conjunction and steps, of single events joined by equal values."""
    n = draw(st.integers(2, 4))
    types = draw(st.sampled_from(["AAB", "ABC", "ABCD", "ABC*"]))
    parts = [ref.As(ref.EventType(draw(st.sampled_from(types))), name) for name in NAMES[:n]]
    n_all = draw(st.sampled_from([n, n, 1, n - 1, 2]))
    body = functools.reduce(ref.All, parts[:n_all])
    for k in range(n_all, n):
        step = parts[k]
        if draw(st.integers(0, 5)) == 5:
            step = ref.Or(step, ref.As(ref.EventType(draw(st.sampled_from(types))), NAMES[k]))
        body = ref.Seq(body, step)
    columns = st.sampled_from(["n", "n", "m"])
    pairs = []
    if n_all == n:
        pairs = [(NAMES[0], name) for name in NAMES[1:n] if draw(st.integers(0, 3))]
        pairs += [(NAMES[1], name) for name in NAMES[2:n] if draw(st.booleans())]
    else:
        pairs = [(name, NAMES[n_all]) for name in NAMES[:n_all] if draw(st.integers(0, 3))]
        pairs += [(NAMES[k - 1], NAMES[k]) for k in range(n_all + 1, n) if draw(st.integers(0, 3))]
    same = draw(columns)
    for one, other in pairs:
        names = [same, same] if draw(st.integers(0, 2)) else [draw(columns), draw(columns)]
        sides = [ref.VarAttr(variable, name, "EACH") for variable, name in zip((one, other), names, strict=True)]
        body = ref.Filter(body, ref.Relation(ref.Compare("=", *sides)))
    return body


@strategies.property_test()
def test_runs_of_the_automaton_are_the_bindings_of_the_reference(data):
    query = ref.Query(data.draw(equal_joins(), label="formula"))
    plan = plan_of(to_ceql(query))
    assume(plan.parallel is not None)
    event = st.tuples(st.sampled_from("AABBCD"), *[st.sampled_from([0, 0, 1, 1, None])] * 2)
    rows = data.draw(st.lists(event, min_size=5, max_size=9), label="events")
    stream = [{ref.TYPE: type_, "n": n, "m": m, ref.STREAM: "S"} for type_, n, m in rows]
    variables, atoms = ref.bound_variables(query), plan.parallel.graph.atoms
    found = []
    for held in partial_matches(plan.parallel, plan.guards, stream):
        of = {v: {position for place, position in held.items() if v in atoms[place].selected} for v in variables}
        positions = tuple(sorted(set(held.values())))
        found.append((min(positions), max(positions), positions, tuple((v, tuple(sorted(of[v]))) for v in variables)))
    assert set(found) == set(ref.bindings(query, stream))
    if not plan.parallel.ambiguous:
        assert len(found) == len({(start, end, positions) for start, end, positions, _ in found})
    if plan.parallel.labels_identify_steps:
        assert len(found) == len(set(found))
