"""Queries of a set, looked up by the schemas of their events: made once for each, and shared by evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from cer_gpu.evaluable import CompiledQuery
from cer_gpu.planning.binding import Bindings
from cer_gpu.planning.lazy_queries import LazyQuery, UnboundQuery
from cer_gpu.preparing.over_schema import OverSchema, over_schema
from cer_gpu.query import Query

_MAX_SCHEMAS = 4
"""Schemas for which what is known of the queries stays in memory."""


class SetLookup:
    """Queries of a set, each for one output, over the schemas that come.

    Parameters
    ----------
    queries
    outputs
        Output of each query.

    Attributes
    ----------
    known : dict from str to KnownQuery
        For members of evaluations; not those over whole tables.
    """

    def __init__(self, queries: Mapping[str, CompiledQuery], outputs: Mapping[str, str]) -> None:
        self._queries = queries
        self.outputs: Mapping[str, str] = outputs
        self._over: list[OverSchema] = []
        self.known: dict[str, LazyQuery] = {
            name: _Known(self, name, query) for name, query in queries.items() if not query.reads_whole_table
        }

    def over(self, schema: pa.Schema) -> OverSchema:
        """Return the queries over a schema."""
        for over in self._over:
            if over.schema is schema or over.schema.equals(schema, check_metadata=True):
                return over
        made = over_schema(self._queries, schema, self.outputs)
        self._over = [made, *self._over[: _MAX_SCHEMAS - 1]]
        return made

    def only(self, queries: Mapping[str, CompiledQuery]) -> SetLookup:
        """Return the lookup of some of the queries, with what is known of them."""
        some = SetLookup(queries, {name: self.outputs[name] for name in queries})
        some._over = [over.only(queries, some.outputs) for over in self._over]
        return some


class _Known(LazyQuery):
    """A query of a set."""

    def __init__(self, lookup: SetLookup, name: str, query: CompiledQuery) -> None:
        self._lookup, self._name, self._query = lookup, name, query

    @property
    def identity(self) -> Mapping[str, Any]:
        """See `LazyQuery`."""
        return self._query.identity

    @property
    def types(self) -> tuple[str, ...]:
        """See `LazyQuery`."""
        return self._query.types

    def asleep(self, schema: pa.Schema) -> UnboundQuery | None:
        """See `LazyQuery`."""
        found = self._lookup.over(schema).queries.get(self._name)
        return found.asleep if found is not None and found.sleeps else None

    def fits(self, schema: pa.Schema, other: pa.Schema) -> bool:
        """See `LazyQuery`."""
        return self._lookup.over(schema).fits(self._name, other)

    def bindings_over(self, schema: pa.Schema) -> Bindings:
        """See `LazyQuery`."""
        return self._lookup.over(schema).bindings(self._name)

    def bindings(self) -> Bindings:
        """See `LazyQuery`."""
        query = self._query.compiled
        assert isinstance(query, Query)
        return query._bindings
