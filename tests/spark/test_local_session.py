import pytest

from cer_gpu.errors import OptionError
from spark_glue import session
from spark_glue.errors import SparkSetupError

pytest.importorskip("pyspark")


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
