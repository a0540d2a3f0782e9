"""Evaluation of a query on its events, on one thread, with the time that each stage takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from cer_gpu.engine.evaluator import Evaluator
from cer_gpu.engine.execution import StreamingExecution
from cer_gpu.engine.options import EvaluationOptions
from cer_gpu.errors import CerError
from cer_gpu.explain.counting import TestCounts
from cer_gpu.io.source import Source
from cer_gpu.planning.binding import Bindings
from cer_gpu.runtime.protocol import Runtime
from cer_gpu.stages import DECODE, LISTING, NO_STAGES, PARTITIONS, REST, STAGES, MeasuredStages, Stages

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
        Numbers of events and complex events, seconds of each stage, tiers of predicates, bytes, determinised states,
        what the runtime holds at the end, and for each pair of steps (`FilterPlaces.step_facts`) the candidates tested,
        and those that passed.
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
    n_found = sum(batch.num_rows for batch in stages.each(REST, matches(watched, evaluator)))
    pipeline = evaluator.pipeline
    absent = {PARTITIONS: pipeline.partitions is None, LISTING: not pipeline.runtime.lists_by_itself}
    seconds = {name: stages.seconds[name] for name in STAGES if not absent.get(name)}
    return counts, {
        "n_events": evaluator.n_events,
        "n_relevant": counts.n_relevant,
        "n_complex_events": n_found,
        "seconds": sum(seconds.values()),
        "stages": seconds,
        "tiers": sorted(pipeline.tiers),
        "memory_bytes": pipeline.runtime.n_bytes,
        "held": pipeline.runtime.held,
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
    """Return an evaluator with an output that lists complex events, as HAVING chooses among them one by one."""
    output = "positions" if bindings.plan.having is None else "bindings"
    options = EvaluationOptions(stages=stages)
    return Evaluator({"": StreamingExecution(bindings, options, output)}, options)
