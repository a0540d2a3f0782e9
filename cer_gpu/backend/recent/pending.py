"""The partial matches of SELECT RECENT: a row for each key, and in it a slot for each step but the last.

A row begins with its key, where there are keys of equalities: the partition, then the values; an index by hash finds
it.  Without such keys the row of a partition is that of its number.

A slot holds the partial match that waits for the next step: SLOT_LAST, the position of its last event (-1: nothing is
pending); SLOT_CLOCK, the clock of its first event, in the bits of clocks, the same memory; its time, where times are
wanted; and for each step so far what is stored of its event.  That is, by `SlotLayout`, the position that is reported,
which alternative the event is, where there are some, and, where filters read it later, the bits of its valid columns
and some columns.  Slots differ in length alone: a partial match moves on by a copy of its words to the next slot, and
what is stored of the new event comes after them.

If an event may take back what ended before it, that waits in a list of the row (`cer_gpu.backend.recent.ended`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import COMPARE, COMPARE_RANKED, NOW
from cer_gpu.backend.jit import fetch, helper
from cer_gpu.backend.joins.filters import COLUMN, execute, push_value
from cer_gpu.backend.operations import compared, prefetch
from cer_gpu.backend.products.keys import mixed

ROW_PARTITION, ROW_VALUES = range(2)
SLOT_LAST, SLOT_CLOCK, SLOT_TIME = range(3)

NO_WORD = -1
"""In `SlotLayout`: not stored."""

# kinds of `Moves.ops`: an event begins a partial match; it moves one on to its step; an absent event drops the one that
# waits for its step: under its key; under all keys of its partition (without a filter); or those that its filters hit;
# it takes back what ended under its key, or under all keys of its partition
BEGIN, MOVE, DROP, BAR, SCAN, TAKE, TAKE_ALL = range(7)

# columns of `Moves.ops`
OP_KIND, OP_STEP, OP_CHOICE, OP_KEY, OP_TEST, OP_TESTS_END, N_OP = range(7)

# columns of `Moves.tests`: COMPARE, COMPARE_RANKED or PROGRAM; the operator of a comparison; its columns, of the first
# and the second argument; the lines of a program; the first of its arguments (`Moves.arguments`); and the alternatives
# that ask for it (`Moves.needs`)
(
    TEST_KIND,
    TEST_OP,
    TEST_COLUMN,
    TEST_OTHER,
    TEST_BEGIN,
    TEST_END,
    TEST_ARGUMENT,
    TEST_NEED,
    TEST_NEEDS_END,
    N_TEST,
) = range(10)

# columns of `Moves.needs`
NEED_STEP, NEED_BITS, N_NEED = range(3)

NO_ROW, NO_VALUE = -1, -2
"""In `Rows.key_rows`: no row has the key; the event has no value of the key."""

_U = np.uint64
_LOWER = np.uint64(0xFFFFFFFF)
_LINE = 8
"""Numbers in a line of the processor's cache."""


class Moves(NamedTuple):
    """Operations of events, by their symbols.

    Attributes
    ----------
    firsts : int32, shape (symbols + 1,)
        First of the rows of `ops` of each symbol, in their order.
    ops : int32, shape (operations, N_OP)
    first_keys : int32, shape (symbols + 1,)
        First of the keys that events of each symbol need.
    needed : int32, shape (needed,)
        These keys.
    columns : int32, shape (keys, values of a key)
        Columns of the event that make each key.
    marks : int32, shape (steps, alternatives)
        Mark of the events of each alternative; 0 where they are not selected.
    tests : int32, shape (tests, N_TEST)
    arguments : int32, shape (arguments,)
        Step of each event that tests read, or NOW.
    needs : int64, shape (needs, N_NEED)
    """

    firsts: Any
    ops: Any
    first_keys: Any
    needed: Any
    columns: Any
    marks: Any
    tests: Any
    arguments: Any
    needs: Any


class SlotLayout(NamedTuple):
    """Places of the words of a row.

    Attributes
    ----------
    slots : int32, shape (steps,)
        First word of the slot of what waits after each step; the last is the length of the row.
    ends : int32, shape (steps,)
        Words of a slot that hold the steps up to each.
    positions, choices : int32, shape (steps,)
        In a slot, the words of each step; `choices` NO_WORD where no step has alternatives.
    stored : int32, shape (steps, columns)
        In a slot, the word of each column of each step; column 0 are the valid bits; NO_WORD if there is none.
    ended : int
        Word of a row with the first of what ended in it (`Ended`); NO_WORD if nothing takes back.
    """

    slots: Any
    ends: Any
    positions: Any
    choices: Any
    stored: Any
    ended: Any


