"""Tables of Delta and Iceberg that tests write, and what the libraries read of them."""

import json
import struct
import uuid
import zlib
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

SCHEMA = pa.schema([("type", pa.string()), ("ts", pa.timestamp("us")), ("x", pa.int32()), ("day", pa.string())])
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def events(*rows, schema=SCHEMA):
    """Return events of (type, time in microseconds, x, day)."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=False)) for row in rows], schema=schema)


def use_catalogue(monkeypatch, folder, name="cat"):
    """Return a catalogue of SQLite in a folder, which the environment names."""
    for key, value in {
        "TYPE": "sql",
        "URI": f"sqlite:///{folder}/catalogue.db",
        "WAREHOUSE": f"file://{folder}",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name.upper()}__{key}", value)
    catalogue = load_catalog(name, type="sql", uri=f"sqlite:///{folder}/catalogue.db", warehouse=f"file://{folder}")
    catalogue.create_namespace_if_not_exists("ns")
    return catalogue


def rows_of(source):
    """Return all rows of a source."""
    return [row for batch in source.batches(source.schema.names) for row in batch.to_pylist()]


def delta_rows(path, version=None):
    """Return the rows that Delta's own engine reads, in no order."""
    return pa.table(deltalake.DeltaTable(path, version=version).scan()).to_pylist()


def delete_by_vector(path, deleted, storage="i"):
    """Commit a deletion vector for the only file of a table of Delta, as other engines write them.

    The vector is a RoaringBitmapArray of one bitmap with one container.  By its `storage` it is in the log in Z85
    ("i"), or in a file that the log names relative to the table by a UUID ("u"), or by its whole path ("p").
    """
    log = Path(path) / "_delta_log"
    (add,) = [
        json.loads(line)["add"]
        for commit in sorted(log.glob("*.json"))
        for line in commit.read_text().splitlines()
        if '"add"' in line[:8]
    ]
    container = struct.pack("<IIHHI", 12346, 1, 0, len(deleted) - 1, 16)
    bitmap = container + struct.pack(f"<{len(deleted)}H", *sorted(deleted))
    data = struct.pack("<IqI", 1681511377, 1, 0) + bitmap
    vector = {"storageType": storage, "sizeInBytes": len(data), "cardinality": len(deleted)}
    if storage == "i":
        vector["pathOrInlineDv"] = _z85(data + b"\0" * (-len(data) % 4))
    else:
        number = uuid.uuid4()
        file = Path(path).absolute() / f"deletion_vector_{number}.bin"
        file.write_bytes(b"\1" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
        vector |= {"pathOrInlineDv": _z85(number.bytes) if storage == "u" else file.as_uri(), "offset": 1}
    removed = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1, "size": add["size"]}
    actions = [{"remove": removed}, {"add": {**add, "deletionVector": vector}}]
    n_commits = len(list(log.glob("*.json")))
    text = "\n".join(json.dumps(action) for action in actions)
    (log / f"{n_commits:020}.json").write_text(text)


def _z85(data):
    found = ""
    for (word,) in struct.iter_unpack(">I", data):
        digits = []
        for _ in range(5):
            word, digit = divmod(word, 85)
            digits.append(_LETTERS[digit])
        found += "".join(reversed(digits))
    return found


def delete_positions(table, deleted):
    """Commit a file of position deletes for the only data file of a table of Iceberg, as other engines write them."""
    (task,) = table.scan().plan_files()
    path = f"{table.location()}/data/deletes.parquet"
    positions = pa.table({"file_path": [task.file.file_path] * len(deleted), "pos": pa.array(deleted, pa.int64())})
    fields = [
        pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": number})
        for name, kind, number in (("file_path", pa.string(), "2147483546"), ("pos", pa.int64(), "2147483545"))
    ]
    pq.write_table(positions.cast(pa.schema(fields)), path.removeprefix("file://"))
    with table.transaction() as transaction:
        _Deletes(path, len(deleted), Operation.DELETE, transaction, table.io, uuid.uuid4(), {}).commit()


class _DeletesWriter(ManifestWriterV2):
    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


class _Deletes(_FastAppendFiles):
    """A commit of one file of position deletes, which `pyiceberg` reads and does not write."""

    def __init__(self, path, n_deleted, *arguments):
        super().__init__(*arguments)
        self._path, self._n_deleted = path, n_deleted

    def _manifests(self):
        spec, schema = self._transaction.table_metadata.spec(), self._transaction.table_metadata.schema()
        file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=self._path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=self._n_deleted,
            file_size_in_bytes=Path(self._path.removeprefix("file://")).stat().st_size,
        )
        file.spec_id = spec.spec_id
        out = self._io.new_output(self._path + ".avro")
        with _DeletesWriter(spec, schema, out, self._snapshot_id, "null") as writer:
            added = {"status": ManifestEntryStatus.ADDED, "snapshot_id": self._snapshot_id}
            writer.add(ManifestEntry.from_args(**added, data_file=file))
        return [writer.to_manifest_file(), *self._existing_manifests()]
