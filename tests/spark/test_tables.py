"""Tables of Delta and Iceberg on Spark: files that tasks read, without deleted rows, else rows of readers in Python."""

import random
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake
from pyiceberg.types import StringType
from written_tables import delete_by_vector, delete_positions, use_catalogue
from written_tables import rows_of as stored_rows

import cer_gpu
from cer_gpu.io.tables.opening import open_table
from spark_glue import match, read
from spark_glue.files.scan import scan_of
from spark_glue.files.stored_events import DirectReadError

pytest.importorskip("pyspark")

QUERY = cer_gpu.compile("SELECT * WHERE A ; B", time_column="ts")
TIMES = pa.timestamp("us", "UTC")


def written(name, n=12, first=0, **columns):
    days = [date(2020, 1, 1), None, date(2021, 2, 3)]
    table = pa.table(
        {
            "type": ["A", "B", "C"] * (n // 3),
            "ts": pa.array(range(first, first + n), TIMES),
            "k": ["a b", "c/d", None, "%2F=?*"] * (n // 4),
            "day": [days[i % 3] for i in range(n)],
            **columns,
        }
    )
    write_deltalake(name, table, mode="append", partition_by=["k", "day"], schema_mode="merge")


def rows_of(table):
    return sorted(map(str, table.to_pylist()))


def check(spark, name, by_files):
    """Hold the rows of a table on Spark, and what a query finds, to those that this package reads without it."""
    df = read(spark, name)
    source = open_table(name).source()
    assert df.columns == source.schema.names
    assert rows_of(df.toArrow()) == sorted(map(str, stored_rows(source)))
    if by_files:
        assert scan_of(df).paths
    else:
        with pytest.raises(DirectReadError, match="function of Python"):
            scan_of(df)
    found = match(df, QUERY, order_by="ts", output="events", tasks=2, source="files" if by_files else "auto").toArrow()
    assert rows_of(found.select(["events"])) == rows_of(QUERY.evaluate(name, output="events").select(["events"]))
    return found.num_rows


def test_files_of_delta_are_read_as_files(spark, tmp_path):
    name = str(tmp_path / "a table" / "k=1")
    written(name)
    written(name, first=20, x=list(range(12)))
    assert check(spark, f"delta:{name}", by_files=True) > 10
    assert check(spark, f"delta:{name}@0", by_files=True)
    late = read(spark, f"delta:{name}").where("x > 3")
    with pytest.raises(DirectReadError, match="no column 'x'"):
        match(late, QUERY, order_by="ts", source="files")
    assert match(late, QUERY, order_by="ts").count() == match(late.cache(), QUERY, order_by="ts").count() > 0
    DeltaTable(name).delete("k = 'c/d'")
    assert check(spark, f"delta:{name}", by_files=True)


def test_tasks_read_files_with_deleted_rows_and_values_of_the_log(spark, tmp_path):
    name = str(tmp_path / "t")
    table = pa.table({"type": ["A", "B", "A", "B"], "ts": pa.array(range(4), TIMES)})
    write_deltalake(name, table, configuration={"delta.enableDeletionVectors": "true"})
    delete_by_vector(name, [1])
    assert check(spark, f"delta:{name}", by_files=True) == 2
    moments = pa.table(
        {**dict(zip(table.column_names, table.columns, strict=True)), "at": pa.array([1, 1, 2, 3], TIMES)}
    )
    write_deltalake(f"{name}2", moments, partition_by=["at"])
    assert check(spark, f"delta:{name}2", by_files=True) == 3
    chosen = read(spark, f"delta:{name}2").where("at > TIMESTAMP '1970-01-01 00:00:00.000001'")
    assert match(chosen, QUERY, order_by="ts", source="files").count() == 1
    write_deltalake(f"{name}3", table.append_column("k", pa.array(["é"] * 4)), partition_by=["k"])
    assert check(spark, f"delta:{name}3", by_files=True) == 3  # its writer escapes the bytes of UTF-8, Spark none


def test_files_of_iceberg_are_read_as_files_unless_a_name_has_two_columns(spark, tmp_path, monkeypatch):
    catalogue = use_catalogue(monkeypatch, tmp_path)
    table = pa.table({"type": ["A", "B", "A", "B"], "ts": pa.array(range(4), TIMES), "k": ["a b", "c/d", None, None]})
    made = catalogue.create_table("ns.t", table.schema)
    with made.update_spec() as spec:
        spec.add_identity("k")
    made.append(table)
    with made.update_schema() as schema:
        schema.add_column("more", StringType())
    later = table.set_column(1, "ts", pa.array(range(10, 14), TIMES))
    made.append(later.append_column("more", pa.array(["x", None, "y", "z"])))
    assert check(spark, "iceberg:cat.ns.t", by_files=True) == 10
    with made.update_schema() as schema:
        schema.rename_column("more", "other")
    assert check(spark, "iceberg:cat.ns.t", by_files=True) == 10
    with made.update_schema() as schema:  # another column of the name that some files have
        schema.delete_column("other")
        schema.add_column("more", StringType())
    assert check(spark, "iceberg:cat.ns.t", by_files=False) == 10


@pytest.mark.parametrize("storage", ["i", "u", "p"])
def test_a_table_of_delta_by_a_relative_path_lacks_its_deleted_rows(spark, tmp_path, monkeypatch, storage):
    """Workers run in another folder than this process now; the vector is in the log or in a file of its own."""
    monkeypatch.chdir(tmp_path)
    n = 12
    table = pa.table({"type": ["A", "B"] * (n // 2), "ts": pa.array(range(n), TIMES)})
    write_deltalake("below/t", table, configuration={"delta.enableDeletionVectors": "true"})
    delete_by_vector("below/t", [1, 4, 5, 11], storage)
    assert check(spark, "delta:below/t", by_files=True) == 9
    by_rows = match(read(spark, "delta:./below/t"), QUERY, order_by="ts", source="rows", output="events").toArrow()
    assert rows_of(by_rows.select(["events"])) == rows_of(QUERY.evaluate("below/t", output="events").select(["events"]))


def written_and_deleted(kind, folder, monkeypatch, table, deleted):
    """Return the name of a table in row groups of a hundred rows, of which some are deleted by their positions."""
    if kind == "delta":
        path = str(folder / "t")
        properties = WriterProperties(max_row_group_size=100)
        vectors = {"delta.enableDeletionVectors": "true"}
        write_deltalake(path, table, configuration=vectors, writer_properties=properties)
        delete_by_vector(path, deleted)
        return f"delta:{path}"
    catalogue = use_catalogue(monkeypatch, folder)
    made = catalogue.create_table("ns.t", table.schema, properties={"write.parquet.row-group-limit": "100"})
    made.append(table)
    delete_positions(made, deleted)
    return "iceberg:cat.ns.t"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_deleted_anywhere_are_no_events(spark, tmp_path, monkeypatch, kind, seed):
    """In several row groups of a file whose rows are in no order, with filters and a column of another name."""
    rng = random.Random(seed)
    n = 900
    times = rng.sample(range(n), n) if seed else range(n)
    table = pa.table({"type": rng.choices("ABC", k=n), "ts": pa.array(times, TIMES), "x": range(n)})
    deleted = sorted(rng.sample(range(n), 300))
    name = written_and_deleted(kind, tmp_path, monkeypatch, table, deleted)
    (file,) = scan_of(read(spark, name)).paths
    assert pq.ParquetFile(file.removeprefix("file://")).num_row_groups == 9
    left = table.filter(pa.array([i not in set(deleted) for i in range(n)])).sort_by("ts")
    df = read(spark, name).withColumnRenamed("x", "n")
    for frame, events in ((df, left), (df.where("n > 100"), left.filter(pc.greater(left["x"], 100)))):
        renamed = cer_gpu.compile(
            "SELECT a.n AS first, b.n AS last FROM S WHERE A AS a ; B AS b WITHIN 0.00002 SECONDS", time_column="ts"
        )
        expected = renamed.evaluate(events.rename_columns(["type", "ts", "n"]), output="measures")
        assert expected.num_rows > 10
        for distribution in ("range", "broadcast"):
            options = {"order_by": "ts", "tasks": 3, "distribution": distribution, "output": "measures"}
            found = match(frame, renamed, **options, source="files").toArrow()
            assert rows_of(found.select(["first", "last"])) == rows_of(expected.select(["first", "last"]))
