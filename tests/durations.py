"""The time that tests take, file by file, beside the time that `make test` may take.

`make test` is to answer within five minutes on two cores, and stays there only if no file grows. Each process measures
its tests; the one that reports adds them up. A file is judged by the time of the processor, which other work on the
machine changes little, and without what Numba compiles: the first test that needs a loop compiles it for all. What is
over the limit is named, and fails no run: machines differ too much in speed.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass

import pytest
from numba.core import event

FILE_SECONDS = 10.0  # of one file without tests marked `long`
TOTAL_SECONDS = 600.0  # of all of them: two cores for five minutes
SLOWEST = 20
CPU, COMPILING = "cpu seconds", "compiling seconds"


@dataclass
class Times:
    """Seconds of a test or of a file."""

    wall: float = 0.0
    cpu: float = 0.0
    compiling: float = 0.0

    @property
    def own(self) -> float:
        """Seconds of the processor without compiling."""
        return max(self.cpu - self.compiling, 0.0)


def _cpu_seconds():
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Compiling(event.Listener):
    """Seconds of the processor that Numba's compiler took in this process."""

    def __init__(self):
        self.seconds = self._begun = 0.0
        self._depth = 0

    def on_start(self, event):
        self._begun = self._begun if self._depth else time.process_time()
        self._depth += 1

    def on_end(self, event):
        self._depth -= 1
        self.seconds += 0.0 if self._depth else time.process_time() - self._begun


COMPILER = Compiling()
event.register("numba:compile", COMPILER)
BEGUN = pytest.StashKey[tuple[float, float]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Note the clocks before the first phase of a test."""
    item.stash[BEGUN] = (_cpu_seconds(), COMPILER.seconds)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Put what a test took into the report of its last phase, which all processes send to the one that reports."""
    report = yield
    if call.when == "teardown":
        cpu, compiling = item.stash[BEGUN]
        report.user_properties += [(CPU, _cpu_seconds() - cpu), (COMPILING, COMPILER.seconds - compiling)]
    return report


class Durations:
    """The sums of all tests of a run, by file."""

    def __init__(self, *, only_short):
        self.files = defaultdict(Times)
        self.tests = defaultdict(Times)
        self.begun = time.perf_counter()
        self.only_short = only_short

    def pytest_runtest_logreport(self, report):
        properties = dict(report.user_properties) if report.when == "teardown" else {}
        for times in (self.files[report.nodeid.partition("::")[0]], self.tests[report.nodeid]):
            times.wall += report.duration
            times.cpu += properties.get(CPU, 0.0)
            times.compiling += properties.get(COMPILING, 0.0)

    def too_long(self):
        """Return the files that take longer than a file may, with their seconds."""
        return {file: times.own for file, times in self.files.items() if times.own > FILE_SECONDS}

    def pytest_terminal_summary(self, terminalreporter):
        if not self.only_short and len(self.files) < 2:
            return
        cpu, compiling = (sum(getattr(t, name) for t in self.files.values()) for name in ("cpu", "compiling"))
        terminalreporter.section("durations")
        line = f"{len(self.tests):,} tests took {cpu:,.0f} s of the processor, {compiling:,.0f} s of it to compile"
        limit = f", of {TOTAL_SECONDS:,.0f} s (five minutes of two cores)" if self.only_short else ""
        terminalreporter.write_line(f"{line}{limit}; {time.perf_counter() - self.begun:,.0f} s by the clock")
        slowest = sorted(self.files.items(), key=lambda item: -item[1].cpu)[:SLOWEST]
        terminalreporter.write_line("slowest files: seconds of the processor, of these to compile, by the clock")
        for file, times in slowest:
            terminalreporter.write_line(f"{times.cpu:8.1f} {times.compiling:8.1f} {times.wall:8.1f}  {file}")
        for file, seconds in self.too_long().items() if self.only_short else ():
            terminalreporter.write_line(
                f"{file} takes {seconds:.1f} s without compiling; a file of `make test` may take {FILE_SECONDS:.0f}. "
                "Mark what is slow in it, with the reason: @pytest.mark.long('...')",
                red=True,
            )
