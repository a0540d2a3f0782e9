"""Remarks on queries: each kind, and what no remark is made on."""

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.lints import lint

SCHEMA = pa.schema([("n", pa.int8()), ("u", pa.uint8()), ("d", pa.dictionary(pa.int8(), pa.int16()))])


def remarks(text, schema=None):
    """The kinds of the remarks on a query, with the texts that they mark."""
    query = cer_gpu.compile(text, time_column=None)
    found = lint(query.syntax, language=query.language, schema=schema)
    return [(each.kind, text[each.error.start : each.error.end]) for each in found]


def on(test, schema=None):
    return remarks(f"SELECT * FROM S WHERE A AS a FILTER a[{test}]", schema)


NEVER = [
    "x > 5 AND x < 3",
    "x > 5 AND x <= 5",
    "3 > x AND x > 5",
    "x = 1 AND x = 2",
    "x = 1 AND x <> 1",
    "x = 'a' AND x = 'b'",
    "x = 'a' AND x > 'b'",
    "x = -1 AND x > 0",
    "x = 1 AND x IN {2, 3}",
    "x IN {1, 2} AND x NOT IN {1, 2, 3}",
    "x BETWEEN 5 AND 2",
    "x = 1 AND (x = 2 OR x = 3)",
    "x IS NULL AND x = 1",
    "x IS NULL AND x IS NOT NULL",
    "x = TRUE AND x = FALSE",
    "x <> TRUE AND x <> FALSE",
    "x LIKE 'a' AND NOT x LIKE 'a'",
    "x < y AND y < x",
    "x < y AND x = y",
    "x + 1 > 5 AND x + 1 < 5",
    "lower(x) = 'a' AND lower(x) = 'b'",
    "1 = 2",
    "NOT (x > 5 OR x <= 5 OR x <> x OR y = 1) AND x = 3",
]
ALWAYS = [
    "x > 5 OR x <= 5",
    "x = 1 OR x <> 1",
    "x < 5 OR x > 3",
    "x IN {1} OR x NOT IN {1, 2} OR x = 2",
    "x IS NULL OR x IS NOT NULL",
    "x = TRUE OR x = FALSE",
    "x GLOB 'a*' OR x NOT GLOB 'a*'",
    "x < y OR x >= y",
    "1 = 1",
]
NEITHER = [
    "x > 5 AND x < 6",
    "x >= 5 AND x <= 5",
    "x = 1 OR x = 2",
    "x > 5 OR y <= 5",
    "x = 1 AND y = 2",
    "x <> x",
    "NOT x > 5 AND NOT x <= 5",
    "x <> 1 AND x <> 2 AND x <> 3",
    "x = 1 OR x IS NULL",
    "x LIKE 'a' AND x NOT LIKE 'b'",
    "x GLOB '*'",
    "x = 1 AND lower(y) = 'x' AND lower(x) = 'y'",
    "x IN {1, 2} AND x IN {2, 3}",
    "x = 0.1 AND x < 0.2",
    "LAG(x) = 1 AND x = 2",
    "COUNT(A) OVER 5 EVENTS > 3 AND COUNT(A) OVER 9 EVENTS < 2",
]


@pytest.mark.parametrize("test", NEVER)
def test_tests_that_no_event_passes(test):
    assert [kind for kind, _ in on(test)] == ["never"]


@pytest.mark.parametrize("test", ALWAYS)
def test_tests_that_every_event_passes(test):
    assert on(test) == [("always", test)]


@pytest.mark.parametrize("test", NEITHER)
def test_tests_of_which_nothing_is_said(test):
    assert on(test) == []


def test_the_smallest_part_is_marked():
    assert on("y = 1 AND (x = 1 AND x = 2 OR z = 1)") == [("never", "x = 1 AND x = 2")]
    assert on("y = 1 AND (x = 1 OR x <> 1)") == [("always", "x = 1 OR x <> 1")]


def test_values_that_a_column_cannot_have():
    assert on("n = 300", SCHEMA) == [("never", "n = 300")]
    assert on("u < 0", SCHEMA) == [("never", "u < 0")]
    assert on("d = 40000", SCHEMA) == [("never", "d = 40000")]
    assert on("n > 5 AND n < 6", SCHEMA) == [("never", "n > 5 AND n < 6")]
    assert on("n <= 127", SCHEMA) == [("always", "n <= 127")]
    assert on("n = 127 OR u >= 1 OR d = -32768", SCHEMA) == []


def test_filters_of_one_variable_hold_together():
    assert remarks("SELECT * FROM S WHERE A AS a FILTER a[x = 1] AND a[x = 2]") == [("never", "a[x = 2]")]
    assert remarks("SELECT * FROM S WHERE (A AS a FILTER a[x = 1]) FILTER a[x = 2]") == [("never", "a[x = 2]")]
    assert remarks("SELECT * FROM S WHERE A AS a : B AS b FILTER a[x = 1] AND b[x = 2]") == []
    assert remarks("SELECT * FROM S WHERE A AS a FILTER a[x = 1] OR a[x = 2]") == []


