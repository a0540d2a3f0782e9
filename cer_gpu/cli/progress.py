"""How far a run is: a bar on the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from cer_gpu.cli.tally import Tally
from cer_gpu.engine.evaluator import Evaluator
from cer_gpu.io.sources import Parts, Source


class Watched(Source):
    """A source that calls `tick` before each batch that is read."""

    def __init__(self, source: Source, tick: Callable[[], None]) -> None:
        def ticking(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                tick()
                yield batch

        parts = source.parts
        if parts is not None:
            read = parts.read
            parts = Parts(parts.begins, lambda columns, begin, end: ticking(read(columns, begin, end)))
        super().__init__(
            source.schema,
            lambda columns: ticking(source.batches(columns)),
            source.n_rows,
            rereadable=source.rereadable,
            in_memory=source.in_memory,
            reads_ahead=source.reads_ahead,
            reads_fields=source.reads_fields,
            parts=parts,
        )
        self.locate = source.locate  # type: ignore[method-assign]


class Display:
    """A progress bar on the terminal, if stderr is one.

    Parameters
    ----------
    n_rows
        How many events there are, where it is known.
    tally
        Of what is found.
    hidden
        Whether there is none at all.
    sorts
        Whether the events are sorted before the first is evaluated.
    """

    def __init__(self, n_rows: int | None, tally: Tally, *, hidden: bool, sorts: bool = False) -> None:
        self._tally = tally
        self._first = "sorting" if sorts else "starting (the first run compiles the engine)"
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
        self._task = self._progress.add_task(self._first, total=n_rows, found=str(tally))

    def __enter__(self) -> Display:
        """Show it."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Clear it."""
        self._progress.stop()

    def tick(self, evaluator: Evaluator) -> None:
        """Show how far an evaluator is."""
        n_events = evaluator.n_pushed
        what = "evaluating" if n_events else self._first
        self._progress.update(self._task, completed=n_events, found=str(self._tally), description=what)


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Say on the terminal, if stderr is one, what is being done, for as long as it is."""
    console = Console(stderr=True)
    with console.status(what) if console.is_terminal else contextlib.nullcontext():
        yield


class _Rate(ProgressColumn):
    """Rows, rows per second and what was found so far."""

    def render(self, task: Task) -> Text:
        """Return the text."""
        rate = task.completed / task.elapsed if task.elapsed else 0.0
        return Text(f"{task.completed:,.0f} rows  {rate:,.0f} rows/s  {task.fields['found']}")
