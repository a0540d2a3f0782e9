"""Published results of other engines: cases of Trino's TestRowPatternMatching and TestAggregationsInRowPatternMatching.

The facts are theirs (github.com/trinodb/trino, Apache License 2.0); the statements are built here.  Cases that are not
supported stand at the end, with what is said of them.
"""

import re

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.errors import EventsError, QueryError

V = [90, 80, 70, 80, 90, 50, 40, 60]
FOUR = [90, 80, 70, 70]
SIX = [90, 80, 70, 80, 70, 80]
FALL_AND_RISE = "B AS B.value < PREV(B.value), C AS C.value > PREV(C.value)"
FALL = "B AS B.value < PREV(B.value)"
NOT_UP = "B AS B.value <= PREV(B.value)"
LABELS = "MATCH_NUMBER() AS m, RUNNING LAST(value) AS v, CLASSIFIER() AS c"
ALL = "ALL ROWS PER MATCH"


def rows_of(values):
    return pa.table({"id": pa.array(range(1, len(values) + 1), pa.int64()), "value": pa.array(values, pa.int64())})


def result(rows, pattern, define, measures=LABELS, rest=ALL, *, select="*", subset="", order="ORDER BY id"):
    text = (
        f"SELECT {select} FROM t MATCH_RECOGNIZE ({order} MEASURES {measures} {rest} PATTERN ({pattern}) "
        f"{f'SUBSET {subset}' if subset else ''} DEFINE {define}) AS m"
    )
    table = cer_gpu.compile(text).evaluate(rows if isinstance(rows, pa.Table) else rows_of(rows))
    return [tuple(row.values()) for row in table.to_pylist()]


def shown(found):
    """Write rows as words: the number of the match, the row, and its variable unless the match is empty."""
    return " ".join(f"{m}:{row}{c or ''}" for row, m, c in found)


