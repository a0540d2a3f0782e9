"""Derived columns that read events before their own: ``LAG``, aggregates ``OVER`` the past, and positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.ceql.syntax import COUNTED_POSITION
from cer_gpu.columnar.columns import Block
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.lags import Lags
from cer_gpu.engine.pasts import Pasts
from cer_gpu.expressions.derived import has_positions, lags_of
from cer_gpu.partition.dealt import partitions_of
from cer_gpu.partition.partitions import PartitionKeys
from cer_gpu.planning.binding import Binding
from cer_gpu.predicates.shared_guards import SharedGuards


class StreamColumns:
    """The columns of a query over the blocks of a stream.

    Parameters
    ----------
    binding : Binding
    deal
        (k, n): events of share k of n of the keys only; the others get any values.
    shared
        Guards of the set that the query stands in, of the same schema; None: it stands alone.
    """

    def __init__(
        self, binding: Binding, deal: tuple[int, int] | None = None, shared: SharedGuards | None = None
    ) -> None:
        keys, types, lags = _keys(binding), binding.keys.parts, lags_of(binding.derived)
        self._lags = Lags(lags, keys, types, deal) if lags else None
        self._pasts = None if binding.pasts is None else Pasts(binding.pasts, keys, types, deal, shared)
        self._positions = Positions(keys, types, deal) if has_positions(binding.derived) else None

    def rebind(self, binding: Binding, shared: SharedGuards | None = None) -> None:
        """Go on with the same columns of batches of another schema.

        Raises
        ------
        EventsError
            When the values kept so far do not fit the new type of their column.
        """
        keys = _keys(binding)
        if self._lags is not None:
            self._lags.rebind(lags_of(binding.derived), keys)
        if self._pasts is not None:
            assert binding.pasts is not None
            self._pasts.rebind(binding.pasts, keys, shared)
        if self._positions is not None:
            self._positions.rebind(keys)

    def add_to(self, block: Block) -> None:
        """Make the columns of the next block."""
        if self._lags is not None:
            self._lags.add_to(block)
        if self._pasts is not None:
            self._pasts.add_to(block)
        if self._positions is not None:
            self._positions.add_to(block)

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the state to a checkpoint."""
        if self._lags is not None:
            arrays, texts, state.tables["lags"] = self._lags.snapshot()
            state.add_arrays("lags", arrays)
            state.add_texts("lag_texts", texts)
        if self._pasts is not None:
            arrays, texts, counted = self._pasts.snapshot()
            state.add_arrays("pasts", arrays)
            state.add_texts("past_texts", texts)
            state.add_texts("past_values", counted)
        if self._positions is not None:
            arrays, texts = self._positions.snapshot()
            state.add_arrays("positions", arrays)
            state.add_texts("position_texts", texts)

    def restore(self, state: NamedState) -> None:
        """Go on from a checkpoint."""
        if self._lags is not None:
            self._lags.restore(state.part("lags"), state.texts("lag_texts"), state.tables["lags"])
        if self._pasts is not None:
            self._pasts.restore(state.part("pasts"), state.texts("past_texts"), state.texts("past_values"))
        if self._positions is not None:
            self._positions.restore(state.part("positions"), state.texts("position_texts"))


def _keys(binding: Binding) -> PartitionKeys | None:
    return binding.keys if binding.plan.partition else None


class Positions:
    """Column of the positions of events, which windows of EVENTS within a pattern compare.

    They count all events, relevant or not, in the stream or in each partition.  Only differences have a meaning: a part
    of a stream may begin to count anywhere.
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
