"""Strings of rules as queries over events of any schema: loose types, missing fields, lists and keywords."""

from __future__ import annotations

import pickle
import random
import re
from datetime import datetime

import pyarrow as pa
import pytest
from sizes import scaled, seeds

import cer_gpu
from cer_gpu.rules import Rule, compile_rules

EVENTS = pa.table(
    {
        "i": [1, None, 12],
        "f": [3.0, 1.5, None],
        "b": [True, False, None],
        "t": [datetime(2024, 1, 2, 3, 4, 5), None, datetime(2024, 1, 1)],
        "s": ["3", "x", None],
        "n": pa.nulls(3),
        "l": [["a", "B"], [], None],
        "li": [[1], None, [2]],
        "raw": [b"a", b"b", None],
        "st": [{"p": "X"}, None, {"p": None}],
        "u.v": ["q", "r", None],
        "d": pa.array(["c", None, "d"]).dictionary_encode(),
    }
)


def rule(predicate, clauses=""):
    return f"-- Sigma: a rule\nSELECT * FROM events WHERE * AS event FILTER event[{predicate}] {clauses}"


def found(predicate, events=EVENTS, **options):
    return cer_gpu.compile(rule(predicate), **options).evaluate(events, output="ends")["end"].to_pylist()


@pytest.mark.parametrize(
    ("predicate", "ends"),
    [
        # a text over numbers, booleans and times
        ("i GLOB '1'", [0]),
        ("i GLOB '1*'", [0, 2]),
        ("(NOT i GLOB '1' OR i IS NULL)", [1, 2]),
        ("i GLOB {'1', '12'} NOCASE", [0, 2]),
        ("i = '1'", [0]),
        ("i IN {'1', 'x'}", [0]),
        ("i IN {'1', '12'}", [0, 2]),
        ("i GLOB '-1'", []),
        ("i >= '12'", [2]),
        ("i > 'a'", []),
        ("f GLOB '3'", [0]),
        ("f GLOB '3.0'", [0]),
        ("f GLOB '1?5'", [1]),
        ("b GLOB 'TRUE' NOCASE", [0]),
        ("b GLOB 'TRUE'", []),
        ("(NOT b GLOB 'true' NOCASE OR b IS NULL)", [1, 2]),
        ("t GLOB '2024-01-01'", [2]),
        ("t GLOB '2024*'", [0, 2]),
        ("t = 'x'", []),
        ("i LIKE '^1'", [0, 2]),
        ("CIDR(i, '10.0.0.0/8')", []),
        ("d GLOB 'C' NOCASE", [0]),
        # a number or a boolean over texts
        ("s = 3", [0]),
        ("s = -3", []),
        ("s < 5", [0]),
        ("5 > s", [0]),
        ("s BETWEEN 1 AND 5", [0]),
        ("(NOT s < 5 OR s IS NULL)", [1, 2]),
        ("(s <> 3 OR s IS NULL)", [1, 2]),
        ("s IN {3, 4}", [0]),
        ("s = TRUE", []),
        ("b = 1", []),
        ("number(i) < 5", [0]),
        # values of two fields
        ("s = i", []),
        ("(i <> b OR i IS NULL OR b IS NULL)", [0, 1, 2]),
        ("concat(s, i) GLOB '31'", [0]),
        ("lower(string(s)) = lower(string(f))", []),
        ("startswith(lower(string(i)), '1')", [0, 2]),
        # parts of times
        ("hour(t) = 3", [0]),
        ("hour(s) = 3", []),
        ("(NOT hour(s) = 3 OR s IS NULL)", [0, 1, 2]),
        # lists
        ("l GLOB 'b' NOCASE", [0]),
        ("(NOT l GLOB 'b' NOCASE OR l IS NULL)", [1, 2]),
        ("li = '1'", [0]),
        ("li GLOB '1*'", [0]),
        ("(NOT li = 1 OR li IS NULL)", [1, 2]),
        ("l IS NULL", [2]),
        # fields of structs, names with dots, and what is no value
        ("`st.p` GLOB 'x' NOCASE", [0]),
        ("st.p GLOB 'x' NOCASE", [0]),
        ("`u.v` = 'q'", [0]),
        ("st GLOB 'x'", []),
        ("raw GLOB 'a'", []),
        ("n = 1", []),
        ("(NOT n = 1 OR n IS NULL)", [0, 1, 2]),
        # missing fields
        ("x = 1", []),
        ("(NOT x = 1 OR x IS NULL)", [0, 1, 2]),
        ("x IS NULL", [0, 1, 2]),
        ("x IS NOT NULL", []),
        ("s = 'x' AND (x = 1 OR y GLOB 'a')", []),
        ("s = 'x' OR x = 1 OR y GLOB 'a'", [1]),
        ("concat(s, x) GLOB '*'", []),
        # keywords
        ("`*` GLOB '*x*' NOCASE", [0, 1]),
        ("`*` GLOB '*x*'", [1]),
        ("NOT `*` GLOB '*x*' NOCASE", [2]),
        ("`*` GLOB 'b' NOCASE", [0]),
        ("NOT `*` GLOB 'b' NOCASE", [1, 2]),
        ("`*` LIKE '^[aq]$'", [0]),
        # the past
        ("COUNT(* FILTER i > '0') OVER 5 EVENTS >= 2", [2]),
        ("COUNT(* FILTER x = 1) OVER 5 EVENTS >= 0", [0, 1, 2]),
        ("COUNT(* FILTER x = 1) OVER 5 EVENTS > 0", []),
        ("COUNT(* FILTER `*` GLOB 'x') OVER 5 EVENTS > 0 AND COUNT(* FILTER NOT l = 'a') OVER 5 EVENTS > 0", [1, 2]),
    ],
)
def test_tests_fit_the_types_of_columns(predicate, ends):
    assert found(predicate) == ends


