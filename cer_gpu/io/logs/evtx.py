"""Event logs of Windows (``.evtx``): the fields of an event's System, EventData and UserData by their names."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, Any

from cer_gpu.errors import OptionError
from cer_gpu.io.logs.records import Record, Skipped

_MAGIC = b"ElfFile\0"
_CHUNK_MAGIC = b"ElfChnk\0"
_HEADER_BYTES, _CHUNK_BYTES = 1 << 12, 1 << 16
_RANGE = struct.Struct("<QQ")
_RANGE_AT = 24
"""Offset of the first and the last record number in the header of a chunk."""
_WHOLE = ("EventID", "EventRecordID", "Level", "Task", "Opcode", "Version")
_STRINGS = ("Channel", "Computer", "Keywords")
_ATTRIBUTES = (
    ("Provider", "Name", "Provider_Name"),
    ("Provider", "Guid", "Provider_Guid"),
    ("Execution", "ProcessID", "Execution_ProcessID"),
    ("Execution", "ThreadID", "Execution_ThreadID"),
    ("Security", "UserID", "UserID"),
    ("Correlation", "ActivityID", "Correlation_ActivityID"),
)
"""Elements of System, their attributes, and the corresponding columns."""
_NOTHING: dict[str, Any] = {}
SYSTEM_COLUMNS = ("TimeCreated", *_WHOLE, *_STRINGS, *(name for _, _, name in _ATTRIBUTES))
"""Columns of an event's System; fields of other parts by these names are called ``EventData_...``, ``UserData_...``."""
_OWN = frozenset(SYSTEM_COLUMNS)
_SPECIAL = _OWN | {"#attributes", "Data"}
"""Names in an event's data that need special handling."""
_MAX_ROWS_LOST = 1 << 16
"""Upper bound of the records in a chunk; a header with more is ignored."""


def recognises(head: bytes) -> bool:
    """Return True if the first bytes of a file are those of an event log."""
    return head.startswith(_MAGIC)


def records(stream: IO[bytes], skipped: Skipped) -> Iterator[Record]:
    """Yield the events of a log in the order of the file.

    Parameters
    ----------
    stream
        The log, which must be seekable.
    skipped
        Counts damaged chunks and records.

    Raises
    ------
    OSError
        When it is not an event log.
    OptionError
        When the package `evtx` is not installed.
    """
    parser_class = _parser_class()
    counts = _RecordCounts(stream, skipped)
    stream.seek(0)
    head = stream.read(len(_MAGIC))
    if not recognises(head):
        actual = f"got {head!r}" if head else "got an empty file"
        raise OSError(f"no event log of Windows: expected a file that begins with {_MAGIC!r}, {actual}")
    stream.seek(0)
    try:
        parser = parser_class(stream)
    except (RuntimeError, OSError) as error:
        raise OSError(f"no event log of Windows: {error}") from error
    raw = iter(parser.records_json())
    n_records = 0
    while True:
        try:
            each = next(raw)
        except StopIteration:
            break
        except RuntimeError as error:
            counts.damaged(str(error), n_records)
            continue
        n_records += 1
        counts.count(each["event_record_id"])
        try:
            record = record_of(json.loads(each["data"])["Event"])
        except (ValueError, KeyError, TypeError, AttributeError):
            skipped.add("record that is no event", f"record {each['event_record_id']}")
            continue
        if "TimeCreated" not in record and (written := _parse_timestamp(each["timestamp"].removesuffix(" UTC"))):
            record["TimeCreated"] = written
        yield record
    counts.close()


def _parser_class() -> Any:
    try:
        from evtx import PyEvtxParser
    except ImportError:
        raise OptionError(
            "event logs of Windows (.evtx) are read by the package evtx, which is not installed\n"
            "hint: pip install 'cer_gpu[evtx]'"
        ) from None
    return PyEvtxParser


# ---- what is missing ------------------------------------------------------------------------------------------------


