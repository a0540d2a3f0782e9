"""``cer-gpu explore``: type a query and see what it finds, on a page of this machine."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from typing import Any

import click

from cer_gpu.cli.command_line import read_query, say, say_notes
from cer_gpu.cli.event_arguments import STANDARD, parse_streams
from cer_gpu.cli.shared_options import (
    CommandOptions,
    QueryOptions,
    complete_files,
    events_argument,
    queries_option,
    query_options,
    reading_options,
    run_options,
    skip_unreadable_option,
)
from cer_gpu.errors import OptionError
from cer_gpu.exploring.samples import ExploredEvents
from cer_gpu.exploring.session import Session
from cer_gpu.io.text_options import TextOptions
from cer_gpu.printable import counted
from cer_gpu.rule import Rule
from cer_gpu.rules.folder import read_folder, skipped_files_note

EXPLORE_MISSING = "the page needs Starlette and uvicorn\nhint: pip install 'cer-gpu[explore]'"


@click.command(
    "explore",
    epilog="""\b
Examples:
  cer-gpu explore flights.parquet
  cer-gpu explore trades.csv --type-column side --time-column ts --query 'SELECT * FROM S WHERE BUY ; SELL'
  cer-gpu explore flights.parquet --query late.ceql
  cer-gpu explore logs.parquet --queries detections --pipeline windows

\b
The page is at an address of this machine alone, with a token that only the terminal shows, until Ctrl-C.""",
)
@events_argument
@click.option(
    "--query", metavar="QUERY", shell_complete=complete_files, help="Query to begin with: a file or the text itself."
)
@queries_option
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the page.  [default: any that is free]")
@click.option("--no-open", is_flag=True, help="Do not open a browser; only show the address.")
@query_options
@skip_unreadable_option
@reading_options
@run_options("sort")
def explore_command(
    events: tuple[str, ...],
    query: str | None,
    queries: str | None,
    port: int | None,
    no_open: bool,
    compiling: QueryOptions,
    skip_unreadable: bool,
    reading: TextOptions,
    run: CommandOptions,
) -> int:
    """Type a query over EVENTS and see at once what it finds.

    As one types, a query is evaluated over a sample, the last events or some keys with all of theirs, and over all
    EVENTS on Enter: the number of matches and of keys, a timeline, durations, the funnel of a chain, and the matches
    with their rows. Without --time-column, the only column of timestamps is taken, and the events are sorted by
    it. With --queries, the rules of a folder are counted, and each can be edited.
    """
    try:
        from cer_gpu.exploring.app import serving, titled
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio", "h11"):
            raise
        raise OptionError(EXPLORE_MISSING) from None
    streams = parse_streams(events, reading, skip_unreadable=skip_unreadable)
    if streams.are_named:
        raise click.UsageError("explore takes one stream of events, without NAME=")
    if STANDARD in streams.named.get(None, ()):
        raise click.UsageError("explore reads the events several times: standard input (-) must be a file")
    text, rules, more = _query_and_rules(query, queries, compiling)
    explored = ExploredEvents(
        streams.open(),
        type_column=compiling.type_column,
        time_column=compiling.time_column,
        time_unit=compiling.time_unit,
        sort=run.evaluation.sort,
    )

    def session(send: Any) -> Session:
        return Session(explored, send, query=text, rules=rules, options=more)

    with serving(session, titled(explored.names), port or 0) as address:
        click.echo(address)
        say("open this address; Ctrl-C ends the page")
        if not no_open and _has_browser():
            webbrowser.open(address)
        threading.Event().wait()
    return 0


def _query_and_rules(
    query: str | None, queries: str | None, compiling: QueryOptions
) -> tuple[str, dict[str, Rule], dict[str, Any]]:
    """Return the text to begin with, the rules of the folder, and the options of their compilation."""
    rules: dict[str, Rule] = {}
    if queries is not None:
        contents = read_folder(queries, compiling.fields)
        rules = dict(contents.rules)
        notes = [*contents.notes, skipped_files_note(contents.skipped_files)]
        if contents.errors:
            notes.append(f"{counted(len(contents.errors), 'file')} cannot be read as rules (cer-gpu check lists them)")
        say_notes([note for note in notes if note])
    elif compiling.fields and (query is None or not query.endswith((".yml", ".yaml"))):
        raise click.UsageError(
            "--pipeline and --columns are options of Sigma rules: --queries FOLDER, or --query RULE.yml"
        )
    text = ""
    if query is not None:
        text = read_query(query, compiling.fields).text
    options = compiling.of_rules(rules.values(), is_set=queries is not None)
    more = {name: value for name, value in options.items() if name not in ("type_column", "time_column", "time_unit")}
    return text, rules, more


def _has_browser() -> bool:
    """Return True if a browser with windows can be opened."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
