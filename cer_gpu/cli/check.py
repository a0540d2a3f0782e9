"""``cer-gpu check``: the errors of queries, without reading an event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import click
import pyarrow as pa

from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.syntax import QuerySyntax, event_names
from cer_gpu.cli.command_line import error_facts, say, show_text, to_json
from cer_gpu.cli.event_arguments import STANDARD, Streams, parse_streams
from cer_gpu.cli.query_arguments import (
    QueryArguments,
    missing_notes,
    notes_of,
    query_and_events_arguments,
    read_queries,
)
from cer_gpu.cli.shared_options import QueryOptions, query_options, reading_options
from cer_gpu.compilation import CompiledQuery
from cer_gpu.errors import CerError, QueryError, QueryTypeError
from cer_gpu.io.sources import open_events
from cer_gpu.io.text_options import TextOptions
from cer_gpu.lints import Lint, lint, types_outside
from cer_gpu.lints.linting import NO_TYPE
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.printable import counted, printable, printable_lines

_MAX_TYPES = 8
"""Maximum number of event types that are named."""


@click.command(
    "check",
    epilog="""\b
Examples:
  cer-gpu check late.ceql --time-column ts
  cer-gpu check late.ceql flights.parquet --time-column ts
  cer-gpu check late.ceql flights.parquet --time-column ts --json
  cer-gpu check --queries rules flights.parquet --time-column ts""",
)
@query_and_events_arguments(events_required=False)
@query_options
@reading_options
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the result, including errors, as JSON on standard output.")
def check_command(
    query: str | None,
    queries: str | None,
    events: tuple[str, ...],
    compiling: QueryOptions,
    reading: TextOptions,
    strict: bool,
    as_json: bool,
) -> int:
    """Check QUERY for mistakes, without reading events.

    All errors are reported at once; with EVENTS, the query is also checked against their columns; with --queries,
    all queries of a folder are checked. Warnings flag likely mistakes: no window, a predicate that is always or
    never true, an unused variable, a type that the events cannot have. The exit code is 1 if there are errors.
    """
    arguments = read_queries(query, queries, compiling)
    arguments.refuse_options_of_ceql()
    if events:
        timed, _ = arguments.timed_by_logs(parse_streams(events, reading), sort=False)
        arguments = replace(arguments, options=timed.options)
    result = check_queries(arguments, events, reading)
    if as_json:
        return render_json(result, strict=strict)
    return render_text(result, strict=strict)


@dataclass(frozen=True)
class QueryCheckError:
    """Error of a query, with its file, if any, and the events with which it occurs ("" for none)."""

    error: CerError
    file: str | None
    events: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the error as plain data; `events` are those to which the query cannot be bound."""
        of_events = (self.events or None) if isinstance(self.error, QueryTypeError) else None
        return {**error_facts(self.error, self.file), "events": of_events}


@dataclass
class CheckedQuery:
    """Findings on one query: errors by message, notes, and what a query without errors reads."""

    errors: dict[str, QueryCheckError] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    schemas: list[pa.Schema] = field(default_factory=list)
    warnings: list[Lint] = field(default_factory=list)
    file: str | None = None

    def warn(self, lints: Iterable[Lint]) -> None:
        """Add warnings, each kind at one place only once."""
        reported = {(each.kind, each.error.start, each.error.end) for each in self.warnings}
        self.warnings += [each for each in lints if (each.kind, each.error.start, each.error.end) not in reported]

    def facts(self, *, with_columns: bool, strict: bool) -> dict[str, Any]:
        """Return the findings as plain data; with `strict`, a query with warnings is not ok."""
        warnings = [{"kind": each.kind, **error_facts(each.error, self.file)} for each in self.warnings]
        facts = {
            "ok": not (self.errors or (strict and self.warnings)),
            "errors": [error.facts() for error in self.errors.values()],
            "warnings": [{name: value for name, value in each.items() if name != "type"} for each in warnings],
            "notes": self.notes,
            "columns": self.columns if with_columns else None,
        }
        return facts | ({"missing_fields": self.missing} if self.missing else {})


