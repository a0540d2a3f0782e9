"""Stock market queries of papers/002 (appendix C) over a short market day in which their stocks are dense."""

from __future__ import annotations

import importlib.util
import random
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import reference as ref
from cases import counts_of, rows_of

import cer_gpu

SOURCE = Path(__file__).parents[2] / "benchmarks" / "stock.py"
spec = importlib.util.spec_from_file_location("stock_benchmark", SOURCE)
stock = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stock)

BUY, SELL = ref.EventType("BUY"), ref.EventType("SELL")
EITHER = ref.Or(BUY, SELL)


@dataclass(frozen=True)
class Step:
    """Step of a sequence, one event or several: its types, its variable and its tests."""

    types: ref.Formula
    variable: str
    tests: tuple[ref.Compare, ...]
    repeated: bool = False


def comparison(name, op, value):
    return ref.Compare(op, ref.Attr(name), ref.Const(value))


def sold_or_bought(types, variable, name, *tests):
    return Step(types, variable, (comparison("name", "=", name), *tests))


def sequence(middle, prices=False):
    over = comparison("price", ">", 26.0), comparison("price", ">", 11.14), comparison("price", ">=", 18.92)
    return (
        sold_or_bought(SELL, "msft", "MSFT", *over[:1] * prices),
        sold_or_bought(middle, "oracle", "ORCL", *over[1:2] * prices),
        sold_or_bought(middle, "csco", "CSCO"),
        sold_or_bought(SELL, "amat", "AMAT", *over[2:] * prices),
    )


LARGE = Step(EITHER, "qqq", (comparison("name", "=", "QQQ"), comparison("volume", "=", 4000)), repeated=True)
STEPS = {
    "Q1": sequence(BUY),
    "Q2": sequence(BUY, prices=True),
    "Q3": sequence(BUY),
    "Q4": sequence(EITHER),
    "Q5": sequence(EITHER, prices=True),
    "Q6": sequence(EITHER),
    "Q7": (sequence(EITHER)[0], LARGE, sequence(EITHER)[3]),
}


def in_print(steps):
    """Return the formula as the paper writes it: one filter behind the whole sequence."""
    atoms = [ref.As(ref.Plus(step.types) if step.repeated else step.types, step.variable) for step in steps]
    filters = [ref.Unary(step.variable, test) for step in steps for test in step.tests]
    return ref.Filter(reduce(ref.Seq, atoms), reduce(ref.FilterAnd, filters))


def in_short(steps):
    """Return the formula with each filter behind the event that it tests, so that brute force holds less."""

    def atom(step):
        filters = [ref.Unary(step.variable, test) for test in step.tests]
        one = ref.Filter(ref.As(step.types, step.variable), reduce(ref.FilterAnd, filters))
        return ref.Plus(one) if step.repeated else one

    return reduce(ref.Seq, map(atom, steps))


def query_of(name, formula):
    query = ref.Query(formula, within=("attribute", 30_000, "stock_time"))
    consuming = {"partition_by": (("volume",),), "consume": "ANY"} if name in ("Q3", "Q6") else {}
    return ref.replace(query, **consuming)


@pytest.mark.long("each stock query twice")
@pytest.mark.parametrize("name", STEPS)
def test_filters_at_the_end_and_at_the_events_mean_the_same(name):
    rng = random.Random(name)
    stocks, prices, n_found = [step.tests[0].right.value for step in STEPS[name]], [30.0, 30.0, 10.0], 0
    for _ in range(60):
        stream = [
            {
                ref.TYPE: rng.choice(["BUY", "SELL"]),
                "name": rng.choice(stocks),
                "price": rng.choice(prices),
                "volume": rng.choice([4000] * 7 + [100]),
                "stock_time": 2_500 * p,
            }
            for p in range(9 if name == "Q7" else 13)
        ]
        expected = ref.evaluate(query_of(name, in_print(STEPS[name])), stream)
        assert ref.evaluate(query_of(name, in_short(STEPS[name])), stream) == expected
        n_found += len(expected)
    assert n_found > 0


@pytest.mark.long("evaluates each stock query by brute force")
@pytest.mark.parametrize("name", STEPS)
def test_stock_queries_find_the_rows_of_the_reference(name):
    shares = {**dict.fromkeys(stock.FOUR_STOCKS, 0.2), "QQQ": 0.15}
    volumes = {100: 0.5, 200: 0.1, 4000: 0.4}
    table = stock.stock_market(600, seed=7, events_per_second=1.0, shares=shares, volumes=volumes)
    stream = table.to_pylist()
    query = query_of(name, in_short(STEPS[name]))
    expected = ref.evaluate_long(query, stream)
    assert len(expected) > 10
    compiled = cer_gpu.compile(stock.QUERIES[name])
    assert sorted(rows_of(compiled.evaluate(table))) == expected
    assert counts_of(compiled.evaluate(table, output="count")) == [
        (end, sum(row[1] == end for row in expected)) for end in sorted({row[1] for row in expected})
    ]


def test_the_market_day_has_the_rates_of_the_paper():
    table = stock.stock_market(400_000, seed=1)
    assert table.equals(stock.stock_market(400_000, seed=1))
    assert not table.equals(stock.stock_market(400_000, seed=2))
    times = table["stock_time"].to_numpy()
    assert (np.diff(times) >= 0).all()
    assert len(times) / (times[-1] / 1000) == pytest.approx(4803, rel=0.01)
    names = np.array(table["name"].to_pylist())
    in_a_window = 30 * 4803 / len(names)
    assert np.isin(names, stock.FOUR_STOCKS).sum() * in_a_window == pytest.approx(100, rel=0.15)
    large = (names == "QQQ") & (table["volume"].to_numpy() == 4000)
    assert large.sum() * in_a_window == pytest.approx(4, rel=0.6)
    assert sorted(set(table["type"].to_pylist())) == ["BUY", "SELL"]
