"""Rows between the first and the last event of complex events that these do not keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Bools, Int64
from cer_gpu.columnar.fields import array_of
from cer_gpu.io.texts import plain_values
from cer_gpu.query import Query
from cer_gpu.report.events import ReportEvents
from cer_gpu.report.found import ReportResults

MAX_BETWEEN_OF_ONE = 50
"""Most rows between the events of one complex event on the page."""
MAX_BETWEEN = 300_000
"""Most rows between those of all complex events; a row between several counts for each."""


@dataclass(frozen=True)
class Between:
    """Rows between, for each of some complex events.

    Attributes
    ----------
    most : int
        Most rows for one complex event.
    lengths : ndarray of int64, shape (n,)
        Number of rows for each.
    positions : ndarray of int64
        Rows of all, in the order of the stream for each.
    cut : ndarray of bool, shape (n,)
        True for those that have more.
    """

    most: int
    lengths: Int64
    positions: Int64
    cut: Bools

    def first(self, most: int) -> Between:
        """Return at most so many for each."""
        ranks = _ranks(self.lengths)
        return Between(
            most, np.minimum(self.lengths, most), self.positions[ranks < most], self.cut | (self.lengths > most)
        )

    def of(self, wanted: Bools) -> Between:
        """Return those of some of the complex events."""
        kept = np.repeat(wanted, self.lengths)
        return Between(self.most, self.lengths[wanted], self.positions[kept], self.cut[wanted])


def between(query: Query, events: ReportEvents, found: ReportResults, n_pages: int = 1) -> Between:
    """Return the rows between the events of the detailed complex events, the first of each.

    They are those of the same partition; without PARTITION BY those of the types that the query names.
    """
    detailed = found.detailed
    assert detailed is not None
    lists = detailed["positions"].combine_chunks()
    kept, lengths = pc.list_flatten(lists).to_numpy(), pc.list_value_length(lists).to_numpy().astype(np.int64)
    most = max(1, min(MAX_BETWEEN_OF_ONE, MAX_BETWEEN // n_pages // len(lengths)))
    starts, ends = detailed["start"].to_numpy(), detailed["end"].to_numpy()
    is_cut = detailed["n_kept"].to_numpy() > lengths  # rows after the last that is on the page are unknown
    ends = np.where(is_cut, _lasts(kept, lengths, ends), ends)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    inside = (kept > starts[owners]) & (kept < ends[owners])
    n_inside = np.bincount(owners[inside], minlength=len(lengths))
    room = np.where(ends - starts - 1 > n_inside, most + 1 + n_inside, 0)  # one more tells that there are more
    taken = list(_taken(query, events, found, starts, ends, room)) if room.any() else []
    matches = np.concatenate([np.empty(0, np.int64), *(piece[0] for piece in taken)])
    positions = np.concatenate([np.empty(0, np.int64), *(piece[1] for piece in taken)])
    is_kept = np.isin(matches << 44 | positions, owners[inside] << 44 | kept[inside])
    matches, positions = matches[~is_kept], positions[~is_kept]
    order = np.argsort(matches, kind="stable")
    lengths = np.bincount(matches, minlength=len(lengths)).astype(np.int64)
    return Between(most + 1, lengths, positions[order], np.zeros(len(lengths), np.bool_)).first(most)


def _lasts(values: Int64, lengths: Int64, otherwise: Int64) -> Int64:
    """Return the last value of each list, or another where a list is empty."""
    stops = np.cumsum(lengths)
    return np.where(lengths > 0, values[np.maximum(stops - 1, 0)] if len(values) else otherwise, otherwise)


def _ranks(lengths: Int64) -> Int64:
    """Return 0, 1, ... for each list of a length, one after the other."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _taken(
    query: Query, events: ReportEvents, found: ReportResults, starts: Int64, ends: Int64, room: Int64
) -> Iterator[tuple[Int64, Int64]]:
    """Yield complex events and rows between their starts and ends, as many as there is room for."""
    assert found.detailed is not None
    codes = found.detailed["partition"].to_numpy().astype(np.int64)
    n_before = 0
    last = int(ends[room > 0].max())
    for here in _codes(query, events, found):
        n = len(here)
        active = np.flatnonzero((starts < n_before + n) & (ends > n_before) & (room > 0))
        if len(active):
            order = np.argsort(here, kind="stable")
            places = here[order] * n + order
            low, high = (
                np.searchsorted(places, codes[active] * n + np.clip(edge[active] - n_before, 0, n))
                for edge in (starts + 1, ends)
            )
            taken = np.minimum(high - low, room[active])
            room[active] -= taken
            rows = order[np.repeat(low, taken) + _ranks(taken)]
            yield np.repeat(active, taken), rows + n_before
        n_before += n
        if n_before > last:
            return


def _codes(query: Query, events: ReportEvents, found: ReportResults) -> Iterator[Int64]:
    """Yield for each batch the partition of each row; -1 for rows that are never shown as rows between."""
    source = events.open()
    binding = query._bind(source.schema)
    if query.partition_keys:
        for batch in source.batches([*binding.keys.columns]):
            yield found.partitions.known(binding.keys.arrays(batch, binding.keys.types)).astype(np.int64)
        return
    guards = query._bindings.plan.guards
    types = None if any(guard.event_type is None for guard in guards) else query.types
    column = query.type_column or source.schema.names[0]
    for batch in source.batches([column]):
        if not types:
            yield np.zeros(batch.num_rows, np.int64)
            continue
        named = pc.is_in(plain_values(array_of(batch, column)), pa.array(types, pa.large_string()))
        yield np.where(named.to_numpy(zero_copy_only=False), 0, -1)