@pytest.mark.parametrize(
    ("predicate", "ends"),
    [
        ("RISES(COUNT(* FILTER s = 3 OR s = 'x') OVER 5 EVENTS >= 2, s = 3 OR s = 'x')", [1]),
        ("RISES(COUNT(* FILTER `st.p` = 'X') OVER 5 EVENTS >= 1, `st.p` = 'X')", [0]),
        ("RISES(COUNT(* FILTER x = 1) OVER 5 EVENTS >= 1, x = 1)", []),
        ("RISES(COUNT(* FILTER x = 1) OVER 5 EVENTS >= 1, s = 3)", []),
        ("RISES(COUNT(* FILTER x = 1) OVER 5 EVENTS >= 0, s = 'x')", []),
        ("RISES(x IS NULL, x IS NULL)", []),
        ("NOT RISES(x = 1, x = 1)", [0, 1, 2]),
        ("COUNT(* FILTER RISES(COUNT(*) OVER 5 EVENTS >= 2, x IS NULL)) OVER 5 EVENTS = 1", [1, 2]),
        ("COUNT(*.`st.p`) OVER 5 EVENTS = 1", [0, 1, 2]),
        ("COUNT(DISTINCT *.i) OVER 5 EVENTS = 2", [2]),
        ("SUM(*.s) OVER 5 EVENTS > 0", []),
        ("SUM(*.l) OVER 5 EVENTS > 0", []),
        ("SUM(*.i) OVER 5 EVENTS > 12", [2]),
    ],
)
def test_the_past_fits_too(predicate, ends):
    assert found(predicate) == ends


def test_columns_of_every_type_can_be_tested():
    listed = [pa.list_(kind) for kind in (pa.bool_(), pa.timestamp("us"), pa.null(), pa.struct({"x": pa.int64()}))]
    others = [pa.duration("s"), pa.time64("us"), pa.date32(), pa.decimal128(20, 3), pa.uint64(), pa.large_string()]
    others += [pa.map_(pa.string(), pa.string()), pa.binary(), pa.struct({"x": pa.int64()}), pa.timestamp("ns", "UTC")]
    tests = (
        "a GLOB {'x*', '3'} NOCASE",
        "a = 3",
        "a IN {3, 4}",
        "a < 3",
        "hour(a) = 3",
        "CIDR(a, '10.0.0.0/8')",
        "a LIKE 'x'",
    )
    tests += (
        "lower(string(a)) = lower(string(b))",
        "concat(a, b) GLOB '*'",
        "startswith(lower(string(a)), 'x')",
        "a = TRUE",
    )
    for kind in (*listed, *others):
        events = pa.table({"a": pa.nulls(2, kind), "b": ["x", None]})
        assert found(" OR ".join(tests), events) == []
        assert found(" AND ".join(f"(NOT {test} OR a IS NULL)" for test in tests), events) == [0, 1]


