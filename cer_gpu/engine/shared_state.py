"""Parts that the queries of a set have in common: guards, partitions, and memory that they use in turns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Bools
from cer_gpu.columnar.buffer_leases import BufferLease, BufferSlot, outside_turns
from cer_gpu.columnar.columns import Block
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.partition.partitions import PartitionKeys
from cer_gpu.partition.shared import MAX_SHARED, SharedPartitions, ViewOfPartitions
from cer_gpu.predicates.shared_guards import SharedGuards


class PartitionUser(Protocol):
    """A query of the set, as its shared partitions see it; `cer_gpu.engine.partitioner.Partitioner` is one."""

    def shares(self, partitions: SharedPartitions) -> bool:
        """Return True if the query has a view on these partitions."""

    def busy(self, n: int) -> Bools:
        """Return which of the first `n` partitions hold something."""

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the state of the partitions outside of `mask`, and renumber the remaining ones in their order."""

    def own_partitions(self) -> None:
        """Take over the shared partitions, and drop those without state of this query."""


class GuardCache:
    """Guards of a set as they were bound last, for its next evaluations."""

    guards: SharedGuards | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle none of them: they are bound again."""
        return GuardCache, ()


class SharedState:
    """Guards by schema, partitions by key, and memory, for the pipelines of one set.

    Parameters
    ----------
    stream_column, device
        As of `cer_gpu.predicates.shared_guards.SharedGuards`.
    before
        Guards that another evaluation of the set has bound.
    types_seen
        Types that events have (`SharedGuards`), in common with other evaluations of the same stream.

    Attributes
    ----------
    types_seen : dict from str to None
    """

    def __init__(
        self,
        stream_column: str | None,
        device: str,
        before: GuardCache | None = None,
        types_seen: dict[str, None] | None = None,
    ) -> None:
        self.types_seen: dict[str, None] = {} if types_seen is None else types_seen
        self._arguments = stream_column, device
        self._before = before or GuardCache()
        self._guards: SharedGuards | None = None
        self._guards_before: SharedGuards | None = None  # over another schema
        self._partitions: dict[tuple[Hashable, bool], SharedPartitions] = {}
        self._memory: dict[Hashable, BufferSlot] = {}
        self._saved: NamedState | None = None  # of the partitions that no query shares yet

    def clone(self) -> SharedState:
        """Return the same for another evaluation of the queries."""
        return SharedState(*self._arguments, self._before, self.types_seen)

    def restart(self) -> None:
        """Begin another part of the stream, whose partitions are not known."""
        for key, shared in self._partitions.items():
            self._partitions[key] = SharedPartitions(shared.types, numbered=shared.numbered)

    def lease(self) -> BufferLease:
        """Return the buffer lease of one more query."""
        return BufferLease(self._memory)

    def guards(self, schema: pa.Schema, type_column: str | None) -> SharedGuards:
        """Return the guards over events of a schema, whose column of types is the same for all queries."""
        if self._guards is None or not self._guards.schema.equals(schema, check_metadata=True):
            # a query that wakes is bound to the first schema, and then to that of the block
            self._guards, self._guards_before = self._guards_before, self._guards
        if self._guards is None or not self._guards.schema.equals(schema, check_metadata=True):
            with outside_turns():  # a query whose pipeline starts requests them in its own lease
                guards, before = SharedGuards(schema, type_column, *self._arguments), self._before.guards
                self._guards = before.clone() if before is not None and guards.may_be(before) else guards
            self._guards.types_seen = self.types_seen
        return self._guards

    def all_bound(self) -> None:
        """Keep the guards for other evaluations, once all queries are bound."""
        guards, before = self._guards, self._before.guards
        if guards is not None:
            guards.prepare()
        if guards is not None and (before is None or not guards.may_be(before)):
            self._before.guards = guards.clone()

    def prefetch(self, blocks: Iterable[Block]) -> Iterable[Block]:
        """Yield blocks whose guards can be read; on a GPU, those of the next are already in flight."""
        return blocks if self._guards is None else self._guards.prefetch(blocks)

    def release(self) -> None:
        """Free the memory on a device."""
        for guards in (self._guards, self._guards_before):
            if guards is not None:
                guards.release()

    def add_partitions(self, keys: PartitionKeys) -> None:
        """Let queries with these keys of PARTITION BY share their partitions."""
        for numbered in (False, True) if keys.parts else ():
            key = keys.identity, numbered
            if key not in self._partitions:
                self._partitions[key] = self._restore_partitions(key, SharedPartitions(keys.parts, numbered=numbered))

    def partitions(self, keys: PartitionKeys, *, numbered: bool) -> ViewOfPartitions | None:
        """Return the view of one more query on the partitions of its keys, or None if they are its own."""
        shared = self._partitions.get((keys.identity, numbered))
        if shared is None or shared.is_given_up or shared.types != keys.parts:
            return None
        return ViewOfPartitions(shared)

    def snapshot(self, state: NamedState) -> None:
        """Add the shared partitions to a checkpoint."""
        for key, shared in self._partitions.items():
            arrays, strings = shared.all.snapshot()
            state.facts[f"shared.{key!r}"] = shared.is_given_up
            state.add_arrays(f"shared.{key!r}", arrays)
            state.add_strings(f"shared.{key!r}", strings)

    def restore(self, state: NamedState) -> None:
        """Go on from a checkpoint: partitions are restored as soon as a query shares them."""
        self._saved = state

    def _restore_partitions(self, key: tuple[Hashable, bool], shared: SharedPartitions) -> SharedPartitions:
        name = f"shared.{key!r}"
        if self._saved is not None and name in self._saved.facts:
            shared.is_given_up = self._saved.facts[name]
            shared.all.restore(self._saved.part(name), self._saved.strings(name))
        return shared

    def next_block(self, queries: Callable[[], Iterable[PartitionUser]]) -> None:
        """Go on to the next block; drop partitions without state of any query, once there are many."""
        for shared in self._partitions.values():
            shared.next_block()
            if shared.is_given_up or not shared.all.wants_sweep:
                continue
            views = [each for each in queries() if each.shares(shared)]
            mask = np.zeros(shared.all.n, np.bool_)
            for query in views:
                mask |= query.busy(len(mask))
            shared.all.keep(mask)
            for query in views:
                query.keep_partitions(mask)
            if shared.all.n > MAX_SHARED:
                shared.is_given_up = True
                for query in views:
                    query.own_partitions()
