"""Forecasts in a stream that arrives batch by batch: who passes a threshold, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.backend.forecasts.states import mark_passing
from cer_gpu.columnar.columns import numbers_of
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import OF_LISTS, EvaluationOptions
from cer_gpu.errors import OptionError
from cer_gpu.forecast.model import Forecast
from cer_gpu.forecast.reading import FollowedEvents, StateReader, check_forecastable
from cer_gpu.output.outputs import STATE_CODE
from cer_gpu.planning.state_steps import with_symbols
from cer_gpu.runtime.reading.symbols import EventBuffers

_REFUSED = (*OF_LISTS, "shard", "errors", "position_column")
"""Options of an evaluator of matches that one of forecasts has not."""


class ForecastEvaluator:
    """Evaluator of forecasts: `push` events, and get those after which a probability first passes the threshold.

    Created by ``query.evaluator(forecast=model, threshold=0.8)``.  Rows are as in `Forecast.forecast`.  An event is
    reported if after it the probability for a length is at least the threshold, and after the event of the same
    substream before it was not.

    Attributes
    ----------
    threshold : float
    n_passed : int
        Number of events so far that were reported.
    """

    def __init__(self, query: Any, options: EvaluationOptions) -> None:
        model: Forecast = options.forecast
        _check(query, options)
        check_forecastable(query)
        self.threshold: float = options.threshold if options.threshold is not None else 0.5
        self.n_passed: int = 0
        self._model, self._query = model, query
        plain = replace(options, forecast=None, threshold=None)
        self._contexts = model._numbers()
        self._above = model._probabilities().max(axis=1) >= self.threshold  # of contexts
        self._above_of, self._was_above = np.zeros(0, np.bool_), np.zeros(0, np.bool_)  # of states, of substreams
        self._marks = Scratch(np.bool_)
        self._reader = StateReader(query, model._form, self._passing, grows=False)
        self._reader.begin(plain)
        self._evaluation = self._reader.evaluation

    @property
    def query_identity(self) -> dict[str, Any]:
        """Facts that identify the query."""
        identity: dict[str, Any] = self._query.identity
        return identity

    @property
    def n_pushed(self) -> int:
        """Number of events pushed so far."""
        n: int = self._evaluation.n_pushed
        return n

    @property
    def n_events(self) -> int:
        """Number of events evaluated so far; with `lateness`, some pushed events still wait."""
        n: int = self._evaluation.n_events
        return n

    def expect(self, schema: pa.Schema) -> None:
        """Bind to a schema; raises QueryTypeError when the query does not match it."""
        self._evaluation.expect(schema)

    def push(self, batch: pa.RecordBatch, stream: str | None = None) -> pa.RecordBatch:
        """Read the events of a batch, and return the forecasts that pass the threshold, in the order of the events."""
        return self._passing_rows(self._evaluation.push(batch, stream))

    def push_rows(self, rows: Sequence[Mapping[str, Any]], stream: str | None = None) -> pa.RecordBatch:
        """As `push`, of events that are mappings from columns to values."""
        return self._passing_rows(self._evaluation.push_rows(rows, stream))

    def finish(self) -> pa.RecordBatch:
        """End the stream, and return the forecasts of the events that still wait."""
        return self._passing_rows(self._evaluation.finish())

    def _passing(self, events: FollowedEvents) -> EventBuffers:
        """Return the events of a block after which a probability passes the threshold."""
        numbers = self._contexts.number(events.states)
        if len(self._above_of) < len(self._contexts.contexts):
            self._above_of = self._above[self._contexts.contexts]
        if (n := events.n_partitions) > len(self._was_above):
            self._was_above = np.concatenate([self._was_above, np.zeros(max(n, 16), np.bool_)])
        marks = self._marks.empty(len(numbers))
        columns = read_only(events.partitions), read_only(numbers), read_only(self._above_of)
        mark_passing(*columns, self._was_above, marks)
        return events.at(np.flatnonzero(marks))

    def _passing_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        self.n_passed += rows.num_rows
        states = numbers_of(rows.column(STATE_CODE)) if rows.num_rows else np.zeros(0, np.int64)
        return self._model._rows(rows, self._contexts.of(states))

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def checkpoint(self) -> bytes:
        """Return the state as bytes, from which ``query.restore(blob, forecast=model)`` continues here."""
        state = NamedState(self._evaluation.identities, {"threshold": self.threshold})
        state.facts["n_passed"] = self.n_passed
        state.add_arrays("states", self._reader.snapshot())
        state.tables["evaluation"] = pa.table({"blob": pa.array([self._evaluation.checkpoint()], pa.large_binary())})
        return state.to_bytes()

    @classmethod
    def restored(cls, query: Any, blob: bytes, model: Any) -> ForecastEvaluator:
        """Return an evaluator that continues from a checkpoint of another one."""
        state = NamedState.from_bytes(query._changed(with_symbols)._new_evaluator(EvaluationOptions()).identities, blob)
        if "evaluation" not in state.tables:
            raise OptionError("the checkpoint is one of matches, and not of forecasts\nhint: leave out forecast=")
        evaluator = cls(query, EvaluationOptions(forecast=model, threshold=state.options["threshold"]))
        reader = evaluator._reader
        evaluator._evaluation = reader.restore(state.tables["evaluation"]["blob"][0].as_py(), state.part("states"))
        evaluator.n_passed = state.facts["n_passed"]
        before = reader.states
        evaluator._was_above = (before >= 0) & evaluator._above[evaluator._contexts.of(np.maximum(before, 0))]
        return evaluator


def _check(query: Any, options: EvaluationOptions) -> None:
    model, usual = options.forecast, EvaluationOptions()
    if not isinstance(model, Forecast):
        raise OptionError(f"forecast must be a Forecast, as query.fit(...) returns it, got {type(model).__name__}")
    if model.query.identity != query.identity:
        raise OptionError("the forecast is one of another query\nhint: query.fit(history, within=...)")
    for name in _REFUSED:
        if getattr(options, name) != getattr(usual, name):
            raise OptionError(
                f"an evaluator of forecasts has no option {name!r}: its rows are those of Forecast.forecast"
            )
