"""CEA -> I/O-deterministic tables, made on demand while the stream is read.

papers: CORE, section 5.4 (determinisation on the fly over bit vectors); CEL, section 6.  A determinised state is a
set of CEA states.  Where we differ: outputs stand on *transitions*, not on states, so that a state which only
announced a match is no state of its own and an event that changes nothing is seen to change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cer_gpu.automaton.cea import ANY, CEA, FINAL, INITIAL
from cer_gpu.errors import QueryTooLargeError

QUIET = 0
"""The symbol of events that no transition but the waiting loops can read: they are dropped before the loop."""

# flags of an action; the loop in `cer_gpu.backend.evaluation` reads them
MARK_OUTPUT, UNMARK_OUTPUT, UNKNOWN = 1, 2, 4

MAX_STATES = 4096
MAX_SYMBOLS = 1 << 16
MAX_TABLE = 1 << 22
"""Rows of the action table: states times symbols."""


@dataclass(frozen=True)
class Step:
    """What one determinised state does on one symbol: targets are state numbers, -1 for none."""

    mark_target: int
    mark_output: bool
    unmark_target: int
    unmark_output: bool


class Determinization:
    """The states, symbols and transitions met so far, and the action table that the loop runs on.

    Attributes
    ----------
    actions : int32 array, shape (n symbols, n actions, 4)
        ``actions[s, k]`` for ``k < n_actions[s]`` is (state, mark target, unmark target, flags), in the order of the
        states; the loop reads them backward.  States that symbol `s` leaves as they are (an unmarked loop without
        output) have no action.
    n_actions : int32 array, shape (n symbols,)
    """

    def __init__(self, cea: CEA) -> None:
        self.cea = cea
        reach = _silent_closure(cea)
        reading = 0
        for t in cea.transitions:
            reading |= 1 << t.source
        # a target stands for the states that can read an event, and for whether the final state is reached
        self._target = [(mask & reading, bool(mask >> FINAL & 1)) for mask in reach]
        self._sets: list[int] = [reach[INITIAL] & reading]  # state 0 is the initial one
        self._states: dict[int, int] = {}  # no run enters it again, though another state may read the same
        # transitions that differ in their guards alone do the same: a symbol says which of these edges fire
        edges: dict[tuple[int, bool, int], list[tuple[int, bool]]] = {}
        for t in cea.transitions:
            edges.setdefault((t.source, t.marked, t.target), []).append((t.guard, t.negated))
        self._edges = list(edges)
        self._guards = list(edges.values())
        self._symbols: dict[int, int] = {}  # by the bit mask of the edges that fire
        self._fired: list[int] = []
        self._steps: dict[tuple[int, int], Step] = {}
        self.actions: npt.NDArray[np.int32] = np.zeros((4, 4, 4), np.int32)
        self.n_actions: npt.NDArray[np.int32] = np.zeros(4, np.int32)
        waiting = [any(guard == ANY for guard, _ in guards) for guards in self._guards]
        assert self._symbol(sum(1 << i for i, fires in enumerate(waiting) if fires)) == QUIET

    @property
    def n_states(self) -> int:
        """The number of determinised states met so far."""
        return len(self._sets)

    @property
    def n_symbols(self) -> int:
        """The number of symbols met so far."""
        return len(self._fired)

    def symbol(self, word: int) -> int:
        """Return the symbol of a bit vector (bit g: the event satisfies guard g)."""
        fired = 0
        for i, guards in enumerate(self._guards):
            if any(guard == ANY or (word >> guard & 1) != negated for guard, negated in guards):
                fired |= 1 << i
        return self._symbol(fired)

    def step(self, state: int, symbol: int) -> Step:
        """Return the transition of one state on one symbol, computed at the first call (linear in the CEA)."""
        known = self._steps.get((state, symbol))
        if known is not None:
            return known
        inside, fired = self._sets[state], self._fired[symbol]
        masks, outputs = [0, 0], [False, False]
        for i, (source, marked, target) in enumerate(self._edges):
            if fired >> i & 1 and inside >> source & 1:
                mask, final = self._target[target]
                masks[marked] |= mask
                outputs[marked] |= final
        step = Step(self._state(masks[1]), outputs[1], self._state(masks[0]), outputs[0])
        self._steps[state, symbol] = step
        return step

    def resolve(self, symbol: int, active: npt.NDArray[np.int32]) -> None:
        """Compute the actions on one symbol of the initial state and of the `active` states."""
        wanted = sorted({0, *map(int, active)})
        steps = [self.step(state, symbol) for state in wanted]
        rows = self.actions[symbol, : self.n_actions[symbol]]
        places = np.searchsorted(rows[:, 0], wanted)
        keep = np.ones(len(rows), np.bool_)
        for state, step, place in zip(wanted, steps, places.tolist(), strict=True):
            if place == len(rows) or rows[place, 0] != state or not rows[place, 3] & UNKNOWN:
                continue  # resolved before
            flags = MARK_OUTPUT * step.mark_output | UNMARK_OUTPUT * step.unmark_output
            rows[place] = (state, step.mark_target, step.unmark_target, flags)
            keep[place] = step != (Step(-1, False, -1, False) if state == 0 else Step(-1, False, state, False))
        self.n_actions[symbol] = keep.sum()
        rows[: self.n_actions[symbol]] = rows[keep]

    def _symbol(self, fired: int) -> int:
        symbol = self._symbols.get(fired)
        if symbol is None:
            symbol = self._symbols[fired] = len(self._fired)
            self._fired.append(fired)
            self._reserve()
            n_states = self.n_states
            self.n_actions[symbol] = n_states
            self.actions[symbol, :n_states] = (0, -1, -1, UNKNOWN)
            self.actions[symbol, :n_states, 0] = np.arange(n_states)
        return symbol

    def _state(self, inside: int) -> int:
        if not inside:
            return -1
        state = self._states.get(inside)
        if state is None:
            state = self._states[inside] = len(self._sets)
            self._sets.append(inside)
            self._reserve()
            symbols = np.arange(self.n_symbols)
            self.actions[symbols, self.n_actions[symbols]] = (state, -1, -1, UNKNOWN)
            self.n_actions[symbols] += 1
        return state

    def _reserve(self) -> None:
        """Make room for the states and symbols there are; a query that needs too many is refused."""
        n_symbols, n_rows = self.actions.shape[:2]
        while n_symbols < self.n_symbols:
            n_symbols *= 2
        while n_rows < self.n_states:
            n_rows *= 2
        if self.n_states > MAX_STATES or self.n_symbols > MAX_SYMBOLS or n_symbols * n_rows > MAX_TABLE:
            raise QueryTooLargeError(
                f"the determinised automaton passes its bound: {self.n_states} states and {self.n_symbols} symbols "
                f"met (at most {MAX_STATES} states, {MAX_SYMBOLS} symbols, {MAX_TABLE} of both together)",
                hint="fewer overlapping predicates under + and OR, or a contiguous operator, need fewer states",
            )
        if (n_symbols, n_rows) != self.actions.shape[:2]:
            actions = np.zeros((n_symbols, n_rows, 4), np.int32)
            actions[: self.actions.shape[0], : self.actions.shape[1]] = self.actions
            n_actions = np.zeros(n_symbols, np.int32)
            n_actions[: self.n_actions.shape[0]] = self.n_actions
            self.actions, self.n_actions = actions, n_actions


def _silent_closure(cea: CEA) -> list[int]:
    """Return for each state the bit mask of the states that silent steps reach from it, itself included."""
    onward: list[list[int]] = [[] for _ in range(cea.n_states)]
    for source, target in cea.silent:
        onward[source].append(target)
    masks = []
    for state in range(cea.n_states):
        mask, todo = 1 << state, [state]
        while todo:
            for target in onward[todo.pop()]:
                if not mask >> target & 1:
                    mask |= 1 << target
                    todo.append(target)
        masks.append(mask)
    return masks
