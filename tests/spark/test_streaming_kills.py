"""Drivers that are killed amid a micro-batch: the rows of an uninterrupted run."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from killed_stream import KEYED, WHOLE
from spark_streams import add_files, end_at, late_by, random_events, rows_of

import cer_gpu

pytest.importorskip("pyspark")

KILLED_STREAM = Path(__file__).parents[1] / "killed_stream.py"
N_KILLS = int(os.environ.get("CER_GPU_STREAM_KILLS", "0"))
"""Number of kills; `make test-soak` kills 20 drivers, and the everyday run none."""
N_FILES = 4 + N_KILLS
POSITIONS = ("start", "end", "positions")


def batches_in(folder, kind):
    """Return the micro-batches that are planned ("offsets") or committed ("commits")."""
    if not (folder / kind).is_dir():
        return set()
    return {int(name) for name in os.listdir(folder / kind) if name.isdigit()}


def killed_amid_a_batch(command, folder, rng):
    """Start the queries, and kill the driver, with its Java and workers, a while after one plans a further micro-batch.

    Before that it repeats the one that was cut off last, and the other query is anywhere.

    Returns True if a micro-batch was planned and not committed then.
    """
    watched = [folder / name for name in ("operator", "driver")]
    before = [batches_in(each, "offsets") for each in watched]
    with open(folder / "stderr", "w") as said:
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=said)
    try:
        deadline = time.monotonic() + 300
        which = rng.choice([i for i, planned in enumerate(before) if len(planned) < N_FILES] or [0])
        # a driver killed while it writes the very first plan leaves a folder that Spark refuses
        planned = before
        while not all(planned) or (len(before[which]) < N_FILES and not planned[which] - before[which]):
            planned = [batches_in(each, "offsets") for each in watched]
            assert process.poll() is None, (folder / "stderr").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(rng.choice([0, 0.3, 1, 3]) * rng.random())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return any(batches_in(each, "offsets") - batches_in(each, "commits") for each in watched)


@pytest.mark.skipif(not N_KILLS, reason="killing drivers takes minutes: CER_GPU_STREAM_KILLS=20")
def test_a_driver_killed_amid_a_micro_batch_writes_each_row_once(tmp_path):
    rng = random.Random(N_KILLS)
    events = random_events(11, 60 * N_FILES, 30 * N_FILES)
    add_files(tmp_path / "in", late_by(12, events, 4), N_FILES)
    add_files(tmp_path / "in", end_at(100_000), 1, first=N_FILES)
    command = [sys.executable, str(KILLED_STREAM), str(tmp_path)]
    n_amid = sum(killed_amid_a_batch(command, tmp_path, rng) for _ in range(N_KILLS))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.endswith("done\n"), done.stderr[-3000:]
    assert n_amid >= N_KILLS / 2
    keyed, whole = (
        cer_gpu.compile(text, time_column="ts").evaluate(events, output="events") for text in (KEYED, WHOLE)
    )
    found = pq.read_table(tmp_path / "operator.parquet").select(keyed.column_names).cast(keyed.schema)
    assert rows_of(found, without=POSITIONS) == rows_of(keyed, without=POSITIONS)
    found = pq.read_table(tmp_path / "batches").cast(whole.schema)
    assert rows_of(found) == rows_of(whole)
    assert len(list((tmp_path / "states").iterdir())) == 2
