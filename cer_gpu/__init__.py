"""cer_gpu: complex event recognition over large Arrow data.

>>> import cer_gpu
>>> query = cer_gpu.compile("SELECT * FROM S WHERE A ; B+ ; C WITHIN 100 EVENTS")

`compile` gives a `Query`; `Query.evaluate` finds all complex events in a table or a file, `Query.stream` batch by
batch, `Query.evaluator` in events that arrive.  `compile_all` gives a `QuerySet`: many queries in one pass.
A statement with MATCH_RECOGNIZE is a `RowPatternQuery`.
"""

from cer_gpu.columnar.resident import DeviceEvents
from cer_gpu.compilation import compile
from cer_gpu.engine.evaluator import Evaluator
from cer_gpu.errors import (
    CerError,
    CheckpointError,
    DeviceError,
    EventsError,
    OptionError,
    OutOfMemoryError,
    QueryError,
    QuerySyntaxError,
    QueryTooLargeError,
    QueryTypeError,
    TimeOrderError,
)
from cer_gpu.explain.explanation import Explanation
from cer_gpu.query import Query
from cer_gpu.query_set import QuerySet, QuerySetEvaluator, compile_all
from cer_gpu.row_patterns.query import RowPatternQuery

__version__ = "0.1.0"


def __dir__() -> list[str]:
    """Return the public names alone."""
    return [*__all__, "__version__"]


__all__ = [
    "CerError",
    "CheckpointError",
    "DeviceError",
    "DeviceEvents",
    "Evaluator",
    "EventsError",
    "Explanation",
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
    "TimeOrderError",
    "compile",
    "compile_all",
]
