"""Times that events have as text, outside of text files: a frame or a file whose column of times is one of strings."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from cer_gpu.columnar.columns import is_string, plain_array
from cer_gpu.columnar.fields import attribute_type, retyped
from cer_gpu.errors import EventsError, QueryTypeError
from cer_gpu.io.source import Source, with_batches, with_field_column
from cer_gpu.io.text_types import MICROSECONDS, common_type, mixed_zones, time_type, to_times

_HINT = "make timestamps of it first, as pyarrow.compute.strptime"


def with_times(source: Source, name: str) -> Source:
    """Return a source whose times are timestamps, if they are texts in ISO 8601; all of them are looked at first.

    Parameters
    ----------
    source
    name
        The time column.

    Raises
    ------
    QueryTypeError
        When they are other texts, or the events can be read only once.
    EventsError
        When some have an offset or Z, and others have not.
    """
    kind = attribute_type(source.schema, name)
    if kind is not None and source.n_rows == 0 and name in source.schema.names:  # a frame without rows has no types
        return _without_rows(source, name) if pa.types.is_null(kind) or is_string(kind) else source
    if kind is None or not is_string(kind.value_type if pa.types.is_dictionary(kind) else kind):
        return source
    source = with_field_column(source, name)
    found = _found(source, name) if source.rereadable else None
    if found is None:
        raise QueryTypeError(
            f"the time column {name!r} must be a timestamp, a date, a duration or an integer, and is {kind}",
            hint=source.time_hint.format(name) if source.time_hint else _HINT,
        )
    times = found

    def cast(batch: pa.RecordBatch) -> pa.RecordBatch:
        if name not in batch.schema.names:
            return batch
        at = batch.schema.names.index(name)
        return batch.set_column(at, name, to_times(plain_array(batch.column(at)), times))

    return with_batches(source, cast, schema=retyped(source.schema, {name: times}))


def _without_rows(source: Source, name: str) -> Source:
    schema = source.schema.set(source.schema.names.index(name), pa.field(name, MICROSECONDS))
    return replace(source, schema=schema, read=lambda columns: iter(()), parts=None)


def _found(source: Source, name: str) -> pa.DataType | None:
    """Return the type of all times of a column of texts; None: some are no times, or there are none."""
    found: pa.DataType = pa.null()
    n_rows = 0
    for batch in source.batches([name]):
        texts = plain_array(batch.column(name)).cast(pa.string())
        kind = pa.null() if texts.null_count == len(texts) else time_type(texts)
        common = None if kind is None else common_type(found, kind)
        if common is None:
            rows = mixed_zones(texts)
            if rows is None and kind is not None:
                rows = 0, 0
            if rows is not None:
                row = max(rows)
                raise EventsError(
                    f"the time column {name!r} has times with an offset or Z and without: {texts[row].as_py()!r} in "
                    f"event {n_rows + row:,} is unlike those before\nhint: give all an offset, or none"
                )
            return None
        found = common
        n_rows += batch.num_rows
    return None if pa.types.is_null(found) else found
