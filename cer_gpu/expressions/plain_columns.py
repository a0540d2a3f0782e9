"""Side columns that read one number of an event, plus a constant: one pass over rows computes them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cer_gpu.arrays import Int64
from cer_gpu.backend.joins.filters import FILL_TILE, fill_columns, fill_rows
from cer_gpu.columnar.columns import RowsOfBlock
from cer_gpu.columnar.memory import Scratch
from cer_gpu.expressions.inputs import NUMBERS, Inputs
from cer_gpu.expressions.terms import BIT, F8, I8, Apply, Column, Constant, Value

_STORED = ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4")
_NOTHING = -0.0
"""The float that changes no other one if it is added."""


class PlainColumn(NamedTuple):
    """A column, as `cer_gpu.backend.joins.filters.fill_columns` computes it.

    Attributes
    ----------
    number : int
        Its number, from 0.
    name : str
        The column of the events that it reads.
    dtype : str
        Type of that: int64 or float64.
    kind : int
    integers : (int, int, int)
        Factor, addend and mask, of integers.
    scales : (float, float, float, float)
        Row of `scales`, of floats.
    """

    number: int
    name: str
    dtype: str
    kind: int
    integers: tuple[int, int, int] = (0, 0, 0)
    scales: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


class PlainColumns:
    """All such columns of a query.

    Parameters
    ----------
    columns
    last_cell
        Number of the last cell of floats, at either end.
    """

    def __init__(self, columns: Sequence[PlainColumn], last_cell: float) -> None:
        self._read = list(dict.fromkeys((each.name, each.dtype) for each in columns))
        self._memory, self._tile = Scratch(np.int64), Scratch(np.int64, FILL_TILE)
        self._last_cell, self._bits = last_cell, [0] * len(self._read)
        plan = []
        for each in columns:
            at = self._read.index((each.name, each.dtype))
            self._bits[at] |= 1 << each.number
            plan.append((at, each.kind, 1 + each.number, *map(_wrapped, each.integers)))
        self._plan = np.array(plan, np.int64).reshape(-1, 6)
        self._scales = np.array([each.scales for each in columns], np.float64).reshape(-1, 4)

    def fill(self, view: RowsOfBlock, columns: Int64) -> int:
        """Compute the columns of a block's rows and the bits of valid ones; return their numbers as bits.

        Parameters
        ----------
        view
        columns : int64, shape (n rows, 1 + n columns), written
        """
        numbers = [view.whole.numbers(name) for name, _ in self._read]
        types = [each.dtype for each in numbers]
        stored = all(each.str[1:] in _STORED for each in types)
        if not numbers or not stored or [each.kind == "f" for each in types] != [d == F8 for _, d in self._read]:
            return 0
        sources = self._memory.empty(len(numbers) * view.n_rows).reshape(len(numbers), -1)
        floats = sources.view(np.float64)
        for at, each in enumerate(numbers):
            view.gather(each, floats[at] if each.dtype.kind == "f" else sources[at])
        filled = sum(self._bits)
        args = sources, floats, self._plan, self._scales, self._last_cell, filled
        if columns.flags.c_contiguous:
            tile = self._tile.empty(columns.shape[1])
            fill_columns(*args, columns, tile, tile.view(np.float64))
        else:
            fill_rows(*args, columns.T, columns.T.view(np.float64))
        for (name, _), bits in zip(self._read, self._bits, strict=True):
            valid = view.valid(name)
            if valid is not None:
                columns[~valid, 0] &= ~bits
        return filled


def affine_in(term: Value, inputs: Inputs) -> tuple[Column, Any, Any] | None:
    """Return a term as a column, a factor (1 or -1) and an addend; None if it is no such, or rounds twice."""
    if isinstance(term, Column):
        if inputs.columns[term.slot][1] != NUMBERS or term.stored == BIT or term.dtype not in (I8, F8):
            return None
        return (term, 1.0, _NOTHING) if term.dtype == F8 else (term, 1, 0)
    if not isinstance(term, Apply) or term.op not in ("+", "-", "negative") or term.dtype not in (I8, F8):
        return None
    read = [affine_in(each, inputs) for each in term.operands if not isinstance(each, Constant)]
    if term.beyond or len(read) != 1 or read[0] is None or read[0][0].dtype != term.dtype:
        return None
    column, factor, addend = read[0]
    if str(addend) != str(_NOTHING if term.dtype == F8 else 0):
        return None
    if term.op == "negative":
        return column, -factor, addend
    is_first = not isinstance(term.operands[0], Constant)
    constant = term.operands[1 if is_first else 0]
    assert isinstance(constant, Constant)
    number = inputs.constants[constant.dtype][constant.slot]
    number = float(number) if term.dtype == F8 else int(number)
    if term.op == "+":
        return column, factor, number
    return (column, factor, -number) if is_first else (column, -factor, number)


def _wrapped(integer: int) -> int:
    """Return an integer as int64 wraps it around."""
    return (integer + 2**63) % 2**64 - 2**63
