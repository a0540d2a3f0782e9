"""Partitions of one query: events are assigned to them by their keys, and partitions that hold nothing are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Bools, Int32, Int64
from cer_gpu.columnar.rows import SelectedRows
from cer_gpu.engine.blocks import Batch, EventBlock
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.options import EvaluationOptions
from cer_gpu.partition.by_step import StepKeys
from cer_gpu.partition.dealt import partitions_of
from cer_gpu.partition.partitions import Partitions
from cer_gpu.partition.shared import SharedPartitions, ViewOfPartitions
from cer_gpu.planning.binding import Binding
from cer_gpu.runtime.protocol import Runtime


class PartitionState(Protocol):
    """State of a stage, by partition."""

    def holds(self, n_partitions: int) -> Bools:
        """Return the mask of the first partitions in which something is held."""

    def keep_partitions(self, kept: Bools) -> None:
        """Drop the partitions that are not `kept`; the others are numbered anew in their order."""


class Partitioner:
    """Assignment of the relevant events of one query to the partitions of PARTITION BY.

    Parameters
    ----------
    binding
        Binding to the schema of the first batch, which fixes the types of the keys.
    runtime
    states
        The stages beside the runtime whose state refers to partitions.
    options
        Its shard of the keys, and the position from which on matches are reported.
    step_keys
        Keys that depend on the steps that an event satisfies, or None if all events have the same.
    shared
        View on partitions that several queries share, or None if this query has its own.
    all_events
        True: events that are not relevant get partitions, too.
    numbered
        True: the events of each partition are numbered.

    Attributes
    ----------
    partitions : Partitions or ViewOfPartitions
    n_without_key : int
        Number of events that the query could use, and that have no key.
    """

    def __init__(
        self,
        binding: Binding,
        runtime: Runtime,
        states: Sequence[PartitionState],
        options: EvaluationOptions,
        *,
        step_keys: StepKeys | None,
        shared: ViewOfPartitions | None,
        all_events: bool,
        numbered: bool,
    ) -> None:
        self._keys, self._types = binding.keys, binding.keys.types
        self._parts = binding.keys.parts if step_keys is None else step_keys.parts
        self._step_keys, self._runtime, self._states = step_keys, runtime, states
        self._all_events, self._numbered = all_events, numbered
        self.partitions: Partitions | ViewOfPartitions = shared or self._new_partitions(options.key_shard)
        self.n_without_key: int = 0
        # of threads that share the keys, one counts, and of those that share the stream, each its own events
        self._counts_keys = step_keys is None and (options.key_shard is None or options.key_shard[0] == 0)
        self._report_from = options.report_from

    def rebind(self, binding: Binding, step_keys: StepKeys | None) -> None:
        """Read the keys of the next batches by the binding to another schema."""
        self._keys, self._step_keys = binding.keys, step_keys

    def _new_partitions(self, key_shard: tuple[int, int] | None = None) -> Partitions:
        return partitions_of(self._parts, key_shard, every=self._all_events, numbered=self._numbered)

    @property
    def needs_all_events(self) -> bool:
        """True if events count in their partitions whether or not they are relevant."""
        return self._all_events or self._numbered

    def assign(self, block: EventBlock, selected: SelectedRows, *, all_rows: bool) -> tuple[SelectedRows, Int32, Int64]:
        """Find the partitions of the relevant events of a block.

        Parameters
        ----------
        block
        selected
            The relevant events.
        all_rows
            True: also of the other events, whose symbol is 0.

        Returns
        -------
        selected, partitions, ordinals
            The events that have a key, the partition (int32) of each, and its number in the partition (int64; empty
            unless they are numbered).
        """
        columns = block.columns
        if self.is_swept:
            self._drop_idle()
        self._count_without_key(columns.batch, selected.rows, block.first)
        if all_rows:
            symbols = np.zeros(columns.n_rows, np.int32)
            symbols[selected.rows] = selected.symbols
            selected = SelectedRows(symbols, np.arange(columns.n_rows, dtype=np.int32))
        keys = partial(self._keys.arrays, columns.batch, self._parts)
        ordinals = np.empty(0, np.int64)
        if self._step_keys is not None:
            assert isinstance(self.partitions, Partitions)
            selected, partitions = self._step_keys.assign(columns.batch, selected, self._parts, self.partitions)
        elif isinstance(self.partitions, Partitions):
            symbols, rows, partitions, ordinals = self.partitions.assign(keys(), selected.symbols, selected.rows)
            selected = SelectedRows(symbols, rows)
        else:
            selected, partitions, ordinals = self.partitions.assign(keys, selected)
        if self._runtime.keeps_partitions:
            self._runtime.reserve_partitions(self.partitions.n)
        return selected, partitions, ordinals

    def _count_without_key(self, batch: pa.RecordBatch, rows: Int32, first: int) -> None:
        """Count the events of some rows that have no key; row 0 of the batch is event `first`."""
        if self._counts_keys:
            own = rows if first >= self._report_from else rows[np.searchsorted(rows, self._report_from - first) :]
            self.n_without_key += self._keys.n_without(batch, own)

    def keys_at(self, ends: Int64, batch: Batch) -> list[pa.Array]:
        """Return the keys of the events of a batch at which matches end."""
        return self._keys.at(batch.events, batch.rows_at(ends), self._types)

    # ---- partitions that hold nothing -----------------------------------------------------------------------

    @property
    def is_swept(self) -> bool:
        """True if the next block drops partitions of this query, and numbers the others anew."""
        return isinstance(self.partitions, Partitions) and self.partitions.wants_sweep

    def shares(self, partitions: SharedPartitions) -> bool:
        """Return True if the query has a view on these partitions."""
        return isinstance(self.partitions, ViewOfPartitions) and self.partitions.shared is partitions

    def own_partitions(self) -> None:
        """Take over the shared partitions, and drop those that hold nothing of this query."""
        own = self._new_partitions()
        own.restore(*self.partitions.snapshot())
        self.partitions = own
        self._drop_idle()

    def busy(self, n: int) -> Bools:
        """Return the mask of the first `n` partitions that hold something."""
        if self._runtime.keeps_partitions:
            self._runtime.reserve_partitions(n)
        busy: Bools = ~self._runtime.idle(n)
        for state in self._states:
            busy |= state.holds(n)
        return busy

    def keep_partitions(self, kept: Bools) -> None:
        """Drop the state of the partitions that are not `kept`; the others are numbered anew in their order."""
        for state in self._states:
            state.keep_partitions(kept)
        self._runtime.keep_partitions(kept)

    def _drop_idle(self) -> None:
        assert isinstance(self.partitions, Partitions)
        busy = self.busy(self.partitions.n)
        self.partitions.keep(busy)
        self.keep_partitions(busy)

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the partitions of this query to a checkpoint; the set adds those that are shared."""
        if isinstance(self.partitions, Partitions):
            arrays, strings = self.partitions.snapshot()
            state.facts["owns_partitions"] = True
            state.add_arrays("partitions", arrays)
            state.add_texts("texts", strings)

    def restore(self, state: NamedState) -> None:
        """Continue from a checkpoint."""
        if state.facts.get("owns_partitions"):
            if not isinstance(self.partitions, Partitions):
                self.partitions = self._new_partitions()
            self.partitions.restore(state.part("partitions"), state.texts("texts"))
