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
from cer_gpu.compilation import analyse_member, compile_member
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.planning.binding import Bindings
from cer_gpu.planning.lazy_queries import LazyQuery, UnboundQuery
from cer_gpu.preparing.copies import ProcessCopy, processes_for
from cer_gpu.preparing.facts import FROM_QUERIES, VERSIONS, Interned, QueryFacts
from cer_gpu.preparing.one_event import KeptFilters, written_filters
from cer_gpu.preparing.over_schema import OverSchema, answer_over, over_schema
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
        Texts, and their languages (None: the text, or the option, tells it), by the names of the queries.
    **options
        Those of `cer_gpu.compilation.compile_member`.
    """
    schema = options.get("schema")
    plain = sorted((name, type(value).__name__, value) for name, value in options.items() if name != "schema")
    of_schema = b"" if schema is None else schema.serialize().to_pybytes()
    asked = hashlib.sha256(repr(plain).encode("utf-8", "surrogatepass") + of_schema).hexdigest()

    def options_of(language: str | None) -> dict[str, Any]:
        return options if language is None else options | {"language": language}

    def some(names: Iterable[str]) -> dict[str, PreparedQuery]:
        found = {}
        for name in names:
            text, language = queries[name]
            with suppress(Exception):  # which the caller meets again, by the name of the query
                query, _ = analyse_member(text, **options_of(language))
                if query is not None:
                    found[name] = PreparedQuery.of(query, _by(text, language, asked))
        return found

    def make() -> dict[str, PreparedQuery]:
        names = list(queries)
        n_processes = processes_for(len(names))
        parts = [names[i::n_processes] for i in range(n_processes)]
        copies = [(part, _started(partial(_answered, {}, partial(some, part), write))) for part in parts[1:]]
        found = some(parts[0])
        for part, copy in copies:
            content = None if copy is None else copy.answer()
            own = some(part) if content is None else read(content, copy)
            if copy is not None and (content is None or not own):
                copy.close()
            found |= own
        return {name: found[name] for name in names if name in found}

    def write(found: Mapping[str, PreparedQuery]) -> bytes:
        known = Interned()
        of = {name: known.number(query.facts.plain()) for name, query in found.items()}
        single = {name: single for name, query in found.items() if (single := query.one_event()) is not None}
        return json.dumps({"facts": known.values, "of": of}).encode() + b"\n" + written_filters(single)

    def read(content: bytes, copy: ProcessCopy | None = None) -> dict[str, PreparedQuery]:
        first, _, second = content.partition(b"\n")
        kept, filters = json.loads(first), KeptFilters(second)
        found = {}
        for name, number in kept["of"].items():
            text, language = queries[name]
            facts = QueryFacts.from_plain(kept["facts"][number], text)
            compiled: Callable[[], CompiledQuery] = partial(compile_member, text, **options_of(language))
            found[name] = PreparedQuery(
                text, _by(text, language, asked), compiled, facts, copy, partial(filters.of, name)
            )
        return found

    if len(queries) < FROM_QUERIES:
        return {name: query.compiled for name, query in make().items()}
    found = disk_cached("queries", [VERSIONS, asked, *(repr(query) for query in queries.items())], make, write, read)
    return dict[str, CompiledQuery](found)


def _started(serve: Callable[[bytes], bytes]) -> ProcessCopy | None:
    """Return a copy of this process that compiles a part of the queries, or None if there can be none."""
    try:
        copy = ProcessCopy(serve)
    except OSError:
        return None
    copy.ask(b"")
    return copy


def _answered(
    compiled: dict[str, PreparedQuery],
    make: Callable[[], dict[str, PreparedQuery]],
    write: Callable[[Mapping[str, PreparedQuery]], bytes],
    request: bytes,
) -> bytes:
    """Answer a request in a copy: first for its part of the queries, then for what is known of them over a schema."""
    if request:
        return answer_over(compiled, request)
    compiled.update(make())
    return write(compiled)


def _by(text: str, language: str | None, asked: str) -> str:
    return repr((text, language, asked))
