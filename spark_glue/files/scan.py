"""Files that a DataFrame reads, or named by paths, as the `Scan` from which a job is planned.

In a classic session, they are read from the optimized plan of Catalyst.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import types as st

from cer_gpu.errors import EventsError
from spark_glue.files.folders import folder_values
from spark_glue.files.opening import Opener
from spark_glue.files.read_plan import ReadPlan, check_modes, scan_of_plan, settings_of, stored_table
from spark_glue.files.stored_events import DirectReadError, Scan
from spark_glue.files.stored_filters import (
    MIRRORED_OPS,
    AndFilter,
    BeginsWith,
    ColumnComparison,
    ConstantFilter,
    FileFilter,
    IsTrue,
    NotFilter,
    NullFilter,
    OneOf,
    OrFilter,
)
from spark_glue.files.stores import address_of
from spark_glue.schema import to_arrow
from spark_glue.sessions import PARTITIONING, is_connect, java_strings, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_LISTINGS = ("InMemoryFileIndex", "PrunedInMemoryFileIndex", "CatalogFileIndex")
"""Listings of files that all belong to the table, with all their rows."""
_CALLED = {
    "Join": "it joins",
    "Aggregate": "it aggregates",
    "GlobalLimit": "it is limited",
    "LocalLimit": "it is limited",
    "MapInArrow": "its rows come from a function of Python, as those of tables do",
    "Sample": "it is a sample",
    "Union": "it is a union",
    "InMemoryRelation": "it is cached",
    "LogicalRDD": "its rows are in memory, or come from an RDD",
    "LocalRelation": "its rows are in memory",
    "Window": "it has window functions",
    "Generate": "it generates rows",
}
_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}


def read_plan(df: DataFrame) -> ReadPlan:
    """Return the read of files that a DataFrame of a classic session is.

    Raises
    ------
    DirectReadError
        With the reason, if it is anything but stored Parquet, filters and a choice of its columns, in any order and
        partitions.
    """
    if df.storageLevel.useMemory or df.storageLevel.useDisk:
        raise DirectReadError(_CALLED["InMemoryRelation"])
    plan = df._jdf.queryExecution().optimizedPlan()
    output = [attribute.exprId().id() for attribute in _items(plan.output())]
    projections, conditions = [], []
    while (node := str(plan.nodeName())) in ("Project", "Filter", *PARTITIONING):
        if node == "Project":
            projections.append(plan.projectList())
        elif node == "Filter":
            conditions.append(plan.condition())
        plan = plan.child()
    table = stored_table(plan)
    if table is not None:
        stored = [table.stored.get(str(attribute.name()), str(attribute.name())) for attribute in _items(plan.output())]
        schema = st.StructType.fromJson(json.loads(plan.schema().json()))
        schema = st.StructType([st.StructField(name, each.dataType) for name, each in zip(stored, schema, strict=True)])
    else:
        relation = _relation(plan)
        schema = st.StructType.fromJson(json.loads(relation.schema().json()))
        stored = [str(attribute.name()) for attribute in _items(plan.output())]
    ids = [attribute.exprId().id() for attribute in _items(plan.output())]
    walker = _Walker(dict(zip(ids, stored, strict=True)), schema)
    for projection in reversed(projections):
        walker.project(projection)
    columns = tuple(walker.columns[number] for number in output)
    pushed = tuple(walker.condition(condition) for condition in conditions)
    if table is not None:
        return ReadPlan(
            *(columns, schema, pushed, table.paths, table.folders), values=table.values, deleted=table.deleted
        )
    buckets = relation.bucketSpec()
    return ReadPlan(
        columns=columns,
        schema=schema,
        conditions=pushed,
        paths=tuple(java_strings(df.sparkSession, relation.location().inputFiles())),
        folders=tuple(relation.partitionSchema().fieldNames()),
        bucket_by=tuple(map(str, _items(buckets.get().bucketColumnNames()))) if buckets.isDefined() else (),
        options=_store_settings(df, relation),
    )


def _relation(plan: Any) -> Any:
    """Return the relation of Parquet files that a leaf of a plan reads."""
    node = str(plan.nodeName()).split(" ")[0]
    if node != "LogicalRelation":
        raise DirectReadError(_CALLED.get(node) or f"its plan has {node}, which is no read of files")
    relation = plan.relation()
    kind = str(relation.getClass().getSimpleName())
    if kind != "HadoopFsRelation":
        raise DirectReadError(f"it reads a {kind}, not files")
    if str(relation.fileFormat().getClass().getName()) != _PARQUET:
        raise DirectReadError(f"it reads files of the format {relation.fileFormat().toString()}, not Parquet")
    listing = str(relation.location().getClass().getSimpleName())
    if listing not in _LISTINGS:
        raise DirectReadError(f"its files are listed by {listing}, which may leave out rows of theirs")
    return relation


class _Walker:
    """Columns of a plan, by the numbers that Spark gives them, as columns of files."""

    def __init__(self, columns: dict[int, str], schema: st.StructType) -> None:
        names = set(schema.names)
        for name in columns.values():
            if name not in names:
                raise DirectReadError(f"it reads {name!r}, which Spark adds to the rows of a file")
        self.columns = columns

    def project(self, projection: Any) -> None:
        """Take in the columns of a projection, from the lowest up."""
        for each in _items(projection):
            if _class_name(each) == "Alias":
                self.columns[each.exprId().id()] = self.column(each.child())
            else:
                self.column(each)

    def column(self, expression: Any) -> str:
        """Return the column of the files that an expression is."""
        if _class_name(expression) != "AttributeReference":
            raise DirectReadError(f"it computes {_catalyst_text(expression)}")
        return self.columns[expression.exprId().id()]

    def condition(self, expression: Any) -> FileFilter:
        """Return a condition of a filter."""
        kind = _class_name(expression)
        if kind in ("And", "Or"):
            both = self.condition(expression.left()), self.condition(expression.right())
            return AndFilter(*both) if kind == "And" else OrFilter(*both)
        if kind == "Not":
            return NotFilter(self.condition(expression.child()))
        if kind == "Literal":
            return ConstantFilter(_catalyst_literal(expression).as_py())
        if kind == "AttributeReference":
            return IsTrue(self.column(expression))
        if kind in ("IsNull", "IsNotNull"):
            null = NullFilter(self._compared_column(expression, expression.child()))
            return null if kind == "IsNull" else NotFilter(null)
        if kind in _COMPARISONS:
            operator, left, right = _COMPARISONS[kind], expression.left(), expression.right()
            if _class_name(left) == "Literal":
                operator, left, right = MIRRORED_OPS[operator], right, left
            return ColumnComparison(
                operator, self._compared_column(expression, left), _catalyst_literal(right, expression)
            )
        if kind == "In":
            column = self._compared_column(expression, expression.value())
            return OneOf(column, tuple(_catalyst_literal(value, expression) for value in _items(expression.list())))
        if kind == "InSet":
            column, values = self._compared_column(expression, expression.child()), expression.hset().iterator()
            spark = _spark_type(expression.child())
            listed = []
            while values.hasNext():
                listed.append(_scalar(values.next(), spark, expression))
            return OneOf(column, tuple(listed))
        if kind == "StartsWith":
            value = _catalyst_literal(expression.right(), expression)
            if pa.types.is_string(value.type) and value.is_valid:
                return BeginsWith(self._compared_column(expression, expression.left()), value.as_py())
        raise _not_pushed_error(expression)

    def _compared_column(self, condition: Any, expression: Any) -> str:
        """Return the column that a condition is on; one of a collation other than binary is refused."""
        if _class_name(expression) != "AttributeReference":
            raise _not_pushed_error(condition)
        if str(expression.dataType().json()).startswith('"string ') or "collat" in str(expression.dataType().json()):
            raise _not_pushed_error(condition)
        return self.column(expression)


def _not_pushed_error(condition: Any) -> DirectReadError:
    return DirectReadError(f"its filter {_catalyst_text(condition)} is one that Spark evaluates")


def _catalyst_literal(expression: Any, condition: Any = None) -> pa.Scalar:
    """Return the value of a literal."""
    if _class_name(expression) != "Literal":
        raise _not_pushed_error(condition if condition is not None else expression)
    return _scalar(expression.value(), _spark_type(expression), condition)


def _scalar(value: Any, spark: st.DataType, condition: Any) -> pa.Scalar:
    """Return a value of Spark's, times as microseconds or days, as one of Arrow."""
    kind = to_arrow(st.StructType([st.StructField("value", spark)])).field(0).type
    if value is None:
        return pa.scalar(None, kind)
    if pa.types.is_string(kind):
        return pa.scalar(str(value.toString()) if hasattr(value, "toString") else str(value), kind)
    if isinstance(value, bool | int | float):
        return pa.scalar(value, kind)
    raise _not_pushed_error(condition)


