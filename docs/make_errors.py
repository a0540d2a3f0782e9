"""Make reference/errors.md: every error that a user can cause, by causing it.

    .venv/bin/python docs/make_errors.py          # writes docs/reference/errors.md
    .venv/bin/python docs/make_errors.py --check  # exit code 1 where the page is not what this writes

Each case runs in a folder of its own making, as the command line would run; the page has what it printed, and its exit
code.  A case that leaves a file behind, prints a traceback or ends with 0 stops the script.
"""

from __future__ import annotations

import contextlib
import html
import io
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from cer_gpu.backend.cupy_backend import NO_DRIVER
from cer_gpu.cli import main
from cer_gpu.predicates import placement

os.environ["CER_GPU_NOTICES"] = "off"  # no word of compiling
PAGE = Path(__file__).parent / "reference" / "errors.md"
ROOT = Path(__file__).parents[1]
NOBODY = 65534
AB = "'SELECT * FROM S WHERE A ; B'"

INTRODUCTION = """\
# Errors

Whatever can go wrong from outside ends in a message: what was expected, what came, where, and often a hint. There is no
traceback, and no partial file is left. In Python all of them are a `cer_gpu.CerError`, or an `OSError` where a file
cannot be written.

Memory that runs out is one too: `OutOfMemoryError`, which is also a `MemoryError`, says how many matches were
found until then, and what helps: `WITHIN`, `limit=...` (`--limit`) or `output='count'`, which lists none.
Where a choice among the matches of one end needs more than `max_memory` (`--max-memory`), it names the end and their
number.

<!-- docs/make_errors.py writes this page: it causes each error and shows what was printed -->

| code | means |
| --- | --- |
| 1 | the query, the events or the output are wrong |
| 2 | the arguments are wrong; two lines about usage come before the message |
| 128 + n | a signal ended the run: 130 is Ctrl-C, 143 SIGTERM, 129 SIGHUP; 141: nobody reads the output any more |
"""

EVENTS_ARE = """\
The events of the examples are `events.parquet`, with the columns `type`, `price`, `name`, `ts` (in order), `back` (not
in order), `gap` (with a NULL) and `tags` (lists).
"""

