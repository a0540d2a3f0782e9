"""Queries over a schema: compiled before the schema of the events is known, and once more for each that differs.

A front end whose queries depend on the schema makes a `ParsedQuery`, which resolves the query against a schema: EQL,
Sigma, and CEQL in which a field that the events do not have is NULL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.engine.evaluation_options import OverridableDefault
from cer_gpu.errors import CerError, OptionError, QueryError
from cer_gpu.planning.binding import Bindings
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.query import Query, planned, with_stream
from cer_gpu.resolution.fields import find_field

AS_ERROR, AS_NULL = "error", "null"
"""Treatments of a field that the events do not have."""


def check_missing_fields(value: str) -> None:
    """Raise OptionError for an unknown treatment of missing fields."""
    if value not in (AS_ERROR, AS_NULL):
        raise OptionError(f"missing_fields must be one of {AS_ERROR!r}, {AS_NULL!r}, got {value!r}")


def has_column(schema: pa.Schema, name: str) -> bool:
    """Return True if a schema has a column, or a field of that path."""
    return name in schema.names or attribute_type(schema, name) is not None


Finder = Callable[[pa.Schema, tuple[str, ...]], object]
"""Function that returns the place of a field in a schema, by the names on its path, or None if it is missing."""


@dataclass(frozen=True)
class ResolvedQuery:
    """A query over one schema.

    Attributes
    ----------
    syntax : QuerySyntax
    type_column : str or None
        The column of types, or None if there is none.
    fields : dict from tuple of str to object
        Places of the fields in the schema, by the names on their paths, or None if missing, and so NULL.
    requested_types : str or None
        Column of types that is read if the schema has it, or None if it does not matter.
    knows_schema : bool
        False: every field is taken for a value that is present.
    find : function
        Function that finds the fields.
    """

    syntax: s.QuerySyntax
    type_column: str | None
    fields: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    requested_types: str | None = None
    knows_schema: bool = False
    find: Finder = find_field

    @property
    def missing(self) -> tuple[str, ...]:
        """Fields that the schema does not have."""
        return tuple(".".join(names) for names, place in self.fields.items() if place is None)

    @property
    def notes(self) -> list[str]:
        """A remark on fields that are NULL for all events, if there are such."""
        return [f"the events have no {', '.join(self.missing)}: null"] if self.missing else []

    def covers(self, schema: pa.Schema) -> bool:
        """Return True for a schema over which the query is the same."""
        if not self.knows_schema:
            return False
        if self.requested_types is not None and has_column(schema, self.requested_types) != (
            self.type_column is not None
        ):
            return False
        return all(self.find(schema, names) == place for names, place in self.fields.items())

    def is_read_as(self, other: ResolvedQuery) -> bool:
        """Return True if the query reads the same columns in the same way as over another schema."""
        mine, others = self.syntax, other.syntax
        read = [(each.formula, each.partition, each.step_keys) for each in (mine, others)]
        same = mine is others or read[0] == read[1]
        return same and self.type_column == other.type_column


@dataclass(frozen=True)
class ParsedQuery(ABC):
    """A parsed query, and the options by which it is compiled.

    Attributes
    ----------
    type_column, time_column, time_unit
        As of `cer_gpu.compile`; a `OverridableDefault` time column is one that events may do without.
    """

    type_column: str | None
    time_column: str | None
    time_unit: str | None

    @abstractmethod
    def resolve(self, schema: pa.Schema | None) -> ResolvedQuery:
        """Return the query over a schema; raises QueryError when it cannot be resolved."""

    def time_column_of(self, schema: pa.Schema | None) -> str | None:
        """Return the time column, or None if events of the schema have none, and none was requested."""
        spared = (
            schema is not None
            and isinstance(self.time_column, OverridableDefault)
            and self.time_column not in schema.names
        )
        return None if spared or self.time_column is None else str(self.time_column)

    def planned(
        self, resolved: ResolvedQuery, schema: pa.Schema | None, *, tested: bool = True
    ) -> tuple[LogicalPlan | None, Sequence[str], list[QueryError]]:
        """Return the plan and its notes, or the errors of the query; not `tested`: without those against the schema."""
        return planned(
            resolved.syntax,
            type_column=resolved.type_column,
            time_column=self.time_column_of(schema),
            time_unit=self.time_unit,
            schema=schema if tested else None,
        )


class SchemaDependentQuery(Query):
    """A compiled query whose plan depends on the schema; used as a `cer_gpu.Query` is.

    Attributes
    ----------
    missing_fields : tuple of str
        Fields that the events do not have, and that are NULL; () until a schema is known.
    """

    def __init__(
        self,
        source: ParsedQuery,
        resolved: ResolvedQuery,
        plan: LogicalPlan,
        notes: tuple[str, ...] = (),
        changes: tuple[Callable[[LogicalPlan], LogicalPlan], ...] = (),
    ) -> None:
        super().__init__(plan, notes)
        self.missing_fields: tuple[str, ...] = resolved.missing
        self._inputs = source, resolved, changes
        self._bindings: _SchemaBindings = _SchemaBindings(plan, source, resolved, changes)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the parsed query, and its plan."""
        source, resolved, changes = self._inputs
        return type(self), (source, resolved, self._plan, self.notes, changes)

    def _changed(self, change: Callable[[LogicalPlan], LogicalPlan]) -> SchemaDependentQuery:
        source, resolved, changes = self._inputs
        return type(self)(source, resolved, change(self._plan), self.notes, (*changes, change))

    @property
    def compiled_by(self) -> str | None:
        """See `CompiledQuery`."""
        source, resolved, changes = self._inputs
        plain = {name: value for name, value in vars(source).items() if isinstance(value, str | None)}
        return None if changes or resolved.knows_schema else repr((super().compiled_by, plain))

    @property
    def compile_options(self) -> dict[str, Any]:
        """See `CompiledQuery`."""
        plain = {name: value for name, value in vars(self._inputs[0]).items() if isinstance(value, str | None)}
        return {**super().compile_options, **plain}

    def bind(self, schema: pa.Schema) -> SchemaDependentQuery:
        """Return the query with the columns of a schema in place of the names in its text."""
        source, resolved, changes = self._inputs
        if resolved.covers(schema):
            return self
        own = [note for note in self.notes if note not in resolved.notes]
        resolved, plan = self._bindings.over(schema)
        query = type(self)(source, resolved, plan, (*own, *resolved.notes), changes)
        errors = _errors_over(query, source, resolved, schema)
        if errors:
            raise errors[0]
        return query


