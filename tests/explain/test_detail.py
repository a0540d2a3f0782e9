"""What the text of an explanation shows: a summary first, and plan and automaton on request."""

import pyarrow as pa
import pytest

import cer_gpu

QUERY = "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x = a.x PARTITION BY [k] WITHIN 5 EVENTS"
STATEMENT = """SELECT * FROM t MATCH_RECOGNIZE (
    ORDER BY ts MEASURES LAST(x) AS low PATTERN (A B+) DEFINE B AS x < PREV(x))"""
EVENTS = pa.table({"type": ["A", "B"], "k": [1, 1], "x": [1, 1]})
SUMMARY = ["In words", "Evaluation"]
PLAN = ["Model", "Join predicates", "Variables", "Predicates"]


def titles(explanation):
    return [line for line in str(explanation).splitlines() if line and line[0].isupper()]


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        ("summary", SUMMARY),
        ("plan", [*SUMMARY, *PLAN, "Plan", "Properties"]),
        ("automaton", [*SUMMARY, "Automaton"]),
        ("all", [*SUMMARY, *PLAN, "Automaton", "Plan", "Properties"]),
    ],
)
def test_each_detail_has_its_sections_after_the_summary(detail, expected):
    assert titles(cer_gpu.compile(QUERY).explain(detail=detail)) == expected


def test_the_summary_is_the_default_and_says_how_to_see_the_rest():
    query = cer_gpu.compile(QUERY)
    said = str(query.explain())
    assert said == str(query.explain(detail="summary"))
    assert said.endswith("--all, --plan or --automaton; in Python, explain(detail='all'))")


def test_the_summary_has_columns_memory_and_speed_with_the_reason():
    lines = str(cer_gpu.compile(QUERY).explain()).splitlines()
    assert lines[lines.index("Evaluation") + 1 :][:3] == [
        "  columns   type, k, x",
        "  memory    bounded: the relevant events in the window of each partition",
        "  speed     time per event logarithmic in the events in the window, on average (PCEA: the join predicate is "
        "an equality, and the pattern is a chain (a CCEA: no event gathers several partial matches))",
    ]


@pytest.mark.parametrize(
    ("query", "speed"),
    [
        ("SELECT * FROM S WHERE A ; B", "constant time per event"),
        ("SELECT MAX * FROM S WHERE A ; B WITHIN 5 EVENTS", "constant time per event, except where matches end: "),
        ("SELECT RECENT * FROM S WHERE A ; B", "constant time per event"),
        ("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x > a.x", "depends on the data: an event may be compared"),
    ],
)
def test_the_class_of_speed_follows_the_model(query, speed):
    assert cer_gpu.compile(query).explain().to_dict()["model"]["speed"].startswith(speed)


def test_events_and_their_analysis_are_shown_with_each_detail():
    query = cer_gpu.compile(QUERY)
    assert titles(query.explain(EVENTS)) == [*SUMMARY, "Predicates"]
    assert titles(query.explain(EVENTS, analyze=True)) == [*SUMMARY, "Predicates", "Run"]


def test_statements_have_the_same_details():
    statement = cer_gpu.compile(STATEMENT)
    assert titles(statement.explain()) == SUMMARY
    assert titles(statement.explain(detail="plan")) == [*SUMMARY, "Conditions"]
    assert titles(statement.explain(detail="all")) == [*SUMMARY, "Conditions", "Places"]


def test_a_set_explains_each_query_in_the_detail():
    explained = cer_gpu.compile_all({"one": QUERY, "other": "SELECT * FROM S WHERE A"}).explain(detail="automaton")
    assert [titles(each)[:3] for each in explained.values()] == [[*SUMMARY, "Automaton"]] * 2


def test_all_facts_are_there_whatever_the_text_shows():
    query = cer_gpu.compile(QUERY)
    assert query.explain().to_dict() == query.explain(detail="all").to_dict()


def test_another_detail_is_an_error_that_names_those_that_there_are():
    with pytest.raises(cer_gpu.OptionError, match="expected detail as one of 'summary', 'plan', 'automaton', 'all'"):
        cer_gpu.compile(QUERY).explain(detail="plans")


def test_a_notebook_shows_the_summary_and_folds_the_rest():
    html = cer_gpu.compile(QUERY).explain()._repr_html_()
    before, _, folded = html.partition("<details>")
    assert "<h4>Evaluation</h4>" in before
    assert "<h4>Plan</h4>" not in before
    assert "<h4>Plan</h4>" in folded
