"""Process that processes of the command line are forked from: it has imported what they need, which takes a second.

It reads requests from the socket that is its standard input: one to start a process, with the files of its standard
streams, or one to wait for a process. It ends with the socket.
"""

import gc
import io
import json
import os
import signal
import socket
import sys


class Hidden:
    """PyArrow imports pandas where it is installed, which takes longer than the runs of the command line."""

    def find_spec(name, *_):
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def standard_streams():
    """Open the standard streams, as Python does when it starts, by PYTHONUNBUFFERED and on terminals or not."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb"), encoding="utf-8")
    for number, name in (1, "stdout"), (2, "stderr"):
        file = os.fdopen(number, "wb", 0 if unbuffered else -1)
        by_line = not unbuffered and (number == 2 or os.isatty(number))
        errors = "strict" if number == 1 else "backslashreplace"
        text = io.TextIOWrapper(file, "utf-8", errors, line_buffering=by_line, write_through=unbuffered)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def started(requests):
    """Answer requests; return the code, in the process that is to run it."""
    while True:
        text, files, _, _ = socket.recv_fds(requests, 1 << 20, 3)  # one request, a line
        while text and not text.endswith(b"\n"):
            text += requests.recv(1 << 20)
        if not text:
            os._exit(0)
        request = json.loads(text)
        if "wait" in request:
            answer = os.waitpid(request["wait"], os.WNOHANG)
        else:
            answer = (pid := os.fork(), 0)
            if pid == 0:
                break
            for file in files:
                os.close(file)
        requests.sendall(json.dumps(answer).encode())
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    requests.close()
    standard_streams()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even if it is ignored here
    sys.argv = ["cer-gpu", *request["arguments"]]
    return request["code"]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.meta_path.insert(0, Hidden)
    import cer_gpu.cli
    import cer_gpu.engine.execution_group
    import cer_gpu.io.sources
    import cer_gpu.report  # noqa: F401

    gc.freeze()
    # at the level of the module, so that a process ends as any other does
    exec(started(socket.socket(fileno=os.dup(0))))
