"""Jobs for tests: events that come to a table or a folder, and runs of the command over what has come."""

import io
import random
from contextlib import redirect_stderr, redirect_stdout

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import write_deltalake
from follow.live import US, add_file, random_events
from written_tables import rows_of

import cer_gpu
from cer_gpu.io.sources import open_events
from spark_glue.cli import main

RULES = {
    "keyed": "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 1 SECOND",
    "silent": "SELECT * FROM S WHERE A ; !B PARTITION BY [k] WITHIN 1 SECOND",
    "whole": "SELECT * FROM S WHERE A ; B ; C WITHIN 0.2 SECONDS",
    "one": "SELECT * FROM S WHERE B FILTER B[k = 1]",
}
LATENESS = "1s"
# the last event waits for those that may be late, and the one before tells that time has passed
END = pa.table({"type": ["Z", "Z"], "ts": pa.array([10**12, 2 * 10**12], US), "k": [0, 0]})
PLACES = {"delta": "delta:{}/{}", "iceberg": "iceberg:cat.ns.{1}", "files": "{}/{}"}


class Job:
    """Rules over events that come to a table or a folder, and a target of the same kind.

    Parameters
    ----------
    folder
    kind
        One of `PLACES`.
    catalogue
        That of Iceberg, with the namespace ``ns``.
    seed
    """

    def __init__(self, folder, kind, catalogue=None, seed=1, n_events=4_000):
        self.folder, self.kind, self.catalogue, self.rng = folder, kind, catalogue, random.Random(seed)
        self.input, self.out = (PLACES[kind].format(folder, name) for name in ("events", "found"))
        (folder / "rules").mkdir(exist_ok=True)
        for name, text in RULES.items():
            (folder / "rules" / f"{name}.ceql").write_text(text)
        events = random_events(seed, n_events)
        late = [time.value + self.rng.randrange(900_000) for time in events["ts"]]
        self.events = events.take(pc.sort_indices(pa.array(late)))
        self.n_events = self.n_commits = 0

    @property
    def args(self):
        """Arguments of a run."""
        settled = ["--settle", "0"] if self.kind == "files" else []
        given = ["--queries", self.folder / "rules", "--input", self.input, "--state", self.folder / "state"]
        own = ["--time-column", "ts", "--lateness", LATENESS, *settled, "-o", self.out]
        return ["job", *map(str, [*given, *own])]

    def run(self, *more):
        """Run the command in this process; return its exit code, standard output and standard error."""
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            code = main([*self.args, *map(str, more)])
        return code, out.getvalue(), err.getvalue()

    def add(self, events):
        """Commit events."""
        if self.kind == "delta":
            write_deltalake(str(self.folder / "events"), events, mode="append")
        elif self.kind == "iceberg":
            if not self.n_commits:
                self.catalogue.create_table("ns.events", schema=events.schema)
            self.catalogue.load_table("ns.events").append(events)
        else:
            add_file(self.folder / "events", f"{self.n_commits:06}.parquet", events)
        self.n_commits += 1

    def add_some(self, most=40, least=1):
        """Commit the next events, some of them late."""
        some = self.events.slice(self.n_events, self.rng.randint(least, most))
        self.n_events += len(some)
        self.add(some)

    @property
    def found_rows(self):
        """The rows of the target."""
        if self.kind == "files":
            tables = [pq.read_table(path) for path in sorted((self.folder / "found").glob("part-*.parquet"))]
            return [row for table in tables for row in table.to_pylist()]
        return rows_of(open_events(self.out))

    @property
    def expected_rows(self):
        """The rows that one run over all events finds."""
        events, given = self.input, {}
        if self.kind == "files":
            events, given = str(self.folder / "events"), {"sort": True}
        return [
            {"query": name, **row}
            for name, text in RULES.items()
            for row in cer_gpu.compile(text, time_column="ts").evaluate(events, **given).to_pylist()
        ]

    @property
    def found(self):
        """The rows of the target, as texts in an order."""
        return sorted(f"{row['query']} {row['positions']}" for row in self.found_rows)

    @property
    def expected(self):
        """What one run over all events finds, as texts in an order."""
        return sorted(f"{row['query']} {row['positions']}" for row in self.expected_rows)

    def times(self, rows):
        """Return the times of rows in an order."""
        return sorted(f"{row['query']} {row['start_time']} {row['end_time']}" for row in rows)
