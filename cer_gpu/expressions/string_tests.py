"""Tests of texts (``LIKE``, ``GLOB``, ``CIDR``), answered for the distinct values of a column at once.

The ways in which they are written, and the checks of their patterns, are in `cer_gpu.ceql.patterns`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.patterns import network, regex_of
from cer_gpu.expressions.globs.compiling import Pattern

Answer = Callable[[pa.Array], pa.Array]
"""Boolean array for an array of distinct texts; of NULL the answer is arbitrary, as its readers pass over it."""

_MAX_CHARACTERS = 10_000
"""Most characters of patterns that become one regular expression: RE2 refuses very large ones."""
_SIGNS = frozenset("*?[")
_RUN = re.compile(r"(?:\(\?[ims]+\))?\.\{([0-9]{1,4}),[0-9]*\}\Z")
"""A run of any characters but line breaks: its regular expression is slow, and reads only texts that have some."""


@dataclass(frozen=True)
class OneOfPatterns:
    """Test of a whole text: it matches one of several patterns.

    Attributes
    ----------
    patterns : tuple of Pattern
        They may be wrong, and are first read by a call.
    nocase : bool
    """

    patterns: tuple[Pattern, ...]
    nocase: bool = False

    def __call__(self, strings: pa.Array) -> pa.Array:
        """Return the answer for an array of distinct texts, which is read for this test alone."""
        return self._answer(strings)

    @cached_property
    def _answer(self) -> Answer:
        """Compare texts without signs by their values, and all others with few regular expressions."""
        regexes = ["".join(map(regex_of, pattern.parts())) for pattern in self._globs]
        plain = [pattern.text for pattern in self.patterns if self._is_value(pattern)]
        answers: list[Answer] = [partial(pc.is_in, value_set=pa.array(plain, pa.string()))] if plain else []
        whole = [rf"(?s)\A(?:{'|'.join(group)})\z" for group in _regex_groups(regexes)]
        answers += [partial(_match_regex, pattern=regex, nocase=self.nocase) for regex in whole]
        return partial(_any_answer, answers)

    def _is_value(self, pattern: Pattern) -> bool:
        return not self.nocase and (pattern.plain or not _SIGNS & set(pattern.text))

    @property
    def _globs(self) -> list[Pattern]:
        return [pattern for pattern in self.patterns if not self._is_value(pattern)]

    @cached_property
    def n_readings(self) -> int:
        """Patterns that read the texts one by one, and one for all texts without signs."""
        return 1 + len(self.patterns if self.nocase else self._globs)


def answer(test: s.StringTest) -> Answer:
    """Return the function that answers a test of texts; its patterns, which may be wrong, are first read by a call."""
    if test.name == "GLOB":
        return _glob(test.strings, test.nocase)
    made = cache(partial(ANSWERS[test.name], test.strings, test.nocase))
    return lambda strings: made()(strings)


def _like(patterns: Sequence[str], nocase: bool) -> Answer:
    """Search for regular expressions (RE2), each by itself: their flags and groups are their own."""
    return partial(_any_answer, [partial(_match_regex, pattern=pattern, nocase=nocase) for pattern in patterns])


def _glob(patterns: Sequence[str], nocase: bool) -> OneOfPatterns:
    """Match whole texts."""
    return OneOfPatterns(tuple(map(Pattern, patterns)), nocase)


def _regex_groups(regexes: Iterable[str]) -> list[list[str]]:
    """Deal regular expressions into groups of at most `_MAX_CHARACTERS`, or of one."""
    groups, n_characters = list[list[str]](), 0
    for regex in regexes:
        n_characters += len(regex) + 1
        if not groups or n_characters > _MAX_CHARACTERS:
            groups.append([])
            n_characters = len(regex) + 1
        groups[-1].append(regex)
    return groups


def _match_regex(strings: pa.Array, pattern: str, nocase: bool) -> pa.Array:
    run = _RUN.match(pattern)
    if run is None:
        return pc.match_substring_regex(strings, pattern, ignore_case=nocase)
    found = pc.greater_equal(pc.utf8_length(strings), int(run[1]))
    cut = pc.fill_null(pc.and_(found, pc.match_substring(strings, "\n")), False)
    return pc.replace_with_mask(found, cut, pc.match_substring_regex(strings.filter(cut), pattern, ignore_case=nocase))


def _any_answer(answers: Sequence[Answer], strings: pa.Array) -> pa.Array:
    """Return True for the texts of which one answer is True."""
    found = answers[0](strings)
    for other in answers[1:]:
        found = pc.or_(found, other(strings))
    return found


# ---- addresses ---------------------------------------------------------------------------------------------------

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"\A(?P<a>{_OCTET})\.(?P<b>{_OCTET})\.(?P<c>{_OCTET})\.(?P<d>{_OCTET})\z"


def _cidr(patterns: Sequence[str], nocase: bool) -> Answer:
    """Find the addresses within networks; a text that is no address lies in none of them."""
    networks = [network(pattern) for pattern in patterns]
    four = [each for each in networks if isinstance(each, ipaddress.IPv4Network)]
    six = [each for each in networks if isinstance(each, ipaddress.IPv6Network)]
    return partial(
        _in_networks, _network_bounds(four), [(int(each.network_address), int(each.netmask)) for each in six]
    )


def _network_bounds(networks: Iterable[ipaddress.IPv4Network]) -> npt.NDArray[np.int64]:
    """Return the first address of each network and that behind its last, in turn and in order, of disjoint ones."""
    disjoint = ipaddress.collapse_addresses(networks)
    return np.array([(int(n.network_address), int(n.broadcast_address) + 1) for n in disjoint], np.int64).reshape(-1)


def _in_networks(bounds: npt.NDArray[np.int64], six: Sequence[tuple[int, int]], strings: pa.Array) -> pa.Array:
    """Answer for texts: `bounds` as of `_network_bounds`, `six` the addresses and masks of the networks of IPv6."""
    found = np.zeros(len(strings), np.bool_)
    if len(bounds):
        octets = pc.extract_regex(strings, _IPV4)
        valid = np.asarray(octets.is_valid())
        numbers = np.zeros(len(strings), np.int64)
        for k in range(4):
            octet = pc.struct_field(octets, [k]).filter(pa.array(valid)).cast(pa.int64())
            numbers[valid] = numbers[valid] << 8 | octet.to_numpy()
        found |= valid & (np.searchsorted(bounds, numbers, side="right") % 2 == 1)
    if six:  # their many ways to be written are for the standard library: once for each distinct text with a colon
        for i in np.flatnonzero(np.asarray(pc.fill_null(pc.match_substring(strings, ":"), False))).tolist():
            try:
                address = int(ipaddress.IPv6Address(strings[i].as_py()))
            except ValueError:
                continue
            found[i] = any(address & mask == of for of, mask in six)
    return pa.array(found, mask=np.asarray(strings.is_null()))


ANSWERS: dict[str, Callable[[Sequence[str], bool], Answer]] = {"LIKE": _like, "GLOB": _glob, "CIDR": _cidr}
"""Makers of the answer from the patterns and NOCASE, by the names of the tests."""
