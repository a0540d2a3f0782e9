"""Join predicates in an explanation: kinds, places, indexes, promises, automaton and counts of candidates.

Those that a parallelised automaton evaluates are in test_parallel_facts.py; here no query has one.
"""

import json
import re

import join_strategies
import pyarrow as pa
import pytest
import strategies
from cases import Case

import cer_gpu
from cer_gpu.ceql.parser import parse
from cer_gpu.explain.ceql_text import predicate_text
from cer_gpu.planning.passes import plan_of
from cer_gpu.printable import printable

NUMBERS = {"type": pa.string(), "x": pa.int64(), "y": pa.int64(), "k": pa.int64()}
TIMED = {**NUMBERS, "ts": pa.timestamp("ms"), "us": pa.timestamp("us")}


def by_instances(text):
    return cer_gpu.Query(plan_of(parse(text), "type", None, None, in_parallel=False))


def explained(pattern, clauses="", events=None, **options):
    return by_instances(f"SELECT * FROM S WHERE {pattern} {clauses}").explain(events, detail="all", **options)


def facts_of(*arguments, **options):
    return explained(*arguments, **options).to_dict()


def empty(types):
    return pa.schema(types).empty_table()


PLACES = [
    ("A AS a ; B AS b FILTER b.x > a.x + 99.9", "", [("b.x > a.x + 99.9", True, ["a ; b: zone maps"])]),
    ("A AS a ; B AS b FILTER b.x = a.y", "", [("b.x = a.y", True, ["a ; b: hash"])]),
    ("A ; B FILTER B.x = A.x", "", [("B.x = A.x", True, ["A ; B: hash"])]),
    ("A AS a ; B AS b FILTER a.x <> b.x", "", [("a.x <> b.x", True, ["a ; b: one by one"])]),
    (
        "A AS a : (B OR C) AS b FILTER b.x = a.x",
        "",
        [("b.x = a.x", True, [f"a : b (step {k}): the event just before" for k in (2, 3)])],
    ),
    (
        "A AS a ; B AS b FILTER b.x > a.x AND b.y = a.y",
        "",
        [("b.x > a.x", True, ["a ; b: one by one, after the hash"]), ("b.y = a.y", True, ["a ; b: hash"])],
    ),
    (
        "A AS a ; B AS b FILTER b.x > a.x AND b.y <> a.y",
        "",
        [("b.x > a.x", True, ["a ; b: zone maps"]), ("b.y <> a.y", True, ["a ; b: one by one, after the zone maps"])],
    ),
    (
        "A AS a ; B AS b FILTER b.x > a.x",
        "PARTITION BY [k]",
        [("b.x > a.x", True, ["a ; b: one by one, after the hash of the keys of PARTITION BY"])],
    ),
    ("A ; (B AS b)+ FILTER b.x > PREV(b).x", "", [("b.x > PREV(b).x", True, ["b ; next b: zone maps"])]),
    (
        "(B AS b ; C)+ FILTER b.x > PREV(b).x",
        "",
        [("b.x > PREV(b).x", True, ["PREV(b) ... b: while listing, once both events are known"])],
    ),
    (
        "A AS a ; B AS b ; C AS c FILTER c.x > a.x",
        "",
        [
            (
                "c.x > a.x",
                True,
                [
                    "a ... c: while listing, once both events are known",
                    "a ... c: zone maps, before the events in between are searched",
                ],
            )
        ],
    ),
    (
        "A AS a ; (B AS b FILTER b.x > a.x)+",
        "",
        [("b.x > a.x", True, ["a ; b: zone maps", "a ... b: while listing, once both events are known"])],
    ),
    ("(A AS a ; B AS b FILTER b.x > a.x)+", "", [("b.x > a.x", True, ["a ; b: zone maps"])]),
    (
        "((A AS a)+ ; B AS b FILTER b.x > a.x)+",
        "",
        [("b.x > a.x", True, ["a ; b: zone maps", "a ... b: while listing, once both events are known"])],
    ),
    (
        "A AS a ; (B AS b)+ FILTER FIRST(b).x < LAST(b).x",
        "",
        [("FIRST(b).x < LAST(b).x", True, ["whole matches: while listing"])],
    ),
    (
        "A AS a ; B AS b ; C AS c FILTER a.x + b.x < c.x",
        "",
        [("a.x + b.x < c.x", False, ["whole matches: while listing"])],
    ),
    ("A AS a ; B AS b FILTER b.x - a.x > 3", "", [("b.x - a.x > 3", False, ["a ; b: one by one"])]),
    ("A AS a OR B AS b FILTER b.x > a.x", "", [("b.x > a.x", True, [])]),
    ("A AS x AS y FILTER x.x = y.y", "", [("x.x = y.y", True, ["x: on the event alone, as it is x and y"])]),
    ("A AS a ; A AS a ; B AS b FILTER b.x = a.x", "", None),
]


