"""Strings against a set of patterns of GLOB: each string is read once, whatever the number of patterns.

A pattern is searched by a gram: one, two or four bytes of a literal piece that must occur, chosen to be rare.  A filter
of bits drops the places of a string whose gram is that of no pattern; elsewhere the piece is compared, and where the
piece alone does not decide, the whole pattern.  Strings lie between marks, which are bytes of a piece as well: a piece
with a mark is at the beginning or at the end of a string.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cer_gpu.backend.jit import helper, kernel

MARK = 0xFF
"""Byte before each string and after the last one; UTF-8 has no such byte."""

ANY_CHARACTER, ANY_RUN, FIRST_CLASS = 256, 257, 258
"""Signs of patterns: any character, any run of characters, and the first class; less than 256 is a byte."""

FACTOR = 0x9E3779B97F4A7C15
"""Odd number by which grams are hashed: the upper bits of the product number the filter, lower ones the slots."""

SLOT_SHIFT = 24
"""Bits of the product below those that number the slots."""

_U = np.uint64


class Globs(NamedTuple):
    """Patterns as signs: bytes, `ANY_CHARACTER`, `ANY_RUN`, and the numbers of classes from `FIRST_CLASS` on.

    Attributes
    ----------
    signs : int32, shape (signs,)
    begins : int32, shape (patterns + 1,)
        Begin of each pattern among the signs.
    is_piece : bool, shape (patterns,)
        True for a pattern that its piece decides.
    class_begins : int32, shape (classes + 1,)
        Begin of each class among the ranges.
    ranges : int32, shape (ranges, 2)
        First and last code point of each range of a class.
    """

    signs: npt.NDArray[np.int32]
    begins: npt.NDArray[np.int32]
    is_piece: npt.NDArray[np.bool_]
    class_begins: npt.NDArray[np.int32]
    ranges: npt.NDArray[np.int32]


class Grams(NamedTuple):
    """Places to look for patterns: the gram of each, in a hash table.

    Attributes
    ----------
    bits : uint8, shape (2**filter,)
        Filter: eight bits a byte, 1 at the hash of each gram.
    slots : int32, shape (slots + 1,)
        Begin of the entries of each slot; a power of two of them.
    keys : uint32, shape (entries,)
        The gram of each entry, its last byte lowest.
    entries : int32, shape (entries, 4)
        Pattern, begin and end of its piece, and bytes of the piece up to the end of the gram.
    pieces : uint8, shape (bytes of pieces,)
    """

    bits: npt.NDArray[np.uint8]
    slots: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint32]
    entries: npt.NDArray[np.int32]
    pieces: npt.NDArray[np.uint8]


@kernel
def lay_out(offsets, data, folds, begins, laid):
    """Write strings one after the other, each after a `MARK`, with another after the last.

    Parameters
    ----------
    offsets : int64, shape (n + 1,)
        Offsets of an Arrow array of strings.
    data : uint8, shape (bytes,)
        Bytes of that array.
    folds : int32, shape (code points,)
        Character in place of each one, of no more bytes; empty: strings stay as they are.
    begins : int64, shape (n + 1,), written
        Begin of each string; it ends one byte before the next one begins.
    laid : uint8, shape (capacity,), written
        Space for all bytes and marks.
    """
    laid[0] = MARK
    at = _U(1)
    for string in range(begins.shape[0] - 1):
        begins[_U(string)] = np.int64(at)
        at = lay_string(data, _U(offsets[_U(string)]), _U(offsets[_U(string + 1)]), folds, laid, at)
    begins[begins.shape[0] - 1] = np.int64(at)


@helper
def lay_string(data, k, end, folds, laid, at):
    """Write the string that lies in a range of bytes, and a `MARK` after it; return the place after that."""
    n_folds = folds.shape[0]
    while k < end:
        byte = data[k]
        if byte < 0x80:
            laid[at] = folds[_U(byte)] if n_folds > 0 else byte
            at += _U(1)
            k += _U(1)
            continue
        length = _length(data, k, end)
        character = _character(data, k, length)
        if length > 1 and character < n_folds and folds[_U(character)] != character:
            at = _write(laid, at, folds[_U(character)])
        else:
            for i in range(length):  # bytes that are no UTF-8 come here one by one
                laid[at] = min(data[k + _U(i)], np.uint8(MARK - 1))
                at += _U(1)
        k += _U(length)
    laid[at] = MARK
    return at + _U(1)


@helper
def _length(data, at, end):
    """Return the bytes of the character at a place; 1 where UTF-8 has none of as many bytes."""
    byte = data[at]
    length = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4 if byte < 0xF8 else 1
    return length if at + _U(length) <= end else 1


@helper
def _character(data, at, length):
    """Return the code point of a character of so many bytes."""
    if length == 1:
        return np.int64(data[at])
    code = np.int64(data[at]) & (0xFF >> (length + 1))
    for i in range(1, length):
        code = code << 6 | np.int64(data[at + _U(i)]) & 0x3F
    return code


@helper
def _write(laid, at, character):
    """Write a character as UTF-8, and return the place after it."""
    if character < 0x80:
        laid[at] = character
        return at + _U(1)
    if character < 0x800:
        laid[at] = 0xC0 | character >> 6
        laid[at + _U(1)] = 0x80 | character & 0x3F
        return at + _U(2)
    if character < 0x10000:
        laid[at] = 0xE0 | character >> 12
        laid[at + _U(1)] = 0x80 | character >> 6 & 0x3F
        laid[at + _U(2)] = 0x80 | character & 0x3F
        return at + _U(3)
    laid[at] = 0xF0 | character >> 18
    laid[at + _U(1)] = 0x80 | character >> 12 & 0x3F
    laid[at + _U(2)] = 0x80 | character >> 6 & 0x3F
    laid[at + _U(3)] = 0x80 | character & 0x3F
    return at + _U(4)


@kernel
def find_globs(laid, begins, first, width, grams, globs, seen, met, patterns, strings, n_pairs):
    """Find the patterns that match each string.

    Parameters
    ----------
    laid : uint8, shape (capacity,)
    begins : int64, shape (n + 1,)
        Strings, as `lay_out` writes them.
    first : int
        String to begin at.
    width : int
        Bytes of the grams; 0: the patterns of the entries are compared with every string, 1: with those with a byte.
    grams : Grams
    globs : Globs
    seen : int32, shape (patterns,), written
        The last string for which a pattern is decided; at first -1.
    met : int32, shape (256,), written
        The last string with each byte, where grams are of one; at first -1.
    patterns, strings : int32, shape (pairs,), written
        The pattern and the string of each match, from `n_pairs` on.
    n_pairs : int
        Pairs so far.

    Returns
    -------
    (int, int)
        The string after the last one done (all, or the one for which space may run out), and the number of pairs.
    """
    grams, globs = Grams(*grams), Globs(*globs)
    n_strings, n_entries = begins.shape[0] - 1, grams.entries.shape[0]
    mask = _U((1 << 8 * width) - 1)
    n_bits = 3
    while 1 << n_bits < 8 * grams.bits.shape[0]:
        n_bits += 1
    shift, last_slot = _U(64 - n_bits), _U(grams.slots.shape[0] - 2)
    for string in range(first, n_strings):
        if n_pairs + n_entries > patterns.shape[0]:
            return string, n_pairs
        begin, end = begins[_U(string)], begins[_U(string + 1)] - 1
        if width < 2:
            for at in range(begin, end if width == 1 else begin):
                met[_U(laid[_U(at)])] = string
            for entry in range(n_entries):
                pattern = grams.entries[_U(entry), 0]
                if width == 1 and met[_U(grams.keys[_U(entry)])] != string:
                    continue
                if (width == 1 and globs.is_piece[_U(pattern)]) or glob_matches(globs, pattern, laid, begin, end):
                    patterns[n_pairs] = pattern
                    strings[n_pairs] = string
                    n_pairs += 1
            continue
        word = _U(0)
        for at in range(begin - 1, end + 1):
            word = word << _U(8) | _U(laid[_U(at)])
            key = word & mask
            product = key * _U(FACTOR)
            bit = product >> shift
            if not grams.bits[bit >> _U(3)] >> (bit & _U(7)) & 1:
                continue
            slot = product >> _U(SLOT_SHIFT) & last_slot
            for entry in range(grams.slots[slot], grams.slots[slot + _U(1)]):
                if grams.keys[_U(entry)] != key:
                    continue
                pattern = grams.entries[_U(entry), 0]
                if seen[_U(pattern)] == string or not has_piece(grams, entry, laid, at, begin, end):
                    continue
                seen[_U(pattern)] = string
                if globs.is_piece[_U(pattern)] or glob_matches(globs, pattern, laid, begin, end):
                    patterns[n_pairs] = pattern
                    strings[n_pairs] = string
                    n_pairs += 1
    return n_strings, n_pairs


@helper
def has_piece(grams, entry, laid, at, begin, end):
    """Return True if the piece of an entry, whose gram ends at a place, is there, marks included."""
    piece, piece_end = _U(grams.entries[_U(entry), 1]), _U(grams.entries[_U(entry), 2])
    start = at + 1 - grams.entries[_U(entry), 3]
    if start < begin - 1 or start + np.int64(piece_end - piece) > end + 1:
        return False
    place = _U(start)
    while piece < piece_end:
        if grams.pieces[piece] != laid[place]:
            return False
        piece += _U(1)
        place += _U(1)
    return True


@kernel
def glob_matches(globs, pattern, laid, begin, end):
    """Compare a whole string with a pattern.

    Parameters
    ----------
    globs : Globs
    pattern : int
    laid : uint8, shape (capacity,)
    begin, end : int
        The string, without marks.

    Returns
    -------
    bool
    """
    globs = Globs(*globs)
    sign, last = _U(globs.begins[_U(pattern)]), _U(globs.begins[_U(pattern + 1)])
    at, stop = _U(begin), _U(end)
    after, tried, has_star = sign, at, False  # the sign after the last star, and where the signs from there on begin
    while True:
        if sign == last:
            if at == stop:
                return True
        elif globs.signs[sign] == ANY_RUN:
            sign += _U(1)
            if sign == last:
                return True
            after, tried, has_star = sign, at, True
            continue
        elif at < stop:
            wanted = globs.signs[sign]
            if wanted < ANY_CHARACTER:
                length = 1 if laid[at] == wanted else 0
            else:
                length = _length(laid, at, stop)
                if wanted >= FIRST_CLASS and not _in_class(globs, wanted - FIRST_CLASS, _character(laid, at, length)):
                    length = 0
            if length > 0:
                sign += _U(1)
                at += _U(length)
                continue
        if not has_star or tried >= stop:
            return False
        tried += _U(_length(laid, tried, stop))
        wanted = globs.signs[after]
        if wanted < ANY_CHARACTER:
            while tried < stop and laid[tried] != wanted:
                tried += _U(1)
            if tried == stop:
                return False
        sign, at = after, tried


@helper
def _in_class(globs, number, character):
    """Return True if a character is in one of the ranges of a class."""
    for k in range(globs.class_begins[_U(number)], globs.class_begins[_U(number + 1)]):
        if globs.ranges[_U(k), 0] <= character <= globs.ranges[_U(k), 1]:
            return True
    return False


@kernel
def mark_strings(patterns, begins, strings, table):
    """Mark the strings that one of several patterns matches.

    Parameters
    ----------
    patterns : int32, shape (n,)
    begins : int64, shape (patterns + 1,)
        Begin of the strings of each pattern.
    strings : int32, shape (pairs,)
    table : bool, shape (strings,), written
    """
    for k in range(patterns.shape[0]):
        pattern = _U(patterns[_U(k)])
        for i in range(begins[pattern], begins[pattern + _U(1)]):
            table[_U(strings[_U(i)])] = True
