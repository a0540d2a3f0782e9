"""Filters between events by index: zone maps of all levels, hashes, and room, held to joins by NumPy."""

import numpy as np
import pyarrow as pa
import pytest
from cases import by_instances
from small_sizes import small_sizes

import cer_gpu
from cer_gpu.runtime import joining
from cer_gpu.runtime.joining import Joining

OPERATORS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "=": np.equal}


def events(n, seed, types="AB"):
    """Return events of random types: x rises and falls slowly, so that whole blocks cannot pass; k has few values."""
    rng = np.random.default_rng(seed)
    return {
        "type": rng.choice(list(types), n),
        "x": np.round(100 + np.cumsum(rng.normal(0, 1, n)), 1),
        "y": rng.integers(0, 1000, n),
        "k": rng.integers(0, 40, n),
        "ts": np.sort(rng.integers(0, 3 * n, n)),
    }


def pairs_of(data, window, passes):
    """Return the pairs (A, B) of positions within the window that pass, by comparing each A with each B."""
    a, b = (np.flatnonzero(data["type"] == kind) for kind in "AB")
    found = []
    for j in b:
        near = a[(a < j) & (a >= j - window)]
        found += [(i, int(j)) for i in near[passes(near, j)].tolist()]
    return sorted(found)


def found_by(text, data, **options):
    answer = by_instances(cer_gpu.compile(text)).evaluate(pa.table(data), **options)
    return sorted(zip(answer["start"].to_pylist(), answer["end"].to_pylist(), strict=True))


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("window", [50, 1500, 100_000])
def test_zone_maps_find_what_a_join_finds(op, window):
    data = events(6000, 1, "AAAAAABCCCCCCCCC")  # few B, as each is paired with thousands of A
    x = data["x"]
    text = f"SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x {op} a.x + 10 WITHIN {window} EVENTS"
    expected = pairs_of(data, window, lambda i, j: OPERATORS[op](x[j], x[i] + 10))
    assert found_by(text, data) == expected
    if op != "=":
        assert expected


def test_blocks_of_all_sizes_are_skipped():
    """More than 32,768 instances, of which one block in the middle can pass."""
    n = 120_000
    x = np.full(n, 10.0)
    x[50_000:50_010] = 1.0
    kinds = np.full(n, "A")
    kinds[-3:] = "B"
    data = {"type": kinds, "x": x}
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x > a.x + 5")
    table = pa.table(data)
    assert query.evaluate(table).num_rows == 30
    evaluator = query.evaluator()
    evaluator.push(table.to_batches()[0])
    tested = evaluator.pipeline.runtime.tested
    assert tested[0, 1] == 30
    assert tested[0, 0] <= 3 * 64  # the two blocks of 32 that hold them


def test_bands_of_two_columns_find_what_a_join_finds():
    data = events(6000, 2)
    x, y = data["x"], data["y"]
    text = """SELECT * FROM S WHERE A AS a ; B AS b
              FILTER b.x BETWEEN a.x - 0.5 AND a.x + 0.5 AND b.y - 20 <= a.y AND a.y <= b.y + 20 WITHIN 2000 EVENTS"""
    expected = pairs_of(data, 2000, lambda i, j: (x[i] - 0.5 <= x[j]) & (x[j] <= x[i] + 0.5) & (abs(y[j] - y[i]) <= 20))
    assert expected
    assert found_by(text, data) == expected


@pytest.mark.parametrize("clauses", ["WITHIN 500 EVENTS", "PARTITION BY [k] WITHIN 900 [ts]"])
def test_equalities_find_what_a_join_finds(clauses):
    data = events(5000, 3)
    y, k, ts = data["y"] % 50, data["k"], data["ts"]
    data["y"] = y
    if "PARTITION" in clauses:
        expected = pairs_of(data, 5000, lambda i, j: (y[i] == y[j]) & (k[i] == k[j]) & (ts[j] - ts[i] <= 900))
    else:
        expected = pairs_of(data, 500, lambda i, j: y[i] == y[j])
    assert expected
    text = f"SELECT * FROM S WHERE A AS a ; B AS b FILTER b.y = a.y {clauses}"
    assert found_by(text, data) == expected
    with small_sizes():
        assert found_by(text, data) == expected


