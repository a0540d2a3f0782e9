"""Parallelised automata of queries, and conjunctions that have none, in an explanation."""

import json
import random

import conjunction_strategies as conjunctions
import conjunctive_rendering
import join_strategies
import pyarrow as pa
import pytest
import strategies
from cases import Case

import cer_gpu
from cer_gpu.automaton.normal_form import normal_form
from cer_gpu.ceql.parser import parse
from cer_gpu.explain.step_names import step_names

Q0 = "Q(x, y) <- T(id = x), S(id = x, loc = y), R(id = x, loc = y)"
FIGURE_1 = "SELECT * FROM S WHERE (T ALL S) ; R FILTER T.id = R.id AND S.id = R.id AND S.loc = R.loc"
CHAIN = "SELECT * FROM S WHERE A ; B ; C FILTER A.id = B.id AND B.k = C.k"
SELF_JOIN = "Q(x, y) <- R(a = x, b = y), R(a = y, b = x)"


def facts_of(query, events=None, **options):
    return cer_gpu.compile(query).explain(events, **options).to_dict()


def rules_of(query):
    """Return the transitions, with the labels of states: sources, keys, target, test."""
    automaton = facts_of(query)["automaton"]
    labels = {state["id"]: state.get("label") for state in automaton["states"]}
    return [
        ([labels[i] for i in rule["sources"]], rule["keys"], labels[rule["target"]], rule["text"])
        for rule in automaton["rules"]
    ]


def places_of(query):
    return {relation["text"]: relation["places"] for relation in facts_of(query)["relations"]}


# ---- the automaton --------------------------------------------------------------------------------------------------


def test_the_automaton_of_figure_2_in_the_words_of_the_query():
    assert rules_of(Q0) == [
        ([], [], "T", "T"),
        ([], [], "S", "S"),
        ([], [], "R", "R"),
        (["S and R"], [["T.id = S.id", "T.id = R.id"]], "T, S and R", "T"),
        (["T", "R"], [["T.id = S.id"], ["R.id = S.id", "S.loc = R.loc"]], "T, S and R", "S"),
        (["R"], [["R.id = S.id", "S.loc = R.loc"]], "S and R", "S"),
        (["T", "S"], [["T.id = R.id"], ["S.id = R.id", "S.loc = R.loc"]], "T, S and R", "R"),
        (["S"], [["S.id = R.id", "S.loc = R.loc"]], "S and R", "R"),
    ]


def test_the_automaton_of_figure_1_gathers_both_events():
    assert rules_of(FIGURE_1) == [
        ([], [], "T", "T"),
        ([], [], "S", "S"),
        (["T", "S"], [["T.id = R.id"], ["S.id = R.id", "S.loc = R.loc"]], "R", "R"),
    ]
    automaton = facts_of(FIGURE_1)["automaton"]
    assert [state["kind"] for state in automaton["states"]] == ["initial", "inner", "inner", "final", "join"]
    assert [(t["source"], t["target"], t["text"]) for t in automaton["transitions"]] == [
        (0, 1, "T"),
        (0, 2, "S"),
        (1, 4, "T.id = R.id"),
        (2, 4, "S.id = R.id AND S.loc = R.loc"),
        (4, 3, "R"),
    ]


def test_states_are_numbered_from_the_first_event_to_the_last():
    assert rules_of(CHAIN) == [
        ([], [], "A", "A"),
        (["A"], [["A.id = B.id"]], "B", "B"),
        (["B"], [["B.k = C.k"]], "C", "C"),
    ]
    states = facts_of(CHAIN)["automaton"]["states"]
    assert [(state["id"], state.get("label"), state["kind"]) for state in states] == [
        (0, None, "initial"),
        (1, "A", "inner"),
        (2, "B", "inner"),
        (3, "C", "final"),
    ]


def test_one_event_at_several_atoms_has_a_transition_of_its_own():
    assert rules_of(SELF_JOIN)[-1] == ([], [], "R and R_2", "R AND a = b")
    said = str(cer_gpu.compile(SELF_JOIN).explain(detail="all"))
    assert "R and R_2 at once: on the event alone, as it is R and R_2" in said
    assert "one event may satisfy several atoms" in said


