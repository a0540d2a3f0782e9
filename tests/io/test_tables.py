"""Tables of Delta and Iceberg as sources: snapshots, partition values, deletes, schema changes, order."""

import json
import re
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.types import LongType
from written_tables import SCHEMA, delete_by_vector, delete_positions, delta_rows, events, rows_of, use_catalogue

import cer_gpu
from cer_gpu.errors import EventsError, OptionError
from cer_gpu.follow.tables import appended_since
from cer_gpu.io.sources import open_events
from cer_gpu.io.tables.names import TableName
from cer_gpu.io.tables.opening import open_table

PAIRS = cer_gpu.compile("SELECT * WHERE A ; B")
TIMED = cer_gpu.compile("SELECT * WHERE A ; B", time_column="ts")


@pytest.fixture
def delta(tmp_path):
    path = str(tmp_path / "a table")
    write_deltalake(path, events(("A", 1, 1, "x/y z"), ("B", 2, 2, "w"), ("C", 3, 3, None)), partition_by=["day"])
    return path


def positions(query, name, **options):
    return query.evaluate(name, **options)["positions"].to_pylist()


# ---- Delta --------------------------------------------------------------------------------------------------------


def test_a_folder_with_a_log_and_a_name_are_the_same_table(delta):
    write_deltalake(delta, events(("B", 4, 4, "w")), mode="append")
    assert positions(PAIRS, delta) == positions(PAIRS, f"delta:{delta}") == positions(PAIRS, [delta])
    assert sorted(rows_of(open_events(delta)), key=str) == sorted(delta_rows(delta), key=str)
    assert open_events(delta).n_rows == 4


def test_a_version_is_named_by_its_number_or_by_a_timestamp(delta):
    write_deltalake(delta, events(("B", 4, 4, "w")), mode="append")
    assert open_table(delta).version == "1"
    assert open_events(f"delta:{delta}@0").n_rows == 3
    assert open_events(f"delta:{delta}@2100-01-01").n_rows == 4
    with pytest.raises(EventsError, match="there is no version 7; the newest is 1"):
        open_table(f"delta:{delta}@7")
    with pytest.raises(EventsError, match="expected the number of a version, or a timestamp"):
        open_table(f"delta:{delta}@last")
    with pytest.raises(EventsError, match="there was no version at that timestamp\nhint: version 0 is the first"):
        open_table(f"delta:{delta}@2020-01-01")


def test_a_name_that_leads_to_no_table_gets_a_hint(delta):
    place = Path(delta)
    for name, hint in [("a tabel", "did you mean 'a table'?"), ("x/y", f"no folder {place.parent}/x"), ("", "has no")]:
        with pytest.raises(EventsError, match=f"there is no table of Delta: .*\nhint: .*{re.escape(hint)}"):
            open_table(f"delta:{place.parent / name}")
    with pytest.raises(EventsError, match="got DeltaTable\nhint: give the name of the table: 'delta:PATH'"):
        open_events(DeltaTable(delta))
    with pytest.raises(EventsError, match="hint: tables are delta:PATH and iceberg:"):
        open_events("Delta:x")


def test_columns_of_a_version_are_null_in_files_that_have_them_not(delta):
    later = pa.table({"type": ["B"], "y": pa.array([7], pa.int64()), "day": ["w"]})
    write_deltalake(delta, later, mode="append", schema_mode="merge")
    rows = rows_of(open_events(delta))
    assert [row["y"] for row in rows] == [None, None, None, 7]
    assert rows[3] == {"type": "B", "ts": None, "x": None, "day": "w", "y": 7}
    assert "y" not in open_events(f"delta:{delta}@0").schema.names


def test_rows_that_a_deletion_vector_deletes_are_not_read(tmp_path):
    path = str(tmp_path / "t")
    told = {"delta.enableDeletionVectors": "true"}
    write_deltalake(path, events(*((kind, i, i, "d") for i, kind in enumerate("ABABAB"))), configuration=told)
    delete_by_vector(path, [1, 4])
    source = open_events(path)
    assert [row["x"] for row in rows_of(source)] == [0, 2, 3, 5]
    assert sorted(row["x"] for row in delta_rows(path)) == [0, 2, 3, 5]
    assert source.n_rows == 4
    assert positions(PAIRS, path, threads=2) == [[1, 2], [0, 2], [1, 3], [0, 3]]
    assert open_events(f"delta:{path}@0").n_rows == 6


