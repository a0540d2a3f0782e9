"""Codes in the tables that `cer_gpu.automaton` makes and the kernels of `cer_gpu.backend` read.

They are plain integers, which kernels compile in as constants; a change to this file recompiles the kernels cached on
disk (`cer_gpu.backend.jit`).
"""

from __future__ import annotations

import numpy as np

QUIET = 0
"""Symbol of events that fire only the waiting loops: they are dropped before the loop."""

# entries of `Determinization.steps` and of FIRST_MOVE in `fresh`; all others are rows of `moves`
UNKNOWN, STAY = -1, -2
DIES = 0
"""Row of `Determinization.moves` for a state whose runs end without a match."""

# columns of `Determinization.fresh`: the first of the moves of a run that begins, and the next control
FIRST_MOVE, NEXT_CONTROL = range(2)

# columns of `Determinization.moves`: the mark of the event; the state that the run moves to (NO_STATE: it only ends);
# and flags: OUTPUT_MOVE, a match ends with it; LAST_MOVE, it is the last move of its step
MARK, TARGET, FLAGS = range(3)
NO_STATE = -1
OUTPUT_MOVE, LAST_MOVE = 1, 2

# an entry of `Determinization.touched`: any state may be touched
EVERY = -2

# columns of `Determinization.steady`: the number of sources (or NOT_STEADY); from SOURCES on, SOURCE_WIDTH columns for
# each: its state (NO_STATE: a run that begins there), the mark of the event, and the state that the run moves to.  A
# symbol that starts runs into state 3, and moves those of state 3 to state 4: 2; NO_STATE, 1, 3; 3, 1, 4
N_SOURCES, SOURCES = range(2)
SOURCE_STATE, SOURCE_MARK, SOURCE_TARGET, SOURCE_WIDTH = range(4)
NOT_STEADY = -1

END_OF_LIST = -1
"""End of the states in a row of `Determinization.touched`, and of the steps in a row of `Chain.steps_of`."""

MOVES, BARS = range(2)
"""Effects in `FunnelTable.actions`, each added to twice the number of a step."""

# columns of `LatestStarts.moves`; both are columns of a partition's row of latest starts, from one to the other
START_TARGET, START_SOURCE = range(2)

# columns of a row of latest starts (numbers of events): none, ever; the event under way; the latest start of what ends
# at that event; and, from FIRST_START on, one column for each state
NO_START, FRESH_START, ENDED_START, FIRST_START = range(4)

# windows: none; one for all partitions; one for each partition, which counts its events
NO_WINDOW, GLOBAL_WINDOW, COUNT_WINDOW = range(3)

# CONSUME BY: after a position that ends a match, forget nothing, the runs of its partition, or all runs
CONSUME_NONE, CONSUME_PARTITION, CONSUME_ANY = range(3)

CONDITION = np.dtype(
    [
        ("kind", np.int32),  # COMPARE; COMPARE_RANKED, which compares strings by their ranks; or PROGRAM
        ("op", np.int32),  # of a comparison: EQUAL to AT_LEAST
        ("column", np.int32),  # of a comparison: the column of `Instances.values` for the earlier event, from 1
        ("other", np.int32),  # of a comparison: the column for the later event, from 1
        ("arg", np.int32),  # of a program: which of its arguments, 0 or 1, is the earlier event
        ("begin", np.int32),  # of a program: its first instruction, a row of `Filters.code`
        ("end", np.int32),  # of a program: the row after its last instruction
        ("relation", np.int32),  # the filter of the query that it tests: a row of `Graph.levels`
        (
            "zone",
            np.int32,
        ),  # zone map of the earlier event's column, numbered within its atom; or NO_ZONE
    ]
)
"""A row of `Filters.conditions`: a test of an earlier event with a later one.

`b.x > a.y`, with b the later one, is a COMPARE with LESS of the columns y and x: the earlier event is on the left.
"""
COMPARE, COMPARE_RANKED, PROGRAM = range(3)
EQUAL, DIFFERENT, LESS, AT_MOST, GREATER, AT_LEAST = range(6)
NO_ZONE = -1

