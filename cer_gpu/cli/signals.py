"""Signals that ask the process to stop, turned into an exception, so that clean-up runs."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

SIGPIPE = getattr(signal, "SIGPIPE", 13)
"""Signal number behind exit code 141, for a closed pipe; not caught, since Python ignores the signal."""


class Stopped(BaseException):
    """Request of a signal to stop; a BaseException, as KeyboardInterrupt is."""

    def __init__(self, signum: int) -> None:
        self.signum = signum


class Signals:
    """Handlers that raise `Stopped` on the first signal that asks to stop, and ignore later ones during clean-up."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._n_held = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        """Install the handlers."""
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signum = getattr(signal, name, None)
            # an ignored signal stays ignored: nohup, or a background job of a script
            if signum is not None and signal.getsignal(signum) != signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._receive)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Restore the previous handlers; an error of what a signal has cut short is that signal's."""
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        if isinstance(error, Exception):
            self.check()

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        # a held block may never end, as when a pipe has no reader: the second signal raises at once
        is_first = self._received is None
        if is_first:
            self._received = signum
        if is_first != bool(self._n_held):
            raise Stopped(signum)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Delay `Stopped` to the end of the block; a second signal raises it at once."""
        self._n_held += 1
        try:
            yield
        finally:
            self._n_held -= 1
        self.check()

    def check(self) -> None:
        """Raise `Stopped` if a signal was received but its exception lost, as in a callback."""
        if self._received is not None:
            raise Stopped(self._received)
