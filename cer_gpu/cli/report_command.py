"""``cer-gpu report``: the matches of a query, or of the queries of a folder, as one HTML page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from cer_gpu.cli.command_line import say, say_notes, to_json
from cer_gpu.cli.event_arguments import STANDARD, Streams, parse_streams
from cer_gpu.cli.progress_bar import working
from cer_gpu.cli.query_arguments import (
    QueryArguments,
    WrongQueries,
    aside_note,
    bindable_queries,
    for_each,
    missing_notes,
    query_and_events_arguments,
    read_queries,
    with_progress,
)
from cer_gpu.cli.shared_options import (
    CommandOptions,
    QueryOptions,
    complete_files,
    level_option,
    period_options,
    query_options,
    reading_options,
    run_options,
    skip_invalid_option,
    skip_unreadable_option,
)
from cer_gpu.compilation import CompiledQuery
from cer_gpu.forecast_files import load_forecast_of
from cer_gpu.io.files import UnreadableFileError
from cer_gpu.io.text_options import TextOptions
from cer_gpu.order.times import Period
from cer_gpu.preparing.over_schema import OverQuery
from cer_gpu.printable import counted, plural
from cer_gpu.report import write_alerts, write_forecast, write_funnel, write_report
from cer_gpu.report.counted import number_in_words
from cer_gpu.report.events import rereadable
from cer_gpu.rules.rule_set import RuleSet

_COUNTED = {
    "positions": ("match", "n_matches"),
    "alerts": ("alert", "n_alerts"),
    "funnel": ("start", "n_starts"),
}
"""Pages by content, with the noun for one item, and the name of their number in JSON."""
_OUTPUTS: dict[str, Callable[[CompiledQuery], str | None]] = {
    "positions": lambda query: None,
    "funnel": lambda query: "funnel",
}
"""Output of a query for each page of matches."""


@click.command(
    epilog="""\b
Examples:
  cer-gpu report late.ceql flights.parquet --time-column ts -o late.html
  cer-gpu report 'SELECT * FROM S WHERE A ; B WITHIN 100 EVENTS' events.csv -o found.html
  cer-gpu report --queries rules flights.parquet --time-column ts -o rules.html
  cer-gpu report --queries detections logs.parquet -o alerts.html
  cer-gpu report late.ceql flights.parquet --time-column ts --forecast late.forecast -o risks.html

