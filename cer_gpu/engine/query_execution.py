"""Base of the executions of queries: each finds the results of one query in the blocks that all of them read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.clocks import Clock
from cer_gpu.columnar.columns import Block
from cer_gpu.engine.blocks import Batch, EventBlock
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates.shared_guards import SharedWords

RangeClock = tuple[str | None, np.uint64 | np.float64]
"""Column in which a window is measured (None: events), and its length."""


class QueryExecution(ABC):
    """Evaluation of one query over the blocks of a stream.

    Parameters
    ----------
    options

    Attributes
    ----------
    plan : Plan or None
        Plan of the query, or None if it reads whole tables.
    n_matches : int
        Number of matches, or rows, so far.
    n_suppressed_elsewhere : int
        Number of matches that other threads have suppressed (`n_suppressed`).
    n_undecided_elsewhere : int
        Number of matches that other threads counted as undecided (`n_undecided`).
    n_without_key_elsewhere : int
        The same of events (`n_without_key`).
    among_threads : bool
        True: larger blocks, as threads wait for one another between blocks, and also batches without rows, as the
        thread checks then whether there still is a reader.
    first_pending : int or None
        First event whose row is not reported, or a later one than any; None: rows are not in the order of starts.
    clocks : tuple of str
        Columns of times, which must not decrease.
    distributed_by_key : bool
        True if shards of the keys together are complete, in the order of ends.
    limits_rows : bool
        True if the limit is one of rows.
    reads : SharedWords or None
        Guards without which nothing of a block is read; None: each block is read, or has a part in the results.
    """

    plan: LogicalPlan | None = None
    clocks: tuple[str, ...] = ()
    next_deadline: int | None = None
    distributed_by_key = False
    limits_rows = True
    among_threads = False
    first_pending: int | None = None
    reads: SharedWords | None = None

    def __init__(self, options: EvaluationOptions) -> None:
        self.options: EvaluationOptions = options
        self.n_matches: int = 0
        self._n_results = 0  # results so far
        self.n_suppressed_elsewhere: int = 0
        self.n_undecided_elsewhere: int = 0
        self.n_without_key_elsewhere: int = 0

    @property
    def n_without_key(self) -> int:
        """Number of events that the query could use, and that have no key of PARTITION BY."""
        return self.n_without_key_elsewhere

    @property
    def n_undecided(self) -> int:
        """Number of matches that only the end of the input completed."""
        return self.n_undecided_elsewhere

    @property
    def n_suppressed(self) -> int:
        """Number of matches so far that LIMIT n EVERY d suppressed, beyond those of LIMIT n alone."""
        return self.n_suppressed_elsewhere

    @property
    def limit_reached(self) -> bool:
        """True once the limit is reached: events are not read any more."""
        last = self.options.last_result
        return last is not None and self._n_results >= last

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Identity of the query, for checkpoints."""

    @property
    @abstractmethod
    def result_schema(self) -> pa.Schema:
        """Schema of the results, as far as it is known."""

    @property
    def window(self) -> RangeClock | None:
        """Window that ranges of the stream need before them, known after `expect`; None: ranges are not exact."""
        return None

    @property
    def notes(self) -> list[str]:
        """Remarks on the events read so far."""
        return []

    @abstractmethod
    def clone(self, options: EvaluationOptions, sharing: SharedState | None) -> QueryExecution:
        """Return an execution of the same query in another group."""

    @abstractmethod
    def expect(self, schema: pa.Schema) -> bool:
        """Read batches of a schema from now on; the first fixes the types of the results.

        Returns
        -------
        bool
            True unless nothing changes by it.

        Raises
        ------
        QueryTypeError
            When the query does not fit the schema.
        """

    @property
    @abstractmethod
    def attributes(self) -> list[str]:
        """Columns and fields that are read, known after `expect`."""

    @abstractmethod
    def refuse_resident(self, batch: pa.RecordBatch) -> None:
        """Refuse events with columns in the memory of a GPU that are read on the host."""

    def restart(self, begin: int, report_from: int) -> None:
        """Begin another range of the stream; compiled code, and the symbols seen, stay."""
        self.options = replace(self.options, start_position=begin, report_from=report_from)
        self.n_matches = 0

    def add_tallies(self, n_suppressed: int, n_undecided: int, n_without_key: int) -> None:
        """Count matches suppressed by LIMIT n EVERY d, those completed by the end, and events without key elsewhere."""
        self.n_suppressed_elsewhere += n_suppressed
        self.n_undecided_elsewhere += n_undecided
        self.n_without_key_elsewhere += n_without_key

    def add_matches(self, n: int) -> None:
        """Count new matches, or rows."""
        self.n_matches += n

    def with_let(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """Return the next events with the columns of LET that the query makes."""
        return events

    def prefetch(self, blocks: Iterable[Block]) -> Iterable[Block]:
        """Yield blocks as `process` takes them."""
        return blocks

    @abstractmethod
    def process(self, block: EventBlock, clocks: dict[str, Clock], batch: Batch) -> Iterator[pa.RecordBatch]:
        """Yield the results of a block of a batch, with the clocks of the stream."""

    def process_batch(self, block: EventBlock, clocks: dict[str, Clock], batch: Batch) -> Iterator[pa.RecordBatch]:
        """Yield the results of a block that is a batch, so that none of them are left for the query's next lease."""
        yield from self.process(block, clocks, batch)

    def end_batch(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Yield the rest of the results of a batch, all of whose blocks were read."""
        yield from ()

    def advance_watermark(self, key: int, n_events: int) -> Iterator[pa.RecordBatch]:
        """Yield the results that are decided once no event comes before the time of a key."""
        yield from ()

    @abstractmethod
    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the results that are decided at the end of the stream."""

    def release(self) -> None:  # noqa: B027 - there is none by default
        """Free the memory on a device."""

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the numbers of results to a checkpoint."""
        state.facts["n"] = [self.n_matches, self._n_results, self.options.start_position]

    def restore(self, state: NamedState) -> None:
        """Go on from a checkpoint, with the partitions of other queries restored before."""
        self.n_matches, self._n_results, begin = state.facts["n"]
        self.options = replace(self.options, start_position=begin)
