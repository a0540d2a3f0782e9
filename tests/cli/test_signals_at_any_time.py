"""Each signal that asks to stop, at random moments of ten kinds of work, and of the imports of the program."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from command_line import start
from sizes import SEED, scaled

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="signals are looked up in /proc")

SIGNALS = {"SIGINT": "interrupted", "SIGTERM": "stopped by SIGTERM", "SIGHUP": "stopped by SIGHUP"}
SECONDS = 1.0
"""Within which a signal is answered."""
SLACK = 4.0
"""Most seconds of one answer where other processes have the processors; half of all are answered in SECONDS."""

PAIRS = "SELECT * FROM S WHERE A AS a ; B AS b FILTER a.x < b.x"
LARGEST = "SELECT MAX * FROM S WHERE A+ AS a ; B+ AS b FILTER a.x < b.x"
FOLLOW = ["--follow", "in", "--settle", "0", "--poll", "0.05", "-o"]
WORK = {
    "choosing the largest": ["run", LARGEST, "many.parquet", "-o", "out.parquet"],
    "counting the largest": ["run", LARGEST, "many.parquet", "--output", "count"],
    "compiling": ["run", PAIRS, "few.parquet", "-o", "out.csv"],
    "reading CSV": ["run", "SELECT * FROM S WHERE C ; D", "many.csv", "-o", "out.jsonl"],
    "writing Parquet": ["run", PAIRS, "many.parquet", "-o", "out.parquet"],
    "writing CSV": ["run", PAIRS, "many.parquet", "-o", "out.csv", "--threads", "2"],
    "sorting": [
        "run",
        "SELECT * FROM S WHERE A ; B",
        "late.parquet",
        "--sort",
        "--time-column",
        "ts",
        "-o",
        "out.arrow",
    ],
    "loading 1,000 rules": ["run", "--queries", "rules", "few.parquet", "-o", "out.jsonl"],
    "waiting for files": ["run", PAIRS, *FOLLOW, "out"],
    "making a page": ["report", PAIRS, "few.parquet", "-o", "out.html"],
}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with events and rules."""
    folder = tmp_path_factory.mktemp("given")
    draws = np.random.default_rng(1)
    x = draws.integers(0, 1000, 3000)
    many = pa.table({"type": draws.choice(["A", "B"], len(x)), "x": x})
    pq.write_table(many, folder / "many.parquet")
    pq.write_table(many.slice(0, 60), folder / "few.parquet")
    pa_csv.write_csv(pa.concat_tables([many] * 500), folder / "many.csv")
    ts = pa.array(draws.integers(0, 10**9, 1 << 20), pa.timestamp("us"))
    pq.write_table(pa.table({"type": draws.choice(["A", "B", "C"], len(ts)), "ts": ts}), folder / "late.parquet")
    (folder / "rules").mkdir()
    for i in range(1000):
        (folder / "rules" / f"rule{i}.ceql").write_text(f"SELECT * FROM S WHERE A AS a ; B AS b FILTER a.x < b.x + {i}")
    (folder / "in").mkdir()
    pq.write_table(many.slice(0, 50), folder / "in" / "0.parquet")
    return folder


def files():
    """Return all files and folders here."""
    return {path.as_posix() for path in Path().rglob("*")}


