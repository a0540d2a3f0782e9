"""Evaluator of one query: an evaluation of a set of one, whose results have no names."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from cer_gpu.columnar.batches import empty_batch
from cer_gpu.engine.evaluation import BaseEvaluator, FoundBatches
from cer_gpu.engine.execution import StreamingExecution
from cer_gpu.engine.pipeline import Pipeline
from cer_gpu.planning.physical import PhysicalPlan
from cer_gpu.predicates.placement import before_events


def _without_names(found: FoundBatches) -> Iterator[pa.RecordBatch]:
    return (rows for _, rows in found)


class Evaluator(BaseEvaluator[pa.RecordBatch, pa.RecordBatch]):
    """Evaluator of a query, batch by batch: `push` events, `finish` at the end.

    Made by `cer_gpu.Query.evaluator` and `cer_gpu.Query.restore`.  The concatenated results do not depend on the cut of
    the stream into batches.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> evaluator = cer_gpu.compile("SELECT * FROM S WHERE A ; B").evaluator()
    >>> for types in (["A", "C"], ["B"]):
    ...     print(evaluator.push(pa.record_batch({"type": types}))["positions"].to_pylist())
    []
    [[0, 2]]
    >>> evaluator.finish().num_rows
    0
    """

    _told = staticmethod(_without_names)
    _nothing: tuple[pa.Schema, pa.RecordBatch] | None = None

    def _gathered(self, pieces: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        found = list(pieces)
        if len(found) == 1:
            return found[0]
        if found:
            return pa.concat_batches(found)
        schema = self._only.result_schema
        if self._nothing is None or self._nothing[0] is not schema:
            self._nothing = schema, empty_batch(schema)
        return self._nothing[1]

    @property
    def n_matches(self) -> int:
        """Number of complex events found so far."""
        return self._only.n_matches

    @property
    def notes(self) -> list[str]:
        """Remarks on the events read so far: types that the query names and no event has."""
        return self._only.notes if self.n_events > self._options.start_position else []

    @property
    def _query(self) -> StreamingExecution:
        assert isinstance(self._only, StreamingExecution)
        return self._only

    @property
    def physical(self) -> PhysicalPlan:
        """Plan by which the query is evaluated."""
        return self._query.physical

    @property
    def output(self) -> str:
        """Name of the output."""
        return self.physical.output.name

    @property
    def engine(self) -> str:
        """Family of the runtime: "stacks" (for chains), "automaton", or "counter" if complex events are counted."""
        return self.physical.engine

    @property
    def defers_events(self) -> bool:
        """True if events are held back until one may end a complex event (`cer_gpu.runtime.deferred_events`)."""
        return self.physical.defers_events

    @property
    def placement(self) -> tuple[str, str]:
        """Device ("cpu" or "cuda") for the predicates of the next events, and the reason."""
        return self._query.placement if self._schema is not None else before_events(self._options.device)

    @property
    def pipeline(self) -> Pipeline:
        """Pipeline of stages; available after `expect` or the first batch."""
        return self._query.pipeline
