"""LIMIT n EVERY d, compared with its definition: for every output, in any cut, by key on threads, and in sets."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
import reference as ref
import rest_strategies as rest
import strategies
from answers import survivors_of, with_and_without_checkpoints
from cases import Case, assert_same, pushed
from hypothesis import assume
from hypothesis import strategies as st
from sizes import scaled, seeds
from small_sizes import small_sizes

import cer_gpu

lengths = st.one_of(
    st.tuples(st.just("events"), strategies.lengths),
    st.tuples(st.just("time"), strategies.lengths.map(lambda n: 1000 * n)),
    st.tuples(st.just("attribute"), strategies.lengths, st.just(strategies.ORDER_COLUMN)),
)
OUTPUTS = ("positions", "bindings", "events", "rows", "count", "ends")


@st.composite
def queries(draw):
    query = draw(rest.whole_queries(ambiguous=draw(st.booleans())))
    limit = draw(st.sampled_from([1, 2, 3, 1, 0]))
    return replace(
        query, limit=limit, every=draw(lengths), strategy=draw(st.sampled_from(["ALL", "ALL", "NEXT", "MAX"]))
    )


@st.composite
def cases(draw):
    query, stream = draw(rest.full_cases(queries=queries()))
    assume(not ref.trails(query.formula))
    return replace(query, chooses_first=False), stream


@st.composite
def absent_behind(draw, lasting=True):
    """Draw queries with an absence at the end, counted from the end of what stands before, or up to the window's."""
    query, length = draw(rest.trailing_queries(related=draw(st.booleans()))), draw(lengths)

    def counted(formula):
        if isinstance(formula, ref.Trailing):
            return replace(formula, length=length)
        return replace(formula, body=counted(formula.body))

    within = draw(st.sampled_from([query.within, query.within, None])) if lasting else query.within
    limit, strategy = draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from(["ALL", "ALL", "NEXT", "MAX"]))
    every = draw(lengths)
    formula = counted(query.formula) if lasting else query.formula
    return replace(query, formula=formula, within=within, limit=limit, every=every, strategy=strategy)


def absent_cases(*, lasting):
    queries = absent_behind(lasting=lasting)
    return rest.full_cases(queries=queries).map(lambda case: (replace(case[0], chooses_first=False), case[1]))


KINDS = {
    "of all kinds": cases,
    "absent behind": partial(absent_cases, lasting=True),
    "absent up to the window": partial(absent_cases, lasting=False),
}


def by_end(table):
    """Return the rows of each end, in their order."""
    found = {}
    for row in table.to_pylist():
        found.setdefault(row["end"], []).append(row)
    return found


def assert_right(case, answer, output):
    """Check the ends and their numbers, and that each end keeps the first rows that LIMIT n keeps."""
    limited = cer_gpu.Query(replace(case.compiled._plan, every=None))
    if output == "bindings":
        counts = sorted(Counter(limited.evaluate(case.whole, output=output)["end"].to_pylist()).items())
    else:
        counts = ref.counts(replace(case.query, every=None), case.events)
    absent = ref.trails(case.query.formula)
    kept = ref.kept_at_ends(case.query, case.events, counts, survivors_of(case) if absent else ())
    ends = answer["end"].to_pylist()
    if absent:  # in the order in which they are decided
        assert [end for end in dict.fromkeys(limited.evaluate(case.whole)["end"].to_pylist()) if end in ends] == [
            *dict.fromkeys(ends)
        ]
        kept = sorted(kept, key=lambda each: ends.index(each[0]) if each[0] in ends else -1)
    if output == "count":
        assert list(zip(ends, answer["count"].to_pylist(), strict=True)) == kept
    elif output == "ends":
        assert ends == [end for end, _ in kept]
    else:
        expected = by_end(limited.evaluate(case.whole, output=output))
        rows = [row for end, n in kept for row in expected[end][:n]]
        assert str(answer.to_pylist()) == str(rows)
    return sum(n for _, n in counts) - sum(n for _, n in kept)  # how many are left out


