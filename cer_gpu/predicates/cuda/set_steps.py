"""Guards of many queries as data: lines of bits, and the steps of each guard over them.

`kernels/guard_sets.cu` reads them on a GPU, `cer_gpu.backend.sets.finding` on the CPU.  Each test of a column has a
line, with a bit for each row.  A test that the kernels do not know (a regular expression, a
comparison of two columns) is taken to hold for each row: the rows of its guard are then too many, never too few, as
tests are joined by AND and OR alone, and the guard says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int32
from cer_gpu.backend.sets.finding import (
    AND,
    AND_LINE,
    AND_NOT_LINE,
    MAX_ON_STACK,
    OR,
    OR_LINE,
    PUSH,
    PUSH_ALL,
    PUSH_NONE,
)
from cer_gpu.ceql.syntax import Predicate
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.by_arrow import NullRows
from cer_gpu.expressions.globs.compiling import Pattern
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.expressions.string_sets import StringSet, TestTable
from cer_gpu.expressions.string_tests import OneOfPatterns
from cer_gpu.predicates.late_tests import LateTest

IS_VALID = "known"
"""Operator of a test of validity."""

TYPE_NUMBERS = "types"
"""In the place of a column: the numbers of the types of events."""


class NumberTest(NamedTuple):
    """A test of the numbers of a column.

    Attributes
    ----------
    column : Column, str or "types"
        A column of numbers, the name of one whose validity alone is tested, or the numbers of types.
    op : str
        A comparison, or `IS_VALID`.
    bits : int
        The 64 bits of a constant of the type of the numbers.
    negated : bool
    """

    column: t.Column | str
    op: str
    bits: int = 0
    negated: bool = False


class Line(NamedTuple):
    """A line of bits: that of a test of numbers, or of a test of the strings of a column (`TestTable.number`)."""

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
        False if rows that do not satisfy the test may be selected.
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
    """Steps of the guards of a set over one schema, to which more can be added.

    Parameters
    ----------
    schema : pyarrow.Schema

    Attributes
    ----------
    inputs : Inputs
        Columns of numbers that the tests read.
    late : dict from int to (Predicate, tuple of int)
        Tests that the steps of a guard do not decide, by its number: selected rows are still to be tested by them.
    strings : dict from str to StringSet
        Columns whose strings are tested, by name; the lines of each have the numbers of its tests.
    columns : set of str
        Names of the columns that are read.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.inputs: Inputs = Inputs(schema)
        self.late: dict[int, LateTest] = {}
        self.strings: dict[str, StringSet] = {}
        self.columns: set[str] = set()
        self._numbers: dict[NumberTest, int] = {}
        self._guards: list[_Steps] = []
        self._firsts: dict[str | None, int] = {}
        self._has_column: dict[str, bool] = {}
        self._columns: dict[tuple[str, str], t.Column] = {}

    @classmethod
    def of(cls, guards: Sequence[tuple[int | None, Predicate | None]], schema: pa.Schema) -> SetSteps:
        """Return the steps of guards: for each the number of its type (None: any), and what its events satisfy."""
        steps, binder = cls(schema), Binder(schema, "")  # each predicate was bound before, by itself
        for number, predicate in guards:
            steps.add(predicate, None if predicate is None else binder.bind(predicate), binder.inputs, number)
        return steps

    def add(
        self,
        predicate: Predicate | None,
        test: t.BoundPredicate | None,
        inputs: Inputs,
        type_number: int | None = None,
        named: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Add a guard.

        Parameters
        ----------
        predicate
            Predicate that its events satisfy, or None if there is none.
        test
            The same as a test.
        inputs
            Contents of the slots of the test.
        type_number
            Number of the type that they have; None: any.
        named
            String columns, each with the string that events must have in it.
        """
        parts = [] if type_number is None else [self._of_numbers(NumberTest(TYPE_NUMBERS, "=", type_number))]
        for name, text in named:
            parts.append(self._of_text(name, OneOfPatterns((Pattern(text, plain=True),))))
        late = list[int]()
        for place, each in enumerate(test.tests if isinstance(test, t.And) else [] if test is None else [test]):
            part = self._steps_of_test(each, inputs)
            part = part if part.depth < MAX_ON_STACK else _UNKNOWN
            parts.append(part)
            if not part.exact:
                late.append(place)
        if late:
            assert predicate is not None
            self.late[len(self._guards)] = predicate, tuple(late)
            self.columns |= {name for name, _ in inputs.columns}
        self._guards.append(_join_steps(parts, AND) if parts else _ALL)
        self._firsts = {}

    @property
    def n_guards(self) -> int:
        """Number of guards."""
        return len(self._guards)

    @property
    def number_tests(self) -> list[NumberTest]:
        """Tests of numbers, whose lines come first."""
        return list(self._numbers)

    @property
    def n_lines(self) -> int:
        """Number of lines."""
        return len(self._numbers) + sum(of.n_tests for of in self.strings.values())

    def steps(self) -> tuple[Int32, Int32]:
        """Return the steps of all guards, each in the lowest three bits with a line above, and where each begins."""
        begins = np.cumsum([0, *(len(each.steps) for each in self._guards)])
        flat = [step | self._line(line) << 3 for each in self._guards for step, line in each.steps]
        return read_only(np.array(flat, np.int32)), read_only(begins.astype(np.int32))

    def first_line(self, name: str | None) -> int:
        """Return the number of the first line of a column of strings; None for that of numbers."""
        if not self._firsts:
            self._firsts, n = {None: 0}, len(self._numbers)
            for column, of in self.strings.items():
                self._firsts[column] = n
                n += of.n_tests
        return self._firsts[name]

    def _line(self, line: Line | None) -> int:
        return 0 if line is None else self.first_line(line.of) + line.number

    def _of_numbers(self, test: NumberTest) -> _Steps:
        return _Steps([(PUSH, Line(None, self._numbers.setdefault(test, len(self._numbers))))])

    def _steps_of_validity(self, name: str, negated: bool = False) -> _Steps:
        self.columns.add(name)
        return self._of_numbers(NumberTest(name, IS_VALID, negated=negated))

    def _of_text(self, name: str, test: OneOfPatterns) -> _Steps:
        self.columns.add(name)
        return _Steps([(PUSH, Line(name, self.strings.setdefault(name, StringSet()).number(test)))])

    def _steps_of_test(self, test: t.BoundPredicate, inputs: Inputs) -> _Steps:
        match test:
            case t.ConstantPredicate():
                return _ALL if test.holds else _NONE
            case t.And() | t.Or():
                by = AND if isinstance(test, t.And) else OR
                return _join_steps([self._steps_of_test(each, inputs) for each in test.tests], by)
            case t.Lookup():
                name, table = inputs.columns[test.codes.slot][0], inputs.tables[test.table][1]
                if not isinstance(table, TestTable) or not self._has(name):
                    return _UNKNOWN
                steps = self._of_text(name, table.test)
                if table.negated:
                    ((_, line),) = steps.steps
                    return _Steps([*self._steps_of_validity(name).steps, (AND_NOT_LINE, line)])
                return steps
            case t.Compare() if isinstance(test.left, t.Column) and isinstance(test.right, t.Constant):
                constant = inputs.constants[test.right.dtype][test.right.slot]
                name, read = inputs.columns[test.left.slot]
                if test.left.dtype != test.right.dtype or constant != constant or not self._has(name):
                    return _UNKNOWN
                bits = _bits(constant, test.right.dtype)
                return self._of_numbers(NumberTest(self._number_column(name, read), test.op, bits, test.negated))
            case t.IsNotNull() if isinstance(test.operand, t.Column):
                name = inputs.columns[test.operand.slot][0]
                return self._steps_of_validity(name, test.negated) if self._has(name) else _UNKNOWN
            case t.ExternalPredicate():
                rows = inputs.external[test.slot]
                if isinstance(rows, NullRows) and self._has(rows.name):
                    return self._steps_of_validity(rows.name, not rows.negated)
        return _UNKNOWN

    def _number_column(self, name: str, read: str) -> t.Column:
        self.columns.add(name)
        slot = self._columns.get((name, read))
        if slot is None:
            slot = self._columns[name, read] = self.inputs.column(name, read)
        return slot

    def _has(self, name: str) -> bool:
        """Return True for a column of the events, and False for one that is computed from them."""
        if name not in self._has_column:
            self._has_column[name] = attribute_type(self.inputs.schema, name) is not None
        return self._has_column[name]


def _bits(constant: float, dtype: str) -> int:
    """Return the 64 bits of a number of a type."""
    return int(np.array([constant], dtype).view(np.uint64)[0])


def _join_steps(parts: Sequence[_Steps], by: int) -> _Steps:
    """Return the steps of the conjunction (AND) or disjunction (OR) of several tests."""
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
