"""Collection of partial matches that have left the window: nodes, unions and keys.

Those below a union, and those that a node has gathered, are older; one pass from the newest to the oldest finds all
that may still be part of a match.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.encoding import (
    ROW_PARTITION,
    ROW_USED,
    ROW_VALUES,
    UNION_LEFT,
    UNION_NODE,
    UNION_NUMBER,
    UNION_RANK,
    UNION_RIGHT,
    UNION_START,
)
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.products.arena import N_NODES, N_UNIONS, Nodes, Unions, is_live, leaf_of, n_sources_of
from cer_gpu.backend.products.keys import Automaton, KeyTable, is_forgotten, mixed, slot_after, slot_of

_U = np.uint64


@kernel
def collect_products(automaton, nodes, unions, keys, clocks, length, moved_nodes, moved_unions, used):
    """Drop the partial matches that no match to come can hold, and move the others together.

    Rows of `keys` whose lists are all empty are left as they are, for `rehash` to leave out.

    Parameters
    ----------
    automaton : Automaton, read
    nodes : Nodes
    unions : Unions
    keys : KeyTable
    clocks : clock, shape (clocks,)
        Last clock of each partition; one for all if windows end for all at once.
    length : clock
        Length of the window.
    moved_nodes : int32, shape (nodes in use + 1,), written
        New number of each node; -1 for one that is dropped.
    moved_unions : int32, shape (unions in use + 1,), written
    used : int64, shape (tables,), written
        Rows of each table with a list that is not empty.
    """
    automaton, nodes, unions, keys = Automaton(*automaton), Nodes(*nodes), Unions(*unions), KeyTable(*keys)
    n_nodes, n_unions = nodes.tops[N_NODES], nodes.tops[N_UNIONS]
    for n in range(n_nodes):
        moved_nodes[_U(n)] = -1
    for u in range(n_unions):
        moved_unions[_U(u)] = -1
    rows = keys.rows
    first_list = ROW_VALUES + automaton.columns.shape[1]
    for t in range(used.shape[0]):
        table = _U(t)
        used[table] = 0
        for s in range(keys.bases[table], keys.bases[table + _U(1)]):
            slot = _U(s)
            if rows[slot, ROW_PARTITION] == 0:
                continue
            partition = rows[slot, ROW_PARTITION] - 1
            clock = clocks[_U(partition if clocks.shape[0] > 1 else 0)]
            old = is_forgotten(keys, partition, rows[slot, ROW_USED])
            any_list = False
            for c in range(first_list, first_list + keys.n_lists):
                root = rows[slot, _U(c)]
                if root >= 0 and not old and not (clock - keys.latest[slot, _U(c + keys.n_lists)] > length):
                    moved_unions[_U(root)] = 0
                    any_list = True
                else:
                    rows[slot, _U(c)] = -1
            used[table] += any_list
    _mark(automaton, nodes, unions, clocks, length, moved_nodes, moved_unions)
    _move_nodes(nodes, moved_nodes)
    _move_unions(nodes, unions, moved_nodes, moved_unions)
    for s in range(rows.shape[0]):
        slot = _U(s)
        if rows[slot, ROW_PARTITION] == 0:
            continue
        for c in range(first_list, first_list + keys.n_lists):
            root = rows[slot, _U(c)]
            if root >= 0:
                rows[slot, _U(c)] = moved_unions[_U(root)]
    for n in range(nodes.tops[N_NODES]):
        for f in range(n_sources_of(automaton, nodes, n)):
            at = _U(nodes.first_factor + f)
            nodes.records[_U(n), at] = moved_unions[_U(nodes.records[_U(n), at])]


@helper
def _mark(automaton, nodes, unions, clocks, length, moved_nodes, moved_unions):
    """Mark by 0 what the marked unions reach; links to what is out of the window are cut."""
    u = nodes.tops[N_UNIONS] - 1
    while u >= 0:
        union = _U(u)
        if moved_unions[union] == 0:
            node = _U(unions.links[union, UNION_NODE])
            partition = nodes.records[node, _U(nodes.partition)] if clocks.shape[0] > 1 else np.int64(0)
            clock = clocks[_U(partition)]
            for side in (UNION_LEFT, UNION_RIGHT):
                below = unions.links[union, _U(side)]
                if is_live(unions, below, clock, length):
                    moved_unions[_U(below)] = 0
                else:
                    unions.links[union, _U(side)] = -1
            moved_nodes[node] = 0
            for f in range(n_sources_of(automaton, nodes, node) if leaf_of(unions, union) == 0 else np.int64(0)):
                moved_unions[_U(nodes.records[node, _U(nodes.first_factor + f)])] = 0
        u -= 1


@helper
def _move_nodes(nodes, moved_nodes):
    """Move the marked nodes together."""
    to = np.int64(0)
    for n in range(nodes.tops[N_NODES]):
        i = _U(n)
        if moved_nodes[i] < 0:
            continue
        moved_nodes[i] = to
        j = _U(to)
        for c in range(nodes.records.shape[1]):
            nodes.records[j, _U(c)] = nodes.records[i, _U(c)]
        to += 1
    nodes.tops[N_NODES] = to


@helper
def _move_unions(nodes, unions, moved_nodes, moved_unions):
    """Move the marked unions together; those below one are moved before it."""
    to = np.int64(0)
    for u in range(nodes.tops[N_UNIONS]):
        i = _U(u)
        if moved_unions[i] < 0:
            continue
        moved_unions[i] = to
        j = _U(to)
        unions.links[j, UNION_NODE] = moved_nodes[_U(unions.links[i, UNION_NODE])]
        for side in (UNION_LEFT, UNION_RIGHT):
            below = unions.links[i, _U(side)]
            unions.links[j, _U(side)] = moved_unions[_U(below)] if below >= 0 else np.int32(-1)
        unions.links[j, UNION_RANK] = unions.links[i, UNION_RANK]
        unions.starts[j, UNION_START] = unions.starts[i, UNION_START]
        unions.numbers[j, UNION_NUMBER] = unions.numbers[i, UNION_NUMBER]
        to += 1
    nodes.tops[N_UNIONS] = to


@kernel
def rehash(rows, bases, n_values, n_columns, n_lists, renumbered, new_rows, new_bases, counts):
    """Copy the rows with a list that is not empty to another table.

    Parameters
    ----------
    rows : int64, shape (slots, row)
    bases : int64, shape (tables + 1,)
        First slot of each table.
    n_values : int64, shape (tables,)
        Number of values of the keys of each table.
    n_columns : int
        Space for values in a row.
    n_lists : int
        Space for lists in a row.
    renumbered : int64, shape (partitions,), or (0,)
        New number of each partition; empty: they stay.
    new_rows : int64, shape (more slots, row), written
        Without rows in use.
    new_bases : int64, shape (tables + 1,)
    counts : int64, shape (tables,), written
        Rows in use.
    """
    first_list = ROW_VALUES + n_columns
    for t in range(n_values.shape[0]):
        table = _U(t)
        counts[table] = 0
        base = new_bases[table]
        mask = new_bases[table + _U(1)] - base - 1
        for s in range(bases[table], bases[table + _U(1)]):
            slot = _U(s)
            if rows[slot, ROW_PARTITION] == 0:
                continue
            used = False
            for c in range(first_list, first_list + n_lists):
                used = used or rows[slot, _U(c)] >= 0
            if not used:
                continue
            partition = rows[slot, ROW_PARTITION] - 1
            if renumbered.shape[0] > 0:
                partition = renumbered[_U(partition)]
            h = mixed(_U(0x9E3779B97F4A7C15), partition)
            for c in range(n_values[table]):
                h = mixed(h, rows[slot, _U(ROW_VALUES + c)])
            to = slot_of(h, base, mask)
            while new_rows[to, ROW_PARTITION] != 0:
                to = slot_after(to, base, mask)
            for c in range(rows.shape[1]):
                new_rows[to, _U(c)] = rows[slot, _U(c)]
            new_rows[to, ROW_PARTITION] = partition + 1
            counts[table] += 1
