"""``cer-gpu run``: the complex events of a query, or of those of a folder, shown or written."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import KW_ONLY, dataclass, replace

import click

from cer_gpu.cli.alert_output import TimelineSink, kept_for_order
from cer_gpu.cli.command_line import say, say_notes, to_json
from cer_gpu.cli.command_run import CommandRun
from cer_gpu.cli.event_arguments import STANDARD, Streams, given_streams
from cer_gpu.cli.live.follow_options import FollowOptions, follow_options
from cer_gpu.cli.live.following import follow_files
from cer_gpu.cli.output_file import chosen_format, open_target
from cer_gpu.cli.preview import Preview
from cer_gpu.cli.query_arguments import QueryArguments, WrongQueries, query_and_events_arguments, read_queries
from cer_gpu.cli.shared_options import (
    CommandOptions,
    QueryOptions,
    complete_files,
    level_option,
    output_of_rows,
    period_options,
    query_options,
    reading_options,
    run_options,
    skip_invalid_option,
)
from cer_gpu.cli.signals import Signals, Stopped
from cer_gpu.compile_progress import NOTICES
from cer_gpu.io.sinks import SINK_ENDINGS, SINK_FORMATS
from cer_gpu.io.text_options import TextOptions
from cer_gpu.io.text_types import WiderTypes
from cer_gpu.order.times import Period
from cer_gpu.rules.alerts import ALERTS, TIMELINE, TIMELINE_SCHEMA


@click.command(
    "run",
    epilog=f"""\b
Examples:
  cer-gpu run late.ceql flights.parquet --time-column ts
  cer-gpu run 'SELECT * FROM S WHERE A ; B' events.csv -o found.csv --limit 1000
  cer-gpu run late.ceql flights.parquet --time-column ts --output events -o - | head
  cer-gpu run late.ceql flights.parquet --time-column ts --sort --output count
  cer-gpu run --queries rules flights.parquet --time-column ts -o found.parquet
  cer-gpu run both.ceql Bids=bids.parquet Asks=asks.parquet --time-column ts
  cer-gpu run --queries rules --follow /var/log/events --time-column ts -o alerts
  ... | cer-gpu run late.ceql - --time-column ts --lateness 5s --late drop -o - --format arrow | ...

