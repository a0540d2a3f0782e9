"""A folder of rules: the files in it that `READERS` know, by their endings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cer_gpu.errors import CerError, OptionError
from cer_gpu.rule import Rule
from cer_gpu.rules.found import RulesFound
from cer_gpu.rules.texts import read_eql, read_text
from cer_gpu.rules.toml import read_toml

READERS: Mapping[str, Callable[[Path, str], RulesFound]] = {
    ".ceql": read_text,
    ".eql": read_eql,
    ".sql": read_text,
    ".toml": read_toml,
}
"""Readers of files by their endings; each takes the path, and the name of a rule that has no other."""


@dataclass(frozen=True)
class RuleFolder:
    """Rules of a folder.

    Attributes
    ----------
    rules : dict from str to Rule
        By their names; if several have one name, all but the first are named with their file too.
    passed_over : dict from str to int
        Number of rules that are no query of a language known here, by their language or kind.
    errors : list of (str, CerError)
        Errors in files that cannot be read, with the names of the files.
    """

    rules: dict[str, Rule]
    passed_over: Mapping[str, int] = field(default_factory=dict)
    errors: list[tuple[str, CerError]] = field(default_factory=list)

    def checked(self) -> dict[str, Rule]:
        """Return the rules; raise the first error."""
        for _, error in self.errors:
            raise error
        return self.rules


def read_folder(folder: str | os.PathLike[str]) -> RuleFolder:
    """Read the rules of a folder and of those in it, in the order of their paths.

    A rule in a file of texts has the name of its file without the ending, ``inner/name`` in a folder within.

    Raises
    ------
    OptionError
        When there is no such folder, or no file of rules in it.
    """
    root = Path(folder)
    if not root.is_dir():
        seen = "a file" if root.exists() else "nothing"
        raise OptionError(f"{folder}: expected a folder of query files, found {seen}")
    paths = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.suffix in READERS}
    rules: dict[str, Rule] = {}
    passed_over: Counter[str] = Counter()
    errors: list[tuple[str, CerError]] = []
    for name, path in sorted(paths.items(), key=lambda item: (os.path.splitext(item[0]), item[0])):
        if not path.is_file():
            continue
        try:
            found = READERS[path.suffix](path, os.path.splitext(name)[0])
        except OptionError as error:
            errors.append((str(path), error))
            continue
        passed_over.update(found.passed_over)
        for rule in found.rules:
            rules[rule.name if rule.name not in rules else f"{rule.name} ({name})"] = rule
    if not rules and not errors:
        over = f"none but {_listed(passed_over)}" if passed_over else "none"
        raise OptionError(f"{folder}: expected query files ({', '.join(f'*{each}' for each in READERS)}), found {over}")
    return RuleFolder(rules, dict(passed_over), errors)


def passed_over_note(passed_over: Mapping[str, int]) -> str | None:
    """Return a line on the rules that were passed over; None: there are none."""
    if not passed_over:
        return None
    n = sum(passed_over.values())
    return f"{n:,} rule{'s' if n > 1 else ''} passed over, in no language known here: {_listed(passed_over)}"


def _listed(passed_over: Mapping[str, int]) -> str:
    most_first = sorted(passed_over.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n:,} {name}" for name, n in most_first)
