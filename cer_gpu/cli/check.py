"""``cer-gpu check``: the errors of a query, without reading an event."""

from __future__ import annotations

from typing import Any

import click
import pyarrow as pa

from cer_gpu.ceql.paths import dotted
from cer_gpu.cli.command_line import (
    chosen_type_column,
    file_of,
    query_options,
    read_query,
    say,
    say_errors,
)
from cer_gpu.cli.given_events import Streams, given_streams
from cer_gpu.cli.json_output import error_facts, to_json
from cer_gpu.cli.options import events_argument, query_argument
from cer_gpu.cli.tally import counted
from cer_gpu.errors import CerError, QueryTypeError
from cer_gpu.io.sources import open_events
from cer_gpu.order.rows import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.query import Query, analyse

MOST_TYPES = 8
"""Largest number of event types that `check` names."""


@click.command(
    epilog="""\b
Examples:
  cer-gpu check late.ceql --time-column ts
  cer-gpu check late.ceql flights.parquet --time-column ts
  cer-gpu check late.ceql flights.parquet --time-column ts --json"""
)
@query_argument
@events_argument(required=False)
@query_options
@click.option("--json", "as_json", is_flag=True, help="Print the answer, errors too, as JSON on standard output.")
def check(
    query: str,
    events: tuple[str, ...],
    type_column: str | None,
    no_type_column: bool,
    time_column: str | None,
    time_unit: str | None,
    as_json: bool,
) -> int:
    """Say what is wrong with QUERY; no event is read.

    All errors are told at once, and with EVENTS also whether the query fits their columns.
    The exit code is 1 when there are errors.
    """
    name, text = read_query(query)
    types = chosen_type_column(type_column, no_type_column)
    said, columns = dict[str, dict[str, Any]](), list[str]()
    streams = given_streams(events)
    compiled, _ = analyse(text, type_column=types, time_column=time_column, time_unit=time_unit)
    sources: list[tuple[str, Streams | None]] = list(streams.each())
    for shown, source in sources or [("", None)]:
        schema = None
        errors: list[CerError] = []
        try:
            schema = None if source is None else _schema(compiled, source)
        except CerError as error:
            errors.append(error)
        compiled, more = analyse(text, type_column=types, time_column=time_column, time_unit=time_unit, schema=schema)
        errors += more
        new = [error for error in errors if str(error) not in said]
        for wrong in new:
            of_events = (shown or None) if isinstance(wrong, QueryTypeError) else None
            said[str(wrong)] = {**error_facts(wrong, file_of(wrong, name)), "events": of_events}
        if not as_json:
            say_errors(new, name)
            if len(sources) > 1 and any(isinstance(error, QueryTypeError) for error in new):
                say(f"(for the events in {shown})")
        if compiled is not None and schema is not None:
            columns = [dotted(name) for name in compiled.columns(schema) if name not in (STREAM_COLUMN, ROW_COLUMN)]
    notes = list(compiled.notes) if compiled else []
    if as_json:
        answer = {"ok": not said, "errors": list(said.values()), "notes": notes, "columns": columns if events else None}
        click.echo(to_json(answer))
        return 1 if said else 0
    for note in notes:
        click.echo(f"note: {note}")
    if said:
        say(counted(len(said), "error"))
        return 1
    if events:
        click.echo(f"ok: the query fits {', '.join(events)}, and reads {', '.join(columns) or 'none of their columns'}")
        if compiled is not None and compiled.types:
            named = " and ".join(compiled.types[:MOST_TYPES]) + (", ..." if len(compiled.types) > MOST_TYPES else "")
            click.echo(f"(no event was read: whether there are events of type {named}, a run tells)")
    else:
        click.echo("ok: the query has no errors")
    return 0


def _schema(query: Query | None, streams: Streams) -> pa.Schema | None:
    """Return the schema of events, or None for named streams under a query with errors, which cannot merge them."""
    if not streams.are_named:
        return open_events(streams.open()).schema
    return None if query is None else query.source(streams.open()).schema
