"""Counts of the complex events of queries, before any is listed for a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.engine.evaluation_options import USUAL_OPTIONS, EvaluationOptions
from cer_gpu.expressions.targets.arrow import exact_sum
from cer_gpu.query import Query
from cer_gpu.query_set import QuerySet
from cer_gpu.report.events import ReportEvents
from cer_gpu.report.partitions import ShownPartitions
from cer_gpu.runtime.counts import CountOverflow

MAX_LISTED = 2_000_000
"""Most complex events that are listed for a page, where they can be counted without that."""


@dataclass
class Counted:
    """Complex events of one query, by the event that they end at.

    Attributes
    ----------
    query : Query
    partitions : ShownPartitions
        Counts of all complex events.
    overflows : bool
        True if more than int64 holds end at one event; what was counted is then left out.
    n_events : int
    notes : tuple of str
        Remarks on the events (`cer_gpu.Evaluator.notes`).
    """

    query: Query
    partitions: ShownPartitions
    overflows: bool = False
    n_events: int = 0
    notes: tuple[str, ...] = ()
    _ends: list[npt.NDArray[np.int64]] = field(default_factory=list)
    _counts: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of output "count"."""
        counts = batch.column("count").to_numpy()
        self._ends.append(batch.column("end").to_numpy())
        self._counts.append(counts)
        self.partitions.codes(batch, counts)

    @property
    def n_matches(self) -> int | None:
        """Number of complex events; None: more than int64 holds at one event."""
        return None if self.overflows else sum(exact_sum(pa.array(counts)) for counts in self._counts)

    @property
    def is_listed_whole(self) -> bool:
        """True if there are few enough to list them all."""
        return self.n_matches is not None and self.n_matches <= MAX_LISTED

    @property
    def most_at_an_end(self) -> int:
        """Number of those of one end to list, so that not too many are listed in all."""
        return 1 if self.overflows else max(1, MAX_LISTED // max(1, sum(map(len, self._ends))))

    def of_each_end(self, n: int = 1) -> Query:
        """Return the query that finds `most_at_an_end` of those that end at one event, `n` times as many."""
        most = n * self.most_at_an_end
        plan = self.query._bindings.plan
        return Query(replace(plan, limit=most if plan.limit is None else min(plan.limit, most)), self.query.notes)

    def weights(self, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the number of complex events for which each of those listed by `of_each_end` stands, by their ends."""
        if self.overflows:
            return np.ones(len(ends))
        counts = np.concatenate(self._counts)[np.searchsorted(np.concatenate(self._ends), ends)]
        return counts / np.minimum(counts, self.most_at_an_end)


def count_for_report(
    queries: Mapping[str, Query], events: ReportEvents, asked: EvaluationOptions = USUAL_OPTIONS
) -> dict[str, Counted]:
    """Count the complex events of the queries where that takes no listing of them; several in one pass.

    Returns
    -------
    dict from str to Counted
        Without the queries whose complex events cannot be counted without listing them, or have LIMIT n EVERY d, which
        chooses among all of an end.
    """
    countable = {
        name: query
        for name, query in queries.items()
        if not query._drops_rows and query.physical_plan("count").counted and query._plan.every is None
    }
    try:
        return _count(countable, events, asked) if countable else {}
    except CountOverflow:
        return {name: _count_one(name, query, events, asked) for name, query in countable.items()}


def _count_one(name: str, query: Query, events: ReportEvents, asked: EvaluationOptions) -> Counted:
    try:
        return _count({name: query}, events, asked)[name]
    except CountOverflow:
        return Counted(query, ShownPartitions(query), overflows=True)


def _count(queries: Mapping[str, Query], events: ReportEvents, asked: EvaluationOptions) -> dict[str, Counted]:
    counted = {name: Counted(query, ShownPartitions(query)) for name, query in queries.items()}
    together = QuerySet(queries)
    evaluator = together._closed(replace(asked, output="count"))
    for name, batch in together._match_source(events.open(), evaluator, asked.threads):
        counted[name].add(batch)
    for name, each in counted.items():
        each.n_events, each.notes = evaluator.n_events, tuple(evaluator.notes.get(name, ()))
    return counted


def too_many(counted: Mapping[str, Counted], n_queries: int) -> str | None:
    """Return a line on the number of complex events, if not all will be listed, and None if all will."""
    some = [each.most_at_an_end for each in counted.values() if not each.is_listed_whole]
    if not some:
        return None
    numbers = [each.n_matches for each in counted.values()]
    known = number_in_words(None if None in numbers else sum(filter(None, numbers)))
    of_all = f" of {n_queries:,} queries" if n_queries > 1 else ""
    return f"{known} complex events{of_all}: the page has at most {max(some):,} of those that end at one event"


def number_in_words(n: int | None) -> str:
    """Return a number of complex events in words; None: more than int64 holds."""
    return "more than 9.2e18" if n is None else f"{n:,}"


def n_pages(queries: Mapping[str, Query], counted: Mapping[str, Counted]) -> int:
    """Return the number of queries that share the room of a file: those that may have found something."""
    return max(1, sum(name not in counted or counted[name].n_matches != 0 for name in queries))
