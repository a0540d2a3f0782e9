"""Followers that are killed again and again while files come: each row once, none lost."""

import json
import os
import random
import signal
import subprocess
import threading
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from command_line import finish, start
from follow.live import US, add_file, found_in, random_events
from sizes import scaled

from cer_gpu.rules import load

N_KILLS = int(os.environ.get("CER_GPU_FOLLOW_KILLS", scaled(7.5)))
"""Number of kills, of each target; `make test-soak` kills 50 each."""
RULES = {
    "keyed": "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 1 SECOND",
    "silent": "SELECT * FROM S WHERE A ; !B PARTITION BY [k] WITHIN 1 SECOND",
    "whole": "SELECT * FROM S WHERE A ; B ; C WITHIN 0.2 SECONDS",
    "one": "SELECT * FROM S WHERE B FILTER B[k = 1]",
}
LATENESS = "1s"


class Feeder(threading.Thread):
    """Thread in which files of events come, in their order, while it is told to feed; some events are late."""

    def __init__(self, folder, seed):
        super().__init__()
        self.folder, self.rng = folder, random.Random(seed)
        self.n_files, self.feeding, self.stopping = 0, threading.Event(), threading.Event()
        self.adding = threading.Lock()
        events = random_events(seed, 20_000)
        late = [time.value + self.rng.randrange(900_000) for time in events["ts"]]
        self.events = events.take(pc.sort_indices(pa.array(late)))
        self.n_events = 0

    def run(self):
        while not self.stopping.wait(self.rng.random() * 0.03):
            if self.feeding.is_set():
                self.add_some()

    def add_some(self):
        with self.adding:
            self.add(self.events.slice(self.n_events, self.rng.randint(1, 40)))

    def add(self, events):
        add_file(self.folder, f"{self.n_files:06}.{self.rng.choice(['parquet', 'arrow', 'jsonl'])}", events)
        self.n_files += 1
        self.n_events += len(events)

    @property
    def fed(self):
        return self.events.slice(0, self.n_events)


def killed(args, folder, feeder, rng):
    """Start a follower, and kill it a while after its first step, or before that.

    Returns the number of its steps, and True if one was cut off: there are rows that are not published.
    """
    feeder.add_some()
    process = start(*args, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        said = ""
        if rng.random() < 0.2:  # while it reads its state, or before
            time.sleep(rng.random())
        else:
            said = line = process.stderr.readline()
            while line and " row" not in line:
                said += (line := process.stderr.readline())
            assert line, said
            feeder.feeding.set()
            time.sleep(rng.random() * rng.choice([0.05, 0.2, 0.6]))
    finally:
        feeder.feeding.clear()
        process.kill()
        rest = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL, said + rest
    return (said + rest).count("\n"), bool(pending(folder))


def pending(folder):
    """Return the names of rows that are not published."""
    return [path.name for path in folder.rglob("*") if path.name.startswith((".part", "rows-"))]


@pytest.mark.parametrize("out", ["found", "found.jsonl"])
def test_a_follower_killed_at_any_time_writes_each_alert_once(tmp_path, out):
    rng = random.Random(N_KILLS + len(out))
    (tmp_path / "rules").mkdir()
    for name, text in RULES.items():
        (tmp_path / "rules" / f"{name}.ceql").write_text(text)
    args = ["run", "--queries", tmp_path / "rules", "--time-column", "ts", "--follow", tmp_path / "in"]
    (tmp_path / "out").mkdir()
    args += [
        "-o",
        tmp_path / "out" / out,
        "--output",
        "alerts",
        "--lateness",
        LATENESS,
        "--settle",
        "0",
        "--poll",
        "0.01",
    ]
    feeder = Feeder(tmp_path / "in", N_KILLS)
    feeder.add(feeder.events.slice(0, 1))  # with the types of all
    feeder.start()
    try:
        lives = [killed(args, tmp_path / "out", feeder, rng) for _ in range(N_KILLS)]
    finally:
        feeder.stopping.set()
        feeder.join()
    while feeder.n_events < 40 * N_KILLS:  # a slow machine has fed few before its kills
        feeder.add_some()
    # the last event waits for those that may be late, and the one before tells that time has passed
    end = pa.table({"type": ["Z", "Z"], "ts": pa.array([10**12, 2 * 10**12], US), "k": [0, 0]})
    events = pa.concat_tables([feeder.fed, end])
    feeder.add(end)
    code, _, said = finish(start(*args, "--once", stderr=subprocess.PIPE))
    assert code == 0, said
    expected = load(tmp_path / "rules", time_column="ts").alerts(events, lateness=LATENESS)
    rows = found_in(tmp_path / "out" / out)
    n_steps, n_amid = (sum(numbers) for numbers in zip(*lives, strict=True))
    lived = f"{N_KILLS} kills, {n_amid} amid a step, {n_steps} steps"
    print(f"{lived}, {feeder.n_files} files, {len(events)} events, {len(rows)} alerts")
    assert len(rows) > 10 * N_KILLS
    assert sorted(map(identity, map(json.loads, rows))) == sorted(map(identity, expected.to_pylist()))
    assert pending(tmp_path / "out") == []


def identity(row):
    """Return what tells an alert from others: its rule, positions and events."""
    return row["rule"], row["start"], row["end"], str(row["positions"]), row["events"]
