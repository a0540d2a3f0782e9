r"""Paths and data of the registry as other logs write them than Sysmon, for whose strings the rules are written.

Sysmon writes ``HKLM\SOFTWARE\x`` and ``DWORD (0x00000001)``; the Security log ``\REGISTRY\MACHINE\SOFTWARE\x``, and 1
followed by its type.  A pattern of a rule is read against the strings of Sysmon: for paths, the rest of it after
the name of a hive; for numbers, which of them have a text that it matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from sigma.exceptions import SigmaValueError

from cer_gpu.ceql.paths import string_literal
from cer_gpu.ceql.patterns import CharacterClass, GlobPart, Sign, glob_parts, glob_regex
from cer_gpu.sigma.formulas import (
    COMPARED,
    GLOB,
    GLOB_CASED,
    REGEX,
    All,
    DetectionFormula,
    FieldTest,
    Negated,
    Presence,
    all_of,
    some_of,
    verbatim,
)
from cer_gpu.sigma.pipelines.sources import has_text

_HEX = "0123456789abcdef"
_DIGIT = "#"
_DWORD, _QWORD = f"DWORD (0x{_DIGIT * 8})", f"QWORD (0x{_DIGIT * 8}-0x{_DIGIT * 8})"
_SMALL_QWORD = f"QWORD (0x00000000-0x{_DIGIT * 8})"
_BINARY, _EMPTY = "Binary Data", "(Empty)"
_MAX_RANGES = 256
"""Ranges of numbers that one pattern may denote."""
_EXACT = 2**53
"""Numbers compared with strings are compared as floats, which represent all integers up to this one exactly."""


# ---- patterns


def _glob_parts_of(value: str) -> tuple[GlobPart, ...]:
    """Return the parts of a pattern in quotes, each character one."""
    inside = value[1:-1].replace("''", "'")
    return tuple(each for part in glob_parts(inside) for each in (part if isinstance(part, str) else (part,)))


def _glob_of_parts(parts: Sequence[GlobPart]) -> str:
    signs = {Sign.RUN: "*", Sign.ONE: "?"}
    strings = []
    for part in parts:
        if isinstance(part, CharacterClass):
            strings.append(_glob_of_class(part))
        else:
            strings.append(signs[part] if isinstance(part, Sign) else verbatim(part))
    return "".join(strings)


def _glob_of_class(part: CharacterClass) -> str:
    """Return a class as it is written in GLOB."""
    members = (a if a == b else f"{a}-{b}" for a, b in part.ranges)
    return f"[{'!' if part.negated else ''}{''.join(members)}]"


def _fits_part(part: GlobPart, sign: str, cased: bool) -> bool:
    if isinstance(part, Sign):
        return True
    if isinstance(part, CharacterClass):
        signs = {sign} if cased else {sign.lower(), sign.upper()}
        return any(any(a <= each <= b for a, b in part.ranges) != part.negated for each in signs)
    return part == sign if cased else part.lower() == sign.lower()


def _positions_after_runs(parts: Sequence[GlobPart], at: int) -> Iterator[int]:
    """Yield a position in a pattern, and the positions reachable from it without a character."""
    yield at
    while at < len(parts) and parts[at] is Sign.RUN:
        at += 1
        yield at


def _glob_step(parts: Sequence[GlobPart], places: frozenset[int], sign: str, cased: bool) -> frozenset[int]:
    """Return the positions of a pattern after one more character."""
    positions = set[int]()
    for at in places:
        if at < len(parts) and _fits_part(parts[at], sign, cased):
            positions.update(_positions_after_runs(parts, at if parts[at] is Sign.RUN else at + 1))
    return frozenset(positions)


def _start(parts: Sequence[GlobPart]) -> frozenset[int]:
    return frozenset(_positions_after_runs(parts, 0))


def _matches_glob(parts: Sequence[GlobPart], text: str, cased: bool) -> bool:
    places = _start(parts)
    for sign in text:
        places = _glob_step(parts, places, sign, cased)
    return len(parts) in places


# ---- paths

_HIVES = (
    ("HKLM\\", "\\REGISTRY\\MACHINE\\"),
    ("HKU\\", "\\REGISTRY\\USER\\"),
    ("HKCR\\", "\\REGISTRY\\MACHINE\\SOFTWARE\\Classes\\"),
)
_USER_HIVE = "HKCU\\"
_SET = re.compile(r"(?i)(?<![^\\*'])CurrentControlSet(?![^\\*'])")


def paths_of_the_kernel(test: FieldTest) -> DetectionFormula:
    r"""Return the test of a path for paths as the kernel names them, given one for the paths of Sysmon.

    A pattern that can match the name of a hive, or its end, at the beginning of a path is one for each of these hives
    besides: ``*HKLM\x*`` is ``*HKLM\x*`` and ``\REGISTRY\MACHINE\x*``.
    """
    if test.kind not in (GLOB, GLOB_CASED):
        return test
    cased = test.kind is GLOB_CASED
    values: dict[str, None] = {}
    regexes: dict[str, None] = {}
    for value in test.values:
        parts = _glob_parts_of(_SET.sub("ControlSet???", value))
        behind = {
            hive: list(_rest_after_hive(parts, hive, cased)) for hive in (*(name for name, _ in _HIVES), _USER_HIVE)
        }
        for hive, kernel in _HIVES:
            values.update(dict.fromkeys(string_literal(kernel + _glob_of_parts(rest)) for rest in behind[hive]))
        for rest in behind[_USER_HIVE]:
            regexes[_user_path_pattern(rest, cased)] = None
        begins = parts and isinstance(parts[0], str) and any(behind.values())
        if not begins:
            values[string_literal(_glob_of_parts(parts))] = None
    tests: list[DetectionFormula] = [replace(test, values=tuple(values))] if values else []
    return some_of([*tests, *(FieldTest(test.field, REGEX, (each,)) for each in regexes)])


def _rest_after_hive(parts: Sequence[GlobPart], hive: str, cased: bool) -> Iterator[Sequence[GlobPart]]:
    """Yield the rest of a pattern after the name of a hive of which it spells more than the last sign."""
    places = _start(parts)
    for n, sign in enumerate(hive):
        if n == len(hive) - 1:
            plain = _glob_step(
                parts, _start(parts), sign, cased
            )  # as a name of which the pattern has the last sign alone
        places = _glob_step(parts, places, sign, cased)
    yield from (parts[at:] for at in sorted(places - plain))


def _user_path_pattern(rest: Sequence[GlobPart], cased: bool) -> str:
    """Return the regular expression of a path in the hive of any one user."""
    flags = "(?s)" if cased else "(?is)"
    return string_literal(rf"{flags}\A\\REGISTRY\\USER\\[^\\]+\\{glob_regex(_glob_of_parts(rest))}\z")


# ---- data


@dataclass(frozen=True)
class RegistryData:
    """The columns of data of the registry, and of their types; a function for `LogSource.values`.

    Attributes
    ----------
    data : str
        Column of the data: numbers in decimals, or with 0x in hexadecimals.
    type : str
        Column of the type.
    dword, qword : tuple of str
        Names of the types of numbers.
    binary, strings : tuple of str
        Names of the types of which Sysmon writes no data, and of those whose empty data it writes as ``(Empty)``;
        none: they are written as by Sysmon.
    """

    data: str
    type: str
    dword: tuple[str, ...]
    qword: tuple[str, ...]
    binary: tuple[str, ...] = ()
    strings: tuple[str, ...] = ()

    def __call__(self, test: FieldTest) -> DetectionFormula:
        """Return the test of data, given one for the strings of Sysmon.

        Raises
        ------
        SigmaValueError
            For a pattern that matches the strings of too many ranges of numbers.
        """
        no_text = has_text(self.type, *self.dword, *self.qword, *self.binary)
        tests: list[DetectionFormula] = [all_of([Negated(no_text), replace(test, field=self.data)])]
        if test.kind in (GLOB, GLOB_CASED):
            cased = test.kind is GLOB_CASED
            for value in test.values:
                parts = _glob_parts_of(value)
                tests += self._number_tests(value, parts, _DWORD, self.dword, cased)
                tests += self._number_tests(value, parts, _QWORD, self.qword, cased)
                if self.binary and _matches_glob(parts, _BINARY, cased):
                    tests.append(has_text(self.type, *self.binary))
                if self.strings and _matches_glob(parts, _EMPTY, cased):
                    tests.append(self._empty_test())
        return some_of(_joined_numbers(tests))

    def _empty_test(self) -> DetectionFormula:
        empty = some_of([has_text(self.data, "", "-"), Presence(self.data, False)])
        return all_of([has_text(self.type, *self.strings), empty])

    def _number_tests(
        self, value: str, parts: tuple[GlobPart, ...], template: str, types: tuple[str, ...], cased: bool
    ) -> Iterator[DetectionFormula]:
        """Yield the test of numbers whose strings, by a template, a pattern matches.

        A pattern of a part of a QWORD that can follow any upper half finds only numbers below 2^32.
        """
        ranges = _ranges_of(parts, template, cased)
        if ranges is None and template == _QWORD:
            ranges = _ranges_of(parts, _SMALL_QWORD, cased)
        if ranges == ():
            return
        n_digits = template.count(_DIGIT)
        of_type = has_text(self.type, *types)
        if ranges == ((0, 16**n_digits - 1),):
            yield of_type
            return
        if ranges is None:
            raise SigmaValueError(
                f"the pattern {value} matches the strings of too many numbers to be asked of the column {self.data}, "
                "which has numbers without such strings"
            )
        single = [spelled for a, b in ranges if a == b for spelled in _spellings(a, n_digits)]
        tests: list[DetectionFormula] = [has_text(self.data, *single)] if single else []
        for a, b in ranges:
            if a != b:
                decimals = [FieldTest(self.data, COMPARED["", sign], (str(n),)) for sign, n in ((">=", a), ("<=", b))]
                hexadecimals = FieldTest(self.data, GLOB, tuple(map(string_literal, _spelled_range(a, b, n_digits))))
                tests += [all_of(decimals), hexadecimals]
        yield all_of([of_type, some_of(tests)])


def _joined_numbers(tests: Sequence[DetectionFormula]) -> Iterator[DetectionFormula]:
    """Yield tests, with the numbers of one type merged into one test."""
    of_types: dict[DetectionFormula, list[DetectionFormula]] = {}
    for test in tests[1:]:
        if isinstance(test, All):
            of_type, numbers = test.parts
            of_types.setdefault(of_type, []).append(numbers)
        else:
            of_types.setdefault(test, []).clear()
    yield tests[0]
    for of_type, number_tests in of_types.items():
        yield all_of([of_type, some_of(number_tests)]) if number_tests else of_type


def _spellings(number: int, n_digits: int) -> Iterator[str]:
    yield str(number)
    yield hex(number)
    yield f"0x{number:0{n_digits}x}"


def _spelled_range(a: int, b: int, n_digits: int) -> Iterator[str]:
    """Yield the patterns of hexadecimals from a to b, which are all that begin with the same digits."""
    n_free = (b - a).bit_length() // 4
    prefix = f"{a:0{n_digits}x}"[: n_digits - n_free]
    yield f"0x{prefix}{'?' * n_free}"
    if prefix.strip("0"):
        yield f"0x{prefix.lstrip('0')}{'?' * n_free}"
    else:
        yield from (f"0x{'?' * n}" for n in range(1, n_free + 1))


@dataclass
class _NumberStrings:
    """The strings of numbers by a template, read against a pattern sign by sign."""

    parts: tuple[GlobPart, ...]
    template: str
    cased: bool
    _counts: dict[tuple[int, frozenset[int]], tuple[int, bool]] = field(default_factory=dict)

    def counted(self, at: int, places: frozenset[int]) -> tuple[int, bool]:
        """Return how many ranges of numbers the pattern accepts from a position, and whether one is all numbers."""
        if not places:
            return 0, False
        if at == len(self.template):
            takes = len(self.parts) in places
            return int(takes), takes
        key = at, places
        if key not in self._counts:
            self._counts[key] = self._count_places(at, places)
        return self._counts[key]

    def _count_places(self, at: int, places: frozenset[int]) -> tuple[int, bool]:
        if self.template[at] != _DIGIT:
            return self.counted(at + 1, self.step(places, self.template[at]))
        behind = [self.counted(at + 1, self.step(places, sign)) for sign in _HEX]
        if all(is_all for _, is_all in behind):
            return 1, True
        return sum(n for n, _ in behind), False

    def ranges(self, at: int, places: frozenset[int], number: int, n_left: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of numbers that the pattern accepts from a position."""
        n_ranges, is_all = self.counted(at, places)
        if is_all:
            yield number << 4 * n_left, ((number + 1) << 4 * n_left) - 1
        elif n_ranges and self.template[at] == _DIGIT:
            for digit, sign in enumerate(_HEX):
                yield from self.ranges(at + 1, self.step(places, sign), number * 16 + digit, n_left - 1)
        elif n_ranges:
            yield from self.ranges(at + 1, self.step(places, self.template[at]), number, n_left)

    def step(self, places: frozenset[int], sign: str) -> frozenset[int]:
        """Return the positions of the pattern after one more sign."""
        return _glob_step(self.parts, places, sign, self.cased)


