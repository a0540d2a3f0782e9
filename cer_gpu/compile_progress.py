"""Progress of the compilation of loops: which one is compiled, how far it is, and that this happens once.

The first query of a kind compiles its loops, unless machine code for them is cached or came with the package.  On a
terminal a line shows it while it lasts, a notebook gets one sentence, and a pipe or a file gets nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

SHOWN_AFTER = 1.0
"""Seconds of compiling in one process, after which it is shown."""
NOTICE = "cer-gpu: compiling its loops for this machine; they are kept for later runs where the cache can be written\n"
NOTICES = "CER_GPU_NOTICES"
"""Environment variable that leaves out the line and the sentence if it is "off"."""


class CompileStep(NamedTuple):
    """A loop that is compiled.

    Attributes
    ----------
    loop
        Name of its function.
    n_left
        Functions that are still to be compiled for it: helpers that it calls, and itself.
    n_functions
        Number of these at the begin.
    is_cached
        True if it is cached on disk for later processes.
    """

    loop: str
    n_left: int
    n_functions: int
    is_cached: bool

    def __str__(self) -> str:
        """Return it in words."""
        once = " (once)" if self.is_cached else ""
        left = f": {self.n_left} of {self.n_functions} functions left" if self.n_functions > 1 else ""
        return f"compiling {self.loop}{once}{left}"


Show = Callable[[CompileStep | None], None]
"""Shows a step, or removes what was shown."""


class CompileProgress:
    """The loop that is compiled now, shown to whoever waits for it.

    Attributes
    ----------
    seconds : float
        Wall-clock time of compiling so far.
    n_loops : int
        Loops that were compiled so far.
    """

    def __init__(self) -> None:
        self.seconds: float = 0.0
        self.n_loops: int = 0
        self._lock = threading.RLock()
        self._shows: list[Show] = []
        self._line: _TerminalLine | None = None
        self._said = False
        self._step: CompileStep | None = None
        self._begun = 0.0
        self._timer: threading.Timer | None = None
        self._show: Show | None = None  # what shows the current loop

    @contextlib.contextmanager
    def shown_by(self, show: Show) -> Iterator[None]:
        """Let `show` show what is compiled during the block, instead of a line or a sentence."""
        self._shows.append(show)
        try:
            yield
        finally:
            self._shows.remove(show)

    def begin(self, step: CompileStep) -> None:
        """Begin with a loop."""
        with self._lock:
            self._begun, self._step = time.perf_counter(), step
            show = self._shows[-1] if self._shows else self._default()
            if show is None:
                return
            after = 0.0 if self._shows else SHOWN_AFTER - self.seconds
            if after <= 0:
                self._show = show
                self._update()
                return
            self._timer = threading.Timer(after, self._late, (show,))
            self._timer.daemon = True
            self._timer.start()

    def go_on(self, n_left: int) -> None:
        """Go on to the next function of the loop."""
        with self._lock:
            if self._step is not None:
                self._step = self._step._replace(n_left=n_left)
                self._update()

    def end(self) -> None:
        """End with the loop."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self.seconds += time.perf_counter() - self._begun
            self.n_loops += 1
            self._step = self._timer = None
            self._update()
            self._show = None

    def _late(self, show: Show) -> None:
        with self._lock:
            if self._step is not None:
                self._show = show
                self._update()

    def _update(self) -> None:
        if self._show is not None:
            with contextlib.suppress(Exception):  # a terminal that is gone must not end an evaluation
                self._show(self._step)

    def _default(self) -> Show | None:
        """Return what shows steps where nothing else was given; None for nothing."""
        stream: Any = sys.stderr
        if os.environ.get(NOTICES) == "off" or stream is None:
            return None
        # within a display of rich a line of our own would damage it
        if type(stream).__module__.partition(".")[0] in ("ipykernel", "rich"):
            return self._say
        try:
            if not stream.isatty():
                return None
        except (AttributeError, ValueError):  # closed
            return None
        if os.environ.get("TERM", "") in ("dumb", "unknown"):
            return self._say
        self._line = self._line or _TerminalLine()
        return self._line.show

    def _say(self, step: CompileStep | None) -> None:
        """Write `NOTICE`, once in a process."""
        if step is not None and not self._said:
            self._said = True
            sys.stderr.write(NOTICE)
            sys.stderr.flush()


class _TerminalLine:
    """A line on the terminal that shows the steps, and is erased at the end."""

    def __init__(self) -> None:
        # rich is not loaded by processes that compile nothing
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),  # else it would take lines from a pipe
        )
        self._task = self._progress.add_task("", total=None)

    def show(self, step: CompileStep | None) -> None:
        """Show a step, or remove the line."""
        if step is None:
            self._progress.stop()
        else:
            self._progress.update(self._task, description=str(step))
            self._progress.start()


COMPILE_PROGRESS = CompileProgress()
"""Progress of this process."""
