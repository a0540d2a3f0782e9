"""Process that Spark forks the Python workers of tests from, with their modules loaded: a worker starts at once.

Workers of the programs that tests start load them by themselves, as those of users do.
"""

import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import spark_glue.files.file_job
import spark_glue.stage
import spark_glue.streaming  # noqa: F401

if __name__ == "__main__":
    manager()
