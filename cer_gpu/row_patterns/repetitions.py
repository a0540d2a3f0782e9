"""Analysis of repetitions of which only functions are read, as in ``A+ B`` where B reads ``AVG(A.price)``.

The conditions of the place after such a repetition, and the bounds of later ones (`cer_gpu.row_patterns.bounds`), are
translated into programs over intervals (`cer_gpu.backend.joins.row_repetitions`).  An argument that these cannot read
may have any value, so that a program is only FALSE where the condition is not TRUE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Bools
from cer_gpu.backend import row_search as k
from cer_gpu.backend.joins import filters as f
from cer_gpu.backend.joins import match_memory as m
from cer_gpu.backend.joins import row_repetitions as r
from cer_gpu.backend.operations import ABSOLUTE, DIVIDED, MINUS, NEGATIVE, PLUS, TIMES
from cer_gpu.expressions.relation_terms import Condition
from cer_gpu.row_patterns.bounds import Instruction, ReadColumns, RowBound
from cer_gpu.row_patterns.live_arguments import OfPlace, RowArgument
from cer_gpu.row_patterns.program import MATCH_END, RowProgram
from cer_gpu.row_patterns.repetition_tables import NUMBER, TRUTH, UNKNOWN, ReadFunctions, RepetitionTables, of_integer

_COMPARE = (f.COMPARE_INTEGERS, f.COMPARE_FLOATS, f.COMPARE_WIDE, f.COMPARE_MIXED)
_ONE, _TWO = (f.ONE_INTEGER, f.ONE_FLOAT, f.ONE_WIDE), (f.TWO_INTEGERS, f.TWO_FLOATS, f.TWO_WIDE)


def repetitions_of(
    program: RowProgram,
    conditions: Sequence[OfPlace],
    bounds: Sequence[Sequence[RowBound]],
    able: Bools,
    states: npt.NDArray[np.uint16],
    columns: ReadColumns,
    read: ReadFunctions,
) -> r.Repetitions:
    """Return the repetitions whose ends are found by sums and extremes of ranges of rows.

    Parameters
    ----------
    program
    conditions
        Those of each place on other rows.
    bounds
        As `cer_gpu.row_patterns.bounds.bounds_after` returns them.
    able : bool, shape (n states, n places)
    states : uint16, shape (n rows,)
        As of `cer_gpu.backend.row_patterns.walk_rows`.
    columns
    read
    """
    tables = RepetitionTables(columns, read)
    of_place = np.full(len(program.places), -1, np.int64)
    for place, nexts in enumerate(program.nexts):
        others = [q for q in nexts if q != place]
        repeats = place in nexts and MATCH_END not in nexts and place not in program.ends
        if not repeats or len(others) != 1 or conditions[place] or not tables.sums_fit:
            continue
        [target] = others
        if not any(_grows(argument, place, read) for _, arguments in conditions[target] for argument in arguments):
            continue
        tables.begin(np.flatnonzero(able[:, target][states]))
        for condition, arguments in conditions[target]:
            _Translation(tables, place, target, arguments).add(condition.instructions, (-1, 0))
        if not tables.is_useful:
            tables.drop()
            continue
        for bound in bounds[place]:
            if any(_is_implied(bound, *each) for each in conditions[target]):
                continue
            needed = (-1, 0) if bound.needed[1] == 0 and _holds(bound.needed[0], place, read) else bound.needed
            _Translation(tables, place, -1, bound.arguments).add(bound.code, needed)
        of_place[place] = len(tables.repetitions)
        tables.end(place, nexts[0] == place, able[:, place][states])
    return tables.repetitions_of(of_place)


def _holds(number: int, place: int, read: ReadFunctions) -> bool:
    """Return True if a set has a place."""
    return number >= 0 and bool(read.holds[number][place])


def _is_implied(bound: RowBound, condition: Condition, arguments: Sequence[RowArgument]) -> bool:
    """Return True if a bound is one of a condition on the row after the repetition."""

    def of_next(argument: RowArgument) -> RowArgument:
        return (k.NEXT_ROW, 0, 0, 0) if argument == (k.AT_HAND, 0, 0, 0) else argument

    def without_operators(code: Sequence[Instruction]) -> list[Instruction]:
        return [(op, 0, 0) if op in _COMPARE else (op, a, b) for op, a, b in code]

    return list(bound.arguments) == [of_next(each) for each in arguments] and (
        without_operators(bound.code) == without_operators(condition.instructions)
    )


def _grows(argument: RowArgument, place: int, read: ReadFunctions) -> bool:
    """Return True for a function over rows of a place."""
    kind, number, *_ = argument
    if kind not in (k.TOTAL, k.BEST_ROW) or read.functions[number][0] == m.MATCHES:
        return False
    return _holds(read.functions[number][1], place, read)


@dataclass(frozen=True)
class _OnStack:
    """A value, or a truth, on the stack of a program.

    Attributes
    ----------
    kind : int
        `NUMBER` to `UNKNOWN`.
    is_certain : bool
        False for a truth that may always be TRUE.
    constant : tuple of int
        For a constant whose type is not yet known: its halves, and its instruction.
    """

    kind: int
    is_certain: bool = False
    constant: tuple[int, ...] = ()


class _Translation:
    """Translation of a condition on the row after a repetition into a program over intervals.

    Parameters
    ----------
    tables
    place
        The place that repeats itself.
    target
        The place of the row after it, or -1 for a bound, which is tested before a place takes that row.
    arguments
        Those of the condition.
    """

    def __init__(self, tables: RepetitionTables, place: int, target: int, arguments: Sequence[RowArgument]) -> None:
        self._tables, self._place, self._target, self._arguments = tables, place, target, arguments
        self._lines: list[Instruction] = []
        self._stack: list[_OnStack] = []
        self._grows = False

    def add(self, code: Sequence[Instruction], needed: tuple[int, int]) -> None:
        """Add the program to the tables if it tells anything."""
        for op, a, b in code:
            self._translate(op, a, b)
        if self._stack[0].is_certain:
            self._tables.add_program(self._lines, needed)
            self._tables.is_useful |= self._grows

    def _translate(self, op: int, a: int, b: int) -> None:
        """Translate one instruction."""
        if op == f.COLUMN:
            self._push_column(self._arguments[a], b)
        elif op == f.CONSTANT:
            self._stack.append(_OnStack(NUMBER, constant=(a, b, len(self._lines))))
            self._lines.append((r.PUSH_CONSTANT, 0, 0))
        elif op in (f.TO_FLOAT, f.WIDE_TO_FLOAT):
            self._kind_of_number(1, is_float=False)
        elif op == f.TO_WIDE:
            self._scale_integer(a)
        elif op in _ONE:
            self._operate(op, a, 1, (NEGATIVE, ABSOLUTE))
        elif op in _TWO:
            self._operate(op, a, 2, (PLUS, MINUS, TIMES, DIVIDED) if op == f.TWO_FLOATS else (PLUS, MINUS, TIMES))
        elif op in _COMPARE:
            self._translate_comparison(op, a, b)
        elif op in (f.AND, f.OR):
            self._connect(op)
        else:
            kind = UNKNOWN if op == f.TO_WIDE_NATURAL else TRUTH
            self._replace(2 if op == f.COMPARE_STRINGS else 1, kind)

    def _replace(self, n: int, kind: int) -> None:
        """Replace the upper values of the stack by an unknown value or truth."""
        del self._stack[len(self._stack) - n :]
        self._stack.append(_OnStack(kind))
        self._lines.append((r.UNKNOWN_TRUTH if kind == TRUTH else r.UNKNOWN_VALUE, n, 0))

    def _kind_of_number(self, nth: int, *, is_float: bool) -> int:
        """Return the kind of a value, counted from the top; a constant is a number of this type from here on."""
        value = self._stack[-nth]
        if value.constant:
            *halves, line = value.constant
            low, high = (self._tables.columns.constants[i] for i in halves)
            number = float(np.array([low], np.int64).view(np.float64)[0])
            ends = (number, number) if is_float else of_integer((high << 64) + (low & (1 << 64) - 1))
            self._lines[line] = r.PUSH_CONSTANT, self._tables.constant(*ends), 0
            self._stack[-nth] = _OnStack(NUMBER)
        return value.kind

    def _scale_integer(self, factor: int) -> None:
        """Multiply the value on top, an integer."""
        if self._kind_of_number(1, is_float=False) != NUMBER:
            self._replace(1, UNKNOWN)
        elif factor != 1:
            self._lines.append((r.PUSH_CONSTANT, self._tables.constant(*of_integer(factor)), 0))
            self._lines.append((r.TWO_OPERANDS, TIMES, 1))

    def _operate(self, op: int, operator: int, n: int, operators: Sequence[int]) -> None:
        """Replace one or two numbers by the result of an operation."""
        is_float = op in (f.ONE_FLOAT, f.TWO_FLOATS)
        kinds = {self._kind_of_number(nth, is_float=is_float) for nth in range(1, n + 1)}
        if operator not in operators or kinds != {NUMBER}:
            self._replace(n, UNKNOWN)
            return
        self._lines.append((r.ONE_OPERAND if n == 1 else r.TWO_OPERANDS, operator, int(not is_float)))
        del self._stack[len(self._stack) - n + 1 :]

    def _translate_comparison(self, op: int, operator: int, negated: int) -> None:
        """Replace two values by their comparison."""
        left = self._kind_of_number(2, is_float=op in (f.COMPARE_FLOATS, f.COMPARE_MIXED))
        right = self._kind_of_number(1, is_float=op == f.COMPARE_FLOATS)
        if left != right or left == UNKNOWN or (left != NUMBER and op != f.COMPARE_INTEGERS):
            self._replace(2, TRUTH)
            return
        self._lines.append((r.COMPARED, operator, negated))
        self._stack[-2:] = [_OnStack(TRUTH, is_certain=True)]

    def _connect(self, op: int) -> None:
        """Replace two truths by their conjunction or disjunction."""
        x, y = self._stack[-2:]
        if x.kind != TRUTH or y.kind != TRUTH:
            self._replace(2, TRUTH)
            return
        self._lines.append((r.ALL_OF if op == f.AND else r.ANY_OF, 0, 0))
        is_certain = x.is_certain or y.is_certain if op == f.AND else x.is_certain and y.is_certain
        self._stack[-2:] = [_OnStack(TRUTH, is_certain)]

    # ---- columns -------------------------------------------------------------------------------------------

    def _push_column(self, argument: RowArgument, column: int) -> None:
        """Push a column of an argument, or an unknown value."""
        source = self._source(argument, column) if column > 0 else None
        if source is None:
            self._lines.append((r.UNKNOWN_VALUE, 0, 0))
            self._stack.append(_OnStack(UNKNOWN))
            return
        self._grows |= _grows(argument, self._place, self._tables.read)
        self._lines.append((r.PUSH, source, 0))
        self._stack.append(_OnStack(NUMBER if argument[0] == k.TOTAL else self._tables.kind_of(column)))

    def _source(self, argument: RowArgument, column: int) -> int | None:
        """Return the number of the source of a column of an argument, or None if it is unknown."""
        kind, number, nth, offset = argument
        if kind == k.TOTAL:
            return self._total(number)
        if kind in (k.LAST_CLASS, k.FIRST_CLASS) or self._tables.kind_of(column) == UNKNOWN:
            return None
        if kind == k.BEST_ROW:
            return self._extreme(number, column)
        with_candidate, grows = self._rows_of(number)
        if kind == k.LAST_ROW and (with_candidate or grows):
            if nth:
                return None
            kind, offset = k.AT_HAND, offset - (not with_candidate)
        if kind in (k.AT_HAND, k.NEXT_ROW):
            return self._tables.source(r.OF_CANDIDATE, array=self._tables.of_candidates(column, offset))
        if offset:  # of a row that may be at an end of the partition
            return None
        return self._tables.source(
            r.OF_FIRST if kind == k.FIRST_ROW else r.OF_LAST,
            array=self._tables.of_rows(column),
            number=number,
            nth=nth,
            with_candidate=with_candidate,
            grows=grows,
        )

    def _rows_of(self, number: int) -> tuple[int, int]:
        """Return 1 or 0 for whether a set has the row after the repetition, and for those of the repetition."""
        with_candidate = self._target >= 0 and _holds(number, self._target, self._tables.read)
        return int(with_candidate), int(_holds(number, self._place, self._tables.read))

    def _total(self, number: int) -> int | None:
        kind, in_set, column, _ = self._tables.read.functions[number]
        if kind == m.MATCHES:
            return self._tables.source(r.MATCHES_SO_FAR)
        with_candidate, grows = self._rows_of(in_set)
        if with_candidate and not grows:
            return None
        tables = {"number": number, "with_candidate": with_candidate, "grows": grows}
        if kind == m.COUNT and column < 0:
            return self._tables.source(r.ROWS_SO_FAR, input=-1, **tables)
        is_float = kind in (m.SUM_F, m.AVG)
        prefix = self._tables.prefix(column, is_float=is_float)
        if prefix is None:
            return None
        if kind == m.COUNT:
            return self._tables.source(r.ROWS_SO_FAR, input=prefix, **tables)
        tables |= {"input": prefix, "array": self._tables.sums(column, with_candidate)}
        if kind == m.AVG:
            return self._tables.source(r.MEAN_SO_FAR, nth=self._tables.values_between(column), **tables)
        return self._tables.source(r.SUM_SO_FAR, offset=int(kind == m.SUM_I), **tables)

    def _extreme(self, number: int, column: int) -> int | None:
        with_candidate, grows = self._rows_of(self._tables.read.functions[number][1])
        extreme = self._tables.extreme(column, number)
        if extreme is None or (with_candidate and not grows):
            return None
        array, greatest = extreme
        return self._tables.source(
            r.EXTREME_SO_FAR, array=array, number=number, input=greatest, with_candidate=with_candidate, grows=grows
        )
