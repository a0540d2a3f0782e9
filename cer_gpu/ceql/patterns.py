"""Tests of strings by their names: the syntax of each, and the patterns that it takes.

They are evaluated in `cer_gpu.expressions.string_tests`, which has a line for each name here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class StringTestKind:
    """A test of a string against patterns.

    Attributes
    ----------
    check : callable
        Raises ValueError with the reason, as a sentence for the user, for a string that is no pattern.
    call : str
        Example of the test written as a function; empty if it is an operator between its operand and its patterns.
    hint : str
    """

    check: Callable[[str], object]
    call: str = ""
    hint: str = ""


def check_regex(pattern: str) -> None:
    """Raise ValueError for a string that is no regular expression (RE2)."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).split("Invalid regular expression: ")[-1]
        raise ValueError(f"not a regular expression (RE2): {reason}") from None


@dataclass(frozen=True)
class CharacterClass:
    """One character of some, or of all but some: ``[a-z_]``, ``[!a-z]``.

    Attributes
    ----------
    ranges : tuple of (str, str)
        First and last character of each range.
    negated : bool
    """

    ranges: tuple[tuple[str, str], ...]
    negated: bool

    @property
    def regex(self) -> str:
        """The class as a regular expression (RE2)."""
        members = (re2_literal(a) if a == b else f"{re2_literal(a)}-{re2_literal(b)}" for a, b in self.ranges)
        return f"[{'^' if self.negated else ''}{''.join(members)}]"


class Sign(Enum):
    """A sign of GLOB, by its regular expression (RE2)."""

    RUN = ".*"
    ONE = "."


GlobPart = str | Sign | CharacterClass
"""A part of a pattern of GLOB: characters that are themselves, a sign, or a class."""

_PARTS = re.compile(r"[^*?\[]+|.", re.DOTALL)


def glob_parts(pattern: str) -> list[GlobPart]:
    """Return the parts of a pattern of GLOB.

    ``*`` is any run of characters, ``?`` one, ``[a-z_]`` one of a class and ``[!a-z]`` or ``[^a-z]`` one of no such
    class.  There is no escape character: ``[*]``, ``[?]`` and ``[[]`` are the signs themselves.

    Raises
    ------
    ValueError
        For a class that is not closed, or a range that ends before it begins.
    """
    parts, i = list[GlobPart](), 0
    while i < len(pattern):
        match = _PARTS.match(pattern, i)
        assert match is not None
        sign = match.group()
        i = match.end()
        if sign != "[":
            parts.append({"*": Sign.RUN, "?": Sign.ONE}.get(sign) or sign)
            continue
        negated = pattern[i : i + 1] in ("!", "^")
        begin = i + negated
        end = pattern.find("]", begin + 1)  # a bracket in first place is a member
        if end < 0:
            raise ValueError(f"the class {pattern[i - 1 :]!r} of the pattern is not closed")
        parts.append(CharacterClass(tuple(_ranges(pattern[begin:end])), negated))
        i = end + 1
    return parts


def regex_of(part: GlobPart) -> str:
    """Return the regular expression (RE2), without anchors, of a part of a pattern of GLOB."""
    match part:
        case Sign():
            return part.value
        case CharacterClass():
            return part.regex
    return "".join(map(re2_literal, part))


def glob_regex(pattern: str) -> str:
    """Return the regular expression (RE2), without anchors, of a pattern of GLOB (`glob_parts`)."""
    return "".join(map(regex_of, glob_parts(pattern)))


def _ranges(inside: str) -> Iterator[tuple[str, str]]:
    """Yield the ranges of a class, given the text between its brackets."""
    i = 0
    while i < len(inside):
        if inside[i + 1 : i + 2] == "-" and i + 2 < len(inside):
            if inside[i] > inside[i + 2]:
                raise ValueError(f"the range {inside[i : i + 3]!r} of the pattern ends before it begins")
            yield inside[i], inside[i + 2]
            i += 3
        else:
            yield inside[i], inside[i]
            i += 1


def re2_literal(character: str) -> str:
    """Return a character as a regular expression (RE2) that matches it alone."""
    return character if character.isalnum() else f"\\x{{{ord(character):x}}}"


def network(text: str) -> Network:
    """Return the network that a string names: an address, or one with the length of its prefix or its mask."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        try:
            meant = f": did you mean {str(ipaddress.ip_network(text, strict=False))!r}?"
        except ValueError:
            raise ValueError(f"{text!r} is no network of IPv4 or IPv6 addresses") from None
        raise ValueError(f"{error}{meant}") from None


STRING_TESTS = {
    "LIKE": StringTestKind(check_regex),
    "GLOB": StringTestKind(
        glob_regex, hint="GLOB has *, ? and [a-z]; a sign of these stands for itself in brackets: [*], [?], [[]"
    ),
    "CIDR": StringTestKind(network, "CIDR(ip, '10.0.0.0/8', 'fe80::/10')", "a network is '10.0.0.0/8', or 'fe80::/10'"),
}
"""All tests of strings, by their names in upper case."""
