"""Whole statements with MATCH_RECOGNIZE against the backtracking reference."""

import re

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cer_gpu.errors import EventsError
from cer_gpu.row_patterns import conditions, row_matching, searching
from cer_gpu.row_patterns.compiling import compile_row_pattern
from tests.row_patterns.reference import Running, SkipError, find_matches
from tests.row_patterns.test_row_matching import VARIABLES, patterns, written
from tests.strategies import property_settings

SUBSETS = {"U": ("A", "B")}


def _compare(op):
    return lambda a, b: None if a is None or b is None else op(a, b)


LESS = _compare(lambda a, b: a < b)
EQUAL = _compare(lambda a, b: a == b)
CONDITIONS = [
    ("{v}.x > 2", lambda m, v: LESS(2, m.last(v, "x"))),
    ("x < PREV(x)", lambda m, v: LESS(m.last(None, "x"), m.last(None, "x", 0, -1))),
    ("{v}.x < NEXT({v}.x, 2)", lambda m, v: LESS(m.last(v, "x"), m.last(v, "x", 0, 2))),
    ("PREV({v}.x) = NEXT(x) OR {v}.s = 'a'", lambda m, v: _or(m, v)),
    ("NOT PREV(s) IS NULL", lambda m, v: m.last(None, "s", 0, -1) is not None),
    ("s LIKE 'a%'", lambda m, v: None if m.last(v, "s") is None else m.last(v, "s").startswith("a")),
    ("x BETWEEN 1 AND 3", lambda m, v: _compare(lambda a, b: 1 <= a <= 3)(m.last(v, "x"), 0)),
    ("x + 1 IN (1, 2, 4)", lambda m, v: _compare(lambda a, b: a + 1 in (1, 2, 4))(m.last(v, "x"), 0)),
    (None, None),
]


def _or(m, v):
    a, b = EQUAL(m.last(v, "x", 0, -1), m.last(None, "x", 0, 1)), EQUAL(m.last(v, "s"), "a")
    return True if a or b else None if a is None or b is None else False


def _total(values):
    return sum(values) if values else None


MEASURES = [
    ("A.x", lambda m, n: m.last("A", "x")),
    ("{s}FIRST(B.x, 1)", lambda m, n: m.first("B", "x", 1)),
    ("{s}LAST(U.x, 2)", lambda m, n: m.last("U", "x", 2)),
    ("{s}FIRST(s)", lambda m, n: m.first(None, "s")),
    ("PREV({s}FIRST(A.x), 2)", lambda m, n: m.first("A", "x", 0, -2)),
    ("NEXT({s}LAST(x, 1))", lambda m, n: m.last(None, "x", 1, 1)),
    ("{s}COUNT(*)", lambda m, n: len(m.positions(None))),
    ("{s}COUNT(B.*)", lambda m, n: len(m.positions("B"))),
    ("{s}COUNT(U.x)", lambda m, n: len(m.values("U", "x"))),
    ("{s}SUM(x)", lambda m, n: _total(m.values(None, "x"))),
    ("{s}SUM(A.f)", lambda m, n: _total(m.values("A", "f"))),
    ("{s}AVG(U.x)", lambda m, n: sum(m.values("U", "x")) / len(m.values("U", "x")) if m.values("U", "x") else None),
    ("{s}MIN(s)", lambda m, n: min(m.values(None, "s"), default=None)),
    ("{s}MAX(B.x)", lambda m, n: max(m.values("B", "x"), default=None)),
    ("{s}CLASSIFIER()", lambda m, n: m.classifier()),
    ("{s}CLASSIFIER(U)", lambda m, n: m.classifier("U")),
    ("MATCH_NUMBER()", lambda m, n: n),
    ("{s}LAST(x) - {s}FIRST(x)", lambda m, n: _compare(lambda a, b: a - b)(m.last(None, "x"), m.first(None, "x"))),
    ("{s}ARRAY_AGG(A.x)", lambda m, n: [m.rows[i]["x"] for i in m.positions("A")] or None),
]
SKIPS = {
    "": "past last row",
    "AFTER MATCH SKIP PAST LAST ROW": "past last row",
    "AFTER MATCH SKIP TO NEXT ROW": "to next row",
    "AFTER MATCH SKIP TO FIRST B": ("first", "B"),
    "AFTER MATCH SKIP TO LAST U": ("last", "U"),
    "AFTER MATCH SKIP TO C": ("last", "C"),
}
MORE = ["", " SHOW EMPTY MATCHES", " OMIT EMPTY MATCHES", " WITH UNMATCHED ROWS"]
MODES = ["ONE ROW PER MATCH", "", *(f"ALL ROWS PER MATCH{more}" for more in MORE)]


