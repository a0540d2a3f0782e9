"""Standard input as a source of events: an Arrow IPC stream."""

from __future__ import annotations

from typing import IO

import pyarrow as pa

from cer_gpu.errors import EventsError
from cer_gpu.io.sources import Source, open_events

_EXPECTED = "expected an Arrow IPC stream (such as `cer-gpu run ... -o - --format arrow` writes)"
_STREAM = b"\xff\xff\xff\xff"
_FILE = b"ARROW1\0\0"


def open_standard_input(file: IO[bytes]) -> Source:
    """Open events that come through a pipe.

    Parameters
    ----------
    file
        Arrow IPC: a stream, or a file, which is a stream between two magic strings.  It is read once, and need not be
        seekable.

    Raises
    ------
    EventsError
        When standard input is a terminal, is empty, or holds something else.
    """
    if file.isatty():
        raise EventsError(f"standard input is a terminal: {_EXPECTED}\nhint: ... | cer-gpu run QUERY -")
    head = file.read(len(_FILE))
    if not head:
        raise EventsError(f"standard input is empty: {_EXPECTED}")
    if head != _FILE and not head.startswith(_STREAM):
        what = "Parquet, which cannot be read from a pipe" if head.startswith(b"PAR1") else f"{head!r}..."
        raise EventsError(
            f"standard input: {_EXPECTED}, got {what}\nhint: files of other formats are read by their names"
        )
    try:
        return open_events(pa.ipc.open_stream(_Rest(b"" if head == _FILE else head, file)))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise EventsError(f"standard input: {_EXPECTED}, but it cannot be read: {error}") from error


class _Rest:
    """File whose first bytes were read already: it returns these, then the rest."""

    closed = False

    def __init__(self, head: bytes, file: IO[bytes]) -> None:
        self._head = head
        self._file = file

    def read(self, n: int = -1) -> bytes:
        head, self._head = self._head, b""
        if n < 0:
            return head + self._file.read()
        self._head = head[n:]
        return head[:n] + self._file.read(n - len(head)) if n > len(head) else head[:n]

    def close(self) -> None:
        """Leave the file open: it is the caller's."""
