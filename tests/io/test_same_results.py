"""The same events as CSV, JSON lines, Parquet and frames give the same column, on screen and in files."""

from __future__ import annotations

import csv
import datetime as dt
import json

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.cli.group import main

TIMES = [dt.datetime(2024, 3, 1, 5), dt.datetime(2024, 3, 1, 6, 12, 7)]
TEXT = "SELECT b.ts - a.ts AS took, a.v + 1 AS v WHERE A AS a ; B AS b"


def write(folder, kind: str):
    rows = {"type": ["A", "B"], "ts": TIMES, "v": [1, 2]}
    if kind == "csv":
        (folder / "e.csv").write_text("type,ts,v\nA,2024-03-01 05:00:00,1\nB,2024-03-01 06:12:07,2\n")
    elif kind == "jsonl":
        lines = [{"type": t, "ts": time.isoformat(), "v": v} for t, time, v in zip(*rows.values(), strict=True)]
        (folder / "e.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        unit = kind.removeprefix("parquet ")
        table = pa.table({**rows, "ts": pa.array(TIMES, pa.timestamp(unit))})
        pq.write_table(table, folder / "e.parquet")
    return next(folder.iterdir())


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet ms", "parquet us", "parquet ns"])
def test_files_of_any_kind_give_the_same_rows(tmp_path, capsys, monkeypatch, kind):
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "in").mkdir()
    path, out = write(tmp_path / "in", kind), tmp_path / "out.csv"
    run = ["run", TEXT, str(path), "--time-column", "ts", "--no-progress"]
    assert main(run) == 0
    assert "1:12:07" in capsys.readouterr().out
    assert main([*run, "-o", str(out)]) == 0
    with out.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["took"], row["v"]) == ("PT1H12M7S", "2")
    assert main([*run, "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["took"] == "PT1H12M7S"


def test_frames_keep_durations_as_they_are():
    query = cer_gpu.compile(TEXT, time_column="ts")
    rows = {"type": ["A", "B"], "ts": TIMES, "v": [1, 2]}
    for frame in (pd.DataFrame(rows), pl.DataFrame(rows), pa.table(rows)):
        (took,) = query.evaluate(frame)["took"].to_pylist()
        assert took == TIMES[1] - TIMES[0]
        assert pa.types.is_duration(query.evaluate(frame)["took"].type)
