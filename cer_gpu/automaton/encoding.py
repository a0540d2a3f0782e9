"""Codes in the tables that `cer_gpu.automaton` makes and the kernels of `cer_gpu.backend` read.

They are plain integers, which kernels compile in as constants; a change to this file recompiles the kernels kept on
disk (`cer_gpu.backend.jit`).
"""

from __future__ import annotations

QUIET = 0
"""Symbol of events that fire only the waiting loops: they are dropped before the loop."""

# entries of `Determinization.steps` and of FIRST_MOVE in `fresh`; all others are rows of `moves`
UNKNOWN, STAY = -1, -2
DIES = 0
"""Row of `Determinization.moves` for a state whose runs end without a match."""

# columns of `Determinization.fresh`
FIRST_MOVE, NEXT_CONTROL = range(2)

# columns of `Determinization.moves`; the target of a run that only ends; bits of the flags
MARK, TARGET, FLAGS = range(3)
NO_STATE = -1
OUTPUT, LAST = 1, 2

# an entry of `Determinization.touched`: any state may be touched
EVERY = -2

# columns of `Determinization.steady`: the number of sources (or NOT_STEADY), then SOURCE_WIDTH columns for each
# source: its state (or NO_STATE: a run that begins), the mark, and the target
N_SOURCES, SOURCES = range(2)
SOURCE_STATE, SOURCE_MARK, SOURCE_TARGET, SOURCE_WIDTH = range(4)
NOT_STEADY = -1

END_OF_LIST = -1
"""End of the states in a row of `Determinization.touched`, and of the steps in a row of `Chain.steps_of`."""

# columns of `LatestStarts.moves`: columns of a partition's row of latest starts, of which the first three are: the one
# that never holds any, the number of the event under way, and the latest start of what ends at that event
START_TARGET, START_SOURCE = range(2)
NO_START, FRESH_START, ENDED_START, FIRST_START = range(4)

# windows: none; one for all partitions; one for each partition, which counts its events
NO_WINDOW, GLOBAL_WINDOW, COUNT_WINDOW = range(3)

# CONSUME BY: after a position that ends a complex event, forget nothing, the runs of its partition, or all runs
CONSUME_NONE, CONSUME_PARTITION, CONSUME_ANY = range(3)

# columns of `Filters.conditions`: the kind of a test; of a comparison its operator, the column of the earlier event and
# that of the later; of a program the argument (0 or 1) that is the earlier event, and its instructions; of either the
# relation; and, where zone maps hold the earlier column, its number there, else -1
COND_KIND, COND_OP, COND_COLUMN, COND_OTHER, COND_ARG, COND_BEGIN, COND_END, COND_RELATION, COND_ZONE = range(9)
COMPARE, COMPARE_RANKED, PROGRAM = range(3)
EQUAL, DIFFERENT, LESS, AT_MOST, GREATER, AT_LEAST = range(6)
NO_ZONE = -1

# columns of `Graph.edges`: the atoms; 1 if contiguous; the iteration that begins anew; the index of what the source
# holds, or NO_INDEX; the conditions: those that the index guarantees, then those to be tested; 1 if zone maps serve;
# the rows of `Graph.watched` and of `General.gaps` for events that the gap must not hold; and, for an edge to an atom
# that bars, the column of `Instances.ended` that its events set at the source, or NO_COLUMN
EDGE_SOURCE, EDGE_TARGET, EDGE_CONTIGUOUS, EDGE_LOOP = range(4)
EDGE_INDEX, EDGE_FIRST, EDGE_TEST, EDGE_LAST, EDGE_ZONED = range(4, 9)
EDGE_WATCHED, EDGE_WATCHED_END, EDGE_GAPS, EDGE_GAPS_END, EDGE_ENDED = range(9, 14)
N_EDGE = 14
NO_INDEX = -1
NO_COLUMN = -1

# columns of `Graph.watched`: that of `Instances.ended` at the source; and 1 if one event ends all that stands below
WATCHED_ENDED, WATCHED_ALL = range(2)

# columns of `General.gaps`: the atom that bars; the set of atoms with which the gap begins, or NO_SET: the one before;
# and rows of `General.barring`
GAP_ATOM, GAP_BEGINS, GAP_BARRING, GAP_BARRING_END = range(4)
NO_SET = -1

# columns of `Graph.distant`: the condition, the set of atoms of the later event, and 1 for the nearest of them alone
DISTANT_CONDITION, DISTANT_ATOMS, DISTANT_NEAREST = range(3)

# columns of `Graph.lookahead`: the atom that every path still has to pass, its condition, and the set of atoms of the
# later event
AHEAD_ATOM, AHEAD_CONDITION, AHEAD_ATOMS = range(3)

# flags of atoms: a complex event may begin there; it may end there; events are kept; it begins there and nowhere
# before, and no filter is left to test; and no complex event holds its events, which a gap must not hold
INITIAL_ATOM, FINAL_ATOM, STACKED_ATOM, LEAF_ATOM, BARRING_ATOM = 1, 2, 4, 8, 16

# choice among the complex events of one end
CHOOSE_ALL, CHOOSE_NEXT, CHOOSE_LAST, CHOOSE_MAX = range(4)

# columns of `Automaton.transitions`: its sources, the partial matches that it feeds, and the pairs of columns that must
# be equal, each as the first row and the end; the mark of its event; 1 if a complex event ends with it; and 1 if its
# partial matches are kept
FIRE_SOURCE, FIRE_SOURCES_END, FIRE_FEED, FIRE_FEEDS_END, FIRE_EQUAL, FIRE_EQUALS_END = range(6)
FIRE_MARK, FIRE_FINAL, FIRE_FED = range(6, 9)

# columns of `Automaton.sources` and `feeds`: the key of the event, and the list under that key
LINK_KEY, LINK_LIST = range(2)

# first columns of `Keys.rows`: 0 for an empty row, else the partition and 1; the position of the last use; then follow
# the values and the lists
ROW_PARTITION, ROW_USED, ROW_VALUES = range(3)

# first columns of `Nodes.records`: the position of the event, and the transition
NODE_POSITION, NODE_TRANSITION, NODE_FIELDS = range(3)

# columns of `Unions.links`: the node, the two unions below, and the rank (length of the shortest way to a missing one);
# and that of `Unions.starts`, which lies behind them
UNION_NODE, UNION_LEFT, UNION_RIGHT, UNION_RANK = range(4)
UNION_START = 2

# flags of the sums of a symbol (`cer_gpu.automaton.chain_sums`): runs begin; runs end.  In place of a row that is added
SUM_BEGINS, SUM_ENDS = 1, 2
CLEARED = -1
