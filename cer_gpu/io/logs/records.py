"""Records of logs, their lines as strings, and counts of skipped parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO

Value = str | int | float | bool | datetime | list[str] | list[str | None] | None
"""Value of a field of a record; timestamps are in UTC.  A list has NULL where Zeek has an element that is not set."""
Record = dict[str, Value]
"""One event of a log: its values by column name."""


@dataclass
class Skipped:
    """Parts of a file that could not be read and were skipped, counted by reason.

    Attributes
    ----------
    reasons : Counter of str
        Numbers of skipped parts by reason ("line without a timestamp").
    first : mapping from str to str
        Location of the first skipped part of each reason ("line 12", "record 3").
    """

    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, place: str) -> None:
        """Count one skipped part."""
        self.reasons[reason] += 1
        self.first.setdefault(reason, place)


LONGEST_LINE = 16 << 20
"""Maximum size of a line; a file without line ends must not fill the memory."""
_READ_SIZE = 1 << 20
TOO_LONG = f"line of more than {LONGEST_LINE >> 20} MiB"


def numbered_lines(stream: IO[bytes], skipped: Skipped, *, only_empty: bool = False) -> Iterator[tuple[int, str]]:
    r"""Yield the nonblank lines of a stream with their numbers, from 1, without line ends.

    Parameters
    ----------
    stream
        Bytes in UTF-8; bytes that are not are written as ``\xNN``, as logs of Zeek write them.  Lines end in ``\n`` or
        ``\r\n`` and in nothing else: the enriched part of a record of auditd begins with a sign that `str.splitlines`
        would take for an end.
    skipped
        Counts lines that are longer than `LONGEST_LINE`.
    only_empty
        True to skip only empty lines, as white space may be values.
    """
    read = getattr(stream, "read1", stream.read)  # a pipe returns what it has, without waiting for a whole block
    number, pieces, n_pending, is_too_long = 1, list[bytes](), 0, False
    while block := read(_READ_SIZE):
        cut = block.rfind(b"\n") + 1
        if cut:
            is_too_long = is_too_long or n_pending + block.find(b"\n") > LONGEST_LINE
            lines = _decoded_lines(b"".join([*pieces, block[:cut]]))[:-1]
            if is_too_long:
                skipped.add(TOO_LONG, f"line {number}")
            for i, line in enumerate(lines[is_too_long:], number + is_too_long):
                if line and (only_empty or not line.isspace()):
                    yield i, line
            number, pieces, n_pending, is_too_long = number + len(lines), [], 0, False
        pieces.append(block[cut:])
        n_pending += len(pieces[-1])
        if n_pending > LONGEST_LINE:
            is_too_long = True
            pieces.clear()
    if is_too_long:
        skipped.add(TOO_LONG, f"line {number}")
    elif n_pending:
        line = _decoded_lines(b"".join(pieces))[0]
        if only_empty or not line.isspace():
            yield number, line


def _decoded_lines(block: bytes) -> list[str]:
    return block.replace(b"\r\n", b"\n").decode("utf-8", "backslashreplace").split("\n")
