"""Queries over Spark DataFrames: the same compiled query, as a stage of a Spark job, or as a whole job.

Importing this package does not need PySpark; running a query on Spark does.
"""

from spark_glue.archive import package
from spark_glue.deal import explain
from spark_glue.errors import plain_errors
from spark_glue.job import Summary, read, run
from spark_glue.local_session import session
from spark_glue.match import match
from spark_glue.stage import match_schema, match_stage

__all__ = [
    "Summary",
    "explain",
    "match",
    "match_schema",
    "match_stage",
    "package",
    "plain_errors",
    "read",
    "run",
    "session",
]
