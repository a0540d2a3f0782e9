"""Forecasts against sources whose waiting times are known, held-out halves, any cut, files, and what is refused."""

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu import OptionError
from cer_gpu.forecast.estimates import quartiles, wilson
from cer_gpu.planning.state_steps import with_symbols

FLIGHTS = Path(__file__).parents[2] / "examples" / "data" / "flights.parquet"
LATE = (
    "SELECT * FROM F WHERE LANDED AS a ; DEPARTED AS b FILTER a[delay > 120] AND b[delay > 60] "
    "PARTITION BY [tailnum] WITHIN 4 HOURS"
)
# probability of each of X, Y, Z after the last two events
AFTER = {
    ("X", "X"): (0.2, 0.3, 0.5), ("X", "Y"): (0.6, 0.3, 0.1), ("X", "Z"): (0.4, 0.5, 0.1),
    ("Y", "X"): (0.5, 0.4, 0.1), ("Y", "Y"): (0.1, 0.3, 0.6), ("Y", "Z"): (0.3, 0.5, 0.2),
    ("Z", "X"): (0.3, 0.6, 0.1), ("Z", "Y"): (0.4, 0.2, 0.4), ("Z", "Z"): (0.5, 0.4, 0.1),
}  # fmt: skip


@pytest.fixture(scope="module")
def halves():
    flights = pq.read_table(FLIGHTS)
    half = flights.num_rows // 2
    return flights.slice(0, half), flights.slice(half)


@pytest.fixture(scope="module")
def late(halves):
    query = cer_gpu.compile(LATE, time_column="ts")
    return query.fit(halves[0], within=["4 hours", "8 hours"])


def chain_of_order_2(rng, n):
    drawn, last = [], ("X", "Y")
    for u in rng.random(n).tolist():
        a, b, _ = AFTER[last]
        event = "X" if u < a else "Y" if u < a + b else "Z"
        drawn.append(event)
        last = last[1], event
    return pa.table({"type": drawn, "n": np.ones(n)})


def ends_within(last, n):
    """Return the probability that a Z comes within n events after the last two."""
    if n == 0:
        return 0.0
    x, y, z = AFTER[last]
    return z + x * ends_within((last[1], "X"), n - 1) + y * ends_within((last[1], "Y"), n - 1)


@pytest.mark.long("draws 200 histories")
def test_a_markov_chain_of_order_2_is_met_within_its_sampling_error():
    # no X is less than 0: it is named for a symbol of its own
    query = cer_gpu.compile("SELECT * FROM S WHERE Z OR (X FILTER X[n < 0])")
    rng, off, n_events = np.random.default_rng(63), {}, {"1 event": 1, "3 events": 3}
    for _ in range(200):
        model = query.fit(chain_of_order_2(rng, 6000), within=list(n_events), order=2, min_cases=20)
        tree = model._tree
        names = ["", *(name_of(query, word) for word in model._form.words)]
        for number in np.flatnonzero(tree.levels == 4).tolist():
            *_, symbols = model._form.parts(int(tree.contexts[number]))
            last = names[symbols[1]], names[symbols[0]]
            for i, n in enumerate(n_events.values()):
                own, parent = (model._probabilities()[each, i] for each in (number, tree.parents[number]))
                cases = tree.cases[number]
                drawn_to_parent = (ends_within(last, n) * cases + 20 * parent) / (cases + 20)
                off.setdefault((n, last), []).append(own - drawn_to_parent)
    always = {key: each for key, each in off.items() if len(each) == 200}  # others are kept where chance favours them
    assert len(always) >= 8
    for key, each in always.items():
        assert abs(np.mean(each)) < 4 * np.std(each) / np.sqrt(len(each)) + 1e-3, key
        assert np.std(each) < 0.1, key


def name_of(query, word):
    return next((g.event_type for i, g in enumerate(with_symbols(query._plan).guards) if word >> i & 1), "Y")


