"""Keys of events by the steps that they satisfy, where an event may have several: lists, fields of unlike names."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int32, Int64
from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.step_keys import OwnKeys, StepKey, StepwiseKeys
from cer_gpu.columnar.columns import as_type, is_string, plain_array, plain_type, take_rows
from cer_gpu.columnar.fields import array_of, column_type
from cer_gpu.errors import EventsError, QueryTypeError
from cer_gpu.expressions.lists import is_list
from cer_gpu.partition.partitions import PartitionKeys, some_value

NUMBER_BITS = 16
"""Bits of the number of a record among those of its event."""
MAX_KEYS = 1 << NUMBER_BITS
"""Most records of one event."""
_UNITS = ("s", "ms", "us", "ns")


class Expanded(NamedTuple):
    """Records of some rows: one for each key of each row, in the order of the rows.

    Attributes
    ----------
    rows : int64, shape (n,)
        Index of the row of each record.
    keys : list of pyarrow.Array
        Columns that tell keys apart, of the types in `KeysByStep.parts`.
    """

    rows: Int64
    keys: list[pa.Array]


class KeysByStep(PartitionKeys):
    """Key columns of a query whose events have keys by their steps, over one schema.

    Parameters
    ----------
    keys
    schema : pyarrow.Schema
    text
        The query, for error messages.

    Attributes
    ----------
    roles : tuple of OwnKeys
        Distinct keys of steps; the other attributes are those of `PartitionKeys`.

    Raises
    ------
    QueryTypeError
        When a column is missing, its values have no equality, or the keys of two steps are of different kinds.
    """

    def __init__(self, keys: StepwiseKeys, schema: pa.Schema, text: str) -> None:
        self.roles: tuple[OwnKeys, ...] = tuple(dict.fromkeys(keys.roles))
        self.brackets: tuple[tuple[str, ...], ...] = ()
        self.names: list[str] = list(keys.columns)
        places = list(zip(*self.roles, strict=True))
        read = (key.attribute for role in self.roles for key in role)
        self.columns: list[str] = list(dict.fromkeys(name for name in read if name is not None))
        self.types: list[pa.DataType] = [_common_type(keys_at, schema, text) for keys_at in places]
        self.nullable: tuple[bool, ...] = tuple(any(key.nullable for key in keys_at) for keys_at in places)
        self.nocase: tuple[bool, ...] = tuple(False for _ in places)
        self.parts: list[pa.DataType] = []
        for kind, nullable in zip(self.types, self.nullable, strict=True):
            self.parts += [kind, pa.bool_()] if nullable else [kind]

    def expand(self, batch: pa.RecordBatch, rows: Int32, role: OwnKeys, parts: list[pa.DataType]) -> Expanded:
        """Return the records of some rows of a batch for the keys of one step.

        Parameters
        ----------
        batch
        rows
        role
            One of `roles`.
        parts
            Types of the columns that tell keys apart, to which others are cast.
        """
        expanded, kinds, chosen = Expanded(np.arange(len(rows)), []), iter(parts), pa.array(rows)
        for key, nullable in zip(role, self.nullable, strict=True):
            kind = next(kinds)
            parents, values = _values_of(key, batch, chosen, kind)
            if key.nullable:
                parents, values = _with_null(parents, values, len(rows))
            counts = np.bincount(parents, minlength=len(rows))
            begins = np.cumsum(counts) - counts
            n_each = counts[expanded.rows]
            before = np.cumsum(n_each) - n_each
            at = np.arange(int(n_each.sum())) + np.repeat(begins[expanded.rows] - before, n_each)
            again = pa.array(np.repeat(np.arange(len(expanded.rows)), n_each))
            own = values.take(pa.array(at))
            columns = _without_null(own, kind) if nullable and next(kinds) is not None else [own]
            expanded = Expanded(
                np.repeat(expanded.rows, n_each), [*(each.take(again) for each in expanded.keys), *columns]
            )
            if len(expanded.rows) and int(np.bincount(expanded.rows).max()) > MAX_KEYS:
                raise EventsError(f"an event has more than {MAX_KEYS:,} keys of {', '.join(self.names)}")
        return expanded

    def at(self, batch: pa.RecordBatch, rows: pa.Array, types: list[pa.DataType]) -> list[pa.Array]:
        """Return no columns: the rows of a funnel, of which each is of one event, show no keys by step."""
        return []

    def shown(self, keys: list[pa.Array]) -> list[pa.Array]:
        """Return keys as results show them, of the columns that tell them apart."""
        columns, shown = iter(keys), []
        for kind, nullable in zip(self.types, self.nullable, strict=True):
            value, missing = next(columns), next(columns) if nullable else None
            if pa.types.is_null(kind):
                value = pa.nulls(len(value), kind)
            elif missing is not None:
                value = pc.if_else(missing, pa.scalar(None, kind), value)
            shown.append(value)
        return shown


def _value_type(key: StepKey, schema: pa.Schema, text: str) -> pa.DataType:
    """Return the type of the values of a key."""
    if key.attribute is None:
        return pa.null()
    kind = column_type(schema, key.attribute, text, key.span)
    if key.in_list:
        assert is_list(kind)
        kind = plain_type(kind.value_type)
        for name in key.below:
            kind = plain_type(kind.field(name).type)
    kind = plain_type(kind)
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        of = "the elements of " if key.in_list else ""
        raise QueryTypeError(f"a key is a plain value, and {of}{dotted(key.attribute)!r} is {kind}", text, *key.span)
    return kind


def _common_type(keys: tuple[StepKey, ...], schema: pa.Schema, text: str) -> pa.DataType:
    """Return the type in which the values of a key are compared."""
    typed: list[tuple[StepKey, pa.DataType]] = []
    for key in keys:
        kind = _value_type(key, schema, text)
        if not pa.types.is_null(kind):
            typed.append((key, kind))
    common = typed[0][1] if typed else pa.null()
    for key, kind in typed[1:]:
        joined = _joined(common, kind)
        if joined is None:
            first = typed[0][0].attribute
            message = (
                f"the keys of two steps are compared, and {dotted(str(first))!r} is {common}, "
                f"{dotted(str(key.attribute))!r} {kind}"
            )
            raise QueryTypeError(message, text, *key.span)
        common = joined
    return common


def _joined(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the common type of two, or None if their values are not compared."""
    if one == other:
        return one
    if is_string(one) and is_string(other):
        return pa.large_string()
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return pa.timestamp(max(one.unit, other.unit, key=_UNITS.index), one.tz)
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other)):
        both = [pa.schema([("key", kind)]) for kind in (one, other)]
        return pa.unify_schemas(both, promote_options="permissive")[0].type
    return None


