"""Evaluation of a query on its events, on one thread, with the time that each stage takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql.syntax import leaves
from cer_gpu.columnar.columns import Block
from cer_gpu.columnar.dictionary_encoding import DictionaryEncoder
from cer_gpu.engine.blocks import BLOCK_ROWS
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.evaluator import Evaluator
from cer_gpu.engine.execution import StreamingExecution
from cer_gpu.engine.stream_columns import LetColumns, StreamColumns
from cer_gpu.errors import CerError
from cer_gpu.expressions.derived import makers_of
from cer_gpu.io.source import Source
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.binding import Binding, Bindings
from cer_gpu.planning.physical import physical_plan
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.predicates.guards import BoundGuards, GuardEvaluator, SeenEventTypes
from cer_gpu.predicates.symbol_table import SymbolTable, Words
from cer_gpu.runtime.protocol import Runtime
from cer_gpu.stages import DECODE, LISTING, NO_STAGES, PARTITIONS, REST, STAGES, MeasuredStages, Stages


def type_tests(plan: LogicalPlan) -> list[Guard]:
    """Return the types (and streams) that the query names, once each."""
    named = (Guard(guard.event_type, None, guard.stream) for guard in plan.guards)
    return [test for test in dict.fromkeys(named) if test != Guard(None)]


def atomic_predicates(plan: LogicalPlan) -> list[Guard]:
    """Return the atomic predicates of the query, once each, as guards of any event."""
    predicates = [leaf for guard in plan.guards if guard.predicate is not None for leaf in leaves(guard.predicate)]
    return [Guard(None, leaf) for leaf in dict.fromkeys(predicates)]


class TestCounts:
    """Counts over the events added so far.

    Attributes
    ----------
    n_events, n_relevant : int
        Events, and the relevant ones: those that change some state.  All others never reach the loop.
    types, predicates, guards : int64 array
        Events that satisfy each of `type_tests`, of `atomic_predicates` and of `CEA.guards`.
    """

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._plan = plan = bindings.plan
        self._types, self._predicates = type_tests(plan), atomic_predicates(plan)
        self._table = physical_plan(plan, OUTPUTS["positions"]).table()
        self._binding: Binding | None = None
        self._seen_types = SeenEventTypes(plan.event_types)
        self._coders: dict[str, DictionaryEncoder] = {}
        self._stream_columns: StreamColumns | None = None
        self._let: LetColumns | None = None
        self.n_events: int
        self.n_relevant: int
        self.n_events = self.n_relevant = 0
        self.types: Int64 = np.zeros(len(self._types), np.int64)
        self.predicates: Int64 = np.zeros(len(self._predicates), np.int64)
        self.guards: Int64 = np.zeros(len(plan.guards), np.int64)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the events of a batch."""
        if self._binding is None or not self._binding.covers(batch.schema):
            self._bind(batch.schema)
        if self._let is not None:
            batch = self._let.extend(batch)
        for first in range(0, batch.num_rows, BLOCK_ROWS):
            block = Block(batch.slice(first, BLOCK_ROWS), self._coders)
            block.derive(self._makers)
            assert self._stream_columns is not None
            self._stream_columns.add_to(block)
            words = self._guards.words(block)
            self.n_events += block.n_rows
            self.n_relevant += len(self._symbols.select(words)[1])
            self.guards += _ones(words, len(self.guards))
            for tests, counts in (self._of_types, self.types), (self._of_predicates, self.predicates):
                if tests is not None:
                    counts += _ones(tests.words(block), len(counts))

    @property
    def notes(self) -> list[str]:
        """Remarks on the types of the events."""
        return self._seen_types.notes if self.n_events else []

    def _bind(self, schema: pa.Schema) -> None:
        plan = self._plan
        self._binding = self._bindings.bind(schema)
        guards = self._binding.guards
        self._guards = GuardEvaluator(guards, seen_types=self._seen_types)
        self._symbols = SymbolTable(self._table, guards.dtype, guards.n_guards)
        self._makers = makers_of(self._binding.derived)
        binding = self._binding
        columns = (binding.partition_keys, binding.derived, binding.over_aggregates)
        if self._stream_columns is None:
            self._stream_columns = StreamColumns(*columns)
        else:
            self._stream_columns.rebind(*columns)
        if binding.let is not None and self._let is None:
            self._let = LetColumns(binding.let, plan)
        elif binding.let is not None and self._let is not None:
            self._let.rebind(binding.let)
        streams = STREAM_COLUMN if plan.several_streams else None
        self._of_types = self._tests(self._types, binding.full_schema, plan.type_column, streams)
        self._of_predicates = self._tests(self._predicates, binding.full_schema, None, None)

    def _tests(self, tests: list[Guard], *columns: Any) -> GuardEvaluator | None:
        schema, type_column, stream_column = columns
        if not tests:
            return None
        return GuardEvaluator(BoundGuards(tuple(tests), schema, type_column, self._plan.text, stream_column))


