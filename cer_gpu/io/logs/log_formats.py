"""Formats of logs, each with the function that knows it by its first bytes and the one that reads its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from cer_gpu.io.logs import auditd, evtx, sysmon_linux, zeek
from cer_gpu.io.logs.records import Record, Skipped

HEAD_BYTES = 1 << 12
"""Bytes by which a format is recognised."""


@dataclass(frozen=True)
class LogFormat:
    """A format of logs.

    Attributes
    ----------
    name : str
        For messages.
    endings : tuple of str
        Endings of names, in lower case; empty: it is recognised by its content alone.
    recognises : callable
        ``recognises(head)`` returns True if a file with these first `HEAD_BYTES`, or fewer, has this format.
    records : callable
        ``records(stream, skipped)`` yields the records of a decompressed file, in its order, and counts what it leaves
        out.
    time_column : str or None
        Column of the times of its records.
    is_seekable : bool
        True if `records` reads at any place of the stream; else from its begin to its end.
    """

    name: str
    endings: tuple[str, ...]
    recognises: Callable[[bytes], bool]
    records: Callable[[IO[bytes], Skipped], Iterator[Record]]
    is_seekable: bool = False
    time_column: str | None = None


EVTX = LogFormat("EVTX", (".evtx",), evtx.recognises, evtx.records, is_seekable=True, time_column="TimeCreated")
LOG_FORMATS = (
    EVTX,
    LogFormat("Zeek", (), zeek.recognises, zeek.records, time_column="ts"),
    LogFormat("Sysmon for Linux", (), sysmon_linux.recognises, sysmon_linux.records, time_column="TimeCreated"),
    LogFormat("auditd", (), auditd.recognises, auditd.records, time_column="time"),
)
"""Formats in the order in which they are asked whether they recognise a file."""


def recognised_log(head: bytes) -> LogFormat | None:
    """Return the format of logs that recognises the first bytes of a file, or None if none does."""
    return next((format for format in LOG_FORMATS if format.recognises(head)), None)
