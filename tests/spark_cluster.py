"""A standalone cluster of Spark on this machine: a master and workers, each a process with a home of its own.

Nodes have their own address of the loopback network, home, working folder and temporary files.  Their Python has the
dependencies of these packages and not the packages, which come with a job.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from spark_glue.errors import SparkSetupError
from spark_glue.local_session import find_java

SECONDS = 120
"""Patience with whatever starts."""
SECONDS_OF_A_JOB = 1800
"""Patience with a driver; a busy machine may take minutes to compile loops for each node."""
_DAEMON = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_LOG = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
_OURS = re.compile(r"cer_gpu|spark_glue|__editable__")


class Node:
    """A machine, as far as a process sees it: an address, a home, a folder to work in, one for temporary files."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder, self.host = folder, host
        for name in ("home", "work", "tmp", "conf"):
            (folder / name).mkdir(parents=True)
        (folder / "conf" / "log4j2.properties").write_text(_LOG)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the processes of the node."""
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "SPARK_LOCAL_DIRS": str(self.folder / "tmp"),
            "SPARK_LOCAL_IP": self.host,
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{_DAEMON} -Djava.io.tmpdir={self.folder / 'tmp'}",
            **_java(),
        }

    def cached(self, ending: str = ".nbc") -> set[Path]:
        """Return the files of machine code that processes of the node have left."""
        return set(self.folder.rglob(f"*{ending}"))

    def worker_log(self) -> str:
        """Return what the worker of the node has said."""
        return (self.folder / "worker.log").read_text(errors="replace")

    def executor_logs(self) -> str:
        """Return what all executors of the node, and their workers in Python, have said."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("work/app-*/*/std*")))


class Cluster:
    """A master and two workers, with one core each."""

    def __init__(self, folder: Path, memory: str = "1g") -> None:
        self.folder = folder
        self.python = make_python(folder / "python")
        self.driver = Node(folder / "driver", "127.0.0.1")
        self.nodes = [Node(folder / f"node{i}", f"127.0.0.{i}") for i in (2, 3)]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self._memory = memory
        self._log = folder / "master.log"
        self.master = ""

    def start(self) -> None:
        """Start the processes, and wait until the workers are registered."""
        port = ["--port", "0", "--webui-port", "0"]
        self._start("master.Master", self.driver, self._log, "--host", self.driver.host, *port)
        self.master = self._wait_for(r"Starting Spark master at (spark://\S+)")[1]
        for node in self.nodes:
            work = ["--work-dir", str(node.folder / "work"), "--cores", "1", "--memory", self._memory]
            log = node.folder / "worker.log"
            self._workers.append(
                self._start("worker.Worker", node, log, "--host", node.host, *port, *work, self.master)
            )
        for node in self.nodes:
            self._wait_for(rf"Registering worker {re.escape(node.host)}:")

    def stop(self) -> None:
        """End the processes and all that they started."""
        for process in reversed(self._processes):
            process.terminate()  # a worker ends its executors
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def submit(
        self,
        program: str | Path,
        *arguments: str,
        archive: Path | str | None,
        settings: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        stderr: IO[str] | int = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """Start a driver by spark-submit, in a session of its own; its output goes to pipes, or `stderr` to a file."""
        configured = {
            "spark.pyspark.python": self.python,
            "spark.pyspark.driver.python": self.python,
            "spark.driver.host": self.driver.host,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": _DAEMON,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": _DAEMON,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.log.level": "WARN",
            **(settings or {}),
        }
        command = [spark_program("spark-submit"), "--master", self.master]
        for name, value in configured.items():
            command += ["--conf", f"{name}={value}"]
        if archive is not None:
            command += ["--py-files", str(archive)]
        return subprocess.Popen(
            [*command, str(program), *arguments],
            cwd=self.driver.folder / "work",
            env={**self.driver.environment, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: Any, **options: Any) -> str:
        """Run a driver to its end, as `submit`, and return what it printed."""
        process = self.submit(*arguments, **options)
        try:
            printed, said = process.communicate(timeout=SECONDS_OF_A_JOB)
        finally:
            kill_group(process)
        assert process.returncode == 0, f"{printed[-2000:]}\n{said[-6000:]}"
        return printed

    def executors(self) -> list[int]:
        """Return the processes of all executors that run now."""
        children = [pid for worker in self._workers for pid in children_of(worker.pid)]
        return [pid for pid in children if b"CoarseGrainedExecutorBackend" in command_of(pid)]

    def _start(self, name: str, node: Node, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
        with log.open("wb") as written:
            process = subprocess.Popen(
                [spark_program("spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
                cwd=node.folder / "work",
                env=node.environment,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def _wait_for(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + SECONDS
        while True:
            said = self._log.read_text(errors="replace")
            found = re.search(pattern, said)
            if found is not None:
                return found
            ended = [process.args for process in self._processes if process.poll() is not None]
            assert not ended, (ended, said[-3000:])
            assert time.monotonic() < deadline, said[-3000:]
            time.sleep(0.1)


@contextlib.contextmanager
def running_cluster(folder: Path, memory: str = "1g") -> Iterator[Cluster]:
    """Yield a cluster that runs for the block."""
    cluster = Cluster(folder, memory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def skip_unless_possible() -> None:
    """Skip the module where there can be no such cluster, with the reason."""
    pytest.importorskip("pyspark")
    if sys.platform != "linux":
        pytest.skip("a cluster needs addresses 127.0.0.2 and /proc, as Linux has them", allow_module_level=True)
    if not os.access(spark_program("spark-class"), os.X_OK):
        pytest.skip("this PySpark has no spark-class", allow_module_level=True)
    try:
        find_java()
    except SparkSetupError as error:
        pytest.skip(str(error), allow_module_level=True)


def spark_program(name: str) -> str:
    """Return the path of a program of PySpark."""
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / name)


def make_python(folder: Path) -> str:
    """Return a Python that has all packages of this one but ours, in a new environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = folder / "packages"
    packages.mkdir()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(place).iterdir():
            if not _OURS.search(path.name) and path.suffix != ".pth":
                (packages / path.name).symlink_to(path)
    python = str(folder / "bin" / "python")
    own = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(own, "packages.pth").write_text(f"{packages}\n")
    found = subprocess.run(
        [python, "-c", "import numba, pyarrow, pandas, lark\nimport cer_gpu"],
        cwd=folder,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert found.stderr.endswith("No module named 'cer_gpu'\n"), found.stderr
    return python


def children_of(pid: int) -> list[int]:
    """Return the processes that a process started and that run."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def command_of(pid: int) -> bytes:
    """Return the command line of a process, or nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a driver with its Java and its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _java() -> dict[str, str]:
    return {**({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}), **find_java().environment}
