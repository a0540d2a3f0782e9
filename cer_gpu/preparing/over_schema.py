"""Queries of a set over one schema: the guards of all, and what an evaluation needs of each before it is bound.

It is derived from the compiled queries once for a schema, and cached as JSON.  A query whose plan is that of another
one, but for its guards, as nearly all rules of one event are, is then evaluated by that plan.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.cache import disk_cached
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.errors import CerError
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.binding import Bindings
from cer_gpu.planning.file_pruning import FilePruning, needs_of_guards
from cer_gpu.planning.lazy_queries import UnboundQuery, can_defer
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates.cached_tables import digest_of, from_plain, to_plain
from cer_gpu.predicates.shared_guards import UnboundGuards
from cer_gpu.preparing.copies import ProcessCopy
from cer_gpu.preparing.facts import FROM_QUERIES, VERSIONS, Interned
from cer_gpu.preparing.one_event import Frame, OneEvent, with_guards
from cer_gpu.preparing.queries import PreparedQuery
from cer_gpu.query import Query

_MAX_MODELS = 16
"""Maximum number of plans that others may share."""


@dataclass(frozen=True)
class OverQuery:
    """A query over a schema, for an output.

    Attributes
    ----------
    result_schema : pyarrow.Schema
    attributes : tuple of str
        Columns and fields that it reads.
    clocks : tuple of str
    guards : tuple of Guard
    type_column : str or None
    sleeps : bool
        True if it need not be bound before its first relevant event.
    pruning_columns : tuple of str or None
        Columns that it needs of all events, or None if it needs all columns of them (`cer_gpu.planning.file_pruning`).
    notes, missing_fields : tuple of str
        As of `cer_gpu.evaluable.CompiledQuery`.
    model : str or None
        Name of the query whose plan it has, but for its text and its guards.
    digests : tuple of str
        Those of the guards, or () if they are not known.
    """

    result_schema: pa.Schema
    attributes: tuple[str, ...]
    clocks: tuple[str, ...]
    guards: tuple[Guard, ...]
    type_column: str | None
    sleeps: bool
    pruning_columns: tuple[str, ...] | None
    notes: tuple[str, ...]
    missing_fields: tuple[str, ...]
    model: str | None
    digests: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def asleep(self) -> UnboundQuery:
        """The query as an evaluation needs it until the first relevant event."""
        guards = UnboundGuards(self.guards, self.type_column, self.attributes, self.digests)
        return UnboundQuery(guards, self.clocks, self.attributes, self.result_schema)


class OverSchema:
    """Queries of a set over a schema.

    Parameters
    ----------
    compiled
        The queries, which are compiled if need be.
    outputs
        Output of each.
    schema : pyarrow.Schema
    queries : dict from str to OverQuery
        The queries that match the schema.
    """

    def __init__(
        self,
        compiled: Mapping[str, CompiledQuery],
        outputs: Mapping[str, str],
        schema: pa.Schema,
        queries: Mapping[str, OverQuery],
    ) -> None:
        self.schema = schema
        self.queries: Mapping[str, OverQuery] = queries
        self._compiled, self._outputs = compiled, outputs
        self._bound_queries: dict[str, CompiledQuery] = {}
        self._bindings: dict[str, Bindings] = {}
        self._fitting: list[pa.Schema] = [schema]

    @cached_property
    def wrong(self) -> list[str]:
        """Names of the queries that do not match the schema."""
        return [name for name in self._compiled if name not in self.queries]

    def only(self, compiled: Mapping[str, CompiledQuery], outputs: Mapping[str, str]) -> OverSchema:
        """Return some of the queries over the schema; the model of a query that matches the schema matches it, too."""
        return OverSchema(compiled, outputs, self.schema, {n: self.queries[n] for n in compiled if n in self.queries})

    def raise_error(self, name: str) -> None:
        """Raise the error of a query that does not match the schema."""
        self.query(name).output_schema(self.schema, self._outputs[name])

    def query(self, name: str) -> CompiledQuery:
        """Return a compiled query over the schema; raises CerError if it does not match."""
        if name not in self._bound_queries:
            self._bound_queries[name] = self._compiled[name].compiled.bind(self.schema)
        return self._bound_queries[name]

    def bindings(self, name: str) -> Bindings:
        """Return the bindings of a query's plan over the schema."""
        bindings = self._bindings.get(name)
        if bindings is None:
            model = self.queries[name].model
            query = self.query(name if model is None else model)
            assert isinstance(query, Query)
            bindings = query._bindings
            if model is not None:
                bindings = Bindings(with_guards(query._plan, self._compiled[name].text, self.queries[name].guards))
            self._bindings[name] = bindings
        return bindings

    def covers(self, name: str, other: pa.Schema) -> bool:
        """Return True if what is known of a query holds over another schema, too."""
        if any(other is cached for cached in self._fitting):
            return True
        if self._same_types(self.attributes, other):
            self._fitting = [*self._fitting[-3:], other]
            return True
        return self._same_types(self.queries[name].attributes, other)

    def _same_types(self, names: Sequence[str], other: pa.Schema) -> bool:
        return all(attribute_type(other, name) == attribute_type(self.schema, name) for name in names)

    @cached_property
    def attributes(self) -> list[str]:
        """Columns and fields that the queries read, each once."""
        return list(dict.fromkeys(name for query in self.queries.values() for name in query.attributes))

    @cached_property
    def needs(self) -> FilePruning | None:
        """Columns and rows that the queries need of stored events, or None if they need all."""
        of = [query.pruning_columns for query in self.queries.values()]
        columns = [names for names in of if names is not None]
        if self.wrong or not columns or len(columns) < len(of):
            return None
        guards = list(dict.fromkeys(guard for query in self.queries.values() for guard in query.guards))
        type_column = next(iter(self.queries.values())).type_column
        return needs_of_guards(guards, type_column, self.schema, frozenset().union(*columns))


