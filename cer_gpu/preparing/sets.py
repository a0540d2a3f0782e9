"""Queries of a set: compiled together, or known to compile as an earlier process found, and looked up by schemas."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from cer_gpu.cache import disk_cached
from cer_gpu.compilation import analyse_for_set, compile_for_set
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.planning.binding import Bindings
from cer_gpu.planning.lazy_queries import LazyQuery, UnboundQuery
from cer_gpu.preparing.copies import ProcessCopy, processes_for
from cer_gpu.preparing.facts import FROM_QUERIES, VERSIONS, Interned, QueryFacts
from cer_gpu.preparing.one_event import StoredFilters, written_filters
from cer_gpu.preparing.over_schema import OverSchema, describe_over, over_schema
from cer_gpu.preparing.queries import PreparedQuery
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
        self.lazy_queries: dict[str, LazyQuery] = {
            name: _LazyFromCache(self, name, query) for name, query in queries.items() if not query.reads_whole_table
        }

    def over(self, schema: pa.Schema) -> OverSchema:
        """Return the queries over a schema."""
        for over in self._over:
            if over.schema is schema or over.schema.equals(schema, check_metadata=True):
                return over
        resolved = over_schema(self._queries, schema, self.outputs)
        self._over = [resolved, *self._over[: _MAX_SCHEMAS - 1]]
        return resolved

    def only(self, queries: Mapping[str, CompiledQuery]) -> SetLookup:
        """Return the lookup of some of the queries, with what is known of them."""
        some = SetLookup(queries, {name: self.outputs[name] for name in queries})
        some._over = [over.only(queries, some.outputs) for over in self._over]
        return some


class _LazyFromCache(LazyQuery):
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
        resolved = self._lookup.over(schema).queries.get(self._name)
        return resolved.asleep if resolved is not None and resolved.sleeps else None

    def covers(self, schema: pa.Schema, other: pa.Schema) -> bool:
        """See `LazyQuery`."""
        return self._lookup.over(schema).covers(self._name, other)

    def bindings_over(self, schema: pa.Schema) -> Bindings:
        """See `LazyQuery`."""
        return self._lookup.over(schema).bindings(self._name)

    def bindings(self) -> Bindings:
        """See `LazyQuery`."""
        query = self._query.compiled
        assert isinstance(query, Query)
        return query._bindings


def compiled_together(queries: Mapping[str, tuple[str, str | None]], **options: Any) -> dict[str, CompiledQuery]:
    """Return the queries of a set that have no errors.

    Parameters
    ----------
    queries
        Texts and their languages (None to detect it from the text or the option), by the names of the queries.
    **options
        Those of `cer_gpu.compilation.compile_for_set`.
    """
    schema = options.get("schema")
    plain = sorted((name, type(value).__name__, value) for name, value in options.items() if name != "schema")
    of_schema = b"" if schema is None else schema.serialize().to_pybytes()
    digest = hashlib.sha256(repr(plain).encode("utf-8", "surrogatepass") + of_schema).hexdigest()

    def options_of(language: str | None) -> dict[str, Any]:
        return options if language is None else options | {"language": language}

    def some(names: Iterable[str]) -> dict[str, PreparedQuery]:
        prepared = {}
        for name in names:
            text, language = queries[name]
            with suppress(Exception):  # which the caller meets again, by the name of the query
                query, _ = analyse_for_set(text, **options_of(language))
                if query is not None:
                    prepared[name] = PreparedQuery.of(query, _query_key(text, language, digest))
        return prepared

    def make() -> dict[str, PreparedQuery]:
        names = list(queries)
        n_processes = processes_for(len(names))
        parts = [names[i::n_processes] for i in range(n_processes)]
        copies = [(part, _start_copy(partial(_serve_request, {}, partial(some, part), write))) for part in parts[1:]]
        prepared = some(parts[0])
        for part, copy in copies:
            content = None if copy is None else copy.result()
            own = some(part) if content is None else read(content, copy)
            if copy is not None and (content is None or not own):
                copy.close()
            prepared |= own
        return {name: prepared[name] for name in names if name in prepared}

    def write(prepared: Mapping[str, PreparedQuery]) -> bytes:
        interned = Interned()
        of = {name: interned.number(query.facts.plain()) for name, query in prepared.items()}
        single = {name: single for name, query in prepared.items() if (single := query.one_event()) is not None}
        return json.dumps({"facts": interned.values, "of": of}).encode() + b"\n" + written_filters(single)

    def read(content: bytes, copy: ProcessCopy | None = None) -> dict[str, PreparedQuery]:
        first, _, second = content.partition(b"\n")
        stored, filters = json.loads(first), StoredFilters(second)
        prepared = {}
        for name, number in stored["of"].items():
            text, language = queries[name]
            facts = QueryFacts.from_plain(stored["facts"][number], text)
            compiled: Callable[[], CompiledQuery] = partial(compile_for_set, text, **options_of(language))
            prepared[name] = PreparedQuery(
                text, _query_key(text, language, digest), compiled, facts, copy, partial(filters.of, name)
            )
        return prepared

    if len(queries) < FROM_QUERIES:
        return {name: query.compiled for name, query in make().items()}
    prepared = disk_cached(
        "queries", [VERSIONS, digest, *(repr(query) for query in queries.items())], make, write, read
    )
    return dict[str, CompiledQuery](prepared)


def _start_copy(serve: Callable[[bytes], bytes]) -> ProcessCopy | None:
    """Return a copy of this process that compiles a part of the queries, or None if there can be none."""
    try:
        copy = ProcessCopy(serve)
    except OSError:
        return None
    copy.ask(b"")
    return copy


def _serve_request(
    compiled: dict[str, PreparedQuery],
    make: Callable[[], dict[str, PreparedQuery]],
    write: Callable[[Mapping[str, PreparedQuery]], bytes],
    request: bytes,
) -> bytes:
    """Process a request in a copy: first for its part of the queries, then for the facts of them over a schema."""
    if request:
        return describe_over(compiled, request)
    compiled.update(make())
    return write(compiled)


def _query_key(text: str, language: str | None, digest: str) -> str:
    return repr((text, language, digest))
