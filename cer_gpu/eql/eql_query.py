"""Queries in EQL: compiled as those of CEQL are, and once more for the schema of the events where that is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from cer_gpu.engine.evaluation_options import OverridableDefault
from cer_gpu.eql.lowering import EVERY_MATCH, PENDING_ONLY, lower
from cer_gpu.eql.parser import parse_eql
from cer_gpu.eql.syntax import EqlSyntax
from cer_gpu.errors import CerError, OptionError, QueryError
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.query import check_time_unit
from cer_gpu.resolution.resolved_query import (
    AS_ERROR,
    AS_NULL,
    ParsedQuery,
    ResolvedQuery,
    SchemaDependentQuery,
    check_missing_fields,
    compiled_over,
)


@dataclass(frozen=True)
class WrittenEql(ParsedQuery):
    """A query in EQL as it was read, and the options by which it is compiled.

    Attributes
    ----------
    written : cer_gpu.eql.syntax.EqlSyntax
    missing_fields : str
    selection : str
    """

    written: EqlSyntax
    missing_fields: str
    selection: str

    def fitted(self, schema: pa.Schema | None) -> ResolvedQuery:
        """Return the query over a schema."""
        return lower(
            self.written,
            type_column=self.type_column,
            schema=schema,
            missing_is_null=self.missing_fields == AS_NULL,
            selection=self.selection,
        )

    def planned(
        self, fitted: ResolvedQuery, schema: pa.Schema | None, *, tested: bool = True
    ) -> tuple[LogicalPlan | None, Sequence[str], list[QueryError]]:
        """Return the plan and its notes, or the errors of the query; not `tested`: without those against the schema."""
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
        return super().planned(fitted, schema, tested=tested)


def analyse(
    text: str,
    *,
    type_column: str | None = "event.category",
    time_column: str | None = OverridableDefault("@timestamp"),
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    missing_fields: str = AS_ERROR,
    selection: str = PENDING_ONLY,
    relations: Any = None,
) -> tuple[EqlQuery | None, Sequence[CerError]]:
    """Compile a query in EQL and return it, or its errors; parameters are those of `cer_gpu.compile`."""
    check_time_unit(time_unit)
    check_missing_fields(missing_fields)
    if selection not in (PENDING_ONLY, EVERY_MATCH):
        raise OptionError(f"selection must be one of {PENDING_ONLY!r}, {EVERY_MATCH!r}, got {selection!r}")
    try:
        written = parse_eql(text)
    except QueryError as error:
        return None, [error]
    source = WrittenEql(type_column, time_column, time_unit, written, missing_fields, selection)
    query, errors = compiled_over(EqlQuery, source, schema)
    return cast(EqlQuery | None, query), errors


class EqlQuery(SchemaDependentQuery):
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
