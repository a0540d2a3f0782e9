"""Queries in Spark SQL: the data source "cer" over files, and the table function `cer_match` over any table."""

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


def register_sql(spark: SparkSession, name: str = "cer_match") -> None:
    """Make a table function known to a session: ``SELECT * FROM cer_match(TABLE(events), 'SELECT ...')``.

    Parameters
    ----------
    spark
        Session of Spark 4.1 or later, classic or of Spark Connect.  Its workers need this package and `cer_gpu`.
    name
        Name of the function.

    Raises
    ------
    SparkSetupError
        When Spark is too old.

    Notes
    -----
    The first argument is a table; the second a query in any language of `cer_gpu.compile`, or a map from names to
    several; others are options of the data source "cer" by their names, such as ``orderBy => 'ts'``.  Rows go to tasks
    by the keys of PARTITION BY, else to one task, and are sorted there; positions count the rows of a group of keys.

    Examples
    --------
    >>> register_sql(spark)  # doctest: +SKIP
    >>> spark.sql('''
    ...     SELECT * FROM cer_match(TABLE(events), 'SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 1 HOUR')
    ... ''')  # doctest: +SKIP
    """
    from spark_glue.source.table_function import register_function

    register_function(spark, name)
