"""Chains of conditions between gaps, as events near to one another in place and time, against the reference."""

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cer_gpu
from cer_gpu.row_patterns import bounds, searching, stored_rows
from tests.row_patterns.reference import Running, find_matches
from tests.row_patterns.test_row_matching import written
from tests.strategies import property_settings

STEPS = "ABC"
SKIPS = {"PAST LAST ROW": "past last row", "TO NEXT ROW": "to next row"}


def _comparison(op, read):
    """Return a condition on a number that a function of the match gives, and which may be missing."""

    def holds(m, v):
        value = read(m, v)
        return None if value is None else op(value)

    return holds


def _difference(column, of):
    def read(m, v):
        here, there = m.last(v, column), of(m)
        return None if here is None or there is None else here - there

    return read


def _last(variable, column):
    return lambda m: m.last(variable, column)


def _conditions(variable, delay):
    """Return conditions on the row at hand and one of an earlier variable."""
    since = _difference("ts", _last(variable, "ts"))
    late = _difference("late", _last(variable, "ts"))
    second, former = _difference("ts", _first(variable, "ts")), _difference("ts", _back(variable, "ts"))
    return [
        (f"ts - {variable}.ts <= {delay}", _comparison(lambda d: d <= delay, since)),
        (f"ts < {variable}.ts + {delay}", _comparison(lambda d: d < delay, since)),
        (f"{variable}.ts + {delay} >= ts", _comparison(lambda d: d <= delay, since)),
        (f"ts - {variable}.ts > 1", _comparison(lambda d: d > 1, since)),
        (f"1 < ts - {variable}.ts", _comparison(lambda d: d > 1, since)),
        (f"{variable}.ts - ts < 0 - 1", _comparison(lambda d: d > 1, since)),
        (f"(0 - 2) * (ts - {variable}.ts) < 0 - 2", _comparison(lambda d: d > 1, since)),
        (f"late - {variable}.ts <= {delay}", _comparison(lambda d: d <= delay, late)),
        (f"ts = {variable}.ts + {delay}", _comparison(lambda d: d == delay, since)),
        (f"f - {variable}.f <= {delay / 4}", _comparison(lambda d: d <= delay, since)),
        (f"f < {variable}.f + {delay / 4}", _comparison(lambda d: d < delay, since)),
        (f"f - {variable}.f < COUNT({variable}.*) / 2", lambda m, v: _soon(m, v, variable)),
        (f"2 * (ts - {variable}.ts) - 1 <= {delay}", _comparison(lambda d: 2 * d - 1 <= delay, since)),
        (f"NOT {variable}.ts - ts < 0 - {delay}", _comparison(lambda d: d <= delay, since)),
        (f"ts - FIRST(ts) < {delay}", lambda m, v: m.last(v, "ts") - m.first(None, "ts") < delay),
        (f"NOT ts - FIRST({variable}.ts, 1) > {delay}", _comparison(lambda d: d <= delay, second)),
        (f"ts - LAST({variable}.ts, 1) <= {delay}", _comparison(lambda d: d <= delay, former)),
        (f"COUNT(*) <= {delay}", lambda m, v: len(m.positions(None)) <= delay),
        (f"SUM(x) < {delay + 2}", lambda m, v: _less(_sum(None)(m), delay + 2)),
        (f"SUM({variable}.x) <= {delay}", lambda m, v: _less(_sum(variable)(m), delay + 1)),
        (f"COUNT({variable}.*) + 1 <= x", _comparison(lambda d: d > 0, _difference("x", _number(variable)))),
        (f"(ts - {variable}.ts < 3 OR ts = FIRST(ts))", lambda m, v: _once(m, v, variable)),
        (f"x BETWEEN {variable}.x - 1 AND {variable}.x + 1", _near(variable)),
        (f"x > {variable}.x", _comparison(lambda d: d > 0, _difference("x", _last(variable, "x")))),
        (f"x > LAST({variable}.x, 1)", _comparison(lambda d: d > 0, _difference("x", _back(variable)))),
        (f"x = FIRST({variable}.x, 1)", _comparison(lambda d: d == 0, _difference("x", _first(variable)))),
        (f"SUM({variable}.x) = x + 2", _comparison(lambda d: d == -2, _difference("x", _sum(variable)))),
        (f"MAX({variable}.x) <= x", _comparison(lambda d: d >= 0, _difference("x", _greatest(variable)))),
    ]


