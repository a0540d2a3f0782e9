"""The loops that count, for each state, how long it takes until the next end of a match in the same substream.

An event waits as a node in the list of its substream, from the oldest to the newest, until a match ends there, or it
has waited longer than the longest length that is requested: then no later end matters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch

# registers: the first free node, or -1; how many nodes wait
FREE, N_WAITING, N_REGS = range(3)
# columns of nodes
STATE, NEXT = range(2)
# columns of the lists of substreams, whose events that wait are their last ones: the oldest node and the newest, or -1,
# the number of events so far, and the number in the substream of the event of the oldest node
FIRST, LAST, COUNT, ORDINAL, LIST_COLUMNS = range(5)

_AHEAD = 8
"""Events from the prefetch of the list of a substream to its use."""

_U = np.uint64


class Waiting(NamedTuple):
    """Events that wait.

    Attributes
    ----------
    links : int32, shape (size, 2), written
        STATE: number of the state after the event; NEXT: the next event of the substream, or the next free node, or -1.
    times : int64, shape (size,), written
        Times; neither read nor written where no length is a time.
    """

    links: Any
    times: Any


class BinEdges(NamedTuple):
    """Ends of the bins of waiting times: bin b holds what is above edge b - 1, and at most edge b.

    Above the last edge there is one bin more.

    Attributes
    ----------
    times : int64, shape (time bins,)
    counts : int64, shape (count bins,)
        The same for numbers of events.
    """

    times: Any
    counts: Any


class WaitBins(NamedTuple):
    """Events of each state by how long it took.

    Attributes
    ----------
    times : int64, shape (states, time bins + 1), written
    counts : int64, shape (states, count bins + 1), written
    """

    times: Any
    counts: Any


@helper
def first_bin(amount, edges):
    """Return the first bin whose edge is not below an amount."""
    low, high = np.int64(0), np.int64(edges.shape[0])
    while low < high:
        middle = (low + high) >> 1
        if edges[_U(middle)] < amount:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def bin_of(amount, edges, high):
    """Return the first bin whose edge is not below an amount; it is known to be `high` at most.

    Events that wait come from the oldest to the youngest, so that the next one is mostly in the same bin, or in one
    shortly below.
    """
    while high > 0 and edges[_U(high - 1)] >= amount:
        high -= 1
    return high


@helper
def is_beyond(amount, edges):
    """Return True if an amount is above the last edge."""
    n = np.int64(edges.shape[0])
    return n == 0 or amount > edges[_U(n - 1)]


@helper
def free_decided(p, now, last, nodes, lists, edges, counted, free):
    """Count the events of a partition that have waited longer than any length, and free them.

    Parameters
    ----------
    p : uint64
    now, last : int
        Time to which the partition was watched, and the number of the last event.
    nodes, lists, edges, counted
        As of `count_waits`.
    free : int
        First free node.

    Returns
    -------
    (int, int)
        The first free node, and how many were freed.
    """
    n_times, n_counts = np.int64(edges.times.shape[0]), np.int64(edges.counts.shape[0])
    node, ordinal = lists[p, FIRST], lists[p, ORDINAL]
    begin = ordinal
    while node >= 0 and is_beyond(last - ordinal, edges.counts):
        at = _U(node)
        if n_times and not is_beyond(now - nodes.times[at], edges.times):
            break
        state = _U(nodes.links[at, STATE])
        counted.times[state, _U(n_times)] += 1
        counted.counts[state, _U(n_counts)] += 1
        after = np.int64(nodes.links[at, NEXT])
        nodes.links[at, NEXT] = free
        free, node = node, after
        ordinal += 1
    lists[p, FIRST], lists[p, ORDINAL] = node, ordinal
    return free, ordinal - begin


@kernel
def count_waits(partitions, times, states, ends, begin, nodes, lists, edges, counted, regs):
    """Let each event wait, and count those that waited for an end that it is.

    Parameters
    ----------
    partitions : int32, shape (n,), or (0,)
        Empty: all events are of partition 0.
    times : int64, shape (n,), or (0,)
        Within a partition they do not decrease; not read where no length is a time.
    states : int32, shape (n,)
        Numbers of the states after the events.
    ends : bool, shape (n,)
        True: a match ends there.
    begin : int
        Event to begin at.
    nodes : Waiting
    lists : int64, shape (partitions, LIST_COLUMNS), written
    edges : BinEdges, read
    counted : WaitBins
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        The first event that does not wait yet, as there is no free node: n if all do.
    """
    nodes, edges, counted = Waiting(*nodes), BinEdges(*edges), WaitBins(*counted)
    free, waiting = regs[FREE], regs[N_WAITING]
    n, n_times, n_counts = states.shape[0], np.int64(edges.times.shape[0]), np.int64(edges.counts.shape[0])
    p, time, i = _U(0), np.int64(0), begin
    while i < n and free >= 0:
        event = _U(i)
        if partitions.shape[0] > 0:
            p = _U(partitions[event])
            if i + _AHEAD < n:
                prefetch(lists, _U(partitions[_U(i + _AHEAD)]) * _U(LIST_COLUMNS))
        if n_times:
            time = times[event]
        ordinal = lists[p, COUNT]
        lists[p, COUNT] = ordinal + 1
        if ends[event]:
            node, passed = lists[p, FIRST], ordinal - lists[p, ORDINAL]
            time_bin, count_bin = n_times, n_counts
            if node >= 0:
                waiting -= passed
                count_bin = first_bin(passed, edges.counts)
                if n_times:
                    time_bin = first_bin(time - nodes.times[_U(node)], edges.times)
            while node >= 0:
                at = _U(node)
                state = _U(nodes.links[at, STATE])
                if n_times:
                    time_bin = bin_of(time - nodes.times[at], edges.times, time_bin)
                count_bin = bin_of(passed, edges.counts, count_bin)
                counted.times[state, _U(time_bin)] += 1
                counted.counts[state, _U(count_bin)] += 1
                after = np.int64(nodes.links[at, NEXT])
                nodes.links[at, NEXT] = free
                free, node = node, after
                passed -= 1
            lists[p, FIRST] = -1
        else:
            free, freed = free_decided(p, time, ordinal, nodes, lists, edges, counted, free)
            waiting -= freed
        own, after = _U(free), np.int64(nodes.links[_U(free), NEXT])
        nodes.links[own, STATE], nodes.links[own, NEXT] = states[event], -1
        if n_times:
            nodes.times[own] = time
        if lists[p, FIRST] < 0:
            lists[p, FIRST], lists[p, ORDINAL] = free, ordinal
        else:
            nodes.links[_U(lists[p, LAST]), NEXT] = free
        lists[p, LAST] = free
        free = after
        waiting += 1
        i += 1
    regs[FREE], regs[N_WAITING] = free, waiting
    return i


@kernel
def drop_decided(now, nodes, lists, edges, counted, regs):
    """Count what waits longer than any length at a time to which the stream has come, and free it.

    Parameters
    ----------
    now : int
    nodes : Waiting
    lists : int64, shape (partitions, LIST_COLUMNS), written
    edges : BinEdges, read
    counted : WaitBins
    regs : int64, shape (N_REGS,), written
    """
    nodes, edges, counted = Waiting(*nodes), BinEdges(*edges), WaitBins(*counted)
    free, waiting = regs[FREE], regs[N_WAITING]
    for partition in range(lists.shape[0]):
        p = _U(partition)
        free, freed = free_decided(p, now, lists[p, COUNT] - 1, nodes, lists, edges, counted, free)
        waiting -= freed
    regs[FREE], regs[N_WAITING] = free, waiting


@kernel
def count_censored(now, nodes, lists, edges, counted):
    """Count what waits when the history ends, by how long it was watched.

    Parameters
    ----------
    now : int
        Time of the last event of the history.
    nodes : Waiting, read
    lists : int64, shape (partitions, LIST_COLUMNS)
    edges : BinEdges, read
    counted : WaitBins
        In the bin after the last edge is what was watched for longer than all lengths: nothing hides it.
    """
    nodes, edges, counted = Waiting(*nodes), BinEdges(*edges), WaitBins(*counted)
    n_times, n_counts = np.int64(edges.times.shape[0]), np.int64(edges.counts.shape[0])
    for partition in range(lists.shape[0]):
        p = _U(partition)
        node, passed = lists[p, FIRST], lists[p, COUNT] - 1 - lists[p, ORDINAL]
        time_bin, count_bin = n_times, n_counts
        while node >= 0:
            at = _U(node)
            state = _U(nodes.links[at, STATE])
            if n_times:
                time_bin = bin_of(now - nodes.times[at], edges.times, time_bin)
            count_bin = bin_of(passed, edges.counts, count_bin)
            counted.times[state, _U(time_bin)] += 1
            counted.counts[state, _U(count_bin)] += 1
            node = np.int64(nodes.links[at, NEXT])
            passed -= 1
