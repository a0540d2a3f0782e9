"""The command line: arguments, progress and messages; the work is done by `cer_gpu.query` (docs/command_line.md)."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

import cer_gpu
from cer_gpu.engine.clocks import TIME_UNITS
from cer_gpu.engine.evaluator import Evaluator
from cer_gpu.engine.sinks import ENDINGS, open_sink, times_as_text
from cer_gpu.engine.sources import Source, open_events
from cer_gpu.errors import CerError, OptionError, QueryError, QueryTypeError, did_you_mean
from cer_gpu.query import DEVICES, OUTPUTS, analyse

PREVIEW_ROWS = 20
SHOWN_POSITIONS = 6

Command = TypeVar("Command", bound=Callable[..., Any])


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    args
        The arguments; those of this process when None.

    Returns
    -------
    int
        The exit code: 0; 1 when the query, the events or the output are wrong; 2 when the arguments are; 130 when
        interrupted (143 by SIGTERM, 129 by SIGHUP).  Other exceptions are bugs, and pass.
    """
    try:
        with _Signals() as signals:
            return int(cli.main(args=args, prog_name="cer-gpu", standalone_mode=False, obj=signals) or 0)
    except _Stopped as stopped:
        _say("interrupted" if stopped.signum == signal.SIGINT else f"stopped by {signal.Signals(stopped.signum).name}")
        return 128 + stopped.signum
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (CerError, OSError) as error:
        _say_error(error)
        return 1


# ---- arguments --------------------------------------------------------------------------------------------------


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  cer-gpu run late.ceql flights.parquet --time-column ts
  cer-gpu run 'SELECT * FROM S WHERE A ; B+ ; C WITHIN 100 EVENTS' day1.csv day2.csv -o found.parquet
  cer-gpu check late.ceql flights.parquet --time-column ts""",
)
@click.version_option(cer_gpu.__version__, prog_name="cer-gpu", message="%(prog)s %(version)s")
def cli() -> None:
    """Find complex events in recorded events with queries in CEQL."""


def _query_options(command: Command) -> Command:
    """Add the options that a query is compiled with."""
    options = [
        click.option("--type-column", metavar="NAME", help="Column of event types.  [default: type]"),
        click.option("--no-type-column", is_flag=True, help="The stream's name (FROM) is the type of all events."),
        click.option("--time-column", metavar="NAME", help="Column of times, which never decrease."),
        click.option("--time-unit", type=click.Choice(list(TIME_UNITS)), help="Unit of an integer time column."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@cli.command(
    epilog=f"""\b
Examples:
  cer-gpu run late.ceql flights.parquet --time-column ts
  cer-gpu run 'SELECT * FROM S WHERE A ; B' events.csv -o found.csv --limit 1000

