"""Evaluation that can be killed at any time and resumed: ``python killed_run.py FOLDER``.

FOLDER holds query.json (text, output), events.arrow, and the files of the evaluation: numbered parts of the output,
and a state with the number of complete ones, and the checkpoint made after them.
"""

import json
import os
import sys
from pathlib import Path

import pyarrow as pa

import cer_gpu

BATCHES_BETWEEN_CHECKPOINTS = 3


def main(folder: Path) -> None:
    asked = json.loads((folder / "query.json").read_text())
    query = cer_gpu.compile(asked["text"], time_column="ts", time_unit="ms")
    batches = read_batches(folder)
    state = folder / "state"
    if state.exists():
        n_parts, _, blob = state.read_bytes().partition(b"\n")
        done, evaluator = int(n_parts), query.restore(blob)
    else:
        done, evaluator = 0, query.evaluator(output=asked["output"])
    step = BATCHES_BETWEEN_CHECKPOINTS
    while done * step < len(batches):
        found = [evaluator.push(batch) for batch in batches[done * step : (done + 1) * step]]
        write_whole(folder / f"part{done}.arrow", table_to_bytes(pa.Table.from_batches(found)))
        done += 1
        write_whole(state, b"%d\n%s" % (done, evaluator.checkpoint()))
        print(done, flush=True)


def read_batches(folder: Path) -> list[pa.RecordBatch]:
    """Return the events, batch by batch."""
    with pa.ipc.open_stream(folder / "events.arrow") as reader:
        return list(reader)


def table_to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that appears whole or not at all."""
    part = path.with_suffix(".new")
    part.write_bytes(data)
    os.replace(part, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