SECTIONS: dict[str, list[str]] = {
    "The text of a query": [
        "check 'SELECT * FROM S WHERE SELL ; BUY WITHN 5 EVENTS'",
        "check 'SELECT * FROM S WHERE (A ; B'",
        "check 'SELECT * FROM S'",
        "check ''",
        'check "SELECT * FROM S WHERE A FILTER A[name = \'x]"',
        "check 'SELECT * FROM S WHERE A FILTER A[price > 1' ",
        "check 'SELECT * FROM S WHERE A FILTER A[price ! 1]'",
        "check 'SELECT * FROM S WHERE A ; B WITHIN 5'",
        "check 'SELECT * FROM S WHERE A ; B WITHIN 0.5 EVENTS'",
        "check 'SELECT * FROM S WHERE A ; B LIMIT 2.5'",
        "check \"SELECT * FROM S WHERE A FILTER A[name LIKE '(']\"",
        "check 'SELECT c FROM S WHERE A AS a ; B'",
        "check 'SELECT * FROM S WHERE A AS seller FILTER sellr[price > 1]'",
        "check 'SELECT * FROM S WHERE T>A'",
        "check 'SELECT * FROM S WHERE A ; B WITHIN 5 MINUTES'",
        "check 'SELECT * FROM S WHERE A /* and so on'",
        "check 'SELECT * FROM S WHERE A ; B FILTER A[price > B[price]]'",
        "check 'SELECT * FROM S WHERE A AND B'",
        "check 'SELECT * FROM S WHERE A FILTER A.price > 1 AND B'",
        "check 'SELECT * FROM S WHERE A THEN B'",
        "check 'SELECT * FROM S WHERE A ; B ORDER BY ts'",
        "check 'SELECT * FROM S WHERE every A -> B'",
        "check 'SELECT * FROM S WHERE A.price > 3'",
        "check 'SELECT * FROM S WHERE A ; NOT B ; C'",
        "check 'PATTERN SEQ(A a, B b) WHERE a.id = b.id'",
        "check 'SELECT * FROM S WHERE A{3,2}'",
        "check 'SELECT * FROM S WHERE A ; B{0}'",
        "check 'SELECT * FROM S WHERE A? ; B*'",
        "check 'SELECT * FROM S WHERE A -> (B ; C)'",
        "check 'SELECT * FROM S WHERE !A ; B'",
        "check 'SELECT * FROM S WHERE A ; !B'",
        "check 'SELECT * FROM S WHERE (A ; !B) : C'",
        "check 'SELECT * FROM S WHERE A? ; !B ; C'",
        "check 'SELECT * FROM S WHERE A ; !B OR C WITHIN 5 EVENTS'",
        "check 'SELECT * FROM S WHERE A ; !B ; C FILTER B.price > 1'",
        "check 'SELECT * FROM S WHERE A+ AS a ; !(B AS b FILTER b.price > PREV(a).price) ; C'",
        "check 'SELECT * FROM S WHERE A ; !B WITHIN 5 EVENTS CONSUME BY ANY'",
        "check 'SELECT * FROM S WHERE A ; !B : C'",
        "check 'SELECT * FROM S WHERE (A ; !B) ALL C WITHIN 5 EVENTS'",
        "check 'SELECT MAX * FROM S WHERE A ALL B THEN WITHIN 5 EVENTS'",
        "check 'SELECT MAX * FROM S WHERE A AS a ; B AS b FILTER b.price > a.price THEN WITHIN 5 EVENTS'",
        "check 'SELECT MAX * FROM S WHERE A ; !B THEN WITHIN 5 EVENTS'",
        "check 'SELECT * FROM S WHERE A FILTER A[LAG(price, 0) < price]'",
        "check 'SELECT * FROM S WHERE A FILTER A[abs(price, 1) < 2]'",
        "check 'SELECT * FROM S WHERE A FILTER A[median(price) < 2]'",
        "check 'SELECT * FROM S WHERE A+ AS x FILTER x[COUNT(price) > 2]'",
        "check 'SELECT x.price FROM S WHERE A+ AS x'",
        "check 'SELECT SUM(x) FROM S WHERE A+ AS x'",
        "check 'SELECT PREV(x).price FROM S WHERE A+ AS x'",
        "check 'SELECT COUNT(x) AS n FROM S WHERE A+ AS x HAVING m > 2'",
        "check 'SELECT LAG(x.price) FROM S WHERE A AS x'",
        "check 'SELECT * FROM S WHERE A ; B WITHIN 2 WEEKS'",
        "check 'SELECT * FROM S WHERE A ; B WITHIN 5m'",
        "check \"SELECT * FROM S WHERE A FILTER A[name CONTAINS 'x']\"",
        "check 'SELECT * FROM S WHERE A ; B PARTITION BY name'",
        "check 'SELECT * FROM S WHERE A FILTER A[price IS 3]'",
        "check 'SELECT * FROM S WHERE A FILTER price > 1'",
        "check 'SELECT * FROM S WHERE A AS x ; B AS y FILTER y.price > price'",
        "check 'SELECT * FROM S WHERE A AS x ; B AS y FILTER x[price] < y[price]'",
        "check 'SELECT * FROM S WHERE A AS x ; B AS y FILTER NOT (y[price > x.price])'",
        "check 'SELECT * FROM S WHERE (A AS x FILTER x.price < y.price) ; B AS y'",
        "check 'SELECT * FROM S WHERE (A AS x ; B) OR (B AS y FILTER y.price > x.price)'",
        "check 'SELECT * FROM S WHERE A AS x ALL (B AS y FILTER y.price > x.price)'",
        "check 'SELECT * FROM S WHERE (A ; B FILTER B.price > x.price) AS x'",
        "check 'SELECT * FROM S WHERE A AS x ; NOT(B FILTER B.price > x.price)'",
        "check 'SELECT * FROM S WHERE A AS x ; B+ AS y FILTER y.price > PREV(z).price'",
        "check 'SELECT * FROM S WHERE A AS x ; B+ AS y FILTER x.price > AVG(y).price'",
        "check 'Q(x) :- A(name = x)'",
        "check 'Q(x) <- A(name = y), B(name = y)'",
        "check 'Q(x, x) <- A(name = x)'",
        "check 'Q(start) <- A(price = start)'",
        "check 'Q(a) <- A(name = a) AS a'",
        "check 'Q(name) <- A(name = name) PARTITION BY [name]'",
        "check 'Q(x) <- A(name = x) AS a, B(name = x) AS a'",
        "check 'Q(x) <- A(name = x, name = 3)'",
        "check 'Q(x) <- A(name = x, price > 3)'",
        "check 'Q(x) <- A(name = x, y)'",
        "check 'Q(x) <- A(x)'",
        "check 'Q(x) <- S>A(name = x)'",
        "check 'Q(x) <- A(name = x) AND B(name = x)'",
        "check 'Q(x) <- A(name = x) CONSUME BY ANY'",
        "check 'Q(x) <- A(name = x)' --no-type-column",
        "check 'SELECT * FROM S WHERE A LIMIT 5 WITHIN 3 EVENTS'",
        "check 'SELECT * FROM S, S WHERE A'",
        "check 'SELECT * FROM S WHERE A PARTITION BY [name], [name]'",
        "check 'SELECT * FROM S WHERE A ; B' --no-type-column",
        "check 'SELECT * WHERE A ; B' --no-type-column",
        "check many_filters.ceql",
        "check deep.ceql",
        "check missing.ceql",
        "check latin.ceql",
    ],
    "A query that does not fit the events": [
        "check 'SELECT * FROM S WHERE A FILTER A[prise > 1]' events.parquet",
        "check 'SELECT * FROM S WHERE A FILTER A[name > 1]' events.parquet",
        "check 'SELECT * FROM S WHERE A FILTER A[name = MSFT]' events.parquet",
        "check 'SELECT * FROM S WHERE A FILTER A[tags = 1]' events.parquet",
        "check 'SELECT * FROM S WHERE A FILTER A[name + 1 = 2]' events.parquet",
        "check 'SELECT * FROM S WHERE A FILTER A[ts > \\'yesterday\\']' events.parquet".replace("'SELECT", '"SELECT')
        .replace("]'", ']"')
        .replace("\\'", "'"),
        "check 'SELECT * FROM S WHERE A FILTER A[price LIKE 1]' events.parquet",
        "check \"SELECT * FROM S WHERE A FILTER A[price LIKE 'M']\" events.parquet",
        "check 'SELECT * FROM S WHERE A FILTER A[TRUE < FALSE]' events.parquet",
        "check 'SELECT * FROM S WHERE A AS x ; B AS y FILTER y.prise > x.price' events.parquet",
        "check 'SELECT * FROM S WHERE A AS x ; B AS y FILTER y.name > x.price' events.parquet",
        "check 'SELECT * FROM S WHERE A AS x ; B AS y FILTER y.ts - x.ts <= 5' events.parquet",
        "check 'SELECT * FROM S WHERE A AS x ; B AS y FILTER y.price - x.price <= 5 MINUTES' events.parquet",
        "check 'SELECT * FROM S WHERE A AS x ; B AS y FILTER y.ts <= x.ts * 2' events.parquet",
        "check 'Q(x) <- A(name = x, price = x)' events.parquet",
        "check \"SELECT * FROM S WHERE A FILTER A[ts > '2024-01-01 00:00+02:00']\" events.parquet",
        "check 'SELECT a[prise] FROM S WHERE A AS a' events.parquet",
        "check 'SELECT * FROM S WHERE A ; B PARTITION BY [nam]' events.parquet",
        "check 'SELECT * FROM S WHERE A ; B PARTITION BY [tags]' events.parquet",
        "check 'SELECT * FROM S WHERE A ; B PARTITION BY [name, price]' events.parquet",
        f"run {AB} events.parquet --type-column kind",
        f"run {AB} other.parquet",
        f"run {AB} events.parquet --type-column price",
        f"run {AB} events.parquet --time-column time",
        f"run {AB} events.parquet --time-column name",
        "run 'SELECT * FROM S WHERE A ; B WITHIN 5 MINUTES' events.parquet --time-column price",
        "run 'SELECT * FROM S WHERE A ; B WITHIN 5 MINUTES' counted.parquet --time-column n",
        f"run {AB} events.parquet --time-column ts --time-unit ms",
        "run 'SELECT * FROM S WHERE A ; B WITHIN 5 [name]' events.parquet",
        "run 'SELECT * FROM S WHERE A AS start ; B' events.parquet --output bindings",
        f"run {AB} events.parquet --output measures",
        "run 'SELECT * FROM S WHERE A ; B?' events.parquet --output funnel",
        "run 'SELECT x FROM S WHERE A+ AS x HAVING COUNT(x) > 2' events.parquet --output count",
    ],
    "Files and folders": [
        "check --queries wrong_rules events.parquet",
        "run --queries empty_folder events.parquet",
        f"run {AB} event.parquet",
        f"run {AB} nowhere/events.parquet",
        f"run {AB} ''",
        f"run {AB} notes.txt",
        f"run {AB} empty_folder",
        f"run {AB} hudi",
        f"run {AB} delta:nowhere",
        f"run {AB} events.parquet -o delta:found@3",
        f"run {AB} '*.arrows'",
        f"run {AB} empty.parquet",
        f"run {AB} cut.parquet",
        f"run {AB} text.parquet",
        f"run {AB} cut.arrow",
        "run 'SELECT * FROM S WHERE A ; B PARTITION BY [name]' damaged.arrow",
        f"run {AB} runs.arrow --output events",
        f"run {AB} empty.csv",
        f"run {AB} ragged.csv",
        f"run {AB} twice.csv",
        f"run {AB} empty.jsonl",
        f"run {AB} wrong.jsonl",
        f"run {AB} events.parquet other.parquet",
        f"run {AB} events.parquet prices.parquet --time-column ts",
    ],
    "Events": [
        f"run {AB} events.parquet --time-column back",
        f"run {AB} events.parquet --time-column gap",
        "run 'SELECT * FROM S WHERE A ; B WITHIN 5 [back]' events.parquet",
        f"run {AB} events.parquet --time-column back --lateness 1s",
        f"run {AB} events.parquet --time-column gap --sort",
        "run 'SELECT * FROM S, T WHERE S>A ; T>B' S=events.parquet T=events.parquet",
        "run 'SELECT * FROM S, T WHERE S>A ; T>B' S=events.parquet --time-column ts",
        "run 'SELECT * FROM S, T WHERE S>A ; T>B' S=events.parquet U=events.parquet --time-column ts",
        "run 'SELECT * FROM S, T WHERE S>A ; T>B' events.parquet --time-column ts",
        "run 'SELECT * FROM S, T WHERE S>A ; T>B' S=events.parquet T=zoned.parquet --time-column ts",
        "run 'SELECT * FROM S, T WHERE S>A ; T>B' S=named.parquet T=events.parquet --time-column ts",
        "run 'SELECT * FROM S WHERE A ; A+ ; A' many.parquet --output count",
        f"... | run {AB} -",
    ],
    "Text files": [
        f"run {AB} zones --time-column ts",
        f"run {AB} days.csv --time-column ts",
        f"run {AB} days.csv --time-column ts --time-format '%Y/%m/%d'",
        f"run {AB} days.csv --time-column ts --time-format '%D/%Q'",
        f"run {AB} days.csv --time-format epoch",
        "run 'SELECT a[price] WHERE A AS a' large --output events",
        "run 'SELECT * WHERE A AS a FILTER a[price > 1]' words.csv",
        f"run {AB} words.csv --column-types price=number",
        f"run {AB} words.csv --empty-is-text --strings-can-be-null",
        f"run {AB} words.csv --delimiter ', '",
        f"run {AB} events.parquet --time-column ts --sort name,ts",
    ],
    "Options": [
        "run",
        f"run {AB}",
        "rum",
        f"run events.parquet {AB}",
        f"run {AB} events.parquet --sorted",
        f"run {AB} events.parquet --output tables",
        f"run {AB} events.parquet --limit 0",
        f"run {AB} events.parquet --threads many",
        f"run {AB} events.parquet --sort",
        f"run {AB} events.parquet --time-column ts --lateness soon",
        f"run {AB} events.parquet --time-column ts --lateness -5s",
        f"run {AB} events.parquet --type-column type --no-type-column",
        f"run {AB} events.parquet --device cuda",
        f"run {AB} S=events.parquet other.parquet",
        f"run {AB} S=",
        f"run {AB} - events.parquet",
        f"report {AB} events.parquet",
        f"report {AB} events.parquet -o -",
        "run --queries rules",
        f"run {AB} --follow empty_folder",
        f"run {AB} --follow nowhere -o found",
        f"run {AB} --follow events.parquet -o found",
        f"run {AB} events.parquet --follow empty_folder -o found",
        f"run {AB} --follow empty_folder -o found --time-column ts --sort",
        f"run {AB} events.parquet --once",
        "run late.ceql events.parquet --queries rules",
    ],
    "Output": [
        f"run {AB} events.parquet -o found.txt",
        f"run {AB} events.parquet -o nowhere/found.csv",
        f"run {AB} events.parquet -o empty_folder",
        "run --queries rules events.parquet -o found.csv",
        f"run {AB} events.parquet -o events.parquet",
        f"run {AB} events.parquet --format csv",
        f"run {AB} events.parquet -o - --format parquet",
        f"run {AB} --follow empty_folder -o found.parquet",
        f"run {AB} --follow empty_folder -o events.jsonl --format csv",
        f"run {AB} --follow empty_folder -o empty_folder/found",
        f"report {AB} events.parquet -o nowhere/report.html",
    ],
}