@pytest.mark.parametrize("kind", KINDS)
@strategies.property_test(0.7)
def test_every_output_keeps_what_the_definition_keeps_in_any_cut(kind, data):
    case = Case(data, KINDS[kind]())
    output = data.draw(st.sampled_from([name for name in OUTPUTS if name != "rows"]), label="output")
    case.candidates()  # discards examples that are too large
    evaluator = case.compiled.evaluator(output=output)
    answer = pa.Table.from_batches([evaluator.push(batch) for batch in case.batches] + [evaluator.finish()])
    if output == "ends":
        assert_right(case, answer, output)
    else:
        assert evaluator.n_suppressed == assert_right(case, answer, output)
    assert_same(case.compiled.evaluate(case.whole, output=output), answer)


@pytest.mark.parametrize("kind", KINDS)
@strategies.property_test(0.4)
def test_checkpoints_and_small_sizes_give_the_same(kind, data):
    case = Case(data, KINDS[kind]())
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    case.candidates()
    answer = case.compiled.evaluate(case.whole, output=output)
    with small_sizes():
        assert_same(*with_and_without_checkpoints(data, case, output))
        assert_same(pushed(case.compiled, case.batches, output=output), answer)


# ------------------------------------------------------------------------------- threads, sets, shares, and HAVING

PATTERN = "SELECT * FROM S WHERE A AS a ; B AS b"
TEXTS = (
    PATTERN + " PARTITION BY [k] WITHIN 20 SECONDS LIMIT 1 EVERY 30 SECONDS",
    PATTERN + " PARTITION BY [k] WITHIN 5 EVENTS LIMIT 2 EVERY 9 EVENTS",
    PATTERN + " PARTITION BY [k] LIMIT 3 EVERY 40 [ts]",
    PATTERN + " FILTER b.n > a.n PARTITION BY [k] WITHIN 20 SECONDS LIMIT 2 EVERY 12 SECONDS",
    PATTERN + " WITHIN 6 EVENTS LIMIT 2 EVERY 10 EVENTS",
    "SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 15 SECONDS CONSUME BY PARTITION LIMIT 2 EVERY 30 SECONDS",
    "SELECT a, b, a.n + b.n AS total FROM S WHERE A AS a ; B AS b PARTITION BY [k] WITHIN 20 SECONDS "
    "HAVING total > 9 LIMIT 2 EVERY 15 SECONDS",
    "SELECT * FROM S WHERE A AS a ; !B FOR 2 SECONDS PARTITION BY [k] LIMIT 1 EVERY 12 SECONDS",
    "SELECT * FROM S WHERE A AS a ; B AS b ; !C FOR 2 EVENTS PARTITION BY [k] WITHIN 9 SECONDS LIMIT 2 EVERY 9 EVENTS",
    "SELECT * FROM S WHERE A AS a ; !C PARTITION BY [k] WITHIN 2 SECONDS LIMIT 1 EVERY 15 SECONDS",
    "SELECT a, b, a.n + b.n AS total FROM S WHERE A AS a ; B AS b ; !C FOR 3 SECONDS PARTITION BY [k] "
    "WITHIN 20 SECONDS HAVING total > 6 LIMIT 1 EVERY 15 SECONDS",
)


def compiled(text):
    return cer_gpu.compile(text, time_column="ts", time_unit="s")


def random_events(rng, n=300):
    return pa.table(
        {
            "type": pa.array(rng.choices("ABC", k=n), pa.string()),
            "ts": pa.array(sorted(rng.choices(range(n), k=n)), pa.int64()),
            "k": pa.array(rng.choices([1, 2, 3, 4, None], k=n), pa.int64()),
            "n": pa.array(rng.choices(range(9), k=n), pa.int64()),
        }
    )


