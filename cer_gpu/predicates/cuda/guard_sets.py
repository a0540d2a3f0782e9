"""Rows of the guards of many queries, on a device, by the kernels of `kernels/guard_sets.cu`.

String columns are copied as they are, and read there: each string is laid out between marks, its grams are looked up,
and its bit is set for the tests whose patterns it matches.  The strings of a dictionary are read once, and their bits
spread to the rows.  Guards are then computed from bits, 32 rows at a time, and the rows of each come back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Int32
from cer_gpu.backend.device import Bytes, Device, Memory, OutOfDeviceMemory
from cer_gpu.backend.kernel_source import read_kernel_source
from cer_gpu.backend.string_codes.scanning import SLOT_SHIFT
from cer_gpu.columnar.columns import Block, codes_of, plain_array, plain_strings, validity
from cer_gpu.columnar.dictionary_encoding import bytes_of
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.globs.glob_sets import GlobSet
from cer_gpu.predicates.cuda.blocks import DeviceBlocks, Slot, align
from cer_gpu.predicates.cuda.set_steps import IS_VALID, TYPE_NUMBERS, SetSteps
from cer_gpu.predicates.late_tests import LateTests

PIECE = 1 << 22
"""Bytes that a thread copies at once: fewer cost too many calls, and more too much pinned memory."""

_THREADS = 12
_AT_ONCE = 2
"""Pieces of each thread: one is filled while the other is on its way."""


class Staging:
    """Pinned memory and queues for copies to one device.

    Parameters
    ----------
    device : Device
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        n = min(_THREADS, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(n, "copy to a device")
        self._queues = [[device.queue() for _ in range(_AT_ONCE)] for _ in range(n)]
        self._pinned: list[list[Bytes]] = [[] for _ in range(n)]

    def copy(self, arrays: Iterable[tuple[int, Bytes]]) -> None:
        """Copy arrays to addresses of the device, and return when they are there.

        Raises
        ------
        OutOfDeviceMemory
            When pinned memory cannot be allocated.
        """
        pieces = [
            (address + first, data[first : first + PIECE])
            for address, data in arrays
            for first in range(0, len(data), PIECE)
        ]
        n = len(self._queues)
        if sum(len(data) for _, data in pieces) <= PIECE:
            self._copy_staged(0, pieces)
        else:
            for _ in self._threads.map(lambda thread: self._copy_staged(thread, pieces[thread::n]), range(n)):
                pass

    def _copy_staged(self, thread: int, pieces: list[tuple[int, Bytes]]) -> None:
        queues, pinned = self._queues[thread], self._pinned[thread]
        if pieces and not pinned:
            pinned.extend(self._device.pinned(PIECE) for _ in range(_AT_ONCE))
        turn, at = 0, 0  # small arrays share a piece
        for address, data in pieces:
            if at + len(data) > PIECE:
                turn, at = (turn + 1) % _AT_ONCE, 0
            if at == 0:
                queues[turn].wait()
            space = pinned[turn][at : at + len(data)]
            np.copyto(space, data)
            queues[turn].write(address, space)
            at += len(data)
        for queue in queues:
            queue.wait()


KERNELS = (
    *("cer_clear", "cer_lay_texts", "cer_find_pieces", "cer_match_globs", "cer_spread_codes"),
    *("cer_test_numbers", "cer_find_guards", "cer_write_rows"),
)
SPAN = 16
"""CER_SPAN of `kernels/guard_sets.cu`."""

_OPERATORS = {op: k for k, op in enumerate((*t.COMPARISONS, IS_VALID))}
_STORED = {stored: k for k, stored in enumerate(t.STORED)}
_NO_VALUES = 0, 0, _STORED["u1"], 1
"""Address, first bit, type and step of values that are not read."""


@dataclass(frozen=True)
class SetInputs:
    """Rows, columns and types of a block, as the kernels read them.

    Attributes
    ----------
    n_rows : int
    block : Block
    types : int32 array, shape (n_rows,), or None
        Number of the type of each row.
    """

    n_rows: int
    block: Block
    types: Int32 | None


class _ByGrams(NamedTuple):
    """Patterns that are looked for by grams of one width: numbers and addresses as the kernels have them."""

    gram: int
    filter: tuple[int, int]
    slots: tuple[int, int]
    entries: tuple[int, int, int]
    candidate_of: int
    compared: tuple[int, int]


class _Patterns(NamedTuple):
    """Patterns of one column that ignore case, or do not: addresses, and for each width the patterns."""

    folds: tuple[int, int]
    globs: tuple[int, int, int, int]
    tests: tuple[int, int]
    by_width: list[_ByGrams]


@dataclass
class _Strings:
    """Strings of some rows of a column, or of a dictionary."""

    n: int
    n_bytes: int
    is_large: bool
    offsets: int
    data: int
    valid: tuple[int, int]
    codes: int | None


@dataclass
class _Inputs:
    """Arrays on their way to the device, and then their addresses."""

    arrays: list[Bytes] = field(default_factory=list)
    size: int = 0

    def add(self, values: npt.NDArray[Any]) -> int:
        """Return the place of an array after those before."""
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        place = self.size
        self.arrays.append(data)
        self.size += align(len(data))
        return place


class _Work(NamedTuple):
    """Places of arrays in the memory of a slot, for a number of rows."""

    n_words: int
    bits: int
    counts: int
    size: int


class CudaSets(DeviceBlocks[list[Int32], None]):
    """Rows of the guards of a set, ascending.

    Parameters
    ----------
    device : Device
    steps : SetSteps
    """

    def __init__(self, device: Device, steps: SetSteps) -> None:
        super().__init__(device, [])
        self.steps = steps
        self._late = LateTests(steps.inputs.schema)
        self._kernels, self._staging = _kernels(device), Staging(device)
        self._stored: list[Memory] = []
        self._begins = self._flat = 0
        self._folds: dict[int, int] = {}
        self._patterns: dict[str, list[_Patterns]] = {}
        self._read: dict[int, tuple[npt.NDArray[np.uint64], dict[str, _Strings]]] = {}

    def free(self) -> None:
        """Wait, and free the memory of blocks; the patterns stay."""
        self.wait()
        for slot in self._slots:
            slot.memory.clear()
        self._read.clear()

    def _store(self, values: npt.NDArray[Any]) -> int:
        """Return the address of a copy of an array that stays on the device."""
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        memory = self._device.allocate(max(len(data), 1))
        self._stored.append(memory)
        self._staging.copy([(memory.address, data)])
        return memory.address

    def _work(self, n_rows: int) -> _Work:
        n_words, n_guards = _n_words(n_rows), self.steps.n_guards
        bits = align(4 * n_words * self.steps.n_lines)
        counts = bits + align(4 * n_words * n_guards)
        return _Work(n_words, bits, counts, counts + align(4 * n_guards))

    def _memory_size(self, n_rows: int) -> int:
        return self._work(n_rows).size

    # ---- copies --------------------------------------------------------------------------------------------------

    def _copy_inputs(self, slot: Slot, rows: tuple[Any, ...], begin: int, end: int) -> None:
        """Copy what the tests read of some rows."""
        if not self._flat:
            flat, begins = self.steps.steps()
            self._begins, self._flat = self._store(begins), self._store(flat)
        source: SetInputs = rows[0]
        inputs, validity = _Inputs(), dict[str, tuple[int, int]]()

        def valid_bits(name: str) -> tuple[int, int]:
            """Return the place of validity bits and the first one; -1: no row is NULL."""
            if name not in validity:
                bits, first = _valid_bits(source.block, name, begin, end)
                validity[name] = -1 if bits is None else inputs.add(bits), first
            return validity[name]

        tests = np.zeros((len(self.steps.number_tests), 9), np.uint64)
        addresses = np.zeros(tests.shape, np.bool_)
        values = dict[object, tuple[tuple[int, int], tuple[int, int, int, int]]]()
        for k, test in enumerate(self.steps.number_tests):
            if test.column not in values:
                values[test.column] = self._add_values(test.column, source, begin, end, inputs, valid_bits)
            (valid, first_valid), (at, first, stored, step) = values[test.column]
            is_read = test.op != IS_VALID
            tests[k] = (
                at,
                first,
                max(valid, 0),
                first_valid,
                stored,
                step,
                _OPERATORS[test.op],
                test.bits,
                test.negated,
            )
            addresses[k, 0], addresses[k, 2] = is_read, valid >= 0
        strings = dict[str, _Strings]()
        for name in self.steps.strings:
            column = source.block.column(name)
            column = column if pa.types.is_dictionary(column.type) else plain_strings(plain_array(column))
            strings[name] = _add_strings(column, begin, end, inputs, valid_bits(name))
            if name not in self._patterns:
                self._patterns[name] = self._patterns_of(name, column)
        memory = self._reserve(slot, "inputs", max(inputs.size, 1))
        places = np.cumsum([0, *(align(len(data)) for data in inputs.arrays)]).tolist()
        self._staging.copy([(memory.address + place, data) for place, data in zip(places, inputs.arrays, strict=False)])
        tests[addresses] += np.uint64(memory.address)
        for each in strings.values():
            each.offsets += memory.address
            each.data += memory.address
            each.valid = (each.valid[0] + memory.address if each.valid[0] >= 0 else 0, each.valid[1])
            each.codes = None if each.codes is None else each.codes + memory.address
        self._read[id(slot)] = tests, strings

    def _add_values(
        self, column: t.Column | str, source: SetInputs, begin: int, end: int, inputs: _Inputs, valid_bits: Any
    ) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
        """Return validity bits, and the place, first bit, type and step of values."""
        if column == TYPE_NUMBERS:
            assert source.types is not None
            return (-1, 0), (inputs.add(source.types[begin:end]), 0, _STORED["i4"], 1)
        if isinstance(column, str):
            return valid_bits(column), _NO_VALUES
        stored = self.steps.inputs.stored(column, source.block)
        name = self.steps.inputs.columns[column.slot][0]
        if column.stored == t.BIT:
            first = stored.first_bit + begin
            place = inputs.add(stored.values[first // 8 : (first + end - begin + 7) // 8])
            return valid_bits(name), (place, first % 8, _STORED[t.BIT], 1)
        place = inputs.add(stored.values[begin * column.stride : end * column.stride])
        return valid_bits(name), (place, 0, _STORED[column.stored], column.stride)

    # ---- patterns ------------------------------------------------------------------------------------------------

    def _patterns_of(self, name: str, column: pa.Array) -> list[_Patterns]:
        """Return the patterns of a column on the device; their grams are chosen by the first strings."""
        strings = plain_strings(column.dictionary) if pa.types.is_dictionary(column.type) else column
        combined = self.steps.strings[name].combined_patterns()
        return [self._of_set(each, combined.askers(nocase), strings) for nocase, each in combined.sets.items()]

    def _of_set(self, of: GlobSet, askers: tuple[Int32, Int32], strings: pa.Array) -> _Patterns:
        globs, hold = of.compiled.globs, self._store
        if len(of.folds) not in self._folds:
            self._folds[len(of.folds)] = hold(of.folds)
        by_width = []
        for width, grams in of.grams(strings).items():
            compared = np.unique(grams.entries[:, 0]).astype(np.int32)
            if width >= 2:
                compared = compared[~globs.is_piece[compared]]
            candidate_of = np.full(of.n_patterns, -1, np.int32)
            candidate_of[compared] = np.arange(len(compared))
            n_bits = (8 * len(grams.bits)).bit_length() - 1
            by_width.append(
                _ByGrams(
                    (1 << 8 * width) - 1 if width >= 2 else 0,
                    (hold(grams.bits), 64 - n_bits),
                    (hold(grams.slots), len(grams.slots) - 2),
                    (hold(grams.keys), hold(grams.entries), hold(grams.pieces)),
                    hold(candidate_of),
                    (hold(compared), len(compared)),
                )
            )
        return _Patterns(
            (self._folds[len(of.folds)], len(of.folds)),
            (hold(globs.signs), hold(globs.begins), hold(globs.class_begins), hold(globs.ranges)),
            (hold(askers[1]), hold(askers[0])),
            by_width,
        )

    # ---- kernels -------------------------------------------------------------------------------------------------

    def _launch_kernels(self, slot: Slot, n_rows: int, state: None) -> None:
        tests, strings = self._read[id(slot)]
        work, base = self._work(n_rows), slot.memory["work"].address
        n_guards, first_text = self.steps.n_guards, len(tests)
        plan = _Plan()
        plan.clear(base + 4 * work.n_words * first_text, work.n_words * (self.steps.n_lines - first_text))
        plan.clear(base + work.counts, n_guards)
        if len(tests):
            arguments = len(tests), n_rows, work.n_words, base
            plan.launch("cer_test_numbers", len(tests) * work.n_words, tests.reshape(-1).tolist(), *arguments)
        spaces = [self._string_memory(name, of) for name, of in strings.items()]
        space = _Space(*(max(sizes) for sizes in zip(*spaces, strict=True))) if spaces else _Space()
        scratch = self._reserve(slot, "scratch", max(sum(map(align, space)), 1)).address
        places = [scratch + int(place) for place in np.cumsum([0, *map(align, space[:-1])])]
        for name, of in strings.items():
            lines = base + 4 * work.n_words * self.steps.first_line(name)
            self._read_strings(plan, name, of, _Space(*places), lines, work.n_words, n_rows)
        guards = n_guards, base, n_rows, work.n_words, base + work.bits, base + work.counts
        n_warps = -(-n_guards * work.n_words // 32)
        plan.launch("cer_find_guards", n_warps, None, self._begins, self._flat, *guards)
        numbers = np.array(plan.numbers or [0], np.uint64)
        pinned = self._pinned_buffer(slot, "numbers", numbers.nbytes)
        pinned[:] = numbers.view(np.uint8)
        at = self._reserve(slot, "numbers", numbers.nbytes).address
        slot.queue.write(at, pinned)
        for kernel, n_warps, place, others in plan.launches:
            read = () if place is None else (at + 8 * place,)
            slot.queue.launch(self._kernels[kernel], n_warps, *read, *others)
        slot.queue.read(self._pinned_buffer(slot, "counts", 4 * n_guards), base + work.counts)

    def _string_memory(self, name: str, of: _Strings) -> _Space:
        """Return the bytes that the tests of the strings of a column need."""
        n_tests, width = self.steps.strings[name].n_tests, _n_words(of.n)
        n_compared = [grams.compared[1] for patterns in self._patterns[name] for grams in patterns.by_width]
        values = 0 if of.codes is None else 4 * width * n_tests
        candidates = 4 * width * max(n_compared, default=0)
        return _Space(4 * _n_words(8 * n_tests), values, candidates, 8 * (of.n + 1), 8 * of.n, of.n_bytes + of.n + 1)

    def _read_strings(
        self, plan: _Plan, name: str, of: _Strings, space: _Space, lines: int, n_words: int, n_rows: int
    ) -> None:
        """Plan the tests of the strings of a column; their lines are 0 so far."""
        n_tests = self.steps.strings[name].n_tests
        plan.clear(space.met, _n_words(8 * n_tests))
        to, width = lines, n_words
        if of.codes is not None:
            to, width = space.values, _n_words(of.n)
            plan.clear(to, width * n_tests)
        n_laid = of.n_bytes + of.n + 1
        for patterns in self._patterns[name] if of.n else ():
            strings = of.offsets, of.is_large, of.data, *of.valid, of.n, *patterns.folds
            plan.launch("cer_lay_texts", of.n, [*strings, space.begins, space.ends, space.laid])
            for grams in patterns.by_width:
                compared, n_compared = grams.compared
                candidates = space.candidates if grams.gram else 0
                if grams.gram:
                    plan.clear(candidates, width * n_compared)
                    searched = (
                        space.laid,
                        n_laid,
                        space.begins,
                        space.ends,
                        of.n,
                        grams.gram,
                        *grams.filter,
                        *grams.slots,
                    )
                    sets = *grams.entries, grams.candidate_of, *patterns.tests, candidates, to, width, space.met
                    plan.launch("cer_find_pieces", -(-n_laid // (32 * SPAN)), [*searched, *sets, SLOT_SHIFT])
                if n_compared:
                    compares = space.laid, space.begins, space.ends, of.n, compared, n_compared, candidates
                    marks = *patterns.globs, *patterns.tests, to, width, space.met
                    plan.launch("cer_match_globs", n_compared * width, [*compares, *marks])
        if of.codes is not None and of.n:
            numbers = of.codes, n_rows, to, width, lines, n_words, n_tests, space.met
            plan.launch("cer_spread_codes", n_tests * n_words, list(numbers))

    def _finish_kernels(self, slot: Slot, n_rows: int, state: None) -> list[Int32]:
        """Return the rows of each guard: as rows, or where these are many, or exceed the memory, from their bits."""
        slot.queue.wait()
        work, base, n_guards = self._work(n_rows), slot.memory["work"].address, self.steps.n_guards
        counts = self._pinned_buffer(slot, "counts", 4 * n_guards).view(np.uint32)
        by_bits = counts > work.n_words
        firsts = np.concatenate([[0], np.cumsum(np.where(by_bits, 0, counts), dtype=np.int64)])
        n = int(firsts[-1])
        all_rows = _NO_ROWS
        if n:
            try:
                all_rows = self._rows_from_bits(slot, base + work.bits, work.n_words, firsts)
            except OutOfDeviceMemory:
                by_bits = counts > 0
        results = [
            all_rows[first:end] if end > first else _NO_ROWS
            for first, end in zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)
        ]
        for guard in np.flatnonzero(by_bits).tolist():
            bits = self._pinned_buffer(slot, "bits", 4 * work.n_words)
            slot.queue.read(bits, base + work.bits + 4 * work.n_words * guard)
            slot.queue.wait()
            rows = np.flatnonzero(np.unpackbits(bits, bitorder="little", count=n_rows))
            results[guard] = read_only(rows.astype(np.int32))
        return results

    def _rows_from_bits(self, slot: Slot, bits: int, n_words: int, firsts: npt.NDArray[np.int64]) -> Int32:
        """Return the rows of all guards, one after the other, from their bits on the device."""
        n_guards, n = len(firsts) - 1, int(firsts[-1])
        memory = self._reserve(slot, "rows", firsts.nbytes + 4 * n).address
        staged, rows = self._pinned_buffer(slot, "firsts", firsts.nbytes), self._pinned_buffer(slot, "rows", 4 * n)
        staged[:] = firsts.view(np.uint8)
        slot.queue.write(memory, staged)
        to = memory + firsts.nbytes
        slot.queue.launch(self._kernels["cer_write_rows"], n_guards, bits, memory, n_guards, n_words, to)
        slot.queue.read(rows, to)
        slot.queue.wait()
        return read_only(rows.view(np.int32).copy())

    def apply_late_tests(self, number: int, rows: Int32, block: Block) -> Int32:
        """Return the rows of a block that satisfy a guard, among those selected by the kernels."""
        late = self.steps.late.get(number)
        return rows if late is None else self._late.rows(number, rows, block, late)

    def _copy_results(self, results: list[Int32]) -> list[Int32]:
        return results

    def _join_results(self, pieces: list[list[Int32]], begins: list[int]) -> list[Int32]:
        moved = [[rows + np.int32(begin) for rows in piece] for piece, begin in zip(pieces, begins, strict=True)]
        return [read_only(np.concatenate(rows)) for rows in zip(*moved, strict=True)]


class _Space(NamedTuple):
    """Bytes, or addresses, of the memory that the tests of the strings of one column after the other use."""

    met: int = 0
    values: int = 0
    candidates: int = 0
    begins: int = 0
    ends: int = 0
    laid: int = 0


class _Plan:
    """Kernels to launch in order, and the numbers that they read, which are copied at once before the first."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.launches: list[tuple[str, int, int | None, tuple[int, ...]]] = []

    def clear(self, address: int, n_words: int) -> None:
        """Plan to make words 0."""
        if n_words:
            self.launch("cer_clear", -(-n_words // 128), None, address, n_words)

    def launch(self, kernel: str, n_warps: int, numbers: Iterable[int] | None, *arguments: int) -> None:
        """Plan a kernel, whose first argument are numbers, if it reads any."""
        place = None if numbers is None else len(self.numbers)
        self.numbers += map(int, numbers or ())
        self.launches.append((kernel, n_warps, place, arguments))


def _valid_bits(block: Block, name: str, begin: int, end: int) -> tuple[Bytes | None, int]:
    """Return validity bits of some rows (None if no row is NULL), and the first row's bit."""
    array = block.column(name)
    buffers = array.buffers()
    if pa.types.is_dictionary(array.type) or not buffers or buffers[0] is None:
        valid = block.valid(name)
        return (None, 0) if valid is None else (np.packbits(valid[begin:end], bitorder="little"), 0)
    if array.null_count == 0:
        return None, 0
    first = array.offset + begin
    return np.frombuffer(buffers[0], np.uint8)[first // 8 : (first + end - begin + 7) // 8], first % 8


def _add_strings(array: pa.Array, begin: int, end: int, inputs: _Inputs, valid: tuple[int, int]) -> _Strings:
    """Add some rows of a column of strings to the inputs; those of a dictionary with all of its strings.

    Parameters
    ----------
    array
        The column.
    begin, end
        Rows.
    inputs
    valid
        Place of the validity bits of these rows, and the first one's.
    """
    codes = None
    if pa.types.is_dictionary(array.type):
        rows = array.slice(begin, end - begin)
        is_valid, valid_codes = validity(rows), validity(rows.indices)
        of_rows = codes_of(rows, valid_codes).astype(np.int32, copy=False)
        codes = inputs.add(of_rows if is_valid is None else np.where(is_valid, of_rows, np.int32(-1)))
        strings = plain_strings(rows.dictionary)
        bits = None if strings.null_count == 0 else np.packbits(np.asarray(strings.is_valid()), bitorder="little")
        valid = -1 if bits is None else inputs.add(bits), 0
    else:
        strings = array.slice(begin, end - begin)
    offsets, data = bytes_of(strings)
    data = data[offsets[0] : offsets[-1]]
    places = inputs.add(offsets), inputs.add(data)
    return _Strings(len(strings), len(data), offsets.dtype == np.int64, *places, valid, codes)


def _n_words(n_rows: int) -> int:
    return -(-n_rows // 32)


@lru_cache(4)
def _kernels(device: Device) -> dict[str, Any]:
    return dict(device.compile(read_kernel_source("guard_sets.cu"), KERNELS))


_NO_ROWS: Int32 = read_only(np.empty(0, np.int32))
