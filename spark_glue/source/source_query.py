"""Options of the data source "cer", and its query over files: the schema of the results, the pieces of tasks.

This module needs PySpark for the types of Spark only, and no session.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cer_gpu.columnar.fields import columns_with
from cer_gpu.compilation import MISSING_IN_RULES, TYPE_COLUMN, compile_for_set
from cer_gpu.errors import OptionError, QueryTypeError, did_you_mean
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.rule import Rule
from cer_gpu.rules.folder import FieldColumns, read_folder
from cer_gpu.rules.rule_set import compile_rules
from spark_glue import schema as types_of
from spark_glue.distribution import DISTRIBUTIONS, MAX_SHARDS, choose_distribution
from spark_glue.files.file_plan import FilePlan
from spark_glue.files.footers import find_footers
from spark_glue.files.opening import Opener
from spark_glue.files.pieces import plan
from spark_glue.files.scan import scan_of_paths
from spark_glue.files.stored_events import DirectReadError, Scan
from spark_glue.files.stores import relevant
from spark_glue.work import Work, holds_times, work_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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
        The text of the query, or a file that has it; or the rules of a folder by their names.
    paths : tuple of str
        Files, folders and patterns, in the order in which they are given.
    order_by : tuple of str
    type_column, time_column, time_unit : str or None
    distribution : str
    tasks : int or None
    output : str or None
    columns : tuple of str
        Selected columns of the result; empty for all.
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


def user_options(options: Mapping[str, str], taker: str = "the data source 'cer'") -> dict[str, str]:
    """Return the options that a user gave, by their names, without the properties that Spark adds to tables.

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
    >>> user_options({"orderby": "ts", "QUERY": "SELECT * FROM S WHERE A"})
    {'orderBy': 'ts', 'query': 'SELECT * FROM S WHERE A'}
    """
    lowered = {name.lower(): value for name, value in options.items()}
    if is_table(options):
        own = {name: value for name, value in lowered.items() if name in ("path", "paths")}
        own |= {n.removeprefix(_TABLE_OPTION): v for n, v in lowered.items() if n.startswith(_TABLE_OPTION)}
    else:
        own = lowered
    named = {}
    for name, value in own.items():
        if name in _BY_LOWER:
            named[_BY_LOWER[name]] = value
        elif setting := relevant({name: value}):
            named.update(setting)
        else:
            hint = did_you_mean(_camel(name), OPTION_NAMES, "options")
            raise OptionError(f"{taker} has no option {name!r}\nhint: {hint}")
    return named


def requested_options(options: Mapping[str, str], order_of_table: Sequence[str] | None = None) -> SourceRequest:
    """Return what options ask for.

    Parameters
    ----------
    options
        Result of `user_options`.
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
    present = [(name, options[name]) for name in names if options.get(name, "").strip()]
    if len(present) != 1:
        what = " and ".join(name for name, _ in present) or "none of them"
        raise OptionError(f"expected the option {' or '.join(names)}, got {what}\nhint: {example}")
    return present[0]


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
            text = options["fields"]
            raise OptionError(f"the option fields must be pairs, got {text!r}\nhint: fields 'Computer=host.id'")
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


def _no_such(name: str, value: str, allowed: Mapping[str, object] | tuple[str, ...], what: str) -> OptionError:
    hint = did_you_mean(value, allowed, what)
    return OptionError(f"the option {name} must be one of {', '.join(allowed)}, got {value!r}\nhint: {hint}")


def _camel(name: str) -> str:
    """Return a name without underscores and hyphens, so that ``order_by`` is near ``orderBy``."""
    first, *others = name.replace("-", "_").split("_")
    return first + "".join(word.capitalize() for word in others)


