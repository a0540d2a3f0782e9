"""The loop of parallelised automata: relevant events -> nodes and unions -> matches.

papers: PCEA, algorithm 1.  All transitions of one event look at what was there before it (FireTransitions); then the
matches that it ends are listed; then its partial matches are put into the lists that wait for them
(UpdateIndices).  Lists that several transitions gather alike are in the look-up table once.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.encoding import (
    CONSUME_NONE,
    FIRE_EQUAL,
    FIRE_EQUALS_END,
    FIRE_FED,
    FIRE_FEED,
    FIRE_FEEDS_END,
    FIRE_FINAL,
    FIRE_SOURCE,
    FIRE_SOURCES_END,
    LINK_KEY,
    LINK_LIST,
    ROW_VALUES,
    UNION_START,
)
from cer_gpu.backend.arguments import Counts, Demand, Events, Matches, Options, Window
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.joins.choosing import (
    DISTRIBUTED,
    EVENT,
    FIRST_OUT,
    LISTING,
    N_HERE,
    N_OUT,
    N_SHARED_REGS,
    N_VALUES,
    ROOT,
    choose_rows,
    count_end,
)
from cer_gpu.backend.products.arena import (
    DEEPEST,
    N_NODES,
    N_UNIONS,
    Nodes,
    Unions,
    add_product,
    alike_in,
    leaf_bits,
    united,
)
from cer_gpu.backend.products.enumeration import (
    DEPTH,
    HEIGHT,
    IS_LAST,
    ProductListing,
    advance,
    begin,
    count_products,
    has_space,
    is_consecutive,
    note_before,
    order_chosen,
    write,
    write_end,
    write_last,
)
from cer_gpu.backend.products.keys import (
    Automaton,
    KeyTable,
    key_row_of,
    look_ahead,
    look_below,
    look_up_key,
    slots_row_of,
)
from cer_gpu.backend.saturating import MAX_SIGNED, plus
from cer_gpu.backend.status import DONE, GROW_NODES, GROW_PATH, OUTPUT_FULL, TOO_MANY

# registers besides those shared: how many transitions the event fired; the unions that wait; a match that is to
# be written; the first event whose keys are not looked at ahead
N_FIRED, N_WAITING, PENDING, AHEAD, N_REGS = range(N_SHARED_REGS, N_SHARED_REGS + 5)

FIRED_NODE, FIRED_TRANSITION, FIRED_ALIKE = range(3)
"""Columns of `ProductListing.fired`."""

MAX_IN_CACHE = 1 << 16
"""Unions that the processor has at hand: heaps of more are read ahead."""

_U = np.uint64


@kernel
def update_events(events, attributes, window, options, demand, automaton, nodes, unions, keys, listing, output, counts,
                  n_events, regs):  # fmt: skip
    """Read events, and list or count the matches that they end, from where the last call stopped.

    Parameters
    ----------
    events : Events
    attributes : int64, shape (n, columns)
        The bits of the valid columns, then the columns.
    window : Window
    options : Options
    demand : Demand
    automaton : Automaton
    nodes : Nodes
    unions : Unions
    keys : KeyTable
    listing : ProductListing
    output : Matches
    counts : Counts
    n_events : int
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        DONE; GROW_NODES, when nodes, unions or keys need more space; OUTPUT_FULL, when the buffers are to be emptied up
        to FIRST_OUT (or made larger, if that is 0); GROW_PATH, when the listing needs more space; TOO_MANY;
        GO_ON, when CHOICE_LEFT is spent.
    """
    events, window, options, demand = Events(*events), Window(*window), Options(*options), Demand(*demand)
    automaton, nodes, unions, keys = Automaton(*automaton), Nodes(*nodes), Unions(*unions), KeyTable(*keys)
    listing, output, counts = ProductListing(*listing), Matches(*output), Counts(*counts)
    status = DONE
    while regs[EVENT] < n_events and status == DONE:
        event = _U(regs[EVENT])
        clock = window.clocks[event]
        if regs[EVENT] >= regs[AHEAD]:
            begin_ahead = regs[EVENT]
            regs[AHEAD] = min(begin_ahead + keys.slots.shape[0], n_events)
            look_ahead(automaton, keys, events.symbols, events.partitions, attributes, begin_ahead, regs[AHEAD])
            if nodes.tops[N_UNIONS] > MAX_IN_CACHE and demand.only_ends == 0:
                lists = demand.counting == 0 or demand.gathered == 1
                look_below(automaton, keys, nodes, unions, events.symbols, window, begin_ahead, regs[AHEAD], lists)
        if regs[LISTING] == 0:
            if not _has_space_for(automaton, nodes, unions, keys, _U(events.symbols[event])):
                status = GROW_NODES
                break
            _fire(events, attributes, window, automaton, nodes, unions, keys, listing, event, regs)
            regs[LISTING], regs[ROOT], regs[N_WAITING], regs[PENDING], regs[N_HERE] = 1, 0, -1, 0, 0
            regs[FIRST_OUT], regs[DISTRIBUTED] = regs[N_OUT], 0
        place = events.places[event] if events.places.shape[0] > 0 else events.positions[event]
        if place >= options.report_from:
            status = _list_event(options, demand, automaton, nodes, unions, listing, output, clock, window.length,
                                 place, regs)  # fmt: skip
        ours = demand.n_shards == 1 or place % demand.n_shards == demand.shard
        if status == DONE and demand.counting == 1 and ours:
            status = count_end(events, options, counts, place, event, regs)
        if status != DONE:
            break
        _feed_lists(events, attributes, window, automaton, nodes, unions, keys, listing, event, regs)
        if options.consume != CONSUME_NONE and regs[N_HERE] > 0:
            partition = events.partitions[event] if keys.forgotten.shape[0] > 1 else np.int32(0)
            keys.forgotten[_U(partition)] = events.positions[event]
        regs[LISTING] = 0
        regs[EVENT] += 1
    return status


@helper
def _has_space_for(automaton, nodes, unions, keys, symbol):
    """Return whether there is space for whatever an event of a symbol adds."""
    n_fired = automaton.firsts[symbol + _U(1)] - automaton.firsts[symbol]
    n_feeds = np.int64(0)
    for i in range(automaton.firsts[symbol], automaton.firsts[symbol + _U(1)]):
        t = _U(automaton.fired[_U(i)])
        n_feeds += automaton.transitions[t, FIRE_FEEDS_END] - automaton.transitions[t, FIRE_FEED]
    if nodes.tops[N_NODES] + n_fired > nodes.records.shape[0]:
        return False
    if nodes.tops[N_UNIONS] + n_feeds * DEEPEST > unions.starts.shape[0]:
        return False
    n_keys = automaton.first_keys[symbol + _U(1)] - automaton.first_keys[symbol]
    enough = True
    for number in range(keys.counts.shape[0]):
        table = _U(number)
        enough = enough and 2 * (keys.counts[table] + n_keys) <= keys.bases[table + _U(1)] - keys.bases[table]
    return enough


@helper
def _fire(events, attributes, window, automaton, nodes, unions, keys, listing, event, regs):
    """Fire all transitions of an event: each makes a node of the partial matches that it gathers."""
    symbol = _U(events.symbols[event])
    clock, length = window.clocks[event], window.length
    position = events.positions[event]
    partition = np.int64(events.partitions[event]) if events.partitions.shape[0] > 0 else np.int64(0)
    ahead = slots_row_of(keys, event)
    for i in range(automaton.first_keys[symbol], automaton.first_keys[symbol + _U(1)]):
        look_up_key(automaton, keys, attributes, event, ahead, partition, position, automaton.needed[_U(i)])
    first_list = _U(ROW_VALUES + automaton.columns.shape[1])
    valid = attributes[event, 0] if attributes.shape[1] > 0 else np.int64(0)
    n = np.int64(0)
    for i in range(automaton.firsts[symbol], automaton.firsts[symbol + _U(1)]):
        t = _U(automaton.fired[_U(i)])
        fires = True
        for j in range(automaton.transitions[t, FIRE_EQUAL], automaton.transitions[t, FIRE_EQUALS_END]):
            a, b = automaton.equals[_U(j), 0], automaton.equals[_U(j), 1]
            both = (valid >> np.int64(a - 1)) & (valid >> np.int64(b - 1)) & 1 == 1
            fires = fires and both and attributes[event, _U(a)] == attributes[event, _U(b)]
        first, last = automaton.transitions[t, FIRE_SOURCE], automaton.transitions[t, FIRE_SOURCES_END]
        start, alike = clock, np.int64(1)
        fed = automaton.transitions[t, FIRE_FED] == 1
        factor = _U(nodes.first_factor)
        # the node is made above the top, and counts once all sources are there
        node = _U(nodes.tops[N_NODES])
        j = first
        while fires and j < last:
            key = _U(automaton.sources[_U(j), LINK_KEY])
            row = keys.key_rows[key]
            fires = row >= 0
            if fires:
                each = _U(automaton.sources[_U(j), LINK_LIST])
                root = keys.rows[_U(row), first_list + each]
                latest = keys.latest[_U(row), first_list + _U(keys.n_lists) + each]
                fires = root >= 0 and not (clock - latest > length)
                if fires:
                    nodes.records[node, factor] = root
                    factor += _U(1)
                    start = min(start, latest)
                    if fed:
                        alike *= alike_in(unions, root, clock, length)
            j += 1
        if fires:
            listing.fired[_U(n), FIRED_NODE] = add_product(nodes, events, event, np.int64(t))
            listing.fired[_U(n), FIRED_TRANSITION] = np.int64(t)
            listing.fired[_U(n), FIRED_ALIKE] = alike if alike < 1 << 15 else np.int64(0)
            listing.starts[_U(n)] = start
            n += 1
    regs[N_FIRED] = n


@helper
def _feed_lists(events, attributes, window, automaton, nodes, unions, keys, listing, event, regs):
    """Put the nodes of an event into the lists that wait for them, and drop those that no list has."""
    clock, length, position = window.clocks[event], window.length, events.positions[event]
    ahead = slots_row_of(keys, event)
    partition = np.int64(events.partitions[event]) if events.partitions.shape[0] > 0 else np.int64(0)
    first_list = _U(ROW_VALUES + automaton.columns.shape[1])
    for i in range(regs[N_FIRED]):
        node, t = listing.fired[_U(i), FIRED_NODE], _U(listing.fired[_U(i), FIRED_TRANSITION])
        if automaton.transitions[t, FIRE_FED] == 0:
            nodes.tops[N_NODES] = node
            break
        for j in range(automaton.transitions[t, FIRE_FEED], automaton.transitions[t, FIRE_FEEDS_END]):
            key = automaton.feeds[_U(j), LINK_KEY]
            if keys.key_rows[_U(key)] == -2:
                continue
            row = key_row_of(automaton, keys, attributes, event, ahead, partition, position, key)
            each, start = _U(automaton.feeds[_U(j), LINK_LIST]), listing.starts[_U(i)]
            at, at_latest = first_list + each, first_list + _U(keys.n_lists) + each
            root, latest = keys.rows[row, at], keys.latest[row, at_latest]
            is_leaf = automaton.transitions[t, FIRE_SOURCE] == automaton.transitions[t, FIRE_SOURCES_END]
            leaf = leaf_bits(np.int64(t)) if is_leaf else np.int32(0)
            number = position if is_leaf else listing.fired[_U(i), FIRED_ALIKE]
            union = united(nodes, unions, root, latest, np.int32(node), leaf, number, start, clock, length)
            keys.rows[row, at] = union
            keys.latest[row, at_latest] = unions.starts[_U(union), UNION_START]


@helper
def _list_event(options, demand, automaton, nodes, unions, listing, output, clock, length, place, regs):
    """List or count the matches that end with the nodes of an event; return the status."""
    ours = demand.n_shards == 1 or place % demand.n_shards == demand.shard
    if demand.counting == 1 and demand.gathered == 0 and demand.strict == 0:
        return _count_event(options.limit, automaton, nodes, unions, listing, clock, length, regs)
    status = DONE
    while status == DONE and regs[ROOT] < regs[N_FIRED]:
        i = _U(regs[ROOT])
        if automaton.transitions[_U(listing.fired[i, FIRED_TRANSITION]), FIRE_FINAL] == 1:
            status = _list_node(options, demand, automaton, nodes, unions, listing, output, clock, length,
                                place, ours, listing.fired[i, FIRED_NODE], regs)  # fmt: skip
        if status == DONE:
            regs[ROOT] += 1
            regs[N_WAITING] = -1
    if status == DONE and demand.gathered == 1 and regs[N_OUT] > regs[FIRST_OUT]:
        status = choose_rows(options, demand, output, listing.scratch, ours, regs)
    return status


@helper
def _count_event(limit, automaton, nodes, unions, listing, clock, length, regs):
    total = np.uint64(0)
    for i in range(regs[N_FIRED]):
        if automaton.transitions[_U(listing.fired[_U(i), FIRED_TRANSITION]), FIRE_FINAL] == 1:
            node = listing.fired[_U(i), FIRED_NODE]
            n_products = count_products(automaton, nodes, unions, listing, node, clock, length)
            if n_products == np.uint64(0):
                return GROW_PATH
            total = plus(total, n_products)
    if limit > 0:
        total = min(total, np.uint64(limit))
    if total > MAX_SIGNED:
        return TOO_MANY
    regs[N_HERE] = np.int64(total)
    return DONE


@helper
def _list_node(options, demand, automaton, nodes, unions, listing, output, clock, length, place, ours, node, regs):
    """List the matches of a node of a final state, from where the last call stopped; return the status."""
    limit = np.int64(0) if demand.gathered == 1 else np.int64(options.limit)
    distributed = demand.n_shards > 1 and demand.whole == 0
    writes = (demand.counting == 0 and (ours or distributed)) or demand.gathered == 1
    fast = writes and not distributed and demand.strict == 0 and automaton.unions.shape[0] == 0
    n_here, n_out, n_values = regs[N_HERE], regs[N_OUT], regs[N_VALUES]
    n, pending, n_distributed = regs[N_WAITING], regs[PENDING], regs[DISTRIBUTED]
    status = DONE
    if demand.only_ends == 1:  # the node has a match in the window, whichever that is
        if n_here == 0 and ours:
            if n_out + 1 >= output.offsets.shape[0]:
                return OUTPUT_FULL
            write_end(nodes, output, node, n_out, n_values)
            n_out += 1
        regs[N_HERE], regs[N_OUT] = 1, n_out
        return DONE
    if n < 0:
        n = begin(automaton, nodes, unions, listing, node)
        if n == 0 and (ours or not distributed):
            pending = np.int64(1)
    while status == DONE:
        if pending > 0:
            if limit > 0 and n_here >= limit:
                pending, n = np.int64(0), np.int64(0)
                break
            if writes and (n_out + 1 >= output.offsets.shape[0] or n_values + pending > output.positions.shape[0]):
                status = OUTPUT_FULL
                break
            order_chosen(listing, pending)
            if demand.strict == 0 or is_consecutive(automaton, nodes, listing, pending):
                if writes:
                    n_values = write(automaton, nodes, listing, output, pending, n_out, n_values)
                    n_out += 1
                n_here += 1
            pending = np.int64(0)
        if n == 0:
            break
        top = _U(n - 1)
        depth = listing.waiting[top, DEPTH]
        if not has_space(listing, listing.waiting[top, HEIGHT], n, depth):
            status = GROW_PATH
            break
        if fast and listing.waiting[top, IS_LAST] == 1:
            if limit > 0 and n_here >= limit:
                n = np.int64(0)
                break
            note_before(automaton, nodes, listing, depth)
            rows = n_out
            n_max = limit - n_here if limit > 0 else np.int64(-1)
            n, n_out, n_values = write_last(automaton, nodes, unions, listing, output, n, depth, n_out, n_values, n_max,
                                            clock, length)  # fmt: skip
            n_here += n_out - rows
            if n_out > rows:
                continue
        n, pending = advance(automaton, nodes, unions, listing, n, clock, length)
        if distributed and (depth == 2 or (depth == 1 and pending > 0)):
            # what begins with these events is one part of several
            n_distributed += 1
            if (n_distributed + place) % demand.n_shards != demand.shard:
                if pending == 0:
                    n -= 1  # the union that was to be chosen next
                pending = np.int64(0)
    regs[N_HERE], regs[N_OUT], regs[N_VALUES] = n_here, n_out, n_values
    regs[N_WAITING], regs[PENDING], regs[DISTRIBUTED] = n, pending, n_distributed
    return status
