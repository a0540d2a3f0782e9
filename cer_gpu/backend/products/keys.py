"""The look-up table of partial matches: lists under keys, in rows of a hash table.

papers: PCEA, section 5 (H, which maps a transition, a source and a value to a node).  Transitions that gather the same
state by the same variables share a list, and lists with the same variables share a row.  The values of a row are all
that distinguishes keys, so that a row that nothing refers to any more can be left out when the table is built anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import ROW_PARTITION, ROW_USED, ROW_VALUES
from cer_gpu.backend.jit import helper

_U = np.uint64


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
    columns : int32, shape (keys, most values)
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


class Keys(NamedTuple):
    """The look-up table.

    Attributes
    ----------
    rows : int64, shape (slots, row), written
        Those of all tables.  Columns ROW_PARTITION and ROW_USED, the values, and the union of each list (-1: it is
        empty).
    latest : clock, shape (slots, lists), written
        The latest start of each list that is not empty.
    bases : int64, shape (tables + 1,)
        First slot of each table; the number of its slots is a power of two.
    counts : int64, shape (tables,), written
        Rows in use.
    found : int64, shape (keys + 1,), written
        Scratch: the row of each key of the event under way; -1: there is none; -2: it has no value.
    hashes : int64, shape (keys + 1,), written
        Scratch: the slot with which the search for each key began.
    forgotten : int64, shape (partitions,), or (1,), or (0,), written
        Position up to which CONSUME BY has forgotten each partition, or all of them.
    """

    rows: Any
    latest: Any
    bases: Any
    counts: Any
    found: Any
    hashes: Any
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
    """Return the slot with which a search goes on."""
    return _U(base) + ((slot - _U(base) + _U(1)) & _U(mask))


@helper
def look_up(automaton, keys, attributes, event, partition, position, key):
    """Find the row of a key of an event, and note it in `found`."""
    rows, columns = keys.rows, automaton.columns
    k, table = _U(key), _U(automaton.tables[_U(key)])
    base = keys.bases[table]
    mask = keys.bases[table + _U(1)] - base - 1
    valid = attributes[event, 0] if attributes.shape[1] > 0 else np.int64(0)
    h = mixed(_U(0x9E3779B97F4A7C15), partition)
    n = 0
    while n < columns.shape[1] and columns[k, _U(n)] >= 0:
        column = columns[k, _U(n)]
        if (valid >> np.int64(column - 1)) & 1 == 0:
            keys.found[k] = -2
            return
        h = mixed(h, attributes[event, _U(column)])
        n += 1
    slot = slot_of(h, base, mask)
    keys.hashes[k] = np.int64(slot)
    while rows[slot, ROW_PARTITION] != 0:
        same = rows[slot, ROW_PARTITION] == partition + 1
        for c in range(n):
            value = attributes[event, _U(columns[k, _U(c)])]
            same = same and rows[slot, _U(ROW_VALUES + c)] == value
        if same:
            if is_forgotten(keys, partition, rows[slot, ROW_USED]):
                for c in range(ROW_VALUES + columns.shape[1], rows.shape[1]):
                    rows[slot, _U(c)] = -1
            rows[slot, ROW_USED] = position
            keys.found[k] = np.int64(slot)
            return
        slot = slot_after(slot, base, mask)
    keys.found[k] = -1


@helper
def row_of(automaton, keys, attributes, event, partition, position, key):
    """Return the row of a key of an event that has a value, which it makes if there is none; there is room."""
    k = _U(key)
    if keys.found[k] >= 0:
        return _U(keys.found[k])
    rows, columns = keys.rows, automaton.columns
    table, slot = _U(automaton.tables[k]), _U(keys.hashes[k])
    base = keys.bases[table]
    mask = keys.bases[table + _U(1)] - base - 1
    n = 0
    while n < columns.shape[1] and columns[k, _U(n)] >= 0:
        n += 1
    # another key of the event may have made the row since it was looked up
    while rows[slot, ROW_PARTITION] != 0:
        same = rows[slot, ROW_PARTITION] == partition + 1
        for c in range(n):
            value = attributes[event, _U(columns[k, _U(c)])]
            same = same and rows[slot, _U(ROW_VALUES + c)] == value
        if same:
            return slot
        slot = slot_after(slot, base, mask)
    rows[slot, ROW_PARTITION] = partition + 1
    rows[slot, ROW_USED] = position
    for c in range(n):
        rows[slot, _U(ROW_VALUES + c)] = attributes[event, _U(columns[k, _U(c)])]
    for c in range(ROW_VALUES + columns.shape[1], rows.shape[1]):
        rows[slot, _U(c)] = -1
    keys.counts[table] += 1
    keys.found[k] = np.int64(slot)
    return slot
