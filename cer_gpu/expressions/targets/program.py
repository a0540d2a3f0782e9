"""Target program: instructions for a stack (`cer_gpu.backend.joins.filters`), from tests of several events.

papers: RMA, definition 4.2 (a guard is a formula over the current event and the contents of registers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cer_gpu.backend.joins import filters as code
from cer_gpu.backend.joins import filters as strings
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.inputs import Inputs, halves_of
from cer_gpu.expressions.operators import MIXED, compare_type, spelling
from cer_gpu.expressions.relation_terms import Argument, FilterProgram
from cer_gpu.expressions.side_columns import OrderKey, Raw, SideColumn, StringId, Truth

_COMPARE = {
    t.I8: code.COMPARE_INTEGERS,
    t.U8: code.COMPARE_INTEGERS,
    t.F8: code.COMPARE_FLOATS,
    t.WIDE: code.COMPARE_WIDE,
    MIXED: code.COMPARE_MIXED,
}
_APPLY = {
    (1, t.I8): code.ONE_INTEGER,
    (1, t.F8): code.ONE_FLOAT,
    (1, t.WIDE): code.ONE_WIDE,
    (2, t.I8): code.TWO_INTEGERS,
    (2, t.F8): code.TWO_FLOATS,
    (2, t.WIDE): code.TWO_WIDE,
}
_RELATIONS = {"contains": strings.CONTAINS, "startswith": strings.BEGINS, "endswith": strings.ENDS}


class ProgramWriter:
    """Writer of one program.

    Parameters
    ----------
    arguments
        Events that it reads.
    column, constant
        Number of a column of events, and of an int64 among the constants, which may be new.
    inputs, of_event
        Constants of the terms, and of the values of one event in these.
    """

    def __init__(
        self,
        arguments: Sequence[Argument],
        column: Callable[[SideColumn], int],
        constant: Callable[[int], int],
        inputs: Inputs,
        of_event: Inputs,
    ) -> None:
        self._arguments, self._column, self._constant = tuple(arguments), column, constant
        self._inputs, self._of_event = inputs, of_event
        self._code: list[tuple[int, int, int]] = []

    def program(self, test: t.BoundPredicate) -> FilterProgram:
        """Return the program of a test."""
        self._push_truth(test)
        return FilterProgram(self._arguments, tuple(self._code))

    def _emit(self, instruction: int, a: int = 0, b: int = 0) -> None:
        self._code.append((instruction, a, b))

    def _read_column(self, event: Argument, column: SideColumn, *, ranked: bool = False) -> None:
        number = self._column(column)
        self._emit(code.COLUMN, self._arguments.index(event), -1 - number if ranked else number)

    def _push(self, value: int, high: int = 0) -> None:
        self._emit(code.CONSTANT, self._constant(value), self._constant(high))

    def _push_truth(self, test: t.BoundPredicate) -> None:
        """Append the instructions that push 1 if a test is TRUE, else 0."""
        match test:
            case t.TestOfEvent():
                self._read_column(test.event, Truth(test.operand))
            case t.ConstantPredicate():
                self._push(int(test.holds))
            case t.And() | t.Or():
                for i, each in enumerate(test.tests):
                    self._push_truth(each)
                    if i:
                        self._emit(code.AND if isinstance(test, t.And) else code.OR)
            case t.IsNotNull():
                self._push_value(test.operand)
                self._emit(code.NOT_NULL, 0, int(test.negated))
            case t.Compare():
                of = compare_type(test.left.dtype, test.right.dtype)
                for side in (test.left, test.right):
                    self._push_value(side, in_order=of == t.U8)
                number = spelling(test.op, of).program
                assert number is not None
                self._emit(_COMPARE[of], number, int(test.negated))
            case t.StringRelation():
                self._push_value(test.left)
                self._push_value(test.right)
                self._emit(code.COMPARE_STRINGS, _RELATIONS[test.function], int(test.negated))
            case _:
                raise AssertionError(test)

    def _push_value(self, term: t.Value, in_order: bool = False, event: Argument | None = None) -> None:
        """Append the instructions that push a value.

        Parameters
        ----------
        term
        in_order
            True: an integer in the order of the values.
        event
            The term's parent, or None if it has none.
        """
        match term:
            case t.OfEvent(operand=t.Text() as text):
                self._read_column(term.event, StringId(text.column), ranked=text.ranked)
            case t.OfEvent() if term.dtype == t.WIDE:  # a column holds 64 bits
                self._push_value(term.operand, event=term.event)
            case t.OfEvent():
                self._read_column(term.event, OrderKey(term.operand) if in_order else Raw(term.operand))
            case t.Constant():
                inputs = self._inputs if event is None else self._of_event
                value = inputs.constants[term.dtype][term.slot]
                if term.dtype == t.F8:
                    value = int(np.float64(value).view(np.int64))
                high, low = halves_of(value)
                self._push(value - 2**63 if in_order else low, high)
            case _ if event is not None and term.dtype != t.WIDE:
                self._read_column(event, Raw(term))
            case t.ToFloat():
                self._push_value(term.operand)
                self._emit(code.WIDE_TO_FLOAT if term.operand.dtype == t.WIDE else code.TO_FLOAT)
            case t.ToWide():
                self._push_value(term.operand, event=event)
                if term.operand.dtype == t.U8:
                    self._emit(code.TO_WIDE_NATURAL, term.factor)
                elif term.factor > 1 or not _is_pushed(term.operand):
                    self._emit(code.TO_WIDE, term.factor)
            case t.Apply():
                for operand in term.operands:
                    self._push_value(operand, event=event)
                number = spelling(term.op, term.dtype).program
                assert number is not None
                self._emit(_APPLY[len(term.operands), term.dtype], number)
            case _:
                raise AssertionError(term)


def _is_pushed(term: t.Value) -> bool:
    """Return True for a value that is a column or a constant, and so is pushed as a wide integer, too."""
    return not isinstance(term, t.Apply) and not (isinstance(term, t.OfEvent) and term.dtype != t.I8)
