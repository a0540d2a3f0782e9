"""The loop for chains of comparisons whose windows hold few events: all candidates of a step are tested at once.

papers: RMA, section 4; CORE, theorem 2, whose listing this follows: from the end backwards, the latest candidate first.

With some dozens of instances within reach, comparing each of them is faster than looking one up: one event is compared
with all instances of a step by vector instructions, as their numbers are neighbours in memory.  Each depth of a path
has its own mask for each earlier step: the instances that pass with all events of the path so far (forward checking).
A step of which none is left ends the search at once.

Events are read in tiles (`cer_gpu.backend.joins.scan_tiles`).

It keeps the same instances as `cer_gpu.backend.joins.matching` without indexes, so that this can go on where it stops,
once the window holds many (`cer_gpu.backend.joins.scan_tables.find_origins`).
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.arguments import Counts, Demand, Events, Matches, Options, Window
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.joins.choosing import (
    CHOICE_LEFT,
    EVENT,
    FIRST_OUT,
    LISTING,
    N_HERE,
    N_OUT,
    N_SHARED_REGS,
    N_VALUES,
    ROOT,
    count_end,
)
from cer_gpu.backend.joins.instances import Graph, Indexes, Instances
from cer_gpu.backend.joins.lanes import LANES, highest, lanes_beyond, lanes_beyond_one_of_four, lanes_equal, n_set
from cer_gpu.backend.joins.reading import TILE, store_instance
from cer_gpu.backend.joins.scan_tables import EARLIER, LATER, LESS_THAN, SIGN, ScannedChain
from cer_gpu.backend.joins.scan_tiles import (
    LANE_SHIFT,
    blocks_of,
    lanes_of,
    newest_of,
    pair_row,
    read_tile,
    size_of_tile,
)
from cer_gpu.backend.joins.writing import ATOM, INSTANCE, NEXT, Path, write_leaves
from cer_gpu.backend.status import DONE, GO_ON, GROW_NODES, OUTPUT_FULL

# registers of `scan_events` besides those shared: the events of the path under way, as in `matching`; and the end of
# the tile under way, which begins at EVENT, its events that may end paths, and how many of these are done
DEPTH, TILE_END, N_PENDING, PENDING, N_REGS = range(N_SHARED_REGS, N_SHARED_REGS + 5)

BY_INSTANCE = TILE
"""Limits that an instance sets, in `ScannedChain.limits`; those before are set by the events of a tile."""

_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_U = np.uint64


@helper
def _limit_by_instance(scan, values, a, k, side, row):
    """Set the limits of the events at a side of a row, at BY_INSTANCE, given instance `k` of atom `a` at the other one.

    Returns whether there are numbers that are small enough.
    """
    none = np.int64(0)
    for each in range(scan.first[row], scan.first[row + _U(1)]):
        line = _U(each)
        number = values[a, _U(scan.lines[line, _U(1 - side)]), k]
        signed, less = number ^ scan.lines[line, SIGN], scan.lines[line, LESS_THAN]
        if less < 0:
            scan.limits[line, BY_INSTANCE] = number
        elif side == EARLIER:
            scan.limits[line, BY_INSTANCE] = signed - less
        else:
            scan.limits[line, BY_INSTANCE] = ~(signed + less)
        none |= np.int64(less == 1) & np.int64(signed == (_LEAST if side == EARLIER else _GREATEST))
    return none == 0


@helper
def _within_limits(scan, values, p, side, row, at, bits):
    """Return those of the bits of instances of atom `p` from one on, at a side of a row, within limits BY_INSTANCE."""
    lines, limits, which, flip = scan.lines, scan.limits[:, BY_INSTANCE], _U(side), -np.int64(side)
    line, unequal, last = scan.first[row], scan.unequal[row], scan.first[row + _U(1)]
    while line + 4 <= unequal:
        a, b, c, d = _U(line), _U(line + 1), _U(line + 2), _U(line + 3)
        bits &= ~lanes_beyond_one_of_four(
            values, p, at, lines[a, which], lines[b, which], lines[c, which], lines[d, which], lines[a, SIGN] ^ flip,
            lines[b, SIGN] ^ flip, lines[c, SIGN] ^ flip, lines[d, SIGN] ^ flip, limits[a], limits[b],
            limits[c], limits[d],
        )  # fmt: skip
        line += 4
    while line < unequal:
        a = _U(line)
        bits &= ~lanes_beyond(values, p, at, lines[a, which], lines[a, SIGN] ^ flip, limits[a])
        line += 1
    while line < last:
        bits &= ~lanes_equal(values, p, at, lines[_U(line), which], limits[_U(line)])
        line += 1
    return bits


@helper
def _n_left(scan, d, i, n):
    """Return the number of instances in a mask."""
    n_left = np.int64(0)
    for block in range(blocks_of(n)):
        n_left += n_set(scan.masks[d, i, _U(block)])
    return n_left


@helper
def _keep_supported(instances, scan, j, n, n_before, d):
    """Clear those of `n` instances of step `j` in its mask that pass with no instance of the step before.

    Only where fewer of the step before are left: one by one they are compared with all of step `j`.
    """
    i, row, masks = j - _U(1), pair_row(scan, j, j - _U(1)), scan.masks
    if scan.first[row] == scan.first[row + _U(1)] or _n_left(scan, d, i, n_before) >= _n_left(scan, d, j, n):
        return
    p, q = _U(scan.atoms[i]), np.int64(scan.atoms[j])
    bottom, bottom_before = instances.bottoms[_U(q)], instances.bottoms[p]
    for each in range(blocks_of(n)):
        scan.supported[_U(each)] = 0
    for before in range(blocks_of(n_before)):
        rest = masks[d, i, _U(before)]
        while rest != 0:
            lane = highest(rest)
            rest ^= np.int64(1) << lane
            k = bottom_before + (before << LANE_SHIFT) + lane
            if not _limit_by_instance(scan, instances.values, p, _U(k), LATER, row):
                continue
            for each in range(blocks_of(n)):
                block, at = _U(each), bottom + (each << LANE_SHIFT)
                bits = masks[d, j, block] & lanes_beyond(instances.origins, q, at, 0, 0, k)
                if bits & ~scan.supported[block] != 0:
                    scan.supported[block] |= _within_limits(scan, instances.values, q, LATER, row, at, bits)
    for each in range(blocks_of(n)):
        masks[d, j, _U(each)] = scan.supported[_U(each)]


@helper
def _look_from(instances, scan, t):
    """Set the stacks and the first masks to what an event of the tile that may end paths reaches."""
    for i in range(scan.atoms.shape[0] - 1):
        step, p = _U(i), _U(scan.atoms[_U(i)])
        instances.heights[p], instances.bottoms[p] = scan.before[step, t], scan.lows[step, t]
        for block in range(blocks_of(scan.before[step, t] - scan.lows[step, t])):
            scan.masks[0, step, _U(block)] = scan.reached[step, t, _U(block)]


@kernel
def scan_events(events, columns, window, options, demand, graph, instances, indexes, listing, scan, output, counts,
                n_events, regs):  # fmt: skip
    """Read events, and list or count the matches that they end, from where the last call stopped.

    Parameters
    ----------
    events : Events
    columns : int64, shape (columns, n)
        `RelevantEvents.attributes`, transposed.
    window : Window
    options : Options
    demand : Demand
    graph : Graph, read
        Without indexes.
    instances : Instances
    indexes : Indexes
    listing : Path
    scan : ScannedChain
    output : Matches
    counts : Counts
    n_events : int
    regs : int64, shape (registers,), written

    Returns
    -------
    int
        DONE; GROW_NODES, when a stack is full, or holds more instances than are scanned; OUTPUT_FULL, when the buffers
        are to be emptied; GO_ON, when CHOICE_LEFT is spent.
    """
    events, window, options, demand = Events(*events), Window(*window), Options(*options), Demand(*demand)
    graph, instances, indexes = Graph(*graph), Instances(*instances), Indexes(*indexes)
    listing, scan, output, counts = Path(*listing), ScannedChain(*scan), Matches(*output), Counts(*counts)
    last, clocks, length = _U(scan.atoms.shape[0] - 1), window.clocks, window.length
    status = DONE
    while regs[EVENT] < n_events and status == DONE:
        if regs[CHOICE_LEFT] <= 0:
            status = GO_ON
            break
        if regs[N_PENDING] == 0:
            begin = regs[EVENT]
            n = min(size_of_tile(instances, scan, clocks[_U(begin)], length), n_events - begin)
            if n == 0:
                status = GROW_NODES
                break
            regs[N_PENDING], n_tested = read_tile(events, columns, clocks, length, instances, indexes, scan, begin, n)
            regs[CHOICE_LEFT] -= n_tested
            regs[PENDING], regs[TILE_END] = 0, begin + n
        while regs[PENDING] < regs[N_PENDING] and status == DONE:
            t = _U(scan.rows[_U(regs[PENDING])])
            event = _U(regs[EVENT]) + t
            place = events.places[event] if events.places.shape[0] > 0 else events.positions[event]
            if regs[LISTING] == 0:
                _look_from(instances, scan, t)
                regs[LISTING], regs[ROOT], regs[DEPTH], regs[N_HERE], regs[FIRST_OUT] = 1, 0, 0, 0, regs[N_OUT]
            if regs[ROOT] == 0 and place >= options.report_from:
                status = _list_paths(events, columns, demand, graph, instances, indexes, listing, scan, output,
                                     event, regs)  # fmt: skip
            if status == DONE:
                regs[ROOT] = 1  # what the event ends is listed
                if demand.counting == 1:
                    status = count_end(events, options, counts, place, event, regs)
            if status == DONE:
                regs[LISTING] = 0
                regs[PENDING] += 1
        if status == DONE:
            n = regs[TILE_END] - regs[EVENT]
            for i in range(np.int64(last)):
                instances.heights[_U(scan.atoms[_U(i)])] = scan.before[_U(i), _U(n)]
            regs[EVENT] = regs[TILE_END]
            regs[TILE_END], regs[N_PENDING], regs[PENDING] = 0, 0, 0
    return status


@helper
def _list_paths(events, columns, demand, graph, instances, indexes, listing, scan, output, event, regs):
    """List the paths that end in the instance above the top of the stack of the last step; return the status."""
    n_steps = np.int64(scan.atoms.shape[0])
    path, picked, masks = listing.path, listing.picked, scan.masks
    depth, n_here, n_out, n_values = regs[DEPTH], regs[N_HERE], regs[N_OUT], regs[N_VALUES]
    writes = demand.counting == 0
    into_second = _U(scan.edges[1])
    status = DONE
    if depth == 0:
        step = _U(n_steps - 1)
        a = _U(scan.atoms[step])
        store_instance(events, instances, columns.T, a, event)
        path[0, ATOM], path[0, INSTANCE] = np.int64(a), np.int64(instances.heights[a])
        path[0, NEXT] = _begin(instances, scan, step - _U(1), _U(0))
        depth = 1
    while depth > 0:
        if regs[CHOICE_LEFT] <= 0:
            status = GO_ON
            break
        above = _U(depth - 1)
        step = _U(n_steps - 1 - depth)
        p = _U(scan.atoms[step])
        bottom, lane = instances.bottoms[p], path[above, NEXT]
        regs[CHOICE_LEFT] -= LANES
        if step == _U(0):
            n_max = np.int64(picked.shape[0])
            if writes:
                n_free = (output.positions.shape[0] - n_values) // (depth + 1)
                n_max = min(n_max, output.offsets.shape[0] - 1 - n_out, n_free)
            if n_max <= 0:
                status = OUTPUT_FULL
                break
            n = np.int64(0)
            while lane >= 0 and n < n_max:
                picked[_U(n)] = bottom + lane
                n += 1
                lane = newest_of(masks[above, step], lane - 1)
            if writes:
                n_values = write_leaves(graph, instances, output, path, depth, into_second, picked, n, n_out, n_values)
                n_out += n
            n_here += n
            path[above, NEXT] = lane
            depth -= lane < 0
            continue
        if lane < 0:
            depth -= 1
            continue
        path[above, NEXT] = newest_of(masks[above, step], lane - 1)
        k, here = _U(bottom + lane), _U(depth)
        possible = True
        for back in range(np.int64(step)):
            i = step - _U(1) - _U(back)
            source = _U(scan.atoms[i])
            n = instances.heights[source] - instances.bottoms[source]
            older = instances.origins[p, 0, k] - instances.bottoms[source] if back == 0 else n
            row, left = pair_row(scan, step, i), np.int64(0)
            tested = scan.first[row] < scan.first[row + _U(1)]
            possible = possible and (not tested or _limit_by_instance(scan, instances.values, p, k, EARLIER, row))
            for each in range(blocks_of(n) if possible else 0):
                bits = masks[above, i, _U(each)] & lanes_of(older, each)
                if tested and bits != 0:
                    at = instances.bottoms[source] + (each << LANE_SHIFT)
                    bits = _within_limits(scan, instances.values, np.int64(source), EARLIER, row, at, bits)
                masks[here, i, _U(each)] = bits
                left |= bits
            regs[CHOICE_LEFT] -= n
            possible = possible and left != 0
        if possible:
            path[here, ATOM], path[here, INSTANCE] = np.int64(p), np.int64(k)
            path[here, NEXT] = _begin(instances, scan, step - _U(1), here)
            depth += 1
    regs[DEPTH], regs[N_HERE], regs[N_OUT], regs[N_VALUES] = depth, n_here, n_out, n_values
    return status


@helper
def _begin(instances, scan, j, d):
    """Return the newest instance of step `j` in its mask at a depth, counted from the bottom; or -1."""
    q = _U(scan.atoms[j])
    n = instances.heights[q] - instances.bottoms[q]
    if j > _U(0):
        p = _U(scan.atoms[j - _U(1)])
        _keep_supported(instances, scan, j, n, instances.heights[p] - instances.bottoms[p], d)
    return newest_of(scan.masks[d, j], n - 1)
