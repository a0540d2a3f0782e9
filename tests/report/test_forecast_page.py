"""The page of a forecast: scores, calibration, and the partial matches most likely to complete."""

import re

import numpy as np
import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.report import write_forecast

TEXT = "SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] WITHIN 9 [ts]"


def some_events(n=8_000, seed=3):
    rng = np.random.default_rng(seed)
    keys = [f"<k{i}>" for i in rng.integers(0, 30, n)]
    return pa.table({"type": rng.choice(list("ABCD"), n), "k": keys, "ts": np.arange(n) // 10})


@pytest.fixture(scope="module")
def model():
    return cer_gpu.compile(TEXT, time_column="ts").fit(some_events(), within=["2 events", "8 events"])


def test_the_page_draws_calibration_and_the_ten_most_likely(model, tmp_path):
    events = some_events(seed=4)
    made = write_forecast(model, events, tmp_path / "page.html", title="Risks & all")
    page = (tmp_path / "page.html").read_text()
    assert "<h1>Risks &amp; all</h1>" in page
    assert "<script" not in page
    groups = model.score(events).calibration.num_rows
    assert page.count('class="mark"') == groups > 4
    starts = model.forecast(events, at="starts")
    assert made.n_matches == starts.num_rows > 10
    likely = starts.sort_by(
        [("probability_8_events", "descending"), ("probability_2_events", "descending"), ("position", "ascending")]
    )
    section = page[page.index("The 10 current partial matches") :]
    assert section.count("<tr>") == 11
    expected = [each.replace("<", "&lt;").replace(">", "&gt;") for each in likely["k"].to_pylist()[:10]]
    assert re.findall(r"&lt;k\d+&gt;", section) == expected
    assert "<k1" not in page


def test_of_a_query_without_steps_the_keys_are_shown(tmp_path):
    query = cer_gpu.compile("SELECT * FROM S WHERE A ALL B WITHIN 4 EVENTS")
    model = query.fit(some_events(), within="3 events")
    write_forecast(model, some_events(seed=4), tmp_path / "page.html")
    assert "All keys that are most likely" in (tmp_path / "page.html").read_text()
