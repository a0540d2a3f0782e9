"""Selection of the relevant events of blocks on a device: kernels, and symbols for new words.

Only rows and symbols of relevant events are copied back, and the values of join predicates at them.

Symbols are numbered in the order of the rows in which their words first occur, as on the CPU.  A kernel that meets a
word without a symbol therefore only reports its tile: the host fetches the words of some rows from there on and numbers
them, and the kernel goes on at that tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cer_gpu.backend.device import MAX_BY_VALUE, Bytes, Device, Memory, OutOfDeviceMemory
from cer_gpu.backend.kernel_source import read_kernel_source
from cer_gpu.expressions.targets.cuda import TYPES, CudaWriter, Places, places
from cer_gpu.expressions.terms import IN_ORDER, NO_SIDES, GuardProgram, Sides
from cer_gpu.predicates.cuda.blocks import DeviceBlocks, Reads, Slot, align
from cer_gpu.predicates.generated import slots_of
from cer_gpu.predicates.symbol_table import SymbolTable


def places_of(program: GuardProgram | Sides) -> Places:
    """Assign a place to each input of a program, or of sides of filters."""
    if isinstance(program, Sides):
        return places(program.columns, [value for _, value in program.values], (), ())
    slots = slots_of(program)
    return places(slots.columns, [test for _, test in program.tests], [*program.codes, *slots.tables], slots.external)


def struct_of(program: GuardProgram) -> str:
    """Return the generated struct ``cer_query`` of a program's kernels."""
    return "\n".join(_GuardWriter(program).struct()) + "\n"


def words_source_of(program: GuardProgram) -> str:
    """Return the source of the kernel ``cer_query_words`` of a program, which `kernels/select.cuh` documents."""
    words = read_kernel_source("query_words.cuh", without=["select.cuh", "common.cuh"])
    return read_kernel_source("select.cuh") + _number_of_inputs(program) + struct_of(program) + words


def select_source_of(program: GuardProgram) -> str:
    """Return the source of a program's kernels ``cer_query_words`` and ``cer_query_select``."""
    return words_source_of(program) + read_kernel_source("query_select.cuh", without=["select.cuh", "inputs.cuh"])


def sides_source_of(sides: Sides) -> str:
    """Return the source of the kernel ``cer_query_sides``, which `kernels/sides.cuh` documents."""
    struct = "\n".join(_SideWriter(sides).struct()) + "\n"
    kernel = read_kernel_source("query_sides.cuh", without=["sides.cuh", "common.cuh"])
    return read_kernel_source("sides.cuh") + _number_of_inputs(sides) + struct + kernel


def _number_of_inputs(of: GuardProgram | Sides) -> str:
    """Return what `kernels/inputs.cuh` needs to know."""
    n = places_of(of).size
    return f"#define CER_N_INPUTS {max(n, 1)}\n" if n <= MAX_BY_VALUE else ""


class _SideWriter(CudaWriter):
    """Writer of the struct of sides of filters."""

    def __init__(self, sides: Sides) -> None:
        super().__init__(places_of(sides))
        self._sides = sides

    def struct(self) -> list[str]:
        """Return the lines of the struct."""
        for k, (kind, value) in enumerate(self._sides.values):
            name, conditions = self._value_name(value), self._all_not_null(value)
            if kind == IN_ORDER:
                conditions.append(f"cer_has_order({name})")
            self._lines.append(f"side[{k}] = {'cer_order' if kind == IN_ORDER else 'cer_bits'}({name});")
            self._lines.append(f"valid |= static_cast<cer_u64>({' && '.join(conditions) or 'true'}) << {k};")
        return [
            "struct cer_sides {",
            f"  enum {{ n_sides = {len(self._sides.values)} }};",
            "  CER_DEVICE static cer_u64 of_row(const cer_u64* __restrict__ in, cer_i64 row, cer_i64* side) {",
            "    (void)in, (void)row;",
            "    cer_u64 valid = 0;",
            *(f"    {line}" for line in self._lines),
            "    return valid;",
            "  }",
            "};",
        ]


