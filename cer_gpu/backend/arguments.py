"""Groups of arguments that several loops take: events, options, tables, and what they write results to.

A group is a named tuple of arrays and numbers, for Numba a structure that LLVM takes apart again: a loop over groups
runs as fast as one over single arrays.  A call costs more, most of it for the names: Numba types a named tuple five
times as slowly as a plain one.  Groups therefore are `plain` in calls from Python, and kernels name them again.

The docstring of a group says what its fields hold, as that of a kernel does for its arguments; a field is `written` by
the kernels that take the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class Events(NamedTuple):
    """Relevant events, in the order of the stream.

    Attributes
    ----------
    symbols : int32, shape (n,)
    positions : int64, shape (n,)
    places : int64, shape (n,), or (0,)
        The positions that are reported; empty if they are `positions`.
    partitions : int32, shape (n,), or (0,)
        Partition of each event; empty if there is only one.
    ordinals : int64, shape (n,), or (0,)
        Number of each event in its partition, where that matters: for contiguity, or for the window.
    lows : int64, shape (n,), or (0,)
        For GLOBAL_WINDOW, unless it is measured in positions, the ordinal (over all relevant events) of the first event
        in the window that ends at each.
    times : int64, shape (n,), or (0,)
        Time of each event, where the output has it.
    """

    symbols: Any
    positions: Any
    places: Any
    partitions: Any
    ordinals: Any
    lows: Any
    times: Any


class Options(NamedTuple):
    """Options of the loops: how events are read, and which matches are wanted.

    Attributes
    ----------
    window : int
        NO_WINDOW, GLOBAL_WINDOW or COUNT_WINDOW.
    width : int
        Length of a window that counts events; -1 for others.
    consume : int
        CONSUME_NONE, CONSUME_PARTITION or CONSUME_ANY.
    limit : int
        Maximum number of matches listed or counted for one end; 0 for all.
    report_from : int
        Matches that end before this position are left out.
    """

    window: Any
    width: Any
    consume: Any
    limit: Any
    report_from: Any


class Window(NamedTuple):
    """The window of a chain, as clocks: ``clock(end) - clock(start) <= length``.

    Attributes
    ----------
    clocks : clock, shape (n,)
        Clocks of the events; within a partition they do not decrease.
    length : clock
    """

    clocks: Any
    length: Any


class Demand(NamedTuple):
    """Wanted matches.

    Attributes
    ----------
    counting : int
        1 if they are counted.
    gathered : int
        1 if those of one end are gathered before any is handed over.
    strategy : int
        Choice among those of one end: CHOOSE_ALL to CHOOSE_MAX (`cer_gpu.automaton.encoding`).
    distinct : int
        1 if a match may be listed several times.
    strict : int
        1 if the selected events of each must follow one another without a gap.
    shard : int
    n_shards : int
        List shard k of n.
    whole : int
        1 if shards are distributed by ends, 0 if by the events chosen right before the end.
    only_ends : int
        1 if only the position and time of each end are wanted.
    """

    counting: Any
    gathered: Any
    strategy: Any
    distinct: Any
    strict: Any
    shard: Any
    n_shards: Any
    whole: Any
    only_ends: Any


class Steps(NamedTuple):
    """The steps of a `cer_gpu.automaton.chain.Chain`, at least two.

    Attributes
    ----------
    steps_of : int32, shape (symbols, steps + 1)
    repeated : bool, shape (steps,)
    neighbours : bool, shape (steps + 1,)
    kind : bool, shape (0,), or (0, 0), or (0, 0, 0), or (0, 0, 0, 0)
        One dimension more for a chain with absences, and two for one with counts: loops are compiled for each kind of
        chain, so that it pays nothing for what it lacks.
    spare : int64, shape (steps + 1,), or (0,)
    max_events : int64, shape (steps,), or (0,)
    linked : bool, shape (steps,), or (0,)
    bars : int32, shape (symbols, steps), or (0, 0)
    """

    steps_of: Any
    repeated: Any
    neighbours: Any
    kind: Any
    spare: Any
    max_events: Any
    linked: Any
    bars: Any


class Tables(NamedTuple):
    """The tables of a `cer_gpu.automaton.determinize.Determinization` (papers: Δ, as far as it is known).

    Attributes
    ----------
    steps : int32, shape (symbols, states stepped)
    touched : int32, shape (symbols, states touched)
    steady : int32, shape (symbols, steady columns)
    fresh : int32, shape (symbols, controls, 2)
    moves : int32, shape (moves, 3)
    max_moves : int
    has_gaps : bool
        True if the gap between two events matters.
    """

    steps: Any
    touched: Any
    steady: Any
    fresh: Any
    moves: Any
    max_moves: Any
    has_gaps: Any


class Matches(NamedTuple):
    """Buffers for matches that are listed; positions and marks are those of an Arrow list array.

    Attributes
    ----------
    spans : int64, shape (2, rows), written
        Positions of the starts, and of the ends.
    times : int64, shape (2, rows), or (2, 0), written
        Their times.
    offsets : int32, shape (rows + 1,), written
    positions : int64, shape (values,), written
        The selected positions.
    marks : int32, shape (values,), or (0,), written
        The mark of each.
    """

    spans: Any
    times: Any
    offsets: Any
    positions: Any
    marks: Any


class Counts(NamedTuple):
    """Buffers for matches that are counted.

    Attributes
    ----------
    ends : int64, shape (ends,), written
    counts : int64, shape (ends,), written
        Number of matches that end there.
    times : int64, shape (ends,), or (0,), written
    """

    ends: Any
    counts: Any
    times: Any


def plain(*groups: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Return groups without their names, as kernels take them from Python."""
    return map(tuple, groups)
