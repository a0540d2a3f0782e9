"""Worked examples of the papers, typed in by hand: streams, queries, and the printed results.

Positions are the papers' own. The papers of the formulas give a complex event as its set of positions only; all
their examples keep every event, so the interval is from the first to the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import reference as ref


@dataclass(frozen=True)
class Example:
    """Query in both forms (text and tree), and the complex events that a paper prints for it."""

    name: str
    text: str
    query: ref.Query
    expected: tuple[ref.Row, ...]


def complex_events(*sets: set[int]) -> tuple[ref.Row, ...]:
    """Return the rows of complex events all of whose events are kept."""
    return tuple(sorted((min(s), max(s), tuple(sorted(s))) for s in sets))


def tested(variable: str, attribute: str, op: str, value: int | str) -> ref.Unary:
    """Return the filter `variable[attribute op value]`."""
    return ref.Unary(variable, ref.Compare(op, ref.Attr(attribute), ref.Const(value)))


def all_of(*conditions: ref.FilterExpr) -> ref.FilterExpr:
    """Return the conjunction of conditions, from left to right."""
    first, *others = conditions
    for other in others:
        first = ref.FilterAnd(first, other)
    return first


# -------------------------------------------------------- papers/001: fire sensors, figure 1, sections 2 and 4


def _sensor(type_: str, id_: int, value: int) -> ref.Event:
    temperature = type_ == "T"
    return {
        "type": type_,
        "id": id_,
        "tmp": value if temperature else None,
        "hum": None if temperature else value,
    }


FIRE_STREAM = [
    _sensor("H", 2, 25),
    _sensor("T", 0, 45),
    _sensor("H", 0, 20),
    _sensor("H", 1, 25),
    _sensor("T", 1, 40),
    _sensor("T", 0, 42),
    _sensor("T", 1, 25),
    _sensor("H", 1, 70),
    _sensor("H", 0, 18),
]

_x, _y, _z = ref.As(ref.EventType("T"), "x"), ref.As(ref.EventType("H"), "y"), ref.As(ref.EventType("H"), "z")
_fire = all_of(
    tested("x", "tmp", ">", 40),
    tested("y", "hum", "<=", 25),
    tested("x", "id", "=", 0),
    tested("y", "id", "=", 0),
)
_FIRE_TEXT = "FILTER x[tmp > 40] AND y[hum <= 25] AND x[id = 0] AND y[id = 0]"

PHI_1_FORMULA = ref.Filter(ref.Seq(_x, _y), _fire)
PHI_1 = Example(
    "phi1: a high temperature, then a low humidity",
    f"SELECT * FROM S WHERE (T AS x ; H AS y) {_FIRE_TEXT}",
    ref.Query(PHI_1_FORMULA),
    complex_events({1, 2}, {1, 8}, {5, 8}),
)
PHI_2 = Example(
    "phi2: the two in any order",
    f"SELECT * FROM S WHERE (T AS x ; H AS y) OR (H AS y ; T AS x) {_FIRE_TEXT}",
    ref.Query(ref.Filter(ref.Or(ref.Seq(_x, _y), ref.Seq(_y, _x)), _fire)),
    complex_events({1, 2}, {1, 8}, {5, 8}, {2, 5}),
)
_temperatures = ref.Plus(ref.Filter(ref.As(ref.EventType("T"), "y"), tested("y", "id", "=", 1)))
PHI_3_FORMULA = ref.Filter(
    ref.Seq(ref.Seq(ref.As(ref.EventType("H"), "x"), _temperatures), _z),
    all_of(
        tested("x", "hum", "<", 30),
        tested("z", "hum", ">", 60),
        tested("x", "id", "=", 1),
        tested("z", "id", "=", 1),
    ),
)
PHI_3 = Example(
    "phi3: temperatures while the humidity increases",
    "SELECT * FROM S WHERE H AS x ; (T AS y FILTER y[id = 1])+ ; H AS z "
    "FILTER x[hum < 30] AND z[hum > 60] AND x[id = 1] AND z[id = 1]",
    ref.Query(PHI_3_FORMULA),
    complex_events({3, 6, 7}, {3, 4, 7}, {3, 4, 6, 7}),
)
FIRE_EXAMPLES = (PHI_1, PHI_2, PHI_3)

# Section 4. {1, 2} has no rival that ends at 2, so every strategy keeps it; the text names it for STRICT only.
FIRE_STRATEGIES = (
    ("STRICT", PHI_1, complex_events({1, 2})),
    ("NEXT", PHI_1, complex_events({1, 2}, {1, 8})),
    ("LAST", PHI_1, complex_events({1, 2}, {5, 8})),
    ("MAX", PHI_1, complex_events({1, 2}, {1, 8}, {5, 8})),
    ("NEXT", PHI_3, complex_events({3, 4, 6, 7})),
    ("LAST", PHI_3, complex_events({3, 4, 6, 7})),
    ("MAX", PHI_3, complex_events({3, 4, 6, 7})),
)


# ------------------------------------- papers/002: stock ticks, Q1 of figure 1 over the stream of figures 3 and 6


def _stock(type_: str, name: str, price: float) -> ref.Event:
    return {"type": type_, "name": name, "price": price}


# The figures themselves are pictures; examples 2 to 4 in the text fix which events match which variable.
STOCK_STREAM = [
    _stock("SELL", "MSFT", 101.0),
    _stock("SELL", "MSFT", 102.0),
    _stock("SELL", "INTC", 80.0),
    _stock("BUY", "INTC", 80.0),
    _stock("SELL", "AMZN", 1900.0),
    _stock("SELL", "INTC", 81.0),
    _stock("SELL", "AMZN", 1920.0),
]
_sells = [ref.As(ref.EventType("SELL"), name) for name in ("msft", "intel", "amzn")]
_STOCK_TEXT = (
    "SELECT * FROM Stock WHERE SELL as msft; SELL as intel; SELL as amzn "
    "FILTER msft[name='MSFT'] AND msft[price > 100] AND intel[name='INTC'] "
    "AND amzn[name='AMZN'] AND amzn[price < 2000]"
)
_STOCK_FORMULA = ref.Filter(
    ref.Seq(ref.Seq(_sells[0], _sells[1]), _sells[2]),
    all_of(
        tested("msft", "name", "=", "MSFT"),
        tested("msft", "price", ">", 100),
        tested("intel", "name", "=", "INTC"),
        tested("amzn", "name", "=", "AMZN"),
        tested("amzn", "price", "<", 2000),
    ),
)
# examples 3 and 4: (start, positions) in node 4 closed at 4, and in node 6 closed at 6, within 6
STOCK_AT_4 = ((0, 4, (0, 2, 4)), (1, 4, (1, 2, 4)))
STOCK_AT_6 = ((0, 6, (0, 2, 6)), (0, 6, (0, 5, 6)), (1, 6, (1, 2, 6)), (1, 6, (1, 5, 6)))

STOCK_EXAMPLES = (
    Example("Q1, no window", _STOCK_TEXT, ref.Query(_STOCK_FORMULA), STOCK_AT_4 + STOCK_AT_6),
    Example(
        "Q1 within 6",
        f"{_STOCK_TEXT} WITHIN 6 EVENTS",
        ref.Query(_STOCK_FORMULA, within=("events", 6)),
        STOCK_AT_4 + STOCK_AT_6,
    ),
    Example(  # not printed: it follows from the maximum starts of figure 4
        "Q1 within 5",
        f"{_STOCK_TEXT} WITHIN 5 EVENTS",
        ref.Query(_STOCK_FORMULA, within=("events", 5)),
        STOCK_AT_4 + STOCK_AT_6[2:],
    ),
    Example(
        "Q1 within 3",
        f"{_STOCK_TEXT} WITHIN 3 EVENTS",
        ref.Query(_STOCK_FORMULA, within=("events", 3)),
        STOCK_AT_4[1:],
    ),
)