def caught(pid):
    """Return whether a process has a handler of its own for SIGTERM."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def expected_of(args, name):
    """Return exit code and words of a command that a signal has stopped."""
    live = "--follow" in args and name != "SIGHUP"
    return (0 if live else 128 + getattr(signal, name)), SIGNALS[name]


def sent(process, name, delay):
    """Send a signal; return the seconds until the process ended, what it said, and whether it was over before."""
    deadline = time.monotonic() + 60
    while not caught(process.pid) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(delay)
    over = process.poll() is not None
    begun = time.monotonic()
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=60)
    return time.monotonic() - begun, out, err, over


def stopped(args, name, delay, monkeypatch):
    """Stop a command, and hold that it ended as the docs say; return the seconds that it took to end."""
    Path("tmp").mkdir(exist_ok=True)
    monkeypatch.setenv("TMPDIR", os.path.abspath("tmp"))
    before = files()
    # the moment is drawn anew in each run of the work, whatever is compiled already
    crash = "import faulthandler; faulthandler.enable()"  # a process that crashes says where
    process = start(*args, before=crash, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    seconds, _, err, over = sent(process, name, delay)
    case = f"{args} {name} after {delay:.3f} s: {err}"
    code, words = expected_of(args, name)
    assert "Traceback" not in err, case
    left = files() - before
    if process.returncode == 0 and ("--follow" not in args or over):
        left = {each for each in left if not each.startswith("out")}  # it was done
    else:
        assert process.returncode == code, case
        assert words in err or (code == 0 and "->" in err), case
    if "--follow" in args:
        assert not [each for each in left if each.endswith(".part")], case
        left = {each for each in left if not each.startswith("out")}
    assert not left, case
    for each in Path().glob("out*"):
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    return seconds


def draws(work, n):
    """Yield moments and signals, the same in each run unless a seed is given."""
    random_of = random.Random(f"{work} {SEED}")
    for _ in range(n):
        yield random_of.choice([*SIGNALS]), random_of.choice([0.2, 1.0, 4.0]) * random_of.random()


@pytest.fixture
def work_here(given, tmp_path, monkeypatch):
    shutil.copytree(given, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return monkeypatch


@pytest.mark.long("processes that run for seconds")
@pytest.mark.parametrize("work", WORK)
def test_each_signal_is_answered_within_a_second_and_leaves_nothing(work, work_here, tmp_path):
    seconds = []
    for i, (name, delay) in enumerate(draws(work, scaled(25, most=100))):
        if work == "compiling":
            work_here.setenv("NUMBA_CACHE_DIR", str(tmp_path / f"loops{i}"))
            work_here.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache{i}"))
        seconds.append(stopped(WORK[work], name, delay, work_here))
        assert not [*tmp_path.glob("loops*/**/.*.part"), *tmp_path.glob("cache*/**/.*.part")]
    assert np.median(seconds) < SECONDS
    assert max(seconds) < SLACK


def as_from_a_terminal():
    """Let signals do what they do by themselves, whatever started the tests (`nohup`) ignores."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)


@pytest.mark.parametrize("module", [True, False], ids=["python -m", "script"])
def test_a_signal_during_the_imports_ends_the_program_at_once(work_here, module):
    n_seconds = []
    for name, delay in [*draws("imports", scaled(25, most=300)), ("SIGTERM", 0), ("SIGINT", 0.3)]:
        args = [*WORK["waiting for files"]] if delay < 0.5 else [*WORK["compiling"], "--json"]
        script = Path(sys.executable).with_name("cer-gpu")
        if not module and not script.exists():
            pytest.skip("the script is not installed")
        command = [sys.executable, "-m", "cer_gpu"] if module else [str(script)]
        path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [*command, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            preexec_fn=as_from_a_terminal,
        )
        seconds, out, err, over = sent(process, name, delay % 0.8)
        code, words = expected_of(args, name)
        if over and process.returncode == 0:
            continue
        assert (process.returncode, out) == (code, ""), f"{name} after {delay % 0.8}: {err}"
        assert err == (
            f'{{"errors": [{{"type": "Stopped", "message": "{words}"}}]}}\n' if "--json" in args else words + "\n"
        )
        n_seconds.append(seconds)
        for each in Path().glob("out*"):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    assert np.median(n_seconds) < SECONDS
    assert max(n_seconds) < SLACK


def test_a_library_that_is_imported_changes_no_handler():
    code = (
        "import signal; before = [*map(signal.getsignal, (2, 15, 1))]; import cer_gpu; "
        "assert before == [*map(signal.getsignal, (2, 15, 1))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_work_that_does_not_come_back_to_python_is_ended():
    """A call that holds the first thread for a minute: handlers of Python would not run, and clean-up neither."""
    before = """
import ctypes, time, cer_gpu.cli.run_command as running
from pathlib import Path
def hang(*args, **options):
    Path("begun").touch()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            ctypes.CDLL(None).sleep(60)
        except BaseException:  # lost, as in a callback of a library
            pass
running.CommandRun.finish = hang
"""
    process = start("run", "SELECT * FROM S WHERE A", "events.parquet", "-o", "out.parquet", before=before,
                    stderr=subprocess.PIPE)  # fmt: skip
    deadline = time.monotonic() + 60
    while not os.path.exists("begun"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.1)
    seconds, _, err, _ = sent(process, "SIGTERM", 0)
    assert (process.returncode, err) == (143, "stopped by SIGTERM\n")
    assert seconds < SLACK
    assert sorted(os.listdir()) == ["begun", "events.parquet"]
