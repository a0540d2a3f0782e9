"""Copies of this process, each of which prepares a shard of a large set of queries.

A copy (fork) has all that is imported and compiled here, without a second start.  It replies to requests with the bytes
that the cache stores, so that nothing is unpickled.  One that fails, or is killed, is as one that was never there: the
caller does its part.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import warnings
import weakref
from collections.abc import Callable

from cer_gpu.starting import WATCHER

FROM_QUERIES_COPIED = 300
"""Least number of queries of a set for which copies share the work."""
MAX_PROCESSES = 4
"""Most processes that work on a set, this one too."""
IDLE_SECONDS = 30.0
"""Seconds after which an idle copy ends."""
_STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
_LENGTH_BYTES = 8
_is_copy = False


def processes_for(n_queries: int) -> int:
    """Return how many processes may work on a set; 1 where a copy would not be safe: with other threads of Python."""
    if n_queries < FROM_QUERIES_COPIED or sys.platform != "linux" or _is_copy:
        return 1
    if threading.active_count() - sum(each.name == WATCHER for each in threading.enumerate()) > 1:
        return 1  # a thread that only waits for signals holds nothing
    return min(len(os.sched_getaffinity(0)), MAX_PROCESSES)


class ProcessCopy:
    """A copy of this process that serves requests.

    Parameters
    ----------
    serve
        Function from a request to its result.

    Attributes
    ----------
    pid : int

    Raises
    ------
    OSError
        When there can be no other process.
    """

    def __init__(self, serve: Callable[[bytes], bytes]) -> None:
        here, there = socket.socketpair()
        with there, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the native threads of NumPy and Arrow can be copied
            try:
                pid = os.fork()
            except OSError:
                here.close()
                raise
            if pid == 0:
                try:
                    here.close()
                    _serve_requests(there, serve)
                finally:
                    os._exit(0)  # nothing of the process that was copied ends here
        self.pid: int = pid
        self._socket, self._owner, self._claimed = here, os.getpid(), threading.Lock()
        self._close = weakref.finalize(self, _end, here, pid, self._owner)

    def ask(self, request: bytes) -> None:
        """Send a request, whose result must be read before the next one."""
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                _send(self._socket, request)

    def result(self) -> bytes | None:
        """Return the result of the request, or None if the copy has failed."""
        if os.getpid() != self._owner:
            return None
        try:
            return _receive(self._socket)
        except OSError:
            return None

    def claim(self) -> bool:
        """Return True for the one caller that may send more than the first request."""
        return os.getpid() == self._owner and self._claimed.acquire(blocking=False)

    def close(self) -> None:
        """End the copy."""
        self._close()


def _end(connection: socket.socket, pid: int, owner: int) -> None:
    connection.close()
    if os.getpid() == owner:
        with contextlib.suppress(OSError):  # others may have waited for it
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _serve_requests(connection: socket.socket, serve: Callable[[bytes], bytes]) -> None:
    """Serve requests until there are no more."""
    global _is_copy
    _is_copy = True
    for name in _STOPPING:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # a pipe of the process that was copied must not stay open for this one
        os.dup2(nowhere, standard)
    connection.settimeout(IDLE_SECONDS)
    while True:
        request = _receive(connection)
        _send(connection, serve(request))


def _send(connection: socket.socket, content: bytes) -> None:
    connection.sendall(len(content).to_bytes(_LENGTH_BYTES, "little") + content)


def _receive(connection: socket.socket) -> bytes:
    """Return the next message; raises ConnectionError if the other process has ended."""
    length = int.from_bytes(_exactly(connection, _LENGTH_BYTES), "little")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length:
        part = connection.recv(min(length - len(content), 1 << 20))
        if not part:
            raise ConnectionError("the other process has ended")
        content += part
    return bytes(content)
