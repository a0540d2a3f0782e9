"""Counts of the matches of queries, in total and by partition, before any is listed for a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int32, Int64
from cer_gpu.ceql.paths import dotted
from cer_gpu.engine.evaluation_options import USUAL_OPTIONS, EvaluationOptions
from cer_gpu.expressions.targets.arrow import exact_sum
from cer_gpu.io.value_strings import json_strings, plain_values
from cer_gpu.query import Query
from cer_gpu.query_set import QuerySet
from cer_gpu.report.events import ReportEvents
from cer_gpu.runtime.counts import CountOverflow

MAX_LABEL = 80
"""Maximum length of the name of a partition."""


class ShownPartitions:
    """Codes of partitions, and the number of matches of each.

    Attributes
    ----------
    labels : list of str
        Names of the partitions, by code.
    values : list of list of str
        The key of each partition, a string for each bracket of PARTITION BY.
    """

    def __init__(self, query: Query) -> None:
        self._names = [dotted(names[0]) for names in query.partition_keys]
        self._codes: dict[str, int] = {}
        self._counter = Counter[int]()
        self.labels: list[str] = []
        self.values: list[list[str]] = []

    @property
    def counts(self) -> list[int]:
        """Number of matches of each partition, by code."""
        return [self._counter[code] for code in range(len(self.labels))]

    def counts_in(self, other: ShownPartitions) -> list[int]:
        """Return the counts of another object for the partitions of this one."""
        return [other._counter[other._codes[name]] for name in self._codes]

    def codes(self, batch: pa.RecordBatch, weights: Int64 | None = None) -> Int32:
        """Return the code of the partition of each row, 0 without PARTITION BY, and count its matches.

        A row is one match, or as many as its weight.
        """
        if not self._names:
            return np.zeros(batch.num_rows, np.int32)
        keys = [batch.column(name) for name in self._names]
        names, indices = _distinct(keys)
        firsts = np.unique(indices, return_index=True)[1]  # the names are in the order of first occurrence
        strings = [plain_values(key.take(pa.array(firsts))).to_pylist() for key in keys]
        codes = np.empty(len(firsts), np.int32)
        for i, name in enumerate(names):
            codes[i] = self._codes.setdefault(name, len(self.labels))
            if codes[i] == len(self.labels):
                values = [str(column[i]) for column in strings]
                self.labels.append(", ".join(values)[:MAX_LABEL])
                self.values.append([value[:MAX_LABEL] for value in values])
        for code, n in zip(codes.tolist(), np.bincount(indices, weights).tolist(), strict=True):
            self._counter[code] += int(n)
        numbered: Int32 = codes[indices]
        return numbered

    def codes_of_keys(self, keys: Sequence[pa.Array]) -> Int32:
        """Return the code of the partition of each row by its keys, or -1 if it has no match."""
        names, indices = _distinct(keys)
        codes = np.array([self._codes.get(name, -1) for name in names], np.int32)
        numbered: Int32 = codes[indices]
        return numbered


def _distinct(keys: Sequence[pa.Array]) -> tuple[list[str], Int32]:
    """Return the distinct names (JSON of the keys), and the index of the name of each row."""
    separator = pa.scalar(",", pa.large_string())
    # each value of a dictionary is formatted once
    coded = [key if pa.types.is_dictionary(key.type) else key.dictionary_encode() for key in keys]
    names = pc.binary_join_element_wise(*map(json_strings, coded), separator).dictionary_encode()
    return names.dictionary.to_pylist(), names.indices.to_numpy()


MAX_LISTED = 2_000_000
"""Maximum number of matches that are listed for a page, if they can be counted without listing them."""


@dataclass
class Counted:
    """Number of matches of one query, by their end.

    Attributes
    ----------
    query : Query
    partitions : ShownPartitions
        Counts of all matches.
    overflows : bool
        True if the number of matches that end at one event exceeds int64; counts are then unavailable.
    n_events : int
    notes : tuple of str
        Remarks on the events (`cer_gpu.Evaluator.notes`).
    max_listed : int
        Maximum number of matches that are listed.
    """

    query: Query
    partitions: ShownPartitions
    overflows: bool = False
    n_events: int = 0
    notes: tuple[str, ...] = ()
    max_listed: int = field(default_factory=lambda: MAX_LISTED)
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
        """Number of matches, or None if the number of one end exceeds int64."""
        return None if self.overflows else sum(exact_sum(pa.array(counts)) for counts in self._counts)

    @property
    def is_listed_whole(self) -> bool:
        """True if there are few enough matches to list them all."""
        return self.n_matches is not None and self.n_matches <= self.max_listed

    @property
    def max_per_end(self) -> int:
        """Number of matches to list for each end, to limit the total."""
        return 1 if self.overflows else max(1, self.max_listed // max(1, sum(map(len, self._ends))))

    def of_each_end(self, n: int = 1) -> Query:
        """Return the query limited to `n` times `max_per_end` matches for each end."""
        limit = n * self.max_per_end
        plan = self.query._bindings.plan
        return Query(replace(plan, limit=limit if plan.limit is None else min(plan.limit, limit)), self.query.notes)

    def weights(self, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the number of matches that each match listed by `of_each_end` represents, given their ends."""
        if self.overflows:
            return np.ones(len(ends))
        counts = np.concatenate(self._counts)[np.searchsorted(np.concatenate(self._ends), ends)]
        return counts / np.minimum(counts, self.max_per_end)


