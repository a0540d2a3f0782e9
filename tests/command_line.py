"""The command line as a process of its own, and events for it."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).parents[1]

EVENTS = pa.table(
    {
        "type": ["A", "B", "A", "A", "B", "C", "B"],
        "price": [11, 1, 5, 20, None, 3, 4],
        "ts": pa.array([0, 1000, 1500, 2000, 2500, 4000, 4500], pa.timestamp("ms")),
    }
)


# PyArrow imports pandas where it is installed, which takes longer than these runs.
ALONE = """
import signal, sys

class Hidden:
    def find_spec(name, *_):
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Hidden)
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


def start(*args, before="", **options):
    """Start the command line as a process of its own, without pandas, where SIGINT interrupts even if ignored here."""
    code = f"{ALONE}{before}\nfrom cer_gpu.cli import main; sys.exit(main())"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "TERM": "xterm"}  # what is shown depends on the kind of terminal
    options = {"text": True, **options}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], env=environment, **options)


def finish(process, seconds=60):
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, out, err


def said_to_a_terminal(*args, **options):
    """Run the command line with its standard error on a terminal; return the exit code and the text on it."""
    reader, writer = os.openpty()
    process = start(*args, stderr=writer, **options)
    os.close(writer)
    said = b""
    with contextlib.suppress(OSError):  # raised once the other side is closed
        while chunk := os.read(reader, 4096):
            said += chunk
    os.close(reader)
    return finish(process)[0], said
