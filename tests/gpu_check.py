"""Checks for a machine with a GPU: ``make gpu-check``, or

    python tests/gpu_check.py [--only WORD ...] [--seconds S] [--results FOLDER] [--commit C]

The whole test suite with predicates on the GPU, every kernel under compute-sanitizer where that is installed, and the
benchmark.  Each step has a time limit, and its outcome is written as soon as it is there, into the file of results of
the card; a later run of other steps, on the same card and commit, adds to it.  With ``--seconds`` a step that would not
fit is left to the next run, and one that has passed is not run again.

It needs the packages numpy, numba, cupy, pyarrow, lark, sqlglot and pytest, and runs in several processes with
pytest-xdist; tests that need others are left out, and named.  Without a GPU it is skipped in full, and writes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import sizes

ROOT = Path(__file__).parent.parent
NEEDED = ("numpy", "numba", "pyarrow", "lark", "sqlglot", "pytest")
TITLE = "Steps"
NOTE = "The outcome of each step of `make gpu-check`, and the last line that it printed."
SANITIZER_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
KERNELS = ["tests/predicates/test_every_kernel.py", "tests/predicates/test_cuda.py"]
"""Tests that launch every kernel (which the first of them checks), and have "gpu" in their names where on one."""
SUITE = {
    "engine": ["tests/engine"],
    "predicates": ["tests/predicates", "tests/kernels", "tests/columnar", "tests/backend"],
    "runtime": ["tests/runtime", "tests/parallel", "tests/output", "tests/partition"],
}
"""Folders of the parts of the suite, each of which fits into ten minutes; the last part is all the rest."""
PROCESSES = ["-n", "auto", "--dist", "loadfile"]
ALL, WITHOUT = "tests", "tests/spark"
DEVICE = "cuda"
SECONDS = "{seconds}"
"""Place of a step's time limit among its arguments."""
SECONDS_TO_SUM_UP = 20.0


@dataclass(frozen=True)
class Step:
    """A command with a time limit and the time below which it is not begun; `why_not`: the reason why it cannot run."""

    name: str
    command: list[str]
    seconds: float
    at_least: float
    why_not: str = ""


def steps(folder: Path, commit: str | None) -> list[Step]:
    """Return all steps, in the order in which they run."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    kernels = ["-k", "gpu", *KERNELS]
    parallel = PROCESSES if importlib.util.find_spec("xdist") else []
    parts = {name: [*part] for name, part in SUITE.items()}
    elsewhere = [path for part in parts.values() for path in part]
    parts["the rest"] = [ALL, *(f"--ignore={path}" for path in [*elsewhere, WITHOUT])]
    sanitizer = shutil.which("compute-sanitizer")
    # errors that calls of CUDA return are CuPy's to handle; those of kernels are what is looked for
    options = ["--error-exitcode", "9", "--report-api-errors", "no"]
    benchmark = [sys.executable, "benchmarks/gpu.py", "--save", "--results", str(folder), "--seconds", SECONDS]
    benchmark += ["--commit", commit] if commit else []
    return [
        Step("kernels", [*pytest, *kernels], 240, 30),
        Step("benchmark", benchmark, 400, 300),
        *(
            Step(
                f"sanitizer, {tool}",
                [sanitizer or "", "--tool", tool, *options, *pytest, "-p", "without_pools", *kernels],
                *(300, 60, "" if sanitizer else "compute-sanitizer is not installed"),
            )
            for tool in SANITIZER_TOOLS
        ),
        *(
            Step(f"suite, {name}", [*pytest, *parallel, "--device", DEVICE, *part], 570, 240)
            for name, part in parts.items()
        ),
    ]


def run(command: list[str], seconds: float) -> tuple[int | None, list[str]]:
    """Run a command, and show what it prints; return its exit status (None: over time) and the last lines."""
    paths = [str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        "CER_GPU_EXAMPLES": str(sizes.ALL),
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
    }
    over = threading.Event()
    last: deque[str] = deque(maxlen=40)
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    ) as process:

        def stop(number: int) -> None:
            over.set()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

        # at the first signal pytest sums up what it has
        limits = ((seconds, signal.SIGINT), (seconds + SECONDS_TO_SUM_UP, signal.SIGKILL))
        timers = [threading.Timer(limit, stop, [number]) for limit, number in limits]
        for timer in timers:
            timer.start()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                last.append(line.rstrip())
            code = process.wait()
        finally:
            for timer in timers:
                timer.cancel()
    return None if over.is_set() else code, list(last)


def outcome(step: Step, seconds: float) -> dict[str, object]:
    """Run a step within its limit, and return its row."""
    print(f"==== {step.name}", flush=True)
    begun = time.perf_counter()
    limit = min(step.seconds, seconds)
    within = [f"{limit - SECONDS_TO_SUM_UP:.0f}" if part == SECONDS else part for part in step.command]
    code, last = run(within, limit)
    # of pytest, the numbers of tests; the last line may be one of the sanitizer
    tests = [line for line in last if re.search(r"\d+ (passed|failed|skipped|error)", line)]
    row: dict[str, object] = {
        "workload": step.name,
        "outcome": "passed" if code == 0 else f"FAILED: over {limit:.0f} s" if code is None else f"FAILED ({code})",
        "seconds": time.perf_counter() - begun,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "what it said": (tests or [line for line in last if line] or [""])[-1].strip("= ")[:200],
    }
    if tests and code == 0 and not re.search(r"\d+ passed", tests[-1]):
        row["outcome"] = "FAILED: no test passed"
    left_out = [line for line in last if line.startswith("left out, without ")]
    return row | ({"left out": left_out[-1]} if left_out else {})


def main(arguments: list[str]) -> int:
    """Run steps, even after one that failed; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only steps that have one of these words in the name")
    parser.add_argument("--seconds", type=float, help="for all; steps that have passed are not run again")
    parser.add_argument("--results", type=Path, help="the folder of the results (benchmarks/results)")
    parser.add_argument("--commit", help="of the code, where Git cannot tell it")
    options = parser.parse_args(arguments)
    if lacking := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        print(f"gpu-check: missing packages: {', '.join(lacking)}\nhint: pip install {' '.join(lacking)}")
        return 1
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    import gpu_results
    from report import RESULTS, table_of

    from cer_gpu.backend.cupy_backend import missing_cupy

    if (why := missing_cupy()) is not None:
        print(f"gpu-check: skipped in full: {why}")
        return 0
    folder = (options.results or RESULTS).resolve()
    of = gpu_results.origin(options.commit)
    all_steps = steps(folder, options.commit)
    before = {str(row["workload"]): row for row in (gpu_results.kept(folder, of) or {}).get(TITLE, [])}
    known = {step.name: {"workload": step.name, "outcome": "not run"} for step in all_steps} | before
    end = time.perf_counter() + (options.seconds or float("inf"))
    failed = False
    for step in all_steps:
        left = end - time.perf_counter()
        passed = options.seconds is not None and known[step.name]["outcome"] == "passed"
        if passed or not any(word in step.name for word in options.only or [""]):
            continue
        if step.why_not or left < step.at_least:
            why_not = step.why_not or f"{left:.0f} s were left"
            if str(known[step.name]["outcome"]).startswith("not run"):
                known[step.name] = {"workload": step.name, "outcome": f"not run: {why_not}"}
        else:
            known[step.name] = outcome(step, left)
            failed |= known[step.name]["outcome"] != "passed"
        gpu_results.keep(
            folder, {TITLE: list(known.values())}, {TITLE: NOTE}, ["python tests/gpu_check.py", *arguments], of
        )
    print(table_of(list(known.values())))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
