"""Read of stored files that the plan of a DataFrame is, and the scan that does the same without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_glue.files.folders import folder_values
from spark_glue.files.stored_events import DirectReadError, Scan
from spark_glue.files.stored_filters import FileFilter, conjuncts, expression, filter_columns
from spark_glue.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as st

SETTINGS: dict[str, tuple[str, ...]] = {
    "hdfs": ("fs.defaultFS", "dfs.", "hadoop.security.", "ipc.client."),
    "viewfs": ("fs.defaultFS", "fs.viewfs.", "dfs.", "hadoop.security."),
    "s3": ("fs.s3.", "fs.s3a."),
    "s3a": ("fs.s3a.",),
    "s3n": ("fs.s3n.", "fs.s3a."),
    "gs": ("fs.gs.", "google."),
    "abfs": ("fs.azure.",),
    "abfss": ("fs.azure.",),
    "wasb": ("fs.azure.",),
    "wasbs": ("fs.azure.",),
}
"""Beginnings of the names of Hadoop's settings for the file systems of URIs of each scheme."""


_MODES = {
    "spark.sql.files.ignoreCorruptFiles": ("ignoreCorruptFiles", "true", "false"),
    "spark.sql.files.ignoreMissingFiles": ("ignoreMissingFiles", "true", "false"),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("datetimeRebaseMode", "LEGACY", "CORRECTED"),
    "spark.sql.parquet.int96RebaseModeInRead": ("int96RebaseMode", "LEGACY", "CORRECTED"),
    "spark.sql.parquet.fieldId.read.enabled": ("", "true", "false"),
}
"""Settings of Spark's reader, with the option that overrides each ("": none), a value that gives other rows, and the
usual one."""


@dataclass(frozen=True)
class ReadPlan:
    """Read of stored Parquet files, with filters and a choice of columns, as a plan of Spark says it.

    Attributes
    ----------
    columns : tuple of str
        Stored name of each column of the DataFrame, in its order.
    schema : pyspark.sql.types.StructType
        Types of all stored columns, and of the columns encoded in folders.
    conditions : tuple of FileFilter
        On stored columns.
    paths : tuple of str
        As Spark lists them: URIs with %-escapes.
    folders, bucket_by, options, values, deleted
        As in `Scan`.
    """

    columns: tuple[str, ...]
    schema: st.StructType
    conditions: tuple[FileFilter, ...]
    paths: tuple[str, ...]
    folders: tuple[str, ...] = ()
    bucket_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, tuple[tuple[str, Any], ...]] = field(default_factory=dict)
    deleted: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredTable:
    """Table whose rows are in Parquet files, though a function of Python reads them for Spark.

    Attributes
    ----------
    paths : tuple of str
    stored : mapping from str to str
        The name that a column has in the files, where that is another one.
    folders, values, deleted
        As in `Scan`.
    """

    paths: tuple[str, ...]
    stored: Mapping[str, str]
    folders: tuple[str, ...]
    values: Mapping[str, tuple[tuple[str, Any], ...]]
    deleted: Mapping[str, npt.NDArray[np.int64]]


_STORED_TABLES: dict[str, StoredTable] = {}
"""Tables by the number of the first column of the plan that reads them."""


def remember_table(df: DataFrame, table: StoredTable) -> None:
    """Let tasks read the files of a table wherever a DataFrame is a choice of its columns and rows."""
    if not is_connect(df):
        _STORED_TABLES[_id_of(df._jdf.queryExecution().analyzed())] = table


def stored_table(plan: Any) -> StoredTable | None:
    """Return the table that a plan of Spark reads by a function of Python, or None."""
    return _STORED_TABLES.get(_id_of(plan)) if plan.nodeName() == "MapInArrow" else None


def _id_of(plan: Any) -> str:
    """Return the number of the first column of a plan, which no other plan has."""
    number = plan.output().apply(0).exprId()
    return f"{number.jvmId().toString()} {number.id()}"


def check_modes(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Refuse a read for which Spark is set to pass over files, or to change old dates and timestamps.

    Parameters
    ----------
    spark
    options
        Those of the read, by their names in any case.

    Raises
    ------
    DirectReadError
        With the option or setting.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    for setting, (option, changing, usual) in _MODES.items():
        is_set = option.lower() in lowered
        value = lowered[option.lower()] if is_set else spark.conf.get(setting, usual) or usual
        if value.lower() == changing.lower():
            raise DirectReadError(f"it is read with {option if is_set else setting} = {value}")


def settings_of(schemes: Iterable[str]) -> tuple[str, ...]:
    """Return the beginnings of the names of Hadoop's settings for file systems of some schemes."""
    return tuple(dict.fromkeys(prefix for scheme in sorted(schemes) for prefix in SETTINGS.get(scheme, ())))


def scan_of_plan(plan: ReadPlan, schema: st.StructType) -> Scan:
    """Return the scan of a read.

    Parameters
    ----------
    plan
    schema
        Schema of the DataFrame.

    Raises
    ------
    DirectReadError
        If tasks could not read the same rows.
    """
    from spark_glue.schema import to_arrow

    names = schema.names
    if len(set(names)) < len(names):
        raise DirectReadError("it has two columns of one name")
    for each in plan.schema:
        if each.name in plan.columns and "EXISTS_DEFAULT" in each.metadata:
            raise DirectReadError(f"{each.name!r} has a default where a file has no such column")
    types = {each.name: each.type for each in to_arrow(plan.schema)}
    paths = sorted(as_path(path) for path in plan.paths)
    filters, compared = [], set[str]()
    for condition in (each for whole in plan.conditions for each in conjuncts(whole)):
        read = filter_columns(condition)
        in_folders = read & set(plan.folders)
        file_filter = expression(condition, types)
        if not in_folders:
            filters.append(file_filter)
            compared |= read
        elif in_folders == read:
            paths = _select_files(paths, file_filter, {name: types[name] for name in in_folders}, plan.values)
        else:
            raise DirectReadError(
                f"one condition is on {sorted(in_folders)[0]!r}, of the folders, and on other columns"
            )
    stored = {name: column for name, column in zip(names, plan.columns, strict=True) if name != column}
    return Scan(
        paths=tuple(paths),
        schema=to_arrow(schema),
        stored=stored,
        filters=tuple(filters),
        filter_columns=pa.schema([(name, types[name]) for name in sorted(compared)]),
        folders=plan.folders,
        bucket_by=plan.bucket_by,
        options=plan.options,
        null_if_lacking=True,
        values=plan.values,
        deleted=plan.deleted,
    )


def as_path(uri: str) -> str:
    """Return a URI of a local file as its path, any other as it is."""
    for prefix in ("file:///", "file:/"):
        if uri.startswith(prefix):
            return "/" + unquote(uri[len(prefix) :])
    return uri


def _select_files(
    paths: list[str],
    condition: pc.Expression,
    types: Mapping[str, pa.DataType],
    values: Mapping[str, tuple[tuple[str, Any], ...]],
) -> list[str]:
    """Return the files whose folders satisfy a condition."""
    if not paths:
        return paths
    in_folders = [dict(values.get(path) or folder_values(path, types)) for path in paths]
    columns = {name: pa.array([own[name] for own in in_folders], kind) for name, kind in types.items()}
    table = pa.table({"path": paths, **columns})
    return [str(path) for path in table.filter(condition)["path"].to_pylist()]
