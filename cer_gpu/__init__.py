"""Complex event recognition over large Arrow data.

`compile` gives a `Query`; `Query.evaluate` finds all matches in a table or a file, `Query.stream` batch by
batch, `Query.evaluator` in events that arrive.  `compile_all` gives a `QuerySet`: many queries in one pass.
A statement with MATCH_RECOGNIZE is a `RowPatternQuery`.  All errors that a user can cause are `CerError`.

>>> import cer_gpu, pyarrow as pa
>>> events = pa.table({"type": ["SELL", "BUY", "BUY"], "price": [101.0, 90.0, 103.0]})
>>> query = cer_gpu.compile("SELECT * FROM Stock WHERE SELL AS a ; BUY AS b FILTER b.price < a.price")
>>> query.evaluate(events).to_pylist()
[{'start': 0, 'end': 1, 'positions': [0, 1]}]
>>> print("".join(query.explain().words[1:3]))
  1. a SELL event (a)  2. later, a BUY event (b)

Public are the names of ``cer_gpu.__all__``, and the modules `cer_gpu.report` (a page of the results), `cer_gpu.plot`
(pictures of them), `cer_gpu.rules` (folders of rules), `cer_gpu.frames` and `cer_gpu.sigma` (rules of Sigma as
queries): docs/reference/api.md lists all of it.  All other modules are internal.  README.md and docs/first_query.md
are the way in.
"""

from cer_gpu.starting import leave_at_signals

leave_at_signals()  # before the imports that take a second

from importlib import import_module
from typing import Any

from cer_gpu.columnar.resident import DeviceEvents
from cer_gpu.compilation import MISSING_IN_RULES, TYPE_COLUMN, compile
from cer_gpu.engine.evaluation_options import EvaluationOptions, Sort, options_by_name
from cer_gpu.engine.evaluator import Evaluator
from cer_gpu.errors import (
    CerError,
    CheckpointError,
    DeviceError,
    EventsError,
    EventsWarning,
    OptionError,
    OutOfMemoryError,
    QueryError,
    QuerySyntaxError,
    QueryTooLargeError,
    QueryTypeError,
    TimeOrderError,
)
from cer_gpu.explain.explanation import Explanation
from cer_gpu.forecast.model import Forecast
from cer_gpu.forecast.scoring import Score
from cer_gpu.forecast_files import load_forecast
from cer_gpu.frames.accessors import register_where_imported
from cer_gpu.io.files import Files
from cer_gpu.query import Query
from cer_gpu.query_set import QuerySet, QuerySetEvaluator, compile_all
from cer_gpu.row_patterns.row_pattern_query import RowPatternQuery

__version__ = "1.0.0rc1"


def __dir__() -> list[str]:
    """Return the public names alone."""
    return [*__all__, "__version__"]


def load_ipython_extension(shell: Any) -> None:
    """Register the cell magic ``%%ceql`` and its completions, for ``%load_ext cer_gpu``."""
    # by its name: the package is above all others, and `cer_gpu` is known to them
    import_module("cer_gpu.notebook.magic").register_in(shell)


@options_by_name
def explore(
    events: Any,
    *,
    query: str = "",
    rules: Any = None,
    type_column: str | None = TYPE_COLUMN,
    time_column: str | None = None,
    time_unit: str | None = None,
    sort: Sort = False,
) -> Any:
    """Show a widget in a notebook that evaluates a query over events as one types (docs/guides/explore.md).

    Parameters
    ----------
    events
        Anything that `Query.evaluate` takes, but a mapping of streams.
    query
        Text to begin with.
    rules
        Folder of rules that can be looked through (`cer_gpu.rules.read_folder`), or None.
    type_column, time_column, time_unit, sort
        As in `compile` and `Query.evaluate`.  Without a time column, the only column of timestamps is taken, and the
        events are sorted by it.

    Returns
    -------
    anywidget.AnyWidget

    Raises
    ------
    CerError
        When the extra ``explore`` is not installed, or the events cannot be read.

    Examples
    --------
    >>> import cer_gpu
    >>> cer_gpu.explore("flights.parquet", query="SELECT * FROM S WHERE LANDED ; DEPARTED")  # doctest: +SKIP
    """
    try:
        widget = import_module("cer_gpu.exploring.widget")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "anywidget":
            raise
        raise CerError("the widget needs anywidget\nhint: pip install 'cer-gpu[explore]'") from None
    columns = {"type_column": type_column, "time_column": time_column, "time_unit": time_unit}
    read = {} if rules is None else import_module("cer_gpu.rules").read_folder(rules).rules
    options = {"missing_fields": MISSING_IN_RULES} if read else {}
    explored = import_module("cer_gpu.exploring.samples").ExploredEvents(events, sort=sort, **columns)
    return widget.explorer(explored, query, read, options)


__all__ = [
    "CerError",
    "CheckpointError",
    "DeviceError",
    "DeviceEvents",
    "EvaluationOptions",
    "Evaluator",
    "EventsError",
    "EventsWarning",
    "Explanation",
    "Files",
    "Forecast",
    "OptionError",
    "OutOfMemoryError",
    "Query",
    "QueryError",
    "QuerySet",
    "QuerySetEvaluator",
    "QuerySyntaxError",
    "QueryTooLargeError",
    "QueryTypeError",
    "RowPatternQuery",
    "Score",
    "TimeOrderError",
    "compile",
    "compile_all",
    "explore",
    "load_forecast",
]

register_where_imported()
