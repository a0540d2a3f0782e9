"""Functions of several operands over the rows of a block, called once for each distinct combination of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Bools
from cer_gpu.columnar.columns import Block, is_string
from cer_gpu.columnar.dictionary_encoding import same_memory

_MAX_KEYS = 2**62


@dataclass(frozen=True)
class Varying:
    """An operand that differs from row to row: row i is ``values[codes[i]]``, or NULL where not `valid[i]`.

    `values` are strings as an Arrow array, or numbers and truths as one of NumPy; `valid` is None if no row is NULL.
    """

    codes: Array
    values: Any
    valid: Bools | None

    def at(self, codes: Array) -> list[Any]:
        """Return the values of some codes in Python."""
        if isinstance(self.values, np.ndarray):
            return self.values[codes].tolist()  # type: ignore[no-any-return]
        return self.values.take(pa.array(codes)).to_pylist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Uniform:
    """An operand that is one value for all rows."""

    value: Any


RowsOperand = Varying | Uniform


def coded_numbers(values: Array, valid: Bools | None) -> Varying:
    """Return numbers or truths as an operand; equal ones have one code."""
    unique, codes = np.unique(values, return_inverse=True)
    return Varying(codes.reshape(-1), unique, valid)


def results_of(compute: Callable[..., Any], operands: Iterable[Any], n: int, data_type: pa.DataType) -> pa.Array:
    """Return the results for rows of operands, each a list of n values or `Uniform`; NULL where one of them is NULL."""
    values = [repeat(each.value, n) if isinstance(each, Uniform) else each for each in operands]
    rows = zip(*values, strict=True)
    return pa.array([None if None in row else compute(*row) for row in rows], data_type)


def distinct_results(
    compute: Callable[..., Any], operands: Sequence[RowsOperand], data_type: pa.DataType
) -> tuple[pa.Array, pa.Array]:
    """Return the results of a function by distinct combination of its operands, and the number of that for each row.

    Parameters
    ----------
    compute
    operands
        At least one of them varies; all have the same number of rows.
    data_type
        Type of the results.

    Returns
    -------
    results : pyarrow.Array
    codes : pyarrow.Int32Array
        NULL where an operand is NULL.
    """
    varying = [each for each in operands if isinstance(each, Varying)]
    valid: Bools | None = None
    for each in varying:
        valid = each.valid if valid is None else valid if each.valid is None else valid & each.valid
    codes = [each.codes if valid is None else each.codes[valid] for each in varying]
    distinct, rows = _distinct(codes, [len(each.values) for each in varying])
    of_varying = iter([each.at(own) for each, own in zip(varying, distinct, strict=True)])
    values = [each if isinstance(each, Uniform) else next(of_varying) for each in operands]
    results = results_of(compute, values, len(distinct[0]), data_type)
    if valid is None:
        return results, pa.array(rows)
    all_rows = np.zeros(len(valid), np.int32)
    all_rows[valid] = rows
    return results, pa.array(all_rows, mask=~valid)


def _distinct(codes: Sequence[Array], sizes: Sequence[int]) -> tuple[list[Array], Array]:
    """Return the distinct combinations of codes, as the codes of each operand, and the combination of each row."""
    keys, n_keys = codes[0].astype(np.int64), max(1, sizes[0])
    distinct = [codes[0]]
    for i in range(1, len(codes)):
        size = max(1, sizes[i])
        if n_keys > _MAX_KEYS // size:
            first, keys = _number_keys(keys)
            n_keys = len(first)
        keys = keys * size + codes[i]
        n_keys *= size
        distinct.append(codes[i])
    first, rows = _number_keys(keys)
    return [own[first] for own in distinct], rows


def _number_keys(keys: Array) -> tuple[Array, Array]:
    """Return a row of each distinct key, and the number of the key of each row, as int32."""
    encoded = pa.array(keys).dictionary_encode()
    rows = encoded.indices.to_numpy()
    first = np.empty(len(encoded.dictionary), np.int64)
    first[rows[::-1]] = np.arange(len(rows))[::-1]
    return first, rows


def column_of(results: pa.Array, codes: pa.Array) -> pa.Array:
    """Return a column from its distinct values, and the number of that of each row: strings as a dictionary."""
    return pa.DictionaryArray.from_arrays(codes, results) if is_string(results.type) else results.take(codes)


class OneStringTest:
    """A function of one string, and of constants, over the blocks of a stream: called once for each distinct string.

    Parameters
    ----------
    column
        Name of the column.
    compute
        Returns the results for an array of strings.
    """

    def __init__(self, column: str, compute: Callable[[pa.Array], pa.Array]) -> None:
        self._column, self._compute = column, compute
        self._cached: tuple[pa.Array, pa.Array] | None = None  # strings, and the results for them

    def __call__(self, block: Block) -> pa.Array:
        """Return the results of a block, strings as a dictionary."""
        coded, valid = block.coded(self._column), block.valid(self._column)
        codes = coded.codes.astype(np.int32, copy=False)
        return column_of(self._look_up_results(coded.values), pa.array(codes, mask=None if valid is None else ~valid))

    def _look_up_results(self, values: pa.Array) -> pa.Array:
        if self._cached is None:
            results = self._compute(values)
        else:
            strings, results = self._cached
            if same_memory(values, strings):
                return results
            n = len(strings)
            if len(values) >= n and values.slice(0, n).equals(strings):  # a dictionary that has grown
                results = pa.concat_arrays([results, self._compute(values.slice(n))])
            else:
                results = self._compute(values)
        self._cached = values, results
        return results