def test_values_that_follow_from_several_filters_are_a_key():
    query = "SELECT * FROM S WHERE A ; B ; C FILTER A.id = B.id AND A.id = C.id"
    assert rules_of(query)[-1] == (["B"], [["B.id = C.id"]], "C", "C")
    assert places_of(query) == {"A.id = B.id": ["B finds A: hash"], "A.id = C.id": ["C finds B: hash"]}


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        (Q0, ["T.id = S.id = R.id", "  T", "  S.loc = R.loc", "    S", "    R"]),
        (FIGURE_1, []),
        (CHAIN, []),
        ("SELECT * FROM S WHERE A ALL B", ["(no value in common)", "  A", "  B"]),
        (
            "Q(x, y) <- A(p = x, q = y), B(p = x, q = y, r = z), C(r = 3)",
            ["(no value in common)", "  A.p = B.p, A.q = B.q", "    A", "    B", "  C"],
        ),
    ],
)
def test_the_q_tree_has_the_values_and_the_events_below_them(query, lines):
    automaton = facts_of(query)["automaton"]
    assert automaton["q_tree"] == lines
    assert ("Q-tree of the conjunction" in str(cer_gpu.compile(query).explain(detail="automaton"))) == bool(lines)


def test_the_sets_of_equal_values_are_told():
    assert facts_of(Q0)["automaton"]["equal_values"] == [["T.id", "S.id", "R.id"], ["S.loc", "R.loc"]]


@pytest.mark.parametrize(("query", "is_chain"), [(CHAIN, True), (SELF_JOIN, True), (Q0, False), (FIGURE_1, False)])
def test_an_automaton_that_gathers_nothing_is_a_ccea(query, is_chain):
    explanation = cer_gpu.compile(query).explain(detail="all")
    assert explanation.to_dict()["automaton"]["is_chain"] == is_chain
    assert ("a CCEA" in str(explanation)) == is_chain


def test_pictures_have_the_labels_of_states():
    explanation = cer_gpu.compile(FIGURE_1).explain()
    assert "<title>Parallelised complex event automaton of 3 states</title>" in explanation.to_svg()
    assert '>R</text>\n</g>\n<g class="state join dot"' in explanation.to_svg()
    dot = explanation.to_dot()
    assert dot.startswith("digraph pcea {")
    assert r'  1 [shape=circle, label="1\nT"];' in dot
    assert "  1 -> 4 [label=" in dot


# ---- filters --------------------------------------------------------------------------------------------------------


def test_each_filter_has_the_keys_that_test_it():
    assert places_of(Q0) == {
        "T.id = S.id": [
            "T finds S and R: hash",
            "S finds T: hash",
            "R finds T and S: hash, as both contain its value",
        ],
        "T.id = R.id": [
            "T finds S and R: hash",
            "S finds T and R: hash, as both contain its value",
            "R finds T: hash",
        ],
        "S.loc = R.loc": ["S finds R: hash", "R finds S: hash"],
    }
    assert places_of("SELECT * FROM S WHERE A AS a ; A AS a ; B AS b FILTER b.x = a.x") == {
        "b.x = a.x": ["b finds a (step 2): hash"]
    }
    assert places_of("SELECT * FROM S WHERE A AS x AS y FILTER x.x = y.y") == {
        "x.x = y.y": ["x: on the event alone, as it is x and y"]
    }
    assert places_of("SELECT * FROM S WHERE A AS a OR B AS b FILTER b.x = a.x") == {"b.x = a.x": []}


def test_what_an_event_finds_is_a_step():
    assert facts_of(CHAIN)["steps"] == [
        {"text": "B finds A", "index": "hash", "by_index": ["A.id = B.id"], "tested": []},
        {"text": "C finds B", "index": "hash", "by_index": ["B.k = C.k"], "tested": []},
    ]
    assert {step["index"] for step in facts_of("SELECT * FROM S WHERE A ALL B")["steps"]} == {"all"}


# ---- the model ------------------------------------------------------------------------------------------------------


def promises(query):
    model = facts_of(query)["model"]
    return model["name"], "\n".join(model["guaranteed"]), "\n".join(model["not_guaranteed"])