def _back(variable, column="x"):
    return lambda m: m.last(variable, column, 1)


def _first(variable, column="x"):
    return lambda m: m.first(variable, column, 1)


def _number(variable):
    return lambda m: len(m.positions(variable))


def _less(value, most):
    return None if value is None else value < most


def _soon(m, v, variable):
    before = m.last(variable, "f")
    return None if before is None else m.last(v, "f") - before < len(m.positions(variable)) // 2


def _once(m, v, variable):
    before = m.last(variable, "ts")
    return (before is not None and m.last(v, "ts") - before < 3) or m.last(v, "ts") == m.first(None, "ts")


def _sum(variable):
    return lambda m: sum(m.values(variable, "x")) if m.values(variable, "x") else None


def _greatest(variable):
    return lambda m: max(m.values(variable, "x"), default=None)


def _near(variable):
    return _comparison(lambda d: abs(d) <= 1, _difference("x", _last(variable, "x")))


@st.composite
def chains(draw):
    """Return a pattern of steps with gaps between them, and for each step its type and conditions on earlier ones."""
    steps = draw(st.sampled_from(["AB", "AB", "ABC", "ABC", "AAB", "ABAC", "AABC"]))
    parts, define = [], {}
    for i, step in enumerate(steps):
        if i:
            gap = draw(st.sampled_from(["Z", "Z", "Z", "Y", "", "A"]))
            bounds = draw(st.sampled_from([(0, None), (0, None), (0, 3), (1, None)]))
            parts += [("repeat", ("var", gap), *bounds, draw(st.booleans()))] if gap else []
        once = ("var", step)
        bounds = draw(st.sampled_from([None, None, (1, None), (1, 2)]))
        parts.append(once if bounds is None else ("repeat", once, *bounds, draw(st.booleans())))
        if step in define:
            continue
        chosen = [(f"s = '{step}'", lambda m, v, step=step: m.last(v, "s") == step)] if draw(st.booleans()) else []
        for earlier in dict.fromkeys(steps[:i]):
            delay = draw(st.integers(0, 6))
            chosen += draw(st.lists(st.sampled_from(_conditions(earlier, delay)), max_size=2))
        define[step] = chosen
    define["Y"] = [("s <> 'A'", lambda m, v: m.last(v, "s") != "A")]
    tree = ("seq", *parts, *draw(st.sampled_from([[], [], [("end",)]])))
    return tree, {v: define[v] for v in define if f"'{v}'" in str(tree) and define[v]}


@st.composite
def events(draw):
    n = draw(st.integers(0, 16))
    places, kinds = st.integers(draw(st.sampled_from([0, 0, -1])), 4), st.sampled_from("ABCD")
    places = st.one_of(places, st.none()) if draw(st.booleans()) else places
    steps = draw(st.lists(st.sampled_from([0, 1, 1, 2, 5]), min_size=n, max_size=n))
    rows = []
    at = 0
    for i, step in enumerate(steps):
        at += step
        late = draw(st.sampled_from([at, at, None]))
        key = i * draw(st.sampled_from([1, 2, 2])) // max(n, 1)
        rows.append({"k": key, "ts": at, "late": late, "x": draw(places), "s": draw(kinds)})
    return rows


NUMBERS = {name: pa.int64() for name in ("k", "ts", "late", "nt", "i", "x")}
SCHEMA = pa.schema({**NUMBERS, "f": pa.float64(), "s": pa.string()})


@given(chains(), events(), st.sampled_from(list(SKIPS)), st.booleans(), st.sampled_from([1, 4, 1 << 20]))
@property_settings
def test_the_matches_are_those_that_sql_prefers(chain, rows, skip, falling, n_dead):
    check(*chain, rows, skip, falling, n_dead)


