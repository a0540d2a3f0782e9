"""Inputs of terms, by slot: columns, constants, tables of dictionaries, and results computed outside of terms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Bools
from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.columns import Block, stored_values
from cer_gpu.columnar.dictionary_encoding import DictionaryCache
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.columnar.memory import read_only
from cer_gpu.columnar.resident import is_resident
from cer_gpu.errors import QueryTypeError
from cer_gpu.expressions.numbers import floats
from cer_gpu.expressions.string_sets import StringSet, TestTable
from cer_gpu.expressions.string_tests import OneOfPatterns
from cer_gpu.expressions.terms import BIT, F8, I8, STORED, U8, WIDE, Column, Constant, ExternalPredicate, Value

Rows = Bools | bool
"""Result for each row, or one for all of them."""

Operand = Value | int | float | None
"""A term, or a constant of the query: an exact integer, a float, or None for NULL."""

NUMBERS, FLOATS, CODES = "numbers", "floats", "codes"

_DTYPES = {stored: np.dtype(stored) for stored in STORED if stored != BIT}
_SIZES = {stored: dtype.itemsize for stored, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Stored:
    """A column in memory, all of it read-only.

    Attributes
    ----------
    values
        Contiguous values of the type that `Column.stored` names; uint8 for `BIT`.
    first_bit
        Position of the first value, for `BIT`; meaningless otherwise.
    valid : uint8 or None
        Validity bits: 1 for rows that are not NULL, or None if no row is NULL.
    first_valid
        Position of the first row's validity bit.
    resident
        True if `values` are a view of the memory of a GPU, which the host must not read.
    """

    values: npt.NDArray[Any]
    first_bit: int
    valid: npt.NDArray[np.uint8] | None
    first_valid: int
    resident: bool = False


@dataclass(frozen=True)
class BlockInputs:
    """Inputs of a program for one block.

    Attributes
    ----------
    n_rows : int
    columns : dict from slot to Stored
    constants : dict from type to array
    tables : dict from "types", "streams" or slot to array
    external : dict from slot to uint8 array, shape (n_rows,)
    """

    n_rows: int
    columns: Mapping[int, Stored]
    constants: Mapping[str, npt.NDArray[Any]]
    tables: Mapping[str | int, npt.NDArray[Any]] = field(default_factory=dict)
    external: Mapping[int, npt.NDArray[np.uint8]] = field(default_factory=dict)


class StatefulPredicate(ABC):
    """A function with a result for each row of a block, and a state from block to block."""

    @abstractmethod
    def __call__(self, block: Block) -> Rows:
        """Return the results."""

    @abstractmethod
    def fresh(self, memo: dict[object, Any]) -> StatefulPredicate:
        """Return the same function for another evaluation.

        Parameters
        ----------
        known
            State that functions share, and its copies so far.
        """


@dataclass
class Inputs:
    """Slots of the terms of one query over one schema.

    Attributes
    ----------
    schema : pyarrow.Schema
    columns : list of (str, str)
        Name of a column or field, and the values to read: `NUMBERS`, `FLOATS` (decimals as floats) or `CODES`.
    constants : dict from type to list
    tables : list of (Column, DictionaryCache)
        Column of codes, and the table computed from its dictionary: bool, FALSE for NULL.
    string_sets : dict from str to StringSet
        Tests of the strings of a column that are evaluated together, by its name.
    external : list of callable
    constants_once : bool
        True: equal constants have one slot, so that equal expressions are equal terms.
    """

    schema: pa.Schema
    columns: list[tuple[str, str]] = field(default_factory=list)
    constants: dict[str, list[Any]] = field(default_factory=lambda: {I8: [], U8: [], F8: [], WIDE: []})
    tables: list[tuple[Column, DictionaryCache]] = field(default_factory=list)
    string_sets: dict[str, StringSet] = field(default_factory=dict)
    external: list[Callable[[Block], Rows]] = field(default_factory=list)
    constants_once: bool = False

    def fresh(self) -> Inputs:
        """Return the same slots for another evaluation, with its own tables of dictionaries and lists."""
        sets = {name: each.fresh() for name, each in self.string_sets.items()}

        def fresh(column: Column, table: DictionaryCache) -> DictionaryCache:
            if isinstance(table, TestTable):
                return table.fresh_in(sets[self.columns[column.slot][0]])
            return table.fresh()

        tables = [(column, fresh(column, table)) for column, table in self.tables]
        memo = dict[object, Any]()
        external = [each.fresh(memo) if isinstance(each, StatefulPredicate) else each for each in self.external]
        columns = list(self.columns)
        constants = {dtype: list(values) for dtype, values in self.constants.items()}
        return replace(self, columns=columns, constants=constants, tables=tables, string_sets=sets, external=external)

    def column(self, name: str, read: str = NUMBERS) -> Column:
        """Return the term for an existing column or field."""
        if (name, read) not in self.columns:
            self.columns.append((name, read))
        data_type = attribute_type(self.schema, name)
        assert data_type is not None
        dictionary = pa.types.is_dictionary(data_type)
        slot = self.columns.index((name, read))
        if read == FLOATS:
            return Column(slot, F8)
        if read == CODES:
            return Column(slot, _stored_kind(data_type.index_type) if dictionary else "i4")
        data_type = data_type.value_type if dictionary else data_type
        if pa.types.is_decimal(data_type) and data_type.byte_width > 8:
            return Column(slot, I8, data_type.byte_width // 8)
        return Column(slot, _stored_kind(data_type))

    def constant(self, value: Any, dtype: str) -> Constant:
        """Add a constant and return its term."""
        constants = self.constants[dtype]
        if self.constants_once:
            for slot, other in enumerate(constants):
                if repr(other) == repr(value):  # 0.0 is not -0.0, and 1 is not True
                    return Constant(slot, dtype)
        constants.append(value)
        return Constant(len(constants) - 1, dtype)

    def table(self, codes: Column, test: Callable[[pa.Array], Bools]) -> int:
        """Add a test of the values of a dictionary and return its slot."""

        def compute(values: pa.Array) -> Bools:
            rows = test(values)
            return rows & np.asarray(values.is_valid()) if values.null_count else rows

        self.tables.append((codes, DictionaryCache(compute)))
        return len(self.tables) - 1

    def string_table(self, codes: Column, test: OneOfPatterns, negated: bool) -> int:
        """Add a test of strings, or its negation, that is evaluated together with others; return its slot."""
        name = self.columns[codes.slot][0]
        if name not in self.string_sets:
            self.string_sets[name] = StringSet()
        self.tables.append((codes, TestTable(self.string_sets[name], test, negated)))
        return len(self.tables) - 1

    def give(self, rows: Callable[[Block], Rows]) -> ExternalPredicate:
        """Add a function with a result for each row and return its term."""
        self.external.append(rows)
        return ExternalPredicate(len(self.external) - 1)

    def stored(self, column: Column, block: Block) -> Stored:
        """Return a column of a block in memory."""
        name, read = self.columns[column.slot]
        if read == CODES:
            codes, _, array = block.stored_codes(name)
            if codes is not None:
                return Stored(read_only(codes), 0, *_validity(array))
        else:
            array = block.array(name)
            if read == FLOATS or array.type == pa.float16():
                values = floats(array) if read == FLOATS else block.numbers(name)
                return Stored(read_only(values), 0, *_validity(array))
        data, first, n = array.buffers()[1], array.offset, len(array)
        if column.stored == BIT:
            values = np.zeros((first + n + 7) // 8, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        else:
            size = _SIZES[column.stored] * column.stride
            dtype = _DTYPES[column.stored]
            n *= column.stride
            values = np.zeros(n, dtype) if data is None else np.frombuffer(data, dtype, n, first * size)
        return Stored(read_only(values), first, *_validity(array), is_resident(array))

    def stored_of(self, columns: Iterable[Column], block: Block) -> dict[int, Stored]:
        """Return columns of a block in memory, by their slots."""
        return {column.slot: self.stored(column, block) for column in columns}

    def constant_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the constants of each type; wide integers by their halves, two int64 each, the upper one first."""
        plain = {dtype: values for dtype, values in self.constants.items() if dtype != WIDE}
        halves = [half for value in self.constants[WIDE] for half in halves_of(value)]
        return {
            **{dtype: read_only(np.array(values, dtype)) for dtype, values in plain.items()},
            WIDE: read_only(np.array(halves, np.int64)),
        }


