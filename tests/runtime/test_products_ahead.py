"""Products over long streams, whose heaps are read ahead: the rows of brute force, and collection once it pays."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.backend.products.arena import N_UNIONS
from cer_gpu.backend.products.matching import MAX_IN_CACHE
from cer_gpu.runtime.parallel import products

N = 120_000
QUERY = "Q(x, y) <- T(id = x), S(id = x, loc = y), R(id = x, loc = y)"


def visits(seed, n_ids=3000, n_locs=50):
    """Return events whose ids are not alike frequent, so that some lists are long."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "type": pa.DictionaryArray.from_arrays(rng.integers(0, 3, N).astype(np.int32), list("TSR")),
            "id": (n_ids * rng.random(N) ** 1.2).astype(np.int64),
            "loc": rng.integers(0, n_locs, N),
            "t": np.cumsum(rng.integers(0, 5, N)),
        }
    )


def brute_force(table, clocks, length):
    """Return the positions of T, S and R of each match."""
    types, ids, locs = (table[name].to_pylist() for name in ("type", "id", "loc"))
    of_id, of_both = defaultdict(list), defaultdict(list)
    for position, (kind, x, y) in enumerate(zip(types, ids, locs, strict=True)):
        if kind == "T":
            of_id[x].append(position)
        elif kind == "R":
            of_both[x, y].append(position)
    found = []
    for position, (kind, x, y) in enumerate(zip(types, ids, locs, strict=True)):
        if kind == "S":
            found += [(t, position, r) for r in of_both[x, y] for t in of_id[x]]
    rows = np.array(found)
    in_clocks = np.asarray(clocks)[rows]
    return rows[in_clocks.max(axis=1) - in_clocks.min(axis=1) <= length]


@pytest.fixture
def runtimes(monkeypatch):
    """Return a list to which the runtimes of products are added as they are made."""
    made, before = [], products.Products.__init__

    def noting(runtime, *arguments):
        before(runtime, *arguments)
        made.append(runtime)

    monkeypatch.setattr(products.Products, "__init__", noting)
    return made


@pytest.mark.parametrize("window", ["WITHIN 100000 EVENTS", "WITHIN 9000 EVENTS", "WITHIN 200000 [t]"])
def test_rows_of_heaps_that_are_read_ahead_are_those_of_brute_force(window, runtimes):
    table = visits(1)
    timed = window.endswith("[t]")
    expected = brute_force(table, table["t"] if timed else range(N), int(window.split()[1]))
    query = cer_gpu.compile(f"{QUERY} {window}", **({"time_column": "t"} if timed else {}))
    answer = query.evaluate(table, output="positions")
    assert runtimes[-1]._tops[N_UNIONS] > MAX_IN_CACHE or window == "WITHIN 9000 EVENTS"
    rows = sorted(map(tuple, np.sort(expected, axis=1).tolist()))
    assert sorted(map(tuple, answer["positions"].to_pylist())) == rows
    assert query.evaluate(table, output="count")["count"].to_numpy().sum() == len(rows) > 1000
    if timed:
        times = table["t"].to_pylist()
        assert answer["start_time"].to_pylist() == [times[row[0]] for row in answer["positions"].to_pylist()]
    assert answer["start"].to_pylist() == [row[0] for row in answer["positions"].to_pylist()]


@pytest.mark.parametrize(("window", "most"), [("WITHIN 1000000 EVENTS", 1), ("WITHIN 2000 EVENTS", None)])
def test_nothing_is_collected_while_all_is_in_the_window(window, most, monkeypatch, runtimes):
    n_collected, before = [], products.collect_products
    monkeypatch.setattr(products, "collect_products", lambda *a: (n_collected.append(1), before(*a)))
    query = cer_gpu.compile(f"SELECT * FROM S WHERE T ; S ; R FILTER T.id = S.id AND S.id = R.id {window}")
    assert query.evaluate(visits(2, n_ids=300), output="ends").num_rows
    n_unions = len(runtimes[-1]._unions.links)
    if most is None:
        assert len(n_collected) > 1
        assert n_unions == products._INITIAL_SIZE
    else:
        assert len(n_collected) <= most
        assert n_unions > products._INITIAL_SIZE
