"""Blocks of events on a device: their inputs are copied in one piece, and two blocks are in flight.

Each block is copied from pinned memory: all arrays whose addresses are in the numbers `in` of each program
(`cer_gpu.predicates.cuda.selection`), which kernels get by value; arrays in device memory are read in place.  There are
two slots, each with a queue, memory and pinned memory of its own: while the host works on the events of one block, the
next is copied and evaluated.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from cer_gpu.backend.device import MAX_BY_VALUE, Argument, Bytes, Device, Memory, OutOfDeviceMemory, Queue
from cer_gpu.columnar.columns import Block
from cer_gpu.errors import CerError, DeviceError
from cer_gpu.expressions.inputs import BlockInputs
from cer_gpu.expressions.targets.cuda import Places
from cer_gpu.expressions.terms import BIT, WIDE, Column

MIN_ROWS = 1 << 12
"""Fewest rows in a piece of a block; a device without memory for them is an error."""

COPIED_AT_ONCE = 1 << 22
"""Bytes that one thread copies into pinned memory before it takes the next: one thread alone is slower than the bus."""

_ALIGNMENT = 256
_COPIERS = 16


@dataclass(frozen=True)
class Reads:
    """The columns and the places of the inputs of one program."""

    columns: tuple[Column, ...]
    places: Places


@dataclass
class Slot:
    """Queue and memory of one of the two blocks in flight.

    Attributes
    ----------
    inputs : tuple of Argument
        `in` for each program, or its address.
    """

    queue: Queue
    inputs: tuple[Argument, ...] = ()
    memory: dict[str, Memory] = field(default_factory=dict)
    pinned: dict[str, Bytes] = field(default_factory=dict)


class HasRows(Protocol):
    """Rows that kernels read."""

    @property
    def n_rows(self) -> int: ...  # noqa: D102


Results = TypeVar("Results")
State = TypeVar("State")


@dataclass(frozen=True)
class Job(Generic[State]):
    """A block, with the rows before `end` submitted to a slot."""

    rows: tuple[HasRows, ...]
    slot: Slot
    end: int
    state: State


class ReadyBlock(NamedTuple, Generic[State]):
    """A block whose turn it is, and its device; `job`: it was submitted before."""

    block: Block
    device: str
    job: Job[State] | None


def prefetch_one(
    blocks: Iterable[Block], choose: Callable[[Block], tuple[str, bool]], submit: Callable[[Block], Job[State]]
) -> Iterator[ReadyBlock[State]]:
    """Yield blocks with their devices; some are submitted to a device before the previous one is yielded.

    Parameters
    ----------
    blocks
    choose
        Function that returns the device of a block, and True if it is to be submitted ahead.
    submit
    """
    before: ReadyBlock[State] | None = None
    for block in blocks:
        (device, prefetch), job = choose(block), None
        if prefetch:
            with suppress(CerError):  # it is raised again when it is the block's turn
                job = submit(block)
        if before is not None:
            yield before
        before = ReadyBlock(block, device, job)
    if before is not None:
        yield before


@lru_cache(1)
def _copiers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_COPIERS, os.cpu_count() or 1), "copy to a device")


def copy_pieces(pieces: Iterable[tuple[Bytes, Bytes]]) -> None:
    """Copy arrays into others of the same lengths, as pairs (target, source), by several threads if they are long."""
    parts = [
        (target[k : k + COPIED_AT_ONCE], source[k : k + COPIED_AT_ONCE])
        for target, source in pieces
        for k in range(0, len(source), COPIED_AT_ONCE)
    ]
    if sum(len(source) for _, source in parts) <= COPIED_AT_ONCE:
        for target, source in parts:
            np.copyto(target, source)
    else:
        for _ in _copiers().map(lambda part: np.copyto(*part), parts):
            pass


class DeviceBlocks(ABC, Generic[Results, State]):
    """Evaluation of programs over blocks on one device; a subclass starts the kernels.

    Parameters
    ----------
    device : Device
    reads
        Inputs of each program.

    Attributes
    ----------
    max_rows : int
        Most rows on the device at once; lowered when it runs out of memory.
    """

    def __init__(self, device: Device, reads: Sequence[Reads]) -> None:
        self._device, self._reads = device, reads
        self._slots = [Slot(device.queue()), Slot(device.queue())]
        self._in_flight: list[Job[State]] = []
        self.max_rows: int = 1 << 30

    @abstractmethod
    def _memory_size(self, n_rows: int) -> int:
        """Return the bytes of device memory that the kernels need for some rows."""

    @abstractmethod
    def _launch_kernels(self, slot: Slot, n_rows: int, state: State) -> None:
        """Start the kernels on the rows whose inputs are copied, with ``slot.memory["work"]``."""

    @abstractmethod
    def _finish_kernels(self, slot: Slot, n_rows: int, state: State) -> Results:
        """Wait for the kernels, and return their results, in memory that the slot reuses."""

    @abstractmethod
    def _join_results(self, pieces: list[Results], begins: list[int]) -> Results:
        """Return the results of several pieces of a block, that begin at some rows, as one, in memory of its own."""

    @abstractmethod
    def _copy_results(self, results: Results) -> Results:
        """Return a copy of results."""

    def submit(self, rows: tuple[HasRows, ...], state: State) -> Job[State]:
        """Start the evaluation of a block of at least one row; at most two blocks are in flight.

        Raises
        ------
        DeviceError
            When the device has no memory even for `MIN_ROWS`.
        """
        if len(self._in_flight) == len(self._slots):
            self._in_flight.pop(0)  # a block that was never collected
        slot = next(slot for slot in self._slots if all(job.slot is not slot for job in self._in_flight))
        slot.queue.wait()
        job = Job(rows, slot, self._start(slot, rows, 0, state), state)
        self._in_flight.append(job)
        return job

    def collect(self, job: Job[State]) -> Results:
        """Return the results of the kernels for a block, in memory that is reused from the next `submit` on."""
        self._in_flight = [other for other in self._in_flight if other is not job]
        end, slot, n = job.end, job.slot, job.rows[0].n_rows
        results = self._finish_kernels(slot, end, job.state)
        if end == n:
            return results
        pieces, begins = [self._copy_results(results)], [0]
        while end < n:
            begin, end = end, self._start(slot, job.rows, end, job.state)
            begins.append(begin)
            pieces.append(self._copy_results(self._finish_kernels(slot, end - begin, job.state)))
        return self._join_results(pieces, begins)

    def wait(self) -> None:
        """Wait until nothing is in flight."""
        for slot in self._slots:
            slot.queue.wait()
        self._in_flight.clear()

    def _start(self, slot: Slot, rows: tuple[HasRows, ...], begin: int, state: State) -> int:
        """Copy rows from `begin` on and start the kernels; return the row after the last copied one."""
        while True:
            n = min(rows[0].n_rows - begin, self.max_rows)
            try:
                self._copy_inputs(slot, rows, begin, begin + n)
                self._reserve(slot, "work", self._memory_size(n))
                self._launch_kernels(slot, n, state)
                return begin + n
            except OutOfDeviceMemory as error:
                slot.queue.wait()
                slot.memory.clear()
                if n <= MIN_ROWS:
                    raise self._out_of_memory(n, error) from None
                self.max_rows = max(n // 2, MIN_ROWS)

    def _copy_inputs(self, slot: Slot, rows: tuple[Any, ...], begin: int, end: int) -> None:
        """Copy the inputs of all programs for some rows, each array once, and their addresses."""
        of_programs = [
            _device_inputs(reads, arguments, begin, end) for reads, arguments in zip(self._reads, rows, strict=True)
        ]
        at, offset = [], 0
        for numbers, _ in of_programs:
            at.append(offset)
            offset = align(offset + (0 if len(numbers) <= MAX_BY_VALUE else numbers.nbytes))
        offsets: dict[tuple[int, int], tuple[int, Bytes]] = {}  # by address and length of an array of the host
        for _, pieces in of_programs:
            for _, data in pieces:
                key = data.ctypes.data, len(data)
                if key not in offsets:
                    offsets[key] = offset, data
                    offset = align(offset + len(data))
        inputs, pinned = self._reserve(slot, "inputs", offset), self._pinned_buffer(slot, "inputs", offset)
        copy_pieces([(pinned[first : first + len(data)], data) for first, data in offsets.values()])
        arguments = list[Argument]()
        for first, (numbers, pieces) in zip(at, of_programs, strict=True):
            for place, data in pieces:
                numbers[place] = inputs.address + offsets[data.ctypes.data, len(data)][0]
            if len(numbers) <= MAX_BY_VALUE:
                arguments.append(numbers)
            else:
                pinned[first : first + numbers.nbytes] = numbers.view(np.uint8)
                arguments.append(inputs.address + first)
        slot.inputs = tuple(arguments)
        slot.queue.write(inputs.address, pinned)

    def _out_of_memory(self, n_rows: int, error: OutOfDeviceMemory) -> DeviceError:
        return DeviceError(
            f"{self._device.name} has no memory left for the columns of {n_rows:,} events ({error})\n"
            "hint: free memory of the device, or device='cpu'"
        )

    def _reserve(self, slot: Slot, what: str, n_bytes: int) -> Memory:
        """Return the memory of a slot, with space for at least `n_bytes`."""
        memory = slot.memory.get(what)
        if memory is None or memory.n_bytes < n_bytes:
            slot.memory.pop(what, None)
            del memory  # frees it before the next allocation
            memory = slot.memory[what] = self._device.allocate(n_bytes)
        return memory

    def _pinned_buffer(self, slot: Slot, what: str, n_bytes: int) -> Bytes:
        """Return `n_bytes` of the pinned memory of a slot."""
        data = slot.pinned.get(what)
        if data is None or len(data) < n_bytes:
            # to a power of two: pinning takes long, and blocks grow little by little
            data = slot.pinned[what] = self._device.pinned(1 << (max(n_bytes, _ALIGNMENT) - 1).bit_length())
        return data[:n_bytes]


def _device_inputs(
    reads: Reads, rows: BlockInputs, begin: int, end: int
) -> tuple[npt.NDArray[np.uint64], list[tuple[int, Bytes]]]:
    """Return the array `in` of a program, but for addresses, and the arrays of the host with the places of theirs."""
    places = reads.places
    numbers = np.zeros(max(places.size, 1), np.uint64)
    pieces: list[tuple[int, Bytes]] = []

    def put(place: int, values: npt.NDArray[Any], resident: bool = False) -> None:
        if resident:
            numbers[place] = values.__array_interface__["data"][0]
        else:
            pieces.append((place, values.view(np.uint8)))

    def put_bits(place: int, bits: npt.NDArray[np.uint8], first: int, resident: bool = False) -> None:
        first += begin
        put(place, bits[first // 8 : (first + end - begin + 7) // 8], resident)
        numbers[place + 1] = first % 8

    for column in reads.columns:
        place, stored = places.columns[column.slot], rows.columns[column.slot]
        if column.stored == BIT:
            put_bits(place, stored.values, stored.first_bit, stored.resident)
        else:
            put(place, stored.values[begin * column.stride : end * column.stride], stored.resident)
        if stored.valid is not None:
            put_bits(place + 2, stored.valid, stored.first_valid)
    for constant, place in places.constants.items():
        n = 2 if constant.dtype == WIDE else 1
        bits = rows.constants[constant.dtype][n * constant.slot : n * constant.slot + n].view(np.uint64)
        numbers[place : place + n] = bits
    for name, place in places.tables.items():
        table = rows.tables[name]
        put(place, table.reshape(-1))
        numbers[place + 1] = len(table) - 1
    for slot, place in places.external.items():
        put(place, rows.external[slot][begin:end])
    return numbers, pieces


def align(n_bytes: int) -> int:
    """Return a number of bytes rounded up to the alignment of device memory."""
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