@pytest.mark.long("draws 200 histories")
def test_exponential_waiting_times_are_met_though_the_history_ends_anywhere():
    query = cer_gpu.compile("SELECT * FROM S WHERE B PARTITION BY [key]", time_column="ts", time_unit="s")
    rng, off, truth = np.random.default_rng(7), [], 1 - np.exp(-600 / 1000)
    for _ in range(200):
        # each key is watched from a time of its own to the end of the history, less than its waiting time at times
        ts, keys, types = [], [], []
        for key in range(150):
            begin = rng.uniform(0, 3000)
            ends = begin + np.cumsum(rng.exponential(1000, 12))
            ends = ends[ends < 4000]
            ts += [begin, *ends]
            keys += [key] * (1 + len(ends))
            types += ["A"] + ["B"] * len(ends)
        order = np.argsort(ts)
        table = pa.table(
            {
                "ts": np.array(ts)[order].astype(np.int64),
                "key": np.array(keys)[order],
                "type": np.array(types)[order],
            }
        )
        model = query.fit(table, within="600 s", order=0)
        off.append(model._probabilities()[0, 0] - truth)
    assert abs(np.mean(off)) < 4 * np.std(off) / np.sqrt(len(off)) + 2e-3
    # what was cut is not taken for an event after which nothing came
    assert np.std(off) < 0.05


def test_the_flights_come_true_as_forecast(late, halves):
    score = late.score(halves[1])
    for row in score.table.to_pylist():
        assert row["log_loss"] < 0.75 * row["log_loss_base"]
        assert row["brier"] < row["brier_base"]
        assert row["auc"] > 0.9
    groups = [row for row in score.calibration.to_pylist() if row["predicted"] > 0.005]
    assert groups
    for group in groups:  # another half-year: within a quarter of the share, or the 99% interval
        near = abs(group["observed"] - group["predicted"]) < 0.25 * group["predicted"]
        assert near or group["low"] <= group["predicted"] <= group["high"]


def test_each_event_has_a_probability_an_interval_and_its_cases(late, halves):
    rows = late.forecast(halves[1].slice(0, 30_000), at="events")
    keyed = 30_000 - halves[1].slice(0, 30_000)["tailnum"].null_count
    assert rows.num_rows == keyed
    assert rows.column_names[:4] == ["position", "time", "tailnum", "state"]
    share, low, high = (rows[f"{name}_4_hours"].to_numpy() for name in ("probability", "low", "high"))
    assert ((low < share) & (share < high) & (share > 0) & (share < 1)).all()
    assert (rows["probability_8_hours"].to_numpy() >= share).all()
    assert (rows["cases"].to_numpy() >= 200).all()
    assert rows.schema.field("half").type == pa.duration(halves[0].schema.field("ts").type.unit)


def test_the_last_events_are_those_of_each_key(late, halves):
    events = halves[1].slice(0, 30_000)
    every, last = late.forecast(events, at="events"), late.forecast(events)
    rows = {row["tailnum"]: row for row in every.to_pylist()}
    assert sorted(rows.values(), key=lambda row: row["position"]) == last.to_pylist()


def test_a_partial_match_under_way_has_the_state_of_its_own_step():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 10 [ts]", time_column="ts")
    rng = np.random.default_rng(0)
    n = 20_000
    table = pa.table({"type": rng.choice(list("ABCD"), n), "k": rng.choice(["u", "v"], n), "ts": np.arange(n)})
    model = query.fit(table, within=["3 events"])
    # the events of u: A (5), B (6); of v: A (7)
    events = pa.table({"type": [*list("DDAB"), "A"], "k": ["u"] * 4 + ["v"], "ts": [3, 4, 5, 6, 7]})
    rows = model.forecast(events, at="starts").to_pylist()
    assert [(row["start"], row["step"], row["position"], row["k"]) for row in rows] == [(2, 2, 3, "u"), (4, 1, 4, "v")]
    lasts = {row["k"]: row for row in model.forecast(events).to_pylist()}
    for row in rows:  # the furthest and youngest of their substreams, so their states are those of the last events
        assert row["probability_3_events"] == lasts[row["k"]]["probability_3_events"]
    assert rows[0]["probability_3_events"] > rows[1]["probability_3_events"]
    both = cer_gpu.compile("SELECT * FROM S WHERE A ALL B WITHIN 10 EVENTS").fit(table, within="3 events")
    with pytest.raises(OptionError, match="at='starts' forecasts each partial match of a sequence"):
        both.forecast(table, at="starts")


