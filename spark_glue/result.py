"""Output folder of a job, which appears whole or not at all; matches pass through no Java.

Each task writes a hidden file of Parquet and tells its name; the driver makes the files visible of which tasks that
ended told, so that attempts that failed, or ran twice, leave nothing.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from cer_gpu.columnar.columns import is_string
from cer_gpu.errors import OptionError, did_you_mean
from spark_glue.errors import plain_errors
from spark_glue.files.file_evaluation import evaluate_piece
from spark_glue.files.file_plan import FilePlan
from spark_glue.files.opening import Opener
from spark_glue.files.read_plan import settings_of
from spark_glue.files.stored_events import DirectReadError
from spark_glue.files.stores import address_of
from spark_glue.schema import to_spark
from spark_glue.sessions import settings
from spark_glue.watch import cancelling, in_another_thread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


CODECS = {"none": "none", "uncompressed": "none", "snappy": "snappy", "gzip": "gzip", "zstd": "zstd", "lz4_raw": "lz4"}
"""Compressions of Parquet by the names of Spark, as pyarrow calls them."""
ROW_GROUP_ROWS = 1 << 20
"""Most matches of a row group."""
_ROW_METADATA = "org.apache.spark.sql.parquet.row.metadata"
"""Key under which Spark keeps the types of the columns in the footer of a file."""


@dataclass(frozen=True)
class WritingTask:
    """Evaluation of pieces by their numbers, each to a file of its own.

    It is a class because pickle refers to it by name.

    Attributes
    ----------
    plan : FilePlan
    folder
        Path or URI of the folder, which exists.
    opener : Opener
        Way to its file system.
    schema : pyarrow.Schema
        Columns of the results, with what Spark keeps of them.
    codec
        Compression, as pyarrow calls it.
    report
        As that of `spark_glue.files.file_job.FileTask`.
    """

    plan: FilePlan
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
            for found in evaluate_piece(self.plan, number, self.report):
                if found.num_rows:
                    writer = writer or self._writer(files, path)
                    writer.write_batch(found.cast(self.schema), ROW_GROUP_ROWS)
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
        # numbers and times of matches seldom repeat: a dictionary of them would be made to be dropped
        texts = [field.name for field in self.schema if is_string(field.type)]
        return pq.ParquetWriter(path, self.schema, filesystem=files, compression=self.codec, use_dictionary=texts)


def hidden(name: str) -> str:
    """Return the name of a file before the end of its job; readers pass it over."""
    return f".{name}.unfinished"


def writing_task(spark: SparkSession, made: FilePlan, folder: str, codec: str, report: Any = None) -> WritingTask:
    """Return the task that writes the results of a plan into a folder.

    Parameters
    ----------
    spark
    made
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
    opener = Opener({**made.opener.options, **settings(spark, settings_of({address_of(folder).scheme}))})
    opener.place(folder)
    # the types of Spark, which it finds again in the footer, as those of files that it writes
    schema = made.schema.with_metadata({_ROW_METADATA: to_spark(made.schema).json()})
    return WritingTask(made, folder, opener, schema, CODECS[codec], report)


def written(spark: SparkSession, task: WritingTask) -> list[str]:
    """Evaluate all pieces in a job of Spark, a task for each, and return the names of the files with the results."""
    numbers = spark.range(0, task.plan.n_pieces, 1, task.plan.n_pieces)
    return [row[0] for row in numbers.mapInArrow(task, "name string").collect()]


CODEC = "spark.sql.parquet.compression.codec"
"""Setting of the compression of Parquet."""
RESULT_FORMATS = ("parquet", "orc", "json", "csv", "delta")
"""Formats of a result; Delta tables commit by themselves."""


