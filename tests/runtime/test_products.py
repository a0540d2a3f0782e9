"""Parallelised automata in action: the rows of other runtimes, bounded memory, heaps, counts, and exact keys."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import arrow_streams
import conjunction_strategies as conjunctions
import join_strategies as j
import numpy as np
import pyarrow as pa
import pytest
import reference as ref
import strategies
from cases import Case, assert_same, by_instances, counts_of, pushed, rows_of, sorted_rows
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from sizes import scaled
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.automaton.encoding import (
    NODE_FIELDS,
    RANK_BITS,
    UNION_LEFT,
    UNION_NODE,
    UNION_NUMBER,
    UNION_RANK,
    UNION_RIGHT,
    UNION_START,
)
from cer_gpu.backend.jit import kernel
from cer_gpu.backend.products.arena import DEEPEST, N_TOPS, N_UNIONS, Nodes, Unions, united

OUTPUTS = ("positions", "bindings", "events", "count", "ends")


def compiled(text, **options):
    """Return the query, which is to be evaluated by products."""
    query = cer_gpu.compile(text, **options)
    assert query._plan.parallel is not None, query._plan.why_not_parallel
    return query


# ------------------------------------------------------------------------------------- the rows of instances


@st.composite
def parallel_formulas(draw):
    """Draw a conjunction by key, a chain of equalities, or a conjunction that one step gathers."""
    shape = draw(st.sampled_from(["all", "all", "chain", "chain", "either", "gathered", "gathered"]))
    if shape == "all":
        return draw(conjunctions.joins_by_key())
    names = list("xyzu")[: draw(st.integers(3 if shape == "gathered" else 2, 4))]
    parts = [draw(conjunctions.operands(name, deep=False)) for name in names]
    columns = draw(st.permutations(["n", "m", "s", "st.n", "v"]))
    if shape == "gathered":
        n_before = draw(st.integers(2, len(names) - 1))
        body = ref.Seq(functools.reduce(ref.All, parts[:n_before]), parts[n_before])
        pairs = [(name, names[n_before], columns[k % 2]) for k, name in enumerate(names[:n_before])]
        rest = n_before
    else:
        body, pairs, rest = parts[0], [], 0
        if shape == "either":
            body = ref.Or(body, draw(conjunctions.operands(names[0], deep=False)))
    for k in range(rest + 1, len(names)):
        body = ref.Seq(body, parts[k])
        if draw(st.integers(0, 3)):
            pairs.append((names[k - 1], names[k], columns[k % 3]))
    return functools.reduce(ref.Filter, [conjunctions.equal(*pair) for pair in pairs], body)


PARALLEL = {"formula": parallel_formulas(), "stream_for": j.join_streams}


def answers(case, query, output, choosing):
    """Return what must be the same of two evaluations: with LIMIT or ANY the rows are any."""
    answer = query.evaluate(case.table, output=output)
    return answer["end"].to_pylist() if choosing and output not in ("count", "ends") else sorted_rows(answer)


def assert_like_instances(data, case, output, choosing):
    assume(case.compiled._plan.parallel is not None)
    other = by_instances(case.compiled)
    assert other._plan.parallel is None
    assert answers(case, case.compiled, output, choosing) == answers(case, other, output, choosing)
    answer = case.compiled.evaluate(case.table, output=output)
    assert answer.schema == other.evaluate(case.table, output=output).schema
    with small_sizes():
        cuts = data.draw(strategies.cuts(len(case.events)), label="other cuts")
        batches = arrow_streams.build_batches(case.events, case.layout, cuts)
        assert_same(pushed(case.compiled, batches, output=output), answer)


@strategies.property_test(0.6)
def test_products_give_the_rows_of_instances(data):
    choosing, output = data.draw(st.booleans(), label="choosing"), data.draw(st.sampled_from(OUTPUTS), label="output")
    case = Case(data, strategies.full_cases(choosing=choosing, **PARALLEL))
    case.candidates(ref.bindings)  # discards examples that are too large
    assert_like_instances(data, case, output, choosing)


@strategies.property_test(0.3)
def test_products_give_the_rows_of_instances_in_long_streams(data):
    output = data.draw(st.sampled_from(OUTPUTS), label="output")
    kinds = {"formula": parallel_formulas(), "strategies": strategies.STRATEGIES, "pool_of": j.join_values}
    case = Case(data, strategies.long_full_cases(**kinds))
    choosing = case.query.strategy == "ANY" or case.query.limit is not None
    assert_like_instances(data, case, output, choosing)


@pytest.mark.long("counts the statements of all variants that run")
def test_every_clause_is_met():
    """The random queries are parallel mostly, so that no clause is left out."""
    seen = Counter()

    @settings(strategies.property_settings, max_examples=150, derandomize=True)
    @given(st.data())
    def draw(data):
        case = Case(data, strategies.full_cases(**PARALLEL))
        seen["all"] += 1
        if case.compiled._plan.parallel is not None:
            query = case.query
            seen.update(["parallel", query.strategy, query.consume, query.within and query.within[0]])
            seen["partitioned"] += bool(query.partition_by)

    draw()
    assert seen["parallel"] > seen["all"] / 3
    met = {*strategies.STRATEGIES, "NONE", "ANY", "PARTITION", None, "events", "time", "attribute", "partitioned"}
    assert met <= {name for name, n in seen.items() if n}


# --------------------------------------------------------------------------------------------- rows of stacks


def keyed(n, n_keys, seed, types="ABC"):
    rng = random.Random(seed)
    keys = [rng.choice([None, *range(n_keys)]) for _ in range(n)]
    times = sorted(rng.randrange(2 * n) for _ in range(n))
    return pa.table({"type": rng.choices(types, k=n), "k": pa.array(keys, pa.int64()), "t": times})


@pytest.mark.parametrize("output", ["positions", "bindings", "count", "ends"])
@pytest.mark.parametrize("window", ["", "WITHIN 40 [t]", "WITHIN 400 [t]"])
def test_a_chain_of_one_key_gives_the_rows_of_stacks_by_partition(window, output):
    table = keyed(600, 12, 1)
    chain = compiled(f"SELECT * FROM S WHERE A ; B ; C FILTER A.k = B.k AND B.k = C.k {window}")
    stacks = cer_gpu.compile(f"SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] {window}")
    answer, expected = (query.evaluate(table, output=output) for query in (chain, stacks))
    assert answer.num_rows
    assert sorted_rows(answer) == sorted_rows(expected.drop_columns("k"))


# ----------------------------------------------------------------------------------------------------- memory


def bytes_after(query, batches):
    evaluator = query.evaluator()
    held = []
    for batch in batches:
        evaluator.push(batch)
        held.append(evaluator.pipeline.runtime.n_bytes)
    return held


CONNECTED = {
    "chain": "A ; B ; C FILTER A.k = B.k AND B.k = C.k",
    "star": "A ALL B ALL C FILTER A.k = B.k AND B.k = C.k",
    "tree": "A ALL B ALL C FILTER A.k = B.k AND B.k = C.k AND B.m = C.m",
    "gathered": "(A ALL B) ; C FILTER A.k = C.k AND B.m = C.m",
}


@pytest.mark.parametrize("clauses", ["WITHIN 1000 EVENTS", "PARTITION BY [p] WITHIN 100 EVENTS"])
@pytest.mark.parametrize("pattern", CONNECTED)
def test_memory_is_that_of_the_window(pattern, clauses):
    """Keys pass: after 100 windows no more is held than after 10."""
    rng = np.random.default_rng(1)
    query = compiled(f"SELECT * FROM S WHERE {CONNECTED[pattern]} {clauses}")

    def batch(k):
        keys = k * 100 + rng.integers(0, 300, 1000)
        parts = k // 5 + rng.integers(0, 5, 1000)
        columns = {"type": rng.choice(list("ABC"), 1000), "k": keys, "m": keys // 2, "p": parts}
        return pa.record_batch({name: pa.array(values) for name, values in columns.items()})

    held = bytes_after(query, map(batch, range(100)))
    assert held[-1] <= 2 * held[9]


def test_a_million_keys_one_after_the_other_leave_no_trace():
    query = compiled(f"SELECT * FROM S WHERE {CONNECTED['chain']} WITHIN 1000 EVENTS")
    evaluator = query.evaluator(output="count")
    n, size, found = 1_000_000, 60_000, 0
    for first in range(0, 2 * n, size):
        rows = np.arange(first, min(first + size, 2 * n))
        kinds = np.where(rows % 2 == 0, "A", "B")
        kinds[(rows // 2) % 50 == 7] = "C"  # these keys have no A
        answer = evaluator.push(pa.record_batch({"type": pa.array(kinds), "k": pa.array(rows // 2)}))
        found += answer.num_rows
    runtime = evaluator.pipeline.runtime
    assert found == 0
    assert runtime.n_bytes < 20_000_000
    assert len(runtime.live()) <= 1000


def test_state_without_a_window_is_what_may_still_match():
    query = compiled("SELECT * FROM S WHERE A ; B ; C FILTER A.k = B.k AND B.k = C.k")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": list("AABBC"), "k": [1, 2, 3, 1, 2]}))
    assert evaluator.pipeline.runtime.live().tolist() == [0, 1, 3]


# ------------------------------------------------------------------------------------------------------ heaps


@kernel
def insert(nodes, unions, root, latest, node, leaf, number, start, clock, length):
    """Call `united`, with groups as kernels take them."""
    return united(Nodes(*nodes), Unions(*unions), root, latest, node, leaf, number, start, clock, length)


class Heaps:
    """Nodes, of which node i has the start `starts[i]` and every third has sources, and the unions of one list."""

    def __init__(self, n_unions, dtype):
        self.tops = np.zeros(N_TOPS, np.int64)
        self.nodes = Nodes(self.tops, np.empty((0, NODE_FIELDS), np.int64), -1, -1, -1, -1, NODE_FIELDS)
        links = np.full((n_unions, 8), -1, np.int32)
        self.unions = Unions(links, links.view(dtype), links.view(np.int64), np.zeros(DEEPEST, np.int32))
        self.dtype = dtype

    def insert(self, root, node, start, clock, length):
        latest = self.dtype(0) if root < 0 else self.starts[root]
        numbers = self.dtype(start), self.dtype(clock), self.dtype(length)
        of = np.int32(node), np.int32(self.leaf(node)), np.int64(10**12 + node)
        return int(insert(tuple(self.nodes), tuple(self.unions), root, latest, *of, *numbers))

    def leaf(self, node):
        return 0 if node % 3 == 0 else (node + 1) << RANK_BITS

    @property
    def starts(self):
        return self.unions.starts[:, UNION_START]

    def below(self, root):
        """Return the unions from a root down."""
        found, todo = [], [root]
        while todo:
            union = todo.pop()
            if union >= 0:
                found.append(union)
                todo += map(int, self.unions.links[union, [UNION_LEFT, UNION_RIGHT]])
        return found

    def held(self, root):
        return {int(self.unions.links[u, UNION_NODE]): self.starts[u].item() for u in self.below(root)}

    def rank(self, u):
        return int(self.unions.links[u, UNION_RANK]) % (1 << RANK_BITS)

    def check(self, root):
        links, starts = self.unions.links, self.starts
        below = self.below(root)
        assert len(below) == len(set(below))
        assert len(self.held(root)) == len(below)
        for u in below:
            left, right = map(int, links[u, [UNION_LEFT, UNION_RIGHT]])
            node, rank = int(links[u, UNION_NODE]), self.rank(u)
            assert links[u, UNION_RANK] == self.leaf(node) + rank
            assert self.unions.numbers[u, UNION_NUMBER] == 10**12 + node
            for child in (left, right):
                if child >= 0:
                    assert child < u  # older, which collection relies on
                    assert starts[child] <= starts[u]  # condition 5
            ranks = [self.rank(child) if child >= 0 else 0 for child in (left, right)]
            assert ranks[0] >= ranks[1] == rank - 1
        spine = 0
        u = root
        while u >= 0:
            spine, u = spine + 1, int(links[u, UNION_RIGHT])
        assert spine <= math.log2(len(below) + 1)


STARTS = {
    "rising": lambda n, rng: range(n),
    "falling": lambda n, rng: range(n, 0, -1),
    "equal": lambda n, rng: [7] * n,
    "random": lambda n, rng: [rng.randrange(n) for _ in range(n)],
    "near the latest": lambda n, rng: [max(0, i - rng.randrange(1, 20)) for i in range(n)],
    "two and two": lambda n, rng: [(i // 2) if i % 2 else 2 * n - i for i in range(n)],
}


@pytest.mark.parametrize("dtype", [np.uint64, np.float64])
@pytest.mark.parametrize("kind", STARTS)
def test_heaps_are_persistent_and_shallow(kind, dtype):
    n = 400
    starts = list(STARTS[kind](n, random.Random(1)))
    heaps, root, roots = Heaps(n * 20, dtype), -1, []
    for node, start in enumerate(starts):
        root = heaps.insert(root, node, start, 3 * n, 3 * n)
        roots.append(root)
    for k, each in enumerate(roots):
        if k % 20 == 0 or k == n - 1:
            heaps.check(each)
            assert heaps.held(each) == dict(enumerate(starts[: k + 1]))
    assert heaps.tops[N_UNIONS] <= n * (math.log2(n + 1) + 1)


@settings(strategies.property_settings, max_examples=scaled(10))
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), min_size=1, max_size=60), st.integers(0, 50))
def test_heaps_lose_nothing_that_is_in_the_window(events, length):
    """Each event comes at a clock, with the latest start of what it gathered: not later than itself."""
    heaps, root, clock = Heaps(64 * len(events) * 2, np.uint64), -1, 0
    live = {}
    for node, (back, step) in enumerate(events):
        clock += step
        start = clock - min(back, clock, length)
        root = heaps.insert(root, node, start, clock, length)
        live = {i: s for i, s in live.items() if clock - s <= length} | {node: start}
        heaps.check(root)
        held = {i: s for i, s in heaps.held(root).items() if clock - s <= length}
        assert held == live


# ----------------------------------------------------------------------------------------------------- counts


@pytest.mark.parametrize(
    "pattern",
    [
        *CONNECTED.values(),
        "A ALL B ALL C",
        "A ALL B ALL C FILTER A.k = B.k",
        "(A ALL B ALL C) ; A AS d ; B AS e FILTER A.k = B.k AND C.m = d.m AND d.k = e.k",
        "(A ALL A AS b) ; C FILTER A.k = C.k AND b.k = C.k",
        "A ALL A AS b ALL B ALL C FILTER A.k = b.k AND B.k = b.k AND B.k = C.k AND A.m = B.m",
    ],
)
@pytest.mark.parametrize(
    "clauses", ["WITHIN 30 EVENTS", "PARTITION BY [p] WITHIN 20 EVENTS", "WITHIN 30 EVENTS LIMIT 5"]
)
def test_counts_are_the_numbers_of_rows(pattern, clauses):
    rng = random.Random(2)
    columns = {"type": "ABC", "k": range(4), "m": range(2), "p": range(2)}
    table = pa.table({name: rng.choices(pool, k=150) for name, pool in columns.items()})
    query = compiled(f"SELECT * FROM S WHERE {pattern} {clauses}")
    ends = Counter(query.evaluate(table)["end"].to_pylist())
    assert ends
    counts = query.evaluate(table, output="count")
    assert counts_of(counts) == sorted(ends.items())


def test_counts_are_products_of_sums():
    """A number of complex events that nobody could list."""
    n = 2000
    query = compiled("SELECT * FROM S WHERE A ALL B ALL C ALL D ALL E")
    table = pa.table({"type": [*"ABCD" * n, "E"]})
    counts = query.evaluate(table, output="count")
    assert counts.to_pydict() == {"end": [4 * n], "count": [n**4]}


def test_a_count_beyond_int64_is_an_error():
    types, n = "ABCDEFGH", 600
    query = compiled(f"SELECT * FROM S WHERE {' ALL '.join(types)}")
    below = pa.table({"type": [*types[:-1] * 500, "H"]})
    assert query.evaluate(below, output="count")["count"].to_pylist() == [500**7]
    above = pa.table({"type": [*types[:-1] * n, "H"]})
    with pytest.raises(cer_gpu.errors.EventsError, match=str(7 * n)):
        query.evaluate(above, output="count")
    assert query.evaluate(above, output="ends")["end"].to_pylist() == [7 * n]


def test_counts_close_to_the_greatest_int64():
    n = 55_108  # n**4 is the last fourth power in int64
    query = compiled("SELECT * FROM S WHERE A ALL B ALL C ALL D ALL E")
    table = pa.table({"type": list("ABCD") * n + ["E", "E"]})
    assert query.evaluate(table, output="count")["count"].to_pylist() == [n**4] * 2
    with pytest.raises(cer_gpu.errors.EventsError, match=r"2\*\*63"):
        query.evaluate(pa.table({"type": list("ABCD") * (n + 1) + ["E"]}), output="count")


# ------------------------------------------------------------------------------------------------------- keys

BIG = 2**53
VALUES = {
    "int64": (pa.int64(), [0, 1, -1, BIG, BIG + 1, BIG + 2, -BIG - 1, 2**63 - 1, -(2**63), None]),
    "uint64": (pa.uint64(), [0, 1, BIG, BIG + 1, 2**63 - 1, 2**63, 2**64 - 1, None]),
    "float64": (
        pa.float64(),
        [0.0, -0.0, 1.0, -1.0, 0.5, 0.1, float(BIG), float(BIG + 2), 2.0**63, -(2.0**63), 2.0**64, math.nan, math.inf,
         -math.inf, None],
    ),
    "float32": (pa.float32(), [0.0, -0.0, 1.0, 0.5, 2.0**24, math.nan, None]),
    "int8": (pa.int8(), [0, 1, -1, 127, None]),
    "decimal": (pa.decimal128(18, 2), [*map(Decimal, ("0.00", "1.00", "-1.00", "0.50", "9007199254740993.00")), None]),
    "decimal, whole": (pa.decimal128(18, 0), [*map(Decimal, (0, 1, -1, 2**53, 2**53 + 1)), None]),
    "decimal, finer": (
        pa.decimal128(18, 4), [*map(Decimal, ("0.0000", "1.0000", "0.5000", "0.1000", "0.0001")), None]
    ),
}  # fmt: skip


def exact(value):
    """Return the value as a fraction, or what equals itself alone."""
    if value is None or value != value:
        return None
    return value if isinstance(value, float) and math.isinf(value) else Fraction(value)


def table_of_columns(columns):
    """Return events, those of one column after the other, of types A, B, ...; a value stands in its own column."""
    types, parts = [], {f"c{k}": [] for k in range(len(columns))}
    for k, (_, values) in enumerate(columns):
        for value in values:
            types.append("ABCD"[k])
            for i in range(len(columns)):
                parts[f"c{i}"].append(value if i == k else None)
    arrays = {f"c{k}": pa.array(parts[f"c{k}"], type_) for k, (type_, _) in enumerate(columns)}
    return pa.table({"type": types, **arrays})


def check_exact(columns, pattern, same):
    """Hold the rows against the choices of one event of each column whose values are the same."""
    table = table_of_columns(columns)
    query = compiled(f"SELECT * FROM S WHERE {pattern}")
    firsts = list(itertools.accumulate([len(values) for _, values in columns], initial=0))
    indexed = [
        [(first + i, value) for i, value in enumerate(values)]
        for first, (_, values) in zip(firsts, columns, strict=False)
    ]
    chosen = itertools.product(*indexed)
    expected = [tuple(p for p, _ in row) for row in chosen if same(*(value for _, value in row))]
    assert sorted(map(tuple, query.evaluate(table)["positions"].to_pylist())) == sorted(expected)
    assert sorted_rows(by_instances(query).evaluate(table)) == sorted_rows(query.evaluate(table))


def of_equal_numbers(*values):
    values = [exact(value) for value in values]
    return None not in values and len(set(values)) == 1


@pytest.mark.long("sixty-four pairs of types")
@pytest.mark.parametrize(("one", "other"), list(itertools.product(VALUES, repeat=2)))
def test_numbers_of_two_types_are_equal_exactly(one, other):
    as_floats = "float" in one + other and "decimal" in one + other
    same = of_equal_floats if as_floats else of_equal_numbers
    check_exact([VALUES[one], VALUES[other]], "A ; B FILTER A.c0 = B.c1", same)
    check_exact([VALUES[one], VALUES[other]], "A ALL B FILTER B.c1 = A.c0", same)


def of_equal_floats(*values):
    return None not in values and len({float(value) for value in values}) == 1


@pytest.mark.parametrize(
    "names",
    [("int64", "uint64", "float64"), ("float64", "int64", "uint64"), ("int8", "decimal", "int64"),
     ("float32", "float64", "int64"), ("decimal", "decimal, finer", "uint64")],
)  # fmt: skip
@pytest.mark.parametrize(
    "pattern", ["A ; B ; C FILTER A.c0 = B.c1 AND B.c1 = C.c2", "A ALL B ALL C FILTER A.c0 = B.c1 AND C.c2 = A.c0"]
)
def test_one_variable_of_three_types_is_equal_exactly(names, pattern):
    check_exact([VALUES[name] for name in names], pattern, of_equal_numbers)


def test_decimals_and_floats_among_three_values_are_refused():
    """Their equality is not transitive: they are compared as floats, and with integers exactly."""
    table = table_of_columns([VALUES[name] for name in ("decimal", "float64", "int64")])
    query = compiled("SELECT * FROM S WHERE A ; B ; C FILTER A.c0 = B.c1 AND B.c1 = C.c2")
    with pytest.raises(cer_gpu.errors.QueryTypeError, match="decimals and floats"):
        query.evaluate(table)


@pytest.mark.parametrize(
    "pattern", ["A ; B ; C FILTER A.c0 = B.c1 AND B.c1 = C.c2", "A ALL B ALL C FILTER A.c0 = B.c1 AND C.c2 = A.c0"]
)
def test_timestamps_of_other_units_are_equal_exactly(pattern):
    second = 10**9
    moments = {"s": [0, 1, -1, 1_700_000_000], "ms": [0, 1000, 1001, -1000], "ns": [0, second, second + 1, -second]}
    units = [("s", second), ("ms", 10**6), ("ns", 1)]
    columns = [(pa.timestamp(unit), [*moments[unit], None]) for unit, _ in units]

    def same(*values):
        return None not in values and len({value * unit for value, (_, unit) in zip(values, units, strict=True)}) == 1

    check_exact(columns, pattern, same)


@pytest.mark.parametrize("pattern", ["A ; B FILTER A.c0 = B.c1", "A ALL B FILTER A.c0 = B.c1"])
def test_texts_of_any_layout_are_equal(pattern):
    texts = ["", "a", "A", "é", "\ufffd", "\U0001f525", "a" * 40, None]
    dictionary = pa.dictionary(pa.int32(), pa.string())
    for one, other in [(pa.string(), pa.large_string()), (pa.string(), dictionary), (dictionary, dictionary)]:
        check_exact([(one, texts), (other, texts[::-1])], pattern, lambda a, b: None is not a == b)


# ----------------------------------------------------------------------------------------------------- shares


@pytest.mark.long("counts the rows of many shares")
@pytest.mark.parametrize("output", ["positions", "bindings", "count"])
@pytest.mark.parametrize("pattern", ["star", "chain", "gathered"])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_shares_are_even_and_cover_all(pattern, n, output):
    rng = random.Random(3)
    columns = {"type": "ABC", "k": range(2), "m": range(2)}
    n_events = {"star": 120, "chain": 240, "gathered": 180}[pattern]  # for as many rows
    table = pa.table({name: rng.choices(pool, k=n_events) for name, pool in columns.items()})
    query = compiled(f"SELECT * FROM S WHERE {CONNECTED[pattern]}")
    whole = query.evaluate(table, output=output)
    parts = [query.evaluate(table, output=output, shard=(k, n)) for k in range(n)]
    assert sorted_rows(*parts) == sorted_rows(whole)
    sizes = [part.num_rows for part in parts]
    if output != "count":
        assert whole.num_rows > 10_000
        assert max(sizes) <= 1.1 * whole.num_rows / n
        assert min(sizes) >= 0.9 * whole.num_rows / n


# ------------------------------------------------------------------------------------------------------ order


@pytest.mark.long("three dozen patterns in many cuts")
@pytest.mark.parametrize("output", ["positions", "bindings", "count"])
@pytest.mark.parametrize(
    "clauses", ["WITHIN 40 EVENTS", "PARTITION BY [p] WITHIN 20 EVENTS", "WITHIN 40 EVENTS LIMIT 3"]
)
@pytest.mark.parametrize("pattern", CONNECTED)
def test_the_order_of_rows_is_the_same_in_any_cut(pattern, clauses, output):
    """A checkpoint collects what has left the window, and moves the rest."""
    rng = random.Random(4)
    columns = {"type": "ABC", "k": range(4), "m": range(2), "p": range(3)}
    table = pa.table({name: rng.choices(pool, k=160) for name, pool in columns.items()})  # four windows
    query = compiled(f"SELECT * FROM S WHERE {CONNECTED[pattern]} {clauses}")
    answer = query.evaluate(table, output=output)
    assert answer.num_rows
    for size in (1, 7, 50):
        with small_sizes():
            assert_same(with_checkpoints(query, table, size, output), answer)
    assert_same(with_checkpoints(query, table, 7, output), answer)


def with_checkpoints(query, table, size, output):
    evaluator, found = query.evaluator(output=output), []
    for batch in table.to_batches(max_chunksize=size):
        found.append(evaluator.push(batch))
        evaluator = query.restore(evaluator.checkpoint())
    return pa.Table.from_batches([*found, evaluator.finish()])


def test_rows_of_one_end_are_listed_again_alike():
    table = keyed(200, 3, 5)
    query = compiled("SELECT * FROM S WHERE A ; B ; C FILTER A.k = B.k AND B.k = C.k")
    rows = rows_of(query.evaluate(table))
    assert rows_of(query.evaluate(table)) == rows
    limited = rows_of(compiled(query._plan.text + " LIMIT 2").evaluate(table))
    firsts = [list(group)[:2] for _, group in itertools.groupby(rows, key=lambda row: row[1])]
    assert limited == [row for group in firsts for row in group]


# ---------------------------------------------------------------------------------------------------- choices

SHAPES = [
    "A AS a ; (B AS b OR C AS c)",
    "(A AS a OR C AS c) ; B AS b",
    "(A AS a OR B AS b) ; C AS c ; D AS d",
    "A AS a ; (B AS b OR C AS c ; B AS b) ; D AS d",
    "A AS a ; (B AS b OR C AS b) ; D AS d",
    "(A AS a ALL B AS b) ; (C AS c OR D AS d)",
    "(A AS a ALL B AS b) ; (C AS c OR D AS d) ; A AS e",
    "A AS a OR (B AS b ; C AS c)",
    "A AS a ALL B AS b ALL (C AS c FILTER c.x = c.y)",
]


@strategies.property_test(0.6)
def test_equalities_beside_choices_give_the_rows_of_instances(data):
    """A value that two others share makes them equal only where its event is there."""
    shape = data.draw(st.sampled_from(SHAPES), label="shape")
    names = [name for name in "abcde" if f"AS {name}" in shape]
    value = st.builds("{}.{}".format, st.sampled_from(names), st.sampled_from("xy"))
    one = st.tuples(value, value).filter(lambda sides: sides[0][0] != sides[1][0])
    filters = data.draw(st.lists(one, min_size=1, max_size=4), label="filters")
    text = f"SELECT * FROM S WHERE {shape} FILTER {' AND '.join(map(' = '.join, filters))}"
    note(text)
    query = cer_gpu.compile(text)
    assume(query._plan.parallel is not None)
    number = st.sampled_from([0, 0, 1, 1, 2, None])
    events = data.draw(st.lists(st.tuples(st.sampled_from("ABCD"), number, number), max_size=9), label="events")
    table = pa.table(
        {
            "type": pa.array([event[0] for event in events], pa.string()),
            "x": pa.array([event[1] for event in events], pa.int64()),
            "y": pa.array([event[2] for event in events], pa.int64()),
        }
    )
    for output in ("bindings", "count", "ends"):
        expected = by_instances(query).evaluate(table, output=output)
        assert sorted_rows(query.evaluate(table, output=output)) == sorted_rows(expected)
