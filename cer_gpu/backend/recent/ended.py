"""Matches of SELECT RECENT that an event to come may take back: a list of them for each row of keys.

They lie in a memory of their own, one slot each (`cer_gpu.backend.recent.pending`), and a word of the row has the
number of the latest.  Within a row neither starts nor ends decrease, so that after one that no longer waits none does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.joins.choosing import N_OUT, N_VALUES
from cer_gpu.backend.recent.pending import (
    ROW_PARTITION,
    SLOT_CLOCK,
    SLOT_LAST,
    SLOT_TIME,
    Rows,
    keep_step,
    passes_all,
)

# columns of `Ended.words`: the one that ended before it in its row, or the next free one; the clock from which on it
# waits, in the bits of clocks; then the words of a slot, of which SLOT_LAST is 0, or LIST_END if it is free
ENDED_NEXT, ENDED_CLOCK, ENDED_SLOT = range(3)

LIST_END = -1
"""In lists of what ended: there is no more."""

_U = np.uint64


class Ended(NamedTuple):
    """Matches that may be taken back.

    Attributes
    ----------
    words : int64, shape (ended, words of one), written
    clocks : clock, shape (ended, words of one), written
        The same memory.
    free : int64, shape (1,), written
        The first that is free, or LIST_END.
    waits : clock, shape (1,)
        Length for which they wait.
    from_end : int
        1: from their last event on; 0: from their first.
    taker : int
        Mark of the events that take back.
    """

    words: Any
    clocks: Any
    free: Any
    waits: Any
    from_end: Any
    taker: Any


@helper
def rows_of_ended(rows, ended):
    """Return what ended as rows whose slots begin with ENDED_SLOT."""
    return Rows(ended.words, ended.clocks, rows.counts, rows.index, rows.key_rows, rows.hashes, rows.candidates,
                rows.bars, rows.forgotten)  # fmt: skip


@helper
def free_one(ended, number):
    """Free what ended, and return the number after it in its list."""
    n = _U(number)
    behind = ended.words[n, ENDED_NEXT]
    ended.words[n, _U(ENDED_SLOT + SLOT_LAST)] = LIST_END
    ended.words[n, ENDED_NEXT] = ended.free[0]
    ended.free[0] = number
    return behind


@helper
def drop_ended(layout, rows, ended, row, clock):
    """Free what ended in a row and waits no more at a clock, and return whether others wait."""
    words, place = ended.words, _U(layout.ended)
    before, number = np.int64(LIST_END), rows.words[row, place]
    while number != LIST_END and not (clock - ended.clocks[_U(number), ENDED_CLOCK] > ended.waits[0]):
        before, number = number, words[_U(number), ENDED_NEXT]
    if before == LIST_END:
        rows.words[row, place] = LIST_END
    else:
        words[_U(before), ENDED_NEXT] = LIST_END
    while number != LIST_END:
        number = free_one(ended, number)
    return before != LIST_END


@helper
def keep_ended(events, layout, rows, ended, row, choice, event, place, clock, attributes):
    """Let wait what an event completes: the partial match of a row that waits for the last step, and the event."""
    n_steps = np.int64(layout.slots.shape[0])
    number, last = ended.free[0], _U(n_steps - 1)
    n = _U(number)
    ended.free[0] = ended.words[n, ENDED_NEXT]
    ended.words[n, ENDED_NEXT] = rows.words[row, _U(layout.ended)]
    rows.words[row, _U(layout.ended)] = number
    ended.words[n, _U(ENDED_SLOT + SLOT_LAST)] = 0
    if n_steps == 1:
        ended.clocks[n, _U(ENDED_SLOT + SLOT_CLOCK)] = clock
        if events.times.shape[0] > 0:
            ended.words[n, _U(ENDED_SLOT + SLOT_TIME)] = events.times[event]
    else:
        at = np.int64(layout.slots[_U(n_steps - 2)])
        for w in range(SLOT_CLOCK, layout.ends[_U(n_steps - 2)]):
            ended.words[n, _U(ENDED_SLOT + w)] = rows.words[row, _U(at + w)]
    keep_step(layout, rows_of_ended(rows, ended), n, np.int64(ENDED_SLOT), np.int64(last), choice, event, place,
              attributes)  # fmt: skip
    if ended.from_end == 1:
        ended.clocks[n, ENDED_CLOCK] = clock
    else:
        ended.clocks[n, ENDED_CLOCK] = ended.clocks[n, _U(ENDED_SLOT + SLOT_CLOCK)]


@helper
def has_place(output, n_events, regs):
    """Return whether the buffers have space for a match of so many events."""
    return regs[N_OUT] + 1 < output.offsets.shape[0] and regs[N_VALUES] + n_events <= output.positions.shape[0]


@helper
def take_back(events, options, moves, layout, rows, filters, ended, output, row, step, attributes, event, place, clock,
              first, last, regs):  # fmt: skip
    """Write the ended matches of a row that an event retracts, each with that event after it; False if out of space.

    Nothing written waits any longer, so that the rest follows from a call with the same arguments.
    """
    drop_ended(layout, rows, ended, row, clock)
    words, ended_rows = ended.words, rows_of_ended(rows, ended)
    before, number = np.int64(LIST_END), rows.words[row, _U(layout.ended)]
    while number != LIST_END:
        n = _U(number)
        at = np.int64(ENDED_SLOT)
        if not passes_all(moves, layout, ended_rows, filters, n, at, step, 0, attributes, event, first, last):
            before, number = number, words[n, ENDED_NEXT]
            continue
        if place >= options.report_from:
            if not has_place(output, layout.slots.shape[0] + 1, regs):
                return False
            _write_taken(events, moves, layout, ended, output, n, event, place, regs)
        number = free_one(ended, number)
        if before == LIST_END:
            rows.words[row, _U(layout.ended)] = number
        else:
            words[_U(before), ENDED_NEXT] = number
    return has_place(output, layout.slots.shape[0], regs)  # for what the event may end


@helper
def take_back_all(events, options, moves, layout, rows, filters, ended, output, partition, step, attributes, event,
                  place, clock, first, last, regs):  # fmt: skip
    """Do what `take_back` does for all rows of a partition."""
    for i in range(rows.counts[0]):
        if rows.words[_U(i), ROW_PARTITION] == partition and not take_back(
            events, options, moves, layout, rows, filters, ended, output, _U(i), step, attributes, event, place, clock,
            first, last, regs,
        ):  # fmt: skip
            return False
    return True


@helper
def _write_taken(events, moves, layout, ended, output, number, event, place, regs):
    words, n, n_values = ended.words, _U(regs[N_OUT]), _U(regs[N_VALUES])
    for k in range(layout.slots.shape[0]):
        step, chosen = _U(k), np.int64(0)
        if layout.choices[step] >= 0:
            chosen = words[number, _U(ENDED_SLOT + layout.choices[step])]
        output.positions[n_values] = words[number, _U(ENDED_SLOT + layout.positions[step])]
        output.marks[n_values] = moves.marks[step, _U(chosen)]
        n_values += _U(1)
    output.positions[n_values], output.marks[n_values] = place, ended.taker
    output.spans[0, n], output.spans[1, n] = words[number, _U(ENDED_SLOT + layout.positions[0])], place
    if output.times.shape[1] > 0:
        output.times[0, n], output.times[1, n] = words[number, _U(ENDED_SLOT + SLOT_TIME)], events.times[event]
    output.offsets[n + _U(1)] = n_values + _U(1)
    regs[N_OUT], regs[N_VALUES] = np.int64(n) + 1, np.int64(n_values) + 1


@kernel
def free_all(ended, begin):
    """Let all from one on be free, one after the other.

    Parameters
    ----------
    ended : Ended
    begin : int
    """
    ended = Ended(*ended)
    n = ended.words.shape[0]
    for i in range(begin, n):
        ended.words[_U(i), _U(ENDED_SLOT + SLOT_LAST)] = LIST_END
        ended.words[_U(i), ENDED_NEXT] = i + 1 if i + 1 < n else ended.free[0]
    ended.free[0] = begin
