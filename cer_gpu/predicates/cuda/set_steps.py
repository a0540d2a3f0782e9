"""Guards of many queries as data for `kernels/guard_sets.cu`: lines of bits, and the steps of each guard over them.

Each test of a column has a line, with a bit for each row.  A test that the kernels do not know (a regular expression, a
comparison of two columns) is taken to hold for each row: the rows of its guard are then too many, never too few, as
tests are joined by AND and OR alone, and the guard says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cer_gpu.ceql.syntax import Predicate
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.by_arrow import NullRows
from cer_gpu.expressions.text_sets import TestTable, TextSet

PUSH, PUSH_ALL, PUSH_NONE, AND_LINE, OR_LINE, AND_NOT_LINE, AND, OR = range(8)
"""Steps, as `kernels/guard_sets.cu` has them."""

MOST_ON_STACK = 16
"""CER_STACK of `kernels/guard_sets.cu`."""

KNOWN = "known"
"""Operator of a test of validity."""

TYPES = "types"
"""In the place of a column: the numbers of the types of events."""


class NumberTest(NamedTuple):
    """A test of the numbers of a column.

    Attributes
    ----------
    column : Column, str or "types"
        A column of numbers, the name of one of which validity is asked alone, or the numbers of types.
    op : str
        A comparison, or `KNOWN`.
    bits : int
        The 64 bits of a constant of the type of the numbers.
    negated : bool
    """

    column: t.Column | str
    op: str
    bits: int = 0
    negated: bool = False


class Line(NamedTuple):
    """A line of bits: that of a test of numbers, or of a test of the texts of a column (`TestTable.number`)."""

    of: str | None
    number: int


@dataclass
class _Steps:
    """Steps that leave one word.

    Attributes
    ----------
    steps : list of (step, Line or None)
    depth : int
        Words on the stack at most.
    exact : bool
        False if rows that do not satisfy the test may be among those found.
    """

    steps: list[tuple[int, Line | None]] = field(default_factory=list)
    depth: int = 1
    exact: bool = True

    @property
    def is_all(self) -> bool:
        return self.steps == [(PUSH_ALL, None)]


_ALL, _NONE = _Steps([(PUSH_ALL, None)]), _Steps([(PUSH_NONE, None)])
_UNKNOWN = _Steps([(PUSH_ALL, None)], exact=False)


class SetSteps:
    """Steps of the guards of a set over one schema.

    Parameters
    ----------
    guards : list of (int or None, Predicate or None)
        Number of the type of each guard (None: any type), and what its events satisfy (None: nothing more).
    schema : pyarrow.Schema

    Attributes
    ----------
    inputs : Inputs
        Of the tests.
    tests : list of Test or None
        Of each guard.
    exact : list of bool
        For each guard, False if rows found are still to be tested.
    number_tests : list of NumberTest
        Their lines come first.
    texts : dict from str to TextSet
        Columns whose texts are tested, by name; the lines of each have the numbers of its tests.
    columns : set of str
        Names of the columns that are read.
    """

    def __init__(self, guards: Sequence[tuple[int | None, Predicate | None]], schema: pa.Schema) -> None:
        binder = Binder(schema, "")  # each predicate was bound before, by itself
        self.inputs = binder.inputs
        self._numbers: dict[NumberTest, int] = {}
        self.texts: dict[str, TextSet] = self.inputs.text_sets
        self.tests = [None if predicate is None else binder.bind(predicate) for _, predicate in guards]
        made = [self._guard(number, test) for (number, _), test in zip(guards, self.tests, strict=True)]
        self.exact = [each.exact for each in made]
        self.number_tests = list(self._numbers)
        self._firsts: dict[str | None, int] = {None: 0}
        self.n_lines = len(self._numbers)
        for name, of in self.texts.items():
            self._firsts[name] = self.n_lines
            self.n_lines += of.n_tests
        self.steps = [[step | self._line(line) << 3 for step, line in each.steps] for each in made]
        self.columns = {name for name, _ in self.inputs.columns}

    def first_line(self, name: str) -> int:
        """Return the number of the first line of a column of texts."""
        return self._firsts[name]

    def _line(self, line: Line | None) -> int:
        return 0 if line is None else self._firsts[line.of] + line.number

    def _guard(self, type_number: int | None, test: t.Test | None) -> _Steps:
        parts = [] if type_number is None else [self._of_numbers(NumberTest(TYPES, "=", type_number))]
        if test is not None:
            parts.append(self._test(test))
        made = _joined(parts, AND) if parts else _ALL
        return made if made.depth <= MOST_ON_STACK else _UNKNOWN

    def _of_numbers(self, test: NumberTest) -> _Steps:
        return _Steps([(PUSH, Line(None, self._numbers.setdefault(test, len(self._numbers))))])

    def _known(self, name: str, negated: bool = False) -> _Steps:
        return self._of_numbers(NumberTest(name, KNOWN, negated=negated))

    def _test(self, test: t.Test) -> _Steps:
        match test:
            case t.Fixed():
                return _ALL if test.holds else _NONE
            case t.And() | t.Or():
                return _joined([self._test(each) for each in test.tests], AND if isinstance(test, t.And) else OR)
            case t.Lookup():
                table = self.inputs.tables[test.table][1]
                if not isinstance(table, TestTable):
                    return _UNKNOWN
                name = self.inputs.columns[test.codes.slot][0]
                line = Line(name, table.number)
                if not table.negated:
                    return _Steps([(PUSH, line)])
                return _Steps([*self._known(name).steps, (AND_NOT_LINE, line)])
            case t.Compare() if isinstance(test.left, t.Column) and isinstance(test.right, t.Constant):
                if test.left.dtype != test.right.dtype:
                    return _UNKNOWN
                constant = self.inputs.constants[test.right.dtype][test.right.slot]
                return self._of_numbers(NumberTest(test.left, test.op, _bits(constant, test.right.dtype), test.negated))
            case t.Known() if isinstance(test.operand, t.Column):
                return self._known(self.inputs.columns[test.operand.slot][0], test.negated)
            case t.Given():
                answer = self.inputs.given[test.slot]
                return self._known(answer.name, not answer.negated) if isinstance(answer, NullRows) else _UNKNOWN
        return _UNKNOWN


def _bits(constant: float, dtype: str) -> int:
    """Return the 64 bits of a number of a type."""
    return int(np.array([constant], dtype).view(np.uint64)[0])


def _joined(parts: Sequence[_Steps], by: int) -> _Steps:
    """Return the steps of several tests, of which all hold (AND), or one does (OR)."""
    exact = all(part.exact for part in parts)
    if by == AND:
        parts = [part for part in parts if not part.is_all]
        if not parts:
            return _Steps(_ALL.steps, exact=exact)
    elif any(part.is_all for part in parts):
        return _Steps(_ALL.steps, exact=exact)
    first, *others = sorted(parts, key=lambda part: -part.depth)  # the deepest first needs the fewest words
    steps, depth = list(first.steps), first.depth
    for other in others:
        (step, line), rest = other.steps[0], other.steps[1:]
        if step == PUSH and (not rest or (by == AND and all(each == AND_NOT_LINE for each, _ in rest))):
            steps += [(AND_LINE if by == AND else OR_LINE, line), *rest]
        else:
            steps += [*other.steps, (by, None)]
            depth = max(depth, 1 + other.depth)
    return _Steps(steps, depth, exact)
