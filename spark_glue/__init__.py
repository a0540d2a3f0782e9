"""Queries over Spark DataFrames: the same compiled query, as a stage of a Spark job.

Importing this package does not need PySpark; `session` and `match_schema` do.
"""

from spark_glue.local_session import session
from spark_glue.match import match
from spark_glue.stage import match_schema, match_stage

__all__ = ["match", "match_schema", "match_stage", "session"]
