"""``cer-gpu run``: the matches of a query, or of the queries of a folder, shown or written, and a summary."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import click

from cer_gpu.cli.alert_output import AlertSummary, AlertTable, NearMisses, TimelineSink, lines_of, sorted_by_end
from cer_gpu.cli.command_line import say, say_notes, to_json
from cer_gpu.cli.event_arguments import STANDARD, Streams, parse_streams
from cer_gpu.cli.live.follow_options import FollowOptions, follow_options
from cer_gpu.cli.live.following import follow_files
from cer_gpu.cli.output_file import chosen_format, open_target
from cer_gpu.cli.preview import FirstRows, FunnelPreview, Preview, QueryTable, funnel_facts, rows_to_show
from cer_gpu.cli.progress_bar import Display
from cer_gpu.cli.query_arguments import (
    QueryArguments,
    WrongQueries,
    absent_notes,
    aside_note,
    missing_notes,
    notes_of,
    query_and_events_arguments,
    read_queries,
    source_query,
    with_progress,
)
from cer_gpu.cli.result_streams import AlertEvaluation, CommandEvaluation
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
from cer_gpu.cli.tally import FORMS, Throughput, Totals
from cer_gpu.compile_progress import NOTICES
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.io.files import UnreadableFileError
from cer_gpu.io.sinks import SINK_ENDINGS, SINK_FORMATS, Sink
from cer_gpu.io.string_types import WiderTypes
from cer_gpu.io.text_options import TextOptions
from cer_gpu.order.times import Period
from cer_gpu.output.funnel_counts import FunnelCounts
from cer_gpu.planning.outputs import funnel_names
from cer_gpu.printable import counted
from cer_gpu.rules.alerts import ALERTS, TIMELINE, TIMELINE_SCHEMA
from cer_gpu.stages import MeasuredStages

MANY = 10_000_000
"""Matches after which a run without a file counts the rest, and on a terminal gives advice."""


class CommandRun:
    """Run of one query, or of several in one pass.

    Parameters
    ----------
    arguments
        Queries of a folder, which are evaluated in one pass, or one query, whose name is "".
    streams
    options
    alerts
        True: the output is alerts of rules.
    summed
        False: the aggregated funnels of "funnel", which store a number for each step reached, are not needed.

    Raises
    ------
    WrongQueries
        When queries are invalid or cannot be bound to the events, and are not skipped.

    Attributes
    ----------
    evaluation : Evaluation
        The evaluation; at the end, the one that counts the rest, if there is one.
    totals : Totals
        The counts so far.
    """

    def __init__(
        self,
        arguments: QueryArguments,
        streams: Streams,
        options: EvaluationOptions,
        *,
        alerts: bool = False,
        summed: bool = True,
    ) -> None:
        self._arguments, self._is_set, self._alerts = arguments, arguments.is_set, alerts
        self._stages = MeasuredStages()
        compiled = arguments.compile(streams, of_sources=alerts)
        sources = {
            rule.log_source: source_query(rule.log_source) for rule in arguments.rules.values() if rule.log_source
        }
        self._sources = {words: name for words, name in sources.items() if name in compiled}
        self._aside: list[str] = []
        if arguments.is_set and options.output == "funnel":
            compiled, self._aside = with_progress(compiled)
        self.evaluation: CommandEvaluation
        if alerts:
            sources_only = {name: compiled.pop(name) for name in self._sources.values()}
            self.evaluation = AlertEvaluation(
                arguments.rules, compiled, streams, options, self._stages, skipped=arguments.skipped, extra=sources_only
            )
        else:
            self.evaluation = CommandEvaluation(
                compiled, streams, options, self._stages, is_set=arguments.is_set, skipped=arguments.skipped
            )
        self._queries = queries = self.evaluation.queries
        self._notes = {name: compiled[name].notes for name in queries}
        self.options = options
        self.totals: Totals = Totals(self.evaluation.outputs, options.limit)
        counted = (name for name in queries if summed and FORMS[self.evaluation.outputs[name]].by_starts)
        plans = {name: plan for name in counted if (plan := queries[name]._plan) is not None}
        self._funnels = {name: FunnelCounts(funnel_names(plan), plan.time_unit) for name, plan in plans.items()}
        self._pace = Throughput()
        self._summary = AlertSummary(arguments.rules) if alerts else None

    def preview(self) -> Preview:
        """Return the preview for a terminal."""
        if self._alerts:
            return AlertTable(self._arguments.rules)
        if self._is_set and self._funnels:
            return NearMisses(self._funnels, self._arguments.rules)
        if self._is_set:
            return QueryTable()
        if self._funnels:
            return FunnelPreview(self._funnels[""])
        ((name, output),) = self.evaluation.outputs.items()
        limit = None if FORMS[output].numbered else self.options.limit
        return FirstRows(limit or rows_to_show(output), self.evaluation.schemas[name])

    def display(self, *, hidden: bool) -> Display:
        """Return the progress bar."""
        return Display(self.evaluation.n_rows, self.totals, self._stages, hidden=hidden, sorts=bool(self.options.sort))

    def finish(self, sink: Sink | None, preview: Preview | None, display: Display, signals: Signals) -> None:
        """Evaluate all events, and pass the rows to `sink` or `preview`."""

        def tick() -> None:
            signals.check()
            display.tick(self.evaluation.n_done)

        def before_a_batch() -> None:
            self._pace.before_a_batch(self.evaluation.n_done)
            tick()

        is_advised = False
        for name, batch in self.evaluation.batches(before_a_batch):
            tally = self.totals.of[name]
            tally.take(batch)
            if name in self._funnels:
                self._funnels[name].take(batch)
            if self._summary is not None:
                self._summary.take(batch)
            if sink is not None:
                sink.write(self.evaluation.rows(name, batch))
            elif preview is not None and preview.take(name, batch):
                with display.cleared():
                    preview.show()
            if tally.limit_reached and self.totals.limit_reached:
                return
            tick()
            if not is_advised and self.totals.n_listed >= MANY:
                is_advised = True
                counting = self.evaluation.counting() if sink is None else None
                display.say(self.evaluation.advice(str(self.totals), counts=counting is not None))
                if counting is not None:
                    self.evaluation = counting
                    break
        else:
            return
        for name, batch in self.evaluation.batches(before_a_batch):
            self.totals.of[name].take_counts(batch)
            if preview is not None:
                preview.take_counts(name, batch)
            tick()

    def facts(self) -> dict[str, Any]:
        """Return the current summary as plain data."""
        self._pace.finish(self.evaluation.n_done)
        facts: dict[str, Any] = {
            "n_events": self.evaluation.n_done,
            "n_late": self.evaluation.n_late,
            "output": self.totals.output,
            "n_rows": self.totals.n_rows,
            "n_matches": self.totals.n_matches,
            "limit_reached": self.totals.limit_reached,
            "seconds": self._pace.seconds,
            "rows_per_second": self._pace.rate,
        }
        if self._suppressed_note:
            facts["n_suppressed"] = self.evaluation.n_suppressed
        funnels = {name: {"funnel": funnel_facts(counts)} for name, counts in self._funnels.items()}
        if self._is_set:
            facts["queries"] = {name: tally.facts | funnels.get(name, {}) for name, tally in self.totals.of.items()}
            if self._summary is not None:
                facts |= {by: of for by, of in self._summary.counts(self._raised).items() if by != "rules"}
        else:
            facts |= funnels.get("", {})
        return facts

    @property
    def _raised(self) -> dict[str, int]:
        return {name: tally.n_rows for name, tally in self.totals.of.items()}

    def overview(self, *, beside_table: bool) -> list[str]:
        """Return the counts of alerts by level, tactic, rule and host, a line each; with a table of rules, the rest.

        Empty if the output is not alerts.
        """
        if self._summary is None:
            return []
        counts = self._summary.counts(self._raised)
        return lines_of({by: of for by, of in counts.items() if not (beside_table and by in ("levels", "rules"))})

    def summary(self) -> str:
        """Return the current summary as a line."""
        self._pace.finish(self.evaluation.n_done)
        said = [counted(self.evaluation.n_done, "row"), str(self.totals) + self._suppressed_note]
        if self.options.late == "drop":
            said.append(f"{counted(self.evaluation.n_late, 'late event')} dropped")
        said.append(str(self._pace))
        return ", ".join(said) + (f"; stopped at --limit {self.options.limit}" if self.totals.limit_reached else "")

    @property
    def _suppressed_note(self) -> str:
        """The number of matches suppressed by LIMIT n EVERY d, in words, or "" without the clause."""
        spaced = [query.compiled for query in self._queries.values() if query.is_spaced]
        if not spaced:
            return ""
        clause = "LIMIT EVERY"
        if not self._is_set:
            plan = spaced[0]._plan
            assert plan is not None
            assert plan.every is not None
            text, every = plan.text, plan.every
            length = " ".join(text[slice(*every.within.span)].split())
            clause = f"LIMIT {every.n} EVERY {length}"
        n = self.evaluation.n_suppressed
        return f"; {n:,} suppressed by {clause}" if n or not self._is_set else ""

    @property
    def notes(self) -> list[str]:
        """Remarks on the events, if all were read, and on queries without matches."""
        notes = [*self._arguments.notes, *aside_note(self._aside), *self.evaluation.remarks]
        of_events = self.evaluation.notes
        absent, missing = set[str](), self.evaluation.missing_fields
        if self._alerts and not self.totals.limit_reached:
            absent = {words for words, name in self._sources.items() if name not in self.evaluation.matched_extra}
            notes += absent_notes({name: self._arguments.rules[name] for name in self._queries}, absent)
            missing = {
                name: own for name, own in missing.items() if self._arguments.rules[name].log_source not in absent
            }
        notes += missing_notes(missing, [self.evaluation.events_schema], self._arguments.rules)
        by_query: list[tuple[str, str]] = []
        for name, tally in self.totals.of.items():
            own = [] if tally.limit_reached else of_events.get(name, [])
            of_query = () if tally.n_rows else self._notes[name]
            by_query += [(name, note) for note in (*own, *of_query)]
        return notes + notes_of(by_query)


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
    arguments = read_queries(query, queries, compiling, skip_invalid=skip_invalid, level=level)
    arguments.refuse_options_of_ceql()
    arguments = arguments.with_note_on_log_sources()
    streams = parse_streams(events, reading, skip_unreadable=live.skip_unreadable)
    if live.folder is None:
        format_ = chosen_format(out, format_)
    options, output = run.evaluation, run.evaluation.output
    if live.folder is None:
        arguments, sort = arguments.timed_by_logs(streams, options.sort)
        options = replace(options, sort=sort)
    streams = streams.within(period, arguments.time_column, compiling.time_unit)
    of_time = {"--after": period.after, "--before": period.before, "--output timeline": output == TIMELINE}
    run.check_time(arguments.time_column, of_time)
    alerts = arguments.raises_alerts if output is None else output in (ALERTS, TIMELINE)
    if alerts and not arguments.is_set:
        raise click.UsageError("alerts need rules: --queries FOLDER")
    run = replace(run, evaluation=replace(options, output=None if alerts else output))
    if live.folder is not None:
        if period:
            raise click.UsageError("--after and --before cannot be used with --follow, which reads all that arrives")
        if output == TIMELINE:
            raise click.UsageError("--output timeline is not available with --follow; --output alerts is")
        return follow_files(
            arguments, live, run, reading=reading, alerts=alerts, out=out, format_=format_, signals=signals
        )
    command = _Command(
        arguments, streams, run, out, format_, alerts=alerts, as_timeline=output == TIMELINE, signals=signals
    )
    try:
        running, preview = command.run()
    except WrongQueries as wrong:
        arguments.say(wrong.errors)
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
    """A run with its target, which restarts if a later row of a text file needs a wider type, or a file is skipped."""

    arguments: QueryArguments
    streams: Streams
    options: CommandOptions
    out: str | None
    format: str | None
    _: KW_ONLY
    alerts: bool
    as_timeline: bool
    signals: Signals

    def run(self) -> tuple[CommandRun, Preview | None]:
        """Evaluate all events, and return the run and its preview.

        Raises
        ------
        WiderTypes
            When rows were written to standard output already, the events cannot be read again, or the query does not
            support the wider type.
        """
        shown = False
        widening: WiderTypes | None = None
        while True:
            self.arguments.forget_skipped()
            running: CommandRun | None = None
            preview: Preview | None = None
            try:
                running = CommandRun(
                    self.arguments,
                    self.streams,
                    self.options.evaluation,
                    alerts=self.alerts,
                    summed=self.out is None or self.options.as_json,
                )
                preview = None if self.out is not None or self.options.as_json else running.preview()
                if preview is not None:
                    preview.is_shown = shown
                self._finish_run(running, preview)
            except WrongQueries:
                if widening is not None:
                    raise widening from None
                raise
            except WiderTypes as wider:
                widening = wider
                again = self.streams.with_types(wider.types)
                if again is None or self._has_written(running):
                    raise
                self.streams = again
            except UnreadableFileError as error:
                if self._has_written(running):
                    raise
                self.streams.skip(error)
            else:
                return running, preview
            shown = preview is not None and preview.is_shown

    def _has_written(self, running: CommandRun | None) -> bool:
        """Return True if rows were written that cannot be withdrawn."""
        return self.out == STANDARD and running is not None and bool(running.totals.n_rows)

    def _finish_run(self, running: CommandRun, preview: Preview | None) -> None:
        out, signals = self.out, self.signals
        try:
            with contextlib.ExitStack() as stack:
                sink = None
                if out is not None:
                    # a query in a file is an input too
                    inputs = [*self.streams.paths, *self.arguments.files]
                    schema = running.evaluation.schema
                    written = TIMELINE_SCHEMA if self.as_timeline else schema
                    sink = stack.enter_context(open_target(out, self.format, written, inputs, signals))
                    if self.as_timeline:
                        sink = TimelineSink(sink)
                    if self.alerts:
                        sink = stack.enter_context(sorted_by_end(sink, schema))
                hidden = self.options.no_progress or (out == STANDARD and sys.stdout.isatty())
                display = stack.enter_context(running.display(hidden=hidden))
                running.finish(sink, preview, display, signals)
        except Stopped as stopped:
            if stopped.signum != signal.SIGINT or preview is None:
                raise
            with signals.deferred():  # it is raised again at the end; a second Ctrl-C does not wait for a reader
                preview.finish(running.totals, " so far")
                say(running.summary())
            raise
