"""Random tables of Delta and Iceberg: queries find the same events as in what the libraries' own readers give."""

import re
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import DoubleType, LongType
from sizes import scaled
from written_tables import rows_of, use_catalogue

import cer_gpu
from cer_gpu.io.sources import open_events

FIRST = pa.schema([("type", pa.string()), ("ts", pa.timestamp("us")), ("x", pa.int32()), ("day", pa.string())])
DAYS = ("d1", "d2", None)
TEXTS = (
    "SELECT * WHERE A ; B",
    "SELECT * WHERE A AS a ; B AS b FILTER a[x > 6] AND b[x <= 3]",
    "SELECT * WHERE A AS a ; B AS b FILTER a[day = 'd1'] AND b[day IN {'d1', 'd2'} OR x = 2]",
    "SELECT * WHERE A AS a ; B+ AS b ; C AS c FILTER b[ts >= '1970-01-01T00:00:00.000020'] WITHIN 5 EVENTS",
    "SELECT * WHERE A AS a ; B AS b FILTER a[3 < x] PARTITION BY [day]",
    "SELECT * WHERE A : B AS b FILTER b[x = 1]",
    "SELECT * WHERE A ; !C ; B",
    "SELECT * WHERE A AS a ; B AS b FILTER b[x > 4 AND LAG(x, 1) <= 4]",
    "SELECT * WHERE A AS a : NOT(B AS b FILTER b[x > 4]) : C AS c",
    "SELECT * WHERE A : B PARTITION BY [day]",
    "SELECT * WHERE A AS a ; B AS b FILTER a[NOT x > 3] AND b[x IS NULL OR x < 9] WITHIN 8 [ts]",
)
QUERIES = [cer_gpu.compile(text, time_column="ts") for text in TEXTS]
TOGETHER = cer_gpu.compile_all({str(i): text for i, text in enumerate(TEXTS)}, time_column="ts")
ROW = st.tuples(st.sampled_from("ABC"), st.integers(0, 9) | st.none(), st.sampled_from(DAYS))
OPERATIONS = st.lists(
    st.tuples(st.just("append"), st.lists(ROW, min_size=1, max_size=8))
    | st.tuples(st.sampled_from(["delete", "compact", "change"]), st.integers(0, 9)),
    min_size=2,
    max_size=7,
)


def table_of(rows, schema, moments):
    """Return events with the columns of a schema, the times of which no other event has."""
    made = [{"type": kind, "ts": next(moments), "x": x, "n": x, "day": day, "y": x} for kind, x, day in rows]
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in made], schema=schema)


def moments_of(draw):
    """Return times in a mixed order, each once."""
    return iter(draw.sample(range(200), 200))


def check(name, reference):
    """Compare the events that queries find in a table with those in what its own reader gives."""
    source = open_events(name)
    reference = reference.select(source.schema.names).cast(source.schema).sort_by("ts")
    assert sorted(rows_of(source), key=str) == sorted(reference.to_pylist(), key=str)
    assert source.n_rows in (None, reference.num_rows)
    if source.parts is not None:
        every, begins, names = rows_of(source), source.parts.begins, source.schema.names
        for begin in begins[:-1]:
            for end in (begin + 1, begins[-1]):
                part = [row for batch in source.parts.read(names, begin, end) for row in batch.to_pylist()]
                assert part == every[begin:end]
    renamed = "n" in reference.column_names
    for query, text in zip(QUERIES, TEXTS, strict=True):
        if renamed:
            query = cer_gpu.compile(re.sub(r"\bx\b", "n", text), time_column="ts")
        found, expected = query.evaluate(name, output="events"), query.evaluate(reference, output="events")
        assert found["events"].to_pylist() == expected["events"].to_pylist(), text
        assert query.count(name) == query.count(reference)
    if not renamed:
        counts = {query: len(found) for query, found in TOGETHER.evaluate(name).items()}
        assert counts == {query: len(found) for query, found in TOGETHER.evaluate(reference).items()}


