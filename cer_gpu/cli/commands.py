"""The command line: arguments and messages; the work is done by `cer_gpu.query` (docs/command_line.md)."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import click
import pyarrow as pa
from click.shell_completion import get_completion_class

import cer_gpu
from cer_gpu.ceql.paths import dotted
from cer_gpu.cli.command_line import (
    Commands,
    abandon_stdout,
    chosen_type_column,
    complete_files,
    file_of,
    query_options,
    read_query,
    run_commands,
    say,
    say_errors,
    say_notes,
)
from cer_gpu.cli.given_events import STANDARD, Streams, analyse_over, given_streams
from cer_gpu.cli.json_output import error_facts, to_json
from cer_gpu.cli.preview import preview, rows_to_show
from cer_gpu.cli.progress import Display, Watched, working
from cer_gpu.cli.signals import Signals, Stopped
from cer_gpu.cli.survey import count_types, survey, survey_text
from cer_gpu.cli.tally import Pace, Tally, counted
from cer_gpu.errors import CerError, QueryError, QueryTypeError
from cer_gpu.explain.explanation import Explanation
from cer_gpu.io.sinks import ENDINGS, FORMATS, Sink, check_target, naming, open_pipe, open_sink, result_file
from cer_gpu.io.sources import open_events
from cer_gpu.order.reorder import LATE
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.query import DEVICES, Query, analyse
from cer_gpu.report import write_report

TEXT_WIDTH = 200
"""Of a preview that goes to a file or another program: as wide as it needs to be."""
MOST_TYPES = 8
"""Event types that `check` names."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line with the arguments of this process, or with `args`; see `run_commands`."""
    return run_commands(cli, "cer-gpu", args)


# ---- commands ---------------------------------------------------------------------------------------------------


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  cer-gpu run late.ceql flights.parquet --time-column ts
  cer-gpu run 'SELECT * FROM S WHERE A ; B+ ; C WITHIN 100 EVENTS' day1.csv day2.csv -o found.parquet
  cer-gpu report late.ceql flights.parquet --time-column ts -o late.html
  cer-gpu check late.ceql flights.parquet --time-column ts
  cer-gpu explain late.ceql --svg late.svg --time-column ts""",
)
@click.version_option(cer_gpu.__version__, prog_name="cer-gpu", message="%(prog)s %(version)s")
def cli() -> None:
    """Find complex events in recorded events with queries in CEQL."""


@cli.command(
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
@click.argument("query", shell_complete=complete_files)
@click.argument("events", nargs=-1, required=True, shell_complete=complete_files)
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
    help="Of OUT.  [default: by its ending; jsonl for standard output]",
)
@click.option("--output", type=click.Choice(OUTPUTS), default="positions", show_default=True, help="What a row is.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N rows.")
@query_options
@click.option("--sort", is_flag=True, help="Sort the events by time first.")
@click.option("--lateness", metavar="TIME", help="Events may come this much late, such as 5s or 200ms.")
@click.option("--late", type=click.Choice(LATE), help="What becomes of later ones.  [default: refuse]")
@click.option("--device", type=click.Choice(DEVICES), default="auto", show_default=True, help="Where to evaluate.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads to use.  [default: chosen by the size of the input]",
)
@click.option("--no-progress", is_flag=True, help="Show no progress bar (there is one on a terminal only).")
@click.option(
    "--json", "as_json", is_flag=True, help="Say the summary as JSON on standard output (standard error with -o -)."
)
@click.pass_obj
def run(
    signals: Signals,
    query: str,
    events: tuple[str, ...],
    out: str | None,
    format_: str | None,
    output: str,
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
    streams = given_streams(events)
    types = chosen_type_column(type_column, no_type_column)
    format_ = _format(out, format_)
    timed = {"--sort": sort, "--lateness": lateness, "--late": late}
    for option, given in timed.items():
        if given and time_column is None:
            raise click.UsageError(f"{option} needs a time: --time-column")

    name, text = read_query(query)
    compiled, errors = analyse_over(text, streams, type_column=types, time_column=time_column, time_unit=time_unit)
    if compiled is None:
        say_errors(errors, name)
        return 1
    tally = Tally(output, limit)
    try:
        evaluation = _Evaluation(
            compiled, streams, device, output, sort=sort, lateness=lateness, late=late, threads=threads
        )
    except QueryError as error:
        say_errors([error], name)
        return 1
    evaluator = evaluation.evaluator

    shown: list[pa.RecordBatch] = []
    n_wanted = limit or rows_to_show(output)
    pace = Pace()
    with contextlib.ExitStack() as stack:
        # a query in a file is an input too
        inputs = [*streams.paths, *([query] if name else [])]
        sink = None if out is None else stack.enter_context(_sink(out, format_, evaluation.schema, inputs, signals))
        hidden = no_progress or (out == STANDARD and sys.stdout.isatty())
        display = stack.enter_context(Display(evaluation.n_rows, tally, hidden=hidden, sorts=sort))

        def tick() -> None:
            signals.check()
            display.tick(evaluator)

        def before_a_batch() -> None:
            pace.before_a_batch(evaluator.n_pushed)
            tick()

        for batch in evaluation.batches(before_a_batch):
            n_before = tally.n_rows
            found = tally.take(batch)
            if sink is not None:
                sink.write(found)
            elif n_before < n_wanted and not as_json:
                shown.append(found.slice(0, n_wanted - n_before))
            if tally.is_full:
                break
            tick()
    pace.finish(evaluation.n_read)
    notes = [] if tally.is_full else evaluator.notes  # of all events, or else they say nothing
    notes += [] if tally.n_rows else compiled.notes

    if as_json:
        summary = {
            "n_events": evaluation.n_read,
            "n_late": evaluator.n_late,
            "output": output,
            "n_rows": tally.n_rows,
            "n_complex_events": tally.n_complex_events,
            "is_full": tally.is_full,
            "seconds": pace.seconds,
            "rows_per_second": pace.rate,
            "out": out,
            "notes": notes,
        }
        click.echo(to_json(summary), err=out == STANDARD)
        return 0
    if sink is None:
        _show(pa.Table.from_batches(shown, evaluation.schema), tally)
    said = [counted(evaluation.n_read, "row"), str(tally)]
    if late == "drop":
        said.append(f"{counted(evaluator.n_late, 'late event')} dropped")
    said.append(str(pace))
    say(
        ", ".join(said)
        + (f"; stopped at --limit {limit}" if tally.is_full else "")
        + (f" -> {out}" if out not in (None, STANDARD) else "")
    )
    say_notes(notes)
    return 0


@cli.command(
    epilog="""\b
