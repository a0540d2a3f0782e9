"""The accessor ``df.cer`` of Polars and pandas, and its registration."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from cer_gpu.engine.options import options_by_name
from cer_gpu.frames.matching import count, explain, match

NAME = "cer"
"""Name of the accessor."""
LIBRARIES = ("pandas", "polars")
"""Libraries whose frames get it; the module of that name in the package registers it."""


class Accessor:
    """Queries over a frame, as ``df.cer``.

    Parameters
    ----------
    frame
        A DataFrame of pandas, or a DataFrame or LazyFrame of Polars.

    Examples
    --------
    >>> import polars as pl, cer_gpu.polars
    >>> events = pl.DataFrame({"type": ["A", "B", "B"]})
    >>> events.cer.match("SELECT * FROM S WHERE A ; B").rows()
    [(0, 1, [0, 1]), (0, 2, [0, 2])]
    >>> events.lazy().cer.count("SELECT * FROM S WHERE A ; B")
    2
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    @options_by_name
    def match(self, query: Any, **options: Any) -> Any:
        """Find complex events, as a frame of the same kind (`cer_gpu.frames.match`)."""
        return match(self._frame, query, **options)

    @options_by_name
    def count(self, query: Any, **options: Any) -> Any:
        """Count complex events (`cer_gpu.frames.count`)."""
        return count(self._frame, query, **options)

    @options_by_name
    def explain(self, query: Any, **options: Any) -> Any:
        """Explain a query, with the events of the frame (`cer_gpu.frames.explain`)."""
        return explain(self._frame, query, **options)


def register_where_imported() -> None:
    """Register the accessor with the libraries that are imported already."""
    for library in LIBRARIES:
        if hasattr(sys.modules.get(library), "DataFrame"):  # and not in the midst of their import
            importlib.import_module(f"cer_gpu.{library}")
