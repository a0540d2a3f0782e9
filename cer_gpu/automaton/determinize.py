"""On-the-fly determinisation: I/O-deterministic tables of a CEA, made on demand while the stream is read.

papers: CORE, section 5.4 (`ExecTrans` over bit vectors); CEL, section 6 and appendix D.3.  The selection strategy
defines the determinised states (`cer_gpu.automaton.selection`).  We differ in that outputs are on *transitions*, not
on states: no state is needed only to announce a match, and an event that changes nothing leaves its state as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from cer_gpu.arrays import Bools, Int32
from cer_gpu.automaton.alphabet import Table
from cer_gpu.automaton.cea import ANY, CEA, FINAL, INITIAL, Transition
from cer_gpu.automaton.encoding import (
    DIES,
    END_OF_LIST,
    EVERY,
    FIRST_MOVE,
    FLAGS,
    LAST_MOVE,
    N_SOURCES,
    NO_STATE,
    NOT_STEADY,
    OUTPUT_MOVE,
    QUIET,
    SOURCE_WIDTH,
    SOURCES,
    STAY,
    UNKNOWN,
)
from cer_gpu.automaton.selection import Key, Move, Reader
from cer_gpu.automaton.strategies import ALL, Strategy
from cer_gpu.errors import QueryTooLargeError

MAX_TOUCHED = 8
"""Most states in a row of `touched`; for a symbol that touches more, the loops walk the active states."""
LIST_UP_TO = 64
"""Most states of a determinisation whose `touched` is listed at all."""

MAX_STATES = 4096
MAX_SYMBOLS = 1 << 16
MAX_TABLE = 1 << 22
"""Most entries of `Determinization.steps`: states times symbols."""


class Determinization(Table):
    """Determinised states, symbols and transitions met so far, as the tables that the loops read.

    Parameters
    ----------
    cea
    strategy
    labelled
        True: each set of selected variables that holds an event is a mark of its own ("bindings"); False: one mark.

    Attributes
    ----------
    steps : int32 array, shape (symbols, states)
        Step of a state on a symbol: the index of the first of its `moves`, `UNKNOWN`, or `STAY` (nothing changes).
    touched : int32 array, shape (symbols, MAX_TOUCHED + 1)
        States that do not `STAY` on a symbol, or may not, the latest first, then `END_OF_LIST`; `EVERY`: too many.
    steady : int32 array, shape (symbols, SOURCES + SOURCE_WIDTH * (MAX_TOUCHED + 1))
        A symbol is steady if every run skips its events, runs in some states (the sources) also mark them and move to
        a target, and no run ends: the number of sources, and (state, mark, target) for each, with state `NO_STATE` for
        a run that begins.  The number is `NOT_STEADY` for other symbols, and until all steps on the symbol are known.
    fresh : int32 array, shape (symbols, controls, 2)
        First of the `moves` of a run that begins (`UNKNOWN`; `STAY`: there are none), and the next control.
    moves : int32 array, shape (n, 3)
        (mark, target state or `NO_STATE`, flags); mark 0: the event is not marked; LAST_MOVE flags the last of a step.
    ending : bool array, shape (symbols,)
        True for symbols whose events may end matches.
    labels : list of frozenset of str
        Variables of each mark.
    has_gaps : bool
        True if an event that fires only the waiting loops can end runs (contiguity).
    max_moves : int
        Most moves of a step.
    """

    def __init__(self, cea: CEA, strategy: Strategy = ALL, *, labelled: bool = False) -> None:
        _check_length(cea)
        self.labels: list[frozenset[str]] = [frozenset[str]()]
        marks = {frozenset[str](): 0}
        # transitions that differ in their guards alone are one edge: a symbol is a set of edges that fire
        edges: dict[tuple[int, int, int], list[Transition]] = {}
        for t in cea.transitions:
            if labelled and t.selected not in marks:
                marks[t.selected] = len(self.labels)
                self.labels.append(t.selected)
            mark = marks[t.selected] if labelled else int(bool(t.selected))
            edges.setdefault((t.source, mark, t.target), []).append(t)
        self._edges = list(edges.values())
        # what an event that satisfies no guard, and passes no test because of that, fires
        waiting = sum(1 << i for i, each in enumerate(self._edges) if any(t.guard == ANY and t.fires(0) for t in each))
        closure = _silent_closure(cea)
        self._last = sum(1 << i for i, (_, _, target) in enumerate(edges) if closure[target] >> FINAL & 1)
        self._reader = reader = Reader(list(edges), closure)
        self.has_gaps: bool = strategy.consecutive or not reader.is_quiet(waiting)
        self.max_moves: int = 1 + max(mark for _, mark, _ in edges)

        self._selection = strategy.selection(reader)
        self._keys: list[Key] = []
        self._states: dict[Key, int] = {}
        self._controls: dict[Key, int] = {}
        self._control_keys: list[Key] = []
        self._symbols: dict[int, int] = {}  # symbol by the bit mask of the edges that fire
        self._fired: list[int] = []
        self.ending: Bools = np.zeros(4, np.bool_)
        self.steps: Int32 = np.full((4, 4), UNKNOWN, np.int32)
        self.touched: Int32 = np.full((4, MAX_TOUCHED + 1), END_OF_LIST, np.int32)
        self.steady: Int32 = np.full((4, SOURCES + SOURCE_WIDTH * (MAX_TOUCHED + 1)), NOT_STEADY, np.int32)
        self.fresh: Int32 = np.full((4, 1, 2), UNKNOWN, np.int32)
        self.moves: Int32 = np.zeros((16, 3), np.int32)
        self._n_moves = 0
        self._add_moves([Move(0, None, False)])
        self._control(self._selection.control)
        assert self._symbol(waiting) == QUIET

    @property
    def n_states(self) -> int:
        """Number of determinised states met so far."""
        return len(self._keys)

    @property
    def n_symbols(self) -> int:
        """Number of symbols met so far."""
        return len(self._fired)

    def states_of(self, state: int) -> list[int]:
        """Return the CEA states of the runs in a determinised state."""
        mask = self._selection.inside(self._keys[state])
        return [i for i in range(mask.bit_length()) if mask >> i & 1]

    def symbol(self, word: int) -> int:
        """Return the symbol of a bit vector (bit g: the event satisfies guard g)."""
        fired = 0
        for i, transitions in enumerate(self._edges):
            if any(t.fires(word) for t in transitions):
                fired |= 1 << i
        return self._symbol(fired)

    def resolve(self, symbol: int, states: Iterable[int], control: int) -> None:
        """Compute the steps on a symbol of `states`, and of a run that begins under `control` (linear in the CEA)."""
        if self.fresh[symbol, control, FIRST_MOVE] == UNKNOWN:
            self._resolve_fresh(symbol, control)
        for state in sorted(map(int, states)):
            if self.steps[symbol, state] == UNKNOWN:
                self._resolve_step(symbol, state)

    def _resolve_fresh(self, symbol: int, control: int) -> None:
        moves, onward = self._selection.fresh(self._control_keys[control], self._fired[symbol])
        entry = (self._add_moves(moves) if moves else STAY, self._control(onward))  # the tables may grow
        self.fresh[symbol, control] = entry
        self._note_steady(symbol)

    def _resolve_step(self, symbol: int, state: int) -> None:
        moves = self._selection.step(self._keys[state], self._fired[symbol])
        stays = moves == [Move(0, self._keys[state], False)]
        entry = STAY if stays else self._add_moves(moves) if moves else DIES
        self.steps[symbol, state] = entry
        self._list_touched(symbol)

    def _list_touched(self, symbol: int) -> None:
        row = self.touched[symbol]
        row.fill(END_OF_LIST)
        row[0] = EVERY
        if self.n_states <= LIST_UP_TO:
            states = np.flatnonzero(self.steps[symbol, : self.n_states] != STAY)[::-1]
            if len(states) <= MAX_TOUCHED:
                row[: len(states) + 1] = [*states, END_OF_LIST]
        self._note_steady(symbol)

    def _note_steady(self, symbol: int) -> None:
        row = self.steady[symbol]
        row[N_SOURCES] = NOT_STEADY
        first = self.fresh[symbol, 0, FIRST_MOVE]
        if first == UNKNOWN or len(self._control_keys) > 1 or self.touched[symbol, 0] == EVERY:
            return
        source_moves = []
        for state in self.touched[symbol, : np.argmin(self.touched[symbol])].tolist():
            step = self.steps[symbol, state]
            moves = self._moves_at(step) if step > DIES else []
            if len(moves) != 2 or moves[0] != (0, state, 0):
                return
            source_moves.append((state, moves[1]))
        begins = [] if first == STAY else self._moves_at(first)
        if len(begins) > 1:
            return
        source_moves += [(NO_STATE, move) for move in begins]
        if any(target == NO_STATE or flags & OUTPUT_MOVE for _, (_, target, flags) in source_moves):
            return
        sources = [(state, mark, target) for state, (mark, target, _) in source_moves]
        row[SOURCES : SOURCES + SOURCE_WIDTH * len(sources)] = np.ravel(sources)
        row[N_SOURCES] = len(sources)

    def _moves_at(self, first: int) -> list[tuple[int, int, int]]:
        """Return the moves of a step, given the index of the first."""
        end = first
        while not self.moves[end, FLAGS] & LAST_MOVE:
            end += 1
        return [tuple(move) for move in self.moves[first : end + 1].tolist()]

    def met(self, n_shown: int) -> dict[str, Any]:
        """Return the numbers of states and symbols met, and the CEA states of the first `n_shown` states."""
        shown = [self.states_of(state) for state in range(min(self.n_states, n_shown))]
        return {"n_states": self.n_states, "n_symbols": self.n_symbols, "states": shown}

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the numbering of states, controls and symbols, and the known steps, for JSON."""
        return {
            "states": self._keys,
            "controls": self._control_keys,
            "symbols": self._fired,
            "steps": np.argwhere(self.steps != UNKNOWN).tolist(),
            "fresh": np.argwhere(self.fresh[:, :, FIRST_MOVE] != UNKNOWN).tolist(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Adopt numbering and known steps of another evaluation of the same query: counting looks back on the steps."""
        for fired in snapshot["symbols"]:
            self._symbol(fired)
        for key in snapshot["controls"]:
            self._control(_frozen(key))
        for key in snapshot["states"]:
            self._determinized_state(_frozen(key))
        for symbol, control in snapshot["fresh"]:
            self._resolve_fresh(symbol, control)
        for symbol, state in snapshot["steps"]:
            self._resolve_step(symbol, state)

    # ---- numbering ------------------------------------------------------------------------------------------

    def _symbol(self, fired: int) -> int:
        symbol = self._symbols.get(fired)
        if symbol is None:
            symbol = self._symbols[fired] = len(self._fired)
            self._fired.append(fired)
            self._reserve()
            self.ending = np.resize(self.ending, len(self.steps))
            self.ending[symbol] = fired & self._last != 0
        return symbol

    def _determinized_state(self, key: Key) -> int:
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = len(self._keys)
            self._keys.append(key)
            self._reserve()
            if self.n_states <= LIST_UP_TO + 1:
                for symbol in range(len(self.touched)):
                    self._list_touched(symbol)
        return state

    def _control(self, key: Key) -> int:
        control = self._controls.get(key)
        if control is None:
            control = self._controls[key] = len(self._control_keys)
            self._control_keys.append(key)
            self._reserve()
            if control:
                self.steady[:, N_SOURCES] = NOT_STEADY
        return control

    def _add_moves(self, moves: list[Move]) -> int:
        rows = [
            (m.mark, NO_STATE if m.target is None else self._determinized_state(m.target), OUTPUT_MOVE * m.output)
            for m in moves
        ]
        first = self._n_moves
        self._n_moves += len(rows)
        while self._n_moves > len(self.moves):
            self.moves = np.concatenate([self.moves, np.zeros_like(self.moves)])
        self.moves[first : self._n_moves] = rows
        self.moves[self._n_moves - 1, FLAGS] |= LAST_MOVE
        return first

    def _reserve(self) -> None:
        """Allocate space for all states and symbols; refuse a query that needs too many."""
        n_states = max(self.n_states, len(self._control_keys))
        n_symbols = self.n_symbols
        if n_states > MAX_STATES or n_symbols > MAX_SYMBOLS or n_states * n_symbols > MAX_TABLE:
            raise QueryTooLargeError(
                f"the determinised automaton passes its bound: {n_states} states and {n_symbols} symbols "
                f"met (at most {MAX_STATES} states, {MAX_SYMBOLS} symbols, {MAX_TABLE} of both together)",
                hint="fewer overlapping predicates under + and OR, a contiguous operator, or another selection "
                "strategy need fewer states",
            )
        self.steps = _grown(self.steps, n_symbols, self.n_states)
        self.fresh = _grown(self.fresh, n_symbols, len(self._control_keys))
        self.steady = _grown(self.steady, len(self.steps), 0)
        if len(self.touched) < len(self.steps):
            n_listed = len(self.touched)
            self.touched = np.resize(self.touched, (len(self.steps), MAX_TOUCHED + 1))
            for symbol in range(n_listed, len(self.touched)):
                self._list_touched(symbol)


def _grown(table: Int32, n_rows: int, n_columns: int) -> Int32:
    """Return the table with space for `n_rows` and `n_columns`; a dimension that is too small is doubled."""
    rows, columns = table.shape[:2]
    if n_rows <= rows and n_columns <= columns:
        return table
    rows = rows if n_rows <= rows else max(2 * rows, n_rows)
    columns = columns if n_columns <= columns else max(2 * columns, n_columns)
    grown = np.full((rows, columns, *table.shape[2:]), UNKNOWN, np.int32)
    grown[: table.shape[0], : table.shape[1]] = table
    return grown


def _frozen(key: Any) -> Key:
    return tuple(map(_frozen, key)) if isinstance(key, list) else key


def _check_length(cea: CEA) -> None:
    """Refuse an automaton whose matches all pass through too many determinised states, before any of them is built.

    A step leads the runs of a determinised state at most one event nearer to the end, so that a match of at least n
    events passes through n states.
    """
    onward: list[list[tuple[int, int]]] = [[] for _ in range(cea.n_states)]
    for source, target in cea.silent:
        onward[source].append((target, 0))
    for t in cea.transitions:
        onward[t.source].append((t.target, 1))
    visited: set[int] = set()
    todo, distance = [INITIAL], 0
    while todo:
        further = list[int]()
        while todo:
            state = todo.pop()
            if state == FINAL:
                return
            if state not in visited:
                visited.add(state)
                for target, length in onward[state]:
                    (further if length else todo).append(target)
        todo, distance = further, distance + 1
        if distance > MAX_STATES:
            raise QueryTooLargeError(
                f"the determinised automaton passes its bound: a match has more than {MAX_STATES} events, each with a "
                f"state of its own (at most {MAX_STATES} states)",
                hint="fewer steps",
            )


def _silent_closure(cea: CEA) -> list[int]:
    """Return, for each state, the bit mask of its ε-closure: the states that silent steps reach, itself included."""
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
