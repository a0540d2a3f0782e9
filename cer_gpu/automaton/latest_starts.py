"""The latest start of the runs in each state of a CEA: enough to know whether a match that ends began in a window.

A symbol moves latest starts from state to state: that of a state after an event is the greatest of those of the states
from which the event leads there.  Marks are ignored, so nothing is determinised.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.arrays import Bools, Int32
from cer_gpu.automaton.cea import CEA
from cer_gpu.automaton.determinize import Determinization
from cer_gpu.automaton.encoding import ENDED_START, FIRST_START, FRESH_START, NO_START
from cer_gpu.automaton.selection import END, Reader
from cer_gpu.automaton.strategies import Strategy


class LatestStarts:
    """Moves of latest starts, by symbol.

    Parameters
    ----------
    reader

    Attributes
    ----------
    n_columns : int
        Columns of a row of latest starts: the first three of `cer_gpu.automaton.encoding`, then one for each state.
    begins : int32 array, shape (symbols + 1,)
        First of the `moves` of each symbol.
    moves : int32 array, shape (n, 2)
        (target column, source column), those of one target together; a target that only keeps its own is left out.
    fresh : bool array, shape (symbols,)
        True for symbols at whose events runs begin.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        states = [i for i in range(reader.states.bit_length()) if reader.states >> i & 1]
        self._columns = {state: FIRST_START + k for k, state in enumerate(states)}
        self.n_columns: int = FIRST_START + len(states)
        self.begins: Int32 = np.zeros(1, np.int32)
        self.moves: Int32 = np.zeros((0, 2), np.int32)
        self.fresh: Bools = np.zeros(0, np.bool_)

    def add(self, fired: list[int]) -> None:
        """Add the symbols that are new in a list of all: each is the bit mask of the edges that fire."""
        n_known = len(self.begins) - 1
        if n_known == len(fired):
            return
        moves_of_new = [self._moves_of(each) for each in fired[n_known:]]
        ends = int(self.begins[-1]) + np.cumsum([len(moves) for moves in moves_of_new])
        self.begins = np.concatenate([self.begins, ends.astype(np.int32)])
        begin = [any(source == FRESH_START for _, source in moves) for moves in moves_of_new]
        self.fresh = np.concatenate([self.fresh, np.array(begin, np.bool_)])
        self.moves = np.concatenate([self.moves, *(np.array(moves, np.int32).reshape(-1, 2) for moves in moves_of_new)])

    def _moves_of(self, fired: int) -> list[tuple[int, int]]:
        sources: dict[int, set[int]] = {column: set() for column in self._columns.values()}
        sources[ENDED_START] = set()
        for state, column in self._columns.items():
            reached = 0
            for target in self._reader.read(1 << state, fired).values():
                reached |= target
            if reached & END:
                sources[ENDED_START].add(column)
            for other, target in self._columns.items():
                if reached >> other & 1:
                    sources[target].add(column)
            if self._reader.initial >> state & 1:
                for columns in sources.values():
                    if column in columns:
                        columns.add(FRESH_START)
        moves = []
        for target, columns in sources.items():
            if FRESH_START in columns:  # no start is later
                moves.append((target, FRESH_START))
            elif columns != {target}:
                moves += [(target, source) for source in sorted(columns)] or [(target, NO_START)]
        return [move for move in moves if move != (ENDED_START, NO_START)]


class WindowTable(Determinization):
    """Determinised automaton of a strategy, and the latest starts that show where it has to choose.

    Attributes
    ----------
    latest : LatestStarts
        With the moves of the symbols that were met when `latest_starts` was last called.
    """

    def __init__(self, cea: CEA, strategy: Strategy, *, labelled: bool = False) -> None:
        super().__init__(cea, strategy, labelled=labelled)
        self.latest: LatestStarts = LatestStarts(self._reader)

    def latest_starts(self) -> LatestStarts:
        """Return `latest`, with the moves of all symbols met so far."""
        self.latest.add(self._fired)
        return self.latest
