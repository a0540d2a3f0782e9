"""`match`, `count`, `explain` and `fit` of a query over a frame; the accessors of the libraries call these."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from cer_gpu.compilation import CompiledQuery, compile
from cer_gpu.engine.evaluation_options import options_by_name
from cer_gpu.errors import OptionError, did_you_mean
from cer_gpu.explain.explanation import Explanation
from cer_gpu.forecast.model import Forecast, WithinLengths
from cer_gpu.frames.kinds import kind_of_frame
from cer_gpu.query_set import QuerySet, compile_all

CompiledForFrame = CompiledQuery | QuerySet

COMPILING_OPTIONS = ("type_column", "time_column", "time_unit", "relations", "language", "missing_fields", "selection")
"""Options of `cer_gpu.compile`; all others are options of the evaluation."""


@options_by_name
def match(frame: Any, query: Any, **options: Any) -> Any:
    """Find the matches of a frame, as a frame of the same kind.

    Parameters
    ----------
    frame
        A DataFrame or LazyFrame of Polars, a DataFrame of pandas, a relation of DuckDB, a pyarrow Table, or a frame
        that narwhals knows.
    query
        A text, the `pathlib.Path` of a file with it, a compiled `cer_gpu.Query`, `cer_gpu.RowPatternQuery` or
        `cer_gpu.QuerySet`, or a mapping from names to query texts for a set.
    **options
        Those of `cer_gpu.compile` for a text (``type_column``, ``time_column``, ``time_unit``, ``relations``,
        ``language``, ``missing_fields``, ``selection``), and of `cer_gpu.Query.evaluate` (``output``, ``limit``,
        ``sort``, ``threads``, ...).

    Returns
    -------
    frame of the same kind, or a dict of such frames for a set
        The rows and columns of `cer_gpu.Query.evaluate`; positions are numbers of rows of the frame, from 0.
        A LazyFrame gives a LazyFrame: the query is checked at once, and evaluated when the result is collected, batch
        by batch in bounded memory, each time.  A set is evaluated at once.

    Raises
    ------
    OptionError
        When the object is no frame, or an option is unknown, or one of compiling is given with a compiled query.
    QuerySyntaxError, QueryError, QueryTypeError, EventsError
        As `cer_gpu.compile` and `cer_gpu.Query.evaluate`.

    Examples
    --------
    >>> import polars as pl, cer_gpu.frames
    >>> events = pl.DataFrame({"type": ["A", "B", "A", "B"]})
    >>> found = cer_gpu.frames.match(events, "SELECT * FROM S WHERE A ; B", limit=2)
    >>> type(found).__name__, found.rows()
    ('DataFrame', [(0, 1, [0, 1]), (2, 3, [2, 3])])
    """
    kind = kind_of_frame(frame)
    compiled, rest = checked(query, options)
    if isinstance(compiled, QuerySet):
        return {name: kind.back(results) for name, results in compiled.evaluate(kind.events, **rest).items()}
    if kind.lazily is None:
        return kind.back(compiled.evaluate(kind.events, **rest))
    with compiled.stream(kind.events, **rest) as reader:  # no row is read for the schema
        return kind.lazily(reader.schema, lambda: compiled.stream(kind.events, **rest))


@options_by_name
def count(frame: Any, query: Any, **options: Any) -> Any:
    """Count the matches of a frame; where the query allows it, without listing them.

    Parameters
    ----------
    frame, query
        As for `match`.
    **options
        As for `match`, without ``output``, ``limit`` and ``aggregate``.

    Returns
    -------
    int, or a dict of int for a set
        The number of matches; of a query with HAVING, the number of matches that pass, and of MATCH_RECOGNIZE,
        the number of rows.  ``match(..., output="count")`` counts them by end.

    Raises
    ------
    OptionError, QueryError, EventsError
        As for `match`.

    Examples
    --------
    >>> import polars as pl, cer_gpu.frames
    >>> cer_gpu.frames.count(pl.DataFrame({"type": ["A", "A", "B"]}), "SELECT * FROM S WHERE A+ ; B")
    3
    """
    kind = kind_of_frame(frame)
    compiled, rest = checked(query, options, lambda compiled: compiled.count)
    return compiled.count(kind.events, **rest)


@options_by_name
def explain(frame: Any, query: Any, **options: Any) -> Explanation | dict[str, Explanation]:
    """Explain a query, with the number of events of a frame that satisfy each of its predicates.

    Parameters
    ----------
    frame, query
        As for `match`.
    **options
        Options of `cer_gpu.compile` for a text, and of `cer_gpu.Query.explain`: ``analyze=True`` also measures the
        time of each stage.

    Returns
    -------
    Explanation, or a dict of them for a set

    Raises
    ------
    OptionError, QueryError, EventsError
        As for `match`.

    Examples
    --------
    >>> import polars as pl, cer_gpu.frames
    >>> explained = cer_gpu.frames.explain(pl.DataFrame({"type": ["A", "A", "B"]}), "SELECT * FROM S WHERE A ; B")
    >>> explained.to_dict()["events"]
    {'n': 3, 'n_relevant': 3}
    """
    kind = kind_of_frame(frame)
    compiled, rest = checked(query, options, lambda compiled: compiled.explain)
    return compiled.explain(kind.events, **rest)


def checked(
    query: Any,
    options: Mapping[str, Any],
    call_of: Callable[[CompiledForFrame], Any] = lambda compiled: compiled.evaluate,
) -> tuple[CompiledForFrame, dict[str, Any]]:
    """Return a query, compiled, and the options of the call that is to follow.

    Parameters
    ----------
    query, options
        As in `match`.
    call_of
        Returns the method of a compiled query that is to be called: its options are known.
    """
    compiling = {name: value for name, value in options.items() if name in COMPILING_OPTIONS}
    if isinstance(query, CompiledForFrame):
        compiled = query
        if compiling:
            raise OptionError(
                f"{next(iter(compiling))} is an option of cer_gpu.compile, and this query is compiled\n"
                "hint: give it to compile, or give the text of the query here"
            )
    elif isinstance(query, str | os.PathLike):
        compiled = compile(query, **compiling)
    elif isinstance(query, Mapping):
        compiled = compile_all(query, **compiling)
    else:
        raise OptionError(
            f"expected the text of a query, a pathlib.Path or a compiled query, got {type(query).__name__}"
        )
    rest = {name: value for name, value in options.items() if name not in COMPILING_OPTIONS}
    option_names = list(signature(call_of(compiled)).parameters)[1:]
    for name in rest:
        if name not in option_names:
            hint = did_you_mean(name, [*option_names, *COMPILING_OPTIONS], "options")
            raise OptionError(f"no option {name!r} here\nhint: {hint}")
    return compiled, rest


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
        Options of `cer_gpu.compile` for a text, and of `cer_gpu.Query.fit`.

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
