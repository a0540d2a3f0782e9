"""Records of logs: what every reader of a log format gives, and the count of what it had to skip."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

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
