"""Tests of the strings of a column that are evaluated together: each distinct string is read once for all of them.

One by one, each test reads all distinct strings.  From some work on, the patterns of all tests of a column are searched
in one pass (`cer_gpu.expressions.globs`), which gives the strings of each pattern; a test is then their union.  Strings
that are added to a dictionary are read alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32
from cer_gpu.columnar.dictionary_encoding import DictionaryCache, same_memory
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions.by_arrow import arrow_rows
from cer_gpu.expressions.globs.compiling import Pattern
from cer_gpu.expressions.globs.glob_sets import NO_STRINGS, GlobSet, PatternMatches, merge_parts
from cer_gpu.expressions.string_tests import OneOfPatterns

TOGETHER_FROM = 1 << 19
"""Bytes read by the tests of a column, pattern by pattern, from which on they are evaluated together."""

READING = 1 << 14
"""Bytes that take as long as the call by which one pattern reads a dictionary."""

MAX_DICTIONARY_PARTS = 8
"""Most parts of a dictionary whose results are stored separately."""

FEW_PAIRS = 1 << 10
"""Pairs of a pattern and a string, for each test, up to which the results for all parts are merged at once."""

CACHED_BYTES = 1 << 26
"""Most bytes of the tables of a column that are cached until its dictionary changes; larger ones are recomputed."""


class _Places(NamedTuple):
    """Places of the patterns of a test: in the set that ignores case, or in the other, and their numbers there."""

    nocase: bool
    patterns: Int32


class CombinedPatterns:
    """All tests of a column, with their patterns in two sets.

    Attributes
    ----------
    sets : dict from bool to GlobSet
        Patterns that ignore case, and those that do not.
    places : list of _Places
        Patterns of each test.
    """

    def __init__(self, tests: list[OneOfPatterns]) -> None:
        numbers: dict[bool, dict[Pattern, int]] = {False: {}, True: {}}
        self.places: list[_Places] = list[_Places]()
        askers: dict[bool, list[tuple[Int32, int]]] = {False: [], True: []}
        for number, test in enumerate(tests):
            index_of = numbers[test.nocase]
            places = {index_of.setdefault(pattern, len(index_of)) for pattern in test.patterns}
            patterns = read_only(np.array(sorted(places), np.int32))
            self.places.append(_Places(test.nocase, patterns))
            askers[test.nocase].append((patterns, number))
        self.sets: dict[bool, GlobSet] = {
            nocase: GlobSet(list(index_of), nocase) for nocase, index_of in numbers.items() if index_of
        }
        self._askers = {
            nocase: (
                np.concatenate([patterns for patterns, _ in asking]),
                np.repeat([number for _, number in asking], [len(patterns) for patterns, _ in asking]),
            )
            for nocase, asking in askers.items()
            if asking
        }

    def askers(self, nocase: bool) -> tuple[Int32, Int32]:
        """Return the numbers of the tests with each pattern of a set, and the first index of each pattern."""
        patterns, tests = self._askers[nocase]
        order = np.argsort(patterns, kind="stable")
        begins = np.searchsorted(patterns[order], np.arange(self.sets[nocase].n_patterns + 1))
        return read_only(tests[order].astype(np.int32)), read_only(begins.astype(np.int32))

    def matching_tests(self, nocase: bool, matches: PatternMatches) -> Array:
        """Return the numbers of the tests with a pattern that matches."""
        patterns, tests = self._askers[nocase]
        has_match = matches.begins[1:] > matches.begins[:-1]
        result: Array = tests[has_match[patterns]]
        return result


class _Tests:
    """The tests of a column by their numbers, which several evaluations share."""

    def __init__(self) -> None:
        self.numbers: dict[OneOfPatterns, int] = {}
        self.tests: list[OneOfPatterns] = []
        self.n_readings: int = 0
        self._combined: CombinedPatterns | None = None

    def number(self, test: OneOfPatterns) -> int:
        """Return the number of a test; equal ones have the same."""
        number = self.numbers.setdefault(test, len(self.numbers))
        if number == len(self.tests):
            self.tests.append(test)
            self.n_readings += test.n_readings
            self._combined = None
        return number

    def combined_patterns(self) -> CombinedPatterns:
        """Return the patterns of all tests so far."""
        if self._combined is None:
            self._combined = CombinedPatterns(self.tests)
        return self._combined


class StringSet:
    """Tests of the strings of one column, over one dictionary after the other.

    Attributes
    ----------
    turn : int
        Number of the dictionary at hand.
    """

    def __init__(self, tests: _Tests | None = None) -> None:
        self._tests = _Tests() if tests is None else tests
        self._strings: pa.Array | None = None  # referenced, so that no other array gets its address
        self._work = 0
        self._combined: CombinedPatterns | None = None
        self._parts: dict[bool, list[PatternMatches]] = {}
        self._n_read: dict[bool, int] = {}
        self._holds: Bools = np.zeros(0, np.bool_)  # for each test, if one of the strings read satisfies it
        self.turn: int = 0

    def fresh(self) -> StringSet:
        """Return the same tests for another evaluation."""
        return StringSet(self._tests)

    def number(self, test: OneOfPatterns) -> int:
        """Return the number of a test, by which it is looked up."""
        return self._tests.number(test)

    @property
    def n_tests(self) -> int:
        """Number of tests so far."""
        return len(self._tests.tests)

    def combined_patterns(self) -> CombinedPatterns:
        """Return the patterns of all tests so far."""
        return self._tests.combined_patterns()

    def read(self, strings: pa.Array) -> None:
        """Go on to a dictionary."""
        before = self._strings
        if strings is before or (before is not None and same_memory(strings, before)):
            return
        self._strings = strings
        n = 0 if before is None else len(before)
        if n and n <= len(strings) and strings.type == before.type and strings.slice(0, n).equals(before):  # type: ignore[union-attr]
            if len(strings) > n:
                self.turn += 1
                self._work += self._tests.n_readings * (strings.nbytes - before.nbytes + READING)  # type: ignore[union-attr]
            return
        self.turn += 1
        self._work += self._tests.n_readings * (strings.nbytes + READING)
        self._begin_dictionary()

    def _begin_dictionary(self) -> None:
        """Read the dictionary at hand from its beginning."""
        self._parts, self._n_read = {}, {}
        self._holds = np.zeros(len(self._tests.tests), np.bool_)

    def keeps(self) -> bool:
        """Return True if the tables of the tests are cached for this dictionary."""
        return len(self._tests.tests) * len(self._strings or ()) <= CACHED_BYTES

    def rows(self, number: int) -> Bools:
        """Return for each string of the dictionary at hand if a test holds; of NULL the result is arbitrary."""
        strings = self._strings
        assert strings is not None
        places = self._pattern_places(number)
        if places is None:
            return arrow_rows(self._tests.tests[number](strings), False)
        rows = np.zeros(len(strings), np.bool_)
        for part in self._find_patterns(places.nocase):
            part.mark(places.patterns, rows)
        return rows

    def codes(self, number: int) -> Int32 | None:
        """Return the strings for which a test holds, ascending, or None if testing row by row (`rows`) is cheaper."""
        places = self._pattern_places(number)
        if places is None:
            return None
        matches = self._find_patterns(places.nocase)
        if not self._holds[number]:
            return NO_STRINGS
        parts = [part.of(places.patterns) for part in matches]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _pattern_places(self, number: int) -> _Places | None:
        """Return the indexes of the patterns of a test, or None if it is evaluated by itself."""
        if self._work < TOGETHER_FROM:
            return None
        combined = self._tests.combined_patterns()
        if combined is not self._combined:
            self._combined = combined
            self._begin_dictionary()
        return combined.places[number]

    def _find_patterns(self, nocase: bool) -> list[PatternMatches]:
        """Return the strings of each pattern of a set, in parts of the dictionary."""
        assert self._strings is not None
        assert self._combined is not None
        parts, n_read = self._parts.setdefault(nocase, []), self._n_read.get(nocase, 0)
        if n_read < len(self._strings) or not parts:
            strings = self._strings.slice(n_read)
            strings = strings.fill_null("") if strings.null_count else strings  # the bytes of a NULL are arbitrary
            parts.append(self._combined.sets[nocase].find(strings, n_read))
            self._holds[self._combined.matching_tests(nocase, parts[-1])] = True
            self._n_read[nocase] = len(self._strings)
            n_pairs = sum(len(part.strings) for part in parts)
            if len(parts) > MAX_DICTIONARY_PARTS or (len(parts) > 1 and n_pairs <= FEW_PAIRS * len(self._tests.tests)):
                parts[:] = [merge_parts(parts)]
        return parts


class TestTable(DictionaryCache):
    """Table of a test that is one of a set.

    Parameters
    ----------
    of : StringSet
    test : OneOfPatterns
    negated

    Attributes
    ----------
    of : StringSet
    number : int
        The number of the test in its set.
    negated : bool
    test : OneOfPatterns
    """

    def __init__(self, of: StringSet, test: OneOfPatterns, negated: bool) -> None:
        self.of: StringSet = of
        self.negated: bool = negated
        self.number: int = of.number(test)
        self.test: OneOfPatterns = test
        self._turn = -1
        self._table: Array | None = None

    def fresh_in(self, of: StringSet) -> TestTable:
        """Return the table of the same test, of another evaluation."""
        return TestTable(of, self.test, self.negated)

    def __call__(self, values: pa.Array) -> Array:
        """See `DictionaryCache`."""
        self.of.read(values)
        if self._table is not None and self._turn == self.of.turn:
            return self._table
        table = np.zeros(len(values) + 1, np.bool_)
        rows = self.of.rows(self.number)
        np.logical_xor(rows, self.negated, out=table[:-1])
        if values.null_count:
            table[:-1] &= np.asarray(values.is_valid())
        self._turn, self._table = self.of.turn, table if self.of.keeps() else None
        return table

    @property
    def is_expensive(self) -> bool:
        """See `DictionaryCache`."""
        return False

    def at(self, values: pa.Array, codes: Array) -> Array:
        """See `DictionaryCache`."""
        self.of.read(values)
        is_cached = self._table is not None and self._turn == self.of.turn
        passing = None if is_cached or values.null_count else self.of.codes(self.number)
        if passing is None:
            at: Array = self(values)[codes]
            return at
        if not len(passing):
            return np.full(len(codes), self.negated)
        places = np.searchsorted(passing, codes)
        result: Array = (passing[np.minimum(places, len(passing) - 1)] == codes) != self.negated
        return result

    def codes(self, values: pa.Array) -> Array:
        """See `DictionaryCache`."""
        self.of.read(values)
        codes = None if self.negated or values.null_count else self.of.codes(self.number)
        return super().codes(values) if codes is None else codes
