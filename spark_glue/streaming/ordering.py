"""Order of the events of one micro-batch, which does not depend on the order in which Spark's tasks deliver them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Bools, Int64
from spark_glue.sort_keys import sort_key


def in_order(events: pa.Table, order: Sequence[str]) -> pa.Table:
    """Return events in the order of some columns; those that agree on them are ordered by all other columns.

    NULLs come first, NaN after all numbers, and -0.0 with 0.0, as Spark orders.  Events that agree on everything are
    the same, so that a batch that is read again gives the same table.

    Parameters
    ----------
    events : pyarrow.Table
    order
        Names of columns without nested values.
    """
    keys = [sort_key(_whole(events.column(name))) for name in order]
    rows = _sorted(keys, np.arange(events.num_rows))
    same = np.ones(max(len(rows) - 1, 0), np.bool_)
    for key in keys:
        same &= _equals_next(key.take(pa.array(rows)))
    tied = np.concatenate([[False], same]) | np.concatenate([same, [False]]) if len(rows) else np.zeros(0, np.bool_)
    if tied.any():
        places = np.flatnonzero(tied)
        among = rows[places]
        runs = np.cumsum(~np.concatenate([[False], same]))[places]
        others = [_whole(events.column(i)).take(pa.array(among)) for i in range(events.num_columns)]
        found = _sorted([pa.array(runs), *(key for each in others for key in _ties(each))], np.arange(len(among)))
        rows[places] = among[found]
    return events if (rows[1:] > rows[:-1]).all() else events.take(pa.array(rows))


def _sorted(keys: list[pa.Array], rows: Int64) -> Int64:
    """Return rows in the order of keys of theirs."""
    # a key that tells which are NULL puts these first: the option to do so has changed between versions of Arrow
    columns = [part for key in keys for part in ((key.is_valid().cast(pa.uint8()), key) if key.null_count else (key,))]
    table = pa.table([*columns, pa.array(rows)], names=[str(i) for i in range(len(columns) + 1)])
    found: Int64 = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]).to_numpy()
    return rows[found]


def _equals_next(values: pa.Array) -> Any:
    """Return which values equal the next one, NULL being equal to NULL."""
    one, other = values.slice(0, max(len(values) - 1, 0)), values.slice(1)
    both = pc.and_(one.is_null(), other.is_null())
    return pc.or_(pc.fill_null(pc.equal(one, other), False), both).to_numpy(zero_copy_only=False)


def _ties(values: pa.Array) -> list[pa.Array]:
    """Return keys that are equal only where values are the same, bit by bit."""
    kind = values.type
    if pa.types.is_null(kind):
        return []
    if pa.types.is_struct(kind):
        present = values.is_valid().cast(pa.uint8())
        return [present, *(key for field in values.flatten() for key in _ties(field))]
    if pa.types.is_floating(kind):
        width = kind.bit_width
        bits = values.fill_null(0.0).to_numpy().view(f"i{width // 8}")
        return [pa.array(bits, mask=_missing(values))]
    if pa.types.is_boolean(kind):
        return [values.cast(pa.uint8())]
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return [pa.array([None if each is None else repr(each) for each in values.to_pylist()], pa.string())]
    return [values]


def _missing(values: pa.Array) -> Bools:
    missing: Bools = values.is_null().to_numpy(zero_copy_only=False)
    return missing


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
