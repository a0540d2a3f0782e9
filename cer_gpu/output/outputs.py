"""Complex events as Arrow rows: the four outputs, and their schemas."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.clocks import times_to_arrow
from cer_gpu.errors import OptionError
from cer_gpu.output.retention import Retained
from cer_gpu.planning.plan import Binding, Plan
from cer_gpu.runtime.counts import CountBuffers
from cer_gpu.runtime.matches import MatchBuffers

OUTPUTS = ("positions", "bindings", "events", "count")

_POSITIONS = pa.list_(pa.int64())


def output_schema(plan: Plan, binding: Binding | None, output: str) -> pa.Schema:
    """Return the schema of the results.

    Parameters
    ----------
    binding
        None where no event has been seen: what depends on the types of columns is then left out.

    Raises
    ------
    OptionError
        When two columns would have one name.
    """
    time_type = None if binding is None else binding.time_type
    if output == "count":
        fields = [("end", pa.int64()), ("count", pa.int64())]
        fields += [("end_time", time_type)] if time_type is not None else []
    else:
        fields = [("start", pa.int64()), ("end", pa.int64()), ("positions", _POSITIONS)]
        fields += [("start_time", time_type), ("end_time", time_type)] if time_type is not None else []
    if binding is not None:
        fields += zip(binding.keys.names, binding.keys.types, strict=True)
    if output == "bindings":
        fields += [(name, _POSITIONS) for name in plan.variables]
    elif output == "events" and binding is not None:
        fields.append(("events", pa.list_(pa.struct(list(binding.attribute_schema)))))
    names = [name for name, _ in fields]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(
                f"the output {output!r} would have two columns named {name!r}\n"
                "hint: give the variable another name with AS, or begin the bracket of PARTITION BY with another name"
            )
    return pa.schema(fields)


class Output:
    """Makes the rows of the results.

    Parameters
    ----------
    labels
        What each mark stands for (`Determinization.labels`).
    retained
        The rows that complex events may hold; for "events".
    """

    def __init__(
        self, plan: Plan, binding: Binding, output: str, labels: list[frozenset[str]], retained: Retained | None
    ) -> None:
        self.schema = output_schema(plan, binding, output)
        self._time_type = binding.time_type
        self._retained = retained
        variables = plan.variables if output == "bindings" else ()
        self._holds = [np.array([name in held for held in labels]) for name in variables]

    def rows(self, found: MatchBuffers | CountBuffers, keys: list[pa.Array]) -> pa.RecordBatch:
        """Return one row for each complex event, or for each position that ends any.

        Parameters
        ----------
        keys
            The keys of the events that end them.
        """
        columns = self._counts(found, keys) if isinstance(found, CountBuffers) else self._matches(found, keys)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _counts(self, found: CountBuffers, keys: list[pa.Array]) -> list[pa.Array]:
        times = [] if self._time_type is None else [times_to_arrow(found.times, self._time_type)]
        return [pa.array(found.ends), pa.array(found.counts), *times, *keys]

    def _matches(self, found: MatchBuffers, keys: list[pa.Array]) -> list[pa.Array]:
        offsets = pa.array(found.offsets)
        columns: list[pa.Array] = [
            pa.array(found.spans[0]),
            pa.array(found.spans[1]),
            pa.ListArray.from_arrays(offsets, pa.array(found.positions)),
        ]
        if self._time_type is not None:
            columns += [times_to_arrow(found.times[k], self._time_type) for k in (0, 1)]
        columns += keys
        for holds in self._holds:
            held = holds[found.marks]
            before = np.concatenate([[0], np.cumsum(held)]).astype(np.int32)
            columns.append(pa.ListArray.from_arrays(pa.array(before[found.offsets]), pa.array(found.positions[held])))
        if self._retained is not None:
            columns.append(pa.ListArray.from_arrays(offsets, self._retained.take(found.positions)))
        return columns