EMPTY_FOUR = "1:1 2:2 3:3 4:4"
PATTERNS = [
    # rows, pattern, define, matches
    (V, "A B+ C+", FALL_AND_RISE, "1:1A 1:2B 1:3B 1:4C 1:5C 2:6A 2:7B 2:8C"),
    (FOUR, "() | A", "A AS true", EMPTY_FOUR),
    (FOUR, "^A", "A AS true", "1:1A"),
    (FOUR, "A^", "A AS true", ""),
    (FOUR, "^A^", "A AS true", ""),
    (FOUR, "A$", "A AS true", "1:4A"),
    (FOUR, "$A", "A AS true", ""),
    (FOUR, "$A$", "A AS true", ""),
    (FOUR, "A B C", f"{FALL}, C AS C.value = PREV(C.value)", "1:2A 1:3B 1:4C"),
    (FOUR, "((A) (B (C)))", f"{FALL}, C AS C.value = PREV(C.value)", "1:2A 1:3B 1:4C"),
    (FOUR, "B | C | A", f"{FALL}, C AS C.value <= PREV(C.value)", "1:1A 2:2B 3:3B 4:4C"),
    (FOUR, "PERMUTE(B, C)", f"{FALL}, C AS C.value < PREV(C.value)", "1:2B 1:3C"),
    (FOUR, "B*", NOT_UP, "1:1 2:2B 2:3B 2:4B"),
    (FOUR, "B*?", NOT_UP, EMPTY_FOUR),
    (FOUR, "B+", NOT_UP, "1:2B 1:3B 1:4B"),
    (FOUR, "B+?", NOT_UP, "1:2B 2:3B 3:4B"),
    (FOUR, "B?", NOT_UP, "1:1 2:2B 3:3B 4:4B"),
    (FOUR, "B??", NOT_UP, EMPTY_FOUR),
    (FOUR, "B{,}", NOT_UP, "1:1 2:2B 2:3B 2:4B"),
    (FOUR, "B{,}?", NOT_UP, EMPTY_FOUR),
    (FOUR, "B{1,}", NOT_UP, "1:2B 1:3B 1:4B"),
    (FOUR, "B{1,}?", NOT_UP, "1:2B 2:3B 3:4B"),
    (FOUR, "B{2,}", NOT_UP, "1:2B 1:3B 1:4B"),
    (FOUR, "B{2,}?", NOT_UP, "1:2B 1:3B"),
    (FOUR, "B{5,}", NOT_UP, ""),
    (FOUR, "B{5,}?", NOT_UP, ""),
    (FOUR, "B{,1}", NOT_UP, "1:1 2:2B 3:3B 4:4B"),
    (FOUR, "B{,1}?", NOT_UP, EMPTY_FOUR),
    (FOUR, "B{,2}", NOT_UP, "1:1 2:2B 2:3B 3:4B"),
    (FOUR, "B{,2}?", NOT_UP, EMPTY_FOUR),
    (FOUR, "B{,5}", NOT_UP, "1:1 2:2B 2:3B 2:4B"),
    (FOUR, "B{,5}?", NOT_UP, EMPTY_FOUR),
    (FOUR, "B{1,1}", NOT_UP, "1:2B 2:3B 3:4B"),
    (FOUR, "B{1,1}?", NOT_UP, "1:2B 2:3B 3:4B"),
    (FOUR, "B{1,5}", NOT_UP, "1:2B 1:3B 1:4B"),
    (FOUR, "B{1,5}?", NOT_UP, "1:2B 2:3B 3:4B"),
    (FOUR, "B{5,7}", NOT_UP, ""),
    (FOUR, "B{5,7}?", NOT_UP, ""),
    (FOUR, "B{1}", NOT_UP, "1:2B 2:3B 3:4B"),
    (FOUR, "B{1}?", NOT_UP, "1:2B 2:3B 3:4B"),
    (FOUR, "B{2}", NOT_UP, "1:2B 1:3B"),
    (FOUR, "B{2}?", NOT_UP, "1:2B 1:3B"),
    (FOUR, "B{5}", NOT_UP, ""),
    (V, "A {- B+ -} C+", FALL_AND_RISE, "1:1A 1:4C 1:5C 2:6A 2:8C"),
    (V, "{- A -} {- B+ -} C+", FALL_AND_RISE, "1:4C 1:5C 2:8C"),
    (V, "A {- {- B+ -} C+ -}", FALL_AND_RISE, "1:1A 2:6A"),
    (V, "{- A B+ C+ -}", FALL_AND_RISE, ""),
    (V, "A B+ {- ()* -} C+", FALL_AND_RISE, "1:1A 1:2B 1:3B 1:4C 1:5C 2:6A 2:7B 2:8C"),
    (V, "A {- B -}+ {- C -}+", FALL_AND_RISE, "1:1A 2:6A"),
    (V, "A {- B -}* {- C -}*", FALL_AND_RISE, "1:1A 2:6A"),
    (V, "A {- B -}{1,2} {- C -}{1,2}", FALL_AND_RISE, "1:1A 2:6A"),
    (V, "A {- C -}{2,3} {- B -}{2,3}", FALL_AND_RISE, "1:3A"),
    (FOUR, "()* | B", FALL, EMPTY_FOUR),
    (FOUR, "()+ | B", FALL, EMPTY_FOUR),
    (FOUR, "(){5,} | B", FALL, EMPTY_FOUR),
    (FOUR, "B | ()*", FALL, "1:1 2:2B 3:3B 4:4"),
    (FOUR, "(B ()*)*", FALL, "1:1 2:2B 2:3B 3:4"),
    (FOUR, "(B ()*)*?", FALL, EMPTY_FOUR),
    (FOUR, "^* | B", FALL, EMPTY_FOUR),
    (FOUR, "^+ | B", FALL, "1:1 2:2B 3:3B"),
    (FOUR, "^* A B", FALL, "1:1A 1:2B"),
    (FOUR, "$* | B", FALL, EMPTY_FOUR),
    (FOUR, "$+ | B", FALL, "1:2B 2:3B"),
    (FOUR, "B A $+", FALL, "1:3B 1:4A"),
    ([90, 80, 70, 80], 'a "b"+ C+', FALL_AND_RISE.replace("B", '"b"'), "1:1A 1:2b 1:3b 1:4C"),
    ([90, 80, 60], "A B+", "B AS B.value + 10 < abs(PREV(B.value))", "1:2A 1:3B"),
    # conditions on rows of other variables
    ([1, 1], "(A | B)* X", "X AS value = A.value", "1:1A 1:2X"),
    ([1, 1], "(A | B)* X", "X AS value = B.value", "1:1B 1:2X"),
    (
        [1, 2, 3, 4, 5, 6],
        "(A | B)* X",
        "X AS value = PREV(LAST(A.value), 3) + FIRST(A.value) + PREV(LAST(B.value), 2)",
        "1:1B 1:2A 1:3A 1:4A 1:5B 1:6X",
    ),
    (
        range(1, 10),
        "(A | B)+ LAST",
        "LAST AS FIRST(CLASSIFIER()) = 'B' AND " + " AND ".join(f"FIRST(CLASSIFIER(), {i}) = 'B'" for i in range(1, 8)),
        "1:1B 1:2B 1:3B 1:4B 1:5B 1:6B 1:7B 1:8B 1:9LAST",
    ),
    ([1] * 20, "(A+)+ B", "A AS value = 1, B AS value = 2", ""),
    # aggregates of the match so far
    ([4, 6, 0], "(A | B)*", "A AS avg(B.value) = 5", "1:1B 1:2B 1:3A"),
    ([4, 6, 0, 5], "(A | B)*", "A AS avg(A.value) = 5", "1:1B 1:2B 1:3B 1:4A"),
    ([1] * 6, "B (A | B) B", "A AS sum(value) > 1000", "1:1B 1:2B 1:3B 2:4B 2:5B 2:6B"),
    ([1] * 5, "(A | B)*", "A AS sum(value) > 4", "1:1B 1:2B 1:3B 1:4B 1:5A"),
    ([2] * 5, "(A | B)*", "A AS sum(value) > 4", "1:1B 1:2B 1:3A 1:4A 1:5A"),
    ([1, 2, 3, 4, 5], "(A | B)*", "A AS max(value) > 4", "1:1B 1:2B 1:3B 1:4B 1:5A"),
    ([2, 4, 6, 8, 10], "(A | B)*", "A AS max(value) > 4", "1:1B 1:2B 1:3A 1:4A 1:5A"),
    (
        [4, 6, 10, 1, 1, 1, 10, 5, 1],
        "(A | B)*",
        "A AS sum(A.value) - A.value <= sum(B.value)",
        "1:1B 1:2A 1:3B 1:4A 1:5A 1:6A 1:7A 1:8B 1:9A",
    ),
    (
        [0] * 8,
        "^(A | B)* (LAST_A | LAST_B)$",
        "LAST_A AS sum(A.id) + id = sum(B.id), LAST_B AS sum(B.id) + id = sum(A.id)",
        "1:1A 1:2A 1:3A 1:4A 1:5B 1:6B 1:7B 1:8LAST_A",
    ),
    (
        [0] * 6,
        "^(A | B | C)* (LAST_A | LAST_B | LAST_C)$",
        "LAST_A AS sum(A.id) + id = sum(B.id) AND sum(B.id) = sum(C.id), "
        "LAST_B AS sum(B.id) + id = sum(A.id) AND sum(A.id) = sum(C.id), "
        "LAST_C AS sum(C.id) + id = sum(A.id) AND sum(A.id) = sum(B.id)",
        "1:1A 1:2B 1:3C 1:4C 1:5B 1:6LAST_A",
    ),
]


