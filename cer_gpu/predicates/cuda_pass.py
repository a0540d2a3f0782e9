"""Evaluation of guards over blocks on a device: copies, kernels, and symbols for new words.

A block is copied in one piece: the array `in` of its kernels (`cer_gpu.predicates.cuda_source`), then all arrays whose
addresses stand in it; arrays in device memory are read in place.  There are two slots, each with a queue, memory and
pinned memory of its own: while the host works on the events of one block, the next is copied and evaluated.  Only rows
and symbols of relevant events are copied back.

Symbols are numbered in the order of the rows in which their words first occur, as on the CPU.  A kernel that meets a
word without a symbol therefore only reports its tile: the host fetches the words of some rows from there on and numbers
them, and the kernel goes on at that tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cer_gpu.backend.device import Bytes, Device, Memory, OutOfDeviceMemory, Queue
from cer_gpu.backend.kernel_source import read_kernel_source
from cer_gpu.errors import DeviceError
from cer_gpu.predicates.cuda_source import cuda_source_of, places_of
from cer_gpu.predicates.numba_source import slots_of
from cer_gpu.predicates.terms import BIT, Program

TILE_ROWS = 256
"""CER_TILE of `kernels/common.cuh`."""
GROUP_TILES = 256
"""CER_GROUP of `kernels/compaction.cu`."""
ROWS_TO_NUMBER = 4096
"""Rows whose words the host fetches when one has no symbol; a multiple of TILE_ROWS."""
FEWEST_ROWS = 1 << 12
"""Fewest rows in a piece of a block; a device without memory for them is an error."""

_ALIGNMENT = 256
_NEVER = np.uint64(2**64 - 1)
_WORDS = {"u1": np.uint8, "u2": np.uint16, "u8": np.uint64}

Selected = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]


class Stored(Protocol):
    """A column in memory (`cer_gpu.predicates.inputs.Stored`)."""

    @property
    def values(self) -> npt.NDArray[Any]: ...  # noqa: D102
    @property
    def first_bit(self) -> int: ...  # noqa: D102
    @property
    def valid(self) -> npt.NDArray[np.uint8] | None: ...  # noqa: D102
    @property
    def first_valid(self) -> int: ...  # noqa: D102
    @property
    def resident(self) -> bool: ...  # noqa: D102


class Symbols(Protocol):
    """Symbols of words (`cer_gpu.predicates.symbols.SymbolTable`)."""

    @property
    def version(self) -> int:
        """Number that changes with each change of `arrays`."""

    def arrays(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        """Return the keys and values that `cer_symbol` reads (`kernels/symbols.cuh`)."""

    def number(self, words: npt.NDArray[Any]) -> None:
        """Assign symbols to words in their order, so that all of them have one."""


@dataclass(frozen=True)
class Rows:
    """Inputs of a program for one block.

    Attributes
    ----------
    n_rows : int
    columns : dict from slot to Stored
    constants : dict from type to array
    tables : dict from "types", "streams" or slot to array
    given : dict from slot to uint8 array, shape (n_rows,)
    """

    n_rows: int
    columns: Mapping[int, Stored]
    constants: Mapping[str, npt.NDArray[Any]]
    tables: Mapping[str | int, npt.NDArray[Any]]
    given: Mapping[int, npt.NDArray[np.uint8]]


@dataclass
class Slot:
    """Queue and memory of one of the two blocks in flight."""

    queue: Queue
    inputs: Memory | None = None
    work: Memory | None = None
    table: _Table | None = None
    pinned: dict[str, Bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A block, with the rows before `end` submitted to a slot."""

    rows: Rows
    slot: Slot
    end: int


@dataclass(frozen=True)
class _Table:
    """One version of the symbols, in device memory."""

    symbols: Symbols
    version: int
    memory: Memory
    values: int
    mask: int


