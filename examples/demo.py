"""Three queries over 665,297 flight events, in this process; then one of them on Spark (``make demo``)."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import cer_gpu
from cer_gpu.compile_progress import COMPILE_PROGRESS, CompileStep
from spark_glue import match_schema, match_stage, session

HERE = Path(__file__).parent
FLIGHTS = HERE / "data" / "flights.parquet"
QUERIES = ["late_again", "cancellations", "worse_and_worse"]
ON_SPARK = "late_again"
SCREEN = 24
"""Lines of a terminal, into which each query goes with its results."""

NEXT = """\
The columns of a Parquet, Arrow, CSV or JSON lines file, and its events by type:
  .venv/bin/cer-gpu columns FILE --type-column TYPE
Every A that a B follows within the hour; TIME never decreases (else: --sort):
  .venv/bin/cer-gpu run "SELECT * FROM S WHERE A ; B WITHIN 1 HOUR" FILE \\
      --type-column TYPE --time-column TIME
A query in words, and how it is evaluated:
  .venv/bin/cer-gpu explain "SELECT * FROM S WHERE A ; B WITHIN 1 HOUR" \\
      --time-column TIME
docs/first_query.md is a first query in 10 minutes, docs/concepts.md the rest."""


def main() -> int:
    """Run the demo and return its exit code: 1 when Spark gives other rows."""
    days = [pq.read_table(FLIGHTS, columns=["ts"])["ts"][i].as_py().date() for i in (0, -1)]
    n_events = pq.read_metadata(FLIGHTS).num_rows
    print(f"{FLIGHTS.name}: {n_events:,} events of flights from New York City, {days[0]} to {days[1]}")

    queries = {name: compile_query(name) for name in QUERIES}
    compile_loops(queries, FLIGHTS)
    for name, query in queries.items():
        headline(f"queries/{name}.ceql")
        show(query.text.rstrip(), lambda each=query: each.evaluate(FLIGHTS, output="events"))

    is_same = show_on_spark(queries[ON_SPARK])
    headline("now with a file of your own")
    print(NEXT)
    return 0 if is_same else 1


def compile_query(name: str) -> cer_gpu.Query:
    """Compile one of the queries beside this file."""
    text = (HERE / "queries" / f"{name}.ceql").read_text(encoding="utf-8")
    return cer_gpu.compile(text, time_column="ts")


def compile_loops(queries: dict[str, cer_gpu.Query], events: Path) -> None:
    """Compile the loops that queries need, by a first evaluation of each, and say how long it took."""
    print("\ncompiling the loops of each query, which later runs find on disk", flush=True)
    with compiling(len(queries)) as begin:
        for number, (name, query) in enumerate(queries.items()):
            begin(number, name)
            before, begun = COMPILE_PROGRESS.n_loops, time.perf_counter()
            query.evaluate(events, output="events")
            n_loops, seconds = COMPILE_PROGRESS.n_loops - before, time.perf_counter() - begun
            loops = f"{n_loops:2} loops compiled" if n_loops else "none left to compile"
            print(f"  {name:<16} {loops:<20} {seconds:5.1f} s", flush=True)


@contextlib.contextmanager
def compiling(n_queries: int) -> Iterator[Callable[[int, str], None]]:
    """Show a bar on a terminal during the block; yield a function that begins with a query, by number and name."""
    console = Console(stderr=True)
    columns = [BarColumn(8), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("", total=n_queries)

    def show_step(step: CompileStep | None) -> None:
        bar.update(task, description="" if step is None else str(step), refresh=True)

    with bar, COMPILE_PROGRESS.shown_by(show_step):
        yield lambda number, name: bar.update(task, completed=number, description=name)


def show(text: str, evaluate: Callable[[], pa.Table]) -> pa.Table:
    """Evaluate a query over the file twice; print its text, the times, and the first matches on one screen."""
    print(text, flush=True)
    n_events = pq.read_metadata(FLIGHTS).num_rows
    times = []
    for run in ("first run ", "second run"):
        begun = time.perf_counter()
        found = evaluate()
        seconds = time.perf_counter() - begun
        times.append(f"  {run}  {seconds:6.2f} s, from the file to the result: {n_events / seconds:13,.0f} events/s")
    print(f"\n{found.num_rows:,} matches", *times, sep="\n")
    width = shutil.get_terminal_size().columns
    n_lines = sum(1 + len(line) // (width + 1) for line in text.splitlines())
    show_matches(found, SCREEN - n_lines - 7)
    return found


def show_matches(found: pa.Table, n_lines: int) -> None:
    """Print the first matches, at least one, and no more than go into some lines."""
    keys = [name for name in found.column_names if name in ("tailnum", "origin")]
    for i, row in enumerate(found.slice(0, max(1, n_lines)).to_pylist()):
        n_lines -= 1 + len(row["events"])
        if i and n_lines < 0:
            return
        key = ", ".join(f"{name} {row[name]}" for name in keys)
        print(f"  {key}: {row['start_time']:%d %B, %H:%M} to {row['end_time']:%d %B, %H:%M}")
        for event in row["events"]:
            print(f"    {describe(event)}")


def describe(event: dict) -> str:
    """Return an event as one line."""
    flight = f"{event['carrier']} {event['flight']}"
    delay = "" if event["delay"] is None else f"{event['delay']:4} min late"
    return (
        f"{event['ts']:%H:%M}  {event['type']:<9}  {flight:<8} {event['tailnum'] or '(no aircraft)':<13}  "
        f"{event['origin']} to {event['dest']}  {delay}"
    ).rstrip()


def show_on_spark(query: cer_gpu.Query) -> bool:
    """Evaluate a query as a stage of a Spark job, and return True if its rows are those of this process."""
    headline(f"queries/{ON_SPARK}.ceql on Spark")
    spark = start_spark()
    events = spark.read.parquet(str(FLIGHTS)).coalesce(1)  # one stream is one partition
    stage = events.mapInArrow(match_stage(query, output="events"), match_schema(query, events, output="events"))
    found = show("events.mapInArrow(match_stage(query), match_schema(query, events))", stage.toArrow)
    spark.stop()
    expected = query.evaluate(FLIGHTS, output="events")
    is_same = found.cast(expected.schema).equals(expected)  # Spark keeps times in microseconds
    print("the same rows as in this process" if is_same else "NOT the rows that this process found")
    return is_same


def start_spark() -> Any:
    """Return a session of Spark, and say how long its start took."""
    print("starting Spark ... ", end="", flush=True)
    begun = time.perf_counter()
    spark = session()
    print(f"{time.perf_counter() - begun:.1f} s (Spark {spark.version})", flush=True)
    return spark


def headline(text: str) -> None:
    """Print the heading of a section."""
    print(f"\n---- {text} {'-' * (72 - len(text))}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except cer_gpu.CerError as error:
        sys.exit(f"error: {error}")