class _RecordCounts:
    """Number of records in the headers of chunks, compared with those that the parser yields.

    The parser silently skips damaged records, and the rest of a chunk that it cannot parse.
    """

    def __init__(self, stream: IO[bytes], skipped: Skipped) -> None:
        self._skipped = skipped
        self._chunks = list(self._headers(stream))
        self._at, self._n_seen = 0, 0
        self._first, self._n_expected = self._chunks[0][1:] if self._chunks else (0, 0)

    def _headers(self, stream: IO[bytes]) -> Iterator[tuple[int, int, int]]:
        """Yield the index of each chunk, its first record, and the number of its records."""
        n_bytes = stream.seek(0, 2)
        for number, place in enumerate(range(_HEADER_BYTES, n_bytes, _CHUNK_BYTES)):
            stream.seek(place)
            head = stream.read(_RANGE_AT + _RANGE.size)
            if place + _CHUNK_BYTES > n_bytes:
                self._skipped.add("chunk that is cut short", f"chunk {number}")
            elif head.startswith(_CHUNK_MAGIC):
                first, last = _RANGE.unpack_from(head, _RANGE_AT)
                if 0 <= last - first < _MAX_ROWS_LOST:  # else it is empty, or its header is outdated
                    yield number, first, last - first + 1

    def count(self, number: int) -> None:
        """Count a record by its number."""
        if self._n_seen < self._n_expected and 0 <= number - self._first < self._n_expected:
            self._n_seen += 1
            return
        for at in range(self._at + 1, len(self._chunks)):
            if 0 <= number - self._chunks[at][1] < self._chunks[at][2]:
                self._go(at)
                self._n_seen = 1
                return
        # a record that is newer than the last header

    def damaged(self, reason: str, n_records: int) -> None:
        """Count a chunk that the parser rejects."""
        self._skipped.add("damaged chunk", f"after {n_records:,} records: {reason}")

    def close(self) -> None:
        """Count the records that are missing in the end."""
        self._go(len(self._chunks))

    def _go(self, to: int) -> None:
        while self._at < to:
            number, first, n_expected = self._chunks[self._at]
            for _ in range(n_expected - self._n_seen):
                self._skipped.add(
                    "damaged record", f"chunk {number}, with the records {first} to {first + n_expected - 1}"
                )
            self._at, self._n_seen = self._at + 1, 0
        if self._at < len(self._chunks):
            _, self._first, self._n_expected = self._chunks[self._at]


# ---- fields ---------------------------------------------------------------------------------------------------------


def record_of(event: dict[str, Any]) -> Record:
    """Return the columns of an event, given as JSON of the package `evtx`."""
    system = event["System"]
    record: Record = {}
    if (created := _system_attribute(system, "TimeCreated", "SystemTime")) and (timestamp := _parse_timestamp(created)):
        record["TimeCreated"] = timestamp
    for name in _WHOLE:
        value = system.get(name)
        record[name] = value if type(value) is int else _integer_of_value(value)
    for name in _STRINGS:
        value = system.get(name)
        record[name] = value if type(value) is str else _text_of_value(value)
    for element, attribute, name in _ATTRIBUTES:
        element_fields = system.get(element)
        value = (element_fields.get("#attributes") or _NOTHING).get(attribute) if type(element_fields) is dict else None
        record[name] = _integer_of_value(value) if element == "Execution" else value
    for part, fields in event.items():
        if part == "EventData":
            _take_data(record, fields)
        elif part == "UserData" and isinstance(fields, dict):
            for element in fields.values():
                if isinstance(element, dict):
                    _take_fields(record, part, "", element)
        elif part not in ("System", "#attributes") and isinstance(fields, dict):
            _take_fields(record, part, f"{part}_", fields)
    return record


def _take_data(record: Record, fields: Any) -> None:
    if not isinstance(fields, dict):
        if (whole := _text_of_value(fields)) is not None:
            record["Data"] = [whole]
        return
    if _SPECIAL.isdisjoint(fields):
        record.update(fields)
        for name, value in fields.items():
            if type(value) is not str:
                if type(value) is dict:
                    break
                record[name] = _text_of_value(value)
        else:
            return
        for name in fields:
            del record[name]
    text: str | list[str] | None
    for name, value in fields.items():
        if type(value) is str:
            text = value
        elif name == "#attributes":
            continue
        elif isinstance(value, dict) and name == "Data":
            own = value.get("#text")
            text = [_text_of_value(each) or "" for each in (own if isinstance(own, list) else [own])]
        elif isinstance(value, dict) and "#text" not in value:
            _take_fields(record, "EventData", f"{name}_", value)
            continue
        else:
            text = _text_of_value(value)
        record[f"EventData_{name}" if name in _OWN else name] = text


def _take_fields(record: Record, part: str, prefix: str, fields: dict[str, Any]) -> None:
    """Add the fields of an element; names of nested elements are prefixed by its name."""
    for key, value in fields.items():
        if key == "#attributes":
            continue
        name = f"{prefix}{key}".removesuffix("_#text")
        if isinstance(value, dict) and "#text" not in value:
            _take_fields(record, part, f"{name}_", value)
        else:
            record[f"{part}_{name}" if name in _OWN else name] = _text_of_value(value)


def _system_attribute(system: dict[str, Any], element: str, name: str) -> Any:
    fields = system.get(element)
    return (fields.get("#attributes") or {}).get(name) if isinstance(fields, dict) else None


def _text_of_value(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _text_of_value(value.get("#text"))
    return json.dumps(value, ensure_ascii=False)


def _integer_of_value(value: Any) -> int | None:
    if isinstance(value, dict):
        value = value.get("#text")
    if type(value) is int:
        return value
    try:
        return None if value is None else int(value, 0)
    except (TypeError, ValueError):
        return None


def _parse_timestamp(text: str) -> datetime | None:
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)
