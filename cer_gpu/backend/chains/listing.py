"""Listing of the matches of a chain, from its stacks of instances: of one partition, or linked in a ring.

papers: CORE, theorem 2: depth first, the latest instance first, and downwards a stack only while its instances are in
the window, so that no step is in vain.

The loop is one, and instances are read in two ways: by their index in the stack of a step
(`cer_gpu.backend.chains.stacks`), or by their id in the ring of all partitions (`cer_gpu.backend.chains.keyed_stacks`).
The group of the other way is empty, so that each is compiled by itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.arguments import Events, Matches, Options, Steps, Window
from cer_gpu.backend.chains import keyed_stacks as keyed
from cer_gpu.backend.chains.keyed_stacks import Ring
from cer_gpu.backend.chains.spacing import Spacing, n_columns, n_left_out
from cer_gpu.backend.chains.stacks import (
    BEFORE,
    BESIDE,
    BOTTOMS,
    DEPTH,
    END,
    END_BAR,
    END_STEP,
    EVENT,
    N_HERE,
    N_OUT,
    N_VALUES,
    Stacks,
    has_absences,
)
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.operations import prefetch
from cer_gpu.backend.status import DONE, GROW_PATH, OUTPUT_FULL

# A frame d of the listing stands for the choice of the d-th event from the end, counted from 0 for the one before the
# last.  It tries the instances of a stack from the latest down, then those of the stack above: after b of `A ; B+` it
# tries the As that b continues at, then the Bs before b.  COUNT to TARGET serve chains with counts or absences.
(
    STACK,  # the stack, from 0
    LEFT,  # the instance to try next, or one below all that are to be tried
    OTHER,  # the same of the stack above, which comes after; -1: not to be tried
    COUNT,  # events of its step that the path holds with one of the stack above, or of STACK where OTHER is -1
    BAR,  # position from which on instances of STACK may lie, or -1
    TARGET,  # in a ring: the instance with which the step, from LEFT down, has its least number of events
    ABOVE,  # with bounds on distances: the stack of the event that the frame lists instances before
    N_LATER,  # and how many other stacks come after STACK and before the one above; the last columns are of these
    N_FRAME,
) = range(9)

ENDS_AHEAD = 16
"""Ends whose stacks are followed ahead of listing, one instance further each time: they lie anywhere in memory."""

_NEAR = 1 << 8
"""Instances so near to one another that the processor has them both."""

_U = np.uint64


class Frames(NamedTuple):
    """State of the listing of the matches of one end.

    Attributes
    ----------
    marks : int32, shape (steps,), or (0,)
        The mark of each step; empty if the output has no marks.
    frames : int64, shape (depth, N_FRAME + sources beyond one), written
    path : int64, shape (depth,), written
        The match, filled from its end.
    path_marks : int32, shape (depth,), written
    clocks : clock, shape (depth, windows + 1), or (0, 0), written
        With bounds on distances: the clock of the event that a frame lists instances before, then of the last event of
        each window that the path is in.
    """

    marks: Any
    frames: Any
    path: Any
    path_marks: Any
    clocks: Any


class _Instance(NamedTuple):
    """An instance of a step: its position, the latest start that it reaches, and its time.

    `lower` is the instance below it in its stack, `before` the latest of the stack before at which its runs continue,
    and `begin` the nearest one at or below it with which the step begins; each is less than all others for none.  `bar`
    is the position of the last event that barred the gap before it.
    """

    place: Any
    latest: Any
    time: Any
    lower: Any
    before: Any
    begin: Any
    bar: Any


@helper
def read_instance(stacks, ring, origin, s, instance, gapped, timed):
    """Return an instance of stack s; unused fields are not loaded."""
    if len(ring) == 0:
        fields = Stacks(*stacks)
        at = _U(s), _U(instance)
        below = fields.below[at]
        return _Instance(
            fields.places[at],
            fields.latest[at],
            fields.began[at[1]] if timed else np.int64(0),
            instance - 1,
            below - 1,
            instance if below >= 0 else -1 - below,
            fields.bars[at] if gapped else np.int64(-1),
        )
    instances = Ring(*ring).instances
    row = keyed.row_of(instance, origin, instances.shape[0])
    links = instances[row, keyed.LINKS]
    return _Instance(
        instances[row, keyed.PLACE],
        Ring(*ring).latest_of[row, keyed.LATEST],
        instances[row, keyed.TIME] if timed else np.int64(0),
        keyed.lower_of(instance, links),
        keyed.before_of(instance, links),
        keyed.begin_of(instance, links),
        instances[row, _U(keyed.TIME + timed)] if gapped else np.int64(-1),
    )


@helper
def _fetch_ahead(ends, end, n_ends, ring, clocks, length, base, origin):
    """Fetch one more instance of each of the next ends; that of a new one is the first."""
    instances, latest_of = ring.instances, ring.latest_of
    size, width = instances.shape[0], _U(instances.shape[1])
    for other in range(end + 1, min(end + ENDS_AHEAD, n_ends)):
        at = ends[_U(other), keyed.FETCHED]
        if at >= base:
            row = keyed.row_of(at, origin, size)
            lower = keyed.lower_of(at, instances[row, keyed.LINKS])
            clock = clocks[_U(ends[_U(other), EVENT])]
            if lower < base or at - lower < _NEAR or clock - latest_of[row, keyed.LATEST] > length:
                lower = np.int64(-1)
            else:
                prefetch(instances, keyed.row_of(lower, origin, size) * width)
            ends[_U(other), keyed.FETCHED] = lower
    if end + ENDS_AHEAD < n_ends:
        first = ends[_U(end + ENDS_AHEAD), keyed.FETCHED]
        if first >= base:
            prefetch(instances, keyed.row_of(first, origin, size) * width)


@helper
def _go_on(ring, origin, base, frames, frame, s, count, before, lower, bar, target, steps, timed):
    """Set the frame after an instance of stack s, with which the path holds `count` events of its step."""
    if s == 0 or count <= steps.spare[_U(s + 1)]:
        frames[frame, STACK], frames[frame, LEFT], frames[frame, OTHER] = s, lower, -1
        frames[frame, COUNT], frames[frame, BAR], frames[frame, TARGET] = count + 1, -1, target
    else:
        again = count < steps.max_events[_U(s)]
        frames[frame, STACK], frames[frame, LEFT] = s - 1, before
        frames[frame, OTHER] = lower if again else -1
        frames[frame, COUNT] = count + 1 if lower >= 0 and again else 1
        frames[frame, BAR] = bar
        if len(ring) > 0 and before >= base and steps.spare[_U(s)] > 0:
            instances = Ring(*ring).instances
            depth_at = _U(keyed.TIME + timed + (steps.bars.shape[1] > 0))
            depth = instances[keyed.row_of(before, origin, instances.shape[0]), depth_at]
            frames[frame, TARGET] = keyed.target_of(before, depth, steps.spare[_U(s)])


@helper
def _write_rows(n_out, n_values, n_rows, depth, first, position, path, path_marks, marks, output):
    """Write matches that differ only in their starts, written before: `depth` events from path[first] on."""
    out_positions, width = output.positions, depth + 1
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
        output.spans[1, _U(n_out + r)] = position
        output.offsets[_U(n_out + 1 + r)] = n_values + (r + 1) * width
    if marks.shape[0] > 0:
        for r in range(n_rows):
            row = n_values + r * width
            output.marks[_U(row)] = marks[0]
            for t in range(depth):
                output.marks[_U(row + 1 + t)] = path_marks[first + _U(t)]


@helper
def _write_row(n_out, n_values, width, begin, position, path, path_marks, marks, output):
    """Write one match: `width` events from path[begin] on."""
    for t in range(width):
        output.positions[_U(n_values + t)] = path[begin + _U(t)]
    if marks.shape[0] > 0:
        for t in range(width):
            output.marks[_U(n_values + t)] = path_marks[begin + _U(t)]
    output.spans[0, _U(n_out)] = path[begin]
    output.spans[1, _U(n_out)] = position
    output.offsets[_U(n_out + 1)] = n_values + width


@helper
def clock_of(stacks, ring, origin, s, instance, column, clock_at):
    """Return a clock of an instance, from one of its columns (`cer_gpu.backend.chains.spacing`)."""
    if len(ring) == 0:
        fields = Stacks(*stacks)
        return fields.clocks[_U(column * fields.places.shape[0] + s), _U(instance)]
    latest_of = Ring(*ring).latest_of
    return latest_of[keyed.row_of(instance, origin, latest_of.shape[0]), _U(clock_at + column)]


@helper
def _source_of(stacks, ring, origin, s, instance, e, clock_at, spacing):
    """Return the latest instance of source e, from 1, at which an instance of stack s continues, or one below all."""
    if len(ring) == 0:
        fields = Stacks(*stacks)
        return fields.more[_U((e - 1) * fields.places.shape[0] + s), _U(instance)] - 1
    instances = Ring(*ring).instances
    at = _U(clock_at + n_columns(spacing) + e - 1)
    back = instances[keyed.row_of(instance, origin, instances.shape[0]), at]
    return instance - back if back > 0 else np.int64(-1)


@helper
def _is_beyond(stacks, ring, origin, clock_at, spacing, clocks, frame, s, above, instance, count, latest):
    """Return whether an instance of stack s is too far from the events of the path, the last of which is of `above`.

    `count` is how many events of its step the path holds with it, `latest` the clock of the latest start it reaches.
    """
    gap = spacing.own[_U(s)] if count > 1 else spacing.gaps[_U(above)]
    beyond = clocks[frame, 0] - clock_of(stacks, ring, origin, s, instance, 0, clock_at) > gap
    for w in range(spacing.columns.shape[0]):
        each = _U(w)
        if above <= spacing.last_steps[each] and s >= spacing.first_steps[each]:
            column = spacing.columns[each]
            first = clock_of(stacks, ring, origin, s, instance, column, clock_at) if column > 0 else latest
            beyond |= clocks[frame, each + _U(1)] - first > spacing.lengths[each]
    return beyond


@helper
def _put_clocks(spacing, clocks, frame, onward, s, above, clock):
    """Write the clocks of a frame after an event of step s, which was chosen in `frame`, before one of `above`."""
    clocks[onward, 0] = clock
    for w in range(spacing.columns.shape[0]):
        at = _U(w + 1)
        ends = spacing.least_ends[_U(w)] <= s <= spacing.last_steps[_U(w)] < above
        clocks[onward, at] = clock if ends else clocks[frame, at]


@kernel
def list_ends(events, window, options, steps, spacing, stacks, ring, listing, output, ends, n_ends, regs):
    """List the matches of the ends that were noted, from where the last call stopped.

    Frame d lists the instances before the d-th event from the end.

    Parameters
    ----------
    events : Events
        Positions are those that are reported.
    window : Window
    options : Options
    steps : Steps
    spacing : Spacing, or (), read
        Nothing without bounds on distances.
    stacks : Stacks, or (), read
        Nothing under PARTITION BY.
    ring : Ring, or (), read
        Nothing without PARTITION BY.
    listing : Frames
    output : Matches
    ends : int64, shape (at least n_ends, at least BOTTOMS), written
        Those that were noted as events were pushed.
    n_ends : int
    regs : int64, shape (registers,), written

    Returns
    -------
    int
        DONE; OUTPUT_FULL, when the buffers are to be emptied (or made larger, when they are empty); GROW_PATH.
    """
    events, window, options, steps = Events(*events), Window(*window), Options(*options), Steps(*steps)
    listing, output = Frames(*listing), Matches(*output)
    positions, times, limit = events.positions, events.times, options.limit
    clocks, length = window.clocks, window.length
    repeated, neighbours = steps.repeated, steps.neighbours
    spare, max_of, linked = steps.spare, steps.max_events, steps.linked
    special, gapped = steps.kind.ndim > 1, has_absences(steps.kind.ndim)
    marks, frames, path, path_marks = listing.marks, listing.frames, listing.path, listing.path_marks
    out_spans, out_times, out_offsets, out_positions = output.spans, output.times, output.offsets, output.positions
    last = np.int64(repeated.shape[0] - 1)
    spaced, clocks_of = len(spacing) > 0, listing.clocks
    timed, marked = times.shape[0] > 0, marks.shape[0] > 0
    clock_at = np.int64(keyed.TIME + timed + gapped)
    n_left = n_left_out(Spacing(*spacing)) if spaced else np.int64(0)
    consumed = ends.shape[1] - n_left > BOTTOMS
    size = path.shape[0]
    bottom = origin = np.int64(0)
    if len(ring) > 0:
        bottom, origin = regs[keyed.BASE], regs[keyed.ORIGIN]
    n_out, n_values, n_here, depth = regs[N_OUT], regs[N_VALUES], regs[N_HERE], regs[DEPTH]
    status = DONE
    while regs[END] < n_ends and status == DONE:
        end = _U(regs[END])
        event = _U(ends[end, EVENT])
        position, clock = positions[event], clocks[event]
        top = ends[end, END_STEP] if spaced else last
        if depth == 0 and (limit == 0 or n_here < limit):
            if len(ring) > 0:
                _fetch_ahead(ends, regs[END], n_ends, Ring(*ring), clocks, length, bottom, origin)
            path[_U(size - 1)] = position
            if marked:
                path_marks[_U(size - 1)] = marks[_U(top)]
            before, lower = ends[end, BEFORE], ends[end, BESIDE]
            if special:
                target = ends[end, keyed.END_TARGET] if len(ring) > 0 else np.int64(-1)
                _go_on(ring, origin, bottom, frames, _U(0), top, np.int64(1), before, lower, ends[end, END_BAR],
                       target, steps, timed)  # fmt: skip
            else:
                frames[0, STACK], frames[0, LEFT], frames[0, OTHER] = last - 1, before, lower
            if spaced:
                _put_clocks(Spacing(*spacing), clocks_of, _U(0), _U(0), top, last + 1, clock)
                frames[0, ABOVE], frames[0, N_LATER] = top, Spacing(*spacing).n_sources[_U(top)] - 1
                for e in range(n_left):
                    frames[0, _U(N_FRAME + e)] = ends[end, _U(ends.shape[1] - n_left + e)]
            depth = 1
        while depth > 0:
            frame = _U(depth - 1)
            s, instance = frames[frame, STACK], frames[frame, LEFT]
            count, need, reaching = np.int64(1), np.int64(0), instance
            if len(ring) == 0:
                bottom = ends[end, _U(BOTTOMS + s)] if consumed else np.int64(0)
            exhausted = instance < bottom
            if special:
                if frames[frame, OTHER] < 0:
                    count = frames[frame, COUNT]
                need = max(spare[_U(s + 1)] + 1 - count, np.int64(0))  # events that must still follow in the step
                if gapped and not exhausted and count > 1 and count == max_of[_U(s)]:
                    instance = read_instance(stacks, ring, origin, s, instance, gapped, timed).begin
                    exhausted = instance < bottom
                reaching = instance
                if need > 0:
                    reaching = instance - need if len(ring) == 0 else frames[frame, TARGET]
                exhausted |= reaching < bottom
                if gapped and not exhausted:
                    exhausted = (
                        read_instance(stacks, ring, origin, s, instance, gapped, timed).place < frames[frame, BAR]
                    )
                if spaced and not exhausted:
                    reached = read_instance(stacks, ring, origin, s, instance, gapped, timed).latest
                    exhausted = _is_beyond(stacks, ring, origin, clock_at, Spacing(*spacing), clocks_of, frame, s,
                                           frames[frame, ABOVE], instance, count, reached)  # fmt: skip
            if exhausted or clock - read_instance(stacks, ring, origin, s, reaching, gapped, timed).latest > length:
                if spaced and s < frames[frame, ABOVE] and frames[frame, N_LATER] > 0:
                    frames[frame, STACK] = s - 1
                    frames[frame, LEFT] = frames[frame, _U(N_FRAME + frames[frame, ABOVE] - s - 1)]
                    frames[frame, N_LATER] -= 1
                elif frames[frame, OTHER] >= 0:
                    frames[frame, STACK] = frames[frame, ABOVE] if spaced else s + 1
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
            ends_here = s == 0 and need == 0
            if ends_here and (n_out + 1 >= out_offsets.shape[0] or n_values + depth + 1 > out_positions.shape[0]):
                status = OUTPUT_FULL
                break
            only_one = neighbours[_U(s + 1)]
            goes_on = s > 0 or repeated[0]
            if special:
                if spaced:
                    only_one = neighbours[_U(frames[frame, ABOVE])]
                only_one = linked[_U(s)] if count > 1 else only_one
                goes_on = s > 0 or count < max_of[0]
            width = depth + 1
            if goes_on:
                this = read_instance(stacks, ring, origin, s, instance, gapped, timed)
                frames[frame, LEFT] = np.int64(-1) if only_one else this.lower
                path[first - _U(1)] = this.place
                if marked:
                    path_marks[first - _U(1)] = marks[_U(s)]
                onward = _U(depth)
                if special:
                    _go_on(ring, origin, bottom, frames, onward, s, count, this.before, this.lower, this.bar, reaching,
                           steps, timed)  # fmt: skip
                    if spaced:
                        own_clock = clock_of(stacks, ring, origin, s, instance, 0, clock_at)
                        _put_clocks(Spacing(*spacing), clocks_of, frame, onward, s, frames[frame, ABOVE], own_clock)
                        n_more = Spacing(*spacing).n_sources[_U(s)] - 1 if s > 0 else np.int64(0)
                        frames[onward, ABOVE], frames[onward, N_LATER] = s, n_more
                        for e in range(n_more):
                            frames[onward, _U(N_FRAME + e)] = _source_of(
                                stacks, ring, origin, s, instance, e + 1, clock_at, Spacing(*spacing)
                            )
                    if len(ring) > 0 and need > 0:
                        frames[frame, TARGET] = read_instance(stacks, ring, origin, s, reaching, gapped, timed).lower
                else:
                    frames[onward, STACK] = max(s - 1, 0)
                    frames[onward, LEFT] = this.before if s > 0 else this.lower
                    frames[onward, OTHER] = this.lower if s > 0 and repeated[_U(s)] else np.int64(-1)
                depth += 1
            n_rows = 0
            if ends_here and goes_on:
                _write_row(n_out, n_values, width, first - _U(1), position, path, path_marks, marks, output)
                if timed:
                    out_times[0, _U(n_out)] = read_instance(stacks, ring, origin, 0, instance, gapped, timed).time
                    out_times[1, _U(n_out)] = times[event]
                n_rows = 1
            elif ends_here:
                # all that begin in the window, in one go; they differ in their starts alone
                n_max = min(out_offsets.shape[0] - 1 - n_out, (out_positions.shape[0] - n_values) // width)
                if limit > 0:
                    n_max = min(n_max, limit - n_here)
                if only_one:
                    n_max = 1
                inside = True
                while inside:
                    this = read_instance(stacks, ring, origin, 0, instance, gapped, timed)
                    out_spans[0, _U(n_out + n_rows)] = this.place
                    out_positions[_U(n_values + n_rows * width)] = this.place
                    if timed:
                        out_times[0, _U(n_out + n_rows)] = this.time
                        out_times[1, _U(n_out + n_rows)] = times[event]
                    n_rows += 1
                    instance = this.lower
                    inside = n_rows < n_max and instance >= bottom
                    if inside:
                        this = read_instance(stacks, ring, origin, 0, instance, gapped, timed)
                        inside = not (clock - this.latest > length or (gapped and this.place < frames[frame, BAR]))
                    if spaced and inside:
                        inside = not _is_beyond(stacks, ring, origin, clock_at, Spacing(*spacing), clocks_of, frame, s,
                                                frames[frame, ABOVE], instance, count, this.latest)  # fmt: skip
                frames[frame, LEFT] = np.int64(-1) if only_one else instance
                _write_rows(n_out, n_values, n_rows, depth, first, position, path, path_marks, marks, output)
            n_out += n_rows
            n_here += n_rows
            n_values += n_rows * width
            if limit > 0 and n_here == limit:
                depth = 0
        if status == DONE:
            regs[END] += 1
            again = False  # the event may end matches at several steps
            if spaced and regs[END] < n_ends:
                again = ends[_U(regs[END]), EVENT] == ends[end, EVENT]
            n_here = n_here if again else np.int64(0)
    regs[N_OUT], regs[N_VALUES], regs[N_HERE], regs[DEPTH] = n_out, n_values, n_here, depth
    return status
