"""Files that become shorter while they are read: an error that names them, no crash, and no part of a result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

N_BATCHES, BATCH = 24, 20_000

CHILD = """
import os, sys
from cer_gpu.cli.group import main
from cer_gpu.io import files
from cer_gpu.io.stores import StoredFile

path, left, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
validated, stream, opened = files.validated, StoredFile.stream, []

def opening(*args):  # once or twice for the header and the types of the columns, once for the rows
    opened.append(stream(*args))
    if len(opened) == (3 if ".csv" in path else 2):
        os.truncate(path, left)
    return opened[-1]

def cutting(batches, *args, **options):
    for number, batch in enumerate(validated(batches, *args, **options)):
        if number == 0 and not opened:  # text is read far ahead
            os.truncate(path, left)
        yield batch

files.validated, StoredFile.stream = cutting, opening
sys.exit(main(["run", "SELECT * WHERE A ; B WITHIN 2 EVENTS", path, "-o", out, "--no-progress", "--threads", "1"]))
"""


def write(path: Path) -> None:
    """Write events of some megabytes, in many batches."""
    n = N_BATCHES * BATCH // (1 if "arrow" in path.suffix or path.suffix == ".parquet" else 10)
    rng = np.random.default_rng(3)
    table = pa.table({"type": rng.choice(list("AB"), n), "x": rng.integers(0, 1 << 60, n), "y": rng.random(n)})
    ending = "".join(path.suffixes)
    if ending == ".parquet":
        pq.write_table(table, path, row_group_size=BATCH)
    elif ending in (".arrow", ".arrows"):
        make = pa.ipc.new_file if ending == ".arrow" else pa.ipc.new_stream
        with make(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=BATCH)
    elif ending == ".jsonl":
        lines = (json.dumps(row) for row in table.to_pylist())
        path.write_text("\n".join(lines) + "\n")
    else:
        with pa.output_stream(path) as file:  # compressed by the ending of the name
            pa_csv.write_csv(table, file)


ENDINGS = [
    ".parquet",
    ".csv",
    *(
        pytest.param(ending, marks=pytest.mark.long("a process for each format"))
        for ending in (".arrow", ".arrows", ".csv.zst", ".jsonl")
    ),
]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_is_cut_short_while_it_is_read_is_an_error(ending, tmp_path):
    path, out = tmp_path / f"events{ending}", tmp_path / "out.parquet"
    write(path)
    n_bytes = path.stat().st_size
    done = subprocess.run(
        [sys.executable, "-c", CHILD, path, str(n_bytes - n_bytes // 8), out],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.startswith(f"error: {path}: cannot be read: "), done.stderr
    assert "Traceback" not in done.stderr
    if ending in (".csv", ".jsonl"):
        assert f"it was cut short while it was read: it had {n_bytes:,} bytes" in done.stderr
    assert sorted(tmp_path.iterdir()) == [path]  # neither the target nor a part of it
