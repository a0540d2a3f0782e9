"""Values that lie in the window of each key: queues in one pool of entries, and the number of values in them.

A key has a row of numbers: the first and last entry of its queue, and the number of them.  Entries are numbered from
1, so that a row of zeros is an empty queue.  Values that left the window are taken out when an event of the key comes;
where one clock is that of all keys, a full pool is swept of them before it grows.

A loop returns the number of the first event that it has not read, because the pool is full, or the number of all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch

# columns of a key's row; further state of an aggregate comes after them
HEAD, TAIL, SIZE = range(3)
STATE_WIDTH = 4

# columns of an entry: the next one of its queue, its clock, its value, the one before it, the next one of its bucket,
# and its key; an aggregate has as many of them as it needs
NEXT, CLOCK, VALUE, PREV, CHAIN, KEY = range(6)

# the free entries: the first of those that were released, the first that was never used, and how many are in use
RELEASED, UNUSED, IN_USE = range(3)

# kinds of values
INTEGERS, NATURALS, FLOATS = range(3)

_LOWEST = -(2**63)
_REST = 2**63 - 1
"""All bits but that of the sign."""
_INFINITE, _NAN = 0x7FF0000000000000, 0x7FF8000000000000
"""Bits of a float64."""
_ROWS_AHEAD, _ENTRIES_AHEAD = 24, 12
"""Events from the prefetch of a key's row, and of its first entry, to their use."""
_LINE = 8
"""Numbers in a line of the cache."""
_U = np.uint64


class Pool(NamedTuple):
    """Entries of all queues.

    Attributes
    ----------
    cells : int64, shape (entries, columns), written
        Entries; 0 stands for none.
    clocks : clock, shape (entries, columns), written
        The same memory, for the clocks.
    free : int64, shape (3,), written
    """

    cells: Any
    clocks: Any
    free: Any


class WindowEvents(NamedTuple):
    """Events of a block that have a key.

    Attributes
    ----------
    rows : int32, shape (n,)
    keys : int32, shape (n,)
    clocks : clock, shape (n,)
        Clock of each, not decreasing within a key.
    length : clock
        Length of the window.
    chosen : bool, shape (block,)
        True for the events whose values count, of all rows of the block.
    values : int64, shape (block,), or (1,)
    """

    rows: Any
    keys: Any
    clocks: Any
    length: Any
    chosen: Any
    values: Any


@helper
def take_entry(pool):
    """Return a free entry; 0: there is none."""
    entry = pool.free[RELEASED]
    if entry != 0:
        pool.free[RELEASED] = pool.cells[_U(entry), NEXT]
    elif pool.free[UNUSED] < pool.cells.shape[0]:
        entry = pool.free[UNUSED]
        pool.free[UNUSED] = entry + 1
    if entry != 0:
        pool.free[IN_USE] += 1
    return entry


@helper
def has_entry(pool):
    """Return whether an entry is free."""
    return pool.free[RELEASED] != 0 or pool.free[UNUSED] < pool.cells.shape[0]


@helper
def release_entry(pool, entry):
    """Add an entry to the free ones."""
    pool.cells[_U(entry), NEXT] = pool.free[RELEASED]
    pool.free[RELEASED] = entry
    pool.free[IN_USE] -= 1


@helper
def push_last(state, pool, key, clock):
    """Append an entry to the queue of a key, and return it, or 0 if none is free."""
    entry = take_entry(pool)
    if entry != 0:
        pool.cells[_U(entry), NEXT] = 0
        pool.clocks[_U(entry), CLOCK] = clock
        last = state[key, TAIL]
        if last == 0:
            state[key, HEAD] = entry
        else:
            pool.cells[_U(last), NEXT] = entry
        state[key, TAIL] = entry
        state[key, SIZE] += 1
    return entry


@helper
def pop_first(state, pool, key):
    """Take the first entry out of the queue of a key, which is not empty."""
    entry = state[key, HEAD]
    following = pool.cells[_U(entry), NEXT]
    state[key, HEAD] = following
    if following == 0:
        state[key, TAIL] = 0
    state[key, SIZE] -= 1
    release_entry(pool, entry)


@helper
def has_left(pool, entry, clock, length):
    """Return whether an entry, if it is one, is out of the window that ends at a clock."""
    return entry != 0 and clock - pool.clocks[_U(entry), CLOCK] > length


@helper
def prefetch_entries(state, pool, keys, k):
    """Fetch the row of the key of an event to come, and the first entry of the queue of one that comes before it."""
    n = keys.shape[0]
    if k + _ROWS_AHEAD < n:
        first = _U(keys[_U(k + _ROWS_AHEAD)]) * _U(state.shape[1])
        for line in range(0, state.shape[1], _LINE):
            prefetch(state, first + _U(line))
    if k + _ENTRIES_AHEAD < n:
        entry = _U(state[_U(keys[_U(k + _ENTRIES_AHEAD)]), HEAD])
        if entry != 0:
            prefetch(pool.cells, entry * _U(pool.cells.shape[1]))


