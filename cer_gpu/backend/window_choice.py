"""Choice among the matches in a window: the ends of some, and the evaluation of one window by itself.

A strategy that compares needs to know what lies in the window, and its determinised states do not tell it: they know
runs, and not when these began.  Therefore two loops.  `find_ends` keeps the latest start of the runs in each state of
the CEA, which tells whether anything that ends at an event has begun in its window; for most events that is all.  For
each such end `evaluate_windows` feeds the relevant events of its window, of its partition, to the determinised
automaton of the strategy, which then sees nothing that begins earlier.  An end whose window begins at the same event as
that of the end before continues in the same evaluation.

The events of the windows are kept in a log, oldest first, and those of one partition are linked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import (
    CONSUME_ANY,
    CONSUME_NONE,
    COUNT_WINDOW,
    ENDED_START,
    FIRST_START,
    FRESH_START,
    NO_WINDOW,
    QUIET,
    START_SOURCE,
    START_TARGET,
)
from cer_gpu.backend import tecs
from cer_gpu.backend.arguments import Events, Options, Tables
from cer_gpu.backend.counting import count_events
from cer_gpu.backend.evaluation import evaluate_events
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.status import DONE
from cer_gpu.backend.tecs import Lists

# registers: the number of relevant events so far; the id of the next event of the log, that of the first one, how often
# everything was forgotten; of the evaluation of a window its first event, its last one so far (-1 if there is none),
# and how many events it has read; the end under way, and how many of its events are taken and not yet evaluated
ORDINAL, NEXT_ID, FIRST_ID, N_CONSUMED, OPENED, READ, N_READ, END, N_TAKEN, N_REGS = range(10)

# columns of the log: the symbol; the partition; the event before in it, or NO_EVENT; the number that the window is
# measured with; the position and the one that is reported; the number that contiguity goes by; the time
LOG_SYMBOL, LOG_PARTITION, LOG_BEFORE, LOG_NUMBER, LOG_POSITION, LOG_PLACE, LOG_ORDINAL, LOG_TIME, N_LOG = range(9)
NO_EVENT = -1

# columns of a partition: its last relevant event by the number that contiguity goes by, the id of the last one in the
# log, what N_CONSUMED was then, and the number of the last event at which a run began; the latest starts begin after
# them
LAST_ORDINAL, LAST_ID, SEEN, NEWEST, STARTS = range(5)

# an end: the id of its event, and the first number in its window
END_ID, END_LOW, N_END = range(3)

_U = np.uint64


class WindowState(NamedTuple):
    """State of the windows: their events, and the latest starts of each partition.

    Attributes
    ----------
    regs : int64, shape (N_REGS,), written
    parts : int64, shape (windowed partitions, starts), written
    log : int64, shape (capacity, N_LOG), written
    taken : int64, shape (2 * targets,), written
        Scratch of a step.
    """

    regs: Any
    parts: Any
    log: Any
    taken: Any


class Replay(NamedTuple):
    """Events of the window under way, as they are fed to the automaton of the strategy.

    Attributes
    ----------
    symbols : int32, shape (capacity,), written
    positions : int64, shape (capacity,), written
    places : int64, shape (capacity,), written
    ordinals : int64, shape (capacity,), written
    times : int64, shape (capacity,), written
    nothing : int64, shape (0,)
    no_partitions : int32, shape (0,)
    """

    symbols: Any
    positions: Any
    places: Any
    ordinals: Any
    times: Any
    nothing: Any
    no_partitions: Any


# ---- ends -------------------------------------------------------------------------------------------------------


@helper
def _move_starts(begins, moves, parts, taken, p, symbol, number):
    """Move the latest starts of a partition over an event (or a gap before it) of a symbol."""
    begin: Any = np.int64(begins[symbol])
    end = np.int64(begins[symbol + _U(1)])
    parts[p, _U(STARTS + FRESH_START)] = number
    # read all sources before any target is written
    for k in range(begin, end):
        taken[_U(k - begin)] = parts[p, _U(STARTS + moves[_U(k), START_SOURCE])]
    k = begin
    while k < end:
        target = moves[_U(k), START_TARGET]
        latest = taken[_U(k - begin)]
        k += 1
        while k < end and moves[_U(k), START_TARGET] == target:
            latest = max(latest, taken[_U(k - begin)])
            k += 1
        parts[p, _U(STARTS + target)] = latest


@helper
def _forget(parts, p):
    """Drop all runs of a partition, and the link to its events."""
    parts[p, LAST_ID] = NO_EVENT
    parts[p, NEWEST] = -1
    for c in range(STARTS + FIRST_START, parts.shape[1]):
        parts[p, _U(c)] = -1


@kernel
def find_ends(events, options, fresh, begins, moves, has_gaps, state, begin, ends):
    """Add events to the log, and find those that end something which has begun in the window.

    Parameters
    ----------
    events : Events
    options : Options
    fresh : bool, shape (symbols,)
    begins : int32, shape (symbols + 1,)
    moves : int32, shape (moves, 2)
        As in `cer_gpu.automaton.latest_starts.LatestStarts`.
    has_gaps : bool
        True if the gap between two events matters.
    state : WindowState
    begin : int
        Event to begin at.
    ends : int64, shape (at least n, N_END), written
        The ends, except those before `Options.report_from`.

    Returns
    -------
    (int, int)
        The event after the last one read (n, or where the log is full), and the number of ends.
    """
    events, options, state = Events(*events), Options(*options), WindowState(*state)
    regs, parts, log, taken = state.regs, state.parts, state.log, state.taken
    partitioned, numbered = events.partitions.shape[0] > 0, events.ordinals.shape[0] > 0
    clocked, placed, timed = events.lows.shape[0] > 0, events.places.shape[0] > 0, events.times.shape[0] > 0
    p = _U(0)
    n_ends = 0
    i = begin
    while i < events.symbols.shape[0] and regs[NEXT_ID] - regs[FIRST_ID] < log.shape[0]:
        event = _U(i)
        i += 1
        if partitioned:
            p = _U(events.partitions[event])
        symbol = _U(events.symbols[event])
        position = events.positions[event]
        ordinal = events.ordinals[event] if numbered else position
        if clocked:
            number, low = regs[ORDINAL], events.lows[event]
        else:
            number = ordinal if options.window == COUNT_WINDOW else position
            low = number - options.width
        low = max(low, 0)
        regs[ORDINAL] += 1
        gap = has_gaps and ordinal != parts[p, LAST_ORDINAL] + 1
        parts[p, LAST_ORDINAL] = ordinal
        if parts[p, NEWEST] < low or parts[p, SEEN] != regs[N_CONSUMED]:
            if not fresh[symbol]:
                continue  # no run has begun in the window
            _forget(parts, p)
            parts[p, SEEN] = regs[N_CONSUMED]
        if fresh[symbol]:
            parts[p, NEWEST] = number
        if gap:
            _move_starts(begins, moves, parts, taken, p, _U(QUIET), number)
        parts[p, _U(STARTS + ENDED_START)] = -1
        _move_starts(begins, moves, parts, taken, p, symbol, number)
        this = regs[NEXT_ID]
        row = _U(this - regs[FIRST_ID])
        place = events.places[event] if placed else position
        log[row, LOG_SYMBOL] = events.symbols[event]
        log[row, LOG_PARTITION] = p
        log[row, LOG_BEFORE] = parts[p, LAST_ID]
        log[row, LOG_NUMBER] = number
        log[row, LOG_POSITION] = position
        log[row, LOG_PLACE] = place
        log[row, LOG_ORDINAL] = ordinal
        log[row, LOG_TIME] = events.times[event] if timed else 0
        regs[NEXT_ID] = this + 1
        parts[p, LAST_ID] = this
        if parts[p, _U(STARTS + ENDED_START)] >= low:
            if place >= options.report_from:
                ends[_U(n_ends), END_ID] = this
                ends[_U(n_ends), END_LOW] = low
                n_ends += 1
            if options.consume != CONSUME_NONE:
                _forget(parts, p)
                if options.consume == CONSUME_ANY:
                    regs[N_CONSUMED] += 1
                    parts[p, SEEN] = regs[N_CONSUMED]
    return i, n_ends


# ---- the evaluation of a window ---------------------------------------------------------------------------------


@helper
def _take(state, replay, lists, this, low):
    """Take the events of a window up to an end, but for those that the evaluation of the same window has read."""
    regs, log = state.regs, state.log
    first_id = regs[FIRST_ID]
    opened, n_all, n_new = this, 0, 0
    event = this
    while event >= first_id and log[_U(event - first_id), LOG_NUMBER] >= low:
        opened = event
        n_all += 1
        n_new += event > regs[READ]
        event = log[_U(event - first_id), LOG_BEFORE]
    if opened != regs[OPENED]:
        regs[OPENED] = opened
        regs[N_READ] = 0
        n_new = n_all
        lists.regs[tecs.NEXT_NODE] = 0
        tecs.forget(lists, _U(0))
        lists.parts[0, tecs.PREVIOUS] = log[_U(opened - first_id), LOG_ORDINAL] - 1
    event = this
    for back in range(n_new):
        k, row = _U(n_new - 1 - back), _U(event - first_id)
        replay.symbols[k] = log[row, LOG_SYMBOL]
        replay.positions[k] = regs[N_READ] + n_new - 1 - back
        replay.places[k] = log[row, LOG_PLACE]
        replay.ordinals[k] = log[row, LOG_ORDINAL]
        replay.times[k] = log[row, LOG_TIME]
        event = log[row, LOG_BEFORE]
    regs[READ] = this
    regs[N_READ] += n_new
    regs[N_TAKEN] = n_new
    lists.regs[tecs.EVENT] = 0


@helper
def _events_of(replay, n):
    """Return the events taken as a group: numbered from 0, without partitions and windows."""
    return Events(
        replay.symbols[:n],
        replay.positions[:n],
        replay.places[:n],
        replay.no_partitions,
        replay.ordinals[:n],
        replay.nothing,
        replay.times[:n],
    )


@kernel
def evaluate_windows(state, replay, ends, n_ends, limit, numbering, tables, lists, arena, listing, shard, matches,
                     history, sources, numbers, window, counts, n_states):  # fmt: skip
    """List, or count, the matches that a strategy chooses at each end, until all are or something is needed.

    Parameters
    ----------
    state : WindowState
    replay : Replay
    ends : int64, shape (at least n, N_END)
        Result of `find_ends`.
    n_ends : int
    limit : int
        As in `Options`.
    numbering : Numbering, or ()
    tables : Tables
    lists : Lists
    arena : Arena, or ()
    listing : Listing, or ()
    shard : Shard, or ()
    matches : Matches, or ()
    history : int32, shape (2**history, 2), written
    sources : int32, shape (states + 1, N_SOURCE), or (0, 0), written
        From `numbering` on as in `cer_gpu.backend.evaluation.evaluate_events`, without a window; nothing where complex
        events are counted.
    numbers : ActiveStates, or ()
    window : Records, or ()
    counts : Counts, or ()
    n_states : int
        From `numbers` on as in `cer_gpu.backend.counting.count_events`, without a window; nothing where they are
        listed.

    Returns
    -------
    int
        A `Status`.
    """
    state, replay, tables, lists = WindowState(*state), Replay(*replay), Tables(*tables), Lists(*lists)
    regs = state.regs
    status = DONE
    while regs[END] < n_ends:
        end = _U(regs[END])
        if regs[N_TAKEN] == 0:
            _take(state, replay, lists, ends[end, END_ID], ends[end, END_LOW])
        n = regs[N_TAKEN]
        events = _events_of(replay, n)
        options = Options(NO_WINDOW, np.int64(-1), CONSUME_NONE, limit, replay.places[_U(n - 1)])
        if len(arena) > 0:
            status = evaluate_events(events, options, numbering, tables, lists, arena, listing, shard, matches, history,
                                     sources)  # fmt: skip
        else:
            status = count_events(events, options, tables, lists, numbers, window, counts, n_states)
        if status != DONE:
            break
        regs[N_TAKEN] = 0
        regs[END] += 1
    return status
