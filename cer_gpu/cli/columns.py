"""``cer-gpu columns``: the columns and event types of a source."""

from __future__ import annotations

import click

from cer_gpu.cli.command_line import show_text
from cer_gpu.cli.given_events import STANDARD, given_streams
from cer_gpu.cli.json_output import to_json
from cer_gpu.cli.options import events_argument, reading_options
from cer_gpu.cli.preview import table_width
from cer_gpu.cli.survey import count_types, survey_source, survey_text
from cer_gpu.io.sources import open_events
from cer_gpu.io.text_options import TextOptions


@click.command(
    epilog="""\b
Examples:
  cer-gpu columns flights.parquet
  cer-gpu columns flights.parquet --type-column type
  cer-gpu columns flights.parquet --json"""
)
@events_argument
@click.option("--type-column", metavar="NAME", help="Count the events of each type in this column; all are read.")
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print the columns as JSON.")
def columns(events: tuple[str, ...], type_column: str | None, reading: TextOptions, as_json: bool) -> int:
    """Show the columns of EVENTS: names, types, first values.

    EVENTS are given as for run, but of one stream. Several files have the columns of the first.
    """
    streams = given_streams(events, reading)
    if streams.are_named:
        raise click.UsageError("the columns are those of one stream: give its files without a name")
    if type_column is not None and STANDARD in events:
        raise click.UsageError("--type-column reads the events twice, and standard input can be read only once")
    found = survey_source(open_events(streams.open()))
    if type_column is not None:
        found["types"] = count_types(open_events(streams.open()), type_column)
    show_text(to_json(found) if as_json else survey_text(found, table_width()))
    return 0
