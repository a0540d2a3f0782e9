"""Compare with other engines of today, on the same events at the same time, with the same answers.

A peer is given as many events as it reads in about so many seconds (four times as many at each try); its answer is
compared with that of cer_gpu on the same events, and a difference stops the benchmark.  cer_gpu runs on one thread over
the whole stream; it counts or lists, as the question asks.  A peer that is missing is named, with the reason.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from measure import Row, count, drain, seconds
from rich.console import Console
from streams import TYPES, random_types

import cer_gpu

HERE = Path(__file__).parent
TITLE = "Against peers"
WINDOWS = (100, 1000, 10_000, 100_000)
MAX_JOINED = 20_000_000
"""Rows that a join may form in memory, for the peers that keep them all."""
MAX_COMPARED = 5_000_000_000
"""Pairs of partial matches that FlinkCEP may form: it takes 5 to 10 ns for each."""


@dataclass(frozen=True)
class Question:
    """A sequence of types in a window: in CEQL, and for the peers as the type and the condition of each event.

    Attributes
    ----------
    steps : tuple of (str, float)
        Type of each event, and the bound that its x is below.
    absent : str
        A type that never comes.
    starts : bool
        True: the peer finds one match for each start only, so the number of different starts is compared.
    """

    name: str
    text: str
    window: int
    steps: tuple[tuple[str, float], ...]
    output: str = "count"
    absent: str = ""
    starts: bool = False

    @property
    def n(self) -> int:
        """Return the length of the sequence."""
        return len(self.steps)

    @property
    def joins(self) -> bool:
        """Return True if joins are asked: they find all, and would read nothing for a type that never comes."""
        return not self.absent and not self.starts

    @property
    def shares(self) -> np.ndarray:
        """Return the share of the events that each step takes."""
        n_types = len(TYPES) - bool(self.absent)
        return np.array([below / n_types if kind != self.absent else 0.0 for kind, below in self.steps])

    def events(self, n_events: int) -> pa.Table:
        """Return the stream."""
        return random_types(n_events, names=[name for name in TYPES if name != self.absent])


def every(n: int) -> tuple[tuple[str, float], ...]:
    """Return the steps of a sequence of the first types, with any x."""
    return tuple((kind, 1.0) for kind in TYPES[:n])


def questions() -> list[Question]:
    """Return all questions."""
    found = []
    for window in WINDOWS:
        within = f"WITHIN {window} EVENTS"
        first, middle, last = 30 / window, 0.1, 0.01
        few = f"A AS a ; B AS b ; C AS c FILTER a[x < {first}] AND b[x < {middle}] AND c[x < {last}]"
        steps = (("A", first), ("B", middle), ("C", last))
        found += [
            Question("count all", f"SELECT * FROM S WHERE A ; B ; C {within}", window, every(3)),
            Question("list a few", f"SELECT * FROM S WHERE {few} {within}", window, steps, "positions"),
            Question("no output", f"SELECT * FROM S WHERE A ; B ; C {within}", window, every(3), "positions", "C"),
        ]
    text = "SELECT * FROM S WHERE A ; B ; C WITHIN 100 EVENTS"
    found.append(Question("list all; peer: one for each start", text, 100, every(3), "positions", starts=True))
    for n in (5, 7, 9):
        text = f"SELECT * FROM S WHERE {' ; '.join(TYPES[:n])} WITHIN 100 EVENTS"
        found.append(Question("no output", text, 100, every(n), "positions", TYPES[n - 1]))
    return found


class Peer(Protocol):
    """An engine that can be asked.

    Attributes
    ----------
    fewest : int
        Events of the first try.
    """

    fewest: int

    def missing(self) -> str | None:
        """Return the reason why it cannot run, or None if it can."""

    def name(self) -> str:
        """Return its name and version."""

    def answers(self, question: Question, n_events: int) -> bool:
        """Return True if it can express a question, and hold so many events of it."""

    def ask(self, question: Question, table: pa.Table) -> tuple[float, int]:
        """Return the seconds that it takes, and the number of matches that it finds."""


def _package(name: str) -> str | None:
    """Return the message that a package is missing, or None if it is there."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return f"the package {name} is not installed"
    return None


