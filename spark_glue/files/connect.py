"""Stored files that a DataFrame of Spark Connect reads, from the plan that the client sends."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from spark_glue.files.read_plan import ReadPlan, check_modes, settings_of
from spark_glue.files.stored_events import DirectReadError
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
from spark_glue.sessions import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMPARISONS = {"==": "=", "=": "=", "<=>": "<=>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_NAME = re.compile(r"[A-Za-z_]\w*|`((?:[^`]|``)+)`", re.ASCII)
_GLOB = re.compile(r"[*?\[{]")


def read_plan(df: DataFrame) -> ReadPlan:
    """Return the read of files that a DataFrame of Spark Connect is.

    Raises
    ------
    DirectReadError
        With the reason, if it is anything but stored Parquet, filters and a choice of its columns.
    """
    level = df.storageLevel
    if level.useMemory or level.useDisk:
        raise DirectReadError("it is cached")
    plan: Any = df._plan
    relation = plan.to_proto(df.sparkSession.client).root
    while plan._child is not None:
        plan = plan._child
    frame_type: Any = type(df)
    base: DataFrame = frame_type(plan, df.sparkSession)
    paths, leaf_schema = _leaf(base, relation)
    schema = base.schema
    walker = _Walker(schema.names)
    columns = walker.walk(relation)
    unknown = next((name for name in df.schema.names if name not in columns), None)
    if unknown is not None:
        raise _no_column(unknown)
    return ReadPlan(
        columns=tuple(columns[name] for name in df.schema.names),
        schema=schema,
        conditions=tuple(walker.conditions),
        paths=tuple(paths),
        folders=tuple(name for name in schema.names if name in leaf_schema),
        options=settings(df.sparkSession, settings_of({address_of(path).scheme for path in paths})),
    )


def reads_files(df: DataFrame) -> bool:
    """Return True if each row of a DataFrame of Spark Connect is one of a Parquet file."""
    plan: Any = df._plan
    relation = plan.to_proto(df.sparkSession.client).root
    while (kind := relation.WhichOneof("rel_type")) in _PASSED:
        relation = getattr(relation, kind).input
    return bool(
        kind == "read"
        and relation.read.WhichOneof("read_type") == "data_source"
        and relation.read.data_source.format == "parquet"
    )


def _leaf(base: DataFrame, relation: Any) -> tuple[list[str], set[str]]:
    """Return the files that the plan reads, and the columns encoded in their folders."""
    while (kind := relation.WhichOneof("rel_type")) != "read":
        if kind not in _PASSED:
            raise DirectReadError(f"its plan has {kind}, which is no choice of columns and no filter")
        relation = getattr(relation, kind).input
    read = relation.read
    check_modes(base.sparkSession, dict(read.data_source.options))
    if read.WhichOneof("read_type") == "named_table":
        return _table_files(base, read.named_table)
    source = read.data_source
    if source.format != "parquet" or not source.paths:
        raise DirectReadError(f"it reads files of the format {source.format or 'of the session'}, not Parquet")
    if "mergeschema" in {name.lower() for name in source.options}:
        raise DirectReadError("it is read with the option mergeSchema")
    _check_apart(source.paths)
    files = base.inputFiles()
    roots = [*source.paths, *(value for name, value in source.options.items() if name.lower() == "basepath")]
    if any(_GLOB.search(root) for root in roots) and any("=" in address_of(file).path for file in files):
        raise DirectReadError("its paths are a pattern, so that folders may or may not tell columns")
    return files, _hive_columns(files, [address_of(root).path.rstrip("/") + "/" for root in roots])


def _check_apart(paths: Sequence[str]) -> None:
    """Raise DirectReadError if paths may name a file twice: Spark reads it as often, and lists it once."""
    places = [posixpath.normpath(address_of(path).path) + "/" for path in paths]
    patterns = len(paths) > 1 and any(_GLOB.search(path) for path in paths)
    if patterns or any(one.startswith(other) for one, other in itertools.permutations(places, 2)):
        raise DirectReadError("its paths may name a file twice")


def _table_files(base: DataFrame, table: Any) -> tuple[list[str], set[str]]:
    """Return the files of a table of Parquet, and the columns encoded in their folders."""
    name = table.unparsed_identifier
    if table.options:
        raise DirectReadError(f"the table {name} is read with options")
    job_description = base.sparkSession.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    facts = {row[0]: row[1] for row in job_description}
    if str(facts.get("Provider", "")).lower() != "parquet" or facts.get("Type") not in ("MANAGED", "EXTERNAL"):
        raise DirectReadError(f"{name} is no table of Parquet files")
    files = base.inputFiles()
    return files, _hive_columns(files, ["/"])


def _hive_columns(files: list[str], roots: list[str]) -> set[str]:
    """Return the columns encoded in the folders of files, below the longest of `roots` that a file is in."""
    columns = set()
    for file in files:
        path = address_of(file).path
        root = max((root for root in roots if path.startswith(root)), key=len, default=path)
        columns |= {unquote(part.partition("=")[0]) for part in path[len(root) :].split("/")[:-1] if "=" in part}
    return columns


_PASSED = (
    *("project", "filter", "subquery_alias", "with_columns_renamed", "drop"),
    *("repartition", "repartition_by_expression", "sort"),
)


class _Walker:
    """Columns of a plan, by their names, as columns of files; and its filters."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.conditions: list[FileFilter] = []
        self._of_plan: dict[int, dict[str, str]] = {}

    def walk(self, relation: Any) -> dict[str, str]:
        """Return the stored name of each column of a plan."""
        columns = self._walk(relation)
        self._of_plan[relation.common.plan_id] = columns
        return columns

    def _walk(self, relation: Any) -> dict[str, str]:
        kind = relation.WhichOneof("rel_type")
        if kind == "read":
            return {name: name for name in self.names}
        inner = getattr(relation, kind)
        columns = self.walk(inner.input)
        if kind == "filter":
            self.conditions.append(self._condition_of_plan(inner.condition, columns))
        elif kind == "project":
            chosen: dict[str, str] = {}
            for each in inner.expressions:
                chosen.update(self._projected_columns(each, columns))
            return chosen
        elif kind == "with_columns_renamed":
            renames = {each.col_name: each.new_col_name for each in inner.renames} or dict(inner.rename_columns_map)
            return {renames.get(name, name): stored for name, stored in columns.items()}
        elif kind == "drop":
            if any(self._stored_name(each, columns) != columns.get(_column_name_of(each)) for each in inner.columns):
                raise DirectReadError("a column is dropped that is called otherwise since")
            dropped = {_column_name_of(each) for each in inner.columns} | set(inner.column_names)
            return {name: stored for name, stored in columns.items() if name not in dropped}
        return columns

    def _projected_columns(self, expression: Any, columns: dict[str, str]) -> dict[str, str]:
        """Return the columns that an expression of a projection denotes."""
        kind = expression.WhichOneof("expr_type")
        if kind == "unresolved_star" and not expression.unresolved_star.unparsed_target:
            return columns
        if kind == "alias" and len(expression.alias.name) == 1:
            return {expression.alias.name[0]: self._stored_name(expression.alias.expr, columns)}
        return {_column_name_of(expression): self._stored_name(expression, columns)}

    def _condition_of_plan(self, expression: Any, columns: dict[str, str]) -> FileFilter:
        """Return a condition of a filter."""
        kind = expression.WhichOneof("expr_type")
        if kind == "literal":
            return ConstantFilter(_connect_literal(expression).as_py())
        if kind == "unresolved_attribute":
            return IsTrue(self._stored_name(expression, columns))
        if kind != "unresolved_function":
            raise _not_pushed_error(expression)
        called = expression.unresolved_function
        name, args = called.function_name.lower(), list(called.arguments)
        if name in ("and", "or") and len(args) == 2:
            both = self._condition_of_plan(args[0], columns), self._condition_of_plan(args[1], columns)
            return AndFilter(*both) if name == "and" else OrFilter(*both)
        if name in ("not", "!"):
            return NotFilter(self._condition_of_plan(args[0], columns))
        if name in ("isnull", "isnotnull"):
            null = NullFilter(self._stored_name(args[0], columns))
            return null if name == "isnull" else NotFilter(null)
        if name == "!=":
            equal = self._comparison_of_plan("=", args, columns)
            return NotFilter(equal)
        if name in _COMPARISONS:
            return self._comparison_of_plan(_COMPARISONS[name], args, columns)
        if name == "in":
            values = tuple(map(_connect_literal, args[1:]))
            return OneOf(self._stored_name(args[0], columns), values)
        if name == "startswith":
            value = _connect_literal(args[1])
            if pa.types.is_string(value.type) and value.is_valid:
                return BeginsWith(self._stored_name(args[0], columns), value.as_py())
        raise _not_pushed_error(expression)

    def _stored_name(self, expression: Any, columns: dict[str, str]) -> str:
        """Return the stored name of the column that an expression names, exactly.

        A column of a DataFrame, such as ``df.x``, is the one that this DataFrame calls so, whatever it is called since.
        """
        name = _column_name_of(expression)
        if expression.unresolved_attribute.HasField("plan_id"):
            columns = self._of_plan.get(expression.unresolved_attribute.plan_id, {})
        if name not in columns:
            raise _no_column(name)
        return columns[name]

    def _comparison_of_plan(self, operator: str, args: list[Any], columns: dict[str, str]) -> ColumnComparison:
        left, right = args
        if left.WhichOneof("expr_type") == "literal":
            operator, left, right = MIRRORED_OPS[operator], right, left
        return ColumnComparison(operator, self._stored_name(left, columns), _connect_literal(right))


