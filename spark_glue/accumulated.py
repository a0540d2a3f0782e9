"""Accumulator of the reports of tasks, at the driver."""

from __future__ import annotations

from pyspark.accumulators import AccumulatorParam

from spark_glue.distribution import Done


class Accumulated(AccumulatorParam[dict[int, Done]]):
    """Reports of the parts by part number; if a task ran twice, its last report counts."""

    def zero(self, value: dict[int, Done]) -> dict[int, Done]:
        """Return the initial value: no reports."""
        return {}

    def addInPlace(self, value1: dict[int, Done], value2: dict[int, Done]) -> dict[int, Done]:
        """Merge the reports of two tasks."""
        value1.update(value2)
        return value1