class Rows(NamedTuple):
    """The partial matches.

    Attributes
    ----------
    words : int64, shape (key rows, words), written
        Those in use come first where keys are looked up; else a row for each partition.
    clocks : clock, shape (key rows, words), written
        The same memory.
    counts : int64, shape (1,), written
        Rows in use, where keys are looked up.
    index : uint64, shape (slots,), written
        0, or the number of a row and 1 in the lower half, and in the upper that of its hash; a power of two, and at
        least twice as many as rows.
    key_rows : int64, shape (keys,), written
        Scratch: the row of each key of the event under way; NO_ROW or NO_VALUE.
    hashes : uint64, shape (events ahead, keys), written
        Scratch: the hash of each key of the next events.
    candidates : int64, shape (events ahead, keys), written
        Scratch: the first row that may be theirs, or -1.
    bars : int64, shape (partitions, steps), or (0, 0), written
        Position of the last event that dropped what waited for each step under all keys; empty if none does.
    forgotten : int64, shape (partitions,), or (1,), or (0,), written
        Position up to which CONSUME BY has forgotten each partition, or all of them.
    """

    words: Any
    clocks: Any
    counts: Any
    index: Any
    key_rows: Any
    hashes: Any
    candidates: Any
    bars: Any
    forgotten: Any


# ---- pending partial matches ------------------------------------------------------------------------------------


@helper
def is_pending(layout, rows, row, partition, step):
    """Return whether a partial match waits for a step, in a row of a partition."""
    last = rows.words[row, _U(layout.slots[_U(step - 1)] + SLOT_LAST)]
    if last < 0:
        return False
    n = rows.forgotten.shape[0]
    if n > 0 and last <= rows.forgotten[_U(partition if n > 1 else 0)]:
        return False
    return rows.bars.shape[0] == 0 or last >= rows.bars[_U(partition), _U(step)]


@helper
def empty_slots(layout, rows, row):
    """Let nothing be pending in a row."""
    for step in range(layout.slots.shape[0] - 1):
        rows.words[row, _U(layout.slots[_U(step)] + SLOT_LAST)] = -1
    if layout.ended >= 0:
        rows.words[row, _U(layout.ended)] = -1


@helper
def keep_step(layout, rows, row, at, step, choice, event, place, attributes):
    """Write what is stored of the event of a step to a slot, which begins with a word of its row."""
    words, s = rows.words, _U(step)
    words[row, _U(at + layout.positions[s])] = place
    if layout.choices[s] >= 0:
        words[row, _U(at + layout.choices[s])] = choice
    for c in range(layout.stored.shape[1]):
        if layout.stored[s, _U(c)] >= 0:
            words[row, _U(at + layout.stored[s, _U(c)])] = attributes[event, _U(c)]


# ---- keys -------------------------------------------------------------------------------------------------------


@helper
def hash_begin(partition):
    """Return the hash of a partition, into which values are mixed."""
    return mixed(_U(0x9E3779B97F4A7C15), partition)


@helper
def slot_at(h, n_slots):
    """Return the slot of the index with which a search begins."""
    return (h ^ (h >> _U(29))) & _U(n_slots - 1)


@helper
def add_to_index(index, h, row):
    """Enter a row under its hash."""
    slot = slot_at(h, index.shape[0])
    while index[slot] != 0:
        slot = (slot + _U(1)) & _U(index.shape[0] - 1)
    index[slot] = (h >> _U(32) << _U(32)) | _U(row + 1)


@helper
def ahead_of(rows, event):
    """Return the row of an event in the ring of prefetched keys, whose length is a power of two."""
    return event & _U(rows.hashes.shape[0] - 1)


@helper
def fetch_keys_ahead(moves, rows, symbols, partitions, attributes, first, last):
    """Compute the hashes of some events, and fetch the slots at which their searches begin, then the rows there.

    They lie all over the memory.  Read one after the other as the events need them, each would be waited for.
    """
    index, long = rows.index, rows.words.shape[1] > _LINE
    for e in range(first, last):
        event = _U(e)
        ahead = ahead_of(rows, event)
        symbol = _U(symbols[event])
        partition = np.int64(partitions[event]) if partitions.shape[0] > 0 else np.int64(0)
        for i in range(moves.first_keys[symbol], moves.first_keys[symbol + _U(1)]):
            k = _U(moves.needed[_U(i)])
            h = hash_begin(partition)
            for c in range(moves.columns.shape[1]):
                h = mixed(h, attributes[event, _U(moves.columns[k, _U(c)])])
            rows.hashes[ahead, k] = h
            fetch(index, np.int64(slot_at(h, index.shape[0])))
    for e in range(first, last):
        symbol, ahead = _U(symbols[_U(e)]), ahead_of(rows, _U(e))
        for i in range(moves.first_keys[symbol], moves.first_keys[symbol + _U(1)]):
            k = _U(moves.needed[_U(i)])
            row = (index[slot_at(rows.hashes[ahead, k], index.shape[0])] & _LOWER) - _U(1)
            rows.candidates[ahead, k] = np.int64(row)
            fetch(rows.words, np.int64(row))
            if long:
                prefetch(rows.words, row * _U(rows.words.shape[1]) + _U(_LINE))