@helper
def _expire_queue(state, pool, key, clock, length):
    while has_left(pool, state[key, HEAD], clock, length):
        pop_first(state, pool, key)


@kernel
def count_in_windows(events, start, sweep, n_keys, state, pool, results):
    """Count the events in the window of each event.

    Parameters
    ----------
    events : WindowEvents
    start : int
        Event to begin with.
    sweep : int
        1: only take out what has left the window of any key, by the clock of that event.
    n_keys : int
    state : int64, shape (keys, STATE_WIDTH), written
    pool : Pool
    results : int64, shape (block,), written

    Returns
    -------
    int
    """
    if sweep == 1:
        for each in range(n_keys):
            _expire_queue(state, pool, _U(each), events.clocks[_U(start)], events.length)
        return start
    for k in range(start, events.rows.shape[0]):
        prefetch_entries(state, pool, events.keys, k)
        row, key, clock = _U(events.rows[_U(k)]), _U(events.keys[_U(k)]), events.clocks[_U(k)]
        _expire_queue(state, pool, key, clock, events.length)
        if events.chosen[row] and push_last(state, pool, key, clock) == 0:
            return k
        results[row] = state[key, SIZE]
    return events.rows.shape[0]


@helper
def _unlink_last(state, pool, key):
    """Take the last entry out of the queue of a key, whose entries are linked both ways."""
    entry = state[key, TAIL]
    before = pool.cells[_U(entry), PREV]
    state[key, TAIL] = before
    if before == 0:
        state[key, HEAD] = 0
    else:
        pool.cells[_U(before), NEXT] = 0
    state[key, SIZE] -= 1
    release_entry(pool, entry)


@helper
def _expire_linked(state, pool, key, clock, length):
    """Take out what has left the window of a key, whose entries are linked both ways."""
    while has_left(pool, state[key, HEAD], clock, length):
        pop_first(state, pool, key)
        if state[key, HEAD] != 0:
            pool.cells[_U(state[key, HEAD]), PREV] = 0


@helper
def _rank_of(bits, kind, least):
    """Return an integer in the order of the values, with the greatest first where the least is requested."""
    if kind == FLOATS:
        if bits & _REST > _INFINITE:
            return _LOWEST
        bits = 0 if bits == _LOWEST else bits  # -0.0
        rank = bits ^ ((bits >> 63) & _REST)
    else:
        rank = bits ^ _LOWEST if kind == NATURALS else bits
    return ~rank if least else rank


@helper
def _bits_of_rank(rank, kind, least):
    """Return the value of a rank."""
    if kind == FLOATS and rank == _LOWEST:
        return _NAN
    rank = ~rank if least else rank
    if kind == FLOATS:
        return rank ^ ((rank >> 63) & _REST)
    return rank ^ _LOWEST if kind == NATURALS else rank


@kernel
def find_extremes(events, start, sweep, n_keys, state, pool, kind, least, results, has_result):
    """Find the greatest or least value in each event's window; the first arguments are those of `count_in_windows`.

    A value that a later one of its key is not below is dropped at once: a queue is strictly descending, and its first
    value is the greatest.

    Parameters
    ----------
    events : WindowEvents
    start, sweep, n_keys : int
    state : int64, shape (keys, STATE_WIDTH), written
    pool : Pool
    kind : int
        INTEGERS, NATURALS (uint64) or FLOATS (their bits); NaN is taken only where there is nothing else.
    least : bool
    results : int64, shape (block,), written
    has_result : bool, shape (block,), written
        True where there is a value.

    Returns
    -------
    int
        As of `count_in_windows`.
    """
    if sweep == 1:
        for each in range(n_keys):
            _expire_linked(state, pool, _U(each), events.clocks[_U(start)], events.length)
        return start
    for k in range(start, events.rows.shape[0]):
        prefetch_entries(state, pool, events.keys, k)
        row, key, clock = _U(events.rows[_U(k)]), _U(events.keys[_U(k)]), events.clocks[_U(k)]
        _expire_linked(state, pool, key, clock, events.length)
        if events.chosen[row]:
            rank = _rank_of(events.values[row], kind, least)
            while state[key, TAIL] != 0 and pool.cells[_U(state[key, TAIL]), VALUE] <= rank:
                _unlink_last(state, pool, key)
            last = state[key, TAIL]
            entry = push_last(state, pool, key, clock)
            if entry == 0:
                return k
            pool.cells[_U(entry), PREV] = last
            pool.cells[_U(entry), VALUE] = rank
        first = state[key, HEAD]
        has_result[row] = first != 0
        results[row] = _bits_of_rank(pool.cells[_U(first), VALUE], kind, least)  # that of entry 0 is never looked at
    return events.rows.shape[0]


@helper
def _bucket_of_value(buckets, key, value):
    """Return the bucket of a value of a key."""
    mixed = (_U(value) ^ (_U(key) * _U(0xD6E8FEB86659FD93))) * _U(0x9E3779B97F4A7C15)
    mixed ^= mixed >> _U(32)
    mixed *= _U(0x9E3779B97F4A7C15)
    mixed ^= mixed >> _U(29)
    return mixed & _U(buckets.shape[0] - 1)