def test_equal_keys_within_a_window_have_every_promise():
    name, guaranteed, missing = promises(f"{CHAIN} WITHIN 9 EVENTS")
    assert (name, missing) == ("PCEA", "")
    for promise in (
        "exactly once",
        "time per event logarithmic in the events in the window",
        "output-linear",
        "follows the window",
    ):
        assert promise in guaranteed


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (CHAIN, "bounded memory: without WITHIN"),
        (CHAIN.replace("*", "MAX *"), "listing only the chosen matches: MAX compares all that end at the same event"),
        (CHAIN.replace("*", "STRICT *"), "output-linear delay: matches that STRICT drops are listed"),
        ("SELECT * FROM S WHERE (A AS a OR A AS d) ; B AS b FILTER b.x = a.x", "and duplicates dropped"),
        (SELF_JOIN, "an automaton of quadratic size"),
    ],
)
def test_what_is_not_guaranteed_is_said(query, said):
    name, guaranteed, missing = promises(query)
    assert name == "PCEA"
    assert said in missing
    assert ("output-linear" in guaranteed) == (query in (CHAIN, SELF_JOIN))


def test_answers_of_a_conjunctive_query_are_not_compared():
    _, guaranteed, missing = promises("Q(x) <- R(a = x), R(b = x)")
    assert "exact: every answer exactly once" in guaranteed
    assert "doubles" not in missing


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "Q(x, y) <- T(a = x), S(a = x, b = y), R(b = y)",
            "the conjunction is not hierarchical: S shares S.a with T but not with R, and S.b with R but not with T; "
            "no PCEA has such joins (PCEA, theorem 4.2)",
        ),
        (
            "Q(x, y, z) <- A(p = x, q = y), B(q = y, r = z), C(r = z, p = x)",
            "the conjunction is not hierarchical: A shares A.p with C but not with B, and A.q with B but not with C",
        ),
        ("SELECT * FROM S WHERE (A ; B) ALL C", "a side of the conjunction is not a single event"),
        ("SELECT * FROM S WHERE A ; B FILTER A.x < B.x", "a filter is not an equality of values of two events"),
        (
            "SELECT * FROM S WHERE A ; B ; C FILTER A.x = C.x",
            "a filter compares events that do not directly follow one another",
        ),
    ],
)
def test_the_reason_why_a_query_is_not_parallel_has_its_names(query, reason):
    explanation = cer_gpu.compile(query).explain(detail="all")
    model = explanation.to_dict()["model"]
    assert (model["name"], model["why_not_parallel"]) == ("RMA", reason)
    assert f"not PCEA         (parallelised automaton): {reason}\n" in str(explanation)


# ---- conjunctions that are not parallel -----------------------------------------------------------------------------


def test_atoms_of_a_product_are_named_by_what_came_before():
    automaton = facts_of("SELECT * FROM S WHERE (A ; B) ALL C")["automaton"]
    labels = [state.get("label") for state in automaton["states"]]
    assert sorted(labels[1:]) == ["A", "A after C", "B", "B after C", "C", "C after A", "C after B"]
    edges = {(labels[t["source"]], labels[t["target"]], t["text"]) for t in automaton["transitions"]}
    assert edges == {
        (None, "A", "A"),
        (None, "C", "C"),
        ("A", "B", "; B"),
        ("A", "C after A", "; C"),
        ("B", "C after B", "; C"),
        ("C", "A after C", "; A"),
        ("A after C", "B after C", "; B"),
        ("C after A", "B after C", "; B"),
    }
    assert automaton["model"] == "atoms"


def test_one_event_of_both_sides_is_at_both_places():
    query = "SELECT * FROM S WHERE A AS a ALL (A AS b : C) FILTER a.x < b.x"
    facts = facts_of(query)
    labels = [state.get("label") for state in facts["automaton"]["states"]]
    assert "a and b at once" in labels
    assert "a and b at once: on the event alone, as it is a and b" in facts["relations"][0]["places"]
    assert ": C" in {t["text"] for t in facts["automaton"]["transitions"]}


def test_a_conjunction_has_no_registers_and_says_so():
    explanation = cer_gpu.compile("SELECT * FROM S WHERE (A ; B) ALL C WITHIN 9 EVENTS").explain(detail="all")
    assert explanation.to_dict()["automaton"]["why_not_registers"] is not None
    assert "a bounded number of registers: the construction does not cover conjunction (ALL)" in str(explanation)
    assert "the pattern has a conjunction (ALL)\n" in str(explanation)
    assert explanation.to_dot().startswith("digraph atoms {")
    assert "<title>Atom graph of 7 states</title>" in explanation.to_svg()


