"""The line that shows which loop is compiled: on a terminal alone, while it lasts, and in the display that is there."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cer_gpu import compile_progress
from cer_gpu.backend import jit
from cer_gpu.cli import main, warm
from cer_gpu.compile_progress import COMPILE_PROGRESS, NOTICE, NOTICES, CompileProgress, CompileStep
from cer_gpu.warming import N_KINDS, Warmed

ROOT = Path(__file__).parent.parent
STEP = CompileStep("find_runs", 3, 3, True)

# a query whose kernel has helpers, on events of which there are few
EVALUATION = """
import sys
import cer_gpu, pyarrow as pa
from cer_gpu import compile_progress
compile_progress.SHOWN_AFTER = 0.0
events = pa.table({"type": ["A", "B", "A", "B"]})
print(cer_gpu.compile("SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS").evaluate(events).num_rows)
"""

# a loop with a helper, compiled anew each time
SMALL = """
import numpy as np
from cer_gpu import compile_progress
from cer_gpu.backend import jit
compile_progress.SHOWN_AFTER = 0.0
@jit.helper
def twice(x):
    return x + x
def loop(values):
    total = 0.0
    for value in values:
        total += twice(value)
    return total
print(jit.kernel(loop, keep=False)(np.array([1.5, 3.0])))
"""


def environment(folder, **more):
    """Variables of a process that has compiled nothing yet."""
    given = {name: value for name, value in os.environ.items() if name != NOTICES}
    return {**given, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", **more}


def on_terminal(command, **settings):
    """Run a command whose standard error is a terminal; return what it writes to standard output, and there."""
    ours, theirs = os.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, cwd=ROOT, text=True, **settings) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while block := os.read(ours, 1 << 16):
                shown += block
        out = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0, shown
    return out, shown.decode()


def remaining(shown):
    """What a terminal still shows at the end, given what was written to it: text behind the last erased line."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]", "", shown.rpartition("\x1b[2K")[2])


@pytest.mark.long("compiles loops anew")
def test_a_terminal_shows_each_loop_and_how_many_functions_are_left_and_a_second_run_nothing(tmp_path):
    command = [sys.executable, "-c", EVALUATION]
    out, shown = on_terminal(command, env=environment(tmp_path))
    assert out == "3\n"
    seen = re.findall(r"compiling (\w+) \(once\)(?:: (\d+) of (\d+) functions left)?", shown)
    loops = {name: [(int(left), int(of)) for each, left, of in seen if each == name and of] for name, _, _ in seen}
    assert len(loops) >= 3
    assert sum(map(bool, loops.values())) >= 2  # those that call others
    for steps in filter(None, loops.values()):
        assert len({of for _, of in steps}) == 1
        assert steps == sorted(steps, reverse=True)
        assert all(1 <= left <= of for left, of in steps)
    assert remaining(shown) == ""
    assert on_terminal(command, env=environment(tmp_path)) == ("3\n", "")


