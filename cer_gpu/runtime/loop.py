"""The base of the two runtimes that read a determinised automaton: partitions, active states and their slots."""

from __future__ import annotations

from typing import Any

import numpy as np

from cer_gpu.arrays import Array, Bools
from cer_gpu.automaton.determinize import Determinization
from cer_gpu.automaton.encoding import GLOBAL_WINDOW
from cer_gpu.backend import collection, tecs
from cer_gpu.backend.arguments import Tables, plain
from cer_gpu.runtime.events import RunOptions
from cer_gpu.runtime.protocol import Runtime


class Loop(Runtime):
    """The state of one evaluation, as the arrays that a loop works on.

    Parameters
    ----------
    table
        The determinised automaton.
    options
    slots
        An array of no slots, in the layout of the loop.

    Attributes
    ----------
    base : int
        The position that starts are counted from.
    last_low : int
        Under GLOBAL_WINDOW, a position before which nothing is in the window of the last relevant event.
    """

    N_PART = tecs.N_PART

    reads_chain = False
    keeps_partitions = True

    def __init__(self, table: Determinization, options: RunOptions, slots: Array) -> None:
        self.table = table
        self.options = options
        self.base = 0
        self.last_low = 0
        self._regs = np.zeros(tecs.N_REGS, np.int64)
        self._regs[tecs.CURRENT] = self._regs[tecs.FREE_SLOT] = -1
        self._parts = np.zeros((0, self.N_PART), np.int64)
        self._slots = slots
        self._slot_of = np.zeros(0, np.int32)
        self._options = options.as_group
        self.reserve_partitions(1)

    @property
    def _lists(self) -> tecs.Lists:
        return tecs.Lists(self._regs, self._parts, self._slots, self._slot_of)

    @property
    def needs_lows(self) -> bool:
        """True where a window ends for all partitions at once."""
        return self.options.window == GLOBAL_WINDOW

    @property
    def numbers_events(self) -> bool:
        """True where starts are numbered in each partition by itself."""
        return self.options.numbers_its_partitions

    @property
    def n_relevant(self) -> int:
        """The ordinal of the next relevant event."""
        return int(self._regs[tecs.ORDINAL])

    # ---- partitions -----------------------------------------------------------------------------------------

    def idle(self, n_partitions: int) -> Bools:
        """Return which of the first partitions hold nothing, after what has expired is dropped."""
        options, idle = self.options, np.zeros(n_partitions, np.bool_)
        low = self.last_low - self.base if options.window == GLOBAL_WINDOW else 0
        collection.drop_expired(*plain(self._lists, self._options), n_partitions, low, idle)
        return idle

    def keep_partitions(self, mask: Bools) -> None:
        """Drop the partitions outside `mask` and renumber the others in order."""
        self._slot_of.fill(-1)
        self._regs[tecs.CURRENT] = -1
        self._parts = self._parts[: len(mask)][mask]
        self.reserve_partitions(max(1, len(self._parts)))

    def reserve_partitions(self, n: int) -> None:
        """Reserve memory for `n` partitions."""
        old = len(self._parts)
        if n > old:
            added = np.full((max(n, 2 * old) - old, self.N_PART), -1, np.int64)
            added[:, tecs.CONTROL] = added[:, tecs.ORIGIN] = 0
            added[:, tecs.PREVIOUS], added[:, tecs.EPOCH] = -2, self._regs[tecs.CONSUMED]
            self._parts = np.concatenate([self._parts, added])

    # ---- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays by name, from which `restore` continues."""
        return {"regs": self._regs, "parts": self._parts, "slots": self._slots}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._regs, self._parts, self._slots = snapshot["regs"], snapshot["parts"], snapshot["slots"]
        self._regs[tecs.CURRENT] = -1
        self._reserve_states()

    # ---- memory -----------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        """Compute the steps that are missing at the open event."""
        part = self._parts[self._regs[tecs.CURRENT]]
        active, slot = [], int(part[tecs.HEAD])
        while slot >= 0:
            active.append(int(self._slots[slot, tecs.STATE]))
            slot = int(self._slots[slot, tecs.NEXT_SLOT])
        self.table.resolve(int(self._regs[tecs.WANTED]), active, int(part[tecs.CONTROL]))
        self._reserve_states()

    def _reserve_states(self) -> None:
        """Make space for every determinised state."""
        old, n_states = len(self._slot_of), self.table.n_states
        if old < n_states or not old:
            size = max(2 * n_states, 4)
            self._slot_of = np.concatenate([self._slot_of, np.full(size - old, -1, np.int32)])
            self._reserve_for(size)

    def _reserve_for(self, n_states: int) -> None:
        """Make space for `n_states` states where the loop needs it."""
        raise NotImplementedError

    def _grow_slots(self) -> None:
        """Reserve memory for twice as many slots; the new ones are free."""
        old, width = self._slots.shape
        n = max(2 * old, 8)
        slots = np.zeros((n, width), self._slots.dtype)
        slots[:old] = self._slots
        slots[old:, tecs.NEXT_SLOT] = np.arange(old + 1, n + 1)
        slots[-1, tecs.NEXT_SLOT] = self._regs[tecs.FREE_SLOT]
        self._regs[tecs.FREE_SLOT] = old
        self._regs[tecs.N_FREE] += n - old
        self._slots = slots


def tables_of(table: Determinization) -> Tables:
    """Return the tables of a determinised automaton as the loops take them."""
    return Tables(table.steps, table.touched, table.steady, table.fresh, table.moves, table.max_moves, table.has_gaps)