@pytest.mark.parametrize(("pattern", "clauses", "expected"), PLACES)
def test_a_filter_has_its_kind_and_the_places_where_it_is_tested(pattern, clauses, expected):
    relations = facts_of(pattern, clauses)["relations"]
    if expected is None:
        expected = [
            (
                "b.x = a.x",
                True,
                [
                    "a (step 2) ; b: hash",
                    "a ... b: while listing, once both events are known",
                    "a (step 1) ... b: hash, before the events in between are searched",
                ],
            )
        ]
    assert [(r["text"], r["separable"], r["places"]) for r in relations] == expected


def test_a_difference_of_integers_is_exact_and_so_found_by_zone_maps():
    pattern = "A AS a ; B AS b FILTER b.x - a.x > 3"
    assert facts_of(pattern, "", empty(NUMBERS))["relations"][0]["places"] == ["a ; b: zone maps"]


@pytest.mark.parametrize(("pattern", "clauses", "expected"), [each for each in PLACES if "b.x - a.x" not in each[0]])
def test_columns_of_numbers_are_what_is_presumed_without_events(pattern, clauses, expected):
    presumed, bound = facts_of(pattern, clauses), facts_of(pattern, clauses, empty(NUMBERS))
    assert (presumed["presumed"], bound["presumed"]) == (True, False)
    assert presumed["relations"] == bound["relations"]
    assert presumed["steps"] == bound["steps"]
    assert presumed["model"] == bound["model"]


@pytest.mark.parametrize("test", ["b.ts - a.ts <= 5 MINUTES", "5 MINUTES >= b.ts - a.us", "b.ts > a.us"])
def test_a_distance_in_time_is_found_by_zone_maps(test):
    pattern = f"A AS a ; B AS b FILTER {test}"
    assert facts_of(pattern)["relations"] == facts_of(pattern, "", empty(TIMED))["relations"]
    assert facts_of(pattern)["relations"][0]["places"] == ["a ; b: zone maps"]


def test_types_of_the_events_decide_about_the_index():
    texts = empty({"type": pa.string(), "x": pa.string(), "y": pa.float64()})
    (relation,) = facts_of("A AS a ; B AS b FILTER b.x > a.x", "", texts)["relations"]
    assert (relation["separable"], relation["places"]) == (True, ["a ; b: one by one"])
    (relation,) = facts_of("A AS a ; B AS b FILTER b.y <> a.y", "", texts)["relations"]
    assert (relation["separable"], relation["why"]) == (False, "no index compares these types")


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("a.x + b.x < c.x", "it reads 3 events"),
        ("c.x - b.x > 3", "one side reads several events"),
        ("c[x > b.x OR y > 3]", "it is not one comparison"),
        ("FIRST(c).x > 3", "it reads one event"),
    ],
)
def test_a_filter_that_is_not_separable_has_a_reason(test, why):
    explanation = explained(f"A AS a ; B AS b ; (C AS c)+ FILTER {test}")
    (relation,) = explanation.to_dict()["relations"]
    assert (relation["separable"], relation["why"]) == (False, why)
    assert f"not separable: {why}" in str(explanation)


