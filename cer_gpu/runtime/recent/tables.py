"""Tables of a pattern of SELECT RECENT for its loop, bound to the columns that its keys and filters read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from cer_gpu.automaton import encoding as codes
from cer_gpu.automaton.encoding import NOW
from cer_gpu.automaton.keyed_recent import RecentTable
from cer_gpu.automaton.recent_pattern import RecentPattern, RecentStep, RecentTest
from cer_gpu.backend.joins.filters import COLUMN, Filters, StringTables, filters_of
from cer_gpu.backend.recent import pending as p
from cer_gpu.expressions.relation_terms import Comparison
from cer_gpu.expressions.relations import BoundRelations
from cer_gpu.expressions.terms import COMPARISONS
from cer_gpu.runtime.join_tables import offsets_of, table_of


class RecentTables:
    """The tables of a pattern, as arrays.

    Parameters
    ----------
    pattern
    bound
        Its columns and conditions (`cer_gpu.expressions.relations.bind_keys`).
    columns
        For each of `RecentPattern.key_columns` its column in `bound`.
    lasting
        Length for which what ends waits from its last event on, as a clock; None: that of the window, from its first.

    Attributes
    ----------
    pattern : RecentPattern
    bound : BoundRelations
    n_values : int
        Number of values in a key; 0: the only keys are partitions.
    keys : list of tuple of int
        Columns of events that make keys, all different; columns of events begin after their valid bits.
    bars : bool
        True if some absent event drops what waits under all keys, without a filter.
    """

    def __init__(
        self, pattern: RecentPattern, bound: BoundRelations, columns: list[list[int]], lasting: Any = None
    ) -> None:
        self.pattern: RecentPattern
        self.bound: BoundRelations
        self.lasting: Any
        self.pattern, self.bound, self.lasting = pattern, bound, lasting
        self.n_values: int = len(pattern.keys)
        self._conditions = dict(zip(pattern.predicates, bound.conditions, strict=True))
        self._columns = [iter([1 + column for column in key]) for key in columns]
        numbers: dict[tuple[int, ...], int] = {}
        self._tests: list[list[int]] = []
        self._arguments: list[int] = []
        self._needs: list[tuple[int, int]] = []
        self._code: list[tuple[int, int, int]] = []
        self._lines: dict[Any, tuple[int, int]] = {}
        self._read: set[tuple[int, int]] = set()
        # by alternative, then by absence, as `RecentTable.passed` has them: their operation without its symbol
        self._moves: list[list[list[int]]] = []
        self._drops: list[list[list[int]]] = []
        own = [self._own_columns(number) for number in range(len(pattern.steps))]
        for number, step in enumerate(pattern.steps):
            key_columns = tuple(members[0] for members in own[number])
            key = numbers.setdefault(key_columns, len(numbers)) if key_columns else p.NO_WORD
            self._add_moves(number, step, own[number], key)
        # after the last step they take back
        for number, absent in enumerate([*(step.absent for step in pattern.steps), pattern.taking]):
            takes, rows = number == len(pattern.steps), []
            for absence in absent:
                first = len(self._tests)
                for test in absence.tests:
                    self._add_test(test, NOW)
                kind, key = p.TAKE if takes else p.DROP, p.NO_WORD
                if absence.key is None:
                    kind = p.TAKE_ALL if takes else p.SCAN if absence.tests else p.BAR
                elif absence.key:
                    key_columns = tuple(next(of_key) for of_key in self._columns)
                    key = numbers.setdefault(key_columns, len(numbers))
                rows.append([kind, number, 0, key, first, len(self._tests)])
            self._drops.append(rows)
        self.keys: list[tuple[int, ...]] = list(numbers)
        self.bars: bool = any(row[0] == p.BAR for rows in self._drops for row in rows)

    def _add_moves(self, number: int, step: RecentStep, own: list[list[int]], key: int) -> None:
        """Add the operation of each alternative of a step, given its columns for each key."""
        first = len(self._tests)
        self._add_key_tests(own)
        for test in step.tests:
            self._add_test(test, number)
        kind, last = p.MOVE if number else p.BEGIN, len(self._tests)
        self._moves.append([[kind, number, i, key, first, last] for i in range(len(step.events))])

    def _add_key_tests(self, own: list[list[int]]) -> None:
        """Add the tests that the columns of each key are equal in an event."""
        for members in own:
            for other in members[1:]:
                self._add_comparison(codes.COMPARE, codes.EQUAL, (members[0], NOW), (other, NOW))

    @property
    def n_bars(self) -> int:
        """Number of the bars of a partition, where `bars`: one for each step."""
        return len(self.pattern.steps)

    def _own_columns(self, step: int) -> list[list[int]]:
        """Return for each key the columns of a step."""
        return [[next(of_key) for _ in key[step]] for key, of_key in zip(self.pattern.keys, self._columns, strict=True)]

    # ---- tests --------------------------------------------------------------------------------------------------

    def _add_test(self, test: RecentTest, step: int) -> None:
        """Add a test, which is made when an event comes for a step (NOW: when one comes that must be absent)."""
        condition = self._conditions[test.predicate]
        steps = dict(test.events)
        needs = len(self._needs)
        self._needs += test.needs
        when = [needs, len(self._needs)]
        at = [NOW if steps[a.variable, a.event] == step else steps[a.variable, a.event] for a in condition.arguments]
        if isinstance(condition, Comparison):
            kind = codes.COMPARE_RANKED if condition.ranked else codes.COMPARE
            sides = [(1 + condition.left_column, at[0]), (1 + condition.right_column, at[1])]
            self._add_comparison(kind, COMPARISONS.index(condition.op), sides[0], sides[1], when)
            return
        if condition not in self._lines:
            begin = len(self._code)
            self._code += condition.instructions
            self._lines[condition] = begin, len(self._code)
        self._read |= {(at[a], abs(column)) for op, a, column in condition.instructions if op == COLUMN}
        self._tests.append([codes.PROGRAM, 0, 0, 0, *self._lines[condition], len(self._arguments), *when])
        self._arguments += at

    def _add_comparison(
        self, kind: int, op: int, left: tuple[int, int], right: tuple[int, int], needs: Sequence[int] = (0, 0)
    ) -> None:
        self._read |= {(left[1], left[0]), (right[1], right[0])}
        self._tests.append([kind, op, left[0], right[0], 0, 0, len(self._arguments), *needs])
        self._arguments += [left[1], right[1]]

    def filters(self, strings: StringTables) -> Filters:
        """Return the programs of the tests, with scratch."""
        return filters_of(np.zeros(0, codes.CONDITION), self._code, self.bound.constants, strings)

    # ---- tables -------------------------------------------------------------------------------------------------

    def moves(self, table: RecentTable) -> p.Moves:
        """Return the arrays for the symbols met so far."""
        ops = [self._ops(passed) for passed in table.passed]
        needed = [sorted({row[p.OP_KEY] for row in rows if row[p.OP_KEY] >= 0}) for rows in ops]
        return p.Moves(
            offsets_of(ops),
            table_of([row for rows in ops for row in rows], p.N_OP),
            offsets_of(needed),
            np.array([key for keys in needed for key in keys], np.int32),
            table_of(self.keys, self.n_values),
            table.marks,
            table_of(self._tests, p.N_TEST),
            np.array(self._arguments, np.int32),
            np.array(self._needs, np.int64).reshape(len(self._needs), p.N_NEED),
        )

    def _ops(self, passed: int) -> list[list[int]]:
        """Return the operations of events that pass some alternatives and absences, from the last step to the first."""
        counts = [len(rows) for rows in (*self._moves, *self._drops)]
        firsts = [0, *accumulate(counts)]
        n_steps, ops = len(self._moves), list[list[int]]()
        for step in reversed(range(n_steps + 1)):
            moves = [(self._moves[step], firsts[step])] if step < n_steps else []
            for rows, first in (*moves, (self._drops[step], firsts[n_steps + step])):
                ops += [row for i, row in enumerate(rows) if passed >> (first + i) & 1]
        return ops

    def layout(self, *, timed: bool) -> p.SlotLayout:
        """Return the places of the words of a row, with times of starts if it is `timed`."""
        n_steps, n_columns = len(self.pattern.steps), 1 + len(self.bound.columns)
        positions, ends = np.zeros(n_steps, np.int32), np.zeros(n_steps, np.int32)
        choices, stored = np.full(n_steps, p.NO_WORD, np.int32), np.full((n_steps, n_columns), p.NO_WORD, np.int32)
        word = p.SLOT_TIME + timed
        for step in range(n_steps):
            positions[step] = word
            word += 1
            if self.pattern.chooses:
                choices[step] = word
                word += 1
            read = sorted(column for of, column in self._read if of == step)
            for column in [0, *read] if read else []:
                stored[step, column] = word
                word += 1
            ends[step] = word
        begin = p.ROW_VALUES + self.n_values if self.n_values else 0
        slots = np.array([begin, *(begin + np.cumsum(ends[:-1]))], np.int32)
        return p.SlotLayout(slots, ends, positions, choices, stored, int(slots[-1]) if self.pattern.taking else -1)
