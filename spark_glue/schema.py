"""Schemas of Spark as Arrow schemas and back, for the input and the declared output of a stage.

PySpark's own functions for this are private: their parameters differ between 4.0 and 4.3.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as st

from cer_gpu.errors import EventsError

_PAIRS: list[tuple[type[st.DataType], pa.DataType]] = [
    (st.BooleanType, pa.bool_()),
    (st.ByteType, pa.int8()),
    (st.ShortType, pa.int16()),
    (st.IntegerType, pa.int32()),
    (st.LongType, pa.int64()),
    (st.FloatType, pa.float32()),
    (st.DoubleType, pa.float64()),
    (st.StringType, pa.string()),
    (st.BinaryType, pa.binary()),
    (st.DateType, pa.date32()),
    (st.TimestampType, pa.timestamp("us", tz="UTC")),
    (st.TimestampNTZType, pa.timestamp("us")),
    (st.DayTimeIntervalType, pa.duration("us")),
]


def to_arrow(schema: st.StructType) -> pa.Schema:
    """Return the schema of the batches that Spark makes of rows with this schema.

    A type without an equivalent in Arrow becomes an opaque one that carries its name; no query can read it.
    Timestamps with a zone are in UTC (the stage itself sees the same instants in the zone of the session).
    """
    return pa.schema([pa.field(f.name, _to_arrow(f.dataType), nullable=f.nullable) for f in schema])


def to_spark(schema: pa.Schema) -> st.StructType:
    """Return the Spark schema of rows that arrive as Arrow batches with this schema.

    Raises
    ------
    EventsError
        If Spark has no type for a column.
    """
    return st.StructType([st.StructField(f.name, _to_spark(f.type, f.name), f.nullable) for f in schema])


def _to_arrow(kind: st.DataType) -> pa.DataType:
    for spark, arrow in _PAIRS:
        if isinstance(kind, spark):
            return arrow
    if isinstance(kind, st.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, st.ArrayType):
        return pa.list_(pa.field("element", _to_arrow(kind.elementType), nullable=kind.containsNull))
    if isinstance(kind, st.StructType):
        return pa.struct(list(to_arrow(kind)))
    return pa.opaque(pa.binary(), type_name=kind.simpleString(), vendor_name="Spark")


def _to_spark(kind: pa.DataType, name: str) -> st.DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind):
        kind = pa.string()
    if pa.types.is_timestamp(kind):
        return st.TimestampNTZType() if kind.tz is None else st.TimestampType()
    if pa.types.is_duration(kind):
        return st.DayTimeIntervalType()
    for spark, arrow in _PAIRS:
        if kind == arrow:
            return spark()
    if pa.types.is_decimal128(kind):
        return st.DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.ArrayType(_to_spark(kind.value_type, name), containsNull=kind.value_field.nullable)
    if pa.types.is_map(kind):
        values = _to_spark(kind.item_type, name)
        return st.MapType(_to_spark(kind.key_type, name), values, valueContainsNull=kind.item_field.nullable)
    if pa.types.is_struct(kind):
        return to_spark(pa.schema(list(kind)))
    raise EventsError(f"column {name!r} of the matches is of type {kind}, which Spark does not have")
