"""The evaluation of a command line: of one query, or of several in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from cer_gpu.cli.event_arguments import Streams
from cer_gpu.cli.progress_bar import with_ticks
from cer_gpu.cli.query_arguments import Wrong, bindable_queries, for_each
from cer_gpu.columnar.fields import columns_with
from cer_gpu.compilation import CompiledQuery
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.execution_group import NamedBatches
from cer_gpu.in_one_table import joined_schema, named
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.query_set import QuerySet
from cer_gpu.rule import Rule
from cer_gpu.rules.alerts import ALERTS, AlertRows, alert_output, time_type_in
from cer_gpu.stages import Stages


class CommandEvaluation:
    """Evaluation of queries over their events, by the API; the name of a single query is "".

    Parameters
    ----------
    queries, streams, options, stages
    is_set
    skipped
        Collects queries that do not have the output or cannot be bound to the events, with their errors; if None,
        errors are raised.

    Raises
    ------
    WrongQueries
        When queries do not have the output, or cannot be bound to the events.

    Attributes
    ----------
    queries : dict from str to query
        Evaluated queries.
    outputs : dict from str to str
        Output of each query.
    schemas : dict from str to pyarrow.Schema
        Output schema of each query.
    missing_fields : dict from str to tuple of str
        Fields of each query that are missing in the events.
    options : EvaluationOptions
    n_rows : int or None
        Number of events, or None if unknown.
    n_done : int
        Number of evaluated events, as far as the yielded rows indicate.
    matched_extra : set of str
        Names of the additional queries (`_extra`) that have matches.
    """

    _extra: Mapping[str, CompiledQuery] = MappingProxyType({})

    def __init__(
        self,
        queries: Mapping[str, CompiledQuery],
        streams: Streams,
        options: EvaluationOptions,
        stages: Stages,
        *,
        is_set: bool,
        skipped: Wrong | None = None,
    ) -> None:
        self._streams, self._stages, self._is_set = streams, stages, is_set
        self.options = options
        self.outputs: dict[str, str] = for_each(queries, self._output_of, skipped)
        queries = {name: queries[name] for name in self.outputs} | dict(self._extra)
        self.outputs |= dict.fromkeys(self._extra, "ends")
        self._evaluable = self._together(queries)
        options.check_time(self._evaluable.time_column)
        if isinstance(self._evaluable, QuerySet):
            needs = partial(self._evaluable._file_pruning, outputs=self.outputs)
        else:
            needs = partial(self._evaluable._file_pruning, output=options.output)
        self._source = self._evaluable._open_source(streams.open(), sort=options.sort, needs=needs)
        self.queries: dict[str, CompiledQuery]
        self.schemas: dict[str, pa.Schema]
        self.missing_fields: dict[str, tuple[str, ...]]
        if isinstance(self._evaluable, QuerySet):
            self._evaluable, over = bindable_queries(self._evaluable, self._source.schema, self.outputs, skipped)
            self.queries = dict(self._evaluable._queries)
            self.schemas = {name: query.result_schema for name, query in over.queries.items()}
            self.missing_fields = {name: query.missing_fields for name, query in over.queries.items()}
        else:
            self.queries = for_each({"": self._evaluable}, lambda query: query.bind(self._source.schema))
            self._evaluable = self.queries[""]
            self.schemas = for_each(
                self.queries, lambda query: query.output_schema(self._source.schema, self.outputs[""])
            )
            self.missing_fields = {"": self._evaluable.missing_fields}
        self.outputs = {name: self.outputs[name] for name in self.schemas}
        self.evaluator: Any = self._open_evaluator(replace(options, stages=stages))
        self.n_rows: int | None = self._source.n_rows
        self.n_done: int = 0
        self.matched_extra: set[str] = set()
        for of_each in (self.queries, self.outputs, self.schemas, self.missing_fields):
            for name in self._extra:
                of_each.pop(name, None)

    def _together(self, queries: Mapping[str, CompiledQuery]) -> QuerySet | CompiledQuery:
        return QuerySet(queries) if self._is_set else next(iter(queries.values()))

    def _output_of(self, query: CompiledQuery) -> str:
        return query.resolve_output(self.options.output)

    def _open_evaluator(self, options: EvaluationOptions) -> Any:
        return self._evaluable._checked_evaluator(options)

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of `rows`; for a set, with the column that names the query (`QuerySet.stream`).

        Raises
        ------
        OptionError
            When the output of the queries cannot be in one table.
        """
        return joined_schema(self.schemas) if self._is_set else self.schemas[""]

    @property
    def notes(self) -> Mapping[str, Sequence[str]]:
        """Remarks on the events, by query."""
        notes = self.evaluator.notes
        return notes if self._is_set else {"": notes}

    @property
    def events_schema(self) -> pa.Schema:
        """Schema of the events."""
        return self._source.schema

    @property
    def remarks(self) -> list[str]:
        """Remarks on columns with different types in some files, and on skipped parts of files."""
        remarks = self._source.remarks
        read = columns_with(self._source.schema, self.evaluator.attributes(self._source.schema)) if remarks else []
        return [*(remarks[name] for name in read if name in remarks), *self._source.notes]

    @property
    def n_late(self) -> int:
        """Number of late events."""
        n_late: int = self.evaluator.n_late
        return n_late

    @property
    def n_suppressed(self) -> int:
        """Number of matches suppressed by LIMIT n EVERY d."""
        n_suppressed: int = self.evaluator.n_suppressed
        return n_suppressed

    @property
    def _n_read(self) -> int:
        """Number of events read, including late ones."""
        n_read: int = self.evaluator.n_events if self.options.lateness is None else self.evaluator.n_pushed
        return n_read

    def rows(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a query with the common schema."""
        return next(named(iter([(name, batch)]), self.schema)) if self._is_set else batch

    def batches(self, tick: Callable[[], None]) -> NamedBatches:
        """Yield the rows with query names; `tick` is called before each batch of events."""

        def before_a_batch() -> None:
            self.n_done = max(self.n_done, self._n_read)
            tick()

        source = with_ticks(self._source, before_a_batch)
        for name, batch in self._evaluable._find_matches(source, self.evaluator, self.options.threads):
            if name in self._extra:
                continue
            self.n_done = max(self.n_done, self._n_done_with(batch))
            yield name, batch
        self.n_done = max(self.n_done, self._n_read)
        self.matched_extra = {name for name in self._extra if self.evaluator.n_matches.get(name)}

    @property
    def _of_events(self) -> bool:
        """True if all queries are evaluated event by event."""
        return not any(query.reads_whole_table for query in self.queries.values())

    def _n_done_with(self, batch: pa.RecordBatch) -> int:
        """Return the number of events evaluated when a batch of rows was produced."""
        if len(self.queries) > 1 and not self.evaluator.limit_reached:
            return self.n_done  # other queries have not read as far
        keeps_order = not self.options.sort and self.options.lateness is None and not self._streams.are_named
        is_end = self._of_events and batch.num_rows and "end" in batch.schema.names
        if len(self.queries) == 1 and keeps_order and is_end:
            return int(batch.column("end")[-1].as_py()) + 1
        return self._n_read

    def counting(self) -> CommandEvaluation | None:
        """Return an evaluation that counts the matches that this one lists, from the first event on.

        None if that would not be faster: a row is not a match, counting lists them too, most events are done, or the
        events can be read only once.
        """
        if self.options.lists_some or not self._source.rereadable or not self._of_events:
            return None
        if not all(OUTPUTS[output].row_each for output in self.outputs.values()):
            return None
        if not all(query.physical_plan("count").counted for query in self.queries.values()):
            return None
        if self.n_rows is not None and 2 * self.n_done > self.n_rows:
            return None
        counted = replace(self.options, output="count")
        counting = CommandEvaluation(self.queries, self._streams, counted, self._stages, is_set=self._is_set)
        counting.n_done = self.n_done
        return counting

    def advice(self, summary: str, *, counts: bool) -> str:
        """Return a line of advice on very many matches; `summary` is their number in words."""
        of_all = "" if self.n_rows is None else f" of {self.n_rows:,}"
        share = f" ({self.n_done / self.n_rows:.1%})" if self.n_rows else ""
        rest = "the rest is only counted; " if counts else ""
        less = "--limit stops early"
        if self._of_events:
            less = f"WITHIN reduces them, {less}, --output count only counts them"
        return f"{summary} in {self.n_done:,}{of_all} rows{share}; {rest}{less}"


class AlertEvaluation(CommandEvaluation):
    """Evaluation of the rules of a folder, with alerts as output.

    Parameters
    ----------
    rules
        Rules of the queries.
    queries, streams, options, stages, skipped
        As for `CommandEvaluation`; the options have no output.
    extra
        Queries of which only the existence of matches is needed.
    """

    def __init__(
        self,
        rules: Mapping[str, Rule],
        queries: Mapping[str, CompiledQuery],
        streams: Streams,
        options: EvaluationOptions,
        stages: Stages,
        *,
        skipped: Wrong | None = None,
        extra: Mapping[str, CompiledQuery] = MappingProxyType({}),
    ) -> None:
        self._extra = extra
        super().__init__(queries, streams, options, stages, is_set=True, skipped=skipped)
        files = self._source.files if options.lateness is None else None
        self._alerts = AlertRows(rules, self.queries, time_type_in(self.schemas, self.queries), files)
        self.outputs: dict[str, str] = dict.fromkeys(self.outputs, ALERTS)

    def _output_of(self, query: CompiledQuery) -> str:
        return alert_output(query)

    def _open_evaluator(self, options: EvaluationOptions) -> Any:
        assert isinstance(self._evaluable, QuerySet)
        return self._evaluable._evaluator_for(options, self.outputs, shares=len(self.queries) > 1)

    @property
    def schema(self) -> pa.Schema:
        """Schema of alerts."""
        return self._alerts.schema

    def rows(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a rule as alerts."""
        return self._alerts.from_results(name, batch)

    def counting(self) -> None:
        """Return None, as alerts are listed."""
