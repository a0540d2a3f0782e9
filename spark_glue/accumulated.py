"""What the tasks of a job report, gathered at the driver."""

from __future__ import annotations

from pyspark.accumulators import AccumulatorParam

from spark_glue.deal import Done


class Accumulated(AccumulatorParam[dict[int, Done]]):
    """Gathers what became of each part; of a task that ran twice, the last report counts."""

    def zero(self, value: dict[int, Done]) -> dict[int, Done]:
        """Return the value to begin with."""
        return {}

    def addInPlace(self, value1: dict[int, Done], value2: dict[int, Done]) -> dict[int, Done]:
        """Join what two tasks reported."""
        value1.update(value2)
        return value1
