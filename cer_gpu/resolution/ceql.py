"""Front end of CEQL: queries that are the same for every schema, and those that are fitted to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.traversal import walk
from cer_gpu.errors import CerError, QueryError
from cer_gpu.query import Query, check_time_unit, compiled_syntax
from cer_gpu.resolution.formulas import fitted_query
from cer_gpu.resolution.predicates import PredicateFitter
from cer_gpu.resolution.query import (
    AS_ERROR,
    AS_NULL,
    ParsedQuery,
    ResolvedQuery,
    SchemaDependentQuery,
    check_missing_fields,
    compiled_over,
    has_column,
)


@dataclass(frozen=True)
class WrittenCeql(ParsedQuery):
    """A query in CEQL as it was read, and the options by which it is compiled.

    Attributes
    ----------
    syntax : cer_gpu.ceql.syntax.QuerySyntax
    missing_fields : str
    """

    syntax: s.QuerySyntax
    missing_fields: str

    def fitter(self, schema: pa.Schema) -> PredicateFitter | None:
        """Return what fits predicates to a schema; None: they are the same for every schema."""
        return PredicateFitter(schema) if self.missing_fields == AS_NULL else None

    def fitted(self, schema: pa.Schema | None) -> ResolvedQuery:
        """Return the query over a schema; events need no column of types that it names none of."""
        types = self.type_column
        if schema is None:
            return ResolvedQuery(self.syntax, types)
        spared = types is not None and not names_types(self.syntax) and not has_column(schema, types)
        column = None if spared else types
        fitter = self.fitter(schema)
        if fitter is None:
            return ResolvedQuery(self.syntax, column, types_asked=types, knows_schema=True)
        syntax = fitted_query(self.syntax, fitter)
        return ResolvedQuery(syntax, column, fitter.found, types_asked=types, knows_schema=True, find=fitter.find)


def analyse(
    text: str,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    time_unit: str | None = None,
    schema: pa.Schema | None = None,
    relations: Mapping[str, Sequence[str]] | None = None,
    missing_fields: str = AS_ERROR,
) -> tuple[Query | None, Sequence[CerError]]:
    """Compile a query in CEQL and return it, or its errors; parameters are those of `cer_gpu.compile`."""
    check_time_unit(time_unit)
    check_missing_fields(missing_fields)
    time_column = None if time_column is None else str(time_column)
    try:
        syntax = parse(text, relations)
    except QueryError as error:
        return None, [error]
    if missing_fields == AS_ERROR and (type_column is None or names_types(syntax)):
        return compiled_syntax(
            syntax, type_column=type_column, time_column=time_column, time_unit=time_unit, schema=schema
        )
    source = WrittenCeql(type_column, time_column, time_unit, syntax, missing_fields)
    return compiled_over(SchemaDependentQuery, source, schema)


def names_types(syntax: s.QuerySyntax) -> bool:
    """Return True if a query names a type of events, in its formula or in an aggregate OVER the past."""
    for node in walk(syntax.formula):
        if isinstance(node, s.EventType | s.Negation | s.Absence) and node.event.name != s.ANY_TYPE:
            return True
        if isinstance(node, s.Attribute) and any(past.event is not None for past in s.pasts_in(node)):
            return True
    return False
