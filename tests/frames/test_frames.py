"""Frames of Polars, pandas and DuckDB: results of the same kind, equal to those over the same events in Arrow."""

import datetime as dt
import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import duckdb
import narwhals
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cer_gpu
import cer_gpu.duckdb
import cer_gpu.frames
import cer_gpu.pandas
import cer_gpu.polars
from cer_gpu.errors import EventsError, OptionError, QuerySyntaxError, QueryTypeError
from cer_gpu.frames import kinds
from cer_gpu.io.frames import open_frame

TEXT = "SELECT * FROM S WHERE A AS a ; B+ AS bs ; C AS c FILTER a[x > 1] AND c[x IS NOT NULL] WITHIN 5 EVENTS"
ROWS = (
    "SELECT * FROM t MATCH_RECOGNIZE (MEASURES MATCH_NUMBER() AS n, FIRST(A.x) AS x "
    "PATTERN (A B+) DEFINE A AS type = 'A', B AS type = 'B')"
)
EVENTS = pa.table({"type": list("ABBCAC"), "x": [3, 0, None, 4, 5, 6]})


def relation_of(table):
    connection = duckdb.connect()
    connection.register("events", table)
    return connection.table("events")


FRAMES = {
    "polars": (pl.from_arrow, lambda found: found.to_arrow()),
    "lazy": (lambda table: pl.from_arrow(table).lazy(), lambda found: found.collect().to_arrow()),
    "pandas": (lambda table: table.to_pandas(), lambda found: pa.Table.from_pandas(found, preserve_index=False)),
    "arrow-backed pandas": (
        lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
        lambda found: pa.Table.from_pandas(found, preserve_index=False),
    ),
    "duckdb": (relation_of, lambda found: found.to_arrow_table()),
    "arrow": (lambda table: table, lambda found: found),
    "narwhals of polars": (
        lambda table: narwhals.from_native(pl.from_arrow(table)),
        lambda found: found.to_arrow(),
    ),
    "narwhals, lazy": (
        lambda table: narwhals.from_native(pl.from_arrow(table).lazy()),
        lambda found: found.collect().to_arrow(),
    ),
    "narwhals of duckdb": (
        lambda table: narwhals.from_native(relation_of(table)),
        lambda found: found.to_native().to_arrow_table(),
    ),
}
every_frame = pytest.mark.parametrize(("made", "back"), FRAMES.values(), ids=FRAMES)


@every_frame
@settings(max_examples=8)
@given(
    types=st.lists(st.sampled_from("ABCD"), max_size=12),
    xs=st.lists(st.none() | st.integers(0, 3), min_size=12, max_size=12),
    output=st.sampled_from(["positions", "bindings", "count", "ends"]),
)
def test_results_are_those_of_evaluate(made, back, types, xs, output):
    table = pa.table({"type": pa.array(types, pa.string()), "x": pa.array(xs[: len(types)], pa.int64())})
    query = cer_gpu.compile(TEXT)
    expected = query.evaluate(table, output=output)
    frame = made(table)
    found = cer_gpu.frames.match(frame, query, output=output)
    assert type(found) is type(frame)
    found = back(found)
    assert found.column_names == expected.column_names
    assert found.to_pylist() == expected.to_pylist()
    assert cer_gpu.frames.count(frame, TEXT) == query.evaluate(table).num_rows
    assert query.evaluate(frame, output=output).equals(expected)


@every_frame
def test_sql_row_patterns_and_sets_of_queries_work_as_well(made, back):
    frame = made(EVENTS)
    assert back(cer_gpu.frames.match(frame, ROWS)).to_pylist() == [{"n": 1, "x": 3}]
    assert cer_gpu.frames.count(frame, ROWS) == 1
    assert "A B+" in str(cer_gpu.frames.explain(frame, ROWS))
    texts = {"ab": "SELECT * FROM S WHERE A ; B", "ac": "SELECT * FROM S WHERE A ; C"}
    compiled = cer_gpu.compile_all(texts)
    expected = compiled.evaluate(EVENTS)
    for queries in (texts, compiled):
        found = cer_gpu.frames.match(frame, queries)
        assert {name: type(each) for name, each in found.items()} == dict.fromkeys(texts, type(frame))
        assert {name: back(each).to_pylist() for name, each in found.items()} == {
            name: each.to_pylist() for name, each in expected.items()
        }
        assert cer_gpu.frames.count(frame, queries) == {"ab": 2, "ac": 3}


