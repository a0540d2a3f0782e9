"""Results that Arrow computes for a whole block: of decimals of many digits, of strings of two columns, and of NULL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Bools
from cer_gpu.columnar.columns import DECIMAL, Block, kind_of
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.operators import OPERATORS


def arrow_rows(result: pa.Array, negated: bool) -> Bools:
    """Return the rows for which Arrow's three-valued result is TRUE (FALSE when negated)."""
    if negated:
        result = pc.invert(result)
    return np.asarray(result.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


@dataclass(frozen=True)
class NullRows:
    """The rows of a column that are NULL, or that are not NULL."""

    name: str
    negated: bool

    def __call__(self, block: Block) -> Bools:
        """Return the rows of a block."""
        valid = block.valid(self.name)
        rows: Bools = np.ones(block.n_rows, np.bool_) if valid is None else valid
        return rows if self.negated else np.logical_not(rows)


def of_arrow(op: str) -> Callable[[Any, Any], pa.Array]:
    """Return a comparison of arrays of Arrow."""
    function: Any = OPERATORS[op].of[t.I8].arrow
    return function  # type: ignore[no-any-return]


def decimals(array: pa.Array, common: pa.DataType) -> pa.Array:
    """Cast decimals, integers or durations (which Arrow does not cast directly) to a decimal type."""
    return (array.cast(pa.int64()) if pa.types.is_duration(array.type) else array).cast(common)


def common_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that holds all values of two decimal (or integer) types, or None if there is none."""
    digits = [(t.precision, t.scale) if kind_of(t) == DECIMAL else (20, 0) for t in (a, b)]
    scale = max(0, *(scale for _, scale in digits))
    fits = max(precision - scale for precision, scale in digits) + scale <= 76
    return pa.decimal256(76, scale) if fits else None
