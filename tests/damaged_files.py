"""Files of events with damaged bytes, read in every way: ``python damaged_files.py FOLDER``.

Each line of standard input names a case: the file that is damaged, and a seed; one of standard output tells its
outcome.  Where there is none, the case ended the process, or hangs.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import random
import resource
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import cer_gpu
from cer_gpu.cli import main as command_line
from cer_gpu.io import formats
from cer_gpu.io.sources import open_standard_input

N_ROWS = 90
MEMORY = 12 << 30
"""Bytes that a process may address: what a damaged length asks for is refused."""


def events() -> pa.Table:
    """Events with columns of all layouts that lead somewhere."""
    rng = random.Random(7)
    n = N_ROWS
    texts = ["x", "y", "", "a text of more than twelve bytes", "z", None]
    times = sorted(rng.choices(range(200), k=n))
    values = {
        "type": pa.array(rng.choices("ABC", k=n)).dictionary_encode(),
        "ts": pa.array(times, pa.timestamp("ms")),
        "d": pa.array(rng.choices(texts, k=n)).dictionary_encode(),
        "s": pa.array(rng.choices(texts, k=n)),
        "i": pa.array(rng.choices([1, 2, 3, -4, None], k=n), pa.int32()),
        "f": pa.array([rng.random() for _ in range(n)]),
        "m": pa.array([decimal.Decimal(rng.randint(0, 999)) / 100 for _ in range(n)], pa.decimal128(9, 2)),
        "b": pa.array(rng.choices([True, False, None], k=n)),
        "day": pa.array([datetime.date(2020, 1, rng.randint(1, 9)) for _ in range(n)]),
        "bytes": pa.array(rng.choices([b"", b"ab", b"\xff\x00"], k=n), pa.binary()),
        "tags": pa.array([rng.choices(texts, k=rng.randint(0, 3)) for _ in range(n)]),
        "at": pa.array([{"x": rng.random(), "name": rng.choice(texts)} for _ in range(n)]),
    }
    return pa.table(values)


def more_events() -> pa.Table:
    """Events with columns that Parquet does not have."""
    rng = random.Random(8)
    table, n = events(), N_ROWS
    words = [t or "another text of many bytes" for t in table["s"].to_pylist()]
    union = pa.UnionArray.from_dense(
        pa.array([row % 2 for row in range(n)], pa.int8()),
        pa.array([row // 2 for row in range(n)], pa.int32()),
        [pa.array(range(n // 2)), pa.array(words[: n // 2])],
    )
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([n // 3, n // 2, n], pa.int32()), pa.array(["p", "q", "r"]))
    more = {
        "s": pa.array(words, pa.string_view()),
        "d": pa.array(words, pa.large_string()).dictionary_encode(),
        "tags": pa.array([[w, "t"] for w in words], pa.list_view(pa.large_string())),
        "at": pa.array([[rng.choice(words)] for _ in range(n)], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        "bytes": runs,
        "day": union,
        "f": pa.array([[("key", 1.5)]] * n, pa.map_(pa.string(), pa.float64())),
    }
    for name, values in more.items():
        table = table.set_column(table.column_names.index(name), name, values)
    uuids = pa.array([rng.randbytes(16) for _ in range(n)], pa.binary(16))
    table = table.append_column("id", pa.ExtensionArray.from_storage(pa.uuid(), uuids))
    table = table.append_column("pair", pa.array([[w, None] for w in words], pa.list_(pa.string(), 2)))
    return table.append_column("time", pa.array([rng.choice([None, 1, 5]) for _ in range(n)], pa.time64("us")))


def _ipc(table: pa.Table, new: Callable[..., Any], compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=N_ROWS // 3)
    return bytes(sink.getvalue())


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=N_ROWS // 2, **options)
    return bytes(sink.getvalue())


_DELTA = {
    "ts": "DELTA_BINARY_PACKED", "i": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY", "f": "BYTE_STREAM_SPLIT",
    "bytes": "DELTA_LENGTH_BYTE_ARRAY",
}  # fmt: skip

FILES: dict[str, Callable[[], bytes]] = {
    "plain.arrow": lambda: _ipc(events(), pa.ipc.new_file),
    "lz4.arrow": lambda: _ipc(events(), pa.ipc.new_file, "lz4"),
    "more.arrow": lambda: _ipc(more_events(), pa.ipc.new_file),
    "plain.arrows": lambda: _ipc(events(), pa.ipc.new_stream),
    "zstd.arrows": lambda: _ipc(more_events(), pa.ipc.new_stream, "zstd"),
    "more.arrows": lambda: _ipc(more_events(), pa.ipc.new_stream),
    "snappy.parquet": lambda: _parquet(events()),
    "plain.parquet": lambda: _parquet(events(), compression="none", use_dictionary=False),
    "coded.parquet": lambda: _parquet(events(), compression="none"),
    "v2.parquet": lambda: _parquet(events(), compression="zstd", data_page_version="2.0"),
    "delta.parquet": lambda: _parquet(events(), compression="none", use_dictionary=False, column_encoding=_DELTA),
}

QUERIES = [
    ("SELECT * FROM S WHERE A ; B ; C PARTITION BY [d] WITHIN 9 EVENTS", {}),
    ("SELECT * FROM S WHERE A ; B+ PARTITION BY [s] WITHIN 4 EVENTS", {"output": "count"}),
    ("SELECT * FROM S WHERE A ; B PARTITION BY [d], [i] WITHIN 1 SECONDS", {"output": "bindings", "threads": 2}),
    ("SELECT * FROM S WHERE A ; B FILTER A[s = 'x' OR d IN {'y', 'z'}] WITHIN 9 EVENTS", {"output": "events"}),
    ("SELECT * FROM S WHERE A ; B FILTER A[d LIKE 'text' AND i > 1] WITHIN 9 EVENTS", {"threads": 2}),
    ("SELECT * FROM S WHERE A ; B FILTER A[ts > 20] AND B[m < 5.5] WITHIN 50 [ts]", {"output": "count"}),
    ("SELECT * FROM S WHERE A ; B WITHIN 50 [ts]", {"sort": True, "output": "events"}),
    ("SELECT a[s, tags, at] FROM S WHERE A AS a ; B AS b WITHIN 3 EVENTS", {"sort": True, "output": "events"}),
    ("SELECT MAX * FROM S WHERE A ; (B OR C)+ PARTITION BY [s], [d] WITHIN 3 EVENTS", {"output": "events"}),
    ("SELECT * FROM S WHERE A ; B PARTITION BY [m], [b] WITHIN 9 EVENTS", {"lateness": 20, "late": "drop"}),
    ("SELECT * FROM S, T WHERE S>A ; T>B FILTER B[d = 'x'] WITHIN 20 [ts]", {"output": "events"}),
]
COMMANDS = [
    ["run", QUERIES[3][0], "FILE", "--output", "events"],
    ["run", QUERIES[0][0], "FILE", "--output", "events", "-o", "found.jsonl"],
    ["run", QUERIES[2][0], "FILE", "--time-column", "ts", "--output", "events", "-o", "found.csv"],
    ["run", QUERIES[6][0], "FILE", "--time-column", "ts", "--sort", "--output", "events", "-o", "found.parquet"],
    ["run", QUERIES[1][0], "FILE", "-o", "found.arrow", "--json"],
    ["columns", "FILE", "--type-column", "type"],
    ["check", QUERIES[4][0], "FILE"],
    ["explain", QUERIES[3][0], "--events", "FILE", "--analyze"],
    ["report", QUERIES[5][0], "FILE", "--time-column", "ts", "-o", "found.html"],
]

_NUMBERS = [-1, 0, 1, 2, 7, 127, 128, 255, 1 << 15, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 33, (1 << 62) + 1]


def damage(data: bytes, rng: random.Random) -> bytes:
    """Change some bytes: bits, numbers, ranges, or the end."""
    changed = bytearray(data)
    ways = ["bit", "bit", "bits", "byte", "number", "number", "range", "move", "end"]
    way = rng.choice(ways)
    for _ in range({"bits": 8, "byte": 3}.get(way, 1)):
        # half of the damage falls on the ends, where the descriptions of the data stand
        place = rng.randrange(len(data))
        if rng.random() < 0.5:
            place = rng.choice([place % 1500, len(data) - 1 - place % 3000]) % len(data)
        n = rng.choice([1, 2, 4, 8, 16, 64])
        if way in ("bit", "bits"):
            changed[place] ^= 1 << rng.randrange(8)
        elif way == "byte":
            changed[place] = rng.randrange(256)
        elif way == "number":
            width, place = rng.choice([4, 8]), place & ~3
            number = rng.choice(_NUMBERS) % (1 << 8 * width)
            changed[place : place + width] = number.to_bytes(width, "little")
        elif way == "range":
            changed[place : place + n] = bytes([rng.choice([0, 255, rng.randrange(256)])]) * n
        elif way == "move":
            source = rng.randrange(len(data))
            changed[place : place + n] = data[source : source + n]
        else:
            del changed[place:]
    return bytes(changed)


class Refused(Exception):
    """The damage was found, and told as it must be."""


def attempt(name: str, seed: int, folder: Path) -> None:
    """Try a case; raises whatever is no CerError, and `Refused` where there was one."""
    rng = random.Random(f"{name} {seed}")
    data = damage((folder / name).read_bytes(), rng)
    path = folder / f"damaged.{name.rpartition('.')[2]}"
    # a new file: one that is mapped and cut short ends the process, and a case that was refused may still be read ahead
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    formats.BATCH_ROWS = rng.choice([8, 1 << 17])  # the files are small
    if rng.random() < 0.4:
        command = rng.choice(COMMANDS)
        _by_command([str(path) if word == "FILE" else word for word in command], folder)
        return
    text, options = rng.choice(QUERIES)
    try:
        query = cer_gpu.compile(text, time_column="ts")
        given: Any = path
        if path.suffix == ".arrows" and rng.random() < 0.5:
            given = open_standard_input(io.BytesIO(data))
        if " T " in text:
            given = {"S": given, "T": folder / "plain.parquet"}
        query.evaluate(given, **options)
    except cer_gpu.CerError as error:
        str(error)
        raise Refused from error


def _by_command(words: list[str], folder: Path) -> None:
    words = [str(folder / word) if word.startswith("found.") else word for word in words]
    out, said = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()  # commands write bytes to standard output
    with redirect_stdout(out), redirect_stderr(said):
        code = command_line(words)
    told = said.getvalue()
    if code == 0:
        return
    n_errors = len(json.loads(told)["errors"]) if "--json" in words else told.count("error: ")
    if code != 1 or n_errors != 1 or "Traceback" in told:
        raise AssertionError(f"{words} ended with {code} and said: {told}")
    raise Refused


def main(folder: Path) -> None:
    """Try the cases that standard input names."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        name, seed = line.split()
        outcome, text = "read", ""
        try:
            attempt(name, int(seed), folder)
        except Refused:
            outcome = "refused"
        except BaseException:
            outcome, text = "failed", traceback.format_exc()
        print(json.dumps({"outcome": outcome, "text": text}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
