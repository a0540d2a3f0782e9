"""Random choices among very many matches, in processes whose address space is bounded: results, or the error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long("evaluates random queries in processes with little memory")

# MAX compares all matches of an end with all, which takes time, not memory: it reads few events
DRAWN = """
import random
import resource
import sys

import pyarrow as pa

import cer_gpu

rng = random.Random(int(sys.argv[1]))


def step(name):
    return rng.choice(["{} AS {}", "{}+ AS {}", "{} AS {}", "{}+ AS {}"]).format(rng.choice("AABC"), name)


def drawn():
    first = rng.choice(["({a} ; {b})", "({a} OR {b})"]).format(a=step("a"), b=step("b"))
    last = f"({step('c')} ; {step('d')})"
    between = f"{rng.choice('cd')}.y {rng.choice(['<>', '<', '='])} {rng.choice('ab')}.x"
    return f"SELECT {rng.choice(['', 'LAST ', 'NEXT ', 'MAX '])}* FROM S WHERE ({first} ; {last}) FILTER {between}"


queries = [cer_gpu.compile(drawn()) for _ in range(5)]
events = pa.table({
    "type": [rng.choice("ABCD") for _ in range(200)],
    "x": list(range(200)),
    "y": [rng.randrange(400) for _ in range(200)],
})
for query in queries:  # compiles the loops
    query.evaluate(events.slice(0, 12))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), -1))
for query in queries:
    few = "SELECT MAX" in query.text
    sizes = ["20MB"] if few else [None, "100MB", "200MB"]
    try:
        query.evaluate(events.slice(0, 40 if few else 200), limit=100_000, max_memory=rng.choice(sizes))
        print("found")
    except cer_gpu.OutOfMemoryError as error:
        print("choice" if "choosing among them needs more" in str(error) else "memory ran out")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("seed", range(4))
def test_a_random_choice_ends_in_results_or_in_the_error(seed):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", DRAWN, str(seed)], capture_output=True, text=True, env=env, timeout=300
    )
    assert done.returncode == 0, done.stderr
    outcomes = done.stdout.split("\n")[:-1]
    assert len(outcomes) == 5
    assert {"choice"} <= set(outcomes) <= {"found", "choice", "memory ran out"}
