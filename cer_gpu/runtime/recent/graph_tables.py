"""Tables of a pattern of SELECT RECENT with quantifiers, for its loop."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from cer_gpu.arrays import Int32, Int64
from cer_gpu.automaton.encoding import NOW
from cer_gpu.automaton.recent_pattern import (
    BEFORE_NOW,
    FIRST_OF,
    LAST_OF_ALL,
    NOT_TAKEN,
    STEP_BITS,
    RecentGraph,
    RecentStep,
    RecentTest,
)
from cer_gpu.backend.recent import paths as k
from cer_gpu.backend.recent import pending as p
from cer_gpu.runtime.join_tables import offsets_of
from cer_gpu.runtime.recent.tables import RecentTables


class GraphTables(RecentTables):
    """The tables of a pattern with ways between its steps (`RecentPattern.graph`), as arrays.

    A slot stores events by numbers: of n steps, 0 to n - 1 are the latest event of each, n to 2n - 1 the first one of
    each, 2n is the last event of all; then come the latest of each again, for tests of the step under way, whose own
    number stands for the event that has come.
    """

    # ---- tests --------------------------------------------------------------------------------------------------

    def _add_moves(self, number: int, step: RecentStep, own: list[list[int]], key: int) -> None:
        if not number:
            self._begins: list[list[list[int]]] = []
        n_events = range(len(step.events))
        for kind, operations in ((p.MOVE, self._moves), (p.BEGIN, self._begins)):
            first = len(self._tests)
            self._add_key_tests(own)
            for test in step.tests:
                adapted = test if kind == p.MOVE else _at_begin(test, number)
                if adapted is not None:
                    self._add_test(adapted, number)
            operations.append([[kind, number, i, key, first, len(self._tests)] for i in n_events])
        if number not in self.graph.firsts:
            self._begins[-1] = []

    def _add_test(self, test: RecentTest, step: int) -> None:
        events = tuple((event, self._number_of(code)) for event, code in test.events)
        needs = tuple((self._number_of(code), bits) for code, bits in test.needs)
        super()._add_test(RecentTest(test.predicate, events, needs), step)

    def _number_of(self, code: int) -> int:
        """Return the number of what a test reads."""
        if code == NOW:
            return code
        n, step = len(self.pattern.steps), code & STEP_BITS
        return {0: step, FIRST_OF: n + step, LAST_OF_ALL: 2 * n, BEFORE_NOW: 2 * n + 1 + step}[code - step]

    # ---- tables -------------------------------------------------------------------------------------------------

    @property
    def graph(self) -> RecentGraph:
        """The ways between the steps."""
        assert self.pattern.graph is not None
        return self.pattern.graph

    @property
    def n_bars(self) -> int:
        """Number of the bars of a partition, where `bars`: one for each absence."""
        return len(self.graph.sources)

    def _ops(self, passed: int) -> list[list[int]]:
        """Return the operations of events that pass some alternatives and absences.

        Those that take back come first, then the steps from the last to the first, then those that bar ways.
        """
        firsts = [0, *accumulate(len(rows) for rows in (*self._moves, *self._drops))]
        n = len(self._moves)

        def of(rows: list[list[int]], number: int) -> list[list[int]]:
            return [row for i, row in enumerate(rows) if passed >> (firsts[number] + i) & 1]

        ops = of(self._drops[n], 2 * n)
        for step in reversed(range(n)):
            ops += of(self._moves[step], step) + of(self._begins[step], step)
        absence = 0
        for step in range(n):
            for i, (kind, _, _, *rest) in enumerate(self._drops[step]):
                if passed >> (firsts[n + step] + i) & 1:
                    sources = self.graph.sources[absence] if kind != p.BAR else (0,)
                    ops += [[kind, source, absence, *rest] for source in sources]
                absence += 1
        return ops

    def layout(self, *, timed: bool) -> p.SlotLayout:
        """Return the places of the words of a row, with times of starts if it is `timed`."""
        n, n_columns = len(self.pattern.steps), 1 + len(self.bound.columns)
        n_numbers = 3 * n + 1
        choices = np.full(n_numbers, p.NO_WORD, np.int32)
        stored = np.full((n_numbers, n_columns), p.NO_WORD, np.int32)
        word = p.SLOT_TIME + timed + k.N_PATH
        needed = {number for number, _ in self._needs}
        read = {number for number, _ in self._read if number != NOW}
        for number in range(2 * n + 1):
            own = {number, number + 2 * n + 1} if number < n else {number}
            # whether the first event is stored yet is read when another one comes
            if own & needed or (n <= number < 2 * n and number in read):
                choices[number] = word
                word += 1
            columns = sorted({column for of, column in self._read if of in own})
            for column in [0, *columns] if columns else []:
                stored[number, column] = word
                word += 1
        choices[2 * n + 1 :], stored[2 * n + 1 :] = choices[:n], stored[:n]
        begin = p.ROW_VALUES + self.n_values if self.n_values else 0
        slots = (begin + word * np.arange(n + 1)).astype(np.int32)
        positions, ends = np.full(n_numbers, p.NO_WORD, np.int32), np.full(n, word, np.int32)
        return p.SlotLayout(slots, ends, positions, choices, stored, int(slots[-1]) if self.pattern.taking else -1)

    def paths(self, nodes: Int64, n_nodes: Int64, *, timed: bool) -> k.PathTables:
        """Return the ways between the steps, with the memory for events, and without bars."""
        graph, n = self.graph, len(self.pattern.steps)
        layout = self.layout(timed=timed)
        into = [[way for way in graph.ways if way.target == step] for step in range(n)]
        # of two partial matches that started together, that at the furthest step moves
        into = [sorted(ways, key=lambda way: -way.source) for ways in into]
        out = [
            list(dict.fromkeys(_bits_of_absences(way.absent) for way in graph.ways if way.source == step))
            for step in range(n)
        ]
        ways = [way for own in into for way in own]
        resets = [[self._number_of(code) for code in way.resets] for way in ways]
        steps = np.zeros((n, k.N_STEP), np.int64)
        steps[:, k.STEP_WAY], steps[:, k.STEP_WAYS_END] = _ranges(into)
        steps[:, k.STEP_BARS], steps[:, k.STEP_BARS_END] = _ranges(out)
        first_of = np.arange(n, 2 * n)
        steps[:, k.STEP_FIRST] = np.where(layout.choices[n : 2 * n] >= 0, first_of, p.NO_WORD)
        steps[list(graph.lasts), k.STEP_ENDS] = 1
        steps[:, k.STEP_GOES_ON] = [len(own) > 0 for own in out]
        table = np.zeros((len(ways), k.N_WAY), np.int32)
        table[:, k.WAY_SOURCE] = [way.source for way in ways]
        table[:, k.WAY_RESET], table[:, k.WAY_RESETS_END] = _ranges(resets)
        reads_last = layout.choices[2 * n] >= 0 or layout.stored[2 * n, 0] >= 0
        return k.PathTables(
            nodes,
            n_nodes,
            steps,
            table,
            np.array([_bits_of_absences(way.absent) for way in ways], np.int64),
            np.array([bits for own in out for bits in own], np.int64),
            np.array([number for own in resets for number in own], np.int32),
            np.zeros((0, 0), np.int64),
            p.SLOT_TIME + timed,
            2 * n if reads_last else -1,
        )


def _at_begin(test: RecentTest, step: int) -> RecentTest | None:
    """Return a test as it is for the first event of a match, at a step, or None if it always holds there."""
    if any(code != step for _, code in test.events):
        return None
    if any(code != step and bits >> NOT_TAKEN & 1 == 0 for code, bits in test.needs):
        return None
    return RecentTest(test.predicate, test.events, tuple(need for need in test.needs if need[0] == step))


def _bits_of_absences(numbers: tuple[int, ...]) -> int:
    return sum(1 << number for number in numbers)


def _ranges(groups: Sequence[list[Any]]) -> tuple[Int32, Int32]:
    """Return the begin and the end of each group, of all of them in one list."""
    offsets = offsets_of([*groups])
    return offsets[:-1], offsets[1:]