@settings(max_examples=scaled(30))
@given(OPERATIONS, st.booleans(), st.randoms(use_true_random=False))
def test_random_tables_of_delta(operations, partitioned, draw):
    folder = Path(tempfile.mkdtemp())
    path, schema, moments = str(folder / "t"), FIRST, moments_of(draw)
    write_deltalake(path, table_of([("A", 1, "d1")], schema, moments), partition_by=["day"] if partitioned else None)
    for what, given_ in operations:
        if what == "append":
            write_deltalake(path, table_of(given_, schema, moments), mode="append", schema_mode="merge")
        elif what == "delete":
            DeltaTable(path).delete(f"x = {given_}")
        elif what == "compact":
            DeltaTable(path).optimize.compact()
        elif "y" not in schema.names:
            schema = schema.append(pa.field("y", pa.float64()))
    check(f"delta:{path}", pa.table(DeltaTable(path).scan()))
    shutil.rmtree(folder)


@pytest.mark.long("commits many snapshots")
@pytest.mark.parametrize("partitioned", [False, True])
def test_random_tables_of_iceberg(partitioned, tmp_path, monkeypatch):
    catalogue = use_catalogue(monkeypatch, tmp_path)

    @settings(max_examples=scaled(15))
    @given(OPERATIONS, st.randoms(use_true_random=False))
    def run(operations, draw):
        catalogue.drop_table("ns.t") if catalogue.table_exists("ns.t") else None
        table, schema, moments = catalogue.create_table("ns.t", schema=FIRST), FIRST, moments_of(draw)
        if partitioned:
            with table.update_spec() as spec:
                spec.add_identity("day")
        for what, given_ in operations:
            if what == "append":
                table.append(table_of(given_, schema, moments))
            elif what == "delete" and len(table.scan(f"{schema.names[2]} = {given_}").to_arrow()):
                table.delete(f"{schema.names[2]} = {given_}")
            elif what == "change" and "y" not in schema.names:
                with table.update_schema() as changed:
                    changed.rename_column("x", "n")
                    changed.add_column("y", DoubleType())
                with table.update_schema() as changed:
                    changed.update_column("n", LongType())
                names = ["type", "ts", "n", "day", "y"]
                schema = pa.schema(
                    list(zip(names, [*FIRST.types[:2], pa.int64(), pa.string(), pa.float64()], strict=True))
                )
        check("iceberg:cat.ns.t", catalogue.load_table("ns.t").scan().to_arrow())

    run()


def test_files_of_one_event_are_read_where_their_events_mean_something(tmp_path):
    path, moments = str(tmp_path / "t"), iter(range(99))
    rows = [
        ("A", 9, "d1"), ("C", 7, "d1"), ("B", 1, "d1"), ("C", 2, "d2"), ("B", 6, "d2"), ("D", 3, None), ("A", 7, "d2"),
        ("D", 9, "d1"), ("B", 2, "d1"), ("D", None, "d2"), ("C", 8, "d2"), ("A", 4, "d2"), ("B", 1, "d2"),
        ("C", 1, "d2"), ("B", 5, "d2"),
    ]  # fmt: skip
    for row in rows:
        write_deltalake(path, table_of([row], FIRST, moments), mode="append", partition_by=["day"])
    check(f"delta:{path}", pa.table(DeltaTable(path).scan()))


def test_files_that_hold_no_relevant_event_are_not_read(tmp_path):
    path = str(tmp_path / "t")
    rows = [("A", 1, "d1"), ("C", 7, "d1"), ("A", 5, "d2"), ("B", 6, "d3"), ("B", 2, "d1")]
    moments = iter(range(99))
    write_deltalake(path, table_of(rows, FIRST, moments), partition_by=["day"])
    one_day = cer_gpu.compile("SELECT * WHERE A AS a ; B AS b FILTER a[day = 'd1'] AND b[day = 'd1' AND x < 9]")
    small = cer_gpu.compile("SELECT * WHERE A AS a ; B AS b FILTER a[x < 5] AND b[x BETWEEN 0 AND 4]")
    expected = [query.evaluate(path)["positions"].to_pylist() for query in (one_day, small)]
    assert expected[0] == [[0, 2]]
    for file in (tmp_path / "t").glob("day=d[23]/*.parquet"):
        file.unlink()  # what is not there cannot be read
    assert [query.evaluate(path)["positions"].to_pylist() for query in (one_day, small)] == expected
    assert open_events(path).n_rows == 5
    with pytest.raises(cer_gpu.EventsError, match="is not there"):
        cer_gpu.compile("SELECT * WHERE A ; B").evaluate(path)