def test_large_automata_are_cut_short_in_the_text():
    said = str(cer_gpu.compile(f"SELECT * FROM S WHERE {' ALL '.join('ABCD')} ALL (G ; H)").explain(detail="all"))
    assert "\n  and " in said[said.index("\nAutomaton") :]
    names = [f"E{i}" for i in range(30)]
    filters = " AND ".join(f"E0.id = {name}.id" for name in names[1:])
    said = str(cer_gpu.compile(f"SELECT * FROM S WHERE {' ALL '.join(names)} FILTER {filters}").explain(detail="all"))
    assert "1, 2, 3, 4, 5, 6, 23 more → " in said
    assert "E0, E1, E2, E3, E4, E5, E6 and 23 more" in said
    assert max(map(len, said.splitlines())) < 300


# ---- analysis -------------------------------------------------------------------------------------------------------

STREAM = pa.table({"type": ["A"] * 64 + ["B"] * 64, "x": [*range(64), *range(64)]})


def test_an_analysis_counts_what_is_in_reach_at_the_end():
    explanation = cer_gpu.compile("SELECT * FROM S WHERE A ALL B FILTER A.x = B.x").explain(
        STREAM, analyze=True, detail="all"
    )
    analysis = explanation.to_dict()["analysis"]
    assert analysis["held"] == {"nodes": 128, "unions": 128, "keys": 64}
    assert analysis["n_matches"] == 64
    assert analysis["candidates"] == []
    assert "128 nodes, 128 unions, 64 keys at the end" in str(explanation)
    windowed = "SELECT * FROM S WHERE A ALL B FILTER A.x = B.x WITHIN 9 EVENTS"
    assert facts_of(windowed, STREAM, analyze=True)["analysis"]["held"] == {"nodes": 10, "unions": 10, "keys": 10}
    assert facts_of("SELECT * FROM S WHERE A ; B", STREAM, analyze=True)["analysis"]["held"] == {}


# ---- random queries -------------------------------------------------------------------------------------------------


def assert_explained(query, explanation):
    facts, plan = explanation.to_dict(), query._plan
    assert json.loads(json.dumps(facts)) == facts
    if not plan.relates:
        assert facts["model"]["name"] == "CEA"
        return
    graph = plan.graph if plan.parallel is None else plan.parallel.graph
    assert len(facts["relations"]) == len(graph.relations)
    assert facts["model"]["name"] == ("RMA" if plan.parallel is None else "PCEA")
    assert (facts["model"]["why_not_parallel"] is None) == (plan.parallel is not None)
    assert "#" not in (facts["model"]["why_not_parallel"] or "")
    if plan.parallel is None:
        formula = normal_form(parse(plan.text, dict(plan.relations)).formula, streams=list(plan.streams))
        names = step_names(graph, formula)
        assert len({*names}) == len(names) == len(graph.atoms)
        return
    assert len(facts["automaton"]["rules"]) == len(plan.parallel.transitions)
    assert len([state for state in facts["automaton"]["states"] if "label" in state]) == len(plan.parallel.states)
    for relation, fact in zip(graph.relations, facts["relations"], strict=True):
        if plan.parallel.n_conjunction == len(graph.atoms):
            assert fact["places"], fact["text"]
        elif not all(relation.holds):
            assert not fact["places"]


@strategies.property_test(0.5)
def test_random_conjunctions_are_explained(data):
    case = Case(data, conjunctions.full_cases())
    explanation = case.compiled.explain(case.table, analyze=True, detail="all")
    assert_explained(case.compiled, explanation)
    assert str(explanation)
    expected = case.compiled.evaluate(case.table, threads=1).num_rows
    assert explanation.to_dict()["analysis"]["n_matches"] == expected


@strategies.property_test(0.5)
def test_random_filters_between_events_are_explained(data):
    case = Case(data, join_strategies.full_join_cases())
    assert_explained(case.compiled, case.compiled.explain())


@strategies.property_test(0.5)
def test_random_conjunctive_queries_are_explained(data):
    drawn = data.draw(conjunctions.conjunctive_queries())
    text = conjunctive_rendering.to_text(drawn, random.Random(data.draw(strategies.st.integers(0, 99))))
    query = cer_gpu.compile(text, time_column="ts")
    assert_explained(query, query.explain())
