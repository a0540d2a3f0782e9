"""A folder of rules: the readers of its files, by their endings.

Rules in TOML are of the two layouts in which Elastic publishes its rules: ``[rule]`` with a query, and its threats.

| what | in the file |
| --- | --- |
| name, query | ``rule.name``, ``rule.query`` |
| language | ``rule.language``, else EQL |
| level | ``rule.severity`` |
| id | ``rule.rule_id``, else ``rule.id`` |
| tags | ``rule.tags`` |
| tactics | ``tactic.name`` of each table ``rule.threat``, else ``threat`` |
| techniques | ``id`` of its ``technique`` and ``subtechnique`` |

Rules in other languages, and of kinds that are no query over events (thresholds, indicators, jobs of machine learning),
are passed over, and so are files without a rule.

Rules of Sigma in YAML; correlations refer to rules in other files, so that all files are read together.

YAML without a rule (workflows, rule tests) is skipped; `cer_gpu.sigma.load` recognises it, or a word of the
text without pySigma.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.errors import CerError, OptionError, nearest
from cer_gpu.printable import utf8
from cer_gpu.rule import TEST_ENDINGS, Rule
from cer_gpu.sigma.loaded import silenced_notes
from cer_gpu.sigma.loading import PYSIGMA_MISSING, load


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
    """The columns of the fields of rules in Sigma, as in `cer_gpu.sigma.load`.

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
        """Return True if anything was requested."""
        return bool(self.pipelines or self.columns or self.nocase_groups)


AS_NAMED = FieldColumns()
"""Fields are columns of their names."""


@dataclass(frozen=True)
class FileContents:
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


RuleReader = Callable[[Sequence[RuleFile], FieldColumns], FileContents]
"""Takes all files of its endings at once, as a rule may refer to one in another file."""


def file_by_file(read: Callable[[Path, str], FileContents]) -> RuleReader:
    """Return a reader of files that are read by themselves, each from its path and the name of a rule without one."""

    def reader(files: Sequence[RuleFile], fields: FieldColumns) -> FileContents:
        rules: list[Rule] = []
        skipped_files: list[str] = []
        errors: list[tuple[str, CerError]] = []
        for file in files:
            try:
                contents = read(file.path, file.name)
            except Exception as error:  # whatever comes of one file, the others are read
                said = str(error) or type(error).__name__
                wrong = OptionError(f"{file.path}: cannot be read as a rule: {said}")
                errors.append((str(file.path), error if isinstance(error, CerError) else wrong))
                continue
            rules += contents.rules
            skipped_files += contents.skipped_files
        return FileContents(rules, skipped_files, errors)

    return reader


_LANGUAGES = {"eql": "eql", "ceql": None}
"""From languages of rules in TOML to those of `cer_gpu.compile`; None to detect it."""
_QUERY = re.compile(r"""^[ \t]*(?:query|"query")[ \t]*=[ \t]*('''|\"{3}|'|")(\r?\n)?""", re.MULTILINE)


