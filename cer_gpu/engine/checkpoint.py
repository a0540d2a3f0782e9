"""Checkpoints: the state of an evaluation as bytes, and back.

A checkpoint is a magic number, the SHA-256 of the rest, and an Arrow IPC stream with one row for each array, table or
schema of the state.  Nothing in it is executed, but only the checksum is verified: restore only your own checkpoints.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array
from cer_gpu.errors import CheckpointError

MAGIC = b"CERGPU\r\n"
VERSION = 9
"""Version of the layout of the state; a checkpoint of another version cannot be read."""

_DIGEST = 32
_NAMED = 8
"""Most queries that a message names."""
_SHOWN = 200
"""Most characters of a query that a message shows."""
Row = tuple[str | None, str, str, list[int], bytes]
_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("shape", pa.list_(pa.int64())),
        ("data", pa.large_binary()),
    ]
)


@dataclass
class NamedState:
    """State of an evaluation, by name.

    Attributes
    ----------
    queries : dict from str to dict
        Identity of each query, by its name: facts that distinguish it from others.
    options : dict
        Options of the evaluator.
    facts : dict
        Facts that JSON can hold.
    """

    queries: dict[str, dict[str, Any]]
    options: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    _parts: dict[str, NamedState] = field(default_factory=dict)

    def of(self, query: str) -> NamedState:
        """Return the state of one of the queries."""
        return self._parts.setdefault(query, NamedState({}, {}))

    def add_arrays(self, part: str, arrays: dict[str, Array]) -> None:
        """Add the arrays of a part of the evaluator, such as the runtime."""
        self.arrays |= {f"{part}.{name}": array for name, array in arrays.items()}

    def part(self, part: str) -> dict[str, Array]:
        """Return the arrays of a part of the evaluator."""
        return {name[len(part) + 1 :]: array for name, array in self.arrays.items() if name.startswith(part + ".")}

    def add_strings(self, part: str, strings: dict[int, pa.Array]) -> None:
        """Add numbered arrays of strings."""
        self.tables |= {f"{part}{i}": pa.table({"text": values}) for i, values in strings.items()}

    def strings(self, part: str) -> dict[int, pa.Array]:
        """Return the arrays of strings of a part, by number."""
        return {
            int(name[len(part) :]): table["text"].combine_chunks()
            for name, table in self.tables.items()
            if name.startswith(part)
        }

    def to_bytes(self) -> bytes:
        """Return the checkpoint."""
        facts = {name: part.facts for name, part in self._parts.items()}
        header = {"version": VERSION, "queries": self.queries, "options": self.options, "facts": self.facts}
        header["facts_of_queries"] = facts
        rows: list[Row] = [(None, "facts", "", [], json.dumps(header).encode())]
        for query, part in [(None, self), *self._parts.items()]:
            for name, array in part.arrays.items():
                rows.append((query, array.dtype.str, name, list(array.shape), np.ascontiguousarray(array).tobytes()))
            for name, table in part.tables.items():
                rows.append((query, "table", name, [], _table_to_bytes(table)))
            for name, schema in part.schemas.items():
                rows.append(
                    (query, "schema", name, [], _without_extension_dictionaries(schema).serialize().to_pybytes())
                )
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), _SCHEMA.types, strict=True)]
        payload = _table_to_bytes(pa.Table.from_arrays(columns, schema=_SCHEMA))
        return MAGIC + hashlib.sha256(payload).digest() + payload

    @classmethod
    def from_bytes(cls, queries: dict[str, dict[str, Any]], blob: bytes) -> NamedState:
        """Read a checkpoint of queries with these identities.

        Raises
        ------
        CheckpointError
            When the bytes are no checkpoint, damaged, of another version, or of other queries.
        """
        if not isinstance(blob, bytes | bytearray | memoryview):
            raise CheckpointError(f"expected the bytes that checkpoint() returned, got {type(blob).__name__}")
        blob = bytes(blob)
        if not blob.startswith(MAGIC):
            raise CheckpointError(f"expected the bytes that checkpoint() returned, got {blob[:8]!r}...")
        begin = len(MAGIC) + _DIGEST
        payload = memoryview(blob)[begin:]
        if hashlib.sha256(payload).digest() != blob[len(MAGIC) : begin]:
            raise CheckpointError("the checkpoint is damaged: its checksum does not fit\nhint: was it cut off?")
        try:
            return cls._from_payload(queries, payload)
        except CheckpointError:
            raise
        except Exception as error:  # whatever bytes lead to that another program wrote
            raise CheckpointError(
                f"the checkpoint is none that checkpoint() returned, though its checksum fits: {type(error).__name__}: "
                f"{error}"
            ) from error

    @classmethod
    def _from_payload(cls, queries: dict[str, dict[str, Any]], payload: memoryview) -> NamedState:
        rows = _table_from_bytes(payload).to_pylist()
        header = json.loads(rows[0]["data"])
        if header["version"] != VERSION:
            raise CheckpointError(
                f"the state in the checkpoint has version {header['version']}, and this cer_gpu reads {VERSION}\n"
                "hint: restore it with the cer_gpu that made it, or begin anew"
            )
        _check_queries(header["queries"], queries)
        state = cls(queries, header["options"], header["facts"])
        for query, facts in header["facts_of_queries"].items():
            state.of(query).facts = facts
        for row in rows[1:]:
            data, part = row["data"], state if row["query"] is None else state.of(row["query"])
            if row["kind"] == "table":
                part.tables[row["name"]] = _table_from_bytes(data)
            elif row["kind"] == "schema":
                part.schemas[row["name"]] = pa.ipc.read_schema(pa.py_buffer(data))
            else:
                flat = np.frombuffer(data, np.dtype(row["kind"])).copy()  # writable
                part.arrays[row["name"]] = flat.reshape(row["shape"])
        return state


def _check_queries(saved: dict[str, dict[str, Any]], queries: dict[str, dict[str, Any]]) -> None:
    """Refuse a checkpoint of other queries."""
    if saved.keys() != queries.keys():
        only = [saved, queries]
        if max(len(saved), len(queries)) > _NAMED:  # the names that only one has say more
            only = [{name: {} for name in a if name not in b} for a, b in ((saved, queries), (queries, saved))]
        named = [_in_words(list(names)) for names in only]
        raise CheckpointError(
            f"the checkpoint is of other queries: of {named[0]}, and not of {named[1]}\n"
            "hint: restore it with the set that made it, and the queries that were added"
        )
    for name, query in queries.items():
        different = [each for each, value in query.items() if saved[name].get(each) != value]
        if different:
            whose = f" {name!r}" if name else ""
            raise CheckpointError(
                f"the checkpoint is of another query{whose} (its {', '.join(different)} differs)\n"
                f"hint: restore it with the query that made it{_changed_line(saved[name]['text'], query['text'])}"
            )


def _changed_line(saved: str, text: str) -> str:
    """Return the text of a query, or of several lines the first that differs now."""
    if "\n" not in saved.strip():
        return f": {saved.strip()[:_SHOWN]!r}"
    pairs = enumerate(zip_longest(saved.splitlines(), text.splitlines()), 1)
    number, line = next(((i, was) for i, (was, now) in pairs if was != now), (0, None))
    if not number:
        return ""
    return f", which ended before line {number}" if line is None else f", whose line {number} is {line[:_SHOWN]!r}"


def _in_words(names: list[str]) -> str:
    if not names:
        return "no other"
    more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(map(repr, filter(None, names[:_NAMED]))) + more or "one query"


def _without_extension_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Return a schema without dictionaries of extension types, which Arrow can write but not read."""
    return pa.schema(
        [
            field.with_type(field.type.value_type)
            if pa.types.is_dictionary(field.type) and isinstance(field.type.value_type, pa.BaseExtensionType)
            else field
            for field in schema
        ]
    )


def _table_to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _table_from_bytes(data: Any) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()
