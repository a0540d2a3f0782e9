"""Slices of the results of a query: the first or the last by its pipes, and those between an offset and a limit.

The results that pipes select are an interval of their numbers.  Pipes of "head" before any other bound its end, so
that results are passed on as they come, and no events are read after it.  After a "tail", it depends on the number of
all results; until that is known, as many of the last results are buffered as the first "tail" selects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.ceql.syntax import Pipe
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.query_execution import QueryExecution
from cer_gpu.planning.physical import PhysicalPlan


def make_pipes(physical: PhysicalPlan, options: EvaluationOptions) -> ResultSlices | None:
    """Return the slices of a query's pipes, after which a limit is one more, or None if it has none."""
    pipes = physical.plan.pipes
    if not pipes:
        return None
    if options.last_result is not None:
        pipes = (*pipes, Pipe("head", options.last_result))
    return ResultSlices(pipes, numbered=physical.output.numbered, shard=options.shard)


class ResultSlices:
    """The choice of some pipes among the results of one evaluation.

    Parameters
    ----------
    pipes
    numbered
        True: a result has several rows, of one number in the column "match".
    shard
        (k, n): shard k of n of the selected results, or None for all.
    """

    def __init__(self, pipes: Sequence[Pipe], *, numbered: bool, shard: tuple[int, int] | None) -> None:
        heads = list(takewhile(lambda pipe: pipe.kind == "head", pipes))
        self._max_results = min((head.n for head in heads), default=None)
        self._behind = pipes[len(heads) :]
        self._numbered, self._shard = numbered, shard
        self._n = self._n_passed_on = 0  # results so far, and those of them that were passed on
        self._buffered: list[tuple[pa.RecordBatch, Int64]] = []  # with the number of the result of each row

    @property
    def limit_reached(self) -> bool:
        """True if no further result changes anything."""
        return self._max_results is not None and self._n >= self._max_results

    def take(self, rows: pa.RecordBatch, n: int) -> tuple[pa.RecordBatch, int]:
        """Return the selected rows of the next `n` results, as far as decided, and the number of results."""
        numbers = rows.column("match").to_numpy() if self._numbered else np.arange(self._n, self._n + n)
        nothing = rows.slice(0, 0)
        self._n += n
        if self._max_results is not None and self._n > self._max_results:
            self._n = self._max_results
            n_rows = int(np.searchsorted(numbers, self._max_results))
            rows, numbers = rows.slice(0, n_rows), numbers[:n_rows]
        if not self._behind:
            return self._own(rows, numbers)
        self._buffered.append((rows, numbers))
        first = self._n - self._behind[0].n
        while self._buffered and not (self._buffered[0][1] >= first).any():
            self._buffered.pop(0)
        return (self.finish() or (nothing, 0)) if self.limit_reached else (nothing, 0)

    def finish(self) -> tuple[pa.RecordBatch, int] | None:
        """Return the rows selected by the number of all results, and their number, or None if there are none."""
        begin, end = 0, self._n
        for pipe in self._behind:
            if pipe.kind == "head":
                end = min(end, begin + pipe.n)
            else:
                begin = max(begin, end - pipe.n)
        buffered, self._buffered = self._buffered, []
        if not buffered:
            return None
        rows = pa.Table.from_batches([each for each, _ in buffered]).combine_chunks()
        numbers = np.concatenate([each for _, each in buffered])
        first, last = np.searchsorted(numbers, [begin, end])
        (batch,) = rows.slice(first, last - first).to_batches() or [buffered[0][0].slice(0, 0)]
        return self._own(batch, numbers[first:last])

    def _own(self, rows: pa.RecordBatch, numbers: Int64) -> tuple[pa.RecordBatch, int]:
        """Return the rows of the shard, and their results."""
        results, places = np.unique(numbers, return_inverse=True)
        before, self._n_passed_on = self._n_passed_on, self._n_passed_on + len(results)
        if self._shard is None:
            return rows, len(results)
        own = (before + np.arange(len(results))) % self._shard[1] == self._shard[0]
        return rows.filter(pa.array(own[places])), int(own.sum())

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Any], pa.Table]:
        """Return the state: arrays, and the buffered rows."""
        rows = pa.Table.from_batches([rows for rows, _ in self._buffered]) if self._buffered else pa.table({})
        numbers = [numbers for _, numbers in self._buffered]
        counts = np.array([self._n, self._n_passed_on])
        return {"counts": counts, "numbers": np.concatenate([np.empty(0, np.int64), *numbers])}, rows

    def restore(self, arrays: dict[str, Any], rows: pa.Table) -> None:
        """Go on from a snapshot."""
        self._n, self._n_passed_on = map(int, arrays["counts"])
        self._buffered = [(batch, arrays["numbers"]) for batch in rows.combine_chunks().to_batches() if batch.num_rows]


class ResultRange:
    """The results of each query that an evaluation hands over, by the options `offset` and `limit`.

    Parameters
    ----------
    options

    Attributes
    ----------
    n_skipped : dict from str to int
        Results of each query so far that `offset` skips.
    """

    def __init__(self, options: EvaluationOptions) -> None:
        self._offset, self._limit = options.offset, options.limit
        self.n_skipped: dict[str, int] = {}

    def after_offset(
        self, results: Iterator[tuple[str, pa.RecordBatch]], executions: Mapping[str, QueryExecution]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield results without the first of each query, as many as `offset` says."""
        for name, rows in results:
            before = self.n_skipped.get(name, 0)
            n = self._offset - before
            if n > 0 and not executions[name].limits_rows:  # several rows of a result have its number
                numbers = rows.column("match").to_numpy()
                n = int(np.searchsorted(numbers, self._offset))
                self.n_skipped[name] = self._offset if n < len(numbers) else before
            elif n > 0:
                self.n_skipped[name] = before + min(n, rows.num_rows)
            yield name, rows.slice(n) if n > 0 else rows

    def of_parts(
        self, results: Iterator[tuple[str, pa.RecordBatch]], executions: Mapping[str, QueryExecution]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the results of parts of a stream, which have no offset and together all results up to the limit."""
        results = self.after_offset(results, executions)
        if self._limit is None:
            yield from results
            return
        remaining = {name: self._limit for name, execution in executions.items() if execution.limits_rows}
        for name, rows in results:
            if name in remaining:
                rows = rows.slice(0, remaining[name])
                remaining[name] -= rows.num_rows
            yield name, rows
            if len(remaining) == len(executions) and not any(remaining.values()):
                return