@pytest.mark.parametrize("storage", ["i", "u", "p"])
@pytest.mark.parametrize("k", ["v", "a b", "c/d%é"])
@pytest.mark.parametrize("place", ["t", "./below/../t u", "link/t", "{}/t", "{}/link/t", "file://{}/t"])
def test_deleted_rows_are_not_read_whatever_the_table_is_called(tmp_path, monkeypatch, place, k, storage):
    (tmp_path / "below").mkdir()
    (tmp_path / "stored").mkdir()
    (tmp_path / "link").symlink_to("stored")
    monkeypatch.chdir(tmp_path)
    place = place.format(tmp_path)
    path = place.removeprefix("file://")
    table = events(*((kind, i, i, k) for i, kind in enumerate("ABABAB")))
    write_deltalake(path, table, partition_by=["day"], configuration={"delta.enableDeletionVectors": "true"})
    delete_by_vector(path, [1, 4], storage)
    assert [row["x"] for row in rows_of(open_events(f"delta:{place}"))] == [0, 2, 3, 5]


def test_a_deletion_vector_of_an_unknown_file_is_an_error(tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    write_deltalake(path, events(("A", 0, 0, "d")), configuration={"delta.enableDeletionVectors": "true"})
    delete_by_vector(path, [0])
    monkeypatch.setattr("cer_gpu.io.tables.delta.DeltaSnapshot._of_uri", lambda self, uri: f"{uri}.other")
    with pytest.raises(EventsError, match=r"a deletion vector is of .*, which is no file of the version"):
        open_events(path)


def test_fields_of_structs_are_mapped_by_name(tmp_path):
    path = str(tmp_path / "t")
    kind = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    write_deltalake(path, pa.table({"type": ["A", "B"], "st": pa.array([{"a": 1, "b": [{"c": "x"}]}, None], kind)}))
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for told in (action["metaData"] for action in actions if "metaData" in action):
        schema = json.loads(told["schemaString"])
        struct = schema["fields"][1]["type"]["fields"]
        fields = [*schema["fields"], *struct, *struct[1]["type"]["elementType"]["fields"]]
        for id_, field in enumerate(fields, 1):
            mapped = {"delta.columnMapping.id": id_, "delta.columnMapping.physicalName": field["name"]}
            field |= {"metadata": mapped, "name": field["name"] + "2" * (field["name"] != "type")}
        told |= {"schemaString": json.dumps(schema), "configuration": {"delta.columnMapping.mode": "name"}}
    for told in (action["protocol"] for action in actions if "protocol" in action):
        told |= {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]}
        told |= {"minReaderVersion": 3, "minWriterVersion": 7}
    log.write_text("\n".join(map(json.dumps, actions)))
    assert rows_of(open_events(path))[0] == {"type": "A", "st2": {"a2": 1, "b2": [{"c2": "x"}]}}
    assert sorted(rows_of(open_events(path)), key=str) == sorted(delta_rows(path), key=str)
    assert cer_gpu.compile("SELECT * WHERE A AS a FILTER a[st2.a2 = 1]").evaluate(path).num_rows == 1


def test_bounds_at_the_ends_of_types_leave_out_no_file(tmp_path):
    path = str(tmp_path / "t")
    numbers = [Decimal("9007199254740993.001"), Decimal("9007199254740993.002"), Decimal("0.1")]
    rows = {
        "type": ["A"] * 3,
        "n": pa.array(numbers, pa.decimal128(38, 3)),  # whose bounds are doubles in the log
        "until": pa.array([datetime.max, None, datetime(2024, 1, 1, 0, 0, 0, 999)], pa.timestamp("us")),
    }
    for i in range(3):
        write_deltalake(path, pa.table(rows).slice(i, 1), mode="append")
    for test, expected in {
        "n <= 9007199254740993.001": [[0], [2]],
        "n = 9007199254740993.002": [[1]],
        "until > '9999-12-31T23:59:59.999'": [[0]],
        "until > '2024-01-01T00:00:00.000998'": [[0], [2]],
    }.items():
        assert positions(cer_gpu.compile(f"SELECT * WHERE A AS a FILTER a[{test}]"), path) == expected, test


