"""Symbols of all events, and the events as arrays, between the runtime that reads them and Arrow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cer_gpu.arrays import Bools, Int32, Int64, UInt64
from cer_gpu.automaton.alphabet import NumberedAlphabet


class EventTable(NumberedAlphabet):
    """Symbol table in which each word has a symbol of its own, so that no event is passed over.

    Attributes
    ----------
    words : list of int
        Bit vector of each symbol; that of symbol 0, which no event has, is 0.
    """

    def __init__(self) -> None:
        self.has_gaps = False
        self.labels: list[frozenset[str]] = [frozenset()]
        self.ending: Bools = np.zeros(0, np.bool_)
        self.words: list[int] = []
        super().__init__()

    def passed_tests(self, word: int) -> int:
        """Return the bit vector with a bit that every event has, before all others."""
        return 2 * word + 1

    def add_symbol(self, symbol: int, passed: int) -> None:
        """Add a new symbol to the tables."""
        self.words.append(passed >> 1)
        self.ending = np.append(self.ending, False)


@dataclass(frozen=True)
class EventBuffers:
    """Events in their order, in memory of their own.

    Attributes
    ----------
    ends : int64, shape (n,)
        Their positions.
    times : int64, shape (n,), or (0,)
    partitions : int32, shape (n,)
    states : int64, shape (n,)
        States of their substreams after them.
    clocks : uint64, shape (n,)
        The bits of the clocks of ages.
    """

    ends: Int64
    times: Int64
    partitions: Int32
    states: Int64
    clocks: UInt64

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.ends)

    @property
    def n_matches(self) -> int:
        """The number of events: one a row."""
        return len(self)


NO_EVENTS = EventBuffers(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.uint64)
)
