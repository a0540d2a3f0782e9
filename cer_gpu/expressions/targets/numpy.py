"""Target NumPy: terms over the rows of a block, one operation at a time; the definition for compiled code.

Three-valued logic needs no third value: a test is TRUE only if nothing that it reads is NULL.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from cer_gpu.arrays import Bools
from cer_gpu.columnar.columns import Block
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.inputs import FLOATS, Inputs, Rows
from cer_gpu.expressions.numbers import floats, to_float, to_int64, widened
from cer_gpu.expressions.operators import compare_type, spelling


def rows_of(test: t.BoundPredicate, inputs: Inputs, block: Block) -> Rows:
    """Return the rows for which a test is TRUE.

    Returns
    -------
    bool array, shape (n rows,), or bool for all of them
    """
    match test:
        case t.ConstantPredicate():
            return test.holds
        case t.And() | t.Or():
            together = operator.and_ if isinstance(test, t.And) else operator.or_
            rows = rows_of(test.tests[0], inputs, block)
            for other in test.tests[1:]:
                if together is operator.and_ and isinstance(rows, np.ndarray) and not rows.any():
                    break
                rows = together(rows, rows_of(other, inputs, block))
            return rows
        case t.Compare():
            x, x_valid = values_of(test.left, inputs, block)
            y, y_valid = values_of(test.right, inputs, block)
            rows = spelling(test.op, compare_type(test.left.dtype, test.right.dtype)).numpy(x, y)
            rows = np.logical_not(rows) if test.negated else rows
            return both(rows, both(x_valid, y_valid))  # type: ignore[no-any-return]
        case t.IsNotNull():
            valid = values_of(test.operand, inputs, block)[1]
            return not test.negated if valid is None else valid != test.negated
        case t.Lookup():
            name = inputs.columns[test.codes.slot][0]
            coded = block.coded(name)
            valid = block.valid(name)
            return both(inputs.tables[test.table][1].at(coded.values, coded.codes), valid)  # type: ignore[no-any-return]
        case t.ExternalPredicate():
            return inputs.external[test.slot](block)
    raise AssertionError(test)  # it reads several events


def values_of(term: t.Value, inputs: Inputs, block: Block) -> tuple[Any, Bools | None]:
    """Return values (an array, or one for all rows), and a mask of those that are not NULL (None if all are)."""
    match term:
        case t.Column():
            name, read = inputs.columns[term.slot]
            return floats(block.array(name)) if read == FLOATS else block.numbers(name), block.valid(name)
        case t.Constant():
            return inputs.constants[term.dtype][term.slot], None
        case t.ToFloat():
            x, valid = values_of(term.operand, inputs, block)
            return to_float(x), valid
        case t.ToWide():
            x, valid = values_of(term.operand, inputs, block)
            return widened(x, term.factor), valid
        case t.Apply():
            operands, valid = [], None
            for operand in term.operands:
                x, x_valid = values_of(operand, inputs, block)
                # constants, and integers of fewer bits, in 64 bits; wide ones are already
                operands.append(x if term.dtype == t.WIDE else to_float(x) if term.dtype == t.F8 else to_int64(x))
                valid = both(valid, x_valid)
            if term.divides:
                valid = both(valid, np.broadcast_to(operands[1] != 0, (block.n_rows,)))
            with np.errstate(all="ignore"):
                return spelling(term.op, term.dtype).numpy(*operands), valid
    raise AssertionError(term)


def both(a: Any, b: Any) -> Any:
    """Return the rows of two masks, each None for all of them."""
    return b if a is None else a if b is None else a & b
