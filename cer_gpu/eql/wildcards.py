"""Texts of EQL: what a string in quotes stands for, and the GLOB of CEQL that a pattern with wildcards is."""

from __future__ import annotations

import re
from typing import Any

from cer_gpu.errors import QuerySyntaxError

_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
_ESCAPE = re.compile(r"\\(u\{[^}]*\}?|.)", re.DOTALL)
_WILD = frozenset("*?")


def text_of(token: Any, query: str) -> str:
    """Return the text of a string, or of a raw string, in three quotes, in which no sign has another meaning.

    Raises
    ------
    QuerySyntaxError
        For an escape that there is none of.
    """
    written = str(token)
    if written.startswith('"""'):
        return written[3:-3]

    def meant(found: re.Match[str]) -> str:
        sign = found[1]
        if sign in _ESCAPES:
            return _ESCAPES[sign]
        digits = sign[2:-1] if sign[-1:] == "}" else ""
        if sign[0] == "u" and 2 <= len(digits) <= 8 and re.fullmatch("[0-9a-fA-F]+", digits):
            number = int(digits, 16)
            if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF:
                return chr(number)
        start = token.start_pos + 1 + found.start()
        raise QuerySyntaxError(
            f"there is no escape {found[0]!r}",
            query,
            start,
            start + len(found[0]),
            r'escapes are \" \\ \n \t \r \b \f \u{2710}; without escapes: """text"""',
        )

    return _ESCAPE.sub(meant, written[1:-1])


def has_wildcards(pattern: str) -> bool:
    """Return True for a pattern with ``*`` or ``?``."""
    return not _WILD.isdisjoint(pattern)


def glob_of(pattern: str) -> str:
    """Return the GLOB of CEQL for a pattern, in which ``*`` and ``?`` are the only signs.

    Examples
    --------
    >>> glob_of("a[1]*")
    'a[[]1]*'
    """
    return pattern.replace("[", "[[]")


def glob_of_text(text: str) -> str:
    """Return the GLOB of CEQL that a text alone satisfies."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in text)
