"""Events and complex events that a note tells of: without a key, and completed by the end of the input alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int32
from cer_gpu.ceql.paths import dotted
from cer_gpu.engine.options import HOLD, EvaluationOptions
from cer_gpu.partition.partitions import PartitionKeys


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
        self._counts_keys = counts_keys and (options.deal is None or options.deal[0] == 0)
        self._first_end = options.first_end

    def reports(self, n_undecided: int) -> bool:
        """Count complex events that only the end of the input completed; return True if they are reported."""
        self.n_undecided += n_undecided
        return not (n_undecided and self._holds_undecided)

    def count_without_key(self, keys: PartitionKeys, batch: pa.RecordBatch, rows: Int32, first: int) -> None:
        """Count the events of some rows that have no key; row 0 of the batch is event `first`."""
        if self._counts_keys:
            own = rows[max(int(np.searchsorted(rows, self._first_end - first)), 0) :]
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
        have = "event has" if n_without_key == 1 else "events have"
        notes.append(f"{n_without_key:,} {have} no key (NULL in {names}), and are in no match")
    return notes
