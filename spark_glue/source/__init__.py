"""Python data source "cer": ``spark.read.format("cer")``, and ``USING cer`` in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format "cer" known to a session: ``spark.read.format("cer")``, and ``USING cer`` in SQL.

    Parameters
    ----------
    spark
        Session of Spark 4, classic or of Spark Connect.  Its workers need this package and `cer_gpu`.

    Examples
    --------
    >>> register(spark)  # doctest: +SKIP
    >>> spark.sql('''
    ...     CREATE TEMPORARY VIEW matches USING cer
    ...     OPTIONS (path '/data/events', orderBy 'ts', query 'SELECT * FROM S WHERE A ; B WITHIN 1 HOUR')
    ... ''')  # doctest: +SKIP
    """
    from spark_glue.source.data_source import data_source_of

    spark.dataSource.register(data_source_of(spark))
