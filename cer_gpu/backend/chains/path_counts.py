"""Exact number of matches of a chain with gaps that end at each event, from its stacks of instances.

From an end downwards: an instance has as many paths to the end as all instances together that continue at it, of the
stack above and, where its step is repeated, of its own.  Those lie in a range of either stack, by the gap, that moves
downwards only.  Each stack is therefore walked once, from the latest instance down, with sums of what is in range: an
end costs as much as there are instances that its matches hold, however many matches these are.

Each number is that of the paths of an instance which some match holds, so that none is greater than the result.
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

    Attributes
    ----------
    counts : uint64, shape (2, size), written
        Paths from each to the end.
    clocks : clock, shape (2, size), written
    bars : int64, shape (2, size), written
        Position from which on the instances at which it continues may lie.
    before : int64, shape (2, size), written
        The latest instance of the stack below at which it continues, or less than all.
    """

    counts: Any
    clocks: Any
    bars: Any
    before: Any


@helper
def _put(paths, row, i, count, clock, bar, before):
    """Write an instance."""
    at = _U(row), _U(i)
    paths.counts[at], paths.clocks[at], paths.bars[at], paths.before[at] = count, clock, bar, before


@helper
def _count_stack(stacks, ring, origin, timed, gapped, steps, spacing, end_clock, length, s, bottom, begin, paths,
                 row, n_above, n_here):  # fmt: skip
    """Count the paths of the instances of stack s, which are written to a row of `paths` behind `n_here` others.

    Return how many there are then, -1 if there is too little space, or -2 if the numbers are too large; and for the
    first stack the number of all paths.
    """
    counts, clocks, bars, before = paths.counts, paths.clocks, paths.bars, paths.before
    upper = _U(1 - row)
    here = _U(row)
    size, step = counts.shape[1], _U(s)
    clock_at = np.int64(keyed.TIME + timed + gapped)
    repeated, linked, only_one = steps.repeated[step], steps.linked[step], steps.neighbours[step + _U(1)]
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
        _put(paths, row, n_here, count, clock, this.bar, this.before)
        n_here += 1
        instance = this.lower
    return np.int64(n_here), total


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
        Without windows.
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
        _put(paths, 0, 0, _U(1), clock, bar, ends[end, BEFORE])
        n_here, n_above, row = np.int64(1), np.int64(0), 0
        total = _NONE
        begin = ends[end, BESIDE] if steps.repeated[_U(last)] else np.int64(-1)
        s = last
        while s >= 0 and n_here > 0:
            if len(ring) == 0:
                bottom = ends[end, _U(BOTTOMS + s)] if consumed else np.int64(0)
            if s < last:
                row, n_above, n_here = 1 - row, n_here, np.int64(0)
                begin = np.int64(-1)
                i = 0
                while i < n_above and begin < bottom:
                    begin = paths.before[_U(1 - row), _U(i)]
                    i += 1
            n_here, total = _count_stack(
                stacks, ring, origin, timed, gapped, steps, spacing, clock, length, s, bottom, begin, paths,
                row, n_above, n_here
            )  # fmt: skip
            s -= 1
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
