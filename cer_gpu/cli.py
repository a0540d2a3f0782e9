"""The command line: arguments and messages; the work is done by `cer_gpu.query` (docs/command_line.md)."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import click
import pyarrow as pa

import cer_gpu
from cer_gpu.command_line import (
    Commands,
    abandon_stdout,
    chosen_type_column,
    query_options,
    read_query,
    run_commands,
    say,
    say_errors,
)
from cer_gpu.engine.outputs import OUTPUTS
from cer_gpu.engine.reorder import LATE
from cer_gpu.engine.sinks import ENDINGS, FORMATS, Sink, open_pipe, open_sink
from cer_gpu.engine.sources import Source, open_events
from cer_gpu.engine.standard_input import open_standard_input
from cer_gpu.engine.streams import STREAM_COLUMN
from cer_gpu.errors import CerError, OptionError, QueryError, QueryTypeError
from cer_gpu.preview import preview, rows_to_show
from cer_gpu.progress import Display, Watched, working
from cer_gpu.query import DEVICES, Query, analyse
from cer_gpu.report import write_report
from cer_gpu.signals import Signals, Stopped
from cer_gpu.tally import Tally, counted

STANDARD = "-"
"""Stands for standard input among the events, and for standard output as the file."""
TEXT_WIDTH = 200
"""Of a preview that goes to a file or another program: as wide as it needs to be."""


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
  cer-gpu check late.ceql flights.parquet --time-column ts""",
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
@click.argument("query")
@click.argument("events", nargs=-1, required=True)
@click.option(
    "-o",
    "out",
    metavar="OUT",
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
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads to use.  [default: as many as help]")
@click.option("--no-progress", is_flag=True, help="Show no progress bar (there is one on a terminal only).")
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
) -> int:
    """Find the complex events of QUERY in EVENTS.

    QUERY is a file or the text itself. EVENTS are Parquet, Arrow IPC or CSV files, or folders of them, read one
    after the other; - is standard input, an Arrow IPC stream. For a query over several streams, each is given as
    NAME=PATH.
    """
    streams = _streams(events)
    types = chosen_type_column(type_column, no_type_column)
    format_ = _format(out, format_)
    timed = {"--sort": sort, "--lateness": lateness, "--late": late}
    for option, given in timed.items():
        if given and time_column is None:
            raise click.UsageError(f"{option} needs a time: --time-column")

    name, text = read_query(query)
    compiled, errors = analyse(text, type_column=types, time_column=time_column, time_unit=time_unit)
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
    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        # a query in a file is an input too
        inputs = [*streams.paths, *([query] if name else [])]
        sink = None if out is None else stack.enter_context(_sink(out, format_, evaluation.schema, inputs, signals))
        hidden = no_progress or (out == STANDARD and sys.stdout.isatty())
        display = stack.enter_context(Display(evaluation.n_rows, tally, hidden=hidden, sorts=sort))

        def tick() -> None:
            signals.check()
            display.tick(evaluator)

        for batch in evaluation.batches(tick):
            n_before = tally.n_rows
            found = tally.take(batch)
            if sink is not None:
                sink.write(found)
            elif n_before < n_wanted:
                shown.append(found.slice(0, n_wanted - n_before))
            if tally.is_full:
                break
            tick()
    seconds = time.perf_counter() - begun

    if sink is None:
        _show(pa.Table.from_batches(shown, evaluation.schema), tally)
    said = [counted(evaluation.n_read, "row"), str(tally)]
    if late == "drop":
        said.append(f"{counted(evaluator.n_late, 'late event')} dropped")
    said += [f"{seconds:.2f} s", f"{evaluation.n_read / seconds:,.0f} rows/s"]
    say(
        ", ".join(said)
        + (f"; stopped at --limit {limit}" if tally.is_full else "")
        + (f" -> {out}" if out not in (None, STANDARD) else "")
    )
    return 0


