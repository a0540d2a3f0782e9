"""Times that are not in ISO 8601, numbers with a comma, separators, and times of frames that are text."""

from __future__ import annotations

import datetime as dt
import random

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sizes import seeds

import cer_gpu
from cer_gpu.io.csv_files import delimiter_of
from cer_gpu.io.sources import open_events
from cer_gpu.io.text_options import check_format, parse_times

QUERY = cer_gpu.compile("SELECT * WHERE A ; B WITHIN 5 SECONDS", time_column="ts")
TEMPORAL = dt.datetime(2024, 3, 1, 5, 0, 2, 500_000)


@pytest.mark.parametrize(
    ("text", "format", "wanted"),
    [
        ("01/03/2024 05:00:02.5", "%d/%m/%Y %H:%M:%S.%f", TEMPORAL),
        ("01.03.2024 05:00:02,500", "%d.%m.%Y %H:%M:%S,%f", TEMPORAL),
        ("03/01/2024 5:00 PM", "%m/%d/%Y %I:%M %p", dt.datetime(2024, 3, 1, 17)),
        ("01/Mar/2024:07:00:02 +0200", "%d/%b/%Y:%H:%M:%S %z", TEMPORAL.replace(microsecond=0, tzinfo=dt.UTC)),
        ("01/Mar/2024:07:00:02.5 +0200", "%d/%b/%Y:%H:%M:%S.%f %z", TEMPORAL.replace(tzinfo=dt.UTC)),
        ("20240301050002", "%Y%m%d%H%M%S", TEMPORAL.replace(microsecond=0)),
        ("1709269202.5", "epoch", TEMPORAL.replace(tzinfo=dt.UTC)),
        ("-0.25", "epoch", dt.datetime(1969, 12, 31, 23, 59, 59, 750_000, tzinfo=dt.UTC)),
    ],
)
def test_a_format_reads_times(text, format, wanted):
    check_format(format)
    times = parse_times(pa.array([text, None, "soon"]), format)
    assert times.type.unit == "us"
    assert times.to_pylist() == [wanted, None, None]


@pytest.mark.parametrize("seed", seeds(30))
def test_formats_read_what_python_writes(seed):
    rng = random.Random(seed)
    day, time = (
        rng.choice(["%d/%m/%Y", "%Y-%m-%d", "%m-%d-%Y", "%d %b %Y"]),
        rng.choice(["%H:%M:%S.%f", "%H:%M:%S", "%I:%M:%S %p"]),
    )
    format = f"{day} {time}"
    moments = [dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=rng.randrange(10**13)) for _ in range(50)]
    if "%f" not in format:
        moments = [moment.replace(microsecond=0) for moment in moments]
    assert parse_times(pa.array([m.strftime(format) for m in moments]), format).to_pylist() == moments


@pytest.mark.parametrize("format", ["%Q", "no directive", "%f", "%H%f", "%Y-%m-%d %f"])
def test_what_is_no_format_is_refused(format):
    with pytest.raises(cer_gpu.OptionError, match="the time format"):
        cer_gpu.Files("e.csv", time_format={"ts": format})
    with pytest.raises(cer_gpu.OptionError, match="needs the name of a column"):
        cer_gpu.Files("e.csv", time_format="epoch")


@pytest.mark.parametrize("by_column", [True, False])
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_files_with_a_format(tmp_path, by_column, ending):
    format = "%d/%m/%Y %H:%M:%S"
    path = tmp_path / f"e.{ending}"
    if ending == "csv":
        path.write_text("type,ts,other\nA,01/03/2024 05:00:01,x\nB,01/03/2024 05:00:02,y\n")
    else:
        path.write_text('{"type": "A", "ts": "01/03/2024 05:00:01"}\n{"type": "B", "ts": "01/03/2024 05:00:02"}\n')
    events = cer_gpu.Files(path, time_format={"ts": format} if by_column else format)
    assert QUERY.evaluate(events)["end_time"].to_pylist() == [TEMPORAL.replace(microsecond=0)]
    with pytest.raises(
        cer_gpu.QueryTypeError, match=r"(?s)'ts' must be a timestamp.*hint: tell how they are written: time_format="
    ):
        QUERY.evaluate(path)
    path.write_text(path.read_text().replace("05:00:02", "5 oclock") * (1 if ending == "csv" else 2))
    with pytest.raises(cer_gpu.EventsError, match=r"'ts' has .*oclock' in row 1, and no time"):
        QUERY.evaluate(cer_gpu.Files(path, time_format={"ts": format}))


