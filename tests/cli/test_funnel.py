"""``cer-gpu run --output funnel``: the funnel as a table, as JSON, and its rows in a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cer_gpu.output.funnel_counts import FunnelCounts

QUERY = "SELECT * FROM S WHERE view AS v ; !logout ; cart ; (pay OR gift) PARTITION BY [user] WITHIN 60 SECONDS"


@pytest.fixture
def events(tmp_path):
    rows = [
        ("view", 1, 0),
        ("cart", 1, 10),
        ("view", 2, 12),
        ("logout", 2, 15),
        ("view", 3, 16),
        ("cart", 3, 20),
        ("pay", 1, 25),
        ("view", 1, 170),
    ]
    types, users, seconds = zip(*rows, strict=True)
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"type": types, "user": users, "ts": pa.array(seconds, pa.timestamp("s"))}), path)
    return str(path)


@pytest.fixture
def run(cli):
    """Run the command and return what it writes to standard output."""

    def said(*arguments):
        code, out, err = cli("run", *arguments)
        assert code == 0, err
        return out

    return said


def test_the_funnel_is_shown(run, events):
    said = run(QUERY, events, "--time-column", "ts", "--output", "funnel")
    lines = [line.split() for line in said.splitlines()]
    assert " ".join(lines[0]) == "step starts of previous step of first median from start complete window barred end"
    assert lines[2] == ["1.", "v", "4", "1", "1"]
    assert lines[3] == ["2.", "cart", "2", "50.0%", "50.0%", "7", "s", "1"]
    assert lines[4] == ["3.", "pay", "OR", "gift", "1", "50.0%", "25.0%", "25", "s", "1"]
    assert lines[5] == ["4", "starts"]


def test_its_numbers_are_in_the_summary_as_json(run, events):
    facts = json.loads(run(QUERY, events, "--time-column", "ts", "--output", "funnel", "--json"))
    assert facts["n_rows"] == 4
    assert facts["funnel"]["unit"] == "ms"
    first, second, third = facts["funnel"]["steps"]
    assert first == {
        "name": "v",
        "n_reached": 4,
        "of_previous": None,
        "of_first": None,
        "median": None,
        "stopped": {"complete": 0, "window": 0, "barred": 1, "end": 1},
    }
    assert (second["n_reached"], second["of_previous"], second["median"]) == (2, 0.5, 7000.0)
    assert second["stopped"] == {"complete": 0, "window": 1, "barred": 0, "end": 0}
    assert (third["name"], third["n_reached"], third["of_first"], third["median"]) == ("pay OR gift", 1, 0.25, 25_000.0)


def test_the_rows_go_to_a_file(run, events, tmp_path):
    out = tmp_path / "rows.parquet"
    run(QUERY, events, "--time-column", "ts", "--output", "funnel", "-o", str(out))
    assert pq.read_table(out)["positions"].to_pylist() == [[0, 1, 6], [2], [4, 5], [7]]


def test_no_starts(run, events):
    query = QUERY.replace("view", "never")
    assert "no starts" in run(query, events, "--time-column", "ts", "--output", "funnel")
    facts = json.loads(run(query, events, "--time-column", "ts", "--output", "funnel", "--json"))
    assert [step["n_reached"] for step in facts["funnel"]["steps"]] == [0, 0, 0]


def test_a_set_has_the_funnel_of_each_query(run, events, tmp_path):
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "one.ceql").write_text(QUERY)
    (folder / "two.ceql").write_text("SELECT * FROM S WHERE cart ; pay PARTITION BY [user]")
    facts = json.loads(run("--queries", str(folder), events, "--time-column", "ts", "--output", "funnel", "--json"))
    reached = {name: [s["n_reached"] for s in q["funnel"]["steps"]] for name, q in facts["queries"].items()}
    assert reached == {"one": [4, 2, 1], "two": [2, 1]}


@pytest.mark.parametrize(
    ("kind", "unit", "median", "seconds"),
    [
        (pa.timestamp("ms"), "ms", 1500.0, 1.5),
        (pa.date32(), "days", 1500.0, 1500.0 * 86_400),
        (pa.duration("us"), "us", 1500.0, 0.0015),
        (pa.uint64(), "", 1500.0, None),
    ],
)
def test_medians_are_in_the_unit_of_the_time(kind, unit, median, seconds):
    times = pa.array(np.array([[5, 1005], [5, 2005]]).ravel(), pa.int64())
    if kind == pa.date32():
        times = times.cast(pa.int32())
    rows = pa.record_batch(
        {
            "step": pa.array([2, 2], pa.int64()),
            "positions": pa.array([[0, 1], [2, 3]]),
            "times": pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), times.cast(kind)),
            "stopped": ["complete", "complete"],
        }
    )
    counts = FunnelCounts(["a", "b"])
    counts.take(rows)
    assert (counts.unit, counts.rows[1].median) == (unit, median)
    assert counts.seconds(median) == seconds


def test_the_report_draws_the_funnel(cli, events):
    code, out, err = cli("report", QUERY, events, "--time-column", "ts", "--output", "funnel", "-o", "funnel.html")
    assert (code, out) == (0, "")
    assert err.startswith("8 rows, 4 starts, ")
    page = Path("funnel.html").read_text(encoding="utf-8")
    of_keys, of_starts = page.split('<div class="scroll of-starts">')
    cells = [re.sub(r"<[^>]*>", " ", row).split() for row in re.findall(r"<tr>(.*?)</tr>", of_starts)]
    assert cells[1:] == [
        ["1.", "v", "4", "1", "1"],
        ["2.", "cart", "2", "50.0%", "50.0%", "7", "s", "1"],
        ["3.", "pay", "OR", "gift", "1", "50.0%", "25.0%", "25", "s", "1"],
    ]
    assert re.findall(r'class="on" width="([^"]*)"', of_starts) == ["1000.0", "500.0", "250.0"]
    assert re.findall(r'class="on" width="([^"]*)"', of_keys) == ["1000.0", "666.7", "333.3"]
    assert "<script" not in page
    assert "view AS v ; !logout" in page
    asked = ("report", QUERY, events, "--time-column", "ts", "--output", "funnel", "-o", "funnel.html", "--json")
    facts = json.loads(cli(*asked)[1])
    assert (facts["n_events"], facts["n_starts"]) == (8, 4)


def test_names_in_the_page_are_no_markup(cli, events):
    query = "SELECT * FROM S WHERE view AS `<b>` ; cart"
    assert cli("report", query, events, "--output", "funnel", "-o", "funnel.html")[0] == 0
    page = Path("funnel.html").read_text(encoding="utf-8")
    assert "1. &lt;b&gt;" in page
    assert "<b>" not in page


def test_a_page_of_what_is_no_funnel_is_refused(cli, events):
    code, _, err = cli("report", "SELECT * FROM S WHERE view?; cart", events, "--output", "funnel", "-o", "funnel.html")
    assert code == 1
    assert "a step may be missing" in err
    assert not Path("funnel.html").exists()