def test_frames_of_other_libraries_go_by_narwhals(monkeypatch):
    frame = pl.from_arrow(EVENTS)
    monkeypatch.setattr(kinds, "is_a", lambda *_: False)  # as a library that only narwhals knows
    found = cer_gpu.frames.match(frame, TEXT)
    assert found.equals(pl.from_arrow(cer_gpu.compile(TEXT).evaluate(EVENTS)))


def test_accessors_find_count_and_explain(tmp_path):
    path = tmp_path / "q.ceql"
    path.write_text(TEXT)
    for frame in (pl.from_arrow(EVENTS), pl.from_arrow(EVENTS).lazy(), EVENTS.to_pandas()):
        n = cer_gpu.compile(TEXT).evaluate(EVENTS).num_rows
        for query in (TEXT, path, cer_gpu.compile(TEXT)):
            assert frame.cer.count(query) == n
            assert frame.cer.explain(query).to_dict()["events"]["n"] == 6
        assert len(frame.lazy().cer.match(TEXT, limit=2).collect() if hasattr(frame, "lazy") else "ab") == 2


def test_options_of_compiling_and_of_evaluating_go_where_they_belong():
    frame = pl.DataFrame({"kind": ["A", "B"], "at": [5, 4]})
    query = "SELECT * FROM S WHERE A ; B WITHIN 1 HOUR"
    options = {"type_column": "kind", "time_column": "at", "time_unit": "s"}
    assert frame.cer.match(query, sort=True, **options).height == 0
    with pytest.raises(cer_gpu.TimeOrderError):
        frame.cer.match(query, **options)
    with pytest.raises(OptionError, match=r"time_column is an option of cer_gpu\.compile, and this query is compiled"):
        frame.cer.match(cer_gpu.compile(TEXT), time_column="at")
    with pytest.raises(OptionError, match=r"no option 'outptu' here\nhint: did you mean 'output'\?"):
        frame.cer.match(TEXT, outptu="events")
    with pytest.raises(OptionError, match="no option 'limit' here"):
        frame.cer.count(TEXT, limit=3)
    with pytest.raises(OptionError, match=r"expected the text of a query, a pathlib\.Path or a compiled query, got"):
        frame.cer.match(5)
    with pytest.raises(OptionError, match=r"expected a frame of Polars, pandas, DuckDB or pyarrow, .* got list"):
        cer_gpu.frames.match([1], TEXT)


def test_a_count_sums_beyond_int64():
    frame = pl.DataFrame({"type": ["A"] * 62 + ["B"] * 8})
    assert frame.cer.count("SELECT * FROM S WHERE A+ ; B") == 8 * (2**62 - 1)


def test_a_count_with_having_is_of_the_valuations_that_pass():
    query = "SELECT a.x AS n FROM S WHERE A AS a ; C HAVING n > 3"
    frame = pl.from_arrow(EVENTS)
    assert frame.cer.count(query) == frame.cer.match(query).height == 1
    assert frame.cer.count({"having": query, "all": "SELECT * FROM S WHERE A ; C"}) == {"having": 1, "all": 3}


# ---- Polars -------------------------------------------------------------------------------------------------------


def test_a_lazy_match_is_checked_at_once_and_evaluated_when_collected():
    read = []

    def noted(batch):
        read.append(batch.height)
        return batch

    events = pl.from_arrow(EVENTS)
    frame = events.lazy().map_batches(noted, schema=events.schema)
    with pytest.raises(QueryTypeError, match="no column 'price'"):
        frame.cer.match("SELECT * FROM S WHERE A AS a FILTER a[price > 1]")
    with pytest.raises(QuerySyntaxError):
        frame.cer.match("SELECT")
    found = frame.cer.match(TEXT, output="bindings")
    assert found.collect_schema().names()[:3] == ["start", "end", "positions"]
    assert read == []
    whole = found.collect()
    assert read == [6]
    assert whole.equals(events.cer.match(TEXT, output="bindings"))
    part = found.filter(pl.col("end") == 3).select("c", "start").head(2)
    assert part.collect().equals(whole.filter(pl.col("end") == 3).select("c", "start").head(2))
    assert found.head(1).collect().equals(whole.head(1))
    assert found.head(0).collect().equals(whole.head(0))


