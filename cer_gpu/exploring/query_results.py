"""Results of queries as one types: the parts that a page shows of a query over a sample, the quick ones first."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from cer_gpu.ceql.paths import dotted
from cer_gpu.compilation import CompiledQuery
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.errors import CerError, OptionError
from cer_gpu.evaluable import number_in
from cer_gpu.exploring.near_misses import WithoutOne, without_each
from cer_gpu.exploring.samples import EventSample, ExploredEvents, SampledEvents
from cer_gpu.io.value_strings import plain_values
from cer_gpu.output.funnel_counts import FunnelCounts
from cer_gpu.planning.outputs import funnel_names
from cer_gpu.query import Query
from cer_gpu.query_set import QuerySet
from cer_gpu.report.counted import count_for_report, number_in_words
from cer_gpu.report.funnel_keys import FurthestStarts
from cer_gpu.report.match_rows import MAX_CELL
from cer_gpu.report.page import content
from cer_gpu.stages import Stages

Send = Callable[[dict[str, Any]], None]
"""Takes a part of the results, a message of plain data."""


@dataclass(frozen=True)
class ResultLimits:
    """Limits of what a page shows.

    Attributes
    ----------
    n_pages : int
        Share of the space of a report: one of so many.
    max_listed : int
        Matches that are listed, where they can be counted without that.
    limit : int
        Matches after which an evaluation ends that must list them to count them.
    max_memory : str or None
    max_valuations : int or None
        Valuations that are read for the roles of rows (`cer_gpu.report.page.content`).
    n_table_rows : int
        Rows of MATCH_RECOGNIZE that are shown.
    threads : int or None
    """

    n_pages: int
    max_listed: int
    limit: int
    max_memory: str | None
    max_valuations: int | None = None
    n_table_rows: int = 500
    threads: int | None = 1


AS_ONE_TYPES = ResultLimits(40, 20_000, 20_000, "256MiB", 20_000)
OF_ALL = ResultLimits(10, 200_000, 1_000_000, None)


class StoppableStages(Stages):
    """The hook of an evaluation that can be stopped: it calls `check` whenever a stage begins."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def stage(self, name: str | None) -> contextlib.AbstractContextManager[None]:
        """Check, and do nothing else."""
        self._check()
        return contextlib.nullcontext()

    def each(self, name: str, items: Iterator[Any]) -> Iterator[Any]:
        """Check before each item."""
        for item in items:
            self._check()
            yield item


_MAX_MISSES = 1000
"""Events that satisfy all conditions of a rule but one, after which no more are counted."""
_MAX_REDUCED = 2000
"""Conditions of rules that are left out, one at a time."""
_Evaluated = TypeVar("_Evaluated")


class _SampleEvaluation(Generic[_Evaluated]):
    """Evaluation over a sample; its public classes say what they send.

    Parameters
    ----------
    evaluated
    explored
    sample
    limits
    send
        Takes each part of the results.
    check
        Called often; it raises `cer_gpu.exploring.samples.EvaluationStopped` to end the evaluation.
    progress
        Called with words on what is done, and the number of events read of each pass.
    """

    _doing: str = ""
    _errors: ClassVar[str | None] = None

    def __init__(
        self,
        evaluated: _Evaluated,
        explored: ExploredEvents,
        sample: EventSample,
        limits: ResultLimits,
        send: Send,
        check: Callable[[], None],
        progress: Callable[[str, int], None] = lambda doing, n: None,
    ) -> None:
        self._evaluated = evaluated
        self._sample, self._limits, self._send, self._check, self._progress = sample, limits, send, check, progress
        self._events = SampledEvents(explored, sample, self._at)
        self._options = EvaluationOptions(
            threads=limits.threads, max_memory=limits.max_memory, stages=StoppableStages(check), errors=self._errors
        )

    def _at(self, n_read: int) -> None:
        self._check()
        self._progress(self._doing, n_read)


