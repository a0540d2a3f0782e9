"""Exact number of matches of a chain with gaps that end at each event, from its stacks of instances.

From an end downwards: an instance has as many paths to the end as all instances together that continue at it, of the
stack above and, where its step is repeated, of its own.  Those lie in a range of either stack, by the gap, that moves
downwards only.  Each stack is therefore walked once, from the latest instance down, with sums of what is in range: an
end costs as much as there are instances that its matches hold, however many matches these are.

Each number is that of the paths of an instance which some match holds, so that none is greater than the result.

A window around the first steps begins a walk of its own, downwards from each instance at its last step, within what is
left of the window of the query; one around the last steps bounds the instances at its first step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.arguments import Counts, Events, Options, Steps, Window
from cer_gpu.backend.chains import keyed_stacks as keyed
from cer_gpu.backend.chains.keyed_stacks import Ring as Ring
from cer_gpu.backend.chains.listing import clock_of, read_instance
from cer_gpu.backend.chains.spacing import Spacing
from cer_gpu.backend.chains.stacks import BEFORE, BESIDE, BOTTOMS, END, END_BAR, EVENT, N_OUT, has_absences
from cer_gpu.backend.chains.stacks import Stacks as Stacks
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.saturating import MAX_SIGNED
from cer_gpu.backend.status import DONE, GROW_PATH, OUTPUT_FULL, TOO_MANY

_U = np.uint64
_NONE = np.uint64(0)


class Paths(NamedTuple):
    """Instances of a stack, in even rows or odd ones, and of the stack above, in the others, from the latest down.

    Rows 0 and 1 are of the walk from an end, 2 and 3 of one within a window around the first steps.

    Attributes
    ----------
    counts : uint64, shape (4, size), written
        Paths from each to where the walk begins.
    clocks : clock, shape (4, size), written
    bars : int64, shape (4, size), written
        Position from which on the instances at which it continues may lie.
    before : int64, shape (4, size), written
        The latest instance of the stack below at which it continues, or less than all.
    lower : int64, shape (4, size), written
        The instance below it in its own stack, or less than all.
    """

    counts: Any
    clocks: Any
    bars: Any
    before: Any
    lower: Any


@helper
def _put(paths, row, i, count, clock, bar, before, lower):
    """Write an instance."""
    at = _U(row), _U(i)
    paths.counts[at], paths.clocks[at], paths.bars[at], paths.before[at] = count, clock, bar, before
    paths.lower[at] = lower


@helper
def _count_stack(stacks, ring, origin, timed, gapped, steps, spacing, end_clock, length, reach, s, single, bottom,
                 begin, paths, row, n_above, n_here):  # fmt: skip
    """Count the paths of the instances of stack s, which are written to a row of `paths` behind `n_here` others.

    They are at most `reach` from the end; with `single`, none continues at another of its own stack.  Return how many
    there are then, -1 if there is too little space, or -2 if the numbers are too large; and for the first stack the
    number of all paths.
    """
    counts, clocks, bars, before = paths.counts, paths.clocks, paths.bars, paths.before
    upper = _U(row ^ 1)
    here = _U(row)
    size, step = counts.shape[1], _U(s)
    clock_at = np.int64(keyed.TIME + timed + gapped)
    repeated, linked, only_one = steps.repeated[step] and not single, steps.linked[step], steps.neighbours[step + _U(1)]
    gap, own = spacing.gaps[step + _U(1)], spacing.own[step]
    total = from_above = from_here = _NONE
    # of the stack above, then of this one: the first whose paths are in the sum, and the first that is not yet
    first = behind = own_first = own_behind = 0
    instance = begin
    while instance >= bottom:
        this = read_instance(stacks, ring, origin, s, instance, gapped, timed)
        if end_clock - this.latest > length:
            break
        clock = clock_of(stacks, ring, origin, s, instance, 0, clock_at)
        if end_clock - clock > reach:
            break
        while first < behind:
            i = _U(first)
            reached = only_one and before[upper, i] != instance
            if not (reached or clocks[upper, i] - clock > gap or this.place < bars[upper, i]):
                break
            if before[upper, i] >= bottom:
                from_above -= counts[upper, i]
            first += 1
        while behind < n_above and (before[upper, _U(behind)] >= instance or before[upper, _U(behind)] < bottom):
            if before[upper, _U(behind)] >= bottom:
                from_above += counts[upper, _U(behind)]
                if from_above < counts[upper, _U(behind)]:
                    return np.int64(-2), total
            behind += 1
        if repeated:
            while own_first < own_behind and (linked or clocks[here, _U(own_first)] - clock > own):
                from_here -= counts[here, _U(own_first)]
                own_first += 1
            while own_behind < n_here:
                i = _U(own_behind)
                if clocks[here, i] - clock > own or (linked and own_behind < n_here - 1):
                    own_first = own_behind + 1
                else:
                    from_here += counts[here, i]
                    if from_here < counts[here, i]:
                        return np.int64(-2), total
                own_behind += 1
        count = from_above + from_here
        if count < from_above:
            return np.int64(-2), total
        if count == _NONE and behind == n_above:
            break
        if s == 0:
            total += count
            if total < count or total > MAX_SIGNED:
                return np.int64(-2), total
        if n_here == size:
            return np.int64(-1), total
        _put(paths, row, n_here, count, clock, this.bar, this.before, this.lower)
        n_here += 1
        instance = this.lower
    return np.int64(n_here), total


@helper
def _count_steps(stacks, ring, origin, timed, gapped, steps, spacing, end_clock, length, bounded, s, last, single,
                 bottom, consumed, ends, end, paths, row):  # fmt: skip
    """Count the paths from the instance at the first place of a row of `paths`, down from stack s to stack `last`.

    It is the last event of its step, and does not continue at another of its own stack if `single` is s.  The instances
    of stack `bounded` are within the window around the last steps.  Return the row of stack `last`, and what
    `_count_stack` does for it.
    """
    n_here, n_above, total = np.int64(1), np.int64(0), _NONE
    begin = paths.lower[_U(row), _NONE] if steps.repeated[_U(s)] and single != s else np.int64(-1)
    top = s
    while s >= last and n_here > 0:
        if len(ring) == 0:
            bottom = ends[end, _U(BOTTOMS + s)] if consumed else np.int64(0)
        if s < top:
            row, n_above, n_here = row ^ 1, n_here, np.int64(0)
            begin = np.int64(-1)
            i = 0
            while i < n_above and begin < bottom:
                begin = paths.before[_U(row ^ 1), _U(i)]
                i += 1
        reach = spacing.lengths[_NONE] if s == bounded else length
        n_here, total = _count_stack(
            stacks, ring, origin, timed, gapped, steps, spacing, end_clock, length, reach, s, single == s, bottom,
            begin, paths, row, n_above, n_here
        )  # fmt: skip
        s -= 1
    return row, n_here, total


@helper
def _count_within(stacks, ring, origin, timed, gapped, steps, spacing, end_clock, length, s, bottom, consumed, ends,
                  end, paths, row, n_here):  # fmt: skip
    """Count the matches whose first steps, up to s, are in the window around them, from a row with their last events.

    Return a number greater than 0, and that of the matches; or -1 or -2 as `_count_stack` does.
    """
    total, n = _NONE, n_here
    for i in range(n):
        at = _U(row), _U(i)
        count, clock = paths.counts[at], paths.clocks[at]
        if count == _NONE:
            continue
        _put(paths, 2, 0, _U(1), clock, paths.bars[at], paths.before[at], paths.lower[at])
        within, rest = spacing.lengths[_NONE], length - (end_clock - clock)
        if rest < within:  # and not NaN, the difference of infinite clocks
            within = rest
        _, n_here, n_inside = _count_steps(
            stacks, ring, origin, timed, gapped, steps, spacing, clock, within, np.int64(-1), s, np.int64(0),
            np.int64(-1), bottom, consumed, ends, end, paths, 2
        )  # fmt: skip
        if n_here < 0:
            return n_here, total
        n_inside += _U(s == 0)  # the path of that event alone
        if n_inside > _NONE and count > _U(MAX_SIGNED) // n_inside:
            return np.int64(-2), total
        total += count * n_inside
        if total > MAX_SIGNED:
            return np.int64(-2), total
    return np.int64(1), total


@kernel
def count_ends(events, window, options, steps, spacing, stacks, ring, paths, output, ends, n_ends, regs):
    """Count the matches of the ends that were noted, from where the last call stopped.

    Parameters
    ----------
    events : Events
        Positions are those that are reported.
    window : Window
    options : Options
    steps : Steps
    spacing : Spacing
        At most one window, which begins with the first step or ends with the last; in the latter case with a step of
        one event.
    stacks : Stacks, or (), read
        Nothing under PARTITION BY.
    ring : Ring, or (), read
        Nothing without PARTITION BY.
    paths : Paths
    output : Counts
    ends : int64, shape (at least n_ends, at least BOTTOMS)
        Those that were noted as events were pushed.
    n_ends : int
    regs : int64, shape (registers,), written

    Returns
    -------
    int
        DONE; OUTPUT_FULL; GROW_PATH; TOO_MANY at end END.
    """
    events, window, options, steps = Events(*events), Window(*window), Options(*options), Steps(*steps)
    spacing, paths, output = Spacing(*spacing), Paths(*paths), Counts(*output)
    limit, length = options.limit, window.length
    gapped = has_absences(steps.kind.ndim)
    last = np.int64(steps.repeated.shape[0] - 1)
    timed, consumed = events.times.shape[0] > 0, ends.shape[1] > BOTTOMS
    bottom = origin = np.int64(0)
    if len(ring) > 0:
        bottom, origin = regs[keyed.BASE], regs[keyed.ORIGIN]
    split = np.int64(-1)  # the last step of a window around the first steps
    bounded = np.int64(-1)  # the first step of a window around the last steps
    if spacing.lengths.shape[0] > 0 and spacing.last_steps[_NONE] < last:
        split = spacing.last_steps[_NONE]
    elif spacing.lengths.shape[0] > 0:
        bounded = spacing.first_steps[_NONE]
    n_out = regs[N_OUT]
    status = DONE
    while regs[END] < n_ends:
        if n_out == output.ends.shape[0]:
            status = OUTPUT_FULL
            break
        end = _U(regs[END])
        event = _U(ends[end, EVENT])
        clock = window.clocks[event]
        bar = ends[end, END_BAR] if gapped else np.int64(-1)
        _put(paths, 0, 0, _U(1), clock, bar, ends[end, BEFORE], ends[end, BESIDE])
        row, n_here, total = _count_steps(
            stacks, ring, origin, timed, gapped, steps, spacing, clock, length, bounded, last, max(split, 0), split,
            bottom, consumed, ends, end, paths, 0
        )  # fmt: skip
        if split >= 0 and n_here > 0:
            n_here, total = _count_within(
                stacks, ring, origin, timed, gapped, steps, spacing, clock, length, split, bottom, consumed, ends, end,
                paths, row, n_here
            )  # fmt: skip
        if n_here == -2 and limit > 0:
            n_here, total = np.int64(0), _U(limit)
        if n_here < 0:
            status = GROW_PATH if n_here == -1 else TOO_MANY
            break
        if limit > 0 and total > _U(limit):
            total = _U(limit)
        out = _U(n_out)
        output.ends[out] = events.positions[event]
        output.counts[out] = np.int64(total)
        if timed:
            output.times[out] = events.times[event]
        n_out += 1
        regs[END] += 1
    regs[N_OUT] = n_out
    return status