@pytest.mark.parametrize(("rows", "pattern", "define", "wanted"), PATTERNS, ids=[f"{p[1]}-{p[2]}" for p in PATTERNS])
def test_rows_of_matches(rows, pattern, define, wanted):
    assert shown(result(rows, pattern, define, select="id, m, c")) == wanted


MODES = [
    ("ONE ROW PER MATCH", "B*", [(1, None, None), (2, 70, "B"), (3, None, None)]),
    ("", "B*", [(1, None, None), (2, 70, "B"), (3, None, None)]),
    ("ONE ROW PER MATCH", "B+", [(1, 70, "B")]),
    (ALL, "B*", [(1, None, None), (2, 80, "B"), (2, 70, "B"), (3, None, None)]),
    (ALL, "B+", [(1, 80, "B"), (1, 70, "B")]),
    (f"{ALL} SHOW EMPTY MATCHES", "B*", [(1, None, None), (2, 80, "B"), (2, 70, "B"), (3, None, None)]),
    (f"{ALL} OMIT EMPTY MATCHES", "B*", [(2, 80, "B"), (2, 70, "B")]),
    (f"{ALL} OMIT EMPTY MATCHES", "B+", [(1, 80, "B"), (1, 70, "B")]),
    (f"{ALL} WITH UNMATCHED ROWS", "B+", [(None, None, None), (1, 80, "B"), (1, 70, "B"), (None, None, None)]),
]


