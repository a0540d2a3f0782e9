"""Sums by which the matches of a chain are counted: for each symbol, additions among the numbers of runs.

A row of numbers stands for each place at which a run can be: a step, with the number of its events so far where that
matters.  An event adds rows to rows, by its steps, and a gap that it bars clears what waits for the gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cer_gpu.arrays import Int32
from cer_gpu.automaton.chain import Chain, ChainStep
from cer_gpu.automaton.encoding import CLEARED, END_OF_LIST, SUM_BEGINS, SUM_ENDS

MAX_ROWS = 24
"""Rows up to which the sums pay: an event costs up to the square of their number."""

Sum = tuple[int, int, int]
"""Row `target`, to which row `source` is added (CLEARED: it becomes zero); and 1 if it is doubled before."""


@dataclass(frozen=True)
class Weighing:
    """Weights of the events of a chain, which are added up along each run.

    Attributes
    ----------
    steps : tuple of int
        Steps whose events have a weight; none is repeated.
    least : bool
        True: the least weight of the runs is wanted; False: the sum of all.
    whole : bool
        True: weights are integers.
    """

    steps: tuple[int, ...]
    least: bool
    whole: bool


class _Rows:
    """The rows of a step.

    Attributes
    ----------
    counts : range
        Row of the runs with 1, 2, ... events of the step; the last one counts those with more, too, where `loops`.
    done : list of int
        Rows of the runs that may go on to the next step.
    apart : int or None
        Row of such runs, where they are fewer than those at the step: a gap may cut them off, or others follow only the
        last event.
    """

    def __init__(self, step: ChainStep, first: int, *, last: bool, gap_follows: bool) -> None:
        self.step = step
        self.loops = step.repeated and step.n_max is None
        n = 1 if not step.repeated else step.n_min if step.n_max is None else step.n_max
        if last and not self.loops:
            n -= 1  # nothing follows the last event
        self.counts = range(first, first + n)
        self.apart = self.counts.stop if not last and step.repeated and (gap_follows or step.linked) else None
        self.done = [self.apart] if self.apart is not None else list(self.counts[step.n_min - 1 :])

    @property
    def stop(self) -> int:
        """The row after those of the step."""
        return self.counts.stop + (self.apart is not None)

    def completing(self, entries: Sequence[int]) -> list[int]:
        """Return the rows whose runs complete the step with the next event, given those that begin it."""
        step = self.step
        sources = list(entries) if step.n_min == 1 else []
        if step.repeated:
            stop = len(self.counts) + 1 if step.n_max is None else step.n_max
            sources += [self.counts[c - 2] for c in range(max(step.n_min, 2), stop)]
            sources += [self.counts[-1]] if self.loops else [self.counts[step.n_max - 2]] if step.n_max else []
        return sources

    def sums(self, entries: Sequence[int]) -> Iterator[Sum]:
        """Yield what an event of the step does, given the rows that begin it."""
        if self.apart is not None:
            for source in self.completing(entries):
                yield self.apart, source, 0
        for c in reversed(range(len(self.counts))):
            target, tail = self.counts[c], self.loops and c == len(self.counts) - 1
            if self.step.linked and not tail:
                yield target, CLEARED, 0
            sources = entries if c == 0 else [self.counts[c - 1]]
            for number, source in enumerate(sources):
                yield target, source, int(tail and not self.step.linked and number == 0)


def _sum_rows(steps: Sequence[ChainStep]) -> list[_Rows]:
    rows: list[_Rows] = []
    for k, step in enumerate(steps):
        last = k == len(steps) - 1
        gap_follows = not last and bool(steps[k + 1].barring)
        rows.append(_Rows(step, rows[-1].stop if rows else 1, last=last, gap_follows=gap_follows))
    return rows


def n_sums(steps: Sequence[ChainStep]) -> int:
    """Return how many rows the sums of a chain have, beyond the first."""
    return _sum_rows(steps)[-1].stop - 1


class ChainSums:
    """The sums of each symbol of a chain.

    Attributes
    ----------
    n_rows : int
        Rows beyond row 0, that of a run that begins.
    finals : int32 array, shape (finals,)
        Rows whose runs end with the next event of the last step.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._rows = _sum_rows(chain.steps)
        self.n_rows: int = self._rows[-1].stop - 1
        self.finals: Int32 = np.array(self._rows[-1].completing(self._entries(len(chain.steps) - 1)), np.int32)
        self._n_numbered = 0
        self._of: Int32 = np.zeros((0, 2), np.int32)

    @property
    def of_symbols(self) -> Int32:
        """Flags, then the sums in their order, then `END_OF_LIST`; int32, shape (symbols, width)."""
        n = len(self._chain.steps_of)
        if len(self._of) < n or self._chain.n_symbols > self._n_numbered:
            sums = [self._sums(symbol) for symbol in range(n)]
            self._n_numbered = self._chain.n_symbols
            self._of = np.full((n, max(map(len, sums)) + 1), END_OF_LIST, np.int32)
            for row, each in zip(self._of, sums, strict=True):
                row[: len(each)] = each
        return self._of

    def weight_of(self, steps: Sequence[int]) -> Int32:
        """Return the column of the weight that goes with each row, and at last with the end of runs; -1 for none.

        `steps` are those of `Weighing`: their events have a weight.
        """
        columns = np.full(self.n_rows + 2, -1, np.int32)
        for column, step in enumerate(steps):
            columns[-1 if step == len(self._rows) - 1 else self._rows[step].counts[0]] = column
        return columns

    def _entries(self, k: int) -> list[int]:
        return self._rows[k - 1].done if k else [0]

    def _sums(self, symbol: int) -> list[int]:
        chain = self._chain
        satisfied = chain.steps_of[symbol].tolist()
        barred = chain.bars[symbol].tolist() if chain.is_gapped else []
        flags = SUM_BEGINS * (0 in satisfied) + SUM_ENDS * (len(chain.steps) - 1 in satisfied)
        sums: list[Sum] = []
        # from the last step down: each reads the rows before it before the event is there
        for k in reversed(range(len(chain.steps))):
            if k in satisfied:
                sums += self._rows[k].sums(self._entries(k))
            if k in barred:
                sums += [(row, CLEARED, 0) for row in self._entries(k)]
        return [flags, *(part for each in sums for part in each)]