@helper
def _has_key(moves, rows, attributes, event, partition, k, row):
    """Return whether a row is that of a key of an event."""
    same = rows.words[row, ROW_PARTITION] == partition
    for c in range(moves.columns.shape[1]):
        same = same and rows.words[row, _U(ROW_VALUES + c)] == attributes[event, _U(moves.columns[k, _U(c)])]
    return same


@helper
def find_key(moves, rows, attributes, event, ahead, partition, key):
    """Note in `key_rows` the row of a key of an event."""
    k = _U(key)
    valid = attributes[event, 0]
    for c in range(moves.columns.shape[1]):
        if (valid >> np.int64(moves.columns[k, _U(c)] - 1)) & 1 == 0:
            rows.key_rows[k] = NO_VALUE
            return
    candidate = rows.candidates[ahead, k]
    if candidate >= 0 and _has_key(moves, rows, attributes, event, partition, k, _U(candidate)):
        rows.key_rows[k] = candidate
        return
    h, index = rows.hashes[ahead, k], rows.index
    slot = slot_at(h, index.shape[0])
    while index[slot] != 0:
        if index[slot] >> _U(32) == h >> _U(32):
            row = (index[slot] & _LOWER) - _U(1)
            if _has_key(moves, rows, attributes, event, partition, k, row):
                rows.key_rows[k] = np.int64(row)
                return
        slot = (slot + _U(1)) & _U(index.shape[0] - 1)
    rows.key_rows[k] = NO_ROW


@helper
def make_row(moves, layout, rows, attributes, event, ahead, partition, key):
    """Return a new row for a key of an event, of which there is none; there is space."""
    words, k = rows.words, _U(key)
    row = _U(rows.counts[0])
    words[row, ROW_PARTITION] = partition
    for c in range(moves.columns.shape[1]):
        words[row, _U(ROW_VALUES + c)] = attributes[event, _U(moves.columns[k, _U(c)])]
    empty_slots(layout, rows, row)
    add_to_index(rows.index, rows.hashes[ahead, k], np.int64(row))
    rows.counts[0] += 1
    return row


# ---- filters ----------------------------------------------------------------------------------------------------


@helper
def passes_all(moves, layout, rows, filters, row, at, step, choice, attributes, event, begin, end):
    """Return whether some tests hold for an event and the partial match of a slot, which begins with a word of its row.

    The event is the alternative `choice` of a step.
    """
    for t in range(begin, end):
        if not _passes(moves, layout, rows, filters, row, at, step, choice, attributes, event, _U(t)):
            return False
    return True


@helper
def _passes(moves, layout, rows, filters, row, at, step, choice, attributes, event, t):
    tests = moves.tests
    for i in range(tests[t, TEST_NEED], tests[t, TEST_NEEDS_END]):
        needed = moves.needs[_U(i), NEED_STEP]
        chosen = choice if needed == step else rows.words[row, _U(at + layout.choices[_U(needed)])]
        if (moves.needs[_U(i), NEED_BITS] >> chosen) & 1 == 0:
            return True
    first = tests[t, TEST_ARGUMENT]
    if tests[t, TEST_KIND] > COMPARE_RANKED:
        return _run_program(moves, layout, rows, filters, row, at, attributes, event, first, tests[t, TEST_BEGIN],
                    tests[t, TEST_END])  # fmt: skip
    a, b = np.int64(tests[t, TEST_COLUMN]), np.int64(tests[t, TEST_OTHER])
    valid, x = value_of(layout, rows, row, at, attributes, event, moves.arguments[_U(first)], a)
    other_valid, y = value_of(layout, rows, row, at, attributes, event, moves.arguments[_U(first + 1)], b)
    if (valid >> (a - 1)) & (other_valid >> (b - 1)) & 1 == 0:
        return False
    if tests[t, TEST_KIND] != COMPARE:
        x, y = filters.ranks[_U(x)], filters.ranks[_U(y)]
    return compared(tests[t, TEST_OP], x, y)


@helper
def value_of(layout, rows, row, at, attributes, event, step, column):
    """Return the valid bits, and a column, of the event of a step of a partial match, or of the event under way."""
    if step == NOW:
        return attributes[event, 0], attributes[event, _U(column)]
    s = _U(step)
    valid = rows.words[row, _U(at + layout.stored[s, 0])]
    return valid, rows.words[row, _U(at + layout.stored[s, _U(column)])]


@helper
def _run_program(moves, layout, rows, filters, row, at, attributes, event, first, begin, end):
    """Return whether a program holds, given the first of its arguments."""
    top = 0
    for i in range(begin, end):
        line = _U(i)
        if filters.code[line, 0] == COLUMN:
            step = moves.arguments[_U(first + filters.code[line, 1])]
            column = filters.code[line, 2]
            valid, value = value_of(layout, rows, row, at, attributes, event, step, abs(column))
            push_value(filters, valid, value, column, top)
            top += 1
        else:
            top = execute(filters, line, top)
    return filters.work[0, 0] == 1
