"""A table of queries of each kind and of the ways to evaluate them on Spark: all give the rows of one process."""

from __future__ import annotations

import datetime
import random

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from spark_streams import PROVIDER, ROCKSDB, run

import cer_gpu
from cer_gpu.rules import load
from spark_glue import match, match_batches, match_schema, match_stage, match_stream, register, register_sql
from spark_glue.cli import main

N = 400
BEGIN = datetime.datetime(2021, 3, 1)
CEQL = "SELECT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 30 SECONDS"
EQL = "sequence by k with maxspan=9s [A where x > 3] [B where true]"
ROWS = """SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES LAST(x) AS v
PATTERN (A B) DEFINE A AS type = 'A', B AS type <> 'A')"""
SIGMA = """
title: By {who}
level: low
logsource: {{product: any}}
detection:
  named: {{name: {who}}}
  condition: named
"""
KINDS = {
    "ceql": {"one.ceql": CEQL},
    "row pattern": {"one.sql": ROWS},
    "eql": {"one.eql": EQL},
    "set": {"a.ceql": CEQL, "b.eql": EQL, "c.ceql": "SELECT * FROM S WHERE D ; A WITHIN 3 SECONDS"},
    "set with a row pattern": {"a.ceql": CEQL, "b.sql": ROWS},
    "sigma": {"a.yml": SIGMA.format(who="ann"), "b.yml": SIGMA.format(who="bob")},
}


def stored():
    rng = random.Random(5)
    return pa.table(
        {
            "type": rng.choices("ABCD", k=N),
            "k": pa.array(rng.choices([1, 2, 3, None], k=N), pa.int32()),
            "name": rng.choices(["ann", "bob", "eve"], k=N),
            "ts": pa.array([BEGIN + datetime.timedelta(seconds=i) for i in range(N)], pa.timestamp("us")),
            "x": pa.array(range(N), pa.int64()),
        }
    )


class Case:
    """Queries of one kind: compiled, and in a folder of files."""

    def __init__(self, spark, kind, place):
        self.spark, self.kind, self.place = spark, kind, place
        self.table = stored()
        self.rules, self.path = place / "rules", str(place / "events")
        self.rules.mkdir()
        for name, text in KINDS[kind].items():
            (self.rules / name).write_text(text)
        ds.write_dataset(self.table, self.path, format="parquet", max_rows_per_file=150, max_rows_per_group=150)
        self.df = spark.read.parquet(self.path)
        # rows of MATCH_RECOGNIZE are as it says
        self.output = None if "row pattern" in kind else "ends"
        self.is_set = len(KINDS[kind]) > 1
        options = {"time_column": "ts", "type_column": "type", "schema": self.table.schema}
        if self.is_set:
            self.query = load(self.rules, **options)
        else:
            (text,) = KINDS[kind].values()
            self.query = cer_gpu.compile(text, **({"schema": self.table.schema} if kind == "row pattern" else options))

    def texts(self):
        return {name.partition(".")[0]: text for name, text in KINDS[self.kind].items()}

    def expected(self):
        return pa.Table.from_batches(self.query.stream(self.table, output=self.output))


def by_files(case):
    return match(case.path, case.query, order_by="ts", output=case.output, source="files", tasks=3).toArrow()


def by_rows(case):
    return match(case.df, case.query, order_by="ts", output=case.output, source="rows", tasks=3).toArrow()


def by_stage(case):
    stream = case.df.coalesce(1).sortWithinPartitions("ts")
    stage, schema = (
        of(case.query, *more, output=case.output) for of, more in ((match_stage, ()), (match_schema, (stream,)))
    )
    return stream.mapInArrow(stage, schema).toArrow()


