"""Table function of SQL: ``SELECT * FROM cer_match(TABLE(events), 'SELECT ...')`` over the rows of any table.

It is a Python table function of Spark: its analysis, in a process of its own, compiles the query for the columns of the
table, and says which of them are read, how the rows are distributed to tasks, and how they are sorted there.  Rows come
as Arrow batches (Spark 4.1 and later).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult, OrderingColumn, PartitioningColumn, SelectedColumn

from cer_gpu.columnar.fields import attribute_type, batch_of
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.errors import OptionError
from cer_gpu.rule import Rule
from spark_glue import schema as types_of
from spark_glue.distribution import MAX_SHARDS, null_error, why_not_distributions
from spark_glue.errors import SparkSetupError
from spark_glue.row_positions import quoted
from spark_glue.sessions import is_connect, tasks_at_once
from spark_glue.source.source_query import requested_options, requested_work, user_options
from spark_glue.stage import plain_batch, plain_schema
from spark_glue.work import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_glue.work import WorkEvaluator

NOT_OF_TABLES = ("path", "paths", "columns", "distribution")
"""Options of the data source that a table function does not take."""
GROUPS_A_TASK = 4
"""Groups of keys for each task that runs at once, so that groups of different sizes even out."""
_FIRST = "$first"
"""Column that says whether the first column of the order is NULL."""


@dataclass
class CerAnalysis(AnalyzeResult):
    """Analysis of a call: what Spark requires of it, and what the tasks need.

    Attributes
    ----------
    work : Work or None
    columns : tuple of str
        Columns and fields that the queries read, in the order in which the rows have them.
    results : pyarrow.Schema or None
        Columns of the matches in types of Spark.
    first
        Name of the first column of the order.
    """

    work: Work | None = None
    columns: tuple[str, ...] = ()
    results: pa.Schema | None = None
    first: str = ""


class CerMatch:
    """Handler of ``cer_match(TABLE(events), query, ...)``; one for each group of keys.

    Attributes
    ----------
    parallelism : int or None
        Tasks that run at once, as the session says; by default (None) as many as this machine has cores.
    """

    parallelism: ClassVar[int | None] = None

    def __init__(self, analysis: CerAnalysis) -> None:
        self._analysis = analysis
        self._evaluator: WorkEvaluator | None = None

    @classmethod
    def _n_groups(cls, tasks: int | None) -> int:
        return tasks or min(GROUPS_A_TASK * (cls.parallelism or os.cpu_count() or 1), MAX_SHARDS)

    @classmethod
    def analyzed(
        cls, events: AnalyzeArgument, query: AnalyzeArgument | None, arguments: Mapping[str, Any]
    ) -> CerAnalysis:
        """Compile the query of a call for its table; no row is read.

        Raises
        ------
        CerError
            If an argument is wrong, or the query does not match the table.
        """
        if not events.isTable or not isinstance(events.dataType, st.StructType):
            raise OptionError("expected a table first\nhint: SELECT * FROM cer_match(TABLE(events), 'SELECT ...')")
        schema = types_of.to_arrow(events.dataType)
        options = user_options({name: _argument_text(name, value) for name, value in arguments.items()}, "cer_match")
        for name in NOT_OF_TABLES:
            if name in options:
                raise OptionError(
                    f"cer_match takes no option {name!r}: it reads the table that it is given\n"
                    "hint: CREATE TEMPORARY VIEW ... USING cer reads files"
                )
        several: Mapping[str, str] | None = None
        if query is not None and isinstance(query.value, Mapping):
            several = query.value
            options["query"] = next(iter(several.values()), "")
        elif query is not None:
            options["query"] = _argument_text("query", query)
        request = requested_options(options, _only_time(events.dataType))
        if several is not None:
            rules = {name: Rule(name, text) for name, text in several.items()}
            request = replace(request, query=rules)
        work = requested_work(request, schema)
        order, columns = request.order_by, work.columns(schema)
        results = plain_schema(work.output_schema(schema))
        ties = [name for name in columns if name not in order]
        return CerAnalysis(
            schema=types_of.to_spark(results),
            partitionBy=[PartitioningColumn(_group(work, order, schema, cls._n_groups(request.tasks)))],
            orderBy=[OrderingColumn(text) for text in (*map(quoted, order), *_ties(schema, ties))],
            select=[
                SelectedColumn(f"{quoted(order[0])} IS NULL", _FIRST),
                *(SelectedColumn(quoted(name), f"${i}") for i, name in enumerate(columns)),
            ],
            work=work,
            columns=tuple(columns),
            results=results,
            first=order[0],
        )

    def eval(self, events: pa.RecordBatch, *query: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield the matches that are known after the next rows of the group.

        Raises
        ------
        CerError
            If the rows do not match the query, or the first column of the order is NULL.
        """
        analysis = self._analysis
        assert analysis.work is not None
        assert analysis.results is not None
        n_nulls = events.column(0).true_count
        if n_nulls:
            raise null_error(analysis.first, n_nulls, events.num_rows)
        if self._evaluator is None:
            self._evaluator = analysis.work.evaluator(EvaluationOptions(), analysis.results)
        rows = batch_of(analysis.columns, events.columns[1:]) if analysis.columns else events.select([])
        yield from map(plain_batch, self._evaluator.push_batches(rows))

    def terminate(self) -> Iterator[pa.RecordBatch]:
        """Yield the matches that the end of the group makes known."""
        if self._evaluator is not None:
            yield from map(plain_batch, self._evaluator.finish_batches())
            self._evaluator = None