def expected(text, events, output="bindings"):
    """Return the rows that the query with LIMIT n alone has, filtered in their order."""
    pattern, _, clause = text.partition(" LIMIT ")
    n, _, length = clause.partition(" EVERY ")
    rows = compiled(f"{pattern} LIMIT {n}").evaluate(events, output=output).to_pylist()
    numbers, seen = [], Counter()
    for key in events["k"].to_pylist():
        numbers.append(seen[key])
        seen[key] += 1
    counts = length.endswith("EVENTS")

    def clock(end):
        return (numbers[end] if "PARTITION" in text else end) if counts else events["ts"][end].as_py()

    kept = []
    for row in rows:
        key = row.get("k")
        near = [
            other
            for other in kept
            if other.get("k") == key and clock(row["end"]) - clock(other["end"]) <= int(length.split()[0])
        ]
        if len(near) < int(n):
            kept.append(row)
    return kept


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", seeds(scaled(2, most=100)))
def test_threads_sets_and_shares_keep_the_same(text, seed):
    rng = random.Random(seed)
    events, query = random_events(rng), compiled(text)
    output = "measures" if "HAVING" in text else "bindings"
    rows = expected(text, events, output)
    assert len(rows) < compiled(text.partition(" LIMIT ")[0]).evaluate(events, output=output).num_rows
    assert query.evaluate(events, output=output).to_pylist() == rows
    assert query.evaluate(events, output=output, threads=2).to_pylist() == rows
    with small_sizes():
        parts = [query.evaluate(events, output=output, shard=(k, 3)).to_pylist() for k in range(3)]
    assert sorted(map(str, [row for part in parts for row in part])) == sorted(map(str, rows))
    alike = {str(i): other for i, other in enumerate(TEXTS) if "HAVING" not in other or other == text}
    together = cer_gpu.compile_all(alike, time_column="ts", time_unit="s")
    found = together.evaluate(events, output="bindings", threads=rng.choice([1, 2]))
    assert found[str(TEXTS.index(text))].to_pylist() == expected(text, events)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_left_out_is_counted(threads):
    """LIMIT n alone would have kept it: what that drops is not counted."""
    events = pa.table({"type": ["A", "A", "B", "B", "B", "B"], "ts": [0, 1, 2, 3, 8, 9], "k": [1] * 6})
    query = compiled(PATTERN + " PARTITION BY [k] LIMIT 1 EVERY 5 [ts]")
    evaluator = query.evaluator()
    found = evaluator.push(events.to_batches()[0])
    assert found["end"].to_pylist() == [2, 4]
    assert evaluator.n_suppressed == 2
    assert query.restore(evaluator.checkpoint()).n_suppressed == 2
    assert query.evaluate(events, threads=threads)["end"].to_pylist() == [2, 4]
    assert query.evaluate(events, output="count", threads=threads)["count"].to_pylist() == [1, 1]


def test_one_at_the_length_is_within_it():
    events = pa.table({"type": ["A"] * 4, "ts": [0, 5, 10, 11]})
    for n, kept in ((1, [0, 3]), (2, [0, 1, 3])):
        query = compiled(f"SELECT * FROM S WHERE A LIMIT {n} EVERY 10 [ts]")
        assert query.evaluate(events)["end"].to_pylist() == kept


def test_keys_of_long_ago_are_forgotten():
    n = 200_000
    events = pa.table({"type": ["A"] * n, "ts": range(n), "k": range(n)})
    evaluator = compiled("SELECT * FROM S WHERE A PARTITION BY [k] LIMIT 1 EVERY 10 [ts]").evaluator()
    sizes = []
    for batch in events.to_batches(max_chunksize=20_000):
        evaluator.push(batch)
        sizes.append(len(evaluator.checkpoint()))
    assert sizes[-1] < 2 * max(sizes[:4])


@pytest.mark.parametrize("threads", [1, 2])
def test_behind_an_absence_up_to_the_window_the_starts_are_that_far_apart(threads):
    """The first A is long before the others, and its match is decided first although it ends last."""
    events = pa.table(
        {"type": ["A", "A", "B", "B", "A", "B", "D"], "ts": [0, 8, 9, 10, 14, 15, 40], "k": [1, 2, 2, 1, 1, 1, 3]}
    )
    text = "SELECT * FROM S WHERE A ; B ; !C PARTITION BY [k] WITHIN 12 SECONDS"
    unlimited = compiled(text).evaluate(events, threads=threads)
    assert unlimited.select(["start", "end"]).to_pylist() == [
        {"start": 0, "end": 3},
        {"start": 1, "end": 2},
        {"start": 4, "end": 5},
    ]
    for length, ends in ((13, [3, 2, 5]), (14, [3, 2])):
        limited = compiled(f"{text} LIMIT 1 EVERY {length} SECONDS")
        assert limited.evaluate(events, threads=threads)["end"].to_pylist() == ends