def compiled_over(
    kind: type[SchemaDependentQuery], source: ParsedQuery, schema: pa.Schema | None
) -> tuple[SchemaDependentQuery | None, Sequence[CerError]]:
    """Return the compiled query of a kind, over a schema if it is known, or its errors."""
    try:
        resolved = source.resolve(schema)
    except QueryError as error:
        return None, [error]
    plan, notes, errors = source.planned(resolved, schema, tested=False)
    if plan is None:
        return None, errors if schema is None else source.planned(resolved, schema)[2]
    query = kind(source, resolved, plan, (*notes, *resolved.notes))
    problems = [] if schema is None else _errors_over(query, source, resolved, schema)
    return (None, problems) if problems else (query, [])


def _errors_over(
    query: SchemaDependentQuery, source: ParsedQuery, resolved: ResolvedQuery, schema: pa.Schema
) -> Sequence[CerError]:
    """Return all errors of a query against a schema; its types are tested once if there are none."""
    try:
        query._bind(with_stream(schema) if query._plan.several_streams else schema)
    except CerError as error:
        return source.planned(resolved, schema)[2] or [error]
    return []


class _SchemaBindings(Bindings):
    """Bindings of a query whose plan depends on the schema.

    Parameters
    ----------
    plan
    source
    resolved
        The resolved query from which the plan was made.
    changes
        Changes of the plan since.
    """

    def __init__(
        self,
        plan: LogicalPlan,
        source: ParsedQuery,
        resolved: ResolvedQuery,
        changes: tuple[Callable[[LogicalPlan], LogicalPlan], ...],
    ) -> None:
        super().__init__(plan)
        self._source, self._resolved, self._changes = source, resolved, changes
        self._last_over: tuple[pa.Schema, tuple[ResolvedQuery, LogicalPlan]] | None = None

    def over(self, schema: pa.Schema) -> tuple[ResolvedQuery, LogicalPlan]:
        """Return the query and the plan over a schema.

        Raises
        ------
        QueryError
            When the query cannot be resolved against it.
        """
        last = self._last_over
        if last is None or not last[0].equals(schema, check_metadata=True):
            last = self._last_over = schema, self._resolve_over(schema)
        return last[1]

    def _resolve_over(self, schema: pa.Schema) -> tuple[ResolvedQuery, LogicalPlan]:
        if self._resolved.covers(schema):
            return self._resolved, self.plan
        resolved = self._source.resolve(schema)
        if resolved.is_read_as(self._resolved) and self._source.time_column_of(schema) == self.plan.time_column:
            return resolved, self.plan
        plan, _, errors = self._source.planned(resolved, schema, tested=False)
        if plan is None:
            raise errors[0]
        return resolved, reduce(lambda plan, change: change(plan), self._changes, plan)

    def plan_over(self, schema: pa.Schema) -> LogicalPlan:
        """Return the plan over events of a schema."""
        return self.over(schema)[1]
