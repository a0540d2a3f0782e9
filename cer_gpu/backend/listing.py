"""Listing of the matches that a tECS (`cer_gpu.backend.tecs`) stands for, all of them or a shard.

papers: CORE, theorem 2 and appendix B.1; for shards, the distributed algorithm of papers/000.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.status import DONE, GROW_PATH, OUTPUT_FULL
from cer_gpu.backend.tecs import (
    BOTTOM_MARKED,
    DEPTH,
    FLOOR,
    MARK_COLUMN,
    N_HERE,
    N_OUT,
    N_ROOTS,
    N_VALUES,
    ORDINAL,
    PLACE_COLUMN,
    ROOT,
    TIME_COLUMN,
    WEIGHED,
)

# a shard of the matches: part PART of N_PARTS; of those that end at the open event, from FIRST up to END in the
# order of their listing; what has been distributed so far, modulo the parts
PART, N_PARTS, FIRST, END, DISTRIBUTED = range(5)

_U = np.uint64


class Listing(NamedTuple):
    """State of the listing of the matches of one end.

    Attributes
    ----------
    roots : int32, shape (roots, 3), written
        Each node where matches end, whether it is extended by the end, and the mark of the end.
    stack : int32, shape (depth, 2), written
        Nodes that are still to be visited, and the size of the path above each, inverted where the sibling of the node
        is on the stack already.
    path : int64, shape (depth,), written
    path_marks : int32, shape (depth,), written
        The match so far, from its end.
    """

    roots: Any
    stack: Any
    path: Any
    path_marks: Any


class Shard(NamedTuple):
    """Shard of the matches of an end that is listed; all fields are empty if all of them are.

    Attributes
    ----------
    shard : float64, shape (5,), or (0,), written
    root_weights : float64, shape (roots + 1,), or (0,), written
        Number of matches before each root.
    weights : float64, shape (2**ring,), or (0,), written
        Matches below a node (and its siblings), where its stamp is the ordinal of the event.
    stamps : int64, shape (2**ring,), or (0,), written
    indices : float64, shape (depth,), or (0,), written
        Number of matches before those of each entry of the stack.
    """

    shard: Any
    root_weights: Any
    weights: Any
    stamps: Any
    indices: Any


# ---- shards -----------------------------------------------------------------------------------------------------


@kernel
def weigh(arena, lists, listing, shards, low, limit):
    """Count the matches below the roots, and set which of them are in the shard; return a status.

    papers: the distributed algorithm, where `paths` is a label of each node.  Here only paths that are in the window
    count, and so they are counted anew at each end, node by node below its roots: no more steps than listing takes.
    Weights are float64, exact up to 2**53, and the same in every process, so that the parts are disjoint and
    together the whole at any size.

    Parameters
    ----------
    arena : Arena, read
    lists : Lists
    listing : Listing
    shards : Shard
    low, limit : int
    """
    nodes, mask, regs, roots, stack = arena.nodes, arena.mask, lists.regs, listing.roots, listing.stack
    shard, root_weights, weights, stamps = shards.shard, shards.root_weights, shards.weights, shards.stamps
    floor, stamp = regs[FLOOR], regs[ORDINAL]
    status = DONE
    total = 0.0
    for k in range(regs[N_ROOTS]):
        root_weights[_U(k)] = total
        root = roots[_U(k), 0]
        if root < 0:
            total += 1.0
            continue
        depth = 1
        stack[0, 0] = root
        while depth > 0:
            if depth + 2 >= stack.shape[0]:
                status = GROW_PATH
                break
            node = stack[_U(depth - 1), 0]
            x = _U(node & mask)
            if stamps[x] == stamp:
                depth -= 1
                continue
            ready = True
            weight = 1.0
            onward = nodes[x, 1]
            if onward >= 0:
                weight = weights[_U(onward & mask)]
                if stamps[_U(onward & mask)] != stamp:
                    ready = False
                    stack[_U(depth), 0] = onward
                    depth += 1
            sibling = nodes[x, 2]
            if sibling >= floor and nodes[_U(sibling & mask), 3] >= low:
                weight += weights[_U(sibling & mask)]
                if stamps[_U(sibling & mask)] != stamp:
                    ready = False
                    stack[_U(depth), 0] = sibling
                    depth += 1
            if ready:
                weights[x] = min(weight, 1e300)
                stamps[x] = stamp
                depth -= 1
        if status != DONE:
            break
        total += weights[_U(root & mask)]
    if status == DONE:
        root_weights[_U(regs[N_ROOTS])] = total
        if limit > 0 and total > limit:
            total = np.float64(limit)
        n = shard[N_PARTS]
        shard[FIRST] = np.floor((shard[PART] * total + shard[DISTRIBUTED]) / n) if shard[PART] > 0 else 0.0
        shard[END] = np.floor(((shard[PART] + 1) * total + shard[DISTRIBUTED]) / n) if shard[PART] + 1 < n else total
        shard[DISTRIBUTED] = (shard[DISTRIBUTED] + total % n) % n
        regs[WEIGHED] = 1
    return status


# ---- listing ----------------------------------------------------------------------------------------------------


@helper
def _ends_before(end, first):
    """Return whether what ends at index `end` has nothing from `first` on; beyond 2**52, False when in doubt."""
    return end <= first if first < 4503599627370496.0 else end * (1 + 1e-12) <= first


@kernel
def list_roots(arena, lists, listing, shards, low, position, time, base, limit, output):
    """List the matches that end at the open event, from where the last call stopped; return a status.

    papers: CORE, theorem 2 and appendix B.1: depth first over a time-ordered tECS, left before right, and a right
    child only while its maximum is in the window, so that no step is in vain.  A stack entry is (node, size of the
    path above it); the size is inverted where the sibling of the node is on the stack already.  For a shard,
    `indices` says how many matches come before those of an entry, and what lies outside is passed over.

    Parameters
    ----------
    arena : Arena, read
    lists : Lists
    listing : Listing
    shards : Shard
    low, position, time, base, limit : int
    output : Matches
    """
    nodes, extras, layout, mask, regs = arena.nodes, arena.extras, arena.layout, arena.mask, lists.regs
    roots, stack, path, path_marks = listing.roots, listing.stack, listing.path, listing.path_marks
    shard, root_weights, weights, indices = shards.shard, shards.root_weights, shards.weights, shards.indices
    out_spans, out_times, out_offsets = output.spans, output.times, output.offsets
    out_positions, out_marks = output.positions, output.marks
    shared = shard.shape[0] > 0
    index = 0.0
    time_column, place_column, mark_column = layout[TIME_COLUMN], layout[PLACE_COLUMN], layout[MARK_COLUMN]
    floor = regs[FLOOR]
    n_out, n_values, depth = regs[N_OUT], regs[N_VALUES], regs[DEPTH]
    status = DONE
    if shared and regs[WEIGHED] == 0:
        status = weigh(arena, lists, listing, shards, low, limit)
    first = shard[FIRST] if shared else 0.0
    last = shard[END] if shared else 0.0
    while regs[ROOT] < regs[N_ROOTS] and status == DONE:
        root_mark = roots[regs[ROOT], 2]
        if depth == 0 and shared:
            index = root_weights[_U(regs[ROOT])]
            indices[0] = index
            if index >= last or _ends_before(root_weights[_U(regs[ROOT] + 1)], first):
                regs[ROOT] += 1
                continue
        if depth == 0:
            path[0] = position
            if mark_column >= 0:
                path_marks[0] = root_mark
            stack[0, 0] = roots[regs[ROOT], 0]
            stack[0, 1] = roots[regs[ROOT], 1]
            depth = 1
        while depth > 0:
            depth -= 1
            node = stack[depth, 0]
            size = stack[depth, 1]
            visited = size < 0
            if visited:
                size = ~size
            if shared:
                index = indices[depth]
            outside = False
            start = position
            start_time = time
            start_mark = root_mark
            end_code = node  # a root that begins at this very event is its own bottom node
            while node >= 0:
                x = _U(node & mask)
                if depth + 1 >= stack.shape[0] or size + 1 >= path.shape[0]:
                    status = GROW_PATH
                    break
                end_code = nodes[x, 1]
                own = 1.0
                if shared and end_code >= 0:
                    own = weights[_U(end_code & mask)]
                if not visited:
                    sibling = nodes[x, 2]
                    if sibling >= floor and nodes[_U(sibling & mask), 3] >= low and (not shared or index + own < last):
                        stack[depth, 0] = sibling
                        stack[depth, 1] = size
                        if shared:
                            indices[depth] = index + own
                        depth += 1
                        visited = True
                        if depth + 1 >= stack.shape[0]:
                            status = GROW_PATH
                            break
                if shared and _ends_before(index + own, first):
                    outside = True
                    break
                if end_code < 0:
                    start = extras[x, place_column] if place_column >= 0 else nodes[x, 0] + base
                    if time_column >= 0:
                        start_time = extras[x, time_column]
                    if mark_column >= 0:
                        start_mark = np.int32(extras[x, mark_column])
                    break
                visited = False
                if nodes[x, 0] >= 0:
                    path[size] = extras[x, place_column] if place_column >= 0 else nodes[x, 0] + base
                    if mark_column >= 0:
                        path_marks[size] = extras[x, mark_column]
                    size += 1
                node = end_code
            if outside:
                continue
            length = size + (end_code == BOTTOM_MARKED)
            if status == DONE and (n_out + 1 >= out_offsets.shape[0] or n_values + length > out_positions.shape[0]):
                status = OUTPUT_FULL
                visited = True
            if status != DONE:
                stack[depth, 0] = node
                stack[depth, 1] = ~size if visited else size
                if shared:
                    indices[depth] = index
                depth += 1
                break
            if end_code == BOTTOM_MARKED:
                path[size] = start
                if mark_column >= 0:
                    path_marks[size] = start_mark
            for t in range(length):
                out_positions[_U(n_values + t)] = path[_U(length - 1 - t)]
            if mark_column >= 0:
                for t in range(length):
                    out_marks[_U(n_values + t)] = path_marks[_U(length - 1 - t)]
            n_values += length
            out_spans[0, _U(n_out)] = start
            out_spans[1, _U(n_out)] = position
            if time_column >= 0:
                out_times[0, _U(n_out)] = start_time
                out_times[1, _U(n_out)] = time
            n_out += 1
            out_offsets[_U(n_out)] = n_values
            regs[N_HERE] += 1
            if regs[N_HERE] == limit:
                depth = 0
                regs[ROOT] = regs[N_ROOTS]
        if status == DONE:
            regs[ROOT] += 1
    regs[N_OUT], regs[N_VALUES], regs[DEPTH] = n_out, n_values, depth
    return status
