"""Patterns of GLOB as arrays for the kernels: signs, classes, and the literal pieces that select candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cer_gpu.arrays import Array, Int32, Int64
from cer_gpu.backend.string_codes.scanning import (
    ANY_CHARACTER,
    ANY_RUN,
    FACTOR,
    FIRST_CLASS,
    MARK,
    SLOT_SHIFT,
    Globs,
    Grams,
)
from cer_gpu.ceql.patterns import CharacterClass, GlobPart, Sign, glob_parts
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions.globs.folding import folded, folds

_WIDTHS = np.array([0, 1, 2, 2, 4])
"""Bytes of the gram of a pattern whose longest piece has 0, 1, 2, 3, or more bytes."""

_SAMPLE_BITS = 16
"""Bits of the hash by which grams of a sample of strings are counted."""

_LAST_CHARACTER = 0x10FFFF


class Pattern(NamedTuple):
    """A pattern of a set.

    Attributes
    ----------
    text : str
    plain : bool
        True for a string without signs, which is equal to what it matches.
    """

    text: str
    plain: bool = False

    def parts(self) -> list[GlobPart]:
        """Return its parts, none of which is the empty string."""
        plain: list[GlobPart] = [self.text] if self.text else []
        return plain if self.plain else glob_parts(self.text)


class Compiled(NamedTuple):
    """A set of patterns for the kernels, without their grams.

    Attributes
    ----------
    globs : Globs
    pieces : uint8, shape (bytes of pieces,)
        Literal pieces of all patterns, pattern by pattern, those at the begin or end of a pattern with a `MARK`.
    piece_begins : int32, shape (pieces + 1,)
    pattern_of : int32, shape (pieces,)
    """

    globs: Globs
    pieces: Array
    piece_begins: Int32
    pattern_of: Int32


def compile_patterns(patterns: Sequence[Pattern], nocase: bool) -> Compiled:
    """Return the arrays of patterns; with `nocase`, they are compared with strings that are folded."""
    fold: Callable[[str], str] = folded if nocase else str
    signs, begins, is_piece = list[int](), [0], list[bool]()
    classes, class_begins, ranges = dict[CharacterClass, int](), [0], list[Int32]()
    pieces, piece_begins, pattern_of = bytearray(), [0], list[int]()
    for number, pattern in enumerate(patterns):
        parts = _merge_parts(pattern.parts())
        last = len(parts) - 1
        if not parts:
            pieces += bytes([MARK, MARK])
            piece_begins.append(len(pieces))
            pattern_of.append(number)
        for k, part in enumerate(parts):
            if part is Sign.RUN:
                signs.append(ANY_RUN)
            elif part is Sign.ONE:
                signs.append(ANY_CHARACTER)
            elif isinstance(part, CharacterClass):
                if part not in classes:
                    classes[part] = FIRST_CLASS + len(classes)
                    ranges.append(_ranges(part, nocase))
                    class_begins.append(class_begins[-1] + len(ranges[-1]))
                signs.append(classes[part])
            else:
                literal = fold(part).encode()
                signs += literal
                pieces += bytes([MARK] * (k == 0)) + literal + bytes([MARK] * (k == last))
                piece_begins.append(len(pieces))
                pattern_of.append(number)
        begins.append(len(signs))
        is_piece.append(
            sum(part is not Sign.RUN for part in parts) == sum(isinstance(part, str) for part in parts) <= 1
            and parts not in ([Sign.RUN],)
        )
    globs = Globs(
        _int32(signs),
        _int32(begins),
        read_only(np.array(is_piece, np.bool_)),
        _int32(class_begins),
        read_only(np.concatenate([np.empty((0, 2), np.int32), *ranges])),
    )
    return Compiled(globs, np.frombuffer(bytes(pieces), np.uint8), _int32(piece_begins), _int32(pattern_of))


def _int32(values: Sequence[int]) -> Int32:
    return read_only(np.array(values, np.int32))


def _merge_parts(parts: Sequence[GlobPart]) -> list[GlobPart]:
    """Return parts with literals as long as they can be, and one run of any characters for several in a row."""
    merged = list[GlobPart]()
    for part in parts:
        if isinstance(part, CharacterClass) and not part.negated and len(part.ranges) == 1:
            first, last = part.ranges[0]
            part = first if first == last else part
        before = merged[-1] if merged else None
        if isinstance(part, str) and isinstance(before, str):
            merged[-1] = before + part
        elif part is not Sign.RUN or before is not Sign.RUN:
            merged.append(part)
    return merged


def _ranges(of: CharacterClass, nocase: bool) -> Int32:
    """Return the ranges of a class; with `nocase`, of the folded characters that are in it."""
    ranges = [(ord(a), ord(b)) for a, b in of.ranges]
    if nocase:
        table = folds()
        within = [table[a : b + 1] for a, b in ranges]
        beyond = [(max(a, len(table)), b) for a, b in ranges if b >= len(table)]
        members = np.unique(np.concatenate(within)) if within else np.empty(0, np.int32)
        breaks = np.flatnonzero(np.diff(members) > 1)
        firsts, lasts = np.append(members[:1], members[breaks + 1]), np.append(members[breaks], members[-1:])
        ranges = [*zip(firsts.tolist(), lasts.tolist(), strict=True), *beyond]
    if of.negated:
        ranges = _others(ranges)
    return np.array(ranges, np.int32).reshape(-1, 2)


def _others(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of all characters that are in none of some."""
    others, begin = list[tuple[int, int]](), 0
    for first, last in sorted(ranges):
        if begin < first:
            others.append((begin, first - 1))
        begin = max(begin, last + 1)
    return [*others, (begin, _LAST_CHARACTER)] if begin <= _LAST_CHARACTER else others