PYTHON = [
    "cer_gpu.compile(42)",
    "cer_gpu.compile('SELECT * FROM S WHERE A', time_unit='minutes')",
    "cer_gpu.compile('Q(x) <- A(x, 3)', relations={'A': ['name']})",
    "cer_gpu.compile('Q(x) <- A(x)', relations={'A': 'name'})",
    "query.evaluate(42)",
    "query.evaluate([])",
    "query.evaluate([1, 2])",
    "query.evaluate([events, events.drop_columns(['type'])])",
    "query.evaluate({})",
    "query.evaluate({'T': events})",
    "query.evaluate(events, 'ends')",
    "query.evaluator('cpu')",
    "query.evaluate(events, output='row')",
    "query.evaluate(events, limit=-1)",
    "query.evaluate(events, aggregate='SUM(A.price)')",
    "query.evaluate(events, output='count', aggregate='SUM(A.price) + 1')",
    "query.evaluate(events, device='gpu')",
    "query.evaluate(events, threads=0)",
    "query.evaluate(events, shard=(2, 2))",
    "query.evaluate(events, sort=True)",
    "query.evaluate(events, lateness='5s')",
    "query.evaluator(late='ignore')",
    "query.evaluator().push(events)",
    "query.restore(b'nonsense')",
    "query.restore(cer_gpu.compile('SELECT * FROM S WHERE A').evaluator().checkpoint())",
    "query.restore(query.evaluator().checkpoint()[:-1])",
    "cer_gpu.compile_all({'ab': 'SELECT * FROM S WHERE A ; B'}, errors='ignore')",
    "cer_gpu.compile('SELECT * FROM S WHERE A PARTITION BY [price NOCASE]', schema=events.schema)",
    "cer_gpu.plot.timeline(events)",
]


