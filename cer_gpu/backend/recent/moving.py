"""The loop of SELECT RECENT: events move pending partial matches on, and complete them.

At each event, from the last step to the second: what waits for a step that the event satisfies moves on with it, in
place of what waited there; then an absent event drops what still waits.  At last the event may begin a partial match.
Before all that, an event that must be absent after the last step takes back what ended earlier.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.encoding import CONSUME_NONE
from cer_gpu.backend.arguments import Counts, Demand, Events, Matches, Options, Window
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.joins.choosing import EVENT, N_ENDS, N_HERE, N_OUT, N_SHARED_REGS, N_VALUES, count_end
from cer_gpu.backend.joins.filters import Filters
from cer_gpu.backend.operations import prefetch
from cer_gpu.backend.products.keys import mixed
from cer_gpu.backend.recent.ended import LIST_END, Ended, drop_ended, has_place, keep_ended, take_back, take_back_all
from cer_gpu.backend.recent.pending import (
    BAR,
    BEGIN,
    MOVE,
    NO_ROW,
    NO_VALUE,
    OP_CHOICE,
    OP_KEY,
    OP_KIND,
    OP_STEP,
    OP_TEST,
    OP_TESTS_END,
    ROW_PARTITION,
    ROW_VALUES,
    SCAN,
    SLOT_CLOCK,
    SLOT_LAST,
    SLOT_TIME,
    TAKE,
    TAKE_ALL,
    Moves,
    Rows,
    SlotLayout,
    add_to_index,
    ahead_of,
    empty_slots,
    fetch_keys_ahead,
    find_key,
    hash_begin,
    is_pending,
    keep_step,
    make_row,
    passes_all,
)
from cer_gpu.backend.status import DONE, GROW_NODES, OUTPUT_FULL

# register besides those shared: the first event whose keys are not looked at ahead
KEYS_AHEAD = N_SHARED_REGS
N_REGS = N_SHARED_REGS + 1

ROWS_AHEAD = 16
"""Events from the prefetch of the row of a partition to its use."""

_U = np.uint64


@kernel
def move_events(events, attributes, window, options, demand, moves, layout, rows, ended, filters, output, counts,
                n_events, regs):  # fmt: skip
    """Read events, and list or count the matches that they end, from where the last call stopped.

    Parameters
    ----------
    events : Events
    attributes : int64, shape (n, columns)
        The bits of the valid columns, then the columns.
    window : Window
    options : Options
    demand : Demand
    moves : Moves
    layout : SlotLayout
    rows : Rows
    ended : Ended
    filters : Filters
        Without conditions: the tests are those of `moves`.
    output : Matches
    counts : Counts
    n_events : int
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        DONE; GROW_NODES, when the rows, or what ended, need more space; OUTPUT_FULL, when the buffers are to be emptied
        (or made larger, if they are empty).
    """
    events, window, options, demand = Events(*events), Window(*window), Options(*options), Demand(*demand)
    moves, layout, rows, filters = Moves(*moves), SlotLayout(*layout), Rows(*rows), Filters(*filters)
    output, counts, ended = Matches(*output), Counts(*counts), Ended(*ended)
    symbols, positions, partitions, clocks = events.symbols, events.positions, events.partitions, window.clocks
    length = window.length
    words, starts = rows.words, rows.clocks
    n_steps = np.int64(layout.slots.shape[0])
    timed = events.times.shape[0] > 0
    keyed = moves.columns.shape[0] > 0
    split = partitions.shape[0] > 0
    width = _U(words.shape[1])
    status = DONE
    i = regs[EVENT]
    while i < n_events:
        event = _U(i)
        symbol = _U(symbols[event])
        partition = np.int64(partitions[event]) if split else np.int64(0)
        if keyed:
            if rows.counts[0] >= words.shape[0]:
                status = GROW_NODES
                break
            if i >= regs[KEYS_AHEAD]:
                regs[KEYS_AHEAD] = min(i + rows.hashes.shape[0], n_events)
                fetch_keys_ahead(moves, rows, symbols, partitions, attributes, i, regs[KEYS_AHEAD])
        elif split and i + ROWS_AHEAD < n_events:
            prefetch(words, _U(partitions[event + _U(ROWS_AHEAD)]) * width)
        if layout.ended >= 0 and ended.free[0] == LIST_END:
            status = GROW_NODES
            break
        # space for the one match that it may end
        if demand.counting == 1:
            if regs[N_ENDS] >= counts.ends.shape[0]:
                status = OUTPUT_FULL
                break
        elif not has_place(output, n_steps, regs):
            status = OUTPUT_FULL
            break
        ahead = ahead_of(rows, event)
        if keyed:
            for f in range(moves.first_keys[symbol], moves.first_keys[symbol + _U(1)]):
                find_key(moves, rows, attributes, event, ahead, partition, moves.needed[_U(f)])
        place = events.places[event] if events.places.shape[0] > 0 else positions[event]
        clock = clocks[event]
        completed = False
        begun = False
        for o in range(moves.firsts[symbol], moves.firsts[symbol + _U(1)]):
            op = _U(o)
            kind, step, choice = moves.ops[op, OP_KIND], moves.ops[op, OP_STEP], moves.ops[op, OP_CHOICE]
            first, last = moves.ops[op, OP_TEST], moves.ops[op, OP_TESTS_END]
            if kind == BAR:
                rows.bars[_U(partition), _U(step)] = positions[event]
                continue
            if kind == SCAN:
                _scan(moves, layout, rows, filters, partition, step, attributes, event, first, last)
                continue
            if kind == TAKE_ALL:
                if not take_back_all(events, options, moves, layout, rows, filters, ended, output, partition, step,
                                     attributes, event, place, clock, first, last, regs):  # fmt: skip
                    status = OUTPUT_FULL
                    break
                continue
            row = partition
            if keyed:
                row = rows.key_rows[_U(moves.ops[op, OP_KEY])]
                if row == NO_VALUE or (row == NO_ROW and (kind != BEGIN or n_steps == 1)):
                    continue
            r = _U(row)
            if kind == TAKE:
                if not take_back(events, options, moves, layout, rows, filters, ended, output, r, step, attributes,
                                 event, place, clock, first, last, regs):  # fmt: skip
                    status = OUTPUT_FULL
                    break
                continue
            if kind == BEGIN:
                if begun or not passes_all(
                    moves, layout, rows, filters, _U(0), 0, step, choice, attributes, event, first, last
                ):
                    continue
                begun = True
                if n_steps == 1:
                    completed = True
                    _write(events, options, demand, moves, layout, rows, output, _U(0), choice, event, place, regs)
                    if layout.ended >= 0:
                        keep_ended(events, layout, rows, ended, r, choice, event, place, clock, attributes)
                    continue
                if row == NO_ROW:
                    r = make_row(moves, layout, rows, attributes, event, ahead, partition, moves.ops[op, OP_KEY])
                at = np.int64(layout.slots[0])
                words[r, _U(at + SLOT_LAST)] = positions[event]
                starts[r, _U(at + SLOT_CLOCK)] = clock
                if timed:
                    words[r, _U(at + SLOT_TIME)] = events.times[event]
                keep_step(layout, rows, r, at, step, choice, event, place, attributes)
                continue
            if not is_pending(layout, rows, r, partition, step):
                continue
            at = np.int64(layout.slots[_U(step - 1)])
            if kind == MOVE and clock - starts[r, _U(at + SLOT_CLOCK)] > length:  # infinite clocks differ by NaN
                continue
            if not passes_all(moves, layout, rows, filters, r, at, step, choice, attributes, event, first, last):
                continue
            words[r, _U(at + SLOT_LAST)] = -1
            if kind != MOVE:
                continue
            if step == n_steps - 1:
                completed = True
                _write(events, options, demand, moves, layout, rows, output, r, choice, event, place, regs)
                if layout.ended >= 0:
                    keep_ended(events, layout, rows, ended, r, choice, event, place, clock, attributes)
                continue
            to = np.int64(layout.slots[_U(step)])
            words[r, _U(to + SLOT_LAST)] = positions[event]
            for w in range(SLOT_CLOCK, layout.ends[_U(step - 1)]):
                words[r, _U(to + w)] = words[r, _U(at + w)]
            keep_step(layout, rows, r, to, step, choice, event, place, attributes)
        if status != DONE:
            break
        if completed:
            if demand.counting == 1 and place >= options.report_from:
                regs[N_HERE] = 1
                if demand.n_shards == 1 or place % demand.n_shards == demand.shard:
                    status = count_end(events, options, counts, place, event, regs)
            if options.consume != CONSUME_NONE:
                rows.forgotten[_U(partition if rows.forgotten.shape[0] > 1 else 0)] = positions[event]
        i += 1
    regs[EVENT] = i
    return status


@helper
def _write(events, options, demand, moves, layout, rows, output, row, choice, event, place, regs):
    """Write the match that an event completes, if it is wanted: what waits for the last step, and the event."""
    if demand.counting == 1 or place < options.report_from:
        return
    if demand.n_shards > 1 and place % demand.n_shards != demand.shard:
        return
    words, n_steps = rows.words, np.int64(layout.slots.shape[0])
    n, n_values = _U(regs[N_OUT]), _U(regs[N_VALUES])
    at = np.int64(layout.slots[_U(n_steps - 2)]) if n_steps > 1 else np.int64(0)
    start, chosen = place, choice
    for k in range(n_steps):
        step, position = _U(k), place
        if k < n_steps - 1:
            position = words[row, _U(at + layout.positions[step])]
            chosen = words[row, _U(at + layout.choices[step])] if layout.choices[step] >= 0 else np.int64(0)
        else:
            chosen = np.int64(choice)
        if k == 0:
            start = position
        mark = moves.marks[step, _U(chosen)]
        if mark > 0:
            output.positions[n_values] = position
            if output.marks.shape[0] > 0:
                output.marks[n_values] = mark
            n_values += _U(1)
    output.spans[0, n], output.spans[1, n] = start, place
    if output.times.shape[1] > 0:
        output.times[0, n] = words[row, _U(at + SLOT_TIME)] if n_steps > 1 else events.times[event]
        output.times[1, n] = events.times[event]
    output.offsets[n + _U(1)] = n_values
    regs[N_OUT], regs[N_VALUES] = np.int64(n) + 1, np.int64(n_values)


@helper
def _scan(moves, layout, rows, filters, partition, step, attributes, event, first, last):
    """Drop what waits for a step under any key of a partition, where the filters of an absent event hold."""
    at = np.int64(layout.slots[_U(step - 1)])
    for i in range(rows.counts[0]):
        row = _U(i)
        if rows.words[row, ROW_PARTITION] != partition or not is_pending(layout, rows, row, partition, step):
            continue
        if passes_all(moves, layout, rows, filters, row, at, step, 0, attributes, event, first, last):
            rows.words[row, _U(at + SLOT_LAST)] = -1


@kernel
def drop_pending(layout, rows, ended, clocks, length, partition_of, holds):
    """Drop the partial matches that can no longer advance, and what ended and no longer waits; mark rows that hold any.

    Parameters
    ----------
    layout : SlotLayout
    rows : Rows
    ended : Ended
    clocks : clock, shape (clocks,)
        Last clock of each partition; one for all if windows end for all at once.
    length : clock
        Length of the window.
    partition_of : int
        0: the partition of a row is its number; 1: it is in the row.
    holds : bool, shape (rows,), written
    """
    layout, rows, ended = SlotLayout(*layout), Rows(*rows), Ended(*ended)
    for i in range(holds.shape[0]):
        row = _U(i)
        holds[row] = False
        partition = np.int64(i)
        if partition_of == 1:
            partition = rows.words[row, ROW_PARTITION]
        clock = clocks[_U(partition if clocks.shape[0] > 1 else 0)]
        for step in range(1, layout.slots.shape[0]):
            at = np.int64(layout.slots[_U(step - 1)])
            live = is_pending(layout, rows, row, partition, step)
            if live and not (clock - rows.clocks[row, _U(at + SLOT_CLOCK)] > length):
                holds[row] = True
            else:
                rows.words[row, _U(at + SLOT_LAST)] = -1
        if layout.ended >= 0 and drop_ended(layout, rows, ended, row, clock):
            holds[row] = True


@kernel
def keep_rows(words, mask, renumbered):
    """Move some rows together, and return their number.

    Parameters
    ----------
    words : int64, shape (rows, words), written
    mask : bool, shape (rows in use,)
    renumbered : int64, shape (partitions,), or (0,)
        New number of each partition; empty: they stay.

    Returns
    -------
    int
    """
    n = _U(0)
    for i in range(mask.shape[0]):
        row = _U(i)
        if mask[row]:
            for w in range(words.shape[1]):
                words[n, _U(w)] = words[row, _U(w)]
            if renumbered.shape[0] > 0:
                words[n, ROW_PARTITION] = renumbered[_U(words[n, ROW_PARTITION])]
            n += _U(1)
    return np.int64(n)


@kernel
def index_rows(n_values, rows):
    """Enter all rows in use in the empty index.

    Parameters
    ----------
    n_values : int
        Values of a key.
    rows : Rows
    """
    rows = Rows(*rows)
    for i in range(rows.counts[0]):
        row = _U(i)
        h = hash_begin(rows.words[row, ROW_PARTITION])
        for c in range(n_values):
            h = mixed(h, rows.words[row, _U(ROW_VALUES + c)])
        add_to_index(rows.index, h, i)


@kernel
def clear_rows(layout, rows, begin):
    """Let nothing be pending in the rows from `begin` on.

    Parameters
    ----------
    layout : SlotLayout
    rows : Rows
    begin : int
    """
    layout, rows = SlotLayout(*layout), Rows(*rows)
    for i in range(begin, rows.words.shape[0]):
        empty_slots(layout, rows, _U(i))
