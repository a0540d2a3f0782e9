"""Accumulator of the reports of tasks, at the driver."""

from __future__ import annotations

from pyspark.accumulators import AccumulatorParam

from spark_glue.distribution import TaskReport


class Accumulated(AccumulatorParam[dict[int, TaskReport]]):
    """Reports of the parts by part number; if a task ran twice, its last report counts."""

    def zero(self, value: dict[int, TaskReport]) -> dict[int, TaskReport]:
        """Return the initial value: no reports."""
        return {}

    def addInPlace(self, value1: dict[int, TaskReport], value2: dict[int, TaskReport]) -> dict[int, TaskReport]:
        """Merge the reports of two tasks."""
        value1.update(value2)
        return value1
