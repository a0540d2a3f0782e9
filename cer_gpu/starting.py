"""Signals that ask to stop before the modules of the program are there, and the exit code at any time.

Only modules that Python has loaded already are imported here: this is the first module of the package that runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask to stop."""

WATCHER = "cer_gpu signals"
"""Name of the thread that waits for signals, and does nothing else."""

_PROGRAMS = ("cer-gpu", "cer-gpu.exe", "cer-gpu-script.py", "cer-gpu-script.pyw")
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)


def exit_code(signum: int, args: Sequence[str]) -> int:
    """Return the exit code of a command line that a signal has stopped.

    0 for a live run that waits for files until Ctrl-C or SIGTERM, else 128 and the number of the signal.

    Examples
    --------
    >>> exit_code(2, ["run", "late.ceql", "flights.csv"]), exit_code(2, ["run", "late.ceql", "--follow", "in"])
    (130, 0)
    """
    options = [each.partition("=")[0] for each in args]
    endless = args[:1] == ["run"] and "--follow" in options and "--once" not in options
    return 0 if endless and signum in (signal.SIGINT, signal.SIGTERM) else 128 + signum


def stop_words(signum: int, *, as_json: bool) -> str:
    """Return the line that says which signal has stopped the program."""
    name = signal.Signals(signum).name
    text = "interrupted" if name == "SIGINT" else f"stopped by {name}"
    return f'{{"errors": [{{"type": "Stopped", "message": "{text}"}}]}}' if as_json else text


def leave_at_signals() -> None:
    """Let signals end the process at once, without a traceback, if it is the program of the command line.

    A signal that is ignored, or for which there is a handler, is left as it is; so are the signals of a process that
    only imports the package.
    """
    if not _is_program():
        return
    with contextlib.suppress(ValueError):  # only the first thread may
        for signum in SIGNALS:
            if signal.getsignal(signum) in _DEFAULTS:
                signal.signal(signum, _leave_process)


def _is_program() -> bool:
    if not getattr(sys, "argv", None):
        return False
    if sys.argv[0] != "-m":
        return os.path.basename(sys.argv[0]) in _PROGRAMS
    args = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]  # before the arguments
    return args[-2:] == ["-m", "cer_gpu"] or args[-1:] == ["-mcer_gpu"]


def _leave_process(signum: int, frame: FrameType | None) -> None:
    args = sys.argv[1:]
    with contextlib.suppress(OSError):
        os.write(2, stop_words(signum, as_json="--json" in args).encode() + b"\n")
    os._exit(exit_code(signum, args))
