"""Strings that match each pattern of a set: all patterns are searched in one pass over the strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32, Int64
from cer_gpu.backend.compaction import group_rows
from cer_gpu.backend.string_codes.scanning import Grams, find_globs, lay_out, mark_strings
from cer_gpu.columnar.dictionary_encoding import bytes_of
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.expressions.globs.compiling import Compiled, Pattern, StringSample, compile_patterns, grams
from cer_gpu.expressions.globs.folding import folds

LAID_AT_ONCE = 1 << 20
"""Bytes of strings that are laid out at once, so that they stay in the cache; a longer string is laid out alone."""

SAMPLED_BYTES = 1 << 18
"""Bytes of the first strings by which rare grams are chosen."""

MAX_PAIRS = 1 << 16
"""Capacity of the buffer of pairs of a pattern and a string, if there are not more patterns."""

_NO_FOLDS = NO_STRINGS = read_only(np.empty(0, np.int32))


class PatternMatches(NamedTuple):
    """Strings that match each pattern.

    Attributes
    ----------
    begins : int64, shape (patterns + 1,)
    strings : int32, shape (pairs,)
        Ascending for each pattern.
    """

    begins: Int64
    strings: Int32

    def mark(self, patterns: Int32, table: Bools) -> None:
        """Mark the strings that one of several patterns matches."""
        mark_strings(patterns, self.begins, self.strings, table)

    def of(self, patterns: Int32) -> Int32:
        """Return the strings that one of several patterns matches, ascending."""
        begins, ends = self.begins[patterns], self.begins[patterns + 1]
        some = np.flatnonzero(ends > begins)
        if not len(some):
            return NO_STRINGS
        parts = [self.strings[begins[k] : ends[k]] for k in some.tolist()]
        return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))


class GlobSet:
    """Patterns that are looked for together.

    Parameters
    ----------
    patterns
    nocase
        True to ignore the case of letters.

    Attributes
    ----------
    n_patterns : int
    compiled : Compiled
    folds : int32 array
        As of `lay_out`.
    """

    def __init__(self, patterns: Sequence[Pattern], nocase: bool) -> None:
        self.n_patterns: int = len(patterns)
        self.compiled: Compiled = compile_patterns(patterns, nocase)
        self.folds: Int32 = folds() if nocase else _NO_FOLDS
        self._grams: dict[int, Grams] | None = None  # chosen by the first strings

    def find(self, strings: pa.Array, first: int = 0) -> PatternMatches:
        """Return which of some strings, none of them NULL, match each pattern.

        Parameters
        ----------
        strings : pyarrow.StringArray or LargeStringArray
        first
            Number of the first string.
        """
        offsets, data = bytes_of(strings)
        offsets = read_only(offsets.astype(np.int64, copy=False))
        pairs = list[tuple[Int32, Int32]]()
        begin, laid, space = 0, Scratch(np.uint8), max(MAX_PAIRS, 2 * self.n_patterns)
        while begin < len(strings):
            end = int(np.searchsorted(offsets, offsets[begin] + LAID_AT_ONCE, side="right")) - 1
            end = min(max(end, begin + 1), len(strings))
            for patterns, places in self._match_pairs(offsets[begin : end + 1], data, laid, space):
                pairs.append((patterns, places + np.int32(first + begin)))
            begin = end
        return group_by_pattern(pairs, self.n_patterns)

    def grams(self, strings: pa.Array) -> dict[int, Grams]:
        """Return where to look for the patterns, chosen by the first of some strings unless they are chosen already."""
        if self._grams is None:
            offsets, data = bytes_of(strings)
            offsets = read_only(offsets.astype(np.int64, copy=False))
            end = int(np.searchsorted(offsets, offsets[0] + SAMPLED_BYTES, side="right"))
            laid, _ = self._laid_out(offsets[: max(end, 2)], data, Scratch(np.uint8))
            self._grams = grams(self.compiled, StringSample(laid[:SAMPLED_BYTES]))
        return self._grams

    def _laid_out(self, offsets: Int64, data: Array, laid: Scratch) -> tuple[Array, Int64]:
        """Return strings between marks, and where they begin."""
        begins = np.empty(len(offsets), np.int64)
        written = laid.empty(int(offsets[-1] - offsets[0]) + len(offsets))
        lay_out(read_only(offsets), read_only(data), self.folds, begins, written)
        return read_only(written[: begins[-1]]), read_only(begins)

    def _match_pairs(self, offsets: Int64, data: Array, laid: Scratch, space: int) -> list[tuple[Int32, Int32]]:
        """Return pairs of patterns and strings, for strings that are laid out at once."""
        n = len(offsets) - 1
        written, begins = self._laid_out(offsets, data, laid)
        if self._grams is None:
            self._grams = grams(self.compiled, StringSample(written[: min(int(begins[-1]), SAMPLED_BYTES)]))
        pairs = list[tuple[Int32, Int32]]()
        seen, met = np.full(self.n_patterns, -1, np.int32), np.full(256, -1, np.int32)
        patterns, strings = np.empty(space, np.int32), np.empty(space, np.int32)
        globs = tuple(self.compiled.globs)
        for width, of_width in self._grams.items():
            text = 0
            while text < n:
                text, n_pairs = find_globs(
                    written, begins, text, width, tuple(of_width), globs, seen, met, patterns, strings, 0
                )
                pairs.append((patterns[:n_pairs].copy(), strings[:n_pairs].copy()))
        return pairs


def merge_parts(parts: Sequence[PatternMatches]) -> PatternMatches:
    """Return the strings of each pattern, merged from those in consecutive parts of the strings."""
    n_patterns = len(parts[0].begins) - 1
    numbers = np.arange(n_patterns, dtype=np.int32)
    return group_by_pattern([(np.repeat(numbers, np.diff(part.begins)), part.strings) for part in parts], n_patterns)


def group_by_pattern(pairs: Sequence[tuple[Int32, Int32]], n_patterns: int) -> PatternMatches:
    """Return pairs of patterns and strings, ascending by string for each pattern, by pattern."""
    patterns, strings = (
        read_only(np.concatenate([np.empty(0, np.int32), *(pair[k] for pair in pairs)])) for k in (0, 1)
    )
    begins, rows = np.empty(n_patterns + 1, np.int64), np.empty(len(patterns), np.int32)
    group_rows(patterns, begins, rows)
    return PatternMatches(read_only(begins), read_only(strings[rows]))