@lru_cache(maxsize=10_000)
def _ranges_of(parts: tuple[GlobPart, ...], template: str, cased: bool) -> tuple[tuple[int, int], ...] | None:
    """Return the ranges of numbers whose strings a pattern matches, or None if they are too many or too large."""
    if _misses(parts, template, cased):
        return ()
    strings = _NumberStrings(parts, template, cased)
    start = _start(parts)
    if strings.counted(0, start)[0] > _MAX_RANGES:
        return None
    ranges = tuple(strings.ranges(0, start, 0, template.count(_DIGIT)))
    whole = (0, 16 ** template.count(_DIGIT) - 1)
    return None if ranges != (whole,) and any(a != b and b >= _EXACT for a, b in ranges) else ranges


def _misses(parts: Sequence[GlobPart], template: str, cased: bool) -> bool:
    """Return that a pattern ends or begins with signs that no text of a template does."""
    ends = ((parts[:1], template[0]), (parts[-1:], template[-1]))
    return any(not _fits_part(part, sign, cased) for edge, sign in ends for part in edge)


NUMBERS_OF_WINDOWS: Mapping[str, tuple[str, ...]] = {
    "dword": ("%%1876", "REG_DWORD"),
    "qword": ("%%1883", "REG_QWORD"),
    "binary": ("%%1875", "REG_BINARY", "%%1879", "REG_MULTI_SZ"),
    "strings": ("%%1873", "REG_SZ", "%%1874", "REG_EXPAND_SZ"),
}
"""Types of data by the kinds of them, as the Security log names them, and as its messages do."""
