"""No file, and no block of a file, decides the type of a column for the others."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sizes import seeds

import cer_gpu
from cer_gpu.io import json_lines
from cer_gpu.io.sources import open_events, open_standard_input
from cer_gpu.io.string_types import name_of_type, type_of_name

BOTH = "SELECT * WHERE (A OR B) AS x WITHIN 5 SECONDS"
US, NS, UTC = pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("us", "UTC")


def write(folder, **texts: str):
    """Write files, whose names end in their last two or three letters' format."""
    for name, text in texts.items():
        stem, _, ending = name.rpartition("_")
        (folder / f"{stem}.{ending}").write_text(text)
    return folder


def rows(events, *names: str) -> list[dict]:
    source = open_events(events)
    return pa.Table.from_batches(source.batches(list(names))).to_pylist()


# ---- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, -1])
def test_a_fraction_in_one_file_of_csv(tmp_path, order):
    times = ["2024-03-01 05:00:00", "2024-03-01 05:00:02.5"]
    write(tmp_path, a_csv=f"type,ts\nA,{times[0]}\n", b_csv=f"type,ts\nB,{times[1]}\n")
    files = [tmp_path / "a.csv", tmp_path / "b.csv"][::order]
    assert open_events(files).schema.field("ts").type == US
    query = cer_gpu.compile("SELECT * WHERE A ; B WITHIN 3 SECONDS", time_column="ts")
    assert query.evaluate(files, sort=True).num_rows == 1
    start = query.evaluate(tmp_path)["start_time"]
    assert start.type == US
    assert start.to_pylist() == [dt.datetime(2024, 3, 1, 5)]


