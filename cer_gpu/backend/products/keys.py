"""The look-up table of partial matches: lists under keys, in rows of a hash table.

papers: PCEA, section 5 (H, which maps a transition, a source and a value to a node).  Transitions that gather the same
state by the same variables share a list, and lists with the same variables share a row.  The values of a row are all
that distinguishes keys, so that a row that nothing refers to any more can be left out when the table is built anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import (
    FIRE_SOURCE,
    FIRE_SOURCES_END,
    LINK_KEY,
    LINK_LIST,
    ROW_PARTITION,
    ROW_USED,
    ROW_VALUES,
    UNION_LEFT,
    UNION_NODE,
    UNION_START,
)
from cer_gpu.backend.jit import fetch, helper
from cer_gpu.backend.products.arena import leaf_of, n_sources_of

_U = np.uint64

BELOW = 12
"""Unions below the top of a heap that are read ahead."""


class Automaton(NamedTuple):
    """A parallelised automaton, as loops read it.

    Attributes
    ----------
    firsts : int32, shape (symbols + 1,)
        First of the transitions that events of each symbol may fire.
    fired : int32, shape (firings,)
        These transitions.
    first_keys : int32, shape (symbols + 1,)
        First of the keys that events of each symbol need.
    needed : int32, shape (needs,)
        These keys.
    transitions : int32, shape (transitions, 9)
        Columns FIRE_SOURCE to FIRE_FED.
    sources : int32, shape (sources, 2)
        Columns LINK_KEY and LINK_LIST: the lists that are gathered.
    feeds : int32, shape (feeds, 2)
        The same of the lists that take a partial match.
    equals : int32, shape (equals, 2)
        Columns of the event that must be equal.
    tables : int32, shape (keys,)
        Table of each key.
    columns : int32, shape (keys, max values)
        Columns of the event that make a key, then -1.
    unions : int32, shape (unions of marks, unions of marks)
        Mark of an event that has two marks; empty if none has.
    """

    firsts: Any
    fired: Any
    first_keys: Any
    needed: Any
    transitions: Any
    sources: Any
    feeds: Any
    equals: Any
    tables: Any
    columns: Any
    unions: Any


class KeyTable(NamedTuple):
    """The look-up table.

    Attributes
    ----------
    rows : int64, shape (slots, row), written
        Those of all tables.  Columns ROW_PARTITION and ROW_USED, the values, the union of each list (-1: it is empty),
        and the latest start of each list that is not empty.
    latest : clock, shape (slots, row), written
        The same memory, for the latest starts.
    n_lists : int
        Maximum number of lists in a row.
    bases : int64, shape (tables + 1,)
        First slot of each table; the number of its slots is a power of two.
    counts : int64, shape (tables,), written
        Rows in use.
    key_rows : int64, shape (keys + 1,), written
        Scratch: the row of each key of the event under way; -1 if there is none; -2 if it has no value.
    slots : uint64, shape (events ahead, keys + 1), written
        Scratch: the slot of each key of the next events, with which a search for its row continues.  An event has the
        row of its number modulo that of the rows.
    heads : int64, shape (max unions ahead,), written
        Scratch: unions that the next events gather.
    inner : int64, shape (max unions ahead,), written
        Scratch: their nodes that have sources.
    forgotten : int64, shape (partitions,), or (1,), or (0,), written
        Position up to which CONSUME BY has forgotten each partition, or all of them.
    """

    rows: Any
    latest: Any
    n_lists: Any
    bases: Any
    counts: Any
    key_rows: Any
    slots: Any
    heads: Any
    inner: Any
    forgotten: Any


@helper
def is_forgotten(keys, partition, used):
    """Return whether a row of a partition that was last used at a position has been consumed."""
    n = keys.forgotten.shape[0]
    return n > 0 and used <= keys.forgotten[_U(partition if n > 1 else 0)]


@helper
def mixed(h, value):
    """Return a hash with a value mixed in."""
    h ^= _U(value)
    h *= _U(0xFF51AFD7ED558CCD)
    return h ^ (h >> _U(32))


@helper
def slot_of(h, base, mask):
    """Return the slot with which a search begins."""
    return _U(base) + ((h ^ (h >> _U(29))) & _U(mask))


@helper
def slot_after(slot, base, mask):
    """Return the slot with which a search continues."""
    return _U(base) + ((slot - _U(base) + _U(1)) & _U(mask))


@helper
def slots_row_of(keys, event):
    """Return the row of an event in `KeyTable.slots`."""
    return event % _U(keys.slots.shape[0])


@helper
def look_ahead(automaton, keys, symbols, partitions, attributes, first, last):
    """Find the slots of the keys of some events.

    The rows lie all over the memory.  Read one after the other as the events need them, each would be waited for.  A
    slot that is empty now, and has another key when the event comes, is where the search continues.
    """
    for e in range(first, last):
        event, ahead = _U(e), slots_row_of(keys, _U(e))
        symbol = _U(symbols[event])
        partition = np.int64(partitions[event]) if partitions.shape[0] > 0 else np.int64(0)
        for i in range(automaton.first_keys[symbol], automaton.first_keys[symbol + _U(1)]):
            k = _U(automaton.needed[_U(i)])
            table = _U(automaton.tables[k])
            h = mixed(_U(0x9E3779B97F4A7C15), partition)
            n = 0
            while n < automaton.columns.shape[1] and automaton.columns[k, _U(n)] >= 0:
                h = mixed(h, attributes[event, _U(automaton.columns[k, _U(n)])])
                n += 1
            slot = slot_of(h, keys.bases[table], keys.bases[table + _U(1)] - keys.bases[table] - 1)
            keys.slots[ahead, k] = slot
            fetch(keys.rows, np.int64(slot))
    for e in range(first, last):
        event, ahead = _U(e), slots_row_of(keys, _U(e))
        symbol = _U(symbols[event])
        partition = np.int64(partitions[event]) if partitions.shape[0] > 0 else np.int64(0)
        for i in range(automaton.first_keys[symbol], automaton.first_keys[symbol + _U(1)]):
            k = _U(automaton.needed[_U(i)])
            keys.slots[ahead, k], _ = _search_key(automaton, keys, attributes, event, ahead, partition, k)


@helper
def look_below(automaton, keys, nodes, unions, symbols, window, first, last, lists):
    """Fetch the tops of the heaps that some events gather, whose slots are found, and some unions below each.

    A heap of single events is a list, each read after the other; here the processor waits for those of many at once.
    If the event `lists` what it ends, nodes that have gathered something are fetched, too, and the tops of that.
    """
    first_list = _U(ROW_VALUES + automaton.columns.shape[1])
    n = np.int64(0)
    for e in range(first, last):
        event, ahead = _U(e), slots_row_of(keys, _U(e))
        symbol = _U(symbols[event])
        for i in range(automaton.firsts[symbol], automaton.firsts[symbol + _U(1)]):
            t = _U(automaton.fired[_U(i)])
            begin, end = automaton.transitions[t, FIRE_SOURCE], automaton.transitions[t, FIRE_SOURCES_END]
            if n + end - begin > keys.heads.shape[0]:
                continue
            n_before = n
            for j in range(begin, end):
                slot = keys.slots[ahead, _U(automaton.sources[_U(j), LINK_KEY])]
                each = _U(automaton.sources[_U(j), LINK_LIST])
                root = keys.rows[slot, first_list + each] if keys.rows[slot, ROW_PARTITION] != 0 else np.int64(-1)
                latest = keys.latest[slot, first_list + _U(keys.n_lists) + each]
                if root < 0 or window.clocks[event] - latest > window.length:
                    n = n_before  # the transition does not fire
                    break
                keys.heads[_U(n)] = root
                n += 1
            for h in range(n_before, n):
                fetch(unions.links, keys.heads[_U(h)])
    clock = window.clocks[_U(first)]
    n_inner = np.int64(0)
    for _ in range(BELOW):
        for i in range(n_inner):
            node = keys.inner[_U(i)]
            for f in range(n_sources_of(automaton, nodes, node)):
                fetch(unions.links, nodes.records[_U(node), _U(nodes.first_factor + f)])
        n_before, n, n_inner = n, np.int64(0), np.int64(0)
        for h in range(n_before):
            above = _U(keys.heads[_U(h)])
            if lists and leaf_of(unions, above) == 0:
                keys.inner[_U(n_inner)] = unions.links[above, UNION_NODE]
                fetch(nodes.records, keys.inner[_U(n_inner)])
                n_inner += 1
            u = np.int64(unions.links[above, UNION_LEFT])
            if u >= 0 and not (clock - unions.starts[above, UNION_START] > window.length):
                fetch(unions.links, u)
                keys.heads[_U(n)] = u
                n += 1


@helper
def _search_key(automaton, keys, attributes, event, ahead, partition, k):
    """Return the slot at which the row of a key of an event is, or would be, and its number of values."""
    rows, columns, table = keys.rows, automaton.columns, _U(automaton.tables[k])
    n = 0
    while n < columns.shape[1] and columns[k, _U(n)] >= 0:
        n += 1
    base = keys.bases[table]
    mask = keys.bases[table + _U(1)] - base - 1
    slot = keys.slots[ahead, k]
    while rows[slot, ROW_PARTITION] != 0:
        same = rows[slot, ROW_PARTITION] == partition + 1
        for c in range(n):
            same = same and rows[slot, _U(ROW_VALUES + c)] == attributes[event, _U(columns[k, _U(c)])]
        if same:
            break
        slot = slot_after(slot, base, mask)
    return slot, n


@helper
def _empty_lists(automaton, keys, slot):
    """Empty all lists of a row."""
    first = ROW_VALUES + automaton.columns.shape[1]
    for c in range(first, first + keys.n_lists):
        keys.rows[slot, _U(c)] = -1


@helper
def look_up_key(automaton, keys, attributes, event, ahead, partition, position, key):
    """Find the row of a key of an event, and note it in `key_rows`."""
    rows, k = keys.rows, _U(key)
    valid = attributes[event, 0] if attributes.shape[1] > 0 else np.int64(0)
    slot, n = _search_key(automaton, keys, attributes, event, ahead, partition, k)
    for c in range(n):
        if (valid >> np.int64(automaton.columns[k, _U(c)] - 1)) & 1 == 0:
            keys.key_rows[k] = -2
            return
    if rows[slot, ROW_PARTITION] == 0:
        keys.key_rows[k] = -1
        return
    if is_forgotten(keys, partition, rows[slot, ROW_USED]):
        _empty_lists(automaton, keys, slot)
    rows[slot, ROW_USED] = position
    keys.key_rows[k] = np.int64(slot)


@helper
def key_row_of(automaton, keys, attributes, event, ahead, partition, position, key):
    """Return the row of a key of an event that has a value, which it makes if there is none; there is space."""
    rows, k = keys.rows, _U(key)
    if keys.key_rows[k] >= 0:
        return _U(keys.key_rows[k])
    # another key of the event may have made the row since it was looked up
    slot, n = _search_key(automaton, keys, attributes, event, ahead, partition, k)
    if rows[slot, ROW_PARTITION] != 0:
        return slot
    rows[slot, ROW_PARTITION] = partition + 1
    rows[slot, ROW_USED] = position
    for c in range(n):
        rows[slot, _U(ROW_VALUES + c)] = attributes[event, _U(automaton.columns[k, _U(c)])]
    _empty_lists(automaton, keys, slot)
    keys.counts[_U(automaton.tables[k])] += 1
    keys.key_rows[k] = np.int64(slot)
    return slot
