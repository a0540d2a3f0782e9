"""Listing and counting of what a node of a final state stands for.

papers: PCEA, theorem 5.2: without preprocessing and with output-linear delay, as every union that is visited has a
product in the window.  When a node was chosen, its sources wait in an *agenda* until each has a node, too; the unions
below the one that was chosen wait on a stack.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import (
    FIRE_MARK,
    NODE_POSITION,
    NODE_TRANSITION,
    UNION_LEFT,
    UNION_NODE,
    UNION_NUMBER,
    UNION_RIGHT,
)
from cer_gpu.backend.jit import helper
from cer_gpu.backend.products.arena import is_live, leaf_of, n_sources_of, place_of, products_alike
from cer_gpu.backend.saturating import plus, times

_U = np.uint64

# an entry of the stack: a union, the agenda for its node, the number of chosen nodes before it, the height of the
# agendas, and 1 if no other source waits for a node
WAITING, AGENDA, DEPTH, HEIGHT, IS_LAST, N_WAITING = range(6)

# an agenda: a node, the next of its sources, and the agenda after it (-1 if none)
OF_NODE, NEXT_SOURCE, BEHIND, N_AGENDA = range(4)

# a chosen node, with the position of its event and its transition
CHOSEN_NODE, CHOSEN_POSITION, CHOSEN_TRANSITION, N_CHOSEN = range(4)


class ProductListing(NamedTuple):
    """State of the listing.

    Attributes
    ----------
    waiting : int64, shape (longest, 5), written
    agendas : int64, shape (max agendas, 3), written
    chosen : int64, shape (deepest, 3), written
        Nodes of the match under way: columns CHOSEN_NODE to CHOSEN_TRANSITION.
    ordered : int64, shape (deepest, 3), written
        The same, by their positions, the latest first.
    before : int64, shape (deepest, 3), written
        Position, reported position and mark of the nodes chosen before the last one, the earliest first.
    fired : int64, shape (firings + 1, 3), written
        Nodes of the event under way, each with its transition, and what UNION_ALIKE says of it.
    starts : clock, shape (firings + 1,), written
        The latest start of each.
    scratch : int64, shape (ring,), written
        Scratch for choosing among the rows of one end: a hash table.
    """

    waiting: Any
    agendas: Any
    chosen: Any
    ordered: Any
    before: Any
    fired: Any
    starts: Any
    scratch: Any


@helper
def has_space(listing, height, n_waiting, depth):
    """Return whether there is space for the next step of the listing."""
    return (
        n_waiting + 3 < listing.waiting.shape[0]
        and height + 2 < listing.agendas.shape[0]
        and depth + 1 < listing.chosen.shape[0]
    )


@helper
def begin(automaton, nodes, unions, listing, node):
    """Choose the node that ends matches; return the numbers of waiting unions and of chosen nodes."""
    _note_chosen(listing, 0, node, nodes.records[_U(node), NODE_POSITION], nodes.records[_U(node), NODE_TRANSITION])
    if n_sources_of(automaton, nodes, node) == 0:
        return np.int64(0)
    listing.agendas[0, OF_NODE], listing.agendas[0, NEXT_SOURCE], listing.agendas[0, BEHIND] = node, 1, -1
    first = np.int64(nodes.records[_U(node), _U(nodes.first_factor)])
    is_last = n_sources_of(automaton, nodes, node) == 1
    _wait(listing, np.int64(0), first, np.int64(0), np.int64(1), np.int64(1), np.int64(is_last))
    return np.int64(1)


@helper
def _note_chosen(listing, depth, node, position, transition):
    d = _U(depth)
    listing.chosen[d, CHOSEN_NODE] = node
    listing.chosen[d, CHOSEN_POSITION] = position
    listing.chosen[d, CHOSEN_TRANSITION] = transition


@helper
def _wait(listing, n, union, agenda, depth, height, is_last):
    w = _U(n)
    listing.waiting[w, WAITING] = union
    listing.waiting[w, AGENDA] = agenda
    listing.waiting[w, DEPTH] = depth
    listing.waiting[w, HEIGHT] = height
    listing.waiting[w, IS_LAST] = is_last


@helper
def _wait_below(unions, listing, n, union, clock, length):
    """Let the live unions below the topmost one that waits do so in its place; return the number of all that wait."""
    top = _U(n - 1)
    left, right = np.int64(unions.links[union, UNION_LEFT]), np.int64(unions.links[union, UNION_RIGHT])
    if is_live(unions, right, clock, length):
        listing.waiting[top, WAITING] = right
        if is_live(unions, left, clock, length):
            for column in range(N_WAITING):
                listing.waiting[top + _U(1), _U(column)] = listing.waiting[top, _U(column)]
            listing.waiting[top + _U(1), WAITING] = left
            n += 1
    elif is_live(unions, left, clock, length):
        listing.waiting[top, WAITING] = left
    else:
        n -= 1
    return n


@helper
def advance(automaton, nodes, unions, listing, n, clock, length):
    """Choose the node of the topmost waiting union; there is space.

    Returns
    -------
    int, int
        Number of waiting unions, and of the chosen nodes if these are a match, else 0.
    """
    top = _U(n - 1)
    union, agenda = _U(listing.waiting[top, WAITING]), listing.waiting[top, AGENDA]
    depth, height = listing.waiting[top, DEPTH], listing.waiting[top, HEIGHT]
    n = _wait_below(unions, listing, n, union, clock, length)
    node, leaf = np.int64(unions.links[union, UNION_NODE]), leaf_of(unions, union)
    if leaf > 0:
        _note_chosen(listing, depth, node, unions.numbers[union, UNION_NUMBER], leaf - 1)
    else:
        _note_chosen(
            listing, depth, node, nodes.records[_U(node), NODE_POSITION], nodes.records[_U(node), NODE_TRANSITION]
        )
    depth += 1
    next_source = np.int64(0)
    if leaf > 0:
        # continue with the sources that wait
        node = np.int64(-1)
        while agenda >= 0:
            a = _U(agenda)
            owner, following = listing.agendas[a, OF_NODE], listing.agendas[a, NEXT_SOURCE]
            agenda = listing.agendas[a, BEHIND]
            if following < n_sources_of(automaton, nodes, owner):
                node, next_source = owner, following
                break
        if node < 0:
            return n, depth
    a = _U(height)
    listing.agendas[a, OF_NODE], listing.agendas[a, NEXT_SOURCE], listing.agendas[a, BEHIND] = (
        node,
        next_source + 1,
        agenda,
    )
    factor = np.int64(nodes.records[_U(node), _U(nodes.first_factor + next_source)])
    is_last = np.int64(next_source + 1 == n_sources_of(automaton, nodes, node))
    while is_last == 1 and agenda >= 0:
        behind = _U(agenda)
        owner = listing.agendas[behind, OF_NODE]
        is_last = np.int64(listing.agendas[behind, NEXT_SOURCE] >= n_sources_of(automaton, nodes, owner))
        agenda = listing.agendas[behind, BEHIND]
    _wait(listing, n, factor, height, depth, height + 1, is_last)
    return n + 1, np.int64(0)


@helper
def note_before(automaton, nodes, listing, depth):
    """Note the nodes chosen before the last one, for `write_last`."""
    order_chosen(listing, depth)
    for i in range(depth):
        row, of = _U(i), _U(depth - 1 - i)
        position = listing.ordered[of, CHOSEN_POSITION]
        listing.before[row, 0] = position
        listing.before[row, 1] = place_of(nodes, listing.ordered[of, CHOSEN_NODE], position)
        listing.before[row, 2] = automaton.transitions[_U(listing.ordered[of, CHOSEN_TRANSITION]), FIRE_MARK]


@helper
def write_last(automaton, nodes, unions, listing, output, n, depth, n_out, n_values, n_max, clock, length):
    """Write a match for each node of a heap that is the last source, as long as there is space.

    Returns
    -------
    int, int, int
        Number of waiting unions, of rows and of values.  It stops at a node with sources of its own, and after `n_max`
        matches.
    """
    before, last = listing.before, _U(depth - 1)
    n_first = n
    earliest, first_place, end_place = before[0, 0], before[0, 1], before[last, 1]
    timed, marked = output.times.shape[1] > 0, output.marks.shape[0] > 0
    while n >= n_first:  # what waits above the first is of the same heap
        if n_max == 0 or n + 2 >= listing.waiting.shape[0]:
            break
        if n_out + 1 >= output.offsets.shape[0] or n_values + depth >= output.positions.shape[0]:
            break
        u = _U(listing.waiting[_U(n - 1), WAITING])
        leaf = leaf_of(unions, u)
        if leaf == 0:
            break
        n_max -= 1
        n = _wait_below(unions, listing, n, u, clock, length)
        node, position = np.int64(unions.links[u, UNION_NODE]), unions.numbers[u, UNION_NUMBER]
        place = place_of(nodes, node, position)
        mark = automaton.transitions[_U(leaf - 1), FIRE_MARK]
        row = _U(n_out)
        output.spans[0, row] = place if position < earliest else first_place
        output.spans[1, row] = end_place
        if timed:
            start = node if position < earliest else listing.ordered[last, CHOSEN_NODE]
            output.times[0, row] = nodes.records[_U(start), _U(nodes.time)]
            output.times[1, row] = nodes.records[_U(listing.ordered[0, CHOSEN_NODE]), _U(nodes.time)]
        i = 0
        while i < depth:
            if mark > 0 and position < before[_U(i), 0]:
                output.positions[_U(n_values)] = place
                if marked:
                    output.marks[_U(n_values)] = mark
                n_values += 1
                mark = 0
            if before[_U(i), 2] > 0:
                output.positions[_U(n_values)] = before[_U(i), 1]
                if marked:
                    output.marks[_U(n_values)] = before[_U(i), 2]
                n_values += 1
            i += 1
        n_out += 1
        output.offsets[row + _U(1)] = n_values
    return n, n_out, n_values


@helper
def order_chosen(listing, depth):
    """Order the chosen nodes by their positions, the latest first, which is nearly their present order."""
    ordered = listing.ordered
    for i in range(depth):
        position = listing.chosen[_U(i), CHOSEN_POSITION]
        j = i
        while j > 0 and ordered[_U(j - 1), CHOSEN_POSITION] < position:
            for column in range(N_CHOSEN):
                ordered[_U(j), _U(column)] = ordered[_U(j - 1), _U(column)]
            j -= 1
        for column in range(N_CHOSEN):
            ordered[_U(j), _U(column)] = listing.chosen[_U(i), _U(column)]


@helper
def is_consecutive(automaton, nodes, listing, depth):
    """Return whether the selected events of the ordered nodes follow one another in the stream or partition."""
    after = np.int64(-1)
    for i in range(depth):
        node = _U(listing.ordered[_U(i), CHOSEN_NODE])
        if automaton.transitions[_U(listing.ordered[_U(i), CHOSEN_TRANSITION]), FIRE_MARK] == 0:
            continue
        number = nodes.records[node, _U(nodes.ordinal if nodes.ordinal >= 0 else NODE_POSITION)]
        if after >= 0 and number != after and number + 1 != after:
            return False
        after = number
    return True


@helper
def write(automaton, nodes, listing, output, depth, n_out, n_values):
    """Write the match of the ordered nodes; return the new number of values; there is space."""
    row, ordered = _U(n_out), listing.ordered
    for side, at in ((0, _U(depth - 1)), (1, _U(0))):
        node = ordered[at, CHOSEN_NODE]
        output.spans[side, row] = place_of(nodes, node, ordered[at, CHOSEN_POSITION])
        if output.times.shape[1] > 0:
            output.times[side, row] = nodes.records[_U(node), _U(nodes.time)]
    i = depth - 1
    while i >= 0:
        node, position = ordered[_U(i), CHOSEN_NODE], ordered[_U(i), CHOSEN_POSITION]
        mark = automaton.transitions[_U(ordered[_U(i), CHOSEN_TRANSITION]), FIRE_MARK]
        # several partial matches may hold one event
        while i > 0 and ordered[_U(i - 1), CHOSEN_POSITION] == position:
            i -= 1
            other = automaton.transitions[_U(ordered[_U(i), CHOSEN_TRANSITION]), FIRE_MARK]
            mark = automaton.unions[_U(mark), _U(other)]
        if mark > 0:
            output.positions[_U(n_values)] = place_of(nodes, node, position)
            if output.marks.shape[0] > 0:
                output.marks[_U(n_values)] = mark
            n_values += 1
        i -= 1
    output.offsets[row + _U(1)] = n_values
    return n_values


@helper
def count_products(automaton, nodes, unions, listing, node, clock, length):
    """Count what a node stands for, as a product of sums; uint64, saturating.

    Returns
    -------
    uint64
        The number; 0 if the stack was too short (a node stands for one match at least).
    """
    waiting, agendas = listing.waiting, listing.agendas
    # a frame is a node whose factors are multiplied: the node, the next factor, the unions that waited before it; its
    # product and the sum over its siblings are in the row after it
    n, top = np.int64(0), np.int64(0)
    agendas[0, OF_NODE], agendas[0, NEXT_SOURCE], agendas[0, BEHIND] = node, 0, 0
    agendas[1, 0], agendas[1, 1] = 1, 0
    product = _U(0)
    while True:
        if not (2 * top + 4 < agendas.shape[0] and n + 3 < waiting.shape[0]):
            return _U(0)
        frame, values = _U(2 * top), _U(2 * top + 1)
        owner, factor = agendas[frame, OF_NODE], agendas[frame, NEXT_SOURCE]
        if factor < n_sources_of(automaton, nodes, owner):
            # sum over the heap of the factor: its first union
            union = np.int64(nodes.records[_U(owner), _U(nodes.first_factor + factor)])
            agendas[frame, NEXT_SOURCE] += 1
            waiting[_U(n), WAITING] = -1  # the end of the heap
            waiting[_U(n + 1), WAITING] = union
            n += 2
            total = _U(0)
        else:
            product = _U(agendas[values, 0])
            if top == 0:
                return product
            # the node is a summand of the heap under way
            total = plus(_U(agendas[values, 1]), product)
            top -= 1
            frame, values = _U(2 * top), _U(2 * top + 1)
        descended = False
        while waiting[_U(n - 1), WAITING] >= 0:
            if n + 3 >= waiting.shape[0]:
                return _U(0)
            below = np.int64(waiting[_U(n - 1), WAITING])
            n -= 1
            alike = np.int64(1)
            u = _U(0)
            while below >= 0 and alike > 0 and n + 3 < waiting.shape[0]:  # down at the left, which is most often all
                u = _U(below)
                alike = products_alike(unions, u)
                total = plus(total, _U(alike))
                right, left = np.int64(unions.links[u, UNION_RIGHT]), np.int64(unions.links[u, UNION_LEFT])
                if is_live(unions, right, clock, length):
                    waiting[_U(n), WAITING] = right
                    n += 1
                below = left if is_live(unions, left, clock, length) else np.int64(-1)
            if below >= 0:
                waiting[_U(n), WAITING] = below
                n += 1
            if alike > 0:
                continue
            inner = np.int64(unions.links[u, UNION_NODE])
            top += 1
            if 2 * top + 4 >= agendas.shape[0]:
                return _U(0)
            agendas[_U(2 * top), OF_NODE], agendas[_U(2 * top), NEXT_SOURCE] = inner, 0
            agendas[_U(2 * top + 1), 0] = 1
            agendas[_U(2 * top + 1), 1] = np.int64(total)
            descended = True
            break
        if not descended:
            n -= 1
            agendas[values, 0] = np.int64(times(_U(agendas[values, 0]), total))


@helper
def write_end(nodes, output, node, n_out, n_values):
    """Write the place and time of a node as a match without positions; there is space."""
    row = _U(n_out)
    position = nodes.records[_U(node), NODE_POSITION]
    output.spans[0, row] = output.spans[1, row] = place_of(nodes, node, position)
    if output.times.shape[1] > 0:
        output.times[0, row] = output.times[1, row] = nodes.records[_U(node), _U(nodes.time)]
    output.offsets[row + _U(1)] = n_values
