"""Arrow data built from reference streams, in the many physical layouts that one logical column can have.

A layout fixes the type of every column and how each array is built: how far into a larger buffer it starts
(so that validity bitmaps begin inside a byte), and how its dictionary differs from that of the batch before.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import reference as ref
from hypothesis import strategies as st
from strategies import (
    BOOL_COLUMNS,
    DAY,
    DECIMAL_COLUMNS,
    FLOAT_COLUMNS,
    INT_COLUMNS,
    LENGTH_COLUMNS,
    MOMENT_COLUMNS,
    ORDER_COLUMN,
    STRING_COLUMNS,
    TIME_COLUMNS,
    UNSIGNED_COLUMNS,
)

STRING_TYPES = (
    pa.string(),
    pa.large_string(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.uint16(), pa.string()),
    pa.dictionary(pa.int16(), pa.large_string()),
    pa.dictionary(pa.int64(), pa.string()),
)
INT_TYPES = (
    pa.int64(),
    pa.int32(),
    pa.int16(),
    pa.int8(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
)
SIGNED = INT_TYPES[:4]
DECIMAL_TYPES = (pa.decimal128(20, 0), pa.decimal128(24, 3))
SCALED_TYPES = (pa.decimal128(18, 2), pa.decimal128(18, 7), pa.decimal128(12, 4), pa.decimal64(18, 2))
TICKS_PER_SECOND = 1000  # the time of a reference stream is in milliseconds
TIMESTAMP_TYPES = tuple(pa.timestamp(unit) for unit in ("ms", "us", "ns", "s"))


@dataclass(frozen=True)
class Layout:
    """Layout of a stream in Arrow memory."""

    types: dict[str, pa.DataType]
    time_unit: str | None = None  # the unit of an integer time column
    padding: int = 0  # up to this many rows of other values before and after each array's slice
    through_ipc: bool = False  # read-only buffers, and alignment that IPC chose
    unused_column: bool = False  # a column of a type that no query can use
    seed: int = field(default=0, repr=False)

    @property
    def schema(self) -> pa.Schema:
        """Schema of every batch."""
        extra = {"unused": pa.list_(pa.int8())} if self.unused_column else {}
        return pa.schema(list({**_nested(self.types), **extra}.items()))


def _nested(types: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Return the types of columns, with those of the fields ``st.p`` put into structs."""
    found: dict[str, Any] = {}
    for name, type_ in types.items():
        first, dot, rest = name.partition(".")
        if dot:
            found.setdefault(first, {})[rest] = type_
        else:
            found[first] = type_
    return {name: pa.struct(_nested(t)) if isinstance(t, dict) else t for name, t in found.items()}


