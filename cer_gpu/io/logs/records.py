"""Records of logs, their lines as strings, and the count of what a reader had to skip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO

Value = str | int | float | bool | datetime | list[str] | list[str | None] | None
"""Value of a field of a record; timestamps are in UTC.  A list has NULL where Zeek has an element that is not set."""
Record = dict[str, Value]
"""One event of a log: the names of its columns, with the values that it has."""


@dataclass
class Skipped:
    """Parts of a file that could not be read and were left out, counted by reason.

    Attributes
    ----------
    reasons : Counter of str
        Numbers of parts that were left out, by the reason in words ("line without a timestamp").
    first : mapping from str to str
        Places of the first part of each reason ("line 12", "record 3").
    """

    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, place: str) -> None:
        """Count one part that is left out."""
        self.reasons[reason] += 1
        self.first.setdefault(reason, place)


LONGEST_LINE = 16 << 20
"""Most bytes of a line; a file without line ends must not fill the memory."""
_READ_SIZE = 1 << 20
TOO_LONG = f"line of more than {LONGEST_LINE >> 20} MiB"


def numbered_lines(stream: IO[bytes], skipped: Skipped, *, only_empty: bool = False) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a stream, but blank ones, with their numbers, from 1, without their line ends.

    Parameters
    ----------
    stream
        Bytes in UTF-8; bytes that are not are written as ``\xNN``, as logs of Zeek write them.  Lines end in ``\n`` or
        ``\r\n`` and in nothing else: the enriched part of a record of auditd begins with a sign that `str.splitlines`
        would take for an end.
    skipped
        Counts lines that are longer than `LONGEST_LINE`.
    only_empty
        True to leave out empty lines alone: white space may be values.
    """
    read = getattr(stream, "read1", stream.read)  # a pipe gives what it has, and does not wait for a whole block
    number, pieces, held, is_too_long = 1, list[bytes](), 0, False
    while block := read(_READ_SIZE):
        cut = block.rfind(b"\n") + 1
        if cut:
            is_too_long = is_too_long or held + block.find(b"\n") > LONGEST_LINE
            lines = _decoded_lines(b"".join([*pieces, block[:cut]]))[:-1]
            if is_too_long:
                skipped.add(TOO_LONG, f"line {number}")
            for i, line in enumerate(lines[is_too_long:], number + is_too_long):
                if line and (only_empty or not line.isspace()):
                    yield i, line
            number, pieces, held, is_too_long = number + len(lines), [], 0, False
        pieces.append(block[cut:])
        held += len(pieces[-1])
        if held > LONGEST_LINE:
            is_too_long = True
            pieces.clear()
    if is_too_long:
        skipped.add(TOO_LONG, f"line {number}")
    elif held:
        line = _decoded_lines(b"".join(pieces))[0]
        if only_empty or not line.isspace():
            yield number, line


def _decoded_lines(block: bytes) -> list[str]:
    return block.replace(b"\r\n", b"\n").decode("utf-8", "backslashreplace").split("\n")
