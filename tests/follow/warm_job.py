"""What a process imports and does before runs of a job are forked from it, as each of these would take it seconds."""

import os
import sys
import tempfile
from pathlib import Path

import deltalake  # noqa: F401
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow  # noqa: F401
from follow.jobs import Job

from spark_glue.cli import main


def run_job(arguments, environment):
    """Run the command in a forked process."""
    os.environ.clear()
    os.environ.update(environment)
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    sys.exit(main(arguments))


def warm():
    """Run a job over files here, so that its machine code is there; `deltalake` must not run before a fork."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), "files")
        for _ in range(2):
            job.add_some()
            assert job.run()[0] == 0


warm()
