"""One query over 665,297 flight events on Spark, by each dealing, and in this process (``make demo-spark``)."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import cer_gpu
from spark_glue import explain, run, session

FLIGHTS = Path(__file__).parent / "data" / "flights.parquet"
LATE_AGAIN = """\
SELECT * FROM flights
WHERE LANDED AS late ; DEPARTED AS again
FILTER late[delay > 120] AND again[delay > 60]
PARTITION BY [tailnum]
WITHIN 4 HOURS"""


def main() -> int:
    """Run the example and return its exit code: 1 when a dealing gives other rows."""
    query = cer_gpu.compile(LATE_AGAIN, time_column="ts")
    print(f"{LATE_AGAIN}\n")
    expected = query.evaluate(FLIGHTS, output="events")
    begun = time.perf_counter()
    expected = query.evaluate(FLIGHTS, output="events")
    print(f"in this process: {expected.num_rows} complex events in {time.perf_counter() - begun:.2f} s")
    print(f"on Spark\n{explain(query)}")

    spark = session()
    flights = spark.read.parquet(str(FLIGHTS))
    same = True
    with tempfile.TemporaryDirectory() as folder:
        for dealing in ("partition", "range", "replicate"):
            out = str(Path(folder, dealing))
            print(f"\n{run(flights, query, out, order_by='ts', dealing=dealing, tasks=4)}")
            found = pq.read_table(out).cast(expected.schema)
            is_same = rows(found) == rows(expected)
            print("the same rows as in this process" if is_same else "NOT the rows that this process found")
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
