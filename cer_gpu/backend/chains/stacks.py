"""The loops for chains: relevant events -> one stack of instances for each step.

papers: CORE, sections 5.1 to 5.3; `cer_gpu.automaton.chain`.  An instance of step k is an event that satisfies it
while step k - 1 has one in the window.  It stands for all runs that it ends: it continues at any instance that stack
k - 1 held before it and, where step k is repeated, at any that its own stack held.  Both are the bottoms of stacks,
up to a number that it keeps, so that no list is ever copied or merged.  A neighbour continues at the last one alone.

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
* `bars` (int64): the position of the last event that barred the gap before the step;
* `clocks` (as `latest`): with bounds on distances (`cer_gpu.backend.chains.spacing`), their columns, in rows of each
  stack;
* `more` (int64): the same as `below`, of stack k - 2, k - 3, ..., where steps between are optional;
* `ranges` (int64): where matches with bounds on distances are counted, the least instances that are near enough.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import CONSUME_NONE
from cer_gpu.backend.arguments import Events, Options, Steps, Window
from cer_gpu.backend.chains.spacing import Spacing, n_left_out
from cer_gpu.backend.jit import helper, kernel

# registers of `cer_gpu.backend.chains.listing`: the end under way; how many frames it has, and how many of its complex
# events are listed; and how many matches and positions are in the buffers
END, DEPTH, N_HERE, N_OUT, N_VALUES, N_REGS = range(6)

# an end; instances are -1 for none
(
    EVENT,  # the event, by its number in the batch
    BEFORE,  # the latest instance of the step before the last at which runs continue from it
    BESIDE,  # the instance below it in the stack of the last step, where that is repeated
    END_BAR,  # with counts or absences: position from which on instances of the step before may lie, or -1
    END_STEP,  # with bounds on distances: the step of the event, as those after it may be optional
    BOTTOMS,  # from here on, under CONSUME, the bottoms of the stacks; the last columns are of further sources
) = range(6)

_U = np.uint64


class Stacks(NamedTuple):
    """Stacks of instances; there is space for one more in each.

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
    clocks : clock, shape (rows, capacity), or (0, 0), written
        Column c of step k is row ``c * steps + k``; empty without bounds on distances.
    more : int64, shape (rows, capacity), or (0, 0), written
        The height of stack ``k - 2 - e`` for step k is in row ``e * steps + k``; empty if no step is optional.
    ranges : int64, shape (rows, capacity), or (0, 0), written
        Rows `Spacing.near` and `Spacing.inside`; empty unless matches are counted.
    totals : uint64, shape (2 * steps, capacity), or (0, 0), written
        For each stack, the paths from the starts to all instances below one, and to it alone.
    firsts : clock, shape (steps, capacity), or (0, 0), written
        The earliest start of these paths, at most; it never decreases upwards.
    summed : int64, shape (2, steps), written
        Number of instances of each stack that are counted so, and the one from which on all numbers are known.
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
    clocks: Any
    more: Any
    ranges: Any
    totals: Any
    firsts: Any
    summed: Any


@helper
def has_absences(n_dimensions):
    """Return whether a chain has absences, by the number of dimensions of `Steps.kind`."""
    return n_dimensions == 2 or n_dimensions == 4


@helper
def _first_reached(stacks, spacing, k, clock, dead):
    """Return the first instance of stack k at which runs to come may continue, given those of the stack above.

    `dead` are the lowest of stack k that are out of reach; above it, those that remain begin at index 0.
    """
    counts, clocks, n_steps = stacks.counts, stacks.clocks, stacks.places.shape[0]
    step = _U(k)
    height = counts[step + _U(1)]
    reached = height
    own = spacing.own[step]
    while reached > dead:
        this = clocks[step, _U(reached - 1)]
        near = not (clock - this > own)
        for above in range(k + 1, n_steps):
            if above - spacing.n_sources[_U(above)] <= k:
                oldest = clock
                if counts[_U(above + 1)] > stacks.bottoms[_U(above + 1)]:
                    oldest = min(oldest, clocks[_U(above), _U(stacks.bottoms[_U(above + 1)])])
                near |= this >= oldest or not (oldest - this > spacing.gaps[_U(above)])
        if not near and reached < height:
            near = not (clocks[step, _U(reached)] - this > own)
        if not near:
            break
        reached -= 1
    return reached


