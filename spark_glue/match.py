"""A query over a DataFrame or over files, spread over the tasks of a job, with exactly the rows of a single process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cer_gpu.columnar.fields import attribute_type
from cer_gpu.errors import OptionError, QueryTypeError, did_you_mean
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.printable import counted
from spark_glue.distribution import (
    JobOptions,
    choose_distribution,
    other_distributions,
    taking_job_options,
    way_of_rows,
)
from spark_glue.files.stored_events import DirectReadError, Scan
from spark_glue.row_distribution import RowJob, distribute_rows
from spark_glue.row_positions import ADDED, is_read_cheaply
from spark_glue.sessions import active_session, job_description, settings, short, tasks_at_once
from spark_glue.work import Work, holds_times, work_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from cer_gpu.evaluable import CompiledQuery
    from spark_glue.files.file_plan import FilePlan


@taking_job_options
def match(events: Any, query: CompiledQuery | Mapping[str, Any] | None = None, *, options: JobOptions) -> Any:
    """Find all matches of a DataFrame, or of files.

    Parameters
    ----------
    events : DataFrame, path, or list of paths
        The events; paths are of files and folders, of Parquet or Arrow IPC, and use the active session. Without
        them, `match` returns a function of a DataFrame: ``df.transform(match(query, order_by="ts"))``.
    query : Query or QuerySet
        Result of `cer_gpu.compile` or `cer_gpu.compile_all`, pickled to the workers.  All queries of a set are
        evaluated in one job.  A mapping from names to query texts is compiled, with ``type`` as the column of types,
        and the first column of `order_by` as the time column, if it holds times.
    **options
        Those of `spark_glue.distribution.JobOptions`: ``order_by``, ``distribution``, ``tasks``, ``output`` and
        ``source``.

    Returns
    -------
    DataFrame
        The rows of ``query.evaluate``, in any order; of a set, as in `QuerySet.stream`, with the column ``query``
        (string) before the columns of all queries.  By files, positions are the numbers of the rows in the files in
        the order of their paths; by rows, numbers that identify events, unless ``row_numbers=True``.  The call reads
        the footers of the files; by rows and by range, it reads the first ordering column, to cut the stream into
        ranges.  The rest runs when the result is requested.

    Raises
    ------
    OptionError
        For a distribution that is not exact for the query, with the reason and an exact one.
    DirectReadError
        For source="files", with the reason why tasks cannot read the events by themselves.
    CerError
        If the query does not match the schema of the events.
    """
    options.order  # noqa: B018 - refuses none
    if query is None and isinstance(events, CompiledQuery | Mapping):
        return partial(_match, events, options)
    if query is None:
        raise OptionError("expected a compiled query\nhint: match(events, query, order_by=...)")
    return _match(query, options, events)


def _match(query: CompiledQuery | Mapping[str, Any], options: JobOptions, events: Any) -> DataFrame:
    return plan_match(events, query, **vars(options)).df


@dataclass(frozen=True)
class MatchJob:
    """Result of `match`, and the way to it.

    Attributes
    ----------
    df
        The matches.
    work : Work
    distribution, reason
        The distribution, and the reason for it.
    source, source_reason
        "files" or "rows", and the reason for it.
    n_parts
    n_rows : int or None
        Number of rows in the stream, in files before filters, or None if they were not counted.
    presorted
        True if the rows need no sort, so far as is known before they are read: no two row groups of files overlap.
    input_plan
        Words on the order of the rows.
    plan : FilePlan or None
        Plan of the job by files.
    observed : Observation or None
        Number of rows in the stream as "n", once the matches were read, if no task and no pass counts all of them.
    """

    df: DataFrame
    work: Work
    distribution: str
    reason: str
    source: str
    source_reason: str
    n_parts: int
    n_rows: int | None
    presorted: bool
    input_plan: str
    plan: FilePlan | None = None
    observed: Any = None


@dataclass(frozen=True)
class InputPlan:
    """Way of events to tasks, checked and planned.

    Attributes
    ----------
    work : Work
    df : DataFrame or None
        The events as rows that Spark reads, or None if tasks read the files.
    plan : FilePlan or None
        Plan of the job by files, or None if Spark reads the rows.
    distribution, reason, source_reason
    spark
    events : pyarrow.Schema
    order, n_parts
    """

    work: Work
    df: DataFrame | None
    plan: FilePlan | None
    distribution: str
    reason: str
    source_reason: str
    spark: SparkSession
    events: pa.Schema
    order: tuple[str, ...]
    n_parts: int


@taking_job_options
def plan_input(
    events: Any,
    query: CompiledQuery | Mapping[str, Any],
    *,
    options: JobOptions,
    check: Callable[[Work, pa.Schema], None] = lambda work, schema: None,
) -> InputPlan:
    """Find the way of events to tasks; footers of files are read, and no rows.

    Parameters
    ----------
    events, query, options
        As for `match`.
    check
        Function that is called with the work and the schema of the events once they match the options.

    Raises
    ------
    CerError
        As for `match`.
    """
    order = options.order
    options.n_parts(lambda: 1)  # refuses other sources and numbers
    source = _Events(events, options.source)
    check_order(source.schema.names, order)
    time_column = order[0] if holds_times(attribute_type(source.schema, order[0])) else None
    work = work_of(query, options.output, time_column=time_column, schema=source.schema)
    chosen, reason = choose_distribution(work, options.distribution, order[0])
    check(work, source.schema)
    n_parts = options.n_parts(lambda: tasks_at_once(source.spark))
    context = (source.spark, source.schema, order)
    if source.scan is not None:
        from spark_glue.files.file_job import plan_files

        try:
            with job_description(source.spark, f"{short(work.text)}: plan by files"):
                plan = plan_files(source.spark, source.scan, work, order, options.distribution, n_parts)
            return InputPlan(work, None, plan, plan.distribution, plan.reason, source.reason, *context, n_parts)
        except DirectReadError as error:
            source.by_rows(error)
    if options.tasks is None and chosen == "broadcast":
        n_parts = min(n_parts, work.max_copies or n_parts)
    return InputPlan(work, source.rows(), None, chosen, reason, source.reason, *context, n_parts)


class _Events:
    """Events as they are given, and the way to read them.

    Attributes
    ----------
    spark
    schema : pyarrow.Schema
    scan : Scan or None
        Read of files by tasks, or None if Spark reads the rows.
    reason
        Reason for the one or the other.
    """

    def __init__(self, events: Any, source: str) -> None:
        from spark_glue.schema import to_arrow

        self._source = source
        self._df: Any = None
        self._paths: list[str] = []
        self.scan: Scan | None = None
        self.reason = "as asked"
        if isinstance(events, str | os.PathLike) or (
            isinstance(events, Sequence) and all(isinstance(path, str | os.PathLike) for path in events)
        ):
            paths = [events] if isinstance(events, str | os.PathLike) else events
            self._paths = [os.fspath(path) for path in paths]
            self.spark = active_session()
        elif hasattr(events, "mapInArrow"):
            self._df, self.spark = events, events.sparkSession
        else:
            raise OptionError(f"expected a DataFrame, a path or a list of paths, got {type(events).__name__}")
        if source != "rows":
            try:
                self.scan = self._scan()
                if source == "auto":
                    self.reason = "tasks can read the files by themselves"
            except DirectReadError as error:
                self.by_rows(error)
        self.schema = self.scan.schema if self.scan is not None else to_arrow(self.rows().schema)

    def _scan(self) -> Scan:
        from spark_glue.files.opening import Opener
        from spark_glue.files.read_plan import settings_of
        from spark_glue.files.scan import scan_of, scan_of_paths
        from spark_glue.files.stores import address_of

        if self._df is not None:
            return scan_of(self._df)
        store_settings = settings(self.spark, settings_of({address_of(path).scheme for path in self._paths}))
        return scan_of_paths(self._paths, Opener(store_settings))

    def by_rows(self, error: DirectReadError) -> None:
        """Take the rows of Spark, for a reason.

        Raises
        ------
        DirectReadError
            If tasks must read the files.
        """
        if self._source == "files":
            raise DirectReadError(
                f"tasks cannot read the events by themselves: {error}\nhint: source='auto'"
            ) from error
        self.scan, self.reason = None, str(error).partition("\n")[0]

    def rows(self) -> DataFrame:
        """Return the events as rows that Spark reads.

        Raises
        ------
        OptionError
            If Spark cannot read them.
        """
        from spark_glue.files.opening import Opener
        from spark_glue.files.stored_formats import IPC, named_format

        if self._df is None:
            for path in Opener().files(self._paths):
                if named_format(path) is IPC:
                    raise OptionError(f"{path}: Spark does not read Arrow IPC files, and tasks do not: {self.reason}")
                try:
                    Opener().format(path)
                except DirectReadError as error:
                    raise OptionError(
                        f"{error}, which alone are read by their paths here\n"
                        "hint: logs and text are read by cer_gpu itself (cer-gpu run QUERY PATH), or by Spark as a "
                        "DataFrame (spark.read.json, spark.read.csv)"
                    ) from None
            self._df = self.spark.read.parquet(*self._paths)
        return self._df  # type: ignore[no-any-return]


@taking_job_options
def plan_match(
    events: Any,
    query: CompiledQuery | Mapping[str, Any],
    *,
    options: JobOptions,
    report: Any = None,
    check: Callable[[StructType], None] = lambda schema: None,
) -> MatchJob:
    """Find the matches as `match` does, and return them with the way to them.

    `report` is that of `spark_glue.distribution.Task`; `check` is called with the schema of the result before any row
    is read.
    """
    from spark_glue.schema import to_spark

    def check_result(work: Work, events: pa.Schema) -> None:
        check(to_spark(work.output_schema(events)))

    way = plan_input(events, query, **vars(options), check=check_result)
    if way.plan is not None:
        from spark_glue.files.file_job import matches_of_plan

        return MatchJob(
            df=matches_of_plan(way.spark, way.plan, report),
            work=way.work,
            distribution=way.distribution,
            reason=way.reason,
            source="files",
            source_reason=way.source_reason,
            n_parts=way.plan.n_pieces,
            n_rows=way.plan.n_rows,
            presorted=way.plan.presorted,
            input_plan=way.plan.in_order,
            plan=way.plan,
        )
    assert way.df is not None
    _check_names(way.df)
    with job_description(way.spark, f"{short(way.work.text)}: cut the stream into ranges"):
        job = RowJob(
            *(way.work, way.order, way.distribution, way.n_parts, way.events, report), row_numbers=options.row_numbers
        )
        distributed = distribute_rows(way.df, job)
    input_plan = "the rows are sorted"
    if distributed.n_heavy:
        input_plan += f"; those of {counted(distributed.n_heavy, 'key')} with many are cut by time"
    return MatchJob(
        df=distributed.df,
        work=way.work,
        distribution=way.distribution,
        reason=way.reason,
        source="rows",
        source_reason=way.source_reason,
        n_parts=distributed.n_parts,
        n_rows=distributed.n_rows,
        presorted=False,
        input_plan=input_plan,
        observed=distributed.observed,
    )


def check_order(names: Sequence[str], order: Sequence[str]) -> None:
    """Refuse ordering columns that events with columns of some names lack.

    Raises
    ------
    QueryTypeError
        With the nearest name as the hint.
    """
    for name in order:
        if name not in names:
            hint = did_you_mean(name, list(names), "columns")
            raise QueryTypeError(f"order_by (--order-by) names {name!r}, which the events do not have", hint=hint)


def _check_names(df: DataFrame) -> None:
    """Refuse rows with a column of a reserved name.

    Raises
    ------
    QueryTypeError
    """
    for name in ADDED:
        if name in df.columns:
            raise QueryTypeError(f"the events have a column {name!r}, a name that is needed here", hint="rename it")


@taking_job_options
def explain(
    query: CompiledQuery | Mapping[str, Any],
    distribution: str | None = None,
    events: Any = None,
    order_by: str | Sequence[str] | None = None,
    *,
    options: JobOptions,
) -> str:
    """Return the distribution for a query or a set with its reason, and the other distributions with theirs, as text.

    Parameters
    ----------
    query, distribution
    events
        A DataFrame, a path or a list of paths: it also says whether tasks read files by themselves or get rows
        from Spark, how these are sorted, and how many of them are read. Footers are read, and no rows, unless
        footers lack the bounds of the first column of the order.  None if Spark is not needed.
    order_by, options
        As for `match`; only with `events`.

    Raises
    ------
    OptionError
        As `match`; also for events without `order_by`.
    CerError
        If the query does not match the schema of the events.
    """
    own_options: dict[str, Any] = {"distribution": distribution, "order_by": order_by}
    options = replace(options, **{name: value for name, value in own_options.items() if value is not None})
    if events is None:
        work, distribution = work_of(query, options.output), options.distribution
        chosen, reason = choose_distribution(work, distribution)
        return "\n".join([f"{chosen}: {way_of_rows(work, chosen)}", f"  {reason}", *other_distributions(work, chosen)])
    if options.order_by is None:
        raise OptionError("order_by names no column: expected those that order the events\nhint: order_by='ts'")
    way = plan_input(events, query, **vars(options))
    words = way_of_rows(way.work, way.distribution) if way.plan is None else way.plan.way
    lines = [f"{way.distribution}: {words}", f"  {way.reason}"]
    lines += other_distributions(way.work, way.distribution, way.order[0])
    return "\n".join([*lines, *_source_lines(way)])


def _source_lines(way: InputPlan) -> list[str]:
    """Return lines on the way of the events to the tasks."""
    if way.plan is None:
        assert way.df is not None
        parts = counted(way.n_parts, "part")
        lines = [f"rows: Spark reads the rows and sends them to tasks, in {parts}", f"  {way.source_reason}"]
        if way.distribution == "range" and way.n_parts > 1 and not is_read_cheaply(way.df):
            lines.append(
                f"  they are computed twice, first for the counts of {way.order[0]}: cache them if that is long"
            )
        return lines
    plan = way.plan
    read = plan.n_read / plan.n_rows if plan.n_rows else 1.0
    files, pieces = counted(len(plan.footers.files), "file"), counted(plan.n_pieces, "piece")
    return [
        f"files: tasks read {files} by themselves, in {pieces}",
        f"  {way.source_reason}",
        f"  {plan.in_order}",
        f"  {counted(plan.n_rows, 'row')}; {read:.2f} events read for each of the stream",
    ]