@pytest.mark.long("compiles loops anew")
def test_a_pipe_gets_nothing_and_neither_does_a_terminal_where_the_environment_says_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SMALL)
    command = [sys.executable, str(script)]
    out, shown = on_terminal(command, env=environment(tmp_path))
    assert out == "9.0\n"
    assert "compiling loop: 2 of 2 functions left" in shown
    assert remaining(shown) == ""
    assert on_terminal(command, env=environment(tmp_path, CER_GPU_NOTICES="off")) == ("9.0\n", "")
    done = subprocess.run(command, env=environment(tmp_path), cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("9.0\n", "")


@pytest.mark.long("compiles loops anew")
def test_the_bar_of_the_command_line_shows_the_loops(tmp_path):
    events = tmp_path / "events.csv"
    events.write_text("type\n" + "A\nB\n" * 20)
    query = "SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS"
    command = [sys.executable, "-m", "cer_gpu", "run", query, str(events), "--output", "count"]
    _, shown = on_terminal(command, env=environment(tmp_path))
    assert re.search(r"compiling \w+ \(once\): \d+ of \d+ functions left", shown)


@pytest.mark.parametrize("option", ["--no-progress", "--json"])
def test_options_that_ask_for_silence_leave_out_the_line(option, tmp_path, monkeypatch):
    monkeypatch.setenv(NOTICES, "on")
    monkeypatch.delenv(NOTICES)  # and as it was afterwards
    events = tmp_path / "events.csv"
    events.write_text("type\nA\n")
    assert main(["run", "SELECT * FROM S WHERE A", str(events), option]) == 0
    assert os.environ[NOTICES] == "off"


def test_warm_shows_how_many_kinds_are_done_and_the_loop(monkeypatch, capsys):
    def kinds():
        for i in range(2):
            COMPILE_PROGRESS.begin(STEP)
            COMPILE_PROGRESS.go_on(2)
            COMPILE_PROGRESS.end()
            yield Warmed(f"kind {i}", 3)

    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(warm, "warm", kinds)
    assert main(["warm"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("kind 0: 3 functions compiled\nkind 1: 3 functions compiled\n6 functions compiled in ")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err)
    for i in range(2):
        assert f"{i}/{N_KINDS} compiling find_runs (once): 2 of 3 functions left" in shown
    assert remaining(err) == ""


class Terminal:
    """A standard error: pytest sets its own between a fixture and a test."""

    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """A progress, and what is shown on a terminal."""
    steps = []

    class Line:
        def show(self, step):
            steps.append(step)

    monkeypatch.delenv(NOTICES, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(compile_progress, "_TerminalLine", Line)
    return CompileProgress(), steps


def test_what_takes_less_than_a_second_in_all_is_not_shown(shown, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress, steps = shown
    for _ in range(3):
        progress.begin(STEP)
        progress.go_on(1)
        progress.end()
    assert steps == []
    assert 0 < progress.seconds < 1
    progress.seconds = 1.5
    progress.begin(STEP)
    progress.go_on(1)
    progress.end()
    assert steps == [STEP, STEP._replace(n_left=1), None]


def test_one_loop_that_takes_long_is_shown_while_it_does(shown, monkeypatch):
    monkeypatch.setattr(compile_progress, "SHOWN_AFTER", 0.01)
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress, steps = shown
    progress.begin(STEP)
    until = time.monotonic() + 30
    while not steps and time.monotonic() < until:
        time.sleep(0.01)
    progress.end()
    assert steps == [STEP, None]


def test_the_display_that_is_there_shows_steps_at_once_in_place_of_a_line(shown, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress, steps = shown
    given = []
    with progress.shown_by(given.append):
        progress.begin(STEP)
        progress.end()
    progress.begin(STEP)
    progress.end()
    assert given == [STEP, None]
    assert steps == []


@pytest.mark.parametrize("where", ["ipykernel.iostream", "rich.file_proxy", "dumb"])
def test_notebooks_other_displays_and_dumb_terminals_get_one_sentence(where, shown, monkeypatch):
    progress, steps = shown
    written = []

    class Stream:
        def isatty(self):
            return where == "dumb"

        def write(self, text):
            written.append(text)

        def flush(self):
            pass

    Stream.__module__ = where
    monkeypatch.setattr(sys, "stderr", Stream())
    monkeypatch.setenv("TERM", "dumb" if where == "dumb" else "xterm")
    progress.seconds = 5.0
    for _ in range(2):
        progress.begin(STEP)
        progress.end()
    assert written == [NOTICE]
    assert steps == []


@pytest.mark.parametrize("stream", [None, "closed"])
def test_without_a_stream_nothing_is_shown(stream, shown, monkeypatch, tmp_path):
    progress, steps = shown
    if stream is not None:
        stream = (tmp_path / "closed").open("w")
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    progress.seconds = 5.0
    progress.begin(STEP)
    progress.end()
    assert steps == []


def test_a_display_that_fails_does_not_end_an_evaluation(shown):
    progress, _ = shown

    def fail(step):
        raise OSError("the terminal is gone")

    with progress.shown_by(fail):
        progress.begin(STEP)
        progress.go_on(2)
        progress.end()


@jit.helper
def _twice(x):
    return x + x


@jit.helper
def _four_times(x):
    return _twice(_twice(x))


def _loop(values):
    total = 0.0
    for value in values:
        total += _four_times(value) + _twice(value)
    return total


def test_the_functions_of_a_loop_are_those_that_it_calls_directly_or_not():
    progress, steps = CompileProgress(), []
    listener = jit.Compiling(progress)
    compiled = jit.kernel(_loop, keep=False)
    jit.event.register("numba:compile", listener)
    try:
        with progress.shown_by(steps.append):
            assert compiled(np.array([1.0, 2.0])) == 18.0
            assert compiled(np.array([1.0, 2.0], np.float32)) == 18.0
    finally:
        jit.event.unregister("numba:compile", listener)
    first = [CompileStep("_loop", left, 3, False) for left in (3, 2, 1)]
    assert steps[:4] == [*first, None]
    assert steps[4] == CompileStep("_loop", 1, 1, False)  # its helpers are compiled, if for other types
    assert steps[-1] is None
    assert str(first[1]) == "compiling _loop: 2 of 3 functions left"
    assert str(STEP) == "compiling find_runs (once): 3 of 3 functions left"
    assert str(steps[4]) == "compiling _loop"