EDGE = np.dtype(
    [
        ("source", np.int32),  # atom of the earlier event
        ("target", np.int32),  # atom of the later event
        ("contiguous", np.int32),  # 1 if no event may lie between the two, else 0
        ("loop", np.int32),  # column of `Graph.loop_levels` for the iteration that begins anew between the two, or -1
        ("index", np.int32),  # hash index that lists the source's instances with the keys of a target's, or NO_INDEX
        (
            "first",
            np.int32,
        ),  # its first row of `Filters.conditions`: from here on, those that the hash index guarantees
        ("test", np.int32),  # from here on, those that each candidate has to be tested for
        ("last", np.int32),  # the row after its last
        ("zoned", np.int32),  # 1 if zone maps of the source let blocks of candidates be skipped, else 0
        (
            "watched",
            np.int32,
        ),  # first row of `Graph.watched`: absences that the source's instance knows by itself
        ("watched_end", np.int32),  # the row after the last of these
        ("gaps", np.int32),  # first row of `General.gaps`: absences from the gap that only a whole path can test
        ("gaps_end", np.int32),  # the row after the last of these
        (
            "ended",
            np.int32,
        ),  # column of `Instances.ended` that a target that bars a gap sets at the source, or NO_COLUMN
        (
            "shift",
            np.int32,
        ),  # binary logarithm of the entries of an instance in the hash index: 1 or 2 in a grid, else 0
        (
            "through",
            np.int32,
        ),  # the only edge into the source, if it comes from where the target's first far edge does; or NO_EDGE
    ]
)
"""A row of `Graph.edges`: two atoms whose events may be neighbours in a match.

For `A AS a ; B AS b FILTER b.x > a.x` the edge from A to B is
0, 1, 0, -1, NO_INDEX, 0, 0, 1, 1, 0, 0, 0, 0, NO_COLUMN, 0, NO_EDGE.
"""
NO_INDEX = -1
NO_EDGE = -1
NO_COLUMN = -1

# columns of `Graph.watched`: the column of `Instances.ended` to look at; and 1 if the absence has no filter, so that an
# event that bars one instance of the source bars all below it, too
WATCHED_ENDED, WATCHED_ALL = range(2)

# columns of `General.gaps`: the atom whose events the gap must not hold; the set of atoms at whose event the gap begins
# (NO_SET: at the edge's earlier event); the first row of `General.barring` for its filters; and the row after the last
GAP_ATOM, GAP_BEGINS, GAP_BARRING, GAP_BARRING_END = range(4)
NO_SET = -1

# columns of `Graph.distant`: the row of `Filters.conditions`; the row of `Graph.sets` for the atoms of the later event;
# and 1 to test the nearest event of these atoms in the path alone, 0 to test all
DISTANT_CONDITION, DISTANT_ATOMS, DISTANT_NEAREST = range(3)

# columns of `Graph.lookahead`: the atom that every path back to a start still has to pass; the row of
# `Filters.conditions` that its event must satisfy; and the row of `Graph.sets` for the atoms of the later event
AHEAD_ATOM, AHEAD_CONDITION, AHEAD_ATOMS = range(3)

# flags of an atom
INITIAL_ATOM = 1  # a match may begin with its event
FINAL_ATOM = 2  # a match may end with its event
STACKED_ATOM = 4  # its events are stored as instances, as later ones look for them
LEAF_ATOM = 8  # no edge leads to it and no distant filter reads it: a path that reaches it is whole
BARRING_ATOM = 16  # its events are those that a gap must not hold, and are in no match

# choice among the matches of one end
CHOOSE_ALL, CHOOSE_NEXT, CHOOSE_LAST, CHOOSE_MAX = range(4)

# columns of `Automaton.transitions`; ..._END is the row after the last of a transition
(
    FIRE_SOURCE,  # first row of `Automaton.sources`: the lists of partial matches that the event joins
    FIRE_SOURCES_END,
    FIRE_FEED,  # first row of `Automaton.feeds`: the lists that take the partial match that comes of it
    FIRE_FEEDS_END,
    FIRE_EQUAL,  # first row of `Automaton.equals`: pairs of columns of the event that must be equal
    FIRE_EQUALS_END,
    FIRE_MARK,  # mark of the event
    FIRE_FINAL,  # 1 if a match ends with it, else 0
    FIRE_FED,  # 1 if its partial matches are stored, else 0
) = range(9)
# columns of `Automaton.sources` and `feeds`: the key of the event, and the list under that key
LINK_KEY, LINK_LIST = range(2)

# first columns of `Keys.rows`: 0 for an empty row, else the partition and 1; the position of the last use; then follow
# the values and the lists
ROW_PARTITION, ROW_USED, ROW_VALUES = range(3)

# first columns of `Nodes.records`: the position of the event, and the transition
NODE_POSITION, NODE_TRANSITION, NODE_FIELDS = range(3)

# columns of `Unions.links`: the node; the unions at the left and right below, or none; and the rank, the number of
# unions on the shortest way down to a missing one.  The bits above RANK_BITS of the rank are UNION_LEAF: the transition
# and 1 of a node without sources, else 0.  UNION_START and UNION_NUMBER are columns of `Unions.starts` and `numbers`,
# the same memory
UNION_NODE, UNION_LEFT, UNION_RIGHT, UNION_RANK = range(4)
UNION_START, UNION_NUMBER = 2, 3
RANK_BITS = 8

NOW = -1
"""In place of a step of SELECT RECENT: the event under way; of an absence, the event that must not be there."""

# flags of the sums of a symbol (`cer_gpu.automaton.chain_sums`): runs begin with its events; runs end with them
SUM_BEGINS, SUM_ENDS = 1, 2
CLEARED = -1
"""In place of the row that a sum adds: its target becomes zero."""
