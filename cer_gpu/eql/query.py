"""Queries in EQL: compiled as those of CEQL are, and once more for the schema of the events where that is not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

from cer_gpu.engine.options import Default
from cer_gpu.eql.lowering import EVERY_MATCH, PENDING_ONLY, Lowered, lower
from cer_gpu.eql.parser import parse_eql
from cer_gpu.eql.syntax import EqlSyntax
from cer_gpu.errors import CerError, OptionError, QueryError
from cer_gpu.planning.binding import Bindings
from cer_gpu.planning.plan import Plan
from cer_gpu.query import Query, check_time_unit, planned

AS_ERROR, AS_NULL = "error", "null"
"""Treatments of a field that the events have not."""


@dataclass(frozen=True)
class WrittenQuery:
    """A query as it was read, and the options by which it is compiled.

    Attributes
    ----------
    written : cer_gpu.eql.syntax.EqlSyntax
    type_column, time_column, time_unit
        As of `cer_gpu.compile`; a `Default` time column is one that events may do without.
    missing_fields : str
    selection : str
    """

    written: EqlSyntax
    type_column: str | None
    time_column: str | None
    time_unit: str | None
    missing_fields: str
    selection: str

    def lowered(self, schema: pa.Schema | None) -> Lowered:
        """Return the query over a schema."""
        return lower(
            self.written,
            type_column=self.type_column,
            schema=schema,
            missing_is_null=self.missing_fields == AS_NULL,
            selection=self.selection,
        )

    def time_column_of(self, schema: pa.Schema | None) -> str | None:
        """Return the time column; None: events of the schema have none, and none was asked for."""
        spared = schema is not None and isinstance(self.time_column, Default) and self.time_column not in schema.names
        return None if spared or self.time_column is None else str(self.time_column)

    def planned(
        self, lowered: Lowered, schema: pa.Schema | None
    ) -> tuple[Plan | None, Sequence[str], list[QueryError]]:
        """Return the plan and its notes, or the errors of the query."""
        maxspan = self.written.maxspan
        if maxspan is not None and self.time_column_of(schema) is None:
            column = (
                "there is no time column" if self.time_column is None else f"the events have no {self.time_column!r}"
            )
            error = QueryError(
                f"maxspan needs the times of events, and {column}",
                self.written.text,
                *maxspan.span,
                hint="name their column: time_column=... (--time-column)",
            )
            return None, (), [error]
        return planned(
            lowered.syntax,
            type_column=lowered.type_column,
            time_column=self.time_column_of(schema),
            time_unit=self.time_unit,
            schema=schema,
        )


def analyse(
    text: str,
    *,
    type_column: str | None = "event.category",
    time_column: str | None = Default("@timestamp"),
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    missing_fields: str = AS_ERROR,
    selection: str = PENDING_ONLY,
    relations: Any = None,
) -> tuple[EqlQuery | None, Sequence[CerError]]:
    """Compile a query in EQL and return it, or its errors; parameters are those of `cer_gpu.compile`."""
    check_time_unit(time_unit)
    for option, value, known in (
        ("missing_fields", missing_fields, (AS_ERROR, AS_NULL)),
        ("selection", selection, (PENDING_ONLY, EVERY_MATCH)),
    ):
        if value not in known:
            raise OptionError(f"{option} must be one of {', '.join(map(repr, known))}, got {value!r}")
    try:
        source = WrittenQuery(parse_eql(text), type_column, time_column, time_unit, missing_fields, selection)
        lowered = source.lowered(schema)
    except QueryError as error:
        return None, [error]
    plan, notes, errors = source.planned(lowered, schema)
    if plan is None:
        return None, errors
    query = EqlQuery(source, lowered, plan, (*notes, *_told(lowered)))
    if schema is not None:
        try:
            query._bind(schema)
        except CerError as error:
            return None, [error]
    return query, []


def _told(lowered: Lowered) -> list[str]:
    """Return a note on fields that are NULL for all events."""
    return [f"the events have no {', '.join(lowered.missing)}: null"] if lowered.missing else []


class EqlQuery(Query):
    """A compiled query in EQL, made by `cer_gpu.compile`; used as a `cer_gpu.Query` is.

    Attributes
    ----------
    language : str
        "EQL".
    missing_fields : tuple of str
        Fields that the events have not, and that are null; () until a schema is known.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> query = cer_gpu.compile('process where process.name : "CMD*"')
    >>> events = pa.table({"event.category": ["process", "file"], "process.name": ["cmd.exe", "cmd.exe"]})
    >>> query.evaluate(events, output="ends").to_pylist()
    [{'end': 0}]
    """

    language = "EQL"

    def __init__(
        self,
        source: WrittenQuery,
        lowered: Lowered,
        plan: Plan,
        notes: tuple[str, ...] = (),
        changes: tuple[Callable[[Plan], Plan], ...] = (),
    ) -> None:
        super().__init__(plan, notes)
        self.missing_fields = lowered.missing
        self._made_of = source, lowered, changes
        self._bindings: _SchemaBindings = _SchemaBindings(plan, source, lowered, changes)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the query as it was read, and its plan."""
        source, lowered, changes = self._made_of
        return EqlQuery, (source, lowered, self._plan, self.notes, changes)

    def _changed(self, change: Callable[[Plan], Plan]) -> EqlQuery:
        source, lowered, changes = self._made_of
        return EqlQuery(source, lowered, change(self._plan), self.notes, (*changes, change))

    def over(self, schema: pa.Schema) -> EqlQuery:
        """Return the query with the columns of a schema in place of the names that it was written with."""
        source, lowered, changes = self._made_of
        if lowered.fits(schema):
            return self
        own = [note for note in self.notes if note not in _told(lowered)]
        lowered, plan = self._bindings.over(schema)
        return EqlQuery(source, lowered, plan, (*own, *_told(lowered)), changes)


class _SchemaBindings(Bindings):
    """Bindings of a query whose plan depends on the schema.

    Parameters
    ----------
    plan
    source
    lowered
        That of which the plan was made.
    changes
        Changes that were made of the plan since.
    """

    def __init__(
        self, plan: Plan, source: WrittenQuery, lowered: Lowered, changes: tuple[Callable[[Plan], Plan], ...]
    ) -> None:
        super().__init__(plan)
        self._source, self._lowered, self._changes = source, lowered, changes

    def over(self, schema: pa.Schema) -> tuple[Lowered, Plan]:
        """Return the query and the plan over a schema.

        Raises
        ------
        QueryError
            When the query does not fit it.
        """
        if self._lowered.fits(schema):
            return self._lowered, self.plan
        lowered = self._source.lowered(schema)
        if lowered.is_read_as(self._lowered) and self._source.time_column_of(schema) == self.plan.time_column:
            return lowered, self.plan
        plan, _, errors = self._source.planned(lowered, schema)
        if plan is None:
            raise errors[0]
        return lowered, reduce(lambda made, change: change(made), self._changes, plan)

    def plan_over(self, schema: pa.Schema) -> Plan:
        """Return the plan over events of a schema."""
        return self.over(schema)[1]
