"""The loop of SELECT RECENT with quantifiers: events move pending partial matches along the ways between the steps.

At each event, from the last step to the first: of the partial matches that are pending where a way to the step begins,
and fit, the one that started last moves to it, in place of what was pending there; if none does, the event may begin a
match there.  Then the event bars ways, where it must be absent.  Before all that it takes back what ended earlier.

An event may end several matches, one for each step: the loop comes back for space between two of its operations, and
goes on with the next.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.encoding import CONSUME_NONE
from cer_gpu.automaton.recent_pattern import NOT_TAKEN
from cer_gpu.backend.arguments import Counts, Demand, Events, Matches, Options, Window
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.joins.choosing import EVENT, N_ENDS, N_HERE, N_OUT, N_VALUES, count_end
from cer_gpu.backend.joins.filters import Filters
from cer_gpu.backend.operations import prefetch
from cer_gpu.backend.recent.ended import ENDED_NEXT, LIST_END, Ended, has_place
from cer_gpu.backend.recent.moving import KEYS_AHEAD, N_REGS, ROWS_AHEAD
from cer_gpu.backend.recent.paths import (
    PATH_BARRED,
    PATH_LENGTH,
    PATH_NODE,
    PATH_START,
    STEP_ENDS,
    STEP_FIRST,
    STEP_GOES_ON,
    STEP_WAY,
    STEP_WAYS_END,
    WAY_RESET,
    WAY_RESETS_END,
    WAY_SOURCE,
    PathTables,
    append_node,
    forget_event,
    is_barred,
    keep_ended_path,
    may_go_on,
    store_event,
    take_back_paths,
    write_path,
)
from cer_gpu.backend.recent.pending import (
    BAR,
    BEGIN,
    DROP,
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
    SCAN,
    SLOT_CLOCK,
    SLOT_LAST,
    SLOT_TIME,
    TAKE,
    TAKE_ALL,
    Moves,
    Rows,
    SlotLayout,
    ahead_of,
    fetch_keys_ahead,
    find_key,
    is_pending,
    make_row,
    passes_all,
)
from cer_gpu.backend.status import DONE, GROW_NODES, OUTPUT_FULL

# registers besides those of the loop without quantifiers: the operation of the event under way that is next; the step
# to which something has moved; whether the event began a match
NEXT_OP, ENTERED, BEGUN = range(N_REGS, N_REGS + 3)
N_PATH_REGS = N_REGS + 3

_U = np.uint64


@kernel
def follow_ways(events, attributes, window, options, demand, moves, layout, rows, paths, ended, filters, output, counts,
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
        The step of an operation that bars ways is that with which they begin, and its choice the absence.
    layout : SlotLayout
        With a slot after each step, also the last, all alike.
    rows : Rows
        Without `bars`.
    paths : PathTables
    ended : Ended
    filters : Filters
        Without conditions: the tests are those of `moves`.
    output : Matches
    counts : Counts
    n_events : int
    regs : int64, shape (N_PATH_REGS,), written

    Returns
    -------
    int
        DONE; GROW_NODES, when the rows, the nodes, or what ended, need more space; OUTPUT_FULL, when the buffers are to
        be emptied (or made larger, if they are empty).
    """
    events, window, options, demand = Events(*events), Window(*window), Options(*options), Demand(*demand)
    moves, layout, rows, filters = Moves(*moves), SlotLayout(*layout), Rows(*rows), Filters(*filters)
    output, counts, ended, paths = Matches(*output), Counts(*counts), Ended(*ended), PathTables(*paths)
    symbols, positions, partitions = events.symbols, events.positions, events.partitions
    words = rows.words
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
        # memory is not tidied up while an event is under way, whose clock is not the last one yet
        if regs[NEXT_OP] == 0 and not _has_space(layout, paths, ended):
            status = GROW_NODES
            break
        if demand.counting == 1 and regs[N_ENDS] >= counts.ends.shape[0]:
            status = OUTPUT_FULL
            break
        ahead = ahead_of(rows, event)
        if keyed:
            for f in range(moves.first_keys[symbol], moves.first_keys[symbol + _U(1)]):
                find_key(moves, rows, attributes, event, ahead, partition, moves.needed[_U(f)])
        place = events.places[event] if events.places.shape[0] > 0 else positions[event]
        begin = np.int64(moves.firsts[symbol])
        if regs[NEXT_OP] == 0:
            regs[ENTERED], regs[BEGUN], regs[N_HERE] = -1, 0, 0
        for o in range(begin + regs[NEXT_OP], moves.firsts[symbol + _U(1)]):
            regs[NEXT_OP] = o - begin
            status = _operate(events, attributes, window, options, demand, moves, layout, rows, paths, ended, filters,
                              output, _U(o), event, ahead, partition, place, regs)  # fmt: skip
            if status != DONE:
                break
        if status != DONE:
            break
        regs[NEXT_OP] = 0
        if regs[N_HERE] > 0:
            if options.consume != CONSUME_NONE:
                rows.forgotten[_U(partition if rows.forgotten.shape[0] > 1 else 0)] = positions[event]
            wanted = place >= options.report_from and (demand.n_shards == 1 or place % demand.n_shards == demand.shard)
            if demand.counting == 1 and wanted:
                status = count_end(events, options, counts, place, event, regs)
            regs[N_HERE] = 0
        i += 1
    regs[EVENT] = i
    return status


