"""Job over stored files: Spark distributes numbers of pieces to tasks, which read and evaluate these themselves.

No row of the events comes from Spark: `DataFrame.mapInArrow` hands a task the numbers of its pieces alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cer_gpu.columnar.fields import columns_with
from spark_glue.files.file_evaluation import evaluate_piece
from spark_glue.files.file_plan import FilePlan, PackedPlan
from spark_glue.files.footers import Footer, FooterTask, find_footers, surveyed
from spark_glue.files.opening import Opener
from spark_glue.files.pieces import plan
from spark_glue.files.stored_events import FileFooters, Scan
from spark_glue.files.stored_formats import Bounds
from spark_glue.schema import to_spark
from spark_glue.sessions import job_description, short, tasks_at_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_glue.work import Work


@dataclass(frozen=True)
class FileTask:
    """Evaluation of pieces by their numbers.

    It is a class because pickle refers to it by name.

    Attributes
    ----------
    plan : FilePlan or PackedPlan
    report
        Accumulator, or None; its ``add`` is called with {number: `spark_glue.distribution.TaskReport`} at the end of
        each piece.

    Examples
    --------
    >>> numbers = spark.range(0, plan.n_pieces, 1, plan.n_pieces)  # doctest: +SKIP
    >>> numbers.mapInArrow(FileTask(plan), to_spark(plan.schema))  # doctest: +SKIP
    """

    plan: FilePlan | PackedPlan
    report: Any = None

    @property
    def __name__(self) -> str:
        """Name of the function in the plans that Spark shows: what is evaluated, and how."""
        return self.plan.title

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the matches of pieces.

        Parameters
        ----------
        batches
            Batches of one column: the numbers of pieces, int64.
        """
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from evaluate_piece(self.plan, number, self.report)


MAX_FOOTERS_HERE = 4096
"""Most footers that this process reads itself; a job reads more."""
MAX_SURVEYED_HERE = 32
"""Most row groups without statistics whose order column this process reads itself; a job reads more."""
_PER_TASK = 4


def plan_files(
    spark: SparkSession, scan: Scan, work: Work, order: Sequence[str], distribution: str, n_tasks: int
) -> FilePlan:
    """Plan a job over the files of a scan; footers are read here.

    Parameters
    ----------
    spark
        Session that reads the order column where footers lack its bounds.
    scan, work, order, distribution, n_tasks
        As for `spark_glue.files.pieces.plan`.

    Raises
    ------
    DirectReadError
        If tasks cannot read the files by themselves, or not fast enough.
    CerError
        If the query does not match the schema of the events.
    """
    opener = Opener(scan.options)
    return plan(_row_groups_of(spark, scan, work, order, opener), work, order, distribution, n_tasks, opener=opener)


def _row_groups_of(spark: SparkSession, scan: Scan, work: Work, order: Sequence[str], opener: Opener) -> FileFooters:
    """Return the row groups of a scan, after a check of the columns that are read in all files."""
    # filters may be on columns that the events do not have: they are checked under names of their own
    hidden = {f"$filter {f.name}": f for f in scan.filter_columns}
    checked = replace(
        scan,
        schema=pa.schema([*scan.schema, *(pa.field(name, f.type) for name, f in hidden.items())]),
        stored={**scan.stored, **{name: f.name for name, f in hidden.items()}},
    )
    tops = [name for name in scan.schema.names if name in _tops(scan, work, order)]
    survey = partial(_survey_bounds, spark, work, opener, scan.stored.get(order[0], order[0]), order[0], scan)
    footers = find_footers(
        *(checked, work.type_column, order[0]),
        columns=[*tops, *hidden],
        survey=survey,
        job=partial(_read_footers, spark, work) if len(scan.paths) > MAX_FOOTERS_HERE else None,
        opener=opener,
    )
    return replace(footers, scan=scan)


def _read_footers(spark: SparkSession, work: Work, task: FooterTask) -> list[Footer]:
    """Return the footers of files, which tasks read."""
    n_files = len(task.paths)
    n_tasks = min(n_files, _PER_TASK * tasks_at_once(spark))
    numbers = spark.range(0, n_files, 1, n_tasks)
    with job_description(spark, f"{short(work.text)}: read the footers of {n_files:,} files"):
        read = numbers.mapInArrow(partial(_footers_of, task), "number long, footers binary").collect()
    footers: list[Footer] = []
    for row in sorted(read, key=lambda row: int(row[0])):
        footers += pickle.loads(row[1])
    # an error is raised here, where a file is read once more
    return [footer or task.read_again(number) for number, footer in enumerate(footers)]


def _footers_of(task: FooterTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the number of the first file of each batch, and the footers of its files, pickled."""
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        if numbers:
            arrays = [pa.array(numbers[:1], pa.int64()), pa.array([pickle.dumps(task.read(numbers))], pa.binary())]
            yield pa.record_batch(arrays, names=["number", "footers"])


def _tops(scan: Scan, work: Work, order: Sequence[str]) -> set[str]:
    """Return the columns at the top that tasks read."""
    return set(columns_with(scan.schema, [*work.columns(scan.schema), *order]))


def _survey_bounds(
    spark: SparkSession,
    work: Work,
    opener: Opener,
    column: str,
    name: str,
    scan: Scan,
    groups: list[tuple[str, int]],
) -> Sequence[Bounds]:
    """Return the bounds of the order column in row groups whose footers lack them."""
    task = _Survey(opener, tuple(groups), column, scan.schema.field(name).type)
    if len(groups) <= MAX_SURVEYED_HERE:
        return [task.bounds(number) for number in range(len(groups))]
    n_tasks = min(len(groups), _PER_TASK * tasks_at_once(spark))
    numbers = spark.range(0, len(groups), 1, n_tasks)
    with job_description(spark, f"{short(work.text)}: read {name} of {len(groups):,} row groups without statistics"):
        table = numbers.mapInArrow(task, "number long, low long, high long, n_nulls long").toArrow()
    bounds = {row["number"]: (row["low"], row["high"], row["n_nulls"]) for row in table.to_pylist()}
    return [bounds[number] for number in range(len(groups))]


@dataclass(frozen=True)
class _Survey:
    """Task that reads the bounds of the order column in row groups, by their numbers.

    It is a class because pickle refers to it by name.

    Attributes
    ----------
    opener : Opener
    groups : tuple of (str, int)
        Path of the file and number in it, for each row group.
    column : str
        Name of the order column in the files.
    kind : pyarrow.DataType
        Type of the order column in the events.
    """

    opener: Opener
    groups: tuple[tuple[str, int], ...]
    column: str
    kind: pa.DataType

    def bounds(self, number: int) -> Bounds:
        """Return the bounds in one row group, and the number of NULLs."""
        return surveyed(self.opener, *self.groups[number], self.column, self.kind)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the bounds in the row groups of the given numbers: columns number, low, high and n_nulls, int64."""
        names = ("number", "low", "high", "n_nulls")
        for batch in batches:
            rows = [(number, *self.bounds(number)) for number in batch.column(0).to_pylist()]
            columns = zip(*rows, strict=True) if rows else [() for _ in names]
            yield pa.record_batch([pa.array(list(column), pa.int64()) for column in columns], names=list(names))


def matches_of_plan(spark: SparkSession, plan: FilePlan, report: Any = None) -> DataFrame:
    """Return the matches of a plan as a DataFrame, a task for each piece."""
    numbers = spark.range(0, plan.n_pieces, 1, plan.n_pieces)
    return numbers.mapInArrow(FileTask(plan, report), to_spark(plan.schema))