def _spark_type(expression: Any) -> st.DataType:
    field = {"name": "value", "type": json.loads(expression.dataType().json()), "nullable": True, "metadata": {}}
    return st.StructType.fromJson({"fields": [field]})["value"].dataType


def _class_name(jvm_object: Any) -> str:
    return str(jvm_object.getClass().getSimpleName())


def _catalyst_text(expression: Any) -> str:
    text = re.sub(r"#\d+L?", "", str(expression.toString()))
    return text if len(text) <= 80 else f"{text[:77]}..."


def _items(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a sequence of Scala."""
    for i in range(sequence.size()):
        yield sequence.apply(i)


def _store_settings(df: DataFrame, relation: Any) -> dict[str, str]:
    """Return the settings of the file systems that the relation's paths are on, after a check of the others."""
    schemes = {str(path.toUri().getScheme()) for path in _items(relation.location().rootPaths())}
    options = relation.options()
    names = (str(name) for name in _items(options.keySet().toSeq()))
    partition_values = {name: str(options.apply(name)) for name in names}
    check_modes(df.sparkSession, partition_values)
    own = {name: value for name, value in partition_values.items() if name.startswith("fs.")}
    return {**settings(df.sparkSession, settings_of(schemes)), **own}


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
        partition_values = str(error).strip().partition("\n")[0] or type(error).__name__
        raise DirectReadError(f"its plan cannot be read: {partition_values}") from error
    return scan_of_plan(plan, df.schema)


def _read_plan(df: DataFrame) -> ReadPlan:
    if is_connect(df):
        from spark_glue.files import connect

        return connect.read_plan(df)
    return read_plan(df)


def scan_of_paths(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], opener: Opener | None = None
) -> Scan:
    """Return the scan of files and folders, of Parquet or Arrow IPC; folders ``column=value`` encode columns.

    The types are those that Spark gives the first file, times in microseconds.  Columns encoded in the folders
    below a given one are integers, floating-point numbers or dates where all their values are such, else strings.

    Parameters
    ----------
    paths
        Files, folders, or patterns such as ``day=*/*.parquet``, as paths or URIs.
    opener
        Opener of them; by default (None) of local files, and stores without settings.

    Raises
    ------
    EventsError
        If there is no file, one cannot be read, or folders encode other columns for one file than for another.
    """
    opener = Opener() if opener is None else opener
    paths_read = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if not paths_read:
        raise EventsError("expected the path of a file or folder, got none")
    files = opener.files(paths_read)
    stored = opener.format(files[0]).schema(opener, files[0])
    folders = _folders(files, paths_read)
    kinds = {name: _folder_type(files, name) for name in folders}
    fields = [f for f in _types_of_spark(stored) if f.name not in kinds]
    schema = pa.schema([*fields, *(pa.field(name, kind) for name, kind in kinds.items())])
    return Scan(paths=tuple(files), schema=schema, folders=tuple(kinds), options=dict(opener.options))


def _folders(files: list[str], roots_read: list[str]) -> list[str]:
    """Return the columns encoded in folders below the given ones."""
    roots = [
        address_of(path if address_of(path).scheme else os.path.abspath(path)).path.rstrip("/") for path in roots_read
    ]
    columns: list[str] | None = None
    for file in files:
        path = address_of(file).path
        root = max((root for root in roots if path.startswith(root + "/")), key=len, default=path)
        parts = path[len(root) + 1 :].split("/")[:-1]
        names = [unquote(part.partition("=")[0]) for part in parts if "=" in part]
        if columns is not None and names != columns:
            raise EventsError(f"{file}: its folders tell {names}, and those of {files[0]} {columns}")
        columns = names
    return columns or []


def _folder_type(files: list[str], name: str) -> pa.DataType:
    """Return the type that Spark gives the values of a column encoded in folders."""
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
