"""Formats of logs, each with a function that recognises its first bytes and one that reads its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from cer_gpu.io.logs import auditd, evtx, sysmon_linux, zeek
from cer_gpu.io.logs.records import Record, Skipped

HEAD_BYTES = 1 << 12
"""Number of bytes by which a format is recognised."""


@dataclass(frozen=True)
class LogFormat:
    """A format of logs.

    Attributes
    ----------
    name : str
        For messages.
    endings : tuple of str
        Endings of names, in lower case; empty if it is recognised only by its content.
    recognises : callable
        ``recognises(head)`` returns True if a file with these first `HEAD_BYTES`, or fewer, has this format.
    records : callable
        ``records(stream, skipped)`` yields the records of a decompressed file, in order, and counts those it skips.
    time_column : str or None
        Time column of its records.
    is_seekable : bool
        True if `records` needs a seekable stream; else it reads sequentially.
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
"""Formats in the order in which they are tried."""


def recognised_log(head: bytes) -> LogFormat | None:
    """Return the log format that recognises the first bytes of a file, or None."""
    return next((format for format in LOG_FORMATS if format.recognises(head)), None)