@dataclass(frozen=True)
class CheckResult:
    """Findings of ``cer-gpu check``.

    Attributes
    ----------
    arguments : QueryArguments
    events : sequence of str
        EVENTS of the command line.
    n_streams : int
        Number of schemas that each query was checked against.
    queries : dict from str to CheckedQuery
        Findings by query name; a file that cannot be read is a query with its name and the error.
    """

    arguments: QueryArguments
    events: Sequence[str]
    n_streams: int
    queries: Mapping[str, CheckedQuery]


def check_queries(arguments: QueryArguments, events: Sequence[str], reading: TextOptions) -> CheckResult:
    """Check all queries, also against the schemas of all events, if there are some."""
    streams = parse_streams(events, reading)
    sources = list(streams.each())
    queries: dict[str, CheckedQuery] = {}
    for file, error in arguments.unread:
        queries.setdefault(file, CheckedQuery()).errors[str(error)] = QueryCheckError(error, file)
    queries |= {name: _check_query(arguments, name, sources) for name in arguments.rules}
    return CheckResult(arguments, events, len(sources), queries)


def render_json(result: CheckResult, *, strict: bool) -> int:
    """Print the findings as JSON, and return the exit code."""
    arguments = result.arguments
    facts = {
        name: checked.facts(with_columns=bool(result.events), strict=strict) for name, checked in result.queries.items()
    }
    is_ok = all(each["ok"] for each in facts.values())
    of_set = {"ok": is_ok, "queries": facts, "skipped_files": arguments.skipped_files}
    click.echo(to_json(of_set if arguments.is_set else facts[""]))
    return 0 if is_ok else 1


def render_text(result: CheckResult, *, strict: bool) -> int:
    """Print the findings as lines of text, errors to standard error, and return the exit code."""
    arguments, queries = result.arguments, result.queries
    n_errors = _say_errors(result)
    n_warnings = _show_warnings(result)
    notes = notes_of((name, note) for name, checked in queries.items() for note in checked.notes)
    missing = {name: checked.missing for name, checked in queries.items()}
    schemas = dict.fromkeys(schema for checked in queries.values() for schema in checked.schemas)
    for note in [*notes, *arguments.notes, *missing_notes(missing, schemas, arguments.rules)]:
        show_text(f"note: {note}")
    if n_errors:
        n_wrong = sum(any(error.file for error in checked.errors.values()) for checked in queries.values())
        of_all = f" in {n_wrong:,} of {counted(len(queries), 'query')}" if arguments.is_set and n_wrong else ""
        say(counted(n_errors, "error") + of_all)
        return 1
    if strict and n_warnings:
        say(counted(n_warnings, "warning"))
        return 1
    _show_ok(result)
    return 0


def _say_errors(result: CheckResult) -> int:
    """Print errors, each only once for several queries or events, and return their number."""
    reported = set[tuple[str | None, str]]()
    for name, checked in result.queries.items():
        for events, errors in groupby(checked.errors.items(), key=lambda item: item[1].events):
            new = {text: each for text, each in errors if (each.file, text) not in reported}
            reported.update((each.file, text) for text, each in new.items())
            result.arguments.say([(name, each.error) for each in new.values()])
            if result.n_streams > 1 and any(isinstance(each.error, QueryTypeError) for each in new.values()):
                say(f"(for the events in {events})")
    return len(reported)


def _show_warnings(result: CheckResult) -> int:
    """Print warnings, each with the place of its query, and return their number."""
    lints = [(name, lint.error) for name, checked in result.queries.items() for lint in checked.warnings]
    for name, warning in lints:
        place = result.arguments.file_of(name, warning)
        label = click.style("warning: ", fg="yellow", bold=True)
        click.echo(label + (f"{printable(place)}: " if place else "") + printable_lines(str(warning)))
    return len(lints)