def over_schema(compiled: Mapping[str, CompiledQuery], schema: pa.Schema, outputs: Mapping[str, str]) -> OverSchema:
    """Return the queries of a set over a schema, for the output of each."""

    def make() -> OverSchema:
        copies: dict[ProcessCopy, list[str]] = {}
        for name, query in compiled.items():
            copy = query.copy if isinstance(query, PreparedQuery) else None
            if copy is not None and (copy in copies or copy.claim()):
                copies.setdefault(copy, []).append(name)
        for copy, names in copies.items():
            copy.ask(_request(schema, {name: outputs[name] for name in names}))
        elsewhere = {name for names in copies.values() for name in names}
        over = OverSchema(compiled, outputs, schema, {})
        facts = _describe_queries(over, [name for name in compiled if name not in elsewhere])
        for copy, names in copies.items():
            content = copy.result()
            copy.close()
            facts |= _describe_queries(over, names) if content is None else _load_queries(json.loads(content))
        over.queries = {name: facts[name] for name in compiled if name in facts}
        return over

    def read(content: bytes) -> OverSchema:
        return OverSchema(compiled, outputs, schema, _load_queries(json.loads(content)))

    by = {name: query.compiled_by for name, query in compiled.items()}
    if len(compiled) < FROM_QUERIES or None in by.values():
        return make()
    key = [
        VERSIONS,
        schema.serialize().to_pybytes(),
        *(repr((name, by[name], outputs[name])) for name in compiled),
    ]
    # a later process would compile the queries as well, which takes some twenty times as long
    return disk_cached("over", key, make, lambda over: _dump_queries(over.queries), read, dearer=20)


