"""Queries of one event and one filter, as nearly all rules are: resolved against a schema by their filters alone.

Queries that differ in their filters alone have one plan.  One of them is compiled over a schema, and the filter of each
other one is resolved and bound as its own; so a cached set whose events have another schema than before is not parsed
and planned again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import walk
from cer_gpu.columnar.fields import narrowest
from cer_gpu.errors import CerError
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.expressions.binder import Binder, columns_of
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates.cached_tables import from_plain, to_plain
from cer_gpu.preparing.facts import Interned
from cer_gpu.query import Query
from cer_gpu.resolution.ceql import ParsedCeql
from cer_gpu.resolution.predicates import predicate_of_truth
from cer_gpu.resolution.resolved_query import ResolvedQuery, SchemaDependentQuery


class OneEvent:
    """A query of one event and one filter.

    Parameters
    ----------
    frame
        The text around the filter, without comments before it: queries of one frame and the same options differ in
        their filters alone.
    predicate
        The filter, as it was read, or None if it is plain data.
    plain
        The filter as plain data, or None to derive it from the predicate.
    """

    def __init__(self, frame: str, predicate: s.Predicate | None = None, plain: Any = None) -> None:
        self.frame: str = frame
        self._predicate, self._plain = predicate, plain

    @property
    def predicate(self) -> s.Predicate:
        """The filter, as it was read."""
        predicate: s.Predicate = from_plain(self._plain) if self._predicate is None else self._predicate
        return predicate

    @property
    def plain(self) -> Any:
        """The filter as JSON data; raises ValueError or RecursionError if it cannot be written."""
        return to_plain(self._predicate) if self._plain is None else self._plain


def one_event_of(query: CompiledQuery) -> OneEvent | None:
    """Return a compiled query as one of one event and one filter, or None if it is not, or reads other events."""
    if not isinstance(query, Query) or not _is_single_event_query(query):
        return None
    plan = query._plan
    filters = [node for node in walk(plan.syntax.formula) if isinstance(node, s.VariableFilter)]
    if len(filters) != 1 or len(plan.guards) != 1 or plan.guards[0].predicate != filters[0].predicate:
        return None
    begin, end = filters[0].span
    return OneEvent(f"{_without_comments(plan.text[:begin])}[]{plan.text[end:]}", filters[0].predicate)


def _is_single_event_query(query: Query) -> bool:
    plan = query._plan
    if isinstance(query, SchemaDependentQuery):
        source, _, changes = query._inputs
        if changes or not isinstance(source, ParsedCeql):
            return False
    elif type(query) is not Query:
        return False
    syntax = plan.syntax
    others = (
        syntax.partition or syntax.unread or syntax.let or syntax.relations or syntax.pipes or syntax.head is not None
    )
    return not (
        others
        or plan.relates
        or plan.trailing
        or plan.negates
        or plan.looks_back
        or plan.measures.measures
        or plan.syntax.let
    )


def _without_comments(text: str) -> str:
    """Return the beginning of a text without comments before the first clause."""
    lines = text.split("\n")
    while len(lines) > 1 and lines[0].startswith("--"):
        del lines[0]
    return "\n".join(lines)


@dataclass(frozen=True)
class ResolvedFilter:
    """The filter of a query over a schema.

    Attributes
    ----------
    guard : Guard
    attributes : list of str
        Columns and fields that the query reads, given the columns that it reads besides its filter.
    resolved : ResolvedQuery
        Places of its fields in the schema.
    """

    guard: Guard
    attributes: list[str]
    resolved: ResolvedQuery


def with_guards(plan: LogicalPlan, text: str, guards: tuple[Guard, ...]) -> LogicalPlan:
    """Return a plan with the text and the guards of another query."""
    cea = None if plan.cea is None else replace(plan.cea, guards=guards)
    return replace(plan, text=text, guards=guards, cea=cea)


class Frame:
    """Queries of one frame over a schema.

    Parameters
    ----------
    compiled : Query
        One of them over the schema.
    written : Query
        The same, as it was compiled before a schema was known.
    schema : pyarrow.Schema
    """

    def __init__(self, compiled: Query, written: Query, schema: pa.Schema) -> None:
        self._schema = schema
        self._guard = compiled._plan.guards[0]
        self._source: Any = written._inputs[0] if isinstance(written, SchemaDependentQuery) else None
        guards = (replace(self._guard, predicate=s.SATISFIED_BY_NONE),)
        self.empty: Query = Query(with_guards(compiled._plan, compiled.text, guards))

    def resolve(self, predicate: s.Predicate, beside: tuple[str, ...]) -> ResolvedFilter | None:
        """Return the filter of a query over the schema, or None if it has none, or needs its text to be decided.

        Parameters
        ----------
        predicate
            As it was read.
        beside
            Columns and fields that a query of this frame reads besides those of its filter.
        """
        resolved, bound = ResolvedQuery(self.empty.syntax, None), predicate
        if self._source is not None and (resolver := self._source.resolver(self._schema)) is not None:
            truth = predicate_of_truth(resolver.resolve(predicate))
            if truth is None:
                return None
            bound, resolved = truth, replace(resolved, fields=resolver.fields)
        binder = Binder(self._schema, "")
        try:
            binder.bind(bound)
        except CerError:
            return None  # the text gives the position of the error
        if binder.derived:
            return None
        attributes = narrowest(self._schema, {*beside, *columns_of([bound])})
        return ResolvedFilter(replace(self._guard, predicate=bound), attributes, resolved)


# ---- as JSON --------------------------------------------------------------------------------------------------------


def written_filters(queries: Mapping[str, OneEvent]) -> bytes:
    """Return queries as JSON, without those whose filters it cannot hold."""
    frames, plain = Interned(), {}
    for name, query in queries.items():
        with suppress(ValueError, RecursionError):
            plain[name] = [frames.number(query.frame), query.plain]
    return json.dumps([frames.values, plain]).encode()


class StoredFilters:
    """Queries of one event and one filter as `written_filters` returned them, read when one is requested."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @cached_property
    def _load_plain(self) -> tuple[list[str], dict[str, Any]]:
        frames, plain = json.loads(self._content)
        return frames, plain

    def of(self, name: str) -> OneEvent | None:
        """Return the query of a name, or None if it is not among them."""
        frames, plain = self._load_plain
        if name not in plain:
            return None
        frame, predicate = plain[name]
        return OneEvent(frames[frame], plain=predicate)
