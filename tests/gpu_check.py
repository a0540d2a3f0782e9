"""Checks for a machine with a GPU: ``make gpu-check``, or ``python tests/gpu_check.py``.

The whole test suite with predicates on the GPU, the kernels under compute-sanitizer where that is installed, and the
benchmark.  It needs the packages numpy, numba, cupy, pyarrow, lark and pytest; tests that need others are left out, and
named.  Without a GPU it is skipped in full.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SANITIZER_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def steps() -> list[tuple[str, list[str] | None]]:
    """Return the steps by name; None in place of the command of a step whose requirements are missing."""
    python, pytest = sys.executable, [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    sanitizer = shutil.which("compute-sanitizer")
    kernels = [*pytest, "-k", "gpu", "tests/predicates/test_cuda.py"]
    return [
        ("the kernels", kernels),
        ("the whole suite on the GPU", [*pytest, "tests", "--device", "cuda", "--ignore", "tests/spark"]),
        *(
            (f"compute-sanitizer, {tool}", sanitizer and [sanitizer, "--tool", tool, "--error-exitcode", "9", *kernels])
            for tool in SANITIZER_TOOLS
        ),
        ("the benchmark", [python, "benchmarks/gpu.py"]),
    ]


def main() -> int:
    """Run every step, even after one that failed."""
    sys.path.insert(0, str(ROOT))
    from cer_gpu.backend.cupy_backend import missing

    if (why := missing()) is not None:
        print(f"gpu-check: skipped in full: {why}")
        return 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    outcomes = []
    for name, command in steps():
        print(f"==== {name}", flush=True)
        if command is None:
            outcomes.append((name, "not run: compute-sanitizer is not installed"))
            continue
        code = subprocess.run(command, cwd=ROOT, env=environment).returncode
        outcomes.append((name, "passed" if code == 0 else f"FAILED ({code})"))
    for name, outcome in outcomes:
        print(f"gpu-check: {name}: {outcome}")
    return int(any(outcome.startswith("FAILED") for _, outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