def _describe_queries(over: OverSchema, names: Sequence[str]) -> dict[str, OverQuery]:
    """Return what is known of the queries that match the schema."""
    described: dict[str, OverQuery] = {}
    models: dict[str, LogicalPlan] = {}
    framed = _QueryFrames(over, models)
    for name in names:
        if (cached := framed.over(name)) is not None:
            described[name] = cached
            continue
        try:
            query = over.query(name)
            described[name] = _describe_query(query, over.schema, over._outputs[name], name, models)
            framed.add(name, query, described[name])
        except CerError:
            continue
        if name not in models and len(over._compiled) >= FROM_QUERIES:
            over._bound_queries.pop(name, None)  # all of them would take much memory
    if len(over._compiled) < FROM_QUERIES:
        return described
    return {name: replace(query, digests=_digests(query.guards)) for name, query in described.items()}


def _digests(guards: tuple[Guard, ...]) -> tuple[str, ...]:
    """Return the digests of guards, or () if one cannot be written."""
    try:
        return tuple([digest_of(guard) for guard in guards])
    except (ValueError, RecursionError):
        return ()


class _QueryFrames:
    """Queries of one event and one filter over a schema, each frame by the first query of it that is compiled.

    Parameters
    ----------
    over
    models
        Plans that others may share, by the names of their queries.
    """

    def __init__(self, over: OverSchema, models: dict[str, LogicalPlan]) -> None:
        self._over_schema, self._models = over, models
        self._frames: dict[tuple[str, str, str], tuple[Frame, OverQuery]] = {}

    def over(self, name: str) -> OverQuery | None:
        """Return the facts of a query from a compiled query of the same frame, or None if it has to be compiled."""
        query = self._over_schema._compiled[name]
        single = _one_event(query)
        cached = None if single is None else self._frames.get(self._cache_key(name, single))
        if single is None or cached is None:
            return None
        frame, empty = cached
        resolved = frame.resolve(single.predicate, empty.attributes)
        if resolved is None:
            return None
        return replace(
            empty,
            attributes=tuple(resolved.attributes),
            guards=(resolved.guard,),
            notes=(*query.notes, *resolved.resolved.notes),
            missing_fields=resolved.resolved.missing,
        )

    def add(self, name: str, query: CompiledQuery, facts: OverQuery) -> None:
        """Note a query over the schema, by which others of its frame are known."""
        single = _one_event(self._over_schema._compiled[name])
        if single is None or (key := self._cache_key(name, single)) in self._frames:
            return
        model = name if facts.model is None else facts.model
        if not facts.sleeps or model not in self._models or facts.guards[0].predicate is None:
            return
        written = self._over_schema._compiled[name].compiled
        assert isinstance(query, Query)
        assert isinstance(written, Query)
        frame = Frame(query, written, self._over_schema.schema)
        empty = _describe_query(frame.empty, self._over_schema.schema, self._over_schema._outputs[name], name, {})
        self._frames[key] = frame, replace(empty, model=model)

    def _cache_key(self, name: str, single: OneEvent) -> tuple[str, str, str]:
        return single.frame, self._over_schema._outputs[name], self._over_schema._compiled[name].language


def _one_event(query: CompiledQuery) -> OneEvent | None:
    return query.one_event() if isinstance(query, PreparedQuery) else None


def _request(schema: pa.Schema, outputs: Mapping[str, str]) -> bytes:
    """Return the request to `describe_over` in a copy of this process."""
    return json.dumps([base64.b64encode(schema.serialize().to_pybytes()).decode(), outputs]).encode()


def describe_over(compiled: Mapping[str, CompiledQuery], request: bytes) -> bytes:
    """Return what is known of some of the queries over a schema, as it is cached."""
    written, outputs = json.loads(request)
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(written)))
    return _dump_queries(_describe_queries(OverSchema(compiled, outputs, schema, {}), list(outputs)))