class _GuardWriter(CudaWriter):
    """Writer of the struct of guards."""

    def __init__(self, program: GuardProgram) -> None:
        super().__init__(places_of(program))
        self._program = program

    def struct(self) -> list[str]:
        """Return the lines of the struct."""
        program = self._program
        results = {guard: self._truth_name(test) for guard, test in program.tests}
        for k in range(program.n_parts):
            guards = range(64 * k, min(64 * k + 64, program.n_guards))
            untested = sum(1 << guard % 64 for guard in guards if guard not in results)
            bits = [f"word({untested}ULL)"]
            bits += [f"word({results[guard]}) << {guard % 64}" for guard in guards if guard in results]
            factors = [f"({' | '.join(f'({bit})' for bit in bits)})", *self._allowed_by_codes(k)]
            self._lines.append(f"w[{k}] = static_cast<word>({' & '.join(factors)});")
        return [
            "struct cer_query {",
            f"  typedef {TYPES[program.word]} word;",
            f"  enum {{ n_parts = {program.n_parts} }};",
            "  CER_DEVICE static void words(const cer_u64* __restrict__ in, cer_i64 row, word* w) {",
            "    (void)in, (void)row;",
            *(f"    {line}" for line in self._lines),
            "  }",
            "};",
        ]

    def _allowed_by_codes(self, part: int) -> Iterable[str]:
        """Yield the words that the tables of types and streams allow for the row."""
        for name, column in self._program.codes.items():
            index = f"{self._entry(column, name)} * {self._program.n_parts} + {part}"
            yield f"cer_load<word>(in[{self._places.tables[name]}], {index})"


Words = npt.NDArray[Any]


