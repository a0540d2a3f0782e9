"""Forecasts of the queries of a set: learned from one reading of the history, and watched over the same stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import EvaluationOptions, Lateness, Sort, options_by_name
from cer_gpu.errors import OptionError, did_you_mean
from cer_gpu.forecast.fitting import FitRequest, fit_forecasts
from cer_gpu.forecast.model import Forecast, WithinLengths
from cer_gpu.forecast.watching import ForecastEvaluator


class ForecastsOfSet:
    """Methods of a set of queries that learn forecasts and watch them."""

    @abstractmethod
    def __getitem__(self, name: str) -> Any:
        """Return a query."""

    @abstractmethod
    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the queries."""

    @options_by_name
    def fit(
        self,
        history: Any,
        within: WithinLengths,
        order: int = 2,
        *,
        ages: int = 4,
        min_cases: int = 200,
        sort: Sort = False,
        lateness: Lateness | None = None,
        late: str = "raise",
        device: str = "auto",
    ) -> dict[str, Forecast]:
        """Learn a forecast of each query from a history, which is read once.

        Parameters and errors as in `cer_gpu.Query.fit`; an error in a query begins with its name.

        Returns
        -------
        dict from str to Forecast

        Examples
        --------
        >>> import cer_gpu, pyarrow as pa
        >>> queries = cer_gpu.compile_all({"ab": "SELECT * FROM S WHERE A ; B", "b": "SELECT * FROM S WHERE B"})
        >>> queries.fit(pa.table({"type": ["A", "B"] * 500}), within="1 event")["ab"]
        <Forecast of 1 event: 1,000 events, 500 ends, 2 states>
        """
        options = EvaluationOptions(sort=sort, lateness=lateness, late=late, device=device)
        queries = {name: self[name] for name in self}
        return fit_forecasts(queries, history, FitRequest(within, order, ages, min_cases), options)

    def _watching(self, options: EvaluationOptions) -> ForecastSetEvaluator:
        models = self._models(options.forecast)
        watched = {}
        for name, model in models.items():
            options.check_time(self[name].time_column)
            watched[name] = ForecastEvaluator(self[name], replace(options, forecast=model))
        return ForecastSetEvaluator(watched)

    def _watched_again(self, blob: bytes, forecast: Any) -> ForecastSetEvaluator:
        models = self._models(forecast)
        state = NamedState.from_bytes({name: self[name].identity for name in models}, blob)
        return ForecastSetEvaluator(
            {
                name: ForecastEvaluator.restored(self[name], state.tables[name]["blob"][0].as_py(), model)
                for name, model in models.items()
            }
        )

    def _models(self, models: Any) -> dict[str, Any]:
        if not isinstance(models, Mapping) or not models:
            raise OptionError(
                "forecast= of a set has a Forecast for each of its queries that is forecast, by their names, "
                f"got {type(models).__name__}\nhint: forecast=queries.fit(history, within=...)"
            )
        names = list(self)
        for name in models:
            if name not in names:
                hint = did_you_mean(str(name), names, "queries")
                raise OptionError(f"forecast= names {name!r}, which is no query of the set\nhint: {hint}")
        return dict(models)


class ForecastSetEvaluator:
    """Evaluator of the forecasts of several queries: as `ForecastEvaluator`, with results by the names of the queries.

    Made by ``queries.evaluator(forecast={name: model, ...}, threshold=0.8)``.

    Attributes
    ----------
    n_passed : dict from str to int
        Number of events so far that were reported.
    """

    def __init__(self, evaluators: Mapping[str, ForecastEvaluator]) -> None:
        self._evaluators = dict(evaluators)

    @property
    def n_passed(self) -> dict[str, int]:
        """Number of events so far that were reported, by the names of the queries."""
        return {name: each.n_passed for name, each in self._evaluators.items()}

    @property
    def n_pushed(self) -> int:
        """Number of events pushed so far."""
        return next(iter(self._evaluators.values())).n_pushed

    @property
    def n_events(self) -> int:
        """Number of events evaluated so far; with `lateness`, some pushed events still wait."""
        return next(iter(self._evaluators.values())).n_events

    def expect(self, schema: pa.Schema) -> None:
        """Bind to a schema; raises QueryTypeError when a query does not match it."""
        for each in self._evaluators.values():
            each.expect(schema)

    def push(self, batch: pa.RecordBatch, stream: str | None = None) -> dict[str, pa.RecordBatch]:
        """Read the events of a batch, and return the forecasts that pass the threshold, of the queries with some."""
        return _non_empty({name: each.push(batch, stream) for name, each in self._evaluators.items()})

    def push_rows(self, rows: Sequence[Mapping[str, Any]], stream: str | None = None) -> dict[str, pa.RecordBatch]:
        """As `push`, of events that are mappings from columns to values."""
        return _non_empty({name: each.push_rows(rows, stream) for name, each in self._evaluators.items()})

    def finish(self) -> dict[str, pa.RecordBatch]:
        """End the stream, and return the forecasts of the events that still wait."""
        return _non_empty({name: each.finish() for name, each in self._evaluators.items()})

    def checkpoint(self) -> bytes:
        """Return the state as bytes, from which ``queries.restore(blob, forecast=models)`` continues."""
        state = NamedState({name: each.query_identity for name, each in self._evaluators.items()}, {})
        for name, each in self._evaluators.items():
            state.tables[name] = pa.table({"blob": pa.array([each.checkpoint()], pa.large_binary())})
        return state.to_bytes()


def _non_empty(results: dict[str, pa.RecordBatch]) -> dict[str, pa.RecordBatch]:
    return {name: rows for name, rows in results.items() if rows.num_rows}
