"""Queries printed in the papers on CORE: they compile as printed, but for double quotes around strings."""

from fractions import Fraction

import pytest

import cer_gpu
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import parse

FOUR_STOCKS = """FILTER msft[name = 'MSFT'] AND oracle[name = 'ORCL'] AND
            csco[name = 'CSCO'] AND amat[name = 'AMAT']"""
FOUR_PRICES = """FILTER msft[name = 'MSFT'] AND msft[price > 26.0] AND
            oracle[name = 'ORCL'] AND oracle[price > 11.14] AND
            csco[name = 'CSCO'] AND amat[name = 'AMAT'] AND amat[price >= 18.92]"""
SEQUENCE = "(SELL as msft; BUY as oracle; BUY as csco; SELL as amat)"
EITHER = "(SELL as msft; (BUY OR SELL) as oracle; (BUY OR SELL) as csco; SELL as amat)"

PARTITIONED = "PARTITION BY [volume]\n    WITHIN 30000 [stock_time]\n    CONSUME BY ANY\n"
QUERIES = {
    "example 1": """SELECT * FROM Stock
WHERE (SELL as ms; (BUY OR SELL) as or; (BUY OR SELL) as cs; SELL as am)
FILTER ms[name='MSFT'] AND ms[price > 26.0]
AND or[name = 'ORCL'] AND or[price < 11.14]
AND cs[name='CSCO'] AND am[name='AMZN'] AND am[price >= 18.97]
WITHIN 30 minutes""",
    "figure 1, Q1": """SELECT * FROM Stock
WHERE SELL as msft; SELL as intel; SELL as amzn
FILTER msft[name='MSFT'] AND msft[price > 100]
   AND intel[name='INTC']
  AND amzn[name='AMZN'] AND amzn[price < 2000]""",
    "section 6": "SELECT * FROM RandomStream WHERE A1 ; A2 ; A3 WITHIN 100 events",
    "appendix C, Q1": f"SELECT * FROM S\n    WHERE {SEQUENCE}\n    {FOUR_STOCKS}\n    WITHIN 30000 [stock_time]\n",
    "appendix C, Q2": f"SELECT * FROM S\n    WHERE {SEQUENCE}\n    {FOUR_PRICES}\n    WITHIN 30000 [stock_time]\n",
    "appendix C, Q4": f"SELECT * FROM S\n    WHERE {EITHER}\n    {FOUR_STOCKS}\n    WITHIN 30000 [stock_time]\n",
    "appendix C, Q5": f"SELECT * FROM S\n    WHERE {EITHER}\n    {FOUR_PRICES}\n    WITHIN 30000 [stock_time]\n",
    "figure 1, Q2": """SELECT b FROM Stock
WHERE SELL as s; BUY as b
PARTITION BY [name], [volume]
WITHIN 1 minute""",
    "figure 1, Q3": """SELECT MAX * FROM Stock
WHERE SELL as low; SELL+ as s1; SELL as high; SELL+ as s2; SELL as end
FILTER low[price < 100] AND s1[price >= 100] AND s1[price <= 2000]
   AND high[price > 2000] AND s2[price >= 100] AND s2[price <= 2000]
   AND end[price < 100]
PARTITION BY [name]""",
    "appendix C, Q3": f"SELECT * FROM S\n    WHERE {SEQUENCE}\n    {FOUR_STOCKS}\n    {PARTITIONED}",
    "appendix C, Q6": f"SELECT * FROM S\n    WHERE {EITHER}\n    {FOUR_STOCKS}\n    {PARTITIONED}",
}


@pytest.mark.parametrize("name", QUERIES)
def test_printed_queries_compile(name):
    cer_gpu.compile(QUERIES[name], time_column="stock_time")


def test_example_1_parses_as_the_paper_reads_it():
    query = parse(QUERIES["example 1"])
    assert query.streams == (s.Name("Stock"),)
    assert query.within == s.Within("time", Fraction(1800))
    assert isinstance(query.formula, s.Filtered)
    steps, formula = [], query.formula.formula
    while isinstance(formula, s.Sequence):
        steps.append(formula.right)
        formula = formula.left
    steps.append(formula)
    assert [step.variable.name for step in reversed(steps)] == ["ms", "or", "cs", "am"]
    assert steps[1].formula == s.Disjunction(s.EventType(s.Name("BUY")), s.EventType(s.Name("SELL")))
    tested = [(f.variable.name, f.predicate) for f in s.variable_filters(query.formula.filter)]
    assert [name for name, _ in tested] == ["ms", "ms", "or", "or", "cs", "am", "am"]
    assert tested[3][1] == s.Comparison("<", s.Attribute("price"), s.Literal(11.14, "11.14"))


def test_as_applies_to_the_iteration_in_figure_1():
    formula = parse(QUERIES["figure 1, Q3"]).formula.formula
    assert formula.left.right == s.Assign(s.Iteration(s.EventType(s.Name("SELL")), False), s.Name("s2"))