def halves_of(value: int) -> tuple[int, int]:
    """Return the upper and the lower half of a wide integer, each as an int64."""
    low = value & (2**64 - 1)
    return value >> 64, low - (2**64 if low >= 2**63 else 0)


def _validity(array: pa.Array) -> tuple[npt.NDArray[np.uint8] | None, int]:
    return (
        (None, 0) if array.null_count == 0 else (read_only(np.frombuffer(array.buffers()[0], np.uint8)), array.offset)
    )


def _stored_kind(data_type: pa.DataType) -> str:
    """Return the `Column.stored` of a type that is no dictionary."""
    if pa.types.is_boolean(data_type):
        return BIT
    if pa.types.is_float16(data_type):
        return F8  # after `Block.numbers`
    sample = np.dtype(stored_values(pa.array([], data_type)).dtype)
    return f"{sample.kind}{sample.itemsize}"


class ExpressionBinder(Protocol):
    """A binder of expressions, as what makes derived columns sees it; `cer_gpu.expressions.binder.Binder` is one."""

    def column(self, attribute: s.Attribute) -> pa.DataType:
        """Return the type of a column's values."""

    def kind(self, expression: s.Expression) -> str:
        """Return the kind of an expression's values."""

    def number(self, expression: s.Expression) -> Operand:
        """Bind a numeric or boolean expression."""

    def number_apart(self, expression: s.Expression) -> tuple[Operand, Inputs]:
        """Bind a numeric or boolean expression of the columns so far, with inputs of its own."""

    def add_derived(self, name: str, column: Any) -> None:
        """Add a `cer_gpu.expressions.derived.DerivedColumn`, unless it is known."""

    def describe(self, expression: s.Expression) -> str:
        """Name an expression and its type."""

    def error(self, message: str, span: s.Span, hint: str | None = None) -> QueryTypeError:
        """Return an error that underlines a place in the query."""
