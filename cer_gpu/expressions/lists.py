"""``ANY(list) = v`` and similar tests: a test of the elements of lists, and its results row by row.

The elements of a block form a block of their own, with the values of their rows that the test reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Bools, Int32, Int64
from cer_gpu.backend.compaction import group_rows
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import dotted, path_of
from cer_gpu.ceql.traversal import mapped
from cer_gpu.columnar.columns import BOOLEAN, STRING, Block, DictionaryEncoded, RowsOfBlock, kind_of, take_rows
from cer_gpu.columnar.dictionary_encoding import DictionaryEncoder
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.columnar.memory import read_only
from cer_gpu.expressions.derived import DerivedColumn, makers_of
from cer_gpu.expressions.inputs import Inputs, StatefulPredicate
from cer_gpu.expressions.targets.numpy import rows_of
from cer_gpu.expressions.terms import BoundPredicate, Lookup

MAX_STRINGS = 64
"""Most strings whose elements are concatenated one by one."""

FEW_ELEMENTS_OF = 8
"""Ratio of the elements of a block to those that pass, above which the elements of a string are looked up."""


@dataclass(frozen=True)
class Elements:
    """The elements of lists as rows of their own.

    Attributes
    ----------
    list : str
        Column or field of the lists.
    others : tuple of str
        Columns and fields of the events that the test reads, too.
    schema : pyarrow.Schema
        Columns of the elements and the others.
    """

    list: str
    others: tuple[str, ...]
    schema: pa.Schema

    def block(self, lists: pa.Array, rows: pa.Array, events: Block, coders: dict[str, DictionaryEncoder]) -> Block:
        """Return the elements of some rows as a block; `rows` has the row of each element."""
        values = pc.list_flatten(lists)
        others = [take_rows(events.column(name), rows) for name in self.others]
        return Block(pa.RecordBatch.from_arrays([values, *others], names=self.schema.names), coders)


def is_list(data_type: pa.DataType) -> bool:
    """Return True for the types of lists whose elements `ANY` tests."""
    return bool(
        pa.types.is_list(data_type) or pa.types.is_large_list(data_type) or pa.types.is_fixed_size_list(data_type)
    )


def hint(attribute: str, data_type: pa.DataType) -> str | None:
    """Return a hint for a list in place of a value; None: the type is no list."""
    if not is_list(data_type):
        return None
    example = {STRING: "= 'x'", BOOLEAN: "= TRUE"}.get(kind_of(data_type.value_type) or "", "> 3")
    return f"a test that one of its elements passes: ANY({dotted(attribute)}) {example}"


def elements_of(test: s.AnyElement, schema: pa.Schema, data_type: pa.DataType) -> tuple[Elements, s.Predicate]:
    """Return the rows that a test of elements is of, and that test as one of these rows.

    Parameters
    ----------
    test
    schema
        Schema of the events, with derived columns.
    data_type
        Type of the lists.
    """
    name = f"ANY({dotted(test.element.list.name)})"

    of_one = mapped(test.test, s.Element, lambda node: s.Attribute(path_of([name, *node.fields]), node.span))
    read = {a.name: attribute_type(schema, a.name) for a in s.attributes(test.test) if a != test.element.list}
    others = {other: kind for other, kind in read.items() if kind is not None}  # the binder refuses a missing one
    fields = [pa.field(name, data_type.value_type), *(pa.field(other, kind) for other, kind in others.items())]
    return Elements(test.element.list.name, tuple(others), pa.schema(fields)), of_one


class _Read(NamedTuple):
    """The elements of the lists of a block.

    Attributes
    ----------
    events : Block
        The rows with the lists.
    valid : bool, shape (rows,)
        Rows whose list is not NULL.
    rows : int64, shape (elements,)
        The row of each element.
    block : Block
        The elements.
    places : dict from str to (begins, places)
        Elements of each string of a column: int64, shape (strings + 1,), and int32, ascending for each string;
        those of NULL follow all others.
    """

    events: Block
    valid: Bools
    rows: Int64
    block: Block
    places: dict[str, tuple[Int64, Int32]]


class ElementTests:
    """Tests of the elements of the same lists, which are taken out of a block once for all tests.

    Parameters
    ----------
    elements : Elements
    inputs : Inputs
        Inputs of all tests.
    derived : dict from str to DerivedColumn
        Columns that are computed from those of the elements.
    """

    def __init__(self, elements: Elements, inputs: Inputs, derived: dict[str, DerivedColumn]) -> None:
        self._elements, self._inputs, self._derived = elements, inputs, derived
        self._coders: dict[str, DictionaryEncoder] = {}
        self._last: _Read | None = None
        self._n_derived = 0

    def fresh(self) -> ElementTests:
        """Return the same tests for another evaluation."""
        return ElementTests(self._elements, self._inputs.fresh(), self._derived)

    def any_rows(self, test: BoundPredicate, negated: bool, events: Block) -> Bools:
        """Return the rows for which one element passes; negated, those for which the test is FALSE of each element.

        Parameters
        ----------
        test
            Test of an element, TRUE where that is TRUE; negated, where it is FALSE.
        negated
        events
        """
        some_rows = isinstance(events, RowsOfBlock)
        read = self._read_elements(events.whole if some_rows else events)  # type: ignore[attr-defined]
        few = self._few(test, negated, read)
        if few is None and some_rows:
            read = self._take_elements(events)
        mask = np.zeros(len(read.valid), np.bool_)
        if few is None:
            passing = np.asarray(rows_of(test, self._inputs, read.block), np.bool_)
            mask[read.rows[np.broadcast_to(passing, read.rows.shape) != negated]] = True
        else:
            mask[read.rows[few]] = True
        mask = read.valid & ~mask if negated else mask
        return mask if read.events is events else events.at(mask)  # type: ignore[attr-defined]

    def _read_elements(self, events: Block) -> _Read:
        """Return the elements of a block, cached until the next block."""
        if self._last is None or self._last.events is not events:
            self._last = self._take_elements(events)
        elif len(self._derived) > self._n_derived:  # a test that was bound since reads other columns
            self._derive(self._last.block)
        return self._last

    def _take_elements(self, events: Block) -> _Read:
        lists = events.array(self._elements.list)
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
        rows = np.repeat(np.arange(len(lists)), lengths)
        block = self._elements.block(lists, pa.array(rows), events, self._coders)
        self._derive(block)
        return _Read(events, np.asarray(lists.is_valid()), rows, block, {})

    def _derive(self, block: Block) -> None:
        block.derive(makers_of(self._derived))
        self._n_derived = len(self._derived)

    def _few(self, test: BoundPredicate, negated: bool, read: _Read) -> Int32 | None:
        """Return the elements that pass a test of their string, or negated fail it, if few, or None if unknown."""
        if not isinstance(test, Lookup) or not len(read.rows):
            return None
        name = self._inputs.columns[test.codes.slot][0]
        coded, table = read.block.coded(name), self._inputs.tables[test.table][1]
        codes = np.flatnonzero(~table(coded.values)[:-1]) if negated else table.codes(coded.values)
        begins, places = read.places.get(name) or self._by_text(name, coded, read)
        if len(codes) > MAX_STRINGS or FEW_ELEMENTS_OF * np.sum(begins[codes + 1] - begins[codes]) > len(read.rows):
            return None
        parts = [places[begins[code] : begins[code + 1]] for code in codes.tolist()]
        nulls = places[begins[-1] :] if negated else places[:0]
        return np.concatenate([nulls, *parts])

    def _by_text(self, name: str, coded: DictionaryEncoded, read: _Read) -> tuple[Int64, Int32]:
        """Return the elements of each string of a column, those of NULL last."""
        codes, valid = coded.codes.astype(np.int32), read.block.valid(name)
        if valid is not None:
            codes[~valid] = -1
        begins, places = np.empty(len(coded.values) + 1, np.int64), np.empty(len(codes), np.int32)
        group_rows(read_only(codes), begins, places)
        if valid is not None:
            places[begins[-1] :] = np.flatnonzero(~valid)
        read.places[name] = begins, places
        return begins, places


class AnyOfList(StatefulPredicate):
    """``ANY(list)`` of a test: its rows in one block after the other.

    Parameters
    ----------
    of : ElementTests
    test, negated
        As of `ElementTests.any_rows`.
    """

    def __init__(self, of: ElementTests, test: BoundPredicate, negated: bool) -> None:
        self._of, self._test, self._negated = of, test, negated

    def __call__(self, block: Block) -> Bools:
        """Return the rows of a block for which one element passes."""
        return self._of.any_rows(self._test, self._negated, block)

    def fresh(self, memo: dict[object, Any]) -> AnyOfList:
        """See `StatefulPredicate`."""
        of = memo.get(self._of)
        if of is None:
            of = memo[self._of] = self._of.fresh()
        return AnyOfList(of, self._test, self._negated)