\b
The page is written completely at the end, or not at all."""
)
@query_and_events_arguments()
@click.option(
    "-o",
    "out",
    metavar="OUT",
    required=True,
    shell_complete=complete_files,
    help="Output file, such as report.html.",
)
@click.option(
    "--output",
    type=click.Choice(list(_COUNTED)),
    help="Content of the page: matches (positions), alerts of a folder of rules, or funnels.  "
    "[default: alerts if rules of --queries have levels, else positions]",
)
@click.option(
    "--forecast",
    metavar="FILE",
    shell_complete=complete_files,
    help="Show whether this forecast (cer-gpu forecast --save) comes true on EVENTS, and what is likely next.",
)
@click.option("--title", metavar="TEXT", help="Title of the page.  [default: names of query and events]")
@query_options
@skip_invalid_option
@skip_unreadable_option
@level_option
@reading_options
@period_options
@run_options("sort", "threads", "max_memory", "as_json")
def report(
    query: str | None,
    queries: str | None,
    events: tuple[str, ...],
    out: str,
    output: str | None,
    forecast: str | None,
    title: str | None,
    compiling: QueryOptions,
    skip_invalid: bool,
    skip_unreadable: bool,
    level: str | None,
    reading: TextOptions,
    period: Period,
    run: CommandOptions,
) -> int:
    """Show what QUERY finds in EVENTS as one HTML page.

    It needs no network and no other file. QUERY and EVENTS are those of run; with --queries, the page has a
    table of the queries of a folder and what each finds, or the alerts of its rules. Matches are counted
    before they are listed. The events are read up to six times, for alerts once, and those of standard input kept
    in memory.
    """
    streams = parse_streams(events, reading, skip_unreadable=skip_unreadable)
    if out == STANDARD:
        raise click.UsageError("a report needs a file: -o report.html")
    arguments = read_queries(query, queries, compiling, skip_invalid=skip_invalid, level=level)
    arguments, sort = arguments.timed_by_logs(streams, run.evaluation.sort)
    streams = streams.within(period, arguments.time_column, compiling.time_unit)
    run.check_time(arguments.time_column, {"--after": period.after, "--before": period.before})
    page = output or ("alerts" if arguments.raises_alerts else "positions")
    if forecast is not None and (arguments.is_set or output is not None):
        raise click.UsageError("--forecast makes a page for one QUERY: leave out --queries and --output")
    if page == "alerts" and not arguments.is_set:
        raise click.UsageError("alerts need rules: --queries FOLDER")
    options: dict[str, Any] = {
        "title": title,
        "inputs": [*arguments.files, *([] if forecast is None else [forecast])],
        "events_from": [path for paths in streams.named.values() for path in paths],
        "sort": sort,
        "threads": run.evaluation.threads,
        "max_memory": run.evaluation.max_memory,
    }
    while True:
        try:
            if forecast is not None:
                return _forecast_page(forecast, arguments, streams, out, options, as_json=run.as_json)
            return _page(arguments, streams, page, out, options, as_json=run.as_json)
        except UnreadableFileError as error:
            streams.skip(error)
            arguments.forget_skipped()
        except WrongQueries as wrong:
            arguments.say(wrong.errors)
            return 1


def _page(
    arguments: QueryArguments, streams: Streams, page: str, out: str, options: dict[str, Any], *, as_json: bool
) -> int:
    """Write a page of matches, alerts or funnels."""
    aside: list[str] = []
    compiled = arguments.compile(streams, of_ceql=page != "alerts")
    if arguments.is_set and page == "funnel":
        compiled, aside = with_progress(compiled)
    source = rereadable(streams.open())
    opened = next(iter(compiled.values()))._open_source(source)
    schema = opened.schema
    evaluable: RuleSet | CompiledQuery
    if page == "alerts":
        rules = RuleSet(compiled, arguments.rules)
        together, over = bindable_queries(rules, schema, rules._outputs, arguments.skipped)
        evaluable = rules if together is rules else RuleSet(together._queries, arguments.rules)
        bound: Mapping[str, OverQuery | CompiledQuery] = over.queries
    else:
        compiled = for_each(compiled, lambda each: each.bind(schema), arguments.skipped)
        fitting = for_each(compiled, lambda each: each.output_schema(schema, _OUTPUTS[page](each)), arguments.skipped)
        compiled = {name: compiled[name] for name in fitting}
        evaluable = RuleSet(compiled, arguments.rules) if arguments.is_set else next(iter(compiled.values()))
        bound = compiled
    with working("evaluating (the first run compiles the engine)"):
        if isinstance(evaluable, RuleSet) and page == "alerts":
            summary = write_alerts(evaluable, source, out, **options)
        elif page == "funnel":
            summary = write_funnel(evaluable, source, out, **options)
        else:
            summary = write_report(evaluable, source, out, on_message=None if as_json else say, **options)
    missing = {name: query.missing_fields for name, query in bound.items()}
    notes = [*arguments.notes, *aside_note(aside), *opened.notes, *missing_notes(missing, [schema], arguments.rules)]
    what, number = _COUNTED[page]
    if as_json:
        facts: dict[str, Any] = {"n_events": summary.n_events, number: summary.n_matches, "n_bytes": summary.n_bytes}
        if arguments.is_set:
            facts["queries"] = {name: {number: n} for name, n in summary.of.items()}
        click.echo(to_json({**facts, "out": out, "notes": [*notes, *summary.notes]}))
        return 0
    n_found = summary.n_matches
    count_words = f"{number_in_words(n_found)} {what if n_found == 1 else plural(what)}"
    of_all = f" of {counted(len(bound), 'query')}" if arguments.is_set else ""
    say(f"{counted(summary.n_events, 'row')}, {count_words}{of_all}, {summary.n_bytes / 1e6:.1f} MB -> {out}")
    own = {f"{name}: {note}" if name else note for name, n in summary.of.items() if n for note in bound[name].notes}
    say_notes([*notes, *(note for note in summary.notes if note not in own)])
    return 0


def _forecast_page(
    path: str, arguments: QueryArguments, streams: Streams, out: str, options: dict[str, Any], *, as_json: bool
) -> int:
    """Write the page of a forecast."""
    (query,) = arguments.compile(streams, of_ceql=True).values()
    source = rereadable(streams.open())
    model = load_forecast_of(query, path)
    own = {name: options[name] for name in ("title", "sort", "events_from", "inputs")}
    with working("forecasting (the first run compiles the engine)"):
        summary = write_forecast(model, source, out, **own)
    if as_json:
        facts = {"n_events": summary.n_events, "n_forecasts": summary.n_matches, "n_bytes": summary.n_bytes, "out": out}
        click.echo(to_json(facts))
        return 0
    say(f"{counted(summary.n_events, 'scored event')}, {counted(summary.n_matches or 0, 'forecast')} -> {out}")
    return 0
