"""Settings of the one Spark session, changed for a while."""

import contextlib

BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@contextlib.contextmanager
def setting(spark, key, value):
    """Let a setting of the session have a value, and put the old one back."""
    before = spark.conf.get(key)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.set(key, before)
