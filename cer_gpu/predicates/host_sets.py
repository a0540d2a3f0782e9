"""Rows of the guards of many queries on the CPU, by the loops of `cer_gpu.backend.sets.finding`.

`SetTables` is a set of guards as arrays, built once; `HostSets` evaluates them, and keeps the strings seen so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Array, Int32, Int64
from cer_gpu.backend.compaction import group_rows
from cer_gpu.backend.sets import finding as kernels
from cer_gpu.backend.sets.finding import GuardSteps, NumberTests, PassMemory, choose_triggers, find_rows, keys_of
from cer_gpu.backend.string_codes import coding
from cer_gpu.backend.string_codes.coding import StringsMet, code_strings, place_strings
from cer_gpu.columnar.columns import STRING, Block, codes_of, kind_of, plain_array, plain_strings, validity
from cer_gpu.columnar.dictionary_encoding import same_memory
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.globs.glob_sets import SAMPLED_BYTES
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.predicates.cached_tables import SetTables, int32, patterns_of

PIECE_ROWS = 1 << 13
"""Rows that are read together, so that their classes stay in the cache."""

FIRST_PIECE = 1 << 9
"""Rows of the first pieces of a stream, after which it is known which tests are seldom satisfied."""

PLAN_EVERY = 8
"""Triggers are chosen again once the number of rows read has grown by this factor."""

ENOUGH_BYTES = 1 << 16
"""Bytes of strings sampled to find rare grams."""

MAX_CACHED_STRINGS, MAX_STRING_BYTES = 1 << 19, 1 << 27
"""Strings, and bytes of strings, from which on all are dropped before the next piece."""

COMMON = 1 / 32
"""Part of the rows from which on a test of a range is evaluated when a guard needs it, and not for each row."""

_LAYOUTS = {pa.string().id: coding.SMALL_OFFSETS, pa.large_string().id: coding.LARGE_OFFSETS}
_STORED = {stored: k for k, stored in enumerate(t.STORED)}
_RAREST = np.float32(1e-6)
_NO_ROWS: Int32 = read_only(np.empty(0, np.int32))


@dataclass(frozen=True)
class GuardRows:
    """Rows of each guard in a block.

    Attributes
    ----------
    begins : int64, shape (guards + 1,)
    rows : int32, shape (pairs,)
        Ascending for each guard.
    """

    begins: Int64
    rows: Int32

    @property
    def guards(self) -> Int64:
        """Guards that have rows."""
        return np.flatnonzero(self.begins[1:] > self.begins[:-1])

    def of(self, guard: int) -> Int32:
        """Return the rows of a guard."""
        return self.rows[self.begins[guard] : self.begins[guard + 1]]


class HostSets:
    """Rows of the guards of a set, block by block.

    Parameters
    ----------
    tables : SetTables
    inputs : Inputs
        Columns of numbers that the tests read.
    named
        Column whose new strings are reported (`take_named`).
    """

    def __init__(self, tables: SetTables, inputs: Inputs, named: str | None = None) -> None:
        self.tables: SetTables = tables
        self._inputs, self._named = inputs, named
        self._new: list[bytes] = []
        self._number_types = [attribute_type(inputs.schema, name) for _, name in tables.number_columns]
        n_guards = len(tables.begins) - 1
        n_numbers, n_strings = len(tables.number_columns), len(tables.string_columns)
        self._columns = np.zeros((n_strings, coding.N_PLACES), np.int64)
        self._numbers = np.zeros((n_numbers, kernels.N_OF_NUMBERS), np.int64)
        self._numbers[:, kernels.CONSTANTS] = tables.constant_begins[:-1]
        self._numbers[:, kernels.N_CONSTANTS] = np.diff(tables.constant_begins)
        # two classes to a constant, and two more for each column
        self._numbers[:, kernels.CLASSES] = 2 * tables.constant_begins[:-1] + 2 * np.arange(n_numbers)
        self._validity_tests = np.array(
            [[0, 0, valid, null] for _, valid, null in tables.validity_tests], np.int64
        ).reshape(-1, 4)
        self._classes = np.empty((n_strings, FIRST_PIECE), np.int32)
        self._memory = PassMemory(
            np.zeros(tables.n_lines, np.uint64),
            np.zeros(tables.n_lines + 1, np.int32),
            np.zeros(tables.n_lines, np.int64),
            np.zeros(n_guards, np.int64),
            np.zeros(tables.n_lines, np.int64),
            np.zeros(kernels.MAX_ON_STACK + 1, np.uint64),
            np.zeros((max(n_numbers, 1), 64), np.uint64),
            np.zeros((max(n_numbers, 1), 2), np.uint64),
            np.zeros(1, np.int64),
        )
        self._guards, self._rows = np.empty(1 << 10, np.int32), np.empty(1 << 10, np.int32)
        self._n_read = 0
        self._plan_at = FIRST_PIECE
        self._dictionaries: dict[str, tuple[pa.Array, Int32]] = {}
        self._patterns: tuple[Any, ...] = ()
        self._is_sampled = False
        self._referents: list[Any] = []  # objects whose addresses are in use
        self._forget_strings()
        self._plan(np.full(tables.n_lines, 0.01, np.float32), tables.tests[:, 4] == 1)

    # ---- plans ------------------------------------------------------------------------------------------------------

    def _plan(self, weights: npt.NDArray[np.float32], is_read: npt.NDArray[np.bool_]) -> None:
        """Choose the triggers of the guards, and the tests of numbers to evaluate only when a guard needs them."""
        tables, n_lines = self.tables, self.tables.n_lines
        is_test = tables.tests[:, 0] >= 0
        self._memory.bits[:] = 0  # those of lines that were tested when they were read
        weights[: len(is_read)][is_test & is_read] = kernels.ALWAYS
        n_guards = len(tables.begins) - 1
        begins, lines = np.empty(n_guards + 1, np.int32), np.empty(len(tables.steps) + 1, np.int32)
        always = np.empty(n_guards, np.bool_)
        depth = kernels.MAX_ON_STACK + 1
        lists = np.empty(len(tables.steps) + 1, np.int32)
        stacks = np.empty(depth, np.int64), np.empty(depth, np.float32)
        n = choose_triggers(tables.begins, tables.steps, weights, *stacks, lists, begins, lines, always)
        order = np.argsort(lines[:n], kind="stable")
        guards = np.repeat(np.arange(n_guards, dtype=np.int32), np.diff(begins))[order]
        trigger_begins = int32(np.searchsorted(lines[:n][order], np.arange(n_lines + 1)))
        untriggered = int32(np.flatnonzero(always & ~tables.is_all))
        self._steps = tuple(GuardSteps(tables.begins, tables.steps, trigger_begins, int32(guards), untriggered))
        tests, n_classes = tables.tests, int(2 * tables.constant_begins[-1] + 2 * len(tables.number_columns))
        read = np.zeros((len(tests), 4), np.int64)
        read[:, 0], read[:, 1], read[:, 2] = np.maximum(tests[:, 0], 0), tests[:, 2], tests[:, 3]
        read[:, 3] = is_test & is_read
        place = tables.constant_begins[:-1][read[:, 0]] + tests[:, 1] if len(tables.constants) else tests[:, 1]
        constants = tables.constants[place] if len(tables.constants) else np.zeros(len(tests), np.uint64)
        pairs = [self._classes_of(line) for line in np.flatnonzero(is_test & ~is_read).tolist()]
        classes = np.concatenate([np.empty(0, np.int64), *(of for _, of in pairs)])
        of_class = np.repeat([line for line, _ in pairs], [len(of) for _, of in pairs]).astype(np.int32)
        order = np.argsort(classes, kind="stable")
        class_begins = int32(np.searchsorted(classes[order], np.arange(n_classes + 1)))
        self._number_tests = tables.constants, class_begins, int32(of_class[order]), read, read_only(constants)

    def _classes_of(self, line: int) -> tuple[int, Int64]:
        """Return a line of numbers with the classes for which it holds."""
        column, constant, outcomes, of_nan, _ = self.tables.tests[line].tolist()
        first, n = (int(self._numbers[column, k]) for k in (kernels.CLASSES, kernels.N_CONSTANTS))
        parts = [np.empty(0, np.int64)]
        if outcomes & kernels.IS_LESS:
            parts.append(np.arange(first, first + 2 * constant + 1))
        if outcomes & kernels.IS_EQUAL:
            parts.append(np.array([first + 2 * constant + 1]))
        if outcomes & kernels.IS_GREATER:
            parts.append(np.arange(first + 2 * constant + 2, first + 2 * n + 1))
        if of_nan:
            parts.append(np.array([first + 2 * n + 1]))
        return line, np.concatenate(parts)

    def _plan_again(self, begin: int, end: int) -> None:
        """Plan by how many rows satisfied each test so far; of ranges, by some rows of the block at hand."""
        self._plan_at = PLAN_EVERY * self._n_read
        weights = np.maximum(self._memory.counts / self._n_read, _RAREST).astype(np.float32)
        tests = self.tables.tests
        is_range = tests[:, 4] == 1
        for column in np.unique(tests[is_range, 0]).tolist():
            keys = np.empty(end - begin, np.uint64)
            keys = np.sort(keys[: keys_of(self._numbers[column], begin, end, keys)])
            first, last = self.tables.constant_begins[column : column + 2].tolist()
            below, upto = (np.searchsorted(keys, self.tables.constants[first:last], side) for side in ("left", "right"))
            of = np.flatnonzero(is_range & (tests[:, 0] == column))
            place, outcomes = tests[of, 1], tests[of, 2]
            n = np.where(outcomes & kernels.IS_LESS, below[place], 0)
            n += np.where(outcomes & kernels.IS_EQUAL, (upto - below)[place], 0)
            n += np.where(outcomes & kernels.IS_GREATER, len(keys) - upto[place], 0)
            weights[of] = np.maximum(n / (end - begin), _RAREST)
        self._plan(weights, is_range & (weights[: len(tests)] >= COMMON))
        if not self._is_sampled and self._strings.offsets[self._strings.n[0]] >= ENOUGH_BYTES:
            self._choose_grams()

    # ---- strings ----------------------------------------------------------------------------------------------------

    def _forget_strings(self) -> None:
        """Drop all strings."""
        self._strings = StringsMet(
            np.full(1 << 10, -1, np.int32),
            np.zeros(1 << 9, np.uint64),
            np.zeros(1 << 9, np.int32),
            np.zeros(1 << 9, np.int64),
            np.zeros(1 << 14, np.uint8),
            np.zeros(1 << 9, np.int64),
            np.zeros((1 << 10) + self.tables.n_lines, np.int32),
            np.zeros(1 << 12, np.uint8),
            np.full(len(self.tables.line_begins) - 1, -1, np.int32),
            np.full(self.tables.n_lines, -1, np.int32),
            np.full(256, -1, np.int32),
            np.zeros(1, np.int64),
        )
        self._dictionaries.clear()
        self._n_named = 0

    def _reserve_string(self, length: int) -> None:
        """Reserve space for one more string of `n_bytes` bytes, in each array that is too small."""
        strings, n = self._strings, int(self._strings.n[0])
        if 2 * n >= len(strings.slots):
            slots = np.full(4 * len(strings.slots), -1, np.int32)
            place_strings(strings.hashes, n, slots)
            strings = strings._replace(slots=slots)
        if n + 2 >= len(strings.offsets):
            names = ("hashes", "columns", "offsets", "list_begins")
            strings = strings._replace(**{name: _longer(getattr(strings, name)) for name in names})
        while strings.offsets[n] + length > len(strings.data):
            strings = strings._replace(data=_longer(strings.data))
        while strings.list_begins[n] + self.tables.n_lines > len(strings.lists):
            strings = strings._replace(lists=_longer(strings.lists))
        if length + 2 > len(strings.laid):
            strings = strings._replace(laid=np.zeros(2 * length + 2, np.uint8))
        self._strings = strings

    def _choose_grams(self) -> None:
        """Choose the grams that select candidates for patterns, which are rare in the strings seen so far."""
        n = int(self._strings.offsets[self._strings.n[0]])
        enough, chosen = n >= ENOUGH_BYTES, self.tables.chosen
        self._is_sampled = enough or True in chosen
        if self._is_sampled not in chosen:
            chosen[enough] = patterns_of(self.tables, self._strings.data[: min(n, SAMPLED_BYTES)])
        self._patterns = chosen[self._is_sampled]

    def _write_classes(self, columns: Int64, begin: int, end: int, classes: Int32) -> None:
        """Write the class of each row of each column."""
        if not self._patterns:
            self._choose_grams()
        column, row, n_columns = 0, begin, len(columns)
        while True:
            column, row, length = code_strings(
                columns, column, row, begin, end, *self._patterns, tuple(self._strings), classes
            )
            if column == n_columns:
                return
            self._reserve_string(length)

    # ---- blocks -----------------------------------------------------------------------------------------------------

    def find(self, block: Block) -> GuardRows:
        """Return the rows that the steps of each guard select, except for guards that all rows satisfy."""
        n_matches, begin, n_rows = 0, 0, block.n_rows
        self._view(block)
        while begin < n_rows:
            size = FIRST_PIECE if self._n_read < FIRST_PIECE else PIECE_ROWS
            end = min(begin + size, n_rows)
            if self._strings.n[0] > MAX_CACHED_STRINGS or self._strings.offsets[self._strings.n[0]] > MAX_STRING_BYTES:
                self._collect_rows()
                self._forget_strings()
                self._view(block)
            if self._classes.shape[1] < end - begin:
                self._classes = np.empty((len(self._classes), PIECE_ROWS), np.int32)
            self._write_classes(self._columns, begin, end, self._classes)
            n_matches = self._find(begin, end, n_matches)
            self._n_read += end - begin
            if self._n_read >= self._plan_at:
                self._plan_again(begin, end)
            begin = end
        self._referents.clear()
        guards, rows = self._guards[:n_matches], self._rows[:n_matches]
        begins, ordered = np.empty(len(self.tables.begins), np.int64), np.empty(n_matches, np.int32)
        group_rows(guards, begins, ordered)
        return GuardRows(begins, read_only(rows[ordered]))

    def _find(self, begin: int, end: int, n_matches: int) -> int:
        numbers = NumberTests(self._numbers, *self._number_tests, self._validity_tests)
        strings, row = self._strings, begin
        while True:
            row, n_matches = find_rows(
                self._steps,
                tuple(numbers),
                self._classes,
                strings.list_begins,
                strings.lists,
                begin,
                end,
                row,
                tuple(self._memory),
                self._guards,
                self._rows,
                n_matches,
            )
            if row == end:
                return n_matches
            self._guards, self._rows = _longer(self._guards), _longer(self._rows)

    def take_named(self) -> pa.Array:
        """Return the strings of the column `named` that are new since the last call."""
        self._collect_rows()
        strings = pa.array(self._new, pa.large_binary()).view(pa.large_string())
        self._new.clear()
        return strings

    def _collect_rows(self) -> None:
        strings, n = self._strings, int(self._strings.n[0])
        first, self._n_named = self._n_named, n
        if first < n and self._named in self.tables.string_columns:
            of = first + np.flatnonzero(strings.columns[first:n] == self.tables.string_columns.index(self._named))
            self._new += [strings.data[strings.offsets[k] : strings.offsets[k + 1]].tobytes() for k in of.tolist()]

    def _view(self, block: Block) -> None:
        """Record the addresses of the columns of a block."""
        tables = self.tables
        self._referents.clear()
        for k, name in enumerate(tables.string_columns):
            self._view_strings(k, name, block)
        for k, (column, name) in enumerate(tables.number_columns):
            of = self._numbers[k]
            array = _block_column(block, name)
            if array is None or array.type != self._number_types[k]:  # it is read by other queries, or by none
                of[kernels.VALID], of[kernels.FIRST_VALID] = self._no_bits(block.n_rows), 0
                continue
            stored = self._inputs.stored(column, block)
            self._referents.append(stored)
            of[kernels.STORED], of[kernels.STEP] = _STORED[column.stored], column.stride
            of[kernels.VALUES], of[kernels.FIRST] = _address(stored.values), stored.first_bit
            of[kernels.VALID] = 0 if stored.valid is None else _address(stored.valid)
            of[kernels.FIRST_VALID] = stored.first_valid
            if column.stored != t.BIT:
                of[kernels.FIRST] = 0
        for k, (name, _, _) in enumerate(tables.validity_tests):
            array = _block_column(block, name)
            self._validity_tests[k, :2] = (
                (self._no_bits(block.n_rows), 0) if array is None else self._validity(array, block, name)
            )

    def _view_strings(self, k: int, name: str, block: Block) -> None:
        array, of = _block_column(block, name), self._columns[k]
        layout = coding.NO_STRINGS if array is None else _LAYOUTS.get(array.type.id)
        if array is None or (layout is None and kind_of(array.type) != STRING):
            of[coding.LAYOUT] = coding.NO_STRINGS
            return
        if pa.types.is_dictionary(array.type):
            self._view_codes(k, array)
            return
        if layout is None:
            array = plain_strings(plain_array(array))
            layout = _LAYOUTS[array.type.id]
        valid, offsets, data = array.buffers()
        self._referents.append(array)
        of[coding.LAYOUT] = layout
        of[coding.FIRST] = of[coding.FIRST_VALID] = array.offset
        of[coding.VALID] = 0 if array.null_count == 0 else valid.address
        of[coding.OFFSETS] = 0 if offsets is None else offsets.address
        of[coding.DATA] = 0 if data is None else data.address
        if offsets is None:
            of[coding.LAYOUT] = coding.NO_STRINGS

    def _view_codes(self, k: int, array: pa.DictionaryArray) -> None:
        """Record codes, and the classes of the strings of their dictionary."""
        of, name = self._columns[k], self.tables.string_columns[k]
        cached = self._dictionaries.get(name)
        if cached is None or not same_memory(cached[0], array.dictionary):
            strings = plain_strings(array.dictionary)
            part = np.zeros((k + 1, coding.N_PLACES), np.int64)
            part[:, coding.LAYOUT] = coding.NO_STRINGS
            self._columns[k] = 0
            block = Block(pa.record_batch({name: strings}))
            self._view_strings(k, name, block)
            part[k] = self._columns[k]
            classes = np.empty((k + 1, len(strings)), np.int32)
            self._write_classes(part, 0, len(strings), classes)
            cached = self._dictionaries[name] = array.dictionary, np.append(classes[k], coding.IS_NULL).astype(np.int32)
        is_valid = validity(array.indices)
        codes = codes_of(array, is_valid).astype(np.int32)
        if is_valid is not None:
            codes[~is_valid] = -1
        self._referents += [codes, cached]
        of[coding.LAYOUT], of[coding.FIRST], of[coding.VALID] = coding.CODES, 0, 0
        of[coding.OFFSETS], of[coding.DATA] = _address(codes), _address(cached[1])

    def _no_bits(self, n_rows: int) -> int:
        """Return the address of validity bits of rows that are all NULL."""
        bits = np.zeros(n_rows // 8 + 1, np.uint8)
        self._referents.append(bits)
        return _address(bits)

    def _validity(self, array: pa.Array, block: Block, name: str) -> tuple[int, int]:
        """Return the address of validity bits (0: all rows are valid), and the first one."""
        buffers = array.buffers()
        plain = not pa.types.is_dictionary(array.type) and buffers and buffers[0] is not None
        if plain and array.null_count:
            self._referents.append(array)
            return buffers[0].address, array.offset
        valid = None if plain else block.valid(name)
        if valid is None:
            return 0, 0
        bits = np.packbits(valid, bitorder="little")
        self._referents.append(bits)
        return _address(bits), 0


def _longer(array: Array) -> Array:
    """Return an array with space for as many more values."""
    return np.concatenate([array, np.zeros_like(array)])


def _block_column(block: Block, name: str) -> pa.Array | None:
    """Return a column of a block; None: only queries that are gone read it."""
    try:
        return block.column(name)
    except (KeyError, IndexError, pa.ArrowInvalid):
        return None


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
