"""Keys -> dense numbers of partitions, and the number of each event in its partition."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch

# a row of the hash table: the hash of a key, and its partition (-1: the row is free)
HASH, PARTITION = range(2)

UNASSIGNED = -1
"""Partition number of a key that has none yet."""

LARGE_TABLE = 1 << 12
"""Rows from which on a table does not stay in the nearest cache."""
AHEAD = 16
"""Events from the prefetch of a key's row to its use; the row lies anywhere in such a table."""

_U = np.uint64


@kernel
def hash_words(words, hashes):
    """Hash keys; distinct keys of one word have distinct hashes.

    Parameters
    ----------
    words : uint64, shape (n, words of a key)
    hashes : uint64, shape (n,), written
    """
    for i in range(words.shape[0]):
        mixed = _U(0)
        for k in range(words.shape[1]):
            mixed = (mixed ^ words[_U(i), _U(k)]) * _U(0x9E3779B97F4A7C15)
            mixed ^= mixed >> _U(32)
        hashes[_U(i)] = mixed


@helper
def _same_words(words, a, b):
    """Return whether two keys are equal."""
    same = words[a, _U(0)] == words[b, _U(0)]
    for k in range(1, words.shape[1]):
        same &= words[a, _U(k)] == words[b, _U(k)]
    return same