def test_a_forecast_does_not_depend_on_what_comes_after(late, halves):
    events = halves[1].slice(0, 20_000)
    whole = late.forecast(events, at="events")
    for cut in np.random.default_rng(1).integers(1, 20_000, 4).tolist():
        before = late.forecast(events.slice(0, cut), at="events")
        assert before.equals(whole.slice(0, before.num_rows))


def test_batches_threads_and_checkpoints_make_no_difference(late, halves):
    events, query, threshold = halves[1].slice(0, 12_000).combine_chunks(), late.query, 0.02
    every = late.forecast(events, at="events")
    share = every["probability_8_hours"].to_numpy()
    seen, expected = {}, []
    for i, key in enumerate(every["tailnum"].to_pylist()):
        if share[i] >= threshold > seen.get(key, 0.0):
            expected.append(i)
        seen[key] = share[i]
    assert 10 < len(expected) < 2_000
    for cuts, threads in (([], 1), ([1, 2, 5000], 2), ([4096, 8192], 3)):
        evaluator, found = query.evaluator(forecast=late, threshold=threshold, threads=threads), []
        for a, b in zip([0, *cuts], [*cuts, events.num_rows], strict=True):
            found.append(evaluator.push(events.slice(a, b - a).to_batches()[0]))
            evaluator = query.restore(evaluator.checkpoint(), forecast=late)
        found.append(evaluator.finish())
        assert pa.Table.from_batches(found).combine_chunks().equals(every.take(expected).combine_chunks())
        assert evaluator.n_passed == len(expected)


def test_a_file_gives_the_same_forecasts(late, halves, tmp_path):
    late.save(tmp_path / "late.forecast")
    again = cer_gpu.load_forecast(tmp_path / "late.forecast")
    events = halves[1].slice(0, 5_000)
    assert again.forecast(events, at="events").equals(late.forecast(events, at="events"))
    assert again.explain() == late.explain()
    assert repr(again) == repr(late)
    assert [each.name for each in tmp_path.iterdir()] == ["late.forecast"]


@pytest.mark.parametrize("content", [b"", b"SELECT", "table"])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "other"
    if content == "table":
        with pa.ipc.new_file(path, pa.schema({"x": pa.int64()})):
            pass
    else:
        path.write_bytes(content)
    with pytest.raises(OptionError, match=r"expected a file that Forecast\.save wrote"):
        cer_gpu.load_forecast(path)
    with pytest.raises(OptionError, match="no such file"):
        cer_gpu.load_forecast(tmp_path / "none")


MODELS = {
    "filters between events": "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.x > a.x WITHIN 10 EVENTS",
    "joins": "SELECT * FROM S WHERE A AS a ; B AS b FILTER b.k = a.k WITHIN 10 [ts]",
    "conjunction": "SELECT * FROM S WHERE A AS a ALL B AS b FILTER b.k = a.k WITHIN 10 EVENTS",
    "recent": "SELECT RECENT * FROM S WHERE A AS a ; B AS b FILTER b.k = a.k WITHIN 10 EVENTS",
    "neighbours": "SELECT * FROM S WHERE A : B+ : C",
    "consuming": "SELECT * FROM S WHERE A ; B? ; C PARTITION BY [k] CONSUME BY ANY",
    "having": "SELECT a.x AS ax FROM S WHERE A AS a ; B AS b WITHIN 5 EVENTS HAVING a.x > 3",
    "EQL": "sequence by k with maxspan=10s [A where true] [B where x > 3]",
}


