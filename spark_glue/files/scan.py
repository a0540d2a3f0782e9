"""Files behind a DataFrame, or named by paths, as the `Scan` from which a job is planned."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from cer_gpu.errors import EventsError
from spark_glue.files.folders import folder_values
from spark_glue.files.opening import Opener
from spark_glue.files.read_plan import ReadPlan, scan_of_plan
from spark_glue.files.stored_events import DirectReadError, Scan
from spark_glue.files.stores import address_of
from spark_glue.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_Path = str | os.PathLike[str]

_INTEGER, _NUMBER = re.compile(r"[+-]?\d+", re.ASCII), re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def scan_of(df: DataFrame) -> Scan:
    """Return the scan of stored files that a DataFrame is.

    Parameters
    ----------
    df
        DataFrame of a classic session, or of Spark Connect.

    Raises
    ------
    DirectReadError
        With the reason, if it is anything but stored Parquet with filters that pyarrow can evaluate as Spark does, and
        a choice of columns.
    """
    if df.isStreaming:
        raise DirectReadError("it is a stream")
    try:
        plan = _read_plan(df)
    except DirectReadError:
        raise
    except Exception as error:  # other implementations of DataFrames have other internals, or forbid to look at them
        told = str(error).strip().partition("\n")[0] or type(error).__name__
        raise DirectReadError(f"its plan cannot be read: {told}") from error
    return scan_of_plan(plan, df.schema)


def _read_plan(df: DataFrame) -> ReadPlan:
    if is_connect(df):
        from spark_glue.files import connect

        return connect.read_plan(df)
    from spark_glue.files import catalyst

    return catalyst.read_plan(df)


def scan_of_paths(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], opener: Opener | None = None
) -> Scan:
    """Return the scan of files and folders, of Parquet or Arrow IPC; folders ``column=value`` tell columns.

    The types are those that Spark has for those of the first file, times in microseconds.  Columns that the folders
    below a given one tell are integers, floating-point numbers or dates where all their values are such, else strings.

    Parameters
    ----------
    paths
        Files, folders, or patterns such as ``day=*/*.parquet``, as paths or URIs.
    opener
        Opener of them; by default (None) of local files, and stores without settings.

    Raises
    ------
    EventsError
        If there is no file, one cannot be read, or folders tell other columns for one file than for another.
    """
    opener = Opener() if opener is None else opener
    given = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if not given:
        raise EventsError("expected the path of a file or folder, got none")
    files = opener.files(given)
    stored = opener.format(files[0]).schema(opener, files[0])
    folders = _folders(files, given)
    kinds = {name: _folder_type(files, name) for name in folders}
    fields = [f for f in _types_of_spark(stored) if f.name not in kinds]
    schema = pa.schema([*fields, *(pa.field(name, kind) for name, kind in kinds.items())])
    return Scan(paths=tuple(files), schema=schema, folders=tuple(kinds), options=dict(opener.options))


def _folders(files: list[str], given: list[str]) -> list[str]:
    """Return the columns that folders below the given ones tell."""
    roots = [address_of(path if address_of(path).scheme else os.path.abspath(path)).path.rstrip("/") for path in given]
    found: list[str] | None = None
    for file in files:
        path = address_of(file).path
        root = max((root for root in roots if path.startswith(root + "/")), key=len, default=path)
        parts = path[len(root) + 1 :].split("/")[:-1]
        names = [unquote(part.partition("=")[0]) for part in parts if "=" in part]
        if found is not None and names != found:
            raise EventsError(f"{file}: its folders tell {names}, and those of {files[0]} {found}")
        found = names
    return found or []


def _folder_type(files: list[str], name: str) -> pa.DataType:
    """Return the type that Spark gives the values of a column that folders tell."""
    values = {value for file in files for _, value in folder_values(file, {name: None}) if value is not None}
    if values and all(_INTEGER.fullmatch(value) for value in values):
        widest = max(abs(int(value)) for value in values)
        if widest < 2**63:
            return pa.int32() if widest < 2**31 else pa.int64()
    if values and all(_INTEGER.fullmatch(value) or _NUMBER.fullmatch(value) for value in values):
        return pa.float64()
    return pa.date32() if values and all(_DATE.fullmatch(value) for value in values) else pa.string()


def _types_of_spark(schema: pa.Schema) -> pa.Schema:
    """Return a stored schema in the types that Spark has for it."""
    return pa.schema([pa.field(f.name, _type_of_spark(f.type, f.name), nullable=True) for f in schema])


def _type_of_spark(kind: pa.DataType, name: str) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _type_of_spark(kind.value_type, name)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_unsigned_integer(kind) and kind != pa.uint64():
        return {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}[kind]
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_duration(kind):
        return pa.duration("us")
    if types.is_date(kind):
        return pa.date32()
    if types.is_struct(kind):
        return pa.struct([f.with_type(_type_of_spark(f.type, name)) for f in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind) or types.is_fixed_size_list(kind):
        element = kind.value_field
        return pa.list_(pa.field("element", _type_of_spark(element.type, name), element.nullable))
    return kind