class Result:
    """Target of the matches.

    Parameters
    ----------
    spark
    out
        The folder, on any file system that Spark knows.
    format
        One of `RESULT_FORMATS`.
    partition_by
        Columns whose values become folders.
    overwrite
        True to replace an existing folder once the new one is whole.

    Raises
    ------
    OptionError
        If `out` exists already, or `format` is unknown.
    """

    def __init__(
        self, spark: SparkSession, out: str, format: str, partition_by: Sequence[str], *, overwrite: bool
    ) -> None:
        if format not in RESULT_FORMATS:
            raise OptionError(f"the format of the result must be one of {', '.join(RESULT_FORMATS)}, got {format!r}")
        self._format = format
        self._partition_by = list(partition_by)
        self._overwrite = overwrite
        self._out = out
        if format == "delta":
            return
        self._spark = spark
        self._path = _path(spark, out)
        if self._path.getParent() is None:
            raise OptionError(f"{out!r} is no folder that can be written")
        with plain_errors():
            self._files = self._path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
            if not overwrite and self._files.exists(self._path):
                raise OptionError(f"{out} is there already\nhint: another folder, or overwrite=True (--overwrite)")

    def check(self, schema: StructType) -> None:
        """Refuse matches of a schema that cannot be written as asked.

        Raises
        ------
        OptionError
        """
        from pyspark.sql.types import AtomicType

        plain = [f.name for f in schema if isinstance(f.dataType, AtomicType)]
        for name in self._partition_by:
            if name not in plain:
                hint = did_you_mean(name, plain, "columns")
                raise OptionError(f"the result has no column {name!r} to be partitioned by\nhint: {hint}")
        nested = [f.name for f in schema if f.name not in plain]
        if self._format == "csv" and nested:
            raise OptionError(
                f"CSV has no lists, and {nested[0]!r} is one\nhint: another format, or output='count' (--output count)"
            )
        if len(self._partition_by) == len(schema):
            raise OptionError("the result is partitioned by all of its columns: nothing is left to be written")

    def write(self, df: DataFrame, plan: FilePlan | None = None, report: Any = None) -> bool:
        """Write the matches; an error leaves nothing of them behind.

        Parameters
        ----------
        df
        plan : FilePlan, optional
            Plan of the tasks that find them in files; where they can, they write them by themselves.
        report
            That of the tasks.

        Returns
        -------
        bool
            True if tasks wrote them.
        """
        if plan is not None and self._by_tasks(plan, report):
            return True
        writer = df.write.format(self._format).partitionBy(*self._partition_by)
        if self._format == "delta":
            writer.mode("overwrite" if self._overwrite else "errorifexists").save(self._out)
            return False
        with self._unfinished() as place, cancelling(self._spark.sparkContext):
            writer.mode("errorifexists").save(str(place.toString()))
        return False

    def _by_tasks(self, plan: FilePlan, report: Any) -> bool:
        """Let tasks write files of Parquet; False: they cannot, and nothing is written."""
        codec = str(self._spark.conf.get(CODEC, "snappy")).lower() if self._format == "parquet" else ""
        if codec not in CODECS or self._partition_by:
            return False
        folder = str(self._files.makeQualified(self._path).toUri().toString())
        try:
            writing_task(self._spark, plan, folder, codec)
        except DirectReadError:
            return False
        with self._unfinished() as place, cancelling(self._spark.sparkContext):
            self._files.mkdirs(place)
            qualified = str(self._files.makeQualified(place).toUri().toString())
            names = written(self._spark, writing_task(self._spark, plan, qualified, codec, report))
            base = str(place.toString())
            for name in names:
                if not self._files.rename(*(_path(self._spark, f"{base}/{each}") for each in (hidden(name), name))):
                    raise OptionError(f"{name} cannot be moved within {base}")
            for status in self._files.listStatus(place):  # of attempts that failed
                if str(status.getPath().getName()) not in names:
                    self._files.delete(status.getPath(), False)
            self._files.create(_path(self._spark, f"{base}/_SUCCESS")).close()
        return True

    @contextlib.contextmanager
    def _unfinished(self) -> Iterator[Any]:
        """Yield a hidden folder beside the result, which Spark ignores; it becomes the result at the end."""
        sibling = f"{self._path.getParent().toString()}/.{self._path.getName()}.{uuid.uuid4().hex[:12]}"
        place, before = (_path(self._spark, f"{sibling}.{ending}") for ending in ("unfinished", "before"))

        def restore() -> None:
            if self._files.exists(before) and not self._files.exists(self._path):
                self._files.rename(before, self._path)
            self._files.delete(place, True)

        try:
            yield place
            replaced = self._files.exists(self._path)
            if replaced and not self._overwrite:
                raise OptionError(f"{self._out} has come into being meanwhile, and is left as it is")
            if replaced and not self._files.rename(self._path, before):
                raise OptionError(f"{self._out} cannot be moved away, and is left as it is")
            if not self._files.rename(place, self._path):
                raise OptionError(f"the result cannot be moved to {self._out}")
            if replaced:
                self._files.delete(before, True)
        except BaseException:
            in_another_thread(restore)
            raise


def _path(spark: SparkSession, text: str) -> Any:
    """Return a path of Hadoop, which knows its file system."""
    gateway: Any = spark.sparkContext._gateway
    return gateway.jvm.org.apache.hadoop.fs.Path(text)