@kernel
def assign_partitions(
    words,
    hashes,
    present,
    relevant,
    table,
    keys,
    counts,
    start,
    n_read,
    n_keys,
    partitions,
    ordinals,
):
    """Assign numbers to the keys of events, new ones as they appear.

    Parameters
    ----------
    words : uint64, shape (n, words of a key)
        Key of each event that counts.
    hashes : uint64, shape (n,)
        Hashes of the keys (`hash_words`).
    present : bool, shape (n,), or (0,)
        True for an event with a key to assign; empty if all have one.
    relevant : bool, shape (n,), or (0,)
        True for a relevant event, others only count; empty if all are relevant.
    table : int64, shape (2**table, 2), written
        Open-addressing hash table.
    keys : uint64, shape (capacity, words of a key), written
        Key of each partition.
    counts : int64, shape (capacity,), written
        Events of each partition so far.
    start, n_read, n_keys : int
        Row to begin at, relevant events read so far, and partitions.
    partitions : int32, shape (at least 1,), written
        Partition of each relevant event; -1 without a key to assign.
    ordinals : int64, shape (at least 1,), or (0,), written
        Number of each relevant event in its partition; empty where it does not matter.

    Returns
    -------
    (int, int, int)
        `start`, `n_read` and `n_keys` for the next call; `start` is less than n if there was no room for a new key.
    """
    n, width = words.shape
    counted, all_matter, all_present = ordinals.shape[0] > 0, relevant.shape[0] == 0, present.shape[0] == 0
    large = table.shape[0] >= LARGE_TABLE
    mask = _U(table.shape[0] - 1)
    row = start
    while row < n:
        r = _U(row)
        if large and row + AHEAD < n:
            prefetch(table, (hashes[r + _U(AHEAD)] & mask) * _U(2))
            if counted:
                likely = table[hashes[r + _U(AHEAD // 2)] & mask, PARTITION]
                if likely >= 0:
                    prefetch(counts, _U(likely))
        matters = np.int64(1) if all_matter else np.int64(relevant[r])
        found = np.int64(UNASSIGNED)
        if all_present or present[r]:
            key = hashes[r]
            slot = key & mask
            found = table[slot, PARTITION]
            while found >= 0:
                same = _U(table[slot, HASH]) == key
                if width > 1 and same:  # keys of one word have hashes of their own
                    for k in range(width):
                        same &= keys[_U(found), _U(k)] == words[r, _U(k)]
                if same:
                    break
                slot = (slot + _U(1)) & mask
                found = table[slot, PARTITION]
            if found < 0 and matters:
                # a partition without a relevant event holds nothing that could be counted from
                if n_keys >= keys.shape[0]:
                    break
                found = np.int64(n_keys)
                table[slot, HASH] = np.int64(key)
                table[slot, PARTITION] = found
                for k in range(width):
                    keys[_U(found), _U(k)] = words[r, _U(k)]
                counts[_U(found)] = 0
                n_keys += 1
        partitions[_U(n_read)] = np.int32(found)
        count = np.int64(0)
        if counted and found >= 0:
            count = counts[_U(found)]
            ordinals[_U(n_read)] = count
            count += 1
        n_read += matters
        row += 1
        if found >= 0:
            # the rest of a run of equal keys needs no lookup
            while row < n and _same_words(words, r, _U(row)) and (all_present or present[_U(row)]):
                if large and row + AHEAD < n:
                    prefetch(table, (hashes[_U(row + AHEAD)] & mask) * _U(2))
                partitions[_U(n_read)] = np.int32(found)
                if counted:
                    ordinals[_U(n_read)] = count
                    count += 1
                n_read += np.int64(1) if all_matter else np.int64(relevant[_U(row)])
                row += 1
            if counted:
                counts[_U(found)] = count
    return row, n_read, n_keys


@kernel
def assign_partitions_of_texts(
    codes,
    numbers,
    present,
    relevant,
    table,
    keys,
    counts,
    start,
    n_read,
    n_keys,
    partitions,
    ordinals,
):
    """Assign numbers to keys of one text each, as `assign_partitions` does, by the number of the text.

    Parameters
    ----------
    codes : int32, shape (n,)
        Code of the key of each event that counts.
    numbers : int32, shape (codes,), or (0,)
        Number of the text of each code; empty where codes are numbers.
    present, relevant : bool, shape (n,), or (0,)
    table : int32, shape (texts,), written
        Partitions of texts; `UNASSIGNED`, or less for a key that is not to be assigned.
    keys : uint64, shape (capacity, 1), written
    counts : int64, shape (capacity,), written
    start, n_read, n_keys : int
    partitions : int32, shape (at least 1,), written
    ordinals : int64, shape (at least 1,), or (0,), written
    """
    n = codes.shape[0]
    counted, all_matter, all_present = ordinals.shape[0] > 0, relevant.shape[0] == 0, present.shape[0] == 0
    coded = numbers.shape[0] > 0
    large = table.shape[0] >= LARGE_TABLE
    row = start
    while row < n:
        r = _U(row)
        if large and row + AHEAD < n:
            code = _U(codes[r + _U(AHEAD)])
            prefetch(table, _U(numbers[code]) if coded else code)
            if counted:
                code = _U(codes[r + _U(AHEAD // 2)])
                likely = table[_U(numbers[code]) if coded else code]
                if likely >= 0:
                    prefetch(counts, _U(likely))
        matters = np.int64(1) if all_matter else np.int64(relevant[r])
        found = np.int64(UNASSIGNED)
        if all_present or present[r]:
            text = _U(codes[r])
            if coded:
                text = _U(numbers[text])
            found = np.int64(table[text])
            if found == UNASSIGNED and matters:
                if n_keys >= keys.shape[0]:
                    break
                found = np.int64(n_keys)
                table[text] = np.int32(found)
                keys[_U(found), 0] = text
                counts[_U(found)] = 0
                n_keys += 1
        partitions[_U(n_read)] = np.int32(found)
        count = np.int64(0)
        if counted and found >= 0:
            count = counts[_U(found)]
            ordinals[_U(n_read)] = count
            count += 1
        n_read += matters
        row += 1
        if found >= 0:
            # the rest of a run of equal keys needs no lookup
            while row < n and codes[_U(row)] == codes[r] and (all_present or present[_U(row)]):
                partitions[_U(n_read)] = np.int32(found)
                if counted:
                    ordinals[_U(n_read)] = count
                    count += 1
                n_read += np.int64(1) if all_matter else np.int64(relevant[_U(row)])
                row += 1
            if counted:
                counts[_U(found)] = count
    return row, n_read, n_keys


@kernel
def hash_keys(hashes, table):
    """Put the keys of all partitions into a hash table that is empty (-1 everywhere).

    Parameters
    ----------
    hashes : uint64, shape (n,)
    table : int64, shape (2**table, 2), written
    """
    mask = _U(table.shape[0] - 1)
    n = hashes.shape[0]
    for i in range(n):
        if i + AHEAD < n:
            prefetch(table, (hashes[_U(i + AHEAD)] & mask) * _U(2))
        slot = hashes[_U(i)] & mask
        while table[slot, PARTITION] >= 0:
            slot = (slot + _U(1)) & mask
        table[slot, HASH] = np.int64(hashes[_U(i)])
        table[slot, PARTITION] = i


@kernel
def find_earlier(rows, partitions, first, lags, counts, rings, earlier, kept):
    """Find, for each event of a block, the positions of the events some places before it in its partition.

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
    earlier : int64, shape (m, events of the block), written
        Positions; -1 where there is no such event.
    kept : bool, shape (events of the block,), written
        True for events that are in a ring after the block.
    """
    length = rings.shape[1]
    for i in range(rows.shape[0]):
        row, partition = _U(rows[_U(i)]), _U(partitions[_U(i)])
        count = counts[partition]
        for k in range(lags.shape[0]):
            if count >= lags[_U(k)]:
                earlier[_U(k), row] = rings[partition, _U((count - lags[_U(k)]) % length)] - 1
            else:
                earlier[_U(k), row] = -1
        slot = _U(count % length)
        if count >= length and rings[partition, slot] > first:
            kept[_U(rings[partition, slot] - 1 - first)] = False
        rings[partition, slot] = first + np.int64(row) + 1
        counts[partition] = count + 1
        kept[row] = True
