"""``cer-gpu run``: the complex events of a query, shown or written."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any

import click

from cer_gpu.backend.jit import NOTICES
from cer_gpu.cli.command_line import chosen_type_column, query_options, read_query, say, say_errors, say_notes
from cer_gpu.cli.evaluation import MANY, Evaluation
from cer_gpu.cli.given_events import STANDARD, analyse_over, given_streams
from cer_gpu.cli.json_output import to_json
from cer_gpu.cli.options import complete_files, events_argument, needs_time, query_argument, sort_option, threads_option
from cer_gpu.cli.preview import FirstRows, rows_to_show
from cer_gpu.cli.progress import Display
from cer_gpu.cli.signals import Signals, Stopped
from cer_gpu.cli.tally import Pace, Tally, counted
from cer_gpu.cli.target import chosen_format, open_target
from cer_gpu.errors import QueryError
from cer_gpu.io.sinks import ENDINGS, FORMATS
from cer_gpu.order.reorder import LATE
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.query import DEVICES
from cer_gpu.stages import MeasuredStages


@click.command(
    epilog=f"""\b
Examples:
  cer-gpu run late.ceql flights.parquet --time-column ts
  cer-gpu run 'SELECT * FROM S WHERE A ; B' events.csv -o found.csv --limit 1000
  cer-gpu run late.ceql flights.parquet --time-column ts --output events -o - | head
  cer-gpu run late.ceql flights.parquet --time-column ts --sort --output count
  cer-gpu run both.ceql Bids=bids.parquet Asks=asks.parquet --time-column ts
  ... | cer-gpu run late.ceql - --time-column ts --lateness 5s --late drop -o - --format arrow | ...

