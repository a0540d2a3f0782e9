"""Target Numba: statements of Python over one row ``i``, without a branch on its values: loops are vectorised."""

from __future__ import annotations

from collections.abc import Sequence

from cer_gpu.expressions import terms as t
from cer_gpu.expressions.targets.source import TermWriter

HEADER = """\
from numpy import float64 as F, int64 as I, uint8 as B, uint16 as H, uint64 as U
from cer_gpu.backend.operations import *


"""
CASTS = {t.I8: "I", t.U8: "U", t.F8: "F", "u1": "B", "u2": "H"}
CONSTANTS = {t.I8: "integers", t.U8: "naturals", t.F8: "floats", t.WIDE: "wides"}
"""Arrays of the constants of each type; of wide integers, halves as `Inputs.constant_arrays` has them."""


class NumbaWriter(TermWriter):
    """Writer for Numba.

    Columns are arrays ``c0``, ``c1``, ... by their slots; ``v0`` their validity bits, of which the first is bit ``p0``;
    ``b0`` the first bit of packed booleans; tables ``t0`` and results ``g0`` by theirs.  A truth is a uint8, 0 or 1.

    Parameters
    ----------
    nullable
        True if columns may hold NULL; else their validity is not read.
    """

    TARGET = "numba"
    ZERO = "I(0)"
    WIDE_ZERO = "(I(0), U(0))"

    def __init__(self, nullable: bool) -> None:
        super().__init__()
        self._nullable = nullable
        self._n_names = 0

    def _assign_name(self, key: object, kind: str, expression: str) -> str:
        if isinstance(key, t.Constant):
            return expression
        self._names[key] = name = f"x{self._n_names}"
        self._n_names += 1
        self._lines.append(f"{name} = {expression}")
        return name

    def _constant_source(self, term: t.Constant) -> str:
        return f"{CONSTANTS[term.dtype]}_{term.slot}"

    def _constant_read(self, term: t.Constant) -> str:
        """Return the statement before the loop that reads a constant."""
        array = CONSTANTS[term.dtype]
        read = f"{array}[{term.slot}]"
        if term.dtype == t.WIDE:
            read = f"({array}[{2 * term.slot}], U({array}[{2 * term.slot + 1}]))"
        return f"{self._constant_source(term)} = {read}"

    def _column_source(self, term: t.Column) -> str:
        if term.stored == t.BIT:
            return f"I({_bit(f'c{term.slot}', f'b{term.slot}')})"
        return f"{CASTS[term.dtype]}(c{term.slot}[{index(term, 'i')}])"

    def _convert_source(self, term: t.ToFloat | t.ToWide, operand: str) -> str:
        if isinstance(term, t.ToFloat):
            return f"wide_float({operand})" if term.operand.dtype == t.WIDE else f"F({operand})"
        if term.factor == 1:
            return f"(I(0), {operand})" if term.operand.dtype == t.U8 else f"({operand} >> I(63), U({operand}))"
        return f"{'widened_natural' if term.operand.dtype == t.U8 else 'widened'}({operand}, I({term.factor}))"

    def _valid_name(self, column: t.Column) -> str | None:
        if not self._nullable:
            return None
        key = ("valid", column.slot)
        bit = _bit(f"v{column.slot}", f"p{column.slot}")
        return self._names.get(key) or self._assign_name(key, self.TRUTH, f"B({bit})")

    def _looked_up(self, term: t.Lookup) -> str:
        table = f"t{term.table}"
        return f"{table}[{self._code(term.codes, f'last_{table}')}]"

    def _code(self, column: t.Column, last: str) -> str:
        """Return the name of the index at which to read a table: the last entry for NULL and codes outside of it."""
        key = ("code", column.slot, last)
        if key in self._names:
            return self._names[key]
        code, valid = f"min(U({self._value_name(column)}), {last})", self._valid_name(column)
        return self._assign_name(key, t.U8, code if valid is None else f"{code} if {valid} else {last}")

    def _external_truth(self, term: t.ExternalPredicate) -> str:
        return f"g{term.slot}[i]"

    def _truth(self, holds: bool) -> str:
        return f"B({int(holds)})"

    def _negation(self, truth: str) -> str:
        return f"({truth} ^ B(1))"

    def _join_truths(self, truths: Sequence[str], every: bool) -> str:
        return f"B({(' & ' if every else ' | ').join(truths)})"


def index(column: t.Column, row: str) -> str:
    """Return the place of a row in a column."""
    return row if column.stride == 1 else f"{row} * U({column.stride})"


def _bit(array: str, first: str) -> str:
    return f"({array}[({first} + i) >> U(3)] >> (({first} + i) & U(7))) & U(1)"
