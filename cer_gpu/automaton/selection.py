"""Selection strategies as determinisations: the determinised states of each, and their moves.

papers: CEL, appendices C.3 and D.3.  A determinised state stands for runs of the CEA that agree on their start and on
what they marked.  Sets of CEA states are bit masks; the bit of the final state, which no run leaves, says in a target
that the run ends there.

The *control* of a strategy is its knowledge of all runs together, the expired ones included: it does not depend on any
single run, and it determines the moves of a run that begins.  Matches compare by their marked events; runs that
marked the same and differ in their start or their variables are ties, and all stay.  A run that marked nothing loses
against every run that did, and a fresh run is one of those.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from cer_gpu.automaton.cea import FINAL, INITIAL

Key = Any
"""A determinised state or a control as nested tuples of integers: equal keys stand for the same runs."""

END = 1 << FINAL
"""The bit of the final state."""


@dataclass(frozen=True)
class Move:
    """Move of a run at an event: it marks the event or not (`mark` 0), goes on in `target` if any, and may end."""

    mark: int
    target: Key | None
    output: bool


class Reader:
    """The transitions of a CEA as a function on sets of states.

    Parameters
    ----------
    edges
        (source, mark, target) without duplicates; mark 0: the event is not marked.
    closure
        ε-closure of each state: the set of states that silent steps reach from it, itself included.

    Attributes
    ----------
    initial : int
        Set of states of a run that begins.
    states : int
        Set of all states that runs may be in.
    """

    def __init__(self, edges: list[tuple[int, int, int]], closure: list[int]) -> None:
        reading = END
        self._edges_of: dict[int, list[tuple[int, int, int]]] = {}
        for i, (source, mark, target) in enumerate(edges):
            reading |= 1 << source
            self._edges_of.setdefault(source, []).append((i, mark, target))
        self._entered = {target for _, _, target in edges}
        self._reach = [mask & reading for mask in closure]
        self.initial: int = self._reach[INITIAL]
        self.states: int = self.initial & ~END
        for target in self._targets():
            self.states |= target

    def read(self, inside: int, fired: int) -> dict[int, int]:
        """Return, for each mark in order, the set of states that the fired edges (a bit mask) lead to."""
        targets: dict[int, int] = {}
        while inside:
            lowest = inside & -inside
            inside ^= lowest
            for i, mark, target in self._edges_of.get(lowest.bit_length() - 1, ()):
                if fired >> i & 1:
                    targets[mark] = targets.get(mark, 0) | self._reach[target]
        return dict(sorted(targets.items()))

    def is_quiet(self, quiet: int) -> bool:
        """Return True if an event that fires only the waiting loops (`quiet`) leaves all runs as they are."""
        return all(self.read(mask, quiet).get(0, 0) == mask for mask in self._targets() if mask)

    def _targets(self) -> set[int]:
        return {self._reach[target] & ~END for target in self._entered}


class Selection(ABC):
    """Selection strategy; a state begins with the set of CEA states of its runs."""

    control: Key = ()
    """The control before the first event."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @abstractmethod
    def step(self, state: Key, fired: int) -> list[Move]:
        """Return the moves of the runs in a determinised state."""

    @abstractmethod
    def fresh(self, control: Key, fired: int) -> tuple[list[Move], Key]:
        """Return the moves of a run that begins at the event, and the next control."""

    def inside(self, state: Key) -> int:
        """Return the set of CEA states of the runs in a determinised state."""
        return int(state[0])


def _selection_move(mark: int, target: int, key: Key) -> Move:
    return Move(mark, key if target & ~END else None, bool(target & END))


class Everything(Selection):
    """All matches (CEL, section 6): a state is the set of CEA states of its runs."""

    def inside(self, state: Key) -> int:
        """Return the set of CEA states of a determinised state."""
        return int(state)

    def step(self, state: Key, fired: int) -> list[Move]:
        """Return the moves of a determinised state."""
        return [
            _selection_move(mark, target, target & ~END) for mark, target in self._reader.read(state, fired).items()
        ]

    def fresh(self, control: Key, fired: int) -> tuple[list[Move], Key]:
        """Return the moves of a run that begins, and the next control."""
        return self.step(self._reader.initial, fired), control


class Strict(Selection):
    """Matches of consecutive positions (CEL, C.3.1): a state is (set, before, during or after marking)."""

    _BEFORE, _DURING, _AFTER = 0, 1, 2

    def step(self, state: Key, fired: int) -> list[Move]:
        """Return the moves of a determinised state."""
        inside, phase = state
        moves = []
        for mark, target in self._reader.read(inside, fired).items():
            if mark and phase == self._AFTER:
                continue
            after = self._DURING if mark else self._AFTER if phase == self._DURING else phase
            moves.append(_selection_move(mark, target, (target & ~END, after)))
        return moves

    def fresh(self, control: Key, fired: int) -> tuple[list[Move], Key]:
        """Return the moves of a run that begins, and the next control."""
        return self.step((self._reader.initial, self._BEFORE), fired), control


