r"""Logs of the Linux audit daemon (auditd), one record for each line.

A line is ``type=SYSCALL msg=audit(1700000000.123:456): arch=c000003e syscall=59 ... exe="/bin/ls" key=(null)``.  One
event of the kernel is several lines (SYSCALL, EXECVE, CWD, PATH, PROCTITLE); the records of an event share ``serial``,
``time`` and ``node``, and rules of Sigma test the lines one by one (``type: EXECVE``, ``a0: chmod``).

A record has the columns ``type``, ``time`` (UTC), ``serial`` (an integer), ``node`` if the line has one, and each field
of the line by its name, as a string: auditd gives numbers in decimal, octal and hexadecimal notation, by the field, and
``a0`` is an address in SYSCALL and a word in EXECVE.

- Quotes are removed.  Strings with spaces, quotes or bytes beyond ASCII, which auditd writes in hexadecimal
  digits, are decoded (``proctitle``, ``cmd``, ``name``, ``a0`` of EXECVE and others).  A NUL in ``proctitle`` and a
  separator of keys become a space and a comma.
- ``(null)`` and ``?`` are NULL.
- The fields in ``msg='...'`` of messages of programs are fields like the others, and so are those of the enriched part
  (``AUID="root"``, ``SYSCALL="execve"``).  The first of two fields of one name is
  taken, as the kernel writes its own before those of programs.
- ``avc:  denied  { read }`` is read as ``seresult`` and ``seperms``, the names of auditd's own library.
- The parts ``a1[0]=``, ``a1[1]=`` of a long argument are joined to ``a1``, if they are of one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import IO

from cer_gpu.io.logs.records import Record, Skipped, numbered_lines

NOT_A_RECORD = "line that is no record of auditd"
TIME_OUT_OF_RANGE = "record of auditd with a time or serial out of range"

_HEADER = r"(?:node=(\S+) )?type=(\S+) msg=audit\((\d{1,18})\.(\d{1,6}):(\d{1,20})\): ?"
_RECORD = re.compile(_HEADER, re.ASCII)
_FIRST_RECORD = re.compile(rb"^" + _HEADER.encode(), re.MULTILINE)
_FIELD = re.compile(r'(?<!\S)([^\s="]++)=("[^"]*"|\S*)')  # possessive: linear time for a long word without "="
_ENRICHED = "\x1d"
_MESSAGE = re.compile(r"(?:^|(?<= ))msg='")
_AVC = re.compile(r"(?:^|(?<= ))avc: +(\w+) +\{ ([^{}]*)\}")
_PART = re.compile(r'\b(a\d+)\[\d+\]=("[^"]*"|\S*)', re.ASCII)
_HEX = re.compile(r"(?:[0-9A-F]{2})+", re.ASCII)
_ARGUMENT = re.compile(r"a\d+", re.ASCII)
_ENCODED = frozenset(
    {
        "acct",
        "cgroup",
        "cmd",
        "comm",
        "cwd",
        "data",
        "device",
        "dir",
        "exe",
        "file",
        "grp",
        "invalid_context",
        "key",
        "name",
        "new_group",
        "ocomm",
        "path",
        "proctitle",
        "root_dir",
        "sw",
        "vm",
        "watch",
        *(f"{age}-{kind}" for age in ("old", "new") for kind in ("chardev", "disk", "fs", "net", "rng")),
    }
)
"""Fields that auditd writes in hexadecimal digits if they contain spaces, quotes or non-ASCII bytes."""
_ABSENT = ("(null)", "?")
_START = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_SERIAL = 2**63 - 1


def recognises(head: bytes) -> bool:
    """Return True if a file that begins with `head` is a log of auditd."""
    return _FIRST_RECORD.search(head) is not None


def records(stream: IO[bytes], skipped: Skipped) -> Iterator[Record]:
    """Yield the records of a log.

    Parameters
    ----------
    stream
        The file, decompressed.
    skipped
        Counts lines that are not records, except blank ones.
    """
    last: tuple[str, str] | None = None
    time: datetime | None = None
    for number, line in numbered_lines(stream, skipped):
        header = _RECORD.match(line)
        if header is None:
            skipped.add(NOT_A_RECORD, f"line {number}")
            continue
        node, kind, seconds, fraction, serial = header.groups()
        if (seconds, fraction) != last:
            last = (seconds, fraction)
            time = _time_of_record(seconds, fraction)
        if time is None or int(serial) > _LARGEST_SERIAL:
            skipped.add(TIME_OUT_OF_RANGE, f"line {number}")
            continue
        record: Record = {"type": kind, "time": time, "serial": int(serial)}
        if node is not None:
            record["node"] = node
        _add_fields(record, kind, line[header.end() :])
        yield record


def _time_of_record(seconds: str, fraction: str) -> datetime | None:
    """Return a time, or None if it is out of range for `datetime`."""
    try:
        return _START + timedelta(seconds=int(seconds), microseconds=int(fraction.ljust(6, "0")))
    except OverflowError:
        return None


def _add_fields(record: Record, kind: str, body: str) -> None:
    own, _, enriched = body.partition(_ENRICHED)
    if "'" in own:
        own = _without_message(own)
    if "avc:" in own and (avc := _AVC.search(own)):
        record["seresult"], record["seperms"] = avc[1], ",".join(avc[2].split())
    is_command = kind == "EXECVE"
    if is_command and "]=" in own:
        record |= _joined_parts(own)
        own = _PART.sub("", own)
    for name, value in _FIELD.findall(own):
        if name in record:
            continue
        if value[:1] == '"':
            record[name] = value.strip('"')
        elif value in _ABSENT:
            record[name] = None
        elif (name in _ENCODED or (is_command and _ARGUMENT.fullmatch(name))) and _HEX.fullmatch(value):
            record[name] = _decoded(name, bytes.fromhex(value))
        elif value != "{":  # saddr={ saddr_fam=inet ... }
            record[name] = value
    if enriched:
        for name, value in _FIELD.findall(enriched):
            if name not in record and value != "{":
                record[name] = value.strip('"')


def _joined_parts(own: str) -> Record:
    """Return the arguments of an EXECVE that are split into parts; a part may end within a character."""
    parts: dict[str, list[bytes]] = {}
    for name, value in _PART.findall(own):
        part = bytes.fromhex(value) if _HEX.fullmatch(value) else value.strip('"').encode()
        parts.setdefault(name, []).append(part)
    return {name: _decoded(name, b"".join(each)) for name, each in parts.items()}


def _without_message(own: str) -> str:
    """Return the fields of a record with those of its ``msg='...'`` as fields like the others."""
    message = _MESSAGE.search(own)
    if message is None:
        return own
    end = own.rfind("'")
    inner = own[message.end() : end] if end >= message.end() else own[message.end() :]
    return f"{own[: message.start()]} {inner}"


def _decoded(name: str, value: bytes) -> str:
    text = value.decode("utf-8", "backslashreplace")
    if name == "proctitle":
        return text.rstrip("\0").replace("\0", " ")
    return text.replace("\x01", ",") if name == "key" else text