@pytest.mark.parametrize(("rest", "pattern", "wanted"), MODES)
def test_rows_per_match(rest, pattern, wanted):
    assert result(FOUR, pattern, FALL, rest=rest, select="m, v, c") == wanted


ONE = "1:1A 1:2B 1:3B 1:4C"
SKIPS = [
    ("PAST LAST ROW", ONE),
    ("TO NEXT ROW", f"{ONE} 2:2A 2:3B 2:4C 3:4A 3:5B 3:6C"),
    ("TO FIRST C", f"{ONE} 2:4A 2:5B 2:6C"),
    ("TO LAST B", f"{ONE} 2:4A 2:5B 2:6C"),
    ("TO B", f"{ONE} 2:4A 2:5B 2:6C"),
    ("TO U", f"{ONE} 2:4A 2:5B 2:6C"),
    ("TO A", "begins there, and would be found again for ever"),
    ("TO D", "has no row of D"),
]


@pytest.mark.parametrize(("skip", "wanted"), SKIPS)
@pytest.mark.parametrize("define", [FALL_AND_RISE, f"{FALL_AND_RISE} AND FIRST(A.value) > 0"], ids=["walk", "search"])
def test_after_match_skip(skip, wanted, define):
    asked = (SIX, "A B+ C+ D?", f"{define}, D AS false", LABELS, f"{ALL} AFTER MATCH SKIP {skip}")
    if wanted.startswith("1:"):
        assert shown(result(*asked, select="id, m, c", subset="U = (C, D)")) == wanted
        return
    with pytest.raises(EventsError, match=re.escape(wanted)):
        result(*asked, subset="U = (C, D)")


def test_unmatched_rows_among_matches_that_overlap():
    rest = f"{ALL} WITH UNMATCHED ROWS AFTER MATCH SKIP TO NEXT ROW"
    found = result([100, 100, 90, 80, 70, 100], "A B{2}", FALL, rest=rest, select="id, m, c")
    wanted = [(1, None, None), (2, 1, "A"), (3, 1, "B"), (4, 1, "B")]
    assert found == [*wanted, (3, 2, "A"), (4, 2, "B"), (5, 2, "B"), (6, None, None)]


