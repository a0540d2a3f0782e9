"""The loop for patterns with join predicates: relevant events -> instances -> matches.

papers: RMA, section 4; CORE, theorem 2, whose listing this follows: depth first from the end backwards, the latest
candidate first.  An instance whose `latest` is out of the window reaches no start through the filters of neighbours,
and is passed over.  A filter is tested as soon as the path holds the events that it reads.  An event from which nothing
was found is not retried after another path with the same scope (`Scopes`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import (
    AHEAD_ATOM,
    AHEAD_ATOMS,
    AHEAD_CONDITION,
    COMPARE,
    CONSUME_NONE,
    CONSUME_PARTITION,
    DISTANT_ATOMS,
    DISTANT_CONDITION,
    DISTANT_NEAREST,
    FINAL_ATOM,
    INITIAL_ATOM,
    LEAF_ATOM,
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
from cer_gpu.backend.joins.filters import Filters, passes
from cer_gpu.backend.joins.instances import Graph, Indexes, Instances
from cer_gpu.backend.joins.reading import keep_begin, keep_event, only_begins, ordinal_of, partition_of, read_event
from cer_gpu.backend.joins.search import (
    after,
    begin_search,
    ends_in_vain,
    find,
    instance_of,
    note_partners,
    pick_leaves,
    with_partner,
)
from cer_gpu.backend.joins.whole_paths import (
    AT_GAP,
    FAILED,
    LEFT,
    PASSED,
    STEP,
    UNFINISHED,
    WAY_LASTS,
    WAY_OPENS,
    WAY_PLAIN,
    WAY_RESETS,
    General,
    gaps_pass,
    test_path,
)
from cer_gpu.backend.joins.writing import (
    ATOM,
    INSTANCE,
    NEXT,
    PHASE,
    SEARCHED,
    VIA_EDGE,
    Path,
    write_leaves,
    write_match,
)
from cer_gpu.backend.status import DONE, GO_ON, GROW_NODES, GROW_PATH, OUTPUT_FULL

# registers of `match_events` besides those shared: entries of the path, and scopes so far
DEPTH, N_SCOPES, N_REGS = range(N_SHARED_REGS, N_SHARED_REGS + 3)

# phases of an entry of the path
SEARCHING, STARTING, ENTERING, OPENING = range(4)

# an entry of `Scopes.entries`: its scope, that of what the edge finds, a bit for each LAST that is after it, and what
# was found of this event when the entry was reached, and when the search of the edge began
SCOPE, SCOPE_BEFORE, LASTS, N_AT_ENTRY, N_AT_EDGE, N_SCOPE_ENTRY = range(6)

# columns of `Scopes.floors`
FLOOR_SCOPE, FLOOR, N_FLOOR = range(3)

_U = np.uint64


class Scopes(NamedTuple):
    """Events of the path under way that lead nowhere, where filters are tested on whole paths.

    Two events have one scope if all later events that filters still to be tested may read are the same for both.

    Attributes
    ----------
    entries : int64, shape (longest, 5), or (0, 5), written
        Columns SCOPE to N_AT_EDGE.
    dead : int64, shape (atoms, capacity), or (0, 0), written
        Last scope in which nothing was found before an instance.
    floors : int64, shape (edges, 2), written
        A scope, and a candidate of the edge: in this scope nothing is found before it and those below it.
    """

    entries: Any
    dead: Any
    floors: Any


@helper
def _passes_filters(filters, graph, instances, path, depth):
    """Return whether the earliest event of a path passes its filters with the later events, except its neighbour."""
    top = _U(depth - 1)
    p, i = _U(path[top, ATOM]), _U(path[top, INSTANCE])
    for line in range(graph.distants[p], graph.distants[p + _U(1)]):
        d = _U(line)
        c = _U(graph.distant[d, DISTANT_CONDITION])
        atoms = _U(graph.distant[d, DISTANT_ATOMS])
        relation = _U(filters.conditions[c].relation)
        level = graph.levels[relation, p]
        for back in range(1, depth):
            entry = _U(depth - 1 - back)
            loop = graph.edges[_U(path[entry + _U(1), VIA_EDGE])].loop
            if graph.loop_levels[relation, _U(loop if loop >= 0 else graph.loop_levels.shape[1] - 1)] < level:
                break
            q = _U(path[entry, ATOM])
            if graph.sets[atoms, q]:
                # the test with the next event is one of the edge
                if back > 1 and not passes(filters, instances.values, c, p, i, q, _U(path[entry, INSTANCE])):
                    return False
                if graph.distant[d, DISTANT_NEAREST] == 1:
                    break
    return True


@helper
def _may_end(filters, graph, instances, progress, path, depth, clock, length):
    """Return whether each atom that every path still has to pass has an instance that passes its filters with the path.

    For `A ; B+ ; C` with a filter between A and C, no Bs are tried before a C that no A in the window passes with.
    """
    top = _U(depth - 1)
    q = _U(path[top, ATOM])
    before = instances.positions[q, _U(path[top, INSTANCE])]
    line, last = graph.aheads[q], graph.aheads[q + _U(1)]
    while line < last:
        p = _U(graph.lookahead[_U(line), AHEAD_ATOM])
        stop = line
        while stop < last and graph.lookahead[_U(stop), AHEAD_ATOM] == np.int64(p):
            stop += 1
        possible = False
        i = instances.heights[p] - 1
        while i >= instances.bottoms[p] and not possible:
            at = _U(i)
            if clock - instances.best[p, at] > length:
                break
            possible = instances.positions[p, at] < before and not (clock - instances.latest[p, at] > length)
            rule = line
            while possible and rule < stop:
                c = _U(graph.lookahead[_U(rule), AHEAD_CONDITION])
                atoms = _U(graph.lookahead[_U(rule), AHEAD_ATOMS])
                entry = 0
                while possible and entry < depth:
                    other = _U(path[_U(entry), ATOM])
                    if graph.sets[atoms, other]:
                        possible = passes(filters, instances.values, c, p, at, other, _U(path[_U(entry), INSTANCE]))
                    entry += 1
                rule += 1
            i -= 1
        progress[LEFT] -= instances.heights[p] - 1 - i
        if not possible:
            return False
        line = stop
    return True


@helper
def _consecutive(graph, instances, path, depth):
    """Return whether the selected events of a path follow one another in the stream or partition."""
    before = np.int64(-1)
    for back in range(depth):
        entry = _U(depth - 1 - back)
        q = _U(path[entry, ATOM])
        if graph.marks[q] > 0:
            number = ordinal_of(instances, q, _U(path[entry, INSTANCE]))
            if before >= 0 and number != before + 1:
                return False
            before = number
    return True


@kernel
def match_events(events, attributes, window, options, demand, filters, general, graph, instances, indexes, listing,
                 scopes, output, counts, n_events, regs):  # fmt: skip
    """Read events, and list or count the matches that they end, from where the last call stopped.

    Parameters
    ----------
    events : Events
    attributes : int64, shape (n, columns)
    window : Window
    options : Options
    demand : Demand
    filters : Filters
    general : General
    graph : Graph
    instances : Instances
    indexes : Indexes
    listing : Path
    scopes : Scopes
    output : Matches
    counts : Counts
    n_events : int
    regs : int64, shape (N_REGS,), written

    Returns
    -------
    int
        DONE; GROW_NODES, when a stack is full; OUTPUT_FULL, when the buffers are to be emptied up to FIRST_OUT (or made
        larger, if that is 0); GROW_PATH, when a path or the scratch for choosing needs more space; GO_ON, when LEFT of
        `General.progress` is spent.
    """
    events, window, options, demand = Events(*events), Window(*window), Options(*options), Demand(*demand)
    filters, general, graph, instances = Filters(*filters), General(*general), Graph(*graph), Instances(*instances)
    indexes, listing, output, counts = Indexes(*indexes), Path(*listing), Matches(*output), Counts(*counts)
    scopes = Scopes(*scopes)
    capacity = instances.positions.shape[1]
    status = DONE
    while regs[EVENT] < n_events and status == DONE:
        if general.progress[LEFT] <= 0:
            status = GO_ON
            break
        event = _U(regs[EVENT])
        symbol = _U(events.symbols[event])
        if regs[LISTING] == 0:
            partition = partition_of(events, instances, event)
            clock = window.clocks[event]
            vain = graph.atoms_of[symbol, _U(0)] < 0
            if vain or ends_in_vain(graph, filters, instances, indexes, attributes, event, symbol, partition, clock,
                                    window.length):  # fmt: skip
                regs[EVENT] += 1
                continue
            begins = only_begins(graph, symbol)
            if begins >= 0 and instances.heights[_U(begins)] < capacity:
                keep_begin(events, window, graph, instances, indexes, attributes, _U(begins), event)
                regs[EVENT] += 1
                continue
            j = _U(0)
            while graph.atoms_of[symbol, j] >= 0:
                if instances.heights[_U(graph.atoms_of[symbol, j])] == capacity:
                    status = GROW_NODES
                j += _U(1)
            if status != DONE:
                break
            general.progress[LEFT] -= read_event(
                events, window, options, filters, graph, instances, indexes, attributes, listing.fresh, event
            )
            regs[LISTING], regs[ROOT], regs[DEPTH], regs[N_HERE] = 1, 0, 0, 0
            regs[FIRST_OUT], regs[DISTRIBUTED] = regs[N_OUT], 0
        place = events.places[event] if events.places.shape[0] > 0 else events.positions[event]
        if place >= options.report_from:
            status = _list_event(events, attributes, window, options, demand, filters, general, graph, instances,
                                 indexes, listing, scopes, output, event, regs)  # fmt: skip
        ours = demand.n_shards == 1 or place % demand.n_shards == demand.shard
        if status == DONE and demand.counting == 1 and ours:
            status = count_end(events, options, counts, place, event, regs)
        if status != DONE:
            break
        keep_event(events, graph, instances, indexes, listing.fresh, event)
        if options.consume != CONSUME_NONE and regs[N_HERE] > 0:
            if options.consume == CONSUME_PARTITION and indexes.forgotten.shape[0] > 0:
                indexes.forgotten[_U(events.partitions[event])] = events.positions[event]
            else:
                for q in range(instances.heights.shape[0]):
                    instances.bottoms[_U(q)] = instances.heights[_U(q)]
        regs[LISTING] = 0
        regs[EVENT] += 1
    return status


@helper
def _list_event(events, attributes, window, options, demand, filters, general, graph, instances, indexes, listing,
                scopes, output, event, regs):  # fmt: skip
    """List the matches that end at an event, for each final atom that it is at; return the status."""
    symbol = _U(events.symbols[event])
    number = events.places[event] if events.places.shape[0] > 0 else events.positions[event]
    ours = demand.n_shards == 1 or number % demand.n_shards == demand.shard
    status = DONE
    while status == DONE and graph.atoms_of[symbol, _U(regs[ROOT])] >= 0:
        a = _U(graph.atoms_of[symbol, _U(regs[ROOT])])
        if graph.flags[a] & FINAL_ATOM != 0 and listing.fresh[a] == 1:
            status = _list_paths(attributes, window, options, demand, filters, general, graph, instances, indexes,
                                 listing, scopes, output, event, number, ours, a, regs)  # fmt: skip
        if status == DONE:
            regs[ROOT] += 1
            regs[DEPTH] = 0
    if status == DONE and demand.gathered == 1 and regs[N_OUT] > regs[FIRST_OUT]:
        status = choose_rows(options, demand, output, listing.order, ours, regs)
    return status


@helper
def _list_paths(attributes, window, options, demand, filters, general, graph, instances, indexes, listing, scopes,
                output, event, number, ours, root, regs):  # fmt: skip
    """List the paths that end in the instance above the top of the stack of `root`; return the status."""
    clock = window.clocks[event]
    path, length, limit = listing.path, window.length, 0 if demand.gathered == 1 else options.limit
    edges, progress, entries, values = graph.edges, general.progress, scopes.entries, instances.values
    judged = general.programs.shape[0] > 0
    by_leaves = demand.strict == 0 and not judged and general.gaps.shape[0] == 0
    shared = demand.strict == 0 and general.gaps.shape[0] == 0
    distributed = demand.n_shards > 1 and demand.whole == 0
    writes = (demand.counting == 0 and (ours or distributed)) or demand.gathered == 1
    size, n_atoms = path.shape[0], graph.flags.shape[0]
    n_edges = np.int64(graph.incoming[_U(n_atoms)])  # those of paths, without the far ones
    depth, n_here, n_out, n_values = regs[DEPTH], regs[N_HERE], regs[N_OUT], regs[N_VALUES]
    status = DONE
    if depth == 0 and limit > 0 and n_here >= limit:
        return DONE  # another final atom of the event has listed enough
    if depth == 0:
        path[0, ATOM], path[0, INSTANCE], path[0, VIA_EDGE] = np.int64(root), instances.heights[root], 0
        if not _may_end(filters, graph, instances, progress, path, 1, clock, length):
            return DONE
        end = _U(path[0, INSTANCE])
        note_partners(filters, graph, instances, indexes, listing.partners, attributes, event, root, end, clock, length)
        _open(graph, instances, path, 0, judged)
        if judged:
            regs[N_SCOPES] += 1
            entries[0, SCOPE], entries[0, LASTS], entries[0, N_AT_ENTRY] = regs[N_SCOPES], 0, n_here
        depth = 1
    while depth > 0 and status == DONE:
        if progress[LEFT] <= 0:
            status = GO_ON
            break
        progress[LEFT] -= STEP
        entry = _U(depth - 1)
        q, k = _U(path[entry, ATOM]), _U(path[entry, INSTANCE])
        e = _U(path[entry, SEARCHED])
        phase = path[entry, PHASE]
        if phase == ENTERING:
            row = 2 * n_edges + np.int64(q) if depth == 1 else path[entry, VIA_EDGE]
            good = test_path(filters, general, graph, values, path, depth, row)
            if good == UNFINISHED:
                status = GO_ON
                break
            if good == FAILED:
                depth -= 1
                continue
            phase = path[entry, PHASE] = _next_phase(graph, q, True)
        if phase != STARTING:
            if limit > 0 and n_here >= limit:
                depth = 0
                break
            if np.int64(e) >= graph.incoming[q + _U(1)]:
                if judged and n_here == entries[entry, N_AT_ENTRY]:
                    scopes.dead[q, k] = entries[entry, SCOPE]
                depth -= 1
                continue
            if phase == OPENING:
                good = test_path(filters, general, graph, values, path, depth, n_edges + np.int64(e))
                if good == UNFINISHED:
                    status = GO_ON
                    break
                if good == FAILED:
                    path[entry, SEARCHED] += 1
                    continue
                path[entry, PHASE], path[entry, NEXT] = SEARCHING, begin_search(graph, instances, e, q, k)
                entries[entry, SCOPE_BEFORE], entries[entry, N_AT_EDGE] = entries[entry, SCOPE], n_here
                way = general.ways[e, WAY_LASTS] & ~entries[entry, LASTS]
                if way != 0 or general.ways[e, WAY_OPENS] == 1 or not shared:
                    regs[N_SCOPES] += 1
                    entries[entry, SCOPE_BEFORE] = regs[N_SCOPES]
            plain = judged and general.ways[e, WAY_PLAIN] == 1
            same = plain and scopes.floors[e, FLOOR_SCOPE] == entries[entry, SCOPE_BEFORE]
            if same and path[entry, NEXT] <= scopes.floors[e, FLOOR]:
                path[entry, NEXT] = -1
            candidate = np.int64(-1)
            if (
                by_leaves
                and graph.flags[_U(edges[e].source)] & LEAF_ATOM != 0
                and not (distributed and depth == 1)
                and edges[e].contiguous == 0
                and edges[e].watched == edges[e].watched_end
                and path[entry, NEXT] >= 0
            ):
                n_max = np.int64(listing.picked.shape[0])
                if writes:
                    n_free = (output.positions.shape[0] - n_values) // (depth + 1)
                    n_max = min(n_max, output.offsets.shape[0] - 1 - n_out, n_free)
                if limit > 0:
                    n_max = min(n_max, limit - n_here)
                if n_max <= 0:
                    status = OUTPUT_FULL
                    break
                n_tested = indexes.tested[e, 0]
                n, path[entry, NEXT] = pick_leaves(graph, filters, instances, indexes, e, k, path[entry, NEXT], clock,
                                                   length, listing.picked, n_max)  # fmt: skip
                n_tested = indexes.tested[e, 0] - n_tested
                costly = edges[e].test < edges[e].last and (filters.conditions[_U(edges[e].last - 1)].kind != COMPARE)
                progress[LEFT] -= n_tested if costly else n_tested // STEP
                if writes:
                    n_values = write_leaves(graph, instances, output, path, depth, e, listing.picked, n, n_out,
                                             n_values)  # fmt: skip
                    n_out += n
                n_here += n
                continue
            if path[entry, NEXT] >= 0:
                progress[LEFT] += indexes.tested[e, 0]
                candidate = find(graph, filters, instances, indexes, e, k, path[entry, NEXT], clock, length,
                             ordinal_of(instances, q, k), clock, False)  # fmt: skip
                progress[LEFT] -= indexes.tested[e, 0]
            if candidate < 0:
                if plain and n_here == entries[entry, N_AT_EDGE] and not (distributed and depth == 1):
                    scopes.floors[e, FLOOR_SCOPE] = entries[entry, SCOPE_BEFORE]
                    scopes.floors[e, FLOOR] = begin_search(graph, instances, e, q, k)
                path[entry, SEARCHED] += 1
                if judged:
                    path[entry, PHASE] = OPENING
                elif path[entry, SEARCHED] < graph.incoming[q + _U(1)]:
                    path[entry, NEXT] = begin_search(graph, instances, _U(path[entry, SEARCHED]), q, k)
                continue
            if depth == size:
                status = GROW_PATH
                path[entry, NEXT] = candidate
                break
            p = _U(edges[e].source)
            path[entry, NEXT] = after(graph, indexes, e, candidate)
            instance = instance_of(graph, e, candidate)
            if depth == 1 and edges[e].through >= 0 and listing.partners[0] >= 0:
                met = with_partner(filters, graph, instances, listing.partners, _U(edges[e].through), instance)
                if met < 0:
                    path[entry, NEXT] = -1
                if met <= 0:
                    continue
            if judged and scopes.dead[p, instance] == entries[entry, SCOPE_BEFORE]:
                continue
            if distributed and depth == 1:
                regs[DISTRIBUTED] += 1
                if (regs[DISTRIBUTED] + number) % demand.n_shards != demand.shard:
                    continue
            top = _U(depth)
            path[top, ATOM], path[top, INSTANCE], path[top, VIA_EDGE] = np.int64(p), np.int64(instance), np.int64(e)
            if not _passes_filters(filters, graph, instances, path, depth + 1):
                continue
            if not _may_end(filters, graph, instances, progress, path, depth + 1, clock, length):
                continue
            _open(graph, instances, path, depth, judged)
            if judged:
                entries[top, SCOPE], entries[top, N_AT_ENTRY] = entries[entry, SCOPE_BEFORE], n_here
                entries[top, LASTS] = entries[entry, LASTS] | general.ways[e, WAY_LASTS]
                if general.ways[e, WAY_RESETS] == 1:
                    entries[top, LASTS] = 0
            depth += 1
            phase, entry, q = path[top, PHASE], top, p
        if phase == STARTING:
            good = PASSED
            if judged and progress[AT_GAP] == 0:
                row = 2 * n_edges + n_atoms + np.int64(q)
                good = test_path(filters, general, graph, values, path, depth, row)
            if good == PASSED and general.gaps.shape[0] > 0:
                good = gaps_pass(filters, general, edges, graph.levels, graph.loop_levels, instances, path, depth)
            if good == UNFINISHED:
                status = GO_ON
                break
            passed = good == PASSED
            if demand.strict == 1:
                passed = passed and _consecutive(graph, instances, path, depth)
            if distributed and depth == 1:
                passed = passed and ours
            if passed and writes:
                if n_out + 1 >= output.offsets.shape[0] or n_values + depth > output.positions.shape[0]:
                    status = OUTPUT_FULL
                    break
                n_values = write_match(graph, instances, output, path, depth, n_out, n_values)
                n_out += 1
            n_here += passed
            path[entry, PHASE] = OPENING if judged else SEARCHING
    regs[DEPTH], regs[N_HERE], regs[N_OUT], regs[N_VALUES] = depth, n_here, n_out, n_values
    return status


@helper
def _open(graph, instances, path, depth, judged):
    """Begin with what comes next for the entry at a depth of the path."""
    entry = _U(depth)
    q, k = _U(path[entry, ATOM]), _U(path[entry, INSTANCE])
    e = graph.incoming[q]
    path[entry, SEARCHED] = e
    path[entry, NEXT] = np.int64(-1)
    path[entry, PHASE] = ENTERING if judged else _next_phase(graph, q, False)
    if not judged and e < graph.incoming[q + _U(1)]:
        path[entry, NEXT] = begin_search(graph, instances, _U(e), q, k)


@helper
def _next_phase(graph, q, judged):
    """Return what comes next for an entry at an atom that is tested."""
    if graph.flags[q] & INITIAL_ATOM != 0:
        return STARTING
    return OPENING if judged else SEARCHING
