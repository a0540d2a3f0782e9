"""Column of the positions of events, which windows of EVENTS within a pattern compare.

They count all events, relevant or not, in the stream or in each partition.  Only differences have a meaning: a part of
a stream may begin to count anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.ceql.syntax import COUNTED_POSITION
from cer_gpu.columnar.columns import Block
from cer_gpu.partition.dealt import partitions_of
from cer_gpu.partition.partitions import PartitionKeys


class Positions:
    """Positions over the blocks of a stream.

    With PARTITION BY no partition is ever dropped, as an event of its key may come at any time.

    Parameters
    ----------
    keys
        Keys of PARTITION BY; None: there are none.
    types
        Types of the keys.
    deal
        (k, n): events of share k of n of the keys only; the others get any values.
    """

    def __init__(
        self, keys: PartitionKeys | None, types: list[pa.DataType], deal: tuple[int, int] | None = None
    ) -> None:
        self._types = types
        self._partitions = None if keys is None else partitions_of(types, deal, every=True, numbered=True)
        self._n_events = 0
        self.rebind(keys)

    def rebind(self, keys: PartitionKeys | None) -> None:
        """Go on with batches of another schema."""
        self._keys = keys

    def add_to(self, block: Block) -> None:
        """Make the column of the next block."""
        positions = np.arange(self._n_events, self._n_events + block.n_rows)
        self._n_events += block.n_rows
        if self._partitions is not None:
            assert self._keys is not None
            rows = np.arange(block.n_rows, dtype=np.int32)
            keys = self._keys.arrays(block.batch, self._types)
            _, rows, _, numbers = self._partitions.assign(keys, rows, rows)
            positions[rows] = numbers
        block.put(COUNTED_POSITION, pa.array(positions))

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], dict[int, pa.Array]]:
        """Return the state: arrays, and the values of keys that are texts."""
        arrays: dict[str, Any] = {"n_events": np.array([self._n_events])}
        if self._partitions is None:
            return arrays, {}
        of_keys, texts = self._partitions.snapshot()
        return arrays | {f"keys.{name}": array for name, array in of_keys.items()}, texts

    def restore(self, arrays: dict[str, Any], texts: dict[int, pa.Array]) -> None:
        """Go on from a snapshot."""
        self._n_events = int(arrays["n_events"][0])
        if self._partitions is not None:
            self._partitions.restore({n: arrays[f"keys.{n}"] for n in ("keys", "counts")}, texts)
