"""Order of events of one time, by further columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.columns import Block, kind_of, plain_array, take_rows
from cer_gpu.columnar.fields import column_type
from cer_gpu.errors import QueryTypeError
from cer_gpu.io.source import Source, with_field_column
from cer_gpu.order.times import to_keys


def order_ties(source: Source, column: str, further: Sequence[str]) -> Source:
    """Return a source in which events of one time are in the order of further columns, ascending, NULL last.

    Events that are alike in all of them keep their order.  The events of one time are held at once.

    Parameters
    ----------
    source
        In the order of `column`.
    column
    further
        Columns, or paths of fields of structs.

    Raises
    ------
    QueryTypeError
        When there is no such column, or its values have no order.
    """
    for name in further:
        kind = column_type(source.schema, name, None, None)
        if kind_of(kind) is None:
            raise QueryTypeError(f"sort needs values in an order, and {name!r} is {kind}")
        source = with_field_column(source, name)
    ordered = source

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        wanted = list(dict.fromkeys([*columns, column, *further]))
        held: list[pa.RecordBatch] = []
        for batch in ordered.batches(wanted):
            keys = to_keys(Block(batch).numbers(column))
            if not len(keys):
                continue
            last = int(np.searchsorted(keys, keys[-1]))  # events of the last time may go on in the next batch
            first = int(np.searchsorted(keys, keys[0], side="right"))
            if held and _last_key(held[-1], column) == int(keys[0]):
                held.append(batch.slice(0, first))
            else:
                yield from _order_ties(held, column, further, columns)
                held, first = [], 0
            if first == len(keys):
                continue
            yield from _order_ties(held, column, further, columns)
            if first < last:
                yield from _order_ties([batch.slice(first, last - first)], column, further, columns)
            held = [batch.slice(max(first, last))]
        yield from _order_ties(held, column, further, columns)

    return replace(ordered, read=read, reads_fields=False, parts=None, rereadable=False, in_memory=False)


def _last_key(batch: pa.RecordBatch, column: str) -> int:
    return int(to_keys(Block(batch.slice(batch.num_rows - 1)).numbers(column))[0])


def _order_ties(
    batches: Sequence[pa.RecordBatch], column: str, further: Sequence[str], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches, which are in the order of time, with the named columns."""
    batches = [batch for batch in batches if batch.num_rows]
    if not batches:
        return
    piece = batches[0] if len(batches) == 1 else _concat_batches(batches)
    keys = to_keys(Block(piece).numbers(column))
    if (keys[1:] == keys[:-1]).any():
        names = [str(i) for i in range(len(further) + 1)]
        arrays = [pa.array(keys), *(_comparable(piece.column(name)) for name in further)]
        order = [(name, "ascending") for name in names]
        rows = pc.sort_indices(pa.table(arrays, names=names), sort_keys=order)  # NULL at the end
        piece = pa.RecordBatch.from_arrays([take_rows(each, rows) for each in piece.columns], names=piece.schema.names)
    yield piece.select(list(dict.fromkeys(columns)))


def _concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    names = batches[0].schema.names
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays([plain_array(batch.column(name)) for batch in batches]) for name in names], names=names
    )


def _comparable(values: pa.Array) -> pa.Array:
    values = plain_array(values)
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values
