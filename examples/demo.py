"""Three queries over 665,297 flight events, in this process; then one of them on Spark (``make demo``)."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import cer_gpu
from spark_glue import match_schema, match_stage, session

HERE = Path(__file__).parent
FLIGHTS = HERE / "data" / "flights.parquet"
QUERIES = ["late_again", "cancellations", "worse_and_worse"]
ON_SPARK = "late_again"
N_SHOWN = 3


def main() -> int:
    """Run the demo and return its exit code: 1 when Spark gives other rows."""
    flights = pq.read_table(FLIGHTS)
    days = [flights["ts"][i].as_py().date() for i in (0, -1)]
    print(f"{FLIGHTS.name}: {len(flights):,} events of flights from New York City, {days[0]} to {days[1]}")

    queries = {name: compile_query(name) for name in QUERIES}
    print("\ncompiling the engine, once (it is kept for the next time) ... ", end="", flush=True)
    begun = time.perf_counter()
    for query in queries.values():
        for output in ("events", "count"):
            query.evaluate(flights.slice(0, 1000), output=output)
    print(f"{time.perf_counter() - begun:.1f} s")

    tables = {name: demonstrate(name, query) for name, query in queries.items()}
    return 0 if same_on_spark(queries[ON_SPARK], tables[ON_SPARK]) else 1


def compile_query(name: str) -> cer_gpu.Query:
    """Compile one of the queries beside this file."""
    text = (HERE / "queries" / f"{name}.ceql").read_text(encoding="utf-8")
    return cer_gpu.compile(text, time_column="ts")


def demonstrate(name: str, query: cer_gpu.Query) -> pa.Table:
    """Evaluate a query over the file, print its first complex events with their events, and return all of them."""
    headline(f"queries/{name}.ceql")
    print(query.text.rstrip())
    begun = time.perf_counter()
    found = query.evaluate(FLIGHTS, output="events")
    seconds = time.perf_counter() - begun
    keys = [name for name in found.column_names if name in ("tailnum", "origin")]
    n_keys = len(found.select(keys).group_by(keys).aggregate([]))
    print(
        f"\n{found.num_rows:,} complex events in {n_keys} partitions in {seconds:.2f} s, from the file to the result; "
        f"the first {N_SHOWN}:"
    )
    for row in found.slice(0, N_SHOWN).to_pylist():
        key = ", ".join(f"{name} {row[name]}" for name in keys)
        print(f"\n  {key}: {row['start_time']:%d %B, %H:%M} to {row['end_time']:%d %B, %H:%M}")
        for event in row["events"]:
            print(f"    {describe(event)}")
    return found.drop_columns("events")


def describe(event: dict) -> str:
    """Return an event as one line."""
    flight = f"{event['carrier']} {event['flight']}"
    delay = "" if event["delay"] is None else f"{event['delay']:4} min late"
    return (
        f"{event['ts']:%H:%M}  {event['type']:<9}  {flight:<8} {event['tailnum'] or '(no aircraft)':<13}  "
        f"{event['origin']} to {event['dest']}  {delay}"
    ).rstrip()


def same_on_spark(query: cer_gpu.Query, expected: pa.Table) -> bool:
    """Evaluate a query as a stage of a Spark job, and return True if its rows are those of `expected`."""
    headline(f"queries/{ON_SPARK}.ceql on Spark")
    print("starting Spark ... ", end="", flush=True)
    begun = time.perf_counter()
    spark = session()
    print(f"{time.perf_counter() - begun:.1f} s (Spark {spark.version})")

    begun = time.perf_counter()
    # one stream is one partition, and only the columns that the query reads go to Python
    events = spark.read.parquet(str(FLIGHTS)).select(query.columns(pq.read_schema(FLIGHTS))).coalesce(1)
    found = events.mapInArrow(match_stage(query), match_schema(query, events)).toArrow()
    seconds = time.perf_counter() - begun
    spark.stop()

    same = found.cast(expected.schema).equals(expected)  # Spark keeps times in microseconds
    print(f"{found.num_rows} complex events in {seconds:.2f} s: ", end="")
    print("the same rows as in this process" if same else "NOT the rows that this process found")
    return same


def headline(text: str) -> None:
    """Print the heading of a section."""
    print(f"\n---- {text} {'-' * (90 - len(text))}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except cer_gpu.CerError as error:
        sys.exit(f"error: {error}")
