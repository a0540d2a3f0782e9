"""The bare stage: queries over one stream, as the function that ``DataFrame.mapInArrow`` takes.

The stage retains only the state of its queries from batch to batch: it takes one batch at a time, and yields the
matches of a batch in pieces before it requests the next one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cer_gpu.engine.evaluation_options import OF_ARRIVALS, EvaluationOptions, options_by_name
from cer_gpu.evaluable import CompiledQuery
from spark_glue.errors import StreamSplitError
from spark_glue.work import Work, WorkEvaluator, work_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@options_by_name
def match_stage(query: Any, **options: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``df.mapInArrow(match_stage(query), match_schema(query, df))``.

    All rows of the DataFrame are one stream, in the order in which they come, and must be in one
    partition: ``df.coalesce(1)``, and ``.sortWithinPartitions(time)`` after it where they are not in order.
    Positions count the rows from 0.

    Parameters
    ----------
    query
        Result of `cer_gpu.compile` or `cer_gpu.compile_all`, pickled to the worker; nothing is compiled there.
    **options
        Options of `cer_gpu.EvaluationOptions` for an evaluator: ``output``, ``lateness``, ``limit``, ``shard`` and
        more.

    Returns
    -------
    Callable
        Function from an iterator of record batches to another. It can be pickled, and each call starts anew.

    Raises
    ------
    OptionError
        For an unknown option, or a value that it cannot have.
    StreamSplitError
        On the worker, if a row comes from a partition other than the first, or from a streaming DataFrame, where
        every micro-batch would be a stream of its own. A worker does not know the number of partitions; further ones
        without rows go unnoticed, and do no harm.
    CerError
        On the worker, the errors of ``query.evaluator``: a missing column, a time that decreases.
    """
    evaluation = EvaluationOptions.from_names(options, OF_ARRIVALS)
    return MatchStage(_work(query, evaluation.output), evaluation)


def _work(query: Any, output: str | None) -> Work:
    return work_of(query, query.resolve_output(output) if isinstance(query, CompiledQuery) else output)


@options_by_name
def match_schema(query: Any, df: DataFrame | StructType, *, output: str | None = None) -> StructType:
    """Return the schema of the rows of `match_stage`, an argument of ``mapInArrow``.

    Parameters
    ----------
    query
        As given to `match_stage`.
    df
        The DataFrame that the stage will read, or its schema. No row is read.
    output
        As given to `match_stage`.

    Raises
    ------
    CerError
        If the query does not match the DataFrame: a missing column, an unsupported type.
    """
    from pyspark.sql.types import StructType

    from spark_glue import schema

    events = df if isinstance(df, StructType) else df.schema
    return schema.to_spark(_work(query, output).output_schema(schema.to_arrow(events)))


@dataclass(frozen=True)
class MatchStage:
    """Function of `match_stage`; a class, because pickle refers to it by name."""

    work: Work
    options: EvaluationOptions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the matches of one stream, batch by batch."""
        evaluator: WorkEvaluator | None = None
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if evaluator is None:
                refuse_parts()
                evaluator = self.work.evaluator(self.options, self.work.output_schema(batch.schema))
            yield from map(plain_batch, evaluator.push_batches(batch))
        if evaluator is not None:
            yield from map(plain_batch, evaluator.finish_batches())


def refuse_parts(*, by_key: bool = False) -> None:
    """Raise `StreamSplitError` if this task of Spark holds only a part of its stream; outside of Spark, do nothing.

    With `by_key`, a task may hold some of the keys.
    """
    if "pyspark" not in sys.modules:
        return
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return
    if task.getLocalProperty("streaming.sql.batchId") is not None:
        raise StreamSplitError(
            "match_stage evaluates a stored DataFrame; of a streaming one, it would begin anew with each "
            "micro-batch and lose the matches that span two\n"
            "hint: match_stream(stream, query, ...), or foreachBatch(match_batches(query, ...))"
        )
    if task.partitionId() > 0 and not by_key:
        raise StreamSplitError(
            "match_stage evaluates one stream, but the rows come in several partitions "
            f"(this task has partition {task.partitionId()}), each of which would be a stream of its own\n"
            "hint: put them into one, in order: df.coalesce(1).sortWithinPartitions(time column)"
        )


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the types that Spark takes: no dictionaries, durations in microseconds."""
    schema = plain_schema(batch.schema)
    return batch if schema.types == batch.schema.types else batch.cast(schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the types that Spark takes, as `plain_batch`."""
    return pa.schema([field.with_type(_without_encodings(field.type)) for field in schema])


def _without_encodings(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.duration("us") if pa.types.is_duration(kind) else kind
