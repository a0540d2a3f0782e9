"""Driver for a cluster: ``spark-submit ... cluster_program.py match|killed FOLDER``.

FOLDER/events has the events, FOLDER/found/NAME.parquet gets what was found.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partialmethod
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from cluster_cases import CASES, PAIRS, Case

import cer_gpu
from spark_glue import match, read, register, register_sql, run, session


def found_by(spark, case: Case, folder: Path) -> pa.Table:
    """Return what a case finds on Spark."""
    place, query = case.place(folder), case.compiled(folder)
    if case.relative:
        kind, colon, path = place.rpartition(":")
        place = kind + colon + os.path.relpath(path)
    if case.way == "path":
        return match(place, query, order_by="ts", output=case.output, tasks=2).toArrow()
    if case.way == "source":
        register(spark)
        options = {"query": case.query, "orderBy": "ts", "output": case.output, "tasks": "2"}
        return spark.read.format("cer").options(**options).load(place).toArrow()
    if case.way == "function":
        register_sql(spark)
        spark.read.parquet(place).createOrReplaceTempView("stored")
        return spark.sql(
            f"SELECT * FROM cer_match(TABLE(stored), '{case.query}', orderBy => 'ts', output => '{case.output}')"
        ).toArrow()
    return match(read(spark, place), query, order_by="ts", output=case.output, **{"tasks": 2, **case.options}).toArrow()


def find_all(spark, folder: Path, names: list[str]) -> None:
    """Write what each case finds, and where the workers ran."""
    for name in names or CASES:
        pq.write_table(found_by(spark, CASES[name], folder / "events"), folder / "found" / f"{name}.parquet")
        print(name, flush=True)

    def where(batches):
        import os

        import cer_gpu

        n_rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pylist([{"told": [os.getcwd(), os.environ["HOME"], cer_gpu.__file__, str(n_rows)]}])

    for row in spark.range(8).repartition(2).mapInArrow(where, "told array<string>").collect():
        print(json.dumps(row.told))


def find_though_killed(spark, folder: Path, names: list[str]) -> None:
    """Write what each case finds while executors are killed in the middle of its tasks, twice."""
    from killed_tasks import KilledInside

    frames = type(spark.range(1))
    map_in_arrow = frames.mapInArrow
    query = cer_gpu.compile(PAIRS, time_column="ts")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    for name in names:
        marks = folder / "marks" / name
        marks.mkdir(parents=True)

        def killed(df, function, *args, marks, **named):
            return map_in_arrow(df, KilledInside(function, marks, 2, executor=True), *args, **named)

        frames.mapInArrow = partialmethod(killed, marks=marks)
        out = str(folder / "found" / name)
        events = spark.read.parquet(str(folder / "events" / "files"))
        summary = run(events, query, out, order_by="ts", tasks=4, show_progress=False, **CASES[name].options)
        print(json.dumps({"name": name, "matches": summary.n_matches, "parts": len(summary.parts)}), flush=True)


def main() -> None:
    """Run the command."""
    command, folder = sys.argv[1], Path(sys.argv[2])
    (folder / "found").mkdir(exist_ok=True)
    spark = session("cluster")
    {"match": find_all, "killed": find_though_killed}[command](spark, folder, sys.argv[3:])
    spark.stop()


if __name__ == "__main__":
    main()
