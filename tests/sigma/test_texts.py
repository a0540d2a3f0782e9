"""What the tests of a rule become in CEQL, and the events that they find."""

import datetime as dt

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.sigma import load

RULE = """
title: A rule
logsource: {{category: any}}
detection:
{detection}
"""


def text_of(selection, condition="s"):
    """Return the predicate of a rule with detections in YAML, each a line."""
    lines = [f"  {line}" for line in selection.strip().split("\n")]
    rules = load(RULE.format(detection="\n".join([*lines, f"  condition: {condition}"])))
    assert rules.errors == []
    head, query = rules["A rule"].split("\n", 1)
    assert head == "-- Sigma: A rule"
    begin, end = "SELECT * FROM events WHERE * AS event FILTER event[", "]"
    assert query.startswith(begin)
    assert query.endswith(end)
    return query[len(begin) : -len(end)]


@pytest.mark.parametrize(
    ("tests", "text"),
    [
        ("a: x", "a GLOB 'x' NOCASE"),
        ("a: [x, 'y*', z?]", "a GLOB {'x', 'y*', 'z?'} NOCASE"),
        (r"a: 'C:\a\*'", r"a GLOB 'C:\a[*]' NOCASE"),
        (r"a: 'C:\a\\*'", r"a GLOB 'C:\a\*' NOCASE"),
        ("a: it's [odd]", "a GLOB 'it''s [[]odd]' NOCASE"),
        ("a: ''", "a GLOB '' NOCASE"),
        ("a: null", "a IS NULL"),
        ("a: []", "a IS NULL"),
        ("a: [x, null]", "a GLOB 'x' NOCASE OR a IS NULL"),
        ("a: 4688", "a = 4688"),
        ("a: [1, -2, 2.5]", "a IN {1, -2, 2.5}"),
        ("a: [1, x]", "a = 1 OR a GLOB 'x' NOCASE"),
        ("a: true", "a GLOB 'true' NOCASE"),
        ("a|contains: x", "a GLOB '*x*' NOCASE"),
        ("a|startswith: x", "a GLOB 'x*' NOCASE"),
        ("a|endswith: [x, '*y']", "a GLOB {'*x', '*y'} NOCASE"),
        ("a|contains|all: [x, y]", "a GLOB '*x*' NOCASE AND a GLOB '*y*' NOCASE"),
        ("a|cased: X", "a GLOB 'X'"),
        ("a|contains|cased: [X, Y]", "a GLOB {'*X*', '*Y*'}"),
        (r"a|re: '^x\d+$'", r"a LIKE '^x\d+$'"),
        ("a|re|i|m|s: x.y", "a LIKE '(?ims)x.y'"),
        ("a|re: ['x*', y?]", "a LIKE 'x*' OR a LIKE 'y?'"),
        ("a|cidr: 10.0.0.0/8", "CIDR(a, '10.0.0.0/8')"),
        ("a|cidr: [10.0.0.0/8, 'fe80::/10']", "CIDR(a, '10.0.0.0/8', 'fe80::/10')"),
        ("a|base64: foo", "a GLOB 'Zm9v' NOCASE"),
        ("a|base64offset|contains: foo", "a GLOB {'*Zm9v*', '*Zvb*', '*mb2*'} NOCASE"),
        ("a|wide|base64: foo", "a GLOB 'ZgBvAG8A' NOCASE"),
        ("a|utf16le|base64: foo", "a GLOB 'ZgBvAG8A' NOCASE"),
        ("a|utf16be|base64: foo", "a GLOB 'AGYAbwBv' NOCASE"),
        ("a|utf16|base64: foo", "a GLOB '//5mAG8AbwA=' NOCASE"),
        ("a|windash: -x", "a GLOB {'-x', '/x', '–x', '—x', '―x'} NOCASE"),  # noqa: RUF001
        (
            "a|windash|contains|all: [' -x', y]",
            "a GLOB {'* -x*', '* /x*', '* \N{EN DASH}x*', '* —x*', '* ―x*'} NOCASE AND a GLOB '*y*' NOCASE",
        ),
        ("a|exists: true", "a IS NOT NULL"),
        ("a|exists: false", "a IS NULL"),
        ("a|fieldref: b", "lower(string(a)) = lower(string(b))"),
        ("a|fieldref|startswith: b", "startswith(lower(string(a)), lower(string(b)))"),
        ("a|fieldref|endswith: b", "endswith(lower(string(a)), lower(string(b)))"),
        (
            "a|fieldref|contains: b",
            "contains(lower(string(a)), lower(string(b))) OR startswith(lower(string(a)), lower(string(b)))",
        ),
        ("a|lt: 5", "a < 5"),
        ("a|lte: 5", "a <= 5"),
        ("a|gt: 5", "a > 5"),
        ("a|gte: 5.5", "a >= 5.5"),
        ("a|neq: x", "a NOT GLOB 'x' NOCASE OR a IS NULL"),
        ("a|neq: 1", "a <> 1 OR a IS NULL"),
        ("a|minute: 5", "minute(a) = 5"),
        ("a|hour: [5, 6]", "hour(a) IN {5, 6}"),
        ("a|day: 5", "day(a) = 5"),
        ("a|week: 5", "week(a) = 5"),
        ("a|month: 5", "month(a) = 5"),
        ("a|year: 2024", "year(a) = 2024"),
        ("a|hour|gte: 18", "hour(a) >= 18"),
        ("process.name: x", "`process.name` GLOB 'x' NOCASE"),
        ("not: x", "`not` GLOB 'x' NOCASE"),
        ("1st-one: x", "`1st-one` GLOB 'x' NOCASE"),
        ("a: x\n  b: 1", "a GLOB 'x' NOCASE AND b = 1"),
    ],
)
def test_a_test_of_a_field(tests, text):
    assert text_of(f"s:\n  {tests}") == text