def test_a_lazy_match_reads_batch_by_batch_and_stops_early():
    n_batches = 0

    def batches(names, predicate, n_rows, size):
        nonlocal n_batches
        for _ in range(2000):
            n_batches += 1
            yield pl.DataFrame({"type": ["A", "B"] * 5000})

    from polars.io.plugins import register_io_source

    endless = register_io_source(batches, schema={"type": pl.String})
    found = endless.cer.match("SELECT * FROM S WHERE A : B", limit=10).collect()
    assert found.height == 10
    assert endless.cer.match("SELECT * FROM S WHERE A : B").head(10).collect().equals(found)
    assert n_batches < 1000


def test_a_lazy_match_is_a_part_of_other_plans(tmp_path):
    path = tmp_path / "events.parquet"
    pl.from_arrow(EVENTS).write_parquet(path)
    events = pl.scan_parquet(path)
    rows = events.cer.match(TEXT, output="rows")
    joined = rows.join(events.with_row_index("position").cast({"position": pl.Int64}), on="position", how="left")
    expected = pl.from_arrow(cer_gpu.compile(TEXT).evaluate(EVENTS, output="rows"))
    for engine in ("in-memory", "streaming"):
        assert joined.sort("match", "position").collect(engine=engine)["x"].to_list() == expected["x"].to_list()


def test_columns_that_arrow_cannot_hold_are_refused_only_where_they_are_read():
    frame = pl.DataFrame({"type": ["A", "B"], "o": pl.Series([object(), object()], dtype=pl.Object)})
    assert frame.cer.count("SELECT * FROM S WHERE A ; B") == 1
    with pytest.raises(EventsError, match="this DataFrame as a table of events: column 'o': Python objects"):
        frame.cer.match("SELECT * FROM S WHERE A ; B", output="events")
    frame = pd.DataFrame({"type": ["A", "B"], "o": [1, "x"]})
    assert frame.cer.count("SELECT * FROM S WHERE A ; B") == 1
    with pytest.raises(EventsError, match=r"cannot read this DataFrame as a table of events: column 'o': .*int"):
        frame.cer.match("SELECT * FROM S WHERE A ; B", output="events")


def test_errors_of_libraries_are_errors_of_events():
    query = cer_gpu.compile("SELECT * FROM S WHERE S", type_column=None)
    with pytest.raises(EventsError, match="cannot read this LazyFrame as a table of events"):
        query.evaluate(pl.scan_parquet("nowhere.parquet"))
    wrong = duckdb.sql("SELECT 'x' AS x").project("CAST(x AS INT) AS x")
    with pytest.raises(EventsError, match="cannot read this relation as a table of events"):
        query.evaluate(wrong)


def test_polars_types_reach_the_query():
    frame = pl.DataFrame(
        {
            "type": pl.Series(["A", "B"], dtype=pl.Enum(["B", "A"])),
            "key": pl.Series(["k", "k"], dtype=pl.Categorical),
            "at": pl.Series([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)]).dt.replace_time_zone("Europe/Vienna"),
        }
    )
    text = "SELECT * FROM S WHERE A ; B PARTITION BY [key] WITHIN 1 DAY"
    (row,) = frame.cer.match(text, time_column="at").to_dicts()
    assert row["key"] == "k"
    assert [row["start_time"], row["end_time"]] == frame["at"].to_list()


@pytest.mark.parametrize("kind", [pl.Enum(["y", "x"]), pl.Categorical])
def test_values_of_enumerations_are_texts_in_results(kind):
    values = pl.Series(["x", None, "y"], dtype=kind)
    frame = pl.DataFrame({"type": ["A", "C", "B"], "k": values}).with_columns(
        s=pl.struct(k=pl.col("k")), l=pl.concat_list("k", "k")
    )
    expected = [{"k": k, "s": {"k": k}, "l": [k, k]} for k in ("x", "y")]
    for made in (frame, frame.lazy()):
        found = made.cer.match("SELECT * FROM S WHERE A ; B", output="events").lazy().collect()
        assert [{n: each[n] for n in "ksl"} for each in found["events"][0]] == expected
        found = made.cer.match("SELECT B.k AS v, LIST(A.k) AS a, B.s AS s, B.l AS l FROM S WHERE A ; B").lazy()
        row = found.collect().select("v", "a", "s", "l").row(0)
        assert row == ("y", ["x"], {"k": "y"}, ["y", "y"])
    found = frame.cer.match("SELECT * FROM S WHERE A ; B", output="rows")
    assert found["k"].to_list() == ["x", "y"]


