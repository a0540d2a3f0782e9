"""Tests of texts by their names: the way each is written, and the patterns that it takes.

Their answers are in `cer_gpu.expressions.texts`, which has a line for each name here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class TextTestKind:
    """A test of a text against patterns.

    Attributes
    ----------
    check : callable
        Raises ValueError with the reason, as a sentence for the user, for a text that is no pattern.
    call : str
        Example of the test where it is written as a function; empty: it stands between its operand and its patterns.
    hint : str
    """

    check: Callable[[str], object]
    call: str = ""
    hint: str = ""


def check_regex(pattern: str) -> None:
    """Raise ValueError for a text that is no regular expression (RE2)."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).split("Invalid regular expression: ")[-1]
        raise ValueError(f"not a regular expression (RE2): {reason}") from None


def glob_regex(pattern: str) -> str:
    """Return the regular expression (RE2), without anchors, of a pattern of GLOB.

    ``*`` is any run of characters, ``?`` one, ``[a-z_]`` one of a class and ``[!a-z]`` or ``[^a-z]`` one of no such
    class.  There is no escape character: ``[*]``, ``[?]`` and ``[[]`` are the signs themselves.
    """
    parts, i = list[str](), 0
    while i < len(pattern):
        sign = pattern[i]
        i += 1
        if sign != "[":
            parts.append({"*": ".*", "?": "."}.get(sign) or _quoted(sign))
            continue
        negated = pattern[i : i + 1] in ("!", "^")
        begin = i + negated
        end = pattern.find("]", begin + 1)  # a bracket in first place is a member
        if end < 0:
            raise ValueError(f"the class {pattern[i - 1 :]!r} of the pattern is not closed")
        parts.append(f"[{'^' if negated else ''}{_members(pattern[begin:end])}]")
        i = end + 1
    return "".join(parts)


def _members(inside: str) -> str:
    """Return the members of a class, between its brackets, as a regular expression has them."""
    members, i = list[str](), 0
    while i < len(inside):
        if inside[i + 1 : i + 2] == "-" and i + 2 < len(inside):
            first, last = inside[i], inside[i + 2]
            if first > last:
                raise ValueError(f"the range {inside[i : i + 3]!r} of the pattern ends before it begins")
            members.append(f"{_quoted(first)}-{_quoted(last)}")
            i += 3
        else:
            members.append(_quoted(inside[i]))
            i += 1
    return "".join(members)


def _quoted(character: str) -> str:
    """Return a character as a regular expression (RE2) that stands for it alone."""
    return character if character.isalnum() else f"\\x{{{ord(character):x}}}"


def network(text: str) -> Network:
    """Return the network that a text names: an address, or one with the length of its prefix or its mask."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        try:
            meant = f": did you mean {str(ipaddress.ip_network(text, strict=False))!r}?"
        except ValueError:
            raise ValueError(f"{text!r} is no network of IPv4 or IPv6 addresses") from None
        raise ValueError(f"{error}{meant}") from None


TEXT_TESTS = {
    "LIKE": TextTestKind(check_regex),
    "GLOB": TextTestKind(
        glob_regex, hint="GLOB has *, ? and [a-z]; a sign of these stands for itself in brackets: [*], [?], [[]"
    ),
    "CIDR": TextTestKind(network, "CIDR(ip, '10.0.0.0/8', 'fe80::/10')", "a network is '10.0.0.0/8', or 'fe80::/10'"),
}
"""All tests of texts, by their names in upper case."""
