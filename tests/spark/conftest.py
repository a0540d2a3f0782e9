import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

TESTS = Path(__file__).parents[1]
FLIGHTS = TESTS.parent / "examples" / "data" / "flights.parquet"
N_FLIGHTS = 120_000


LONG = "a job of Spark takes seconds; test_one_session.py has one of each kind"


def pytest_collection_modifyitems(items):
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.path.stem != "test_one_session":
            item.add_marker(pytest.mark.long(LONG))


@pytest.fixture(scope="session")
def flights(tmp_path_factory):
    """The first of all flight events, in as many row groups: Java takes seconds to send them all to a worker."""
    path = tmp_path_factory.mktemp("flights") / "flights.parquet"
    pq.write_table(pq.read_table(FLIGHTS).slice(0, N_FLIGHTS), path, row_group_size=N_FLIGHTS // 6)
    return str(path)


@pytest.fixture(scope="session")
def java_options():
    """Options of Java for jobs of a second each: its second compiler costs more than it gains.

    Without it Java keeps 48 MB for code, which all jobs of a run together fill.
    """
    return "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"


# Small jobs: to compile code for a plan costs more than it gains.
SETTINGS = {
    "spark.master": "local[2, 4]",  # a task may fail three times, as on a cluster
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "spark_daemon",
}


@pytest.fixture(scope="session")
def spark(java_options):
    """The one Spark session of a test run: it takes seconds to start."""
    pytest.importorskip("pyspark")
    from spark_glue import session

    with pytest.MonkeyPatch.context() as patch:
        # where Java finds `spark_daemon`
        patch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))
        spark = session("cer_gpu tests", config={**SETTINGS, "spark.driver.extraJavaOptions": java_options})
    yield spark
    spark.stop()


@pytest.fixture
def path_without_java(tmp_path):
    """A folder with all programs of the PATH but Java's."""
    folder = tmp_path / "path"
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*") if place else ():
            link = folder / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program.absolute())
    return str(folder)
