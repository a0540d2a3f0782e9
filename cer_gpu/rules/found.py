"""Files of rules, and what readers find in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cer_gpu.errors import CerError, OptionError
from cer_gpu.rule import Rule


@dataclass(frozen=True)
class RuleFile:
    """A file that may hold rules.

    Attributes
    ----------
    path : Path
    name : str
        The name of a rule in it that has no other.
    """

    path: Path
    name: str


@dataclass(frozen=True)
class FieldColumns:
    """The columns of the fields of rules in Sigma, as those of `cer_gpu.sigma.load`.

    Attributes
    ----------
    pipelines : name, file, pipeline of pySigma, or sequence of these
    columns : mapping from str to str
        Columns by fields: the last word.
    nocase_groups : bool
    """

    pipelines: Any = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    nocase_groups: bool = False

    def __bool__(self) -> bool:
        """Return True if anything was asked for."""
        return bool(self.pipelines or self.columns or self.nocase_groups)


AS_NAMED = FieldColumns()
"""Fields are columns of their names."""


@dataclass(frozen=True)
class RulesFound:
    """Rules of files.

    Attributes
    ----------
    rules : sequence of Rule
    skipped_files : sequence of str
        For each rule that is no query of event patterns, its language or kind.
    errors : sequence of (str, CerError)
        Errors in files that cannot be read, and of rules in them that are no query, with the names of the files.
    notes : sequence of str
        Remarks on rules that give no results.
    log_sources : mapping from str to str
        Texts in CEQL that find the events of log sources, by the words that rules have for these.
    """

    rules: Sequence[Rule] = ()
    skipped_files: Sequence[str] = ()
    errors: Sequence[tuple[str, CerError]] = ()
    notes: Sequence[str] = ()
    log_sources: Mapping[str, str] = field(default_factory=dict)


RuleReader = Callable[[Sequence[RuleFile], FieldColumns], RulesFound]
"""Takes all files of its endings at once, as a rule may refer to one in another file."""


def file_by_file(read: Callable[[Path, str], RulesFound]) -> RuleReader:
    """Return a reader of files that are read by themselves, each from its path and the name of a rule without one."""

    def reader(files: Sequence[RuleFile], fields: FieldColumns) -> RulesFound:
        rules: list[Rule] = []
        skipped_files: list[str] = []
        errors: list[tuple[str, CerError]] = []
        for file in files:
            try:
                found = read(file.path, file.name)
            except Exception as error:  # whatever comes of one file, the others are read
                said = str(error) or type(error).__name__
                wrong = OptionError(f"{file.path}: cannot be read as a rule: {said}")
                errors.append((str(file.path), error if isinstance(error, CerError) else wrong))
                continue
            rules += found.rules
            skipped_files += found.skipped_files
        return RulesFound(rules, skipped_files, errors)

    return reader
