"""One semi-join of events with those of other groups that have an equal key and lie within the window.

A table has, for each hash of a key, the last event of each group.  One pass in the order of the stream looks both ways:
an event sees the last ones of the other groups before it; these, and those before them that are in its window, see it.
Keys of equal hashes count as one, so that some events seem to have partners that have none; never the other way round.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import fetch, helper, kernel

_U = np.uint64

GROUP, PLACE, VALID = range(3)
"""Columns of `JoinGroups.places`."""
LOOKS, NEEDS, DROPS = range(3)
"""Columns of `JoinGroups.groups`."""
EVENT, WHO, SLOT, SEEN, N_TAKING_PART = range(5)
"""Columns of the scratch; once an event is read, SLOT has the one before it in its slot and group."""
_SOON = 16
"""Events whose slots are fetched ahead."""
_WIDE = 6
"""Bits of the place in WHO; the group is in the bits above them."""


class JoinGroups(NamedTuple):
    """A semi-join, as the loop reads it.

    Attributes
    ----------
    places : int64, shape (places, 3)
        Columns GROUP; PLACE, the bit of the place in the word of an event; and VALID, the bits of the valid columns
        that its key needs.
    columns : int64, shape (places, max values)
        Columns of the event that make the key, then -1.
    groups : int64, shape (groups, 3)
        Columns LOOKS, the groups as bits whose earlier events are partners; NEEDS, those in which there must be one;
        and DROPS, 1 if events without partners are dropped.
    only : int64, shape (symbols,)
        The only one of these places at which an event of each symbol may be; -1: there are several, or none.
    """

    places: Any
    columns: Any
    groups: Any
    only: Any


@helper
def _key_of(attributes, columns, event, p, partition):
    """Return the hash of the key of an event at a place, whose high bits are mixed best."""
    h = (_U(partition) + _U(1)) * _U(0x9E3779B97F4A7C15)
    k = _U(0)
    while k < _U(columns.shape[1]) and columns[p, k] >= 0:
        h = (h ^ _U(attributes[event, _U(columns[p, k])])) * _U(0xFF51AFD7ED558CCD)
        h ^= h >> _U(32)
        k += _U(1)
    return h * _U(0x9E3779B97F4A7C15)


@helper
def _add(word, event, valid, h, join, p, n_bits, scratch, n):
    """Write an event at one of its places to the scratch, if it has a key; return its places, and the new number."""
    place, group = join.places[p, PLACE], join.places[p, GROUP]
    without = valid & join.places[p, VALID] != join.places[p, VALID]
    word &= ~(np.int64(without & (join.groups[_U(group), DROPS] == 1)) << place)
    # written in any case: a jump that nothing foretells would cost more
    scratch[n, EVENT], scratch[n, WHO] = event, group << _WIDE | place
    scratch[n, SLOT] = np.int64(h >> _U(64 - n_bits))
    scratch[n, SEEN] = 0
    return word, n + _U((word >> place) & np.int64(not without))


@helper
def _take_part(words, symbols, attributes, partitions, join, n_bits, chosen, scratch):
    """Write the events at the places of a semi-join to the scratch, each place by itself; return their number."""
    places, columns = join.places, join.columns
    n_places = places.shape[0]
    mask = np.int64(0)
    for i in range(n_places):
        mask |= np.int64(1) << places[_U(i), PLACE]
    n_chosen = _U(0)
    for e in range(words.shape[0]):
        chosen[n_chosen] = e
        n_chosen += _U(words[_U(e)] & mask != 0)
    n = _U(0)
    for c in range(n_chosen):
        event = _U(chosen[_U(c)])
        partition = np.int64(partitions[event]) if partitions.shape[0] > 0 else np.int64(0)
        valid = attributes[event, 0]
        only = join.only[_U(symbols[event])]
        if only >= 0:
            h = _key_of(attributes, columns, event, _U(only), partition)
            words[event], n = _add(words[event], event, valid, h, join, _U(only), n_bits, scratch, n)
        else:
            for i in range(n_places):
                p = _U(i)
                if (words[event] >> places[p, PLACE]) & 1 == 1:
                    h = _key_of(attributes, columns, event, p, partition)
                    words[event], n = _add(words[event], event, valid, h, join, p, n_bits, scratch, n)
    return np.int64(n)


@helper
def _fraction_left(join, scratch, n):
    """Return the fraction of the first events that have partners so far."""
    n_left = np.int64(0)
    for i in range(n):
        needs = join.groups[_U(scratch[_U(i), WHO] >> _WIDE), NEEDS]
        n_left += scratch[_U(i), SEEN] & needs == needs
    return n_left / max(n, 1)


@helper
def _look(table, scratch, base, other, mine, low):
    """Let an event and those of another group in its window see each other; return the bit of that group, or 0."""
    j = np.int64(table[base + other]) - 1
    if j < low:
        return np.int64(0)
    # what has seen this group has done so with all before it that are in its window
    while j >= low and scratch[_U(j), SEEN] & mine == 0:
        scratch[_U(j), SEEN] |= mine
        j = np.int64(scratch[_U(j), SLOT])
    return np.int64(1) << np.int64(other)


@kernel
def semi_join(words, symbols, clocks, length, attributes, partitions, join, first_decidable, first_open, max_remaining,
              apart, n_bits, table, chosen, scratch):  # fmt: skip
    """Take from the words of events the places of a semi-join at which they have no partners.

    Parameters
    ----------
    words : int64, shape (n,), written
        The places at which each event may be, as bits.
    symbols : int32, shape (n,)
    clocks : clock, shape (n,)
        They do not decrease.
    length : clock
    attributes : int64, shape (n, columns)
    partitions : int32, shape (n,), or (0,)
    join : JoinGroups
    first_decidable, first_open : int
        Only events from `first_decidable` up to `first_open` are dropped: before them are some whose partners may lie
        before all that are here, and from `first_open` on those whose partners may be still to come.
    max_remaining : float
        Fraction of the events that have partners, from which on the semi-join is abandoned, as it does not pay; 1.0
        or more: never.
    apart : int
        Number of events after which the window is moved on.
    n_bits : int
        The table has ``2**n_bits`` slots.
    table : int32, shape (entries,), written
        One entry for each slot and group.
    chosen : int32, shape (at least n,), written
    scratch : int32, shape (at least n, 4), written
        Columns EVENT to SEEN; one row more than there are places of events.

    Returns
    -------
    (int, int)
        Number of places of events that took part, and of those that were taken away.
    """
    join = JoinGroups(*join)
    groups = join.groups
    n_groups = _U(groups.shape[0])
    for s in range((np.int64(1) << n_bits) * groups.shape[0]):
        table[_U(s)] = 0
    n = _take_part(words, symbols, attributes, partitions, join, n_bits, chosen, scratch)
    low = np.int64(0)
    next_check = np.int64(n // 8 if max_remaining < 1.0 and n >= 8 else -1)
    for i in range(n):
        c = _U(i)
        if i == next_check:  # the more events there are, the more have seen their partners
            next_check *= 2
            if _fraction_left(join, scratch, i // 2) > max_remaining:
                return n, np.int64(0)
        if i % apart == 0:  # a window that is somewhat longer does no harm
            clock = clocks[_U(scratch[c, EVENT])]
            while clock - clocks[_U(scratch[_U(low), EVENT])] > length:
                low += 1
        if i + _SOON < n:
            fetch(table, np.int64(scratch[c + _U(_SOON), SLOT]) * np.int64(n_groups))
        group = _U(scratch[c, WHO] >> _WIDE)
        base = _U(scratch[c, SLOT]) * n_groups
        looks, seen, mine = groups[group, LOOKS], np.int64(0), np.int64(1) << np.int64(group)
        if n_groups == _U(2):
            if looks != 0:
                seen = _look(table, scratch, base, _U(1) - group, mine, low)
        else:
            for g in range(n_groups):
                if (looks >> np.int64(g)) & 1 == 1:
                    seen |= _look(table, scratch, base, _U(g), mine, low)
        scratch[c, SEEN] = seen
        scratch[c, SLOT] = table[base + group] - 1
        table[base + group] = np.int32(i + 1)
    n_dropped = np.int64(0)
    for i in range(n):
        c = _U(i)
        who, event = scratch[c, WHO], scratch[c, EVENT]
        group = _U(who >> _WIDE)
        needs = groups[group, NEEDS]
        lonely = (scratch[c, SEEN] & needs != needs) & (groups[group, DROPS] == 1)
        drops = np.int64(lonely & (event >= first_decidable) & (event < first_open))
        words[_U(event)] &= ~(drops << np.int64(who & ((1 << _WIDE) - 1)))
        n_dropped += drops
    return n, n_dropped