def _column_name_of(expression: Any) -> str:
    """Return the name of the column that an expression is."""
    if expression.WhichOneof("expr_type") != "unresolved_attribute":
        raise DirectReadError(f"it computes {_connect_text(expression)}")
    text = str(expression.unresolved_attribute.unparsed_identifier)
    whole = _NAME.fullmatch(text)
    if whole is None or expression.unresolved_attribute.is_metadata_column:
        raise _no_column(text)
    return text if whole[1] is None else whole[1].replace("``", "`")


def _no_column(name: str) -> DirectReadError:
    return DirectReadError(f"it reads {name!r}, which is no column of the files by that name")


def _connect_literal(expression: Any) -> pa.Scalar:
    """Return the value of a literal."""
    if expression.WhichOneof("expr_type") != "literal":
        raise _not_pushed_error(expression)
    kind, literal = expression.literal.WhichOneof("literal_type"), expression.literal
    if kind == "null":
        return pa.scalar(None)
    if kind not in _LITERALS:
        raise _not_pushed_error(expression)
    return pa.scalar(getattr(literal, kind), _LITERALS[kind])


_LITERALS = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def _not_pushed_error(expression: Any) -> DirectReadError:
    if expression.WhichOneof("expr_type") == "expression_string":
        return DirectReadError(
            f"its filter {_connect_text(expression)!r} is text, which the server parses: col('x') > 1 is not"
        )
    return DirectReadError(f"its filter {_connect_text(expression)} is one that Spark evaluates")


def _connect_text(expression: Any) -> str:
    """Return an expression as text of one line."""
    kind = expression.WhichOneof("expr_type")
    if kind == "unresolved_function":
        called = expression.unresolved_function
        return f"{called.function_name}({', '.join(map(_connect_text, called.arguments))})"
    if kind == "unresolved_attribute":
        return str(expression.unresolved_attribute.unparsed_identifier)
    if kind == "literal":
        return str(getattr(expression.literal, expression.literal.WhichOneof("literal_type"), "?"))
    if kind == "expression_string":
        return str(expression.expression_string.expression)
    return str(kind)
