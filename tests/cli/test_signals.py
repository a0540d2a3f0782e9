"""Signals that stop a command."""

import contextlib
import signal

import pytest

from cer_gpu.cli.signals import Signals, Stopped


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