class CudaWords(DeviceBlocks[list[Words], None]):
    """Words of all rows of blocks, by several programs over the same copies of columns, on one device.

    Parameters
    ----------
    device : Device
    programs
        Programs, at least one; a large one takes long to compile, so that several of some 64 guards are better.
    """

    def __init__(self, device: Device, programs: Sequence[GuardProgram]) -> None:
        super().__init__(device, [Reads(slots_of(program).columns, places_of(program)) for program in programs])
        self._programs = programs
        self._kernels = [_kernel(device, program) for program in programs]

    def _word_ends(self, n_rows: int) -> list[int]:
        """Return where the words of each program end in the memory of a slot, from 0 on, each at an aligned place."""
        ends = [0]
        for program in self._programs:
            ends.append(align(ends[-1] + _n_bytes(program, n_rows)))
        return ends

    def _memory_size(self, n_rows: int) -> int:
        return self._word_ends(n_rows)[-1]

    def _launch_kernels(self, slot: Slot, n_rows: int, state: None) -> None:
        at, ends = slot.memory["work"].address, self._word_ends(n_rows)
        for kernel, inputs, first in zip(self._kernels, slot.inputs, ends, strict=False):
            slot.queue.launch(kernel, -(-n_rows // 32), inputs, 0, n_rows, at + first)
        slot.queue.read(self._pinned_buffer(slot, "words", ends[-1]), at)

    def _finish_kernels(self, slot: Slot, n_rows: int, state: None) -> list[Words]:
        slot.queue.wait()
        ends = self._word_ends(n_rows)
        data = self._pinned_buffer(slot, "words", ends[-1])
        results = []
        for program, first in zip(self._programs, ends, strict=False):
            words = data[first : first + _n_bytes(program, n_rows)].view(program.word)
            results.append(in_parts(words, program.n_parts))
        return results

    def _copy_results(self, results: list[Words]) -> list[Words]:
        return [words.copy() for words in results]

    def _join_results(self, pieces: list[list[Words]], begins: list[int]) -> list[Words]:
        return [np.concatenate(words) for words in zip(*pieces, strict=True)]


def _n_bytes(program: GuardProgram, n_rows: int) -> int:
    """Return the bytes of the words of some rows."""
    return n_rows * program.n_parts * np.dtype(program.word).itemsize


def in_parts(words: Words, n_parts: int) -> Words:
    """Return words as `GuardEvaluator.words` has them: those of more than 16 guards with their parts adjacent."""
    return words.reshape(-1, n_parts) if words.dtype == np.uint64 else words


@lru_cache(64)
def _kernel(device: Device, program: GuardProgram) -> Any:
    return device.compile(words_source_of(program), ["cer_query_words"])["cer_query_words"]


TILE_ROWS = 1024
"""CER_TILE of `kernels/common.cuh`."""
GROUP_TILES = 256
"""CER_GROUP of `kernels/compaction.cu`."""
ROWS_TO_NUMBER = 4096
"""Rows whose words the host fetches when one has no symbol; a multiple of TILE_ROWS."""
MIN_SIDES = 32
"""Fewest relevant rows whose sides are computed at once; a device without memory for them is an error."""

_NEVER = np.uint64(2**64 - 1)


class SelectedWithSides(NamedTuple):
    """Relevant events of a block.

    Attributes
    ----------
    symbols, rows : int32, shape (n,)
    sides : int64, shape (n, 1 + sides)
        For each, the bits of the sides that are not NULL, and the sides.
    """

    symbols: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    sides: npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Table:
    """One version of the symbols, in device memory."""

    symbols: SymbolTable
    version: int
    memory: Memory
    values: int
    mask: int


class CudaPass(DeviceBlocks[SelectedWithSides, SymbolTable]):
    """Selection of relevant events by the guards of one program, on one device.

    Parameters
    ----------
    device : Device
    program : GuardProgram
    sides : Sides
        Values to compute of each relevant event.
    """

    def __init__(self, device: Device, program: GuardProgram, sides: Sides = NO_SIDES) -> None:
        reads = [Reads(slots_of(program).columns, places_of(program))]
        if sides.values:
            reads.append(Reads(sides.columns, places_of(sides)))
        super().__init__(device, reads)
        self._program, self._sides = program, sides
        self._dtype = np.dtype(program.word)
        self._kernels = _kernels(device, program, sides)
        self._table: _Table | None = None

    # ---- pieces of a block ------------------------------------------------------------------------------------

    def _memory_size(self, n_rows: int) -> int:
        return _Work(n_rows).size

    @property
    def _width(self) -> int:
        """Numbers that the host reads of each relevant event, but for its row and symbol."""
        return 1 + len(self._sides.values) if self._sides.values else 0

    def _launch_kernels(self, slot: Slot, n_rows: int, state: SymbolTable) -> None:
        self._select_tiles(slot, n_rows, 0, state)

    def _select_tiles(self, slot: Slot, n_rows: int, first_tile: int, symbols: SymbolTable) -> None:
        """Start the kernels on the tiles from `first_tile` on, and the copy of their totals."""
        table = self._table_for(slot, symbols)
        work, base, kernels = _Work(n_rows), slot.memory["work"].address, self._kernels
        never = self._pinned_buffer(slot, "never", 8)
        never.view(np.uint64)[0] = _NEVER
        slot.queue.write(base, never)
        outputs = (base + work.symbols, base + work.rows, base + work.counts)
        slot.queue.launch(
            kernels["cer_query_select"],
            work.n_tiles - first_tile,
            *(slot.inputs[0], n_rows, first_tile, table.memory.address, table.values, table.mask, *outputs, base),
        )
        offsets, totals = base + work.offsets, base + work.totals
        slot.queue.launch(kernels["cer_group_tiles"], work.n_groups, base + work.counts, work.n_tiles, offsets, totals)
        slot.queue.launch(kernels["cer_sum_groups"], 1, totals, work.n_groups)
        slot.queue.launch(
            kernels["cer_pack_tiles"],
            work.n_tiles,
            *(*outputs, offsets, totals, work.n_tiles, base + work.packed_symbols, base + work.packed_rows),
        )
        header = self._pinned_buffer(slot, "header", 16)
        slot.queue.read(header[:8], base)
        slot.queue.read(header[8:], totals + 8 * work.n_groups)

    def _finish_kernels(self, slot: Slot, n_rows: int, state: SymbolTable) -> SelectedWithSides:
        """Wait for the kernels, number unseen words and repeat until all have symbols; return the relevant events."""
        work, base = _Work(n_rows), slot.memory["work"].address
        while True:
            slot.queue.wait()
            header = self._pinned_buffer(slot, "header", 16).view(np.uint64)
            if header[0] == _NEVER:
                break
            tile = int(header[0])
            try:
                state.number(self._words_at(slot, tile * TILE_ROWS, min(ROWS_TO_NUMBER, n_rows - tile * TILE_ROWS)))
                self._select_tiles(slot, n_rows, tile, state)
            except OutOfDeviceMemory as error:
                raise self._out_of_memory(n_rows, error) from None
        n = int(header[1])
        packed = self._pinned_buffer(slot, "found", 8 * n)
        sides = self._pinned_buffer(slot, "sides", 8 * n * self._width)
        if n:
            slot.queue.read(packed[: 4 * n], base + work.packed_symbols)
            slot.queue.read(packed[4 * n :], base + work.packed_rows)
            if self._width:
                self._read_sides(slot, base + work.packed_rows, sides)
            slot.queue.wait()
        return SelectedWithSides(
            packed[: 4 * n].view(np.int32),
            packed[4 * n :].view(np.int32),
            sides.view(np.int64).reshape(n, self._width),
        )

    def _read_sides(self, slot: Slot, rows: int, sides: Bytes) -> None:
        """Start the kernel of the sides at some rows on the device, and their copies; in pieces if memory is short."""
        size = 8 * self._width
        n = piece = len(sides) // size
        while True:
            try:
                at = self._reserve(slot, "sides", size * piece).address
                break
            except OutOfDeviceMemory as error:
                if piece <= MIN_SIDES:
                    raise self._out_of_memory(n, error) from None
                piece = max(piece // 2, MIN_SIDES)
        for first in range(0, n, piece):
            m = min(piece, n - first)
            slot.queue.launch(self._kernels["cer_query_sides"], -(-m // 32), slot.inputs[1], rows + 4 * first, m, at)
            slot.queue.read(sides[size * first : size * (first + m)], at)

    def _copy_results(self, results: SelectedWithSides) -> SelectedWithSides:
        return SelectedWithSides(results.symbols.copy(), results.rows.copy(), results.sides.copy())

    def _join_results(self, pieces: list[SelectedWithSides], begins: list[int]) -> SelectedWithSides:
        return SelectedWithSides(
            np.concatenate([piece.symbols for piece in pieces]),
            np.concatenate([piece.rows + np.int32(begin) for piece, begin in zip(pieces, begins, strict=True)]),
            np.concatenate([piece.sides for piece in pieces]),
        )

    def _words_at(self, slot: Slot, first: int, n_rows: int) -> npt.NDArray[Any]:
        """Return the words of some rows of the piece in a slot."""
        n_parts = self._program.n_parts
        n_bytes = n_rows * n_parts * self._dtype.itemsize
        memory = self._device.allocate(n_bytes)
        words = self._pinned_buffer(slot, "words", n_bytes)
        slot.queue.launch(
            self._kernels["cer_query_words"], -(-n_rows // 32), slot.inputs[0], first, n_rows, memory.address
        )
        slot.queue.read(words, memory.address)
        slot.queue.wait()
        return in_parts(words.view(self._dtype), n_parts)

    def _table_for(self, slot: Slot, symbols: SymbolTable) -> _Table:
        """Return the current symbols on the device; kernels of the other slot may still read an earlier version."""
        table = self._table
        if table is None or table.symbols is not symbols or table.version != symbols.version:
            version, (keys, values) = symbols.version, symbols.arrays()
            memory = self._device.allocate(align(keys.nbytes) + values.nbytes)
            pinned = self._pinned_buffer(slot, "table", keys.nbytes + values.nbytes)
            pinned[: keys.nbytes] = keys.reshape(-1).view(np.uint8)
            pinned[keys.nbytes :] = values.view(np.uint8)
            at = memory.address + align(keys.nbytes)
            slot.queue.write(memory.address, pinned[: keys.nbytes])
            slot.queue.write(at, pinned[keys.nbytes :])
            slot.queue.wait()
            self._table = table = _Table(symbols, version, memory, at, len(values) - 1)
        slot.memory["table"] = table.memory  # lives for as long as the slot's kernels read it
        return table


@lru_cache(64)
def _kernels(device: Device, program: GuardProgram, sides: Sides) -> dict[str, Any]:
    kernels = {
        **device.compile(select_source_of(program), ["cer_query_words", "cer_query_select"]),
        **device.compile(read_kernel_source("compaction.cu"), ["cer_group_tiles", "cer_sum_groups", "cer_pack_tiles"]),
    }
    return kernels | dict(device.compile(sides_source_of(sides), ["cer_query_sides"])) if sides.values else kernels


class _Work:
    """Offsets of the kernels' arrays in the memory of a slot, for a number of rows.

    First come the tile of the first unseen word and the totals of groups, and one more (uint64); all other arrays are
    int32.
    """

    def __init__(self, n_rows: int) -> None:
        self.n_tiles = -(-n_rows // TILE_ROWS)
        self.n_groups = -(-self.n_tiles // GROUP_TILES)
        self.totals = 8
        self.counts = align(self.totals + 8 * (self.n_groups + 1))
        self.offsets = align(self.counts + 4 * self.n_tiles)
        self.symbols = align(self.offsets + 4 * self.n_tiles)
        self.rows = align(self.symbols + 4 * n_rows)
        self.packed_symbols = align(self.rows + 4 * n_rows)
        self.packed_rows = align(self.packed_symbols + 4 * n_rows)
        self.size = self.packed_rows + 4 * n_rows
