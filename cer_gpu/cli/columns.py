"""``cer-gpu columns``: the columns and event types of a source, with a survey of the values of its columns."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.cli.command_line import show_text, to_json
from cer_gpu.cli.event_arguments import STANDARD, parse_streams
from cer_gpu.cli.preview import preview, table_width
from cer_gpu.cli.shared_options import QueryOptions, events_argument, query_options, reading_options
from cer_gpu.columnar.clocks import time_column_type
from cer_gpu.columnar.fields import array_of
from cer_gpu.engine.evaluation_options import OverridableDefault
from cer_gpu.io.source import Source
from cer_gpu.io.sources import open_events
from cer_gpu.io.string_types import with_times
from cer_gpu.io.text_options import TextOptions
from cer_gpu.io.value_strings import plain_values
from cer_gpu.predicates.guards import type_column_type
from cer_gpu.printable import counted

FIRST_ROWS = 1000
"""Number of rows searched for the first values."""
FIRST_VALUES = 3
"""Maximum number of distinct values shown of a column."""
_MAX_TYPES = 100
"""Maximum number of types shown, the most frequent ones."""


def survey_source(source: Source) -> dict[str, Any]:
    """Return the columns of a source as plain data, with the first values of each as strings."""
    names = source.schema.names
    rows = next((batch.slice(0, FIRST_ROWS) for batch in source.batches(names) if batch.num_rows), None)
    columns = []
    for field in source.schema:
        kind = field.type
        coded = pa.types.is_dictionary(kind)
        strings = [] if rows is None else plain_values(rows.column(field.name)).to_pylist()
        values = list(dict.fromkeys(text for text in strings if text is not None))[:FIRST_VALUES]
        shown = str(kind.value_type) if coded else str(kind)
        columns.append({"name": field.name, "type": shown, "dictionary": coded, "values": values})
    return {"n_events": source.n_rows, "columns": columns, "types": None}


def count_types(source: Source, type_column: str) -> list[dict[str, Any]]:
    """Return the number of events of each type, most frequent first; the type None counts NULLs."""
    type_column_type(source.schema, type_column)
    counter = Counter[str | None]()
    for batch in source.batches([type_column]):
        for counts in pc.value_counts(plain_values(array_of(batch, type_column))).to_pylist():
            counter[counts["values"]] += counts["counts"]
    return [{"type": name, "n_events": n} for name, n in sorted(counter.items(), key=lambda item: -item[1])]


def survey_text(survey: dict[str, Any], width: int | None) -> str:
    """Return the results of `survey_source` and `count_types` as tables of at most `width` (see `preview`)."""
    columns, types = survey["columns"], survey["types"]
    table = {
        "column": [column["name"] for column in columns],
        "type": [column["type"] for column in columns],
        "first values": [", ".join(column["values"]) for column in columns],
    }
    parts = [preview(pa.table(table), width)]
    if types is not None:
        shown = types[:_MAX_TYPES]
        names = ["(null)" if each["type"] is None else each["type"] for each in shown]
        parts.append(preview(pa.table({"event type": names, "events": [each["n_events"] for each in shown]}), width))
        if len(types) > len(shown):
            parts[-1] += f"\nand {len(types) - len(shown):,} more"
    events = "" if survey["n_events"] is None else f", {counted(survey['n_events'], 'event')}"
    return "\n\n".join([*parts, counted(len(columns), "column") + events])


@click.command(
    epilog="""\b
Examples:
  cer-gpu columns flights.parquet
  cer-gpu columns flights.parquet --type-column type
  cer-gpu columns flights.parquet --json"""
)
@events_argument
@query_options
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print the columns as JSON.")
def columns(events: tuple[str, ...], compiling: QueryOptions, reading: TextOptions, as_json: bool) -> int:
    """Show the columns of EVENTS: names, types, first values.

    EVENTS and options are those of run, for one stream. With --type-column, counts the events of each type; with
    --time-column, checks that the column can be the time column.
    """
    streams = parse_streams(events, reading)
    if streams.are_named:
        raise click.UsageError("expected files of one stream, without a stream name")
    type_column = None if isinstance(compiling.type_column, OverridableDefault) else compiling.type_column
    if type_column is not None and STANDARD in events:
        raise click.UsageError("--type-column reads the events twice, and standard input can be read only once")
    source = open_events(streams.open())
    if compiling.time_column is not None:
        source = with_times(source, compiling.time_column)
        time_column_type(source.schema, compiling.time_column)
    survey = survey_source(source)
    if type_column is not None:
        survey["types"] = count_types(open_events(streams.open()), type_column)
    show_text(to_json(survey) if as_json else survey_text(survey, table_width()))
    return 0