def test_a_fraction_behind_the_first_block(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("type,ts\n" + "A,2024-03-01 05:00:00\n" * 100_000 + "B,2024-03-01 05:00:02.5\n")
    query = cer_gpu.compile("SELECT * WHERE A ; B WITHIN 3 SECONDS LIMIT 1", time_column="ts")
    assert query.evaluate(path)["end_time"].to_pylist() == [dt.datetime(2024, 3, 1, 5, 0, 2, 500_000)]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("place", ["first", "second", "late"])
def test_nanoseconds_where_a_fraction_needs_them(tmp_path, ending, place):
    fine = "2024-03-01T05:00:02.123456789"

    def rows(kind: str, time: str) -> str:
        return f"{kind},{time}\n" if ending == "csv" else json.dumps({"type": kind, "ts": time}) + "\n"

    header = "type,ts\n" if ending == "csv" else ""
    coarse = "2024-03-01T05:00:01"
    texts = {
        "first": (rows("B", fine), rows("B", coarse)),
        "second": (rows("B", coarse), rows("B", fine)),
        "late": (rows("A", coarse) * 150_000 + rows("B", fine),),
    }[place]
    for name, text in zip("ab", texts, strict=False):
        (tmp_path / f"{name}.{ending}").write_text(header + text)
    query = cer_gpu.compile("SELECT * WHERE B AS x", time_column="ts")
    times = query.evaluate(tmp_path, sort=True)["end_time"]
    assert times.type == NS
    assert max(times.cast(pa.int64()).to_pylist()) % 1_000 == 789


@pytest.mark.parametrize("fraction", ["", ".5", ".500000"])
def test_an_offset_gives_utc_with_and_without_a_fraction(tmp_path, fraction):
    """Where JSON has a Z, the column has a zone, whatever the fractions of the file are."""
    (tmp_path / "a.jsonl").write_text('{"type": "A", "ts": "2024-03-01T05:00:00Z"}\n')
    (tmp_path / "b.jsonl").write_text(f'{{"type": "B", "ts": "2024-03-01T07:00:02{fraction}+02:00"}}\n')
    (tmp_path / "c.csv").write_text("type,ts\nB,2024-03-01 05:00:03Z\n")
    pq.write_table(
        pa.table({"type": ["B"], "ts": pa.array([dt.datetime(2024, 3, 1, 5, 0, 4)], pa.timestamp("ms", "UTC"))}),
        tmp_path / "d.parquet",
    )
    for given in (tmp_path, tmp_path / "a.jsonl"):
        assert open_events(given).schema.field("ts").type == UTC
    query = cer_gpu.compile("SELECT * WHERE A ; B WITHIN 5 SECONDS", time_column="ts")
    assert query.evaluate(tmp_path)["positions"].to_pylist() == [[0, 1], [0, 2], [0, 3]]


def test_dates_and_times_of_day(tmp_path):
    write(tmp_path, a_csv="type,ts\nA,2024-03-01\n", b_csv="type,ts\nB,2024-03-01 05:00:02\n")
    assert open_events(tmp_path / "a.csv").schema.field("ts").type == pa.date32()
    found = cer_gpu.compile(BOTH, time_column="ts").evaluate(tmp_path)
    assert found["end_time"].to_pylist() == [dt.datetime(2024, 3, 1), dt.datetime(2024, 3, 1, 5, 0, 2)]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_times_of_which_some_have_an_offset_are_refused_with_both_places(tmp_path, ending):
    def text(*times: str) -> str:
        if ending == "csv":
            return "type,ts\n" + "".join(f"A,{time}\n" for time in times)
        return "".join(json.dumps({"type": "A", "ts": time}) + "\n" for time in times)

    naive, zoned = "2024-03-01 05:00:00", "2024-03-01 05:00:02Z"
    a, b = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    a.write_text(text(naive))
    b.write_text(text(zoned))
    query = cer_gpu.compile(BOTH, time_column="ts")
    with pytest.raises(
        cer_gpu.EventsError,
        match=rf"'ts' has times with an offset or Z and without: .* row 0 of .*b\.{ending}, .* row 0 of .*a\.{ending}",
    ):
        query.evaluate(tmp_path)
    assert cer_gpu.compile("SELECT * WHERE A AS x").evaluate(tmp_path).num_rows == 2, "who does not read the times"
    a.write_text(text(naive, naive, zoned))
    with pytest.raises(cer_gpu.EventsError, match=rf"'{zoned}' in row 2 of .*a\.{ending}, '{naive}' in row 0 of"):
        query.evaluate(a)
    a.write_text(text(*[naive] * 200_000, zoned))
    with pytest.raises(cer_gpu.EventsError, match=rf"'{zoned}' in row 200,000"):
        query.evaluate(a)
    as_text = cer_gpu.Files(a, column_types={"ts": "string"})
    assert cer_gpu.compile("SELECT * WHERE A AS x FILTER x[ts LIKE 'Z$']").evaluate(as_text)["start"].to_pylist() == [
        200_000
    ]


# ---- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.long("compiles for columns of other types")
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_integers_widen_to_floats(tmp_path, ending):
    texts = {
        "csv": ("type,v\nA,42\n", "type,v\nB,42.5\n"),
        "jsonl": ('{"type": "A", "v": 42}\n', '{"type": "B", "v": 42.5}\n'),
    }[ending]
    for name, text in zip("ab", texts, strict=True):
        (tmp_path / f"{name}.{ending}").write_text(text)
    query = cer_gpu.compile("SELECT x[v] WHERE (A OR B) AS x")
    found = query.evaluate(tmp_path, output="events")["events"].to_pylist()
    assert [event["v"] for (event,) in found] == [42.0, 42.5]
    long = tmp_path / f"long.{ending}"
    header = texts[0].split("\n")[0] + "\n" if ending == "csv" else ""
    rows = [text.removeprefix(header) for text in texts]
    long.write_text(header + rows[0] * 400_000 + rows[1])
    late = cer_gpu.compile("SELECT x[v] WHERE B AS x FILTER x[v > 42]")
    assert late.evaluate(long, output="events")["events"].to_pylist() == [[{"v": 42.5}]]
    assert late.count(long) == 1
    together = cer_gpu.compile_all({"q": late.text})
    assert (together.evaluate(long)["q"].num_rows, together.count(long)) == (1, {"q": 1})
    with pytest.raises(
        cer_gpu.EventsError,
        match=rf"long\.{ending}: column 'v' is int64 in the rows before[^\n]*\n.*--column-types 'v=float64'",
    ):
        late.stream(long, output="events").read_all()


def test_an_integer_that_is_no_float_is_refused(tmp_path):
    write(tmp_path, a_csv=f"type,v\nA,{2**53 + 1}\n", b_csv="type,v\nB,42.5\n")
    query = cer_gpu.compile("SELECT x[v] WHERE (A OR B) AS x")
    with pytest.raises(
        cer_gpu.EventsError, match=r"a\.csv: column 'v' is int64 here, and read as double for all files"
    ):
        query.evaluate(tmp_path, output="events")
    (tmp_path / "long.csv").write_text(f"type,v\nA,{2**53 + 1}\n" + "A,1\n" * 400_000 + "B,1.5\n")
    with pytest.raises(
        cer_gpu.EventsError, match=r"'1.5' in row 400,001, and 9007199254740993 in row 0, which is no float"
    ):
        query.evaluate(tmp_path / "long.csv", output="events")


def test_a_column_that_is_empty_in_the_first_block(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("type,v\n" + "A,\n" * 400_000 + "B,7\n")
    assert cer_gpu.compile("SELECT * WHERE B AS x FILTER x[v = 7]").evaluate(path).num_rows == 0 + 1


# ---- columns of several types ---------------------------------------------------------------------------------------


def test_a_column_of_several_types_that_is_not_read(tmp_path):
    events = [
        {"type": "A", "v": 1, "k": 1, "e": {"q": 1, "p": 5}},
        {"type": "B", "v": "x", "k": 2.5, "e": {"q": [2], "p": 6}},
    ]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (tmp_path / "e.jsonl").write_text(lines)
    query = cer_gpu.compile("SELECT * WHERE A AS a ; B AS b FILTER b[k > a.k] AND b[e.p > a.e.p]")
    assert query.evaluate(tmp_path)["positions"].to_pylist() == [[0, 1]]
    (tmp_path / "e.jsonl").write_text(lines.splitlines()[0] + "\n")
    (tmp_path / "f.jsonl").write_text(lines.splitlines()[1] + "\n")
    assert cer_gpu.compile("SELECT * WHERE A AS a ; B AS b FILTER b[k > a.k]").evaluate(tmp_path).num_rows == 1


@pytest.mark.parametrize("values", [[1, "x"], ["x", 1], [True, 1, None, "y"], [{"a": 1}, 2], [[1], "z"]])
@pytest.mark.parametrize("files", [1, 2])
def test_a_column_of_several_types_is_read_as_text(tmp_path, values, files, monkeypatch):
    texts = [v if v is None or isinstance(v, str) else json.dumps(v, separators=(",", ":")) for v in values]
    lines = [json.dumps({"type": "A", "n": i, "v": v}) + "\n" for i, v in enumerate(values)]
    for i, part in enumerate([lines] if files == 1 else [lines[:1], lines[1:]]):
        (tmp_path / f"{i}.jsonl").write_text("".join(part))
    assert rows(tmp_path, "v", "n") == [{"v": text, "n": i} for i, text in enumerate(texts)]
    if files == 1:
        monkeypatch.setattr(json_lines, "STRING_BYTES", 60)
        query = cer_gpu.compile("SELECT x[v] WHERE A AS x")
        found = query.evaluate(tmp_path, output="events")["events"].to_pylist()
        assert [event["v"] for (event,) in found] == texts


def test_a_field_of_several_types_is_an_error_that_says_so(tmp_path):
    (tmp_path / "e.jsonl").write_text('{"type": "A", "e": {"q": 1}}\n{"type": "A", "e": {"q": "x"}}\n')
    with pytest.raises(cer_gpu.QueryTypeError, match="'e' has no field 'q'"):
        cer_gpu.compile("SELECT * WHERE A AS a FILTER a[e.q = 1]").evaluate(tmp_path)


def test_numbers_in_one_file_and_texts_in_the_next_of_csv_are_texts(tmp_path):
    write(tmp_path, a_csv="type,v\nA,1\n", b_csv="type,v\nA,x\n")
    assert rows(tmp_path, "v") == [{"v": "1"}, {"v": "x"}]
    assert open_events(tmp_path).remarks == {
        "v": f"column 'v' is int64 in {tmp_path}/a.csv and string in {tmp_path}/b.csv: it is read as string"
    }


def test_a_column_that_a_text_file_lacks_is_null(tmp_path):
    write(tmp_path, a_csv="type,v\nA,1\n", b_csv="type,w\nB,2\n", c_jsonl='{"type": "C", "v": 3}\n')
    assert rows(tmp_path, "type", "v", "w") == [
        {"type": "A", "v": 1, "w": None},
        {"type": "B", "v": None, "w": 2},
        {"type": "C", "v": 3, "w": None},
    ]
    with pytest.raises(cer_gpu.QueryTypeError, match="no column 'u'"):
        cer_gpu.compile("SELECT * WHERE A AS a FILTER a[u = 1]").evaluate(tmp_path)


def test_columns_of_folders_stay_those_of_the_folders(tmp_path):
    for year, text in ((2023, "type,v\nA,1\n"), (2024, "type,v,year\nA,1.5,7\n")):
        (tmp_path / f"year={year}").mkdir()
        (tmp_path / f"year={year}" / "e.csv").write_text(text)
    assert rows(tmp_path, "v", "year") == [{"v": 1.0, "year": 2023}, {"v": 1.5, "year": 7}]


# ---- any cut into files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(40))
def test_any_cut_into_files_gives_the_same_rows(tmp_path, seed):
    """Types are those of all rows together, wherever the rows lie."""
    rng = random.Random(seed)
    makers = {
        "t": lambda: f"2024-03-01 05:00:{rng.randrange(60):02}" + rng.choice(["", "", ".5", ".123456"]),
        "z": lambda: f"2024-03-01T05:00:{rng.randrange(60):02}" + rng.choice(["", ".25"]) + rng.choice(["Z", "+01:00"]),
        "d": lambda: rng.choice(["2024-03-01", "2024-03-02", "2024-03-02 01:00:00"]),
        "i": lambda: rng.choice(["1", "2", "", "3.5"]),
        "s": lambda: rng.choice(["1", "x", "", "true"]),
    }
    lines = [",".join(make() for make in makers.values()) + "\n" for _ in range(rng.randrange(1, 12))]
    header = ",".join(makers) + "\n"
    (tmp_path / "whole.csv").write_text(header + "".join(lines))
    cuts = sorted(rng.choices(range(len(lines) + 1), k=3))
    folder = tmp_path / "cut"
    folder.mkdir()
    for i, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(lines)], strict=True)):
        (folder / f"{i}.csv").write_text(header + "".join(lines[begin:end]))
    whole, cut = open_events(tmp_path / "whole.csv"), open_events(folder)
    names = list(makers)
    read = [
        pa.Table.from_batches(source.batches(names), pa.schema([source.schema.field(n) for n in names]))
        for source in (whole, cut)
    ]
    for name in names:
        a, b = (table[name] for table in read)
        if a.type != b.type:  # a file of true alone, beside one of words: text either way
            assert (name, pa.string()) == ("s", b.type) or pa.types.is_null(a.type), (name, a.type, b.type)
            continue
        assert a.to_pylist() == b.to_pylist(), name
    shutil.rmtree(folder)


