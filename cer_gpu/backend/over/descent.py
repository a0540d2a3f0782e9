"""Processes that descend from marked ones, in one pass over the events of a stream.

A process is marked where an event of it satisfies a condition.  An event that names its process and the parent of that
tells whether the process descends: its parent is marked, or descends.  The state of a process stays.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import kernel

MARKED, DESCENDS = 1, 2
"""Bits of the state of a process."""
_U = np.uint64


@kernel
def mark_descents(processes, parents, chosen, descents, results):
    """Find the events whose process descends from one that was marked before.

    Parameters
    ----------
    processes : int32, shape (block,)
        Number of the process of each event; -1 if there is none.
    parents : int32, shape (block,)
        Number of its parent, or -1.
    chosen : bool, shape (block,)
        True for the events that mark their process.
    descents : uint8, shape (numbers,), written
        Bits of each process.
    results : bool, shape (block,), written
    """
    for row in range(processes.shape[0]):
        process, parent = processes[_U(row)], parents[_U(row)]
        if process < 0:
            results[_U(row)] = False
            continue
        bits = descents[_U(process)]
        if parent >= 0 and descents[_U(parent)] != 0:
            bits |= np.uint8(DESCENDS)
        results[_U(row)] = bits & np.uint8(DESCENDS) != 0
        if chosen[_U(row)]:
            bits |= np.uint8(MARKED)
        descents[_U(process)] = bits
