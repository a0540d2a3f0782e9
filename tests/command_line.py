"""The command line as a process of its own, and events for it."""

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
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


class Process:
    """A process of the command line, as far as `subprocess.Popen` has it."""

    def __init__(self, pid, template, stdin, stdout, stderr):
        self.pid, self.returncode = pid, None
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self._template = template

    def poll(self):
        if self.returncode is None:
            pid, status = self._template.ask({"wait": self.pid})
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("cer-gpu", timeout)
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout=60):
        if self.stdin is not None:
            self.stdin.close()
        with ThreadPoolExecutor(2) as pool:
            said = [pool.submit(file.read) if file else None for file in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()  # so that reading ends
                raise
            found = [each.result() if each else None for each in said]
        for file in (self.stdout, self.stderr):
            if file is not None:
                file.close()
        return found


class Template:
    """The process that all others are forked from (`command_template`)."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, str(ROOT / "tests" / "command_template.py")]
        with theirs:
            self._process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdin=theirs)
        self._socket = ours
        atexit.register(self.end)

    def ask(self, request, files=()):
        socket.send_fds(self._socket, [json.dumps(request).encode() + b"\n"], files)
        return json.loads(self._socket.recv(1 << 10))

    def end(self):
        self._socket.close()
        self._process.wait()


template = functools.cache(Template)


def start(*args, before="", stdin=None, stdout=None, stderr=None, text=True):
    """Start the command line as a process of its own, without pandas, where SIGINT interrupts even if ignored here."""
    theirs, ours = [], []
    for number, given in enumerate((stdin, stdout, stderr)):
        mine = None
        if given == subprocess.PIPE:
            reader, writer = os.pipe()
            file, mine = (reader, writer) if number == 0 else (writer, reader)
        elif given == subprocess.DEVNULL:
            file = os.open(os.devnull, os.O_RDWR)
        else:
            file = os.dup(number if given is None else given if isinstance(given, int) else given.fileno())
        theirs.append(file)
        mode = ("w" if number == 0 else "r") + ("" if text else "b")
        ours.append(None if mine is None else os.fdopen(mine, mode))
    request = {
        "code": f"{before}\nfrom cer_gpu.cli import main; sys.exit(main())",
        "arguments": [*map(str, args)],
        "environment": {**os.environ, "TERM": "xterm"},  # what is shown depends on the kind of terminal
        "folder": os.getcwd(),
    }
    pid, _ = template().ask(request, theirs)
    for file in theirs:
        os.close(file)
    return Process(pid, template(), *ours)


def finish(process, seconds=60):
    """Return the exit code of a process at its end, and what it wrote."""
    out, err = process.communicate(seconds)
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
