"""``ANY(list) = v`` and its kin: a test of the elements of lists, and its answers row by row.

The elements of a block are a block of their own, beside the values of their rows that the test reads, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Bools
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import dotted, path_of
from cer_gpu.ceql.traversal import mapped
from cer_gpu.columnar.columns import BOOLEAN, STRING, Block, kind_of, take_rows
from cer_gpu.columnar.fields import attribute_type
from cer_gpu.expressions.derived import makers_of
from cer_gpu.expressions.targets.numpy import rows_of
from cer_gpu.expressions.terms import Test

if TYPE_CHECKING:
    from cer_gpu.expressions.binder import Binder


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

    def block(self, lists: pa.Array, rows: pa.Array, events: Block) -> Block:
        """Return the elements of some rows as a block; `rows` has the row of each element."""
        values = pc.list_flatten(lists)
        others = [take_rows(events.column(name), rows) for name in self.others]
        return Block(pa.RecordBatch.from_arrays([values, *others], names=self.schema.names))


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


def any_rows(elements: Elements, test: Test, binder: Binder, negated: bool, events: Block) -> Bools:
    """Return the rows for which one element passes; negated, those for which the test is FALSE of each element.

    Parameters
    ----------
    elements
    test, binder
        Test of an element, TRUE where that is TRUE; negated, where it is FALSE; and the binder that made it.
    negated
    events
    """
    lists = events.array(elements.list)
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    rows = np.repeat(np.arange(len(lists)), lengths)
    found = np.zeros(len(lists), np.bool_)
    if len(rows):
        block = elements.block(lists, pa.array(rows), events)
        block.derive(makers_of(binder.derived))
        passing = rows_of(test, binder.inputs.fresh(), block)
        passing = np.broadcast_to(np.asarray(passing, np.bool_), rows.shape)
        found[rows[passing != negated]] = True
    return np.asarray(lists.is_valid()) & ~found if negated else found