@pytest.mark.parametrize("model", MODELS)
def test_each_model_is_forecast_and_comes_true(model):
    rng, n = np.random.default_rng(5), 40_000
    columns = {"type": rng.choice(list("ABCD"), n), "x": rng.integers(0, 9, n), "k": rng.choice(["u", "v", "w"], n)}
    table = pa.table({**columns, "ts": np.arange(n)})
    query = cer_gpu.compile(MODELS[model], type_column="type", time_column="ts", time_unit="s")
    half = table.slice(0, n // 2)
    fitted = query.fit(half, within=["5 events", "10 s"])
    ends = query.evaluate(half, output="ends" if "ends" in query.outputs else None)["end"].unique()
    assert fitted.n_ends == len(ends)
    score = fitted.score(table.slice(n // 2))
    for row in score.table.to_pylist():
        assert row["log_loss"] < row["log_loss_base"], row
    for row in score.calibration.to_pylist():
        # cases of one wait overlap: some ten of them count as one, on both sides
        share = row["predicted"]
        assert abs(row["observed"] - share) < 4 * np.sqrt(2 * 10 * share * (1 - share) / row["cases"])


def test_explain_says_the_states_in_words(late):
    lines = late.explain().splitlines()
    assert lines[0].startswith("Learned from ")
    assert any("1 of 2 steps (a)" in line and "within 4 hours" in line and "cases)" in line for line in lines)
    assert any("last event another DEPARTED" in line for line in lines)


def test_a_state_without_steps_says_why():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ALL B WITHIN 4 EVENTS")
    model = query.fit(pa.table({"type": list("ABCD") * 200}), within="2 events")
    assert "A state has no steps (its events come in more than one order)" in model.explain()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"within": []}, "expected a length at least"),
        ({"within": "1 hour"}, "no time column is named"),
        ({"within": "0 events"}, "more than 0"),
        ({"within": ["5 events", "5 EVENTS"]}, "names one length twice"),
        ({"within": [5]}, "expected a length as"),
        ({"order": 9}, "order must be a number from 0 to 6"),
        ({"ages": 0}, "ages must be a number from 1 to 8"),
        ({"min_cases": 0}, "min_cases must be a number from 1 on"),
    ],
)
def test_options_are_checked(change, message):
    query, table = cer_gpu.compile("SELECT * FROM S WHERE A ; B"), pa.table({"type": ["A", "B"]})
    with pytest.raises(OptionError, match=message):
        query.fit(table, **{"within": "5 events", **change})


