"""``cer-gpu forecast``: how likely it is that matches of a query end, and by when, learned from a history."""

from __future__ import annotations

import io
import json

import click
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.cli.command_line import say, say_notes, show_text, to_json
from cer_gpu.cli.event_arguments import STANDARD, Streams, parse_streams
from cer_gpu.cli.output_file import chosen_format, open_target
from cer_gpu.cli.preview import preview, table_width
from cer_gpu.cli.progress_bar import working
from cer_gpu.cli.query_arguments import WrongQueries, read_queries
from cer_gpu.cli.shared_options import (
    QueryOptions,
    complete_files,
    declared_option,
    needs_time,
    query_argument,
    query_options,
    reading_options,
)
from cer_gpu.cli.signals import Signals
from cer_gpu.engine.evaluation_options import Sort
from cer_gpu.forecast.model import AT, Forecast
from cer_gpu.forecast.reading import readable_again
from cer_gpu.forecast_files import load_forecast_of
from cer_gpu.io.sinks import SINK_FORMATS, open_pipe
from cer_gpu.io.text_options import TextOptions
from cer_gpu.printable import counted

_SHOWN = 20
"""Number of rows shown."""


@click.command(
    "forecast",
    epilog="""\b
Examples:
  cer-gpu forecast late.ceql --history january.parquet february.parquet --within "4 hours" --time-column ts
  cer-gpu forecast late.ceql --history january.parquet --within 1h --within 4h --save late.forecast --time-column ts
  cer-gpu forecast late.ceql --model late.forecast february.parquet --at events -o risks.parquet --time-column ts
  cer-gpu forecast late.ceql --model late.forecast march.parquet --score --time-column ts
  cer-gpu forecast late.ceql --history january.parquet --within 4h --explain --time-column ts""",
)
@query_argument
@click.argument("events", nargs=-1, metavar="[EVENTS]...", shell_complete=complete_files)
@click.option(
    "--history",
    multiple=True,
    metavar="FILE",
    shell_complete=complete_files,
    help="Events to learn from; may be repeated; NAME=PATH for several streams.",
)
@click.option(
    "--within", multiple=True, metavar="LENGTH", help="Length, such as '10 minutes', 1h, '100 events'; may be repeated."
)
@click.option(
    "--order",
    type=click.IntRange(0, 6),
    default=2,
    show_default=True,
    help="Number of latest events that a state distinguishes.",
)
@click.option("--model", metavar="FILE", shell_complete=complete_files, help="Use the model in this file of --save.")
@click.option("--save", metavar="FILE", shell_complete=complete_files, help="Save the model to this file.")
@click.option(
    "--at",
    type=click.Choice(AT),
    default="last",
    show_default=True,
    help="Forecast after the last event of each key, after each event, or for each current partial match.",
)
@click.option(
    "-o",
    "out",
    metavar="OUT",
    shell_complete=complete_files,
    help="Write all rows to this file, or to standard output (-).",
)
@click.option(
    "--format", "format_", type=click.Choice(SINK_FORMATS), help="Output format.  [default: by the ending of OUT]"
)
@click.option("--score", is_flag=True, help="Print scores of the forecasts for EVENTS instead of rows.")
@click.option("--explain", is_flag=True, help="Print the states in words, with their probabilities.")
@query_options
@reading_options
@declared_option("sort", default=False)
@click.option("--json", "as_json", is_flag=True, help="Print the rows, or the scores, as JSON.")
@click.pass_obj
def forecast_command(
    signals: Signals,
    query: str,
    events: tuple[str, ...],
    history: tuple[str, ...],
    within: tuple[str, ...],
    order: int,
    model: str | None,
    save: str | None,
    at: str,
    out: str | None,
    format_: str | None,
    score: bool,
    explain: bool,
    compiling: QueryOptions,
    reading: TextOptions,
    sort: Sort,
    as_json: bool,
) -> int:
    """Say how likely a match of QUERY is, and by when.

    For the last event of each key of EVENTS (--at: for others), it gives the probability that a match ends within
    each length. It is learned from --history, or was (--model). docs/guides/forecasts.md says how, and what a
    forecast is not.
    """
    _check_usage(events, history, within, model, score=score, explain=explain, save=save)
    format_ = chosen_format(out, format_)
    streams = parse_streams(events, reading)
    learned = parse_streams(history, reading)
    arguments = read_queries(query, None, compiling)
    needs_time(arguments.time_column, {"--sort": sort})
    inputs = [*streams.paths, *learned.paths, *arguments.files, *([model] if model else [])]
    try:
        (compiled,) = arguments.compile(learned if history else streams, of_ceql=True).values()
        if model is not None:
            fitted = load_forecast_of(compiled, model)
        else:
            with working("learning (the first run compiles the engine)"):
                fitted = compiled.fit(learned.open(), list(within), order, sort=sort)
    except WrongQueries as wrong:
        arguments.say(wrong.errors)
        return 1
    if save is not None:
        fitted.save(save)
        say(f"{fitted!r} -> {save}")
    if explain:
        show_text(fitted.explain())
    if score:
        scored = fitted.score(streams.open(), sort=sort)
        facts = {"scores": scored.table.to_pylist(), "calibration": scored.calibration.to_pylist()}
        show_text(to_json(facts) if as_json else str(scored))
    elif events:
        _show(fitted, streams, at, out, format_, inputs, signals, sort=sort, as_json=as_json)
    say_notes(arguments.notes)
    return 0


