r"""Logs of Zeek as tab-separated values (TSV), under the header that Zeek writes.

The header names what separates values (``#separator \x09``), the log (``#path conn``), its columns (``#fields``) and
their types (``#types``).  A header within a file applies to the lines after it, so logs may be concatenated.

A record has ``_path``, the name of the log, and each column by its name, dots included (``id.orig_h``).

| type of Zeek | value |
| --- | --- |
| ``time`` | a timestamp in UTC, exact to the microsecond |
| ``interval``, ``double`` | a float, of seconds in an interval |
| ``count``, ``int``, ``port`` | an integer |
| ``bool`` | True for ``T``, False for ``F`` |
| ``set[...]``, ``vector[...]`` | a list of strings, whatever the type of the elements |
| ``string``, ``addr``, ``subnet``, ``enum`` and others | a string |

``#unset_field`` is NULL, ``#empty_field`` a string or list without elements.  In strings, ``\xNN`` is the byte of this
number and ``\\`` a backslash, as Zeek writes them; bytes that are not UTF-8 stay ``\xNN``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO

from cer_gpu.io.logs.records import Record, Skipped, Value, numbered_lines

BEFORE_THE_HEADER = "line before a header of Zeek with #fields"
OTHER_NUMBER = "line of Zeek with another number of values than #fields has"
TYPES_DIFFER = "line of Zeek under #types of another number than #fields has"
NOT_OF_ITS_TYPE = "line of Zeek with a value that is not of its type"

_BEGIN = "#separator "
_ESCAPES = re.compile(r"(?:\\x[0-9a-fA-F]{2})+|\\\\")
_TIME = re.compile(r"(-?)(\d{1,18})(?:\.(\d{1,6})\d*)?", re.ASCII)
_START = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDS = (-(2**63), 2**64)
Converter = Callable[[str], Value]


def recognises(head: bytes) -> bool:
    """Return True if a file that begins with `head` is a log of Zeek."""
    return head.startswith(_BEGIN.encode())


@dataclass
class _Header:
    r"""The header of the current lines, as far as it has been read.

    Attributes
    ----------
    separator, set_separator : str
        Between the values of a line, and between the elements of a list.
    empty, unset : str
        Representation of an empty value, and of a missing one.
    path : str or None
        Name of the log.
    names, types : sequence of str
        Names of the columns, and their types.
    columns : sequence of (str, callable)
        The names, each with the function that parses its values.
    """

    separator: str = "\t"
    set_separator: str = ","
    empty: str = "(empty)"
    unset: str = "-"
    path: str | None = None
    names: Sequence[str] = ()
    types: Sequence[str] = ()
    columns: Sequence[tuple[str, Converter]] = ()

    def read(self, line: str) -> None:
        """Read a line of a header; lines such as #open and #close are ignored."""
        key, *values = line.split(self.separator)
        value = values[0] if values else ""
        match key:
            case "#set_separator":
                self.set_separator = value or ","
            case "#empty_field":
                self.empty = value
            case "#unset_field":
                self.unset = value
            case "#path":
                self.path = value
            case "#fields":
                self.names, self.types = values, ["string"] * len(values)
            case "#types":
                self.types = values
        self.columns = list(zip(self.names, map(self._converter, self.types), strict=False))

    def _converter(self, kind: str) -> Converter:
        if kind.startswith(("set[", "vector[", "table[")):
            return self._list
        return _CONVERTERS.get(kind, self._string)

    def _string(self, text: str) -> str:
        return "" if text == self.empty else _unescaped(text) if "\\" in text else text

    def _list(self, text: str) -> Value:
        if text == self.empty:
            return []
        elements: list[str | None] = [
            None if element == self.unset else self._string(element) for element in text.split(self.set_separator)
        ]
        return elements


def records(stream: IO[bytes], skipped: Skipped) -> Iterator[Record]:
    """Yield the records of a log.

    Parameters
    ----------
    stream
        The file, decompressed.
    skipped
        Counts lines that do not match their header, except blank ones.
    """
    header = _Header()
    for number, line in numbered_lines(stream, skipped, only_empty=True):
        if line.startswith(_BEGIN):
            header = _Header(_unescaped(line.removeprefix(_BEGIN)) or "\t")
            continue
        if line[:1] == "#":
            header.read(line)
            continue
        values = line.split(header.separator)
        if len(values) != len(header.columns) or len(header.types) != len(header.names):
            skipped.add(_mismatch(header), f"line {number}")
            continue
        record: Record = {"_path": header.path}
        unset = header.unset
        try:
            for (name, convert), text in zip(header.columns, values, strict=True):
                record[name] = None if text == unset else convert(text)
        except (ValueError, OverflowError):
            skipped.add(NOT_OF_ITS_TYPE, f"line {number}")
            continue
        yield record


def _mismatch(header: _Header) -> str:
    if not header.names:
        return BEFORE_THE_HEADER
    return OTHER_NUMBER if len(header.types) == len(header.names) else TYPES_DIFFER


def _unescaped(text: str) -> str:
    return _ESCAPES.sub(_signs, text)


def _signs(escapes: re.Match[str]) -> str:
    if escapes[0] == "\\\\":
        return "\\"
    return bytes.fromhex(escapes[0].replace("\\x", "")).decode("utf-8", "backslashreplace")


def _time_of_seconds(text: str) -> datetime:
    """Return a time from seconds since 1970, exactly: a float would lose microseconds."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        raise ValueError
    sign, seconds, fraction = parts.groups()
    since = timedelta(seconds=int(seconds), microseconds=int((fraction or "").ljust(6, "0")))
    return _START - since if sign else _START + since


def _integer(text: str) -> int:
    number = int(text)
    if not _BOUNDS[0] <= number < _BOUNDS[1]:
        raise ValueError
    return number


def _bool(text: str) -> bool:
    if text not in ("T", "F"):
        raise ValueError
    return text == "T"


_CONVERTERS: dict[str, Converter] = {
    "time": _time_of_seconds,
    "interval": float,
    "double": float,
    "count": _integer,
    "int": _integer,
    "port": _integer,
    "bool": _bool,
}
"""Parsers of values by type; those of other types need the header."""