@helper
def _has_space(layout, paths, ended):
    """Return whether there is memory for what one event may begin, move and end."""
    n_steps = layout.slots.shape[0] - 1
    if paths.n_nodes[0] + n_steps > paths.nodes.shape[0]:
        return False
    if layout.ended >= 0:
        number = ended.free[0]
        for step in range(n_steps):
            if paths.steps[_U(step), STEP_ENDS] == 1:
                if number == LIST_END:
                    return False
                number = ended.words[_U(number), ENDED_NEXT]
    return True


@helper
def _operate(events, attributes, window, options, demand, moves, layout, rows, paths, ended, filters, output, op, event,
             ahead, partition, place, regs):  # fmt: skip
    """Do one operation of an event; return DONE, or OUTPUT_FULL if it lacks space for a match."""
    kind, step, choice = moves.ops[op, OP_KIND], moves.ops[op, OP_STEP], moves.ops[op, OP_CHOICE]
    first, last = moves.ops[op, OP_TEST], moves.ops[op, OP_TESTS_END]
    words, position, clock = rows.words, events.positions[event], window.clocks[event]
    if kind == BAR:
        paths.bars[_U(partition), _U(choice)] = position
        return DONE
    if kind == SCAN:
        for each in range(rows.counts[0]):
            if words[_U(each), ROW_PARTITION] == partition:
                _bar_one(moves, layout, rows, paths, filters, _U(each), partition, step, choice, position, attributes,
                         event, first, last)  # fmt: skip
        return DONE
    if kind == TAKE_ALL:
        for each in range(rows.counts[0]):
            if words[_U(each), ROW_PARTITION] == partition and not take_back_paths(
                events, options, moves, layout, rows, paths, filters, ended, output, _U(each), attributes, event, place,
                clock, first, last, regs,
            ):  # fmt: skip
                return OUTPUT_FULL
        return DONE
    row = partition
    if moves.columns.shape[0] > 0:
        row = rows.key_rows[_U(moves.ops[op, OP_KEY])]
        if row == NO_VALUE or (row == NO_ROW and kind != BEGIN):
            return DONE
    r = _U(row)
    if kind == TAKE:
        if not take_back_paths(events, options, moves, layout, rows, paths, filters, ended, output, r, attributes,
                               event, place, clock, first, last, regs):  # fmt: skip
            return OUTPUT_FULL
        return DONE
    if kind == DROP:
        _bar_one(moves, layout, rows, paths, filters, r, partition, step, choice, position, attributes, event, first,
                 last)  # fmt: skip
        return DONE
    if regs[ENTERED] == step or (kind == BEGIN and regs[BEGUN] == 1):
        return DONE
    s = _U(step)
    best = np.int64(-1)
    n_events = np.int64(1)
    if kind == MOVE:
        best = _way_to(moves, layout, rows, paths, filters, r, partition, step, choice, position, clock, window.length,
                       attributes, event, first, last)  # fmt: skip
        if best < 0:
            return DONE
        at = np.int64(layout.slots[_U(paths.ways[_U(best), WAY_SOURCE])])
        n_events = words[r, _U(at + paths.word + PATH_LENGTH)] + 1
    elif not passes_all(moves, layout, rows, filters, _U(0), 0, step, choice, attributes, event, first, last):
        return DONE
    ends = paths.steps[s, STEP_ENDS] == 1
    if ends and demand.counting == 0 and not has_place(output, n_events, regs):
        return OUTPUT_FULL
    if row == NO_ROW:
        k = _U(moves.ops[op, OP_KEY])
        rows.key_rows[k] = np.int64(make_row(moves, layout, rows, attributes, event, ahead, partition, np.int64(k)))
        r = _U(rows.key_rows[k])
    to = np.int64(layout.slots[s])
    mark = moves.marks[s, _U(choice)]
    if kind == MOVE:
        _move_along(layout, words, paths, r, best, to)
        regs[ENTERED] = step
        before = words[r, _U(to + paths.word + PATH_NODE)]
    else:
        _begin(layout, rows, paths, r, to, events, event, clock)
        regs[BEGUN] = 1
        before = np.int64(-1)
    words[r, _U(to + paths.word + PATH_NODE)] = append_node(paths, place, mark, before)
    words[r, _U(to + paths.word + PATH_LENGTH)] = n_events
    words[r, _U(to + paths.word + PATH_BARRED)] = 0
    words[r, _U(to + SLOT_LAST)] = position
    first_of = paths.steps[s, STEP_FIRST]
    if first_of >= 0 and words[r, _U(to + layout.choices[_U(first_of)])] == NOT_TAKEN:
        store_event(layout, words, r, to, first_of, choice, event, attributes)
    store_event(layout, words, r, to, step, choice, event, attributes)
    if paths.last >= 0:
        store_event(layout, words, r, to, paths.last, choice, event, attributes)
    if ends:
        regs[N_HERE] += 1
        _write_match(events, options, demand, paths, output, layout, rows, r, to, event, place, regs)
        if layout.ended >= 0:
            keep_ended_path(layout, rows, paths, ended, r, to, clock)
    if paths.steps[s, STEP_GOES_ON] == 0:
        words[r, _U(to + SLOT_LAST)] = -1
    return DONE


