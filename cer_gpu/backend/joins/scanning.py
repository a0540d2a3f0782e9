"""The loop for chains of comparisons whose windows hold few events: all candidates of a step are tested at once.

papers: RMA, section 4; CORE, theorem 2, whose listing this follows: from the end backwards, the latest candidate first.

With some dozens of instances within reach, comparing each of them is faster than looking one up: one event is compared
with all instances of a step by vector instructions, as their numbers are neighbours in memory.  Each depth of a path
has its own mask for each earlier step: the instances that pass with all events of the path so far (forward checking).
A step of which none is left ends the search at once.

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
from cer_gpu.backend.joins.lanes import (
    ALL_LANES,
    LANES,
    highest,
    lanes_beyond,
    lanes_beyond_one_of_four,
    lanes_equal,
    lanes_with,
    lanes_within,
    n_set,
)
from cer_gpu.backend.joins.reading import store_instance
from cer_gpu.backend.joins.scan_tables import EARLIER, LATER, LESS_THAN, SIGN, ScannedChain
from cer_gpu.backend.joins.writing import ATOM, INSTANCE, NEXT, Path, write_leaves
from cer_gpu.backend.status import DONE, GO_ON, GROW_NODES, OUTPUT_FULL

DEPTH = N_SHARED_REGS
"""Register for the events of the path under way; that of `cer_gpu.backend.joins.matching`."""

_SHIFT = LANES.bit_length() - 1
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_U = np.uint64


@helper
def _blocks(n):
    """Return the number of blocks of LANES instances that hold `n`."""
    return (n + (LANES - 1)) >> _SHIFT


@helper
def _limit(scan, side, line, number):
    """Set what the events at a side of a line must not be beyond, given the number of the event at the other side.

    Returns 1 if no number is small enough, else 0.
    """
    signed, less = number ^ scan.lines[line, SIGN], scan.lines[line, LESS_THAN]
    if less < 0:  # numbers that are to be unequal
        scan.limits[line] = number
    elif side == EARLIER:
        scan.limits[line] = signed - less
    else:
        scan.limits[line] = ~(signed + less)
    return np.int64(less == 1) & np.int64(signed == (_LEAST if side == EARLIER else _GREATEST))


@helper
def _limit_by_event(scan, attributes, event, row):
    """Set the limits of the earlier events of a row, given the later one; return whether there are any that pass."""
    if attributes[event, 0] & scan.bits[LATER, row] != scan.bits[LATER, row]:
        return False
    none = np.int64(0)
    for each in range(scan.first[row], scan.first[row + _U(1)]):
        line = _U(each)
        none |= _limit(scan, EARLIER, line, attributes[event, _U(scan.lines[line, LATER])])
    return none == 0


@helper
def _limit_by_instance(scan, values, a, k, side, row):
    """Set the limits of the events at a side of a row, given instance `k` of atom `a` at the other one."""
    other = 1 - side
    if values[a, 0, k] & scan.bits[_U(other), row] != scan.bits[_U(other), row]:
        return False
    none = np.int64(0)
    for each in range(scan.first[row], scan.first[row + _U(1)]):
        line = _U(each)
        none |= _limit(scan, side, line, values[a, _U(scan.lines[line, _U(other)]), k])
    return none == 0


@helper
def _within_limits(scan, values, p, side, row, at, bits):
    """Return those of the bits of instances of atom `p` from one on, at a side of a row, that are within its limits."""
    lines, limits, which, flip = scan.lines, scan.limits, _U(side), -np.int64(side)
    line, unequal, last = scan.first[row], scan.unequal[row], scan.first[row + _U(1)]
    bits &= lanes_with(values, p, at, 0, scan.bits[which, row])
    while line + 4 <= unequal and bits != 0:
        a, b, c, d = _U(line), _U(line + 1), _U(line + 2), _U(line + 3)
        bits &= ~lanes_beyond_one_of_four(
            values, p, at, lines[a, which], lines[b, which], lines[c, which], lines[d, which], lines[a, SIGN] ^ flip,
            lines[b, SIGN] ^ flip, lines[c, SIGN] ^ flip, lines[d, SIGN] ^ flip, limits[a], limits[b], limits[c],
            limits[d],
        )  # fmt: skip
        line += 4
    while line < unequal and bits != 0:
        a = _U(line)
        bits &= ~lanes_beyond(values, p, at, lines[a, which], lines[a, SIGN] ^ flip, limits[a])
        line += 1
    while line < last and bits != 0:
        bits &= ~lanes_equal(values, p, at, lines[_U(line), which], limits[_U(line)])
        line += 1
    return bits


@helper
def _n_left(scan, d, i, n):
    """Return the number of instances in a mask."""
    n_left = np.int64(0)
    for block in range(_blocks(n)):
        n_left += n_set(scan.masks[d, i, _U(block)])
    return n_left


@helper
def _keep_supported(instances, scan, j, n, n_before, d):
    """Clear those of `n` instances of step `j` in its mask that pass with no instance of the step before.

    Only where fewer of the step before are left: one by one they are compared with all of step `j`.
    """
    i, row, masks = j - _U(1), _pair_row(scan, j, j - _U(1)), scan.masks
    if scan.first[row] == scan.first[row + _U(1)] or _n_left(scan, d, i, n_before) >= _n_left(scan, d, j, n):
        return
    p, q = _U(scan.atoms[i]), np.int64(scan.atoms[j])
    bottom, bottom_before = instances.bottoms[_U(q)], instances.bottoms[p]
    for each in range(_blocks(n)):
        scan.supported[_U(each)] = 0
    for before in range(_blocks(n_before)):
        rest = masks[d, i, _U(before)]
        while rest != 0:
            lane = highest(rest)
            rest ^= np.int64(1) << lane
            k = bottom_before + (before << _SHIFT) + lane
            if not _limit_by_instance(scan, instances.values, p, _U(k), LATER, row):
                continue
            for each in range(_blocks(n)):
                block, at = _U(each), bottom + (each << _SHIFT)
                bits = masks[d, j, block] & lanes_beyond(instances.origins, q, at, 0, 0, k)
                if bits & ~scan.supported[block] != 0:
                    scan.supported[block] |= _within_limits(scan, instances.values, q, LATER, row, at, bits)
    for each in range(_blocks(n)):
        masks[d, j, _U(each)] = scan.supported[_U(each)]


@helper
def _pair_row(scan, j, i):
    """Return the row of a later and an earlier step."""
    return _U(np.int64(j) * scan.atoms.shape[0] + np.int64(i))


@helper
def _reaches(instances, indexes, attributes, scan, event, j, clock, length):
    """Set the first masks of all steps before an event that would be one of step `j`.

    Returns
    -------
    (bool, int)
        True if each step has an instance that passes, and the number of instances that were tested.
    """
    n_tested = np.int64(0)
    for compared in range(1, -1, -1):  # first the steps with comparisons
        i = j
        while i > _U(0):
            i -= _U(1)
            row = _pair_row(scan, j, i)
            if (scan.first[row] < scan.first[row + _U(1)]) != (compared == 1):
                continue
            if not _limit_by_event(scan, attributes, event, row):
                return False, n_tested
            p = np.int64(scan.atoms[i])
            bottom, n_left = instances.bottoms[_U(p)], np.int64(0)
            n = instances.heights[_U(p)] - bottom
            for block in range(_blocks(n)):
                at = bottom + (block << _SHIFT)
                bits = _of_block(n, block)
                if compared == 1:
                    bits = _within_limits(scan, instances.values, p, EARLIER, row, at, bits)
                if i > _U(0):
                    bits &= lanes_within(instances.latest, p, at, clock, length)
                scan.masks[0, i, _U(block)] = bits
                n_left += n_set(bits)
            n_tested += n
            if i == j - _U(1):
                e = _U(scan.edges[j])
                indexes.tested[e, 0] += n
                indexes.tested[e, 1] += n_left
            if n_left == 0:
                return False, n_tested
    return True, n_tested


@helper
def _of_block(n, block):
    """Return the bits of those of the first `n` instances that are in a block."""
    n_here = n - (block << _SHIFT)
    return ALL_LANES if n_here >= LANES else (np.int64(1) << max(n_here, 0)) - 1


@helper
def _newest_of(scan, d, i, lane):
    """Return the newest instance in a mask, from one on to older ones, counted from the bottom; or -1."""
    if lane < 0:
        return np.int64(-1)
    block = lane >> _SHIFT
    bits = scan.masks[d, i, _U(block)] & ((np.int64(2) << (lane & (LANES - 1))) - 1)
    while bits == 0 and block > 0:
        block -= 1
        bits = scan.masks[d, i, _U(block)]
    return (block << _SHIFT) + highest(bits) if bits != 0 else np.int64(-1)


@helper
def _latest_of(instances, scan, i):
    """Return the latest clock of a start that the instances of step `i` in its first mask reach; there is one."""
    p = _U(scan.atoms[i])
    bottom = instances.bottoms[p]
    lane = _newest_of(scan, _U(0), i, instances.heights[p] - bottom - 1)
    latest = instances.latest[p, _U(bottom + lane)]
    while i > _U(0) and lane >= 0:
        latest = max(latest, instances.latest[p, _U(bottom + lane)])
        lane = _newest_of(scan, _U(0), i, lane - 1)
    return latest


@helper
def _drop_old(instances, scan, symbol, graph, clock, length):
    """Raise the bottoms of the stacks below the atoms of a symbol; return whether all are short enough for a scan."""
    n_steps, n_most = scan.atoms.shape[0], scan.masks.shape[2] << _SHIFT
    good = True
    j = _U(0)
    while graph.atoms_of[symbol, j] >= 0:
        a = np.int64(graph.atoms_of[symbol, j])
        good = good and instances.heights[_U(a)] < instances.positions.shape[1]
        s = _U(0)
        while s < _U(n_steps) and scan.atoms[s] != a:
            p = _U(scan.atoms[s])
            bottom, height = instances.bottoms[p], instances.heights[p]
            while bottom < height and clock - instances.latest[p, _U(bottom)] > length:
                bottom += 1
            instances.bottoms[p] = bottom
            good = good and height - bottom <= n_most
            s += _U(1)
        j += _U(1)
    return good


@helper
def _step_of(scan, a):
    """Return the step of an atom."""
    s = _U(0)
    while scan.atoms[s] != np.int64(a):
        s += _U(1)
    return s


@kernel
def scan_events(events, attributes, window, options, demand, graph, instances, indexes, listing, scan, output, counts,
                n_events, regs):  # fmt: skip
    """Read events, and list or count the matches that they end, from where the last call stopped.

    Parameters
    ----------
    events : Events
    attributes : int64, shape (n, columns)
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
    last, length = _U(scan.atoms.shape[0] - 1), window.length
    status = DONE
    while regs[EVENT] < n_events and status == DONE:
        if regs[CHOICE_LEFT] <= 0:
            status = GO_ON
            break
        event = _U(regs[EVENT])
        symbol, clock = _U(events.symbols[event]), window.clocks[event]
        if graph.atoms_of[symbol, _U(0)] < 0:
            regs[EVENT] += 1
            continue
        place = events.places[event] if events.places.shape[0] > 0 else events.positions[event]
        if regs[LISTING] == 0:
            if not _drop_old(instances, scan, symbol, graph, clock, length):
                status = GROW_NODES
                break
            regs[LISTING], regs[ROOT], regs[DEPTH], regs[N_HERE], regs[FIRST_OUT] = 1, 0, 0, 0, regs[N_OUT]
            j = _U(0)
            while graph.atoms_of[symbol, j] >= 0:
                a = _U(graph.atoms_of[symbol, j])
                step = _step_of(scan, a)
                k, reached = _U(instances.heights[a]), step < last
                if reached and step > _U(0):
                    reached, n_tested = _reaches(instances, indexes, attributes, scan, event, step, clock, length)
                    regs[CHOICE_LEFT] -= n_tested
                if reached:
                    store_instance(events, instances, attributes, a, event)
                    instances.latest[a, k] = clock
                if reached and step > _U(0):
                    instances.origins[a, 0, k] = instances.heights[_U(scan.atoms[step - _U(1)])]
                    instances.latest[a, k] = _latest_of(instances, scan, step - _U(1))
                listing.fresh[a] = reached
                j += _U(1)
        j = _U(0)
        while graph.atoms_of[symbol, j] >= 0 and status == DONE and regs[ROOT] == 0 and place >= options.report_from:
            if graph.atoms_of[symbol, j] == scan.atoms[last]:
                status = _list_paths(events, attributes, window, demand, graph, instances, indexes, listing, scan,
                                     output, event, regs)  # fmt: skip
            j += _U(1)
        if status == DONE:
            regs[ROOT] = 1  # what the event ends is listed
        if status == DONE and demand.counting == 1:
            status = count_end(events, options, counts, place, event, regs)
        if status != DONE:
            break
        j = _U(0)
        while graph.atoms_of[symbol, j] >= 0:
            a = _U(graph.atoms_of[symbol, j])
            instances.heights[a] += listing.fresh[a]
            j += _U(1)
        regs[LISTING] = 0
        regs[EVENT] += 1
    return status


