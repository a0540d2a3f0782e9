"""The events of partial matches of SELECT RECENT with quantifiers: linked lists, which lead from the last to the first.

A partial match moves on by one more node; what it becomes when it ends shares its nodes.  Nodes that no partial match
leads to any more are removed when their memory is full (`compact_nodes`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.recent_pattern import NOT_TAKEN
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.joins.choosing import N_OUT, N_VALUES
from cer_gpu.backend.recent.ended import (
    ENDED_CLOCK,
    ENDED_NEXT,
    ENDED_SLOT,
    LIST_END,
    Ended,
    free_one,
    has_place,
    rows_of_ended,
)
from cer_gpu.backend.recent.pending import (
    ROW_PARTITION,
    SLOT_CLOCK,
    SLOT_LAST,
    SLOT_TIME,
    Rows,
    SlotLayout,
    passes_all,
)

# columns of `PathTables.nodes`: the reported position of an event, its mark, and the node of the event before, or -1
NODE_PLACE, NODE_MARK, NODE_BEFORE, N_NODE = range(4)

# columns of `PathTables.ways`: the step with which a way begins; the words that it resets
WAY_SOURCE, WAY_RESET, WAY_RESETS_END, N_WAY = range(4)

# columns of `PathTables.steps`: the ways to a step; what it stores of its first event, or -1; 1 if a match may end, and
# may go on with it; the bars of the ways from it, of which one that is open lets it go on
STEP_WAY, STEP_WAYS_END, STEP_FIRST, STEP_ENDS, STEP_GOES_ON, STEP_BARS, STEP_BARS_END, N_STEP = range(8)

# words of a slot, after its times: its last node, and the number of its events; the position of its first one; the
# absences that bar it, as bits
PATH_NODE, PATH_LENGTH, PATH_START, PATH_BARRED, N_PATH = range(5)

_U = np.uint64


class PathTables(NamedTuple):
    """Ways between steps, and the events of partial matches.

    Attributes
    ----------
    nodes : int64, shape (nodes, N_NODE), written
        A node comes after the one before it.
    n_nodes : int64, shape (1,), written
    steps : int64, shape (steps, N_STEP)
    ways : int32, shape (ways, N_WAY)
    barring : int64, shape (ways,)
        The absences that bar each way, as bits.
    leaving : int64, shape (ways,)
        The same, by the steps with which ways begin.
    resets : int32, shape (resets,)
        Steps, in the numbers of `SlotLayout.choices`, of which nothing is stored any more.
    bars : int64, shape (partitions, absences), or (0, 0), written
        Position of the last event that barred the ways of each absence under all keys.
    word : int
        The first word of `PATH_NODE` and those after it, in a slot.
    last : int
        The stored last event, in the numbers of `SlotLayout.choices`; -1: nothing.
    """

    nodes: Any
    n_nodes: Any
    steps: Any
    ways: Any
    barring: Any
    leaving: Any
    resets: Any
    bars: Any
    word: Any
    last: Any


@helper
def store_event(layout, words, row, at, number, choice, event, attributes):
    """Store what is read later of an event, in a slot, which begins with a word of its row."""
    s = _U(number)
    if layout.choices[s] >= 0:
        words[row, _U(at + layout.choices[s])] = choice
    for c in range(layout.stored.shape[1]):
        if layout.stored[s, _U(c)] >= 0:
            words[row, _U(at + layout.stored[s, _U(c)])] = attributes[event, _U(c)]


@helper
def forget_event(layout, words, row, at, number):
    """Let a step be left out, in a slot."""
    s = _U(number)
    if layout.choices[s] >= 0:
        words[row, _U(at + layout.choices[s])] = NOT_TAKEN
    if layout.stored[s, 0] >= 0:
        words[row, _U(at + layout.stored[s, 0])] = 0


@helper
def append_node(paths, place, mark, before):
    """Return a new node; there is space."""
    n = _U(paths.n_nodes[0])
    paths.nodes[n, NODE_PLACE] = place
    paths.nodes[n, NODE_MARK] = mark
    paths.nodes[n, NODE_BEFORE] = before
    paths.n_nodes[0] += 1
    return np.int64(n)


@helper
def is_barred(paths, words, row, at, partition, barring):
    """Return whether all ways with these bars are closed to the partial match of a slot."""
    if words[row, _U(at + paths.word + PATH_BARRED)] & barring != 0:
        return True
    if barring != 0 and paths.bars.shape[0] > 0:
        last = words[row, _U(at + SLOT_LAST)]
        for b in range(paths.bars.shape[1]):
            if (barring >> b) & 1 != 0 and paths.bars[_U(partition), _U(b)] > last:
                return True
    return False


@helper
def may_go_on(paths, words, row, at, partition, step):
    """Return whether some way is open to the partial match of a slot, which is that after a step."""
    for b in range(paths.steps[_U(step), STEP_BARS], paths.steps[_U(step), STEP_BARS_END]):
        if not is_barred(paths, words, row, at, partition, paths.leaving[_U(b)]):
            return True
    return False


@helper
def write_path(output, paths, node, regs):
    """Write the selected events of a path, and return the position of the first of all."""
    n_selected, start, number = 0, np.int64(0), node
    while number >= 0:
        start = paths.nodes[_U(number), NODE_PLACE]
        if paths.nodes[_U(number), NODE_MARK] > 0:
            n_selected += 1
        number = paths.nodes[_U(number), NODE_BEFORE]
    at, number = regs[N_VALUES] + n_selected, node
    regs[N_VALUES] = at
    while number >= 0:
        n = _U(number)
        if paths.nodes[n, NODE_MARK] > 0:
            at -= 1
            output.positions[_U(at)] = paths.nodes[n, NODE_PLACE]
            if output.marks.shape[0] > 0:
                output.marks[_U(at)] = paths.nodes[n, NODE_MARK]
        number = paths.nodes[n, NODE_BEFORE]
    return start


# ---- matches that may be retracted --------------------------------------------------------------------------------


@helper
def keep_ended_path(layout, rows, paths, ended, row, at, clock):
    """Let wait what ended: the partial match of a slot."""
    number = ended.free[0]
    n = _U(number)
    ended.free[0] = ended.words[n, ENDED_NEXT]
    ended.words[n, ENDED_NEXT] = rows.words[row, _U(layout.ended)]
    rows.words[row, _U(layout.ended)] = number
    for w in range(layout.ends[0]):
        ended.words[n, _U(ENDED_SLOT + w)] = rows.words[row, _U(at + w)]
    ended.words[n, _U(ENDED_SLOT + SLOT_LAST)] = 0
    ended.clocks[n, ENDED_CLOCK] = clock
    if ended.from_end == 0:
        ended.clocks[n, ENDED_CLOCK] = ended.clocks[n, _U(ENDED_SLOT + SLOT_CLOCK)]


@helper
def drop_ended_paths(layout, rows, ended, row, clock):
    """Free what ended in a row and waits no more at a clock, and return whether others wait.

    Other than without quantifiers, what ends later may have begun earlier.
    """
    words = ended.words
    before, number = np.int64(LIST_END), rows.words[row, _U(layout.ended)]
    waits = False
    while number != LIST_END:
        if not (clock - ended.clocks[_U(number), ENDED_CLOCK] > ended.waits[0]):
            waits = True
            before, number = number, words[_U(number), ENDED_NEXT]
            continue
        number = free_one(ended, number)
        if before == LIST_END:
            rows.words[row, _U(layout.ended)] = number
        else:
            words[_U(before), ENDED_NEXT] = number
    return waits


@helper
def take_back_paths(events, options, moves, layout, rows, paths, filters, ended, output, row, attributes, event, place,
                    clock, first, last, regs):  # fmt: skip
    """Write the ended matches of a row that an event retracts, each with that event after it; False if out of space.

    Nothing written waits any longer, so that the rest follows from a call with the same arguments.
    """
    drop_ended_paths(layout, rows, ended, row, clock)
    words, ended_rows = ended.words, rows_of_ended(rows, ended)
    before, number = np.int64(LIST_END), rows.words[row, _U(layout.ended)]
    while number != LIST_END:
        n = _U(number)
        at = np.int64(ENDED_SLOT)
        if not passes_all(moves, layout, ended_rows, filters, n, at, -1, 0, attributes, event, first, last):
            before, number = number, words[n, ENDED_NEXT]
            continue
        if place >= options.report_from:
            if not has_place(output, words[n, _U(at + paths.word + PATH_LENGTH)] + 1, regs):
                return False
            start = write_path(output, paths, words[n, _U(at + paths.word + PATH_NODE)], regs)
            values, row_out = _U(regs[N_VALUES]), _U(regs[N_OUT])
            output.positions[values], output.marks[values] = place, ended.taker
            output.spans[0, row_out], output.spans[1, row_out] = start, place
            if output.times.shape[1] > 0:
                output.times[0, row_out] = words[n, _U(at + SLOT_TIME)]
                output.times[1, row_out] = events.times[event]
            regs[N_VALUES] += 1
            output.offsets[row_out + _U(1)] = regs[N_VALUES]
            regs[N_OUT] += 1
        number = free_one(ended, number)
        if before == LIST_END:
            rows.words[row, _U(layout.ended)] = number
        else:
            words[_U(before), ENDED_NEXT] = number
    return True


# ---- memory -------------------------------------------------------------------------------------------------------


@kernel
def drop_closed(layout, rows, paths, ended, clocks, length, partition_of, holds):
    """Drop the partial matches that can no longer go on, and what ended and no longer waits; mark rows that hold any.

    Parameters
    ----------
    layout : SlotLayout
    rows : Rows
    paths : PathTables, read
    ended : Ended
    clocks : clock, shape (clocks,)
        Last clock of each partition; one for all if windows end for all at once.
    length : clock
        Length of the window.
    partition_of : int
        0: the partition of a row is its number; 1: it is in the row.
    holds : bool, shape (rows,), written
    """
    layout, rows, paths, ended = SlotLayout(*layout), Rows(*rows), PathTables(*paths), Ended(*ended)
    for i in range(holds.shape[0]):
        row = _U(i)
        holds[row] = False
        partition = np.int64(i)
        if partition_of == 1:
            partition = rows.words[row, ROW_PARTITION]
        clock = clocks[_U(partition if clocks.shape[0] > 1 else 0)]
        forgotten = np.int64(-1)
        if rows.forgotten.shape[0] > 0:
            forgotten = rows.forgotten[_U(partition if rows.forgotten.shape[0] > 1 else 0)]
        for step in range(layout.slots.shape[0] - 1):
            at = np.int64(layout.slots[_U(step)])
            live = rows.words[row, _U(at + SLOT_LAST)] > forgotten
            if (
                live
                and not (clock - rows.clocks[row, _U(at + SLOT_CLOCK)] > length)
                and may_go_on(paths, rows.words, row, at, partition, step)
            ):
                holds[row] = True
            else:
                rows.words[row, _U(at + SLOT_LAST)] = -1
        if layout.ended >= 0 and drop_ended_paths(layout, rows, ended, row, clock):
            holds[row] = True


@kernel
def compact_nodes(layout, rows, paths, ended, n_rows, numbers):
    """Remove the nodes that no partial match leads to, nor what may be retracted.

    Parameters
    ----------
    layout : SlotLayout
    rows : Rows
    paths : PathTables
    ended : Ended
    n_rows : int
        Rows in use.
    numbers : int64, shape (nodes in use,), written
        Scratch.
    """
    layout, rows, paths, ended = SlotLayout(*layout), Rows(*rows), PathTables(*paths), Ended(*ended)
    nodes = paths.nodes
    numbers[:] = -1
    for i in range(n_rows):
        for step in range(layout.slots.shape[0] - 1):
            at = np.int64(layout.slots[_U(step)])
            if rows.words[_U(i), _U(at + SLOT_LAST)] >= 0:
                numbers[_U(rows.words[_U(i), _U(at + paths.word + PATH_NODE)])] = 0
    head = ENDED_SLOT + paths.word + PATH_NODE
    for i in range(ended.words.shape[0]):
        if ended.words[_U(i), _U(ENDED_SLOT + SLOT_LAST)] >= 0:
            numbers[_U(ended.words[_U(i), _U(head)])] = 0
    n = numbers.shape[0]
    for i in range(n):
        node = _U(n - 1 - i)
        if numbers[node] == 0 and nodes[node, NODE_BEFORE] >= 0:
            numbers[_U(nodes[node, NODE_BEFORE])] = 0
    m = _U(0)
    for i in range(n):
        node = _U(i)
        if numbers[node] < 0:
            continue
        numbers[node] = np.int64(m)
        before = nodes[node, NODE_BEFORE]
        nodes[m, NODE_PLACE], nodes[m, NODE_MARK] = nodes[node, NODE_PLACE], nodes[node, NODE_MARK]
        nodes[m, NODE_BEFORE] = numbers[_U(before)] if before >= 0 else np.int64(-1)
        m += _U(1)
    paths.n_nodes[0] = np.int64(m)
    for i in range(n_rows):
        for step in range(layout.slots.shape[0] - 1):
            at = np.int64(layout.slots[_U(step)])
            if rows.words[_U(i), _U(at + SLOT_LAST)] >= 0:
                word = _U(at + paths.word + PATH_NODE)
                rows.words[_U(i), word] = numbers[_U(rows.words[_U(i), word])]
    for i in range(ended.words.shape[0]):
        if ended.words[_U(i), _U(ENDED_SLOT + SLOT_LAST)] >= 0:
            ended.words[_U(i), _U(head)] = numbers[_U(ended.words[_U(i), _U(head)])]
