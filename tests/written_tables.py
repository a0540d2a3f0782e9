"""Tables of Delta and Iceberg that tests write, and what the libraries read of them."""

import json
import struct
from pathlib import Path

import deltalake
import pyarrow as pa
from pyiceberg.catalog import load_catalog

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


def delete_by_vector(path, deleted):
    """Commit a deletion vector for the only file of a table of Delta, as other engines write them.

    The vector is a RoaringBitmapArray of one bitmap with one container, in Z85, within the log.
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
    text = _z85(data + b"\0" * (-len(data) % 4))
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(deleted)}
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