@helper
def _way_to(moves, layout, rows, paths, filters, row, partition, step, choice, position, clock, length, attributes,
            event, first, last):  # fmt: skip
    """Return the way on which a partial match moves to a step: that of the one that started last, or -1."""
    words = rows.words
    best, start = np.int64(-1), np.int64(-1)
    for w in range(paths.steps[_U(step), STEP_WAY], paths.steps[_U(step), STEP_WAYS_END]):
        way = _U(w)
        source = paths.ways[way, WAY_SOURCE]
        if not is_pending(layout, rows, row, partition, source + 1):
            continue
        at = np.int64(layout.slots[_U(source)])
        if words[row, _U(at + SLOT_LAST)] == position or words[row, _U(at + paths.word + PATH_START)] <= start:
            continue
        if clock - rows.clocks[row, _U(at + SLOT_CLOCK)] > length:  # infinite clocks differ by NaN
            continue
        if is_barred(paths, words, row, at, partition, paths.barring[way]):
            continue
        if passes_all(moves, layout, rows, filters, row, at, step, choice, attributes, event, first, last):
            best, start = np.int64(w), words[row, _U(at + paths.word + PATH_START)]
    return best


@helper
def _move_along(layout, words, paths, row, way, to):
    """Move a partial match along a way to another slot, in place of what is there."""
    w = _U(way)
    at = np.int64(layout.slots[_U(paths.ways[w, WAY_SOURCE])])
    if at != to:
        for k in range(SLOT_CLOCK, layout.ends[0]):
            words[row, _U(to + k)] = words[row, _U(at + k)]
        words[row, _U(at + SLOT_LAST)] = -1
    for k in range(paths.ways[w, WAY_RESET], paths.ways[w, WAY_RESETS_END]):
        forget_event(layout, words, row, to, paths.resets[_U(k)])


@helper
def _begin(layout, rows, paths, row, to, events, event, clock):
    """Begin a partial match in a slot, of which no step is taken yet."""
    words = rows.words
    rows.clocks[row, _U(to + SLOT_CLOCK)] = clock
    if events.times.shape[0] > 0:
        words[row, _U(to + SLOT_TIME)] = events.times[event]
    words[row, _U(to + paths.word + PATH_START)] = events.positions[event]
    for number in range(layout.choices.shape[0]):
        forget_event(layout, words, row, to, number)


@helper
def _bar_one(moves, layout, rows, paths, filters, row, partition, source, absence, position, attributes, event, first,
             last):  # fmt: skip
    """Bar the ways of an absence to what is pending after a step, if the filters of an absent event hold."""
    words = rows.words
    at = np.int64(layout.slots[_U(source)])
    if not is_pending(layout, rows, row, partition, source + 1) or words[row, _U(at + SLOT_LAST)] == position:
        return
    if passes_all(moves, layout, rows, filters, row, at, -1, 0, attributes, event, first, last):
        words[row, _U(at + paths.word + PATH_BARRED)] |= np.int64(1) << np.int64(absence)
        if not may_go_on(paths, words, row, at, partition, source):
            words[row, _U(at + SLOT_LAST)] = -1


@helper
def _write_match(events, options, demand, paths, output, layout, rows, row, at, event, place, regs):
    """Write the match of a slot, if it is wanted."""
    if demand.counting == 1 or place < options.report_from:
        return
    if demand.n_shards > 1 and place % demand.n_shards != demand.shard:
        return
    n = _U(regs[N_OUT])
    start = write_path(output, paths, rows.words[row, _U(at + paths.word + PATH_NODE)], regs)
    output.spans[0, n], output.spans[1, n] = start, place
    if output.times.shape[1] > 0:
        output.times[0, n], output.times[1, n] = rows.words[row, _U(at + SLOT_TIME)], events.times[event]
    output.offsets[n + _U(1)] = regs[N_VALUES]
    regs[N_OUT] += 1
