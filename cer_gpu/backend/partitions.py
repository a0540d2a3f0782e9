"""Keys -> dense numbers of partitions, and the number of each event in its partition.

Events that come partition by partition have runs of equal keys, which are found first; then the partition of each run
is looked up, and last its events are numbered, so that each loop waits for few rows of memory.  Events of one shard of
the keys are selected before anything is looked up for them (`distribute_events`).
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch


@helper
def _in_shard(words, row, shard, n_shards):
    """Return whether a key is in a shard; the high bits of its hash decide, as the low ones choose rows of tables."""
    mixed = _U(0)
    for k in range(words.shape[1]):
        mixed = (mixed ^ words[row, _U(k)]) * _U(0x9E3779B97F4A7C15)
        mixed ^= mixed >> _U(32)
    return np.int64(((mixed >> _U(32)) * _U(n_shards)) >> _U(32)) == shard


@kernel
def distribute_events(words, codes, rows, shard, n_shards, own, before, selected, places):
    """Find the events of one shard of the keys.

    Parameters
    ----------
    words : uint64, shape (keys, words of a key)
        Keys as words that depend on their values alone.
    codes : int32, shape (n,), or (0,)
        Key of each event; empty: `words` has those of the events, one after the other.
    rows : int32, shape (relevant,)
        The relevant events.
    shard, n_shards : int
        Number of this shard, from 0, and of all.
    own : int32, shape (at least n + 1,), written
        Events of the shard, ascending.
    before : int32, shape (n + 1,), written
        Events of the shard before each event; then all.
    selected : int32, shape (at least relevant + 1,), written
        Indices of the relevant events of the shard.
    places : int32, shape (at least relevant + 1,), written
        Their places among the events of the shard.

    Returns
    -------
    (int, int)
        Events of the shard, and relevant ones.
    """
    n_own = 0
    for i in range(before.shape[0] - 1):
        key = _U(codes[_U(i)]) if codes.shape[0] > 0 else _U(i)
        own[_U(n_own)] = i
        before[_U(i)] = n_own
        n_own += _in_shard(words, key, shard, n_shards)
    before[before.shape[0] - 1] = n_own
    n_selected = 0
    for j in range(rows.shape[0]):
        row = _U(rows[_U(j)])
        selected[_U(n_selected)] = j
        places[_U(n_selected)] = before[row]
        n_selected += before[row + _U(1)] - before[row]
    return n_own, n_selected


# a row of the hash table: the hash of a key, and its partition (-1: the row is free)
HASH, PARTITION = range(2)

UNASSIGNED = -1
"""Partition number of a key that has none yet."""

_LARGE_TABLE = 1 << 12
"""Rows from which on a table does not stay in the nearest cache."""
_AHEAD = 16
"""Runs from the prefetch of a key's row to its use; the row lies anywhere in such a table."""

_U = np.uint64


@helper
def _hash(words, row):
    """Return the hash of a key."""
    mixed = _U(0)
    for k in range(words.shape[1]):
        mixed = (mixed ^ words[row, _U(k)]) * _U(0x9E3779B97F4A7C15)
        mixed ^= mixed >> _U(32)
    return mixed


@helper
def _same_words(words, a, b):
    """Return whether two keys are equal."""
    same = words[a, _U(0)] == words[b, _U(0)]
    for k in range(1, words.shape[1]):
        same &= words[a, _U(k)] == words[b, _U(k)]
    return same


@kernel
def find_runs(words, present, begins):
    """Cut a block into runs of equal keys.

    Parameters
    ----------
    words : uint64 or int32, shape (n, words of a key)
        Key of each event that counts.
    present : bool, shape (n,), or (0,)
        True for an event with a key to assign; empty if all have one.
    begins : int32, shape (n + 1,), written
        First event of each run; then n.

    Returns
    -------
    int
        Number of runs.
    """
    n = words.shape[0]
    n_runs = 0
    for row in range(n):
        begins[_U(n_runs)] = row
        before = _U(max(row - 1, 0))
        begun = (row == 0) | (not _same_words(words, _U(row), before))
        if present.shape[0] > 0:
            begun |= present[_U(row)] != present[before]
        n_runs += begun
    begins[_U(n_runs)] = n
    return n_runs


