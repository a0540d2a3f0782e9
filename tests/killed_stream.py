"""Streaming queries that can be killed at any time and started again: ``python killed_stream.py FOLDER``.

FOLDER/in has the files of the events.  The same events go through `match_stream` and through `match_batches`; at the
end, what Spark's sink holds for the first is written to FOLDER/operator.parquet, and "done" is printed.
"""

import sys
import time
from pathlib import Path

from spark_streams import PROVIDER, ROCKSDB, stream_of

import cer_gpu
from spark_glue import session
from spark_glue.streaming import match_batches, match_stream

KEYED = "SELECT * FROM S WHERE A ; !B PARTITION BY [k] WITHIN 5 SECONDS"
WHOLE = "SELECT * FROM S WHERE A ; B WITHIN 2 SECONDS"


def main(folder: Path) -> None:
    settings = {PROVIDER: ROCKSDB, "spark.sql.shuffle.partitions": 2}
    settings["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    spark = session("killed stream", config=settings)
    stream = stream_of(spark, folder / "in")
    keyed, whole = (cer_gpu.compile(text, time_column="ts") for text in (KEYED, WHOLE))
    found = match_stream(stream, keyed, lateness="4s", groups=3)
    operator = found.writeStream.format("parquet").option("path", f"{folder}/sink")
    function = match_batches(whole, f"{folder}/batches", checkpoint=f"{folder}/states", lateness="4s")

    def slowed(df, batch_id):
        """Leave time to be killed between the state of a micro-batch and Spark's commit."""
        function(df, batch_id)
        time.sleep(1)

    queries = [
        each.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start()
        for name, each in (("operator", operator), ("driver", stream.writeStream.foreachBatch(slowed)))
    ]
    for query in queries:
        query.awaitTermination()
    spark.read.parquet(f"{folder}/sink").coalesce(1).write.mode("overwrite").parquet(f"{folder}/operator.parquet")
    spark.stop()
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