def count_for_report(
    queries: Mapping[str, Query],
    events: ReportEvents,
    options: EvaluationOptions = USUAL_OPTIONS,
    max_listed: int | None = None,
) -> dict[str, Counted]:
    """Count the matches of the queries that can be counted without listing them, in one pass.

    Parameters
    ----------
    max_listed
        Maximum number of matches of each query that are listed afterwards, None for `MAX_LISTED`.

    Returns
    -------
    dict from str to Counted
        Without queries whose matches must be listed to count them, and those with LIMIT n EVERY d, which selects among
        all matches of an end.
    """
    countable = {
        name: query
        for name, query in queries.items()
        if not query._drops_rows and query.physical_plan("count").counted and query._plan.every is None
    }
    max_listed = MAX_LISTED if max_listed is None else max_listed
    try:
        return _count_matches(countable, events, options, max_listed) if countable else {}
    except CountOverflow:
        return {name: _count_one(name, query, events, options, max_listed) for name, query in countable.items()}


def _count_one(name: str, query: Query, events: ReportEvents, options: EvaluationOptions, max_listed: int) -> Counted:
    try:
        return _count_matches({name: query}, events, options, max_listed)[name]
    except CountOverflow:
        return Counted(query, ShownPartitions(query), overflows=True, max_listed=max_listed)


def _count_matches(
    queries: Mapping[str, Query], events: ReportEvents, options: EvaluationOptions, max_listed: int
) -> dict[str, Counted]:
    counted = {name: Counted(query, ShownPartitions(query), max_listed=max_listed) for name, query in queries.items()}
    together = QuerySet(queries)
    evaluator = together._fixed_evaluator(replace(options, output="count"))
    for name, batch in together._match_source(events.open(), evaluator, options.threads):
        counted[name].add(batch)
    for name, each in counted.items():
        each.n_events, each.notes = evaluator.n_events, tuple(evaluator.notes.get(name, ()))
    return counted


def too_many(counted: Mapping[str, Counted], n_queries: int) -> str | None:
    """Return a line on the number of matches, or None if all will be listed."""
    some = [each.max_per_end for each in counted.values() if not each.is_listed_whole]
    if not some:
        return None
    numbers = [each.n_matches for each in counted.values()]
    total = number_in_words(None if None in numbers else sum(filter(None, numbers)))
    of_all = f" of {n_queries:,} queries" if n_queries > 1 else ""
    return f"{total} matches{of_all}: the page has at most {max(some):,} per end event"


def number_in_words(n: int | None) -> str:
    """Return a number of matches in words; None means that it exceeds int64."""
    return "more than 9.2e18" if n is None else f"{n:,}"


def n_pages(queries: Mapping[str, Query], counted: Mapping[str, Counted]) -> int:
    """Return the number of queries that share the space of a file: those that may have matches."""
    return max(1, sum(name not in counted or counted[name].n_matches != 0 for name in queries))
