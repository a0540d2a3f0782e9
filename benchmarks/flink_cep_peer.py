"""Ask FlinkCEP through PyFlink, in an interpreter that has it, with Java; started by ``peers.py``, as described there.

FlinkCEP has no interface in Python, and its conditions are classes.  Its job is therefore Java, ``FlinkCep.java``;
Janino, the compiler that Flink brings for SQL, compiles it in the process that PyFlink starts, and the classes go to
the job in a jar.  No JDK is needed.

The question is that of CEQL: ``followedByAny`` skips till any match, and nothing is skipped after one, so that all
matches are found.  A window of n events is one of n + 1 milliseconds, as the events are a millisecond apart and Flink's
window excludes its end, unlike WITHIN.

With a number as "above" in the question, the x of the last event must be above that of the first by more; this is an
iterative condition, which looks the first event up.

The job is written in its fastest form: events that no condition takes are left out before the pattern sees them,
objects are reused, state is on the heap, without checkpoints, and a watermark comes at each 100th event.  With Flink's
own watermarks, which come by the clock, thousands of events wait for one, and take up to twice as long.  The seconds
are those of the job, as Flink reports them, without the start of a cluster, in a process that has run the job on a few
events, and on all of them if that takes little time.
"""

from __future__ import annotations

import importlib.metadata
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from answering import Facts, answer

SOURCE = Path(__file__).with_name("FlinkCep.java")
FEW = 100
"""Events of the first, warming job."""
WARM = 3.0
"""Seconds of a job after which Java has compiled its code, so that the next job would be no faster."""


@contextmanager
def one_line() -> Iterator[None]:
    """Raise an error of Java as its first cause, without a trace, so that the last line of the output names it."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise RuntimeError(" ".join(cause.toString().split())) from None


def compiled(jar: Path) -> None:
    """Write the classes of the job to a jar."""
    from pyflink.java_gateway import get_gateway

    compiler = get_gateway().jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)
    compiler.cook(SOURCE.read_text(encoding="ascii"))
    with zipfile.ZipFile(jar, "w") as file:
        for name, code in compiler.getBytecodes().items():
            file.writestr(f"{name.replace('.', '/')}.class", code)


def ask(question: Facts) -> Facts:
    """Return the seconds that the job takes, and the number of matches that it finds."""
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.java_gateway import get_gateway

    names, folder = list(question["names"]), Path(str(question["folder"]))  # type: ignore[call-overload]
    steps = [(names.index(kind) if kind in names else -1, float(below)) for kind, below in question["steps"]]  # type: ignore[attr-defined]
    n_events = (folder / "types").stat().st_size
    jar = folder / "job.jar"
    seconds, n_found = 0.0, 0
    with one_line():
        compiled(jar)
        for n in (min(n_events, FEW), n_events, n_events):
            if seconds > WARM:
                break
            settings = Configuration()
            settings.set_string("state.backend.type", "hashmap")
            settings.set_string("pipeline.object-reuse", "true")
            settings.set_string("parallelism.default", "1")
            environment = StreamExecutionEnvironment.get_execution_environment(settings)
            environment.add_jars(jar.as_uri())
            get_gateway().jvm.peers.FlinkCep.plan(
                environment._j_stream_execution_environment,
                str(folder),
                n,
                [code for code, _ in steps],
                [below for _, below in steps],
                int(str(question["window"])) + 1,
                question.get("above"),
            )
            done = environment.execute()
            seconds, n_found = done.get_net_runtime() / 1000, done.get_accumulator_result("found")
    return {"seconds": seconds, "found": n_found}


def name() -> str:
    """Return the name of this peer, with its version, after compiling its job as a check that it can run."""
    import pyflink.datastream  # noqa: F401

    with tempfile.TemporaryDirectory() as folder, one_line():
        compiled(Path(folder) / "job.jar")
    return f"FlinkCEP {importlib.metadata.version('apache-flink')}"


if __name__ == "__main__":
    answer(ask, name)
