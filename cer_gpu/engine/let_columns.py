"""Columns of LET over the batches of a stream."""

from __future__ import annotations

import pyarrow as pa

from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.dictionary_encoding import DictionaryEncoder
from cer_gpu.engine.blocks import BLOCK_ROWS
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.stream_columns import StreamColumns
from cer_gpu.expressions.derived import makers_of
from cer_gpu.partition.partitions import PartitionKeys
from cer_gpu.planning.let_binding import BoundLet
from cer_gpu.planning.plan import LogicalPlan


class LetColumns:
    """Maker of the columns of LET that a query reads by name.

    Parameters
    ----------
    bound : BoundLet
    plan
        Its keys are those of what looks back.
    key_shard
        (k, n): events of shard k of n of the keys only; the others get any values of what looks back.
    """

    def __init__(self, bound: BoundLet, plan: LogicalPlan, key_shard: tuple[int, int] | None = None) -> None:
        self._plan = plan
        self._coders: dict[str, DictionaryEncoder] = {}
        self._bound = bound
        self._states: dict[str, StreamColumns] = {}
        for column in bound.columns:
            if column.looks_back:
                keys = self._keys(column.name)
                self._states[column.name] = StreamColumns(keys, column.derived, column.over_aggregates, key_shard)

    def _keys(self, name: str) -> PartitionKeys | None:
        """Return the keys of what looks back, which a column that they are made of does not use."""
        plan, own = self._plan, {name for key in self._plan.partition_keys for name in key}
        missing = own - {*self._names_before(name), *self._bound.schema.names[: -len(self._bound.columns)]}
        return (
            PartitionKeys(plan.partition, self._bound.schema, plan.text)
            if plan.partition and not (missing & self._bound.names)
            else None
        )

    def _names_before(self, name: str) -> list[str]:
        names = [column.name for column in self._bound.columns]
        return names[: names.index(name)]

    def rebind(self, bound: BoundLet) -> None:
        """Go on with batches of another schema."""
        self._bound = bound
        for column in bound.columns:
            if column.looks_back:
                self._states[column.name].rebind(self._keys(column.name), column.derived, column.over_aggregates)

    def extend(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """Return the next events with the columns."""
        pieces = [
            self._extend(events.slice(start, BLOCK_ROWS)) for start in range(0, max(events.num_rows, 1), BLOCK_ROWS)
        ]
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _extend(self, events: pa.RecordBatch) -> pa.RecordBatch:
        for column in self._bound.columns:
            block = Block(events, self._coders)
            block.derive(makers_of(column.derived))
            if column.name in self._states:
                self._states[column.name].add_to(block)
            events = events.append_column(pa.field(column.name, column.type), column.make(block))
        return events

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the state to a checkpoint."""
        for i, each in enumerate(self._states.values()):
            each.snapshot(state.of(f"let {i}"))

    def restore(self, state: NamedState) -> None:
        """Go on from a checkpoint."""
        for i, each in enumerate(self._states.values()):
            each.restore(state.of(f"let {i}"))