@helper
def _list_paths(events, attributes, window, demand, graph, instances, indexes, listing, scan, output, event, regs):
    """List the paths that end in the instance above the top of the stack of the last step; return the status."""
    n_steps = np.int64(scan.atoms.shape[0])
    path, picked, masks = listing.path, listing.picked, scan.masks
    depth, n_here, n_out, n_values = regs[DEPTH], regs[N_HERE], regs[N_OUT], regs[N_VALUES]
    clock, length, writes = window.clocks[event], window.length, demand.counting == 0
    into_second = _U(scan.edges[1])
    status = DONE
    if depth == 0:
        step = _U(n_steps - 1)
        a = _U(scan.atoms[step])
        reached, n_tested = _reaches(instances, indexes, attributes, scan, event, step, clock, length)
        regs[CHOICE_LEFT] -= n_tested
        if not reached:
            return DONE
        store_instance(events, instances, attributes, a, event)
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
                lane = _newest_of(scan, above, step, lane - 1)
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
        path[above, NEXT] = _newest_of(scan, above, step, lane - 1)
        k, here = _U(bottom + lane), _U(depth)
        possible = True
        for back in range(np.int64(step)):
            i = step - _U(1) - _U(back)
            source = _U(scan.atoms[i])
            n = instances.heights[source] - instances.bottoms[source]
            older = instances.origins[p, 0, k] - instances.bottoms[source] if back == 0 else n
            row, left = _pair_row(scan, step, i), np.int64(0)
            tested = scan.first[row] < scan.first[row + _U(1)]
            possible = possible and (not tested or _limit_by_instance(scan, instances.values, p, k, EARLIER, row))
            for each in range(_blocks(n) if possible else 0):
                bits = masks[above, i, _U(each)] & _of_block(older, each)
                if tested and bits != 0:
                    at = instances.bottoms[source] + (each << _SHIFT)
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
    return _newest_of(scan, d, j, n - 1)
