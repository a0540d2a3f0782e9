"""MITRE ATT&CK in tags of Sigma: ``attack.credential-access``, ``attack.t1003.001``."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TECHNIQUE = re.compile(r"attack\.(t\d{4}(?:\.\d{3})?)", re.IGNORECASE)
_TACTIC = re.compile(r"attack\.([a-z]+(?:[-_ ][a-z]+)*)", re.IGNORECASE)
_SMALL = ("and", "of", "the")


def techniques_of(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of techniques, as ``T1003.001``."""
    return _each(match[1].upper() for tag in tags if (match := _TECHNIQUE.fullmatch(tag)))


def tactics_of(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the names of tactics, as ``Credential Access``; groups and software, which have numbers, are none."""
    return _each(_technique_name(match[1]) for tag in tags if (match := _TACTIC.fullmatch(tag)))


def _technique_name(tag: str) -> str:
    words = re.split(r"[-_ ]", tag.lower())
    return " ".join(word if word in _SMALL else word.capitalize() for word in words)


def _each(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