class CudaPass:
    """Kernels of one program on one device.

    Parameters
    ----------
    device : Device
    program : Program

    Attributes
    ----------
    most_rows : int
        Most rows on the device at once; lowered when it runs out of memory.
    """

    def __init__(self, device: Device, program: Program) -> None:
        self._device = device
        self._program = program
        self._places = places_of(program)
        self._columns = slots_of(program).columns
        self._dtype = np.dtype(_WORDS[program.word])
        self._kernels = _kernels(device, program)
        self._slots = [Slot(device.queue()), Slot(device.queue())]
        self._n_jobs = 0
        self._table: _Table | None = None
        self.most_rows = 1 << 30

    def submit(self, rows: Rows, symbols: Symbols) -> Job:
        """Start the evaluation of a block of at least one row; at most two blocks are in flight.

        Raises
        ------
        DeviceError
            When the device has no memory even for `FEWEST_ROWS`.
        """
        slot = self._slots[self._n_jobs % 2]
        self._n_jobs += 1
        slot.queue.wait()  # a block that was never collected may still be in flight
        return Job(rows, slot, self._start(slot, rows, 0, symbols))

    def collect(self, job: Job, symbols: Symbols) -> Selected:
        """Return symbols and rows (int32) of the relevant events of a block, in memory that its slot reuses."""
        begin, end, slot, n = 0, job.end, job.slot, job.rows.n_rows
        found = self._finish(slot, end, symbols)
        if end == n:
            return found
        symbols_found, rows_found = [found[0].copy()], [found[1].copy()]
        while end < n:
            begin, end = end, self._start(slot, job.rows, end, symbols)
            found = self._finish(slot, end - begin, symbols)
            symbols_found.append(found[0].copy())
            rows_found.append(found[1] + np.int32(begin))
        return np.concatenate(symbols_found), np.concatenate(rows_found)

    def wait(self) -> None:
        """Wait until nothing is in flight."""
        for slot in self._slots:
            slot.queue.wait()

    # ---- pieces of a block ------------------------------------------------------------------------------------

    def _start(self, slot: Slot, rows: Rows, begin: int, symbols: Symbols) -> int:
        """Copy rows from `begin` on and start the kernels; return the row after the last copied one."""
        while True:
            n = min(rows.n_rows - begin, self.most_rows)
            try:
                self._copy(slot, rows, begin, begin + n)
                self._reserve(slot, "work", _Work(n).size)
                self._select(slot, n, 0, symbols)
                return begin + n
            except OutOfDeviceMemory as error:
                slot.queue.wait()
                slot.inputs = slot.work = None
                if n <= FEWEST_ROWS:
                    raise self._no_room(n, error) from None
                self.most_rows = max(n // 2, FEWEST_ROWS)

    def _copy(self, slot: Slot, rows: Rows, begin: int, end: int) -> None:
        """Copy the inputs of the kernels for some rows, and their addresses."""
        places = self._places
        numbers = np.zeros(places.size, np.uint64)
        pieces: list[tuple[int, Bytes]] = []  # (place of its address in `in`, data)

        def put(place: int, values: npt.NDArray[Any], resident: bool = False) -> None:
            if resident:
                numbers[place] = values.__array_interface__["data"][0]
            else:
                pieces.append((place, values.view(np.uint8)))

        def put_bits(place: int, bits: npt.NDArray[np.uint8], first: int, resident: bool = False) -> None:
            first += begin
            put(place, bits[first // 8 : (first + end - begin + 7) // 8], resident)
            numbers[place + 1] = first % 8

        for column in self._columns:
            place, stored = places.columns[column.slot], rows.columns[column.slot]
            if column.stored == BIT:
                put_bits(place, stored.values, stored.first_bit, stored.resident)
            else:
                put(place, stored.values[begin * column.stride : end * column.stride], stored.resident)
            if stored.valid is not None:
                put_bits(place + 2, stored.valid, stored.first_valid)
        for constant, place in places.constants.items():
            numbers[place] = rows.constants[constant.dtype][constant.slot : constant.slot + 1].view(np.uint64)[0]
        for name, place in places.tables.items():
            table = rows.tables[name]
            put(place, table.reshape(-1))
            numbers[place + 1] = len(table) - 1
        for given, place in places.given.items():
            put(place, rows.given[given][begin:end])

        at = [_aligned(numbers.nbytes)]
        for _, data in pieces:
            at.append(_aligned(at[-1] + len(data)))
        inputs = self._reserve(slot, "inputs", at[-1])
        pinned = self._pinned(slot, "inputs", at[-1])
        for (place, data), offset in zip(pieces, at, strict=False):
            numbers[place] = inputs.address + offset
            pinned[offset : offset + len(data)] = data
        pinned[: numbers.nbytes] = numbers.view(np.uint8)
        slot.queue.write(inputs.address, pinned[: at[-1]])

    def _select(self, slot: Slot, n_rows: int, first_tile: int, symbols: Symbols) -> None:
        """Start the kernels on the tiles from `first_tile` on, and the copy of their totals."""
        assert slot.inputs is not None
        assert slot.work is not None
        table = slot.table = self._on_device(slot, symbols)
        work, base, kernels = _Work(n_rows), slot.work.address, self._kernels
        never = self._pinned(slot, "never", 8)
        never.view(np.uint64)[0] = _NEVER
        slot.queue.write(base, never)
        found = (base + work.symbols, base + work.rows, base + work.counts)
        slot.queue.launch(
            kernels["cer_query_select"],
            work.n_tiles - first_tile,
            *(slot.inputs.address, n_rows, first_tile, table.memory.address, table.values, table.mask, *found, base),
        )
        offsets, totals = base + work.offsets, base + work.totals
        slot.queue.launch(kernels["cer_group_tiles"], work.n_groups, base + work.counts, work.n_tiles, offsets, totals)
        slot.queue.launch(
            kernels["cer_pack_tiles"],
            work.n_tiles,
            *(*found, offsets, totals, work.n_tiles, base + work.packed_symbols, base + work.packed_rows),
        )
        slot.queue.read(self._pinned(slot, "header", 8 * (1 + work.n_groups)), base)

    def _finish(self, slot: Slot, n_rows: int, symbols: Symbols) -> Selected:
        """Wait for the kernels, number unseen words and repeat until all have symbols; return the relevant events."""
        assert slot.work is not None
        work = _Work(n_rows)
        while True:
            slot.queue.wait()
            header = self._pinned(slot, "header", 8 * (1 + work.n_groups)).view(np.uint64)
            if header[0] == _NEVER:
                break
            tile = int(header[0])
            try:
                symbols.number(self._words(slot, tile * TILE_ROWS, min(ROWS_TO_NUMBER, n_rows - tile * TILE_ROWS)))
                self._select(slot, n_rows, tile, symbols)
            except OutOfDeviceMemory as error:
                raise self._no_room(n_rows, error) from None
        n = int(header[1:].sum())
        found = self._pinned(slot, "found", 8 * n)
        if n:
            slot.queue.read(found[: 4 * n], slot.work.address + work.packed_symbols)
            slot.queue.read(found[4 * n :], slot.work.address + work.packed_rows)
            slot.queue.wait()
        return found[: 4 * n].view(np.int32), found[4 * n :].view(np.int32)

    def _words(self, slot: Slot, first: int, n_rows: int) -> npt.NDArray[Any]:
        """Return the words of some rows of the piece in a slot."""
        assert slot.inputs is not None
        n_parts = self._program.n_parts
        n_bytes = n_rows * n_parts * self._dtype.itemsize
        memory = self._device.allocate(n_bytes)
        words = self._pinned(slot, "words", n_bytes)
        n_warps = -(-n_rows // 32)
        slot.queue.launch(self._kernels["cer_query_words"], n_warps, slot.inputs.address, first, n_rows, memory.address)
        slot.queue.read(words, memory.address)
        slot.queue.wait()
        found = words.view(self._dtype)
        return found if self._dtype != np.uint64 else found.reshape(n_rows, n_parts)

    def _on_device(self, slot: Slot, symbols: Symbols) -> _Table:
        """Return the current symbols on the device; kernels of the other slot may still read an earlier version."""
        table = self._table
        if table is None or table.symbols is not symbols or table.version != symbols.version:
            version, (keys, values) = symbols.version, symbols.arrays()
            memory = self._device.allocate(_aligned(keys.nbytes) + values.nbytes)
            pinned = self._pinned(slot, "table", keys.nbytes + values.nbytes)
            pinned[: keys.nbytes] = keys.reshape(-1).view(np.uint8)
            pinned[keys.nbytes :] = values.view(np.uint8)
            at = memory.address + _aligned(keys.nbytes)
            slot.queue.write(memory.address, pinned[: keys.nbytes])
            slot.queue.write(at, pinned[keys.nbytes :])
            slot.queue.wait()
            self._table = table = _Table(symbols, version, memory, at, len(values) - 1)
        return table

    def _no_room(self, n_rows: int, error: OutOfDeviceMemory) -> DeviceError:
        return DeviceError(
            f"{self._device.name} has no memory left for the columns of {n_rows:,} events ({error})\n"
            "hint: free memory of the device, or device='cpu'"
        )

    # ---- memory -------------------------------------------------------------------------------------------------

    def _reserve(self, slot: Slot, what: str, n_bytes: int) -> Memory:
        """Return the memory of a slot, with room for at least `n_bytes`."""
        memory: Memory | None = getattr(slot, what)
        if memory is None or memory.n_bytes < n_bytes:
            setattr(slot, what, None)  # frees it before the next allocation
            memory = self._device.allocate(n_bytes)
            setattr(slot, what, memory)
        return memory

    def _pinned(self, slot: Slot, what: str, n_bytes: int) -> Bytes:
        """Return `n_bytes` of the pinned memory of a slot."""
        data = slot.pinned.get(what)
        if data is None or len(data) < n_bytes:
            data = slot.pinned[what] = self._device.pinned(max(n_bytes, _ALIGNMENT))
        return data[:n_bytes]


@lru_cache(64)
def _kernels(device: Device, program: Program) -> dict[str, Any]:
    return {
        **device.compile(cuda_source_of(program), ["cer_query_words", "cer_query_select"]),
        **device.compile(read_kernel_source("compaction.cu"), ["cer_group_tiles", "cer_pack_tiles"]),
    }


class _Work:
    """Offsets of the kernels' arrays in the memory of a slot, for a number of rows.

    First come the tile of the first unseen word and the totals of groups (uint64), which are read together; all other
    arrays are int32.
    """

    def __init__(self, n_rows: int) -> None:
        self.n_tiles = -(-n_rows // TILE_ROWS)
        self.n_groups = -(-self.n_tiles // GROUP_TILES)
        self.totals = 8
        self.counts = _aligned(self.totals + 8 * self.n_groups)
        self.offsets = _aligned(self.counts + 4 * self.n_tiles)
        self.symbols = _aligned(self.offsets + 4 * self.n_tiles)
        self.rows = _aligned(self.symbols + 4 * n_rows)
        self.packed_symbols = _aligned(self.rows + 4 * n_rows)
        self.packed_rows = _aligned(self.packed_symbols + 4 * n_rows)
        self.size = self.packed_rows + 4 * n_rows


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