def _values_of(key: StepKey, batch: pa.RecordBatch, rows: pa.Array, kind: pa.DataType) -> tuple[Int64, pa.Array]:
    """Return the distinct values of some rows, without NULL, and the index of the row of each."""
    if key.attribute is None:
        return np.empty(0, np.int64), pa.array([], kind)
    column = take_rows(array_of(batch, key.attribute), rows)
    if not key.in_list:
        values = as_type(column, kind, f"the key {dotted(key.attribute)!r}")
        valid = pc.is_valid(values)
        return np.flatnonzero(valid.to_numpy(zero_copy_only=False)), values.filter(valid)
    column = plain_array(column)
    parents = pc.list_parent_indices(column).to_numpy().astype(np.int64)
    values = reduce(lambda values, name: pc.struct_field(values, name), key.below, pc.list_flatten(column))
    values = as_type(plain_array(values), kind, f"the elements of the key {dotted(key.attribute)!r}")
    valid = pc.is_valid(values)
    parents, values = parents[valid.to_numpy(zero_copy_only=False)], values.filter(valid)
    if pa.types.is_floating(kind):
        values = pc.add(values, pa.scalar(0.0, kind))  # -0.0 and 0.0 are one key
    codes = np.zeros(0, np.int64)
    if len(values):
        codes = pc.dictionary_encode(values).indices.to_numpy().astype(np.int64)
    _, first = np.unique(parents * (int(codes.max(initial=0)) + 1) + codes, return_index=True)
    first.sort()
    return parents[first], values.take(pa.array(first))


def _with_null(parents: Int64, values: pa.Array, n_rows: int) -> tuple[Int64, pa.Array]:
    """Return values with a NULL for each row that has none."""
    without = np.setdiff1d(np.arange(n_rows), parents, assume_unique=False)
    all_parents = np.concatenate([parents, without])
    order = np.argsort(all_parents, kind="stable")
    return all_parents[order], pa.concat_arrays([values, pa.nulls(len(without), values.type)]).take(pa.array(order))


def _without_null(values: pa.Array, kind: pa.DataType) -> list[pa.Array]:
    """Return values whose NULL is a key as two columns: any value in its place, and where it was."""
    missing = pc.is_null(values)
    return [missing if pa.types.is_null(kind) else values.fill_null(some_value(kind)), missing]


def numbers_within(rows: Any) -> Int64:
    """Return the number of each record among those of its row, of rows in order.

    Raises
    ------
    EventsError
        When there are more than `MAX_KEYS`.
    """
    n = len(rows)
    begins = np.concatenate([[True], rows[1:] != rows[:-1]])[:n]
    places = np.arange(n)
    numbers: Int64 = places - np.maximum.accumulate(np.where(begins, places, 0)) if n else places
    if n and int(numbers.max()) >= MAX_KEYS:
        raise EventsError(f"an event has more than {MAX_KEYS:,} keys")
    return numbers
