"""Functions of several values of one event, mostly strings, such as ``concat``, ``substring`` and ``contains``.

They are functions of Python, called once for each distinct combination of their operands
(`cer_gpu.expressions.combinations`).  Characters are code points, counted from 0.  NULL in, NULL out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cer_gpu.columnar.columns import BOOLEAN, INTEGER, STRING

A_TEXT, AN_INTEGER, A_TRUTH, A_VALUE = "a text", "a whole number", "TRUE or FALSE", "a value"
"""Kinds of operands; of a value it is the string (``string``) that is read."""

KIND_OF_OPERAND = {A_TEXT: STRING, AN_INTEGER: INTEGER, A_TRUTH: BOOLEAN, A_VALUE: STRING}
"""Kinds of the values that such operands take (`cer_gpu.columnar.columns.kind_of`)."""


@dataclass(frozen=True)
class StringFunction:
    """A function of several values of one event.

    Attributes
    ----------
    symbol : str
        Name, in lower case.
    operands : tuple of str
        Kinds of its operands, in order: `A_TEXT`, `AN_INTEGER`, `A_TRUTH` or `A_VALUE`.
    least : int
        Number of required operands.
    type : pyarrow.DataType
        Type of the results.
    compute : callable
        The result for values that are not NULL; None for NULL.
    example : str
    repeats : bool
        True: the last operand may be there any number of times.
    of : dict
        Always empty: no function of several events is among them.
    """

    symbol: str
    operands: tuple[str, ...]
    least: int
    type: pa.DataType
    compute: Callable[..., Any]
    example: str
    repeats: bool = False
    of: dict[str, Any] = field(default_factory=dict, compare=False)

    def takes_so_many(self, n_operands: int) -> bool:
        """Return True for a number of operands that it may have."""
        return self.least <= n_operands and (self.repeats or n_operands <= len(self.operands))

    @property
    def operand_range(self) -> str:
        """The number of its operands, in words of a message."""
        least, greatest = self.least, len(self.operands)
        if self.repeats:
            return f"{least} operands or more"
        return f"{least} operands" if least == greatest else f"{least} to {greatest} operands"

    def kinds(self, n_operands: int) -> tuple[str, ...]:
        """Return the kind of each of `n` operands."""
        return (*self.operands, *self.operands[-1:] * n_operands)[:n_operands]


def to_lower(text: str) -> str:
    """Return a string in lower case, character by character as by ``lower``, so of the same length."""
    if text.isascii():
        return text.lower()
    return "".join(small if len(small := character.lower()) == 1 else small[0] for character in text)


def _substring(text: str, start: int, end: int | None = None) -> str:
    n = len(text)
    first = max(0, start + n if start < 0 else start)
    last = n if end is None else max(0, end + n if end < 0 else end)
    return text[first:last]


def _between(text: str, left: str, right: str, greedy: bool = False) -> str:
    return _text_between(text, text, left, right, greedy)


def _between_nocase(text: str, left: str, right: str, greedy: bool = False) -> str:
    return _text_between(text, to_lower(text), to_lower(left), to_lower(right), greedy)


def _text_between(text: str, searched: str, left: str, right: str, greedy: bool) -> str:
    """Return the part of a string between two others, searched in another one of the same length, else ''."""
    if not text or not left or not right:
        return text
    begin = searched.find(left)
    if begin < 0:
        return ""
    begin += len(left)
    end = searched.rfind(right, begin) if greedy else searched.find(right, begin)
    return "" if end < 0 else text[begin:end]


def _index_of(text: str, part: str, start: int = 0) -> int | None:
    index = text.find(part, max(0, start))
    return None if index < 0 else index


_DIGITS = re.compile(r"[+-]?(?P<hex>0x)?(?P<digits>[0-9a-z]+)", re.ASCII | re.IGNORECASE)
_DECIMAL = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?\s*", re.ASCII | re.IGNORECASE)


def _parse_number(text: str, base: int | None = None) -> float | None:
    """Return the number that a string spells, of base 10, or 16 after 0x, or None if it is none."""
    if base is None and not text.lower().lstrip("+-").startswith("0x"):
        base = 10
    if base == 10:
        return float(text) if _DECIMAL.fullmatch(text) else None
    base = 16 if base is None else base
    parsed = _DIGITS.fullmatch(text)
    if parsed is None or not 2 <= base <= 36 or (parsed["hex"] and base != 16):
        return None
    try:
        value = int(parsed["digits"], base)
    except ValueError:
        return None
    return float(-value if text[0] == "-" else value)


STRING_FUNCTIONS = (
    StringFunction(
        "concat",
        (A_VALUE,),
        1,
        pa.large_string(),
        lambda *strings: "".join(strings),
        "concat(user, '@', domain)",
        repeats=True,
    ),
    StringFunction(
        "substring", (A_TEXT, AN_INTEGER, AN_INTEGER), 2, pa.large_string(), _substring, "substring(name, 0, 3)"
    ),
    StringFunction(
        "between", (A_TEXT, A_TEXT, A_TEXT, A_TRUTH), 3, pa.large_string(), _between, "between(path, '[', ']')"
    ),
    StringFunction("between~", (A_TEXT, A_TEXT, A_TEXT, A_TRUTH), 3, pa.large_string(), _between_nocase, ""),
    StringFunction("indexof", (A_TEXT, A_TEXT, AN_INTEGER), 2, pa.int64(), _index_of, "indexof(path, '.')"),
    StringFunction(
        "startswith",
        (A_TEXT, A_TEXT),
        2,
        pa.bool_(),
        lambda text, *parts: text.startswith(parts),
        "startswith(name, 'ab')",
        repeats=True,
    ),
    StringFunction(
        "endswith",
        (A_TEXT, A_TEXT),
        2,
        pa.bool_(),
        lambda text, *parts: text.endswith(parts),
        "endswith(name, '.exe')",
        repeats=True,
    ),
    StringFunction(
        "contains",
        (A_TEXT, A_TEXT),
        2,
        pa.bool_(),
        lambda text, *parts: any(part in text for part in parts if part),
        "contains(name, 'ab')",
        repeats=True,
    ),
    StringFunction("number", (A_TEXT, AN_INTEGER), 1, pa.float64(), _parse_number, "number('0x1f')"),
)
"""Records of the functions."""

NOCASE = {f"{name}~": name for name in ("indexof", "startswith", "endswith", "contains")}
"""Case-insensitive functions that equal the case-sensitive ones of strings in lower case."""