# ---- model and promises -----------------------------------------------------------------------------------------


def promises(*arguments):
    model = facts_of(*arguments)["model"]
    return model["name"], "\n".join(model["guaranteed"]), "\n".join(model["not_guaranteed"])


def test_a_query_without_filters_between_events_has_the_promises_of_a_cea():
    name, guaranteed, missing = promises("A ; B FILTER B[x > 3]")
    assert (name, missing) == ("CEA", "")
    assert "constant time per event" in guaranteed
    assert "output-linear delay" in guaranteed


def test_equal_keys_between_neighbours_need_no_search():
    name, guaranteed, missing = promises("A AS a ; B AS b FILTER b.x = a.x")
    assert (name, missing) == ("RMA", "")
    assert "no search from step to step" in guaranteed


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("A AS a ; B AS b FILTER b.x > a.x", "compared with all others in reach at a ; b (zone maps)"),
        ("A AS a ; B AS b FILTER b.x > a.x", "output-linear delay: candidates may be tested without result"),
        ("A AS a ; B AS b ; C AS c FILTER c.x = a.x", "output-linear delay: paths may be tested without result"),
        ("A AS a ; (B AS b)+ FILTER b.x > PREV(b).x", "a bounded number of registers: PREV(b) is chosen among all"),
        ("(A AS a OR A AS d) ; B AS b FILTER b.x = a.x", "those of one end are compared, and duplicates dropped"),
    ],
)
def test_what_is_not_guaranteed_is_said(pattern, said):
    assert said in promises(pattern)[2]


def test_a_strategy_compares_all_of_one_end():
    query = "SELECT {} * FROM S WHERE A AS a ; B AS b FILTER b.x = a.x"
    missing = [by_instances(query.format(s)).explain().to_dict()["model"]["not_guaranteed"] for s in ("ALL", "MAX")]
    assert missing == [[], ["listing only the chosen matches: MAX compares all that end at the same event"]]


def test_many_pairs_of_steps_are_cut_short():
    either = " OR ".join(f"{kind} AS x" for kind in "CDEFGHIJKLMNO")
    explanation = explained(f"A AS a ; ({either}) FILTER x.x > a.x")
    assert "a ; x (step 5) (zone maps), 9 more" in str(explanation)
    assert "and 1 more" in str(explanation)
    assert len(explanation.to_dict()["relations"][0]["places"]) == 13


def test_stored_events_stay_until_they_are_out_of_reach():
    related, neighbours = "A AS a : (B OR C) AS b FILTER b.x > a.x", "A AS a : B AS b FILTER b.x > a.x"
    assert "grows" in facts_of(related)["plan"]["memory"]
    assert "grows" not in facts_of(neighbours)["plan"]["memory"]
    query = "SELECT MAX * FROM S WHERE A AS a ; B AS b{} WITHIN 5 EVENTS"
    clauses = " PARTITION BY [k] THEN", " FILTER a.x = b.x PARTITION BY [k]"
    memories = [by_instances(query.format(c)).explain().to_dict()["plan"]["memory"] for c in clauses]
    assert ["never dropped" in memory for memory in memories] == [True, False]


# ---- automaton --------------------------------------------------------------------------------------------------


def test_the_automaton_is_the_register_match_automaton():
    explanation = explained("A AS a ; B AS b FILTER b.x > a.x + 99.9")
    automaton = explanation.to_dict()["automaton"]
    assert (automaton["model"], automaton["why_not_registers"]) == ("RMA", None)
    assert automaton["registers"] == [{"name": "r1", "holds": "a"}]
    assert [t["text"] for t in automaton["transitions"]] == [
        "TRUE/~/∅/○",
        "A/~/{r1}/●",
        "TRUE/~/∅/○",
        "B AND x > r1.x + 99.9/(~, r1)/∅/●",
    ]
    assert "<title>Register match automaton of 3 states</title>" in explanation.to_svg()
    assert explanation.to_dot().startswith("digraph rma {")


