"""The loop for pairs, two steps whose events an index finds by equal numbers or a grid: one pass, little memory.

papers: RMA, section 4.  It keeps the same instances as `cer_gpu.backend.joins.matching`, but only what the pair reads:
of an earlier event the columns of the filters, of the index 32 bits for each list and each event.  A list is one of
events whose keys have equal hashes; the filters decide.  Instances out of the window stay in their lists, which end at
the first of them, as they are ordered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.arrays import Array
from cer_gpu.automaton.encoding import (
    BARRING_ATOM,
    COMPARE,
    EQUAL,
    FINAL_ATOM,
    INITIAL_ATOM,
    STACKED_ATOM,
)
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
    count_end,
)
from cer_gpu.backend.joins.filters import HOLDS, Filters, all_pass
from cer_gpu.backend.joins.instances import Graph, Indexes, Instances
from cer_gpu.backend.joins.reading import TILE, store_instance, store_places
from cer_gpu.backend.joins.writing import ATOM, INSTANCE, Path, write_leaves
from cer_gpu.backend.operations import prefetch
from cer_gpu.backend.status import DONE, GO_ON, GROW_NODES, OUTPUT_FULL

# registers of `join_pairs` besides those shared: the end of the tile under way, which begins at EVENT, its later events
# that may end pairs, and how many of these are done
TILE_END, N_PENDING, PENDING, N_REGS = range(N_SHARED_REGS, N_SHARED_REGS + 4)

# columns of `PairIndex.keys`: those of the earlier event and of the later one, and the step of a grid, or 0
EARLIER, LATER, STEP, N_KEY = range(4)

IN_CACHE = 1 << 16
"""Number of lists up to which their heads are not fetched ahead."""

_U = np.uint64
_SPREAD = _U(0x9E3779B97F4A7C15)
"""Fibonacci hashing: the upper bits of a product with it, which wraps around as the numbers of cells do."""
_MIX = _U(0xFF51AFD7ED558CCD)
"""Another factor, for the keys before the last, as sums of products with one factor would be those of sums."""


class PairIndex(NamedTuple):
    """The lists of the earlier events of a pair, by the hashes of their keys.

    Attributes
    ----------
    keys : int64, shape (keys, 3)
        Columns EARLIER to STEP; those of a grid come last.
    bits : int64, shape (3,)
        Bits of the columns of the keys, of the earlier event and of the later one, and of the columns in `stored`.
    list_shift : uint64, shape (1,)
        Bits of a hash that do not tell its list.
    comparisons : int64, shape (comparisons, 3)
        Orders of two numbers for which each comparison of the filters holds (bit 0: greater, 1: less, 2: equal), and
        their columns.
    stored : int64, shape (columns,)
        Columns that are stored of an earlier event.
    kinds_of : int64, shape (symbols,)
        Bit 0 for symbols whose events may begin pairs, bit 1 for those whose events may end them.
    heads : int32, shape (lists,), written
        Newest instance of each list, or -1; a power of two of them.
    links : int32, shape (capacity,), written
        The instance before in its list, or -1.
    kinds : int64, shape (TILE,), written
        Bit 0 for events of a tile that may begin pairs, bit 1 for those that may end them.
    earlier : int64, shape (TILE + 1,), written
        Events of a tile that may begin pairs, by their places in it.
    hashes : uint64, shape (TILE,), written
        Hashes of their keys.
    lists : int64, shape (1 + places, TILE), written
        Lists of each event of a tile: first the one that it is put into, then those that it searches.
    newest : int64, shape (places, TILE), written
        Newest instance of each of the latter when the event came, or -1.
    pending : int64, shape (TILE + 1,), written
        Later events of a tile that may end pairs, by their places in it.
    next : int64, shape (places,), written
        Next instance of each list of the event under way, or -1.
    """

    keys: Any
    bits: Any
    list_shift: Any
    comparisons: Any
    stored: Any
    kinds_of: Any
    heads: Any
    links: Any
    kinds: Any
    earlier: Any
    hashes: Any
    lists: Any
    newest: Any
    pending: Any
    next: Any


def pair_keys(graph: dict[str, Any], conditions: Array) -> Array | None:
    """Return `PairIndex.keys` for a graph of two steps of which each event has one alone, and one edge; else None.

    Parameters
    ----------
    graph
        Fields of `Graph`.
    conditions : CONDITION, shape (conditions,)
    """
    flags, edges = graph["flags"], graph["edges"]
    if len(flags) != 2 or len(edges) != 1 or not len(graph["onward_edges"]):
        return None
    edge = edges[0]
    begins, ends = flags[edge["source"]], flags[edge["target"]]
    plain = begins & (INITIAL_ATOM | FINAL_ATOM | BARRING_ATOM) == INITIAL_ATOM
    plain &= ends & (INITIAL_ATOM | FINAL_ATOM | BARRING_ATOM | STACKED_ATOM) == FINAL_ATOM
    plain &= edge["contiguous"] == 0 and edge["loop"] < 0 and edge["ended"] < 0
    plain &= edge["watched"] == edge["watched_end"] and edge["gaps"] == edge["gaps_end"]
    guaranteed = conditions[edge["first"] : edge["test"]]
    equal = ((guaranteed["kind"] == COMPARE) & (guaranteed["op"] == EQUAL)).all()
    if not (plain and equal) or len(graph["own_tests"]) or len(graph["lookahead"]) or len(graph["distant"]):
        return None
    n_plain = len(guaranteed) - edge["shift"]
    if not len(guaranteed):
        return None  # an index of partitions alone
    steps = graph["index_steps"][edge["index"]]
    bands = [int(steps[1 << band, n_plain + band]) for band in range(edge["shift"])]
    keys = zip(guaranteed["column"], guaranteed["other"], [0] * n_plain + bands, strict=True)
    return np.array([tuple(key) for key in keys], np.int64).reshape(-1, N_KEY)


def pair_index(keys: Array, conditions: Array, columns: Array, capacity: int) -> PairIndex:
    """Return empty lists.

    Parameters
    ----------
    keys : int64, shape (keys, 3)
    conditions : CONDITION, shape (conditions,)
        Those of the filters.
    columns : int64, shape (columns,)
        Those that they read of an earlier event, and those of its key.
    capacity
        Maximum number of instances: a power of two.
    """
    places = 1 << int(np.count_nonzero(keys[:, STEP]))
    read = (keys[:, EARLIER], keys[:, LATER], columns)
    compared = conditions[conditions["kind"] == COMPARE]
    holds = [HOLDS >> 3 * int(op) & 7 for op in compared["op"]]
    comparisons = np.array([holds, compared["column"], compared["other"]], np.int64).T
    return PairIndex(
        keys,
        np.array([np.bitwise_or.reduce(np.int64(1) << (each - 1)) for each in read]),
        np.array([65 - capacity.bit_length()], np.uint64),
        np.ascontiguousarray(comparisons),
        columns,
        np.zeros(0, np.int64),
        np.full(capacity, -1, np.int32),
        np.empty(capacity, np.int32),
        np.empty(TILE, np.int64),
        np.empty(TILE + 1, np.int64),
        np.empty(TILE, np.uint64),
        np.zeros((1 + places, TILE), np.int64),
        np.empty((places, TILE), np.int64),
        np.empty(TILE + 1, np.int64),
        np.full(places, -1, np.int64),
    )


@helper
def _find_lists(pair, columns, partitions, begin, n, side):
    """Find the lists of the events of a tile, as those of one step; those of a later event for each place.

    One pass for each key, so that all that it needs is in registers.  Bit k of a place goes back by a cell in the k-th
    band of the grid.
    """
    keys, hashes, lists, last = pair.keys, pair.hashes, pair.lists, _U(pair.keys.shape[0] - 1)
    n_hashed, step = np.int64(keys.shape[0]) - (keys[last, STEP] > 0), keys[last, STEP]
    places = np.int64(pair.next.shape[0]) if side == LATER else np.int64(1)
    column, shift, back_by_one = _U(keys[last, side]), pair.list_shift[0], _U(step) * _SPREAD
    for place in range(0, places, 2):
        for t in range(n):
            hashes[_U(t)] = _U(partitions[_U(begin + t)] if partitions.shape[0] > 0 else 0)
        band = 0
        for c in range(n_hashed):
            each, back = _U(keys[_U(c), side]), keys[_U(c), STEP]
            if back > 0:
                band += 1
                back *= place >> band & 1
            for t in range(n):
                h = (hashes[_U(t)] ^ _U(columns[each, _U(begin + t)] - back)) * _MIX
                hashes[_U(t)] = h ^ (h >> _U(32))
        row = side + place
        if step > 0:
            for t in range(n):
                h = hashes[_U(t)] + _U(columns[column, _U(begin + t)]) * _SPREAD
                lists[_U(row), _U(t)] = np.int64(h >> shift)
                hashes[_U(t)] = h - back_by_one
        else:
            for t in range(n):
                lists[_U(row), _U(t)] = np.int64((hashes[_U(t)] * _SPREAD) >> shift)
        if step > 0 and side == LATER:
            for t in range(n):
                lists[_U(row + 1), _U(t)] = np.int64(hashes[_U(t)] >> shift)


@kernel
def index_pairs(pair, columns, partitions, bottom):
    """Make the lists anew.

    Parameters
    ----------
    pair : PairIndex
    columns : int64, shape (columns, height)
        Those of the instances of the earlier step.
    partitions : int32, shape (height,), or (0,)
    bottom : int
        First one within reach.
    """
    pair = PairIndex(*pair)
    height = columns.shape[1]
    for each in range(pair.heads.shape[0]):
        pair.heads[_U(each)] = -1
    for begin in range(bottom, height, TILE):
        end = min(begin + TILE, height)
        _find_lists(pair, columns, partitions, begin, end - begin, EARLIER)
        for i in range(begin, end):
            at = _U(pair.lists[0, _U(i - begin)])
            pair.links[_U(i)] = pair.heads[at]
            pair.heads[at] = i


@helper
def _sort_tile(pair, symbols, columns, begin, end):
    """Note which events of a tile may begin pairs, and which may end them; return the number of the former.

    There are no branches, as the processor cannot foresee which of them an event does.
    """
    n_earlier = np.int64(0)
    earlier_bits, later_bits, kinds, rows = pair.bits[EARLIER], pair.bits[LATER], pair.kinds, pair.earlier
    for t in range(end - begin):
        valid = columns[0, _U(begin + t)]
        possible = np.int64(valid & earlier_bits == earlier_bits) | np.int64(valid & later_bits == later_bits) << 1
        kinds[_U(t)] = np.int64(pair.kinds_of[_U(symbols[_U(begin + t)])]) & possible
    for t in range(end - begin):
        rows[_U(n_earlier)] = t
        n_earlier += kinds[_U(t)] & 1
    return n_earlier


@helper
def _read_tile(pair, events, clocks, columns, instances, p, begin, end, height):
    """Write the earlier events of a tile above the top of their stack, and look up the lists of all.

    The lists are on their way from memory before the first event is read; an event becomes an instance when its turn
    comes.
    """
    n_earlier = _sort_tile(pair, events.symbols, columns, begin, end)
    _find_lists(pair, columns, events.partitions, begin, end - begin, EARLIER)
    _find_lists(pair, columns, events.partitions, begin, end - begin, LATER)
    for row in range(pair.lists.shape[0] if pair.heads.shape[0] > IN_CACHE else 0):
        for t in range(end - begin):
            prefetch(pair.heads, _U(pair.lists[_U(row), _U(t)]))
    rows, bits = pair.earlier, pair.bits[2]
    store_places(events, instances, p, begin, rows, n_earlier, height)
    for r in range(n_earlier):
        event, i = _U(begin + rows[_U(r)]), _U(height + r)
        instances.latest[p, i] = clocks[event]
        instances.values[p, 0, i] = columns[0, event] & bits
    for c in range(pair.stored.shape[0]):
        column = _U(pair.stored[_U(c)])
        for r in range(n_earlier):
            instances.values[p, column, _U(height + r)] = columns[column, _U(begin + rows[_U(r)])]


@helper
def _join_tile(pair, bottom, height, n):
    """Put the earlier events of a tile into their lists, and note where the later ones begin to search theirs.

    Returns
    -------
    (int, int)
        Number of the later ones in whose lists there is an instance from `bottom` on, which are noted in
        `PairIndex.pending`; and the new height of the stack.
    """
    heads, lists, n_pending = pair.heads, pair.lists, np.int64(0)
    for at in range(n):
        t = _U(at)
        kind, newest = pair.kinds[t], np.int64(-1)
        for row in range(1, lists.shape[0]):
            head = np.int64(heads[_U(lists[_U(row), t])])
            pair.newest[_U(row - 1), t] = head
            newest = max(newest, head)
        # without branches: what does not count is written over by the next one
        pair.pending[_U(n_pending)] = at
        n_pending += kind >> np.int64(1) & np.int64(newest >= bottom)
        list_of = _U(lists[0, t])
        head = np.int64(heads[list_of])
        pair.links[_U(height)] = head
        heads[list_of] = height if kind & 1 == 1 else head
        height += kind & 1
    return n_pending, height


@helper
def _keep_possible(pair, instances, columns, p, begin, bottom, n_pending):
    """Keep the pending events whose newest candidates pass all comparisons, or are not the last; return their number.

    There are no branches, as the processor cannot foresee which of them pass.
    """
    values, comparisons, n_possible = instances.values, pair.comparisons, np.int64(0)
    for n in range(n_pending):
        t = _U(pair.pending[_U(n)])
        event, possible = _U(begin) + t, np.int64(0)
        for row in range(pair.newest.shape[0]):
            newest = pair.newest[_U(row), t]
            i = _U(max(newest, np.int64(0)))
            good = np.int64(1)
            for line in range(comparisons.shape[0]):
                c = _U(line)
                a, b = _U(comparisons[c, 1]), _U(comparisons[c, 2])
                x, y = values[p, a, i], columns[b, event]
                order = np.int64(x < y) | np.int64(x == y) << np.int64(1)
                good &= comparisons[c, 0] >> order
            more = np.int64(np.int64(pair.links[i]) >= bottom)
            possible |= np.int64(newest >= bottom) & (good | more)
        pair.pending[_U(n_possible)] = np.int64(t)
        n_possible += possible
    return n_possible


@helper
def _bottom_at(window, instances, p, event, height):
    """Drop those of the instances before an event that are out of its reach, and return the first of the others."""
    clock, bottom = window.clocks[event], instances.bottoms[p]
    while bottom < height and clock - instances.latest[p, _U(bottom)] > window.length:
        bottom += 1
    instances.bottoms[p] = bottom
    return bottom


@helper
def _begin_lists(events, window, columns, instances, pair, p, q, event, t):
    """Begin to search the lists of a later event."""
    newest = np.int64(-1)
    for place in range(pair.next.shape[0]):
        newest = max(newest, pair.newest[_U(place), t])
    bottom = _bottom_at(window, instances, p, event, newest + 1)  # above are events of the tile that came later
    for place in range(pair.next.shape[0]):
        newest = pair.newest[_U(place), t]
        for other in range(place):
            if pair.lists[_U(1 + other), t] == pair.lists[_U(1 + place), t]:
                newest = np.int64(-1)  # two places whose hashes are equal have one list
        pair.next[_U(place)] = newest if newest >= bottom else np.int64(-1)
    store_instance(events, instances, columns.T, q, event)


@helper
def _take_newest(pair, bottom):
    """Return the newest instance of the lists of the event under way, and go on to the next one; or -1."""
    newest, of = np.int64(-1), _U(0)
    for place in range(pair.next.shape[0]):
        if pair.next[_U(place)] > newest:
            newest, of = pair.next[_U(place)], _U(place)
    if newest >= 0:
        following = np.int64(pair.links[_U(newest)])
        pair.next[of] = following if following >= bottom else np.int64(-1)
    return newest


@kernel
def join_pairs(events, columns, window, options, demand, filters, graph, instances, indexes, listing, pair, output,
               counts, n_events, regs):  # fmt: skip
    """Read events, and list or count the pairs that they end, from where the last call stopped.

    Parameters
    ----------
    events : Events
    columns : int64, shape (columns, n)
        `RelevantEvents.attributes`, transposed.
    window : Window
    options : Options
    demand : Demand
    filters : Filters
    graph : Graph, read
    instances : Instances
    indexes : Indexes
    listing : Path
    pair : PairIndex
    output : Matches
    counts : Counts
    n_events : int
    regs : int64, shape (registers,), written

    Returns
    -------
    int
        DONE; GROW_NODES, when the stack of the earlier step is full; OUTPUT_FULL, when the buffers are
        to be emptied; GO_ON, when CHOICE_LEFT is spent.
    """
    events, window, options, demand = Events(*events), Window(*window), Options(*options), Demand(*demand)
    filters, graph, instances, indexes = Filters(*filters), Graph(*graph), Instances(*instances), Indexes(*indexes)
    listing, pair, output, counts = Path(*listing), PairIndex(*pair), Matches(*output), Counts(*counts)
    p, q = _U(graph.edges[0].source), _U(graph.edges[0].target)
    status = DONE
    while regs[EVENT] < n_events and status == DONE:
        if regs[N_PENDING] == 0:
            begin, height = regs[EVENT], instances.heights[p]
            if height == instances.positions.shape[1]:
                status = GROW_NODES
                break
            end = min(begin + TILE, begin + instances.positions.shape[1] - height, n_events)
            _read_tile(pair, events, window.clocks, columns, instances, p, begin, end, height)
            bottom = _bottom_at(window, instances, p, _U(begin), height)
            n_pending, instances.heights[p] = _join_tile(pair, bottom, height, end - begin)
            regs[N_PENDING] = _keep_possible(pair, instances, columns, p, begin, bottom, n_pending)
            regs[PENDING], regs[TILE_END] = 0, end
        while regs[PENDING] < regs[N_PENDING] and status == DONE:
            t = _U(pair.pending[_U(regs[PENDING])])
            event = _U(regs[EVENT]) + t
            place = events.places[event] if events.places.shape[0] > 0 else events.positions[event]
            if regs[LISTING] == 0:
                _begin_lists(events, window, columns, instances, pair, p, q, event, t)
                listing.path[0, ATOM], listing.path[0, INSTANCE] = np.int64(q), instances.heights[q]
                regs[LISTING], regs[N_HERE], regs[FIRST_OUT] = 1, 0, regs[N_OUT]
            if place >= options.report_from:
                status = _list_pairs(demand, filters, graph, instances, indexes, listing, pair, output, p, q, regs)
            if status == DONE and demand.counting == 1:
                status = count_end(events, options, counts, place, event, regs)
            if status == DONE:
                regs[LISTING] = 0
                regs[PENDING] += 1
        if status == DONE:
            regs[EVENT], regs[N_PENDING] = regs[TILE_END], 0
    return status


@helper
def _list_pairs(demand, filters, graph, instances, indexes, listing, pair, output, p, q, regs):
    """List the pairs that end in the instance above the top of the stack of the later step; return the status."""
    edge = graph.edges[0]
    first, last, tested = np.int64(edge.first), np.int64(edge.last), np.int64(edge.test)
    plain = tested - np.int64(edge.shift)
    picked, k, bottom = listing.picked, _U(instances.heights[q]), instances.bottoms[p]
    partitioned = instances.partitions.shape[1] > 0
    while True:
        if regs[CHOICE_LEFT] <= 0:
            return GO_ON
        n_max = np.int64(picked.shape[0])
        if demand.counting == 0:
            n_free = (output.positions.shape[0] - regs[N_VALUES]) // 2
            n_max = min(n_max, output.offsets.shape[0] - 1 - regs[N_OUT], n_free)
        if n_max <= 0:
            return OUTPUT_FULL
        n, n_tested, i = np.int64(0), np.int64(0), np.int64(0)
        while n < n_max and i >= 0:
            i = _take_newest(pair, bottom)
            if i < 0:
                break
            n_tested += 1
            same = not partitioned or instances.partitions[p, _U(i)] == instances.partitions[q, k]
            if same and all_pass(filters, instances.values, first, plain, p, _U(i), q, k) and all_pass(
                filters, instances.values, tested, last, p, _U(i), q, k
            ):  # fmt: skip
                picked[_U(n)] = i
                n += 1
        indexes.tested[0, 0] += n_tested
        indexes.tested[0, 1] += n
        regs[CHOICE_LEFT] -= n_tested
        if demand.counting == 0 and n > 0:
            regs[N_VALUES] = write_leaves(graph, instances, output, listing.path, 1, _U(0), picked, n, regs[N_OUT],
                                          regs[N_VALUES])  # fmt: skip
            regs[N_OUT] += n
        regs[N_HERE] += n
        if i < 0:
            return DONE
