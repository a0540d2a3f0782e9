"""Tests of strings (``LIKE``, ``GLOB``, ``CIDR``), evaluated for the distinct values of a column at once.

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

StringMatcher = Callable[[pa.Array], pa.Array]
"""Boolean array for an array of distinct strings; the result for NULL is arbitrary, as its readers skip it."""

_MAX_CHARACTERS = 10_000
"""Most characters of patterns that become one regular expression: RE2 refuses very large ones."""
_SIGNS = frozenset("*?[")
_RUN = re.compile(r"(?:\(\?[ims]+\))?\.\{([0-9]{1,4}),[0-9]*\}\Z")
"""A run of any characters but line breaks: its regular expression is slow, and reads only strings that have some."""


@dataclass(frozen=True)
class OneOfPatterns:
    """Test of a whole string: it matches one of several patterns.

    Attributes
    ----------
    patterns : tuple of Pattern
        They may be invalid, and are first read by a call.
    nocase : bool
    """

    patterns: tuple[Pattern, ...]
    nocase: bool = False

    def __call__(self, strings: pa.Array) -> pa.Array:
        """Return the result for an array of distinct strings, evaluated for this test alone."""
        return self._matcher(strings)

    @cached_property
    def _matcher(self) -> StringMatcher:
        """Compare strings without wildcards by value, and match all others with few regular expressions."""
        regexes = ["".join(map(regex_of, pattern.parts())) for pattern in self._globs]
        plain = [pattern.text for pattern in self.patterns if self._is_value(pattern)]
        matchers: list[StringMatcher] = [partial(pc.is_in, value_set=pa.array(plain, pa.string()))] if plain else []
        whole = [rf"(?s)\A(?:{'|'.join(group)})\z" for group in _regex_groups(regexes)]
        matchers += [partial(_match_regex, pattern=regex, nocase=self.nocase) for regex in whole]
        return partial(_any_match, matchers)

    def _is_value(self, pattern: Pattern) -> bool:
        return not self.nocase and (pattern.plain or not _SIGNS & set(pattern.text))

    @property
    def _globs(self) -> list[Pattern]:
        return [pattern for pattern in self.patterns if not self._is_value(pattern)]

    @cached_property
    def n_readings(self) -> int:
        """Number of patterns that read the strings one by one, plus one for all patterns without wildcards."""
        return 1 + len(self.patterns if self.nocase else self._globs)


def matcher_of(test: s.StringTest) -> StringMatcher:
    """Return the function that evaluates a test of strings; the first call reads its patterns, which may be invalid."""
    if test.name == "GLOB":
        return _glob(test.strings, test.nocase)
    compiled = cache(partial(STRING_MATCHERS[test.name], test.strings, test.nocase))
    return lambda strings: compiled()(strings)


def _like(patterns: Sequence[str], nocase: bool) -> StringMatcher:
    """Search for regular expressions (RE2), each by itself: their flags and groups are their own."""
    return partial(_any_match, [partial(_match_regex, pattern=pattern, nocase=nocase) for pattern in patterns])


def _glob(patterns: Sequence[str], nocase: bool) -> OneOfPatterns:
    """Match whole strings."""
    return OneOfPatterns(tuple(map(Pattern, patterns)), nocase)


def _regex_groups(regexes: Iterable[str]) -> list[list[str]]:
    """Split regular expressions into groups of at most `_MAX_CHARACTERS`, or of one."""
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
    matches = pc.greater_equal(pc.utf8_length(strings), int(run[1]))
    cut = pc.fill_null(pc.and_(matches, pc.match_substring(strings, "\n")), False)
    return pc.replace_with_mask(
        matches, cut, pc.match_substring_regex(strings.filter(cut), pattern, ignore_case=nocase)
    )


def _any_match(matchers: Sequence[StringMatcher], strings: pa.Array) -> pa.Array:
    """Return True for the strings that one of the matchers accepts."""
    result = matchers[0](strings)
    for other in matchers[1:]:
        result = pc.or_(result, other(strings))
    return result


# ---- addresses ---------------------------------------------------------------------------------------------------

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"\A(?P<a>{_OCTET})\.(?P<b>{_OCTET})\.(?P<c>{_OCTET})\.(?P<d>{_OCTET})\z"


def _cidr(patterns: Sequence[str], nocase: bool) -> StringMatcher:
    """Find the addresses within networks; a string that is no address is in none of them."""
    networks = [network(pattern) for pattern in patterns]
    four = [each for each in networks if isinstance(each, ipaddress.IPv4Network)]
    six = [each for each in networks if isinstance(each, ipaddress.IPv6Network)]
    return partial(
        _in_networks, _network_bounds(four), [(int(each.network_address), int(each.netmask)) for each in six]
    )


def _network_bounds(networks: Iterable[ipaddress.IPv4Network]) -> npt.NDArray[np.int64]:
    """Return the first address of each network and the one after its last, ascending, for disjoint networks."""
    disjoint = ipaddress.collapse_addresses(networks)
    return np.array([(int(n.network_address), int(n.broadcast_address) + 1) for n in disjoint], np.int64).reshape(-1)


def _in_networks(bounds: npt.NDArray[np.int64], six: Sequence[tuple[int, int]], strings: pa.Array) -> pa.Array:
    """Match strings in networks: `bounds` as of `_network_bounds`, `six` the addresses and masks of those of IPv6."""
    within = np.zeros(len(strings), np.bool_)
    if len(bounds):
        octets = pc.extract_regex(strings, _IPV4)
        valid = np.asarray(octets.is_valid())
        numbers = np.zeros(len(strings), np.int64)
        for k in range(4):
            octet = pc.struct_field(octets, [k]).filter(pa.array(valid)).cast(pa.int64())
            numbers[valid] = numbers[valid] << 8 | octet.to_numpy()
        within |= valid & (np.searchsorted(bounds, numbers, side="right") % 2 == 1)
    if six:  # their many ways to be written are for the standard library: once for each distinct string with a colon
        for i in np.flatnonzero(np.asarray(pc.fill_null(pc.match_substring(strings, ":"), False))).tolist():
            try:
                address = int(ipaddress.IPv6Address(strings[i].as_py()))
            except ValueError:
                continue
            within[i] = any(address & mask == of for of, mask in six)
    return pa.array(within, mask=np.asarray(strings.is_null()))


STRING_MATCHERS: dict[str, Callable[[Sequence[str], bool], StringMatcher]] = {
    "LIKE": _like,
    "GLOB": _glob,
    "CIDR": _cidr,
}
"""Factories of matchers from the patterns and NOCASE, by the names of the tests."""