# ---- pandas -------------------------------------------------------------------------------------------------------


def test_positions_are_row_numbers_and_a_named_index_is_a_column():
    at = pd.date_range("2024-01-01", periods=3, freq="h", tz="UTC", name="at")
    frame = pd.DataFrame({"type": pd.Categorical(["A", "C", "B"])}, index=at)
    found = frame.cer.match("SELECT * FROM S WHERE A ; B WITHIN 3 HOURS", time_column="at")
    assert found.index.equals(pd.RangeIndex(1))
    assert found["positions"][0].tolist() == [0, 2]
    assert str(found["start_time"].dtype) == "datetime64[ns, UTC]"
    assert frame.iloc[found["positions"][0]].index.tolist() == [at[0], at[2]]


def test_levels_of_an_index_with_numbers_as_names_are_not_swapped():
    index = pd.MultiIndex.from_arrays([["A", "B", None], [10, 20, None]], names=[1, 0])
    found = cer_gpu.frames.match(
        pd.DataFrame(index=index), "SELECT * FROM S WHERE A ; B", output="events", type_column="1"
    )
    assert list(found["events"][0]) == [{"1": "A", "0": 10.0}, {"1": "B", "0": 20.0}]


def test_nested_values_stay_integers_and_times_in_pandas():
    at = pd.to_datetime([1_700_000_000_123_456_789, 3]).tz_localize("UTC").tz_convert("Europe/Berlin")
    frame = pd.DataFrame(
        {"type": ["A", "B"], "id": pd.array([2**53 + 1, None], dtype="Int64"), "at": at, "d": at - at[1]}
    )
    assert str(frame["at"].dtype) == "datetime64[ns, Europe/Berlin]"
    assert str(frame["d"].dtype) == "timedelta64[ns]"
    query = "SELECT * FROM S WHERE A ; B"
    events = frame.cer.match(query, output="events")["events"][0]
    assert isinstance(events, np.ndarray)
    assert [type(each["id"]) for each in events] == [int, type(None)]
    assert events.tolist() == frame.astype(object).where(frame.notna(), None).to_dict("records")
    (events,) = frame[["type", "id"]].cer.match(query, output="events")["events"]
    assert [(type(each["id"]), each["id"]) for each in events] == [(int, 2**53 + 1), (type(None), None)]
    found = frame.cer.match("SELECT LIST(a.id) AS ids FROM S WHERE (A OR B)+ AS a")["ids"]
    every = [value for each in found for value in each]
    assert 2**53 + 1 in every
    assert not any(isinstance(value, float) for value in every)


def test_missing_positions_stay_integers_in_pandas():
    query = "SELECT * FROM S WHERE A AS a ; (B AS b OR C AS c)"
    found = pd.DataFrame({"type": ["A", "B", "C"]}).cer.match(query, output="bindings")
    assert [str(found[name].dtype) for name in "abc"] == ["int64", "Int64", "Int64"]
    frame = pd.DataFrame({"type": ["A", "B", "C"]}).astype("string[pyarrow]").astype(pd.ArrowDtype(pa.string()))
    found = frame.cer.match(query, output="bindings")
    assert str(found["b"].dtype) == "int64[pyarrow]"


def test_pandas_types_reach_the_query():
    frame = pd.DataFrame(
        {
            "type": pd.Series(["A", "B"], dtype="string"),
            "x": pd.Series([1, None], dtype="Int64"),
            "flag": pd.Series([True, None], dtype="boolean"),
            "y": [1.5, float("nan")],
            "s": [None, "t"],
        }
    )
    table = open_frame(frame)
    (batch,) = table.batches(table.schema.names)
    assert batch.to_pylist() == [
        {"type": "A", "x": 1, "flag": True, "y": 1.5, "s": None},
        {"type": "B", "x": None, "flag": None, "y": None, "s": "t"},
    ]
    assert frame.cer.count("SELECT * FROM S WHERE A AS a ; B AS b FILTER a[x = 1] AND b[y IS NULL AND s = 't']") == 1


