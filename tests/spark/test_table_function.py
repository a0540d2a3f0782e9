"""The table function of SQL: its rows are those of a single process, whatever the query, the order and the distribution."""

from __future__ import annotations

import datetime
import random

import pyarrow as pa
import pytest
from cases import sorted_rows

import cer_gpu
from spark_glue import plain_errors, register_sql

N = 1200
BEGIN = datetime.datetime(2021, 3, 1)
BY_KEY = "SELECT a.x AS x, COUNT(b) AS n FROM S WHERE A AS a ; B AS b ; !C PARTITION BY [k] WITHIN 20 SECONDS"


def stored():
    rng = random.Random(3)
    return pa.table(
        {
            "type": rng.choices("ABCD", k=N),
            "k": pa.array(rng.choices([1, 2, 3, 4, None], k=N), pa.int32()),
            "name": rng.choices(["x'y", "z\\", None], k=N),
            "ts": pa.array([BEGIN + datetime.timedelta(seconds=i // 2) for i in range(N)], pa.timestamp("us", "UTC")),
            "x": range(N),
            "place": pa.array([{"floor": i % 3} for i in range(N)]),
        }
    )


@pytest.fixture(scope="module")
def table(spark):
    found = stored()
    mixed = found.take(pa.array(random.Random(0).sample(range(N), N)))
    spark.createDataFrame(mixed).createOrReplaceTempView("cer_events")
    register_sql(spark)
    yield found
    spark.catalog.dropTempView("cer_events")


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (BY_KEY, ""),
        (BY_KEY, ", tasks => 1"),
        ("SELECT a.x AS x, b.x AS y FROM S WHERE A AS a ; B AS b WITHIN 4 SECONDS", ""),
        ("SELECT * FROM S WHERE A AS a ALL B AS b FILTER a.name = b.name WITHIN 4 SECONDS", ", output => 'count'"),
        ("SELECT a.place.floor AS floor FROM S WHERE A AS a ; B FILTER a[place.floor > 0] LIMIT 9", ", TASKS => '3'"),
        ("sequence by k with maxspan=9s [A where true] [B where x > 100]", ", typeColumn => 'type', output => 'ends'"),
    ],
)
def test_rows_are_those_of_a_single_process(spark, table, text, more):
    statement = text.replace("\\", "\\\\").replace("'", "\\'")
    found = spark.sql(f"SELECT * FROM cer_match(TABLE(cer_events), '{statement}', orderBy => 'ts, x'{more})").toArrow()
    output = more.partition("output => '")[2].partition("'")[0] or "measures"
    query = cer_gpu.compile(text, time_column="ts", type_column="type", schema=table.schema)
    expected = query.evaluate(table, output=output)
    kept = [name for name in expected.column_names if name not in ("start", "end")]
    assert len(expected) > 50
    assert sorted_rows(found.select(kept).cast(expected.select(kept).schema)) == sorted_rows(expected.select(kept))


def test_one_group_has_the_positions_of_the_stream(spark, table):
    text = "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 4 SECONDS"
    call = f"cer_match(TABLE(cer_events), '{text}', orderBy => 'ts, x', output => 'positions', tasks => 1)"
    found = spark.sql(f"SELECT * FROM {call}").toArrow()
    expected = cer_gpu.compile(text, time_column="ts").evaluate(table, output="positions")
    assert sorted_rows(found.cast(expected.schema)) == sorted_rows(expected)


def test_statements_and_sets(spark, table):
    rows = "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, x MEASURES LAST(x) AS v PATTERN (A B) "
    rows += "DEFINE A AS type = 'A', B AS type = 'B')"
    texts = {"ab": "SELECT b.x AS v FROM S WHERE A ; B AS b PARTITION BY [k] WITHIN 4 SECONDS", "rows": rows}
    mapped = ", ".join(f"'{name}', '{text}'" for name, text in texts.items()).replace("= 'A'", "= \\'A\\'")
    mapped = mapped.replace("= 'B'", "= \\'B\\'")
    call = f"cer_match(TABLE(cer_events), map({mapped}), orderBy => 'ts, x')"
    found = spark.sql(f"SELECT query, v FROM {call}").toArrow().to_pylist()
    expected = cer_gpu.compile_all(texts, time_column="ts").evaluate(table)
    for name, own in expected.items():
        assert sorted(row["v"] for row in found if row["query"] == name) == sorted(own["v"].to_pylist()), name
        assert len(own) > 50


def test_what_is_wrong_is_told(spark, table):
    rest = "TABLE(cer_events), 'SELECT * FROM S WHERE A"
    for call, message in [
        (f"{rest} FILTER A[xx > 1]'", r"no column 'xx'\n.*\n +\^\^\nhint: .*'x'\?$"),
        (f"{rest}', ordrBy => 'ts'", "cer_match has no option 'ordrby'\nhint: "),
        (f"{rest}', path => 'ts'", "takes no option 'path'"),
        ("TABLE(cer_events), concat('SELECT', rand())", "query of cer_match must be a constant text"),
        ("TABLE(SELECT type FROM cer_events), 'SELECT * FROM S WHERE A'", "expected the option orderBy"),
        ("3, 'SELECT * FROM S WHERE A'", "expected a table first\nhint: "),
        (f"{rest}', orderBy => 'k'", "ordered by 'k', which is NULL in"),
    ]:
        with pytest.raises(cer_gpu.CerError, match=message), plain_errors():
            spark.sql(f"SELECT * FROM cer_match({call})").collect()


def test_tasks_read_the_needed_columns_and_sort(spark, table, capsys):
    spark.sql(f"SELECT * FROM cer_match(TABLE(cer_events), '{BY_KEY}')").explain()
    plan = capsys.readouterr().out
    assert "xxhash64" in plan
    assert "place" not in plan
