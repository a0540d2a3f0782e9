"""A query over a stored stream as one job: it reads events, writes matches, and returns a summary.

The files of a snapshot of Delta or Iceberg are read as any Parquet files if they have exactly its rows; else each
task reads some of them by this package's own readers, for which it needs `deltalake` or `pyiceberg`, and no package of
Java.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from cer_gpu.cli.tally import FORMS
from cer_gpu.errors import EventsError, OptionError, did_you_mean
from cer_gpu.io.tables.names import TableName, is_table_name
from cer_gpu.io.tables.opening import open_table
from cer_gpu.io.tables.table import PlainFile, PlainFiles, TableSnapshot
from cer_gpu.printable import counted
from cer_gpu.rules.alerts import ALERTS
from spark_glue.distribution import JobOptions, ReportsOfParts, TaskReport, taking_job_options
from spark_glue.errors import plain_errors
from spark_glue.files.folders import folder_values
from spark_glue.files.read_plan import StoredTable, remember_table
from spark_glue.files.stored_events import DirectReadError
from spark_glue.match import MatchJob, plan_match
from spark_glue.result import Result
from spark_glue.sessions import active_session, is_connect, job_description, require_classic, short
from spark_glue.watch import Stage, cancelling, next_stage, progress, stages_since

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from cer_gpu.evaluable import CompiledQuery

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

    table = open_table(_wherever(name))
    schema = to_spark(table.schema)
    plain = _plain_files(table, to_arrow(schema))
    if plain and not plain.stored and _found_by_spark(plain.files, to_arrow(schema)):
        return _parquet(spark, plain.files, schema)
    n_files = len(table.files())
    if not n_files:
        return spark.createDataFrame([], schema)
    numbers = spark.range(n_files, numPartitions=min(n_files, _MAX_TASKS))
    df = numbers.mapInArrow(_files_of(table.pinned, table.schema, to_arrow(schema)), schema)
    if plain:
        folders = tuple(plain.files[0].folders)
        remember_table(
            df,
            StoredTable(
                paths=tuple(file.path for file in plain.files),
                stored=plain.stored,
                folders=folders,
                values={file.path: tuple((key, file.folders[key]) for key in folders) for file in plain.files},
                deleted={file.path: file.deleted for file in plain.files if file.deleted is not None},
            ),
        )
    return df


def _wherever(name: str) -> TableName:
    """Return the name of a table that workers find it by, whose working folders are others."""
    table_name = TableName.parse(name)
    assert table_name is not None
    is_path = table_name.kind == "delta" or "/" in table_name.place
    if not is_path or table_name.place.startswith("file:/") or "://" in table_name.place:
        return table_name
    return replace(table_name, place=os.path.abspath(table_name.place))


def _plain_files(table: TableSnapshot, schema: pa.Schema) -> PlainFiles | None:
    """Return the files of a snapshot, some at least, if a reader of Parquet finds the rows of the table in them."""
    kinds = zip(table.schema.types, schema.types, strict=True)
    if any(kind != own and not pa.types.is_nested(kind) for kind, own in kinds):
        return None
    if len({name.lower() for name in schema.names}) < len(schema.names):  # names are the same in any case to Spark
        return None
    plain = table.plain_files()
    return plain if plain and plain.files else None


def _found_by_spark(files: Sequence[PlainFile], schema: pa.Schema) -> bool:
    """Return True if Spark's reader of Parquet finds the same rows in files."""
    for path, folders, deleted in files:
        own = {name: schema.field(name).type for name in folders}
        if deleted is not None or any(map(pa.types.is_timestamp, own.values())):
            return False
        if any(letter in path for letter in _OF_PATTERNS):
            return False
        try:
            if dict(folder_values(path, own)) != folders:
                return False
        except DirectReadError:
            return False
    return True


def _parquet(spark: SparkSession, files: list[PlainFile], schema: StructType) -> DataFrame:
    """Return the rows of files of Parquet, with the columns encoded in their folders."""
    reader = spark.read.schema(schema)
    if files[0].folders:
        above = {str(Path(path).parents[len(folders)]) for path, folders, _ in files}
        reader = reader.option("basePath", _local_address(os.path.commonpath(above)))
    paths = [_local_address(file.path) for file in files]
    names = [name.replace("`", "``") for name in schema.names]
    return reader.parquet(*paths).select(*(f"`{name}`" for name in names))


def _local_address(path: str) -> str:
    """Return the address of a file for Spark, whose paths may be of another operating system."""
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


