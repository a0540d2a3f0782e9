"""Matches of a query for a report: those to draw, those to show with their rows, and partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int64, UInt64
from cer_gpu.engine.evaluation_options import USUAL_OPTIONS, EvaluationOptions
from cer_gpu.errors import OptionError
from cer_gpu.query import Query
from cer_gpu.report.counted import Counted, ShownPartitions
from cer_gpu.report.events import ReportEvents


class Sample:
    """Sample of every match whose number is a multiple of `step`, a power of two that grows with the stream.

    Parameters
    ----------
    bound
        Maximum sum of the weights of the sample; the first match always remains.

    Attributes
    ----------
    step : int
    """

    def __init__(self, bound: int) -> None:
        self.step: int = 1
        self._bound = bound
        self._tables: list[pa.Table] = []
        self._weight = 0

    def of_step(self, rows: pa.Table) -> pa.Table:
        """Return the rows that qualify for the sample: those whose number is a multiple of `step`."""
        return rows if self.step == 1 else _every(rows, self.step)

    def add(self, rows: pa.Table, weights: Int64) -> None:
        """Add rows, one for each match; the column ``number`` counts them from 0."""
        rows = self.of_step(rows.append_column("weight", pa.array(weights)))
        self._tables.append(rows)
        self._weight += int(rows["weight"].to_numpy().sum())
        while self._weight > self._bound and sum(table.num_rows for table in self._tables) > 1:
            self.step *= 2
            self._tables = [_every(table, self.step) for table in self._tables]
            self._weight = sum(int(table["weight"].to_numpy().sum()) for table in self._tables)

    def rows(self) -> pa.Table | None:
        """Return the sample, or None if it is empty."""
        return pa.concat_tables(self._tables).drop_columns(["weight"]) if self._tables else None


def _every(rows: pa.Table, step: int) -> pa.Table:
    wanted = rows["number"].to_numpy() % step == 0
    return rows.filter(pa.array(wanted))


def fingerprints(rows: pa.RecordBatch | pa.Table) -> UInt64:
    """Return a hash of ``start``, ``end`` and ``positions`` for each match."""
    starts, ends = (rows.column(name).to_numpy().astype(np.uint64) for name in ("start", "end"))
    lists = rows.column("positions")
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    offsets = lists.offsets.to_numpy()
    values = lists.values.to_numpy()[offsets[0] : offsets[-1]].astype(np.uint64)
    # positions are a set, so the sum of their mixed values is a hash that ignores the order
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(values), dtype=np.uint64)])
    sums = before[offsets[1:] - offsets[0]] - before[offsets[:-1] - offsets[0]]
    return _mixed(_mixed(starts + np.uint64(1)) + _mixed(ends ^ np.uint64(1 << 63)) + sums)


def _mixed(values: UInt64) -> UInt64:
    """Return values mixed by the finalizer of SplitMix64, a permutation of 64-bit integers."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


MAX_DRAWN = 200_000
"""Maximum number of matches on the page."""
MAX_REFERENCES = 100_000
"""Maximum number of rows of matches on the page; a row of several matches counts for each."""
MAX_ROWS_OF_ONE = 200
"""Maximum number of rows of one match on the page."""
MAX_WAYS = 16
"""Maximum number of valuations of one match that determine the roles of its rows."""
MAX_VALUATIONS = 1 << 20
"""Maximum number of valuations read, in addition to eight for each match."""


@dataclass(frozen=True)
class ReportResults:
    """Matches of a query for its report.

    Attributes
    ----------
    n_events : int
    n_matches : int or None
        Number of matches, or None if the number of one end exceeds int64.
    n_listed : int
        Number of listed matches: all, or some of each end.
    valued : Query
        Query whose valuations assign variables to the events of the listed matches.
    notes : tuple of str
        Remarks on the events.
    drawn : pyarrow.Table or None
        ``number``, ``start``, ``end``, ``n_kept`` (number of events), ``partition`` (a code) and with a time
        column ``start_time`` and ``end_time`` of a sample of those listed, every `step`-th; and ``stands_for`` (the
        number of matches of the end that each listed one represents) if not all are listed, and ``fingerprint`` if the
        query has measures.
    detailed : pyarrow.Table or None
        ``number``, ``start``, ``end``, ``n_kept``, ``partition``, ``positions`` (the first `MAX_ROWS_OF_ONE`) and
        ``fingerprint`` of a smaller sample, every `detail_step`-th of those listed.
    partitions : ShownPartitions
    counts : list of int
        Number of matches of each partition, by code; of all matches, if they could be counted.
    max_valuations : int
        Maximum number of valuations that are read for the roles of rows, and for measures.
    """

    n_events: int
    notes: tuple[str, ...]
    n_matches: int | None
    n_listed: int
    valued: Query
    drawn: pa.Table | None
    step: int
    detailed: pa.Table | None
    detail_step: int
    partitions: ShownPartitions
    counts: list[int]
    max_valuations: int = 0

    @property
    def is_whole(self) -> bool:
        """True if all matches are listed."""
        return self.n_listed == self.n_matches


