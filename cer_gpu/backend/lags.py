"""Events before each event in its partition: a ring of the last ones for each partition."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import kernel

_U = np.uint64


@kernel
def find_earlier(rows, partitions, first, lags, counts, rings, earlier, kept):
    """Find, for each event of a block, the positions of the events some places before it in its partition.

    Parameters
    ----------
    rows, partitions : int32, shape (n,)
        Events that have a partition, in order; its id.
    first : int
        Position of the first event of the block.
    lags : int64, shape (m,)
        Numbers of places, at most the length of a ring.
    counts : int64, shape (at least partitions,), written
        Events of each partition so far.
    rings : int64, shape (at least partitions, length), written
        One more than the positions of the last events of each partition: the k-th event is at k modulo the length.
    earlier : int64, shape (m, events of the block), written
        Positions; -1 where there is no such event.
    kept : bool, shape (events of the block,), written
        True for events that are in a ring after the block.
    """
    length = rings.shape[1]
    for i in range(rows.shape[0]):
        row, partition = _U(rows[_U(i)]), _U(partitions[_U(i)])
        count = counts[partition]
        for k in range(lags.shape[0]):
            if count >= lags[_U(k)]:
                earlier[_U(k), row] = rings[partition, _U((count - lags[_U(k)]) % length)] - 1
            else:
                earlier[_U(k), row] = -1
        slot = _U(count % length)
        if count >= length and rings[partition, slot] > first:
            kept[_U(rings[partition, slot] - 1 - first)] = False
        rings[partition, slot] = first + np.int64(row) + 1
        counts[partition] = count + 1
        kept[row] = True
