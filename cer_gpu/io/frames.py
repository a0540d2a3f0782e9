"""Frames as sources of events: pandas, Polars (lazy ones, too), narwhals, and relations of DuckDB.

Only the columns that are read are converted to Arrow.  LazyFrames and relations are streamed: they are executed when
they are read, and never materialised.  A library is used only if it is imported already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from cer_gpu.errors import EventsError
from cer_gpu.io.source import BATCH_ROWS, Source


def open_frame(events: Any) -> Source | None:
    """Open a frame of a library that is imported, or return None for any other object.

    Raises
    ------
    EventsError
        When a LazyFrame or a relation cannot be executed.
    """
    for (library, name), opened in _OPENERS.items():
        if is_a(events, library, name):
            return opened(events)
    return None


def is_a(value: Any, library: str, name: str) -> bool:
    """Return True if a value is of a class of a library, which need not be installed."""
    kind = getattr(sys.modules.get(library), name, None)
    return kind is not None and isinstance(value, kind)


@contextmanager
def _naming_library(library: str, name: str, error: str) -> Iterator[None]:
    """Turn errors of a library into EventsError."""
    own = getattr(sys.modules[library], error)
    try:
        yield
    except (own, pa.ArrowException, OSError) as wrong:
        raise EventsError(f"cannot read this {name} as a table of events: {wrong}") from wrong


_reading_polars = partial(_naming_library, "polars.exceptions", error="PolarsError")
_reading_duckdb = partial(_naming_library, "duckdb", error="Error")


class _Unreadable:
    """Types of columns; a column that Arrow cannot represent has the type null, and is refused when it is read."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._reasons: dict[str, str] = {}

    def types(self, columns: Iterable[tuple[str, Callable[[], pa.DataType]]]) -> pa.Schema:
        fields = []
        for name, type_of in columns:
            try:
                data_type = type_of()
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                self._reasons[name] = str(error)
                data_type = pa.null()
            fields.append(pa.field(name, data_type))
        return pa.schema(fields)

    def check(self, columns: list[str]) -> None:
        for name in columns:
            if name in self._reasons:
                raise EventsError(
                    f"cannot read this {self._kind} as a table of events: column {name!r}: {self._reasons[name]}\n"
                    "hint: give its values one type that Arrow has"
                )


_POLARS_TIMES = "make timestamps of it first: df.with_columns(pl.col({0!r}).str.to_datetime())"

# ---- Polars -------------------------------------------------------------------------------------------------------


def _open_polars(frame: Any) -> Source:
    schema, unreadable = _polars_schema(frame.head(0), "DataFrame")

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        unreadable.check(columns)
        yield from pa.RecordBatchReader.from_stream(frame.select(columns))

    return Source(schema, read, frame.height, rereadable=True, in_memory=True, time_hint=_POLARS_TIMES)


def _open_lazy(frame: Any) -> Source:
    import polars

    with _reading_polars("LazyFrame"):
        empty = polars.DataFrame(schema=frame.collect_schema())
    schema, unreadable = _polars_schema(empty, "LazyFrame")

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        unreadable.check(columns)
        with _reading_polars("LazyFrame"):
            for piece in frame.select(columns).collect_batches(chunk_size=BATCH_ROWS, lazy=True):
                yield from pa.RecordBatchReader.from_stream(piece)

    return Source(schema, read, time_hint=_POLARS_TIMES)


def _polars_schema(empty: Any, kind: str) -> tuple[pa.Schema, _Unreadable]:
    import polars

    def type_of(name: str) -> pa.DataType:
        if isinstance(empty.schema[name], polars.Object):
            raise TypeError("Python objects")
        return pa.RecordBatchReader.from_stream(empty.select(name)).schema.field(0).type

    unreadable = _Unreadable(kind)
    return unreadable.types((name, partial(type_of, name)) for name in empty.columns), unreadable


# ---- pandas -------------------------------------------------------------------------------------------------------


def _open_pandas(frame: Any) -> Source:
    """Open a DataFrame; named levels of the index are columns, too, unless a column has the same name."""
    series = [(str(name), frame.iloc[:, i]) for i, name in enumerate(frame.columns)]
    names = {name for name, _ in series}
    levels = frame.index.set_names([None] * frame.index.nlevels)  # an integer name would hide a position
    for level, name in enumerate(frame.index.names):
        if name is not None and str(name) not in names:
            series.append((str(name), levels.get_level_values(level).to_series()))
    unreadable = _Unreadable("DataFrame")
    schema = unreadable.types((name, partial(_pandas_type, values)) for name, values in series)

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        unreadable.check(columns)
        places = [schema.get_field_index(name) for name in columns]
        chosen = pa.schema([schema.field(place) for place in places])
        if not len(frame):
            return
        arrays = [pa.Array.from_pandas(series[place][1], type=schema.field(place).type) for place in places]
        yield from pa.Table.from_arrays(arrays, schema=chosen).to_batches()

    hint = "make timestamps of it first: df[{0!r}] = pd.to_datetime(df[{0!r}], utc=True, format=...)"
    return Source(schema, read, len(frame), rereadable=True, in_memory=True, time_hint=hint)


def _pandas_type(values: Any) -> pa.DataType:
    from pandas.api.types import infer_dtype, is_float_dtype, is_object_dtype

    if not len(values) and (is_object_dtype(values.dtype) or is_float_dtype(values.dtype)):
        return pa.null()  # the dtype of an empty column in pandas
    if not is_object_dtype(values.dtype):
        return pa.Array.from_pandas(values.iloc[:0]).type
    if infer_dtype(values, skipna=True) == "string":  # inspects each value without a copy
        return pa.string()
    return pa.Array.from_pandas(values).type


# ---- DuckDB -------------------------------------------------------------------------------------------------------


def _open_relation(relation: Any) -> Source:
    with _reading_duckdb("relation"):
        schema = relation.limit(0).to_arrow_table().schema

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        chosen = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        with _reading_duckdb("relation"):
            yield from relation.project(chosen).to_arrow_reader(BATCH_ROWS)

    hint = 'make timestamps of it first: CAST("{0}" AS TIMESTAMP), or strptime("{0}", \'%d/%m/%Y %H:%M:%S\')'
    return Source(schema, read, time_hint=hint)


_OPENERS: dict[tuple[str, str], Callable[[Any], Source | None]] = {
    ("pandas", "DataFrame"): _open_pandas,
    ("polars", "DataFrame"): _open_polars,
    ("polars", "LazyFrame"): _open_lazy,
    ("duckdb", "DuckDBPyRelation"): _open_relation,
    ("narwhals", "DataFrame"): lambda frame: open_frame(frame.to_native()),
    ("narwhals", "LazyFrame"): lambda frame: open_frame(frame.to_native()),
}