\b
The file OUT ends in {", ".join(ENDINGS)}, or has the --format;
it appears whole at the end or not at all."""
)
@query_argument
@events_argument()
@click.option(
    "-o",
    "out",
    metavar="OUT",
    shell_complete=complete_files,
    help="Write all rows to this file, or to standard output (-), instead of showing the first.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    help="Format of OUT.  [default: by its ending; jsonl for standard output]",
)
@click.option(
    "--output",
    type=click.Choice(OUTPUTS),
    help="Content of a row.  [default: measures where SELECT has some, else positions]",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N rows, of rows after N matches.")
@query_options
@sort_option
@click.option("--lateness", metavar="TIME", help="Largest lateness of an event, such as 5s or 200ms.")
@click.option("--late", type=click.Choice(LATE), help="Treatment of later events.  [default: refuse]")
@click.option(
    "--device", type=click.Choice(DEVICES), default="auto", show_default=True, help="Device that evaluates predicates."
)
@threads_option
@click.option("--no-progress", is_flag=True, help="Show no progress bar (there is one on a terminal only).")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output (standard error with -o -)."
)
@click.pass_obj
def run(
    signals: Signals,
    query: str,
    events: tuple[str, ...],
    out: str | None,
    format_: str | None,
    output: str | None,
    limit: int | None,
    type_column: str | None,
    no_type_column: bool,
    time_column: str | None,
    time_unit: str | None,
    sort: bool,
    lateness: str | None,
    late: str | None,
    device: str,
    threads: int | None,
    no_progress: bool,
    as_json: bool,
) -> int:
    """Find the complex events of QUERY in EVENTS.

    QUERY is a file or the text itself. EVENTS are Parquet, Arrow IPC or CSV files, or folders of them, read one
    after the other; - is standard input, an Arrow IPC stream. For a query over several streams, each is given as
    NAME=PATH.
    """
    if as_json:
        os.environ.setdefault(NOTICES, "off")  # nothing but JSON on standard error
    streams = given_streams(events)
    types = chosen_type_column(type_column, no_type_column)
    format_ = chosen_format(out, format_)
    needs_time(time_column, {"--sort": sort, "--lateness": lateness, "--late": late})

    name, text = read_query(query)
    compiled, errors = analyse_over(text, streams, type_column=types, time_column=time_column, time_unit=time_unit)
    if compiled is None:
        say_errors(errors, name)
        return 1
    output = output or compiled.default_output
    tally, stages = Tally(output, limit), MeasuredStages()
    try:
        evaluation = Evaluation(
            compiled,
            streams,
            device,
            output,
            stages,
            sort=sort,
            lateness=lateness,
            late=late,
            threads=threads,
            limit=limit,
        )
    except QueryError as error:
        say_errors([error], name)
        return 1
    n_wanted = rows_to_show(output) if limit is None or OUTPUTS[output].numbered else limit
    first = None if out is not None or as_json else FirstRows(n_wanted, evaluation.schema)
    pace = Pace()
    try:
        with contextlib.ExitStack() as stack:
            # a query in a file is an input too
            inputs = [*streams.paths, *([query] if name else [])]
            sink = None
            if out is not None:
                sink = stack.enter_context(open_target(out, format_, evaluation.schema, inputs, signals))
            hidden = no_progress or (out == STANDARD and sys.stdout.isatty())
            display = stack.enter_context(Display(evaluation.n_rows, tally, stages, hidden=hidden, sorts=sort))

            def tick() -> None:
                signals.check()
                display.tick(evaluation.evaluator)

            def before_a_batch() -> None:
                pace.before_a_batch(evaluation.evaluator.n_pushed)
                tick()

            is_advised = False
            counting = None
            for batch in evaluation.batches(before_a_batch):
                tally.take(batch)
                if sink is not None:
                    sink.write(batch)
                elif first is not None and first.take(batch):
                    with display.cleared():
                        first.show()
                if tally.is_full:
                    break
                tick()
                if not is_advised and tally.n_listed >= MANY:
                    is_advised = True
                    n_done = evaluation.n_done(batch)
                    counting = evaluation.counting(n_done) if sink is None else None
                    display.say(evaluation.advice(str(tally), n_done, counts=counting is not None))
                    if counting is not None:
                        break
            if counting is not None:
                evaluation = counting
                for batch in evaluation.batches(before_a_batch):
                    tally.take_counts(batch)
                    tick()
    except Stopped as stopped:
        if stopped.signum != signal.SIGINT or first is None:
            raise
        with signals.held():  # which then raises it again; a second Ctrl-C does not wait for a reader
            pace.finish(evaluation.n_read)
            _show(first, tally, " so far")
            say(_summary(evaluation, tally, pace))
        raise
    pace.finish(evaluation.n_read)
    notes = [] if tally.is_full else evaluation.evaluator.notes  # notes hold for all events only
    notes += [] if tally.n_rows else compiled.notes

    if as_json:
        click.echo(to_json({**_facts(evaluation, tally, pace), "out": out, "notes": notes}), err=out == STANDARD)
        return 0
    if first is not None:
        _show(first, tally)
    target = "" if out in (None, STANDARD) else f" -> {out}"
    say(_summary(evaluation, tally, pace) + target)
    say_notes(notes)
    return 0


def _facts(evaluation: Evaluation, tally: Tally, pace: Pace) -> dict[str, Any]:
    """Return the summary of a run as plain data."""
    return {
        "n_events": evaluation.n_read,
        "n_late": evaluation.evaluator.n_late,
        "output": tally.output,
        "n_rows": tally.n_rows,
        "n_complex_events": tally.n_complex_events,
        "is_full": tally.is_full,
        "seconds": pace.seconds,
        "rows_per_second": pace.rate,
    }


def _summary(evaluation: Evaluation, tally: Tally, pace: Pace) -> str:
    """Return the summary of a run as a line."""
    said = [counted(evaluation.n_read, "row"), str(tally)]
    if evaluation.drops_late:
        said.append(f"{counted(evaluation.evaluator.n_late, 'late event')} dropped")
    said.append(str(pace))
    return ", ".join(said) + (f"; stopped at --limit {tally.limit}" if tally.is_full else "")


def _show(first: FirstRows, tally: Tally, so_far: str = "") -> None:
    """Print the first rows as a table, unless that is done, and the number of all."""
    if tally.n_rows == 0:
        click.echo(f"no complex events{so_far}")
        return
    first.show()
    if first.n_rows < tally.n_rows:
        click.echo(f"the first {first.n_rows:,} of {tally.rows}{so_far}")
    else:
        click.echo(str(tally) + so_far + (", and maybe more" if tally.is_full else ""))
