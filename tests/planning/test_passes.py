"""Passes from a query to its plan: their order, and the line on what each did."""

import pickle

import pytest

import cer_gpu
from cer_gpu.explain.facts import normal_form_text, pass_facts
from cer_gpu.planning.passes import PASSES
from cer_gpu.planning.physical import recogniser_of
from cer_gpu.row_patterns.compiling import PASSES as PASSES_OF_STATEMENTS

CHAIN = "SELECT * FROM S WHERE A AS a ; B FILTER a[x > 1 OR x < 0] WITHIN 5 EVENTS"
UNEQUAL = "SELECT * FROM S WHERE A AS a ; B AS b FILTER a.x < b.x WITHIN 3 EVENTS"
ENDING = "SELECT * FROM S WHERE A ; !B WITHIN 3 EVENTS"


def told(text):
    return {each["name"]: each["did"] for each in pass_facts(cer_gpu.compile(text)._plan)}


def test_each_pass_has_a_line_in_the_order_of_the_passes():
    assert list(told(CHAIN)) == [name for name, _ in PASSES]


@pytest.mark.parametrize(
    ("text", "name", "did"),
    [
        ("SELECT a[x], MAX(b.y) AS m WHERE A AS a ; B AS b", "selection", "selects a, b, of their events x; measures m"),  # noqa: E501
        ("SELECT NONE FROM S WHERE A", "selection", "selects no variable"),
        (CHAIN, "normal form", "A[x > 1 OR x < 0] AS a ; B"),
        (ENDING, "trailing absence", "the next event that must be absent at the end retracts the match before it"),
        (CHAIN, "trailing absence", "nothing, because there is no absence at the end"),
        (CHAIN, "guards", "tests of single events: 2 (A[x > 1 OR x < 0], B)"),
        (CHAIN, "chain", "yes, of 2 steps"),
        (CHAIN, "parallel", "no, because there is neither a join predicate nor a conjunction"),
        (CHAIN, "atom graph", "none, because there is neither a join predicate nor a conjunction"),
        (CHAIN, "automaton", "states 3, transitions 3"),
        ("SELECT * FROM S WHERE A ; B?", "chain", "no, because a step may be missing"),
        ("SELECT * FROM S WHERE A ALL B", "automaton", "none, because the pattern has a conjunction"),
        ("SELECT * FROM S WHERE A ALL B", "parallel", "yes, a parallelised automaton: states 3, transitions 4"),
        ("SELECT * FROM S WHERE A ALL B", "atom graph", "none, because the pattern is parallel"),
        (UNEQUAL, "atom graph", "atoms 2, edges 1, join predicates 1"),
        (UNEQUAL, "automaton", "states 3, transitions 3, without the join predicates"),
        (UNEQUAL, "chain", "no, because the query has join predicates"),
        (f"SELECT * FROM S WHERE {' ; '.join(['A'] * 60)}", "normal form", "a formula of 60 atoms"),
    ],
)  # fmt: skip
def test_a_line_tells_what_a_pass_did_to_the_query(text, name, did):
    assert told(text)[name] == did


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("A ; ((B ; C) OR D)", "A ; ((B ; C) OR D)"),
        ("(A : B+) ; C{2,3}", "(A : B+) ; C{2,3}"),
        ("(A OR B):+ ; !C ; D", "(A OR B):+ ; !C ; D"),
        ("A ALL (B ; C)", "A ALL (B ; C)"),
        ("A ; B -> C", "A ; B ; !C ; C"),
        ("(A ; B?)+", "(A ; B?)+"),
        ("NOT(A) ; (B AS x)+", "NOT(A) ; (B AS x)+"),
        ("A AS x ; B AS y FILTER x.v < y.v", "(A AS x ; B AS y) FILTER x.v < y.v"),
        ("A ; B ; !C", "(A ; B) ; !C"),
    ],
)
def test_a_formula_in_normal_form_is_shown_as_text(pattern, text):
    plan = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern} WITHIN 3 EVENTS")._plan
    assert normal_form_text(plan.formula, plan.streams) == text


def test_a_pickled_plan_is_explained_as_before_and_shares_its_recogniser():
    query = cer_gpu.compile(UNEQUAL)
    again = pickle.loads(pickle.dumps(query))
    assert again.syntax == query.syntax
    assert str(again.explain(detail="all")) == str(query.explain(detail="all"))
    assert recogniser_of(query._plan) is not None
    assert recogniser_of(again._plan) is recogniser_of(query._plan)


def test_statements_have_passes_too():
    query = cer_gpu.compile(
        "SELECT * FROM t MATCH_RECOGNIZE (MEASURES A.x AS y PATTERN (A B+ C) SUBSET U = (A, B) "
        "DEFINE B AS x < PREV(x), C AS x > A.x)"
    )
    passes = query.explain().to_dict()["passes"]
    assert [each["name"] for each in passes] == [name for name, _ in PASSES_OF_STATEMENTS]
    assert [each["did"] for each in passes] == [
        "places 4, each for a row that a variable takes",
        "variables A, B, C; U is any of A, B",
        "bits of rows: B; by search C",
        "y",
        "after a match, PAST LAST ROW",
    ]
