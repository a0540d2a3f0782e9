"""Counting of the matches of a conjunction by keys: a number for each key and part of it, and no partial matches.

Berkholz, Keppeler, Schweikardt (Answering conjunctive queries under updates, PODS 2017): for a hierarchical query, a
number is kept for each node of the q-tree and each of its keys, and an update changes those from a leaf to the root.
Here an event that comes is inserted, and one that leaves the window is deleted; both take constant time.

The number of a leaf under a key is that of its events in the window; the number of an inner node is the sum, over its
keys that extend the one of the node above, of the products of the numbers of its children.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.arguments import Counts, Demand, Events, Options, Window
from cer_gpu.backend.jit import fetch, helper, kernel
from cer_gpu.backend.joins.choosing import EVENT, N_ENDS, N_HERE, N_SHARED_REGS, count_end
from cer_gpu.backend.products.keys import mixed
from cer_gpu.backend.saturating import MAX_SIGNED, plus, times
from cer_gpu.backend.status import DONE, GROW_NODES, OUTPUT_FULL, TOO_MANY

# registers besides those shared: the first event in the window, and the number of all so far, both counted from the
# first event ever; keys in use; the first event whose key is not looked up
FIRST_LIVE, END_LIVE, N_KEYS, FIRST_AHEAD, N_COUNT_REGS = range(N_SHARED_REGS, N_SHARED_REGS + 5)

ABOVE_NODE, ABOVE_CHILD, ABOVE_VALID, ABOVE_ABOVE, ABOVE_VALUES = range(5)
"""Columns of `CountTree.leaves`."""
NODE_ABOVE, NODE_CHILD, NODE_CHILDREN, NODE_VALUES = range(4)
"""Columns of `CountTree.nodes`."""
OF_NODE_KEY, KEY_ABOVE, FIRST_COUNT = range(3)
"""First columns of `KeyCounts.rows`: the node, and the row of the key of the node above (-1 at the root)."""
AHEAD_PLACE, AHEAD_KEY, FIRST_AHEAD_VALUE = range(3)
"""First columns of `KeyCounts.ahead`."""
LIVE_KEY, LIVE_PLACE = range(2)
"""Columns of `LiveEvents.members`."""

MAX_PARTIAL = np.uint64(1 << 62)
"""Largest number that is kept where events leave the window: sums stay exact."""
_AHEAD = 16
"""Events that leave the window whose keys are fetched ahead."""
_SEED = np.uint64(0x9E3779B97F4A7C15)
_TAG = np.uint64(0xFFFFFFFF00000000)
"""Bits of a hash in a slot; the others hold the row and 1."""

_U = np.uint64


class CountTree(NamedTuple):
    """The q-tree of a conjunction, as the loop reads it.

    Attributes
    ----------
    place_of : int32, shape (symbols,)
        Place of the events of each symbol; -1 if it has none.
    leaves : int64, shape (places, 5)
        Columns ABOVE_NODE, the node above the leaf of a place; ABOVE_CHILD, which of its children this is; ABOVE_VALID,
        the bits of the valid columns that an event needs; ABOVE_ABOVE, the node above that node, or -1; and
        ABOVE_VALUES, the number of values of a key of this one, or 0.
    columns : int64, shape (places, max values)
        Columns of the event that make the key of that node, those of the nodes above it first, then 0.
    masks : int64, shape (places, max values)
        -1 for each of these columns, then 0: all keys have as many values, some of them 0.
    equals : int64, shape (equals, 3)
        A place, and two columns of its events that must be equal.
    nodes : int64, shape (nodes, 4)
        Columns NODE_ABOVE, -1 for the root; NODE_CHILD, which of the children of that this is; NODE_CHILDREN, their
        number; and NODE_VALUES, the number of values of a key.
    n_columns : int
        Columns for numbers in a row: the most children of a node.
    """

    place_of: Any
    leaves: Any
    columns: Any
    masks: Any
    equals: Any
    nodes: Any
    n_columns: Any


class KeyCounts(NamedTuple):
    """Keys with their numbers.

    Attributes
    ----------
    rows : int64, shape (keys, row), written
        Columns OF_NODE_KEY and KEY_ABOVE; the number of each child, as uint64, then 1; and the values of the key, then
        0.
    slots : uint64, shape (slots,), written
        A hash table, with a power of two of slots: high bits of the hash, and the row and 1; 0 if there is none.
    hashes : uint64, shape (events ahead, 2), written
        Scratch: hashes of the key of each of the next events, and of the one above it.
    ahead : int64, shape (events ahead, 2 + max values), written
        Scratch: the place of each, or -1 if it is in no match; the row of its key; and the values of its key.
    """

    rows: Any
    slots: Any
    hashes: Any
    ahead: Any


class LiveEvents(NamedTuple):
    """Events in the window, in a ring; there are none where none leave it.

    Attributes
    ----------
    members : int32, shape (ring, 2), written
        Columns LIVE_KEY, the row of the key above its leaf, and LIVE_PLACE.
    clocks : clock, shape (ring,), written
    """

    members: Any
    clocks: Any


@kernel
def count_by_keys(events, attributes, window, options, demand, tree, keys, live, counts, n_events, regs):
    """Read events, and count the matches that they end, from where the last call stopped.

    Parameters
    ----------
    events : Events
    attributes : int64, shape (n, columns)
        The bits of the valid columns, then the columns.
    window : Window
    options : Options
    demand : Demand
    tree : CountTree
    keys : KeyCounts
    live : LiveEvents
    counts : Counts
    n_events : int
    regs : int64, shape (N_COUNT_REGS,), written

    Returns
    -------
    int
        DONE; GROW_NODES, when keys or events need more space; OUTPUT_FULL; TOO_MANY, when a number is too large to be
        kept: where events leave the window, what is kept is then of no use but for `LiveEvents`, and the event under
        way is not among them.
    """
    events, window, options, demand = Events(*events), Window(*window), Options(*options), Demand(*demand)
    tree, keys, live, counts = CountTree(*tree), KeyCounts(*keys), LiveEvents(*live), Counts(*counts)
    windowed = live.members.shape[0] > 0
    mask, ahead_mask = _U(live.members.shape[0] - 1), _U(keys.ahead.shape[0] - 1)
    largest = MAX_PARTIAL if windowed else MAX_SIGNED
    while regs[EVENT] < n_events:
        if regs[N_ENDS] == counts.ends.shape[0]:
            return OUTPUT_FULL
        event = _U(regs[EVENT])
        if regs[EVENT] >= regs[FIRST_AHEAD]:
            if regs[N_KEYS] + tree.nodes.shape[0] * keys.ahead.shape[0] > keys.rows.shape[0]:
                return GROW_NODES
            _look_ahead(tree, keys, events.symbols, attributes, n_events, regs)
        clock = window.clocks[event]
        if windowed:
            _expire(tree, keys.rows, live, mask, clock, window.length, regs)
            if regs[END_LIVE] - regs[FIRST_LIVE] >= live.members.shape[0]:
                return GROW_NODES
        place, row = keys.ahead[event & ahead_mask, AHEAD_PLACE], keys.ahead[event & ahead_mask, AHEAD_KEY]
        if place >= 0:
            total = _insert(tree, keys.rows, row, tree.leaves[_U(place), ABOVE_CHILD], windowed)
            at = events.places[event] if events.places.shape[0] > 0 else events.positions[event]
            if total > largest and (windowed or (options.limit == 0 and at >= options.report_from)):
                return TOO_MANY
            if windowed:
                i = _U(regs[END_LIVE]) & mask
                live.members[i, LIVE_KEY], live.members[i, LIVE_PLACE] = row, place
                live.clocks[i] = clock
                regs[END_LIVE] += 1
            if (
                total > _U(0)
                and at >= options.report_from
                and (demand.n_shards == 1 or at % demand.n_shards == demand.shard)
            ):
                regs[N_HERE] = np.int64(min(total, MAX_SIGNED))
                count_end(events, options, counts, at, event, regs)
        regs[EVENT] += 1
    return DONE


@helper
def _takes_part(tree, attributes, event, place):
    """Return whether an event has all values of its place, and those equal that must be."""
    needed = tree.leaves[_U(place), ABOVE_VALID]
    takes_part = needed == 0 or attributes[event, 0] & needed == needed
    for i in range(tree.equals.shape[0]):
        if tree.equals[_U(i), 0] == place:
            a, b = _U(tree.equals[_U(i), 1]), _U(tree.equals[_U(i), 2])
            takes_part = takes_part and attributes[event, a] == attributes[event, b]
    return takes_part


@helper
def _hash_at(h, node):
    """Return the hash of a key of a node, given that of its values."""
    return mixed(h, node + 1)


@helper
def _slot_of(slots, h):
    """Return the slot with which a search begins."""
    return (h * _U(0x9E3779B97F4A7C15) >> _U(20)) & _U(slots.shape[0] - 1)


@helper
def _look_ahead(tree, keys, symbols, attributes, n_events, regs):
    """Find, or make, the rows of the next events, in steps, so that the processor waits for many at once."""
    size = keys.ahead.shape[0]
    first = regs[EVENT]
    last = min((first | (size - 1)) + 1, n_events)
    regs[FIRST_AHEAD] = last
    for e in range(first, last):
        event, i = _U(e), _U(e) & _U(size - 1)
        place = np.int64(tree.place_of[_U(symbols[event])])
        if place < 0 or not _takes_part(tree, attributes, event, place):
            keys.ahead[i, AHEAD_PLACE] = -1
            keys.hashes[i, 0] = keys.hashes[i, 1] = 0
            continue
        p = _U(place)
        node, above = tree.leaves[p, ABOVE_NODE], tree.leaves[p, ABOVE_ABOVE]
        n_above = tree.leaves[p, ABOVE_VALUES]
        keys.ahead[i, AHEAD_PLACE] = place
        h = _SEED
        h_above = _SEED
        for k in range(tree.columns.shape[1]):
            value = attributes[event, _U(tree.columns[p, _U(k)])] & tree.masks[p, _U(k)]
            keys.ahead[i, _U(FIRST_AHEAD_VALUE + k)] = value
            h = mixed(h, value)
            h_above = mixed(h_above, value if k < n_above else np.int64(0))
        keys.hashes[i, 0], keys.hashes[i, 1] = _hash_at(h, node), _hash_at(h_above, above)
        fetch(keys.slots, np.int64(_slot_of(keys.slots, keys.hashes[i, 0])))
        fetch(keys.slots, np.int64(_slot_of(keys.slots, keys.hashes[i, 1])))
    for e in range(first, last):
        for j in range(2):
            h = keys.hashes[_U(e) & _U(size - 1), _U(j)]
            entry = np.int64(keys.slots[_slot_of(keys.slots, h)] & ~_TAG)
            fetch(keys.rows, entry - np.int64(entry > 0))  # what is not mapped would cost a search of its page
    for e in range(first, last):
        i = _U(e) & _U(size - 1)
        if keys.ahead[i, AHEAD_PLACE] >= 0:
            keys.ahead[i, AHEAD_KEY] = _row_of(tree, keys, i, regs)


@helper
def _row_of(tree, keys, i, regs):
    """Return the row of the key of an event that is noted ahead; it is made, with those above it, if there is none."""
    rows, slots = keys.rows, keys.slots
    node, h = tree.leaves[_U(keys.ahead[i, AHEAD_PLACE]), ABOVE_NODE], keys.hashes[i, 0]
    first_value = _U(FIRST_COUNT + tree.n_columns)
    slot = _slot_of(slots, h)
    while slots[slot] != _U(0):
        if slots[slot] & _TAG == h & _TAG:
            row = (slots[slot] & ~_TAG) - _U(1)
            same = rows[row, OF_NODE_KEY] == node
            for k in range(tree.columns.shape[1]):
                same &= rows[row, first_value + _U(k)] == keys.ahead[i, _U(FIRST_AHEAD_VALUE + k)]
            if same:
                return np.int64(row)
        slot = (slot + _U(1)) & _U(slots.shape[0] - 1)
    new_row = _U(regs[N_KEYS])
    for k in range(tree.columns.shape[1]):
        rows[new_row, first_value + _U(k)] = keys.ahead[i, _U(FIRST_AHEAD_VALUE + k)]
    _begin_row(tree, rows, slots, node, slot, h, regs)
    if tree.nodes[_U(node), NODE_ABOVE] >= 0:
        _make_above(tree, rows, slots, new_row, keys.hashes[i, 1], regs)
    return np.int64(new_row)


@helper
def _begin_row(tree, rows, slots, node, slot, h, regs):
    """Add a row whose values are there, without numbers, and enter it at a slot."""
    new_row = _U(regs[N_KEYS])
    regs[N_KEYS] += 1
    rows[new_row, OF_NODE_KEY], rows[new_row, KEY_ABOVE] = node, -1
    for c in range(tree.n_columns):  # what is no child is a factor of 1
        rows[new_row, _U(FIRST_COUNT + c)] = c >= tree.nodes[_U(node), NODE_CHILDREN]
    slots[slot] = (h & _TAG) | (new_row + _U(1))


@helper
def _make_above(tree, rows, slots, row, h, regs):
    """Find the rows above a new one, which has their values, or make them, given the hash of the first."""
    first_value = _U(FIRST_COUNT + tree.n_columns)
    max_values = tree.columns.shape[1]
    below = row
    node = tree.nodes[_U(rows[below, OF_NODE_KEY]), NODE_ABOVE]
    while node >= 0:
        n_values = tree.nodes[_U(node), NODE_VALUES]
        slot = _slot_of(slots, h)
        while slots[slot] != _U(0):
            if slots[slot] & _TAG == h & _TAG:
                other = (slots[slot] & ~_TAG) - _U(1)
                same = rows[other, OF_NODE_KEY] == node
                for k in range(n_values):
                    same &= rows[other, first_value + _U(k)] == rows[below, first_value + _U(k)]
                if same:
                    rows[below, KEY_ABOVE] = np.int64(other)
                    return
            slot = (slot + _U(1)) & _U(slots.shape[0] - 1)
        new_row = _U(regs[N_KEYS])
        for k in range(max_values):
            rows[new_row, first_value + _U(k)] = rows[below, first_value + _U(k)] if k < n_values else np.int64(0)
        _begin_row(tree, rows, slots, node, slot, h, regs)
        rows[below, KEY_ABOVE] = np.int64(new_row)
        below = new_row
        node = tree.nodes[_U(node), NODE_ABOVE]
        n_values = tree.nodes[_U(max(node, 0)), NODE_VALUES]
        h = _SEED
        for k in range(max_values):
            h = mixed(h, rows[below, first_value + _U(k)] if k < n_values else np.int64(0))
        h = _hash_at(h, node)


@helper
def _others(tree, rows, row, child):
    """Return the product of the numbers of the other children of a node; it saturates."""
    product = _U(1)
    for c in range(tree.n_columns):
        product = times(product, _U(rows[row, _U(FIRST_COUNT + c)]) if c != child else _U(1))
    return product


@helper
def _insert(tree, rows, row, child, windowed):
    """Add an event to the numbers from its leaf to the root, and return the number of matches that it ends.

    The result is larger than MAX_PARTIAL if events leave the window and any of the numbers would be.
    """
    added, r = _U(1), _U(row)
    while True:
        node = _U(rows[r, OF_NODE_KEY])
        at = _U(FIRST_COUNT + child)
        number = plus(_U(rows[r, at]), added)
        rows[r, at] = np.int64(number)
        if windowed and number > MAX_PARTIAL:
            return number
        added = times(added, _others(tree, rows, r, child))
        if added == _U(0) or tree.nodes[node, NODE_ABOVE] < 0 or (windowed and added > MAX_PARTIAL):
            return added
        child = tree.nodes[node, NODE_CHILD]
        r = _U(rows[r, KEY_ABOVE])


@helper
def _expire(tree, rows, live, mask, clock, length, regs):
    """Take the events that have left the window from the numbers."""
    first, end = regs[FIRST_LIVE], regs[END_LIVE]
    while first < end and clock - live.clocks[_U(first) & mask] > length:
        fetch(rows, np.int64(live.members[_U(first + _AHEAD) & mask, LIVE_KEY]))
        r = _U(live.members[_U(first) & mask, LIVE_KEY])
        child = tree.leaves[_U(live.members[_U(first) & mask, LIVE_PLACE]), ABOVE_CHILD]
        taken = _U(1)
        while True:
            node = _U(rows[r, OF_NODE_KEY])
            at = _U(FIRST_COUNT + child)
            rows[r, at] = np.int64(_U(rows[r, at]) - taken)
            if tree.nodes[node, NODE_ABOVE] < 0:
                break
            taken *= _others(tree, rows, r, child)
            if taken == _U(0):
                break
            child = tree.nodes[node, NODE_CHILD]
            r = _U(rows[r, KEY_ABOVE])
        first += 1
    regs[FIRST_LIVE] = first


@kernel
def drop_unused_keys(tree, keys, live, moved, regs):
    """Move the keys that count something together, and enter them in the hash table, which is larger perhaps.

    Parameters
    ----------
    tree : CountTree
    keys : KeyCounts
    live : LiveEvents
    moved : int32, shape (keys in use + 1,), written
        New row of each; -1 for one that is dropped.
    regs : int64, shape (N_COUNT_REGS,), written
    """
    tree, keys, live = CountTree(*tree), KeyCounts(*keys), LiveEvents(*live)
    rows, slots, n_keys = keys.rows, keys.slots, regs[N_KEYS]
    n_columns = FIRST_COUNT + tree.n_columns
    for i in range(n_keys):
        moved[_U(i)] = -1
    for i in range(n_keys):
        any_number = False
        n_children = tree.nodes[_U(rows[_U(i), OF_NODE_KEY]), NODE_CHILDREN]
        for c in range(FIRST_COUNT, FIRST_COUNT + n_children):
            any_number = any_number or rows[_U(i), _U(c)] != 0
        r = np.int64(i)
        while any_number and r >= 0 and moved[_U(r)] < 0:
            moved[_U(r)] = 0
            r = rows[_U(r), KEY_ABOVE]
    to = np.int64(0)
    for i in range(n_keys):
        row = _U(i)
        if moved[row] < 0:
            continue
        moved[row] = to
        if to < i:
            for c in range(rows.shape[1]):
                rows[_U(to), _U(c)] = rows[row, _U(c)]
        to += 1
    regs[N_KEYS] = to
    for s in range(slots.shape[0]):
        slots[_U(s)] = 0
    for i in range(to):
        row = _U(i)
        if rows[row, KEY_ABOVE] >= 0:
            rows[row, KEY_ABOVE] = moved[_U(rows[row, KEY_ABOVE])]
        node = rows[row, OF_NODE_KEY]
        h = _SEED
        for k in range(tree.columns.shape[1]):
            h = mixed(h, rows[row, _U(n_columns + k)])
        h = _hash_at(h, node)
        slot = _slot_of(slots, h)
        while slots[slot] != _U(0):
            slot = (slot + _U(1)) & _U(slots.shape[0] - 1)
        slots[slot] = (h & _TAG) | (row + _U(1))
    mask = _U(live.members.shape[0] - 1)
    for i in range(regs[FIRST_LIVE], regs[END_LIVE]):
        at = _U(i) & mask
        live.members[at, LIVE_KEY] = moved[_U(live.members[at, LIVE_KEY])]
