"""Logs of Sysmon for Linux: an event a line, as XML, after the time and the host that a daemon of syslog writes.

A line is ``Nov 27 12:00:00 host sysmon: <Event><System>...</System><EventData><Data Name="Image">/bin/ls</Data>...``.
The text before ``<Event`` is skipped: the event has its own time and computer.

A record has the columns that an event of Windows has: ``EventID``, ``Channel``, ``Computer``, ``Provider_Name``,
``TimeCreated`` (UTC), ``EventRecordID`` and the others of ``System``, and each ``Data`` by its name, as a string.
Other attributes of ``System`` are named after their element (``Execution_ProcessID``), but ``UserID``.  A ``Data``
with the name of a column of ``System`` is ``EventData_...``, such as ``EventData_Version`` of a change of state.

The XML is matched in the one form that Sysmon writes, with the five entities of XML and references to characters by
number.  Lines with anything else (declarations, other entities, comments, nested elements) are counted as skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO

from cer_gpu.io.logs.records import Record, Skipped, numbered_lines

WITHOUT_EVENT = "line without an event of Sysmon"
CUT_SHORT = "event of Sysmon that is cut short"
NOT_AS_WRITTEN = "event that is not as Sysmon writes it"

_ATTRIBUTES = r'(?: [A-Za-z]++="[^"<]*+")*+'
_DATA = r'<Data Name="([^"<]*+)"(?:/>|>([^<]*+)</Data>)'
_ELEMENT = rf"<(?P<element>[A-Za-z]++)({_ATTRIBUTES})(?:/>|>([^<]*+)</(?P=element)>)"
_EVENT = re.compile(
    rf"<Event{_ATTRIBUTES}><System>(?P<system>(?:{_ELEMENT})*+)</System>"
    rf"<EventData(?:/>|>(?P<data>(?:{_DATA})*+)</EventData>)</Event>\s*"
)
_ELEMENTS = re.compile(_ELEMENT)
_ATTRIBUTE = re.compile(r'([A-Za-z]+)="([^"]*)"')
_ITEMS = re.compile(_DATA)
_REFERENCE = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#([0-9]{1,7})|#x([0-9A-Fa-f]{1,6}));|&")
_SIGNS = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_FIRST_EVENT = re.compile(
    rb'^(?:<\d{1,3}>)?[^<\n]*<Event(?: [^<>\n]*)?><System><Provider Name="Linux-Sysmon"', re.MULTILINE
)
_NUMBERS = frozenset(
    {"EventID", "Version", "Level", "Task", "Opcode", "EventRecordID", "Execution_ProcessID", "Execution_ThreadID"}
)
_LARGEST = 2**63 - 1


def recognises(head: bytes) -> bool:
    """Return True if a file that begins with `head` has events of Sysmon for Linux."""
    return _FIRST_EVENT.search(head) is not None


def records(stream: IO[bytes], skipped: Skipped) -> Iterator[Record]:
    """Yield the events of a log.

    Parameters
    ----------
    stream
        The file, decompressed.
    skipped
        Counts lines without an event, except blank ones.
    """
    for number, line in numbered_lines(stream, skipped):
        start = line.find("<Event")
        if start < 0:
            skipped.add(WITHOUT_EVENT, f"line {number}")
            continue
        event = _EVENT.fullmatch(line, start)
        try:
            if event is None:
                raise ValueError
            yield _record(event["system"], event["data"] or "")
        except (ValueError, OverflowError):
            is_whole = line.rstrip().endswith("</Event>")
            skipped.add(NOT_AS_WRITTEN if is_whole else CUT_SHORT, f"line {number}")


def _record(system: str, data: str) -> Record:
    """Return an event; raises ValueError if a value does not have the type of its element."""
    record: Record = {}
    for element, attributes, text in _ELEMENTS.findall(system):
        if text:
            record[element] = _integer_of_digits(text) if element in _NUMBERS else _resolve_references(text)
        if attributes:
            for name, value in _ATTRIBUTE.findall(attributes):
                column = "UserID" if element == "Security" else f"{element}_{name}"
                record[column] = _integer_of_digits(value) if column in _NUMBERS else _resolve_references(value)
    record["TimeCreated"] = _time_of_event(str(record.pop("TimeCreated_SystemTime", "")))
    if "EventID" not in record:
        raise ValueError
    items = _ITEMS.findall(data)
    if "&" in data:
        items = [(_resolve_references(name), _resolve_references(text)) for name, text in items]
    fields: Record = dict(items)
    for name in fields.keys() & record.keys():
        fields[f"EventData_{name}"] = fields.pop(name)
    return record | fields


def _integer_of_digits(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit()) or int(digits) > _LARGEST:
        raise ValueError
    return int(digits)


def _time_of_event(text: str) -> datetime:
    """Return a time in UTC, to the microsecond; Sysmon writes nanoseconds."""
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _resolve_references(written: str) -> str:
    return _REFERENCE.sub(_character, written) if "&" in written else written


def _character(reference: re.Match[str]) -> str:
    sign, decimal, digits = reference.groups()
    if sign is not None:
        return _SIGNS[sign]
    code = int(decimal) if decimal else int(digits, 16) if digits else 0
    if code == 0 or 0xD800 <= code < 0xE000:  # no character, or an entity that Sysmon does not write
        raise ValueError
    return chr(code)