def _show_ok(result: CheckResult) -> None:
    """Print that there are no errors, and which columns the queries read."""
    queries = result.queries.values()
    who = f"the {counted(len(queries), 'query')}" if result.arguments.is_set else "the query"
    has, fits, reads = ("have", "fit", "read") if len(queries) > 1 else ("has", "fits", "reads")
    if not result.events:
        show_text(f"ok: {who} {has} no errors")
        return
    columns = ", ".join(dict.fromkeys(printable(column) for checked in queries for column in checked.columns))
    files = ", ".join(map(printable, result.events))
    show_text(f"ok: {who} {fits} {files}, and {reads} {columns or 'none of their columns'}")
    types = list(dict.fromkeys(printable(each) for checked in queries for each in checked.types))
    if types:
        listed = " and ".join(types[:_MAX_TYPES]) + (", ..." if len(types) > _MAX_TYPES else "")
        show_text(f"(no events were read: run the query to see whether there are events of type {listed})")


def _check_query(arguments: QueryArguments, name: str, sources: Sequence[tuple[str, Streams]]) -> CheckedQuery:
    """Check one query, also against the schemas of all events, each with a label."""
    checked = CheckedQuery()
    compiled, _ = arguments.analyse(name)
    checked.notes = list(compiled.notes) if compiled else []  # without notes on columns, which are in `missing`
    checks: Sequence[tuple[str, Streams | None]] = sources or [("", None)]
    for shown, source in checks:
        schema = None
        errors: list[CerError] = []
        try:
            schema = None if source is None else _schema_of_streams(compiled, source)
        except CerError as error:
            errors.append(error)
        compiled, more = arguments.analyse(name, schema=schema)
        for each in [*errors, *more]:
            checked.errors.setdefault(str(each), QueryCheckError(each, arguments.file_of(name, each), shown))
        if compiled is not None and schema is not None:
            checked.warn(_lints_of(compiled, schema))
            checked.warn(_impossible_types(compiled, source))
            checked.columns = [
                dotted(name) for name in compiled.columns(schema) if name not in (STREAM_COLUMN, ROW_COLUMN)
            ]
            if compiled.missing_fields:
                checked.missing += compiled.missing_fields
                checked.schemas.append(schema)
    if compiled is not None:
        checked.warn(_lints_of(compiled, None))
        checked.warnings.sort(key=lambda lint: lint.error.start or 0)
    checked.file = arguments.rules[name].file
    checked.types = list(compiled.types) if compiled else []
    return checked


def _lints_of(query: CompiledQuery, schema: pa.Schema | None) -> list[Lint]:
    syntax = query.syntax
    return lint(syntax, language=query.language, schema=schema) if isinstance(syntax, QuerySyntax) else []


def _impossible_types(query: CompiledQuery, source: Streams | None) -> Iterator[Lint]:
    """Yield a warning for each event type that cannot occur in files."""
    if source is None or query.type_column is None or not isinstance(query.syntax, QuerySyntax):
        return
    if STANDARD in (path for paths in source.named.values() for path in paths):
        return
    outside = types_outside(query.types, source.paths, query.type_column)
    if outside is None:
        return
    names, (least, greatest) = outside
    spans = {name.name: name.span for name in reversed(list(event_names(query.syntax.formula)))}
    for name in names:
        start, end = spans.get(name, (None, None))
        message = f"no event has the type {name!r}: those in {query.type_column} range from {least!r} to {greatest!r}"
        yield Lint(NO_TYPE, QueryError(message, query.text, start, end))


def _schema_of_streams(query: CompiledQuery | None, streams: Streams) -> pa.Schema | None:
    """Return the schema of events, or None for named streams under a query with errors, which cannot merge them."""
    if not streams.are_named:
        return open_events(streams.open()).schema
    return None if query is None else query._open_source(streams.open()).schema
