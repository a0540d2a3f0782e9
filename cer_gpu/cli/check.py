"""``cer-gpu check``: the errors of queries, without reading an event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click
import pyarrow as pa

from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.syntax import QuerySyntax, event_names
from cer_gpu.cli.command_line import say, show_text
from cer_gpu.cli.event_arguments import STANDARD, Streams, given_streams
from cer_gpu.cli.json_output import error_facts, to_json
from cer_gpu.cli.options import QueryOptions, query_options, reading_options
from cer_gpu.cli.query_arguments import (
    QueryArguments,
    missing_notes,
    notes_of,
    query_and_events_arguments,
    read_queries,
)
from cer_gpu.cli.tally import counted
from cer_gpu.compilation import CompiledQuery
from cer_gpu.errors import CerError, QueryError, QueryTypeError
from cer_gpu.io.sources import open_events
from cer_gpu.io.text_options import TextOptions
from cer_gpu.lints import Lint, lint, types_outside
from cer_gpu.lints.linting import NO_TYPE
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.printable import printable, printable_lines

_MAX_TYPES = 8
"""Largest number of event types that `check_command` names."""


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
@click.option("--strict", is_flag=True, help="Warnings make the exit code 1, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer, errors too, as JSON on standard output.")
def check_command(
    query: str | None,
    queries: str | None,
    events: tuple[str, ...],
    compiling: QueryOptions,
    reading: TextOptions,
    strict: bool,
    as_json: bool,
) -> int:
    """Say what is wrong with QUERY; no event is read.

    All errors are told at once, and with EVENTS also whether the query fits their columns; with --queries,
    those of all queries of a folder. Warnings tell of what is hardly meant so: no window, a test that no event
    passes or every one, a variable that nothing reads, a type that the events cannot have. The exit code is 1 when
    there are errors.
    """
    given = read_queries(query, queries, compiling)
    given.refuse_options_of_ceql()
    streams = given_streams(events, reading)
    told = set[tuple[str | None, str]]()
    checked: dict[str, _Checked] = {}
    for file, error in given.unread:
        checked.setdefault(file, _Checked()).errors[str(error)] = error_facts(error, file)
    if not as_json:
        given.say(given.unread)
        told.update((file, str(error)) for file, error in given.unread)
    checked |= {name: _check(given, name, streams, None if as_json else told) for name in given.rules}
    if as_json:
        each = {name: found.facts(with_columns=bool(events)) for name, found in checked.items()}
        for facts in each.values():
            facts["ok"] = facts["ok"] and not (strict and facts["warnings"])
        is_ok = all(facts["ok"] for facts in each.values())
        of_set = {"ok": is_ok, "queries": each, "passed_over": given.passed_over}
        click.echo(to_json(of_set if given.is_set else each[""]))
        return 0 if is_ok else 1
    lints = [(name, own.found) for name, found in checked.items() for own in found.warnings]
    warnings = [(given.file_of(name, warning), warning) for name, warning in lints]
    for place, warning in warnings:
        label = click.style("warning: ", fg="yellow", bold=True)
        click.echo(label + (f"{printable(place)}: " if place else "") + printable_lines(str(warning)))
    notes = notes_of((name, note) for name, found in checked.items() for note in found.notes)
    missing = {name: found.missing for name, found in checked.items()}
    schemas = dict.fromkeys(schema for found in checked.values() for schema in found.schemas)
    for note in [*notes, *given.notes, *missing_notes(missing, schemas, given.rules)]:
        show_text(f"note: {note}")
    if told:
        n_wrong = sum(any(error["file"] for error in found.errors.values()) for found in checked.values())
        of_all = f" in {n_wrong:,} of {counted(len(checked), 'query')}" if given.is_set and n_wrong else ""
        say(counted(len(told), "error") + of_all)
        return 1
    if strict and warnings:
        say(counted(len(warnings), "warning"))
        return 1
    who = f"the {counted(len(checked), 'query')}" if given.is_set else "the query"
    several = len(checked) > 1
    if not events:
        show_text(f"ok: {who} {'have' if several else 'has'} no errors")
        return 0
    columns = ", ".join(dict.fromkeys(printable(column) for found in checked.values() for column in found.columns))
    fits, reads = ("fit", "read") if several else ("fits", "reads")
    show_text(f"ok: {who} {fits} {', '.join(map(printable, events))}, and {reads} {columns or 'none of their columns'}")
    named = list(dict.fromkeys(printable(each) for found in checked.values() for each in found.types))
    if named:
        listed = " and ".join(named[:_MAX_TYPES]) + (", ..." if len(named) > _MAX_TYPES else "")
        show_text(f"(no event was read: whether there are events of type {listed}, a run tells)")
    return 0


@dataclass
class _Checked:
    """Findings on one query: errors by their texts, notes, and what a query without errors reads."""

    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    schemas: list[pa.Schema] = field(default_factory=list)
    warnings: list[Lint] = field(default_factory=list)
    file: str | None = None

    def warn(self, lints: Iterable[Lint]) -> None:
        """Take in remarks, those on one place once."""
        known = {(each.kind, each.found.start, each.found.end) for each in self.warnings}
        self.warnings += [each for each in lints if (each.kind, each.found.start, each.found.end) not in known]

    def facts(self, *, with_columns: bool) -> dict[str, Any]:
        """Return the findings as plain data."""
        columns = self.columns if with_columns else None
        warnings = [{"kind": each.kind, **error_facts(each.found, self.file)} for each in self.warnings]
        facts = {
            "ok": not self.errors,
            "errors": list(self.errors.values()),
            "warnings": [{name: value for name, value in each.items() if name != "type"} for each in warnings],
            "notes": self.notes,
            "columns": columns,
        }
        return facts | ({"missing_fields": self.missing} if self.missing else {})


def _check(
    given: QueryArguments,
    name: str,
    streams: Streams,
    told: set[tuple[str | None, str]] | None,
) -> _Checked:
    """Check one query, also against the schemas of all events.

    Its errors are printed, but for those in `told`, which takes them in: files and texts; None: print none.
    """
    found = _Checked()
    compiled, _ = given.analyse(name)
    found.notes = list(compiled.notes) if compiled else []  # before those on columns, which `missing` has
    sources: list[tuple[str, Streams | None]] = list(streams.each())
    for shown, source in sources or [("", None)]:
        schema = None
        errors: list[CerError] = []
        try:
            schema = None if source is None else _schema(compiled, source)
        except CerError as error:
            errors.append(error)
        compiled, more = given.analyse(name, schema=schema)
        errors += more
        texts = {str(error): (given.file_of(name, error), error) for error in errors}
        for text, (file, wrong) in texts.items():
            of_events = (shown or None) if isinstance(wrong, QueryTypeError) else None
            found.errors.setdefault(text, {**error_facts(wrong, file), "events": of_events})
        if told is not None:
            new = [error for text, (file, error) in texts.items() if (file, text) not in told]
            told.update((file, text) for text, (file, _) in texts.items())
            given.say([(name, error) for error in new])
            if len(sources) > 1 and any(isinstance(error, QueryTypeError) for error in new):
                say(f"(for the events in {shown})")
        if compiled is not None and schema is not None:
            found.warn(_lints(compiled, schema))
            found.warn(_types_that_are_not(compiled, source))
            found.columns = [
                dotted(name) for name in compiled.columns(schema) if name not in (STREAM_COLUMN, ROW_COLUMN)
            ]
        if compiled is not None and schema is not None and compiled.missing_fields:
            found.missing += compiled.missing_fields
            found.schemas.append(schema)
    if compiled is not None:
        found.warn(_lints(compiled, None))
        found.warnings.sort(key=lambda each: each.found.start or 0)
    found.file = given.rules[name].file
    found.types = list(compiled.types) if compiled else []
    return found


def _lints(query: CompiledQuery, schema: pa.Schema | None) -> list[Lint]:
    syntax = query.syntax
    return lint(syntax, language=query.language, schema=schema) if isinstance(syntax, QuerySyntax) else []


def _types_that_are_not(query: CompiledQuery, source: Streams | None) -> Iterator[Lint]:
    """Yield a remark on each type of events that files cannot have."""
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
        message = f"no event has the type {name!r}: those in {query.type_column} are from {least!r} to {greatest!r}"
        yield Lint(NO_TYPE, QueryError(message, query.text, start, end))


def _schema(query: CompiledQuery | None, streams: Streams) -> pa.Schema | None:
    """Return the schema of events, or None for named streams under a query with errors, which cannot merge them."""
    if not streams.are_named:
        return open_events(streams.open()).schema
    return None if query is None else query._open_source(streams.open()).schema
