"""The choice whether events without partners are dropped, by the plan of a query."""

from __future__ import annotations

from cer_gpu.automaton.parallel_pattern import ParallelTable
from cer_gpu.automaton.table import Table
from cer_gpu.planning.binding import Binding
from cer_gpu.planning.physical import PhysicalPlan
from cer_gpu.runtime.reduction import Partners


def make_reduction(physical: PhysicalPlan, binding: Binding, table: Table) -> Partners | None:
    """Return the buffer in which events wait for partners; None: all are read at once."""
    joins = physical.semi_joins
    if isinstance(joins, str):
        return None
    assert isinstance(table, ParallelTable)
    assert binding.parallel is not None
    assert binding.window_length is not None
    return Partners(binding.parallel, table, joins, binding.window_length, whole=physical.reorders)
