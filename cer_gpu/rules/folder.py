"""A folder of rules: the files in it that `READERS` know, by their endings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cer_gpu.errors import CerError, OptionError, nearest
from cer_gpu.printable import utf8
from cer_gpu.rule import TEST_ENDINGS, Rule
from cer_gpu.rules.found import (
    AS_NAMED,
    FieldColumns,
    RuleFile,
    RuleReader,
    RulesFound,
    file_by_file,
)
from cer_gpu.rules.sigma import read_sigma
from cer_gpu.rules.texts import read_eql, read_text
from cer_gpu.rules.toml import read_toml

_TEXTS = file_by_file(read_text)
READERS: Mapping[str, RuleReader] = {
    ".ceql": _TEXTS,
    ".eql": file_by_file(read_eql),
    ".sql": _TEXTS,
    ".toml": file_by_file(read_toml),
    ".yaml": read_sigma,
    ".yml": read_sigma,
}
"""Readers of files by their endings."""


@dataclass(frozen=True)
class RuleFolder:
    """Rules of a folder.

    Attributes
    ----------
    rules : dict from str to Rule
        By their names; if several have one name, all but the first are named with their file too.
    skipped_files : dict from str to int
        Number of rules that are no query of a language known here, by their language or kind.
    errors : list of (str, CerError)
        Errors in files that cannot be read, and of rules in them that are no query, with the names of the files.
    notes : list of str
        Remarks on rules that give no results.
    log_sources : dict from str to str
        Texts in CEQL that find the events of log sources, by the words that rules have for these.
    """

    rules: dict[str, Rule]
    skipped_files: Mapping[str, int] = field(default_factory=dict)
    errors: list[tuple[str, CerError]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    log_sources: Mapping[str, str] = field(default_factory=dict)

    def checked(self) -> dict[str, Rule]:
        """Return the rules; raise the first error."""
        for _, error in self.errors:
            raise error
        return self.rules


def read_folder(folder: str | os.PathLike[str], fields: FieldColumns = AS_NAMED) -> RuleFolder:
    """Read the rules of a folder and of those in it, in the order of their paths.

    A rule in a file of texts has the name of its file without the ending, ``inner/name`` in a folder within.

    Parameters
    ----------
    folder
    fields
        Columns of the fields of Sigma.

    Raises
    ------
    OptionError
        When there is no such folder, or no file of rules in it, or no pipeline of a name.
    """
    root = Path(folder)
    if not root.is_dir():
        if root.exists():
            hint = "name its folder; a single query is given by itself"
            raise OptionError(f"{folder}: expected a folder of query files, found a file\nhint: {hint}")
        beside = root.parent.iterdir() if root.parent.is_dir() else ()
        near = nearest(root.name, sorted(path.name for path in beside if path.is_dir()))
        hint = f"\nhint: did you mean {near!r}?" if near else ""
        raise OptionError(f"{folder}: expected a folder of query files, found nothing{hint}")
    paths = (path for path in root.rglob("*") if path.suffix in READERS and not path.name.endswith(TEST_ENDINGS))
    names = {path.relative_to(root).as_posix(): path for path in paths}
    order = sorted(names, key=lambda name: (os.path.splitext(name), name))
    found = _read(
        [RuleFile(names[name], utf8(os.path.splitext(name)[0])) for name in order if names[name].is_file()], fields
    )
    name_of = {str(names[name]): name for name in order}
    place = {file: i for i, file in enumerate(name_of)}
    rules: dict[str, Rule] = {}
    for rule in sorted(found.rules, key=lambda rule: place[rule.file or ""]):
        rules[rule.name if rule.name not in rules else f"{rule.name} ({utf8(name_of[rule.file or ''])})"] = rule
    skipped_files = Counter(found.skipped_files)
    if not rules and not found.errors:
        over = f"none but {_listed(skipped_files)}" if skipped_files else "none"
        raise OptionError(f"{folder}: expected query files ({', '.join(f'*{each}' for each in READERS)}), found {over}")
    errors = sorted(found.errors, key=lambda each: place.get(each[0], len(place)))
    return RuleFolder(rules, dict(skipped_files), errors, list(found.notes), found.log_sources)


def read_file(path: Path, fields: FieldColumns = AS_NAMED) -> RulesFound:
    """Read the rules of one file, a query without a name if its ending is none of `READERS`; raise the first error."""
    found = READERS.get(path.suffix, _TEXTS)([RuleFile(path, "")], fields)
    for _, error in found.errors:
        raise error
    return found


def _read(files: Iterable[RuleFile], fields: FieldColumns) -> RulesFound:
    """Return all that the readers find, each of whom gets its files together."""
    own: dict[RuleReader, list[RuleFile]] = {}
    for file in files:
        own.setdefault(READERS[file.path.suffix], []).append(file)
    found = [reader(each, fields) for reader, each in own.items()]
    return RulesFound(
        [rule for each in found for rule in each.rules],
        [kind for each in found for kind in each.skipped_files],
        [error for each in found for error in each.errors],
        [note for each in found for note in each.notes],
        {words: text for each in found for words, text in each.log_sources.items()},
    )


def skipped_files_note(skipped_files: Mapping[str, int]) -> str | None:
    """Return a line about the skipped rules, or None if there are none."""
    if not skipped_files:
        return None
    return f"{sum(skipped_files.values()):,} skipped, no rules in a language known here: {_listed(skipped_files)}"


def _listed(skipped_files: Mapping[str, int]) -> str:
    most_first = sorted(skipped_files.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n:,} {name}" for name, n in most_first)
