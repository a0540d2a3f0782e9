"""Worked examples of the papers, evaluated by the engine."""

from __future__ import annotations

import papers_examples as papers
import pyarrow as pa
import pytest
import rendering

import cer_gpu

FIRE = pa.Table.from_pylist(papers.FIRE_STREAM)
STOCK = pa.Table.from_pylist(papers.STOCK_STREAM)


def rows_of(table: pa.Table) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return the rows as (start, end, positions), sorted."""
    columns = [table[name].to_pylist() for name in ("start", "end", "positions")]
    return sorted((i, j, tuple(kept)) for i, j, kept in zip(*columns, strict=True))


@pytest.mark.parametrize("example", papers.FIRE_EXAMPLES, ids=lambda e: e.name)
def test_fire_sensors_give_the_results_of_the_paper(example):
    assert rows_of(cer_gpu.compile(example.text).evaluate(FIRE)) == sorted(example.expected)


@pytest.mark.parametrize("example", papers.STOCK_EXAMPLES, ids=lambda e: e.name)
def test_stock_ticks_give_the_results_of_the_paper(example):
    assert rows_of(cer_gpu.compile(example.text).evaluate(STOCK)) == sorted(example.expected)


@pytest.mark.parametrize("example", papers.FIRE_EXAMPLES + papers.STOCK_EXAMPLES, ids=lambda e: e.name)
def test_texts_and_trees_of_the_examples_mean_the_same(example):
    table = FIRE if example in papers.FIRE_EXAMPLES else STOCK
    written = rendering.to_ceql(example.query)
    assert cer_gpu.compile(written).evaluate(table).equals(cer_gpu.compile(example.text).evaluate(table))


def test_stock_ticks_are_reported_at_the_events_of_the_figures():
    """Figures 4 and 6: nothing ends before position 4, two complex events there, four at position 6."""
    evaluator = cer_gpu.compile(f"{papers.STOCK_EXAMPLES[1].text}").evaluator()
    reported = [rows_of(pa.Table.from_batches([evaluator.push(batch)])) for batch in STOCK.to_batches(max_chunksize=1)]
    assert reported == [[], [], [], [], list(papers.STOCK_AT_4), [], list(papers.STOCK_AT_6)]
    assert evaluator.finish().num_rows == 0


def test_a_segmentation_by_price_gives_the_rows_of_the_definition():
    """Q3 of figure 1 of papers/002, without its partition and its MAX: a segmentation by price."""
    prices = [50, 500, 900, 2500, 400, 60]
    table = pa.table({"type": ["SELL"] * len(prices), "price": prices})
    text = """
        SELECT * FROM Stock
        WHERE SELL as low; SELL+ as s1; SELL as high; SELL+ as s2; SELL as end
        FILTER low[price < 100] AND s1[price >= 100] AND s1[price <= 2000]
           AND high[price > 2000] AND s2[price >= 100] AND s2[price <= 2000]
           AND end[price < 100]
    """
    assert rows_of(cer_gpu.compile(text).evaluate(table)) == [
        (0, 5, (0, 1, 2, 3, 4, 5)),
        (0, 5, (0, 1, 3, 4, 5)),
        (0, 5, (0, 2, 3, 4, 5)),
    ]


@pytest.mark.parametrize("spelling", ["SELECT ALL", "select all", "SELECT"])
def test_all_and_consume_by_none_are_the_default(spelling):
    text = papers.PHI_1.text.replace("SELECT", spelling) + " CONSUME BY NONE"
    assert rows_of(cer_gpu.compile(text).evaluate(FIRE)) == sorted(papers.PHI_1.expected)
