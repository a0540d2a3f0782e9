"""Results of a job over stored files, written by its tasks: matches pass through no Java.

Each task writes a hidden Parquet file and returns its name; the driver makes the files visible that tasks which
succeeded returned, so that attempts that failed, or ran twice, leave nothing.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from cer_gpu.columnar.columns import is_string
from spark_glue.files.file_evaluation import evaluate_piece
from spark_glue.files.file_plan import FilePlan, PackedPlan
from spark_glue.files.opening import Opener
from spark_glue.files.read_plan import settings_of
from spark_glue.files.stores import address_of
from spark_glue.schema import to_spark
from spark_glue.sessions import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODECS = {"none": "none", "uncompressed": "none", "snappy": "snappy", "gzip": "gzip", "zstd": "zstd", "lz4_raw": "lz4"}
"""Compressions of Parquet by the names of Spark, as pyarrow calls them."""
ROW_GROUP_ROWS = 1 << 20
"""Most matches of a row group."""
_ROW_METADATA = "org.apache.spark.sql.parquet.row.metadata"
"""Key under which Spark stores the types of the columns in the footer of a file."""


@dataclass(frozen=True)
class WritingTask:
    """Evaluation of pieces by their numbers, each to a file of its own.

    It is a class because pickle refers to it by name.

    Attributes
    ----------
    plan : FilePlan or PackedPlan
    folder
        Path or URI of the folder, which exists.
    opener : Opener
        Way to its file system.
    schema : pyarrow.Schema
        Columns of the results, with their metadata of Spark.
    codec
        Compression, as pyarrow calls it.
    report
        As that of `spark_glue.files.file_job.FileTask`.
    """

    plan: FilePlan | PackedPlan
    folder: str
    opener: Opener
    schema: pa.Schema
    codec: str
    report: Any = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the matches of pieces, and yield the names of the files.

        Parameters
        ----------
        batches
            Batches of one column: the numbers of pieces, int64.
        """
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            names = [name for number in numbers if (name := self._write_piece(number)) is not None]
            yield pa.record_batch([pa.array(names, pa.string())], names=["name"])

    def _write_piece(self, number: int) -> str | None:
        """Write the matches of a piece; return None if it has none and another piece writes the columns."""
        files, folder = self.opener.place(self.folder)
        name = f"part-{number:05}-{uuid.uuid4().hex}.{self.codec}.parquet"
        path = f"{folder}/{hidden(name)}"
        writer: pq.ParquetWriter | None = None
        try:
            for matches in evaluate_piece(self.plan, number, self.report):
                if matches.num_rows:
                    writer = writer or self._writer(files, path)
                    writer.write_batch(matches.cast(self.schema), ROW_GROUP_ROWS)
            if writer is None and number == 0:
                writer = self._writer(files, path)
            if writer is None:
                return None
            writer.close()
        except BaseException:
            if writer is not None:
                with contextlib.suppress(Exception):
                    writer.close()
                with contextlib.suppress(Exception):
                    files.delete_file(path)
            raise
        return name

    def _writer(self, files: fs.FileSystem, path: str) -> pq.ParquetWriter:
        # numbers and times of matches seldom repeat: a dictionary of them would be computed only to be dropped
        strings = [field.name for field in self.schema if is_string(field.type)]
        return pq.ParquetWriter(path, self.schema, filesystem=files, compression=self.codec, use_dictionary=strings)


def hidden(name: str) -> str:
    """Return the name of a file before the end of its job; readers pass it over."""
    return f".{name}.unfinished"


def writing_task(spark: SparkSession, plan: FilePlan, folder: str, codec: str, report: Any = None) -> WritingTask:
    """Return the task that writes the results of a plan into a folder.

    Parameters
    ----------
    spark
    plan
    folder
        Path or URI.
    codec
        One of `CODECS`.
    report
        As that of `spark_glue.files.file_job.FileTask`.

    Raises
    ------
    DirectReadError
        If tasks cannot write there by themselves.
    """
    opener = Opener({**plan.opener.options, **settings(spark, settings_of({address_of(folder).scheme}))})
    opener.place(folder)
    # the types of Spark, which it reads from the footer, as in files that it writes
    schema = plan.schema.with_metadata({_ROW_METADATA: to_spark(plan.schema).json()})
    return WritingTask(plan, folder, opener, schema, CODECS[codec], report)


def written(spark: SparkSession, task: WritingTask) -> list[str]:
    """Evaluate all pieces in a job of Spark, a task for each, and return the names of the files with the results."""
    numbers = spark.range(0, task.plan.n_pieces, 1, task.plan.n_pieces)
    return [row[0] for row in numbers.mapInArrow(task, "name string").collect()]
