"""Functions of several values of one event in the reference: by their definitions, character by character."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any


def small(text: str) -> str:
    """Return a text in small letters, each character by itself."""
    return "".join(letter.lower() if len(letter.lower()) == 1 else letter.lower()[0] for letter in text)


def is_at(text: str, part: str, place: int) -> bool:
    """Return True if a part of a text begins at a place."""
    return len(part) <= len(text) - place and all(text[place + i] == part[i] for i in range(len(part)))


def places(text: str, part: str, start: int = 0) -> list[int]:
    """Return the places from `start` on where a part of a text begins."""
    return [place for place in range(max(0, start), len(text) + 1) if is_at(text, part, place)]


def place_in(text: str, place: int) -> int:
    """Return a place counted from the end, if negative, as one from the beginning, within the text."""
    return min(max(place + len(text) if place < 0 else place, 0), len(text))


def substring(text: str, start: int, end: int | None = None) -> str:
    """Return the characters from one place up to another."""
    last = len(text) if end is None else place_in(text, end)
    return "".join(text[i] for i in range(place_in(text, start), last))


def between(text: str, left: str, right: str, greedy: bool = False, same: Callable[[str], str] = str) -> str:
    """Return the text behind the first `left`, up to the first `right` after that, or, if greedy, the last."""
    if "" in (text, left, right):
        return text
    begins = places(same(text), same(left))
    if not begins:
        return ""
    begin = begins[0] + len(left)
    ends = places(same(text), same(right), begin)
    return substring(text, begin, ends[-1] if greedy else ends[0]) if ends else ""


def index_of(text: str, part: str, start: int = 0) -> int | None:
    """Return the first place of a part from `start` on."""
    return next(iter(places(text, part, start)), None)


def number(text: str, base: int | None = None) -> float | None:
    """Return the number that a text writes."""
    sign, rest = re.fullmatch(r"([+-]?)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    hexadecimal = rest[:2].lower() == "0x"
    if base is None:
        base = 16 if hexadecimal else 10
    if base == 10:
        try:
            return float(text) if re.fullmatch(r"[-+\s0-9.eE]*", text, re.ASCII) else None
        except ValueError:
            return None
    digits = rest[2:] if hexadecimal and base == 16 else rest
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyz"[:base]
    if not digits or any(digit.lower() not in alphabet or not digit.isascii() for digit in digits):
        return None
    value = 0
    for digit in digits:
        value = value * base + alphabet.index(digit.lower())
    return float(-value if sign == "-" else value)


def as_text(value: Any) -> str:
    """Return a value as a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nocase(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: function(*(small(value) if isinstance(value, str) else value for value in values))


def _starts(text: str, *parts: str) -> bool:
    return any(is_at(text, part, 0) for part in parts)


def _ends(text: str, *parts: str) -> bool:
    return any(len(part) <= len(text) and is_at(text, part, len(text) - len(part)) for part in parts)


def _contains(text: str, *parts: str) -> bool:
    return any(part != "" and places(text, part) != [] for part in parts)


STRING_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "concat": lambda *values: "".join(map(as_text, values)),
    "substring": substring,
    "between": between,
    "between~": lambda text, left, right, greedy=False: between(text, left, right, greedy, small),
    "indexof": index_of,
    "indexof~": _nocase(index_of),
    "startswith": _starts,
    "startswith~": _nocase(_starts),
    "endswith": _ends,
    "endswith~": _nocase(_ends),
    "contains": _contains,
    "contains~": _nocase(_contains),
    "number": number,
    "string": as_text,
}
"""Values by the names of the functions; none of their operands is NULL, and None stands for NULL."""