class QueryResults(_SampleEvaluation[CompiledQuery]):
    """The results of a query: ``counted``, ``page`` (the content of a report's page) or ``rows``, and ``funnel``."""

    def send_all(self) -> None:
        """Evaluate the query, and send all parts.

        Raises
        ------
        CerError
            As `cer_gpu.Query.evaluate`.
        EvaluationStopped
        """
        query = self._evaluated.bind(self._events.open().schema)
        if not isinstance(query, Query):
            self._send_rows(query)
            return
        self._send_matches(query)
        self._send_funnel(query)

    def _send_matches(self, query: Query) -> None:
        began = time.perf_counter()
        self._doing = "counting matches"
        counted = count_for_report({"": query}, self._events, self._options, self._limits.max_listed).get("")
        if counted is not None:
            self._send(
                {
                    "kind": "counted",
                    "n_matches": counted.n_matches,
                    "found": number_in_words(counted.n_matches),
                    "n_partitions": len(counted.partitions.labels),
                    "keys": [dotted(names[0]) for names in query.partition_keys],
                    "seconds": time.perf_counter() - began,
                }
            )
        self._doing = "listing matches"
        limit = None if counted is not None else self._limits.limit
        options = replace(self._options, limit=limit)
        page = content(
            query,
            self._events,
            counted,
            options=options,
            n_pages=self._limits.n_pages,
            max_valuations=self._limits.max_valuations,
        )
        page["reached_limit"] = limit is not None and page["n_matches"] == limit
        if page["reached_limit"]:
            page["found"] = f"{limit:,} or more"
        self._send({"kind": "page", "page": page, "seconds": time.perf_counter() - began})

    def _send_funnel(self, query: Query) -> None:
        self._doing = "following each start through its steps"
        try:
            query.resolve_output("funnel")
        except OptionError as error:
            self._send({"kind": "funnel", "why_not": str(error)})
            return
        counts = FunnelCounts(funnel_names(query._plan), query._plan.time_unit)
        of_keys = FurthestStarts(query) if query.partition_keys else None
        evaluator = query._checked_evaluator(replace(self._options, output="funnel"))
        for batch in query._match_source(self._events.open(), evaluator, self._options.threads):
            counts.take(batch)
            if of_keys is not None:
                of_keys.take(batch)
        self._send(
            {
                "kind": "funnel",
                "starts": plain_funnel(counts),
                "keys": None if of_keys is None else plain_funnel(of_keys.counts()),
                "names": [] if of_keys is None else of_keys.keys,
            }
        )

    def _send_rows(self, query: CompiledQuery) -> None:
        """Send the rows of a statement with MATCH_RECOGNIZE, of which it counts as many as its limit."""
        began = time.perf_counter()
        self._doing = "finding rows"
        limit = self._limits.limit
        n_rows, first = 0, list[pa.RecordBatch]()
        with query.stream(self._events.open(), limit=limit) as reader:
            for batch in reader:
                self._check()
                n_shown = sum(each.num_rows for each in first)
                if n_shown < self._limits.n_table_rows:
                    first.append(batch.slice(0, self._limits.n_table_rows - n_shown))
                n_rows += batch.num_rows
            table = pa.Table.from_batches(first, reader.schema)
        columns = [_cells(column) for column in table.columns]
        self._send(
            {
                "kind": "rows",
                "names": table.column_names,
                "rows": [list(row) for row in zip(*columns, strict=True)],
                "n_rows": n_rows,
                "reached_limit": n_rows == limit,
                "seconds": time.perf_counter() - began,
            }
        )


def _cells(column: pa.ChunkedArray) -> list[str | None]:
    strings = plain_values(column.combine_chunks()).to_pylist()
    return [None if each is None else str(each)[:MAX_CELL] for each in strings]


def plain_funnel(counts: FunnelCounts) -> list[dict[str, Any]]:
    """Return the steps of a funnel as plain data."""
    return [
        {
            "name": row.name,
            "n": row.n_reached,
            "of_previous": row.of_previous,
            "of_first": row.of_first,
            "median": counts.median_in_words(row.median),
            "stopped": {stop: n for stop, n in row.stopped.items() if n},
        }
        for row in counts.rows
    ]


