"""The data source "cer": its options, its rows in this process, and its uses in Spark."""

import datetime
import decimal
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cer_gpu
from cer_gpu.errors import CerError, EventsError, OptionError, QuerySyntaxError, QueryTypeError
from spark_glue import plain_errors
from spark_glue.source import register
from spark_glue.source.source_query import SourceRequest, requested_options, user_options

pytest.importorskip("pyspark")

QUERY = "SELECT * FROM S WHERE A AS a ; B AS b FILTER a[x > 4] AND b[x < 6] PARTITION BY [k] WITHIN 40 SECONDS"
N_ROWS = 600


def events(n_rows=N_ROWS):
    start = datetime.datetime(2024, 1, 1)
    return pa.table(
        {
            "type": ["ABC"[i * 7 % 3] for i in range(n_rows)],
            "ts": pa.array([start + datetime.timedelta(seconds=i // 2) for i in range(n_rows)], pa.timestamp("us")),
            "k": ["uvw"[i * 5 % 7 % 3] for i in range(n_rows)],
            "x": pa.array([i * 11 % 13 for i in range(n_rows)], pa.int32()),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files of several row groups, in order."""
    folder = tmp_path_factory.mktemp("events")
    for number, begin in enumerate(range(0, N_ROWS, N_ROWS // 2)):
        part = events().slice(begin, N_ROWS // 2)
        pq.write_table(part, folder / f"part-{number}.parquet", row_group_size=70)
    return str(folder)


def single(query=QUERY, output="events"):
    return cer_gpu.compile(query, time_column="ts").evaluate(events(), output=output)


def rows(table):
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def source(folder, **options):
    """Return the data source as Spark makes it."""
    from pyspark.sql.datasource import CaseInsensitiveDict

    from spark_glue.source.data_source import CerDataSource

    return CerDataSource(CaseInsensitiveDict({"query": QUERY, "path": folder, "orderBy": "ts", **options}))


def read(folder, *, schema=None, **options):
    """Return the rows as Spark's tasks read them, and the number of tasks; the reader is pickled."""
    from pyspark.cloudpickle import dumps, loads
    from pyspark.sql.pandas.types import to_arrow_schema

    made = source(folder, **options)
    schema = made.schema() if schema is None else schema
    reader = made.reader(schema)
    pieces = reader.partitions()
    there = loads(dumps(reader))
    batches = [batch for piece in pieces for batch in there.read(loads(dumps(piece)))]
    declared = to_arrow_schema(schema, timezone="UTC")
    assert all(batch.schema.equals(declared) for batch in batches)  # as Spark checks
    return pa.Table.from_batches(batches, declared), len(pieces)


def test_options_are_named_in_any_case():
    assert user_options({"ORDERBY": "ts", "typecolumn": ""}) == {"orderBy": "ts", "typeColumn": ""}


@pytest.mark.parametrize(
    ("name", "hint"), [("order_by", "orderBy"), ("querry", "query"), ("time-column", "timeColumn")]
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name, hint):
    with pytest.raises(OptionError, match=f"no option '{name}'\nhint: did you mean '{hint}'"):
        user_options({name: "x"})


def test_options_of_a_table_are_told_from_its_properties():
    of_table = {"provider": "cer", "owner": "me", "location": "file:/a", "path": "file:/a", "color": "red"}
    of_table |= {"option.query": "q", "query": "q", "option.orderby": "ts", "orderby": "ts"}
    assert user_options(of_table) == {"path": "file:/a", "query": "q", "orderBy": "ts"}
    with pytest.raises(OptionError, match="no option 'oder'"):
        user_options({**of_table, "option.oder": "x"})


def test_all_options_are_read():
    given = {"queryFile": "q.ceql", "paths": '["/a", "/b, c"]', "timeColumn": "t", "timeUnit": "ms", "typeColumn": ""}
    given |= {
        "orderBy": "t, `a, b` ,id",
        "distribution": "range",
        "tasks": "3",
        "output": "count",
        "columns": "end,count",
    }
    found = requested_options(
        user_options({**given, "fs.s3a.endpoint": "http://x", "spark.hadoop.dfs.nameservices": "n"})
    )
    assert (str(found.query), found.paths) == ("q.ceql", ("/a", "/b, c"))
    assert (found.order_by, found.type_column, found.time_column, found.time_unit) == (
        ("t", "a, b", "id"),
        None,
        "t",
        "ms",
    )
    assert (found.distribution, found.tasks, found.output, found.columns) == ("range", 3, "count", ("end", "count"))
    assert found.store == {"fs.s3a.endpoint": "http://x", "dfs.nameservices": "n"}


def test_rules_of_sigma_are_written_for_their_pipelines_and_columns(tmp_path):
    pytest.importorskip("sigma.rule")
    (tmp_path / "r.yml").write_text(
        "title: R\nlogsource: {product: windows, service: security}\ndetection: {s: {a: 1}, condition: s}\n"
    )
    given = {"queries": str(tmp_path), "path": "p", "orderBy": "t", "pipelines": "windows", "fields": "a=b"}
    assert "(Channel GLOB 'Security' NOCASE) AND (b = 1)" in requested_options(user_options(given)).query["R"].text
    with pytest.raises(OptionError, match=r"pairs, got 'a'\nhint: fields 'Computer=host.id'"):
        requested_options(user_options({**given, "fields": "a"}))


def test_the_time_column_orders_where_no_other_is_named():
    assert requested_options({"query": "q", "path": "p", "timeColumn": "t"}) == SourceRequest(
        "q", ("p",), ("t",), time_column="t"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "p", "orderBy": "t"}, "query or queryFile or queries, got none of them"),
        (
            {"query": "q", "queryFile": "f", "path": "p", "orderBy": "t"},
            "queries, got query and queryFile",
        ),
        ({"query": "q", "orderBy": "t"}, "path or paths, got none of them"),
        ({"query": "q", "path": "p"}, "the option orderBy"),
        ({"query": "q", "paths": "/a,/b", "orderBy": "t"}, "paths must be a JSON list"),
        ({"query": "q", "path": "p", "orderBy": "t", "tasks": "0"}, "tasks must be a number from 1"),
        ({"query": "q", "path": "p", "orderBy": "t", "tasks": "many"}, "tasks must be a number from 1"),
        ({"query": "q", "path": "p", "orderBy": "t", "distribution": "rang"}, "did you mean 'range'"),
        ({"query": "q", "path": "p", "orderBy": "t", "output": "event"}, "did you mean 'events'"),
        ({"query": "q", "path": "p", "orderBy": "t,,u"}, "expected names with commas"),
        ({"query": "q", "path": "p", "orderBy": "`t"}, "expected names with commas"),
        ({"query": "q", "path": "p", "orderBy": "t", "columns": " "}, "columns names none"),
    ],
)
def test_a_wrong_option_is_refused(given, message):
    with pytest.raises(OptionError, match=message):
        requested_options(given)


@pytest.mark.parametrize("output", ["events", "positions", "bindings", "count", "ends", "rows"])
def test_rows_and_columns_are_those_of_a_single_process(folder, output):
    found, _ = read(folder, output=output, tasks="3")
    wanted = single(output=output)
    assert found.column_names == wanted.column_names
    if output == "rows":  # the numbers of complex events are any, but unique
        assert len(found["match"].unique()) == len(wanted["match"].unique())
        found, wanted = found.drop_columns(["match"]), wanted.drop_columns(["match"])
    assert wanted.num_rows > 0
    assert rows(found) == rows(wanted)


@pytest.mark.parametrize("distribution", ["auto", "key", "range", "broadcast"])
def test_every_distribution_gives_the_rows_of_a_single_process(folder, distribution):
    found, n_pieces = read(folder, distribution=distribution, tasks="3")
    assert rows(found) == rows(single())
    assert n_pieces == 3


def test_many_paths_are_one_stream(folder):
    paths = [os.path.join(folder, f"part-{i}.parquet") for i in range(2)]
    found, _ = read("", path="", paths=str(paths).replace("'", '"'))
    assert rows(found) == rows(single())


def test_a_file_holds_the_query(folder, tmp_path):
    file = tmp_path / "query.ceql"
    file.write_text(QUERY)
    assert rows(read(folder, query="", queryFile=str(file))[0]) == rows(single())


def test_a_folder_holds_queries(folder, tmp_path):
    texts = {"as it is": QUERY, "measured": QUERY.replace("*", "COUNT(b) AS n")}
    for name, text in texts.items():
        (tmp_path / f"{name}.ceql").write_text(text)
    found, _ = read(folder, query="", queries=str(tmp_path), columns="query,end,n", tasks="3")
    assert found.column_names == ["query", "end", "n"]
    for name, text in texts.items():
        wanted = single(text, "positions" if "*" in text else "measures")
        own = [row for row in found.to_pylist() if row["query"] == name]
        assert sorted(row["end"] for row in own) == sorted(wanted["end"].to_pylist())
        assert {row["n"] for row in own} == (set(wanted["n"].to_pylist()) if "n" in wanted.column_names else {None})


def test_measures_are_columns(folder):
    query = QUERY.replace("*", "a.x AS first, COUNT(b) AS n, a.ts AS since")
    assert rows(read(folder, query=query)[0]) == rows(single(query, "measures"))


def test_columns_of_all_types_are_declared_as_spark_has_them(tmp_path):
    start = datetime.datetime(2024, 1, 1)
    n = range(20)
    columns = {
        "type": pa.array(["AB"[i % 2] for i in n], pa.dictionary(pa.int8(), pa.string())),
        "ts": pa.array([start + datetime.timedelta(seconds=i) for i in n], pa.timestamp("ms", "Europe/Berlin")),
        "ns": pa.array([1000 * i for i in n], pa.timestamp("ns")),
        "day": pa.array([start.date()] * 20, pa.date32()),
        "span": pa.array([datetime.timedelta(seconds=i) for i in n], pa.duration("us")),
        "b": pa.array([None, True] * 10),
        "f": pa.array([float(i) for i in n], pa.float32()),
        "d": pa.array([float("nan")] * 20),
        "price": pa.array([decimal.Decimal(i) for i in n], pa.decimal128(12, 2)),
        "raw": pa.array([b"x"] * 20, pa.binary()),
        "text": pa.array(["x"] * 20, pa.large_string()),
        "at": pa.array([{"lat": 1.5, "names": ["x", None]}] * 20),
        **{
            f"i{i}": pa.array([1] * 20, kind) for i, kind in enumerate([pa.int8(), pa.int16(), pa.int32(), pa.uint32()])
        },
    }
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "a.parquet")
    query = "SELECT * FROM S WHERE A ; B WITHIN 3 SECONDS"
    found, _ = read(str(tmp_path), query=query)
    wanted = cer_gpu.compile(query, time_column="ts").evaluate(str(tmp_path / "a.parquet"), output="events")
    assert found.num_rows == wanted.num_rows > 0
    assert repr(rows(found.select(["start", "end", "positions"]))) == repr(
        rows(wanted.select(["start", "end", "positions"]))
    )
    assert [field.name for field in found["events"].type.value_type] == list(columns)


def test_columns_are_kept_in_the_order_named(folder):
    found, _ = read(folder, columns="k, end")
    assert rows(found) == rows(single().select(["k", "end"]))


def test_events_that_are_not_kept_are_not_made(folder):
    from spark_glue.source.source_query import stored_query

    given = {"query": QUERY, "path": folder, "orderBy": "ts", "output": "events"}
    assert stored_query(requested_options(given)).work.output == "events"
    assert stored_query(requested_options({**given, "columns": "start,end"})).work.output == "positions"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"query": "SELEC * FROM S"},
            QuerySyntaxError,
            "\n  SELEC \\* FROM S\n  \\^\\^\\^\\^\\^\nhint: did you mean SELECT",
        ),
        ({"query": "SELECT * FROM S WHERE A FILTER A[y > 1]"}, QueryTypeError, "\n  .*\n +\\^"),
        ({"orderBy": "tz"}, QueryTypeError, "orderBy names 'tz'"),
        ({"timeColumn": "time"}, QueryTypeError, "timeColumn names 'time'"),
        ({"columns": "strat"}, OptionError, "columns names 'strat'.*\nhint: did you mean 'start'"),
        ({"path": "/nowhere/at/all"}, EventsError, "/nowhere/at/all"),
        ({"output": "measures"}, CerError, "measures"),
        (
            {"query": "SELECT NEXT * FROM S WHERE A ; B WITHIN 9 EVENTS", "distribution": "key"},
            OptionError,
            "hint: distribution=",
        ),
    ],
)
def test_an_error_comes_before_any_event_is_read(folder, options, kind, message):
    with pytest.raises(kind, match=message):
        source(folder, **options).schema()


