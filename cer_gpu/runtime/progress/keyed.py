"""Funnels whose steps have keys of their own: by ``b.source = a.target`` a start continues with equal values alone.

An event may satisfy steps that read unlike columns of it, and is then of a partition for each of them.  The runtime
reads it once for each: the actions of an event are cut where the columns change, in the order from the last step to the
first.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from cer_gpu.arrays import Bools, Int32
from cer_gpu.automaton.encoding import BARS, END_OF_LIST, MOVES
from cer_gpu.runtime.progress.table import FunnelStep, FunnelTable


class KeyedFunnelTable(FunnelTable):
    """Symbol table of such a funnel.

    Attributes
    ----------
    columns : list of tuple of str
        Different columns that make keys.
    firsts : int32 array, shape (symbols + 1,)
        First of the parts of each symbol.
    parts : int32 array, shape (parts, 2)
        For each part its columns, as a number in `columns`, and its row in `actions`.
    """

    def __init__(self, steps: tuple[FunnelStep, ...]) -> None:
        tests = [(k, MOVES, step.guards, step.keys) for k, step in enumerate(steps)]
        for k, step in enumerate(steps):
            for keys in dict.fromkeys(step.barring_keys):
                guards = tuple(guard for guard, of in zip(step.barring, step.barring_keys, strict=True) if of == keys)
                tests.append((k, BARS, guards, keys))
        self.columns: list[tuple[str, ...]] = list(dict.fromkeys(keys for *_, keys in tests))
        # from the last step to the first, and what moves before what bars
        self._effects = sorted(
            ((k, effect, self.columns.index(keys), sum(1 << guard for guard in set(guards)))
             for k, effect, guards, keys in tests),
            key=lambda test: (-test[0], test[1]),
        )  # fmt: skip
        self.firsts: Int32 = np.zeros(1, np.int32)
        self.parts: Int32 = np.zeros((0, 2), np.int32)
        self._rows: dict[tuple[int, ...], int] = {}
        super().__init__(steps)

    def passed_tests(self, word: int) -> int:
        """Return the effects of an event with a bit vector."""
        return sum(1 << i for i, (*_, mask) in enumerate(self._effects) if word & mask)

    def add_symbol(self, symbol: int, passed: int) -> None:
        """Add a symbol with the effects of its events."""
        effects: list[tuple[int, int, int]] = []
        for i, (k, effect, columns, _) in enumerate(self._effects):
            # an event of the next step is not between: it does not bar
            if passed >> i & 1 and (effect == MOVES or (k, MOVES, columns) not in effects):
                effects.append((k, effect, columns))
        parts = []
        for columns, part in groupby(effects, key=lambda each: each[2]):
            parts.append((columns, self._row(tuple(2 * k + effect for k, effect, _ in part))))
        self.parts = np.concatenate([self.parts, np.array(parts, np.int32).reshape(len(parts), 2)])
        self.firsts = np.append(self.firsts, np.int32(len(self.parts)))
        n = len(self.steps)
        self.ending: Bools = np.append(self.ending, (n - 1, MOVES) in {each[:2] for each in effects})

    def _row(self, actions: tuple[int, ...]) -> int:
        """Return the row of some actions."""
        if actions not in self._rows:
            self._rows[actions] = len(self._rows)
            row = np.full((1, len(self.steps) + 1), END_OF_LIST, np.int32)
            row[0, : len(actions)] = actions
            self.actions: Int32 = np.concatenate([self.actions, row])
        return self._rows[actions]