def read_toml(path: Path, name: str) -> FileContents:
    """Read a file with one rule.

    Raises
    ------
    OptionError
        When the file is not TOML, or its rule has no query.
    """
    text = read_query_file(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{path}: is not TOML: {error}") from None
    except RecursionError:
        raise OptionError(f"{path}: is nested too deeply for a rule in TOML") from None
    rule = document.get("rule")
    if not isinstance(rule, dict):
        return FileContents()
    language = str(rule.get("language", "eql" if "query" in rule else rule.get("type", "no query"))).lower()
    if language not in _LANGUAGES:
        return FileContents(skipped_files=[language])
    query = rule.get("query")
    if not isinstance(query, str):
        raise OptionError(f"{path}: expected rule.query, a string, got {_type_name(query)}")
    threats = list(_tables(rule.get("threat", document.get("threat"))))
    return FileContents(
        [
            Rule(
                name=str(rule.get("name", name)),
                text=query,
                language=_LANGUAGES[language],
                level=_optional_string(rule.get("severity")),
                tags=tuple(map(str, rule.get("tags", ()))),
                id=_optional_string(rule.get("rule_id", rule.get("id"))),
                tactics=_each(_tactics(threats)),
                techniques=_each(_techniques(threats)),
                file=str(path),
                line=_line_of(text, query),
            )
        ]
    )


def _tactics(threats: Iterable[dict[str, Any]]) -> Iterator[Any]:
    for threat in threats:
        for tactic in _tables(threat.get("tactic")):
            yield tactic.get("name", tactic.get("id"))


def _techniques(threats: Iterable[dict[str, Any]]) -> Iterator[Any]:
    for threat in threats:
        for technique in _tables(threat.get("technique")):
            yield technique.get("id")
            for below in _tables(technique.get("subtechnique")):
                yield below.get("id")


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the tables of a list, or a table alone."""
    yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))


def _each(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(value) for value in values if value is not None))


def _optional_string(value: Any) -> str | None:
    return None if value is None else str(value)


def _type_name(value: Any) -> str:
    return "none" if value is None else type(value).__name__


def _line_of(text: str, query: str) -> int:
    """Return the line of a file on which a query begins: that of the first ``query =`` which is followed by it."""
    first = query.split("\n", 1)[0].rstrip()
    line = 1
    for match in _QUERY.finditer(text):
        line = text.count("\n", 0, match.end()) + 1
        if text.startswith(first, match.end()):
            break
    return line


OTHER_YAML = "YAML without a detection"
_LIKE_A_RULE = re.compile(r"""^[ \t{]*["']?(?:detection|correlation)["']?[ \t]*:""", re.MULTILINE)


def read_sigma(files: Sequence[RuleFile], fields: FieldColumns) -> FileContents:
    """Read the rules in all files."""
    if not files:
        return FileContents()
    try:
        loaded = load(
            [file.path for file in files], fields.pipelines, fields.columns, nocase_groups=fields.nocase_groups
        )
    except OptionError as error:
        if str(error) != PYSIGMA_MISSING:
            raise
        return _without_pysigma(files, error)
    over = [kind for kind, n in loaded.skipped_files.items() for _ in range(n)]
    errors = [(each.file or each.name, each.error) for each in loaded._refused]
    notes = list(silenced_notes(loaded.silenced))
    return FileContents(list(loaded.rules.values()), over, errors, notes, loaded.log_sources)


def _without_pysigma(files: Sequence[RuleFile], missing: OptionError) -> FileContents:
    """Return what is known of files that cannot be read: an error for the rules among them."""
    errors: list[tuple[str, CerError]] = []
    rules = []
    for file in files:
        try:
            if _LIKE_A_RULE.search(read_query_file(file.path)):
                rules.append(str(file.path))
        except OptionError as error:
            errors.append((str(file.path), error))
    over = [OTHER_YAML] * (len(files) - len(rules) - len(errors))
    if rules:
        more = f" and {len(rules) - 1:,} more" if len(rules) > 1 else ""
        errors.append((rules[0], OptionError(f"{rules[0]}{more}: {missing}")))
    return FileContents((), over, errors)


def read_text(path: Path, name: str) -> FileContents:
    """Read a file whose language is detected from its text."""
    return FileContents([Rule(name, read_query_file(path), file=str(path))])


def read_eql(path: Path, name: str) -> FileContents:
    """Read a file of EQL."""
    return FileContents([Rule(name, read_query_file(path), language="eql", file=str(path))])


_STRINGS = file_by_file(read_text)
READERS: Mapping[str, RuleReader] = {
    ".ceql": _STRINGS,
    ".eql": file_by_file(read_eql),
    ".sql": _STRINGS,
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

    A rule in a file with the text alone has the name of its file without the ending, ``inner/name`` in a folder within.

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
            hint = "give its folder, or the file by itself as QUERY"
            if root.suffix.lower() == ".zip":
                hint = "unpack the archive, and give the folder"
            raise OptionError(f"{folder}: expected a folder of query files, found a file\nhint: {hint}")
        beside = root.parent.iterdir() if root.parent.is_dir() else ()
        near = nearest(root.name, sorted(path.name for path in beside if path.is_dir()))
        hint = f"\nhint: did you mean {near!r}?" if near else ""
        raise OptionError(f"{folder}: expected a folder of query files, found nothing{hint}")
    paths = (path for path in root.rglob("*") if path.suffix in READERS and not path.name.endswith(TEST_ENDINGS))
    names = {path.relative_to(root).as_posix(): path for path in paths}
    order = sorted(names, key=lambda name: (os.path.splitext(name), name))
    contents = _read_by_ending(
        [RuleFile(names[name], utf8(os.path.splitext(name)[0])) for name in order if names[name].is_file()], fields
    )
    name_of = {str(names[name]): name for name in order}
    place = {file: i for i, file in enumerate(name_of)}
    rules: dict[str, Rule] = {}
    for rule in sorted(contents.rules, key=lambda rule: place[rule.file or ""]):
        rules[rule.name if rule.name not in rules else f"{rule.name} ({utf8(name_of[rule.file or ''])})"] = rule
    skipped_files = Counter(contents.skipped_files)
    if not rules and not contents.errors:
        over = f"only {_kinds_in_words(skipped_files)}" if skipped_files else "none"
        raise OptionError(f"{folder}: expected query files ({', '.join(f'*{each}' for each in READERS)}), found {over}")
    errors = sorted(contents.errors, key=lambda each: place.get(each[0], len(place)))
    return RuleFolder(rules, dict(skipped_files), errors, list(contents.notes), contents.log_sources)


def read_file(path: Path, fields: FieldColumns = AS_NAMED) -> FileContents:
    """Read the rules of one file, a query without a name if its ending is none of `READERS`; raise the first error."""
    contents = READERS.get(path.suffix, _STRINGS)([RuleFile(path, "")], fields)
    for _, error in contents.errors:
        raise error
    return contents


def _read_by_ending(files: Iterable[RuleFile], fields: FieldColumns) -> FileContents:
    """Return all that the readers find, each of whom gets its files together."""
    own: dict[RuleReader, list[RuleFile]] = {}
    for file in files:
        own.setdefault(READERS[file.path.suffix], []).append(file)
    contents = [reader(each, fields) for reader, each in own.items()]
    return FileContents(
        [rule for each in contents for rule in each.rules],
        [kind for each in contents for kind in each.skipped_files],
        [error for each in contents for error in each.errors],
        [note for each in contents for note in each.notes],
        {words: text for each in contents for words, text in each.log_sources.items()},
    )


def skipped_files_note(skipped_files: Mapping[str, int]) -> str | None:
    """Return a line about the skipped rules, or None if there are none."""
    if not skipped_files:
        return None
    return (
        f"{sum(skipped_files.values()):,} skipped, not rules in a supported language: {_kinds_in_words(skipped_files)}"
    )


def _kinds_in_words(skipped_files: Mapping[str, int]) -> str:
    most_first = sorted(skipped_files.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n:,} {name}" for name, n in most_first)
