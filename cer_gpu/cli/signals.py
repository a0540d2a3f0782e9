"""Signals that ask a process to stop, as an exception that ends what it does in good order."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

SIGPIPE = getattr(signal, "SIGPIPE", 13)
"""Not caught, as Python ignores it: the number for the exit code where nobody reads the output any more."""


class Stopped(BaseException):
    """A signal asked this process to stop.  Not an Exception, as KeyboardInterrupt is not."""

    def __init__(self, signum: int) -> None:
        self.signum = signum


class Signals:
    """Turns the first signal that asks to stop into `Stopped`; later ones find the clean-up under way."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._n_held = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        """Begin to catch them."""
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signum = getattr(signal, name, None)
            # one that is ignored stays so: nohup, or a job in the background of a script
            if signum is not None and signal.getsignal(signum) != signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave them as they were."""
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        # what is held may hold for ever, as when nobody reads a pipe: the second signal does not wait
        is_first = self._received is None
        if is_first:
            self._received = signum
        if is_first != bool(self._n_held):
            raise Stopped(signum)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Put off `Stopped` until the end of the block; a second signal does not wait for it."""
        self._n_held += 1
        try:
            yield
        finally:
            self._n_held -= 1
        self.check()

    def check(self) -> None:
        """Raise `Stopped` again where the first was lost, as in a callback, which has nobody to tell."""
        if self._received is not None:
            raise Stopped(self._received)
