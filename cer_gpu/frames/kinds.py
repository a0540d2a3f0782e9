"""Kinds of frames: the events of each as `cer_gpu.Query.evaluate` takes them, and results as a frame of that kind.

narwhals serves the libraries that are not named here (Modin, cuDF), and its own frames.  Each library that is named
makes a frame of an Arrow table by one call, and needs no other package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.columns import types_within
from cer_gpu.errors import OptionError
from cer_gpu.io.frames import is_a

_Result = Callable[[], pa.RecordBatchReader]


@dataclass(frozen=True)
class Kind:
    """A frame, and the way back to its kind.

    Attributes
    ----------
    events
        Anything that `cer_gpu.Query.evaluate` takes.
    back : callable
        Returns an Arrow table as a frame of the same kind.
    lazily : callable or None
        ``lazily(schema, result)`` returns results as a frame that calls `result` each time that it is executed; None:
        the kind has no such frames.
    """

    events: Any
    back: Callable[[pa.Table], Any]
    lazily: Callable[[pa.Schema, _Result], Any] | None = None


def kind_of_frame(frame: Any) -> Kind:
    """Return the kind of a frame.

    Raises
    ------
    OptionError
        When it is no frame.
    """
    if isinstance(frame, pa.Table):
        return Kind(frame, lambda table: table)
    if is_a(frame, "polars", "DataFrame"):
        return Kind(frame, _to_polars)
    if is_a(frame, "polars", "LazyFrame"):
        return Kind(frame, lambda table: _to_polars(table).lazy(), _lazily)
    if is_a(frame, "pandas", "DataFrame"):
        return Kind(frame, partial(_to_pandas, frame))
    if is_a(frame, "duckdb", "DuckDBPyRelation"):
        return Kind(frame, partial(_to_relation, frame))
    kind = _by_narwhals(frame)
    if kind is None:
        raise OptionError(
            f"expected a frame of Polars, pandas, DuckDB or pyarrow, or one that narwhals knows, got "
            f"{type(frame).__name__}\nhint: Query.evaluate takes other events, and returns a pyarrow Table"
        )
    return kind


# ---- Polars -------------------------------------------------------------------------------------------------------


def _to_polars(table: pa.Table) -> Any:
    import polars

    return polars.from_arrow(table)


def _lazily(schema: pa.Schema, result: _Result) -> Any:
    """Return a LazyFrame that finds matches when it is collected, batch by batch, as many as are requested."""
    import polars
    from polars.io.plugins import register_io_source

    def batches(names: list[str] | None, predicate: Any, n_rows: int | None, size: int | None) -> Any:
        left = n_rows
        with result() as reader:
            for batch in reader:
                piece = _to_polars(pa.Table.from_batches([batch]))
                if left is not None:
                    piece = piece.head(left)
                    left -= piece.height
                if predicate is not None:
                    piece = piece.filter(predicate)
                yield piece if names is None else piece.select(names)
                if left == 0:
                    return

    empty: polars.DataFrame = _to_polars(schema.empty_table())
    return register_io_source(batches, schema=empty.schema)


# ---- pandas -------------------------------------------------------------------------------------------------------


def _to_pandas(frame: Any, table: pa.Table) -> Any:
    """Return a table as a DataFrame: with Arrow's types if the given one has some, else with NumPy's.

    Integers and booleans among which values are missing are nullable ones of pandas, not floats and objects; within
    lists and structs they are Python's, and times in nanoseconds within structs are pandas'.
    """
    import pandas

    if any(isinstance(dtype, pandas.ArrowDtype) for dtype in frame.dtypes):
        return table.to_pandas(types_mapper=pandas.ArrowDtype)
    nullable = {
        pa.int8(): pandas.Int8Dtype(), pa.int16(): pandas.Int16Dtype(), pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(), pa.uint8(): pandas.UInt8Dtype(), pa.uint16(): pandas.UInt16Dtype(),
        pa.uint32(): pandas.UInt32Dtype(), pa.uint64(): pandas.UInt64Dtype(), pa.bool_(): pandas.BooleanDtype(),
    }  # fmt: skip

    def converted(column: pa.ChunkedArray) -> Any:
        if not pa.types.is_nested(column.type):
            return column.to_pandas(types_mapper=nullable.get if column.null_count else None)
        if not _has_nanoseconds(column.type):
            return column.to_pandas(integer_object_nulls=True)
        values = np.empty(len(column), object)
        values[:] = [_as_array(value) for value in column.to_pylist()]  # to_pandas makes integers of these times
        return values

    columns = {name: converted(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    return pandas.DataFrame(columns, index=pandas.RangeIndex(table.num_rows), copy=False)


def _has_nanoseconds(kind: pa.DataType) -> bool:
    """Return True if there is a struct with times or durations in nanoseconds within a type."""
    return any(
        (pa.types.is_timestamp(each) or pa.types.is_duration(each)) and each.unit == "ns"
        for holder in types_within(kind)
        if pa.types.is_struct(holder)
        for each in types_within(holder)
    )


def _as_array(value: Any) -> Any:
    """Return a list as the array that pandas uses for it."""
    if not isinstance(value, list):
        return value
    array = np.empty(len(value), object)
    array[:] = [_as_array(each) for each in value]
    return array


# ---- DuckDB -------------------------------------------------------------------------------------------------------


def _to_relation(relation: Any, cer_gpu_found: pa.Table) -> Any:
    """Return a table as a relation of the connection of the given one, so that the two can be joined.

    DuckDB looks the name up among the variables of this call, unless the connection has a table of that name.
    """
    return relation.query("cer_gpu_events", "SELECT * FROM cer_gpu_found")


# ---- narwhals -----------------------------------------------------------------------------------------------------


def _by_narwhals(frame: Any) -> Kind | None:
    try:
        import narwhals
    except ImportError:
        return None
    if isinstance(frame, narwhals.DataFrame | narwhals.LazyFrame):
        inner = kind_of_frame(frame.to_native())
        lazily = inner.lazily
        return Kind(
            inner.events,
            lambda table: narwhals.from_native(inner.back(table)),
            None if lazily is None else lambda schema, result: narwhals.from_native(lazily(schema, result)),
        )
    narwhals_frame = narwhals.from_native(frame, pass_through=True)
    if not isinstance(narwhals_frame, narwhals.DataFrame):
        return None
    backend = narwhals_frame.implementation

    def back(table: pa.Table) -> Any:
        return narwhals.from_arrow(table, backend=backend).to_native()

    return Kind(narwhals_frame.to_arrow(), back)
