"""Events that a report reads several times, and the titles of pages."""

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

_MAX_WORDS = 48
"""Maximum length of a query in a title."""


def title_of(queries: Mapping[str, str], query_files: Sequence[str], events: Sequence[str]) -> str:
    """Return the title of a page: the name of the query, or its first words, and the name of the file of events.

    Parameters
    ----------
    queries
        Texts by name.
    query_files
        Their files, empty for a query that is not in a file.  Several are named by their folder.
    events
        Files and folders, "-" for standard input; empty for events in memory.

    Examples
    --------
    >>> title_of({"": "..."}, ["rules/late.ceql"], ["data/flights.parquet"])
    'late.ceql in flights.parquet'
    >>> title_of({"": "SELECT * FROM S WHERE A ; B"}, [], ["a.csv", "b.csv", "c.csv"])
    'SELECT * FROM S WHERE A ; B in a.csv and 2 more'
    >>> title_of({"a": "...", "b": "..."}, ["rules/windows/a.eql", "rules/b.eql"], ["logs.parquet"])
    'rules in logs.parquet'
    """
    if len(query_files) > 1 or (query_files and "" not in queries):
        folders = [os.path.dirname(os.path.abspath(file)) for file in query_files]
        named = _base(os.path.commonpath(folders)) or "queries"
    elif query_files:
        named = _base(query_files[0])
    elif len(queries) == 1:
        named = first_words(*queries.values())
    else:
        named = f"{len(queries):,} queries"
    if not events:
        return named
    more = f" and {len(events) - 1} more" if len(events) > 1 else ""
    return f"{named} in {_base(events[0])}{more}"


def first_words(text: str) -> str:
    """Return the first words of a query without its comments, at most `_MAX_WORDS` characters."""
    lines = (line.split("--")[0] for line in text.splitlines())
    words = " ".join(" ".join(lines).split())
    if len(words) <= _MAX_WORDS:
        return words
    return words[: _MAX_WORDS - 1].rsplit(" ", 1)[0] + " \u2026"


def _base(path: str) -> str:
    if path == "-":
        return "standard input"
    return os.path.basename(os.path.abspath(path)) or path


class ReportEvents:
    """Events that can be read several times.

    Parameters
    ----------
    events
        Anything that `cer_gpu.Query.evaluate` takes; events that can be read only once are loaded into memory.
    """

    def __init__(self, query: CompiledQuery, events: Any, *, sort: Sort = False) -> None:
        self._events = rereadable(events)
        self._query = query
        self._sort = sort

    def open(self) -> Source:
        """Open the events from the beginning; positions are in reading order."""
        return without_rows(self.numbered())

    def numbered(self) -> Source:
        """Open the events with their row numbers in the input, if they are reordered."""
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
    """Return events that can be read several times; others are read into memory."""
    if isinstance(events, Mapping):
        return {name: rereadable(each) for name, each in events.items()}
    if isinstance(events, Files | os.PathLike | Sequence):  # str is a Sequence
        return events
    source = open_events(events)
    if source.rereadable:
        return source
    return pa.Table.from_batches(source.batches(source.schema.names), source.schema)
