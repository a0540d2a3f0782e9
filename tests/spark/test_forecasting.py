"""Forecasts on Spark: counts of tasks add up to those of one process, and a stage gives the rows of one process."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu import OptionError
from cer_gpu.forecast.fitting import FitRequest, HistoryPart, Learning, joined_parts
from spark_glue.forecasting import ForecastStage, LearningStage, fit, forecast, forecast_stage

QUERIES = {
    "steps": "SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 400 SECONDS",
    "join": "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x > a.x PARTITION BY [k] WITHIN 9 EVENTS",
    "one task": "SELECT * FROM S WHERE A ; B WITHIN 5 SECONDS",
}
WITHIN = ["100 seconds", "4 events"]


def some_events(n=6_000, seed=1):
    """Return events of 40 keys: in each, a C mostly follows on a D."""
    rng = np.random.default_rng(seed)
    types, keys, last = rng.choice(list("ABCDE"), n), rng.integers(0, 40, n), {}
    for i, key in enumerate(keys.tolist()):
        if last.get(key) == "D" and rng.random() < 0.8:
            types[i] = "C"
        last[key] = types[i]
    return pa.table(
        {
            "type": types,
            "k": pa.array(keys, mask=rng.random(n) < 0.02),
            "x": rng.integers(0, 9, n),
            "n": np.arange(n),
            "ts": pa.array(np.cumsum(rng.integers(0, 2, n)) * 1_000_000, pa.timestamp("us")),
        }
    )


def compiled(name):
    return cer_gpu.compile(QUERIES[name], time_column="ts")


def facts_of(model):
    """Return what a model says, without the order of its contexts."""
    return sorted(zip(model._facts["words"], model._tree.cases.tolist(), model._probabilities().tolist(), strict=True))


@pytest.mark.parametrize("name", ["steps", "join"])
@pytest.mark.parametrize("n_tasks", [1, 3])
def test_counts_of_tasks_are_those_of_the_whole(name, n_tasks):
    events, query = some_events(), compiled(name)
    until = int(events["ts"].cast(pa.int64()).to_numpy().max())
    stage = pickle.loads(pickle.dumps(LearningStage(query, FitRequest(WITHIN, 2, 4, 50), until)))
    task_of = np.array([0 if key is None else hash(key) % n_tasks for key in events["k"].to_pylist()])
    parts = []
    for task in range(n_tasks):
        own = events.filter(pa.array(task_of == task))
        for made in stage(iter(own.to_batches(max_chunksize=700))):
            parts.append(HistoryPart.from_bytes(made["part"][0].as_py()))
    learned = Learning(query, events.schema, FitRequest(WITHIN, 2, 4, 50)).forecast(joined_parts(parts, 2))
    whole = query.fit(events, within=WITHIN, min_cases=50)
    assert (learned.n_events, learned.n_ends) == (whole.n_events, whole.n_ends)
    assert learned._tree.levels.max() > (2 if name == "steps" else 1)  # of steps, the last events tell states apart
    for (words, cases, shares), (others, other_cases, other_shares) in zip(
        facts_of(learned), facts_of(whole), strict=True
    ):
        assert (words, cases) == (others, other_cases)
        assert shares == pytest.approx(other_shares)


def test_the_end_of_the_history_is_that_of_all_tasks():
    """A key that fell silent was watched until the end of the history, and not until its own last event."""
    table = pa.table(
        {"type": ["A", "B"] * 300 + ["A"], "k": [1] * 600 + [2], "ts": pa.array(np.arange(601) * 1_000_000)}
    )
    table = table.set_column(2, "ts", table["ts"].cast(pa.timestamp("us")))
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [k]", time_column="ts")
    early = table.slice(0, 600)
    own = Learning(query, table.schema, FitRequest("5 s", 2, 4, 50))
    stages = [LearningStage(query, FitRequest("5 s", 2, 4, 50), until) for until in (None, 600_000_000)]
    counts = [HistoryPart.from_bytes(next(each(iter(early.to_batches())))["part"][0].as_py()) for each in stages]
    assert counts[0].counts.cut_times.sum() == counts[1].counts.cut_times.sum() == 1
    assert counts[0].counts.cut_times.argmax() < counts[1].counts.cut_times.argmax()
    assert own.forecast(counts[1]).n_events == 600


def test_a_stage_gives_the_rows_of_one_process():
    events, query = some_events(), compiled("steps")
    model = query.fit(events, within=WITHIN, min_cases=50)
    for at in ("events", "last", "starts"):
        stage = pickle.loads(pickle.dumps(forecast_stage(model, at=at)))
        made = pa.Table.from_batches(stage(iter(events.to_batches(max_chunksize=700))))
        expected = model.forecast(events, at=at)
        assert "position" not in made.column_names
        assert made["k"].to_pylist() == expected["k"].to_pylist()
        assert made["probability_4_events"].to_pylist() == expected["probability_4_events"].to_pylist()
    evaluator = query.evaluator(forecast=model, threshold=0.3)
    expected = [evaluator.push(batch) for batch in events.to_batches()]
    made = pa.Table.from_batches(ForecastStage(model, "events", 0.3)(iter(events.to_batches(max_chunksize=700))))
    assert 10 < made.num_rows == sum(each.num_rows for each in expected)


def test_what_a_stage_cannot_do_is_refused():
    model = compiled("steps").fit(some_events(500), within=WITHIN)
    with pytest.raises(OptionError, match="at must be one of"):
        forecast_stage(model, at="never")
    with pytest.raises(OptionError, match="a threshold is passed after events"):
        forecast_stage(model, at="last", threshold=0.5)
    assert list(ForecastStage(model, "events", None)(iter([]))) == []


@pytest.mark.parametrize("name", QUERIES)
def test_spark_learns_and_forecasts_as_one_process(spark, name):
    events, query = some_events(), compiled(name)
    df = spark.createDataFrame(events.to_pandas()).repartition(3)
    df = df.select("type", df["k"].cast("bigint").alias("k"), "x", df["ts"].cast("timestamp_ntz").alias("ts"), "n")
    model = fit(df, query, WITHIN, order_by=["ts", "n"], min_cases=50)
    whole = query.fit(events, within=WITHIN, min_cases=50)
    assert (model.n_events, model.n_ends) == (whole.n_events, whole.n_ends)
    found = forecast(df, whole, order_by=["ts", "n"], at="last").collect()
    expected = whole.forecast(events).to_pylist()
    assert sorted(row["probability_4_events"] for row in found) == sorted(
        row["probability_4_events"] for row in expected
    )
    with pytest.raises(OptionError, match="order_by begins with the time column"):
        fit(df, query, WITHIN, order_by="x")
