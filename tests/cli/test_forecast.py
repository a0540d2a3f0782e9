"""``cer-gpu forecast``: learning, files of what was learned, rows, scores, and wrong command lines."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu

QUERY = "SELECT * FROM S WHERE A AS a ; B PARTITION BY [user] WITHIN 60 SECONDS"


@pytest.fixture
def events(tmp_path):
    rng, n = np.random.default_rng(0), 4_000
    table = pa.table(
        {
            "type": rng.choice(list("ABC"), n),
            "user": rng.integers(0, 5, n),
            "ts": pa.array(np.arange(n) * 7, pa.timestamp("s")),
        }
    )
    path = tmp_path / "events.parquet"
    pq.write_table(table, path)
    return str(path)


@pytest.fixture
def run(cli):
    """Run the command; return its exit code, and what it writes to standard output and standard error."""

    def call(*args):
        code, out, err = cli("forecast", *args)
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return call


def test_what_was_learned_is_saved_and_forecasts_again(run, events, tmp_path):
    model, out = str(tmp_path / "ab.forecast"), str(tmp_path / "out.parquet")
    learned = run(QUERY, "--history", events, "--within", "1 minute", "--time-column", "ts", "--save", model)
    assert learned.returncode == 0
    assert "<Forecast of 1 minute: 4,000 events" in learned.stderr
    done = run(QUERY, events, "--model", model, "--time-column", "ts", "--at", "events", "-o", out)
    assert (done.returncode, done.stdout) == (0, "")
    assert "4,000 forecasts -> " in done.stderr
    query = cer_gpu.compile(QUERY, time_column="ts")
    assert pq.read_table(out).equals(query.fit(events, "1 minute").forecast(events, at="events"))


def test_the_most_likely_are_shown_first(run, events):
    given = QUERY, events, "--history", events, "--within", "1m", "--time-column", "ts"
    done = run(*given)
    assert done.returncode == 0
    assert "probability_1m" in done.stdout
    assert "5 forecasts" in done.stdout
    facts = json.loads(
        run(QUERY, events, "--history", events, "--within", "1m", "--time-column", "ts", "--json").stdout
    )
    assert len(facts["forecasts"]) == 5


def test_scores_and_states_are_printed(run, events):
    given = QUERY, events, "--history", events, "--within", "1m", "--time-column", "ts"
    assert "log loss" in run(*given, "--score").stdout
    assert "any event" in run(*given, "--explain").stdout
    facts = json.loads(run(*given, "--score", "--json").stdout)
    assert facts["scores"][0]["within"] == "1m"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ([], 2, "expected one of --history FILE"),
        (["--history", "EVENTS"], 2, "--within"),
        (["--history", "EVENTS", "--within", "1 parsec"], 1, "cannot read the length"),
        (["--model", "EVENTS"], 1, "expected a file that Forecast.save wrote"),
        (["--model", "EVENTS", "--within", "1m"], 2, "option of --history"),
    ],
)
def test_wrong_command_lines_are_told_without_a_traceback(run, events, args, code, message):
    done = run(QUERY, events, "--time-column", "ts", *(events if each == "EVENTS" else each for each in args))
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_of_another_query_is_refused(run, events, tmp_path):
    model = str(tmp_path / "ab.forecast")
    run(QUERY, "--history", events, "--within", "1m", "--time-column", "ts", "--save", model)
    done = run("SELECT * FROM S WHERE A", events, "--model", model, "--time-column", "ts")
    assert done.returncode == 1
    assert "belongs to another query" in done.stderr


def test_a_report_shows_a_forecast_and_refuses_that_of_another_query(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "SELECT * FROM S WHERE A ; B"
    table = pa.table({"type": ["A", "C", "B"] * 300})
    pq.write_table(table, "events.parquet")
    cer_gpu.compile(text).fit(table, within="2 events").save("ab.forecast")
    given = ["report", text, "events.parquet", "--forecast", "ab.forecast", "-o", "page.html"]
    code, _, err = cli(*given)
    assert (code, "scored events" in err) == (0, True)
    assert "Within 2 events: predicted and observed" in (tmp_path / "page.html").read_text()
    code, out, _ = cli(*given, "--json")
    assert (code, json.loads(out)["out"]) == (0, "page.html")
    code, _, err = cli(*[each.replace("A ; B", "A ; C") for each in given])
    assert (code, "belongs to another query" in err) == (1, True)
    assert cli(*given, "--output", "funnel")[0] == 2