def test_keywords_where_no_column_is_text():
    numbers = pa.table({"i": [1, 2]})
    assert found("`*` GLOB '1'", numbers) == []
    assert found("NOT `*` GLOB '1'", numbers) == [0, 1]


def test_a_query_is_fitted_to_each_schema():
    query = cer_gpu.compile(rule("a = 1 AND (b GLOB 'x' OR b IS NULL)"))
    assert query.language == "Sigma"
    texts = pa.table({"a": ["1", "2", "1"], "b": ["x", "x", "y"]})
    numbers = pa.table({"a": [1, 2, 1]})
    for _ in range(2):
        assert query.evaluate(texts, output="ends")["end"].to_pylist() == [0]
        assert query.evaluate(numbers, output="ends")["end"].to_pylist() == [0, 2]
    assert (query.missing_fields, query.bind(numbers.schema).missing_fields) == ((), ("b",))
    again = pickle.loads(pickle.dumps(query))
    assert again.evaluate(numbers, output="ends")["end"].to_pylist() == [0, 2]
    assert again.language == "Sigma"


def test_what_no_event_can_satisfy_reads_no_column():
    query = cer_gpu.compile(rule("EventID = 1 AND Missing GLOB '*x'"), schema=pa.schema({"EventID": pa.int32()}))
    assert query.columns(pa.schema({"EventID": pa.int32()})) == []
    assert query.missing_fields == ("Missing",)


def test_a_missing_field_is_an_error_where_that_is_asked_for():
    with pytest.raises(cer_gpu.QueryTypeError, match="no column 'x'"):
        found("x = 1", missing_fields="error")
    assert found("s = 3", missing_fields="error") == [0]


def test_keys():
    text = rule("COUNT(* FILTER a = 1) OVER 5 EVENTS >= 2", "PARTITION BY [`user.name`]")
    a = pa.array([1, 1, 1, 1])
    flat = pa.table({"a": a, "user.name": ["u", "v", "u", None]})
    nested = pa.table({"a": a, "user": [{"name": "u"}, {"name": "v"}, {"name": "u"}, None]})
    query = cer_gpu.compile(text)
    for events in (flat, nested):
        assert query.evaluate(events, output="ends")["end"].to_pylist() == [2]
    assert query.evaluate(pa.table({"a": a}), output="ends")["end"].to_pylist() == []
    listed = pa.table({"a": a, "user.name": [["u"]] * 4})
    assert query.evaluate(listed, output="ends")["end"].to_pylist() == []


def test_rules_of_all_languages_in_one_set():
    texts = {
        "sigma": rule("name GLOB 'CMD*' NOCASE"),
        "eql": 'any where name : "cmd*"',
        "ceql": "SELECT * FROM S WHERE * AS e FILTER e[name = 'cmd']",
    }
    events = pa.table({"name": ["cmd", "x"]})
    answers = cer_gpu.compile_all({name: texts[name] for name in ("sigma", "ceql")}).evaluate(events, output="ends")
    assert {name: table["end"].to_pylist() for name, table in answers.items()} == {"sigma": [0], "ceql": [0]}
    typed = events.append_column("event.category", pa.array(["process"] * 2))
    typed = typed.append_column("@timestamp", pa.array([1, 2], pa.timestamp("s")))
    answers = cer_gpu.compile_all(texts).evaluate(typed, output="ends")
    assert {name: table["end"].to_pylist() for name, table in answers.items()} == {name: [0] for name in texts}