@dataclass(frozen=True)
class StoredQuery:
    """Compiled query, or several, over stored files.

    Attributes
    ----------
    request : SourceRequest
    work : Work
        With the cheapest sufficient output: as requested, but "positions" where "events" would be
        computed only to be dropped.
    scan : Scan
    opener : Opener
    schema : pyarrow.Schema
        The selected columns of the result, in the types of Spark.
    """

    request: SourceRequest
    work: Work
    scan: Scan
    opener: Opener
    schema: pa.Schema

    def keeping(self, wanted: StructType) -> StoredQuery:
        """Return the query with the columns of another schema, such as that of a table, alone.

        Raises
        ------
        QueryTypeError
            If it names a column that the results do not have, or one of another type.
        """
        whole = self.work.output_schema(self.scan.schema)
        columns = []
        for column in types_of.to_arrow(wanted):
            if column.name not in whole.names:
                hint = did_you_mean(column.name, whole.names, "columns")
                raise QueryTypeError(
                    f"the schema has a column {column.name!r}, which the results do not have", hint=hint
                )
            own = whole.field(column.name)
            if not _alike(own.type, column.type):
                raise QueryTypeError(
                    f"column {column.name!r} of the results is of type {own.type}, "
                    f"and the schema declares {column.type}",
                    hint="a table is to be created anew if its files are of other types by now",
                )
            columns.append(column)
        dropped = self.work.output == "events" and all(column.name != "events" for column in columns)
        work = replace(self.work, output="positions") if dropped else self.work
        return replace(self, work=work, schema=pa.schema(columns))

    def plan(self, parallelism: int) -> FilePlan:
        """Read the footers of the files, and return the pieces that tasks evaluate.

        Parameters
        ----------
        parallelism
            Number of tasks unless the options say another.

        Raises
        ------
        OptionError
            If the distribution is not exact for the query, or tasks cannot read the files by themselves.
        EventsError
            If a file cannot be read.
        """
        order = self.request.order_by
        try:
            tops = columns_with(self.scan.schema, [*self.work.columns(self.scan.schema), *order])
            footers = find_footers(self.scan, self.work.type_column, order[0], columns=list(tops), opener=self.opener)
            return plan(footers, self.work, order, self.request.distribution, self.request.tasks or parallelism)
        except DirectReadError as error:
            raise OptionError(
                f"the data source 'cer' cannot read these events: {error}\n"
                "hint: spark_glue.match(spark.read.parquet(...), query, order_by=...) reads them as rows of Spark"
            ) from error


def stored_query(request: SourceRequest) -> StoredQuery:
    """Compile the queries that options ask for, and check them against the schema of their files.  No event is read.

    Raises
    ------
    CerError
        If the query is wrong or does not match the files, a file cannot be read, or an option names a column that there
        is not.
    """
    opener = Opener(request.store)
    scan = scan_of_paths(request.paths, opener)
    work = requested_work(request, scan.schema)
    choose_distribution(work, request.distribution)
    whole = types_of.to_arrow(types_of.to_spark(work.output_schema(scan.schema)))
    stored = StoredQuery(request, work, scan, opener, whole)
    return stored.keeping(types_of.to_spark(_projected_schema(whole, request.columns))) if request.columns else stored


def requested_work(request: SourceRequest, schema: pa.Schema) -> Work:
    """Compile the queries that options ask for, and check them against the schema of the events.

    Raises
    ------
    CerError
        If a query is wrong or does not match the events, or an option names a column that there is not.
    """
    for name in (*request.order_by, *filter(None, [request.time_column])):
        if name not in schema.names:
            hint = did_you_mean(name, schema.names, "columns")
            option = "orderBy" if name in request.order_by else "timeColumn"
            raise QueryTypeError(f"the option {option} names {name!r}, which the events do not have", hint=hint)
    options: dict[str, Any] = {
        "type_column": request.type_column,
        "time_column": request.time_column or _time_of(request, schema),
        "time_unit": request.time_unit,
        "schema": schema,
    }
    source: Any = request.query
    if isinstance(source, Mapping):
        query: Any = compile_rules(source, missing_fields=MISSING_IN_RULES, **options)
    else:
        query = compile_for_set(source, **options)
    return work_of(query, request.output)


def _time_of(request: SourceRequest, schema: pa.Schema) -> str | None:
    """Return the first column of the order where it has times, or integers of a given unit."""
    name = request.order_by[0]
    return name if holds_times(schema.field(name).type) or request.time_unit is not None else None


def _projected_schema(whole: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    for name in columns:
        if name not in whole.names:
            hint = did_you_mean(name, whole.names, "columns")
            raise OptionError(f"the option columns names {name!r}, which the results do not have\nhint: {hint}")
    return pa.schema([whole.field(name) for name in columns])


def _alike(own: pa.DataType, other: pa.DataType) -> bool:
    """Return True for types that are one type of Spark, whether or not they allow NULL inside."""
    simple = (types_of.to_spark(pa.schema([("x", kind)]))[0].dataType.simpleString() for kind in (own, other))
    first, second = simple
    return first == second
