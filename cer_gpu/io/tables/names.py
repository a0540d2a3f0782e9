"""Names of tables: ``delta:PATH[@VERSION]`` and ``iceberg:CATALOG.NAMESPACE.TABLE[@SNAPSHOT]``."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cer_gpu.errors import EventsError, OptionError

_DIGITS = re.compile(r"(\d+)")


def natural(text: str) -> list[tuple[str, int]]:
    """Return a sort key for names, with the numbers in them as numbers."""
    parts = _DIGITS.split(text)
    return [
        (words, int(number) if number else -1)
        for words, number in zip(parts[::2], [*parts[1::2], ""], strict=True)
    ]  # fmt: skip


TABLE_PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}
"""Packages that read a kind of table, by the prefix of its names; each is an extra of that prefix."""
DELTA_LOG = "_delta_log"
"""Folder that marks its parent folder as a Delta table."""
_NAME = re.compile(rf"({'|'.join(TABLE_PACKAGES)}):(.*)", re.DOTALL)


@dataclass(frozen=True)
class TableName:
    """Name of a table, and of one of its snapshots.

    Attributes
    ----------
    kind
        One of `TABLE_PACKAGES`.
    place
        A path, a URI, or a name in a catalogue.
    snapshot
        As written: a number, a timestamp, or the name of a branch or tag; the newest if None.
    """

    kind: str
    place: str
    snapshot: str | None = None

    @classmethod
    def parse(cls, text: str) -> TableName | None:
        """Return the table of a prefixed name, or None if the prefix is not one of a table.

        Raises
        ------
        EventsError
            When nothing follows the prefix or the ``@``.
        """
        parts = _NAME.fullmatch(text)
        if parts is None:
            return None
        place, at, snapshot = parts[2].rpartition("@")
        if not at or "/" in snapshot:  # a URI may contain one: abfss://container@account/table
            place, at, snapshot = parts[2], "", ""
        if not place or (at and not snapshot):
            expected = "delta:PATH or delta:PATH@VERSION" if parts[1] == "delta" else "iceberg:CATALOG.NAMESPACE.TABLE"
            raise EventsError(f"{text}: expected the name of a table: {expected}")
        return cls(parts[1], place, snapshot or None)

    def __str__(self) -> str:
        """Return the name as it was written."""
        return f"{self.kind}:{self.place}" + (f"@{self.snapshot}" if self.snapshot else "")


def is_table_name(text: str) -> bool:
    """Return True if a name begins with the prefix of a table: ``delta:`` or ``iceberg:``."""
    return _NAME.fullmatch(text) is not None


def parse_timestamp(text: str) -> datetime | None:
    """Return a timestamp in ISO 8601, in UTC if it has no zone, or None if the text is not one."""
    if text.isdecimal():
        return None
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)


def package_of(kind: str, module: str | None = None) -> Any:
    """Import the package that reads a kind of table, or a module of it.

    Raises
    ------
    OptionError
        When it is not installed.
    """
    package = TABLE_PACKAGES[kind]
    try:
        return importlib.import_module(package if module is None else f"{package}.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise OptionError(
            f"tables of {kind.capitalize()} need the package {package}, which is not installed\n"
            f"hint: pip install 'cer-gpu[{kind}]'"
        ) from None