def find_for_report(
    query: Query,
    events: ReportEvents,
    options: EvaluationOptions = USUAL_OPTIONS,
    counted: Counted | None = None,
    n_pages: int = 1,
    max_valuations: int | None = None,
) -> ReportResults:
    """Evaluate a query, and return the matches that a report needs.

    Parameters
    ----------
    counted
        Counts of the matches, or None; if there are too many, only some of each end are listed.
    n_pages
        Number of queries that share the space of one file.
    max_valuations
        As that of `content`.
    """
    if counted is not None and counted.n_matches == 0:
        return ReportResults(counted.n_events, counted.notes, 0, 0, query, None, 1, None, 1, ShownPartitions(query), [])
    drawn, detailed = Sample(MAX_DRAWN // n_pages), Sample(MAX_REFERENCES // n_pages)
    partitions = ShownPartitions(query)
    some = None if counted is None or counted.is_listed_whole else counted
    listed = query if some is None else some.of_each_end()
    # with HAVING, only valuations identify the rows that it drops
    evaluator = listed._checked_evaluator(replace(options, output="bindings" if query._drops_rows else "positions"))
    n_listed = 0
    for batch in listed._match_source(events.open(), evaluator, options.threads):
        if not batch.num_rows:
            continue
        positions = batch.column("positions")
        n_selected = pc.list_value_length(positions)
        numbers = pa.array(np.arange(n_listed, n_listed + batch.num_rows))
        n_listed += batch.num_rows
        columns = {"number": numbers, "start": batch.column("start"), "end": batch.column("end")}
        columns |= {"n_kept": n_selected, "partition": pa.array(partitions.codes(batch))}
        shown = {name: batch.column(name) for name in ("start_time", "end_time") if query.time_column is not None}
        if some is not None:
            shown["stands_for"] = pa.array(some.weights(batch.column("end").to_numpy()))
        if query.default_output == "measures":
            shown["fingerprint"] = pa.array(fingerprints(batch))
        drawn.add(pa.table(columns | shown), np.ones(batch.num_rows, np.int64))
        rows = detailed.of_step(pa.table(columns | {"positions": positions}))  # before the costly steps
        weights = 1 + np.minimum(pc.list_value_length(rows["positions"]).to_numpy(), MAX_ROWS_OF_ONE).astype(np.int64)
        cut = pc.list_slice(rows["positions"], 0, MAX_ROWS_OF_ONE, return_fixed_size_list=False)
        prints = pa.array(fingerprints(rows))
        rows = rows.set_column(rows.num_columns - 1, "positions", cut).append_column("fingerprint", prints)
        detailed.add(rows, weights)
    return ReportResults(
        n_events=evaluator.n_events,
        notes=tuple(evaluator.notes),
        n_matches=n_listed if some is None else some.n_matches,
        n_listed=n_listed,
        valued=query._without_choice() if some is None else some.of_each_end(MAX_WAYS),
        drawn=drawn.rows(),
        step=drawn.step,
        detailed=detailed.rows(),
        detail_step=detailed.step,
        partitions=partitions,
        counts=partitions.counts if some is None or some.overflows else partitions.counts_in(some.partitions),
        max_valuations=(MAX_VALUATIONS if max_valuations is None else max_valuations) + 8 * n_listed,
    )


# ---- roles of rows ------------------------------------------------------------------------------------------------


def variables_of(
    query: Query,
    events: ReportEvents,
    detailed: pa.Table,
    max_valuations: int,
    options: EvaluationOptions = USUAL_OPTIONS,
) -> list[list[str]] | None:
    """Return the role of each row of matches: the variables bound to it, in each valuation.

    Parameters
    ----------
    query
        `ReportResults.valued`.
    detailed
        `ReportResults.detailed`.
    max_valuations
        `ReportResults.max_valuations`.

    Returns
    -------
    list or None
        For each match a string for each of its positions, such as "LANDED, late"; roles that differ between
        valuations are joined by " or ".  A match whose valuations were not reached has an empty list.  None if a
        variable has the name of another column.
    """
    if not has_bindings(query, events):
        return None
    names = list(query.variables)
    prints = detailed["fingerprint"].to_numpy()
    order = np.argsort(prints)
    prints = prints[order]
    ways: list[dict[tuple[tuple[str, ...], ...], None]] = [{} for _ in range(len(prints))]
    positions = detailed["positions"].to_pylist()
    n_remaining = max_valuations
    for batch in _valuations(query, events, options):
        own = fingerprints(batch)
        places = np.minimum(np.searchsorted(prints, own), len(prints) - 1)
        hits = np.flatnonzero(prints[places] == own)
        valuations = batch.select(names).take(pa.array(hits)).to_pylist()
        for hit, valuation in zip(order[places[hits]].tolist(), valuations, strict=True):
            if len(ways[hit]) < MAX_WAYS:
                sets = {name: set(holds) if isinstance(holds, list) else {holds} for name, holds in valuation.items()}
                way = tuple(tuple(name for name in names if p in sets[name]) for p in positions[hit])
                ways[hit][way] = None
        n_remaining -= batch.num_rows
        if n_remaining < 0:
            break
    return [_distinct_variables(each, len(own)) for each, own in zip(ways, positions, strict=True)]


def _valuations(query: Query, events: ReportEvents, options: EvaluationOptions) -> Iterator[pa.RecordBatch]:
    for batch in query._match_source(
        events.open(), query._checked_evaluator(replace(options, output="bindings")), options.threads
    ):
        if batch.num_rows:
            yield batch


def has_bindings(query: Query, events: ReportEvents) -> bool:
    """Return True if no variable has the name of another column of the output "bindings"."""
    try:
        query.output_schema(events.open().schema, "bindings")
    except OptionError:
        return False
    return True


def _distinct_variables(ways: Mapping[tuple[tuple[str, ...], ...], None], n_rows: int) -> list[str]:
    if not ways:
        return []
    return [" or ".join(dict.fromkeys(", ".join(way[i]) for way in ways if way[i])) for i in range(n_rows)]