@pytest.mark.parametrize(
    ("selection", "text"),
    [
        ("s: [x, y]", "`*` GLOB {'*x*', '*y*'} NOCASE"),
        ("s: x", "`*` GLOB '*x*' NOCASE"),
        ("s: 'x*y'", "`*` GLOB '*x*y*' NOCASE"),
        ("s: {'|all': [x, y]}", "`*` GLOB '*x*' NOCASE AND `*` GLOB '*y*' NOCASE"),
        ("s: {'|re': x+}", "`*` LIKE 'x+'"),
        ("s: [x, 17]", "`*` GLOB {'*x*', '*17*'} NOCASE"),
        ("s: {'|base64offset': foo}", "`*` GLOB {'*Zm9v*', '*Zvb*', '*mb2*'} NOCASE"),
        ("s: [{a: x}, {a: y}, {b: 1}]", "a GLOB {'x', 'y'} NOCASE OR b = 1"),
        ("s: [{a: x, b: 1}, {a: y}]", "a GLOB 'x' NOCASE AND b = 1 OR a GLOB 'y' NOCASE"),
    ],
)
def test_keywords_and_lists_of_maps(selection, text):
    assert text_of(selection) == text


DETECTIONS = "s1: {a: x}\ns2: {a: y}\nf1: {b: 1}\nf2: {c: z}\nk: [word]"


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("1 of s*", "a GLOB {'x', 'y'} NOCASE"),
        ("any of s*", "a GLOB {'x', 'y'} NOCASE"),
        ("all of s*", "a GLOB 'x' NOCASE AND a GLOB 'y' NOCASE"),
        ("s1 and not f1", "a GLOB 'x' NOCASE AND (b <> 1 OR b IS NULL)"),
        ("not 1 of s*", "a NOT GLOB {'x', 'y'} NOCASE OR a IS NULL"),
        ("not all of f*", "b <> 1 OR b IS NULL OR c NOT GLOB 'z' NOCASE OR c IS NULL"),
        ("not (s1 and not f1)", "a NOT GLOB 'x' NOCASE OR a IS NULL OR b = 1"),
        ("not not s1", "a GLOB 'x' NOCASE"),
        ("not k", "NOT `*` GLOB '*word*' NOCASE"),
        ("s1 and (f1 or f2)", "a GLOB 'x' NOCASE AND (b = 1 OR c GLOB 'z' NOCASE)"),
        ("[s1, f1]", "a GLOB 'x' NOCASE OR b = 1"),
    ],
)
def test_conditions_join_tests_and_negations_stand_at_tests(condition, text):
    assert text_of(DETECTIONS, condition) == text


