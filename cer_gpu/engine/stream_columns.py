"""Derived columns that depend on the events before: ``LAG``, and positions; all of them of one stream."""

from __future__ import annotations

import pyarrow as pa

from cer_gpu.columnar.columns import Block
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.lags import Lags
from cer_gpu.engine.positions import Positions
from cer_gpu.expressions.derived import has_positions, lags_of
from cer_gpu.planning.binding import Binding


class StreamColumns:
    """The columns of a query over the blocks of a stream.

    Parameters
    ----------
    binding : Binding
    types
        Types of the keys of PARTITION BY.
    deal
        (k, n): events of share k of n of the keys only; the others get any values.
    """

    def __init__(self, binding: Binding, types: list[pa.DataType], deal: tuple[int, int] | None) -> None:
        lags, keys = lags_of(binding.derived), binding.keys if binding.plan.partition else None
        self._lags = Lags(lags, keys, types, deal) if lags else None
        self._positions = Positions(keys, types, deal) if has_positions(binding.derived) else None

    def rebind(self, binding: Binding) -> None:
        """Go on with the same columns of batches of another schema."""
        keys = binding.keys if binding.plan.partition else None
        if self._lags is not None:
            self._lags.rebind(lags_of(binding.derived), keys)
        if self._positions is not None:
            self._positions.rebind(keys)

    def add_to(self, block: Block) -> None:
        """Make the columns of the next block."""
        if self._lags is not None:
            self._lags.add_to(block)
        if self._positions is not None:
            self._positions.add_to(block)

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the state to a checkpoint."""
        if self._lags is not None:
            arrays, texts, state.tables["lags"] = self._lags.snapshot()
            state.add_arrays("lags", arrays)
            state.add_texts("lag_texts", texts)
        if self._positions is not None:
            arrays, texts = self._positions.snapshot()
            state.add_arrays("positions", arrays)
            state.add_texts("position_texts", texts)

    def restore(self, state: NamedState) -> None:
        """Go on from a checkpoint."""
        if self._lags is not None:
            self._lags.restore(state.part("lags"), state.texts("lag_texts"), state.tables["lags"])
        if self._positions is not None:
            self._positions.restore(state.part("positions"), state.texts("position_texts"))