def by_batches(case):
    options = {"order_by": "ts", "lateness": "1s", "output": case.output}
    evaluate = match_batches(case.query, str(case.place / "found"), checkpoint=str(case.place / "states"), **options)
    half = BEGIN + datetime.timedelta(seconds=N // 2)
    last = case.df.limit(1).withColumn("ts", case.df.ts + datetime.timedelta(days=9))
    for number, some in enumerate([case.df.filter(case.df.ts < half), case.df.filter(case.df.ts >= half), last]):
        evaluate(some, number)
    return ds.dataset(str(case.place / "found")).to_table()


def by_data_source(case):
    register(case.spark)
    reader = case.spark.read.format("cer").options(orderBy="ts", timeColumn="ts", typeColumn="type")
    if case.output is not None:
        reader = reader.option("output", case.output)
    name = "queries" if case.is_set else "queryFile"
    value = case.rules if case.is_set else next(case.rules.iterdir())
    return reader.option(name, str(value)).load(case.path).toArrow()


def by_table_function(case):
    register_sql(case.spark)
    case.df.createOrReplaceTempView("cer_everywhere")
    output = "" if case.output is None else f", output => '{case.output}'"
    if case.kind == "sigma":
        given = f"queries => '{case.rules}'"
    else:
        texts = {name: "'" + text.replace("'", "\\'") + "'" for name, text in case.texts().items()}
        given = (
            f"map({', '.join(f'{name!r}, {text}' for name, text in texts.items())})" if case.is_set else texts["one"]
        )
    call = f"cer_match(TABLE(cer_everywhere), {given}, orderBy => 'ts', typeColumn => 'type'{output})"
    return case.spark.sql(f"SELECT * FROM {call}").toArrow()


def by_command(case):
    given = ["--queries", str(case.rules)] if case.is_set else [str(next(case.rules.iterdir()))]
    output = [] if case.output is None else ["--output", case.output]
    place = ["--input", case.path, "--order-by", "ts", "--type-column", "type", "-o", str(case.place / "out")]
    assert main(["run", *given, *output, *place, "--no-progress"]) == 0
    return pq.read_table(str(case.place / "out"))


WAYS = [by_files, by_rows, by_stage, by_batches, by_data_source, by_table_function, by_command]


def compared(table):
    """Return rows as texts, without positions and numbers of matches, which count from the beginning of each part."""
    names = sorted(set(table.column_names) - {"start", "end", "match"})
    times = [name for name in names if pa.types.is_timestamp(table.schema.field(name).type)]
    rows = table.select(names).to_pylist()
    return sorted(str({**row, **{name: str(row[name])[:19] for name in times}}) for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_query_in_each_way(spark, tmp_path, kind):
    case = Case(spark, kind, tmp_path)
    expected = compared(case.expected())
    assert len(expected) > 20
    for way in WAYS:
        if way is by_batches and "row pattern" in kind:
            with pytest.raises(cer_gpu.OptionError, match="reads the whole table, and a stream never ends"):
                way(case)
            continue
        assert compared(way(case)) == expected, way.__name__


def test_a_set_of_all_languages_over_a_stream(spark, tmp_path):
    case = Case(spark, "set", tmp_path)
    (case.rules / "d.yml").write_text(SIGMA.format(who="ann"))
    rules = load(case.rules, time_column="ts", type_column="type", schema=case.table.schema)
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKSDB)
    stream = spark.readStream.schema(case.df.schema).parquet(case.path)
    found = match_stream(stream, rules, order_by="ts", lateness="1s", output="ends", groups=1)
    run({"found": found}, tmp_path)
    spark.conf.set(PROVIDER, before)
    expected = compared(pa.Table.from_batches(rules.stream(case.table, output="ends")))
    # what the events of the last second may still change waits for the watermark
    seen = compared(spark.read.parquet(f"{tmp_path}/found/out").toArrow())
    assert set(seen) <= set(expected)
    last = [row for row in expected if str(BEGIN + datetime.timedelta(seconds=N - 2)) <= row.split("'end_time': '")[1]]
    assert len(expected) - len(last) <= len(seen) <= len(expected)