def test_select_tells_which_transitions_keep_their_event():
    query = "SELECT b FROM S WHERE A AS a ; B AS b FILTER b.x > a.x"
    transitions = cer_gpu.compile(query).explain().to_dict()["automaton"]["transitions"]
    assert [(t["formula"], bool(t["kept"])) for t in transitions if t["formula"] != "TRUE"] == [
        ("A", False),
        ("B AND x > r1.x", True),
    ]


def test_filters_that_registers_cannot_test_leave_the_automaton_of_the_pattern():
    explanation = explained("A ; (B AS b)+ FILTER b.x > PREV(b).x")
    automaton, plain = explanation.to_dict()["automaton"], facts_of("A ; (B AS b)+")["automaton"]
    assert automaton["why_not_registers"] == "PREV(b) is chosen among all events of 'b'"
    assert {**automaton, "why_not_registers": None} == plain
    assert "CEA of the pattern without its join predicates" in str(explanation)
    assert explanation.to_svg().count("Complex event automaton") == 1


# ---- analysis ---------------------------------------------------------------------------------------------------

STREAM = pa.table({"type": ["A"] * 64 + ["B"] * 64, "x": [*range(64), *range(64)], "k": [0, 1] * 64})


@pytest.mark.parametrize(
    ("test", "clauses", "index", "n_tested", "n_passed"),
    [
        ("b.x = a.x", "", "hash", 64, 64),
        ("b.x <> a.x", "", "one by one", 64 * 64, 64 * 63),
        ("b.x < a.x - 40", "", "zone maps", 23 * 32, 23 * 24 // 2),
        ("b.x <> a.x", "PARTITION BY [k]", "hash", 2 * 32 * 32, 2 * 32 * 31),
    ],
)
def test_an_analysis_counts_the_candidates_of_each_index(test, clauses, index, n_tested, n_passed):
    explanation = explained(f"A AS a ; B AS b FILTER {test}", clauses, STREAM, analyze=True)
    facts = explanation.to_dict()
    assert facts["steps"][0]["index"] == index
    assert facts["analysis"]["candidates"] == [{"n_tested": n_tested, "n_passed": n_passed}]
    assert facts["analysis"]["n_matches"] == n_passed
    row = rf"\n  a ; b +{index} +{n_tested:,} +{n_passed:,}\n"
    assert re.search(row, str(explanation))


def test_an_analysis_without_filters_between_events_has_no_candidates():
    explanation = explained("A ; B", "", STREAM, analyze=True)
    assert explanation.to_dict()["analysis"]["candidates"] == []
    assert "candidates" not in str(explanation)


# ---- words and all forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("A AS a ; B AS b FILTER b.x > a.x", ["1. an A event (a)", "2. later, a B event (b)"]),
        (
            "A AS a ; (B AS b ; C AS c FILTER c.x > b.x AND c.y = b.y) ; D",
            [
                "1. an A event (a)",
                "2. later, in this order:",
                "     1. a B event (b)",
                "     2. later, a C event (c)",
                "     such that c.x > b.x",
                "     and c.y = b.y",
                "3. later, a D event",
            ],
        ),
        (
            "A AS a ; (B AS b FILTER b.x > a.x)+",
            [
                "1. an A event (a)",
                "2. later, one or more times, one after another:",
                "     a B event (b)",
                "     such that b.x > a.x",
            ],
        ),
        (
            "A AS a ; (B OR (C AS c FILTER c.x > a.x))",
            ["1. an A event (a)", "2. later, one of these:", "   - a B event", "   - a C event (c)"],
        ),
    ],
)
def test_a_filter_between_events_is_a_clause_below_its_pattern(pattern, lines):
    assert explained(pattern).words[1 : 1 + len(lines)] == ["  " + line for line in lines]


def test_a_strategy_chooses_within_the_window_where_filters_relate_events():
    query = "SELECT MAX * FROM S WHERE A AS a ; B AS b FILTER b.x > a.x WITHIN 5 EVENTS"
    assert cer_gpu.compile(query).explain().words[4:6] == [
        "The first and the last event of a match are at most 5 positions apart.",
        "Of the matches that end at the same event, those that are not part of another are reported (MAX).",
    ]


