"""The loops for chains under PARTITION BY: stacks as in `cer_gpu.backend.chains.stacks`, as linked lists.

An instance is a row of `instances` (int64), a ring of any size, and refers to older ones only.  Its id is one more than
that of the instance before it; the id `origin` is in row 0, and when row 0 is taken again the origin moves.

* PLACE, the position of the event; TIME, where the output has times;
* LINKS, two distances in ids, 32 bits each: back to the instance below it in its stack ("lower"), and back to the top
  of stack k - 1 when it came ("before"): runs continue from it to that instance and to all below.  0 stands for none,
  and an instance whose id is below `base` is gone: instance 9 with the links (2, 1) lies on 7 and continues at 8;
* LATEST, the clock of the latest start that it reaches, in the bits of `latest_of`, the same memory as clocks.  It
  never increases from one to the one below, so that what is in the window comes first;
* where events are absent from gaps, the position of the last one that barred the gap before the step.  If the step
  cannot begin with the instance, "before" is the nearest one below it with which it can, and IN_STACK flags that;
* where a step holds n > 1 events at least, its depth: how many instances lie below it in its stack, up to n - 1, and
  the distance back to the last of these, 32 bits each; or -1 - k if fewer than k + 1 lie below it and the last of them
  is not known.  Then the distance to the instance above it;
* with bounds on distances, their columns, in the bits of `latest_of` (`cer_gpu.backend.chains.spacing`); then, where
  steps are optional, the distances in ids back to its further sources, 0 for none;
* in the last column, unless windows end for all partitions at once, the owning partition, or -1 once it is dropped.

A partition is a row of `tops`, so that an event costs a look at one row and a write to the end of the instances:

* for each stack, the id of its top (a last step that is not repeated has no stack);
* for each stack, the LATEST of its top;
* the first id that CONSUME BY has not forgotten in the partition.

For steps that are neighbours, a row of `lasts` has the number of the partition's last relevant event, and its position.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import CONSUME_ANY, CONSUME_PARTITION
from cer_gpu.backend.arguments import Events, Options, Steps, Window
from cer_gpu.backend.chains.spacing import Spacing, n_columns, n_left_out
from cer_gpu.backend.chains.stacks import (
    BEFORE,
    BESIDE,
    BOTTOMS,
    END_BAR,
    END_STEP,
    EVENT,
    N_VALUES,
    has_absences,
)
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch


@helper
def _is_alive(i, tops_of, ring, length, regs):
    """Return whether a match to come may hold instance `i`, if windows do not end for all at once."""
    tops, tops_latest, instances, latest_of = tops_of.tops, tops_of.tops_latest, ring.instances, ring.latest_of
    row = _U(i)
    n_stacks = tops.shape[1] // 2
    owner = instances[row, _U(instances.shape[1] - 1)]
    alive = owner >= 0
    if alive:
        p = _U(owner)
        forgotten = max(regs[FLOOR], tops[p, _U(2 * n_stacks)])
        # the window ends at the latest start or later
        now = tops_latest[p, _U(n_stacks)]
        alive = min(i, tops[p, 0]) >= forgotten and not (now - latest_of[row, LATEST] > length)
    return alive


@kernel
def drop_oldest(ring, clock, length, regs):
    """Drop the instances before the first in the window that ends at `clock`, for all partitions at once.

    The first instance whose start is in the window is in it, and so are all that came later.

    Parameters
    ----------
    ring : Ring, read
    clock : clock
    length : clock
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        Number of instances left.
    """
    latest_of = Ring(*ring).latest_of
    size, origin = latest_of.shape[0], regs[ORIGIN]
    first, next_id = max(regs[FLOOR], regs[BASE]), regs[NEXT_ID]
    while first < next_id and clock - latest_of[row_of(first, origin, size), LATEST] > length:
        first += 1
    regs[BASE] = first
    if first - origin >= size:
        regs[ORIGIN] += size
    return next_id - first


@kernel
def collect(steps, tops_of, ring, n_partitions, length, n_left, regs, new_ids):
    """Keep the instances that partitions still reach, if each has a window of its own, or none.

    They are moved to the front, so that ids begin at 0 again.

    Parameters
    ----------
    steps : Steps
    tops_of : Tops
    ring : Ring
    n_partitions : int
    length : clock
    n_left : int
        Number of the further sources of an instance, whose columns are before that of its partition.
    regs : int64, shape (N_REGS,), written
    new_ids : int64, shape (live,), written

    Returns
    -------
    int
        Number of instances left.
    """
    steps, tops_of, ring = Steps(*steps), Tops(*tops_of), Ring(*ring)
    tops, instances = tops_of.tops, ring.instances
    counted = steps.kind.ndim > 2 and has_counts(steps.spare)
    depth_at = _U(instances.shape[1] - 3)
    n_stacks = tops.shape[1] // 2
    n = regs[NEXT_ID]
    alive = np.int64(0)
    for i in range(n):
        if i + EVENTS_AHEAD < n:
            prefetch(tops, _U(instances[_U(i + EVENTS_AHEAD), _U(instances.shape[1] - 1)]) * _U(tops.shape[1]))
        if _is_alive(i, tops_of, ring, length, regs):
            links = instances[_U(i), LINKS]
            flag = links & IN_STACK
            lower, before = lower_of(i, links), before_of(i, links - flag)
            for c in range(instances.shape[1]):
                instances[_U(alive), _U(c)] = instances[_U(i), _U(c)]
            for e in range(n_left):
                at = _U(instances.shape[1] - 1 - n_left + e)
                back = instances[_U(alive), at]
                source = new_ids[_U(i - back)] if back > 0 else np.int64(-1)
                instances[_U(alive), at] = alive - source if source >= 0 else np.int64(0)
            lower = new_ids[_U(lower)] if lower >= 0 else np.int64(-1)
            before = new_ids[_U(before)] if before >= 0 else np.int64(-1)
            instances[_U(alive), LINKS] = links_of(alive, lower, before) | flag
            if counted:
                if lower >= 0:
                    instances[_U(lower), depth_at + _U(1)] = alive - lower
                depth = instances[_U(alive), depth_at]
                back = depth & 0xFFFFFFFF
                if depth >= 0 and back > 0:
                    bottom = new_ids[_U(i - back)]
                    instances[_U(alive), depth_at] = (
                        depth - back + alive - bottom if bottom >= 0 else np.int64(-1) - (depth >> 32)
                    )
            new_ids[_U(i)] = alive
            alive += 1
        else:
            new_ids[_U(i)] = -1
    for i in range(n_partitions):
        for k in range(n_stacks):
            top = tops[_U(i), _U(k)]
            if top >= 0:
                tops[_U(i), _U(k)] = new_ids[_U(top)]
        tops[_U(i), _U(2 * n_stacks)] = 0
    regs[FLOOR] = 0
    regs[NEXT_ID] = alive
    return alive


# an instance
PLACE, LINKS, LATEST, TIME = range(4)

# in place of bottoms, an end has the instance with which the last step has its least number of events (with counts or
# absences), and the last one that was fetched ahead
END_TARGET, FETCHED, N_END = range(BOTTOMS, BOTTOMS + 3)

# registers beyond those of the listing: the first live id; the id that the next instance gets; the first id
# that CONSUME BY ANY has not forgotten; and the id of row 0
BASE, NEXT_ID, FLOOR, ORIGIN, N_REGS = range(N_VALUES + 1, N_VALUES + 6)

MAX_INSTANCES = (1 << 31) - 1
"""Maximum number of rows of the ring: links reach no further."""

EVENTS_AHEAD = 16
"""Events from the prefetch of a partition to its use; partitions lie anywhere in memory."""

IN_STACK = 1 << 31
"""In LINKS: "before" is in the same stack."""

_U = np.uint64


class Tops(NamedTuple):
    """The tops of the stacks of each partition.

    Attributes
    ----------
    tops : int64, shape (partitions, 2 * stacks + 1), written
    tops_latest : clock, shape (partitions, 2 * stacks + 1), written
        The same memory.
    lasts : int64, shape (at least partitions, 2), or (0, 2), written
        Number and position of the last relevant event of each; empty if there are no neighbours.
    barred : int64, shape (at least partitions, steps), or (0, steps), written
        Position of the last event that barred the gap before each step; empty if nothing is absent.
    """

    tops: Any
    tops_latest: Any
    lasts: Any
    barred: Any


class Ring(NamedTuple):
    """The instances of all partitions.

    Attributes
    ----------
    instances : int64, shape (size, width), written
    latest_of : clock, shape (size, width), written
        The same memory.
    """

    instances: Any
    latest_of: Any


@helper
def row_of(instance, origin, size):
    """Return the row of an instance in the ring."""
    row = instance - origin
    return _U(row - size if row >= size else row)


@helper
def links_of(instance, lower, before):
    """Return the links of an instance to two others, -1 where there is none; both are in the ring."""
    below = instance - lower if lower >= 0 else np.int64(0)
    return below << 32 | (instance - before if before >= 0 else np.int64(0))


@helper
def lower_of(instance, links):
    """Return the instance below one in its stack, or -1."""
    below = links >> 32
    return instance - below if below > 0 else np.int64(-1)


@helper
def before_of(instance, links):
    """Return the instance that one continues at, or -1."""
    back = links & 0xFFFFFFFF
    return instance - back if 0 < back < IN_STACK else np.int64(-1)


@helper
def begin_of(instance, links):
    """Return the nearest instance at or below one with which the step begins, or -1."""
    back = (links & 0xFFFFFFFF) - IN_STACK
    return instance if back < 0 else instance - back if back > 0 else np.int64(-1)


@helper
def target_of(instance, depth, spare):
    """Return the instance that `spare` others of its stack lie above, up to this one, or -1."""
    return instance - (depth & 0xFFFFFFFF) if depth >> 32 == spare else np.int64(-1)


@helper
def has_counts(spare):
    """Return whether some step has two events at least."""
    counts = False
    for k in range(spare.shape[0]):
        counts |= spare[_U(k)] > 0
    return counts


@helper
def _depth(instance, beside, spare, first, ring, origin, column):
    """Return how many instances lie below a new one, up to `spare`, and the distance back to the last of these.

    If the last of them is dropped, the next one is not looked for before it can matter: the stack is walked once in as
    many events as the step asks for, or once for all that are dropped together.
    """
    instances = ring.instances
    size = instances.shape[0]
    if beside < 0:
        return np.int64(0)
    depth = instances[row_of(beside, origin, size), column]
    is_exact = depth >= 0
    n_below, bottom = -depth, beside
    if is_exact:
        n_below, bottom = (depth >> 32) + 1, beside - (depth & 0xFFFFFFFF)
        is_exact = bottom >= first
        n_below -= not is_exact
    if not is_exact:
        if n_below < spare:
            return -n_below - 1
        n_below, bottom = np.int64(1), beside
        while n_below < spare:
            lower = lower_of(bottom, instances[row_of(bottom, origin, size), LINKS])
            if lower < first:
                break
            n_below, bottom = n_below + 1, lower
    elif n_below > spare:
        n_below, bottom = n_below - 1, bottom + instances[row_of(bottom, origin, size), column + _U(1)]
    return n_below << 32 | (instance - bottom)


@helper
def _is_near(ring, spacing, clock_at, k, s, row, clock):
    """Return whether an event of this clock, of step k, is near enough to the one before it, in a row, of step s.

    It is the last event of the windows that end with the step.
    """
    latest_of = ring.latest_of
    gap = spacing.own[_U(s)] if s == k else spacing.gaps[_U(k)]
    near = not (clock - latest_of[row, clock_at] > gap)
    for w in range(spacing.columns.shape[0]):
        each = _U(w)
        if near and spacing.least_ends[each] <= k <= spacing.last_steps[each] and spacing.first_steps[each] <= s:
            column = _U(spacing.columns[each])
            at = clock_at + column if column > _U(0) else _U(LATEST)
            near = not (clock - latest_of[row, at] > spacing.lengths[each])
    return near


@helper
def _put_clocks(ring, spacing, clock_at, row, s, before, clock, others):
    """Write the clocks of a new instance, with which runs continue from that in row `before`, of step s, if any.

    With `others`, those are there by which they continue from another stack, and the later ones hold.
    """
    latest_of = ring.latest_of
    latest_of[row, clock_at] = clock
    for w in range(spacing.columns.shape[0]):
        column = spacing.columns[_U(w)]
        if column > 0:
            at = clock_at + _U(column)
            first = latest_of[before, at] if s >= spacing.first_steps[_U(w)] else clock
            latest_of[row, at] = max(first, latest_of[row, at]) if others else first


@helper
def _reach_back(tops_of, ring, spacing, step, p, event, events, length, first, next_id, origin, clock, clock_at, gapped,
                neighbour, ends, n_ends):  # fmt: skip
    """Write the sources of a new instance of a step, and its clocks, given by the latest of them.

    Return whether it continues at one, the latest start of those at which it does, and the first source, or -1.  The
    other sources go to the row of ends, too, as its last columns.
    """
    tops, tops_latest, lasts = tops_of.tops, tops_of.tops_latest, tops_of.lasts
    instances = ring.instances
    size, width = instances.shape[0], ends.shape[1]
    n_stacks = np.int64(tops.shape[1] // 2)
    n_left = n_left_out(spacing)
    row = row_of(next_id, origin, size)
    start, before, begins = clock, np.int64(-1), False
    for e in range(spacing.n_sources[_U(step)]):
        s = step - 1 - e
        source = tops[p, _U(s)]
        if source < first:
            source = np.int64(-1)
        if source >= 0 and neighbour:
            place = instances[row_of(source, origin, size), PLACE]
            if events.ordinals[event] != lasts[p, 0] + 1 or place != lasts[p, 1]:
                source = np.int64(-1)
        if e == 0:
            before = source
        else:
            ends[n_ends, _U(width - n_left + e - 1)] = source
            if step < n_stacks:
                back = next_id - source if source >= 0 else np.int64(0)
                instances[row, clock_at + _U(n_columns(spacing) + e - 1)] = back
        latest = tops_latest[p, _U(n_stacks + s)]
        near = source >= 0 and not (clock - latest > length)  # infinite clocks differ by NaN
        if near and gapped:
            near = instances[row_of(source, origin, size), PLACE] >= tops_of.barred[p, _U(step)]
        if near and _is_near(ring, spacing, clock_at, step, s, row_of(source, origin, size), clock):
            if not begins or latest > start:
                start = latest
            if step < n_stacks:
                _put_clocks(ring, spacing, clock_at, row, s, row_of(source, origin, size), clock, begins)
            begins = True
    return begins, start, before


@kernel
def push_keyed_events(events, window, options, steps, spacing, tops_of, ring, begin, regs, ends):
    """Push each event to the stacks of its partition, and note which events end matches.

    Parameters
    ----------
    events : Events
        Events that each satisfy some step, or bar a gap; positions are those that are reported.
    window : Window
    options : Options
    steps : Steps
    spacing : Spacing, or (), read
        Nothing without bounds on distances.
    tops_of : Tops
    ring : Ring
    begin : int
        Event to begin at.
    regs : int64, shape (N_REGS,), written
    ends : int64, shape (n, N_END + further sources), written
        Longer by a factor where an event may end at several steps.

    Returns
    -------
    (int, int)
        The event after the last one read (n, or where there may be no space for its instances), and how many ends were
        written.
    """
    events, window, options, steps = Events(*events), Window(*window), Options(*options), Steps(*steps)
    tops_of, ring = Tops(*tops_of), Ring(*ring)
    symbols, positions, partitions, ordinals = events.symbols, events.positions, events.partitions, events.ordinals
    times, clocks, length, report_from = events.times, window.clocks, window.length, options.report_from
    steps_of, repeated, neighbours, consume = steps.steps_of, steps.repeated, steps.neighbours, options.consume
    tops, tops_latest, lasts, barred = tops_of.tops, tops_of.tops_latest, tops_of.lasts, tops_of.barred
    spare, bars_of = steps.spare, steps.bars
    special, gapped = steps.kind.ndim > 1, has_absences(steps.kind.ndim)
    counted = steps.kind.ndim > 2 and has_counts(spare)
    instances, latest_of = ring.instances, ring.latest_of
    n_steps = np.int64(repeated.shape[0])
    last = n_steps - 1
    n_stacks = np.int64(tops.shape[1] // 2)
    timed = times.shape[0] > 0
    owner = _U(instances.shape[1] - 1)
    bar_at = _U(TIME + timed)
    depth_at = bar_at + _U(gapped)
    spaced = len(spacing) > 0
    clock_at = depth_at
    n_spaced, first_end = np.int64(0), last
    if spaced:
        n_spaced = n_columns(Spacing(*spacing)) + n_left_out(Spacing(*spacing))
        first_end = n_steps - Spacing(*spacing).n_sources[_U(n_steps)]
    owned = instances.shape[1] > TIME + timed + gapped + 2 * counted + n_spaced
    has_gaps = lasts.shape[0] > 0
    n_events = symbols.shape[0]
    base, next_id, floor, origin = regs[BASE], regs[NEXT_ID], regs[FLOOR], regs[ORIGIN]
    size = instances.shape[0]
    last_id = base + size - n_stacks
    first = max(base, floor)
    n_ends = _U(0)
    i = begin
    while i < n_events and next_id <= last_id:
        event = _U(i)
        if i + EVENTS_AHEAD < n_events:
            prefetch(tops, _U(partitions[event + _U(EVENTS_AHEAD)]) * _U(tops.shape[1]))
        p = _U(partitions[event])
        clock = clocks[event]
        symbol = _U(symbols[event])
        ended = False
        if clock - tops_latest[p, _U(n_stacks)] > length:  # infinite clocks differ by NaN
            tops[p, 0] = -1
        # from the last step down: each reads the stack before it before the event is there
        j = _U(0)
        step = np.int64(steps_of[symbol, j])
        while step >= 0:
            before = np.int64(-1)
            latest = clock
            possible = True
            if step > 0 and not spaced:
                before = tops[p, _U(step - 1)]
                latest = tops_latest[p, _U(n_stacks + step - 1)]
                possible = before >= first and not (clock - latest > length)
                if possible and neighbours[_U(step)]:
                    place = instances[row_of(before, origin, size), PLACE]
                    possible = ordinals[event] == lasts[p, 0] + 1 and place == lasts[p, 1]
                if counted and possible and spare[_U(step)] > 0:
                    target = target_of(before, instances[row_of(before, origin, size), depth_at], spare[_U(step)])
                    possible = target >= first
                    if possible:
                        latest = latest_of[row_of(target, origin, size), LATEST]
                        possible = not (clock - latest > length)
            begins = True
            if (gapped or spaced) and step > 0:
                begins = possible
                if spaced:
                    begins, latest, before = _reach_back(
                        tops_of, ring, Spacing(*spacing), step, p, event, events, length, first, next_id, origin, clock,
                        clock_at, gapped, neighbours[_U(step)], ends, n_ends
                    )  # fmt: skip
                elif begins:
                    begins = instances[row_of(before, origin, size), PLACE] >= barred[p, _U(step)]
                possible = begins
                if not begins and repeated[_U(step)] and tops[p, _U(step)] >= first:
                    latest = tops_latest[p, _U(n_stacks + step)]
                    possible = not (clock - latest > length)
                    if spaced and possible:
                        row = row_of(tops[p, _U(step)], origin, size)
                        possible = _is_near(ring, Spacing(*spacing), clock_at, step, step, row, clock)
            if possible:
                completed = True
                target = np.int64(-1)
                beside = np.int64(-1)
                if step < n_stacks:
                    beside = tops[p, _U(step)]
                    if beside < first:
                        beside = np.int64(-1)
                    row = row_of(next_id, origin, size)
                    instances[row, PLACE] = positions[event]
                    instances[row, LINKS] = links_of(next_id, beside, before)
                    latest_of[row, LATEST] = latest
                    if gapped:
                        instances[row, bar_at] = barred[p, _U(step)]
                    if spaced and (step == 0 or not begins):
                        source = step if step > 0 else np.int64(-1)
                        other = row_of(max(beside, base), origin, size)
                        _put_clocks(ring, Spacing(*spacing), clock_at, row, source, other, clock, False)
                    if (gapped or spaced) and not begins:
                        nearest = begin_of(beside, instances[row_of(beside, origin, size), LINKS])
                        before = np.int64(-1)
                        instances[row, LINKS] = links_of(next_id, beside, nearest) | IN_STACK
                    if counted:
                        instances[row, depth_at] = -1
                        if spare[_U(step + 1)] > 0:
                            depth = _depth(next_id, beside, spare[_U(step + 1)], first, ring, origin, depth_at)
                            instances[row, depth_at] = depth
                            target = target_of(next_id, depth, spare[_U(step + 1)])
                            completed = target >= first
                            if completed:
                                completed = not (clock - latest_of[row_of(target, origin, size), LATEST] > length)
                            if beside >= 0:
                                instances[row_of(beside, origin, size), depth_at + _U(1)] = next_id - beside
                    if owned:
                        instances[row, owner] = partitions[event]
                    if timed:
                        instances[row, TIME] = times[event]
                    tops[p, _U(step)] = next_id
                    tops_latest[p, _U(n_stacks + step)] = latest
                    next_id += 1
                if step >= first_end and completed:
                    ended = True
                    if positions[event] >= report_from:
                        ends[n_ends, EVENT] = i
                        ends[n_ends, BEFORE] = before
                        ends[n_ends, BESIDE] = beside
                        ends[n_ends, FETCHED] = before
                        if special:
                            ends[n_ends, END_BAR] = barred[p, _U(step)] if gapped else -1
                            ends[n_ends, END_TARGET] = target
                        if spaced:
                            ends[n_ends, END_STEP] = step
                        n_ends += _U(1)
            j += _U(1)
            step = np.int64(steps_of[symbol, j])
        if has_gaps:
            lasts[p, 0] = ordinals[event]
            lasts[p, 1] = positions[event]
        if gapped:
            j = _U(0)
            while j < _U(n_steps) and bars_of[symbol, j] >= 0:
                barred[p, _U(bars_of[symbol, j])] = positions[event]
                j += _U(1)
        if ended and consume == CONSUME_ANY:
            first = floor = next_id
        elif ended and consume == CONSUME_PARTITION:
            for k in range(n_stacks):
                tops[p, _U(k)] = -1
            tops[p, _U(2 * n_stacks)] = next_id
        i += 1
    regs[NEXT_ID], regs[FLOOR] = next_id, floor
    return i, np.int64(n_ends)
