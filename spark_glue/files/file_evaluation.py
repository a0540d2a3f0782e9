"""Evaluation of one piece of the work on stored events.

Rows that are stored in order are evaluated as a range of the stream.  Once some are not, the range begins anew:
its rows are sorted, carry their numbers, and the results that were already yielded are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cer_gpu.columnar.fields import columns_with
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.errors import EventsError
from cer_gpu.io.source import prefetch
from cer_gpu.order.row_column import ROW_COLUMN
from spark_glue.distribution import POSITION, TaskReport, apart, peak_memory
from spark_glue.files.file_plan import FilePlan, PackedPlan
from spark_glue.files.layout import SplitRange
from spark_glue.files.ordered_reading import FileRows, OrderedReader, UnsortedInputError, gathered
from spark_glue.files.row_groups import RowGroups
from spark_glue.stage import plain_batch

if TYPE_CHECKING:
    from spark_glue.work import WorkEvaluator

SKIP_FROM = 8
"""Row groups without needed types are skipped if they have one row in this many: a gap costs a column of positions."""


def evaluate_piece(plan: FilePlan | PackedPlan, number: int, report: Any = None) -> Iterator[pa.RecordBatch]:
    """Yield the matches of a piece, in batches of `plan.schema`.

    Parameters
    ----------
    plan
    number
        From 0 to ``plan.n_pieces - 1``.
    report
        Accumulator, or None; its ``add`` is called with {number: `spark_glue.distribution.TaskReport`} at the end.

    Raises
    ------
    CerError
        If a file changed, cannot be read or has a NULL in the first column of the order, or the events do not match
        the query.
    """
    return PieceEvaluation(plan, number).results(report)


class PieceEvaluation:
    """Evaluation of a piece.

    Parameters
    ----------
    plan
    number
        Number of the piece.

    Attributes
    ----------
    n_rows, n_matches
        Number of rows read so far, including windows before ranges, and of matches.
    """

    def __init__(self, plan: FilePlan | PackedPlan, number: int) -> None:
        plan, self._piece = plan.alone(number)
        self._plan, self._number = plan, number
        schema = plan.footers.scan.schema
        self._part = self._piece.part
        read = list(dict.fromkeys([*self._part.columns, *plan.order]))
        self._groups = RowGroups(plan.footers, read, plan.opener, plan.limits.batch)
        limits = plan.limits
        self._ordered = OrderedReader(
            self._groups, plan.order, limits.buffered_rows, limits.memory, min(limits.gathered, limits.buffered_rows)
        )
        tops = set(columns_with(schema, self._part.columns))
        self._columns = [name for name in schema.names if name in tops]
        self._first_number = 0  # of the matches of the next range
        self.n_rows: int
        self.n_matches: int
        self.n_rows = self.n_matches = 0
        self._seconds = 0.0

    def results(self, report: Any = None) -> Iterator[pa.RecordBatch]:
        """Yield the matches; see `evaluate_piece`."""
        try:
            for split_range in self._piece.split_ranges:
                for batch in self._evaluate_range(split_range):
                    yield self._declared_results(batch)
                self._first_number = self.n_matches
            self._groups.close()
        finally:
            self._groups.release()
        if report is not None:
            report.add({self._number: TaskReport(self.n_rows, self.n_matches, self._seconds, peak_memory())})

    def _declared_results(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return results in the declared types, with numbers that no other piece gives."""
        batch = plain_batch(apart(batch, self._number, self._first_number) if self._part.work.numbered else batch)
        return batch if batch.schema.equals(self._plan.schema) else batch.cast(self._plan.schema)

    def _evaluate_range(self, split_range: SplitRange) -> Iterator[pa.RecordBatch]:
        n_rows, n_matches = self.n_rows, self.n_matches
        n_yielded = 0
        if split_range.presorted:
            try:
                for batch in self._evaluate_in_stored_order(split_range):
                    yield batch
                    n_yielded += batch.num_rows
                return
            except UnsortedInputError:
                self.n_rows, self.n_matches = n_rows, n_matches
        for batch in self._matches_of_range(split_range, self._ordered.in_order(split_range), ROW_COLUMN):
            n_repeated = min(n_yielded, batch.num_rows)
            n_yielded -= n_repeated
            if n_repeated < batch.num_rows:
                yield batch.slice(n_repeated)

    def _evaluate_in_stored_order(self, split_range: SplitRange) -> Iterator[pa.RecordBatch]:
        """Yield the matches of a range whose rows are stored in order.

        Raises
        ------
        UnsortedInputError
            If they are not.
        """
        types = self._part.types
        if types is not None:
            n_skipped = sum(unit.n_rows for unit in split_range.units if unit.without(types))
            types = types if n_skipped and n_skipped * SKIP_FROM >= split_range.n_rows else None
        follow = all(unit.first + unit.n_rows == after.first for unit, after in pairwise(split_range.units))
        positions = None if types is None and follow else POSITION
        rows = self._ordered.presorted(split_range, types, numbered=positions is not None)
        yield from self._matches_of_range(split_range, rows, positions)

    def _matches_of_range(
        self, split_range: SplitRange, rows: Iterator[FileRows], positions: str | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the matches of the rows of a range in their order.

        Parameters
        ----------
        split_range
        rows
        positions
            Column of the evaluator for the numbers of the rows; if None, they are consecutive.
        """
        buffered: list[FileRows] = []
        n_buffered = 0
        evaluator: WorkEvaluator | None = None
        n_outside = 0
        for each in prefetch(gathered(rows, self._plan.limits.gathered)):
            assert isinstance(each, FileRows)
            self.n_rows += each.batch.num_rows
            if evaluator is None:
                buffered.append(each)
                n_buffered += 0 if each.own else each.batch.num_rows
                if not each.own and n_buffered <= self._plan.limits.buffered_rows:
                    continue
                # too long a window is evaluated at once, and what ends in it is not reported
                report_from = 0 if not each.own else n_buffered if positions == ROW_COLUMN else each.first
                evaluator = self._evaluator_from(buffered, report_from, positions)
                ready, buffered = buffered, []
            else:
                ready = [each]
            for some in ready:
                for batch in self._push_rows(evaluator, some, positions):
                    if some.own:
                        yield batch
                if not some.own:
                    n_outside = evaluator.total_matches
        if evaluator is not None:
            yield from self._timed(evaluator.finish_batches())
            self.n_matches += evaluator.total_matches - n_outside

    def _evaluator_from(self, rows: list[FileRows], report_from: int, positions: str | None) -> WorkEvaluator:
        """Return the evaluator of a range that begins with some rows."""
        part = self._part
        mine = (self._piece.number, part.n_pieces)
        options = EvaluationOptions(
            shard=mine if part.sharded_by == "ends" else None,
            key_shard=mine if part.sharded_by == "keys" else None,
            start_position=rows[0].first if positions is None else 0,
            report_from=report_from,
            position_column=POSITION if positions == POSITION else None,
        )
        return part.work.evaluator(options, self._plan.schema)

    def _columns_to_push(self, batch: pa.RecordBatch, positions: str | None) -> pa.RecordBatch:
        """Return the columns that are read, and the numbers of the rows in a column of this name."""
        sent = batch.select(self._columns)
        return sent if positions is None else sent.append_column(positions, batch.column(POSITION))

    def _push_rows(self, evaluator: WorkEvaluator, rows: FileRows, positions: str | None) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._timed(evaluator.push_batches(self._columns_to_push(rows.batch, positions)))
        except EventsError as error:
            raise type(error)(f"{self._groups.locate(rows.first)} or a later one: {error}") from None

    def _timed(self, matches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while True:
            begun = time.perf_counter()
            batch = next(matches, None)
            self._seconds += time.perf_counter() - begun
            if batch is None:
                return
            yield batch