Examples:
  cer-gpu check late.ceql --time-column ts
  cer-gpu check late.ceql flights.parquet --time-column ts
  cer-gpu check late.ceql flights.parquet --time-column ts --json"""
)
@click.argument("query", shell_complete=complete_files)
@click.argument("events", nargs=-1, shell_complete=complete_files)
@query_options
@click.option("--json", "as_json", is_flag=True, help="Say it as JSON, errors too, on standard output.")
def check(
    query: str,
    events: tuple[str, ...],
    type_column: str | None,
    no_type_column: bool,
    time_column: str | None,
    time_unit: str | None,
    as_json: bool,
) -> int:
    """Say what is wrong with QUERY; no event is read.

    All errors are told at once, and with EVENTS also whether the query fits their columns.
    The exit code is 1 when there are errors.
    """
    name, text = read_query(query)
    types = chosen_type_column(type_column, no_type_column)
    said, columns = dict[str, dict[str, Any]](), list[str]()
    streams = given_streams(events)
    compiled, _ = analyse(text, type_column=types, time_column=time_column, time_unit=time_unit)
    sources: list[tuple[str, Streams | None]] = list(streams.each())
    for shown, source in sources or [("", None)]:
        schema = None
        errors: list[CerError] = []
        try:
            schema = None if source is None else _schema(compiled, source)
        except CerError as error:
            errors.append(error)
        compiled, more = analyse(text, type_column=types, time_column=time_column, time_unit=time_unit, schema=schema)
        errors += more
        new = [error for error in errors if str(error) not in said]
        for wrong in new:
            of_events = (shown or None) if isinstance(wrong, QueryTypeError) else None
            said[str(wrong)] = {**error_facts(wrong, file_of(wrong, name)), "events": of_events}
        if not as_json:
            say_errors(new, name)
            if len(sources) > 1 and any(isinstance(error, QueryTypeError) for error in new):
                say(f"(for the events in {shown})")
        if compiled is not None and schema is not None:
            columns = [dotted(name) for name in compiled.columns(schema) if name != STREAM_COLUMN]
    notes = list(compiled.notes) if compiled else []
    if as_json:
        answer = {"ok": not said, "errors": list(said.values()), "notes": notes, "columns": columns if events else None}
        click.echo(to_json(answer))
        return 1 if said else 0
    for note in notes:
        click.echo(f"note: {note}")
    if said:
        say(counted(len(said), "error"))
        return 1
    if events:
        click.echo(f"ok: the query fits {', '.join(events)}, and reads {', '.join(columns) or 'none of their columns'}")
        if compiled is not None and compiled.types:
            types = " and ".join(compiled.types[:MOST_TYPES]) + (", ..." if len(compiled.types) > MOST_TYPES else "")
            click.echo(f"(no event was read: whether there are events of type {types}, a run tells)")
    else:
        click.echo("ok: the query has no errors")
    return 0


@cli.command(
    epilog="""\b
