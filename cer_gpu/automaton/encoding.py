"""Codes of the tables that `cer_gpu.automaton` makes and the kernels of `cer_gpu.backend` read, each written once.

Plain integers only: kernels take them as constants.  A kernel kept on disk is compiled again when this file changes
(`cer_gpu.backend.jit`).
"""

from __future__ import annotations

QUIET = 0
"""The symbol of events that no transition but the waiting loops can read: they are dropped before the loop."""

# entries of `Determinization.steps`, and of the first moves in `fresh`; other entries are rows of `moves`
UNKNOWN, STAY = -1, -2
DIES = 0
"""The first of `Determinization.moves`, of a state whose runs end without a match."""

# columns of `Determinization.fresh`
FIRST_MOVE, NEXT_CONTROL = range(2)

# columns of `Determinization.moves`, a target that is no state, and the flags
MARK, TARGET, FLAGS = range(3)
NO_STATE = -1
OUTPUT, LAST = 1, 2

# an entry of `Determinization.touched`: any state may be touched
EVERY = -2

# columns of `Determinization.steady`: how many sources there are (or NOT_STEADY), then SOURCE_WIDTH columns for each:
# its state (or NO_STATE: a run that begins), the mark, and the target
N_SOURCES, SOURCES = range(2)
SOURCE_STATE, SOURCE_MARK, SOURCE_TARGET, SOURCE_WIDTH = range(4)
NOT_STEADY = -1

END_OF_LIST = -1
"""What ends the states in a row of `Determinization.touched`, and the steps in one of `Chain.steps_of`."""

# windows: none; ends for all partitions at the same position; counts the events of each partition
NO_WINDOW, GLOBAL_WINDOW, COUNT_WINDOW = range(3)

# what is forgotten after a position that ends a complex event: nothing, its partition, everything
CONSUME_NONE, CONSUME_PARTITION, CONSUME_ANY = range(3)