# ---- DuckDB -------------------------------------------------------------------------------------------------------


def test_relations_join_their_matches():
    connection = duckdb.connect()
    events = connection.sql("SELECT 'type' || i % 2 AS type, i AS x FROM range(4) AS t(i)")
    found = cer_gpu.duckdb.match(events, "SELECT * FROM S WHERE type0 ; type1", output="rows")
    numbered = connection.sql("SELECT row_number() OVER () - 1 AS position, x FROM events")
    joined = found.project("match, position").join(numbered, "position").order("position")
    rows = joined.aggregate("match, list_sort(list(x))").order("2").fetchall()
    assert rows == [
        (0, [0, 1]),
        (2, [0, 3]),
        (1, [2, 3]),
    ]
    assert connection.sql("SHOW TABLES").fetchall() == []


def test_tables_of_a_connection_are_left_alone():
    connection = duckdb.connect()
    for name in ("found", "given", "cer_gpu_events"):
        connection.sql(f"CREATE TABLE {name} AS SELECT unnest(['A', 'B', 'B']) AS type")
        found = cer_gpu.duckdb.match(connection.table(name), "SELECT * FROM S WHERE A ; B")
        assert found.project('"end"').fetchall() == [(1,), (2,)]
    assert len(connection.sql("SHOW TABLES").fetchall()) == 3
    assert connection.table("cer_gpu_events").fetchall() == [("A",), ("B",), ("B",)]


# ---- the package --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["polars", "pandas", "duckdb", "frames.frame_matching", "frames.accessors"], ids=lambda name: name
)
def test_examples_of_the_modules_print_what_they_say(name):
    results = doctest.testmod(importlib.import_module(f"cer_gpu.{name}"))
    assert results.attempted
    assert not results.failed


ORDERS = {
    "the package first": "import cer_gpu\nimport pandas\nimport polars",
    "Polars, which looks for pandas, before it": "import cer_gpu\nimport polars\nimport pandas",
    "the package last": "import pandas\nimport polars\nimport cer_gpu",
    "the package between": "import polars\nimport cer_gpu\nimport pandas",
    "names of a library": "import cer_gpu\nfrom polars import LazyFrame\nimport pandas, polars",
    "the package again": "import cer_gpu, importlib\nimportlib.reload(cer_gpu)\nimport pandas, polars",
    "all again": "import cer_gpu, importlib, pandas, polars\nimportlib.reload(polars)\nimportlib.reload(cer_gpu)",
    "in threads": (
        "import cer_gpu, importlib, threading\n"
        "threads = [threading.Thread(target=importlib.import_module, args=(x,)) for x in ('pandas', 'polars') * 4]\n"
        "[each.start() for each in threads]; [each.join() for each in threads]\nimport pandas, polars"
    ),
}


def run_python(code: str) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.long("a process each")
@pytest.mark.parametrize("order", ORDERS)
def test_importing_the_package_registers_accessors_in_any_order(order):
    run_python(
        f"{ORDERS[order]}\nimport sys\n"
        "assert all(hasattr(x, 'cer') for x in (pandas.DataFrame, polars.DataFrame, polars.LazyFrame))\n"
        "assert not [f for f in sys.meta_path if 'cer_gpu' in type(f).__module__]\n"
        "assert all(x.__loader__ is x.__spec__.loader and 'cer_gpu' not in type(x.__loader__).__module__\n"
        "           for x in (pandas, polars))\n"
        "events = polars.DataFrame({'type': ['A', 'B']})\n"
        "assert events.cer.count('SELECT * FROM S WHERE A ; B') == 1"
    )


@pytest.mark.long("a process of its own")
def test_importing_the_package_imports_no_library_of_frames():
    run_python(
        "import sys, cer_gpu; assert not {'pandas', 'polars', 'duckdb', 'narwhals', 'IPython'} & set(sys.modules)"
    )


@pytest.mark.long("a process of its own")
def test_a_library_that_is_not_installed_stays_an_import_error():
    run_python(
        "import sys, cer_gpu\n"
        "sys.path[:] = [path for path in sys.path if 'site-packages' not in path]\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        import pandas\n"
        "    except ModuleNotFoundError as error:\n"
        "        assert error.name == 'pandas'\n"
        "    else:\n"
        "        raise AssertionError"
    )
