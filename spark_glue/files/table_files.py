"""Tables of Delta and Iceberg as DataFrames, without packages of Java.

The files of a snapshot are read as any files of Parquet if they are its rows as they lie;
else each task reads some of them by this package's own readers, for which it needs `deltalake` or `pyiceberg`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cer_gpu.errors import EventsError
from cer_gpu.io.tables.names import TableName
from cer_gpu.io.tables.opening import open_table
from cer_gpu.io.tables.table import PlainFile, TableSnapshot
from spark_glue.files.folders import folder_values
from spark_glue.files.stored_events import DirectReadError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_MAX_TASKS = 1_000
_OF_PATTERNS = "*?[]{}\\"
"""Letters of a path that Spark takes for a pattern."""


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

    table = open_table(name)
    schema = to_spark(table.schema)
    plain = _plain_files(table, to_arrow(schema))
    if plain:
        return _parquet(spark, plain, schema)
    n_files = len(table.files())
    if not n_files:
        return spark.createDataFrame([], schema)
    numbers = spark.range(n_files, numPartitions=min(n_files, _MAX_TASKS))
    return numbers.mapInArrow(_files_of(table.pinned, table.schema, to_arrow(schema)), schema)


def _plain_files(table: TableSnapshot, schema: pa.Schema) -> list[PlainFile] | None:
    """Return the files of a snapshot if Spark's reader of Parquet finds the rows of the table in them."""
    kinds = zip(table.schema.types, schema.types, strict=True)
    if any(kind != own and not pa.types.is_nested(kind) for kind, own in kinds):
        return None
    if len({name.lower() for name in schema.names}) < len(schema.names):  # names are the same in any case to Spark
        return None
    files = table.plain_files()
    for path, folders in files or ():
        own = {name: schema.field(name).type for name in folders}
        if any(map(pa.types.is_timestamp, own.values())) or any(letter in path for letter in _OF_PATTERNS):
            return None
        try:
            if dict(folder_values(path, own)) != folders:
                return None
        except DirectReadError:
            return None
    return files


def _parquet(spark: SparkSession, files: list[PlainFile], schema: StructType) -> DataFrame:
    """Return the rows of files of Parquet, with the columns that their folders tell."""
    reader = spark.read.schema(schema)
    if files[0].folders:
        above = {str(Path(path).parents[len(folders)]) for path, folders in files}
        reader = reader.option("basePath", _of_this_machine(os.path.commonpath(above)))
    paths = [_of_this_machine(file.path) for file in files]
    names = [name.replace("`", "``") for name in schema.names]
    return reader.parquet(*paths).select(*(f"`{name}`" for name in names))


def _of_this_machine(path: str) -> str:
    """Return the address of a file for Spark, whose paths may be those of another system."""
    return f"file://{os.path.abspath(path)}"


def _files_of(
    snapshot: TableName, stored: pa.Schema, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = open_table(snapshot)
        if table.schema != stored:
            raise EventsError(
                f"{snapshot}: its columns changed after its newest snapshot\nhint: give the number of a snapshot"
            )
        files = table.files()
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                for rows in files[number].read(schema.names):
                    yield _plain_columns(rows, schema)

    return read


def _plain_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows without dictionaries, in the types that Spark expects."""
    columns = []
    for column, kind in zip(rows.columns, schema.types, strict=True):
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        columns.append(plain if plain.type == kind else plain.cast(kind))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