def column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column, or the field ``st.p`` of a struct."""
    first, *rest = name.split(".")
    return pc.struct_field(table[first], rest) if rest else table[first]


# -------------------------------------------------------------------------------------------- choosing layouts


def int_types(values: list[int | None]) -> list[pa.DataType]:
    """Return integer types that hold the values."""
    known = [v for v in values if v is not None]
    low, high = min(known, default=0), max(known, default=0)
    ranges = [(t, np.iinfo(t.to_pandas_dtype())) for t in INT_TYPES]
    return [t for t, bounds in ranges if bounds.min <= low and high <= bounds.max]


def float_types(values: list[float | None]) -> list[pa.DataType]:
    """Return float types that hold the values exactly."""
    with np.errstate(over="ignore"):
        exact = all(v is None or v != v or float(np.float32(v)) == v for v in values)
    return [pa.float64(), pa.float32()] if exact else [pa.float64()]


def time_types(values: list[int]) -> list[tuple[pa.DataType, str | None]]:
    """Return types (and the unit of an integer) for a time column whose values are in milliseconds."""
    found = [(t, None) for t in TIMESTAMP_TYPES[:3]]
    found += [(pa.timestamp("us", tz="UTC"), None), (pa.duration("ms"), None)]
    found += [(pa.int64(), unit) for unit in ("ms", "us", "ns")]
    if all(v % 1000 == 0 for v in values):
        found += [(pa.timestamp("s"), None), (pa.int64(), "s"), (pa.int32(), "s")]
    if all(v % DAY == 0 for v in values):
        found += [(pa.date32(), None)]
    return found


def exact_as_decimal(query: ref.Query) -> set[str]:
    """Return the integer columns that are only compared with literals: there a decimal means the same as an int64."""
    used = {node.name for _, m in query.measures for node in ref.descendants(m) if hasattr(node, "name")}
    for node in ref.descendants(query.formula):
        match node:
            case ref.Compare(_, ref.Attr(), ref.Const(int())) | ref.Compare(_, ref.Const(int()), ref.Attr()):
                pass
            case ref.InRange(ref.Attr(), None | ref.Const(), None | ref.Const(), False):
                pass
            case ref.In(ref.Attr(), values) if all(isinstance(value, ref.Const) for value in values):
                pass
            case ref.Compare() | ref.InRange() | ref.In() | ref.Between() | ref.IsNull():
                used |= {part.name for part in ref.descendants(node) if isinstance(part, ref.Attr | ref.VarAttr)}
    return {name for name in INT_COLUMNS if name not in used}


def moment_types(values: list[int | None]) -> list[pa.DataType]:
    """Return types for a column of moments, in milliseconds."""
    known = [v for v in values if v is not None]
    found: list[pa.DataType] = [*TIMESTAMP_TYPES, pa.timestamp("us", tz="UTC"), pa.duration("s"), pa.duration("ns")]
    if all(v % DAY == 0 for v in known):
        found += [pa.date32()]
    if all(0 <= v < DAY for v in known):
        found += [pa.time32("s"), pa.time64("us")]
    return found


def unlike_types(name: str, values: list[Any]) -> list[pa.DataType]:
    """Return types of unlike scales and units that hold the values exactly, for a column of one of the last kinds."""
    known = [v for v in values if v is not None]
    if name in UNSIGNED_COLUMNS:
        return [pa.uint64()]
    if name in DECIMAL_COLUMNS:
        return [t for t in SCALED_TYPES if all(abs(v) < 10 ** (t.precision - t.scale) for v in known)]
    units = ["us", "ms"]
    units += ["ns"] if all(abs(v) * 10**6 < 2**63 for v in known) else []
    units += ["s"] if all(v % 1000 == 0 for v in known) else []
    return [pa.timestamp(unit) if name in TIME_COLUMNS else pa.duration(unit) for unit in units]


def column_types(name: str, values: list[Any], decimals: set[str]) -> list[pa.DataType]:
    """Return types that a column of the strategies, other than the time, may have for these values."""
    if name == ref.TYPE or name in STRING_COLUMNS:
        return list(STRING_TYPES)
    if name in FLOAT_COLUMNS:
        return float_types(values)
    if name in BOOL_COLUMNS:
        return [pa.bool_()]
    if name in MOMENT_COLUMNS:
        return moment_types(values)
    if name in INT_COLUMNS or name == ORDER_COLUMN:
        small = name in decimals and all(v is None or abs(v) < 2**53 for v in values)
        return int_types(values) + (list(DECIMAL_TYPES) if small else [])
    return unlike_types(name, values)


@st.composite
def layouts(draw, query: ref.Query, stream: list[ref.Event], timestamps: bool = False) -> Layout:
    """Draw a layout for the stream; `timestamps`: the time is a timestamp without a zone."""
    types: dict[str, pa.DataType] = {}
    decimals = exact_as_decimal(query)
    # names in one bracket of PARTITION BY are of one type, except for the width of integers and the layout of strings
    groups = [*query.partition_by, (ref.TYPE,), *((name,) for name in sorted(ref.attributes(query)))]
    for names in groups:
        if names[0] not in types:
            values = [ref.attribute(event, name) for name in names for event in stream]
            options = column_types(names[0], values, decimals if decimals >= {*names} else set())
            types |= dict.fromkeys(names, draw(st.sampled_from(options)))
            if len(names) > 1 and (types[names[0]] in SIGNED or names[0] in STRING_COLUMNS):
                options = [option for option in options if option in SIGNED or names[0] in STRING_COLUMNS]
                types[names[1]] = draw(st.sampled_from(options))
    options = time_types([event[ref.TIME] for event in stream])
    if timestamps:
        options = [o for o in options if o[0] in TIMESTAMP_TYPES]
    types[ref.TIME], time_unit = draw(st.sampled_from(options))
    names = [ref.TYPE, ref.TIME, *sorted(ref.attributes(query))]
    return Layout(
        types={name: types[name] for name in names},
        time_unit=time_unit,
        padding=draw(st.sampled_from([0, 3, 11])),
        through_ipc=draw(st.booleans()),
        unused_column=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )


# -------------------------------------------------------------------------------------------- building arrays


def build_table(stream: list[ref.Event], layout: Layout, cuts: list[int] | None = None) -> pa.Table:
    """Return the stream as one table, whose chunks are the batches of `cuts`."""
    return pa.Table.from_batches(build_batches(stream, layout, cuts or []), layout.schema)


def build_batches(stream: list[ref.Event], layout: Layout, cuts: list[int]) -> list[pa.RecordBatch]:
    """Return the stream as record batches, cut at `cuts`; every batch is built on its own."""
    rng = random.Random(layout.seed)
    edges = [0, *cuts, len(stream)]
    batches = [_batch(stream[a:b], layout, rng) for a, b in itertools.pairwise(edges)]
    return _through_ipc(batches, layout.schema) if layout.through_ipc else batches


def in_column_unit(milliseconds: int | None, type_: pa.DataType, time_unit: str | None) -> int | None:
    """Return the number that a column of this type stores for a moment."""
    if milliseconds is None:
        return None
    if pa.types.is_date32(type_):
        return milliseconds // DAY
    unit = type_.unit if pa.types.is_temporal(type_) else time_unit
    per_second = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit]
    return milliseconds * per_second // TICKS_PER_SECOND


def _batch(events: list[ref.Event], layout: Layout, rng: random.Random) -> pa.RecordBatch:
    arrays = []
    for name, type_ in _nested(layout.types).items():
        values = [event[name] for event in events]
        if name in (ref.TIME, *MOMENT_COLUMNS, *TIME_COLUMNS, *LENGTH_COLUMNS):
            values = [in_column_unit(v, type_, layout.time_unit) for v in values]
        arrays.append(_array(values, type_, layout.padding, rng))
    if layout.unused_column:
        arrays.append(pa.array([[1, None]] * len(events), layout.schema.field("unused").type))
    return pa.RecordBatch.from_arrays(arrays, schema=layout.schema)


def _array(values: list[Any], type_: pa.DataType, padding: int, rng: random.Random) -> pa.Array:
    """Return the values as a slice of a longer array, whose other values are noise."""
    before, after = rng.randint(0, padding), rng.randint(0, padding)
    pool = [*values, None] if None in values or rng.random() < 0.5 else values
    noise = [rng.choice(pool) if pool else None for _ in range(before + after)]
    padded = [*noise[:before], *values, *noise[before:]]
    if pa.types.is_struct(type_):
        return _struct_array(padded, type_, padding, rng).slice(before, len(values))
    build = _dictionary_array if pa.types.is_dictionary(type_) else _plain_array
    return build(padded, type_, rng).slice(before, len(values))


def _struct_array(values: list[Any], type_: pa.StructType, padding: int, rng: random.Random) -> pa.Array:
    """Return structs; under those that are NULL lie arbitrary values."""
    children = []
    for field_ in type_:
        known = [value[field_.name] for value in values if value is not None] or [None]
        own = [rng.choice(known) if value is None else value[field_.name] for value in values]
        children.append(_array(own, field_.type, padding, rng))
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)


def _plain_array(values: list[Any], type_: pa.DataType, rng: random.Random) -> pa.Array:
    if pa.types.is_decimal(type_):
        return pa.array([None if v is None else Decimal(v) for v in values], type_)
    if pa.types.is_temporal(type_):
        stored = pa.int32() if pa.types.is_date32(type_) or pa.types.is_time32(type_) else pa.int64()
        return pa.array(values, stored).view(type_)
    return pa.array(values, type_)


def _dictionary_array(values: list[Any], type_: pa.DictionaryType, rng: random.Random) -> pa.Array:
    """Return codes into a dictionary in an order of its own, with unused entries, at times a double or a NULL."""
    entries: list[Any] = [*{v for v in values if v is not None}, "unused", "zz"]
    entries.sort()
    rng.shuffle(entries)
    if rng.random() < 0.3:
        entries.append(rng.choice(entries))
    null_entry = rng.random() < 0.2
    if null_entry:
        entries.insert(rng.randint(0, len(entries)), None)
    places: dict[Any, list[int]] = {}
    for code, entry in enumerate(entries):
        places.setdefault(entry, []).append(code)

    def code_of(value: str | None) -> int | None:
        if value is None and (not null_entry or rng.random() < 0.5):
            return None
        return rng.choice(places[value])

    codes = [code_of(v) for v in values]
    return pa.DictionaryArray.from_arrays(pa.array(codes, type_.index_type), pa.array(entries, type_.value_type))


def _through_ipc(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        return list(reader)