def test_epochs_with_fractions_of_json(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"type": "A", "ts": 1709269200.25}\n{"type": "B", "ts": 1709269202.5}\n')
    found = QUERY.evaluate(cer_gpu.Files(path, time_format={"ts": "epoch"}))
    assert found["end_time"].to_pylist() == [TEMPORAL.replace(tzinfo=dt.UTC)]


HEADERS = {b"a,b": ",", b"a;b,c;d": ";", b'"a,b,c";d': ";", b"a\tb": "\t", b"a|b": "|", b"a": ","}


@pytest.mark.parametrize(("header", "wanted"), HEADERS.items())
def test_the_header_tells_the_separator(header, wanted):
    assert delimiter_of(header + b"\n1;2;3;4;5;6\n") == wanted


def test_numbers_with_a_comma(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("type;v\nA;1\nA;2\n" + "A;3\n" * 400_000 + "B;3,5\n")
    query = cer_gpu.compile("SELECT x[v] WHERE B AS x FILTER x[v > 3.25]")
    assert query.evaluate(cer_gpu.Files(path, decimal_comma=True), output="events")["events"].to_pylist() == [
        [{"v": 3.5}]
    ]
    with pytest.raises(cer_gpu.OptionError, match="delimiter must be one character"):
        cer_gpu.Files(path, delimiter=", ")


FRAMES = {
    "pandas": pd.DataFrame,
    "pandas categories": lambda rows: pd.DataFrame({name: pd.Categorical(values) for name, values in rows.items()}),
    "polars": pl.DataFrame,
    "arrow": pa.table,
}


@pytest.mark.parametrize("kind", FRAMES)
def test_times_of_frames_that_are_text(kind):
    frame = FRAMES[kind]({"type": ["A", "B"], "ts": ["2024-03-01 05:00:00", "2024-03-01T05:00:02.5"]})
    assert QUERY.evaluate(frame)["end_time"].to_pylist() == [TEMPORAL]
    zoned = FRAMES[kind]({"type": ["A", "B"], "ts": ["2024-03-01 05:00:00Z", "2024-03-01T06:00:02.5+01:00"]})
    assert QUERY.evaluate(zoned)["end_time"].to_pylist() == [TEMPORAL.replace(tzinfo=dt.UTC)]
    mixed = FRAMES[kind]({"type": ["A", "B"], "ts": ["2024-03-01 05:00:00Z", "2024-03-01 05:00:00"]})
    with pytest.raises(cer_gpu.EventsError, match=r"with an offset or Z and without: .* in event 1"):
        QUERY.evaluate(mixed)


def test_times_of_parquet_that_are_text(tmp_path):
    pq.write_table(
        pa.table({"type": ["A", "B"], "ts": ["2024-03-01 05:00:00", "2024-03-01 05:00:02.5"]}), tmp_path / "e.parquet"
    )
    assert QUERY.evaluate(tmp_path / "e.parquet", sort=True)["end_time"].to_pylist() == [TEMPORAL]


@pytest.mark.parametrize(
    ("frame", "hint"),
    [
        (pd.DataFrame({"type": ["A"], "ts": ["1/3/2024"]}), r"df\['ts'\] = pd.to_datetime\(df\['ts'\], utc=True"),
        (pl.DataFrame({"type": ["A"], "ts": ["1/3/2024"]}), r"pl.col\('ts'\).str.to_datetime\(\)"),
        (pl.LazyFrame({"type": ["A"], "ts": ["2024-03-01"]}), r"pl.col\('ts'\).str.to_datetime\(\)"),
        (duckdb.sql("SELECT 'A' AS type, '1/3/2024' AS ts"), r'CAST\("ts" AS TIMESTAMP\)'),
        (pa.table({"type": ["A"], "ts": ["1/3/2024"]}), r"pyarrow\.compute\.strptime"),
    ],
)
def test_the_hint_is_in_the_words_of_the_library(frame, hint):
    with pytest.raises(cer_gpu.QueryTypeError, match=hint):
        QUERY.evaluate(frame)


def test_a_frame_without_rows():
    for rows in (pd.DataFrame({"type": [], "ts": []}), pd.DataFrame({"type": ["A"], "ts": ["x"]}).iloc[:0]):
        found = QUERY.evaluate(rows)
        assert (found.num_rows, found.schema.field("end_time").type) == (0, pa.timestamp("us"))
        assert QUERY.evaluate(rows, sort=True).num_rows == QUERY.count(rows) == 0
    assert open_events(pd.DataFrame({"n": pd.array([], "int64")})).schema.field("n").type == pa.int64()
