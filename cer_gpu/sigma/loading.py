"""Rules of Sigma as texts of CEQL by their titles: `load`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa

from cer_gpu.cache import made_once
from cer_gpu.errors import CerError, OptionError
from cer_gpu.rule import TEST_ENDINGS, Rule

YAML_ENDINGS = (".yml", ".yaml")
PYSIGMA_MISSING = "Sigma's rules need pySigma\nhint: pip install 'cer-gpu[sigma]'"


@dataclass(frozen=True)
class Refused:
    """A rule that is not in the mapping.

    Attributes
    ----------
    name : str
        Title of the rule, else the name of its file.
    error : CerError
    kind : str
        Kind of the reason, in words.
    file : str or None
    """

    name: str
    error: CerError
    kind: str
    file: str | None = None


class SigmaRules(Mapping[str, str]):
    r"""Rules of Sigma as texts of CEQL, by their titles; made by `load`.

    A title that an earlier rule has is followed by the name of the rule's file, or a number, in parentheses.

    Parameters
    ----------
    rules
        By name.
    fields
        Names of the columns that each rule reads.
    refused
        Rules that have no text.
    passed_over
        Number of YAML documents that are no rules, by the kind of them.

    Attributes
    ----------
    rules : dict from str to cer_gpu.rules.Rule
    fields : dict from str to tuple of str
    errors : list of (str, CerError)
        Names of the rules that have no text, with the reasons.
    passed_over : dict from str to int

    Examples
    --------
    >>> import cer_gpu, cer_gpu.sigma
    >>> rules = cer_gpu.sigma.load('''
    ... title: Whoami
    ... logsource: {product: windows, category: process_creation}
    ... detection:
    ...   selection: {Image|endswith: '\whoami.exe'}
    ...   condition: selection
    ... ''')
    >>> print(rules["Whoami"])
    -- Sigma: Whoami
    SELECT * FROM events WHERE * AS event FILTER event[Image GLOB '*\whoami.exe' NOCASE]
    """

    def __init__(
        self,
        rules: Mapping[str, Rule],
        fields: Mapping[str, tuple[str, ...]],
        refused: Iterable[Refused] = (),
        passed_over: Mapping[str, int] | None = None,
    ) -> None:
        self.rules: dict[str, Rule] = dict(rules)
        self.fields: dict[str, tuple[str, ...]] = dict(fields)
        self._refused = list(refused)
        self.passed_over: dict[str, int] = dict(passed_over or {})

    def __getitem__(self, name: str) -> str:
        """Return the text of a rule."""
        return self.rules[name].text

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.rules)

    def __len__(self) -> int:
        """Return the number of rules."""
        return len(self.rules)

    def __repr__(self) -> str:
        """Return the numbers of rules with and without a text."""
        return f"<SigmaRules: {_rules(len(self))}, {len(self._refused):,} without a text>"

    @property
    def errors(self) -> list[tuple[str, CerError]]:
        """The rules that have no text, with the reasons."""
        return [(each.name, each.error) for each in self._refused]

    def missing(self, schema: pa.Schema) -> dict[str, int]:
        """Return the columns that events of a schema have not, with the number of rules that read each, most first."""
        known = set(_names_in(schema))
        counts = Counter(name for names in self.fields.values() for name in names if name not in known)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def summary(self, schema: pa.Schema | None = None) -> str:
        """Return the number of rules, the reasons why others have no text, and the columns that events have not.

        Parameters
        ----------
        schema
            That of the events; None: nothing is said of columns.
        """
        lines = [f"{_rules(len(self))} loaded"]
        kinds = Counter(each.kind for each in self._refused)
        if kinds:
            lines.append(f"{_rules(len(self._refused))} without a text:")
            lines += [f"  {count:,}: {kind}" for kind, count in kinds.most_common()]
        if self.passed_over:
            listed = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.passed_over.items()))
            lines.append(f"passed over: {listed}")
        if schema is not None:
            lines += _told(self.missing(schema), self._readers(schema))
        return "\n".join(lines)

    def _readers(self, schema: pa.Schema) -> int:
        known = set(_names_in(schema))
        return sum(any(name not in known for name in names) for names in self.fields.values())


def _rules(count: int) -> str:
    return f"{count:,} rule{'' if count == 1 else 's'}"


def _told(missing: Mapping[str, int], n_readers: int) -> Iterator[str]:
    if not missing:
        yield "the events have all columns that the rules read"
        return
    yield f"columns that the events have not, read by {_rules(n_readers)} (a test of one does not hold):"
    width = max(len(f"{count:,}") for count in missing.values())
    yield from (f"  {count:>{width},}: {name}" for name, count in missing.items())


def _names_in(schema: pa.Schema) -> Iterator[str]:
    """Yield the names of columns, and the paths of fields of structs."""
    for field in schema:
        yield from _paths(field.name, field.type)


def _paths(name: str, data_type: pa.DataType) -> Iterator[str]:
    yield name
    if pa.types.is_struct(data_type):
        for field in data_type:
            yield from _paths(f"{name}.{field.name}", field.type)


def load(
    rules: Any,
    pipelines: Any = (),
    columns: Mapping[str, str] | None = None,
) -> SigmaRules:
    """Read rules of Sigma and write them in CEQL (docs/sigma.md).

    Parameters
    ----------
    rules
        The path of a file or folder, YAML as a text, a collection or rule of pySigma, or a list of these.
    pipelines
        Names of pipelines ("windows", "sysmon", "windows_audit", "ecs"), pipelines of pySigma, and paths of files with
        such, in any number.  Without one, rules are tested on events of all log sources.
    columns
        Columns of the events by the names of fields, or of columns that a pipeline puts in their place: the last word.

    Returns
    -------
    SigmaRules
        A mapping from title to text, for `cer_gpu.compile_all`.  Rules that cannot be written are in its `errors`.

    Raises
    ------
    OptionError
        When there is no pySigma, nothing to read, or no pipeline of that name.
    """
    if columns is not None and not (isinstance(columns, Mapping) and all(map(_is_text, columns.values()))):
        raise OptionError(f"columns must map fields to names of columns, got {columns!r}")
    if not isinstance(pipelines, str | os.PathLike | Iterable) and not hasattr(pipelines, "apply"):
        raise OptionError(f"pipelines must be names, paths or pipelines of pySigma, got {type(pipelines).__name__}")

    def make() -> SigmaRules:
        try:
            version("pysigma")  # the plugin alone is a package of the name sigma, too
            from cer_gpu.sigma.converting import converted
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in ("pysigma", "sigma", "yaml"):
                raise
            raise OptionError(PYSIGMA_MISSING) from None
        return converted(rules, pipelines, dict(columns or {}))

    try:
        parts = [version("pysigma"), repr(sorted((columns or {}).items()))]
        made_of = [*parts, *_contents(rules), "by", *_contents(pipelines)]
    except (TypeError, OSError, PackageNotFoundError):
        return make()  # objects, or what is not there, of which it tells
    from cer_gpu.sigma.keeping import read_rules_of, write_rules

    return made_once("sigma", made_of, make, write_rules, read_rules_of)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def files_in(path: Path) -> Iterator[Path]:
    """Yield the files of rules in a folder and in those in it, in order; of a file, itself."""
    if path.is_dir():
        yield from sorted(each for each in path.rglob("*") if _is_of_rules(each))
    else:
        yield path


def _is_of_rules(path: Path) -> bool:
    return path.suffix in YAML_ENDINGS and not path.name.endswith(TEST_ENDINGS) and path.is_file()


def _contents(given: Any) -> Iterator[str | bytes]:
    """Yield what tells rules, or pipelines, from others: texts, and files with their contents; TypeError: objects."""
    if not isinstance(given, str | os.PathLike):
        if not isinstance(given, list | tuple):
            raise TypeError
        for each in given:
            yield from _contents(each)
    elif is_given_as_path(given) and os.path.exists(given):
        for path in files_in(Path(given)):
            yield str(path)
            yield path.read_bytes()
    else:
        yield str(given)


def is_given_as_path(rules: object) -> bool:
    """Return True for a path, False for YAML; a text without a line break is a path, unless it is empty."""
    return isinstance(rules, os.PathLike) or (isinstance(rules, str) and "\n" not in rules.strip() != "")
