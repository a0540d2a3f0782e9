"""Forecasts that commands read from files."""

from __future__ import annotations

from cer_gpu.compilation import CompiledQuery
from cer_gpu.errors import OptionError
from cer_gpu.forecast.model import Forecast
from cer_gpu.forecast_files import load_forecast


def read_model(path: str, query: CompiledQuery) -> Forecast:
    """Return the forecast of a query from a file.

    Raises
    ------
    OptionError
        When the file is none, or is of another query.
    """
    fitted = load_forecast(path)
    if fitted.query.identity != query.identity:
        raise OptionError(
            f"{path}: belongs to another query, or to other type and time columns\n"
            f"hint: it was learned for {fitted.query.text.strip()!r}"
        )
    return fitted