@strategies.property_test(0.5)
def test_every_filter_between_random_events_is_explained(data):
    case = Case(data, join_strategies.full_join_cases())
    explanation = case.compiled.explain(case.table, analyze=True, detail="all")
    facts, said = explanation.to_dict(), str(explanation)
    plan = case.compiled._plan
    graph = plan.graph if plan.parallel is None else plan.parallel.graph
    if graph is None:  # a filter of FIRST(x), where x holds one event
        assert facts["model"]["name"] == "CEA"
        assert (facts["relations"], facts["steps"], facts["analysis"]["candidates"]) == ([], [], [])
        return
    texts = [predicate_text(relation.predicate) for relation in graph.relations]
    assert [relation["text"] for relation in facts["relations"]] == texts
    clauses = [line for line in explanation.words if re.match(r" +(such that|and) ", line)]
    assert len(clauses) == len(texts)
    assert all(any(line.endswith(printable(text)) for line in clauses) for text in texts)
    assert "Join predicates" in said
    assert facts["analysis"]["n_matches"] == case.compiled.evaluate(case.table, threads=1).num_rows
    if plan.parallel is None:
        assert len(facts["steps"]) == len(facts["analysis"]["candidates"]) == len(graph.edges)
        assert facts["model"]["why_not_parallel"] is not None
    else:
        assert len(facts["steps"]) == sum(len(t.sources) for t in plan.parallel.transitions)
        assert set(facts["analysis"]["held"]) == {"nodes", "unions", "keys"}
    assert all(0 <= n["n_passed"] <= n["n_tested"] for n in facts["analysis"]["candidates"])
    assert json.loads(json.dumps(facts)) == facts


# ---- absences ---------------------------------------------------------------------------------------------------


def test_an_absence_is_no_state_and_says_how_it_is_known():
    automaton = facts_of("A AS a ; B+ AS b ; !(R FILTER R.x = LAST(b).x) ; !(Q AS q FILTER q.x = 1) ; C")["automaton"]
    assert [state.get("label") for state in automaton["states"]] == [None, "a", "b", "C"]
    assert [t["text"] for t in automaton["transitions"]] == ["A", "; B", "; B", "; !R ; !Q ; C"]
    searched, marked = automaton["absences"]
    assert searched == {"name": "!R", "text": "R", "filters": ["R.x = LAST(b).x"], "after": [2], "at_once": []}
    assert marked == {"name": "!Q", "text": "Q[x = 1]", "filters": [], "after": [2], "at_once": [2]}


@pytest.mark.parametrize("pattern", ["A AS a -> (B AS b FILTER b.x > a.x) ; C", "A AS a ; !(R FILTER R.x = a.x) ; C"])
def test_absences_are_drawn_apart_from_the_steps(pattern):
    explanation = explained(pattern, "WITHIN 9 EVENTS")
    absence = explanation.to_dict()["automaton"]["absences"][0]
    assert "absent0 [shape=box" in explanation.to_dot()
    assert f"{absence['name']}: no event in between is" in explanation.to_svg()
    assert f"; {absence['name']} ; " in str(explanation)


def test_an_absence_at_the_end_takes_back():
    query = "SELECT NONE FROM S WHERE A AS a ; B ; !R{} WITHIN 9 EVENTS"
    for explanation in (
        cer_gpu.compile(query.format("")).explain(detail="all"),
        by_instances(query.format(" FILTER a.x = B.x")).explain(detail="all"),
    ):
        transitions = explanation.to_dict()["automaton"]["transitions"]
        assert [t["text"].rpartition(" ")[2] for t in transitions if t["takes_back"]] == ["R"]
        assert not any(t["kept"] for t in transitions)
        assert "✗ retracts" in str(explanation)
        assert "✗" in explanation.to_dot()
        assert "✗ retracts" in explanation.to_svg()
        assert "\0" not in explanation.to_dot() + explanation.to_svg() + str(explanation)
