"""Filters that are tested on a path: of three events or more, with FIRST or LAST, or of events before alone.

Each choice of one event for each of its variables is tested, as soon as no event still to come can be one of them.
papers: CEL, section 3 (a filter holds for all events that a variable holds).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.automaton.encoding import GAP_ATOM, GAP_BARRING, GAP_BARRING_END, GAP_BEGINS
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.joins.filters import run_events
from cer_gpu.backend.joins.instances import Instances
from cer_gpu.backend.joins.writing import ATOM, INSTANCE, VIA_EDGE

# columns of `General.programs`: the relation, the choices (the first is local: it tells the iteration), the arguments,
# the instructions, and 1 if some iteration is around the filter
GENERAL_RELATION, FIRST_CHOICE, LAST_CHOICE, FIRST_ARGUMENT, LAST_ARGUMENT = range(5)
FIRST_LINE, LAST_LINE, IN_ITERATION, N_PROGRAM = range(5, 9)

# columns of `General.ways`: 1 if what comes before the edge depends on the event after it; a bit for each LAST that
# this event may be; 1 if the iteration of a filter begins anew; and 1 if all events after the edge lead to the same
# ones before it
WAY_OPENS, WAY_LASTS, WAY_RESETS, WAY_PLAIN, N_WAY = range(5)

# entries of `General.progress`: what is left of the work of one call; and where open tests continue: the program, 1
# if its choices are under way, and the entry of the path after a gap
LEFT, AT, BEGUN, AT_GAP, N_PROGRESS = range(5)

FAILED, PASSED, UNFINISHED = range(3)

STEP = 16
"""Work of one step of the listing; that of testing one candidate is 1."""

# columns of `General.arguments`: the choice, or the set of atoms for FIRST and LAST; and which event
ARGUMENT_OF, ARGUMENT_EVENT = range(2)
EACH_EVENT, EVENT_BEFORE, FIRST_EVENT, LAST_EVENT, BARRING_EVENT = range(5)

# columns of `General.barring`: the relation, the arguments, the instructions, and the choices of events before the gap
BARRING_RELATION, BARRING_ARGUMENT, BARRING_ARGUMENT_END, BARRING_LINE, BARRING_LINE_END = range(5)
BARRING_CHOICE, BARRING_CHOICE_END, N_BARRING = range(5, 8)

_U = np.uint64


class General(NamedTuple):
    """Filters that are tested on whole paths, or on as much of them as they read.

    Attributes
    ----------
    programs : int32, shape (programs, 8)
        Columns GENERAL_RELATION to IN_ITERATION.
    scheduled : bool, shape (2 * edges + 2 * atoms, 1 + programs)
        Programs to test, after a flag if there are any: where an edge has found an event; before it is searched; where
        the last event of a path is at an atom; and where its first event is at an atom.
    ways : int64, shape (edges, 4)
        Columns WAY_OPENS to WAY_PLAIN.
    choices : int32, shape (choices,)
        The set of atoms of each choice.
    arguments : int32, shape (arguments, 2)
        Columns ARGUMENT_OF and ARGUMENT_EVENT.
    sets : bool, shape (sets, atoms)
    gaps : int32, shape (gaps, 4)
        Columns GAP_ATOM to GAP_BARRING_END: absences of edges that only whole paths decide.
    barring : int32, shape (barring, 7)
        Columns BARRING_RELATION to BARRING_CHOICE_END: the filters of each of these absences.
    picked : int64, shape (1 + max choices,), written
        Entry of the path of each choice; for an absence, after that of the event before its gap.
    atoms : int64, shape (max arguments,), written
    instances : int64, shape (max arguments,), written
    progress : int64, shape (4,), written
        Entries LEFT to AT_GAP.
    """

    programs: Any
    scheduled: Any
    ways: Any
    choices: Any
    arguments: Any
    sets: Any
    gaps: Any
    barring: Any
    picked: Any
    atoms: Any
    instances: Any
    progress: Any


@helper
def _in_scope(edges, levels, loop_levels, path, relation, one, other):
    """Return whether the entry `other` is in the scope of `one`, an event of the filtered formula."""
    level = levels[relation, _U(path[_U(other), ATOM])]
    low, high = min(one, other), max(one, other)
    for entry in range(low + 1, high + 1):
        loop = edges[_U(path[_U(entry), VIA_EDGE])].loop
        if loop_levels[relation, _U(loop if loop >= 0 else loop_levels.shape[1] - 1)] < level:
            return False
    return True


@helper
def _first_in_set(general, path, depth, atom_set, at):
    """Return the first entry of a path from `at` on whose atom is in a set; its depth if there is none."""
    while at < depth and not general.sets[atom_set, _U(path[_U(at), ATOM])]:
        at += 1
    return np.int64(at)


@helper
def _begin(general, path, depth, choices, n_choices, picks, first):
    """Pick the first entry from `first` on for each choice, into `picked` from `picks` on; False if one has none."""
    for c in range(n_choices):
        at = _first_in_set(general, path, depth, _U(general.choices[_U(choices + c)]), first)
        if at == depth:
            return False
        general.picked[_U(picks + c)] = at
    return True


@helper
def _next(general, path, depth, choices, n_choices, picks, first):
    """Advance to the next choice of entries, as `_begin` picks them; return False after the last."""
    for c in range(n_choices):
        choice = _U(picks + c)
        atom_set = _U(general.choices[_U(choices + c)])
        at = _first_in_set(general, path, depth, atom_set, general.picked[choice] + 1)
        if at < depth:
            general.picked[choice] = at
            return True
        general.picked[choice] = _first_in_set(general, path, depth, atom_set, first)
    return False


@helper
def _take(general, path, number, entry):
    """Take an entry of a path for an argument of a program; return False if there is none."""
    if entry >= 0:
        general.atoms[number] = path[_U(entry), ATOM]
        general.instances[number] = path[_U(entry), INSTANCE]
    return entry >= 0


@helper
def _event_of(general, edges, levels, loop_levels, path, depth, relation, scoped, choices, argument):
    """Return the entry of an argument, or -1 where there is none; only if `scoped` an entry may be out of scope."""
    of, event = general.arguments[argument, ARGUMENT_OF], general.arguments[argument, ARGUMENT_EVENT]
    anchor = general.picked[0]
    if event == EACH_EVENT:
        return general.picked[_U(of)]
    if event == EVENT_BEFORE:
        atom_set = _U(general.choices[_U(choices + of)])
        at = _first_in_set(general, path, depth, atom_set, general.picked[_U(of)] + 1)
        near = at < depth and (not scoped or _in_scope(edges, levels, loop_levels, path, relation, anchor, at))
        return at if near else np.int64(-1)
    for back in range(depth):
        entry = np.int64(back if event == LAST_EVENT else depth - 1 - back)
        if general.sets[_U(of), _U(path[_U(entry), ATOM])] and (
            not scoped or _in_scope(edges, levels, loop_levels, path, relation, anchor, entry)
        ):
            return entry
    return np.int64(-1)


@kernel
def path_passes(filters, general, edges, levels, loop_levels, values, path, depth, row):
    """Test the programs scheduled for the end of a path, from where the last call for it stopped.

    Parameters
    ----------
    filters : Filters
    general : General
    edges : EDGE, shape (all edges,)
    levels : int32, shape (relations, atoms)
    loop_levels : int32, shape (relations, loops + 1)
    values : int64, shape (atoms, columns, capacity)
    path : int64, shape (size, 6)
    depth : int
    row : int
        Row of `General.scheduled`.

    Returns
    -------
    int
        PASSED or FAILED; UNFINISHED, once LEFT is spent.
    """
    general = General(*general)
    progress = general.progress
    for program in range(progress[AT], general.programs.shape[0]):
        g = _U(program)
        if not general.scheduled[_U(row), g + _U(1)]:
            continue
        relation = _U(general.programs[g, GENERAL_RELATION])
        scoped = general.programs[g, IN_ITERATION] == 1
        choices = general.programs[g, FIRST_CHOICE]
        n_choices = general.programs[g, LAST_CHOICE] - choices
        more = progress[BEGUN] == 1 or _begin(general, path, depth, choices, n_choices, 0, 0)
        while more:
            good = True
            for c in range(1, n_choices if scoped else 0):
                picked = general.picked[_U(c)]
                good = good and _in_scope(edges, levels, loop_levels, path, relation, general.picked[0], picked)
            for argument in range(general.programs[g, FIRST_ARGUMENT], general.programs[g, LAST_ARGUMENT]):
                if good:
                    entry = _event_of(general, edges, levels, loop_levels, path, depth, relation, scoped, choices,
                                      _U(argument))  # fmt: skip
                    good = _take(general, path, _U(argument - general.programs[g, FIRST_ARGUMENT]), entry)
            first, last = general.programs[g, FIRST_LINE], general.programs[g, LAST_LINE]
            if good and not run_events(filters, values, first, last, general.atoms, general.instances):
                progress[AT], progress[BEGUN] = 0, 0
                return FAILED
            more = _next(general, path, depth, choices, n_choices, 0, 0)
            progress[LEFT] -= STEP + depth
            if more and progress[LEFT] <= 0:
                progress[AT], progress[BEGUN] = program, 1
                return UNFINISHED
        progress[BEGUN] = 0
    progress[AT] = 0
    return PASSED


@helper
def test_path(filters, general, graph, values, path, depth, row):
    """Return `path_passes` where any program is scheduled, else PASSED."""
    if not general.scheduled[_U(row), 0]:
        return PASSED
    return path_passes(filters, general, graph.edges, graph.levels, graph.loop_levels, values, path, depth, row)


@kernel
def gaps_pass(filters, general, edges, levels, loop_levels, instances, path, depth):
    """Test that no gap of a path holds an event that it must not hold, from where the last call for it stopped.

    Parameters
    ----------
    filters : Filters
    general : General
    edges : EDGE, shape (all edges,)
    levels : int32, shape (relations, atoms)
    loop_levels : int32, shape (relations, loops + 1)
    instances : Instances, read
    path : int64, shape (size, 6)
    depth : int

    Returns
    -------
    int
        PASSED or FAILED; UNFINISHED, once LEFT is spent.
    """
    general, instances = General(*general), Instances(*instances)
    progress = general.progress
    for top in range(max(progress[AT_GAP], 1), depth):
        if progress[LEFT] <= 0 and top > progress[AT_GAP]:
            progress[AT_GAP] = top
            return UNFINISHED
        progress[LEFT] -= STEP
        entry, onward = _U(top), _U(top - 1)
        e = _U(path[entry, VIA_EDGE])
        t = _U(path[onward, ATOM])
        end = instances.positions[t, _U(path[onward, INSTANCE])]
        for gap in range(edges[e].gaps, edges[e].gaps_end):
            g = _U(gap)
            b = _U(general.gaps[g, GAP_ATOM])
            at = np.int64(top)
            if general.gaps[g, GAP_BEGINS] >= 0:
                at = _first_in_set(general, path, depth, _U(general.gaps[g, GAP_BEGINS]), at)
            s, source = _U(path[_U(at), ATOM]), _U(path[_U(at), INSTANCE])
            begin = instances.positions[s, source]
            low, high = instances.bottoms[b], instances.heights[b]
            while low < high:  # the first event of the gap
                middle = (low + high) // 2
                if instances.positions[b, _U(middle)] > begin:
                    high = middle
                else:
                    low = middle + 1
            while low < instances.heights[b] and instances.positions[b, _U(low)] < end:
                i = _U(low)
                low += 1
                progress[LEFT] -= 1
                ours = True
                if instances.partitions.shape[1] > 0:
                    ours = instances.partitions[b, i] == instances.partitions[s, source]
                if ours and _bars(filters, general, edges, levels, loop_levels, instances.values, path, depth, at, g,
                                  b, i):  # fmt: skip
                    progress[AT_GAP] = 0
                    return FAILED
    progress[AT_GAP] = 0
    return PASSED


@helper
def _bars(filters, general, edges, levels, loop_levels, values, path, depth, top, gap, b, i):
    """Return whether event `i` of atom `b` passes all filters of a gap, after entry `top` of a path."""
    general.picked[0] = top
    for line in range(general.gaps[gap, GAP_BARRING], general.gaps[gap, GAP_BARRING_END]):
        barring = _U(line)
        choices = general.barring[barring, BARRING_CHOICE]
        n_choices = general.barring[barring, BARRING_CHOICE_END] - choices
        relation = _U(general.barring[barring, BARRING_RELATION])
        more = _begin(general, path, depth, choices, n_choices, 1, top)
        while more:
            good = True
            for c in range(n_choices):
                picked = general.picked[_U(1 + c)]
                good = good and _in_scope(edges, levels, loop_levels, path, relation, top, picked)
            if good and not _choice_bars(filters, general, edges, levels, loop_levels, values, path, depth, relation,
                                         barring, b, i):  # fmt: skip
                return False
            more = n_choices > 0 and _next(general, path, depth, choices, n_choices, 1, top)
    return True


@helper
def _choice_bars(filters, general, edges, levels, loop_levels, values, path, depth, relation, barring, b, i):
    """Return whether event `i` of atom `b` passes a filter of a gap with the events that are picked."""
    first = general.barring[barring, BARRING_ARGUMENT]
    for argument in range(first, general.barring[barring, BARRING_ARGUMENT_END]):
        number = _U(argument - first)
        if general.arguments[_U(argument), ARGUMENT_EVENT] == BARRING_EVENT:
            general.atoms[number], general.instances[number] = np.int64(b), np.int64(i)
            continue
        entry = _event_of(general, edges, levels, loop_levels, path, depth, relation, True, 0, _U(argument))
        general.progress[LEFT] -= 1
        if not _take(general, path, number, entry):
            return True  # a filter on a variable that holds nothing holds
    begin, end = general.barring[barring, BARRING_LINE], general.barring[barring, BARRING_LINE_END]
    return run_events(filters, values, begin, end, general.atoms, general.instances)
