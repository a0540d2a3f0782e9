"""UUIDs as texts, so that they can be compared, are keys, and read as people write them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.columns import validity
from cer_gpu.io.source import Source, with_batches

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_PLACES = np.array([i for i in range(36) if i not in (8, 13, 18, 23)])
"""Places of the digits; between them are hyphens."""


def with_plain_uuids(source: Source) -> Source:
    """Return a source whose columns of UUIDs are texts."""
    schema = without_uuids(source.schema)
    if schema is source.schema:
        return source
    return with_batches(source, plain_uuids, schema=schema)


def without_uuids(schema: pa.Schema) -> pa.Schema:
    """Return the schema of events whose UUIDs are texts: the same where it has none."""
    if pa.uuid() not in schema.types:
        return schema
    return pa.schema([field.with_type(pa.string()) if field.type == pa.uuid() else field for field in schema])


def plain_uuids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose columns of UUIDs are texts."""
    if pa.uuid() not in batch.schema.types:
        return batch
    for i, (name, kind) in enumerate(zip(batch.schema.names, batch.schema.types, strict=True)):
        if kind == pa.uuid():  # the other columns are not looked at: those that nobody reads may be damaged
            batch = batch.set_column(i, name, uuid_texts(batch.column(i)))
    return batch


def uuid_texts(uuids: pa.Array) -> pa.Array:
    """Return UUIDs as texts of 36 characters, in lower case."""
    n, offset = len(uuids), uuids.offset
    valid = validity(uuids.storage)
    stored = uuids.storage.buffers()[1]
    own = (
        np.zeros((n, 16), np.uint8)
        if stored is None
        else np.frombuffer(stored, np.uint8)[16 * offset : 16 * (offset + n)]
    )
    own = own.reshape(n, 16)
    texts = np.full((n, 36), ord("-"), np.uint8)
    texts[:, _PLACES[::2]] = _DIGITS[own >> 4]
    texts[:, _PLACES[1::2]] = _DIGITS[own & 15]
    offsets = np.arange(n + 1, dtype=np.int32) * np.int32(36)
    found = pa.Array.from_buffers(pa.string(), n, [None, pa.py_buffer(offsets), pa.py_buffer(texts.reshape(-1))])
    return found if valid is None else pc.if_else(pa.array(valid), found, pa.scalar(None, pa.string()))
