"""Title of a report, and the detail of where its queries and events come from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

_MAX_WORDS = 48
"""Most characters of a query in a title."""


def title_of(queries: Mapping[str, str], query_files: Sequence[str], events: Sequence[str]) -> str:
    """Return the title of a page: the name of the query, or its first words, and the name of the file of events.

    Parameters
    ----------
    queries
        Texts by name.
    query_files
        Their files; none for a query that is in no file.  Several are named by their folder.
    events
        Files and folders, "-" for standard input; none for events in memory.

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