def _ones(words: Words, n_bits: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return, for each bit, the number of bit vectors in which it is set."""
    counts = []
    for bit in range(n_bits):
        word = words if words.ndim == 1 else words[:, bit // 64]
        one = word.dtype.type(1 << (bit if words.ndim == 1 else bit % 64))
        counts.append(np.count_nonzero(word & one))
    return np.array(counts, np.int64)


_MAX_STATES = 64
"""Most determinised states to show."""

FindMatches = Callable[[Source, Evaluator], Iterator[pa.RecordBatch]]


def count_tests(source: Source, bindings: Bindings) -> TestCounts:
    """Count the events of a source that satisfy each test of a query."""
    counts = TestCounts(bindings)
    for batch in source.batches(list(bindings.bind(source.schema).columns)):
        counts.add(batch)
    return counts


def analyse_events(source: Source, bindings: Bindings, matches: FindMatches) -> tuple[TestCounts, dict[str, Any]]:
    """Evaluate a query on the events of a source, and count and time it.

    Returns
    -------
    TestCounts
    dict
        Numbers of events and matches, seconds of each stage, tiers of predicates, bytes, determinised states,
        what the runtime stores at the end, and for each pair of steps (`FilterPlaces.step_facts`) the candidates
        tested, and those that passed.
    """
    counts, stages = TestCounts(bindings), MeasuredStages()

    def prepare(batch: pa.RecordBatch) -> None:
        if not counts.n_events:
            _load(bindings, batch)
        counts.add(batch)

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for batch in stages.each(DECODE, source.batches(columns)):
            if not source.rereadable:
                with stages.stage(None):
                    prepare(batch)
            yield batch

    if source.rereadable:  # counting in the same pass would hide the time of decoding, which goes on meanwhile
        for batch in source.batches(list(bindings.bind(source.schema).columns)):
            prepare(batch)
    evaluator = _listing_evaluator(bindings, stages)
    watched = Source(source.schema, read, source.n_rows, source.origins)
    n_matches = sum(batch.num_rows for batch in stages.each(REST, matches(watched, evaluator)))
    pipeline = evaluator.pipeline
    absent = {PARTITIONS: pipeline.partitioner is None, LISTING: not pipeline.runtime.lists_by_itself}
    seconds = {name: stages.seconds[name] for name in STAGES if not absent.get(name)}
    return counts, {
        "n_events": evaluator.n_events,
        "n_relevant": counts.n_relevant,
        "n_matches": n_matches,
        "seconds": sum(seconds.values()),
        "stages": seconds,
        "tiers": sorted(pipeline.tiers),
        "memory_bytes": pipeline.runtime.n_bytes,
        "held": pipeline.runtime.live_counts,
        "determinised": pipeline.table.met(_MAX_STATES),
        "candidates": _candidates(pipeline.runtime),
    }


def _candidates(runtime: Runtime) -> list[dict[str, int]]:
    """Return the candidates for the earlier step of each pair, tested and passed; [] if none are searched."""
    return [{"n_tested": int(tested), "n_passed": int(passed)} for tested, passed in runtime.tested]


def _load(bindings: Bindings, batch: pa.RecordBatch) -> None:
    """Compile or load the code for a batch before the measurement; its errors are left to the evaluation."""
    with contextlib.suppress(CerError):
        next(_listing_evaluator(bindings).push_batches(batch), None)


def _listing_evaluator(bindings: Bindings, stages: Stages = NO_STAGES) -> Evaluator:
    """Return an evaluator with an output that lists matches, as HAVING chooses among them one by one."""
    output = "positions" if bindings.plan.having is None else "bindings"
    options = EvaluationOptions(stages=stages)
    return Evaluator(StreamingExecution(bindings, options, output), options)