# ---- what the cases need -----------------------------------------------------------------------------------------


def make_files() -> None:
    """Write the files that the cases name into the current folder."""
    times = pa.array([0, 1000, 2000, 3000], pa.timestamp("ms"))
    events = pa.table(
        {
            "type": ["A", "B", "A", "B"],
            "price": [11.0, 1.0, 5.0, 20.0],
            "name": ["MSFT", "INTC", "MSFT", "AMZN"],
            "ts": times,
            "back": times.take(pa.array([0, 3, 1, 2])),
            "gap": pa.array([0, None, 2000, 3000], pa.timestamp("ms")),
            "tags": [["x"], [], None, ["y", "z"]],
        }
    )
    pq.write_table(events, "events.parquet")
    whole = Path("events.parquet").read_bytes()
    Path("cut.parquet").write_bytes(whole[: len(whole) // 2])
    Path("empty.parquet").touch()
    Path("text.parquet").write_text("this is a text, and no Parquet file at all\n")
    feather.write_feather(events, "whole.arrow", compression="uncompressed")
    Path("cut.arrow").write_bytes(Path("whole.arrow").read_bytes()[:100])
    Path("whole.arrow").unlink()
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1, 7, 2], pa.int32()), ["AMZN", "INTC", "MSFT"], safe=False)
    damaged = pa.table({"type": events["type"], "name": names})
    with pa.ipc.new_file("damaged.arrow", damaged.schema) as writer:
        writer.write_table(damaged)
    runs = pa.table({"type": events["type"], "name": pa.RunEndEncodedArray.from_arrays([4], ["MSFT"])})
    with pa.ipc.new_file("runs.arrow", runs.schema) as writer:
        writer.write_table(runs)
    Path("empty.csv").touch()
    Path("ragged.csv").write_text("type,price\nA,1\nB,2,3\n")
    for folder, first, second in (
        ("zones", "ts\nA,2024-03-01 05:00:00\n", "ts\nB,2024-03-01 05:00:02Z\n"),
        ("large", f"price\nA,{2**53 + 1}\n", "price\nA,0.5\n"),
    ):
        Path(folder).mkdir()
        Path(folder, "a.csv").write_text(f"type,{first}")
        Path(folder, "b.csv").write_text(f"type,{second}")
    Path("days.csv").write_text("type,ts\nA,01/03/2024\nB,02/03/2024\n")
    Path("words.csv").write_text("type,price\n" + "A,1\n" * 300_000 + "A,free\n")
    Path("twice.csv").write_text("type,type\nA,1\nB,2\n")
    pq.write_table(pa.table({"kind": ["A"]}), "other.parquet")
    pq.write_table(pa.table({"type": ["A"], "ts": ["now"]}), "prices.parquet")
    pq.write_table(pa.table({"type": ["A"] * 80}), "many.parquet")
    pq.write_table(pa.table({"type": ["A"], "n": [1]}), "counted.parquet")
    pq.write_table(pa.table({"type": ["A"], "ts": pa.array([0], pa.timestamp("ms", "UTC"))}), "zoned.parquet")
    pq.write_table(
        pa.table({"type": ["A"], "$stream": ["S"], "ts": pa.array([0], pa.timestamp("ms"))}), "named.parquet"
    )
    both = " AND ".join("(A[price > 1] OR B[price > 1])" for _ in range(15))
    Path("many_filters.ceql").write_text(f"SELECT * FROM S WHERE A ; B FILTER {both}")
    Path("deep.ceql").write_text(f"SELECT * FROM S WHERE A FILTER A[{'NOT ' * 2000}p = 1]")
    Path("notes.txt").write_text("no events\n")
    Path("latin.ceql").write_bytes("-- für\nSELECT * FROM S WHERE A".encode("latin-1"))
    Path("late.ceql").write_text("SELECT * FROM S WHERE A ; B")
    Path("empty_folder").mkdir()
    Path("hudi/.hoodie").mkdir(parents=True)
    Path("empty.jsonl").touch()
    Path("wrong.jsonl").write_text('{"type": "A"}\n{"type": B}\n')
    folders = {
        "rules": {"most": "SELECT MAX(A.price) AS x FROM S WHERE A+", "number": "SELECT COUNT(A) AS x FROM S WHERE A+"},
        "wrong_rules": {"late": "SELECT * FROM S WHERE A ;", "price": "SELECT * FROM S WHERE A FILTER A[prise > 1]"},
    }
    for folder, queries in folders.items():
        Path(folder).mkdir()
        for name, text in queries.items():
            Path(folder, f"{name}.ceql").write_text(text)