Examples:
  cer-gpu columns flights.parquet
  cer-gpu columns flights.parquet --type-column type
  cer-gpu columns flights.parquet --json"""
)
@click.argument("events", nargs=-1, required=True, shell_complete=complete_files)
@click.option("--type-column", metavar="NAME", help="Count the events of each type in this column; all are read.")
@click.option("--json", "as_json", is_flag=True, help="Say it as JSON.")
def columns(events: tuple[str, ...], type_column: str | None, as_json: bool) -> int:
    """Show the columns of EVENTS: names, types, first values.

    EVENTS are those of run, of one stream. Of several files the columns are those of the first.
    """
    streams = given_streams(events)
    if streams.are_named:
        raise click.UsageError("the columns are those of one stream: give its files without a name")
    if type_column is not None and STANDARD in events:
        raise click.UsageError("the types are counted in a second reading, which standard input has not")
    found = survey(open_events(streams.open()))
    if type_column is not None:
        found["types"] = count_types(open_events(streams.open()), type_column)
    click.echo(to_json(found) if as_json else survey_text(found, _width()))
    return 0


@cli.command(
    epilog="""\b
Examples:
  cer-gpu report late.ceql flights.parquet --time-column ts -o late.html
  cer-gpu report 'SELECT * FROM S WHERE A ; B WITHIN 100 EVENTS' events.csv -o found.html

\b
The page appears whole at the end or not at all."""
)
@click.argument("query")
@click.argument("events", nargs=-1, required=True)
@click.option("-o", "out", metavar="OUT", required=True, help="The page, such as report.html.")
@click.option("--title", metavar="TEXT", help="Of the page.  [default: what was evaluated over what]")
@query_options
@click.option("--sort", is_flag=True, help="Sort the events by time first.")
@click.option("--json", "as_json", is_flag=True, help="Say the summary as JSON on standard output.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads to use.  [default: chosen by the size of the input]",
)
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
    if sort and time_column is None:
        raise click.UsageError("--sort needs a time: --time-column")
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


@cli.command(
    epilog="""\b
Examples:
  cer-gpu explain late.ceql --time-column ts
  cer-gpu explain 'SELECT * FROM S WHERE A ; B+ ; C' --svg automaton.svg
  cer-gpu explain late.ceql --events flights.parquet --analyze --time-column ts
  cer-gpu explain late.ceql --time-column ts --json"""
)
@click.argument("query", shell_complete=complete_files)
@click.option(
    "--events",
    multiple=True,
    metavar="FILE",
    shell_complete=complete_files,
    help="Count what satisfies each predicate; given several times, these files are one stream, or NAME=PATH each.",
)
@click.option("--analyze", is_flag=True, help="Run the query on the events, and measure its stages.")
@click.option("--svg", metavar="FILE", shell_complete=complete_files, help="Draw the automaton.")
@click.option("--dot", metavar="FILE", shell_complete=complete_files, help="Write the automaton for Graphviz.")
@query_options
@click.option("--json", "as_json", is_flag=True, help="Say it as JSON.")
def explain(
    query: str,
    events: tuple[str, ...],
    analyze: bool,
    svg: str | None,
    dot: str | None,
    type_column: str | None,
    no_type_column: bool,
    time_column: str | None,
    time_unit: str | None,
    as_json: bool,
) -> int:
    """Say what QUERY means and how it runs.

    In words, and by its predicates, automaton and plan.
    """
    if analyze and not events:
        raise click.UsageError("--analyze runs the query on events: --events")
    streams = given_streams(events)
    types = chosen_type_column(type_column, no_type_column)
    name, text = read_query(query)
    inputs = [*streams.paths, *([query] if name else [])]
    drawn = (Explanation.to_svg, svg), (Explanation.to_dot, dot)
    pictures = [(draw, Path(path)) for draw, path in drawn if path is not None]
    for _, path in pictures:
        check_target(path, inputs)
    compiled, errors = analyse_over(text, streams, type_column=types, time_column=time_column, time_unit=time_unit)
    if compiled is None:
        say_errors(errors, name)
        return 1
    try:
        explanation = compiled.explain(streams.open() if events else None, analyze=analyze)
    except QueryError as error:
        say_errors([error], name)
        return 1
    for draw, path in pictures:
        with result_file(path, inputs) as file, naming(str(path)):
            file.write(draw(explanation).encode())
    click.echo(to_json(explanation.to_dict()) if as_json else str(explanation))
    return 0


@cli.command(
    epilog="""\b