@helper
def _lower_references(stacks, spacing, k, dead):
    """Lower what instances hold of the indices of stack k, whose lowest `dead` are dropped."""
    counts, more, ranges, n_steps = stacks.counts, stacks.more, stacks.ranges, stacks.places.shape[0]
    for above in range(k, n_steps):
        e = above - 2 - k
        if 0 <= e < more.shape[0] // n_steps:
            for i in range(counts[_U(above + 1)]):
                at = _U(e * n_steps + above), _U(i)
                more[at] = max(more[at] - dead, 0)
        if ranges.shape[0] > 0:
            for row in (spacing.near[_U(above), _U(k)], spacing.inside[_U(above), _U(k)]):
                if row >= 0:
                    for i in range(counts[_U(above + 1)]):
                        ranges[_U(row), _U(i)] = max(ranges[_U(row), _U(i)] - dead, 0)


@helper
def _drop_dead(stacks, spacing, clock, length):
    """Drop what was consumed or has left the window that ends at `clock`, the lowest of each stack.

    Return True if half of the space is free.
    """
    counts, bottoms, places, below = stacks.counts, stacks.bottoms, stacks.places, stacks.below
    latest, began, bars = stacks.latest, stacks.began, stacks.bars
    n_steps = places.shape[0]
    gapped = bars.shape[1] > 0
    highest = 0
    for j in range(n_steps):
        k = n_steps - 1 - j
        step = _U(k)
        height = counts[step + _U(1)]
        dead = bottoms[step + _U(1)]
        while dead < height and clock - latest[step, _U(dead)] > length:
            dead += 1
        if len(spacing) > 0:
            dead = _first_reached(stacks, Spacing(*spacing), k, clock, dead)
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
            for row in range(k, stacks.clocks.shape[0], n_steps):
                stacks.clocks[_U(row), target] = stacks.clocks[_U(row), source]
            for row in range(k, stacks.more.shape[0], n_steps):
                stacks.more[_U(row), target] = stacks.more[_U(row), source]
            if stacks.totals.shape[0] > 0:
                for row in range(2 * k, 2 * k + 2):
                    stacks.totals[_U(row), target] = stacks.totals[_U(row), source]
                stacks.firsts[step, target] = stacks.firsts[step, source]
            if len(spacing) > 0 and stacks.ranges.shape[0] > 0:
                for s in range(n_steps):
                    for row in (Spacing(*spacing).near[step, _U(s)], Spacing(*spacing).inside[step, _U(s)]):
                        if row >= 0:
                            stacks.ranges[_U(row), target] = stacks.ranges[_U(row), source]
        bottoms[step + _U(1)] = 0
        counts[step + _U(1)] = height - dead
        for row in range(stacks.summed.shape[0]):
            stacks.summed[_U(row), step] = max(stacks.summed[_U(row), step] - dead, 0)
        highest = max(highest, height - dead)
        if k + 1 < n_steps:
            for i in range(counts[step + _U(2)]):
                reached = below[step + _U(1), _U(i)]
                below[step + _U(1), _U(i)] = max(reached - dead, 0) if reached > 0 else reached
        if len(spacing) > 0:
            _lower_references(stacks, Spacing(*spacing), k, dead)
    return 2 * highest <= places.shape[1]


@helper
def _is_near(stacks, spacing, k, s, instance, clock):
    """Return whether an event of this clock, of step k, is near enough to an instance of stack s, the event before it.

    It is the last event of the windows that end with the step.
    """
    clocks, n_steps = stacks.clocks, stacks.places.shape[0]
    at = _U(instance)
    gap = spacing.own[_U(s)] if s == k else spacing.gaps[_U(k)]
    near = not (clock - clocks[_U(s), at] > gap)
    for w in range(spacing.columns.shape[0]):
        each = _U(w)
        if near and spacing.least_ends[each] <= k <= spacing.last_steps[each] and spacing.first_steps[each] <= s:
            row = _U(spacing.columns[each] * n_steps + s)
            first = clocks[row, at] if spacing.columns[each] > 0 else stacks.latest[_U(s), at]
            near = not (clock - first > spacing.lengths[each])
    return near


@helper
def _put_clocks(stacks, spacing, k, top, s, before, clock, others):
    """Write the clocks of a new instance of step k, with which runs continue from `before` of stack s, if any.

    With `others`, those are there by which they continue from another stack, and the later ones hold.
    """
    clocks, n_steps = stacks.clocks, stacks.places.shape[0]
    clocks[_U(k), top] = clock
    for w in range(spacing.columns.shape[0]):
        column = spacing.columns[_U(w)]
        if column > 0:
            first = clock
            if s >= spacing.first_steps[_U(w)]:
                first = clocks[_U(column * n_steps + s), _U(before)]
            row = _U(column * n_steps + k)
            clocks[row, top] = max(first, clocks[row, top]) if others else first


