"""Strings of many columns -> the tests that each distinct string satisfies, evaluated when it first occurs.

All columns have one hash table, in which a string is stored with its column and the lines of the tests that it
satisfies (`cer_gpu.predicates.cuda.set_steps`): of each row only the number of its string is needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.sets.loads import bit_at, load_i4, load_i8, load_u1, load_u8
from cer_gpu.backend.string_codes.scanning import FACTOR, MARK, SLOT_SHIFT, Globs, glob_matches, has_piece, lay_string

SMALL_OFFSETS, LARGE_OFFSETS, CODES, NO_STRINGS = range(4)
"""Layouts of a column: strings after offsets of 32 or 64 bits, codes of a dictionary, or NULL alone."""

LAYOUT, FIRST, VALID, FIRST_VALID, OFFSETS, DATA, N_PLACES = range(7)
"""Numbers that describe a column: its layout, its first row, addresses of its validity (0: all) and the first bit.

`OFFSETS` and `DATA` are addresses; of codes, those of int32 codes (-1 for NULL), and of the classes by code (int32).
"""

IS_NULL, NO_LINES = -1, -2
"""Classes of a row without a string, and of one whose string satisfies no test; all others are numbers of strings."""

TABLE_FOLDS, TABLE_WIDTH, TABLE_BITS, TABLE_SHIFT, TABLE_SLOTS, TABLE_LAST, TABLE_ENTRIES, N_ENTRIES, N_OF_TABLE = (
    range(9)
)
"""Numbers that describe a table of grams: see `Grams`; each begins somewhere in the arrays of all tables."""

_U = np.uint64


class Patterns(NamedTuple):
    """Patterns of all columns.

    Attributes
    ----------
    begins : int32, shape (columns + 1,)
        Begin of the tables of each column.
    tables : int64, shape (tables, N_OF_TABLE)
    line_begins : int32, shape (patterns + 1,)
    lines : int32, shape (lines of patterns,)
        Lines of the tests that ask for each pattern.
    folds : int32, shape (code points,)
        As of `lay_out`.
    """

    begins: Any
    tables: Any
    line_begins: Any
    lines: Any
    folds: Any


class GramTables(NamedTuple):
    """Tables of grams (`Grams`), one after the other; patterns and pieces are numbered through.

    Attributes
    ----------
    bits : uint8, shape (bytes of filters,)
    slots : int32, shape (slots and ends,)
    keys : uint32, shape (entries,)
    entries : int32, shape (entries, 4)
    pieces : uint8, shape (bytes of pieces,)
    """

    bits: Any
    slots: Any
    keys: Any
    entries: Any
    pieces: Any


class StringsMet(NamedTuple):
    """Strings met so far.

    Attributes
    ----------
    slots : int32, shape (2**slots,), written
        Open-addressing hash table: the string in each slot, -1 in a free one.
    hashes : uint64, shape (string capacity,), written
    columns : int32, shape (string capacity,), written
        Column of each.
    offsets : int64, shape (string capacity,), written
    data : uint8, shape (byte capacity,), written
    list_begins : int64, shape (string capacity,), written
    lists : int32, shape (line capacity,), written
        Lines of the tests that each string satisfies.
    laid : uint8, shape (capacity,), written
        Space for one string between marks.
    seen : int32, shape (patterns,), written
        Last string for which a pattern was decided; -1 at first.
    lined : int32, shape (lines,), written
        Last string for which a line was listed; -1 at first.
    met : int32, shape (256,), written
        Last string with each byte; -1 at first.
    n : int64, shape (1,), written
        Number of strings.
    """

    slots: Any
    hashes: Any
    columns: Any
    offsets: Any
    data: Any
    list_begins: Any
    lists: Any
    laid: Any
    seen: Any
    lined: Any
    met: Any
    n: Any


@kernel
def code_strings(columns, column, row, begin, end, patterns, grams, globs, strings, classes):
    """Write the class of each row of each column.

    Parameters
    ----------
    columns : int64, shape (columns, N_PLACES)
    column, row : int
        The first column and row.
    begin, end : int
        Rows to read.
    patterns : Patterns
    grams : GramTables
    globs : Globs
        Those of all columns.
    strings : StringsMet
    classes : int32, shape (columns, at least end - begin), written

    Returns
    -------
    (int, int, int)
        The column and row that come next, and the bytes of the string for which space ran out; the number of columns
        if all is done.
    """
    patterns, grams, globs, strings = Patterns(*patterns), GramTables(*grams), Globs(*globs), StringsMet(*strings)
    for c in range(column, columns.shape[0]):
        at = columns[_U(c)]
        layout, first = at[LAYOUT], at[FIRST]
        valid, first_valid, offsets, data = _U(at[VALID]), at[FIRST_VALID], _U(at[OFFSETS]), _U(at[DATA])
        before, n_before, class_before = _U(0), -1, IS_NULL
        for r in range(row if c == column else begin, end):
            to = _U(r - begin)
            if layout == NO_STRINGS or not bit_at(valid, _U(first_valid + r)):
                classes[_U(c), to] = IS_NULL
                continue
            if layout == CODES:
                code = load_i4(offsets + _U(4 * r))
                classes[_U(c), to] = IS_NULL if code < 0 else load_i4(data + _U(4 * code))
                continue
            place = _U(first + r)
            if layout == SMALL_OFFSETS:
                start, stop = load_i4(offsets + place * _U(4)), load_i4(offsets + place * _U(4) + _U(4))
            else:
                start, stop = load_i8(offsets + place * _U(8)), load_i8(offsets + place * _U(8) + _U(8))
            address, length = data + _U(start), stop - start
            if length != n_before or not _same(address, before, length):
                before, n_before = address, length
                string = _number(c, address, length, patterns, grams, globs, strings)
                if string < 0:
                    return c, r, length
                n_lines = strings.list_begins[_U(string + 1)] - strings.list_begins[_U(string)]
                class_before = string if n_lines > 0 else NO_LINES
            classes[_U(c), to] = class_before
    return columns.shape[0], 0, 0


@helper
def _number(column, address, length, patterns, grams, globs, strings):
    """Return the number of a string, perhaps of a new one; -1 if there is no space for it."""
    mixed = (_hash(address, length) ^ _U(column)) * _U(FACTOR)
    mixed ^= mixed >> _U(32)
    mask = _U(strings.slots.shape[0] - 1)
    slot = mixed & mask
    string = strings.slots[slot]
    while string >= 0:
        if strings.hashes[_U(string)] == mixed and strings.columns[_U(string)] == column:
            offset = strings.offsets[_U(string)]
            if strings.offsets[_U(string + 1)] - offset == length and _is_at(address, length, strings.data, offset):
                return string
        slot = (slot + _U(1)) & mask
        string = strings.slots[slot]
    n = strings.n[0]
    offset, n_listed = strings.offsets[_U(n)], strings.list_begins[_U(n)]
    if 2 * n >= strings.slots.shape[0] or n + 2 >= strings.offsets.shape[0] or length + 2 > strings.laid.shape[0]:
        return -1
    if offset + length > strings.data.shape[0] or n_listed + strings.lined.shape[0] > strings.lists.shape[0]:
        return -1
    for k in range(length):
        strings.data[_U(offset + k)] = load_u1(address + _U(k))
    strings.offsets[_U(n + 1)] = offset + length
    strings.hashes[_U(n)] = mixed
    strings.columns[_U(n)] = column
    strings.slots[slot] = n
    strings.list_begins[_U(n + 1)] = _listed(column, n, offset, length, n_listed, patterns, grams, globs, strings)
    strings.n[0] = n + 1
    return n


@kernel
def place_strings(hashes, n, slots):
    """Put strings into an empty hash table.

    Parameters
    ----------
    hashes : uint64, shape (at least n,)
    n : int
    slots : int32, shape (2**slots,), written
    """
    mask = _U(slots.shape[0] - 1)
    for string in range(n):
        slot = hashes[_U(string)] & mask
        while slots[slot] >= 0:
            slot = (slot + _U(1)) & mask
        slots[slot] = string


@kernel
def _listed(column, string, offset, length, n_listed, patterns, grams, globs, strings):
    """List the lines of the tests that a new string satisfies, after those of the others.

    Parameters
    ----------
    column, string : int
    offset, length : int
        Place of the string, whose bytes are there already, and their number.
    n_listed : int
        Lines of the strings before.
    patterns : Patterns
    grams : GramTables
    globs : Globs
    strings : StringsMet

    Returns
    -------
    int
        Lines of all strings now.
    """
    patterns, grams, globs, strings = Patterns(*patterns), GramTables(*grams), Globs(*globs), StringsMet(*strings)
    folded, end = np.int64(-1), np.int64(1)
    for table in range(patterns.begins[_U(column)], patterns.begins[_U(column + 1)]):
        of = patterns.tables[_U(table)]
        if of[TABLE_FOLDS] != folded:
            folded = of[TABLE_FOLDS]
            strings.laid[0] = MARK
            folds = patterns.folds if folded == 1 else patterns.folds[:0]
            end = np.int64(lay_string(strings.data, _U(offset), _U(offset + length), folds, strings.laid, _U(1))) - 1
            for byte in range(256):
                strings.met[_U(byte)] = -1
        n_listed = _in_table(of, string, end, n_listed, patterns, grams, globs, strings)
    return n_listed


@helper
def _in_table(of, string, end, n_listed, patterns, grams, globs, strings):
    """List the lines of one table of grams, for a string that is laid out."""
    width, entries = of[TABLE_WIDTH], of[TABLE_ENTRIES]
    laid = strings.laid
    if width < 2:
        for at in range(1, end if width == 1 else 1):
            strings.met[_U(laid[_U(at)])] = string
        for entry in range(entries, entries + of[N_ENTRIES]):
            if width == 1 and strings.met[_U(grams.keys[_U(entry)])] != string:
                continue
            pattern = grams.entries[_U(entry), 0]
            if (width == 1 and globs.is_piece[_U(pattern)]) or glob_matches(globs, pattern, laid, 1, end):
                n_listed = _with_lines(pattern, string, n_listed, patterns, strings)
        return n_listed
    mask, shift = _U((1 << 8 * width) - 1), _U(of[TABLE_SHIFT])
    bits, slots, last = _U(of[TABLE_BITS]), _U(of[TABLE_SLOTS]), _U(of[TABLE_LAST])
    word = _U(0)
    for at in range(end + 1):
        word = word << _U(8) | _U(laid[_U(at)])
        key = word & mask
        product = key * _U(FACTOR)
        bit = product >> shift
        if not grams.bits[bits + (bit >> _U(3))] >> (bit & _U(7)) & 1:
            continue
        slot = slots + (product >> _U(SLOT_SHIFT) & last)
        for entry in range(entries + grams.slots[slot], entries + grams.slots[slot + _U(1)]):
            if grams.keys[_U(entry)] != key:
                continue
            pattern = grams.entries[_U(entry), 0]
            if strings.seen[_U(pattern)] == string or not has_piece(grams, entry, laid, at, 1, end):
                continue
            strings.seen[_U(pattern)] = string
            if globs.is_piece[_U(pattern)] or glob_matches(globs, pattern, laid, 1, end):
                n_listed = _with_lines(pattern, string, n_listed, patterns, strings)
    return n_listed


@helper
def _with_lines(pattern, string, n_listed, patterns, strings):
    """List the lines of the tests that ask for a pattern, each once."""
    for k in range(patterns.line_begins[_U(pattern)], patterns.line_begins[_U(pattern + 1)]):
        line = patterns.lines[_U(k)]
        if strings.lined[_U(line)] != string:
            strings.lined[_U(line)] = string
            strings.lists[_U(n_listed)] = line
            n_listed += 1
    return n_listed


@helper
def _hash(address, length):
    """Hash the bytes at an address."""
    mixed, k = _U(length), _U(0)
    end = _U(length)
    while k + _U(8) <= end:
        mixed = (mixed ^ load_u8(address + k)) * _U(FACTOR)
        mixed ^= mixed >> _U(29)
        k += _U(8)
    rest = _U(0)
    while k < end:
        rest = rest << _U(8) | load_u1(address + k)
        k += _U(1)
    return (mixed ^ rest) * _U(FACTOR)


@helper
def _same(a, b, length):
    """Return True if the same bytes lie at two addresses."""
    k, end = _U(0), _U(length)
    while k + _U(8) <= end:
        if load_u8(a + k) != load_u8(b + k):
            return False
        k += _U(8)
    while k < end:
        if load_u1(a + k) != load_u1(b + k):
            return False
        k += _U(1)
    return True


@helper
def _is_at(address, length, data, offset):
    """Return True if the bytes at an address are those of an array from an offset on."""
    return _same(address, _U(data.ctypes.data) + _U(offset), length)