MEASURES = [
    ("value", [10, 20, 30]),
    ("LAST(value)", [10, 20, 30]),
    ("RUNNING LAST(value)", [10, 20, 30]),
    ("FINAL LAST(value)", [30, 30, 30]),
    ("FIRST(value)", [10, 10, 10]),
    ("RUNNING FIRST(value)", [10, 10, 10]),
    ("FINAL FIRST(value)", [10, 10, 10]),
    ("FINAL LAST(value, 2)", [10, 10, 10]),
    ("LAST(value, 10)", [None] * 3),
    ("FIRST(value, 10)", [None] * 3),
    ("PREV(value)", [None, 10, 20]),
    ("NEXT(value)", [20, 30, None]),
    ("NEXT(FIRST(value), 2)", [30, 30, 30]),
    ("NEXT(FIRST(value), 10)", [None] * 3),
    ("PREV(FIRST(value), 10)", [None] * 3),
    ("PREV(FIRST(value, 10), 2)", [None] * 3),
    ("PREV(LAST(value, 10), 2)", [None] * 3),
]


@pytest.mark.parametrize(("measure", "wanted"), MEASURES)
def test_navigation(measure, wanted):
    assert result([10, 20, 30], "A+", "A AS true", f"{measure} AS measure", select="measure") == [(v,) for v in wanted]


@pytest.mark.parametrize(
    ("measure", "wanted"),
    [("PREV(B.value, 4)", None), ("PREV(B.value, 3)", 10), ("PREV(B.value, 2)", 20), ("NEXT(B.value, 1)", 40),
     ("NEXT(B.value, 2)", None)],
)  # fmt: skip
def test_navigation_beyond_the_match(measure, wanted):
    define = "B AS B.value = PREV(B.value)"
    assert result([10, 20, 30, 30, 40], "A B", define, f"{measure} AS measure", "ONE ROW PER MATCH") == [(wanted,)]


def test_running_and_final():
    measures = ", ".join(
        ["CLASSIFIER() AS c, FINAL LAST(CLASSIFIER()) AS fc"]
        + [f"{how} LAST({v}value) AS {how[0]}{v[:1]}" for v in ("", "A.", "B.", "C.") for how in ("RUNNING", "FINAL")]
    )
    found = result([90, 80, 70, 100, 200], "A B+ C+", FALL_AND_RISE, measures)
    assert [row[1:-1] for row in found] == [
        ("A", "C", 90, 200, 90, 90, None, 70, None, 200),
        ("B", "C", 80, 200, 90, 90, 80, 70, None, 200),
        ("B", "C", 70, 200, 90, 90, 70, 70, None, 200),
        ("C", "C", 100, 200, 90, 90, 70, 70, 100, 200),
        ("C", "C", 200, 200, 90, 90, 70, 70, 200, 200),
    ]


def test_running_aggregates():
    measures = (
        "sum(id) AS s, array_agg(U.id) AS l, count(*) AS n, FINAL count(*) AS f, count(C.*) AS c, count(U.*) AS u"
    )
    found = result([0] * 4, "A B C D", "A AS true", measures, subset="U = (B, D)")
    assert [row[1:-1] for row in found] == [
        (1, None, 1, 4, 0, 0),
        (3, [2], 2, 4, 0, 1),
        (6, [2], 3, 4, 1, 1),
        (10, [2, 4], 4, 4, 1, 2),
    ]


def test_a_column_with_the_name_of_a_variable():
    rows = pa.table({"id": [1, 2, 3, 4], "A": ["p", "q", None, "s"]})
    measures = "CLASSIFIER() AS c, count(A.A) AS x, count(A) AS y, count(A.*) AS z"
    found = result(rows, "A B A A", "A AS true", measures, select="c, x, y, z")
    assert found == [("A", 1, 1, 1), ("B", 1, 2, 1), ("A", 1, 2, 2), ("A", 2, 3, 3)]


def test_the_length_of_sessions():
    rows = pa.table({"user": [1, 1, 1, 1, 1, 2, 2, 2], "minute": [3, 4, 5, 8, 9, 2, 3, 4]})
    define = "B AS minute = PREV(minute) + 1, C AS minute = PREV(minute) + 1"
    asked = (rows, "(A B* C | D)*", define, "sum(C.minute) - sum(A.minute) AS n", "ONE ROW PER MATCH")
    assert result(*asked, order="PARTITION BY user ORDER BY minute") == [(1, 3), (2, 2)]


