"""Rules of Sigma that are loaded, and rules without a query, with the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cer_gpu.errors import CerError
from cer_gpu.printable import counted
from cer_gpu.resolution.fields import field_names, in_another_case
from cer_gpu.rule import Rule

MAX_HINTS = 8
"""Most rules without a text whose hints a summary shows."""


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
    r"""Rules of Sigma as CEQL, by their titles; the result of `load`.

    A title that an earlier rule has is followed by the name of the rule's file, or a number, in parentheses.

    Parameters
    ----------
    rules
        By name.
    fields
        Names of the columns that each rule reads.
    refused
        Rules that have no text.
    skipped_files
        Number of YAML documents that are no rules, by the kind of them.
    silenced
        Titles of rules that give no results of their own, by the correlations without a text that refer to them.
    log_sources
        Texts in CEQL that find the events of log sources, by the words that rules have for these (`Rule.log_source`).

    Attributes
    ----------
    rules : dict from str to cer_gpu.rules.Rule
    fields : dict from str to tuple of str
    errors : list of (str, CerError)
        Names of the rules that have no text, with the reasons.
    skipped_files : dict from str to int
    silenced : dict from str to tuple of str
    log_sources : dict from str to str

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
        skipped_files: Mapping[str, int] | None = None,
        silenced: Mapping[str, tuple[str, ...]] | None = None,
        log_sources: Mapping[str, str] | None = None,
    ) -> None:
        self.rules: dict[str, Rule] = dict(rules)
        self.fields: dict[str, tuple[str, ...]] = dict(fields)
        self._refused = list(refused)
        self.skipped_files: dict[str, int] = dict(skipped_files or {})
        self.silenced: dict[str, tuple[str, ...]] = dict(silenced or {})
        self.log_sources: dict[str, str] = dict(log_sources or {})

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
        return f"<SigmaRules: {counted(len(self), 'rule')}, {len(self._refused):,} without a text>"

    @property
    def errors(self) -> list[tuple[str, CerError]]:
        """The rules that have no text, with the reasons."""
        return [(each.name, each.error) for each in self._refused]

    def missing(self, schema: pa.Schema) -> dict[str, int]:
        """Return the columns that events of a schema have not, with the number of rules that read each, most first.

        A field that has several columns, none of them there, counts as the first.
        """
        names = set(field_names(schema))
        counts = Counter(name for rule in self.fields for name in self._missing_of(rule, names))
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def summary(self, schema: pa.Schema | None = None) -> str:
        """Return the number of rules, the reasons why others have no text, and the columns that events have not.

        Parameters
        ----------
        schema
            That of the events, or None to say nothing of columns.
        """
        lines = [f"{counted(len(self), 'rule')} loaded"]
        kinds = Counter(each.kind for each in self._refused)
        if kinds:
            lines.append(f"{counted(len(self._refused), 'rule')} without a text:")
            lines += [f"  {count:,}: {kind}" for kind, count in kinds.most_common()]
            hints = [(each.name, hint) for each in self._refused if (hint := _hint(each.error)) is not None]
            lines += [f"  {name}: {hint}" for name, hint in hints[:MAX_HINTS]]
            lines += [f"  and {len(hints) - MAX_HINTS:,} more hints"] * (len(hints) > MAX_HINTS)
        lines += silenced_notes(self.silenced)
        if self.skipped_files:
            listed = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.skipped_files.items()))
            lines.append(f"skipped: {listed}")
        if schema is not None:
            lines += _missing_field_lines(self.missing(schema), self._readers(schema), schema)
        return "\n".join(lines)

    def _readers(self, schema: pa.Schema) -> int:
        names = set(field_names(schema))
        return sum(bool(self._missing_of(rule, names)) for rule in self.fields)

    def _missing_of(self, rule: str, names: set[str]) -> list[str]:
        return self.rules[rule].missing(self.fields[rule], names)


def _hint(error: CerError) -> str | None:
    """Return the hint of an error that names what was perhaps meant."""
    _, _, hint = str(error).partition("\nhint: ")
    return hint if hint.startswith("did you mean") else None


def silenced_notes(silenced: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line for each correlation without a query that suppresses the results of the rules it refers to."""
    for correlation, titles in silenced.items():
        verb = "gives" if len(titles) == 1 else "give"
        yield f"{', '.join(map(repr, titles))} {verb} no results: the correlation {correlation!r} has no text"


def _missing_field_lines(missing: Mapping[str, int], n_readers: int, schema: pa.Schema) -> Iterator[str]:
    if not missing:
        yield "the events have all columns that the rules read"
        return
    yield f"columns that the events have not, read by {counted(n_readers, 'rule')} (a test of one does not hold):"
    width = max(len(f"{count:,}") for count in missing.values())
    near = {name: f" (did you mean {other}?)" for name, other in in_another_case(missing, schema).items()}
    yield from (f"  {count:>{width},}: {name}{near.get(name, '')}" for name, count in missing.items())
