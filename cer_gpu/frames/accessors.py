"""The accessor ``df.cer`` of Polars and pandas, and its registration."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from cer_gpu.engine.evaluation_options import options_by_name
from cer_gpu.frames.frame_matching import count, explain, fit, forecast, match

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
        """Find matches, as a frame of the same kind (`cer_gpu.frames.match`)."""
        return match(self._frame, query, **options)

    @options_by_name
    def count(self, query: Any, **options: Any) -> Any:
        """Count matches (`cer_gpu.frames.count`)."""
        return count(self._frame, query, **options)

    @options_by_name
    def explain(self, query: Any, **options: Any) -> Any:
        """Explain a query, with the events of the frame (`cer_gpu.frames.explain`)."""
        return explain(self._frame, query, **options)

    @options_by_name
    def fit(self, query: Any, within: Any, **options: Any) -> Any:
        """Learn a forecast from the frame (`cer_gpu.frames.fit`)."""
        return fit(self._frame, query, within, **options)

    @options_by_name
    def forecast(self, model: Any, **options: Any) -> Any:
        """Forecast matches after the events of the frame (`cer_gpu.frames.forecast`)."""
        return forecast(self._frame, model, **options)


def register_where_imported() -> None:
    """Register the accessor with the libraries that are imported already, and with the others once they are."""
    for library in LIBRARIES:
        if hasattr(sys.modules.get(library), "DataFrame"):
            importlib.import_module(f"cer_gpu.{library}")
        elif library not in sys.modules and not any(
            isinstance(f, _Finder) and f.library == library for f in sys.meta_path
        ):
            sys.meta_path.insert(0, _Finder(library))


class _Finder(MetaPathFinder):
    """A finder that lets the others find a library, and has the accessor registered after its import.

    It leaves ``sys.meta_path`` with that import, not when the library is merely looked for, as Polars looks for pandas.
    """

    def __init__(self, library: str) -> None:
        self.library = library
        self._asking = threading.local()

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec that the other finders have, with a loader that registers; None for other modules."""
        if name != self.library or getattr(self._asking, "others", False):
            return None
        self._asking.others = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking.others = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(Loader):
    """The loader of a library, which registers the accessor after it has run; the module has its own loader."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as its own loader does."""
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and register the accessor with it."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        with suppress(ValueError):  # it has left
            sys.meta_path.remove(self._finder)
        if hasattr(module, "DataFrame"):
            importlib.import_module(f"cer_gpu.{self._finder.library}")
