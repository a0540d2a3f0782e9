"""Options of the data source "cer", as SQL and ``spark.read`` give them.

This module needs no Spark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cer_gpu.compilation import TYPE_COLUMN
from cer_gpu.errors import OptionError, did_you_mean
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.rule import Rule
from cer_gpu.rules.folder import FieldColumns, read_folder
from spark_glue.distribution import DISTRIBUTIONS, MAX_SHARDS
from spark_glue.files.stores import relevant

OPTION_NAMES = {
    "query": "text of the query",
    "queryFile": "file with the query, where the driver runs",
    "queries": "folder of rules, where the driver runs: all of them, which the column query names",
    "pipelines": "pipelines for rules of Sigma in the folder, names or files with commas between them",
    "fields": "columns of fields of Sigma, as 'Computer=host.id', with commas between them",
    "path": "file, folder or pattern with the events",
    "paths": "JSON list of several of them",
    "orderBy": "columns that order the stream, with commas between them; by default the time column",
    "typeColumn": "column with the type of each event, by default 'type' (EQL: 'event.category'); empty: there is none",
    "timeColumn": "column with the time of each event; by default the first of orderBy, if it holds times",
    "timeUnit": "unit of a time column of integers",
    "distribution": "'auto', 'key', 'range' or 'broadcast'",
    "tasks": "number of tasks",
    "output": "output of the query, such as 'events' or 'count'",
    "columns": "columns of the result to keep, with commas between them",
}
"""Names of the options, with what they say."""

_BY_LOWER = {name.lower(): name for name in OPTION_NAMES}
_TABLE_OPTION = "option."


@dataclass(frozen=True)
class SourceRequest:
    """Query over files, as the options ask for it.

    Attributes
    ----------
    query : str, Path, or mapping from str to Rule
        The text of the query, or a file with it; or the rules of a folder by their names.
    paths : tuple of str
        Files, folders and patterns, in the order in which they are given.
    order_by : tuple of str
    type_column, time_column, time_unit : str or None
    distribution : str
    tasks : int or None
    output : str or None
    columns : tuple of str
        Columns of the result to keep; empty: all.
    store : mapping from str to str
        Settings of file systems.
    """

    query: str | Path | Mapping[str, Rule]
    paths: tuple[str, ...]
    order_by: tuple[str, ...]
    type_column: str | None = TYPE_COLUMN
    time_column: str | None = None
    time_unit: str | None = None
    distribution: str = "auto"
    tasks: int | None = None
    output: str | None = None
    columns: tuple[str, ...] = ()
    store: Mapping[str, str] = field(default_factory=dict)


def is_table(options: Mapping[str, str]) -> bool:
    """Return True for the options of CREATE TABLE: Spark adds the properties of the table."""
    return any(name.lower() == "provider" for name in options)


def given_options(options: Mapping[str, str], taker: str = "the data source 'cer'") -> dict[str, str]:
    """Return the options that a user gave, by their names, without the properties that Spark adds to those of tables.

    Parameters
    ----------
    options
        Names in any case.
    taker
        Name of the taker, for the message.

    Raises
    ------
    OptionError
        For an option that there is not, with the nearest name.

    Examples
    --------
    >>> given_options({"orderby": "ts", "QUERY": "SELECT * FROM S WHERE A"})
    {'orderBy': 'ts', 'query': 'SELECT * FROM S WHERE A'}
    """
    lowered = {name.lower(): value for name, value in options.items()}
    if is_table(options):
        own = {name: value for name, value in lowered.items() if name in ("path", "paths")}
        own |= {n.removeprefix(_TABLE_OPTION): v for n, v in lowered.items() if n.startswith(_TABLE_OPTION)}
    else:
        own = lowered
    found = {}
    for name, value in own.items():
        if name in _BY_LOWER:
            found[_BY_LOWER[name]] = value
        elif setting := relevant({name: value}):
            found.update(setting)
        else:
            hint = did_you_mean(_camel(name), OPTION_NAMES, "options")
            raise OptionError(f"{taker} has no option {name!r}\nhint: {hint}")
    return found


def requested_options(options: Mapping[str, str], order_of_table: Sequence[str] | None = None) -> SourceRequest:
    """Return what options ask for.

    Parameters
    ----------
    options
        Result of `given_options`.
    order_of_table
        For the rows of a table, which have no path: the columns that order them unless the options say others.

    Raises
    ------
    OptionError
        If one is missing or has no such value, with what to write.
    """
    query = _exactly_one_of(options, ("query", "queryFile", "queries"), "query 'SELECT * FROM ...'")
    paths: tuple[str, ...] = ()
    if order_of_table is None:
        name, path = _exactly_one_of(options, ("path", "paths"), "path '/data/events' (or .load('/data/events'))")
        paths = _paths(path) if name == "paths" else (path,)
    order_by = _split_names(options.get("orderBy", options.get("timeColumn", ""))) or tuple(order_of_table or ())
    if not order_by:
        raise OptionError("expected the option orderBy: the columns that order the stream\nhint: orderBy 'ts'")
    distribution = options.get("distribution", "auto")
    if distribution not in DISTRIBUTIONS:
        raise _no_such("distribution", distribution, DISTRIBUTIONS, "distributions")
    output = options.get("output")
    if output is not None and output not in OUTPUTS:
        raise _no_such("output", output, OUTPUTS, "outputs")
    columns = _split_names(options.get("columns", ""))
    if "columns" in options and not columns:
        raise OptionError("the option columns names none\nhint: columns 'start, end'")
    return SourceRequest(
        query=_queries(*query, _sigma_fields(options)),
        paths=paths,
        order_by=order_by,
        type_column=options.get("typeColumn", TYPE_COLUMN) or None,
        time_column=options.get("timeColumn") or None,
        time_unit=options.get("timeUnit") or None,
        distribution=distribution,
        tasks=_tasks(options.get("tasks")),
        output=output,
        columns=columns,
        store=relevant(options),
    )


def _exactly_one_of(options: Mapping[str, str], names: Sequence[str], example: str) -> tuple[str, str]:
    given = [(name, options[name]) for name in names if options.get(name, "").strip()]
    if len(given) != 1:
        what = " and ".join(name for name, _ in given) or "none of them"
        raise OptionError(f"expected the option {' or '.join(names)}, got {what}\nhint: {example}")
    return given[0]


def _queries(option: str, value: str, fields: FieldColumns) -> str | Path | Mapping[str, Rule]:
    if option == "query":
        return value
    path = Path(os.path.expanduser(value))
    return path if option == "queryFile" else read_folder(path, fields).checked()


def _sigma_fields(options: Mapping[str, str]) -> FieldColumns:
    """Return the columns of fields of Sigma."""
    pairs = [pair.partition("=") for pair in _split_names(options.get("fields", ""))]
    for field_, equals, column in pairs:
        if not (field_ and equals and column):
            given = options["fields"]
            raise OptionError(f"the option fields must be pairs, got {given!r}\nhint: fields 'Computer=host.id'")
    return FieldColumns(_split_names(options.get("pipelines", "")), {field_: column for field_, _, column in pairs})


def _paths(text: str) -> tuple[str, ...]:
    """Return the paths of a list in JSON, as Spark passes that of ``load([...])``."""
    try:
        paths = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) and path for path in paths):
        raise OptionError(f'the option paths must be a JSON list of paths, got {text!r}\nhint: ["/data/a", "/data/b"]')
    return tuple(paths)


def _split_names(text: str) -> tuple[str, ...]:
    """Return names between commas; one in backticks may hold anything but a backtick."""
    names, rest = [], text.strip()
    while rest:
        if rest.startswith("`"):
            name, closed, rest = rest[1:].partition("`")
            rest = rest.strip()
            if not closed or (rest and not rest.startswith(",")):
                raise OptionError(f"expected names with commas between them, got {text!r}\nhint: ts, `event time`")
            rest = rest[1:].strip()
        else:
            name, _, rest = (part.strip() for part in rest.partition(","))
        if not name:
            raise OptionError(f"expected names with commas between them, got {text!r}\nhint: ts, `event time`")
        names.append(name)
    return tuple(names)


def _tasks(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal() or not 0 < int(text) <= MAX_SHARDS:
        raise OptionError(f"the option tasks must be a number from 1 to {MAX_SHARDS:,}, got {text!r}")
    return int(text)


def _no_such(name: str, value: str, known: Mapping[str, object] | tuple[str, ...], what: str) -> OptionError:
    hint = did_you_mean(value, known, what)
    return OptionError(f"the option {name} must be one of {', '.join(known)}, got {value!r}\nhint: {hint}")


def _camel(name: str) -> str:
    """Return a name without underscores and hyphens, so that ``order_by`` is near ``orderBy``."""
    first, *others = name.replace("-", "_").split("_")
    return first + "".join(word.capitalize() for word in others)
