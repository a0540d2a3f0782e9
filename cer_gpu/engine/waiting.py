"""The place where results wait until they are known, by the plan of a query; notes on those known by the end alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Int32
from cer_gpu.automaton.alphabet import Table
from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.clocks import Clock
from cer_gpu.engine.blocks import EventBlock
from cer_gpu.engine.options import HOLD, EvaluationOptions
from cer_gpu.engine.pending_matches import PendingMatches
from cer_gpu.engine.pending_starts import PendingStarts
from cer_gpu.partition.partitions import PartitionKeys
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.physical import PhysicalPlan
from cer_gpu.runtime.events import RunOptions
from cer_gpu.runtime.protocol import HoldsStarts, Runtime


def make_waiting(
    physical: PhysicalPlan,
    binding: Binding,
    table: Table,
    runtime: Runtime,
    options: RunOptions,
    shard: tuple[int, int] | None,
) -> PendingMatches | PendingStarts | None:
    """Return where the results of a runtime wait; None: they are known when they are found."""
    if physical.output.by_starts:
        return PendingStarts(cast(HoldsStarts, runtime), table.labels, shard)
    if not physical.waits:
        return None
    plan = physical.plan
    whole = physical.limits_rows or physical.output.whole_ends
    return PendingMatches(
        table.labels,
        plan.variables,
        binding.window_length,
        lasting=binding.lasting,
        labelled=physical.output.is_labelled(plan.head),
        strategy=physical.strategy,
        limit=physical.limit,
        counted=physical.output.counted,
        only_ends=physical.output.most_at_an_end == 1,
        grouped=whole,
        shard=None if whole else shard,
        options=options,
    )


def all_clocks(binding: Binding, block: EventBlock, clocks: dict[str, Clock], *, partitioned: bool) -> Array:
    """Return the clocks of the window of all events of a block."""
    column = binding.window_column
    rows = np.arange(block.columns.n_rows, dtype=np.int32)
    if column is not None:
        return clocks[column].window_clocks(clocks[column].at(rows, block.times[column]))
    if block.given is not None and not partitioned:
        return block.given.view(np.uint64)
    return (block.first + rows.astype(np.int64)).view(np.uint64)


class Tallies:
    """Counts of one pipeline.

    Parameters
    ----------
    options
    counts_keys
        False: which keys an event needs depends on the steps that it satisfies.

    Attributes
    ----------
    n_undecided : int
        Number of complex events that only the end of the input completed.
    n_without_key : int
        Number of events that the query could use, and that have no key.
    """

    def __init__(self, options: EvaluationOptions, *, counts_keys: bool) -> None:
        self._holds_undecided = options.undecided == HOLD
        self.n_undecided: int = 0
        self.n_without_key: int = 0
        # of threads that share the keys, one counts, and of those that share the stream, each its own events
        self._counts_keys = counts_keys and (options.key_shard is None or options.key_shard[0] == 0)
        self._report_from = options.report_from

    def reports(self, n_undecided: int) -> bool:
        """Count complex events that only the end of the input completed; return True if they are reported."""
        self.n_undecided += n_undecided
        return not (n_undecided and self._holds_undecided)

    def count_without_key(self, keys: PartitionKeys, batch: pa.RecordBatch, rows: Int32, first: int) -> None:
        """Count the events of some rows that have no key; row 0 of the batch is event `first`."""
        if self._counts_keys:
            own = rows if first >= self._report_from else rows[np.searchsorted(rows, self._report_from - first) :]
            self.n_without_key += keys.n_without(batch, own)


def notes_on_tallies(n_undecided: int, undecided: str, n_without_key: int, keys: Sequence[Sequence[str]]) -> list[str]:
    """Return the notes on complex events that only the end of the input completed, and on events without a key."""
    notes = []
    if n_undecided:
        what = "complex event is" if n_undecided == 1 else "complex events are"
        because = "no later event shows that the time of an absence has passed"
        if undecided == HOLD:
            notes.append(f"{n_undecided:,} {what} left out: {because} (--undecided)")
        else:
            notes.append(
                f"{n_undecided:,} {what} complete only by the end of the input: {because} (--undecided hold leaves "
                "them out)"
            )
    if n_without_key:
        names = ", ".join(dict.fromkeys(dotted(name) for own in keys for name in own))
        have, are = ("event has", "is") if n_without_key == 1 else ("events have", "are")
        notes.append(f"{n_without_key:,} {have} no key (NULL in {names}), and {are} in no match")
    return notes