def test_moments_that_part_a_table_are_read_from_the_log(tmp_path):
    path, moment = str(tmp_path / "t"), datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)
    rows = pa.table({"type": ["A", "B"], "at": pa.array([moment, None], pa.timestamp("us", "UTC"))})
    write_deltalake(path, rows.slice(0, 0), partition_by=["at"])
    write_deltalake(path, rows, mode="append")
    (addition,) = appended_since(open_table(path), "0")
    assert sorted(rows_of(addition.source()), key=str) == sorted(rows.to_pylist(), key=str)


def test_a_log_that_was_cleaned_up_tells_the_order_of_times(tmp_path):
    path = str(tmp_path / "t")
    for i in range(8):
        write_deltalake(path, events(("A", i, i, "d")), mode="append")
    DeltaTable(path).create_checkpoint()
    for version in range(7):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    assert [row["x"] for row in rows_of(open_events(path))] == list(range(8))
    with pytest.raises(EventsError, match=r"version 2 cannot be read(?s:.*)its log is cleaned up"):
        open_table(f"delta:{path}@2")
    with pytest.raises(EventsError, match="no version at that timestamp\nhint: version 7 is the first that is left"):
        open_table(f"delta:{path}@2000-01-01")


def test_columns_are_mapped_by_name(tmp_path):
    path = str(tmp_path / "t")
    write_deltalake(path, events(("A", 1, 1, "d"), ("B", 2, 2, "d")))
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    mapped = log.read_text()
    for id_, name in enumerate(SCHEMA.names, 1):  # the column of the file `x` is called `x2` in the table
        shown = "x2" if name == "x" else name
        told = (
            f'\\"metadata\\":{{\\"delta.columnMapping.id\\":{id_},\\"delta.columnMapping.physicalName\\":\\"{name}\\"}}'
        )
        kind = '\\"name\\":\\"' + name + '\\"'
        start = mapped.index(kind)
        end = mapped.index('\\"metadata\\":{}', start)
        field = mapped[start:end].replace(kind, '\\"name\\":\\"' + shown + '\\"')
        mapped = mapped[:start] + field + told + mapped[end + len('\\"metadata\\":{}') :]
    mapped = mapped.replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}')
    mapped = mapped.replace('"readerFeatures":[', '"readerFeatures":["columnMapping",')
    log.write_text(mapped.replace('"writerFeatures":[', '"writerFeatures":["columnMapping",'))
    rows = rows_of(open_events(path))
    assert [row["x2"] for row in rows] == [1, 2]
    assert sorted(rows, key=str) == sorted(delta_rows(path), key=str)


def test_a_type_that_became_wider_holds_the_older_values(tmp_path):
    path = str(tmp_path / "t")
    write_deltalake(path, events(("A", 1, 1, "d"), ("B", 2, None, "d")))
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('\\"integer\\"', '\\"long\\"'))
    write_deltalake(path, events(("C", 3, 2**40, "d"), schema=SCHEMA.set(2, pa.field("x", pa.int64()))), mode="append")
    source = open_events(path)
    assert source.schema.field("x").type == pa.int64()
    assert [row["x"] for row in rows_of(source)] == [1, None, 2**40]
    assert cer_gpu.compile("SELECT * WHERE A AS a ; C AS c FILTER c[x > 2]").evaluate(path).num_rows == 1


def test_files_are_read_in_the_order_of_their_commits_and_with_times_in_theirs(tmp_path):
    path = str(tmp_path / "t")
    for i in (2, 0, 1):
        write_deltalake(path, events(("A", 10 * i, i, "d"), ("B", 10 * i + 5, i, "d")), mode="append")
    assert [row["x"] for row in rows_of(open_events(path))] == [2, 2, 0, 0, 1, 1]
    assert TIMED.evaluate(path, output="positions")["positions"].to_pylist() == [
        [2, 3],
        [4, 5],
        [2, 5],
        [0, 1],
        [4, 1],
        [2, 1],
    ]
    shuffled = pa.table({"type": [*"ABABAB"], "ts": pa.array([20, 25, 0, 5, 10, 15], pa.timestamp("us"))})
    assert TIMED.evaluate(path).equals(TIMED.evaluate(shuffled, sort=True))


