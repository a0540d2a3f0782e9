"""A rule: a query with what a detection says of itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cer_gpu.errors import CerError, QueryError

LEVELS = ("critical", "high", "medium", "low", "informational")
"""Levels of rules, the most urgent first; a rule may have none, or another."""

NO_TACTIC = "no tactic"
"""Stands for the tactic of a rule without one."""

TEST_ENDINGS = (".test.yml", ".test.yaml")
"""Endings of files of rule tests, which hold no rules."""


@dataclass(frozen=True)
class Rule:
    """A rule, as read from a file.

    Parameters
    ----------
    name
    text
        The query.
    language
        Language of the query, as `cer_gpu.compile` takes it; None to detect it from the text.
    level
        One of `LEVELS`, as a rule.
    tags
    id
        Unique identifier of the rule, wherever it is stored.
    tactics, techniques
        Names of the tactics, and ids of the techniques, of MITRE ATT&CK.
    log_source
        Log source of the rule, in words, where the query selects its events.
    column_groups
        Columns of which events have one or another, for the same field.
    file
        File of the rule.
    line
        Line of the file on which the text begins, or None if the text is the whole file.

    Examples
    --------
    >>> from cer_gpu.rules import Rule
    >>> Rule("guessed", "SELECT * FROM S WHERE FAIL{3} ; OK", level="high").level
    'high'
    """

    name: str
    text: str
    language: str | None = None
    level: str | None = None
    tags: tuple[str, ...] = ()
    id: str | None = None
    tactics: tuple[str, ...] = ()
    techniques: tuple[str, ...] = ()
    log_source: str | None = None
    column_groups: tuple[tuple[str, ...], ...] = ()
    file: str | None = None
    line: int | None = None

    def missing(self, names: Iterable[str], columns: Collection[str]) -> list[str]:
        """Return the columns among some that are not known; of a group, none of them known, only the first counts."""
        spare = {
            name
            for group in self.column_groups
            for name in (group if any(each in columns for each in group) else group[1:])
        }
        return [name for name in names if name not in columns and name not in spare]

    def place(self, error: CerError) -> str | None:
        """Return the file of an error, with its line where the text is only a part of the file."""
        if self.file is None or self.line is None or not isinstance(error, QueryError) or error.start is None:
            return self.file
        before = (error.text or "")[: error.start]
        return f"{self.file}:{self.line + before.count(chr(10))}"


def urgency(level: str | None) -> int:
    """Return the rank of a level, 0 for the most urgent one; others, and none, come last."""
    return LEVELS.index(level) if level in LEVELS else len(LEVELS) + (level is None)
