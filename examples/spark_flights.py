"""One query over 665,297 flight events on Spark, by each distribution, and in this process (``make demo-spark``)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from demo import FLIGHTS, compile_loops, headline, show, start_spark

import cer_gpu
from spark_glue import explain, run

LATE_AGAIN = """\
SELECT * FROM flights
WHERE LANDED AS late ; DEPARTED AS again
FILTER late[delay > 120] AND again[delay > 60]
PARTITION BY [tailnum]
WITHIN 4 HOURS"""


def main() -> int:
    """Run the example and return its exit code: 1 when a distribution gives other rows."""
    query = cer_gpu.compile(LATE_AGAIN, time_column="ts")
    compile_loops({"late_again": query}, FLIGHTS)
    headline("in this process")
    expected = show(LATE_AGAIN, lambda: query.evaluate(FLIGHTS, output="events"))

    headline("on Spark")
    spark = start_spark()
    print(explain(query))
    flights = spark.read.parquet(str(FLIGHTS))
    same = True
    with tempfile.TemporaryDirectory() as folder:
        for distribution in ("key", "range", "broadcast"):
            out = str(Path(folder, distribution))
            print(f"\n{run(flights, query, out, order_by='ts', distribution=distribution, tasks=4)}")
            found = pq.read_table(out).cast(expected.schema)
            is_same = rows(found) == rows(expected)
            print("the same rows as in this process" if is_same else "NOT the rows that this process found", flush=True)
            same &= is_same
    spark.stop()
    return 0 if same else 1


def rows(table: pa.Table) -> list[dict]:
    """Return the rows in an order that does not depend on the tasks that found them."""
    return table.sort_by([("end", "ascending"), ("start", "ascending")]).to_pylist()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except cer_gpu.CerError as error:
        sys.exit(f"error: {error}")
