"""Events that a report reads several times."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from cer_gpu.engine.evaluation_options import Sort
from cer_gpu.evaluable import CompiledQuery
from cer_gpu.io.files import Files
from cer_gpu.io.source import Source
from cer_gpu.io.sources import open_events
from cer_gpu.order.row_column import without_rows


class ReportEvents:
    """Events that can be read several times.

    Parameters
    ----------
    events
        Anything that `cer_gpu.Query.evaluate` takes; events that can be read only once are kept in memory.
    """

    def __init__(self, query: CompiledQuery, events: Any, *, sort: Sort = False) -> None:
        self._events = rereadable(events)
        self._query = query
        self._sort = sort

    def open(self) -> Source:
        """Open the events from the beginning; positions count them in the order in which they are read."""
        return without_rows(self.numbered())

    def numbered(self) -> Source:
        """Open the events with the numbers of their rows in the input, if they come in another order."""
        return self._query._open_source(self._events, sort=self._sort)


def paths(events: Any) -> list[str]:
    """Return the files and folders among events."""
    if isinstance(events, Mapping):
        return [path for each in events.values() for path in paths(each)]
    if isinstance(events, str | os.PathLike):
        return [os.fspath(events)]
    if isinstance(events, Files):
        return [os.fspath(each) for each in events.each()]
    if isinstance(events, Sequence) and not isinstance(events, bytes):
        return [os.fspath(each) for each in events if isinstance(each, str | os.PathLike)]
    return []


def rereadable(events: Any) -> Any:
    """Return the same events, which can be read several times; those that cannot are read into memory."""
    if isinstance(events, Mapping):
        return {name: rereadable(each) for name, each in events.items()}
    if isinstance(events, Files | os.PathLike | Sequence):  # str is a Sequence
        return events
    source = open_events(events)
    if source.rereadable:
        return source
    return pa.Table.from_batches(source.batches(source.schema.names), source.schema)