The file OUT ends in {", ".join(ENDINGS)}, and appears whole at the end or not at all."""
)
@click.argument("query")
@click.argument("events", nargs=-1, required=True)
@click.option("-o", "out", metavar="OUT", help="Write the complex events to this file, instead of showing the first.")
@_query_options
@click.option("--device", type=click.Choice(DEVICES), default="auto", show_default=True, help="Where to evaluate.")
@click.option("--output", type=click.Choice(OUTPUTS), default="positions", show_default=True, help="What to output.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N complex events.")
@click.option("--sort", is_flag=True, help="Sort the events by time first.")
@click.option("--no-progress", is_flag=True, help="Show no progress bar (there is one on a terminal only).")
@click.pass_obj
def run(
    signals: _Signals,
    query: str,
    events: tuple[str, ...],
    out: str | None,
    type_column: str | None,
    no_type_column: bool,
    time_column: str | None,
    time_unit: str | None,
    device: str,
    output: str,
    limit: int | None,
    sort: bool,
    no_progress: bool,
) -> int:
    """Find the complex events of QUERY in EVENTS.

    QUERY is a file or the text itself. EVENTS are Parquet, Arrow IPC or CSV files, or folders of them, read one
    after the other.
    """
    name, text = _read_query(query)
    types = _type_column(type_column, no_type_column)
    compiled, errors = analyse(text, type_column=types, time_column=time_column, time_unit=time_unit)
    if compiled is None:
        _say_errors(errors, name)
        return 1
    evaluator = compiled.evaluator(device=device, output=output, sort=sort)
    source = open_events(list(events))
    try:
        schema = compiled.output_schema(source.schema, output)
    except CerError as error:
        _say_errors([error], name)
        return 1

    shown: list[pa.RecordBatch] = []
    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if out is None:
            write, n_wanted = shown.append, limit or PREVIEW_ROWS
        else:
            # a query in a file is an input too
            inputs = [*events, query] if name else events
            write, n_wanted = stack.enter_context(open_sink(out, schema, inputs)).write, None
        progress = stack.enter_context(_Display(evaluator, source.n_rows, hidden=no_progress))

        def tick() -> None:
            signals.check()
            progress.tick()

        n_found = 0
        for batch in compiled.matches(_Watched(source, tick), evaluator):
            found = batch if limit is None else batch.slice(0, limit - n_found)
            if n_wanted is None or n_found < n_wanted:
                write(found if n_wanted is None else found.slice(0, n_wanted - n_found))
            n_found += found.num_rows
            if n_found == limit:
                break
            tick()
    seconds = time.perf_counter() - begun

    if out is None:
        _show(pa.Table.from_batches(shown, schema), n_found, stopped=n_found == limit)
    rate = f"{evaluator.n_events / seconds:,.0f} rows/s"
    _say(
        f"{_count(evaluator.n_events, 'row')}, {_count(n_found, 'complex event')}, {seconds:.2f} s, {rate}"
        + (f"; stopped at --limit {limit}" if n_found == limit else "")
        + (f" -> {out}" if out is not None else "")
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
@_query_options
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
    name, text = _read_query(query)
    types = _type_column(type_column, no_type_column)
    said, columns = set[str](), list[str]()
    compiled = None
    for path in events or (None,):
        schema = None
        errors: list[CerError] = []
        try:
            schema = None if path is None else open_events(path).schema
        except CerError as error:
            errors.append(error)
        compiled, wrong = analyse(text, type_column=types, time_column=time_column, time_unit=time_unit, schema=schema)
        errors += wrong
        new = [error for error in errors if str(error) not in said]
        said.update(map(str, new))
        _say_errors(new, name)
        if len(events) > 1 and any(isinstance(error, QueryTypeError) for error in new):
            _say(f"(for the events in {path})")
        if compiled is not None and schema is not None:
            columns = compiled.columns(schema)
    n_errors = len(said)
    for note in compiled.notes if compiled else ():
        click.echo(f"note: {note}")
    if n_errors:
        _say(_count(n_errors, "error"))
        return 1
    if events:
        click.echo(f"ok: the query fits {', '.join(events)}, and reads {', '.join(columns) or 'none of their columns'}")
    else:
        click.echo("ok: the query has no errors")
    return 0


def _read_query(given: str) -> tuple[str | None, str]:
    """Return the name of the file that the query is in, if it is in one, and its text."""
    path = Path(given)
    if os.path.isfile(given):
        try:
            return given, path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise OptionError(f"{given}: is not text in UTF-8: {error.reason} at byte {error.start}") from None
    if given.endswith(".ceql") or not any(c.isspace() for c in given):  # a query has several words
        siblings = [p.name for p in path.parent.glob("*.ceql")]
        near = did_you_mean(path.name, siblings, "queries there")
        raise OptionError(f"{given!r} is neither a file nor the text of a query" + (f"\nhint: {near}" if near else ""))
    return None, given


def _type_column(name: str | None, none: bool) -> str | None:
    if none and name is not None:
        raise click.UsageError("--type-column and --no-type-column exclude each other")
    return None if none else name or "type"


# ---- messages ---------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    click.echo(text, err=True)


def _say_error(error: CerError | OSError, name: str | None = None) -> None:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    _say(click.style("error: ", fg="red", bold=True) + (f"{name}: " if name else "") + text)


def _say_errors(errors: Sequence[CerError], name: str | None) -> None:
    """Tell all errors; `name` is the file that the query is in."""
    for error in errors:
        _say_error(error, name if isinstance(error, QueryError) and error.text is not None else None)


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def _show(rows: pa.Table, n_found: int, *, stopped: bool) -> None:
    """Print the first complex events as a table."""
    if n_found == 0:
        click.echo("no complex events")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_list(column.type):
            table.add_column(name)
            columns.append([_shortened(positions) for positions in column.to_pylist()])
        else:
            table.add_column(name, justify="right", no_wrap=True)
            columns.append(times_as_text(column.combine_chunks()).to_pylist())
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    # as wide as it needs to be when it goes to a file or another program
    console = Console(width=None if sys.stdout.isatty() else 200)
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n"))
    if rows.num_rows < n_found:
        click.echo(f"the first {rows.num_rows:,} of {_count(n_found, 'complex event')}")
    else:
        click.echo(_count(n_found, "complex event") + (", and maybe more" if stopped else ""))


def _shortened(positions: list[int]) -> str:
    if len(positions) <= SHOWN_POSITIONS:
        return " ".join(map(str, positions))
    first = " ".join(map(str, positions[: SHOWN_POSITIONS - 2]))
    return f"{first} ... {positions[-1]} ({len(positions)} events)"


# ---- while it runs ----------------------------------------------------------------------------------------------


class _Watched(Source):
    """A source that calls `tick` before each batch that is read."""

    def __init__(self, source: Source, tick: Callable[[], None]) -> None:
        self.schema = source.schema
        self.n_rows = source.n_rows
        self.locate = source.locate  # type: ignore[method-assign]
        self._source = source
        self._tick = tick

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        for batch in self._source.batches(columns):
            self._tick()
            yield batch


class _Rate(ProgressColumn):
    """Rows, rows per second and complex events so far."""

    def render(self, task: Task) -> Text:
        n_matches = task.fields["n_matches"]
        rate = task.completed / task.elapsed if task.elapsed else 0.0
        return Text(f"{task.completed:,.0f} rows  {rate:,.0f} rows/s  {_count(n_matches, 'complex event')}")


class _Display:
    """A progress bar on the terminal, if stderr is one."""

    def __init__(self, evaluator: Evaluator, n_rows: int | None, *, hidden: bool) -> None:
        self._evaluator = evaluator
        console = Console(stderr=True)
        columns = [BarColumn(30)] if n_rows is not None else [SpinnerColumn()]
        self._progress = Progress(
            TextColumn("{task.description}"),
            *columns,
            _Rate(),
            console=console,
            transient=True,
            disable=hidden or not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=n_rows, n_matches=0)

    def __enter__(self) -> _Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tick(self) -> None:
        """Show how far the evaluator is."""
        n_events, n_matches = self._evaluator.n_events, self._evaluator.n_matches
        what = "evaluating" if n_events else "starting (the first run compiles the engine)"
        self._progress.update(self._task, completed=n_events, n_matches=n_matches, description=what)


class _Stopped(BaseException):
    """A signal asked this process to stop.  Not an Exception, as KeyboardInterrupt is not."""

    def __init__(self, signum: int) -> None:
        self.signum = signum


class _Signals:
    """Turns the first signal that asks to stop into `_Stopped`; later ones find the clean-up under way."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signum = getattr(signal, name, None)
            # one that is ignored stays so: nohup, or a job in the background of a script
            if signum is not None and signal.getsignal(signum) != signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        if self._received is None:
            self._received = signum
            raise _Stopped(signum)

    def check(self) -> None:
        """Raise `_Stopped` again where the first was lost, as in a callback, which has nobody to tell."""
        if self._received is not None:
            raise _Stopped(self._received)