def test_a_damaged_line_of_the_log_is_told_with_its_file(tmp_path):
    path = str(tmp_path / "t")
    for i in range(2):
        write_deltalake(path, events(("A", i, i, "d")), mode="append")
    log = tmp_path / "t" / "_delta_log" / f"{1:020}.json"
    (action,) = [line for line in log.read_text().splitlines() if '"add"' in line]
    log.write_text(action.replace('"path":"', '"path":"\x1b'))  # which `deltalake` takes
    table = open_table(path)
    with pytest.raises(EventsError, match=r"00001\.json: is damaged: a line is no JSON: Invalid control character"):
        appended_since(table, "0")


def test_what_is_no_table_is_said(tmp_path, monkeypatch):
    with pytest.raises(EventsError, match="there is no table of Delta"):
        open_table(f"delta:{tmp_path}/none")
    with pytest.raises(EventsError, match=r"expected the name of a table: delta:PATH"):
        open_events("delta:")
    with pytest.raises(EventsError, match="is a table, which is a whole stream"):
        open_events([f"delta:{tmp_path}", f"{tmp_path}/a.parquet"])
    with pytest.raises(EventsError, match=r"there is no catalogue 'nowhere'.*\nhint: "):
        open_events("iceberg:nowhere.ns.t")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(OptionError, match=r"hint: pip install 'cer-gpu\[delta\]'"):
        open_events(f"delta:{tmp_path}")


def test_a_file_that_was_removed_is_named(delta):
    (file,) = [file for file in DeltaTable(delta).file_uris() if "day=w" in file]
    Path(file.replace("a%20table", "a table")).unlink()
    with pytest.raises(EventsError, match=r"(?s)day=w.*is not there, though the table names it.*VACUUM"):
        PAIRS.evaluate(delta)


def test_names_of_tables():
    assert TableName.parse("delta:/a/b@3") == TableName("delta", "/a/b", "3")
    assert TableName.parse("delta:s3://b/t@2024-01-01T00:00") == TableName("delta", "s3://b/t", "2024-01-01T00:00")
    assert TableName.parse("delta:abfss://box@acc.dfs.core.windows.net/t").snapshot is None
    assert TableName.parse("iceberg:c.n.t@main") == TableName("iceberg", "c.n.t", "main")
    assert TableName.parse("events.parquet") is None


# ---- Iceberg ------------------------------------------------------------------------------------------------------


@pytest.fixture
def catalogue(tmp_path, monkeypatch):
    return use_catalogue(monkeypatch, tmp_path)


def test_a_snapshot_of_iceberg_by_id_branch_and_timestamp(catalogue):
    table = catalogue.create_table("ns.t", schema=SCHEMA)
    assert rows_of(open_events("iceberg:cat.ns.t")) == []
    table.append(events(("A", 1, 1, "x"), ("B", 2, 2, "y")))
    table.append(events(("B", 3, 3, "x")))
    first, second = table.snapshots()
    assert positions(PAIRS, "iceberg:cat.ns.t") == [[0, 1], [0, 2]]
    assert positions(PAIRS, f"iceberg:cat.ns.t@{first.snapshot_id}") == [[0, 1]]
    assert open_table("iceberg:cat.ns.t@main").version == str(second.snapshot_id)
    assert open_events("iceberg:cat.ns.t@2100-01-01").n_rows == 3
    with pytest.raises(EventsError, match=r"there is no snapshot 'nightly'\nhint: .*main"):
        open_table("iceberg:cat.ns.t@nightly")
    with pytest.raises(
        EventsError, match="there was no snapshot at that timestamp\nhint: the first that is left is of 2"
    ):
        open_table("iceberg:cat.ns.t@2020-01-01")
    with pytest.raises(EventsError, match=r"there is no such table of Iceberg: .*\nhint: tables in its namespace: t"):
        open_table("iceberg:cat.ns.other")
    with pytest.raises(EventsError, match=r"expected a namespace, too: iceberg:cat\.NAMESPACE\.t"):
        open_table("iceberg:cat.t")
    with pytest.raises(EventsError, match="no catalogue 'ns', nor 'default' for the namespace 'ns'"):
        open_table("iceberg:ns.t")
    metadata = table.metadata_location.removeprefix("file://")
    assert open_events(f"iceberg:{metadata}").n_rows == 3


