"""Counts of parts of a history, which add up: those of the tasks of a job are those of the whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.backend.forecasts.states import BITS
from cer_gpu.columnar.columns import numbers_of
from cer_gpu.forecast.counting import WaitCounts
from cer_gpu.forecast.reading import MAX_KNOWN_SYMBOLS, OTHER

_FACTS = b"cer_gpu history"
_COUNTS = ("seen_times", "seen_events", "cut_times", "cut_events")


@dataclass(frozen=True)
class HistoryPart:
    """Counts of the events of some substreams.

    Attributes
    ----------
    words : tuple of int
        Bit vectors of the symbols of the states, from 1 on.
    counts : WaitCounts
    n_ends : int
        Events that end a match.
    """

    words: tuple[int, ...]
    counts: WaitCounts
    n_ends: int

    def to_bytes(self) -> bytes:
        """Return it as an Arrow IPC stream."""
        counts = self.counts
        columns = {"states": pa.array(counts.states)}
        for name in _COUNTS:
            each: Int64 = getattr(counts, name)
            columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(each.ravel()), each.shape[1])
        facts = json.dumps({"words": [hex(word) for word in self.words], "n_ends": self.n_ends})
        table = pa.table(columns).replace_schema_metadata({_FACTS: facts})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        written: bytes = sink.getvalue().to_pybytes()
        return written

    @classmethod
    def from_bytes(cls, written: bytes) -> HistoryPart:
        """Return a part that was written."""
        with pa.ipc.open_stream(written) as reader:
            table = reader.read_all().combine_chunks()
        facts = json.loads(table.schema.metadata[_FACTS])
        counted = []
        for name in _COUNTS:
            column = table.column(name).combine_chunks()
            size = column.type.list_size
            counted.append(numbers_of(column.flatten()).reshape(table.num_rows, size).astype(np.int64))
        states = numbers_of(table.column("states").combine_chunks())
        return cls(tuple(int(word, 16) for word in facts["words"]), WaitCounts(states, *counted), facts["n_ends"])


def joined_parts(parts: Sequence[HistoryPart], order: int) -> HistoryPart:
    """Return the counts of the whole history, in an order of states and symbols that does not depend on its parts."""
    words = tuple(sorted({word for part in parts for word in part.words}))[:MAX_KNOWN_SYMBOLS]
    numbers = {word: i + 1 for i, word in enumerate(words)}
    codes = np.concatenate([_renumbered(part, numbers, order) for part in parts])
    states, rows = np.unique(codes, return_inverse=True)
    counted = []
    for name in _COUNTS:
        each = [getattr(part.counts, name) for part in parts]
        sums = np.zeros((len(states), each[0].shape[1]), np.int64)
        np.add.at(sums, rows, np.concatenate(each))
        counted.append(sums)
    return HistoryPart(words, WaitCounts(states, *counted), sum(part.n_ends for part in parts))


def _renumbered(part: HistoryPart, numbers: dict[int, int], order: int) -> Int64:
    """Return the states of a part with other numbers of symbols."""
    own = np.full(OTHER + 1, OTHER, np.int64)
    own[0] = 0
    own[1 : len(part.words) + 1] = [numbers.get(word, OTHER) for word in part.words]
    states = part.counts.states
    made = states >> BITS * order << BITS * order
    for i in range(order):
        made |= own[states >> BITS * i & OTHER] << BITS * i
    return made