def test_events_that_tasks_cannot_read_are_refused_with_another_way(folder):
    made = source(folder, orderBy="k,ts", timeColumn="ts", tasks="2")
    with pytest.raises(OptionError, match=r"(?s)'k'.* string.*hint: spark_glue.match"):
        made.reader(made.schema())


def test_an_error_of_a_task_names_the_event(tmp_path):
    given = events(200)
    disordered = given.append_column("late", given["ts"].take(list(reversed(range(200)))))
    pq.write_table(disordered.append_column("id", [list(range(200))]), tmp_path / "a.parquet")
    with pytest.raises(EventsError, match=r"a\.parquet.*late"):
        read(str(tmp_path), orderBy="id", timeColumn="late", tasks="1")


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("begin", "long", "a column 'begin', which the results do not have"),
        ("end", "string", "'end' of .* is of type int64"),
    ],
)
def test_a_schema_that_the_results_do_not_have_is_refused(folder, name, kind, message):
    from pyspark.sql.types import StructType

    with pytest.raises(QueryTypeError, match=message):
        source(folder).reader(StructType().add(name, kind))


def test_streams_and_writes_are_refused(folder):
    with pytest.raises(OptionError, match="match_stream"):
        source(folder).streamReader(None)
    with pytest.raises(OptionError, match="only read"):
        source(folder).writer(None, True)