# ---- grams ---------------------------------------------------------------------------------------------------------


class StringSample:
    """Sample of strings: grams that are rare in it are taken to be rare.

    Parameters
    ----------
    strings : uint8, shape (n,)
        Strings, perhaps between marks.
    """

    def __init__(self, strings: Array) -> None:
        self._strings = strings
        self._counts: dict[int, Int64] = {}

    def counts(self, width: int) -> Int64:
        """Return the number of grams of a width, by their hashes (`_hashes`)."""
        if width not in self._counts:
            self._counts[width] = np.bincount(_hashes(_grams_at(self._strings, width)), minlength=1 << _SAMPLE_BITS)
        return self._counts[width]


def grams(of: Compiled, sample: StringSample) -> dict[int, Grams]:
    """Return where to look for the patterns: a table for each width of grams (0: patterns without grams)."""
    n_patterns = len(of.globs.begins) - 1
    lengths = np.diff(of.piece_begins)
    longest = np.zeros(n_patterns, np.int64)
    np.maximum.at(longest, of.pattern_of, lengths)
    width_of = _WIDTHS[np.minimum(longest, len(_WIDTHS) - 1)]
    piece_of = np.repeat(np.arange(len(lengths)), lengths)  # of each byte
    tables = {}
    for width in sorted(set(width_of.tolist())):
        patterns = np.flatnonzero(width_of == width).astype(np.int32)
        if width == 0:
            entries = np.zeros((len(patterns), 4), np.int32)
            entries[:, 0] = patterns
            tables[0] = _gram_table(np.zeros(len(patterns), np.uint64), entries, of.pieces)
            continue
        keys = _grams_at(of.pieces, width)
        ends = np.arange(len(keys)) + width
        usable = (width_of[of.pattern_of[piece_of[: len(keys)]]] == width) & (
            ends <= of.piece_begins[piece_of[: len(keys)] + 1]
        )
        places = np.flatnonzero(usable)
        patterns = of.pattern_of[piece_of[places]]
        chosen = places[_rarest(keys[places], patterns, sample.counts(width))]
        pieces = piece_of[chosen]
        begin = of.piece_begins[pieces]
        columns = of.pattern_of[pieces], begin, of.piece_begins[pieces + 1], chosen + width - begin
        tables[width] = _gram_table(keys[chosen], np.stack(columns, axis=1).astype(np.int32), of.pieces)
    return tables


def _grams_at(data: Array, width: int) -> Array:
    """Return the gram that begins at each byte, its last byte lowest."""
    n = max(len(data) - width + 1, 0)
    keys = np.zeros(n, np.uint64)
    for k in range(width):
        keys = keys << np.uint64(8) | data[k : k + n]
    return keys


def _hashes(keys: Array) -> Int64:
    return (keys * np.uint64(FACTOR) >> np.uint64(64 - _SAMPLE_BITS)).astype(np.int64)


def _rarest(keys: Array, patterns: Int32, counts: Int64) -> Int64:
    """Return the index of the rarest gram of each pattern among the grams of all, ordered by pattern."""
    hashes = _hashes(keys)
    _, of, n_alike = np.unique(hashes, return_inverse=True, return_counts=True)
    score = counts[hashes] << 4 | np.minimum(n_alike[of], 15)
    begins = np.flatnonzero(np.diff(patterns, prepend=-1))
    least = np.minimum.reduceat(score << 32 | np.arange(len(keys)), begins)
    return least & 0xFFFFFFFF


def _gram_table(keys: Array, entries: Int32, pieces: Array) -> Grams:
    """Return the hash table of grams; the entries of equal ones are adjacent."""
    products = keys * np.uint64(FACTOR)
    n_bits = max(6, int(32 * len(keys) - 1).bit_length())
    bits = np.zeros(1 << n_bits, np.uint8)
    bits[products >> np.uint64(64 - n_bits)] = 1
    n_slots = 1 << max(1, int(2 * len(keys) - 1).bit_length())
    slots = (products >> np.uint64(SLOT_SHIFT) & np.uint64(n_slots - 1)).astype(np.int64)
    order = np.lexsort((keys, slots))
    begins = np.concatenate([[0], np.cumsum(np.bincount(slots, minlength=n_slots))]).astype(np.int32)
    return Grams(
        read_only(np.packbits(bits, bitorder="little")),
        read_only(begins),
        read_only(keys[order].astype(np.uint32)),
        read_only(entries[order]),
        read_only(pieces),
    )