def _describe_query(
    query: CompiledQuery, schema: pa.Schema, output: str, name: str, models: dict[str, LogicalPlan]
) -> OverQuery:
    """Return what is known of a compiled query over a schema; it may become the model of others."""
    facts = OverQuery(
        result_schema=query.output_schema(schema, output),
        attributes=tuple(query.columns(schema, output)),
        clocks=(),
        guards=(),
        type_column=query.type_column,
        sleeps=False,
        pruning_columns=None,
        notes=tuple(query.notes),
        missing_fields=query.missing_fields,
        model=None,
    )
    if not isinstance(query, Query):
        return facts
    plan, binding, needs = query._plan, query._bind(schema), query._file_pruning(schema, output)
    sleeps = can_defer(plan, OUTPUTS[output], binding) and not plan.pipes and plan.aggregate is None
    return replace(
        facts,
        clocks=binding.clocks,
        guards=plan.guards,
        sleeps=sleeps,
        pruning_columns=None if needs is None else tuple(sorted(needs.required)),
        model=_model(name, plan, models) if sleeps else None,
    )


def _model(name: str, plan: LogicalPlan, models: dict[str, LogicalPlan]) -> str | None:
    """Return the name of the query whose plan another one has, but for its text and guards; it may become a model."""
    joins = plan.relates or plan.recent is not None  # which hold predicates of their own
    if joins or plan.syntax.each_step is not None or plan.several_streams:
        return None
    for other, model_plan in models.items():
        if with_guards(model_plan, plan.text, plan.guards) == plan:
            return other
    if len(models) < _MAX_MODELS:
        models[name] = plan
    return None


# ---- as JSON --------------------------------------------------------------------------------------------------------


def _dump_queries(facts: Mapping[str, OverQuery]) -> bytes:
    """Return what is known of the queries; raises ValueError or RecursionError if a predicate cannot be written."""
    schemas, lists, numbers = Interned(), Interned(), dict[Guard, tuple[int, str]]()
    queries = {}
    for name, query in facts.items():
        queries[name] = [
            schemas.number(base64.b64encode(query.result_schema.serialize().to_pybytes()).decode()),
            lists.number(
                [
                    query.attributes,
                    query.clocks,
                    query.type_column,
                    query.sleeps,
                    query.pruning_columns,
                    query.missing_fields,
                ]
            ),
            [
                numbers.setdefault(guard, (len(numbers), digest))[0]
                for guard, digest in zip(query.guards, query.digests, strict=True)
            ],
            list(query.notes),
            query.model,
        ]
    guards = [
        [guard.event_type, guard.stream, to_plain(guard.predicate), digest] for guard, (_, digest) in numbers.items()
    ]
    plain = {"schemas": schemas.values, "lists": lists.values, "guards": guards, "queries": queries}
    return json.dumps(plain).encode()


def _load_queries(plain_queries: Any) -> dict[str, OverQuery]:
    """Return the queries of what `_dump_queries` returned."""
    schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(each))) for each in plain_queries["schemas"]]
    lists = []
    for attributes, clocks, type_column, sleeps, needed, missing in plain_queries["lists"]:
        of_all = None if needed is None else tuple(needed)
        lists.append((tuple(attributes), tuple(clocks), type_column, sleeps, of_all, tuple(missing)))
    guards = [Guard(event_type, from_plain(plain), stream) for event_type, stream, plain, _ in plain_queries["guards"]]
    digests = [digest for *_, digest in plain_queries["guards"]]
    facts = {}
    for name, (schema, numbers, own, notes, model) in plain_queries["queries"].items():
        attributes, clocks, type_column, sleeps, needed, missing = lists[numbers]
        facts[name] = OverQuery(
            result_schema=schemas[schema],
            attributes=attributes,
            clocks=clocks,
            guards=tuple([guards[number] for number in own]),
            type_column=type_column,
            sleeps=sleeps,
            pruning_columns=needed,
            notes=tuple(notes),
            missing_fields=missing,
            model=model,
            digests=tuple([digests[number] for number in own]),
        )
    return facts
