"""Forecasts read from files, with their queries compiled anew."""

from __future__ import annotations

import os
from typing import Any

from cer_gpu.compilation import compile
from cer_gpu.errors import OptionError
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.forecast.model import Forecast
from cer_gpu.forecast.saving import read_forecast


def load_forecast(path: str | os.PathLike[str]) -> Forecast:
    """Read a forecast from a file that `Forecast.save` wrote.

    The file is Arrow IPC, and nothing in it is executed: its query is compiled from its text.

    Parameters
    ----------
    path

    Raises
    ------
    OptionError
        When it is no such file.
    QueryError
        When its query is none of this version.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa, tempfile
    >>> model = cer_gpu.compile("SELECT * FROM S WHERE A ; B").fit(pa.table({"type": ["A", "B"] * 500}), "1 event")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/ab.forecast")
    ...     cer_gpu.load_forecast(f"{folder}/ab.forecast")
    <Forecast of 1 event: 1,000 events, 500 ends, 5 states>
    """
    return Forecast(**read_forecast(path, _compile_forecast))


def load_forecast_of(query: CompiledQuery, path: str | os.PathLike[str]) -> Forecast:
    """Read a forecast of a query from a file, as `load_forecast`.

    Raises
    ------
    OptionError
        When the file is none, or is of another query.
    """
    forecast = load_forecast(path)
    if forecast.query.identity != query.identity:
        raise OptionError(
            f"{path}: belongs to another query, or to other type and time columns\n"
            f"hint: it was learned for {forecast.query.text.strip()!r}"
        )
    return forecast


def _compile_forecast(options: dict[str, Any]) -> CompiledQuery:
    compile_options = dict(options)
    return compile(compile_options.pop("text"), **compile_options)
