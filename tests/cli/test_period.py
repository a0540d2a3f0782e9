"""Options of the command line for a part of the events, and of the rules: --after, --before, --level."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sizes import scaled, seeds

import cer_gpu
from cer_gpu.cli import main
from cer_gpu.errors import OptionError
from cer_gpu.io.sources import open_events
from cer_gpu.order.times import Period, within_period

BEGIN = dt.datetime(2026, 11, 27, 12)
QUERY = "SELECT * FROM S WHERE A AS a ; B+ AS b WITHIN 20 SECONDS"


def events(rng: random.Random, n: int, kind: pa.DataType, *, ordered: bool = True) -> pa.Table:
    times = [BEGIN + dt.timedelta(seconds=rng.randint(0, 60)) for _ in range(n)]
    times = sorted(times) if ordered else times
    types = [rng.choice("ABC") for _ in times]
    return pa.table({"type": types, "ts": pa.array(times, pa.timestamp("us")).cast(kind), "x": range(n)})


def moment(rng: random.Random) -> str | None:
    return rng.choice([None, (BEGIN + dt.timedelta(seconds=rng.randint(-5, 65))).isoformat()])


@pytest.mark.parametrize("seed", seeds(scaled(30, most=300)))
def test_the_matches_of_a_period_are_those_of_its_events_at_their_positions(seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.choice([pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.timestamp("ms", "UTC")])
    sort = rng.random() < 0.5
    table = events(rng, rng.randint(0, 40), kind, ordered=not sort)
    after, before = moment(rng), moment(rng)
    if after is not None and before is not None and after >= before:
        after, before = None, before
    period = Period(after, before)
    times = [time.replace(tzinfo=None) for time in table["ts"].to_pylist()]
    rows = [
        row
        for row, time in enumerate(times)
        if (after is None or time >= dt.datetime.fromisoformat(after))
        and (before is None or time < dt.datetime.fromisoformat(before))
    ]
    batches = pa.Table.from_batches(table.to_batches(max_chunksize=rng.choice([1, 7, 100])), table.schema)
    query = cer_gpu.compile(QUERY, time_column="ts")
    found = query.evaluate(within_period(open_events(batches), "ts", period), sort=sort)
    expected = query.evaluate(table.take(pa.array(rows, pa.int64())), sort=sort)
    positions = [[rows[i] for i in each] for each in expected["positions"].to_pylist()]
    assert sorted(map(sorted, found["positions"].to_pylist())) == sorted(map(sorted, positions))
    assert found["end_time"].to_pylist() == expected["end_time"].to_pylist()


@pytest.mark.parametrize(
    ("kind", "unit", "bounds"),
    [
        (pa.timestamp("s"), None, (1_795_780_800, 1_795_780_801)),
        (pa.timestamp("ms", "UTC"), None, (1_795_780_800_000, 1_795_780_800_500)),
        (pa.int64(), "ms", (1_795_780_800_000, 1_795_780_800_500)),
        (pa.date32(), None, (20_785, 20_785)),
    ],
)
def test_the_ends_of_a_period_are_numbers_of_the_column(
    kind: pa.DataType, unit: str | None, bounds: tuple[int, int]
) -> None:
    assert Period("2026-11-27T12:00:00", "2026-11-27T12:00:00.5").bounds(kind, unit) == bounds


def run(tmp_path: Path, *arguments: str, table: pa.Table | None = None) -> int:
    path = tmp_path / "events.parquet"
    pq.write_table(events(random.Random(1), 50, pa.timestamp("us")) if table is None else table, path)
    return main(["run", QUERY, str(path), *arguments])


def test_run_reads_a_period(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.jsonl"
    given = ["--time-column", "ts", "--after", "2026-11-27T12:00:20", "--before", "2026-11-27T12:00:40"]
    assert run(tmp_path, *given, "-o", str(out)) == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows
    assert all(row["start_time"] >= "2026-11-27T12:00:20" for row in rows)
    assert all(row["end_time"] < "2026-11-27T12:00:40" for row in rows)
    whole = cer_gpu.compile(QUERY, time_column="ts").evaluate(str(tmp_path / "events.parquet")).to_pylist()
    assert {tuple(row["positions"]) for row in rows} <= {tuple(row["positions"]) for row in whole}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--after", "2026-11-27"], "--after needs a time column: --time-column"),
        (["--after", "yesterday", "--time-column", "ts"], "after: expected a date and a time such as"),
        (["--after", "2026-11-28", "--before", "2026-11-27", "--time-column", "ts"], "no time is after 2026-11-28"),
        (["--after", "2026-11-27T00:00Z", "--time-column", "ts"], "leave out the offset"),
        (["--after", "2026-11-27", "--time-column", "x"], "name their unit (--time-unit)"),
        (["--level", "high"], "--level is an option of --queries"),
    ],
)
def test_what_is_no_period_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(tmp_path, *arguments) in (1, 2)
    told = capsys.readouterr().err
    assert said in " ".join(told.split())
    assert "Traceback" not in told


def test_of_a_folder_the_rules_of_a_level_and_more_urgent_ones_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sigma")
    rules = tmp_path / "rules"
    rules.mkdir()
    for level in ("critical", "high", "medium", None):
        head = f"title: {level}\n" + (f"level: {level}\n" if level else "")
        text = head + "logsource: {product: windows}\ndetection: {selection: {x: 3}, condition: selection}\n"
        (rules / f"{level}.yml").write_text(text, encoding="utf-8")
    pq.write_table(events(random.Random(1), 9, pa.timestamp("us")), tmp_path / "events.parquet")
    given = ["run", "--queries", str(rules), str(tmp_path / "events.parquet"), "--json", "--level"]
    assert main([*given, "high"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert facts["levels"] == {"critical": 1, "high": 1}
    assert "2 of 4 rules skipped: below --level high" in facts["notes"]


def test_a_period_is_none_without_a_time() -> None:
    assert not Period()
    with pytest.raises(OptionError, match="expected a date and a time"):
        Period(before="12:30")
