"""``cer-gpu columns``: the columns and event types of a source."""

from __future__ import annotations

import click

from cer_gpu.cli.command_line import show_text
from cer_gpu.cli.event_arguments import STANDARD, given_streams
from cer_gpu.cli.json_output import to_json
from cer_gpu.cli.options import QueryOptions, events_argument, query_options, reading_options
from cer_gpu.cli.preview import table_width
from cer_gpu.cli.survey import count_types, survey_source, survey_text
from cer_gpu.columnar.clocks import time_column_type
from cer_gpu.engine.evaluation_options import OverridableDefault
from cer_gpu.io.sources import open_events
from cer_gpu.io.text_options import TextOptions
from cer_gpu.io.text_times import with_times


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

    EVENTS and options are those of run, for one stream. With --type-column, the events of each type are counted; with
    --time-column, it is said whether the column can tell the time.
    """
    streams = given_streams(events, reading)
    if streams.are_named:
        raise click.UsageError("the columns are those of one stream: give its files without a name")
    type_column = None if isinstance(compiling.type_column, OverridableDefault) else compiling.type_column
    if type_column is not None and STANDARD in events:
        raise click.UsageError("--type-column reads the events twice, and standard input can be read only once")
    source = open_events(streams.open())
    if compiling.time_column is not None:
        source = with_times(source, compiling.time_column)
        time_column_type(source.schema, compiling.time_column)
    found = survey_source(source)
    if type_column is not None:
        found["types"] = count_types(open_events(streams.open()), type_column)
    show_text(to_json(found) if as_json else survey_text(found, table_width()))
    return 0