def _check_usage(
    events: tuple[str, ...],
    history: tuple[str, ...],
    within: tuple[str, ...],
    model: str | None,
    *,
    score: bool,
    explain: bool,
    save: str | None,
) -> None:
    if (model is None) == (not history):
        raise click.UsageError("expected one of --history FILE, to learn from, and --model FILE, a saved model")
    if history and not within:
        raise click.UsageError("a forecast needs a length: --within '1 hour'")
    if model is not None and (within or save):
        raise click.UsageError(
            f"--{'within' if within else 'save'} is an option of --history: a saved model has been learned already"
        )
    if score and not events:
        raise click.UsageError("--score needs EVENTS to compare with: cer-gpu forecast QUERY EVENTS --score")
    if not events and not explain and save is None:
        raise click.UsageError("expected EVENTS to forecast for, --save FILE or --explain")


def _show(
    fitted: Forecast,
    streams: Streams,
    at: str,
    out: str | None,
    format_: str | None,
    inputs: list[str],
    signals: Signals,
    *,
    sort: Sort,
    as_json: bool,
) -> None:
    """Show or write the forecasts for events."""
    rows = fitted.forecast(readable_again(streams.open()), at=at, sort=sort)
    if out is not None:
        with open_target(out, format_, rows.schema, inputs, signals) as sink:
            for batch in rows.to_batches():
                sink.write(batch)
        if out != STANDARD:
            say(f"{counted(rows.num_rows, 'forecast')} -> {out}")
        return
    if as_json:
        file = io.BytesIO()
        with open_pipe(file, rows.schema, "jsonl", signals.deferred) as sink:
            for batch in rows.to_batches():
                sink.write(batch)
        show_text(to_json({"forecasts": [json.loads(line) for line in file.getvalue().splitlines()]}))
        return
    likely = [name for name in rows.column_names if name.startswith("probability_")]
    shown = rows if at == "events" else rows.sort_by([(likely[-1], "descending"), ("position", "ascending")])
    shown = shown.slice(0, _SHOWN)
    for i, field in enumerate(shown.schema):
        if pa.types.is_floating(field.type) and field.name.startswith(("probability_", "low_", "high_")):
            shown = shown.set_column(i, field.name, pc.round(shown.column(i), 4))
    show_text(preview(shown, table_width()))
    more = f", the {_SHOWN} most likely shown" if at != "events" else f", the first {_SHOWN} shown"
    show_text(counted(rows.num_rows, "forecast") + (more if rows.num_rows > _SHOWN else ""))
