"""Explanation of a job before it runs: its distribution, and the way of the events to the tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cer_gpu.cli.tally import counted
from cer_gpu.errors import OptionError
from spark_glue.distribution import (
    JobOptions,
    choose_distribution,
    other_distributions,
    taking_job_options,
    way_of_rows,
)
from spark_glue.match import InputPlan, plan_input
from spark_glue.work import work_of

if TYPE_CHECKING:
    from cer_gpu.evaluable import CompiledQuery


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
        A DataFrame, a path or a list of paths: the text says also whether tasks read files by themselves or get rows
        from Spark, how these are put in order, and how many of them are read. Footers are read, and no rows, unless
        footers do not tell the bounds of the first column of the order.  None: Spark is not needed.
    order_by, options
        As for `match`; only with `events`.

    Raises
    ------
    OptionError
        As `match`; also for events without `order_by`.
    CerError
        If the query does not fit the events.
    """
    given: dict[str, Any] = {"distribution": distribution, "order_by": order_by}
    options = replace(options, **{name: value for name, value in given.items() if value is not None})
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
        parts = counted(way.n_parts, "part")
        return [f"rows: Spark reads the rows and sends them to tasks, in {parts}", f"  {way.source_reason}"]
    plan = way.plan
    read = plan.n_read / plan.n_rows if plan.n_rows else 1.0
    files, pieces = counted(len(plan.found.files), "file"), counted(plan.n_pieces, "piece")
    return [
        f"files: tasks read {files} by themselves, in {pieces}",
        f"  {way.source_reason}",
        f"  {plan.in_order}",
        f"  {counted(plan.n_rows, 'row')}; {read:.2f} events read for each of the stream",
    ]