@cli.command(
    epilog="""\b
Examples:
  cer-gpu check late.ceql --time-column ts
  cer-gpu check late.ceql flights.parquet --time-column ts"""
)
@click.argument("query")
@click.argument("events", nargs=-1)
@query_options
def check(
    query: str,
    events: tuple[str, ...],
    type_column: str | None,
    no_type_column: bool,
    time_column: str | None,
    time_unit: str | None,
) -> int:
    """Say all that is wrong with QUERY, and whether it fits EVENTS; no event is read.

    The exit code is 1 when there are errors.
    """
    name, text = read_query(query)
    types = chosen_type_column(type_column, no_type_column)
    said, columns = set[str](), list[str]()
    streams = _streams(events)
    compiled, _ = analyse(text, type_column=types, time_column=time_column, time_unit=time_unit)
    sources: list[tuple[str, _Streams | None]] = list(streams.each())
    for shown, source in sources or [("", None)]:
        schema = None
        errors: list[CerError] = []
        try:
            schema = None if source is None else _schema(compiled, source)
        except CerError as error:
            errors.append(error)
        compiled, wrong = analyse(text, type_column=types, time_column=time_column, time_unit=time_unit, schema=schema)
        errors += wrong
        new = [error for error in errors if str(error) not in said]
        said.update(map(str, new))
        say_errors(new, name)
        if len(sources) > 1 and any(isinstance(error, QueryTypeError) for error in new):
            say(f"(for the events in {shown})")
        if compiled is not None and schema is not None:
            columns = [name for name in compiled.columns(schema) if name != STREAM_COLUMN]
    n_errors = len(said)
    for note in compiled.notes if compiled else ():
        click.echo(f"note: {note}")
    if n_errors:
        say(counted(n_errors, "error"))
        return 1
    if events:
        click.echo(f"ok: the query fits {', '.join(events)}, and reads {', '.join(columns) or 'none of their columns'}")
    else:
        click.echo("ok: the query has no errors")
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
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads to use.  [default: as many as help]")
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
) -> int:
    """Show the complex events of QUERY in EVENTS as one HTML page, which needs no network and no other file.

    QUERY and EVENTS are those of run; the events are read three times, and those of standard input kept in memory.
    """
    streams = _streams(events)
    types = chosen_type_column(type_column, no_type_column)
    if sort and time_column is None:
        raise click.UsageError("--sort needs a time: --time-column")
    if out == STANDARD:
        raise click.UsageError("a report is a file: -o report.html")
    name, text = read_query(query)
    compiled, errors = analyse(text, type_column=types, time_column=time_column, time_unit=time_unit)
    if compiled is None:
        say_errors(errors, name)
        return 1
    title = title or f"{os.path.basename(name) if name else 'Complex events'} in {', '.join(events)}"
    inputs = [query] if name else []
    given = streams.open()
    try:
        with working("evaluating (the first run compiles the engine)"):
            made = write_report(compiled, given, out, title=title, sort=sort, threads=threads, inputs=inputs)
    except QueryError as error:
        say_errors([error], name)
        return 1
    found = f"{counted(made.n_events, 'row')}, {counted(made.n_matches, 'complex event')}"
    say(f"{found}, {made.n_bytes / 1e6:.1f} MB -> {out}")
    return 0


# ---- arguments --------------------------------------------------------------------------------------------------

_NAMED = re.compile(r"(?:([A-Za-z_][A-Za-z_0-9]*)|`([^`]+)`)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class _Streams:
    """The events that were named: the paths of each stream by its name, which is None where there are no names."""

    named: dict[str | None, list[str]]

    @property
    def paths(self) -> list[str]:
        """All files and folders."""
        return [path for paths in self.named.values() for path in paths if path != STANDARD]

    @property
    def are_named(self) -> bool:
        """Whether they have names."""
        return any(self.named)

    def open(self) -> Any:
        """Return what `Query.source` takes."""
        opened = {name: _standard_input() if STANDARD in paths else paths for name, paths in self.named.items()}
        return opened.get(None, opened)

    def each(self) -> Iterator[tuple[str, _Streams]]:
        """Yield what has a schema of its own: each of the paths, or all streams together."""
        if self.are_named:
            yield ", ".join(f"{name}={path}" for name, paths in self.named.items() for path in paths), self
            return
        for path in self.named.get(None, ()):
            yield path, _Streams({None: [path]})


def _streams(given: Sequence[str]) -> _Streams:
    """Tell names from paths."""
    streams: dict[str | None, list[str]] = {}
    for text in given:
        match = _NAMED.fullmatch(text)
        name, path = (match[1] or match[2], match[3]) if match else (None, text)
        if not path:
            raise click.UsageError(f"{text!r} has no path")
        if match and os.path.exists(text) and not os.path.exists(path):
            raise click.UsageError(f"{text} is stream {name!r} in {path}, which is not there; the file is ./{text}")
        streams.setdefault(name, []).append(path)
    if None in streams and len(streams) > 1:
        name = next(filter(None, streams))
        raise click.UsageError(
            f"{name}={streams[name][0]} names a stream, and {streams[None][0]} none: name all of them, or none"
        )
    if [path for paths in streams.values() for path in paths].count(STANDARD) > 1:
        raise click.UsageError(f"standard input ({STANDARD}) can be read only once")
    for paths in streams.values():
        if STANDARD in paths and len(paths) > 1:
            raise click.UsageError(
                f"standard input ({STANDARD}) is a whole stream: no files come before it or after it"
            )
    return _Streams(streams)


def _standard_input() -> Source:
    if sys.stdin is None:
        raise OptionError("standard input is closed: expected an Arrow IPC stream")
    return open_standard_input(sys.stdin.buffer)


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
        streams: _Streams,
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


def _schema(query: Query | None, streams: _Streams) -> pa.Schema | None:
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


def _show(rows: pa.Table, tally: Tally) -> None:
    """Print the first rows as a table."""
    if tally.n_rows == 0:
        click.echo(tally.none)
        return
    click.echo(preview(rows, None if sys.stdout.isatty() else TEXT_WIDTH))
    if rows.num_rows < tally.n_rows:
        click.echo(f"the first {rows.num_rows:,} of {tally.rows}")
    else:
        click.echo(str(tally) + (", and maybe more" if tally.is_full else ""))