class DuckDB:
    """DuckDB on all cores: a self-join over buckets of one window's length, its fastest form."""

    fewest = 5_000

    def missing(self) -> str | None:
        """See `Peer`."""
        return _package("duckdb")

    def name(self) -> str:
        """See `Peer`."""
        return f"DuckDB {importlib.import_module('duckdb').__version__}"

    def answers(self, question: Question, n_events: int) -> bool:
        """See `Peer`."""
        return question.joins

    def ask(self, question: Question, table: pa.Table) -> tuple[float, int]:
        """See `Peer`."""
        import duckdb

        window = question.window
        selected = [
            f"SELECT p, p // {window} AS bucket FROM events WHERE type = '{kind}' AND x < {below}"
            for kind, below in question.steps
        ]
        begun = time.perf_counter()
        connection = duckdb.connect()
        connection.register("given", table)
        connection.execute("CREATE TABLE events AS SELECT row_number() OVER () - 1 AS p, type, x FROM given")
        found = connection.execute(
            f"""
            WITH a AS ({selected[0]}), b AS ({selected[1]}), c AS ({selected[2]}),
            ends AS (SELECT p, bucket FROM c UNION ALL SELECT p, bucket - 1 FROM c),
            middles AS (SELECT p, bucket FROM b UNION ALL SELECT p, bucket - 1 FROM b),
            pairs AS (
                SELECT a.p AS first, a.bucket AS bucket, ends.p AS last FROM a JOIN ends
                ON a.bucket = ends.bucket AND ends.p > a.p AND ends.p - a.p <= {window}
            )
            SELECT count(*) FROM pairs JOIN middles
            ON pairs.bucket = middles.bucket AND middles.p > pairs.first AND middles.p < pairs.last
            """
        ).fetchone()
        connection.close()
        assert found is not None
        return time.perf_counter() - begun, int(found[0])


def joined_rows(question: Question, n_events: int) -> float:
    """Return the number of rows, about, that the join over buckets forms before it checks their order."""
    first, middle, last = question.shares
    window, both = min(question.window, n_events / 2), min(2 * question.window, n_events)
    return float(n_events * first * last * (both + window * both * middle))


