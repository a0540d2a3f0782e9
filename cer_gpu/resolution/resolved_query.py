"""Queries over a schema: compiled before the schema of the events is known, and once more for each that differs.

A front end whose queries depend on the schema makes a `ParsedQuery`, which fits the query to a schema: EQL, Sigma, and
CEQL in which a field that the events have not is NULL.
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
"""Treatments of a field that the events have not."""


def check_missing_fields(value: str) -> None:
    """Raise OptionError for a treatment of missing fields that there is none of."""
    if value not in (AS_ERROR, AS_NULL):
        raise OptionError(f"missing_fields must be one of {AS_ERROR!r}, {AS_NULL!r}, got {value!r}")


def has_column(schema: pa.Schema, name: str) -> bool:
    """Return True if a schema has a column, or a field of that path."""
    return name in schema.names or attribute_type(schema, name) is not None


Finder = Callable[[pa.Schema, tuple[str, ...]], object]
"""Function that returns where a field is in a schema, by the names on its path, or None if it is nowhere."""


@dataclass(frozen=True)
class ResolvedQuery:
    """A query over one schema.

    Attributes
    ----------
    syntax : QuerySyntax
    type_column : str or None
        The column of types, or None if there is none.
    found : dict from tuple of str to object
        Places of the fields in the schema, by the names on their paths; None: NULL, as it has none.
    types_asked : str or None
        Column of types that is read if the schema has it, or None if it does not matter.
    knows_schema : bool
        False: every field is taken for a value that is there.
    find : function
        That by which they were found.
    """

    syntax: s.QuerySyntax
    type_column: str | None
    found: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    types_asked: str | None = None
    knows_schema: bool = False
    find: Finder = find_field

    @property
    def missing(self) -> tuple[str, ...]:
        """Fields that the schema has not."""
        return tuple(".".join(names) for names, found in self.found.items() if found is None)

    @property
    def notes(self) -> list[str]:
        """A remark on fields that are NULL for all events, if there are such."""
        return [f"the events have no {', '.join(self.missing)}: null"] if self.missing else []

    def fits(self, schema: pa.Schema) -> bool:
        """Return True for a schema over which the query is the same."""
        if not self.knows_schema:
            return False
        if self.types_asked is not None and has_column(schema, self.types_asked) != (self.type_column is not None):
            return False
        return all(self.find(schema, names) == found for names, found in self.found.items())

    def is_read_as(self, other: ResolvedQuery) -> bool:
        """Return True if the query reads the same columns in the same way as over another schema."""
        mine, others = self.syntax, other.syntax
        same = mine is others or (mine.formula, mine.partition) == (others.formula, others.partition)
        return same and self.type_column == other.type_column


@dataclass(frozen=True)
class ParsedQuery(ABC):
    """A query as it was read, and the options by which it is compiled.

    Attributes
    ----------
    type_column, time_column, time_unit
        As of `cer_gpu.compile`; a `OverridableDefault` time column is one that events may do without.
    """

    type_column: str | None
    time_column: str | None
    time_unit: str | None

    @abstractmethod
    def fitted(self, schema: pa.Schema | None) -> ResolvedQuery:
        """Return the query over a schema; raises QueryError when it does not fit."""

    def time_column_of(self, schema: pa.Schema | None) -> str | None:
        """Return the time column; None: events of the schema have none, and none was asked for."""
        spared = (
            schema is not None
            and isinstance(self.time_column, OverridableDefault)
            and self.time_column not in schema.names
        )
        return None if spared or self.time_column is None else str(self.time_column)

    def planned(
        self, fitted: ResolvedQuery, schema: pa.Schema | None, *, tested: bool = True
    ) -> tuple[LogicalPlan | None, Sequence[str], list[QueryError]]:
        """Return the plan and its notes, or the errors of the query; not `tested`: without those against the schema."""
        return planned(
            fitted.syntax,
            type_column=fitted.type_column,
            time_column=self.time_column_of(schema),
            time_unit=self.time_unit,
            schema=schema if tested else None,
        )


class SchemaDependentQuery(Query):
    """A compiled query whose plan depends on the schema; used as a `cer_gpu.Query` is.

    Attributes
    ----------
    missing_fields : tuple of str
        Fields that the events have not, and that are NULL; () until a schema is known.
    """

    def __init__(
        self,
        source: ParsedQuery,
        fitted: ResolvedQuery,
        plan: LogicalPlan,
        notes: tuple[str, ...] = (),
        changes: tuple[Callable[[LogicalPlan], LogicalPlan], ...] = (),
    ) -> None:
        super().__init__(plan, notes)
        self.missing_fields: tuple[str, ...] = fitted.missing
        self._made_of = source, fitted, changes
        self._bindings: _SchemaBindings = _SchemaBindings(plan, source, fitted, changes)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the query as it was read, and its plan."""
        source, fitted, changes = self._made_of
        return type(self), (source, fitted, self._plan, self.notes, changes)

    def _changed(self, change: Callable[[LogicalPlan], LogicalPlan]) -> SchemaDependentQuery:
        source, fitted, changes = self._made_of
        return type(self)(source, fitted, change(self._plan), self.notes, (*changes, change))

    @property
    def compiled_by(self) -> str | None:
        """See `CompiledQuery`."""
        source, fitted, changes = self._made_of
        plain = {name: value for name, value in vars(source).items() if isinstance(value, str | None)}
        return None if changes or fitted.knows_schema else repr((super().compiled_by, plain))

    @property
    def compile_options(self) -> dict[str, Any]:
        """See `CompiledQuery`."""
        plain = {name: value for name, value in vars(self._made_of[0]).items() if isinstance(value, str | None)}
        return {**super().compile_options, **plain}

    def bind(self, schema: pa.Schema) -> SchemaDependentQuery:
        """Return the query with the columns of a schema in place of the names that it was written with."""
        source, fitted, changes = self._made_of
        if fitted.fits(schema):
            return self
        own = [note for note in self.notes if note not in fitted.notes]
        fitted, plan = self._bindings.over(schema)
        query = type(self)(source, fitted, plan, (*own, *fitted.notes), changes)
        errors = _errors_over(query, source, fitted, schema)
        if errors:
            raise errors[0]
        return query


