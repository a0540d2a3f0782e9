"""The loops that count, for each state, how long it takes until the next end of a match in the same substream.

An event waits as a node in the list of its substream, from the oldest to the newest, until a match ends there, or it
has waited longer than the longest length that is asked for: then no later end matters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel

# registers: the first free node, or -1; how many nodes wait
FREE, N_WAITING, N_REGS = range(3)

_U = np.uint64


class Waiting(NamedTuple):
    """Events that wait.

    Attributes
    ----------
    states : int32, shape (size,), written
        Number of the state after the event.
    times : int64, shape (size,), written
    ordinals : int64, shape (size,), written
        Number of the event in its substream.
    nexts : int32, shape (size,), written
        The event behind it, or the next free node; -1: none.
    """

    states: Any
    times: Any
    ordinals: Any
    nexts: Any


class WaitLists(NamedTuple):
    """WaitLists of the nodes of each substream.

    Attributes
    ----------
    firsts : int32, shape (partitions,), written
        Oldest node, or -1.
    lasts : int32, shape (partitions,), written
    counts : int64, shape (partitions,), written
        Events of the substream so far.
    """

    firsts: Any
    lasts: Any
    counts: Any


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
def bin_of(amount, edges):
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
def is_beyond(amount, edges):
    """Return True if an amount is above the last edge."""
    n = np.int64(edges.shape[0])
    return n == 0 or amount > edges[_U(n - 1)]


@kernel
def count_waits(partitions, times, states, ends, begin, nodes, lists, edges, counted, regs):
    """Let each event wait, and count those that waited for an end that it is.

    Parameters
    ----------
    partitions : int32, shape (n,)
    times : int64, shape (n,)
        Within a partition they do not decrease; zeros where there is no time.
    states : int32, shape (n,)
        Numbers of the states after the events.
    ends : bool, shape (n,)
        True: a match ends there.
    begin : int
        Event to begin at.
    nodes : Waiting
    lists : WaitLists
    edges : BinEdges, read
    counted : WaitBins
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        The first event that does not wait yet, as there is no free node: n if all do.
    """
    nodes, lists, edges, counted = Waiting(*nodes), WaitLists(*lists), BinEdges(*edges), WaitBins(*counted)
    free, waiting = regs[FREE], regs[N_WAITING]
    i = begin
    while i < partitions.shape[0] and free >= 0:
        event = _U(i)
        p, time = _U(partitions[event]), times[event]
        ordinal = lists.counts[p]
        lists.counts[p] = ordinal + 1
        node = np.int64(lists.firsts[p])
        while node >= 0:
            at = _U(node)
            waited, passed = time - nodes.times[at], ordinal - nodes.ordinals[at]
            if not ends[event] and not (is_beyond(waited, edges.times) and is_beyond(passed, edges.counts)):
                break
            state = _U(nodes.states[at])
            counted.times[state, _U(bin_of(waited, edges.times))] += 1
            counted.counts[state, _U(bin_of(passed, edges.counts))] += 1
            behind = np.int64(nodes.nexts[at])
            nodes.nexts[at] = free
            free, node = node, behind
            waiting -= 1
        own, after = _U(free), np.int64(nodes.nexts[_U(free)])
        nodes.states[own], nodes.times[own], nodes.ordinals[own] = states[event], time, ordinal
        nodes.nexts[own] = -1
        if node < 0:
            lists.firsts[p] = free
        else:
            lists.firsts[p] = node
            nodes.nexts[_U(lists.lasts[p])] = free
        lists.lasts[p] = free
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
    lists : WaitLists
    edges : BinEdges, read
    counted : WaitBins
    regs : int64, shape (N_REGS,), written
    """
    nodes, lists, edges, counted = Waiting(*nodes), WaitLists(*lists), BinEdges(*edges), WaitBins(*counted)
    free, waiting = regs[FREE], regs[N_WAITING]
    for p in range(lists.firsts.shape[0]):
        node = np.int64(lists.firsts[_U(p)])
        last = lists.counts[_U(p)] - 1
        while node >= 0:
            at = _U(node)
            waited, passed = now - nodes.times[at], last - nodes.ordinals[at]
            if not (is_beyond(waited, edges.times) and is_beyond(passed, edges.counts)):
                break
            state = _U(nodes.states[at])
            counted.times[state, _U(bin_of(waited, edges.times))] += 1
            counted.counts[state, _U(bin_of(passed, edges.counts))] += 1
            behind = np.int64(nodes.nexts[at])
            nodes.nexts[at] = free
            free, node = node, behind
            waiting -= 1
        lists.firsts[_U(p)] = node
    regs[FREE], regs[N_WAITING] = free, waiting


@kernel
def count_censored(now, nodes, lists, edges, counted):
    """Count what waits when the history ends, by how long it was watched.

    Parameters
    ----------
    now : int
        Time of the last event of the history.
    nodes : Waiting, read
    lists : WaitLists, read
    edges : BinEdges, read
    counted : WaitBins
        In the bin behind the last edge is what was watched for longer than all lengths: nothing hides it.
    """
    nodes, lists, edges, counted = Waiting(*nodes), WaitLists(*lists), BinEdges(*edges), WaitBins(*counted)
    for p in range(lists.firsts.shape[0]):
        node = np.int64(lists.firsts[_U(p)])
        last = lists.counts[_U(p)] - 1
        while node >= 0:
            at = _U(node)
            state = _U(nodes.states[at])
            counted.times[state, _U(bin_of(now - nodes.times[at], edges.times))] += 1
            counted.counts[state, _U(bin_of(last - nodes.ordinals[at], edges.counts))] += 1
            node = np.int64(nodes.nexts[at])