# ---- in Spark ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session(spark):
    register(spark)
    spark.sql("CREATE SCHEMA IF NOT EXISTS cer")
    yield spark
    spark.sql("DROP SCHEMA cer CASCADE")


def options_of(folder, **more):
    options = {"query": QUERY, "path": folder, "orderBy": "ts", **more}
    return ", ".join(f"{name} '{value}'" for name, value in options.items())


def test_a_format_is_read(session, folder):
    reader = session.read.format("cer").option("query", QUERY).option("orderby", "ts")
    found = reader.load(folder)
    assert rows(found.toArrow()) == rows(single())
    assert found.rdd.getNumPartitions() == 2  # as many as the session runs at once


def test_a_temporary_view_is_queried_in_sql(session, folder):
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW matches USING cer OPTIONS ({options_of(folder)})")
    found = session.sql("SELECT k, count(*) AS n, max(events[0].x) AS top FROM matches WHERE start > 100 GROUP BY k")
    wanted = {}
    for row in single().to_pylist():
        if row["start"] > 100:
            n, top = wanted.get(row["k"], (0, 0))
            wanted[row["k"]] = (n + 1, max(top, row["events"][0]["x"]))
    assert {row.k: (row.n, row.top) for row in found.collect()} == wanted


def test_a_view_declares_columns(session, folder):
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW ends (end BIGINT, k STRING) USING cer OPTIONS ({options_of(folder)})"
    )
    assert rows(session.table("ends").toArrow()) == rows(single().select(["end", "k"]))


