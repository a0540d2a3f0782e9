"""``cer-gpu report``: the results of a query as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from cer_gpu.cli.command_line import chosen_type_column, query_options, read_query, say, say_errors, say_notes
from cer_gpu.cli.given_events import STANDARD, analyse_over, given_streams
from cer_gpu.cli.json_output import to_json
from cer_gpu.cli.options import complete_files, events_argument, needs_time, query_argument, sort_option, threads_option
from cer_gpu.cli.progress import working
from cer_gpu.cli.tally import counted
from cer_gpu.errors import QueryError
from cer_gpu.report import write_report


@click.command(
    epilog="""\b
Examples:
  cer-gpu report late.ceql flights.parquet --time-column ts -o late.html
  cer-gpu report 'SELECT * FROM S WHERE A ; B WITHIN 100 EVENTS' events.csv -o found.html

\b
The page appears whole at the end or not at all."""
)
@query_argument
@events_argument()
@click.option(
    "-o",
    "out",
    metavar="OUT",
    required=True,
    shell_complete=complete_files,
    help="The page, such as report.html.",
)
@click.option("--title", metavar="TEXT", help="Title of the page.  [default: query in events]")
@query_options
@sort_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output.")
@threads_option
def report(
    query: str,
    events: tuple[str, ...],
    out: str,
    title: str | None,
    type_column: str | None,
    no_type_column: bool,
    time_column: str | None,
    time_unit: str | None,
    sort: bool,
    threads: int | None,
    as_json: bool,
) -> int:
    """Show what QUERY finds in EVENTS as one HTML page.

    It needs no network and no other file. QUERY and EVENTS are those of run; the events are read three
    times, and those of standard input kept in memory.
    """
    streams = given_streams(events)
    types = chosen_type_column(type_column, no_type_column)
    needs_time(time_column, {"--sort": sort})
    if out == STANDARD:
        raise click.UsageError("a report is a file: -o report.html")
    name, text = read_query(query)
    compiled, errors = analyse_over(text, streams, type_column=types, time_column=time_column, time_unit=time_unit)
    if compiled is None:
        say_errors(errors, name)
        return 1
    title = title or f"{Path(name).name if name else 'Complex events'} in {', '.join(events)}"
    inputs = [query] if name else []
    given = streams.open()
    try:
        with working("evaluating (the first run compiles the engine)"):
            made = write_report(compiled, given, out, title=title, sort=sort, threads=threads, inputs=inputs)
    except QueryError as error:
        say_errors([error], name)
        return 1
    if as_json:
        facts = {"n_events": made.n_events, "n_complex_events": made.n_matches, "n_bytes": made.n_bytes}
        click.echo(to_json({**facts, "out": out, "notes": made.notes}))
        return 0
    found = f"{counted(made.n_events, 'row')}, {counted(made.n_matches, 'complex event')}"
    say(f"{found}, {made.n_bytes / 1e6:.1f} MB -> {out}")
    say_notes([note for note in made.notes if not made.n_matches or note not in compiled.notes])
    return 0