EVENTS = pa.table(
    {
        "a": ["X", "y", None, "C:\\a*", ""],
        "b": pa.array([1, 2, None, 1, 5]),
        "ip": ["10.1.2.3", "x", None, "fe80::1", "8.8.8.8"],
        "other": ["x", None, None, "c:\\A*", "y"],
        "at": [dt.datetime(2024, 12, 30, 23, 59), dt.datetime(2024, 1, 1, 5), None, dt.datetime(1969, 5, 31, 18), None],
    }
)
FOUND = [
    ("a: x", "s", [0]),
    ("a: x", "not s", [1, 2, 3, 4]),
    ("a: [x, y]", "not s", [2, 3, 4]),
    (r"a: 'c:\a\*'", "s", [3]),
    ("a: ''", "s", [4]),
    ("a: ''", "not s", [0, 1, 2, 3]),
    ("a: null", "s", [2]),
    ("a: null", "not s", [0, 1, 3, 4]),
    ("a|exists: false", "not s", [0, 1, 3, 4]),
    ("a|re: '^.$'", "not s", [2, 3, 4]),
    ("a|cased: x", "s", []),
    ("b: [1, 2]", "not s", [2, 4]),
    ("b|gte: 2", "s", [1, 4]),
    ("b|gte: 2", "not s", [0, 2, 3]),
    ("b|neq: 1", "s", [1, 2, 4]),
    ("ip|cidr: [10.0.0.0/8, 'fe80::/10']", "s", [0, 3]),
    ("ip|cidr: [10.0.0.0/8, 'fe80::/10']", "not s", [1, 2, 4]),
    ("a|fieldref: other", "s", [0, 3]),
    ("a|fieldref: other", "not s", [1, 2, 4]),
    ("other|fieldref|endswith: a", "s", [0, 3, 4]),
    ("at|hour: [5, 18]", "s", [1, 3]),
    ("at|hour|gte: 18", "not s", [1, 2, 4]),
    ("at|week: 1", "s", [0, 1]),
    ("at|year|lt: 1970", "s", [3]),
    ("at|month: 12", "s", [0]),
    ("at|day: 31", "s", [3]),
    ("at|minute: 59", "not s", [1, 2, 3, 4]),
]


@pytest.mark.parametrize(("tests", "condition", "positions"), FOUND)
def test_a_test_holds_of_these_events(tests, condition, positions):
    predicate = text_of(f"s:\n  {tests}", condition)
    query = cer_gpu.compile(f"SELECT * FROM events WHERE * AS event FILTER event[{predicate}]", type_column=None)
    assert query.evaluate(EVENTS)["end"].to_pylist() == positions


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("a|re: 'x(?!y)'", r"^Regular expression 'x\(\?!y\)' is invalid: lookahead \(\?!\.\.\.\), which RE2 has not$"),
        ("a|re: 'x(?<=y)'", r"lookbehind \(\?<=\.\.\.\), which RE2 has not"),
        (r"a|re: '(x)\1'", r"back references \\1"),
        ("a|re: 'x(?>y)'", "atomic groups"),
        ("a|re: 'x++'", "possessive repetition"),
        ("a|re: 'x{2000}'", "not a regular expression .RE2"),
        ("a|expand: '%names%'", "the placeholder %names% has no values: give them by a pipeline"),
        ("a|nosuch: x", "Unknown modifier 'nosuch'"),
        ("a|cidr: 10.0.0.1/8", "Invalid CIDR"),
        ("a|lt: x", "incompatible"),
        ("'a`b': x", "cannot be the name of a column"),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_reason(tests, reason):
    rules = load(RULE.format(detection=f"  s:\n    {tests}\n  condition: s"))
    assert dict(rules) == {}
    ((name, error),) = rules.errors
    assert name == "A rule"
    with pytest.raises(cer_gpu.QueryError, match=reason):
        raise error


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        (r"a\Z", r"a\z"),
        (r"A\/", "A/"),
        (r"[]a]\U0001F600", r"[\]a]\x{0001F600}"),
        (r"[^]\d](?i:x)(?P<n>y)", r"[^\]\d](?i:x)(?P<n>y)"),
        (r"[(?!+*][+]+", r"[(?!+*][+]+"),
    ],
)
def test_regular_expressions_are_those_of_re2(pattern, same):
    assert text_of(f"s:\n  a|re: '{pattern}'") == f"a LIKE '{same}'"