class Polars:
    """Polars with the same join, in its streaming engine; only as many events as keep the joined rows few."""

    fewest = 2_000

    def missing(self) -> str | None:
        """See `Peer`."""
        return _package("polars")

    def name(self) -> str:
        """See `Peer`."""
        return f"Polars {importlib.import_module('polars').__version__}"

    def answers(self, question: Question, n_events: int) -> bool:
        """See `Peer`."""
        return question.joins and joined_rows(question, n_events) <= MAX_JOINED

    def ask(self, question: Question, table: pa.Table) -> tuple[float, int]:
        """See `Peer`."""
        import polars as pl

        begun = time.perf_counter()
        events = pl.from_arrow(table).lazy().with_row_index("p").with_columns(pl.col("p").cast(pl.Int64))
        a, b, c = (
            events.filter((pl.col("type") == kind) & (pl.col("x") < below)).select(
                pl.col("p").alias(name), (pl.col("p") // question.window).alias("bucket")
            )
            for name, (kind, below) in zip("abc", question.steps, strict=True)
        )
        middles, ends = (pl.concat([side, side.with_columns(pl.col("bucket") - 1)]) for side in (b, c))
        pairs = a.join(ends, on="bucket").filter(
            (pl.col("c") > pl.col("a")) & (pl.col("c") - pl.col("a") <= question.window)
        )
        found = pairs.join(middles, on="bucket").filter((pl.col("b") > pl.col("a")) & (pl.col("b") < pl.col("c")))
        n_found = found.select(pl.len()).collect(engine="streaming").item()
        return time.perf_counter() - begun, int(n_found)


class Pandas:
    """pandas with the same join, all joined rows in memory; only as many events as keep them few."""

    fewest = 2_000

    def missing(self) -> str | None:
        """See `Peer`."""
        return _package("pandas")

    def name(self) -> str:
        """See `Peer`."""
        return f"pandas {importlib.import_module('pandas').__version__}"

    def answers(self, question: Question, n_events: int) -> bool:
        """See `Peer`."""
        return question.joins and joined_rows(question, n_events) <= MAX_JOINED

    def ask(self, question: Question, table: pa.Table) -> tuple[float, int]:
        """See `Peer`."""
        import pandas as pd

        frame = table.to_pandas()
        begun = time.perf_counter()
        a, b, c = (
            pd.DataFrame({name: np.flatnonzero((frame["type"] == kind) & (frame["x"] < below))})
            for name, (kind, below) in zip("abc", question.steps, strict=True)
        )
        for side in (a, b, c):
            side["bucket"] = side.iloc[:, 0] // question.window
        middles, ends = (pd.concat([side, side.assign(bucket=side["bucket"] - 1)]) for side in (b, c))
        pairs = a.merge(ends, on="bucket")
        pairs = pairs[(pairs["c"] > pairs["a"]) & (pairs["c"] - pairs["a"] <= question.window)]
        found = pairs.merge(middles, on="bucket")
        n_found = int(((found["b"] > found["a"]) & (found["b"] < found["c"])).sum())
        return time.perf_counter() - begun, n_found


def _python(version: str) -> str | None:
    """Return the interpreter of a version, or None if none starts."""
    found = shutil.which(f"python{version}")
    works = found is not None and not subprocess.run([found, "-V"], capture_output=True).returncode
    return found if works else None


class Elsewhere:
    """Peer in an interpreter of its own: a script beside this file, which names it and does the work.

    The script is given a file of type codes and one of values of x, and a JSON object on its standard input; it answers
    with a JSON object in its last line.  Without any question, it answers with its name and version.
    """

    fewest = 5_000

    def __init__(self, name: str, script: str, interpreter: str | None, package: str) -> None:
        self.script, self.interpreter, self.package = HERE / script, interpreter, package
        self._name = name  # without the version before the first call

    def _call(self, question: dict[str, object]) -> dict[str, object]:
        assert self.interpreter is not None
        with tempfile.TemporaryDirectory() as folder:
            command = [self.interpreter, "-W", "ignore", str(self.script)]
            done = subprocess.run(command, input=json.dumps(question), capture_output=True, text=True, cwd=folder)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
            raise RuntimeError(lines[-1])
        found: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
        return found

    def missing(self) -> str | None:
        """See `Peer`."""
        if self.interpreter is None:
            return f"no Python with the package {self.package} was named (see --help)"
        try:
            self._name = str(self._call({})["name"])
        except (OSError, RuntimeError) as error:
            return f"the package {self.package} does not run in {self.interpreter} ({error})"
        return None

    def name(self) -> str:
        """See `Peer`."""
        return self._name

    def ask(self, question: Question, table: pa.Table, **more: object) -> tuple[float, int]:
        """See `Peer`; the script is given `more` facts."""
        types = table["type"].combine_chunks()
        with tempfile.TemporaryDirectory() as folder:
            types.indices.to_numpy().astype(np.uint8).tofile(f"{folder}/types")
            table["x"].to_numpy().tofile(f"{folder}/x")
            found = self._call(
                {
                    "text": question.text,
                    "window": question.window,
                    "steps": question.steps,
                    "names": types.dictionary.to_pylist(),
                    "folder": folder,
                    **more,
                }
            )
        return float(str(found["seconds"])), int(str(found["found"]))


class Core(Elsewhere):
    """CORE's own Python bindings (GPL, CPython 3.13 only): one thread; it lists everything, as text.

    Events are made before the clock starts.
    """

    def __init__(self, interpreter: str | None) -> None:
        super().__init__("CORE", "core_peer.py", interpreter or _python("3.13"), "pycer")

    def answers(self, question: Question, n_events: int) -> bool:
        """See `Peer`: it lists matches, with some 300 bytes for each, so their number is limited."""
        n_found = n_events * np.prod(question.shares) * min(question.window, n_events) ** 2 / 2
        return not question.starts and bool(n_found <= MAX_JOINED / 4)


class Flink(Elsewhere):
    """Flink SQL's MATCH_RECOGNIZE: another question, as ``flink_peer.py`` says, and asked with one window only.

    Starting a job takes seconds, so its first try has more events than that of others.
    """

    fewest = 50_000

    def __init__(self, interpreter: str | None) -> None:
        super().__init__("Flink SQL", "flink_peer.py", interpreter, "apache-flink")

    def answers(self, question: Question, n_events: int) -> bool:
        """See `Peer`."""
        return question.starts


class FlinkCep(Elsewhere):
    """FlinkCEP, through a class in Java that ``flink_cep_peer.py`` compiles: it lists everything.

    At each event it compares the partial matches in the window with each other, so its first try has few events.
    """

    fewest = 1_000

    def __init__(self, interpreter: str | None) -> None:
        super().__init__("FlinkCEP", "flink_cep_peer.py", interpreter, "apache-flink")

    def answers(self, question: Question, n_events: int) -> bool:
        """See `Peer`: it is asked only if it answers in about a minute."""
        partial = np.cumprod(question.shares[:-1] * question.window / np.arange(1, question.n)).sum()
        fewer = min(question.window / n_events, 1) * (1 - 1 / (2 * question.n - 1))  # while the first window fills
        compared = n_events * question.shares.sum() * partial**2 * (1 - fewer)
        return not question.starts and bool(compared <= MAX_COMPARED)


def all_peers(options: argparse.Namespace) -> list[Peer]:
    """Return all peers, missing or not."""
    return [DuckDB(), Polars(), Pandas(), Core(options.core), Flink(options.flink), FlinkCep(options.flink)]


@cache
def ours(question: Question, n_events: int) -> float:
    """Return the seconds that cer_gpu takes for a question."""
    query, table = cer_gpu.compile(question.text), question.events(n_events)
    (taken,) = seconds(lambda: count(query, table, question.output), repeat=3, clock=time.perf_counter)
    return taken


def compare(peer: Peer, question: Question, n_events: int, patience: float) -> Row | None:
    """Ask a peer and cer_gpu the same question, and return the row; None: the peer cannot express it."""
    n = min(peer.fewest, n_events)
    if not peer.answers(question, n):
        return None
    table = question.events(n_events)
    taken, expected = peer.ask(question, table.slice(0, n))
    while taken < patience / 4 and n < n_events and peer.answers(question, min(n_events, 4 * n)):
        n = min(n_events, 4 * n)
        taken, expected = peer.ask(question, table.slice(0, n))
    query = cer_gpu.compile(question.text)
    if question.starts:
        batches = drain(query, table.slice(0, n), question.output)
        found = len(
            np.unique(np.concatenate([np.empty(0, np.int64), *(batch["start"].to_numpy() for batch in batches)]))
        )
    else:
        found = count(query, table.slice(0, n), question.output)
    assert found == expected, (question, found, expected)
    whole = ours(question, n_events)
    return {
        "workload": question.name,
        "n": question.n,
        "window": question.window,
        "peer": peer.name(),
        "cer_gpu, million events/s": n_events / whole / 1e6,
        "peer, million events/s": n / taken / 1e6,
        "peer's events": n,
        "found in them": found,
        "times as fast": taken / n / (whole / n_events),
    }


def against_peers(console: Console, options: argparse.Namespace) -> Iterator[tuple[str, list[Row], str]]:
    """Yield title, rows and a remark of two tables: that of the peers that ran, and that of those that could not."""
    rows: list[Row] = []
    skipped: list[Row] = []
    for peer in all_peers(options):
        reason = peer.missing()
        if reason is not None:
            console.print(f"skipped: {reason}", highlight=False)
            skipped.append(
                {"workload": peer.name() if isinstance(peer, Elsewhere) else type(peer).__name__, "why": reason}
            )
            continue
        for question in questions():
            with console.status(f"{peer.name()}: {question.name}, n {question.n}, window {question.window:,}"):
                row = compare(peer, question, options.events, options.seconds)
            rows += [row] if row else []
    rows.sort(key=lambda row: (str(row["workload"]), row["n"], row["window"]))
    yield (
        TITLE,
        rows,
        "Answers were compared on the peer's events, as many as it reads in some seconds; of Flink, starts only.",
    )
    yield "Peers left out", skipped, "They are not on this machine."