\b
The file OUT ends in {", ".join(SINK_ENDINGS)}, or has the --format;
it is written completely at the end, or not at all.""",
)
@query_and_events_arguments(instead_of_events="follow")
@click.option(
    "-o",
    "out",
    metavar="OUT",
    shell_complete=complete_files,
    help="Write all rows to this file, append them to a table (delta:PATH, iceberg:NAME), or write them to standard "
    "output (-). Without it, the first rows are shown.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(SINK_FORMATS),
    help="Output format.  [default: by the ending of OUT; jsonl for standard output]",
)
@run_options(output=output_of_rows(TIMELINE))
@query_options
@skip_invalid_option
@level_option
@reading_options
@period_options
@follow_options
@click.pass_obj
def run_command(
    signals: Signals,
    query: str | None,
    queries: str | None,
    events: tuple[str, ...],
    out: str | None,
    format_: str | None,
    run: CommandOptions,
    compiling: QueryOptions,
    skip_invalid: bool,
    level: str | None,
    reading: TextOptions,
    period: Period,
    live: FollowOptions,
) -> int:
    """Find the matches of QUERY in EVENTS.

    QUERY is a file or the text itself, in CEQL or in SQL with MATCH_RECOGNIZE; with --queries, all queries
    of a folder are evaluated in one pass.
    EVENTS are Parquet, Arrow IPC, CSV, JSON or event log (.evtx) files, folders of them, zip archives, globs, or
    addresses such as s3://bucket/folder, read one after the other; - is standard input: an Arrow IPC stream, CSV
    or JSON lines; delta:PATH and iceberg:NAME are tables, with @VERSION appended for one of their snapshots.
    For a query over several streams, give each as NAME=PATH.

    With --follow DIR there are no EVENTS: files that appear in DIR are read as they come, and each result is written
    exactly once, even if the process is killed.
    """
    if run.as_json or run.no_progress:
        os.environ.setdefault(NOTICES, "off")
    given = read_queries(query, queries, compiling, skip_invalid=skip_invalid, level=level)
    given.refuse_options_of_ceql()
    streams = given_streams(events, reading)
    if live.folder is None:
        format_ = chosen_format(out, format_)
    options, output = run.evaluation, run.evaluation.output
    if live.folder is None:
        given, sort = given.timed_by_logs(streams, options.sort)
        options = replace(options, sort=sort)
    streams = streams.within(period, given.time_column, compiling.time_unit)
    of_time = {"--after": period.after, "--before": period.before, "--output timeline": output == TIMELINE}
    run.check_time(given.time_column, of_time)
    alerts = given.raises_alerts if output is None else output in (ALERTS, TIMELINE)
    if alerts and not given.is_set:
        raise click.UsageError("alerts need rules: --queries FOLDER")
    run = replace(run, evaluation=replace(options, output=None if alerts else output))
    if live.folder is not None:
        if period:
            raise click.UsageError("--after and --before cannot be used with --follow, which reads all that arrives")
        if output == TIMELINE:
            raise click.UsageError("--output timeline is not available with --follow; --output alerts is")
        return follow_files(given, live, run, reading=reading, alerts=alerts, out=out, format_=format_, signals=signals)
    command = _Command(
        given, streams, run, out, format_, alerts=alerts, as_timeline=output == TIMELINE, signals=signals
    )
    try:
        running, preview = command.run()
    except WrongQueries as wrong:
        given.say(wrong.errors)
        return 1
    if run.as_json:
        click.echo(to_json({**running.facts(), "out": out, "notes": running.notes}), err=out == STANDARD)
        return 0
    if preview is not None:
        preview.finish(running.totals)
    target = "" if out in (None, STANDARD) else f" -> {out}"
    say(running.summary() + target)
    for line in running.overview(beside_table=preview is not None):
        say(line)
    say_notes(running.notes)
    return 0


@dataclass
class _Command:
    """A run with its target, which begins again where a later row of a text file needs a wider type."""

    given: QueryArguments
    streams: Streams
    options: CommandOptions
    out: str | None
    format: str | None
    _: KW_ONLY
    alerts: bool
    as_timeline: bool
    signals: Signals

    def run(self) -> tuple[CommandRun, Preview | None]:
        """Evaluate all events, and return what was found.

        Raises
        ------
        WiderTypes
            When rows are written to standard output already, the events cannot be read again, or the query does not
            fit the wider type.
        """
        shown = False
        found: WiderTypes | None = None
        while True:
            try:
                running = CommandRun(
                    self.given,
                    self.streams,
                    self.options.evaluation,
                    alerts=self.alerts,
                    summed=self.out is None or self.options.as_json,
                )
            except WrongQueries:
                if found is not None:
                    raise found from None
                raise
            preview = None if self.out is not None or self.options.as_json else running.preview()
            if preview is not None:
                preview.is_shown = shown
            try:
                self._finish_run(running, preview)
            except WiderTypes as wider:
                found = wider
                again = self.streams.with_types(wider.types)
                if again is None or (self.out == STANDARD and running.totals.n_rows):
                    raise
                self.streams, shown = again, preview is not None and preview.is_shown
                continue
            return running, preview

    def _finish_run(self, running: CommandRun, preview: Preview | None) -> None:
        out, signals = self.out, self.signals
        try:
            with contextlib.ExitStack() as stack:
                sink = None
                if out is not None:
                    # a query in a file is an input too
                    inputs = [*self.streams.paths, *self.given.files]
                    schema = running.evaluation.schema
                    written = TIMELINE_SCHEMA if self.as_timeline else schema
                    sink = stack.enter_context(open_target(out, self.format, written, inputs, signals))
                    if self.as_timeline:
                        sink = TimelineSink(sink)
                    if self.alerts:
                        sink = stack.enter_context(kept_for_order(sink, schema))
                hidden = self.options.no_progress or (out == STANDARD and sys.stdout.isatty())
                display = stack.enter_context(running.display(hidden=hidden))
                running.finish(sink, preview, display, signals)
        except Stopped as stopped:
            if stopped.signum != signal.SIGINT or preview is None:
                raise
            with signals.held():  # which then raises it again; a second Ctrl-C does not wait for a reader
                preview.finish(running.totals, " so far")
                say(running.summary())
            raise
