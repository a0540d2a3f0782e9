"""The evaluation that a command line shows or writes: of one query, or of several in one pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import pyarrow as pa

from cer_gpu.cli.given_events import Streams
from cer_gpu.cli.given_queries import for_each
from cer_gpu.cli.progress import watched
from cer_gpu.compilation import CompiledQuery
from cer_gpu.engine.evaluator import Evaluator
from cer_gpu.io.source import Source
from cer_gpu.order.reorder import LATE
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.query import Query
from cer_gpu.query_set import FoundBatches, QuerySet, QuerySetEvaluator
from cer_gpu.stages import Stages


@dataclass(frozen=True)
class CommandOptions:
    """Options of an evaluation, as a command line has them; None: not given."""

    output: str | None
    limit: int | None
    device: str
    threads: int | None
    sort: bool
    lateness: str | None
    late: str | None

    @property
    def reorders(self) -> bool:
        """True if events are put in order as they arrive."""
        return self.lateness is not None or self.late is not None

    @property
    def of_evaluator(self) -> dict[str, Any]:
        """The options of every evaluator."""
        order: dict[str, Any] = {"lateness": self.lateness or "0", "late": self.late or LATE[0]}
        return {"output": self.output, "limit": self.limit, **(order if self.reorders else {})}


class CommandEvaluation(ABC):
    """Evaluation of queries, or of a statement, over their events, by the API.

    Raises
    ------
    WrongQueries
        When queries have no such output, or do not fit the events.

    Attributes
    ----------
    outputs : dict from str to str
        Output of each query.
    schemas : dict from str to pyarrow.Schema
        Schema of the results of each query.
    options : CommandOptions
    n_rows : int or None
        Number of events, where it is known.
    n_done : int
        Number of events that were evaluated, as far as the results tell that were yielded.
    """

    outputs: Mapping[str, str]
    schemas: Mapping[str, pa.Schema]

    def __init__(self, streams: Streams, options: CommandOptions, source: Source) -> None:
        self._streams = streams
        self._source = source
        self.options = options
        self.n_rows = source.n_rows
        self.n_done = 0

    @abstractmethod
    def _matches(self, source: Source) -> FoundBatches:
        """Yield the results with the names of their queries."""

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of `rows`; OptionError if the results of several queries do not fit into one table."""
        (schema,) = self.schemas.values()
        return schema

    @property
    @abstractmethod
    def notes(self) -> Mapping[str, Sequence[str]]:
        """Remarks on the events, by the queries that they concern."""

    @property
    @abstractmethod
    def n_late(self) -> int:
        """Number of events that came too late."""

    @property
    @abstractmethod
    def _n_read(self) -> int:
        """Number of events read, late ones too."""

    def rows(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return results of a query as rows of all results."""
        return batch

    def batches(self, tick: Callable[[], None]) -> FoundBatches:
        """Yield the results with the names of their queries; `tick` is called before each batch of events."""

        def before_a_batch() -> None:
            self.n_done = max(self.n_done, self._n_read)
            tick()

        for name, batch in self._matches(watched(self._source, before_a_batch)):
            self.n_done = max(self.n_done, self._n_done_with(batch))
            yield name, batch
        self.n_done = max(self.n_done, self._n_read)

    def _n_done_with(self, batch: pa.RecordBatch) -> int:
        """Return the number of events that were evaluated when a batch of results was found."""
        return self._n_read

    def counting(self) -> CommandEvaluation | None:
        """Return an evaluation that counts what this one lists, from the first event on; None: it would not help."""
        return None

    def advice(self, found: str, *, counts: bool) -> str:
        """Return advice, a line, on very many complex events, of which `found` tells."""
        of_all = "" if self.n_rows is None else f" of {self.n_rows:,}"
        share = f" ({self.n_done / self.n_rows:.1%})" if self.n_rows else ""
        rest = "the rest is only counted; " if counts else ""
        return f"{found} in {self.n_done:,}{of_all} rows{share}; {rest}{self._advice}"

    _advice = "--limit stops early"


class OfQueries(CommandEvaluation):
    """Evaluation of queries in CEQL."""

    evaluator: Evaluator | QuerySetEvaluator
    _advice = "WITHIN makes them fewer, --limit stops early, --output count lists none"

    def __init__(self, queries: Mapping[str, Query], streams: Streams, options: CommandOptions, stages: Stages) -> None:
        self._queries = queries
        self._stages = stages
        plans = for_each(queries, lambda query: query.physical_plan(options.output or query.default_output))
        self.outputs = {name: plan.output.name for name, plan in plans.items()}
        self._open(options)
        first = next(iter(queries.values()))
        super().__init__(streams, options, first._source(streams.open(), sort=options.sort))
        schema = self._source.schema
        self.schemas = for_each(queries, lambda query: query.output_schema(schema, options.output))

    @abstractmethod
    def _open(self, options: CommandOptions) -> None:
        """Make the evaluator."""

    @property
    def n_late(self) -> int:
        """Number of events that came too late."""
        return self.evaluator.n_late

    @property
    def _n_read(self) -> int:
        return self.evaluator.n_pushed if self.options.reorders else self.evaluator.n_events

    def _n_done_with(self, batch: pa.RecordBatch) -> int:
        if len(self._queries) > 1 and not self.evaluator.is_full:
            return self.n_done  # other queries have not read as far
        keeps_order = not self.options.sort and not self.options.reorders and not self._streams.are_named
        if len(self._queries) == 1 and keeps_order and batch.num_rows and "end" in batch.schema.names:
            return int(batch.column("end")[-1].as_py()) + 1
        return self._n_read

    def counting(self) -> CommandEvaluation | None:
        """Return an evaluation that counts what this one lists, from the first event on.

        None where that would not be faster: a row is not a complex event, the count lists them too, most events are
        done, or the events can be read only once.
        """
        if self.options.limit is not None or not self._source.rereadable:
            return None
        if not all(OUTPUTS[output].row_each for output in self.outputs.values()):
            return None
        if not all(query.physical_plan("count").counted for query in self._queries.values()):
            return None
        if self.n_rows is not None and 2 * self.n_done > self.n_rows:
            return None
        counting = type(self)(self._queries, self._streams, replace(self.options, output="count"), self._stages)
        counting.n_done = self.n_done
        return counting


class _OneQuery(OfQueries):
    """Evaluation of one query, whose name is ""."""

    evaluator: Evaluator

    def _open(self, options: CommandOptions) -> None:
        (self._query,) = self._queries.values()
        self.evaluator = self._query.evaluator(device=options.device, stages=self._stages, **options.of_evaluator)

    def _matches(self, source: Source) -> Iterator[tuple[str, pa.RecordBatch]]:
        (name,) = self._queries
        for batch in self._query._matches(source, self.evaluator, self.options.threads):
            yield name, batch

    @property
    def notes(self) -> dict[str, list[str]]:
        """Remarks on the events."""
        (name,) = self._queries
        return {name: self.evaluator.notes}


class QueriesTogether(OfQueries):
    """Evaluation of several queries in one pass, on one thread."""

    evaluator: QuerySetEvaluator

    def _open(self, options: CommandOptions) -> None:
        self._set = QuerySet(self._queries)
        self.evaluator = self._set.evaluator(device=options.device, **options.of_evaluator)

    def _matches(self, source: Source) -> FoundBatches:
        return self._set._matches(source, self.evaluator)

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the results of all queries, with the column that names the query (`QuerySet.stream`)."""
        return self._set.output_schema(self._source.schema, self.options.output)

    def rows(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return results of a query with the name of the query."""
        return next(self._set._named(iter([(name, batch)]), self.schema))

    @property
    def notes(self) -> dict[str, list[str]]:
        """Remarks on the events, by the queries that they concern."""
        return self.evaluator.notes


class OfTable(CommandEvaluation):
    """CommandEvaluation of one query over a whole table, whose name is "": all rows are read, then the matches come."""

    def __init__(
        self, queries: Mapping[str, CompiledQuery], streams: Streams, options: CommandOptions, stages: Stages
    ) -> None:
        ((name, self._query),) = queries.items()
        super().__init__(streams, options, self._query._source(streams.open()))
        self.outputs = {name: self._query.default_output}
        self.schemas = for_each(queries, lambda query: query.output_schema(self._source.schema))
        self._n_rows_read = 0

    @property
    def notes(self) -> dict[str, list[str]]:
        """No remarks on the events."""
        return {}

    @property
    def n_late(self) -> int:
        """No event comes too late, as all are sorted."""
        return 0

    @property
    def _n_read(self) -> int:
        return self._n_rows_read

    def _matches(self, source: Source) -> Iterator[tuple[str, pa.RecordBatch]]:
        def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
            for batch in source.batches(columns):
                yield batch
                self._n_rows_read += batch.num_rows

        counted = Source(source.schema, read, source.n_rows)
        (name,) = self.outputs
        with (
            source.locating(lambda: self._n_rows_read),
            self._query.stream(counted, device=self.options.device, limit=self.options.limit) as results,
        ):
            for batch in results:
                yield name, batch


def evaluation_of(
    queries: Mapping[str, CompiledQuery], streams: Streams, options: CommandOptions, stages: Stages, *, is_set: bool
) -> CommandEvaluation:
    """Return the evaluation of one query, or of the queries of a set in one pass."""
    if any(query.reads_whole_table for query in queries.values()):
        return OfTable(queries, streams, options, stages)
    return (QueriesTogether if is_set else _OneQuery)(cast(Mapping[str, Query], queries), streams, options, stages)
