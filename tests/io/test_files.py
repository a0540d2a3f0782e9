"""Files of events by folders, globs and addresses of stores, and the columns that folders tell."""

from __future__ import annotations

import datetime
import fnmatch
import itertools
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import cer_gpu
from cer_gpu.io import files, stores
from cer_gpu.io.files import find_files
from cer_gpu.io.sources import open_events

TABLE = pa.table(
    {"type": list("ABCABCABAB") * 3, "x": [k % 7 for k in range(30)], "ts": pa.array(range(30), pa.timestamp("us"))}
)
QUERY = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[x > 2] WITHIN 4 EVENTS")


def write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        pa_csv.write_csv(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))
    else:
        pq.write_table(table, path, row_group_size=4)


def read(events: object, *columns: str) -> list[tuple]:
    batches = open_events(events).batches(list(columns))
    return [tuple(row[name] for name in columns) for batch in batches for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def expected() -> pa.Table:
    return QUERY.evaluate(TABLE)


@pytest.fixture
def years(tmp_path) -> Path:
    """Write the rows into folders of years and months, ten rows to a file."""
    for k, folder in enumerate(["year=2023/month=12", "year=2024/month=2", "year=2024/month=10"]):
        write(tmp_path / "data" / folder / "part-0.parquet", TABLE.slice(10 * k, 10))
    (tmp_path / "data" / "_SUCCESS").touch()
    write(tmp_path / "data" / "_temporary" / "x.parquet", TABLE)
    return tmp_path / "data"


def test_folders_tell_columns_and_months_come_as_numbers(years, expected):
    assert QUERY.evaluate(years).equals(expected)
    source = open_events(str(years))
    assert source.schema.names == ["type", "x", "ts", "year", "month"]
    assert (source.schema.field("year").type, source.n_rows) == (pa.int64(), 30)
    assert read(years, "month", "year")[::10] == [(12, 2023), (2, 2024), (10, 2024)]
    in_2024 = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[year = 2024 AND x > 2] WITHIN 4 EVENTS")
    in_that_year = [p for p in expected["positions"].to_pylist() if p[0] >= 10]
    for threads in (1, 3):
        assert in_2024.evaluate(years, threads=threads)["positions"].to_pylist() == in_that_year
    by_month = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [month] WITHIN 4 EVENTS").evaluate(years)
    assert set(by_month["month"].to_pylist()) == {12, 2, 10}


def test_folders_below_the_given_one_tell_columns_and_those_above_do_not(years):
    assert open_events(years / "year=2024").schema.names == ["type", "x", "ts", "month"]
    assert open_events(years / "year=2024/*/part-0.parquet").schema.names == ["type", "x", "ts", "month"]
    assert open_events(years / "year=2024" / "month=2" / "part-0.parquet").schema.names == ["type", "x", "ts"]


def test_types_of_folders_are_integers_dates_or_text(tmp_path):
    for k, folder in enumerate(
        [
            "day=2024-01-31/n=007/who=a%20b",
            "day=2024-02-01/n=8/who=__HIVE_DEFAULT_PARTITION__",
            "day=2024-02-02/n=-1/who=9",
        ]
    ):
        write(tmp_path / folder / "e.csv", TABLE.slice(k, 1))
    days = [datetime.date(2024, 1, 31), datetime.date(2024, 2, 1), datetime.date(2024, 2, 2)]
    assert read(tmp_path, "day", "n", "who", "type") == [
        (days[0], 7, "a b", "A"),
        (days[1], 8, None, "B"),
        (days[2], -1, "9", "C"),
    ]
    assert read(tmp_path, "who") == [("a b",), (None,), ("9",)]
    assert cer_gpu.compile("SELECT * FROM S WHERE S AS a FILTER a[who = '9']", type_column=None).evaluate(tmp_path)[
        "positions"
    ].to_pylist() == [[2]]


@pytest.mark.parametrize("text", ["2024-W01", "2024-02-30", "1_000", "%205", "+5", "\uff11\uff12", "9" * 19])
def test_other_texts_of_folders_stay_text(text, tmp_path):
    write(tmp_path / f"k={text}" / "e.csv", TABLE.slice(0, 1))
    assert open_events(tmp_path).schema.field("k").type == pa.string()


def test_a_column_of_the_file_goes_before_that_of_its_folder(tmp_path, expected):
    write(tmp_path / "x=100" / "e.parquet", TABLE)
    assert QUERY.evaluate(tmp_path).equals(expected)


def test_a_file_whose_folders_lack_a_column_is_refused_where_it_is_read(years, expected):
    write(years / "year=2024" / "z" / "e.parquet", TABLE.slice(0, 0))
    assert QUERY.evaluate(years).equals(expected)
    by_month = cer_gpu.compile("SELECT * FROM S WHERE A ; B PARTITION BY [month]")
    with pytest.raises(cer_gpu.EventsError, match=r"z/e\.parquet: no column 'month' .*, which .*/month=12/.* has"):
        by_month.evaluate(years)


def test_globs(years, tmp_path, monkeypatch, expected):
    monkeypatch.chdir(tmp_path)
    cases = {
        "data/**/*.parquet": 3,
        "data/year=2024/**": 2,
        "data/*/month=1?/*": 2,
        "data/year=202[4-9]": 2,
        "data/year={2023,2024}/month=2": 1,
        "./data/*": 3,
        "da*": 3,
        str(tmp_path / "d*" / "*"): 3,
    }
    for glob, n in cases.items():
        assert len(find_files(glob)) == n, glob
    assert QUERY.evaluate("data/**/*.parquet").equals(expected)
    assert QUERY.evaluate(["data/year=2023/**", "data/year=2024/*/*.parquet"]).equals(expected)
    write(tmp_path / "odd[1].parquet", TABLE)
    assert QUERY.evaluate("odd[1].parquet").equals(expected)  # a file of the name goes before the pattern


def test_brackets_of_globs_are_those_of_fnmatch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["[x]", "]y", "x", "^", "a-", "z", "\\"]
    for name in names:
        write(tmp_path / "gl" / f"{name}.arrow.csv", TABLE.slice(0, 1))
    for bracket in ["[]x]", "[[]", "[!]x]", "[a-]", "[x^]", "[!a-z]", "[\\]", "[z-ax]", "[[-^]"]:
        wanted = sorted(f"gl/{name}.arrow.csv" for name in names if fnmatch.fnmatchcase(name, bracket + "*"))
        assert [file.path for file in find_files(f"gl/{bracket}*")] == wanted, bracket
    assert len(find_files("gl/[^a-z]*")) == len(find_files("gl/[!a-z]*"))
    for glob in ["gl/[z-a]*", "gl/{a[}]", "gl/{a,{b}", "gl/[]"]:
        with pytest.raises(cer_gpu.EventsError, match="fits this pattern"):
            find_files(glob)


def test_the_same_events_through_every_kind_of_file(tmp_path, monkeypatch, expected):
    rng = random.Random(11)
    monkeypatch.chdir(tmp_path)
    for trial in range(8):
        folder = tmp_path / f"t{trial}"
        cuts = sorted({0, 30, *rng.choices(range(1, 30), k=rng.randint(1, 4))})
        for k, (begin, end) in enumerate(itertools.pairwise(cuts)):
            inner = rng.choice([f"p={k}/", f"p={k}/q=x/"]) if trial % 2 else ""
            ending = rng.choice([".parquet", ".csv", ".jsonl"])
            write(folder / inner / f"f{k}{ending}", TABLE.slice(begin, end - begin))
        for given in (folder, f"t{trial}/**", f"{folder}/", folder.as_uri(), [folder]):
            assert QUERY.evaluate(given).equals(expected)


def test_tables_of_table_formats_are_refused(tmp_path):
    write(tmp_path / "t" / "a.parquet", TABLE)
    (tmp_path / "t" / ".hoodie").mkdir()
    with pytest.raises(cer_gpu.EventsError, match="a table of Hudi, whose files may hold rows that were deleted"):
        QUERY.evaluate(tmp_path / "t")


def test_columns_of_json_lines_have_the_types_of_the_first_rows(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"type": "A", "at": "2024-01-01T00:00:00Z"}\n{"type": "B", "at": "2024-01-01T00:00:01.5Z"}\n')
    assert open_events(path).schema.field("at").type == pa.timestamp("us", "UTC")
    query = cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 2 SECONDS", time_column="at")
    assert query.evaluate(path).num_rows == 1
    path.write_text('{"type": "A", "x": 3, "ts": 0}\n' * 200_000 + '{"type": "B", "x": "one", "ts": 0}\n')
    with pytest.raises(
        cer_gpu.EventsError, match=r"(?s)e\.jsonl: column 'x' is int64 in the rows before.*hint: column_types"
    ):
        QUERY.evaluate(path)


# ---- stores ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket(years, monkeypatch):
    """Let s3://bucket be a folder of this machine."""
    (years.parent / "bucket").symlink_to(years)

    def opened(address, arguments=None):
        assert (address.scheme, address.authority) == ("s3", "bucket")
        return fs.SubTreeFileSystem(str(years.parent), fs.LocalFileSystem())

    monkeypatch.setattr(files, "open_store", opened)


def test_addresses_of_stores_are_read(bucket, years, expected):
    write(years / "year=2023" / "a b.csv", TABLE.slice(0, 0))
    (years / "year=2023" / "a b.csv").unlink()
    assert QUERY.evaluate("s3://bucket").equals(expected)
    assert QUERY.evaluate("s3://bucket/**/*.parquet", threads=2).equals(expected)
    one = "s3://bucket/year=2024/month=2/part-0.parquet"
    assert QUERY.evaluate(["s3://bucket/year=2023/", one, "s3://bucket/year=2024/month=10"]).equals(expected)
    assert [str(file) for file in find_files("s3://bucket/*=2024/month=2")] == [one]
    for name in ("x.csv", "y.jsonl"):
        write(years.parent / "text" / name, TABLE)
        (years / name).write_bytes((years.parent / "text" / name).read_bytes())
        assert QUERY.evaluate(f"s3://bucket/{name}").equals(expected)
    with pytest.raises(cer_gpu.EventsError, match=r"s3://bucket/no\.parquet: no such file"):
        QUERY.evaluate("s3://bucket/no.parquet")


def test_files_of_stores_that_break_are_named(bucket, years):
    (years / "broken.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(cer_gpu.EventsError, match=r"s3://bucket/broken\.parquet: cannot be read"):
        QUERY.evaluate("s3://bucket/broken.parquet")


def test_stores_that_refuse_name_their_credentials(monkeypatch):
    class Refusing(fs.FileSystemHandler):
        """A store whose every answer is that of S3 without credentials."""

        def get_type_name(self):
            return "refusing"

        def get_file_info(self, paths):
            raise OSError("AWS Error ACCESS_DENIED during HeadObject operation: No response body.")

    for name in fs.FileSystemHandler.__abstractmethods__ - {"get_type_name", "get_file_info"}:
        setattr(Refusing, name, lambda self, *args: None)
    Refusing.__abstractmethods__ = frozenset()
    monkeypatch.setattr(files, "open_store", lambda address: fs.PyFileSystem(Refusing()))
    with pytest.raises(cer_gpu.EventsError, match=r"(?s)s3://b/e\.parquet.*ACCESS_DENIED.*hint: .*AWS_ACCESS_KEY_ID"):
        QUERY.evaluate("s3://b/e.parquet")
    with pytest.raises(cer_gpu.EventsError, match=r"(?s)hint: .*GOOGLE_APPLICATION_CREDENTIALS"):
        QUERY.evaluate("gs://b/e.parquet")


def test_addresses_that_nothing_can_open_are_refused(monkeypatch):
    monkeypatch.setattr(stores, "_by_fsspec", lambda uri, missing: (_ for _ in ()).throw(stores.StoreError(missing)))
    for path, message in {
        "https://example.org/e.parquet": "pyarrow has no file system for https:",
        "abfss://box/e.parquet": "expected abfss://container@account",
    }.items():
        with pytest.raises(cer_gpu.EventsError, match=message):
            QUERY.evaluate(path)

    def no_region(bucket):
        raise OSError("Could not resolve hostname")

    monkeypatch.setattr(fs, "resolve_s3_region", no_region)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(cer_gpu.EventsError, match=r"s3://b: pyarrow cannot open it: .*\nhint: credentials"):
        QUERY.evaluate("s3://b/e.parquet")


def test_the_arguments_of_stores():
    assert stores._store_arguments(stores.Address.parse("abfs://box@acc.dfs.core.windows.net/x")) == {
        "account_name": "acc"
    }
    assert stores._store_arguments(stores.Address.parse("hdfs://node:8020/x")) == {"host": "node", "port": 8020}
    assert stores._store_arguments(stores.Address.parse("gs://b/x")) == {}


def test_links_that_loop_are_read_once_and_links_that_lead_nowhere_are_refused(years, tmp_path, expected):
    """Links to a folder above, to the folder itself and to each other; a link to a file that is gone."""
    (years / "year=2023" / "back").symlink_to("..", target_is_directory=True)
    (years / "here").symlink_to(".", target_is_directory=True)
    (years / "self").symlink_to("self")
    (years / "one").symlink_to("two")
    (years / "two").symlink_to("one")
    (years / "notes.txt").symlink_to("gone.txt")
    assert QUERY.evaluate(years).equals(expected)
    assert QUERY.evaluate(f"{years}/**/*.parquet").equals(expected)
    (tmp_path / "elsewhere").symlink_to(years, target_is_directory=True)
    assert QUERY.evaluate(tmp_path / "elsewhere").equals(expected)
    (years / "day.parquet").symlink_to("gone.parquet")
    with pytest.raises(cer_gpu.EventsError, match=r"day.parquet: is a link to gone.parquet, which is not there"):
        QUERY.evaluate(years)
    (years / "day.parquet").unlink()
    (years / "day.parquet").symlink_to("day.parquet")
    with pytest.raises(cer_gpu.EventsError, match=r"day.parquet: cannot be read: Too many levels of symbolic links"):
        QUERY.evaluate(years)
    with pytest.raises(cer_gpu.EventsError, match="no such file\nhint: it is a link to two, which leads nowhere"):
        QUERY.evaluate(years / "one")