# ---- types that are declared ----------------------------------------------------------------------------------------


def test_declared_types_of_standard_input(tmp_path):
    class Pipe(io.BytesIO):
        def isatty(self) -> bool:
            return False

    text = ("type,v\n" + "A,1\n" * 400_000 + "A,1.5\n").encode()
    with pytest.raises(
        cer_gpu.EventsError, match=r"(?s)standard input cannot be read: .*invalid value '1.5'.*--column-types"
    ):
        list(open_standard_input(Pipe(text)).batches(["v"]))
    options = cer_gpu.Files("-", column_types={"v": "float64"}).options()
    assert sum(batch.num_rows for batch in open_standard_input(Pipe(text), options).batches(["v"])) == 400_001


@pytest.mark.parametrize("kind", [US, NS, UTC, pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32()])
def test_names_of_types_read_back(kind):
    assert type_of_name(name_of_type(kind)) == kind


def test_names_that_are_no_types_are_refused():
    for name in ("number", "timestamp", "timestamp[min]", "duration[s, UTC]"):
        with pytest.raises(cer_gpu.OptionError, match="expected the name of a type"):
            cer_gpu.Files("e.csv", column_types={"v": name})


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_an_integer_that_is_no_float_is_an_error_beside_fractions_where_the_column_is_read(tmp_path, ending):
    path = tmp_path / f"large.{ending}"
    lines = {
        "csv": "type,v\nA,1.5\nB,9007199254740993\n",
        "jsonl": '{"type": "A", "v": 1.5}\n{"type": "B", "v": 9007199254740993}\n',
    }
    path.write_text(lines[ending])
    with pytest.raises(cer_gpu.EventsError, match="'v' is read as floats, and has 9007199254740993 in row 1, which is"):
        cer_gpu.compile("SELECT * FROM S WHERE B AS b FILTER b[v > 0]").evaluate(path)
    assert cer_gpu.compile("SELECT * FROM S WHERE B").evaluate(path).num_rows == 1
    path.write_text(lines[ending].replace("993", "992"))
    assert cer_gpu.compile("SELECT * FROM S WHERE B AS b FILTER b[v = 9007199254740992]").evaluate(path).num_rows == 1
    told = cer_gpu.Files(path, column_types={"v": "double"})
    assert cer_gpu.compile("SELECT * FROM S WHERE B AS b FILTER b[v > 0]").evaluate(told).num_rows == 1
