"""Tables of Delta and Iceberg as DataFrames: each task reads some of their files by this package's own readers.

Spark's own readers of them need packages of Java; these need `deltalake` or `pyiceberg` on every worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from cer_gpu.io.tables.names import TableName
from cer_gpu.io.tables.opening import open_table, table_name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_TASKS = 1_000


def table_frame(spark: SparkSession, name: str) -> DataFrame:
    """Return the rows of a snapshot of a table, which is the same for all tasks.

    Raises
    ------
    EventsError
        When there is no such table, or Spark has no type for one of its columns.
    OptionError
        When the package that reads it is not installed.
    """
    from spark_glue.schema import to_arrow, to_spark

    table, given = open_table(name), table_name_of(name)
    assert given is not None
    schema = to_spark(table.schema)
    n_files = len(table.files())
    if not n_files:
        return spark.createDataFrame([], schema)
    snapshot = TableName(given.kind, given.place, table.version)
    numbers = spark.range(n_files, numPartitions=min(n_files, _MOST_TASKS))
    return numbers.mapInArrow(_files_of(snapshot, to_arrow(schema)), schema)


def _files_of(snapshot: TableName, schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = open_table(snapshot).files()
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                for rows in files[number].read(schema.names):
                    yield _plain(rows, schema)

    return read


def _plain(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows without dictionaries, in the types that Spark expects."""
    columns = []
    for column, kind in zip(rows.columns, schema.types, strict=True):
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        columns.append(plain if plain.type == kind else plain.cast(kind))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
