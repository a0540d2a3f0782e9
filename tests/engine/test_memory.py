"""Memory of an evaluation: the window and the batch bound it, not the stream."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long("reads millions of events in processes with little memory")

MEASURE = """
import resource
import sys

import numpy as np
import pyarrow as pa

import cer_gpu

PLAIN = sys.argv[1] == "plain"
N_ROWS, N_WARM, N_BATCHES = 20_000, 40, 250
rng = np.random.default_rng(1)
conditions = "A[x > 0.99] AND B[x > 0.99 AND name LIKE '7'] AND C[x > 0.9]"
query = cer_gpu.compile(f"SELECT * FROM S WHERE A ; B+ ; C FILTER {conditions} WITHIN {sys.argv[2]}", time_column="at")
evaluator = query.evaluator()
types = pa.array(["A", "B", "C", "D"])
n_matches = 0
for k in range(N_BATCHES):
    batch = pa.record_batch({
        "type": types.take(pa.array(rng.integers(0, 4, N_ROWS))) if PLAIN else pa.DictionaryArray.from_arrays(
            pa.array(rng.integers(0, 4, N_ROWS, np.int8)), types
        ),
        "name": pa.array(np.arange(k * N_ROWS, (k + 1) * N_ROWS)).cast(pa.string()),
        "x": pa.array(rng.random(N_ROWS)),
        "at": pa.array(np.arange(k * N_ROWS, (k + 1) * N_ROWS)),
    })
    n_matches += evaluator.push(batch).num_rows
    if k == N_WARM:
        warm = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(n_matches, peak - warm)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux")
@pytest.mark.parametrize(("strings", "within"), [("plain", "1000 EVENTS"), ("dictionary", "1000 [at]")])
def test_memory_does_not_grow_over_five_million_events(strings, within):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, strings, within],
        capture_output=True,
        text=True,
        check=True,
        env=env,
        timeout=120,
    )
    n_matches, growth_kib = map(int, result.stdout.split())
    assert n_matches > 100_000
    assert growth_kib < 32 * 1024


EXPLODE = """
import resource

import numpy as np
import pyarrow as pa

import cer_gpu

types = np.array(["A", "B", "C"])[np.random.default_rng(1).integers(0, 3, 20_000)]
events = pa.table({"type": types})
query = cer_gpu.compile("SELECT * FROM S WHERE A ; B ; C")
query.evaluate(events, limit=1_000_000)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), -1))

def pushed():
    evaluator = query.evaluator()
    try:
        return [evaluator.push(batch) for batch in events.to_batches()]
    finally:
        try:
            evaluator.push(events.to_batches()[0])
        except cer_gpu.OptionError as error:
            assert str(error).startswith("an error ended the stream")

ways = {
    "evaluate": lambda: query.evaluate(events),
    "threads": lambda: query.evaluate(events, threads=2),
    "stream": lambda: query.stream(events).read_all(),
    "push": pushed,
}
try:
    ways[WAY]()
except cer_gpu.OutOfMemoryError as error:
    print(type(error.__context__).__name__, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("way", ["evaluate", "threads", "stream", "push"])
def test_memory_that_runs_out_is_an_error_with_advice(way):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    code = EXPLODE.replace("WAY", repr(way))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    found = re.match(r"\w+ memory ran out after ([\d,]+) matches\nhint: WITHIN, .*output='count'", done.stdout)
    assert found, done.stdout
    assert int(found[1].replace(",", "")) > 500_000
