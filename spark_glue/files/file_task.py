"""Task of a job over stored events, as the function that ``DataFrame.mapInArrow`` takes.

No row of the events comes from Spark: a task gets the numbers of its pieces, and reads them by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_glue.files.file_evaluation import evaluate_piece
from spark_glue.files.file_plan import FilePlan


@dataclass(frozen=True)
class FileTask:
    """Evaluation of pieces by their numbers.

    It is a class because pickle refers to it by name.

    Attributes
    ----------
    plan : FilePlan
    report
        Accumulator, or None; its ``add`` is called with {number: `spark_glue.distribution.TaskReport`} at the end of
        each piece.

    Examples
    --------
    >>> numbers = spark.range(0, plan.n_pieces, 1, plan.n_pieces)  # doctest: +SKIP
    >>> numbers.mapInArrow(FileTask(plan), to_spark(plan.schema))  # doctest: +SKIP
    """

    plan: FilePlan
    report: Any = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the matches of pieces.

        Parameters
        ----------
        batches
            Batches of one column: the numbers of pieces, int64.
        """
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from evaluate_piece(self.plan, number, self.report)