def test_changes_of_the_schema_and_deletes_of_iceberg(catalogue):
    table = catalogue.create_table("ns.t", schema=SCHEMA)
    with table.update_spec() as spec:
        spec.add_identity("day")
    table.append(events(("A", 1, 1, "x"), ("B", 2, 2, "y"), ("C", 3, 3, None)))
    with table.update_schema() as changed:
        changed.rename_column("x", "n")
        changed.add_column("y", LongType())
    with table.update_schema() as changed:
        changed.update_column("n", LongType())
    table.delete("n = 2")
    later = pa.table({"type": ["B"], "ts": pa.array([9], pa.timestamp("us")), "n": [2**40], "day": ["x"], "y": [5]})
    table.append(later)
    rows = rows_of(open_events("iceberg:cat.ns.t"))
    assert sorted(rows, key=str) == sorted(catalogue.load_table("ns.t").scan().to_arrow().to_pylist(), key=str)
    assert [(row["type"], row["n"], row["y"], row["day"]) for row in rows] == [
        ("C", 3, None, None), ("A", 1, None, "x"), ("B", 2**40, 5, "x"),
    ]  # fmt: skip
    assert positions(TIMED, "iceberg:cat.ns.t") == [[1, 2]]


def test_rows_that_position_deletes_of_iceberg_delete_are_not_read(catalogue):
    table = catalogue.create_table("ns.t", schema=SCHEMA)
    table.append(events(*((kind, i, i, "d") for i, kind in enumerate("ABABAB"))))
    delete_positions(table, [1, 4])
    source = open_events("iceberg:cat.ns.t")
    assert [row["x"] for row in rows_of(source)] == [0, 2, 3, 5]
    assert catalogue.load_table("ns.t").scan().to_arrow()["x"].to_pylist() == [0, 2, 3, 5]
    assert positions(PAIRS, "iceberg:cat.ns.t", threads=2) == [[1, 2], [0, 2], [1, 3], [0, 3]]


# ---- what is new ----------------------------------------------------------------------------------------------------


def test_what_was_appended_since_a_version_of_delta(delta):
    write_deltalake(delta, events(("A", 4, 4, "w")), mode="append")
    DeltaTable(delta).optimize.compact()
    write_deltalake(delta, events(("B", 5, 5, "w"), ("B", 6, 6, "v")), mode="append")
    table = open_table(delta)
    assert [each.n_rows for each in appended_since(table, None)] == [6]
    found = appended_since(table, "0")
    assert [(each.version, each.n_rows, [row["x"] for row in rows_of(each.source())]) for each in found] == [
        ("1", 1, [4]), ("3", 2, [6, 5]),
    ]  # fmt: skip
    assert appended_since(table, "3") == []
    other = pa.schema([("x", pa.float64()), ("new", pa.string())])
    assert rows_of(found[0].source(other)) == [{"x": 4.0, "new": None}]
    DeltaTable(delta).delete("x = 4")
    with pytest.raises(EventsError, match="DELETE in version 4 deleted or rewrote rows"):
        appended_since(open_table(delta), "3")
    with pytest.raises(EventsError, match="there was no version 99"):
        appended_since(open_table(delta), "99")


def test_what_was_appended_since_a_snapshot_of_iceberg(catalogue):
    table = catalogue.create_table("ns.t", schema=SCHEMA)
    empty = open_table("iceberg:cat.ns.t")
    assert appended_since(empty, None) == []
    table.append(events(("A", 1, 1, "x")))
    first = open_table("iceberg:cat.ns.t")
    assert [rows_of(each.source()) for each in appended_since(first, empty.version)] == [rows_of(first.source())]
    table.append(events(("B", 2, 2, "x")))
    table.append(events(("B", 3, 3, "x")))
    found = appended_since(open_table("iceberg:cat.ns.t"), first.version)
    assert [[row["x"] for row in rows_of(each.source())] for each in found] == [[2], [3]]
    table.delete("x = 2")
    with pytest.raises(EventsError, match=r"the operation '(delete|overwrite)' in version \d+ deleted or rewrote rows"):
        appended_since(open_table("iceberg:cat.ns.t"), first.version)
    with pytest.raises(EventsError, match="snapshot 17 is none from which the table came"):
        appended_since(first, "17")