@helper
def _next_relevant(rows, j, begin):
    """Return the first of the relevant events from the j-th on that is not before another event."""
    while j < rows.shape[0] and rows[_U(j)] < begin:
        j += 1
    return j


@helper
def _string_of(codes, numbers, row):
    """Return the id of the string of an event."""
    code = _U(codes[row, 0])
    return _U(numbers[code]) if numbers.shape[0] > 0 else code


@helper
def _find(words, row, table, keys):
    """Return the row of a key in the hash table, or the free one for it, and its partition, or `UNASSIGNED`."""
    width = words.shape[1]
    key = _hash(words, row)
    slot = key & _U(table.shape[0] - 1)
    partition = table[slot, PARTITION]
    while partition >= 0:
        same = _U(table[slot, HASH]) == key
        if width > 1 and same:  # keys of one word have hashes of their own
            for k in range(width):
                same &= keys[_U(partition), _U(k)] == words[row, _U(k)]
        if same:
            break
        slot = (slot + _U(1)) & _U(table.shape[0] - 1)
        partition = table[slot, PARTITION]
    return slot, partition


@kernel
def assign_partitions(words, numbers, present, begins, rows, table, keys, counts, start, n_keys, partitions):
    """Assign numbers to the keys of runs, new ones as relevant events appear.

    Keys of one string each need no hash: they are ids of strings, or codes of these, and `table` is an array by them.

    Parameters
    ----------
    words : uint64 or int32, shape (n, words of a key)
        Words, or codes of strings.
    numbers : int32, shape (codes,), or (0,)
        Id of the string of each code; empty where codes are ids, and for words.
    present : bool, shape (n,), or (0,)
    begins : int32, shape (runs + 1,)
        These are as `find_runs` has them.
    rows : int32, shape (relevant,)
        The relevant ones of the n events, ascending, others only count; not read if there are n.
    table : int64 or int32, shape (2**table, 2), or (strings,), written
        Open-addressing hash table, or partitions of strings: `UNASSIGNED`, or less for a key not to be assigned.
    keys : uint64, shape (capacity, words of a key), written
        Key of each partition.
    counts : int64, shape (capacity,), written
        Events of each partition before the block, such that the first relevant event of a new one gets the number 0.
    start, n_keys : int
        Run to begin at, and number of partitions.
    partitions : int32, shape (runs,), written
        Partition of each run; less than 0 if it has no key to assign, or a new one without a relevant event.

    Returns
    -------
    (int, int)
        `start` and `n_keys` for the next call; `start` is less than the number of runs if there was no space for a new
        key.
    """
    n_runs, width = partitions.shape[0], words.shape[1]
    all_present, all_relevant = present.shape[0] == 0, rows.shape[0] == words.shape[0]
    large = table.shape[0] >= _LARGE_TABLE
    j = 0
    for run in range(start, n_runs):
        if large and run + _AHEAD < n_runs:
            ahead = _U(begins[_U(run + _AHEAD)])
            if table.ndim == 1:
                prefetch(table, _string_of(words, numbers, ahead))
            else:
                prefetch(table, (_hash(words, ahead) & _U(table.shape[0] - 1)) * _U(2))
        r = _U(begins[_U(run)])
        partition = np.int64(UNASSIGNED)
        if all_present or present[r]:
            if table.ndim == 1:
                slot = _string_of(words, numbers, r)
                partition = np.int64(table[slot])
            else:
                slot, partition = _find(words, r, table, keys)
            if partition == UNASSIGNED:
                # a partition without a relevant event holds nothing that could be counted from
                first = np.int64(r)
                if not all_relevant:
                    j = _next_relevant(rows, j, first)
                    first = np.int64(rows[_U(j)]) if j < rows.shape[0] else words.shape[0]
                if first < begins[_U(run + 1)]:
                    if n_keys >= keys.shape[0]:
                        return run, n_keys
                    partition = np.int64(n_keys)
                    if table.ndim == 1:
                        table[slot] = np.int32(partition)
                        keys[_U(partition), 0] = slot
                    else:
                        table[slot, HASH] = np.int64(_hash(words, r))
                        table[slot, PARTITION] = partition
                        for k in range(width):
                            keys[_U(partition), _U(k)] = words[r, _U(k)]
                    counts[_U(partition)] = np.int64(r) - first
                    n_keys += 1
        partitions[_U(run)] = np.int32(partition)
    return n_runs, n_keys


