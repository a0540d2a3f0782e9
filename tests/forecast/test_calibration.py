"""Forecasts come true on events that they were not learned from: flights, Windows events, a made clickstream.

The outcomes are taken from the matches of the query alone, and not from `score`.  Substreams are dealt to two halves at
random, so that nothing but chance is between them.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from outside_data import FOLDER

import cer_gpu
from cer_gpu.forecast.estimates import NORMAL_99

pytestmark = pytest.mark.long("learns from hundreds of thousands of events")

FLIGHTS = Path(__file__).parents[2] / "examples" / "data" / "flights.parquet"
WINDOWS = FOLDER / "windows.parquet"


def outcomes(query, events, rows, key, length):
    """Return for each forecast whether a match ended within a length after it, whether that is known, and that end."""
    ends = query.evaluate(events, output="ends")
    names = (
        pa.concat_tables([ends.select([key]), rows.select([key])])[key]
        .cast(pa.string())
        .combine_chunks()
        .dictionary_encode()
    )
    codes = names.indices.to_numpy()
    of_end, of_row = codes[: ends.num_rows], codes[ends.num_rows :]
    wide = events.num_rows + 1
    place = of_end.astype(np.int64) * wide + ends["end"].to_numpy()
    order = np.argsort(place)
    place, end_times = place[order], ends["end_time"].cast(pa.int64()).to_numpy()[order]
    following = np.searchsorted(place, of_row.astype(np.int64) * wide + rows["position"].to_numpy(), "right")
    there = following < len(place)
    own = np.minimum(following, len(place) - 1)
    there &= place[own] // wide == of_row
    times = rows["time"].cast(pa.int64()).to_numpy()
    ended = there & (end_times[own] - times <= length)
    return ended, ended | (times + length <= times.max()), own


def held(model, events, key, text, column, length):
    """Hold forecasts to their outcomes: each tenth within the 99% interval, and better than the base rate."""
    rows = model.forecast(events, at="events")
    share = rows[f"probability_{column}"].to_numpy()
    ended, known, own = outcomes(model.query, events, rows, key, length)
    of_end = np.bincount(own[ended])
    together = (of_end**2).sum() / of_end.sum()  # events that wait for one end are one case
    values, which = np.unique(share[known], return_inverse=True)
    cases, hits = np.bincount(which), np.bincount(which, ended[known])
    tenth = np.minimum((np.cumsum(cases) - cases) * 10 // cases.sum(), 9)
    for group in np.unique(tenth):
        chosen = tenth == group
        n, predicted = cases[chosen].sum(), (values * cases)[chosen].sum() / cases[chosen].sum()
        # the history has as many cases as these events, and as much chance in it
        spread = NORMAL_99 * np.sqrt(predicted * (1 - predicted) * 2 * together / n)
        assert abs(hits[chosen].sum() / n - predicted) <= spread + together / n, (
            group,
            n,
            predicted,
            hits[chosen].sum(),
        )
    (row,) = [each for each in model.score(events).table.to_pylist() if each["within"] == text]
    assert (row["cases"], row["ended"]) == (known.sum(), ended[known].sum())
    assert row["log_loss"] < row["log_loss_base"]
    return row


def halves(events, key, seed=0):
    """Return two halves of the substreams."""
    names = events[key].combine_chunks()
    names = names.dictionary_encode() if not pa.types.is_dictionary(names.type) else names
    first = np.random.default_rng(seed).random(len(names.dictionary)) < 0.5
    mask = first[np.asarray(names.indices.fill_null(0))]
    return events.filter(pa.array(mask)), events.filter(pa.array(~mask))


def test_flights_come_true():
    history, events = halves(pq.read_table(FLIGHTS), "tailnum")
    query = cer_gpu.compile(
        "SELECT * FROM F WHERE LANDED AS a ; DEPARTED AS b FILTER a[delay > 120] AND b[delay > 60] "
        "PARTITION BY [tailnum] WITHIN 4 HOURS",
        time_column="ts",
    )
    model = query.fit(history, within=["4 hours", "8 hours"])
    row = held(model, events, "tailnum", "4 hours", "4_hours", 4 * 3_600_000)
    assert row["log_loss"] < 0.75 * row["log_loss_base"]
    assert row["auc"] > 0.95


@pytest.mark.skipif(not WINDOWS.exists(), reason="the Windows events are not part of the project")
def test_windows_events_come_true():
    """A connection to the network, and then a new file, in the same hour of a computer."""
    events = pq.read_table(WINDOWS, columns=["ts", "EventID", "Hostname"])
    events = events.filter(pc.is_in(events["EventID"], pa.array([1, 3, 11, 12, 13, 22], pa.int32()))).sort_by("ts")
    hour = events["ts"].cast(pa.timestamp("s"), safe=False).cast(pa.int64()).to_numpy() // 3600
    hours = [f"{h} {t}" for h, t in zip(events["Hostname"].to_pylist(), hour, strict=True)]
    events = events.append_column("hour", pa.array(hours))
    history, events = halves(events, "hour", seed=1)
    query = cer_gpu.compile(
        "SELECT * FROM E WHERE E AS a ; E AS b FILTER a[EventID = 3] AND b[EventID = 11] "
        "PARTITION BY [hour] WITHIN 1 MINUTE",
        type_column=None,
        time_column="ts",
    )
    model = query.fit(history, within="30 seconds")
    held(model, events, "hour", "30 seconds", "30_seconds", 30_000_000)


def clickstream(n_users, seed):
    """Return clicks of users who view, put into the cart, and buy, with times between clicks that are not geometric."""
    rng = np.random.default_rng(seed)
    after = {"home": (0.2, 0.7, 0.1, 0.0), "view": (0.1, 0.55, 0.35, 0.0), "cart": (0.1, 0.35, 0.2, 0.35)}
    pages, rows = ("home", "view", "cart", "buy"), []
    for user in range(n_users):
        now, page, slow = rng.uniform(0, 86_400), "home", rng.choice([5.0, 60.0])
        for _ in range(rng.integers(5, 60)):
            rows.append((now, page, user))
            now += slow * rng.weibull(0.7) + 1
            page = pages[rng.choice(4, p=after.get(page, after["home"]))]
    rows.sort()
    ts, types, users = zip(*rows, strict=True)
    return pa.table({"ts": np.array(ts, np.int64), "type": types, "user": users})


def test_a_clickstream_comes_true():
    query = cer_gpu.compile(
        "SELECT * FROM S WHERE view ; cart ; buy PARTITION BY [user] WITHIN 5 MINUTES", time_column="ts", time_unit="s"
    )
    model = query.fit(clickstream(1_500, 1), within=["1 minute", "3 events"])
    row = held(model, clickstream(1_500, 2), "user", "1 minute", "1_minute", 60)
    assert row["auc"] > 0.7
