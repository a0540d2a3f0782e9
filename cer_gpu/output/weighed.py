"""The output "count" with an aggregate for which nothing is listed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cer_gpu.output.outputs import Columns, Count, Fields, fields_of_aggregate
from cer_gpu.output.weights import weighed_values
from cer_gpu.runtime.counts import CountBuffers, WeighedBuffers


class Weighed(Count):
    """`Count` with an aggregate of an expression over all complex events of an end, none of which is listed."""

    measured = True
    weighed = True

    @classmethod
    def retains(cls, head: tuple[Any, ...] | None, having: object = None) -> bool:
        """Return False."""
        return False

    @classmethod
    def _fields(cls, columns: Columns) -> Fields:
        return fields_of_aggregate(columns)

    def _values(self, found: CountBuffers) -> pa.Array:
        assert isinstance(found, WeighedBuffers)
        assert self._columns.aggregate is not None
        return weighed_values(found, self._columns.aggregate.function, self.schema.types[1])
