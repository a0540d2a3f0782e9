"""The query is run on the events, on one thread, and what each stage takes is measured."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from cer_gpu.automaton.determinize import Determinization
from cer_gpu.engine.evaluator import Evaluator, Options, Positions
from cer_gpu.errors import CerError
from cer_gpu.explain.counting import Counts
from cer_gpu.io.sources import Source
from cer_gpu.planning.plan import Binding, Plan
from cer_gpu.runtime.counts import CountBuffers
from cer_gpu.runtime.matches import MatchBuffers
from cer_gpu.runtime.stacks import ChainLister

DECODE, PREDICATES, PARTITIONS, LOOP, LISTING, OUTPUT, REST = (
    "decode",
    "predicates",
    "partitions",
    "loop",
    "listing",
    "output",
    "rest",
)
STAGES = {
    DECODE: "until the next batch of events is there; files are decoded ahead, on another thread",
    PREDICATES: "predicates to bit vectors to symbols; only relevant events pass",
    PARTITIONS: "keys of PARTITION BY to numbers of partitions",
    LOOP: "relevant events to partial matches",
    LISTING: "partial matches to complex events",
    OUTPUT: "complex events to Arrow",
    REST: "all else",
}
MOST_STATES = 64
"""Determinised states that are shown."""

Matches = Callable[[Source, Evaluator], Iterator[pa.RecordBatch]]
Item = TypeVar("Item")


class Stages:
    """The seconds that each stage took; while a stage runs, the one around it does not."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._running: list[str] = []
        self._since = 0.0

    @contextlib.contextmanager
    def stage(self, name: str | None) -> Iterator[None]:
        """Let the time of a block be that of a stage; None: of no stage."""
        self._switch()
        self._running.append(name or "")
        try:
            yield
        finally:
            self._switch()
            self._running.pop()

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._running and self._running[-1]:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now

    def call(self, name: str, function: Callable[..., Item]) -> Callable[..., Item]:
        """Return a function whose time is that of a stage."""

        def measured(*arguments: Any) -> Item:
            with self.stage(name):
                return function(*arguments)

        return measured

    def each(self, name: str, items: Iterator[Item]) -> Iterator[Item]:
        """Yield items; making them is the stage."""
        while True:
            with self.stage(name):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item


class MeasuredEvaluator(Evaluator):
    """An evaluator that says which stage its time goes into.

    Its methods stand around those of `Evaluator`, which knows nothing of them: nothing is measured elsewhere.
    """

    def __init__(self, plan: Plan, stages: Stages) -> None:
        super().__init__(plan, Options())
        self._stages = stages
        self.tiers: set[str] = set()

    def _binding_of(self, schema: pa.Schema) -> Binding:
        binding = super()._binding_of(schema)
        select = self._stages.call(PREDICATES, binding.guards.select)

        def selected(*arguments: Any) -> Any:
            found = select(*arguments)
            self.tiers.add(binding.guards.tier)
            return found

        vars(binding.guards)["select"] = selected
        vars(binding.keys)["arrays"] = self._stages.call(PARTITIONS, binding.keys.arrays)
        return binding

    def _begin(self, binding: Binding) -> None:
        super()._begin(binding)
        if self._partitions is not None:
            vars(self._partitions)["assign"] = self._stages.call(PARTITIONS, self._partitions.assign)
        steps = [("feed", LOOP)]
        if isinstance(self._run, ChainLister):
            steps.append(("_list", LISTING))
        for method, stage in steps:
            made = getattr(self._run, method)
            vars(self._run)[method] = lambda *arguments, made=made, stage=stage: self._stages.each(
                stage, made(*arguments)
            )

    def _to_arrow(
        self, found: MatchBuffers | CountBuffers, binding: Binding, batch: pa.RecordBatch, first: int | Positions
    ) -> pa.RecordBatch:
        with self._stages.stage(OUTPUT):
            return super()._to_arrow(found, binding, batch, first)

    @property
    def stages(self) -> list[str]:
        """The stages that there are: the automaton lists as it goes."""
        absent = {PARTITIONS: self._partitions is None, LISTING: self.engine != "stacks"}
        return [name for name in STAGES if not absent.get(name)]

    @property
    def n_bytes(self) -> int:
        """What the partial matches and the buffers take at the end."""
        return sum(array.nbytes for array in vars(self._run).values() if isinstance(array, np.ndarray))

    def determinised(self) -> dict[str, Any] | None:
        """Return the states and symbols that were met; None: there is nothing to determinise."""
        table = self._table
        if not isinstance(table, Determinization):
            return None
        shown = range(min(table.n_states, MOST_STATES))
        return {
            "n_states": table.n_states,
            "n_symbols": table.n_symbols,
            "states": [table.states_of(state) for state in shown],
        }


def count(source: Source, plan: Plan, columns: list[str]) -> Counts:
    """Count the events of a source."""
    counts = Counts(plan)
    for batch in source.batches(columns):
        counts.add(batch)
    return counts


def analyse(source: Source, plan: Plan, columns: list[str], matches: Matches) -> tuple[Counts, dict[str, Any]]:
    """Run a query on the events of a source, whose `columns` it reads.

    Returns
    -------
    Counts
    dict
        What was found, how long the stages took, and what was determinised.
    """
    counts, stages = Counts(plan), Stages()

    def prepare(batch: pa.RecordBatch) -> None:
        if not counts.n_events:
            _load(plan, batch)
        counts.add(batch)

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for batch in stages.each(DECODE, source.batches(columns)):
            if not source.rereadable:
                with stages.stage(None):
                    prepare(batch)
            yield batch

    if source.rereadable:  # else files would be decoded while their events are counted
        for batch in source.batches(columns):
            prepare(batch)
    evaluator = MeasuredEvaluator(plan, stages)
    watched = Source(source.schema, read, source.n_rows)
    watched.locate = source.locate  # type: ignore[method-assign]
    n_found = sum(batch.num_rows for batch in stages.each(REST, matches(watched, evaluator)))
    seconds = {name: stages.seconds[name] for name in evaluator.stages}
    return counts, {
        "n_events": evaluator.n_events,
        "n_relevant": counts.n_relevant,
        "n_complex_events": n_found,
        "seconds": sum(seconds.values()),
        "stages": seconds,
        "tiers": sorted(evaluator.tiers),
        "memory_bytes": evaluator.n_bytes,
        "determinised": evaluator.determinised(),
    }


def _load(plan: Plan, batch: pa.RecordBatch) -> None:
    """Let what a batch needs be compiled or loaded, before it is measured; the evaluation tells what is wrong."""
    with contextlib.suppress(CerError):
        next(Evaluator(plan, Options()).push_batches(batch), None)
