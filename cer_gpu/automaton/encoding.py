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

# windows: none; one for all partitions; one for each partition, which counts its events
NO_WINDOW, GLOBAL_WINDOW, COUNT_WINDOW = range(3)

# CONSUME BY: after a position that ends a complex event, forget nothing, the runs of its partition, or all runs
CONSUME_NONE, CONSUME_PARTITION, CONSUME_ANY = range(3)
