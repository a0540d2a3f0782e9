"""Samples, which are decided at the end of the stream: for each key one match of different events, one for each filter.

It is the first choice of events in the order of the filters, of the earliest events for each filter: as long as the
stream goes on, an event may come with which an earlier one is in the choice.  Samples come in the order of their keys,
NULL first.

Source: SampleIterator of Elasticsearch (docs/reference/eql.md), which takes for each filter as many of its first events
as there are filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.engine.partitioner import of_events
from cer_gpu.output.form import part_of
from cer_gpu.runtime.counts import CountBuffers
from cer_gpu.runtime.events import RelevantEvents
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.protocol import ResultBuffers

_TRIM_FROM = 1 << 12
"""Least number of events for a trim, which drops those that no sample can hold."""


class PendingSamples:
    """The events of samples of one evaluation; takes the place of `cer_gpu.engine.pending_matches.PendingMatches`.

    Parameters
    ----------
    labels
        Variables of each mark of the runtime.
    marks
        Mark of the events of each filter, in the order of the filters.
    counted
        True: ends are wanted, with the numbers of their samples.
    by_ends
        True: samples come in the order of their ends.
    shard
        (k, n): hand over part k of n of the samples; None for all.

    Attributes
    ----------
    labels : list of frozenset of str
    next_deadline : None
        No time decides a sample.
    """

    next_deadline = None

    def __init__(
        self,
        labels: list[frozenset[str]],
        marks: Int32,
        *,
        counted: bool,
        by_ends: bool,
        shard: tuple[int, int] | None,
    ) -> None:
        self.labels: list[frozenset[str]] = labels
        self._counted, self._by_ends, self._shard = counted, by_ends, shard
        self._n_filters = len(marks)
        self._filter_of = np.full(len(labels), -1, np.int32)
        self._filter_of[marks] = np.arange(len(marks))
        self._noted = np.empty(0, np.int64), np.empty(0, np.int32)  # positions and partitions of coming events
        self._positions = np.empty(0, np.int64)
        self._times = np.empty(0, np.int64)
        self._marks = np.empty(0, np.int32)
        self._partitions = np.empty(0, np.int32)
        self._keys: list[pa.Array] = []
        self._trim_at = _TRIM_FROM
        self._ended = False

    # ---- what the runtime finds -------------------------------------------------------------------------------

    def note(self, events: RelevantEvents) -> None:
        """Note the partitions of relevant events."""
        positions, partitions = self._noted
        self._noted = (
            np.concatenate((positions, events.reported)),
            np.concatenate((partitions, events.partitions)),
        )

    def take(self, events: MatchBuffers, keys: list[pa.Array]) -> None:
        """Let events of filters wait, each of which the runtime finds as a match by itself."""
        if not len(events):
            return
        positions, partitions = self._noted
        at = np.searchsorted(positions, events.ends)
        rest = int(at[-1]) + 1
        self._noted = positions[rest:], partitions[rest:]
        self._positions = np.concatenate((self._positions, events.ends))
        self._times = np.concatenate((self._times, events.times[1] if events.times.shape[1] else self._times[:0]))
        self._marks = np.concatenate((self._marks, events.marks[events.offsets[:-1]]))
        self._partitions = np.concatenate((self._partitions, partitions[at]))
        self._keys = [pa.concat_arrays(pair) for pair in zip(self._keys, keys, strict=True)] if self._keys else keys
        if len(self._positions) >= self._trim_at:
            self._trim()
            self._trim_at = max(_TRIM_FROM, 2 * len(self._positions))

    def _trim(self) -> None:
        """Keep as many of the first events of each filter and key as there are filters: samples hold no others."""
        filters = self._filter_of[self._marks]
        order = np.lexsort((self._positions, filters, self._partitions))
        groups = self._partitions[order].astype(np.int64) * self._n_filters + filters[order]
        places = np.arange(len(order))
        begins = np.concatenate([[True], groups[1:] != groups[:-1]])[: len(order)]
        numbers = places - np.maximum.accumulate(np.where(begins, places, 0)) if len(order) else places
        self._keep(np.sort(order[numbers < self._n_filters]))

    def _keep(self, rows: Int64) -> None:
        self._positions, self._marks = self._positions[rows], self._marks[rows]
        self._partitions = self._partitions[rows]
        self._times = self._times[rows] if len(self._times) else self._times
        chosen = pa.array(rows)
        self._keys = [key.take(chosen) for key in self._keys]

    # ---- decisions -----------------------------------------------------------------------------------

    def pass_clocks(self, clocks: Array, first: int) -> None:
        """Do nothing: no time decides a sample."""

    def pass_events(self, partitions: Int32, ordinals: Int64, positions: Int64) -> None:
        """Do nothing: no event decides a sample."""

    def finish(self) -> None:
        """End the stream: all samples are decided."""
        self._ended = True

    def decided(self) -> tuple[ResultBuffers, list[pa.Array]] | None:
        """Return all samples, with their keys, once the stream has ended, or None before and afterwards."""
        if not self._ended or not len(self._positions):
            return None
        chosen = self._samples()
        keys = [key.take(pa.array(chosen[:, 0])) for key in self._keys]
        order = order_of_keys(keys, len(chosen))
        if self._by_ends:
            order = order[np.argsort(self._positions[chosen[order]].max(axis=1), kind="stable")]
        order = order[part_of(self._shard, 0)]
        keys = [key.take(pa.array(order)) for key in keys]
        matches = self._matches(chosen[order])
        self._keep(np.empty(0, np.int64))
        if not len(order):
            return None
        if self._counted:
            times = matches.times[1] if matches.times.shape[1] else np.empty(0, np.int64)
            return CountBuffers(matches.ends, np.ones(len(matches), np.int64), times), keys
        return matches, keys

    def _samples(self) -> Int64:
        """Return the rows of the events of each sample, in the order of the filters."""
        self._trim()
        filters, n = self._filter_of[self._marks], self._n_filters
        order = np.lexsort((self._positions, filters, self._partitions))
        groups = self._partitions[order].astype(np.int64) * n + filters[order]
        begins = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))  # of a filter of a partition
        ends = np.append(begins[1:], len(groups))
        partitions = groups[begins] // n
        whole = np.flatnonzero(partitions[n - 1 :] == partitions[: max(len(partitions) - n + 1, 0)])
        of_partition = whole[:, None] + np.arange(n)
        events = of_events(self._positions[order])
        samples: Int64 = order[begins[of_partition]]
        # where the first events of the filters are one, others are to be looked for
        firsts = np.sort(events[begins[of_partition]], axis=1)
        complete = np.ones(len(samples), np.bool_)
        for i in np.flatnonzero((firsts[:, 1:] == firsts[:, :-1]).any(axis=1)).tolist():
            places = [slice(begins[each], ends[each]) for each in of_partition[i]]
            picked = first_choice([events[place].tolist() for place in places])
            complete[i] = picked is not None
            if picked is not None:
                samples[i] = [order[place.start + at] for place, at in zip(places, picked, strict=True)]
        return samples[complete]

    def _matches(self, samples: Int64) -> MatchBuffers:
        """Return samples as matches."""
        n, width = samples.shape
        rows = np.take_along_axis(samples, np.argsort(self._positions[samples], axis=1, kind="stable"), axis=1)
        ends = [0, width - 1]
        times = self._times[rows[:, ends]].T.copy() if len(self._times) else np.empty((2, 0), np.int64)
        offsets = np.arange(0, n * width + 1, width, dtype=np.int32)
        spans = self._positions[rows[:, ends]].T.copy()
        return MatchBuffers(spans, times, offsets, self._positions[rows].ravel(), self._marks[rows].ravel())

    # ---- state ------------------------------------------------------------------------------------------------

    def live(self) -> Int64:
        """Return the positions of the events here, ascending."""
        return np.unique(self._positions)

    def holds(self, n_partitions: int) -> Bools:
        """Return which partitions have events here."""
        mask = np.zeros(n_partitions, np.bool_)
        mask[self._partitions] = True
        return mask

    def keep_partitions(self, mask: Bools) -> None:
        """Give new numbers to the partitions, of which only some are kept."""
        numbers = (np.cumsum(mask) - 1).astype(np.int32)
        self._partitions = numbers[self._partitions]

    def snapshot(self) -> tuple[dict[str, Any], pa.Table]:
        """Return the state: arrays, and the keys."""
        arrays = {
            "positions": self._positions,
            "times": self._times,
            "marks": self._marks,
            "partitions": self._partitions,
        }
        return arrays, pa.table(self._keys, [str(i) for i in range(len(self._keys))])

    def restore(self, arrays: dict[str, Any], keys: pa.Table) -> None:
        """Go on from a snapshot."""
        self._positions, self._times = arrays["positions"], arrays["times"]
        self._marks, self._partitions = arrays["marks"], arrays["partitions"]
        self._keys = [pa.concat_arrays(column.chunks) for column in keys.columns if column.num_chunks]


def order_of_keys(keys: Sequence[pa.Array], n: int) -> Int64:
    """Return the order of `n` rows by their keys, the first key first, and NULL before all values."""
    named = dict[str, pa.Array]()
    for number, key in enumerate(keys):
        if not pa.types.is_null(key.type):
            named |= {f"{number} is valid": pc.is_valid(key), str(number): key}
    if not named:
        return np.arange(n)
    order = pc.sort_indices(pa.table(named), sort_keys=[(name, "ascending") for name in named])
    rows: Int64 = order.to_numpy().astype(np.int64)
    return rows


def first_choice(candidates: Sequence[Sequence[int]]) -> list[int] | None:
    """Return the places of different events, one among the candidates of each filter, or None if there are none.

    It is the first such choice: the earliest possible candidate for the first filter, then for the second, and so on.
    A matching of filters and events tells at each step whether the later filters have different events, too.
    """
    holder: dict[int, int] = {}  # filter of each event

    def augmented(filter_: int, first: int, tried: set[int]) -> bool:
        """Give an event to a filter; filters before `first` keep theirs."""
        for event in candidates[filter_]:
            if event in tried:
                continue
            tried.add(event)
            of = holder.get(event)
            if of is None or (of >= first and augmented(of, first, tried)):
                holder[event] = filter_
                return True
        return False

    if not all(augmented(filter_, 0, set()) for filter_ in range(len(candidates))):
        return None
    for filter_, own in enumerate(candidates):
        (chosen,) = (event for event, of in holder.items() if of == filter_)
        for event in own[: own.index(chosen)]:
            of = holder.get(event)
            if of is not None and of < filter_:
                continue
            before = dict(holder)
            del holder[chosen]
            holder[event] = filter_
            if of is None or augmented(of, filter_ + 1, {event}):
                break
            holder.clear()
            holder.update(before)
    event_of = {of: event for event, of in holder.items()}
    return [own.index(event_of[filter_]) for filter_, own in enumerate(candidates)]
