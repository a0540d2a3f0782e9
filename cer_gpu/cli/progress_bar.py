"""Progress of an evaluation: a bar or a status line on the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from cer_gpu.cli.tally import Totals
from cer_gpu.compile_progress import COMPILE_PROGRESS, CompileStep
from cer_gpu.io.source import Source, with_batches
from cer_gpu.printable import printable_lines
from cer_gpu.stages import MeasuredStages


def with_ticks(source: Source, tick: Callable[[], None]) -> Source:
    """Return a source that calls `tick` after reading each batch, before yielding it."""

    def ticking(batch: pa.RecordBatch) -> pa.RecordBatch:
        tick()
        return batch

    return with_batches(source, ticking)


class Display:
    """Progress bar on standard error, if that is a terminal.

    Parameters
    ----------
    n_rows
        Number of events, or None if unknown.
    totals
        Counts of the matches.
    stages
        Hook of the evaluation: the bar names the stage that has taken the most time.
    hidden
        True for no bar at all.
    sorts
        True if the events are sorted before the first is evaluated.
    """

    def __init__(
        self, n_rows: int | None, totals: Totals, stages: MeasuredStages, *, hidden: bool, sorts: bool = False
    ) -> None:
        self._totals = totals
        self._stages = stages
        self._now = "sorting" if sorts else "starting (the first run compiles the engine)"
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
        self._task = self._progress.add_task(self._now, total=n_rows, matches=str(totals))
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Display:
        """Show the bar."""
        self._progress.start()
        if not self._progress.disable:
            self._stack.enter_context(COMPILE_PROGRESS.shown_by(self._compiling))
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the bar."""
        self._stack.close()
        self._progress.stop()

    @contextlib.contextmanager
    def cleared(self) -> Iterator[None]:
        """Clear the bar during the block, which prints."""
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()

    def say(self, text: str) -> None:
        """Print a line above the bar, if there is one."""
        if not self._progress.disable:
            self._progress.console.print(Text(printable_lines(text)), soft_wrap=True)

    def tick(self, n_events: int) -> None:
        """Update the bar to the number of events that were evaluated."""
        if n_events:
            slowest = self._stages.slowest
            self._now = "evaluating" if slowest is None else f"evaluating, mostly {slowest}"
        self._progress.update(self._task, completed=n_events, matches=str(self._totals), description=self._now)

    def _compiling(self, step: CompileStep | None) -> None:
        self._progress.update(self._task, description=self._now if step is None else str(step))


@contextlib.contextmanager
def working(status: str) -> Iterator[None]:
    """Show a status line on standard error, if that is a terminal, during the block."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(Text(status)) as shown:

        def show(step: CompileStep | None) -> None:
            shown.update(Text(status if step is None else str(step)))

        with COMPILE_PROGRESS.shown_by(show):
            yield


class WarmingBar:
    """Progress bar of the kinds of queries whose kernels are compiled, on standard error, if that is a terminal.

    Parameters
    ----------
    n_kinds
    """

    def __init__(self, n_kinds: int) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            BarColumn(8),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # else lines for a pipe would go to the terminal
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=n_kinds)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> WarmingBar:
        """Show the bar."""
        self._stack.enter_context(self._progress)
        self._stack.enter_context(COMPILE_PROGRESS.shown_by(self._compiling))
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the bar."""
        self._stack.close()

    def advance(self) -> None:
        """Count one more kind."""
        self._progress.advance(self._task)

    def _compiling(self, step: CompileStep | None) -> None:
        self._progress.update(self._task, description="" if step is None else str(step), refresh=True)


class _Rate(ProgressColumn):
    """Column of rows, rows per second and matches so far."""

    def render(self, task: Task) -> Text:
        """Return the text of the column; empty before the first rows, to leave space for compile progress."""
        if not task.completed:
            return Text()
        rate = task.completed / task.elapsed if task.elapsed else 0.0
        return Text(f"{task.completed:,.0f} rows  {rate:,.0f} rows/s  {task.fields['matches']}")
