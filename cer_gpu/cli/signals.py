"""Signals that ask the process to stop, turned into an exception, so that clean-up runs."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import pyarrow as pa

from cer_gpu.private_files import remove_unfinished
from cer_gpu.starting import SIGNALS, WATCHER

SIGPIPE = getattr(signal, "SIGPIPE", 13)
"""Signal number of exit code 141, for a closed pipe; not caught, as Python ignores the signal."""

CLEAN_UP_SECONDS = 0.6
"""Seconds that a stopped program has for its clean-up, before it is ended."""


class Stopped(BaseException):
    """Request of a signal to stop; a BaseException, as KeyboardInterrupt is."""

    def __init__(self, signum: int) -> None:
        self.signum = signum


class Signals:
    """Handlers that raise `Stopped` on the first signal that asks to stop, and ignore later ones during clean-up.

    Parameters
    ----------
    leave
        Ends the process, given the signal: called `CLEAN_UP_SECONDS` after the first one.  Compiled code, a blocked
        reader, or a disk that does not respond can take longer.  If None, nothing is called, and the previous handlers
        are restored at the end; else signals have no effect then, as the exit code is determined already.
    """

    def __init__(self, leave: Callable[[int], None] | None = None) -> None:
        self._leave = leave
        self._received: int | None = None
        self._n_deferred = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        """Install the handlers."""
        for signum in SIGNALS:
            # an ignored signal stays ignored: nohup, or a background job of a script
            if signal.getsignal(signum) != signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._receive)
        self._previous_hook = sys.unraisablehook
        sys.unraisablehook = self._report_error
        if self._leave is not None and self._before and os.name == "posix":
            pa.enable_signal_handlers(False)  # its own would replace these while it opens a CSV file
            _watch(self._before, self._leave)
            atexit.register(_ignore, self._before)  # Python restores all other handlers before exit
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Restore the previous handlers; an error after a signal is raised as `Stopped`."""
        for signum, handler in self._before.items():
            signal.signal(signum, handler if self._leave is None else _do_nothing)
        if self._leave is None:
            sys.unraisablehook = self._previous_hook
        if isinstance(error, Exception):
            self.check()

    def _report_error(self, error: Any, /) -> None:
        """Report an error that Python cannot raise, as in a finalizer, unless it is due to a signal."""
        if not isinstance(error.exc_value, Stopped):
            self._previous_hook(error)

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        # a block that defers may never end, as when a pipe has no reader: the second signal raises at once
        is_first = self._received is None
        if is_first:
            self._received = signum
        if is_first != bool(self._n_deferred):
            raise Stopped(signum)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Delay `Stopped` to the end of the block; a second signal raises it at once."""
        self._n_deferred += 1
        try:
            yield
        finally:
            self._n_deferred -= 1
        self.check()

    def check(self) -> None:
        """Raise `Stopped` if a signal was received but its exception lost, as in a callback."""
        if self._received is not None:
            raise Stopped(self._received)


def _ignore(signals: Iterable[int]) -> None:
    for signum in signals:
        signal.signal(signum, signal.SIG_IGN)


def _do_nothing(signum: int, frame: FrameType | None) -> None:
    """Ignore a signal, which only wakes the watching thread."""


def _watch(signals: dict[int, Any], leave: Callable[[int], None]) -> None:
    """Start a thread that ends the process shortly after the first signal, whatever the main thread is doing.

    Python handlers run only between bytecodes; the byte that wakes this thread is written immediately.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        while True:
            for signum in os.read(reader, 64):
                if signum in signals:
                    time.sleep(CLEAN_UP_SECONDS)
                    leave(signum)

    threading.Thread(target=watch, name=WATCHER, daemon=True).start()


def leave_at_once(code: int, words: str) -> None:
    """End the process with an exit code, and remove unfinished files.

    Parameters
    ----------
    code
    words
        Line for standard error, if it is writable now; may be empty.
    """
    remove_unfinished()
    with contextlib.suppress(OSError, ValueError):  # there may be no descriptor
        if words and select.select([], [2], [], 0)[1]:
            os.write(2, words.encode() + b"\n")
    remove_unfinished()  # made while the others were removed
    os._exit(code)