def test_unions_of_variables():
    define = "A AS A.value = 80, L AS L.value < 80, H AS H.value > 80"
    asked = ([*FOUR[:3], 80], "(L | H) A", define, "CLASSIFIER(U) AS u, CLASSIFIER(W) AS w")
    found = result(*asked, select="id, u, w", subset="U = (L, H), W = (A, L, H)")
    assert found == [(1, "H", "H"), (2, "H", "A"), (3, "L", "L"), (4, "L", "A")]


def test_partitions_in_no_order():
    rows = pa.table({
        "id": [1, 2, 6, 2, 2, 1, 3, 4, 5, 1, 3, 3],
        "part": ["p1", "p1", "p1", "p2", "p3", "p3", "p1", "p1", "p1", "p2", "p3", "p2"],
        "value": [90, 80, 80, 20, 60, 50, 70, 80, 90, 20, 70, 10],
    })  # fmt: skip
    measures = "MATCH_NUMBER() AS m, PREV(RUNNING LAST(value)) AS v, CLASSIFIER() AS c"
    order = "PARTITION BY part ORDER BY id"
    wanted = [("p1", 2, 1, 90, "B"), ("p1", 3, 1, 80, "B"), ("p1", 6, 2, 90, "B"), ("p2", 3, 1, 20, "B")]
    assert result(rows, "B+", FALL, measures, select="part, id, m, v, c", order=order) == wanted
    assert result(rows.slice(0, 0), "B+", FALL, measures, order=order) == []


def test_the_order_of_columns():
    rows = pa.table({"id": ["ordering"], "part": ["partitioning"], "value": [90]})
    asked = (rows, "A", "A AS true", "CLASSIFIER() AS classy")
    order = "PARTITION BY part ORDER BY id"
    assert result(*asked, order=order) == [("partitioning", "ordering", "A", 90)]
    assert result(*asked, "ONE ROW PER MATCH", order=order) == [("partitioning", "A")]
    assert result(*asked, order=f"{order} ASC, id DESC") == [("partitioning", "ordering", "A", 90)]  # theirs: id twice


REFUSED = [
    ("A+", "A AS max(value + MATCH_NUMBER()) > 5", "value AS v", "MAX takes a column"),
    ("A+", "A AS array_agg(CLASSIFIER()) = 1", "value AS v", "ARRAY_AGG takes a column"),
    ("A+", "A AS true", "array_agg(CLASSIFIER()) AS v", "ARRAY_AGG takes a column"),
    ("A+", "A AS true", "count() AS v", "COUNT takes 1 arguments, got 0"),
    ("A+", "A AS true", "max_by(value, CLASSIFIER()) AS v", "is not supported"),
    ("A+", "A AS (SELECT true)", "value AS v", "is not supported"),
    ("A+", "A AS FIRST(A.value > 0)", "value AS v", "FIRST is not supported"),
    ("A+", "A AS NEXT(CLASSIFIER()) = 'A'", "value AS v", "NEXT takes a column"),
    ("A+", "A AS true", "NEXT(CLASSIFIER()) AS n", "NEXT takes a column"),
    ("A+", "A AS true", "FIRST(A.value) IN (300, LAST(A.value)) AS v", "IN is not supported"),
    ("A+", "A AS true", "CAST(lower(LAST(CLASSIFIER())) || '_label' AS varchar(7)) AS v", "is not supported"),
    ("A+", "A AS true", "PREV(CLASSIFIER(), 1) = 'A' AS v", "conditions stand in DEFINE"),
]


@pytest.mark.parametrize(("pattern", "define", "measures", "told"), REFUSED)
def test_cases_that_are_not_supported(pattern, define, measures, told):
    with pytest.raises(QueryError, match=re.escape(told)):
        result(FOUR, pattern, define, measures)