@st.composite
def statements(draw, conditions=CONDITIONS):
    tree = draw(patterns().filter(lambda p: "var" in str(p)))
    named = [v for v in VARIABLES if f"'{v}'" in str(tree)]
    chosen = {v: draw(st.sampled_from(conditions)) for v in named}
    assume(any(sql for sql, _ in chosen.values()))
    measures = draw(
        st.lists(st.tuples(st.sampled_from(MEASURES), st.sampled_from(["", "FINAL ", "RUNNING "])), max_size=3)
    )
    needed = " ".join([*(sql for (sql, _), _ in measures), *(sql or "" for sql, _ in chosen.values())])
    assume(all(v in named for v in VARIABLES if re.search(rf"\b{v}\.", needed)))
    skip, mode = draw(st.sampled_from(list(SKIPS))), draw(st.sampled_from(MODES))
    assume(all(v in named for v in ("B", "C") if skip.endswith(v)))
    assume(not ("UNMATCHED" in mode and "exclude" in str(tree)))
    has_subset = {"A", "B"} <= set(named)
    assume(has_subset or not ("U." in needed or "(U)" in needed or skip.endswith("U")))
    return tree, chosen, measures, skip, mode, has_subset


def text_of(statement):
    tree, chosen, measures, skip, mode, has_subset = statement
    asked = ", ".join(f"{sql.format(s=final)} AS m{i}" for i, ((sql, _), final) in enumerate(measures))
    define = ", ".join(f"{v} AS {sql.format(v=v)}" for v, (sql, _) in chosen.items() if sql)
    return (
        f"SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts DESC {'MEASURES ' + asked if asked else ''} "
        f"{mode} {skip} PATTERN ({written(tree)}) {'SUBSET U = (A, B)' if has_subset else ''} DEFINE {define})"
    )


def expected(statement, rows):
    tree, chosen, measures, skip, mode, has_subset = statement
    define = {v: (lambda m, c=condition, v=v: c(m, v)) for v, (sql, condition) in chosen.items() if sql}
    subsets = SUBSETS if has_subset else {}
    found = []
    for key in dict.fromkeys(row["k"] for row in rows):
        part = sorted((row for row in rows if row["k"] == key), key=lambda row: -row["ts"])
        matches = find_matches(part, tree, define, skip=SKIPS[skip], subsets=subsets)
        lines = []
        for match in matches:
            whole = Running(part, match.steps, subsets)
            if "ALL" not in mode:
                lines.append((match.start, [key, *(f(whole, match.number) for (_, f), _ in measures)]))
                continue
            steps = range(len(match.steps))
            for i in steps:
                at, _, excluded = match.steps[i]
                if not excluded:
                    here = Running(part, match.steps[: i + 1], subsets)
                    values = [
                        f(whole if final == "FINAL " and "{s}" in sql else here, match.number)
                        for (sql, f), final in measures
                    ]
                    lines.append((match.start, [key, part[at]["ts"], *values, *(part[at][c] for c in "xfs")]))
            if not steps and "OMIT" not in mode:
                row = part[match.start]
                values = [f(whole, match.number) for (_, f), _ in measures]
                lines.append((match.start, [key, row["ts"], *values, *(row[c] for c in "xfs")]))
        if "UNMATCHED" in mode:
            held = {at for match in matches for at, _, _ in match.steps} | {m.start for m in matches}
            free = [i for i in range(len(part)) if i not in held]
            nothing = [None] * len(measures)
            lines += [(i, [key, part[i]["ts"], *nothing, *(part[i][c] for c in "xfs")]) for i in free]
            lines.sort(key=lambda line: line[0])
        found += [line for _, line in lines]
    return found


@st.composite
def tables(draw):
    n = draw(st.integers(0, 14))
    keys = draw(st.lists(st.sampled_from([1, 2, None]), min_size=n, max_size=n))
    if draw(st.booleans()):
        keys.sort(key=lambda key: (key is None, key))
    times = draw(st.permutations(range(n))) if draw(st.booleans()) else list(range(n, 0, -1))
    some = st.one_of(st.none(), st.integers(0, 4))
    texts = st.sampled_from(["a", "ab", "b", None])
    return [
        {"k": key, "ts": ts, "x": draw(some), "f": draw(st.sampled_from([0.5, 1.0, None])), "s": draw(texts)}
        for key, ts in zip(keys, times, strict=True)
    ]


SCHEMA = pa.schema({"k": pa.int64(), "ts": pa.int64(), "x": pa.int64(), "f": pa.float64(), "s": pa.string()})


@given(
    statements(),
    tables(),
    st.sampled_from([1, 3, row_matching.MATCHES]),
    st.sampled_from([1, 4, conditions.CONDITION_ROWS]),
)
@property_settings
def test_tables_are_those_of_the_reference(statement, rows, n_matches, n_rows):
    check(statement, rows, n_matches, n_rows)


def check(statement, rows, n_matches, n_rows):
    """Hold the table of a statement to that of the reference, with small pieces and blocks."""
    table = pa.Table.from_pylist(rows, SCHEMA)
    try:
        wanted = expected(statement, rows)
    except SkipError:
        wanted = None
    query = compile_row_pattern(text_of(statement))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(row_matching, "MATCHES", n_matches)
            patch.setattr(conditions, "CONDITION_ROWS", n_rows)
            patch.setattr(searching, "SEARCH_ROWS", n_rows)
            patch.setattr(searching, "INITIAL_CAPACITY", n_rows)
            patch.setattr(searching, "PAUSE", 3 * n_rows)
            found = query.evaluate(table)
    except EventsError as error:
        assert wanted is None
        assert "SKIP" in str(error)  # noqa: PT017
        return
    assert wanted is not None
    assert [list(row.values()) for row in found.to_pylist()] == wanted
