"""Forecasts learned from frames, and for frames."""

from __future__ import annotations

from typing import Any

from cer_gpu.engine.options import options_by_name
from cer_gpu.errors import OptionError
from cer_gpu.forecast.model import Forecast, WithinLengths
from cer_gpu.frames.kinds import kind_of_frame
from cer_gpu.frames.matching import checked
from cer_gpu.query_set import QuerySet


@options_by_name
def fit(frame: Any, query: Any, within: WithinLengths, **options: Any) -> Forecast:
    """Learn from a frame how long it takes from each state of a query until a match ends.

    Parameters
    ----------
    frame
        A DataFrame of pandas, or a DataFrame or LazyFrame of Polars: the history.
    query
        The text of a query, a path, or a compiled query.
    within
        The lengths within which a match may end.
    **options
        Those of `cer_gpu.compile` for a text, and those of `cer_gpu.Query.fit`.

    Raises
    ------
    OptionError, QueryError, EventsError
        As for `match`; OptionError for a set of queries.

    Examples
    --------
    >>> import polars as pl, cer_gpu.frames
    >>> cer_gpu.frames.fit(pl.DataFrame({"type": ["A", "B"] * 500}), "SELECT * FROM S WHERE A ; B", "1 event")
    <Forecast of 1 event: 1,000 events, 500 ends, 5 states>
    """
    kind = kind_of_frame(frame)
    if isinstance(query, QuerySet | dict):
        raise OptionError(
            "forecasts are for one query, and this is a set\nhint: cer_gpu.compile_all(queries).fit(frame, within=...)"
        )
    compiled, rest = checked(query, options, lambda compiled: compiled.fit)
    model = compiled.fit(kind.events, within, **rest)
    assert isinstance(model, Forecast)
    return model


@options_by_name
def forecast(frame: Any, model: Forecast, **options: Any) -> Any:
    """Forecast matches after the events of a frame.

    Parameters
    ----------
    frame
        A DataFrame of pandas, or a DataFrame or LazyFrame of Polars.
    model
        As `fit`, `cer_gpu.Query.fit` or `cer_gpu.load_forecast` returns it.
    **options
        Those of `cer_gpu.Forecast.forecast`, such as ``at="events"``.

    Returns
    -------
    DataFrame
        The rows of `cer_gpu.Forecast.forecast`, of the library of the frame; for a LazyFrame a LazyFrame whose rows are
        known already.

    Raises
    ------
    OptionError
        When it is no model, or has no such option.
    EventsError
        As for `match`.

    Examples
    --------
    >>> import polars as pl, cer_gpu.frames
    >>> events = pl.DataFrame({"type": ["A", "B"] * 500})
    >>> model = cer_gpu.frames.fit(events, "SELECT * FROM S WHERE A ; B", "1 event")
    >>> cer_gpu.frames.forecast(events, model)["position"].to_list()
    [999]
    """
    if not isinstance(model, Forecast):
        raise OptionError(f"expected a Forecast, as cer_gpu.Query.fit returns it, got {type(model).__name__}")
    kind = kind_of_frame(frame)
    return kind.back(model.forecast(kind.events, **options))
