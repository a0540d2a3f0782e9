"""Contents of a file of rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cer_gpu.rule import Rule


@dataclass(frozen=True)
class RulesFound:
    """Rules of a file.

    Attributes
    ----------
    rules : sequence of Rule
    passed_over : sequence of str
        For each rule that is no query of event patterns, its language or kind.
    """

    rules: Sequence[Rule] = ()
    passed_over: Sequence[str] = ()
