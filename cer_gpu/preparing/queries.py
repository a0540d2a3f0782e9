"""Queries of a set that are known to compile, and are compiled when more than their facts is needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.explain.explanation import Explanation
from cer_gpu.planning.distribution import Distribution
from cer_gpu.preparing.copies import ProcessCopy
from cer_gpu.preparing.facts import QueryFacts, facts_of
from cer_gpu.preparing.one_event import OneEvent, one_event_of


class PreparedQuery(CompiledQuery):
    """A query of a set: its facts, and itself, compiled at the first use of anything else.

    Parameters
    ----------
    text
    by
        All that it depends on, as text.
    make
        Compiles it, which was done before without an error.
    facts
    copy
        The copy of this process that has compiled it, or None if there is none.
    one_event
        Returns it as a query of one event and one filter, or None if it is none.
    """

    def __init__(
        self,
        text: str,
        by: str,
        make: Callable[[], CompiledQuery],
        facts: QueryFacts,
        copy: ProcessCopy | None = None,
        one_event: Callable[[], OneEvent | None] = lambda: None,
    ) -> None:
        self.facts: QueryFacts = facts
        self.copy: ProcessCopy | None = copy
        self.one_event: Callable[[], OneEvent | None] = one_event
        self._text, self._by, self._make = text, by, make
        self.language: str = facts.language
        self.reads_whole_table: bool = facts.reads_whole_table
        self.notes: tuple[str, ...] = facts.notes
        self.missing_fields: tuple[str, ...] = facts.missing_fields

    @classmethod
    def of(cls, query: CompiledQuery, by: str) -> PreparedQuery:
        """Return a query that is compiled already."""
        prepared = cls(query.text, by, lambda: query, facts_of(query), one_event=partial(one_event_of, query))
        prepared.__dict__["compiled"] = query
        return prepared

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the compiled query."""
        return _itself, (self.compiled,)

    @cached_property
    def compiled(self) -> CompiledQuery:
        """The compiled query."""
        return self._make()

    @property
    def text(self) -> str:
        """See `CompiledQuery`."""
        return self._text

    @property
    def compiled_by(self) -> str | None:
        """See `CompiledQuery`."""
        return self._by

    @property
    def _plan(self) -> Any:  # type: ignore[override]
        return self.compiled._plan

    @property
    def identity(self) -> dict[str, Any]:
        """See `CompiledQuery`."""
        return dict(self.facts.identity)

    @property
    def is_spaced(self) -> bool:
        """See `CompiledQuery`."""
        return self.facts.is_spaced

    @property
    def types(self) -> tuple[str, ...]:
        """See `CompiledQuery`."""
        return self.facts.types

    @property
    def type_column(self) -> str | None:
        """See `CompiledQuery`."""
        return self.facts.type_column

    @property
    def time_column(self) -> str | None:
        """See `CompiledQuery`."""
        return self.facts.time_column

    @property
    def time_unit(self) -> str | None:
        """See `CompiledQuery`."""
        return self.facts.time_unit

    @property
    def streams(self) -> tuple[str, ...]:
        """See `CompiledQuery`."""
        return self.facts.streams

    @property
    def several_streams(self) -> bool:
        """See `CompiledQuery`."""
        return self.facts.several_streams

    @property
    def partition_keys(self) -> tuple[tuple[str, ...], ...]:
        """See `CompiledQuery`."""
        return self.facts.partition_keys

    @property
    def key_names(self) -> tuple[str, ...]:
        """See `CompiledQuery`."""
        return self.facts.key_names

    @property
    def nullable_partition_keys(self) -> frozenset[tuple[str, ...]]:
        """See `CompiledQuery`."""
        return frozenset(self.facts.nullable_partition_keys)

    @property
    def window_kind(self) -> str | None:
        """See `CompiledQuery`."""
        return self.facts.window_kind

    @property
    def window_attribute(self) -> str | None:
        """See `CompiledQuery`."""
        return self.facts.window_attribute

    @property
    def outputs(self) -> tuple[str, ...]:
        """See `CompiledQuery`."""
        return self.facts.outputs

    @property
    def default_output(self) -> str:
        """See `CompiledQuery`."""
        return self.facts.default_output

    def resolve_output(self, output: str | None) -> str:
        """See `CompiledQuery`."""
        name = self.facts.default_output if output is None else output
        return name if name in self.facts.outputs else self.compiled.resolve_output(output)

    @property
    def _counted_output(self) -> str | None:
        return self.facts.counted_output

    # ---- facts of the compiled query ------------------------------------------------------------------------

    @property
    def syntax(self) -> Any:
        """See `CompiledQuery`."""
        return self.compiled.syntax

    def bind(self, schema: pa.Schema) -> CompiledQuery:
        """See `CompiledQuery`."""
        return self.compiled.bind(schema)

    @property
    def distribution(self) -> Distribution:
        """See `CompiledQuery`."""
        return self.compiled.distribution

    def distribution_for(self, output: str | None) -> Distribution:
        """See `CompiledQuery`."""
        return self.compiled.distribution_for(output)

    def physical_plan(self, output: str | None = None) -> Any:
        """See `CompiledQuery`."""
        return self.compiled.physical_plan(output)

    def columns(self, schema: pa.Schema, output: str | None = None) -> list[str]:
        """See `CompiledQuery`."""
        return self.compiled.columns(schema, output)

    def explain(self, events: Any = None, *, analyze: bool = False, detail: str = "summary") -> Explanation:
        """See `CompiledQuery`."""
        return self.compiled.explain(events, analyze=analyze, detail=detail)

    def output_schema(self, schema: pa.Schema, output: str | None = None) -> pa.Schema:
        """See `CompiledQuery`."""
        return self.compiled.output_schema(schema, output)

    def __repr__(self) -> str:
        """Show the call that makes it."""
        return repr(self.compiled)

    def _repr_html_(self) -> str:
        return self.compiled._repr_html_()

    @property
    def _needed_types(self) -> tuple[str, ...] | None:
        return self.compiled._needed_types

    @property
    def _counts_events(self) -> bool:
        return self.compiled._counts_events

    def _window_units(self, schema: pa.Schema) -> int | float | None:
        return self.compiled._window_units(schema)

    def _with_aggregate_of(self, options: EvaluationOptions) -> Any:
        return self if options.aggregate is None else self.compiled._with_aggregate_of(options)


def _itself(query: CompiledQuery) -> CompiledQuery:
    return query