@given(
    st.sampled_from(["AZAB", "AZAZB", "AZABZ"]),
    st.lists(st.booleans(), min_size=2, max_size=2),
    st.sampled_from(_conditions("A", 3)[-4:]),
    events(),
    st.sampled_from(list(SKIPS)),
)
@property_settings
def test_no_dead_end_is_taken_for_another(steps, greedy, condition, rows, skip):
    gaps = iter(greedy)
    parts = [("repeat", ("var", v), 0, None, next(gaps)) if v == "Z" else ("var", v) for v in steps]
    check(("seq", *parts), {"B": [condition]}, rows, skip, False, 1 << 20)


@given(
    st.sampled_from(["A+ B", "A A+ B", "A Y* B", "A+ Y* B", "A+ C+ B"]),
    st.booleans(),
    st.sampled_from(_conditions("A", 3)),
    events(),
    st.sampled_from(list(SKIPS)),
)
@property_settings
def test_rows_that_are_read_are_not_taken_at_once(pattern, greedy, condition, rows, skip):
    least = {"+": 1, "*": 0}
    parts = [
        ("repeat", ("var", each[0]), least[each[1]], None, greedy) if len(each) > 1 else ("var", each)
        for each in pattern.split()
    ]
    is_b = ("s = 'B'", lambda m, v: m.last(v, "s") == "B")
    chosen = {"B": [is_b, condition], "Y": [("s <> 'A'", lambda m, v: m.last(v, "s") != "A")]}
    check(("seq", *parts), {v: chosen[v] for v in chosen if v in pattern}, rows, skip, False, 1 << 20)


def check(tree, chosen, rows, skip, falling, n_dead):
    """Hold the matches of a pattern to those of the reference, with small memory for dead ends."""
    if not chosen:
        return
    define = {
        v: (lambda m, parts=parts, v=v: all(condition(m, v) is True for _, condition in parts))
        for v, parts in chosen.items()
    }
    conditions = ", ".join(f"{v} AS {' AND '.join(sql for sql, _ in parts)}" for v, parts in chosen.items())
    named = [v for v in (*STEPS, "Z", "Y") if f"'{v}'" in str(tree)]
    lasts = ", ".join(f"LAST({v}.i) AS {v.lower()}, COUNT({v}.*) AS n{v.lower()}" for v in named)
    text = (
        f"SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, i "
        f"MEASURES FIRST(i) AS begun, {lasts} AFTER MATCH SKIP {skip} PATTERN ({written(tree)}) DEFINE {conditions})"
    )
    if falling:
        text = _turned(text)
    rows = [{**row, "i": i, "nt": -row["ts"], "f": row["ts"] / 4} for i, row in enumerate(rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "DEAD", n_dead)
        patch.setattr(bounds, "SAMPLE", n_dead)
        if n_dead <= 4:  # columns of few rows at once, and only of those that conditions can read
            patch.setattr(searching, "SEARCH_ROWS", n_dead)
            patch.setattr(stored_rows, "MAX_SPARSENESS", 1)
            patch.setattr(stored_rows, "MOST_STORED", 1)
        patch.setattr(searching, "PAUSE", 7)
        patch.setattr(searching, "INITIAL_CAPACITY", 2)
        found = cer_gpu.compile(text).evaluate(pa.Table.from_pylist(rows, SCHEMA))
    wanted = []
    for key in dict.fromkeys(row["k"] for row in rows):
        part = [row for row in rows if row["k"] == key]
        for match in find_matches(part, tree, define, skip=SKIPS[skip]):
            whole = Running(part, match.steps)
            counts = [each for v in named for each in (whole.last(v, "i"), len(whole.positions(v)))]
            wanted.append([key, whole.first(None, "i"), *counts])
    assert [list(row.values()) for row in found.to_pylist()] == wanted


def _turned(text):
    """Return a statement over times with the opposite sign, which fall from row to row."""
    text = re.sub(r"(FIRST|LAST)\(([\w.]*)ts(, 1)?\)", r"(0 - \1(\2nt\3))", text)
    return re.sub(r"(?<!BY )\b(\w\.)?ts\b", r"(0 - \1nt)", text)
