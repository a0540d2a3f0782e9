"""Evaluation of one piece of the work on stored events.

Rows that are in order as they lie are evaluated as a range of the stream.  Once some are not, the stretch begins anew:
its rows are put in order, carry their numbers, and the results that were given already are passed over.
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
from spark_glue.files.file_plan import FilePlan
from spark_glue.files.layout import SplitRange
from spark_glue.files.ordered_reading import FileRows, OrderedReader, UnsortedInputError, gathered
from spark_glue.files.row_groups import RowGroups
from spark_glue.stage import plain_batch

if TYPE_CHECKING:
    from spark_glue.work import WorkEvaluator

SKIP_FROM = 8
"""Row groups without needed types are left out if they hold one row in so many: a gap costs a column of positions."""


def evaluate_piece(plan: FilePlan, number: int, report: Any = None) -> Iterator[pa.RecordBatch]:
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
        If a file changed, cannot be read or has a NULL in the first column of the order, or the events do not fit
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

    def __init__(self, plan: FilePlan, number: int) -> None:
        self._plan, self._number = plan, number
        self._piece = plan.pieces[number]
        schema = plan.found.scan.schema
        self._part = self._piece.part
        read = list(dict.fromkeys([*self._part.columns, *plan.order]))
        self._groups = RowGroups(plan.found, read, plan.opener, plan.limits.batch)
        self._ordered = OrderedReader(self._groups, plan.order, plan.limits.held, plan.limits.memory)
        tops = set(columns_with(schema, self._part.columns))
        self._columns = [name for name in schema.names if name in tops]
        self._first_number = 0  # of the matches of the next stretch
        self.n_rows: int
        self.n_matches: int
        self.n_rows = self.n_matches = 0
        self._seconds = 0.0

    def results(self, report: Any = None) -> Iterator[pa.RecordBatch]:
        """Yield the matches; see `evaluate_piece`."""
        try:
            for stretch in self._piece.stretches:
                for batch in self._evaluate_range(stretch):
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

    def _evaluate_range(self, stretch: SplitRange) -> Iterator[pa.RecordBatch]:
        n_rows, n_matches = self.n_rows, self.n_matches
        n_given = 0
        if stretch.presorted:
            try:
                for batch in self._as_they_lie(stretch):
                    yield batch
                    n_given += batch.num_rows
                return
            except UnsortedInputError:
                self.n_rows, self.n_matches = n_rows, n_matches
        for batch in self._matches_of_range(stretch, self._ordered.in_order(stretch), ROW_COLUMN):
            known = min(n_given, batch.num_rows)
            n_given -= known
            if known < batch.num_rows:
                yield batch.slice(known)

    def _as_they_lie(self, stretch: SplitRange) -> Iterator[pa.RecordBatch]:
        """Yield the results of a stretch whose rows are in order as they lie.

        Raises
        ------
        UnsortedInputError
            If they are not.
        """
        types = self._part.types
        if types is not None:
            n_skipped = sum(unit.n_rows for unit in stretch.units if unit.without(types))
            types = types if n_skipped and n_skipped * SKIP_FROM >= stretch.n_rows else None
        follow = all(unit.first + unit.n_rows == after.first for unit, after in pairwise(stretch.units))
        positions = None if types is None and follow else POSITION
        rows = self._ordered.presorted(stretch, types, numbered=positions is not None)
        yield from self._matches_of_range(stretch, rows, positions)

    def _matches_of_range(
        self, stretch: SplitRange, rows: Iterator[FileRows], positions: str | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the results of the rows of a stretch in their order.

        Parameters
        ----------
        stretch
        rows
        positions
            Column of the evaluator for the numbers of the rows; if None, they are consecutive.
        """
        held: list[FileRows] = []
        n_held = 0
        evaluator: WorkEvaluator | None = None
        n_outside = 0
        for each in prefetch(gathered(rows, self._plan.limits.gathered)):
            assert isinstance(each, FileRows)
            self.n_rows += each.batch.num_rows
            if evaluator is None:
                held.append(each)
                n_held += 0 if each.own else each.batch.num_rows
                if not each.own and n_held <= self._plan.limits.held:
                    continue
                # too long a window is evaluated at once, and what ends in it is not reported
                report_from = 0 if not each.own else n_held if positions == ROW_COLUMN else each.first
                evaluator = self._evaluator_from(held, report_from, positions)
                ready, held = held, []
            else:
                ready = [each]
            for some in ready:
                for batch in self._pushed(evaluator, some, positions):
                    if some.own:
                        yield batch
                if not some.own:
                    n_outside = evaluator.total_matches
        if evaluator is not None:
            yield from self._timed(evaluator.finish_batches())
            self.n_matches += evaluator.total_matches - n_outside

    def _evaluator_from(self, rows: list[FileRows], report_from: int, positions: str | None) -> WorkEvaluator:
        """Return the evaluator of a stretch that begins with some rows."""
        part = self._part
        mine = (self._piece.number, part.n_pieces)
        options = EvaluationOptions(
            shard=mine if part.share == "ends" else None,
            key_shard=mine if part.share == "keys" else None,
            start_position=rows[0].first if positions is None else 0,
            report_from=report_from,
            position_column=POSITION if positions == POSITION else None,
        )
        return part.work.evaluator(options, self._plan.schema)

    def _sent(self, batch: pa.RecordBatch, positions: str | None) -> pa.RecordBatch:
        """Return the columns that are read, and the numbers of the rows in a column of this name."""
        sent = batch.select(self._columns)
        return sent if positions is None else sent.append_column(positions, batch.column(POSITION))

    def _pushed(self, evaluator: WorkEvaluator, rows: FileRows, positions: str | None) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._timed(evaluator.push_batches(self._sent(rows.batch, positions)))
        except EventsError as error:
            raise type(error)(f"{self._groups.locate(rows.first)} or a later one: {error}") from None

    def _timed(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while True:
            begun = time.perf_counter()
            batch = next(found, None)
            self._seconds += time.perf_counter() - begun
            if batch is None:
                return
            yield batch
