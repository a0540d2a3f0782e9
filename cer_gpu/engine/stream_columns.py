"""Derived columns that read events before their own: ``LAG``, aggregates ``OVER`` the past, and positions."""

from __future__ import annotations

from cer_gpu.columnar.columns import Block
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.lags import Lags
from cer_gpu.engine.pasts import Pasts
from cer_gpu.engine.positions import Positions
from cer_gpu.expressions.derived import has_positions, lags_of
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
