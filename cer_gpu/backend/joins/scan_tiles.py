"""Reading of events for scans (`cer_gpu.backend.joins.scanning`), in tiles.

Each is read one step after the other, and each step by one test after the other: the processor can foresee what is
done with the next event, and has in its registers what a test needs.  An event that lacks a number that its step
compares, or passes with no instance of a step before, is no instance.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper
from cer_gpu.backend.joins.lanes import (
    ALL_LANES,
    LANES,
    highest,
    lanes_beyond,
    lanes_beyond_one_of_four,
    lanes_equal,
    lanes_within,
    n_set,
)
from cer_gpu.backend.joins.reading import TILE, store_places
from cer_gpu.backend.joins.scan_tables import EARLIER, LATER, LESS_THAN, SIGN

LANE_SHIFT = LANES.bit_length() - 1
"""Logarithm of LANES to base 2."""

_LEAST = np.iinfo(np.int64).min
_U = np.uint64


@helper
def blocks_of(n):
    """Return the number of blocks of LANES instances that hold `n`."""
    return (n + (LANES - 1)) >> LANE_SHIFT


@helper
def lanes_of(n, block):
    """Return the bits of those of the first `n` instances that are in a block."""
    n_here = n - (block << LANE_SHIFT)
    return ALL_LANES if n_here >= LANES else (np.int64(1) << max(n_here, 0)) - 1


@helper
def newest_of(mask, lane):
    """Return the newest instance in a mask, from one on to older ones, counted from the bottom; or -1."""
    if lane < 0:
        return np.int64(-1)
    block = lane >> LANE_SHIFT
    bits = mask[_U(block)] & ((np.int64(2) << (lane & (LANES - 1))) - 1)
    while bits == 0 and block > 0:
        block -= 1
        bits = mask[_U(block)]
    return (block << LANE_SHIFT) + highest(bits) if bits != 0 else np.int64(-1)


@helper
def pair_row(scan, j, i):
    """Return the row of a later and an earlier step."""
    return _U(np.int64(j) * scan.atoms.shape[0] + np.int64(i))


@helper
def size_of_tile(instances, scan, clock, length):
    """Return the number of events that the stacks have space for, at most TILE; 0 if they are too many for a scan."""
    n_free, n_most = np.int64(TILE), (scan.masks.shape[2] << LANE_SHIFT) - TILE
    for i in range(scan.atoms.shape[0] - 1):
        p = _U(scan.atoms[_U(i)])
        height = instances.heights[p]
        instances.bottoms[p] = _raised(instances, p, instances.bottoms[p], height, clock, length)
        n_free = min(n_free, instances.positions.shape[1] - height)
        if height - instances.bottoms[p] > n_most:
            return np.int64(0)
    return n_free


@helper
def _raised(instances, p, bottom, height, clock, length):
    """Return the first of the instances from `bottom` on that an event of a clock can reach."""
    while bottom < height and clock - instances.latest[p, _U(bottom)] > length:
        bottom += 1
    return bottom


@helper
def read_tile(events, columns, clocks, length, instances, indexes, scan, begin, n):
    """Store the events of a tile that reach a start, and note those that may end paths.

    Returns
    -------
    (int, int)
        The number of the latter, and the number of instances that were tested.
    """
    for t in range(n):
        scan.kinds[_U(t)] = scan.steps_of[_U(events.symbols[_U(begin + t)])]
    n_steps, n_here, n_tested = scan.atoms.shape[0], np.int64(0), np.int64(0)
    for each in range(n_steps):
        step = _U(each)
        _limit_by_event(columns, scan, step, begin, n)
        n_here = np.int64(0)
        for t in range(n):  # without branches, as the processor cannot foresee which events may be the step
            scan.rows[_U(n_here)] = t
            n_here += scan.kinds[_U(t)] >> each & 1
        for before in range(each):
            i = _U(scan.sources[step, _U(before)])
            n_here, n_new = _keep_reaching(clocks, length, instances, indexes, scan, step, i, begin, n_here)
            n_tested += n_new
        if each < n_steps - 1:
            _store_step(events, columns, clocks, instances, scan, step, begin, n, n_here)
    return n_here, n_tested


@helper
def _limit_by_event(columns, scan, step, begin, n):
    """Set the limits of the earlier events for all events of a tile as one step, given them.

    The step is cleared of those that lack a number, and of those for which no number is small enough.
    """
    kinds, limits, bit, needed = scan.kinds, scan.limits, np.int64(1) << np.int64(step), scan.bits[step]
    for t in range(n):
        lacks = np.int64(columns[0, _U(begin + t)] & needed != needed)
        kinds[_U(t)] &= ~(bit & -lacks)
    for each in range(scan.first[pair_row(scan, step, _U(0))], scan.first[pair_row(scan, step, step)]):
        line = _U(each)
        column, sign, less = _U(scan.lines[line, LATER]), scan.lines[line, SIGN], scan.lines[line, LESS_THAN]
        if less < 0:  # numbers that are to be unequal
            for t in range(n):
                limits[line, _U(t)] = columns[column, _U(begin + t)]
            continue
        for t in range(n):
            signed = columns[column, _U(begin + t)] ^ sign
            limits[line, _U(t)] = signed - less
            kinds[_U(t)] &= ~(bit & -less & -np.int64(signed == _LEAST))


@helper
def _keep_reaching(clocks, length, instances, indexes, scan, j, i, begin, n_here):
    """Keep those of `ScannedChain.rows` that pass as step `j` with an instance of step `i`; note which, in `reached`.

    All of them test as many blocks of instances, so that the processor can foresee what comes next.

    Returns
    -------
    (int, int)
        Their number, and that of the instances that were tested.
    """
    p, row, rows, reached = np.int64(scan.atoms[i]), pair_row(scan, j, i), scan.rows, scan.reached
    bottom, n_blocks = instances.bottoms[_U(p)], np.int64(0)
    n_tested, n_passed, n_kept = np.int64(0), np.int64(0), np.int64(0)
    for r in range(n_here):
        t = _U(rows[_U(r)])
        height = scan.before[i, t]
        bottom = _raised(instances, _U(p), bottom, height, clocks[_U(begin) + t], length)
        scan.lows[i, t] = bottom
        n_blocks = max(n_blocks, blocks_of(height - bottom))
        n_tested += height - bottom
    _test_blocks(clocks, length, instances, scan, p, i, row, begin, n_here, n_blocks)
    for r in range(n_here):
        t, n_left = _U(rows[_U(r)]), np.int64(0)
        for block in range(n_blocks):
            n_left += n_set(reached[i, t, _U(block)])
        rows[_U(n_kept)] = np.int64(t)
        n_kept += np.int64(n_left > 0)
        n_passed += n_left
    if i == j - _U(1):
        e = _U(scan.edges[j])
        indexes.tested[e, 0] += n_tested
        indexes.tested[e, 1] += n_passed
    return n_kept, n_tested


@helper
def _test_blocks(clocks, length, instances, scan, p, i, row, begin, n_here, n_blocks):
    """Test blocks of instances of atom `p`, step `i`, with each of `ScannedChain.rows`, by one test after the other.

    All that a test needs stays in the registers of the processor.
    """
    rows, reached, lines, limits, values = scan.rows, scan.reached, scan.lines, scan.limits, instances.values
    last_place = np.int64(values.shape[2]) - LANES
    for r in range(n_here):
        t = _U(rows[_U(r)])
        bottom = scan.lows[i, t]
        n = scan.before[i, t] - bottom
        for block in range(n_blocks):
            reached[i, t, _U(block)] = lanes_of(n, block)
            if i > _U(0):
                at = min(bottom + (block << LANE_SHIFT), last_place)
                reached[i, t, _U(block)] &= lanes_within(instances.latest, p, at, clocks[_U(begin) + t], length)
    line, unequal, last = scan.first[row], scan.unequal[row], scan.first[row + _U(1)]
    while line + 4 <= unequal:
        a, b, c, d = _U(line), _U(line + 1), _U(line + 2), _U(line + 3)
        column_a, column_b = lines[a, EARLIER], lines[b, EARLIER]
        column_c, column_d = lines[c, EARLIER], lines[d, EARLIER]
        sign_a, sign_b, sign_c, sign_d = lines[a, SIGN], lines[b, SIGN], lines[c, SIGN], lines[d, SIGN]
        for r in range(n_here):
            t = _U(rows[_U(r)])
            bottom = scan.lows[i, t]
            for block in range(n_blocks):
                at = min(bottom + (block << LANE_SHIFT), last_place)
                reached[i, t, _U(block)] &= ~lanes_beyond_one_of_four(
                    values, p, at, column_a, column_b, column_c, column_d, sign_a, sign_b, sign_c, sign_d,
                    limits[a, t], limits[b, t], limits[c, t], limits[d, t],
                )  # fmt: skip
        line += 4
    if line == last:
        return
    for r in range(n_here):
        t = _U(rows[_U(r)])
        bottom = scan.lows[i, t]
        for block in range(n_blocks):
            at, bits = min(bottom + (block << LANE_SHIFT), last_place), reached[i, t, _U(block)]
            for each in range(line, unequal):
                a = _U(each)
                bits &= ~lanes_beyond(values, p, at, lines[a, EARLIER], lines[a, SIGN], limits[a, t])
            for each in range(unequal, last):
                bits &= ~lanes_equal(values, p, at, lines[_U(each), EARLIER], limits[_U(each), t])
            reached[i, t, _U(block)] = bits


@helper
def _store_step(events, columns, clocks, instances, scan, step, begin, n, n_here):
    """Store those of the `n` events of a tile that are in `ScannedChain.rows` above the top of the stack of a step.

    One column after the other, as their numbers are neighbours in memory.
    """
    a, rows, kinds, bit = _U(scan.atoms[step]), scan.rows, scan.kinds, np.int64(1) << np.int64(step)
    height = instances.heights[a]
    store_places(events, instances, a, begin, rows, n_here, height)
    for c in range(instances.values.shape[1]):
        for r in range(n_here):
            instances.values[a, _U(c), _U(height + r)] = columns[_U(c), _U(begin + rows[_U(r)])]
    for r in range(n_here):
        place, k = _U(rows[_U(r)]), _U(height + r)
        if step == _U(0):
            instances.latest[a, k] = clocks[_U(begin) + place]
        else:
            instances.origins[a, 0, k] = scan.before[step - _U(1), place]
            instances.latest[a, k] = _latest_of(instances, scan, step - _U(1), place)
    for t in range(n):
        kinds[_U(t)] &= ~bit
    for r in range(n_here):
        kinds[_U(rows[_U(r)])] |= bit
    for t in range(n):
        scan.before[step, _U(t)] = height
        height += kinds[_U(t)] >> np.int64(step) & 1
    scan.before[step, _U(n)] = height
    instances.heights[a] = height


@helper
def _latest_of(instances, scan, i, t):
    """Return the latest clock of a start that the instances of step `i` reach which an event reaches; there is one."""
    p, mask = _U(scan.atoms[i]), scan.reached[i, t]
    bottom = scan.lows[i, t]
    lane = newest_of(mask, scan.before[i, t] - bottom - 1)
    latest = instances.latest[p, _U(bottom + lane)]
    while i > _U(0) and lane >= 0:
        latest = max(latest, instances.latest[p, _U(bottom + lane)])
        lane = newest_of(mask, lane - 1)
    return latest
