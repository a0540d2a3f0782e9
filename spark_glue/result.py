"""Output folder of a job, which appears whole or not at all."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cer_gpu.errors import OptionError, did_you_mean
from spark_glue.errors import plain_errors
from spark_glue.files.stored_events import DirectReadError
from spark_glue.watch import cancelling, in_another_thread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_glue.files.file_plan import FilePlan

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
        """Refuse matches of a schema that cannot be written as requested.

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
        """Write the matches; after an error nothing of them remains.

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
        if plan is not None and self._write_by_tasks(plan, report):
            return True
        writer = df.write.format(self._format).partitionBy(*self._partition_by)
        if self._format == "delta":
            writer.mode("overwrite" if self._overwrite else "errorifexists").save(self._out)
            return False
        with self._unfinished_folder() as place, cancelling(self._spark.sparkContext):
            writer.mode("errorifexists").save(str(place.toString()))
        return False

    def _write_by_tasks(self, plan: FilePlan, report: Any) -> bool:
        """Let tasks write Parquet files; return False if they cannot, and write nothing."""
        from spark_glue.files.result_writing import CODECS, hidden, writing_task, written

        codec = str(self._spark.conf.get(CODEC, "snappy")).lower() if self._format == "parquet" else ""
        if codec not in CODECS or self._partition_by:
            return False
        folder = str(self._files.makeQualified(self._path).toUri().toString())
        try:
            writing_task(self._spark, plan, folder, codec)
        except DirectReadError:
            return False
        with self._unfinished_folder() as place, cancelling(self._spark.sparkContext):
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
    def _unfinished_folder(self) -> Iterator[Any]:
        """Yield a hidden folder next to the result, which Spark ignores; it becomes the result at the end."""
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
