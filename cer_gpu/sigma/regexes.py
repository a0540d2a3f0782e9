"""Regular expressions of Sigma, which are those of Python and PCRE, as ones of RE2."""

from __future__ import annotations

import re
from functools import lru_cache

from cer_gpu.ceql.patterns import check_regex

_LACKS = {
    "(?=": "lookahead (?=...)",
    "(?!": "lookahead (?!...)",
    "(?<=": "lookbehind (?<=...)",
    "(?<!": "lookbehind (?<!...)",
    "(?>": "atomic groups (?>...)",
    "(?(": "conditions (?(...)...)",
    "(?P=": "back references (?P=...)",
    "(?#": "comments (?#...)",
}
_ELSEWHERE = {"Z": r"\z", "/": "/"}
"""Escapes that RE2 writes in another way."""
_CODE_POINT = re.compile(r"u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})")
_POSSESSIVE = re.compile(r"[*+?}]\+")


@lru_cache(maxsize=1024)
def re2_of_sigma(pattern: str, flags: str = "") -> str:
    """Return a regular expression for `LIKE`, which finds the texts in which RE2 finds it.

    Parameters
    ----------
    pattern
    flags
        Letters of ``i``, ``m`` and ``s``, as RE2 has them.

    Raises
    ------
    ValueError
        With the reason, for what RE2 cannot say.
    """
    written, i, in_class = [], 0, False
    while i < len(pattern):
        sign = pattern[i]
        if sign == "\\":
            text, i = _escape(pattern, i + 1, in_class)
            written.append(text)
            continue
        if in_class:
            in_class = sign != "]"
        elif sign == "[":
            in_class = True
            first = re.compile(r"\[\^?\]?").match(pattern, i)  # a bracket in first place is a member
            assert first is not None
            written.append(first.group().replace("]", r"\]"))
            i = first.end()
            continue
        elif sign == "(":
            for begin in sorted(_LACKS, key=len, reverse=True):
                if pattern.startswith(begin, i):
                    raise ValueError(f"{_LACKS[begin]}, which RE2 has not")
        elif _POSSESSIVE.match(pattern, i):
            raise ValueError(f"possessive repetition {pattern[i : i + 2]}, which RE2 has not")
        written.append(sign)
        i += 1
    text = (f"(?{flags})" if flags else "") + "".join(written)
    check_regex(text)
    return text


def _escape(pattern: str, i: int, in_class: bool) -> tuple[str, int]:
    """Return what stands behind a backslash, as RE2 writes it, and the place after it."""
    sign = pattern[i : i + 1]
    if not in_class and sign.isdigit() and sign != "0":
        raise ValueError(f"back references \\{sign}, which RE2 has not")
    point = _CODE_POINT.match(pattern, i)
    if point:
        return rf"\x{{{point[1] or point[2]}}}", point.end()
    return _ELSEWHERE.get(sign, f"\\{sign}"), i + len(sign)
