"""Signals that stop a command."""

import contextlib
import signal
import sys

import pytest

from cer_gpu.cli.signals import Signals, Stopped
from cer_gpu.starting import exit_code


@pytest.fixture(autouse=True)
def _heeded():
    """Signals are not ignored, as those of a process that a shell runs in the background are."""
    before = {signum: signal.signal(signum, signal.SIG_DFL) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


def fail_after(*signals):
    with Signals():
        for signum in signals:
            with contextlib.suppress(Stopped):  # lost, as in a callback of the compiler
                signal.raise_signal(signum)
        raise RuntimeError("no compiled object yet")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_error_of_what_a_signal_cut_short_is_told_as_that_signal(signum):
    with pytest.raises(Stopped) as stopped:
        fail_after(signum)
    assert stopped.value.signum == signum


def test_an_error_without_a_signal_is_told_as_it_is():
    with pytest.raises(RuntimeError, match="no compiled object"):
        fail_after()


class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_in_a_finalizer_is_no_traceback(capsys):
    before = sys.unraisablehook
    with Signals() as signals:
        Finalized()
        with pytest.raises(Stopped):
            signals.check()
    assert capsys.readouterr().err == ""
    assert sys.unraisablehook is before


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["run", "q.ceql", "in.csv"], 143),
        (["run", "q.ceql", "--follow", "in", "-o", "out"], 0),
        (["run", "q.ceql", "--follow=in", "-o", "out"], 0),
        (["run", "q.ceql", "--follow", "in", "-o", "out", "--once"], 143),
        (["explain", "--follow"], 143),
        ([], 143),
    ],
)
def test_only_a_run_that_waits_for_files_ends_well_by_a_signal(args, code):
    assert exit_code(signal.SIGTERM, args) == code
    assert exit_code(signal.SIGHUP, args) == 129
