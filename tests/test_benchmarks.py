"""The benchmarks run, in a tiny size; their figures are for people, and are not looked at here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (["run.py", "--events", "20000", "--repeat", "1", "--compare"], "Events read per second"),
        (["stock.py", "--events", "20000", "--repeat", "1"], "Q7"),
        (["peers.py", "--events", "5000", "--seconds", "0.1"], "DuckDB"),
    ],
)
def test_a_benchmark(program, said):
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / program[0]), *program[1:]], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
