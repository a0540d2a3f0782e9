"""The loops for chains: relevant events -> one stack of instances for each step, and the listing of matches.

papers: CORE, sections 5.1 to 5.3; `cer_gpu.automaton.chain`.  An instance of step k is an event that satisfies it
while step k - 1 has one in the window.  It stands for all runs that it ends: it goes on at any instance that stack
k - 1 held before it and, where step k is repeated, at any that its own stack held.  Both are the bottoms of stacks,
up to a number that it keeps, so that no list is ever copied or merged.  A neighbour goes on at the last one alone.

Absences: an instance of step k keeps the position of the last event that barred the gap before the step.  A run goes
on from it to instances of stack k - 1 from that position on.  An instance that the gap keeps from beginning the step
keeps the nearest one below it that begins it, which steps of m events at most need.

Counts: with a step of n events at least, instance i completes the step if i - (n - 1) is still in the stack, and its
latest start is that of instance i - (n - 1): for `A ; B{3,}`, the fifth B has the latest start of the third.

The stack of step k is row k of arrays, oldest first:

* `places` (int64): the position of the event;
* `below` (int64): how many instances stack k - 1 held when the event came; or -1 - i if the step cannot begin with the
  instance, where i is the index of the nearest one below it with which it can;
* `latest` (uint64 or float64): the clock of the latest start that the instance reaches.  It never decreases upwards,
  so that what is in the window is the top of each stack;
* `bars` (int64): the position of the last event that barred the gap before the step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import CONSUME_NONE
from cer_gpu.backend.arguments import Events, Matches, Options, Steps, Window
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.status import DONE, GROW_PATH, OUTPUT_FULL

# registers of `list_ends`: the end under way; how many frames it has, and how many of its complex events are listed;
# and how many complex events and positions are in the buffers
END, DEPTH, N_HERE, N_OUT, N_VALUES, N_REGS = range(6)

# of an end: the event; the instance with which it ends, or how many the step before had (see `push_events`); and under
# CONSUME the bottoms of the stacks
EVENT, BEFORE, BOTTOMS = range(3)

# A frame d of the listing stands for the choice of the d-th event from the end, counted from 0 for the one before the
# last.  It tries the instances of a stack from the latest down, then those of the stack above: after b of `A ; B+` it
# tries the As that b goes on at, then the Bs before b.  COUNT to TARGET serve chains with counts or absences.
(
    STACK,  # the stack, from 0
    LEFT,  # how many of its lowest instances are left to try; under PARTITION BY the id of the next one
    OTHER,  # the same of the stack above, which comes after; -1: not to be tried
    COUNT,  # events of its step that the path holds with one of the stack above, or of STACK where OTHER is -1
    BAR,  # position from which on instances of STACK may lie, or -1
    TARGET,  # under PARTITION BY: the instance with which the step, from LEFT down, has its least number of events
    N_FRAME,
) = range(7)

_U = np.uint64


class Stacks(NamedTuple):
    """Stacks of instances; there is room for one more in each.

    Attributes
    ----------
    counts : int64, shape (steps + 1,), written
        1, then the heights of the stacks.
    bottoms : int64, shape (steps + 1,), written
        0, then how many instances of each stack are forgotten: the lowest.
    tops : clock, shape (steps + 1,), written
        The place for the clock of the event; then for each stack the latest start of the runs that completed its step.
    places : int64, shape (steps, capacity), written
    below : int64, shape (steps, capacity), written
    latest : clock, shape (steps, capacity), written
    began : int64, shape (capacity,), or (0,), written
        Times of the instances of the first step; empty where the output has none.
    barred : int64, shape (steps,), written
        Position of the last event that barred the gap before each step, or -1.
    bars : int64, shape (steps, capacity), or (steps, 0), written
        Empty if nothing is absent.
    """

    counts: Any
    bottoms: Any
    tops: Any
    places: Any
    below: Any
    latest: Any
    began: Any
    barred: Any
    bars: Any


class Frames(NamedTuple):
    """State of the listing of the complex events of one end.

    Attributes
    ----------
    marks : int32, shape (steps,), or (0,)
        The mark of each step; empty if the output has no marks.
    frames : int64, shape (depth, N_FRAME), written
    path : int64, shape (depth,), written
        The complex event, filled from its end.
    path_marks : int32, shape (depth,), written
    """

    marks: Any
    frames: Any
    path: Any
    path_marks: Any


@helper
def has_absences(n_dimensions):
    """Return whether a chain has absences, given the dimensions of `Steps.kind`."""
    return n_dimensions == 2 or n_dimensions == 4


@kernel
def drop_dead(stacks, clock, length):
    """Drop what was consumed or has left the window that ends at `clock`, the lowest of each stack.

    Parameters
    ----------
    stacks : Stacks
    clock : clock
    length : clock
        Length of the window.

    Returns
    -------
    bool
        True if half of the room is free.
    """
    stacks = Stacks(*stacks)
    counts, bottoms, places, below = stacks.counts, stacks.bottoms, stacks.places, stacks.below
    latest, began, bars = stacks.latest, stacks.began, stacks.bars
    n_steps = places.shape[0]
    gapped = bars.shape[1] > 0
    highest = 0
    for k in range(n_steps):
        step = _U(k)
        height = counts[step + _U(1)]
        dead = bottoms[step + _U(1)]
        while dead < height and clock - latest[step, _U(dead)] > length:
            dead += 1
        for i in range(dead, height):
            source, target = _U(i), _U(i - dead)
            places[step, target] = places[step, source]
            reached = below[step, source]
            below[step, target] = min(reached + dead, 0) if reached < 0 else reached
            latest[step, target] = latest[step, source]
            if gapped:
                bars[step, target] = bars[step, source]
            if k == 0 and began.shape[0] > 0:
                began[target] = began[source]
        bottoms[step + _U(1)] = 0
        counts[step + _U(1)] = height - dead
        highest = max(highest, height - dead)
        if k + 1 < n_steps:
            for i in range(counts[step + _U(2)]):
                reached = below[step + _U(1), _U(i)]
                below[step + _U(1), _U(i)] = max(reached - dead, 0) if reached > 0 else reached
    return 2 * highest <= places.shape[1]


@kernel
def push_events(events, window, options, steps, stacks, begin, ends):
    """Push each event to the stacks of the steps that it satisfies, and note which of them end complex events.

    Parameters
    ----------
    events : Events
        Events that each satisfy some step, or bar a gap.
    window : Window
    options : Options
    steps : Steps
    stacks : Stacks
    begin : int
        Event to begin at.
    ends : int64, shape (n, BOTTOMS), or (n, BOTTOMS + steps), written
        The event, and the index of the instance; but for a last step that is not repeated, in a plain chain, how many
        instances the step before had; then, where they consume, `bottoms`.

    Returns
    -------
    (int, int)
        The event after the last one read (n, or where a stack is full), and how many ends were written.
    """
    events, window, options, steps = Events(*events), Window(*window), Options(*options), Steps(*steps)
    stacks = Stacks(*stacks)
    symbols, positions, times, first_end = events.symbols, events.positions, events.times, options.first_end
    clocks, length, steps_of = window.clocks, window.length, steps.steps_of
    repeated, neighbours, consume = steps.repeated, steps.neighbours, options.consume != CONSUME_NONE
    counts, bottoms, tops, places = stacks.counts, stacks.bottoms, stacks.tops, stacks.places
    below, latest, began, barred, bars = stacks.below, stacks.latest, stacks.began, stacks.barred, stacks.bars
    spare, bars_of = steps.spare, steps.bars
    special, gapped, counted = steps.kind.ndim > 1, has_absences(steps.kind.ndim), steps.kind.ndim > 2
    n_steps = repeated.shape[0]
    last = _U(n_steps - 1)
    by_index = repeated[last] or special
    timed = times.shape[0] > 0
    room = places.shape[1]
    n_ends = _U(0)
    i = begin
    full = False
    while i < symbols.shape[0]:
        event = _U(i)
        clock = clocks[event]
        if full:
            if n_ends > 0 or not drop_dead(stacks, clock, length):
                break
            full = False
        ended = False
        position = positions[event]
        symbol = _U(symbols[event])
        tops[0] = clock
        # from the last step down: each reads the stack below it before the event is there
        j = _U(0)
        step = steps_of[symbol, j]
        while step >= 0:
            k = _U(step)
            j += _U(1)
            step = steps_of[symbol, j]
            n_below = counts[k]
            start = tops[k]
            bottom = bottoms[k]
            if counted:
                bottom += spare[k]
            possible = n_below > bottom and not (clock - start > length)  # infinite clocks differ by NaN
            if possible and neighbours[k]:
                possible = places[k - _U(1), _U(n_below - 1)] == position - 1
            begins = True
            if gapped and k > _U(0):
                begins = possible and places[k - _U(1), _U(n_below - 1)] >= barred[k]
                possible = begins
                if not begins and repeated[k] and counts[k + _U(1)] > bottoms[k + _U(1)]:
                    start = latest[k, _U(counts[k + _U(1)] - 1)]
                    possible = not (clock - start > length)
            if possible:
                height = counts[k + _U(1)]
                top = _U(height)
                places[k, top] = position
                below[k, top] = n_below
                latest[k, top] = start
                if timed and k == 0:
                    began[top] = times[event]
                if gapped:
                    bars[k, top] = barred[k]
                    if not begins:
                        reached = below[k, top - _U(1)]
                        below[k, top] = -height if reached >= 0 else reached
                counts[k + _U(1)] = height + 1
                full |= height + 1 == room
                completed = True
                if counted and spare[k + _U(1)] > 0:
                    first = height - spare[k + _U(1)]
                    completed = first >= bottoms[k + _U(1)]
                    if completed:
                        start = latest[k, _U(first)]
                        completed = not (clock - start > length)
                if completed:
                    tops[k + _U(1)] = start
                if k == last and completed:
                    ended = True
                    if position >= first_end:
                        ends[n_ends, EVENT] = i
                        ends[n_ends, BEFORE] = height if by_index else n_below
                        if consume:
                            for b in range(n_steps):
                                ends[n_ends, _U(BOTTOMS + b)] = bottoms[_U(b + 1)]
                        n_ends += _U(1)
        if gapped:
            j = _U(0)
            while j < _U(n_steps) and bars_of[symbol, j] >= 0:
                barred[_U(bars_of[symbol, j])] = position
                j += _U(1)
        if consume and ended:
            for b in range(n_steps):
                bottoms[_U(b + 1)] = counts[_U(b + 1)]
        i += 1
    return i, np.int64(n_ends)


@helper
def write_rows(n_out, n_values, n_rows, depth, first, position, path, path_marks, marks, out_spans, out_offsets,
               out_positions, out_marks):  # fmt: skip
    """Write complex events that differ only in their starts, written before: `depth` events from path[first] on."""
    width = depth + 1
    # four columns at a time, so that what is written stays in registers from row to row
    for t in range(0, depth - 3, 4):
        at = first + _U(t)
        v0, v1, v2, v3 = path[at], path[at + _U(1)], path[at + _U(2)], path[at + _U(3)]
        for r in range(n_rows):
            to = _U(n_values + r * width + 1 + t)
            out_positions[to] = v0
            out_positions[to + _U(1)] = v1
            out_positions[to + _U(2)] = v2
            out_positions[to + _U(3)] = v3
    for t in range(depth // 4 * 4, depth):
        other = path[first + _U(t)]
        for r in range(n_rows):
            out_positions[_U(n_values + r * width + 1 + t)] = other
    for r in range(n_rows):
        out_spans[1, _U(n_out + r)] = position
        out_offsets[_U(n_out + 1 + r)] = n_values + (r + 1) * width
    if marks.shape[0] > 0:
        for r in range(n_rows):
            row = n_values + r * width
            out_marks[_U(row)] = marks[0]
            for t in range(depth):
                out_marks[_U(row + 1 + t)] = path_marks[first + _U(t)]


@helper
def _go_on(frames, frame, s, left, count, steps, stacks):
    """Set the frame after instance `left` of stack s, with which the path holds `count` events of its step."""
    if s == _U(0) or count <= steps.spare[s + _U(1)]:
        frames[frame, STACK], frames[frame, LEFT], frames[frame, OTHER] = s, left, -1
        frames[frame, COUNT], frames[frame, BAR] = count + 1, -1
    else:
        again = count < steps.most[s]
        frames[frame, STACK] = s - _U(1)
        frames[frame, LEFT] = stacks.below[s, _U(left)]
        frames[frame, OTHER] = left if again else -1
        frames[frame, COUNT] = count + 1 if again else 1
        frames[frame, BAR] = stacks.bars[s, _U(left)] if stacks.bars.shape[1] > 0 else -1


@kernel
def list_ends(events, window, options, steps, stacks, listing, output, ends, n_ends, regs):
    """List the complex events of the ends that `push_events` noted, from where the last call stopped.

    papers: CORE, theorem 2: depth first, the latest instance first, and downwards a stack only while its instances
    are in the window, so that no step is in vain.  Frame d lists the instances before the d-th event from the end.

    Parameters
    ----------
    events : Events
    window : Window
    options : Options
    steps : Steps
    stacks : Stacks, read
    listing : Frames
    output : Matches
    ends : int64, shape (at least n_ends, BOTTOMS), or (at least n_ends, BOTTOMS + steps)
    n_ends : int
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        DONE; OUTPUT_FULL, when the buffers are to be emptied (or made larger, when they are empty); GROW_PATH.
    """
    events, window, options, steps = Events(*events), Window(*window), Options(*options), Steps(*steps)
    stacks, listing, output = Stacks(*stacks), Frames(*listing), Matches(*output)
    positions, times, limit = events.positions, events.times, options.limit
    clocks, length = window.clocks, window.length
    repeated, neighbours = steps.repeated, steps.neighbours
    places, below, latest, began = stacks.places, stacks.below, stacks.latest, stacks.began
    spare, most_of, linked = steps.spare, steps.most, steps.linked
    special, gapped, counted = steps.kind.ndim > 1, has_absences(steps.kind.ndim), steps.kind.ndim > 2
    marks, frames, path, path_marks = listing.marks, listing.frames, listing.path, listing.path_marks
    out_spans, out_times, out_offsets = output.spans, output.times, output.offsets
    out_positions, out_marks = output.positions, output.marks
    last = repeated.shape[0] - 1
    timed, marked = times.shape[0] > 0, marks.shape[0] > 0
    consumed = ends.shape[1] > BOTTOMS
    size = path.shape[0]
    n_out, n_values, n_here, depth = regs[N_OUT], regs[N_VALUES], regs[N_HERE], regs[DEPTH]
    status = DONE
    while regs[END] < n_ends and status == DONE:
        end = _U(regs[END])
        event = _U(ends[end, EVENT])
        position, clock = positions[event], clocks[event]
        if depth == 0:
            instance = ends[end, BEFORE]
            path[_U(size - 1)] = position
            if marked:
                path_marks[_U(size - 1)] = marks[_U(last)]
            if special:
                _go_on(frames, _U(0), _U(last), instance, np.int64(1), steps, stacks)
            elif repeated[_U(last)]:
                frames[0, STACK], frames[0, LEFT], frames[0, OTHER] = last - 1, below[_U(last), _U(instance)], instance
            else:
                frames[0, STACK], frames[0, LEFT], frames[0, OTHER] = last - 1, instance, -1
            depth = 1
        while depth > 0:
            frame = _U(depth - 1)
            s = _U(frames[frame, STACK])
            left = frames[frame, LEFT]
            bottom = ends[end, _U(BOTTOMS) + s] if consumed else np.int64(0)
            count, need, exhausted = np.int64(1), np.int64(0), False
            if special:
                if frames[frame, OTHER] < 0:
                    count = frames[frame, COUNT]
                if counted:
                    need = max(spare[s + _U(1)] + 1 - count, np.int64(0))  # events that must still follow in the step
                if counted and gapped and count == most_of[s] and left > bottom and below[s, _U(left - 1)] < 0:
                    left = -below[s, _U(left - 1)]
                exhausted = left - need <= bottom
                if not exhausted and gapped:
                    exhausted = places[s, _U(left - 1)] < frames[frame, BAR]
            if exhausted or left == bottom or clock - latest[s, _U(left - 1 - need)] > length:
                if frames[frame, OTHER] >= 0:
                    frames[frame, STACK] += 1
                    frames[frame, LEFT] = frames[frame, OTHER]
                    frames[frame, OTHER] = -1
                    frames[frame, BAR] = -1
                else:
                    depth -= 1
                continue
            if depth >= size:
                status = GROW_PATH
                break
            first = _U(size - depth)  # the path so far is path[first:]
            ends_here = s == _U(0) and need == 0
            only_one = neighbours[s + _U(1)]
            begins_here = ends_here and not repeated[0]
            if special:
                only_one = linked[s] if count > 1 else only_one
                begins_here = ends_here and count == most_of[0]
            if ends_here and (n_out + 1 >= out_offsets.shape[0] or n_values + depth + 1 > out_positions.shape[0]):
                status = OUTPUT_FULL
                break
            if begins_here:
                # all that begin in the window, in one go; they differ in their starts alone
                width = depth + 1
                most = min(
                    out_offsets.shape[0] - 1 - n_out, (out_positions.shape[0] - n_values) // width, left - bottom
                )
                if limit > 0:
                    most = min(most, limit - n_here)
                if only_one:
                    most = 1
                n_rows = 1
                while n_rows < most and not (clock - latest[s, _U(left - 1 - n_rows)] > length):
                    if gapped and places[s, _U(left - 1 - n_rows)] < frames[frame, BAR]:
                        break
                    n_rows += 1
                for r in range(n_rows):
                    start = places[s, _U(left - 1 - r)]
                    out_spans[0, _U(n_out + r)] = start
                    out_positions[_U(n_values + r * width)] = start
                if timed:
                    for r in range(n_rows):
                        out_times[0, _U(n_out + r)] = began[_U(left - 1 - r)]
                        out_times[1, _U(n_out + r)] = times[event]
                write_rows(n_out, n_values, n_rows, depth, first, position, path, path_marks, marks, out_spans,
                           out_offsets, out_positions, out_marks)  # fmt: skip
                n_out += n_rows
                n_here += n_rows
                n_values += n_rows * width
                frames[frame, LEFT] = bottom if only_one else left - n_rows
            else:
                left -= 1
                instance = _U(left)
                frames[frame, LEFT] = bottom if only_one else left
                path[first - _U(1)] = places[s, instance]
                if marked:
                    path_marks[first - _U(1)] = marks[s]
                if ends_here:
                    for t in range(depth + 1):
                        out_positions[_U(n_values + t)] = path[first - _U(1) + _U(t)]
                    if marked:
                        for t in range(depth + 1):
                            out_marks[_U(n_values + t)] = path_marks[first - _U(1) + _U(t)]
                    n_values += depth + 1
                    out_spans[0, _U(n_out)] = places[s, instance]
                    out_spans[1, _U(n_out)] = position
                    if timed:
                        out_times[0, _U(n_out)] = began[instance]
                        out_times[1, _U(n_out)] = times[event]
                    n_out += 1
                    n_here += 1
                    out_offsets[_U(n_out)] = n_values
                frame += _U(1)
                if special:
                    _go_on(frames, frame, s, left, count, steps, stacks)
                elif ends_here:
                    frames[frame, STACK], frames[frame, LEFT], frames[frame, OTHER] = 0, left, -1
                else:
                    frames[frame, STACK] = s - _U(1)
                    frames[frame, LEFT] = below[s, instance]
                    frames[frame, OTHER] = left if repeated[s] else -1
                depth += 1
            if limit > 0 and n_here == limit:
                depth = 0
        if status == DONE:
            regs[END] += 1
            n_here = 0
    regs[N_OUT], regs[N_VALUES], regs[N_HERE], regs[DEPTH] = n_out, n_values, n_here, depth
    return status
