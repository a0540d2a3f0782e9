"""Words of all rows of blocks on a device, by one kernel for each program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.backend.device import Device
from cer_gpu.expressions.terms import GuardProgram
from cer_gpu.predicates.cuda.blocks import DeviceBlocks, Reads, Slot, aligned
from cer_gpu.predicates.cuda.source import places_of, words_source_of
from cer_gpu.predicates.numba_source import slots_of

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
            ends.append(aligned(ends[-1] + _n_bytes(program, n_rows)))
        return ends

    def _memory_size(self, n_rows: int) -> int:
        return self._word_ends(n_rows)[-1]

    def _launch_kernels(self, slot: Slot, n_rows: int, state: None) -> None:
        at, ends = slot.memory["work"].address, self._word_ends(n_rows)
        for kernel, inputs, first in zip(self._kernels, slot.inputs, ends, strict=False):
            slot.queue.launch(kernel, -(-n_rows // 32), inputs, 0, n_rows, at + first)
        slot.queue.read(self._pinned(slot, "words", ends[-1]), at)

    def _finish_kernels(self, slot: Slot, n_rows: int, state: None) -> list[Words]:
        slot.queue.wait()
        ends = self._word_ends(n_rows)
        data = self._pinned(slot, "words", ends[-1])
        found = []
        for program, first in zip(self._programs, ends, strict=False):
            words = data[first : first + _n_bytes(program, n_rows)].view(program.word)
            found.append(in_parts(words, program.n_parts))
        return found

    def _copy_results(self, found: list[Words]) -> list[Words]:
        return [words.copy() for words in found]

    def _join_results(self, pieces: list[list[Words]], begins: list[int]) -> list[Words]:
        return [np.concatenate(words) for words in zip(*pieces, strict=True)]


def _n_bytes(program: GuardProgram, n_rows: int) -> int:
    """Return the bytes of the words of some rows."""
    return n_rows * program.n_parts * np.dtype(program.word).itemsize


def in_parts(words: Words, n_parts: int) -> Words:
    """Return words as `GuardEvaluator.words` has them: those of more than 16 guards with their parts side by side."""
    return words.reshape(-1, n_parts) if words.dtype == np.uint64 else words


@lru_cache(64)
def _kernel(device: Device, program: GuardProgram) -> Any:
    return device.compile(words_source_of(program), ["cer_query_words"])["cer_query_words"]