INPUTS = ("parquet", "csv", "json", "orc", "delta", "table")


@dataclass(frozen=True)
class Summary:
    """Summary of a job.

    Attributes
    ----------
    out
    output
        None if each query of a set has its own.
    n_rows
        Number of events in the stream; in files, before filters.
    n_matches
        Number of matches; of bindings for the outputs "bindings", "measures" and "rows".
    seconds, planning_seconds
        Duration of the whole job, and of what comes before the evaluation: footers are read; or, by rows, a pass counts
        the events and cuts them into ranges, unless each task counts them.
    distribution, reason
    source, source_reason
        "files" or "rows", and the reason.
    input_plan
        Words on the order of the events.
    counted_rows
        True if a pass counted the events beforehand.
    presorted
        True if the events needed no sort, so far as was known before they were read.
    parts : tuple of Done
        Reports by the number of the part; parts without events are left out.
    stages : tuple of Stage
    """

    out: str
    output: str | None
    n_rows: int
    n_matches: int
    seconds: float
    planning_seconds: float
    distribution: str
    reason: str
    source: str
    source_reason: str
    input_plan: str
    counted_rows: bool
    presorted: bool
    n_parts: int
    parts: tuple[TaskReport, ...]
    stages: tuple[Stage, ...]

    @property
    def skew(self) -> float:
        """Events of the largest part, as a multiple of the mean of all parts."""
        read = [part.n_rows for part in self.parts]
        return max(read) * self.n_parts / sum(read) if sum(read) else 1.0

    @property
    def overlap(self) -> float:
        """Events read per event of the stream: more than 1 if several tasks read some."""
        return sum(part.n_rows for part in self.parts) / self.n_rows if self.n_rows else 1.0

    @property
    def peak_memory(self) -> int:
        """Peak memory of the largest worker, in bytes."""
        return max((part.peak_memory for part in self.parts), default=0)

    @property
    def shuffled(self) -> int:
        """Bytes that the stages wrote for one another."""
        return sum(stage.shuffled for stage in self.stages)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers, strings, lists and dictionaries."""
        derived = {name: getattr(self, name) for name in ("skew", "overlap", "peak_memory", "shuffled")}
        return {**asdict(self), **derived}

    def __str__(self) -> str:
        """Return the summary as a few lines of text."""
        output = None if self.output is None else FORMS[self.output]
        matches = counted(
            self.n_matches, "match" if output is None or output.counted or output.numbered else output.row
        )
        counting = "counted beforehand in" if self.counted_rows else "not counted beforehand; planned in"
        if self.source == "rows" and not self.counted_rows:
            counting = "counted by the tasks; planned in"
        lines = [
            f"{counted(self.n_rows, 'event')}, {matches}, {self.seconds:.1f} s, "
            f"{self.n_rows / self.seconds:,.0f} events/s -> {self.out}",
            f"distribution   {self.distribution}: {self.reason}",
            f"source    {self.source}: {self.source_reason}; {self.input_plan}; "
            f"{counting} {self.planning_seconds:.1f} s",
        ]
        if self.parts:
            slowest, usual = max(p.seconds for p in self.parts), mean(p.seconds for p in self.parts)
            lines.append(
                f"parts     {self.n_parts}; the largest has {self.skew:.2f} times the mean; evaluation {usual:.1f} s "
                f"a part, {slowest:.1f} s the slowest; {self.overlap:.2f} events read per event of the stream"
            )
            lines.append(f"memory    {self.peak_memory / 2**20:,.0f} MiB in the largest worker")
        if self.stages:
            lines.append(
                f"stages    {len(self.stages)}; {counted(sum(s.n_tasks for s in self.stages), 'task')}, "
                f"{self.shuffled / 1e6:,.1f} MB shuffled"
            )
        return "\n".join(lines)


@taking_job_options
def run(
    events: Any,
    query: CompiledQuery | Mapping[str, Any],
    out: str,
    *,
    options: JobOptions,
    format: str = "parquet",
    partition_by: Sequence[str] = (),
    overwrite: bool = False,
    show_progress: bool = True,
) -> Summary:
    """Find the matches of a DataFrame, or of files, and write them.

    Parameters
    ----------
    events, query, options
        As for `match`.
    out
        The folder to write, on any file system that Spark knows.  It appears whole or not at all.
    format
        "parquet", "orc", "json", "csv" (for "count", "ends", and measures without lists) or "delta".
    partition_by
        Columns of the result whose values become folders.
    overwrite
        True to replace an existing `out` once the new one is whole.
    show_progress
        True for a bar on standard error, if that is a terminal.

    Returns
    -------
    Summary
        The command line prints its ``str()``.

    Raises
    ------
    OptionError
        Before the job starts: `out` exists already, an option is wrong, or the session is one of Spark Connect.
    QueryTypeError
        Before the job starts: the query does not match the schema of the events.
    CerError
        The error of a worker, unchanged; `SparkJobError` for other failures of Spark.  Nothing is written.
    """
    spark = events.sparkSession if hasattr(events, "sparkSession") else active_session()
    require_classic(
        spark, "run needs accumulators and Hadoop's file systems", "match(events, query, ...).write.parquet(out)"
    )
    context = spark.sparkContext
    result = Result(spark, out, format, partition_by, overwrite=overwrite)
    report = context.accumulator({}, cast(Any, ReportsOfParts()))
    first_stage = next_stage(context)
    begun = time.perf_counter()
    with plain_errors(), progress(context, hidden=not show_progress):
        with cancelling(context):
            match = plan_match(events, query, **vars(options), report=report, check=result.check)
        planned_at = time.perf_counter()
        with job_description(spark, f"{short(match.work.text)}: evaluate by {match.distribution}, and write {out}"):
            result.write(match.df, match.plan, report)
    seconds = time.perf_counter() - begun
    parts = tuple(report.value[number] for number in sorted(report.value))
    return Summary(
        out=out,
        output=match.work.output if match.work.rules is None else ALERTS,
        n_rows=_n_rows_of(match, parts),
        n_matches=sum(part.n_matches for part in parts),
        seconds=seconds,
        planning_seconds=planned_at - begun,
        distribution=match.distribution,
        reason=match.reason,
        source=match.source,
        source_reason=match.source_reason,
        input_plan=match.input_plan,
        counted_rows=match.source == "rows" and match.n_rows is not None,
        presorted=match.presorted,
        n_parts=match.n_parts,
        parts=parts,
        stages=tuple(stages_since(context, first_stage)),
    )


def _n_rows_of(match: MatchJob, parts: Sequence[TaskReport]) -> int:
    """Return the number of rows of the stream of a job that is done."""
    if match.n_rows is not None:
        return match.n_rows
    if match.observed is not None:
        from py4j.protocol import Py4JJavaError

        try:
            return int(match.observed.get["n"])
        except Py4JJavaError:  # nothing was observed: Spark knew without reading that there are no rows
            return 0
    return max((part.n_rows for part in parts), default=0)  # each part has all


def read(
    spark: SparkSession,
    paths: str | Sequence[str],
    format: str = "parquet",
    options: dict[str, str] | None = None,
    schema: str | None = None,
) -> DataFrame:
    """Return the events that Spark reads from files, or from a table.

    Parameters
    ----------
    spark
    paths
        Files or folders; the name of a table, for the format "table"; or ``delta:PATH`` or ``iceberg:NAME``, which
        tasks read by this package's own readers.
    format
        "parquet", "csv", "json", "orc", "delta" or "table".  CSV files have a header, and their types are inferred,
        unless `options` say otherwise.
    options
        More options of Spark's reader.
    schema
        The columns and their types, as Spark writes them: ``"type STRING, ts TIMESTAMP, x DOUBLE"``.

    Raises
    ------
    OptionError
        If the format is unknown, or several tables are named.
    SparkJobError
        If the events cannot be read.
    """
    if format not in INPUTS:
        hint = did_you_mean(format, INPUTS, "formats")
        raise OptionError(f"the format of the events must be one of {', '.join(INPUTS)}, got {format!r}\nhint: {hint}")
    paths = [paths] if isinstance(paths, str) else list(paths)
    if any(map(is_table_name, paths)):
        if len(paths) != 1:
            raise OptionError(f"expected one table, got {len(paths)}: {', '.join(paths)}")
        return table_frame(spark, paths[0])
    with plain_errors():
        if format == "table":
            if len(paths) != 1:
                raise OptionError(f"expected the name of one table, got {len(paths)}")
            return spark.table(paths[0])
        defaults = {"header": "true", "inferSchema": str(schema is None).lower()} if format == "csv" else {}
        reader = spark.read.format(format).options(**{**defaults, **(options or {})})
        if schema is not None:
            reader = reader.schema(schema)
        events = reader.load(paths if len(paths) > 1 or format != "delta" else paths[0])
        if is_connect(events):
            events.schema  # noqa: B018 - requests them from the server, which has not listed the files yet
        return events