def test_a_table_keeps_its_options(session, folder):
    more = "COMMENT 'late' TBLPROPERTIES (a = 'b')"
    session.sql(f"CREATE TABLE cer.matches USING cer OPTIONS ({options_of(folder)}) {more}")
    session.sql(f"CREATE TABLE cer.counts USING cer OPTIONS ({options_of(folder, output='count')})")
    both = session.sql("SELECT m.*, c.count FROM cer.matches m JOIN cer.counts c ON m.end = c.end AND m.k = c.k")
    assert rows(both.drop("count").toArrow()) == rows(single())
    session.sql("CREATE VIEW cer.first AS SELECT min(start) AS start FROM cer.matches")
    assert session.table("cer.first").first().start == min(single()["start"].to_pylist())
    with pytest.raises(OptionError, match="takes no others; got tasks"), plain_errors():
        session.sql("SELECT * FROM cer.matches WITH (tasks = 3)").collect()
    session.sql("DROP VIEW cer.first")
    session.sql("DROP TABLE cer.matches")
    assert sorted(os.listdir(folder)) == ["part-0.parquet", "part-1.parquet"]


def test_a_table_reads_the_files_that_there_are(session, tmp_path):
    pq.write_table(events(200), tmp_path / "a.parquet")
    session.sql(f"CREATE TABLE cer.growing USING cer OPTIONS ({options_of(tmp_path, output='ends')})")
    before = session.table("cer.growing").count()
    pq.write_table(events(400).slice(200), tmp_path / "b.parquet")
    whole = cer_gpu.compile(QUERY, time_column="ts").evaluate(events(400), output="ends")
    assert before < session.table("cer.growing").count() == whole.num_rows


def test_a_table_that_declares_columns_is_refused(session, folder):
    session.sql(f"CREATE TABLE cer.declared (start BIGINT) USING cer OPTIONS ({options_of(folder)})")
    with pytest.raises(OptionError, match="declares its columns"), plain_errors():
        session.table("cer.declared").collect()


def test_an_error_of_the_query_is_plain(session, folder):
    reader = session.read.format("cer").options(query="SELEC * FROM S", orderBy="ts")
    with pytest.raises(QuerySyntaxError) as caught, plain_errors():
        reader.load(folder)
    assert str(caught.value).splitlines()[1:] == ["  SELEC * FROM S", "  ^^^^^", "hint: did you mean SELECT?"]


def test_filters_of_one_scan_leave_another_scan_alone(session, folder):
    """Spark 4.3 keeps one read for all scans of a view: pushed filters of one would drop rows of another."""
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        session.sql(f"CREATE OR REPLACE TEMPORARY VIEW every USING cer OPTIONS ({options_of(folder)})")
        some = session.sql("SELECT end FROM every WHERE k = 'u' UNION ALL SELECT end FROM every WHERE k = 'v'")
        assert some.count() == sum(row["k"] in "uv" for row in single().to_pylist())
        assert session.table("every").count() == single().num_rows
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")