def run(line: str) -> tuple[str, int]:
    """Run a line as the command line would; return what it printed to standard error, and its exit code."""
    given = line.removeprefix("... | ")
    out, err = io.StringIO(), io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(b"type,price\nA,1,2\n" if given != line else b""))
    before = sys.stdin
    try:
        sys.stdin = stdin
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(shlex.split(given))
    finally:
        sys.stdin = before
    return err.getvalue(), code


def start(line: str, before: str = "") -> subprocess.Popen[str]:
    """Start a line as a process of its own, after some Python."""
    code = f"import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); {before}\n"
    code += "from cer_gpu.cli import main; sys.exit(main())"
    python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": python_path}
    return subprocess.Popen(
        [sys.executable, "-c", code, *shlex.split(line)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupted(line: str, signum: signal.Signals) -> tuple[str, int]:
    """Run a line until it writes, and send a signal then."""
    process = start(line)
    while not list(Path().glob(".cer-gpu-*")):
        if process.poll() is not None:
            raise SystemExit(f"ended too early: {process.communicate()[1]}")
        time.sleep(0.02)
    process.send_signal(signum)
    return process.communicate(timeout=60)[1], process.returncode


def full_disk(line: str) -> tuple[str, int]:
    """Run a line where no file may grow beyond 1 MiB, which fails as a full disk does, in other words."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"
    before = f"import cer_gpu.cli, numba; sys.dont_write_bytecode = True; {limit}"
    process = start(line, before)
    return process.communicate(timeout=120)[1], process.returncode


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Let files be opened as a user who is not root, whom nothing is forbidden."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def forbidden(line: str) -> tuple[str, int]:
    """Run a line where a file may not be read and a folder not written to."""
    Path("secret.parquet").write_bytes(Path("events.parquet").read_bytes())
    Path("locked").mkdir()
    Path("secret.parquet").chmod(0)
    Path("locked").chmod(0o555)
    try:
        with as_nobody():
            return run(line)
    finally:
        Path("secret.parquet").unlink()
        Path("locked").rmdir()


# ---- the page ------------------------------------------------------------------------------------------------------


def in_cell(text: str) -> str:
    """Return a text as one cell of a Markdown table."""
    escaped = html.escape(text, quote=False).replace("|", "&#124;").replace("*", "&#42;").replace("`", "&#96;")
    return escaped.replace("\n", "<br>")


def row(shown: str, told: str, code: int | str) -> str:
    """Return a line of a table."""
    return f"| <code>{in_cell(shown)}</code> | <pre>{in_cell(told)}</pre> | {code} |\n"


def message(printed: str) -> str:
    """Return what was printed, without the lines about usage."""
    return printed[printed.find("Error: ") if printed.startswith("Usage: ") else 0 :].strip("\n")


def table(lines: list[str], run: Callable[[str], tuple[str, int]]) -> str:
    """Run lines; return a table of them."""
    made = "| `cer-gpu` | message | code |\n| --- | --- | --- |\n"
    for line in lines:
        before = sorted(os.listdir())
        printed, code = run(line)
        if not code or "Traceback" in printed or sorted(os.listdir()) != before:
            raise SystemExit(f"{line}: code {code}, {printed}, {set(os.listdir()) ^ set(before)}")
        made += row(line.strip(), message(printed), code)
    return made


def python_table() -> str:
    """Return the table of errors in Python."""
    import cer_gpu.plot

    names = {
        "cer_gpu": cer_gpu,
        "events": pq.read_table("events.parquet"),
        "query": cer_gpu.compile("SELECT * FROM S WHERE A ; B"),
    }
    made = "| Python | exception | message |\n| --- | --- | --- |\n"
    for code in PYTHON:
        try:
            eval(code, names)
        except cer_gpu.CerError as error:
            told = f"`{type(error).__name__}` | <pre>{in_cell(str(error))}</pre>"
        else:
            raise SystemExit(f"{code}: no error")
        made += f"| <code>{in_cell(code)}</code> | {told} |\n"
    return made


def make() -> str:
    """Return the page."""
    before = os.getcwd()
    placement.missing = lambda: NO_DRIVER  # the page is the same on every machine
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        os.chdir(folder)
        try:
            make_files()
            parts = [INTRODUCTION + "\n" + EVENTS_ARE]
            for title, lines in SECTIONS.items():
                parts.append(f"## {title}\n\n{table(lines, run)}")
            parts.append(
                "## Not allowed\n\n"
                + table(
                    [
                        f"run {AB} secret.parquet",
                        f"run {AB} events.parquet -o locked/found.csv",
                        f"report {AB} events.parquet -o locked/report.html",
                    ],
                    forbidden,
                )
            )
            parts.append(
                "## A disk that is full\n\nHere a limit on the size of files stands for it; a full disk says `No space "
                "left on device`.\n\n"
                + table(
                    [
                        "run 'SELECT * FROM S WHERE A ; A ; A ; A' many.parquet -o found.csv",
                        "run 'SELECT * FROM S WHERE A ; A ; A ; A' many.parquet -o found.parquet",
                        "report 'SELECT * FROM S WHERE A ; A ; A ; A' many.parquet -o report.html",
                    ],
                    full_disk,
                )
            )
            endless = "run 'SELECT * FROM S WHERE A ; A+ ; A' many.parquet -o found.csv"
            parts.append("## Interrupted\n\n" + table([endless], lambda line: interrupted(line, signal.SIGINT)))
            parts[-1] += table([endless], lambda line: interrupted(line, signal.SIGTERM)).split("\n", 2)[2]
            parts.append("## In Python\n\n" + python_table())
        finally:
            os.chdir(before)
    return "\n".join(parts)


if __name__ == "__main__":
    made = make()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != made:
        sys.exit("docs/reference/errors.md is not what docs/make_errors.py writes: run it")