class RuleCounts(_SampleEvaluation[QuerySet]):
    """Counts of the matches of rules, in one pass, and the funnels of those without matches.

    The part ``rules`` has the number of matches of each, and comes again with how far the steps of the others got.
    """

    _doing = "evaluating the rules"
    _errors = "skip"

    def send_all(self) -> None:
        """Evaluate the rules and send their counts."""
        schema = self._events.open().schema
        outputs = {name: query._counted_output or query.default_output for name, query in self._evaluated.items()}
        together = self._evaluated._queries_over(schema, self._options)
        outputs = {name: outputs[name] for name in together}
        evaluator = together._fixed_evaluator(replace(self._options, limit=None), outputs)
        counts = dict.fromkeys(together, 0)
        for name, batch in together._match_source(self._events.open(), evaluator, self._options.threads):
            counts[name] += number_in(batch, together[name]._counted_output)
        wrong = {name: str(error) for name, error in self._evaluated.skipped.items()}
        self._send({"kind": "rules", "counts": counts, "wrong": wrong, "near": {}})
        silent = {name: together[name] for name, n in counts.items() if n == 0}
        near = self._near_misses(silent) | self._missed_conditions(silent)
        if near:
            self._send({"kind": "rules", "counts": counts, "wrong": wrong, "near": near})

    def _missed_conditions(self, queries: Mapping[str, CompiledQuery]) -> dict[str, Any]:
        """Return, of rules of a single event, the events that satisfy all conditions but one, and which.

        That is the ``condition``, how many events ``n``, at most `_MAX_MISSES`, and the ``values`` that the first one
        has in its columns; ``others`` are conditions that alone fail for other events.
        """
        schema = self._events.open().schema
        misses: dict[str, tuple[str, WithoutOne]] = {}
        for name, query in queries.items():
            with contextlib.suppress(CerError):
                bound = query.bind(schema)
                if isinstance(bound, Query) and len(misses) < _MAX_REDUCED:
                    misses |= {f"{len(misses) + k}": (name, each) for k, each in enumerate(without_each(bound))}
        if not misses:
            return {}
        self._doing = "looking for events that satisfy all conditions but one"
        together = QuerySet({key: each.query for key, (_, each) in misses.items()})
        counts, first = dict.fromkeys(misses, 0), dict[str, int]()
        evaluator = together._fixed_evaluator(replace(self._options, limit=_MAX_MISSES, errors=None))
        for key, batch in together._match_source(self._events.open(), evaluator, self._options.threads):
            counts[key] += batch.num_rows
            if batch.num_rows:
                first.setdefault(key, batch.column("end")[0].as_py())
        near: dict[str, Any] = {}
        for key in sorted(first, key=lambda key: -counts[key]):
            name, missed = misses[key]
            if name in near:
                near[name]["others"] += 1
                continue
            near[name] = {
                "condition": missed.condition,
                "n": counts[key],
                "is_limited": counts[key] == _MAX_MISSES,
                "values": self._values_at(first[key], missed.columns),
                "others": 0,
            }
        return near

    def _values_at(self, row: int, columns: Sequence[str]) -> list[list[str | None]]:
        """Return columns of an event, with their values as text; none where the events are not in memory."""
        table = self._sample.table
        if table is None:
            return []
        event = table.slice(row, 1)
        names = [name for name in columns if name in event.column_names]
        return [[dotted(name), _cells(event.column(name))[0]] for name in names]

    def _near_misses(self, queries: Mapping[str, CompiledQuery]) -> dict[str, Any]:
        """Return how far the starts of chains without matches got: the step, of how many, what stopped them."""
        schema = self._events.open().schema
        chains = {}
        for name, query in queries.items():
            with contextlib.suppress(CerError):
                bound = query.bind(schema)
                bound.resolve_output("funnel")
                if isinstance(bound, Query):
                    chains[name] = bound
        if not chains:
            return {}
        self._doing = "following the starts of rules without matches"
        together = QuerySet(chains)
        counts = {name: FunnelCounts(funnel_names(each._plan), each._plan.time_unit) for name, each in chains.items()}
        evaluator = together._fixed_evaluator(replace(self._options, output="funnel", errors=None))
        for name, batch in together._match_source(self._events.open(), evaluator, self._options.threads):
            counts[name].take(batch)
        near = {}
        for name, each in counts.items():
            steps = plain_funnel(each)
            reached = [k for k, step in enumerate(steps) if step["n"]]
            if reached:
                furthest = steps[reached[-1]]
                near[name] = {
                    "step": reached[-1] + 1,
                    "of": len(steps),
                    "n": furthest["n"],
                    "name": furthest["name"],
                    "stopped": furthest["stopped"],
                }
        return near
