"""A query as Python, as a command line, and as SQL where MATCH_RECOGNIZE can say it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from cer_gpu.compilation import TYPE_COLUMN, CompiledQuery
from cer_gpu.exploring.as_sql import NoSqlError, as_sql
from cer_gpu.exploring.samples import ExploredEvents
from cer_gpu.query import Query

Copy = dict[str, str | None]
"""A ``text``, or None, and the reason ``why_not``."""


def copies(
    text: str, query: CompiledQuery | None, explored: ExploredEvents, more: Mapping[str, Any]
) -> dict[str, Copy]:
    """Return a query in the forms of the buttons that copy it.

    Parameters
    ----------
    text
        The query, as it was typed.
    query
        The compiled query, or None if it is wrong.
    explored
        The events, of which the names of files are given, and no folders.
    more
        Options of `cer_gpu.compile` besides the columns of types and times.
    """
    if query is None:
        wrong: Copy = {"text": None, "why_not": "the query is empty" if not text.strip() else "the query has errors"}
        return {"python": wrong, "command": wrong, "sql": wrong}
    options = _non_default_options(query, explored, more)
    sort = {} if query.reads_whole_table or not explored.sort else {"sort": explored.sort}
    return {
        "python": {"text": _as_python(text, explored, options, sort), "why_not": None},
        "command": _as_command(text, explored, options, sort),
        "sql": _as_sql(text, query, explored, options),
    }


def _non_default_options(query: CompiledQuery, explored: ExploredEvents, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `cer_gpu.compile` that differ from the usual ones."""
    if query.reads_whole_table:
        return {}
    types = explored.type_column
    own: dict[str, Any] = {} if types is TYPE_COLUMN or types == "type" else {"type_column": types}
    own |= {"time_column": explored.time_column} if explored.time_column is not None else {}
    own |= {"time_unit": explored.time_unit} if explored.time_unit is not None else {}
    return own | {name: str(more[name]) for name in ("selection", "missing_fields", "language") if more.get(name)}


def _as_python(text: str, explored: ExploredEvents, options: Mapping[str, Any], sort: Mapping[str, Any]) -> str:
    names = explored.names
    events = "events" if not names else repr(names[0]) if len(names) == 1 else repr(names)
    arguments = "".join(f", {name}={value!r}" for name, value in options.items())
    evaluated = "".join(f", {name}={value!r}" for name, value in sort.items())
    return (
        f"import cer_gpu\n\nquery = cer_gpu.compile({_literal(text)}{arguments})\n"
        f"matches = query.evaluate({events}{evaluated})\n"
    )


def _literal(text: str) -> str:
    """Return a literal of Python: with triple quotes where the text has several lines and nothing to escape."""
    plain = text.strip()
    if "\n" not in plain:
        return repr(plain)
    is_plain = plain.replace("\n", "").isprintable() and '"""' not in plain and "\\" not in plain
    return f'"""\n{plain}\n"""' if is_plain else json.dumps(plain)


def _as_command(text: str, explored: ExploredEvents, options: Mapping[str, Any], sort: Mapping[str, Any]) -> Copy:
    if not explored.names:
        return {"text": None, "why_not": "the events are in memory: write them to a file first"}
    words = ["cer-gpu", "run", text.strip(), *explored.names]
    for name, value in options.items():
        words += ["--no-type-column"] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    if sort:
        columns = sort["sort"]
        words += (
            ["--sort"]
            if isinstance(columns, bool)
            else ["--sort", ",".join([columns] if isinstance(columns, str) else columns)]
        )
    return {"text": shlex.join(words), "why_not": None}


def _as_sql(text: str, query: CompiledQuery, explored: ExploredEvents, options: Mapping[str, Any]) -> Copy:
    if query.reads_whole_table:
        return {"text": text.strip(), "why_not": None}
    if not isinstance(query, Query) or query.language != "CEQL":
        return {"text": None, "why_not": f"the query is in {query.language}"}
    if "missing_fields" in options or explored.time_unit is not None:
        return {"text": None, "why_not": "SQL has neither --missing-fields nor a unit of times"}
    types = explored.type_column
    try:
        own = "type" if types is TYPE_COLUMN else types
        return {"text": as_sql(query, explored.schema, own, explored.time_column), "why_not": None}
    except NoSqlError as error:
        return {"text": None, "why_not": str(error)}
