"""Signals that stop a command."""

import contextlib
import signal

import pytest

from cer_gpu.cli.signals import Signals, Stopped


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