def compiled_over(
    kind: type[SchemaDependentQuery], source: ParsedQuery, schema: pa.Schema | None
) -> tuple[SchemaDependentQuery | None, Sequence[CerError]]:
    """Return the compiled query of a kind, over a schema if it is known, or its errors."""
    try:
        fitted = source.fitted(schema)
    except QueryError as error:
        return None, [error]
    plan, notes, errors = source.planned(fitted, schema, tested=False)
    if plan is None:
        return None, errors if schema is None else source.planned(fitted, schema)[2]
    query = kind(source, fitted, plan, (*notes, *fitted.notes))
    found = [] if schema is None else _errors_over(query, source, fitted, schema)
    return (None, found) if found else (query, [])


def _errors_over(
    query: SchemaDependentQuery, source: ParsedQuery, fitted: ResolvedQuery, schema: pa.Schema
) -> Sequence[CerError]:
    """Return the errors of a query against a schema, all of them; its types are tested once where there are none."""
    try:
        query._bind(with_stream(schema) if query._plan.several_streams else schema)
    except CerError as error:
        return source.planned(fitted, schema)[2] or [error]
    return []


class _SchemaBindings(Bindings):
    """Bindings of a query whose plan depends on the schema.

    Parameters
    ----------
    plan
    source
    fitted
        That of which the plan was made.
    changes
        Changes that were made of the plan since.
    """

    def __init__(
        self,
        plan: LogicalPlan,
        source: ParsedQuery,
        fitted: ResolvedQuery,
        changes: tuple[Callable[[LogicalPlan], LogicalPlan], ...],
    ) -> None:
        super().__init__(plan)
        self._source, self._fitted, self._changes = source, fitted, changes
        self._last_over: tuple[pa.Schema, tuple[ResolvedQuery, LogicalPlan]] | None = None

    def over(self, schema: pa.Schema) -> tuple[ResolvedQuery, LogicalPlan]:
        """Return the query and the plan over a schema.

        Raises
        ------
        QueryError
            When the query does not fit it.
        """
        last = self._last_over
        if last is None or not last[0].equals(schema, check_metadata=True):
            last = self._last_over = schema, self._made_over(schema)
        return last[1]

    def _made_over(self, schema: pa.Schema) -> tuple[ResolvedQuery, LogicalPlan]:
        if self._fitted.fits(schema):
            return self._fitted, self.plan
        fitted = self._source.fitted(schema)
        if fitted.is_read_as(self._fitted) and self._source.time_column_of(schema) == self.plan.time_column:
            return fitted, self.plan
        plan, _, errors = self._source.planned(fitted, schema, tested=False)
        if plan is None:
            raise errors[0]
        return fitted, reduce(lambda made, change: change(made), self._changes, plan)

    def plan_over(self, schema: pa.Schema) -> LogicalPlan:
        """Return the plan over events of a schema."""
        return self.over(schema)[1]
