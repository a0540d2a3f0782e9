"""Counts of waiting times by state: how many events of a state waited how long for the next end of a match."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cer_gpu.arrays import Int32, Int64
from cer_gpu.backend.forecasts import states as state_loops
from cer_gpu.backend.forecasts import waits as loops
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.forecast.reading import FollowedEvents

_NODES = 1 << 12
_STATES = 1 << 10
"""Initial capacity, powers of two."""


class StateNumbers:
    """Numbers of the states met so far, in the order in which they came."""

    def __init__(self) -> None:
        self._regs = np.zeros(state_loops.N_REGS, np.int64)
        self._table = _table(_STATES)
        self._numbers = Scratch(np.int32)

    def __len__(self) -> int:
        """Return the number of states."""
        return int(self._regs[state_loops.N_CODES])

    @property
    def codes(self) -> Int64:
        """The states in the order of their numbers."""
        codes: Int64 = self._table.codes[: len(self)]
        return codes

    def number(self, states: Int64) -> Int32:
        """Return the numbers of states, valid until the next call."""
        numbers, begin, states = self._numbers.empty(len(states)), 0, read_only(states)
        while True:
            begin = state_loops.number_states(states, tuple(self._table), begin, numbers, self._regs)
            if begin == len(states):
                return numbers
            codes = read_only(self.codes.copy())
            self._table = _table(2 * len(self._table.keys))
            self._regs[:] = 0
            state_loops.number_states(codes, tuple(self._table), 0, np.empty(len(codes), np.int32), self._regs)


def _table(size: int) -> state_loops.StateTable:
    return state_loops.StateTable(np.full(size, -1, np.int64), np.zeros(size, np.int32), np.zeros(size // 2, np.int64))


@dataclass(frozen=True)
class WaitCounts:
    """Events of each state by the bin of their waiting time.

    Attributes
    ----------
    states : int64, shape (states,)
    seen_times, seen_events : int64, shape (states, bins + 1)
        Events after which a match ended, by the time until then, and by the number of events; in the bin after the
        last edge are those after which none ended within it.
    cut_times, cut_events : int64, shape (states, bins + 1)
        Events whose substream was watched for that long without an end, when the history ended.
    """

    states: Int64
    seen_times: Int64
    seen_events: Int64
    cut_times: Int64
    cut_events: Int64

    def of(self, kind: str) -> tuple[Int64, Int64]:
        """Return the events whose outcome was seen, and the censored ones, by a kind of length."""
        return (self.seen_times, self.cut_times) if kind == "time" else (self.seen_events, self.cut_events)


class WaitCounter:
    """Counter of the waiting times of a stream, in memory of the states and of what waits.

    Parameters
    ----------
    time_edges, event_edges : int64
        Ends of the bins (`cer_gpu.forecast.lengths.edges_of`).
    """

    def __init__(self, time_edges: Int64, event_edges: Int64) -> None:
        self._edges = loops.BinEdges(time_edges, event_edges)
        self._counted = _zeros(self._edges, _STATES)
        self._lists = _lists(16)
        self._regs = np.array([0, 0], np.int64)
        self._nodes = _nodes(_NODES, 0)
        self._now = np.iinfo(np.int64).min
        self._n_states = 0
        self.n_ends: int = 0

    def add(self, events: FollowedEvents, states: Int32, n_states: int) -> None:
        """Count the events of a block, given the numbers of their states, of which there are `n_states` so far."""
        self._n_states = n_states
        self._reserve_partitions(int(events.partitions.max(initial=0)) + 1)
        self.n_ends += int(np.count_nonzero(events.ends))
        begin, n = 0, len(states)
        columns = read_only(events.partitions), read_only(events.times), read_only(states), read_only(events.ends)
        while True:
            begin = loops.count_waits(
                *columns,
                begin,
                tuple(self._nodes),
                self._lists,
                tuple(self._edges),
                tuple(self._counted),
                self._regs,
            )
            if begin and len(events.times):
                self._now = int(events.times[begin - 1])
            if begin == n:
                return
            self._free_some()

    def _free_some(self) -> None:
        """Free what is decided by the time alone; double the capacity unless three quarters are free."""
        state = self._lists, tuple(self._edges), tuple(self._counted), self._regs
        loops.drop_decided(self._now, tuple(self._nodes), *state)
        size = len(self._nodes.times)
        if 4 * self._regs[loops.N_WAITING] < size:
            return
        more = _nodes(size, size)
        more.links[-1, loops.NEXT] = self._regs[loops.FREE]
        self._nodes = loops.Waiting(*(np.concatenate(pair) for pair in zip(self._nodes, more, strict=True)))
        self._regs[loops.FREE] = size

    def _reserve_partitions(self, n_partitions: int) -> None:
        old = len(self._lists)
        if n_partitions > old:
            self._lists = np.concatenate([self._lists, _lists(max(n_partitions, 2 * old) - old)])
        size = len(self._counted.times)
        if self._n_states > size:
            more_states = _zeros(self._edges, max(self._n_states, 2 * size) - size)
            self._counted = loops.WaitBins(
                *(np.concatenate(pair) for pair in zip(self._counted, more_states, strict=True))
            )

    def finish(self, states: Int64, until: int | None = None) -> WaitCounts:
        """Return the counts of the history, which ends here, or at a time, by its states."""
        n, end = len(states), self._now if until is None else until
        cut = _zeros(self._edges, max(n, 1))
        loops.count_censored(end, tuple(self._nodes), self._lists, tuple(self._edges), tuple(cut))
        seen = self._counted
        if len(seen.times) < n:
            seen = _zeros(self._edges, n)
        return WaitCounts(states.copy(), seen.times[:n], seen.counts[:n], cut.times[:n], cut.counts[:n])


def _zeros(edges: loops.BinEdges, n: int) -> loops.WaitBins:
    return loops.WaitBins(*(np.zeros((n, len(each) + 1), np.int64) for each in edges))


def _lists(n: int) -> Int64:
    """Return empty lists."""
    lists = np.zeros((n, loops.LIST_COLUMNS), np.int64)
    lists[:, [loops.FIRST, loops.LAST]] = -1
    return lists


def _nodes(n: int, first: int) -> loops.Waiting:
    """Return free nodes, each linked to the next; the last one is the end of the list."""
    links = np.zeros((n, 2), np.int32)
    links[:, loops.NEXT] = np.arange(first + 1, first + n + 1)
    links[-1, loops.NEXT] = -1
    return loops.Waiting(links, np.zeros(n, np.int64))