def test_filters_between_events():
    pattern = "SELECT * FROM S WHERE A AS a : B AS b FILTER "
    assert [kind for kind, _ in remarks(pattern + "a.x < b.x AND a.x >= b.x")] == ["never"]
    assert remarks(pattern + "a.x < b.x AND a.y >= b.y") == []


def test_filters_of_absences_and_of_not():
    assert [kind for kind, _ in remarks("SELECT * FROM S WHERE A : NOT(B FILTER B[x = 1 AND x = 2])")] == ["never"]
    absent = "SELECT * FROM S WHERE A ; !(B FILTER B[x = 1 AND x = 2]) ; C WITHIN 5 EVENTS"
    assert [kind for kind, _ in remarks(absent)] == ["never"]


WINDOWS = {
    "SELECT * FROM S WHERE A ; B": "A ; B",
    "SELECT * FROM S WHERE A+": "A+",
    "SELECT * FROM S WHERE A{2,}": "A{2,}",
    "SELECT * FROM S WHERE A ALL B": "A ALL B",
    "SELECT NEXT * FROM S WHERE A ; B": "A ; B",
    "SELECT RECENT * FROM S WHERE A ; B": "",
    "SELECT STRICT * FROM S WHERE A ; B": "",
    "SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS": "",
    "SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS EACH STEP": "",
    "SELECT * FROM S WHERE (A ; B WITHIN 5 EVENTS) : C": "",
    "SELECT * FROM S WHERE A : B": "",
    "SELECT * FROM S WHERE A OR B": "",
    "SELECT * FROM S WHERE A : B?": "",
    "SELECT * FROM S WHERE A": "",
    "process where true": "",
    "sequence [process where true] [file where true]": "",
}


@pytest.mark.parametrize("text", WINDOWS)
def test_patterns_without_a_window(text):
    assert remarks(text) == ([("no window", WINDOWS[text])] if WINDOWS[text] else [])


VARIABLES = {
    "SELECT * FROM S WHERE A AS a : B AS b": [],
    "SELECT a FROM S WHERE A AS a : B AS b": ["b"],
    "SELECT a FROM S WHERE A AS a : B AS b FILTER b[x = 1]": [],
    "SELECT a FROM S WHERE A AS a : B AS b FILTER a.x = b.x": [],
    "SELECT SUM(a.x) FROM S WHERE A AS a : B AS b": ["b"],
    "SELECT SUM(a.x) FROM S WHERE A AS a : B AS b HAVING COUNT(b) > 0": [],
    "SELECT NONE FROM S WHERE A AS a": ["a"],
    "SELECT A FROM S WHERE A : B": [],
    "SELECT * FROM S WHERE A : NOT(B AS b)": ["b"],
    "SELECT * FROM S WHERE A ; !(B AS b FILTER b[x = 1]) ; C WITHIN 5 EVENTS": [],
    "SELECT * FROM S WHERE A ; !(B AS b) ; C WITHIN 5 EVENTS": ["b"],
}


@pytest.mark.parametrize("text", VARIABLES)
def test_variables_that_nothing_reads(text):
    assert [place for kind, place in remarks(text) if kind == "unused variable"] == VARIABLES[text]


EQL = "process where x == 1 and x == 2"
EVENTS = {"type": pa.string(), "event.category": pa.string(), "@timestamp": pa.timestamp("us")}


def over(text, **types):
    schema = pa.schema({**EVENTS, **types})
    query = cer_gpu.compile(text, schema=schema, missing_fields="null")
    return [each.kind for each in lint(query.syntax, language=query.language, schema=schema)]


def test_fields_of_eql_may_be_lists():
    assert remarks(EQL) == []
    assert over(EQL, x=pa.int64()) == ["never"]
    assert over(EQL, x=pa.list_(pa.int64())) == []


def test_fields_that_the_events_have_not_are_no_lint():
    assert over(EQL) == []
    assert over("process where not (x == 1) or y == 2", y=pa.int64()) == []
    assert over("SELECT * FROM S WHERE process AS p FILTER p[x = 1 AND y = 2]", y=pa.int64()) == []


def test_rules_of_sigma():
    text = "-- Sigma: a\nSELECT * FROM events WHERE * AS event FILTER event[EventID = 1 AND EventID = 3]"
    assert remarks(text) == []
    assert over(text, EventID=pa.int32()) == ["never"]


def test_eql_has_no_remarks_on_what_its_authors_did_not_write():
    assert over("any where true") == []
    assert over("sequence [process where true] [file where true]") == []