@helper
def _reach_back(stacks, spacing, k, top, position, clock, length, gapped, neighbour):
    """Write the heights of the sources of a new instance of step k, and its clocks, given by the latest of them.

    Return whether it continues at one, and the latest start of those at which it does.
    """
    counts, bottoms, tops, places = stacks.counts, stacks.bottoms, stacks.tops, stacks.places
    n_steps = places.shape[0]
    step, at = _U(k), _U(top)
    start = clock
    begins = False
    for e in range(spacing.n_sources[step]):
        s = k - 1 - e
        height = counts[_U(s + 1)]
        possible = height > bottoms[_U(s + 1)]
        if possible and neighbour and places[_U(s), _U(height - 1)] != position - 1:
            possible, height = False, np.int64(0)
        if e == 0:
            stacks.below[step, at] = height
        else:
            stacks.more[_U((e - 1) * n_steps + k), at] = height
        if possible:
            possible = not (clock - tops[_U(s + 1)] > length)  # infinite clocks differ by NaN
            if possible and gapped:
                possible = places[_U(s), _U(height - 1)] >= stacks.barred[step]
            if possible and _is_near(stacks, spacing, k, s, height - 1, clock):
                later = not begins or tops[_U(s + 1)] > start
                if later:
                    start = tops[_U(s + 1)]
                _put_clocks(stacks, spacing, k, at, s, height - 1, clock, begins)
                begins = True
    return begins, start


@helper
def put_ranges(stacks, spacing, k, top, gapped, repeated, linked, neighbour):
    """Write the least instances at which a new one of step k continues, and those in the window that ends with it."""
    below, more, places, clocks, ranges = stacks.below, stacks.more, stacks.places, stacks.clocks, stacks.ranges
    n_steps = places.shape[0]
    step, at = _U(k), _U(top)
    clock = clocks[step, at]
    others = top > stacks.bottoms[_U(k + 1)]
    for e in range(spacing.n_sources[step]):
        s = k - 1 - e
        if s >= 0:
            row = _U(spacing.near[step, _U(s)])
            height = below[step, at] if e == 0 else more[_U((e - 1) * n_steps + k), at]
            low = ranges[row, at - _U(1)] if others else stacks.bottoms[_U(s + 1)]
            if neighbour:
                low = max(low, height - 1)
            while low < height:
                is_out = clock - clocks[_U(s), _U(low)] > spacing.gaps[step]
                if gapped and not is_out:
                    is_out = places[_U(s), _U(low)] < stacks.bars[step, at]
                if not is_out:
                    break
                low += 1
            ranges[row, at] = low
    if repeated:
        row = _U(spacing.near[step, step])
        low = ranges[row, at - _U(1)] if others else stacks.bottoms[_U(k + 1)]
        if linked:
            low = max(low, top - 1)
        while low < top and clock - clocks[step, _U(low)] > spacing.own[step]:
            low += 1
        ranges[row, at] = low
    w = spacing.end_of[step]
    if w >= 0:
        each, column = _U(w), spacing.columns[_U(w)]
        for s in range(spacing.first_steps[each], k + repeated):
            row = _U(spacing.inside[step, _U(s)])
            low = ranges[row, at - _U(1)] if others else stacks.bottoms[_U(s + 1)]
            height = top if s == k else stacks.counts[_U(s + 1)]
            while low < height:
                first = clocks[_U(column * n_steps + s), _U(low)] if column > 0 else stacks.latest[_U(s), _U(low)]
                if first >= clock or not (clock - first > spacing.lengths[each]):
                    break
                low += 1
            ranges[row, at] = low


