"""The evaluation of a live source: that of a command, over events of which the schema is known."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cer_gpu.cli.alerts import kept_for_order
from cer_gpu.cli.evaluation import AlertEvaluation, CommandEvaluation
from cer_gpu.cli.event_arguments import Streams
from cer_gpu.cli.query_arguments import QueryArguments, Wrong, for_each, missing_notes
from cer_gpu.compilation import CompiledQuery
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.errors import OptionError
from cer_gpu.io.sinks import Sink
from cer_gpu.stages import NO_STAGES


@dataclass(frozen=True)
class ComingEvents(Streams):
    """Events that will come.

    Attributes
    ----------
    schema : pyarrow.Schema
    """

    schema: pa.Schema

    def open(self) -> pa.Table:
        """Return a table without rows."""
        return self.schema.empty_table()


class CommandFollowed:
    """Evaluation of the queries of a command over events that come, before the first of them.

    Parameters
    ----------
    given
    compiled
        The compiled queries, which never read whole tables.
    options
    alerts
        True: the results are alerts of rules.
    schema
        Schema of the events.

    Raises
    ------
    WrongQueries
        When queries do not fit the events, and are not left out.
    """

    def __init__(
        self,
        given: QueryArguments,
        compiled: Mapping[str, CompiledQuery],
        options: EvaluationOptions,
        schema: pa.Schema,
        *,
        alerts: bool,
    ) -> None:
        streams, skipped = ComingEvents({None: []}, schema), given.skipped
        if alerts:
            self._evaluation: CommandEvaluation = AlertEvaluation(
                given.rules, compiled, streams, options, NO_STAGES, skipped=skipped
            )
        else:
            self._evaluation = CommandEvaluation(
                compiled, streams, options, NO_STAGES, is_set=given.is_set, skipped=skipped
            )
        self._alerts = alerts
        self.evaluator: Any = self._evaluation.evaluator
        missing = self._evaluation.missing_fields
        self.missing: frozenset[str] = frozenset(field for fields in missing.values() for field in fields)
        self.notes: list[str] = missing_notes(missing, [schema], given.rules)

    @property
    def outputs(self) -> dict[str, str]:
        """The output of each query."""
        return self._evaluation.outputs

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self._evaluation.schema

    def rows(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return results of a query as rows."""
        return self._evaluation.rows(name, batch)

    def ordered(self, sink: Sink) -> AbstractContextManager[Sink]:
        """Return a context with the sink that takes the rows of a step: alerts come in the order of their ends."""
        return kept_for_order(sink, self.schema) if self._alerts else _as_they_come(sink)


@contextlib.contextmanager
def _as_they_come(sink: Sink) -> Iterator[Sink]:
    yield sink


def endless(queries: Mapping[str, CompiledQuery], skipped: Wrong | None, option: str) -> dict[str, CompiledQuery]:
    """Return the queries that can be evaluated over one stream that never ends, as `for_each` does.

    `option` is that which names the stream.
    """

    def checked(query: CompiledQuery) -> CompiledQuery:
        if query.reads_whole_table:
            raise OptionError(f"MATCH_RECOGNIZE reads the whole table, and {option} never comes to its end")
        if query.several_streams:
            raise OptionError(
                f"the query reads the streams {', '.join(query.streams)}, and {option} is one\n"
                "hint: a column that tells the stream, and FROM one stream"
            )
        return query

    return for_each(queries, checked, skipped)
