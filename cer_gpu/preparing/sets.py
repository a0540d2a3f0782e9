"""Queries of a set, compiled together, or known to compile as an earlier process has found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import lark
import pyarrow as pa

from cer_gpu.cache import made_once
from cer_gpu.compilation import analyse_member, compile_member
from cer_gpu.evaluated import CompiledQuery
from cer_gpu.preparing.facts import QueryFacts
from cer_gpu.preparing.interned import Interned
from cer_gpu.preparing.queries import PreparedQuery

FROM_QUERIES = 64
"""Queries of a set from which on it is looked up, and kept, as a whole."""
VERSIONS = repr((lark.__version__, pa.__version__))
"""Versions of packages on which it depends what a query is."""


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

    def make() -> dict[str, PreparedQuery]:
        found = {}
        for name, (text, language) in queries.items():
            with suppress(Exception):  # which the caller meets again, by the name of the query
                query, _ = analyse_member(text, **options_of(language))
                if query is not None:
                    found[name] = PreparedQuery.of(query, _by(text, language, asked))
        return found

    def write(found: Mapping[str, PreparedQuery]) -> bytes:
        known = Interned()
        of = {name: known.number(query.facts.plain()) for name, query in found.items()}
        return json.dumps({"facts": known.values, "of": of}).encode()

    def read(content: bytes) -> dict[str, PreparedQuery]:
        kept = json.loads(content)
        found = {}
        for name, number in kept["of"].items():
            text, language = queries[name]
            facts = QueryFacts.from_plain(kept["facts"][number], text)
            compiled: Callable[[], CompiledQuery] = partial(compile_member, text, **options_of(language))
            found[name] = PreparedQuery(text, _by(text, language, asked), compiled, facts)
        return found

    if len(queries) < FROM_QUERIES:
        return {name: query.compiled for name, query in make().items()}
    found = made_once("queries", [VERSIONS, asked, *(repr(query) for query in queries.items())], make, write, read)
    return dict[str, CompiledQuery](found)


def _by(text: str, language: str | None, asked: str) -> str:
    return repr((text, language, asked))