@kernel
def push_events(events, window, options, steps, spacing, stacks, begin, ends):
    """Push each event to the stacks of the steps that it satisfies, and note which of them end matches.

    Parameters
    ----------
    events : Events
        Events that each satisfy some step, or bar a gap.
    window : Window
    options : Options
    steps : Steps
    spacing : Spacing, or (), read
        Nothing without bounds on distances.
    stacks : Stacks
    begin : int
        Event to begin at.
    ends : int64, shape (n, BOTTOMS + more), or (n, BOTTOMS + steps + more), written
        With optional steps at the end of the chain, longer by a factor of as many steps as an event may end.

    Returns
    -------
    (int, int)
        The event after the last one read, and how many ends were written.  It is n, or where a stack is full; the
        first one if there is too little space even without what has left the window.
    """
    events, window, options, steps = Events(*events), Window(*window), Options(*options), Steps(*steps)
    stacks = Stacks(*stacks)
    symbols, positions, times, report_from = events.symbols, events.positions, events.times, options.report_from
    clocks, length, steps_of = window.clocks, window.length, steps.steps_of
    repeated, neighbours, consume = steps.repeated, steps.neighbours, options.consume != CONSUME_NONE
    counts, bottoms, tops, places = stacks.counts, stacks.bottoms, stacks.tops, stacks.places
    below, latest, began, barred, bars = stacks.below, stacks.latest, stacks.began, stacks.barred, stacks.bars
    spare, bars_of = steps.spare, steps.bars
    special, gapped, counted = steps.kind.ndim > 1, has_absences(steps.kind.ndim), steps.kind.ndim > 2
    spaced = len(spacing) > 0
    more, ranging = stacks.more, stacks.ranges.shape[0] > 0
    n_steps = repeated.shape[0]
    last = _U(n_steps - 1)
    first_end, n_left = last, np.int64(0)
    if spaced:
        first_end = _U(n_steps - Spacing(*spacing).n_sources[_U(n_steps)])
        n_left = n_left_out(Spacing(*spacing))
    by_index = repeated[last] or special
    timed = times.shape[0] > 0
    capacity = places.shape[1]
    n_ends = _U(0)
    i = begin
    full = False
    for each in range(n_steps):
        full |= counts[_U(each + 1)] == capacity
    while i < symbols.shape[0]:
        event = _U(i)
        clock = clocks[event]
        if full:
            if n_ends > 0 or not _drop_dead(stacks, spacing, clock, length):
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
            if possible and neighbours[k] and not spaced:
                possible = places[k - _U(1), _U(n_below - 1)] == position - 1
            begins = True
            if (gapped or spaced) and k > _U(0):
                begins = possible
                if gapped and begins:
                    begins = places[k - _U(1), _U(n_below - 1)] >= barred[k]
                if spaced:
                    begins, start = _reach_back(
                        stacks, Spacing(*spacing), np.int64(k), counts[k + _U(1)], position, clock, length, gapped,
                        neighbours[k]
                    )  # fmt: skip
                possible = begins
                if not begins and repeated[k] and counts[k + _U(1)] > bottoms[k + _U(1)]:
                    start = latest[k, _U(counts[k + _U(1)] - 1)]
                    possible = not (clock - start > length)
                    if spaced and possible:
                        other = counts[k + _U(1)] - 1
                        possible = _is_near(stacks, Spacing(*spacing), np.int64(k), np.int64(k), other, clock)
            if possible:
                height = counts[k + _U(1)]
                top = _U(height)
                places[k, top] = position
                if not spaced or k == _U(0):
                    below[k, top] = n_below
                latest[k, top] = start
                if timed and k == 0:
                    began[top] = times[event]
                if gapped:
                    bars[k, top] = barred[k]
                if (gapped or spaced) and not begins:
                    reached = below[k, top - _U(1)]
                    below[k, top] = -height if reached >= 0 else reached
                if spaced:
                    if k == _U(0) or not begins:
                        source = np.int64(k) if k > _U(0) else np.int64(-1)
                        _put_clocks(stacks, Spacing(*spacing), np.int64(k), top, source, height - 1, clock, False)
                    if not begins:
                        for row in range(np.int64(k), more.shape[0], n_steps):
                            more[_U(row), top] = 0
                    if ranging:
                        put_ranges(
                            stacks, Spacing(*spacing), np.int64(k), height, gapped, repeated[k], steps.linked[k],
                            neighbours[k]
                        )  # fmt: skip
                counts[k + _U(1)] = height + 1
                full |= height + 1 == capacity
                completed = True
                if counted and spare[k + _U(1)] > 0:
                    first = height - spare[k + _U(1)]
                    completed = first >= bottoms[k + _U(1)]
                    if completed:
                        start = latest[k, _U(first)]
                        completed = not (clock - start > length)
                if completed:
                    tops[k + _U(1)] = start
                if k >= first_end and completed:
                    ended = True
                    if position >= report_from:
                        ends[n_ends, EVENT] = i
                        ends[n_ends, BEFORE] = below[k, top] - 1 if spaced else n_below - 1 if begins else -1
                        ends[n_ends, BESIDE] = height - 1 if by_index else -1
                        if gapped:
                            ends[n_ends, END_BAR] = barred[k]
                        if spaced:
                            ends[n_ends, END_STEP] = k
                            for e in range(n_left):
                                ends[n_ends, _U(ends.shape[1] - n_left + e)] = more[_U(e * n_steps) + k, top] - 1
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