def test_lengths_may_be_timedeltas():
    query = cer_gpu.compile("SELECT * FROM S WHERE B", time_column="ts", time_unit="s")
    table = pa.table({"type": ["B"] * 500, "ts": np.arange(500) * 60})
    model = query.fit(table, within=dt.timedelta(minutes=1))
    assert model.forecast(table).column_names[3] == "probability_0_01_00"
    with pytest.raises(OptionError, match="has no unit"):
        query.fit(table, within="60")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM S WHERE A ; !B WITHIN 5 EVENTS", "ends with an absence"),
        ("SELECT * FROM s MATCH_RECOGNIZE (MEASURES A.x AS x PATTERN (A B) DEFINE B AS x > 1)", "MATCH_RECOGNIZE"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(text, message):
    table = pa.table({"type": ["A", "B"], "x": [1, 2]})
    with pytest.raises(OptionError, match=message):
        cer_gpu.compile(text).fit(table, within="5 events")


def test_evaluators_of_forecasts_check_their_options(late):
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    for options, message in (
        ({"forecast": late}, "one of another query"),
        ({"forecast": 3}, "must be a Forecast"),
        ({"threshold": 0.5}, "threshold is that of a forecast"),
    ):
        with pytest.raises(OptionError, match=message):
            query.evaluator(**options)
    for options, message in (({"threshold": 1}, "above 0 and below 1"), ({"limit": 3}, "has no option 'limit'")):
        with pytest.raises(OptionError, match=message):
            late.query.evaluator(forecast=late, **options)
    with pytest.raises(OptionError, match="has a Forecast for each of its queries"):
        cer_gpu.compile_all({"a": "SELECT * FROM S WHERE A"}).evaluator(forecast=late)


def test_an_empty_history_knows_nothing_and_says_so():
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    table = pa.table({"type": pa.array([], pa.string())})
    model = query.fit(table, within="5 events")
    assert (model.n_events, model.n_ends) == (0, 0)
    assert model.forecast(table, at="events").num_rows == 0
    rows = model.forecast(pa.table({"type": ["A"]})).to_pylist()
    assert [(row["low_5_events"], row["high_5_events"], row["cases"]) for row in rows] == [(0.0, 1.0, 0)]


def test_wilson_and_quartiles_are_those_of_a_table():
    low, high = wilson([0.5, 0.0], [10, 10])
    assert low == pytest.approx([0.2366, 0.0], abs=1e-4)
    assert high == pytest.approx([0.7634, 0.2775], abs=1e-4)
    found = quartiles(np.array([[0.2, 0.6, 0.7]]), np.array([10, 20, 40]))
    assert found[0, :2] == pytest.approx([11.25, 17.5])
    assert np.isnan(found[0, 2])


def test_a_set_learns_and_watches_as_its_queries_do():
    rng, n = np.random.default_rng(2), 6_000
    table = pa.table({"type": rng.choice(list("ABC"), n), "k": rng.choice(["u", "v"], n)})
    texts = {
        "ab": "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 9 EVENTS",
        "join": "SELECT * FROM S WHERE A AS a ; C AS c FILTER a.k = c.k WITHIN 5 EVENTS",
    }
    queries = cer_gpu.compile_all(texts)
    models = queries.fit(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()), within="2 events")
    alone = {name: cer_gpu.compile(text).fit(table, within="2 events") for name, text in texts.items()}
    assert {name: model.explain() for name, model in models.items()} == {n: m.explain() for n, m in alone.items()}
    first, second = (table.slice(i * 3_000, 3_000).combine_chunks().to_batches()[0] for i in (0, 1))
    watched = queries.evaluator(forecast=models, threshold=0.3)
    found = [watched.push(first)]
    watched = queries.restore(watched.checkpoint(), forecast=models)
    found += [watched.push(second), watched.finish()]
    for name, text in texts.items():
        evaluator = cer_gpu.compile(text).evaluator(forecast=alone[name], threshold=0.3)
        expected = [evaluator.push(batch).column("position").to_pylist() for batch in (first, second)]
        assert [each[name].column("position").to_pylist() for each in found if name in each] == [
            each for each in expected if each
        ]
        assert watched.n_passed[name] == sum(map(len, expected)) > 0
    with pytest.raises(OptionError, match="names 'c', which is no query of the set"):
        queries.evaluator(forecast={"c": models["ab"]})
    with pytest.raises(OptionError, match="query 'ab': the length '1 hour' is a time"):
        queries.fit(table, within="1 hour")


@pytest.mark.parametrize("text", ["SELECT * FROM S WHERE A ; B WITHIN 9 SECONDS", MODELS["joins"]])
@pytest.mark.parametrize("options", [{"sort": True}, {"lateness": "20s"}])
def test_events_out_of_order_are_learned_and_scored_in_order(text, options):
    rng, n = np.random.default_rng(8), 4_000
    ts = np.arange(n)
    table = pa.table({"type": rng.choice(list("ABC"), n), "k": rng.integers(0, 3, n), "ts": ts})
    late = table.take(np.argsort(ts + rng.integers(0, 15, n), kind="stable"))
    query = cer_gpu.compile(text, time_column="ts", time_unit="s")
    model, again = query.fit(table, within="5 events"), query.fit(late, within="5 events", **options)
    assert again.explain() == model.explain()
    assert again.n_ends > 100
    assert again.score(late, **options).table.equals(model.score(table).table)