@kernel
def number_events(begins, rows, of_runs, counts, partitions, ordinals):
    """Write the partitions of the relevant events of a block, and count all its events.

    Parameters
    ----------
    begins : int32, shape (runs + 1,)
    rows : int32, shape (relevant,)
    of_runs : int32, shape (runs,)
        Partition of each run, or less than 0.
    counts : int64, shape (capacity,), written
        Events of each partition so far.
    partitions : int32, shape (relevant + 1,), written
        Partition of each relevant event, or less than 0.
    ordinals : int64, shape (relevant + 1,), or (0,), written
        Number of each relevant event in its partition; empty where it does not matter, so that nothing is counted.
    """
    n_runs, counted = of_runs.shape[0], ordinals.shape[0] > 0
    n_relevant = rows.shape[0]
    is_all = n_relevant == begins[_U(n_runs)]
    j = 0
    for run in range(n_runs):
        p, begin, end = of_runs[_U(run)], begins[_U(run)], begins[_U(run + 1)]
        count = np.int64(0)
        if counted and p >= 0:
            count = counts[_U(p)]
            counts[_U(p)] = count + end - begin
        if is_all:
            # mostly, a run is of one event, or of many
            partitions[_U(begin)] = p
            if counted:
                ordinals[_U(begin)] = count
            if end - begin > 1:
                for i in range(begin + 1, end):
                    partitions[_U(i)] = p
                    if counted:
                        ordinals[_U(i)] = count + i - begin
        else:
            while j < n_relevant and rows[_U(j)] < end:
                partitions[_U(j)] = p
                if counted:
                    ordinals[_U(j)] = count + rows[_U(j)] - begin
                j += 1


@kernel
def hash_keys(keys, table):
    """Put the keys of all partitions into a hash table that is empty (-1 everywhere).

    Parameters
    ----------
    keys : uint64, shape (n, words of a key)
        Distinct keys; those of one word have distinct hashes.
    table : int64, shape (2**table, 2), written
    """
    mask = _U(table.shape[0] - 1)
    n = keys.shape[0]
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(table, (_hash(keys, _U(i + _AHEAD)) & mask) * _U(2))
        key = _hash(keys, _U(i))
        slot = key & mask
        while table[slot, PARTITION] >= 0:
            slot = (slot + _U(1)) & mask
        table[slot, HASH] = np.int64(key)
        table[slot, PARTITION] = i


@kernel
def find_earlier(rows, partitions, first, lags, counts, rings, places, before, retained):
    """Find, for each event of a block, the events some places before it in its partition.

    Parameters
    ----------
    rows, partitions : int32, shape (n,)
        Events that have a partition, in order; its id.
    first : int
        Position of the first event of the block.
    lags : int64, shape (m,)
        Numbers of places, at most the length of a ring.
    counts : int64, shape (at least partitions,), written
        Events of each partition so far.
    rings : int64, shape (at least partitions, length), written
        One more than the positions of the last events of each partition: the k-th event is at k modulo the length.
    places : int32, shape (m, events of the block), written
        Rows of the block; their number where there is no such event, and 1 + k above it for the k-th of `before`.
    before : int64, shape (at most m * n,), written
        Positions of the events before the block.
    retained : bool, shape (events of the block,), written
        True for events that are in a ring after the block.

    Returns
    -------
    int
        Number of events before the block.
    """
    length, n_rows, n_before = rings.shape[1], places.shape[1], 0
    for i in range(rows.shape[0]):
        row, partition = _U(rows[_U(i)]), _U(partitions[_U(i)])
        count = counts[partition]
        for k in range(lags.shape[0]):
            place = n_rows
            if count >= lags[_U(k)]:
                position = rings[partition, _ring_place(count - lags[_U(k)], length)] - 1
                place = position - first
                if place < 0:
                    before[_U(n_before)] = position
                    n_before += 1
                    place = n_rows + n_before
            places[_U(k), row] = np.int32(place)
        slot = _ring_place(count, length)
        if count >= length and rings[partition, slot] > first:
            retained[_U(rings[partition, slot] - 1 - first)] = False
        rings[partition, slot] = first + np.int64(row) + 1
        retained[row] = True
        counts[partition] = count + 1
    return n_before


@helper
def _ring_place(count, length):
    """Return the place in a ring of the event of this number."""
    return _U(0) if length == 1 else _U(count % length)