def test_a_set_of_rules_needs_no_column_of_types():
    rules = {f"r{i}": Rule(f"r{i}", rule(f"a = {i} AND b GLOB 'x'"), language="sigma") for i in range(3)}
    alerts = compile_rules(rules).alerts(pa.table({"a": ["1", "2"], "b": ["x", "x"]}))
    assert sorted(alerts["rule"].to_pylist()) == ["r1", "r2"]


# ---- random rules ----------------------------------------------------------------------------------------------------

VALUES = {
    "number": [0, 1, 3, 12, -1, None],
    "text": ["0", "1", "3", "12", "-1", "abc", "ABC", "true", "", None],
    "truth": [True, False, None],
    "listed": [["1", "abc"], ["ABC"], [], None, ["true"]],
    "numbers": [[1, 12], [3], [], None],
}
COLUMNS = [*VALUES, "missing"]
TYPES = {
    "number": pa.int64(),
    "text": pa.string(),
    "truth": pa.bool_(),
    "listed": pa.list_(pa.string()),
    "numbers": pa.list_(pa.int32()),
}
PATTERNS = ["0", "1", "1*", "*2", "?", "abc", "A*", "TRUE", "f*", "*"]


def as_text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_number(value):
    if isinstance(value, bool):
        return None
    return float(value) if re.fullmatch(r"-?\d+", str(value)) else None


def passes(value, test):
    """A test as its author means it: of the value, or of one element of a list; a missing value passes none."""
    kind, operand, nocase = test
    if isinstance(value, list):
        return any(passes(each, test) for each in value)
    if value is None:
        return False
    if kind == "glob":
        patterns = (re.escape(each).replace(r"\*", ".*").replace(r"\?", ".") for each in operand)
        return any(re.fullmatch(each, as_text(value), re.IGNORECASE if nocase else 0) for each in patterns)
    if kind == "=":
        return as_text(value) == str(operand)
    number = as_number(value)
    return number is not None and (number < operand if kind == "<" else number >= operand)


def drawn_test(rnd):
    kind = rnd.choice(["glob", "glob", "=", "<", ">="])
    if kind == "glob":
        return kind, rnd.sample(PATTERNS, rnd.randint(1, 3)), rnd.random() < 0.7
    return kind, rnd.choice([0, 1, 3, 12]), False


def written(column, test):
    kind, operand, nocase = test
    if kind != "glob":
        return f"{column} {kind} {operand}"
    return f"{column} GLOB {{{', '.join(map(repr, operand))}}}{' NOCASE' if nocase else ''}"


def drawn_condition(rnd, depth):
    """Return the text of a condition, and the function of an event that it means."""
    if depth and rnd.random() < 0.6:
        parts = [drawn_condition(rnd, depth - 1) for _ in range(rnd.randint(2, 3))]
        word, joined = rnd.choice([("AND", all), ("OR", any)])
        return f"({f' {word} '.join(text for text, _ in parts)})", lambda e: joined(part(e) for _, part in parts)
    column, test = rnd.choice(COLUMNS), drawn_test(rnd)
    text = written(column, test)
    if rnd.random() < 0.2:
        return f"{column} IS NULL", lambda e: e.get(column) is None
    if rnd.random() < 0.4:
        return f"(NOT {text} OR {column} IS NULL)", lambda e: not passes(e.get(column), test)
    if rnd.random() < 0.15:
        keywords = ("glob", rnd.sample(PATTERNS, 2), True)
        return written("`*`", keywords), lambda e: passes([e["text"], *(e["listed"] or [])], keywords)
    return text, lambda e: passes(e.get(column), test)


def test_random_rules_mean_what_their_authors_do():
    for seed in seeds(scaled(600)):
        rnd = random.Random(seed)
        rows = [{name: rnd.choice(values) for name, values in VALUES.items()} for _ in range(12)]
        events = pa.table({name: pa.array([row[name] for row in rows], TYPES[name]) for name in VALUES})
        text, holds = drawn_condition(rnd, 2)
        assert found(text, events) == [i for i, row in enumerate(rows) if holds(row)], (seed, text)