Examples:
  eval "$(cer-gpu completion bash)"
  cer-gpu completion zsh > ~/.zfunc/_cer-gpu
  cer-gpu completion fish > ~/.config/fish/completions/cer-gpu.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print what completes commands in SHELL.

    That is, the commands, options and files of cer-gpu.
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(cli, {}, "cer-gpu", "_CER_GPU_COMPLETE").source())
    return 0


# ---- arguments --------------------------------------------------------------------------------------------------


def _format(out: str | None, given: str | None) -> str | None:
    """Return the format that was asked for; None: that of the file's ending."""
    if out is None and given is not None:
        raise click.UsageError("--format is that of a file, or of standard output: -o")
    if out != STANDARD:
        return given
    if sys.stdout is None:
        raise click.UsageError("standard output is closed")
    if given == "parquet":
        raise click.UsageError("Parquet is read from its end, which a pipe has not: --format arrow, or -o FILE")
    if given == "arrow" and sys.stdout.isatty():
        raise click.UsageError("standard output is a terminal, and Arrow is not to be read there: --format jsonl")
    return given or "jsonl"


# ---- the API ----------------------------------------------------------------------------------------------------


class _Evaluation:
    """One run of a query over its events: all that the command line asks of the API for it.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the results.
    n_rows : int or None
        How many events there are, where it is known.
    """

    def __init__(
        self,
        query: Query,
        streams: Streams,
        device: str,
        output: str,
        *,
        sort: bool,
        lateness: str | None,
        late: str | None,
        threads: int | None,
    ) -> None:
        self._query = query
        self._threads = threads
        self._reorders = lateness is not None or late is not None
        options: dict[str, Any] = {"lateness": lateness or "0", "late": late or LATE[0]} if self._reorders else {}
        self.evaluator = query.evaluator(device=device, output=output, **options)
        self._source = query.source(streams.open(), sort=sort)
        self.schema = query.output_schema(self._source.schema, output)
        self.n_rows = self._source.n_rows

    def batches(self, tick: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """Yield the results; `tick` is called before each batch of events."""
        return self._query.matches(Watched(self._source, tick), self.evaluator, self._threads)

    @property
    def n_read(self) -> int:
        """How many events were read, late ones too."""
        return self.evaluator.n_pushed if self._reorders else self.evaluator.n_events


def _schema(query: Query | None, streams: Streams) -> pa.Schema | None:
    """Return the schema of events, for `check`; several streams have one only for a query that has no errors."""
    if not streams.are_named:
        return open_events(streams.open()).schema
    return None if query is None else query.source(streams.open()).schema


@contextlib.contextmanager
def _sink(out: str, format: str | None, schema: pa.Schema, inputs: Sequence[str], signals: Signals) -> Iterator[Sink]:
    if out != STANDARD:
        with open_sink(out, schema, inputs, format) as sink:
            yield sink
        return
    assert format is not None
    with _standard_output() as file, open_pipe(file, schema, format, signals.held) as sink:
        yield sink


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    """Yield standard output with a buffer, whose writes are whole: with `python -u` it has none of its own."""
    file = sys.stdout.buffer
    if isinstance(file, io.RawIOBase):
        file = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115 - closed below
    try:
        yield file
    except (OSError, Stopped):
        abandon_stdout()  # closing would wait for a reader again
        raise
    finally:
        if file is not sys.stdout.buffer:
            file.close()


# ---- messages ---------------------------------------------------------------------------------------------------


def _width() -> int | None:
    """Return how wide a table may be; None: as the terminal, or as COLUMNS says."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else TEXT_WIDTH


def _show(rows: pa.Table, tally: Tally) -> None:
    """Print the first rows as a table."""
    if tally.n_rows == 0:
        click.echo(tally.none)
        return
    click.echo(preview(rows, _width()))
    if rows.num_rows < tally.n_rows:
        click.echo(f"the first {rows.num_rows:,} of {tally.rows}")
    else:
        click.echo(str(tally) + (", and maybe more" if tally.is_full else ""))
