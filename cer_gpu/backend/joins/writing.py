"""Writing of matches: the path under way, from its end, becomes a row of the buffers (`cer_gpu.backend.joins`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper

# an entry of the path, from the end: atom, instance, the edge that is searched, the next candidate, the edge by which
# the entry was found, and what comes next: to look for events before it, to take it for a start, to test the filters
# that it decides, or those that the edge decides
ATOM, INSTANCE, SEARCHED, NEXT, VIA_EDGE, PHASE, N_ENTRY = range(7)

_U = np.uint64


class Path(NamedTuple):
    """State of the listing.

    Attributes
    ----------
    path : int64, shape (longest, 6), written
    fresh : int64, shape (atoms,), written
        1 for atoms to which the event under way was pushed.
    order : int64, shape (ring,), written
        Scratch for choosing among the rows of one end: a hash table.
    picked : int64, shape (picks,), written
        Starts that are listed at once.
    partners : int64, shape (1 + most,), written
        Instances of the source of the first far edge into the end that pass with it, newest first, after their number;
        -1 if they are too many, or unknown.
    """

    path: Any
    fresh: Any
    order: Any
    picked: Any
    partners: Any


@helper
def reported_place(instances, q, i):
    """Return the position that is reported of an instance."""
    return instances.places[q, i] if instances.places.shape[1] > 0 else instances.positions[q, i]


@helper
def write_match(graph, instances, output, path, depth, n_out, n_values):
    """Write the match of a path, and return the new number of values; there is space."""
    top, end = _U(depth - 1), _U(0)
    row = _U(n_out)
    first, last = _U(path[top, ATOM]), _U(path[end, ATOM])
    output.spans[0, row] = reported_place(instances, first, _U(path[top, INSTANCE]))
    output.spans[1, row] = reported_place(instances, last, _U(path[end, INSTANCE]))
    if output.times.shape[1] > 0:
        output.times[0, row] = instances.times[first, _U(path[top, INSTANCE])]
        output.times[1, row] = instances.times[last, _U(path[end, INSTANCE])]
    for back in range(depth):
        entry = _U(depth - 1 - back)
        q = _U(path[entry, ATOM])
        if graph.marks[q] > 0:
            output.positions[_U(n_values)] = reported_place(instances, q, _U(path[entry, INSTANCE]))
            if output.marks.shape[0] > 0:
                output.marks[_U(n_values)] = graph.marks[q]
            n_values += 1
    output.offsets[row + _U(1)] = n_values
    return n_values


@helper
def write_leaves(graph, instances, output, path, depth, e, picked, n, n_out, n_values):
    """Write `n` matches with picked starts, which share the rest of the path; return the number of values."""
    p = _U(graph.edges[e].source)
    end = _U(path[0, INSTANCE])
    last = _U(path[0, ATOM])
    end_place = reported_place(instances, last, end)
    is_marked, marked = np.int64(graph.marks[p] > 0), output.marks.shape[0] > 0
    width = is_marked
    for back in range(depth):
        width += graph.marks[_U(path[_U(back), ATOM])] > 0
    for r in range(n):
        start = reported_place(instances, p, _U(picked[_U(r)]))
        output.spans[0, _U(n_out + r)] = start
        output.spans[1, _U(n_out + r)] = end_place
        output.offsets[_U(n_out + 1 + r)] = n_values + (r + 1) * width
        if is_marked == 1:
            output.positions[_U(n_values + r * width)] = start
    if output.times.shape[1] > 0:
        for r in range(n):
            output.times[0, _U(n_out + r)] = instances.times[p, _U(picked[_U(r)])]
            output.times[1, _U(n_out + r)] = instances.times[last, end]
    if marked and is_marked == 1:
        for r in range(n):
            output.marks[_U(n_values + r * width)] = graph.marks[p]
    column = is_marked
    for back in range(depth):
        entry = _U(depth - 1 - back)
        q = _U(path[entry, ATOM])
        if graph.marks[q] == 0:
            continue
        place = reported_place(instances, q, _U(path[entry, INSTANCE]))
        for r in range(n):
            output.positions[_U(n_values + r * width + column)] = place
        if marked:
            for r in range(n):
                output.marks[_U(n_values + r * width + column)] = graph.marks[q]
        column += 1
    return n_values + n * width