@helper
def _unchain(pool, buckets, entry):
    """Take an entry out of its bucket."""
    cells = pool.cells
    bucket = _bucket_of_value(buckets, cells[_U(entry), KEY], pool.cells[_U(entry), VALUE])
    here = np.int64(buckets[bucket])
    if here == entry:
        buckets[bucket] = cells[_U(entry), CHAIN]
        return
    while cells[_U(here), CHAIN] != entry:
        here = cells[_U(here), CHAIN]
    cells[_U(here), CHAIN] = cells[_U(entry), CHAIN]


@helper
def _expire_distinct(state, pool, buckets, key, clock, length):
    while has_left(pool, state[key, HEAD], clock, length):
        _unchain(pool, buckets, state[key, HEAD])
        pop_first(state, pool, key)
        if state[key, HEAD] != 0:
            pool.cells[_U(state[key, HEAD]), PREV] = 0


@kernel
def count_distinct(events, start, sweep, n_keys, state, pool, buckets, results):
    """Count the distinct values in the window of each event; the arguments are those of `count_in_windows`.

    A queue holds each value once, in the order in which they were met last.

    Parameters
    ----------
    events : WindowEvents
    start, sweep, n_keys : int
    state : int64, shape (keys, STATE_WIDTH), written
    pool : Pool
    buckets : int32, shape (2**buckets,), written
        First entry of each bucket of (key, value); 0: none.
    results : int64, shape (block,), written

    Returns
    -------
    int
        As of `count_in_windows`.
    """
    if sweep == 1:
        for each in range(n_keys):
            _expire_distinct(state, pool, buckets, _U(each), events.clocks[_U(start)], events.length)
        return start
    cells = pool.cells
    for k in range(start, events.rows.shape[0]):
        prefetch_entries(state, pool, events.keys, k)
        row, key, clock = _U(events.rows[_U(k)]), _U(events.keys[_U(k)]), events.clocks[_U(k)]
        _expire_distinct(state, pool, buckets, key, clock, events.length)
        if events.chosen[row]:
            value = events.values[row]
            bucket = _bucket_of_value(buckets, events.keys[_U(k)], value)
            entry = np.int64(buckets[bucket])
            while entry != 0 and (pool.cells[_U(entry), VALUE] != value or cells[_U(entry), KEY] != events.keys[_U(k)]):
                entry = cells[_U(entry), CHAIN]
            last = state[key, TAIL]
            if entry == 0:
                entry = push_last(state, pool, key, clock)
                if entry == 0:
                    return k
                cells[_U(entry), PREV] = last
                cells[_U(entry), KEY] = events.keys[_U(k)]
                pool.cells[_U(entry), VALUE] = value
                cells[_U(entry), CHAIN] = buckets[bucket]
                buckets[bucket] = np.int32(entry)
            else:
                if entry != last:
                    before, after = cells[_U(entry), PREV], cells[_U(entry), NEXT]
                    cells[_U(after), PREV] = before
                    if before == 0:
                        state[key, HEAD] = after
                    else:
                        cells[_U(before), NEXT] = after
                    cells[_U(last), NEXT] = entry
                    cells[_U(entry), PREV], cells[_U(entry), NEXT] = last, 0
                    state[key, TAIL] = entry
                pool.clocks[_U(entry), CLOCK] = clock
        results[row] = state[key, SIZE]
    return events.rows.shape[0]


@kernel
def rebuild_chains(state, pool, buckets, n_keys):
    """Fill other buckets, which are all 0, with the entries of all queues.

    Parameters
    ----------
    state : int64, shape (keys, STATE_WIDTH)
    pool : Pool
    buckets : int32, shape (2**buckets,), written
    n_keys : int
    """
    for key in range(n_keys):
        entry = state[_U(key), HEAD]
        while entry != 0:
            bucket = _bucket_of_value(buckets, pool.cells[_U(entry), KEY], pool.cells[_U(entry), VALUE])
            pool.cells[_U(entry), CHAIN] = buckets[bucket]
            buckets[bucket] = np.int32(entry)
            entry = pool.cells[_U(entry), NEXT]


@kernel
def mark_absences(events, met, last, results):
    """Find the events before which no chosen one lies in the window: strictly before in position.

    Parameters
    ----------
    events : WindowEvents
    met : bool, shape (keys,), written
        True for the keys with a chosen event so far.
    last : clock, shape (keys,), written
        Clock of the last one.
    results : bool, shape (block,), written
    """
    for k in range(events.rows.shape[0]):
        row, key, clock = _U(events.rows[_U(k)]), _U(events.keys[_U(k)]), events.clocks[_U(k)]
        results[row] = not met[key] or clock - last[key] > events.length
        if events.chosen[row]:
            met[key] = True
            last[key] = clock
