"""Data source "cer" of Spark: the matches of stored files as a DataFrame, view or table.

Spark imports this module in the Python processes that plan a read, and in the tasks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)

from cer_gpu.errors import OptionError
from spark_glue import schema as types_of
from spark_glue.files.file_evaluation import evaluate_piece
from spark_glue.files.stores import RELEVANT, relevant
from spark_glue.sessions import settings, tasks_at_once
from spark_glue.source.source_query import OPTION_NAMES, is_table, requested_options, user_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_glue.files.file_plan import FilePlan
    from spark_glue.source.source_query import StoredQuery

METADATA = "cer.options"
"""Key of the metadata of a column that stores the options of a table: Spark 4 does not pass them to the reader."""


class CerDataSource(DataSource):
    """Matches of stored files.

    Attributes
    ----------
    parallelism : int or None
        Number of tasks of a read unless its options say another; by default (None) one for each core of the driver.
    store : mapping from str to str
        Settings of file systems, besides the options.

    Examples
    --------
    >>> spark.read.format("cer").option("query", text).option("orderBy", "ts").load("/data/events")  # doctest: +SKIP
    """

    parallelism: ClassVar[int | None] = None
    store: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "cer"

    def schema(self) -> StructType:
        """Return the schema of the results.  No event is read.

        Raises
        ------
        CerError
            If an option or the query is wrong, or the query does not match the files.
        """
        options = user_options(self.options)
        schema = types_of.to_spark(self._query(options).schema)
        if is_table(self.options):
            stored = {name: value for name, value in options.items() if name in OPTION_NAMES}
            schema.fields[0].metadata[METADATA] = json.dumps(stored)
        return schema

    def reader(self, schema: StructType) -> CerReader:
        """Return the reader of the columns of a schema.

        Raises
        ------
        CerError
            As `schema`; and if tasks cannot read the files by themselves.
        """
        options = self._read_options(schema)
        query = self._query(options).keeping(schema)
        return CerReader(query.plan(self.parallelism or os.cpu_count() or 1), query.schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Refuse to read a stream.

        Raises
        ------
        OptionError
        """
        raise OptionError("the data source 'cer' reads stored files, not streams\nhint: spark_glue.match_stream")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuse to write.

        Raises
        ------
        OptionError
        """
        raise OptionError("matches are not written by the data source 'cer', only read")

    def _query(self, options: Mapping[str, str]) -> StoredQuery:
        from spark_glue.source.source_query import stored_query

        return stored_query(requested_options({**self.store, **options}))

    def _read_options(self, schema: StructType) -> dict[str, str]:
        """Return the options of a read: the table's, if it reads one."""
        options = user_options(self.options)
        stored = next((field.metadata[METADATA] for field in schema if METADATA in field.metadata), None)
        if options.keys() & {"query", "queryFile", "queries"}:
            return options
        if stored is None:
            raise OptionError(
                "expected the option query or queryFile or queries, got none of them: Spark keeps no options of a "
                "table that declares its columns\n"
                "hint: CREATE TABLE matches USING cer OPTIONS (query '...', ...), and the option columns for some"
            )
        more = [name for name in options if name in OPTION_NAMES]
        if more:
            raise OptionError(
                f"a table has the options that it was created with, and takes no others; got {', '.join(more)}\n"
                "hint: create another table or a temporary view USING cer"
            )
        return {**options, **json.loads(stored)}


def data_source_of(spark: SparkSession) -> type[CerDataSource]:
    """Return the data source with what a session says: its number of tasks at once, and settings of file systems."""
    attributes = {"parallelism": tasks_at_once(spark), "store": relevant(settings(spark, RELEVANT))}
    # a class that no module names is pickled with its attributes
    return type("CerDataSourceOfSession", (CerDataSource,), attributes)


@dataclass(frozen=True)
class InputPiece(InputPartition):
    """Piece of the files' rows, that one task evaluates.

    Attributes
    ----------
    number : int
    """

    number: int


class CerReader(DataSourceReader):
    """Reader of the matches of planned files; it is sent to the tasks.

    It takes no filters (``pushFilters``): Spark 4.1 to 4.3 keep one planned read for all scans of a relation, so that
    filters of one would drop rows of another.

    Parameters
    ----------
    plan
    schema
        The selected columns, in the types of Spark.
    """

    def __init__(self, plan: FilePlan, schema: pa.Schema) -> None:
        self.plan = plan
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the pieces."""
        return [InputPiece(number) for number in range(self.plan.n_pieces)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the matches that a piece reports, as record batches of the schema.

        Raises
        ------
        CerError
            As `evaluate_piece`: a file has changed, cannot be read, or holds events that are wrong.
        """
        if isinstance(partition, InputPiece):  # Spark makes another one where there is no piece
            for batch in evaluate_piece(self.plan, partition.number):
                yield _cast_to_schema(batch, self.schema)


def _cast_to_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema in its very types: Spark compares them."""
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
