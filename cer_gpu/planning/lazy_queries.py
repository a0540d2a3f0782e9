"""Lazy queries: what an evaluation needs of them before their first relevant event.

A set knows this of its queries over a schema, and caches it (`cer_gpu.preparing`); a query that reads no relevant event
is never planned or bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cer_gpu.expressions.derived import reads_one_event
from cer_gpu.output.form import Output
from cer_gpu.planning.binding import Binding, Bindings
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates.shared_guards import UnboundGuards, may_share


@dataclass(frozen=True)
class UnboundQuery:
    """A query over one schema, for one output, before its first relevant event.

    Attributes
    ----------
    guards : UnboundGuards
    clocks : tuple of str
        Columns of times, which must not decrease.
    attributes : tuple of str
        Columns and fields that are read.
    result_schema : pyarrow.Schema
    """

    guards: UnboundGuards
    clocks: tuple[str, ...]
    attributes: tuple[str, ...]
    result_schema: pa.Schema

    def is_planned_as(self, other: UnboundQuery) -> bool:
        """Return True if the plan over another schema is the same: types may differ in their layout alone."""
        same = self.guards.guards == other.guards.guards and self.guards.type_column == other.guards.type_column
        return same and self.clocks == other.clocks and self.result_schema.names == other.result_schema.names


class LazyQuery(ABC):
    """A query whose plan is made when it is first used."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """Facts that distinguish the query from others, for checkpoints."""

    @property
    @abstractmethod
    def types(self) -> tuple[str, ...]:
        """The event types that it names."""

    @abstractmethod
    def asleep(self, schema: pa.Schema) -> UnboundQuery | None:
        """Return what is known of the query over a schema, or None if it has to be bound."""

    @abstractmethod
    def covers(self, schema: pa.Schema, other: pa.Schema) -> bool:
        """Return True if what is known over one schema holds for another."""

    @abstractmethod
    def bindings_over(self, schema: pa.Schema) -> Bindings:
        """Return the bindings of its plan over a schema over which it was asleep."""

    @abstractmethod
    def bindings(self) -> Bindings:
        """Return its bindings over any schema."""


def can_defer(plan: LogicalPlan, output: type[Output], binding: Binding) -> bool:
    """Return True if the events before the first relevant one can be ignored."""
    derived = not all(map(reads_one_event, binding.derived.values()))
    of_all_events = bool(plan.partition or derived or output.by_starts or plan.made_columns)
    return not of_all_events and may_share(binding.guards, negates=plan.negates)
