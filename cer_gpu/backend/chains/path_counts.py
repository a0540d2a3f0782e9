"""Exact number of matches of a chain with bounds on distances that end at each event, from its stacks of instances.

From an end downwards: an instance has as many paths to the end as all instances together that continue at it, of the
stacks above and, where its step is repeated, of its own.  Each of these continues at a range of instances: up to the
height that it keeps, from the least one that is near enough, which it keeps, too (`Stacks.ranges`).  Its paths are
added at the upper end of the range, and taken off again below the lower one, so that one walk down a stack has the sum
for each instance: an end costs as much as there are instances that its matches hold, however many matches these are.

Each number is that of the paths of an instance which some match holds, so that none is greater than the result.

The paths from the starts to an instance are counted once, forwards, if bounds on distances alone decide which they are:
as the sum over the range at which it continues, by sums over all instances below.  A walk ends at instances whose
earliest start is in the window of the query.

A window within the pattern begins a walk of its own, down from each instance at its last step to those of its first one
that are in the window; from these the walk from the end goes on.  A step is in one window at most.

Under PARTITION BY the instances that an end may reach are gathered from their ring before, as stacks of that end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.arguments import Counts, Events, Options, Steps, Window
from cer_gpu.backend.chains import keyed_stacks as keyed
from cer_gpu.backend.chains.keyed_stacks import Ring as Ring
from cer_gpu.backend.chains.spacing import Spacing, n_columns, n_left_out
from cer_gpu.backend.chains.stacks import (
    BEFORE,
    BESIDE,
    BOTTOMS,
    END,
    END_BAR,
    END_STEP,
    EVENT,
    N_OUT,
    has_absences,
    put_ranges,
)
from cer_gpu.backend.chains.stacks import Stacks as Stacks
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.saturating import MAX_SIGNED
from cer_gpu.backend.status import DONE, GROW_PATH, OUTPUT_FULL, TOO_MANY

_U = np.uint64
_NONE = np.uint64(0)
_SMALL = np.uint64(1 << 31)
"""Two numbers below it have a product that int64 holds."""
_NEVER = np.int64(2**62)

# rows of a stack, for its instances that are not yet reached in the walk down: those from which a run may go on in any
# way, those with which a window ends, and those with which one has begun, so that a run goes on to the stack before
ANY, ENDING, BEGUN, N_KINDS = range(4)

# bounds of the instances of each stack: those in the window of the query, those all of whose paths are in it, and those
# in a window within the pattern
WHOLE, SURE, WITHIN, N_LOWS = range(4)

UNCOUNTED = np.uint64(2**64 - 1)
"""In place of a number of paths: none is counted forwards."""


class Paths(NamedTuple):
    """Sums of paths for the instances of each stack; row ``kind * steps + k`` is of stack k.

    Attributes
    ----------
    sums : uint64, shape (kinds * steps, size, 2), written
        Paths of the instances that continue at this one and at some below, from it on; and of those that no longer
        continue below it.  0 between two walks.
    spans : int64, shape (kinds * steps + 1, 2), written
        The lowest instance of each row that has sums, and one more than the highest; at last, the number of such rows.
    lows : int64, shape (N_LOWS, steps), written
        The lowest instance of each stack that is in a window.
    ids : int64, shape (steps, size), or (0, 0), written
        Under PARTITION BY, the instances that were gathered, by their ids in the ring.
    newest : int64, shape (steps,), written
        The latest instance of each stack that one above continues at.
    """

    sums: Any
    spans: Any
    lows: Any
    ids: Any
    newest: Any


@helper
def _add_paths(paths, row, low, high, count):
    """Add paths to the instances of a row from `low` on, below `high`; return False if the numbers are too large."""
    sums, spans = paths.sums, paths.spans
    at = _U(row)
    if spans[at, 0] == spans[at, 1]:
        spans[at, 0], spans[at, 1] = low, high
        spans[_U(spans.shape[0] - 1), 0] += 1
    else:
        spans[at, 0] = min(spans[at, 0], low)
        spans[at, 1] = max(spans[at, 1], high)
    both = sums[at, _U(high - 1), 0] + count
    sums[at, _U(high - 1), 0] = both
    sums[at, _U(low), 1] += count
    return both >= count


@helper
def _add_total(total, count, n):
    """Return a total with n times as many paths, and False if it is too large."""
    if (count | n) >= _SMALL and count > _U(MAX_SIGNED) // n:
        return total, False
    total += count * n
    return total, total <= _U(MAX_SIGNED)


@helper
def _clear_row(paths, row):
    """Note that a row has no sums."""
    paths.spans[row, 0] = paths.spans[row, 1] = 0
    paths.spans[_U(paths.spans.shape[0] - 1), 0] -= 1


@helper
def _forward_sum(stacks, s, low, high):
    """Return the number of paths from the starts to the instances of stack s from `low` on, below `high`."""
    sums, step, last = stacks.totals, _U(2 * s), _U(high - 1)
    return sums[step, last] + sums[step + _U(1), last] - sums[step, _U(low)]


@helper
def _send_down(stacks, steps, spacing, paths, k, i, count, first, begun, total):
    """Add the paths of instance i of stack k to the instances at which it continues.

    `first` is the first step of the window that the walk is in, or -1; with `begun`, runs go on to the stacks before
    alone, and with a window that k begins, to others of stack k alone.  Return the number of all paths, which those of
    the first stack are part of, and False if the numbers are too large.
    """
    lows, ranges, n_steps = paths.lows, stacks.ranges, steps.repeated.shape[0]
    step, at = _U(k), _U(i)
    fits = True
    if k > 0 and k != first:
        for e in range(spacing.n_sources[step]):
            s = k - 1 - e
            source = _U(s)
            high = stacks.below[step, at] if e == 0 else stacks.more[_U((e - 1) * n_steps + k), at]
            low = max(ranges[_U(spacing.near[step, source]), at], lows[WHOLE, source])
            if first >= 0:
                low = max(low, lows[WITHIN, source])
            sure = max(lows[SURE, source], low)
            if s == 0 and not steps.repeated[0] and low < high:
                total, small = _add_total(total, count, _U(high - low))
                fits &= small
                high = low
            elif sure < high and (first < 0 or s == first):
                below = _forward_sum(stacks, s, sure, high)
                if below > _NONE:
                    total, small = _add_total(total, count, below)
                    fits &= small
                high = sure
            if low < high:
                kind = ANY
                if first < 0 and spacing.end_of[source] >= 0:
                    kind = ENDING
                elif s == first and not steps.repeated[source]:
                    kind = BEGUN
                fits &= _add_paths(paths, kind * n_steps + s, low, high, count)
    if steps.repeated[step] and not begun:
        low = max(ranges[_U(spacing.near[step, step]), at], lows[WHOLE, step])
        if first >= 0:
            low = max(low, lows[WITHIN, step])
        if low < i:
            fits &= _add_paths(paths, ANY * n_steps + k, low, i, count)
    return total, fits


@helper
def _walk(stacks, steps, spacing, paths, kind, k, first, total):
    """Walk down the instances of a row; arguments and what is returned are as of `_send_down`."""
    sums, spans, n_steps = paths.sums, paths.spans, steps.repeated.shape[0]
    row = _U(kind * n_steps + k)
    fits = True
    count = _NONE
    i = spans[row, 1] - 1
    while i >= spans[row, 0] and fits:
        at = _U(i)
        more = sums[row, at, 0]
        count += more
        fits = count >= more
        if count > _NONE and fits:
            if k == 0 or k == first:  # the first event of the match, or of the window
                if k == 0:
                    total, fits = _add_total(total, count, _U(1))
                else:
                    fits = _add_paths(paths, BEGUN * n_steps + k, i, i + 1, count)
            total, small = _send_down(stacks, steps, spacing, paths, k, i, count, first, kind == BEGUN, total)
            fits &= small
        if fits:
            count -= sums[row, at, 1]
            sums[row, at, 0] = sums[row, at, 1] = 0
            i -= 1
    if fits:
        _clear_row(paths, row)
    return total, fits


@helper
def _walk_window(stacks, steps, spacing, paths, k, i, count, total):
    """Walk from instance i of stack k through the window that ends with it; what is returned is as of `_send_down`."""
    spans, lows, n_steps = paths.spans, paths.lows, steps.repeated.shape[0]
    step = _U(k)
    first = spacing.first_steps[_U(spacing.end_of[step])]
    for s in range(first, k + np.int64(steps.repeated[step])):
        inside = stacks.ranges[_U(spacing.inside[step, _U(s)]), _U(i)]
        lows[WITHIN, _U(s)] = max(inside, lows[WHOLE, _U(s)])
    fits = True
    if k == first and k == 0:
        total, fits = _add_total(total, count, _U(1))
    elif k == first:
        fits = _add_paths(paths, BEGUN * n_steps + k, i, i + 1, count)
    total, small = _send_down(stacks, steps, spacing, paths, k, i, count, first, False, total)
    fits &= small
    s = k
    while s >= first and fits:
        row = _U(ANY * n_steps + s)
        if spans[row, 0] < spans[row, 1]:
            total, fits = _walk(stacks, steps, spacing, paths, ANY, s, first, total)
        s -= 1
    return total, fits


@helper
def _walk_windows(stacks, steps, spacing, paths, k, total):
    """Walk down the instances of stack k with which a window ends, and from each through its window."""
    sums, spans, n_steps = paths.sums, paths.spans, steps.repeated.shape[0]
    row = _U(ENDING * n_steps + k)
    fits = True
    count = _NONE
    i = spans[row, 1] - 1
    while i >= spans[row, 0] and fits:
        at = _U(i)
        more = sums[row, at, 0]
        count += more
        fits = count >= more
        if count > _NONE and fits:
            total, fits = _walk_window(stacks, steps, spacing, paths, k, i, count, total)
        if fits:
            count -= sums[row, at, 1]
            sums[row, at, 0] = sums[row, at, 1] = 0
            i -= 1
    if fits:
        _clear_row(paths, row)
    return total, fits


@helper
def _count_end(stacks, steps, spacing, paths, top, at, total):
    """Count the paths from an instance of stack `top`; return the total with them, and False if it is too large."""
    sums, spans, n_steps = paths.sums, paths.spans, steps.repeated.shape[0]
    if spacing.end_of[_U(top)] >= 0:
        fits = _add_paths(paths, ENDING * n_steps + top, at, at + 1, _U(1))
    else:
        total, fits = _send_down(stacks, steps, spacing, paths, top, at, _U(1), np.int64(-1), False, total)
    k = top
    while k >= 0 and fits and spans[_U(spans.shape[0] - 1), 0] > 0:
        if spans[_U(ENDING * n_steps + k), 0] < spans[_U(ENDING * n_steps + k), 1]:
            total, fits = _walk_windows(stacks, steps, spacing, paths, k, total)
        for kind in (ANY, BEGUN):
            row = _U(kind * n_steps + k)
            if fits and spans[row, 0] < spans[row, 1]:
                total, fits = _walk(stacks, steps, spacing, paths, kind, k, np.int64(-1), total)
        k -= 1
    if not fits:
        for r in range(n_steps * N_KINDS + 1):
            for i in range(spans[_U(r), 0], spans[_U(r), 1]):
                if r < n_steps * N_KINDS:
                    sums[_U(r), _U(i), 0] = sums[_U(r), _U(i), 1] = 0
            spans[_U(r), 0] = spans[_U(r), 1] = 0
    return total, fits


@helper
def _paths_to(stacks, steps, spacing, paths, k, i):
    """Return how many paths lead to an instance of stack k, or UNCOUNTED, and the earliest start of these, at most.

    To one with which a window ends, they are those within it.
    """
    lows, summed, firsts = paths.lows, stacks.summed, stacks.firsts
    step, at = _U(k), _U(i)
    total, is_known, earliest = _NONE, spacing.bounded[step], stacks.clocks[step, at]
    w = spacing.end_of[step]
    begin = spacing.first_steps[_U(w)] if w >= 0 else k
    if k == 0:
        total = _U(1)
    elif is_known and begin < k:
        low = stacks.ranges[_U(spacing.inside[step, _U(begin)]), at]
        is_known = low >= summed[1, _U(begin)]
        if is_known:
            lows[SURE, _U(begin)] = low
            total, is_known = _walk_window(stacks, steps, spacing, paths, k, i, _U(1), total)
            lows[SURE, _U(begin)] = 0
            if low < summed[0, _U(begin)]:
                earliest = firsts[_U(begin), _U(low)]
    elif is_known:
        for e in range(spacing.n_sources[step]):
            source = _U(k - 1 - e)
            high = stacks.below[step, at] if e == 0 else stacks.more[_U((e - 1) * stacks.places.shape[0] + k), at]
            low = stacks.ranges[_U(spacing.near[step, source]), at]
            if low < high:
                is_known &= low >= summed[1, source]
                if is_known:
                    total += _forward_sum(stacks, k - 1 - e, low, high)
                    earliest = min(earliest, firsts[source, _U(low)])
    if not is_known or total > _SMALL:
        total = UNCOUNTED
    return total, earliest


@helper
def _sum_forwards(stacks, steps, spacing, paths):
    """Count the paths to the instances that have come since the last call, but for those of the last step."""
    totals, firsts, summed, n_steps = stacks.totals, stacks.firsts, stacks.summed, steps.repeated.shape[0]
    for k in range(n_steps):
        paths.lows[WHOLE, _U(k)] = paths.lows[SURE, _U(k)] = 0
    for k in range(n_steps - 1):
        step, own = _U(k), _U(2 * k)
        for i in range(summed[0, step], stacks.counts[step + _U(1)]):
            at = _U(i)
            total, earliest = _paths_to(stacks, steps, spacing, paths, k, i)
            before = totals[own, at - _U(1)] + totals[own + _U(1), at - _U(1)] if i > 0 else _NONE
            totals[own, at] = before
            firsts[step, at] = earliest
            if total == UNCOUNTED:
                total = _NONE
                summed[1, step] = i + 1
            totals[own + _U(1), at] = total
            j = i - 1
            while j >= summed[1, step] and firsts[step, _U(j)] > earliest:
                firsts[step, _U(j)] = earliest
                j -= 1
        summed[0, step] = stacks.counts[step + _U(1)]


@helper
def _reached(stacks, steps, spacing, s, i, clock, top):
    """Return whether an instance of stack s and of this clock is near enough to those that are gathered, down to i."""
    clocks, bottoms, size = stacks.clocks, stacks.bottoms, stacks.places.shape[1]
    near = steps.repeated[_U(s)] and i < size and not (clocks[_U(s), _U(i)] - clock > spacing.own[_U(s)])
    for above in range(s + 1, top + 1):
        bottom = bottoms[_U(above + 1)]
        if above - spacing.n_sources[_U(above)] <= s and bottom < size:
            oldest = clocks[_U(above), _U(bottom)]
            near |= clock >= oldest or not (oldest - clock > spacing.gaps[_U(above)])
    return near


@helper
def _gather(stacks, ring, steps, spacing, paths, ends, end, position, end_clock, length, base, origin, timed, gapped):
    """Gather the instances that an end may reach as stacks, of which it is the latest; False if space is too little."""
    instances, latest_of = ring.instances, ring.latest_of
    counts, bottoms, below, more, clocks = stacks.counts, stacks.bottoms, stacks.below, stacks.more, stacks.clocks
    ids, newest = paths.ids, paths.newest
    n_steps, size = stacks.places.shape[0], stacks.places.shape[1]
    n_left, columns = n_left_out(spacing), n_columns(spacing)
    clock_at = np.int64(keyed.TIME + timed + gapped)
    top = ends[end, END_STEP]
    for s in range(n_steps):
        counts[_U(s + 1)] = bottoms[_U(s + 1)] = size
        newest[_U(s)] = -1
    for s in range(top, -1, -1):
        step = _U(s)
        i = size
        if s == top:
            i -= 1
            at = step, _U(i)
            stacks.places[at], clocks[at], below[at], ids[at] = position, end_clock, ends[end, BEFORE], 1 << 62
            if gapped:
                stacks.bars[at] = ends[end, END_BAR]
            for e in range(spacing.n_sources[step] - 1):
                more[_U(e * n_steps + s), at[1]] = ends[end, _U(ends.shape[1] - n_left + e)]
            newest[step] = ends[end, BESIDE] if steps.repeated[step] else -1
        instance = newest[step]
        if i < size and s > 0:
            for e in range(spacing.n_sources[step]):
                source = below[step, _U(i)] if e == 0 else more[_U((e - 1) * n_steps + s), _U(i)]
                newest[_U(s - 1 - e)] = max(newest[_U(s - 1 - e)], source)
        while instance >= base:
            row = keyed.row_of(instance, origin, instances.shape[0])
            latest, clock = latest_of[row, keyed.LATEST], latest_of[row, _U(clock_at)]
            if end_clock - latest > length or not _reached(stacks, steps, spacing, s, i, clock, top):
                break
            if i == 0:
                return False
            i -= 1
            at = step, _U(i)
            links = instances[row, keyed.LINKS]
            ids[at], stacks.latest[at] = instance, latest
            stacks.places[at] = instances[row, keyed.PLACE]
            if gapped:
                stacks.bars[at] = instances[row, _U(clock_at - 1)]
            for c in range(columns):
                clocks[_U(c * n_steps + s), _U(i)] = latest_of[row, _U(clock_at + c)]
            below[at] = keyed.before_of(instance, links)
            for e in range(spacing.n_sources[step] - 1):
                back = instances[row, _U(clock_at + columns + e)]
                more[_U(e * n_steps + s), _U(i)] = instance - back if back > 0 else np.int64(-1)
            if s > 0:
                for e in range(spacing.n_sources[step]):
                    source = below[at] if e == 0 else more[_U((e - 1) * n_steps + s), _U(i)]
                    newest[_U(s - 1 - e)] = max(newest[_U(s - 1 - e)], source)
            instance = keyed.lower_of(instance, links)
        bottoms[step + _U(1)] = i
    for s in range(1, top + 1):
        for e in range(spacing.n_sources[_U(s)]):
            source = _U(s - 1 - e)
            height = size
            for j in range(size - bottoms[_U(s + 1)]):
                i = _U(size - 1 - j)
                latest_one = below[_U(s), i] if e == 0 else more[_U((e - 1) * n_steps + s), i]
                within = latest_one >= 0
                while within and height > bottoms[source + _U(1)] and ids[source, _U(height - 1)] > latest_one:
                    height -= 1
                if e == 0:
                    below[_U(s), i] = height if within else 0
                else:
                    more[_U((e - 1) * n_steps + s), i] = height if within else 0
    for s in range(top + 1):
        for i in range(bottoms[_U(s + 1)], size):
            put_ranges(
                stacks, spacing, s, i, gapped, steps.repeated[_U(s)], steps.linked[_U(s)], steps.neighbours[_U(s)]
            )
    return True


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
        A step is in one window at most.
    stacks : Stacks
        Written under PARTITION BY: they are gathered for each end.
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
    spacing, stacks, paths, output = Spacing(*spacing), Stacks(*stacks), Paths(*paths), Counts(*output)
    limit, length, latest, lows = options.limit, window.length, stacks.latest, paths.lows
    n_steps = steps.repeated.shape[0]
    timed, consumed = events.times.shape[0] > 0, ends.shape[1] - n_left_out(spacing) > BOTTOMS
    n_out = regs[N_OUT]
    status = DONE
    if paths.sums.shape[1] < stacks.places.shape[1]:
        status = GROW_PATH
    elif len(ring) == 0 and not consumed:
        _sum_forwards(stacks, steps, spacing, paths)
    forwards = len(ring) == 0 and not consumed and status == DONE
    for k in range(n_steps):
        lows[WHOLE, _U(k)], lows[SURE, _U(k)] = 0, _NEVER
        if forwards and k < n_steps - 1:
            lows[SURE, _U(k)] = stacks.summed[1, _U(k)]
    while regs[END] < n_ends and status == DONE:
        if n_out == output.ends.shape[0]:
            status = OUTPUT_FULL
            break
        event = _U(ends[_U(regs[END]), EVENT])
        clock = window.clocks[event]
        total, fits = _NONE, True
        following = regs[END]
        while following < n_ends and ends[_U(following), EVENT] == np.int64(event):  # at several steps
            end = _U(following)
            top, at = ends[end, END_STEP], ends[end, BESIDE] + 1
            if len(ring) > 0:
                at = stacks.places.shape[1] - 1
                if not _gather(
                    stacks, Ring(*ring), steps, spacing, paths, ends, end, events.positions[event], clock, length,
                    regs[keyed.BASE], regs[keyed.ORIGIN], timed, has_absences(steps.kind.ndim)
                ):  # fmt: skip
                    status = GROW_PATH
                    break
            for k in range(top + 1):
                step = _U(k)
                if len(ring) > 0:
                    low = stacks.bottoms[step + _U(1)]
                else:
                    low = max(lows[WHOLE, step], ends[end, _U(BOTTOMS + k)] if consumed else np.int64(0))
                    height = stacks.counts[step + _U(1)]
                    # instances from later events may have later starts
                    while low < height and latest[step, _U(low)] < clock and clock - latest[step, _U(low)] > length:
                        low += 1
                lows[WHOLE, step] = low
                if forwards:
                    low, height = max(lows[SURE, step], low), stacks.counts[step + _U(1)]
                    firsts = stacks.firsts
                    while low < height and firsts[step, _U(low)] < clock and clock - firsts[step, _U(low)] > length:
                        low += 1
                    lows[SURE, step] = low
            if fits:
                total, fits = _count_end(stacks, steps, spacing, paths, top, at, total)
            following += 1
        if status != DONE:
            break
        if not fits and limit > 0:
            total = _U(limit)
        elif not fits:
            status = TOO_MANY
            break
        if limit > 0 and total > _U(limit):
            total = _U(limit)
        out = _U(n_out)
        output.ends[out] = events.positions[event]
        output.counts[out] = np.int64(total)
        if timed:
            output.times[out] = events.times[event]
        n_out += 1
        regs[END] = following
    regs[N_OUT] = n_out
    return status
