"""Predict the seconds of jobs on Spark by a model of measured constants, and check it against runs on this machine.

    python benchmarks/spark_model.py [--events N] [--row-events N] [--rule-events N] [--cores N] [--folder FOLDER]
                                     [--constants FILE] [--print-constants] [--save]

The constants are measured with fewer events than the runs that they predict, which have 1, 2, 4 and 8 tasks.  Then
the same model is printed for 10^10 and 10^12 events on 16 to 1,000 cores.  ``--constants`` reads them from a file in
place of measuring them: ``--print-constants`` writes one to begin with, and those of a cluster go into it.  Constants
that one machine cannot show (the network, the store, the stream's rate) are assumed; their names are in `ASSUMED`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import RESULTS, Row, machine, save, show
from rich.console import Console
from spark import KEYED, TIMED, TYPES, generate

import cer_gpu
from spark_glue import Summary, run, session

N_RULES = 2856
TASKS = (1, 2, 4, 8)
CORES = (16, 64, 256, 1000)
EVENTS = (10**10, 10**12)
NO_EVENTS, EMPTY_TASKS = 1000, (16, 272)
GROUPED = KEYED.replace("C PARTITION", "D FILTER A[x > 0.99] AND D[x > 0.99] PARTITION")


@dataclass(frozen=True)
class Kind:
    """Constants of a kind of job.

    Attributes
    ----------
    job
        Seconds of a job over next to no events, without its task: the plan, the driver and the commit.
    task
        Seconds of a core that a task takes to start: its process, the query or set, and the loops.
    rate
        Events per second and core; by key, from the read of the shuffle on.
    """

    job: float
    task: float
    rate: float


@dataclass(frozen=True)
class Constants:
    """Constants of the model.

    Attributes
    ----------
    by_time, by_key_files, rules
        A query by time, a query with keys, and a set of 2,856 rules, by ranges of files that the tasks read.
    by_key_rows
        A query with keys, by key, of rows that Spark reads.
    before
        Events per second and core up to the write of the shuffle.
    scheduled
        Seconds of the driver for each task, one after another.
    footer
        Seconds of a core to read the footer of a file.
    stored
        Bytes of an event in the files, of all columns.
    shuffled
        Bytes of an event in the shuffle.
    store
        Assumed: bytes per second and core from the store.
    network
        Assumed: bytes per second from and to a machine.
    machine_cores
        Assumed: cores of a machine.
    stream_rate
        Assumed: events per second of the stream.
    window
        Assumed: seconds of the window.
    group_rows, file_rows
        Assumed: events of a row group, and of a file.
    block
        Assumed: seconds of a core to open and read one block of a shuffle; there are as many as tasks that write times
        tasks that read.
    """

    by_time: Kind = Kind(0.3, 0.1, 20e6)
    by_key_files: Kind = Kind(0.3, 0.1, 20e6)
    rules: Kind = Kind(5.0, 2.0, 1.5e6)
    by_key_rows: Kind = Kind(1.0, 0.2, 1e6)
    before: float = 2e6
    scheduled: float = 0.002
    footer: float = 0.0005
    stored: float = 16.0
    shuffled: float = 10.0
    store: float = 100e6
    network: float = 1.25e9
    machine_cores: int = 16
    stream_rate: float = 100_000.0
    window: float = 60.0
    group_rows: int = 1_000_000
    file_rows: int = 10_000_000
    block: float = 1e-4

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Constants:
        """Return the constants of a file."""
        return cls(**{name: Kind(**value) if isinstance(value, dict) else value for name, value in values.items()})


ASSUMED = ("store", "network", "machine_cores", "stream_rate", "window", "group_rows", "file_rows", "block")


@dataclass(frozen=True)
class Job:
    """What the model predicts.

    Attributes
    ----------
    seconds
    parts
        Seconds by their reason.
    read
        Events read for each of the stream.
    """

    seconds: float
    parts: dict[str, float]
    read: float

    @property
    def largest(self) -> str:
        """Reason of the most seconds."""
        return max(self.parts, key=lambda name: self.parts[name])


def by_range(own: Constants, kind: Kind, n: int, n_tasks: int, cores: int) -> Job:
    """Predict a job by ranges of files: each task reads its range, and the window before it from its row groups on."""
    n_tasks = min(n_tasks, max(n // own.group_rows, 1))
    first = n / n_tasks
    window = min(own.stream_rate * own.window, n - first)
    # row groups in which the window lies are read as a whole
    before = min(math.ceil(window / own.group_rows) * own.group_rows, n - first)
    shared = (n_tasks - 1) / n_tasks  # the first range has none
    waves, at_once = math.ceil(n_tasks / cores), min(n_tasks, cores)
    parts = {
        "job": kind.job,
        "footers": own.footer * math.ceil(n / own.file_rows) / at_once,
        "scheduling": own.scheduled * n_tasks,
        "start of tasks": kind.task * waves,
        "evaluation": waves * first / kind.rate,
        "window": waves * shared * before / kind.rate,
    }
    waiting = waves * (first + shared * before) * own.stored / own.store
    parts["store"] = max(0.0, waiting - parts["evaluation"] - parts["window"])  # read ahead while it evaluates
    return Job(sum(parts.values()), parts, 1 + window * (n_tasks - 1) / n)


def by_key(own: Constants, n: int, n_tasks: int, cores: int, n_readers: int | None = None) -> Job:
    """Predict a job by key over rows: they are read and written to a shuffle, sorted, sent to Python and evaluated."""
    kind = own.by_key_rows
    n_readers = max(n_tasks, cores) if n_readers is None else n_readers
    waves = math.ceil(n_tasks / cores)
    n_machines = max(1, cores // own.machine_cores)
    moved = n * own.shuffled * (n_machines - 1) / n_machines
    parts = {
        "job": kind.job,
        "scheduling": own.scheduled * (n_tasks + n_readers),
        "start of tasks": kind.task * waves,
        "before the shuffle": max(n / own.before, n * own.stored / own.store) / min(n_readers, cores),
        "network": moved / (n_machines * own.network),
        "blocks": own.block * n_readers * n_tasks / cores if n_machines > 1 else 0.0,
        "after the shuffle": waves * n / n_tasks / kind.rate,
    }
    return Job(sum(parts.values()), parts, 1.0)


# ---- measurements ----------------------------------------------------------------------------------------------------


def rules_text(n_rules: int) -> dict[str, str]:
    """Return a set of rules, each of a value of its own: of one event, or of two within a second."""
    single = "SELECT * FROM S WHERE {a} FILTER {a}[k = {i}] AND {a}[x > 0.999] WITHIN 1 SECOND"
    double = "SELECT * FROM S WHERE {a} ; {b} FILTER {a}[k = {i} AND x > 0.9] AND {b}[k = {i}] WITHIN 1 SECOND"
    texts = {}
    for i in range(n_rules):
        a, b = TYPES[i % 8], TYPES[(i + 1) % 8]
        texts[f"rule {i}"] = (double if i % 4 == 0 else single).format(a=a, b=b, i=i)
    return texts


class Runs:
    """Runs of jobs in a session of Spark.

    Parameters
    ----------
    cores
    folder
        Where the events are kept.
    out
        Folder of the results.
    """

    def __init__(self, cores: int, folder: Path, out: str) -> None:
        self.spark = session(cores=cores, config={"spark.driver.memory": "6g", "spark.sql.shuffle.partitions": cores})
        self.cores, self.folder, self.out = cores, folder, out
        self.queries: dict[str, Any] = {
            "by time": cer_gpu.compile(TIMED, time_column="ts"),
            "by key": cer_gpu.compile(KEYED, time_column="ts"),
            "rules": cer_gpu.compile_all(rules_text(N_RULES), time_column="ts"),
            "by key, rows": cer_gpu.compile(GROUPED, time_column="ts"),
        }

    def job(self, name: str, n_events: int, n_tasks: int) -> Summary:
        """Run a job twice, and return the faster run."""
        rows = name == "by key, rows"
        events = self.spark.read.parquet(str(generate(self.folder, n_events)))
        options: dict[str, Any] = {"distribution": "key", "source": "rows"} if rows else {"distribution": "range"}
        runs = [
            run(
                events,
                self.queries[name],
                f"{self.out}/found",
                order_by="ts",
                tasks=n_tasks,
                output="count" if name != "rules" else "positions",
                overwrite=True,
                show_progress=False,
                **options,
            )
            for _ in range(2)
        ]
        return min(runs, key=lambda each: each.seconds)

    def bare_tasks(self, n_tasks: int) -> float:
        """Return the seconds of a job of tasks that do nothing, in Java."""
        return timed(lambda: self.spark.range(0, n_tasks, 1, n_tasks).write.format("noop").mode("overwrite").save())


def timed(work: Callable[[], Any], times: int = 3) -> float:
    """Return the median seconds of some work, done once before."""
    work()
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def measured_constants(runs: Runs, n_files: int, n_rows: int, n_rules: int) -> Constants:
    """Measure the constants: starts by jobs over next to no events, rates by the difference of two jobs."""
    few, many = EMPTY_TASKS
    scheduled = (runs.bare_tasks(many) - runs.bare_tasks(few)) / (many - few)
    kinds = {}
    for name, n in (("by time", n_files), ("by key", n_files), ("rules", n_rules), ("by key, rows", n_rows)):
        # all cores are busy: a task that is alone reads ahead on another one
        start, less, more = (runs.job(name, each, runs.cores) for each in (NO_EVENTS, n, 2 * n))
        # seconds of cores in the last stage, which evaluates
        begun, first, second = (each.stages[-1] for each in (start, less, more))
        # a line through both sizes: rules are made ready when they have their first events
        task = max(begun.seconds, 2 * first.seconds - second.seconds) / first.n_tasks
        kinds[name] = Kind(
            job=max(start.seconds - begun.seconds / begun.n_tasks, 0.0),
            task=task,
            rate=n / max(second.seconds - first.seconds, 1e-3),
        )
        print(name, kinds[name], file=sys.stderr)
    read = [each.stages[-2].seconds for each in (less, more)]
    events = generate(runs.folder, n_files)
    return Constants(
        by_time=kinds["by time"],
        by_key_files=kinds["by key"],
        rules=kinds["rules"],
        by_key_rows=kinds["by key, rows"],
        before=n_rows / max(read[1] - read[0], 1e-3),
        scheduled=scheduled,
        footer=footer_seconds(runs),
        stored=sum(path.stat().st_size for path in events.glob("*.parquet")) / n_files,
        shuffled=more.shuffled / (2 * n_rows),
    )


def footer_seconds(runs: Runs, n: int = 500) -> float:
    """Return the seconds of a core to read the footer of a file."""
    from spark_glue.files.footers import find_footers
    from spark_glue.files.scan import scan_of_paths

    (path,) = generate(runs.folder, NO_EVENTS).glob("*.parquet")
    scan = scan_of_paths([str(path)])
    scan = dataclasses.replace(scan, paths=scan.paths * n)
    begun = time.process_time()
    find_footers(scan, "type", "ts")
    return (time.process_time() - begun) / n


def compared(runs: Runs, own: Constants, n_files: int, n_rows: int, n_rules: int) -> list[Row]:
    """Run jobs of 1, 2, 4 and 8 tasks, and predict their seconds."""
    # the generated stream: its rate, and windows of a second or a minute
    rows: list[Row] = []
    for name, n, kind, window in (
        ("by time", n_files, own.by_time, 1),
        ("by key", n_files, own.by_key_files, 60),
        ("rules", n_rules, own.rules, 1),
        ("by key, rows", n_rows, None, 60),
    ):
        local = dataclasses.replace(own, stream_rate=1000.0, window=window, store=math.inf)
        for n_tasks in TASKS:
            if kind is None:
                predicted = by_key(local, n, n_tasks, runs.cores, n_readers=runs.cores)
            else:
                predicted = by_range(local, kind, n, n_tasks, runs.cores)
            done = runs.job(name, n, n_tasks)
            rows.append(
                {
                    "job": name,
                    "events": n,
                    "tasks": n_tasks,
                    "measured, s": done.seconds,
                    "model, s": predicted.seconds,
                    "model / measured": predicted.seconds / done.seconds,
                    "events read / events": done.overlap,
                    "by the model": predicted.read,
                }
            )
            print(rows[-1], file=sys.stderr)
    return rows


# ---- the table -------------------------------------------------------------------------------------------------------


def large(own: Constants) -> list[Row]:
    """Predict jobs of clusters."""
    rows: list[Row] = []
    for n in EVENTS:
        ways: dict[str, Callable[[int], Job]] = {
            "by time": lambda cores, n=n: by_range(own, own.by_time, n, cores, cores),
            "by key, from files": lambda cores, n=n: by_range(own, own.by_key_files, n, cores, cores),
            "by key, rows": lambda cores, n=n: by_key(own, n, tasks_by_key(n, cores), cores),
            f"{N_RULES:,} rules, by time": lambda cores, n=n: by_range(own, own.rules, n, cores, cores),
        }
        for name, way in ways.items():
            base = way(CORES[0])
            for cores in CORES:
                job = way(cores)
                efficiency = base.seconds * CORES[0] / (job.seconds * cores)
                rows.append(
                    {
                        "events": f"10^{round(math.log10(n))}",
                        "job": name,
                        "cores": cores,
                        "seconds": job.seconds,
                        "million events/s": n / job.seconds / 1e6,
                        "of 16 cores' rate per core": efficiency,
                        "events read / events": job.read,
                        "most of it": job.largest,
                    }
                )
    return rows


TASK_ROWS = 100_000_000
"""Rows that a task of a job by key sorts at most."""


def tasks_by_key(n: int, cores: int) -> int:
    """Return the number of tasks of a job by key: a multiple of the cores."""
    return cores * max(1, math.ceil(n / TASK_ROWS / cores))


def main(arguments: list[str]) -> int:
    """Measure, compare and predict; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=40_000_000, help="events of the jobs over files")
    parser.add_argument("--row-events", type=int, default=4_000_000, help="events of the jobs over rows of Spark")
    parser.add_argument("--rule-events", type=int, default=8_000_000, help="events of the jobs of a set of rules")
    parser.add_argument("--cores", type=int, default=2, help="tasks of Spark at once")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the events are kept")
    parser.add_argument("--constants", type=Path, help="file of constants, in JSON, in place of measurements")
    parser.add_argument("--print-constants", action="store_true", help="print a file of constants, and do nothing else")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<machine>-spark-model.json")
    options = parser.parse_args(arguments)
    if options.print_constants:
        print(json.dumps(dataclasses.asdict(Constants()), indent=2))
        return 0
    console, results = Console(width=180), {}
    sizes = options.events, options.row_events, options.rule_events
    if options.constants is not None:
        own = Constants.from_dict(json.loads(options.constants.read_text(encoding="utf-8")))
    else:
        with tempfile.TemporaryDirectory() as out:
            runs = Runs(options.cores, options.folder, out)
            own = measured_constants(runs, *(size // 4 for size in sizes))
            results["Model beside runs"] = compared(runs, own, *sizes)
            show(console, "Model beside runs", results["Model beside runs"])
            runs.spark.stop()
    flat: dict[str, float] = {}
    for name, value in dataclasses.asdict(own).items():
        flat |= {f"{name}.{of}": each for of, each in value.items()} if isinstance(value, dict) else {name: value}
    results["Constants"] = [
        {"constant": name, "value": float(value), "": "assumed" if name in ASSUMED else "measured"}
        for name, value in flat.items()
    ]
    results["Jobs on clusters, by the model"] = large(own)
    for title in ("Constants", "Jobs on clusters, by the model"):
        show(console, title, results[title])
    if options.save:
        command = ["python benchmarks/spark_model.py", *arguments]
        save(console, RESULTS / f"{machine()}-spark-model.json", results, command)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
