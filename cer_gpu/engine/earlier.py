"""Columns that read events before their own, ``LAG`` and aggregates ``OVER`` the past, over the blocks of a stream."""

from __future__ import annotations

from cer_gpu.columnar.columns import Block
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.lags import Lags
from cer_gpu.engine.pasts import Pasts
from cer_gpu.expressions.derived import lags_of
from cer_gpu.partition.partitions import PartitionKeys
from cer_gpu.planning.binding import Binding


class EarlierColumns:
    """All such columns of a query.

    Parameters
    ----------
    binding
        Binding to the schema of the first batch.
    deal
        (k, n): events of share k of n of the keys only; the others get any values.
    """

    def __init__(self, binding: Binding, deal: tuple[int, int] | None = None) -> None:
        keys, types, lags = _keys(binding), binding.keys.types, lags_of(binding.derived)
        self._lags = Lags(lags, keys, types, deal) if lags else None
        self._pasts = None if binding.pasts is None else Pasts(binding.pasts, keys, types, deal)

    def __bool__(self) -> bool:
        """Return True if there are some."""
        return self._lags is not None or self._pasts is not None

    def rebind(self, binding: Binding) -> None:
        """Go on with the same columns of batches of another schema.

        Raises
        ------
        EventsError
            When the values kept so far do not fit the new type of their column.
        """
        if self._lags is not None:
            self._lags.rebind(lags_of(binding.derived), _keys(binding))
        if self._pasts is not None:
            assert binding.pasts is not None
            self._pasts.rebind(binding.pasts, _keys(binding))

    def add_to(self, block: Block) -> None:
        """Make the columns of the next block."""
        if self._lags is not None:
            self._lags.add_to(block)
        if self._pasts is not None:
            self._pasts.add_to(block)

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

    def restore(self, state: NamedState) -> None:
        """Go on from a checkpoint."""
        if self._lags is not None:
            self._lags.restore(state.part("lags"), state.texts("lag_texts"), state.tables["lags"])
        if self._pasts is not None:
            self._pasts.restore(state.part("pasts"), state.texts("past_texts"), state.texts("past_values"))


def _keys(binding: Binding) -> PartitionKeys | None:
    return binding.keys if binding.plan.partition else None
