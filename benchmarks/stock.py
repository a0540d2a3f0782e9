"""The seven stock market queries of papers/002 (appendix C), and a generated market day.

The day of the paper is no longer available; `stock_market` makes one of the same shape: 4,803 events per second, and
about 100 events of the four stocks of Q1 in each window of 30 seconds.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

EVENTS_PER_SECOND = 4803
WINDOW_SECONDS = 30
FOUR_STOCKS = ("MSFT", "ORCL", "CSCO", "AMAT")
OTHERS = tuple(f"S{k:04d}" for k in range(3000))
ACTIVE = 100 / (EVENTS_PER_SECOND * WINDOW_SECONDS)
"""Share of the events of the four stocks together."""
SHARES = {**dict.fromkeys(FOUR_STOCKS, ACTIVE / 4), "QQQ": 0.01}
"""Shares of the stocks that the queries name; the others share the rest, a few of them most of it."""
VOLUMES = {100: 0.55, 200: 0.15, 300: 0.08, 400: 0.05, 500: 0.08, 1000: 0.0672, 2000: 0.02, 4000: 0.0028}
PRICES = {"MSFT": 26.0, "ORCL": 11.2, "CSCO": 19.5, "AMAT": 18.9, "QQQ": 38.0}
SPREAD = 0.05
"""Standard deviation of a price over its mean: about half of the prices pass each threshold of Q2."""

# Q1 to Q6 as appendix C prints them
Q1 = """SELECT * FROM S
    WHERE (SELL as msft; BUY as oracle; BUY as csco; SELL as amat)
    FILTER msft[name = 'MSFT'] AND oracle[name = 'ORCL'] AND
            csco[name = 'CSCO'] AND amat[name = 'AMAT']
    WITHIN 30000 [stock_time]"""
Q2 = """SELECT * FROM S
    WHERE (SELL as msft; BUY as oracle; BUY as csco; SELL as amat)
    FILTER msft[name = 'MSFT'] AND msft[price > 26.0] AND
            oracle[name = 'ORCL'] AND oracle[price > 11.14] AND
            csco[name = 'CSCO'] AND amat[name = 'AMAT'] AND amat[price >= 18.92]
    WITHIN 30000 [stock_time]"""
Q3 = """SELECT * FROM S
    WHERE (SELL as msft; BUY as oracle; BUY as csco; SELL as amat)
    FILTER msft[name = 'MSFT'] AND oracle[name = 'ORCL'] AND
            csco[name = 'CSCO'] AND amat[name = 'AMAT']
    PARTITION BY [volume]
    WITHIN 30000 [stock_time]
    CONSUME BY ANY"""
Q4 = """SELECT * FROM S
    WHERE (SELL as msft; (BUY OR SELL) as oracle; (BUY OR SELL) as csco; SELL as amat)
    FILTER msft[name = 'MSFT'] AND oracle[name = 'ORCL'] AND
            csco[name = 'CSCO'] AND amat[name = 'AMAT']
    WITHIN 30000 [stock_time]"""
Q5 = """SELECT * FROM S
    WHERE (SELL as msft; (BUY OR SELL) as oracle; (BUY OR SELL) as csco; SELL as amat)
    FILTER msft[name = 'MSFT'] AND msft[price > 26.0] AND
            oracle[name = 'ORCL'] AND oracle[price > 11.14] AND
            csco[name = 'CSCO'] AND amat[name = 'AMAT'] AND amat[price >= 18.92]
    WITHIN 30000 [stock_time]"""
Q6 = """SELECT * FROM S
    WHERE (SELL as msft; (BUY OR SELL) as oracle; (BUY OR SELL) as csco; SELL as amat)
    FILTER msft[name = 'MSFT'] AND oracle[name = 'ORCL'] AND
            csco[name = 'CSCO'] AND amat[name = 'AMAT']
    PARTITION BY [volume]
    WITHIN 30000 [stock_time]
    CONSUME BY ANY"""
# The paper prints only SELL; (BUY OR SELL)+; SELL of Q7.  Read here: the first and the last stock of Q4 with its
# filters, and between them one or more trades of one other stock, instead of one each of two.  Every subset of those
# trades is a complex event, so only large trades count: about 4 in each window, as the four stocks have 25 each.
Q7 = """SELECT * FROM S
    WHERE (SELL as msft; (BUY OR SELL)+ as qqq; SELL as amat)
    FILTER msft[name = 'MSFT'] AND qqq[name = 'QQQ'] AND qqq[volume = 4000] AND amat[name = 'AMAT']
    WITHIN 30000 [stock_time]"""
QUERIES = {"Q1": Q1, "Q2": Q2, "Q3": Q3, "Q4": Q4, "Q5": Q5, "Q6": Q6, "Q7": Q7}


def stock_market(
    n_events: int,
    *,
    seed: int = 0,
    events_per_second: float = EVENTS_PER_SECOND,
    shares: dict[str, float] | None = None,
    volumes: dict[int, float] | None = None,
) -> pa.Table:
    """Return a stream of trades, in the order of time.

    Parameters
    ----------
    events_per_second
        Average number of events in a second; they come independently of one another.
    shares
        Share of the events of some stocks (default: `SHARES`).
    volumes
        Share of the events of each volume (default: `VOLUMES`).

    Returns
    -------
    pyarrow.Table
        Columns ``type`` (BUY or SELL) and ``name``, both dictionaries of strings, ``volume`` (int64), ``price``
        (float64, to the cent) and ``stock_time`` (int64, milliseconds).
    """
    rng = np.random.default_rng(seed)
    given = SHARES if shares is None else shares
    rarer = 1 / np.arange(1, len(OTHERS) + 1)
    chance = np.concatenate([np.array(list(given.values())), (1 - sum(given.values())) * rarer / rarer.sum()])
    names = [*given, *OTHERS]
    codes = rng.choice(len(names), n_events, p=chance / chance.sum()).astype(np.int32)
    mean = np.array([PRICES.get(name, 10.0 + k % 90) for k, name in enumerate(names)])
    lots = VOLUMES if volumes is None else volumes
    seconds = np.cumsum(rng.exponential(1 / events_per_second, n_events))
    sides = rng.integers(0, 2, n_events).astype(np.int32)
    return pa.table(
        {
            "type": pa.DictionaryArray.from_arrays(pa.array(sides), pa.array(["BUY", "SELL"])),
            "name": pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names)),
            "volume": rng.choice(list(lots), n_events, p=list(lots.values())),
            "price": np.round(mean[codes] * rng.normal(1, SPREAD, n_events), 2),
            "stock_time": (1000 * seconds).astype(np.int64),
        }
    )