def test_three_steps_with_a_distant_filter_find_what_loops_find():
    data = events(700, 4, "ABC")
    x, k = data["x"], data["k"] % 5
    data["k"] = k
    kinds = data["type"]
    expected = [
        (i, m)
        for m in np.flatnonzero(kinds == "C")
        for j in np.flatnonzero(kinds[:m] == "B")
        for i in np.flatnonzero(kinds[:j] == "A")
        if m - i <= 60 and k[j] == k[i] and x[m] > x[j] and x[m] < x[i]
    ]
    assert expected
    text = (
        "SELECT * FROM S WHERE A AS a ; B AS b ; C AS c FILTER b.k = a.k AND c.x > b.x AND c.x < a.x WITHIN 60 EVENTS"
    )
    assert found_by(text, data) == sorted(expected)


def test_each_event_is_stored_once_for_each_step_and_leaves_with_the_window():
    data = events(200_000, 5)
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b ; A AS c FILTER b.x > a.x + 200 WITHIN 1000 EVENTS")
    evaluator = query.evaluator()
    for batch in pa.table(data).to_batches(max_chunksize=10_000):
        evaluator.push(batch)
    runtime = evaluator.pipeline.runtime
    assert runtime.n_bytes < 2_000_000
    assert len(runtime.live()) <= 1001  # no B reaches an A, so only the A of the window are kept


def test_an_instance_that_reaches_no_start_is_not_stored():
    data = {"type": ["A", "B", "B", "C"], "x": [5.0, 1.0, 9.0, 0.0]}
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b ; C AS c FILTER b.x > a.x")
    evaluator = query.evaluator()
    found = evaluator.push(pa.table(data).to_batches()[0])
    assert found["positions"].to_pylist() == [[0, 2, 3]]
    assert evaluator.pipeline.runtime.live().tolist() == [0, 2]


def test_texts_of_two_dictionaries_are_compared_by_their_values():
    kinds = pa.array(["A", "B"])
    first = pa.record_batch({"type": kinds, "s": pa.array(["x", "y"]).dictionary_encode()})
    second = pa.record_batch({"type": kinds, "s": pa.array(["y", "x"]).dictionary_encode()})
    query = by_instances(cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.s = a.s"))
    table = pa.Table.from_batches([first, second])
    assert query.evaluate(table)["positions"].to_pylist() == [[0, 3]]
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.s > a.s")
    assert query.evaluate(table)["positions"].to_pylist() == [[0, 1]]


def test_other_types_of_compared_columns_in_a_later_batch_are_refused():
    query = cer_gpu.compile("SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x > a.x")
    evaluator = query.evaluator()
    evaluator.push(pa.record_batch({"type": ["A"], "x": [1]}))
    evaluator.push(pa.record_batch({"type": ["B"], "x": pa.array([2], pa.int32())}))
    with pytest.raises(cer_gpu.errors.EventsError, match="have other types than in the batches before"):
        evaluator.push(pa.record_batch({"type": ["B"], "x": [2.5]}))


@pytest.mark.parametrize("pattern", ["A AS a ; B+ AS b FILTER b.x > a.x", "A AS a ; B+ AS b ; C AS c FILTER c.x > a.x"])
def test_a_repeated_step_is_not_listed_in_vain(pattern):
    """No event before the 40 of the repeated step passes: all 2**40 choices of them would be in vain."""
    n = 40
    data = {"type": ["A"] + ["B"] * n + ["C"], "x": [5.0] + [1.0] * n + [2.0]}
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern}")
    assert query.evaluate(pa.table(data)).num_rows == 0
    data["x"][0], data["x"][n] = 1.5, 3.0  # the last B passes
    assert query.evaluate(pa.table(data), output="ends").num_rows == 1


@pytest.mark.parametrize("engine", ["instances", "products"])
def test_the_choice_of_the_largest_comes_back_to_python(engine, monkeypatch):
    """All complex events of an end are compared with all: a signal is heeded in between."""
    query = cer_gpu.compile(
        "SELECT MAX * FROM S WHERE A+ AS a ; B AS b FILTER a.x < b.x"
        if engine == "instances"
        else "SELECT MAX * FROM S WHERE A+ AS a ; B AS b FILTER a.x = b.x"
    )
    events = pa.table({"type": [*"AAAAAAB"], "x": [1] * 6 + [2 if engine == "instances" else 1]})
    expected = query.evaluate(events).to_pylist()
    stops = []
    emptied = Joining._nothing.fget
    monkeypatch.setattr(Joining, "_nothing", property(lambda self: stops.append(1) or emptied(self)))
    monkeypatch.setattr(joining, "PAIRS_AT_ONCE", 1)
    assert query.evaluate(events).to_pylist() == expected
    assert len(stops) >= 62  # of 63 complex events
    assert len(expected) == 1
