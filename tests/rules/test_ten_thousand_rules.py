"""A folder of ten thousand rules: each is loaded and runs, in work and memory linear in their number."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("sigma")
pytestmark = pytest.mark.long("loads and runs up to ten thousand rules in processes of their own")

MAX_BYTES = 4 << 30
COUNTED = """
import cProfile, json, pstats, resource, sys, time
import pyarrow as pa
import cer_gpu.rules

folder, counts_calls = sys.argv[1], sys.argv[2] == "counted"
n = 20
events = pa.table({
    "type": ["A", "B"] * (n // 2),
    "x": list(range(990, 990 + n)),
    "name": [f"n{i}" for i in range(n)],
    "Image": [f"C:\\\\tool{i}.exe" for i in range(n)],
    "CommandLine": [f"word{i} x" for i in range(n)],
    "User": ["user1"] * n,
})
# what is made once for all rules is no part of their work
cer_gpu.rules.load(f"{folder}-few").evaluate(events)
profile, begun = cProfile.Profile(), time.time()
if counts_calls:
    profile.enable()
rules = cer_gpu.rules.load(folder)
found = rules.evaluate(events)
profile.disable()
seconds = time.time() - begun
print(json.dumps({
    "rules": len(rules),
    "skipped": len(rules.skipped),
    "found": {name: len(rows) for name, rows in found.items() if len(rows)},
    "calls": pstats.Stats(profile).total_calls if counts_calls else 0,
    "seconds": seconds,
    "bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
}))
"""


def sigma(i):
    return f"""title: Rule {i}
status: test
logsource: {{product: windows, category: process_creation}}
detection:
    selection:
        Image|endswith: '\\tool{i}.exe'
        CommandLine|contains: ['word{i % 97}', 'other{i}']
    filter:
        User: 'user{i % 13}'
    condition: selection and not filter
level: low
"""


def ceql(i):
    test = f"a[x > {i % 1000}] AND b[name = 'n{i + 1}']"
    return f"SELECT * FROM S WHERE A AS a ; B AS b FILTER {test} WITHIN {i % 50 + 1} EVENTS"


def write_rules(folder, n):
    folder.mkdir()
    for i in range(n):
        (folder / f"{i}.{'yml' if i % 2 else 'ceql'}").write_text(sigma(i) if i % 2 else ceql(i))


def measured(folder, n, how="timed"):
    """Load and run n rules in a process, which keeps nothing and is the only one."""
    write_rules(folder / f"rules{n}", n)
    write_rules(folder / f"rules{n}-few", 4)
    environ = {**os.environ, "XDG_CACHE_HOME": str(folder / f"cache{n}"), "NUMBA_CACHE_DIR": str(folder / "loops")}
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, folder / f"rules{n}", how],
        env=environ, capture_output=True, text=True, timeout=580,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory as Linux tells it")
def test_ten_thousand_rules_load_and_run(tmp_path):
    made = measured(tmp_path, 10_000)
    assert (made["rules"], made["skipped"]) == (10_000, 0)
    # of Sigma those whose program and word meet, but for user1, and of CEQL those of a B after an A
    odd = {f"Rule {i}" for i in range(1, 20, 2) if i % 13 != 1}
    assert made["found"].keys() == odd | {str(i) for i in range(0, 20, 2)}
    assert made["bytes"] < MAX_BYTES
    print(f"10,000 rules: {made['seconds']:.0f} s, {made['bytes'] / 1e9:.1f} GB")


def test_the_work_is_linear_in_the_number_of_rules(tmp_path):
    few, many = measured(tmp_path, 500, "counted"), measured(tmp_path, 2_000, "counted")
    assert (few["rules"], many["rules"]) == (500, 2_000)
    assert many["calls"] < 4.4 * few["calls"]
