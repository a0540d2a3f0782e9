"""Queries over Spark DataFrames: the same compiled query, as a stage of a job, over its tasks, or over streams.

Importing this package does not need PySpark; running a query on Spark does.
"""

from spark_glue.archive import package
from spark_glue.errors import plain_errors
from spark_glue.explanation import explain
from spark_glue.forecasting import fit, forecast, forecast_schema, forecast_stage
from spark_glue.job import Summary, read, run
from spark_glue.local_session import session
from spark_glue.match import match
from spark_glue.source import register, register_sql
from spark_glue.stage import match_schema, match_stage
from spark_glue.streaming import explain_stream, match_batches, match_stream

__all__ = [
    "Summary",
    "explain",
    "explain_stream",
    "fit",
    "forecast",
    "forecast_schema",
    "forecast_stage",
    "match",
    "match_batches",
    "match_schema",
    "match_stage",
    "match_stream",
    "package",
    "plain_errors",
    "read",
    "register",
    "register_sql",
    "run",
    "session",
]