def register_function(spark: SparkSession, name: str) -> None:
    """Register the table function with a session; see `spark_glue.register_sql`."""
    from pyspark.util import PythonEvalType

    kind = getattr(PythonEvalType, "SQL_ARROW_UDTF", None)
    if kind is None:
        raise SparkSetupError(
            "table functions over Arrow batches need Spark 4.1 or later\n"
            "hint: spark_glue.register(spark), and CREATE TEMPORARY VIEW ... USING cer"
        )
    function: Any
    if is_connect(spark):
        from pyspark.sql.connect.udtf import UserDefinedTableFunction as function
    else:
        from pyspark.sql.udtf import UserDefinedTableFunction as function
    # PySpark's own decorator `arrow_udtf` refuses functions whose columns depend on their arguments; Spark takes them
    spark.udtf.register(name, function(_handler(tasks_at_once(spark)), None, name, kind))


def _handler(at_once: int) -> type:
    """Return a handler with what a session says; a class that no module names is pickled with its attributes."""

    class CerMatchOfSession(CerMatch):
        parallelism = at_once

        @staticmethod
        def analyze(events: AnalyzeArgument, query: AnalyzeArgument | None = None, **arguments: Any) -> CerAnalysis:
            return CerMatchOfSession.analyzed(events, query, arguments)

    return CerMatchOfSession


def _argument_text(name: str, argument: AnalyzeArgument) -> str:
    """Return the value of an argument as a string.

    Raises
    ------
    OptionError
        If it is no constant.
    """
    value = argument.value
    if argument.isTable or not argument.isConstantExpression or not isinstance(value, str | int | bool):
        kind = argument.dataType.simpleString() if argument.dataType is not None else "NULL"
        raise OptionError(f"the argument {name} of cer_match must be a constant text or number, got {kind}")
    return str(value)


def _only_time(kind: st.StructType) -> tuple[str, ...]:
    """Return the only column of timestamps, by which rows are ordered unless the call says otherwise."""
    times = [field.name for field in kind if isinstance(field.dataType, st.TimestampType | st.TimestampNTZType)]
    return tuple(times) if len(times) == 1 else ()


def _group(work: Work, order: Sequence[str], schema: pa.Schema, n_groups: int) -> str:
    """Return the SQL expression that distributes rows to groups: by their keys if that is exact, else to one."""
    if n_groups == 1 or why_not_distributions(work, order[0])["key"] is not None:
        return "0"
    keys = [f"coalesce({', '.join(map(quoted, names))})" for names in work.partition_keys]
    if not keys:
        keys = [f"coalesce({', '.join(_shared_value(work, schema))})"]
    # equal keys have equal hashes: -0.0 is 0.0, and there is one NaN
    return f"pmod(xxhash64({', '.join(keys)}), {n_groups})"


def _shared_value(work: Work, schema: pa.Schema) -> Iterator[str]:
    """Yield the values that all events of a match have in common (`Distribution.shared`); NULL for other events."""
    for event_type, name in work.distribution.shared:
        kind, value = attribute_type(schema, name), quoted(name)
        if kind is not None and (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            value = f"CAST({value} AS double)"
        if event_type is not None:
            assert work.type_column is not None
            literal = event_type.replace("\\", "\\\\").replace("'", "\\'")
            value = f"CASE WHEN {quoted(work.type_column)} = '{literal}' THEN {value} END"
        yield value


def _ties(schema: pa.Schema, names: Sequence[str]) -> Iterator[str]:
    """Yield expressions of SQL that order rows which agree on the columns of the order, by other columns."""
    for name in names:
        kind = attribute_type(schema, name)
        if kind is None or isinstance(kind, pa.BaseExtensionType):
            continue
        yield f"xxhash64({quoted(name)})" if pa.types.is_nested(kind) else quoted(name)
