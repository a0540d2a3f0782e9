"""A machine with a GPU, as scripts see it: CuPy's stand-in, the driver's library, nvidia-smi and compute-sanitizer."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
DRIVER = "580.65.06"
SMI = f"""#!/bin/sh
echo {DRIVER}
"""
# every option has a value; only memcheck runs its program, which takes as long with any other tool
SANITIZER = """#!/bin/sh
echo "$@" >> "{calls}"
[ "$2" = "{fails}" ] && {{ echo "ERROR SUMMARY: 3 errors"; exit 9; }}
[ "$2" = memcheck ] || {{ echo "1 passed"; exit 0; }}
while [ "${{1#--}}" != "$1" ]; do shift 2; done
exec "$@"
"""


def environment(folder: Path, *, fails: str = "", sanitizer: bool = True) -> dict[str, str]:
    """Return the environment of a process on such a machine; `fails`: the tool of compute-sanitizer that finds errors.

    compute-sanitizer notes its arguments in the file `calls` of the folder.
    """
    programs, libraries = folder / "bin", folder / "lib"
    programs.mkdir(parents=True)
    libraries.mkdir()
    texts = {"nvidia-smi": SMI}
    if sanitizer:
        texts["compute-sanitizer"] = SANITIZER.format(calls=folder / "calls", fails=fails)
    for name, text in texts.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    empty = ["g++", "-shared", "-x", "c++", "/dev/null", "-o", str(libraries / "libcuda.so.1")]
    subprocess.run(empty, check=True)
    paths = [TESTS / "stand_ins", TESTS, TESTS.parent]
    found = os.environ["PATH"].split(os.pathsep)
    if not sanitizer:
        found = [path for path in found if not (Path(path) / "compute-sanitizer").exists()]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "LD_LIBRARY_PATH": str(libraries),
        "PATH": os.pathsep.join([str(programs), *found]),
    }


def benchmark(monkeypatch):
    """Return the benchmark, `benchmarks/gpu.py`, as a module."""
    monkeypatch.syspath_prepend(str(TESTS.parent / "benchmarks"))
    # pytest may know the folder tests/report by the name of a module beside the benchmark
    monkeypatch.delitem(sys.modules, "report", raising=False)
    return importlib.import_module("gpu")