class Maximal(Selection):
    """Matches that no other one strictly contains (CEL, C.3.4, where S and T are pairs; ties make them triples).

    A state is (states of its runs, states of all runs that marked the same, states of the runs that marked strictly
    more, 1 if nothing is marked); the control is the two in the middle, for the runs that marked nothing.
    """

    control: Key = (0, 0)

    def step(self, state: Key, fired: int) -> list[Move]:
        """Return the moves of a determinised state."""
        inside, same, more, nothing = state
        if nothing:
            same |= self._reader.initial
        marked, unmarked = self._advance(same, more, fired)
        moves = []
        for mark, target in self._reader.read(inside, fired).items():
            equals, larger = marked if mark else unmarked
            target &= ~larger
            if target:
                key = (target & ~END, equals & ~END, larger & ~END, int(nothing and not mark))
                moves.append(_selection_move(mark, target, key))
        return moves

    def fresh(self, control: Key, fired: int) -> tuple[list[Move], Key]:
        """Return the moves of a run that begins, and the next control."""
        same, more = control
        moves = self.step((self._reader.initial, same, more, 1), fired)
        _, (equals, larger) = self._advance(same | self._reader.initial, more, fired)
        return moves, (equals & ~END, larger & ~END)

    def _advance(self, same: int, more: int, fired: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the states of runs that marked (the same, more): for runs that mark the event, and for the others."""
        same_unmarked, same_marked = self._split(same, fired)
        more_unmarked, more_marked = self._split(more, fired)
        larger = more_unmarked | more_marked | same_marked
        return (same_marked & ~more_marked, more_marked), (same_unmarked & ~larger, larger)

    def _split(self, inside: int, fired: int) -> tuple[int, int]:
        unmarked = marked = 0
        for mark, target in self._reader.read(inside, fired).items():
            if mark:
                marked |= target
            else:
                unmarked |= target
        return unmarked, marked


class Ordered(Selection):
    """The greatest match in an order on marked events: NEXT and LAST (CEL, C.3.2 and C.3.3).

    The control is a sequence of groups, best first: the runs of a group marked the same, and the group holds their sets
    of states, without the states that a better group reaches.  The runs of the last group marked nothing; it may be
    empty.  A state is (sequence, index of the group, set of states).
    """

    control: Key = ((),)

    def __init__(self, reader: Reader, *, marked_first: bool) -> None:
        super().__init__(reader)
        self._marked_first = marked_first
        self._cache: dict[tuple[Key, int], tuple[Key, dict[Key, list[Move]]]] = {}

    def inside(self, state: Key) -> int:
        """Return the set of CEA states of a determinised state."""
        return int(state[2])

    def step(self, state: Key, fired: int) -> list[Move]:
        """Return the moves of a determinised state."""
        sequence, group, inside = state
        return self._advance(sequence, fired)[1].get((group, inside), [])

    def fresh(self, control: Key, fired: int) -> tuple[list[Move], Key]:
        """Return the moves of a run that begins, and the next control."""
        sequence, moves = self._advance(control, fired)
        return moves.get(None, []), sequence

    def _advance(self, sequence: Key, fired: int) -> tuple[Key, dict[Key, list[Move]]]:
        """Return the next sequence, and the moves of each (group, set of states) and of a fresh run (key None)."""
        cached = self._cache.get((sequence, fired))
        if cached is not None:
            return cached
        marked, unmarked = [], []
        for g, group in enumerate(sequence):
            sources: list[tuple[Key, int]] = [((g, inside), inside) for inside in group]
            if g == len(sequence) - 1:
                sources.append((None, self._reader.initial))
            reads = [
                (source, mark, target)
                for source, inside in sources
                for mark, target in self._reader.read(inside, fired).items()
            ]
            marked.append([read for read in reads if read[1]])
            unmarked.append([read for read in reads if not read[1]])
        if self._marked_first:
            candidates = marked + unmarked
        else:
            candidates = [group for pair in zip(marked, unmarked, strict=True) for group in pair]

        seen = 0  # states that a better group reaches, the final one included
        groups: list[tuple[int, ...]] = []
        reads_of: list[tuple[int, list[tuple[Key, int, int]]]] = []
        for number, candidate in enumerate(candidates):
            left = [(source, mark, target & ~seen) for source, mark, target in candidate]
            for _, _, target in left:
                seen |= target
            group = tuple(sorted({target & ~END for _, _, target in left} - {0}))
            reads_of.append((len(groups), left))
            if group or number == len(candidates) - 1:
                groups.append(group)
        onward: Key = tuple(groups)
        moves: dict[Key, list[Move]] = {}
        for g, left in reads_of:
            for source, mark, target in left:
                if target:
                    moves.setdefault(source, []).append(_selection_move(mark, target, (onward, g, target & ~END)))
        for moves_of_source in moves.values():
            moves_of_source.sort(key=lambda move: move.mark)
        self._cache[sequence, fired] = onward, moves
        return onward, moves
