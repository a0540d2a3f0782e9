"""Fields in a schema: a name with dots is a column, a field of a struct, or a path through a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from cer_gpu.ceql.paths import path_of
from cer_gpu.expressions.lists import is_list


@dataclass(frozen=True)
class FieldPlace:
    """Place of a field in a schema.

    Attributes
    ----------
    attribute : str
        Column or field (`cer_gpu.ceql.paths`); of a list, that of the list.
    type : pyarrow.DataType
        Type of its values, or of the elements' values.
    in_list : bool
        True if it is a list, or within one.
    below : tuple of str
        Fields of an element that lead to the value.
    """

    attribute: str
    type: pa.DataType
    in_list: bool = False
    below: tuple[str, ...] = ()


def find_field(schema: pa.Schema | pa.DataType, names: tuple[str, ...]) -> FieldPlace | None:
    """Return where a field is, the longest names of columns and fields first, or None if there is none, or several.

    Examples
    --------
    >>> schema = pa.schema({"a.b": pa.struct({"c": pa.int64()}), "x": pa.list_(pa.string())})
    >>> find_field(schema, ("a", "b", "c")).attribute, find_field(schema, ("x",)).in_list
    ('`a.b`.`c`', True)
    """
    return next(_find_below(schema, names, ()), None)


def _find_below(
    holder: pa.Schema | pa.DataType, names: tuple[str, ...], above: tuple[str, ...]
) -> Iterator[FieldPlace]:
    for n in range(len(names), 0, -1):
        name = ".".join(names[:n])
        indices = holder.get_all_field_indices(name)
        if len(indices) != 1:
            continue
        path, data_type = (*above, name), _value_type_of(holder.field(indices[0]).type)
        rest = names[n:]
        if is_list(data_type):
            yield from _in_list(path, _value_type_of(data_type.value_type), rest)
        elif not rest:
            yield FieldPlace(path_of(path), data_type)
        elif isinstance(data_type, pa.StructType):
            yield from _find_below(data_type, rest, path)


def _in_list(path: tuple[str, ...], element: pa.DataType, rest: tuple[str, ...]) -> Iterator[FieldPlace]:
    """Yield the field of the elements of a list."""
    if not rest:
        yield FieldPlace(path_of(path), element, in_list=True)
    elif isinstance(element, pa.StructType):
        for below, data_type in fields_of(element, rest):
            yield FieldPlace(path_of(path), data_type, in_list=True, below=below)


def fields_of(struct: pa.StructType, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Yield the fields of a struct that names lead to, without lists between, and their types."""
    for n in range(len(names), 0, -1):
        name, rest = ".".join(names[:n]), names[n:]
        indices = struct.get_all_field_indices(name)
        if len(indices) != 1:
            continue
        data_type = _value_type_of(struct.field(indices[0]).type)
        if not rest:
            yield (name,), data_type
        elif isinstance(data_type, pa.StructType):
            yield from (((name, *below), value_type) for below, value_type in fields_of(data_type, rest))


def fields_below(schema: pa.Schema) -> Iterator[FieldPlace]:
    """Yield the columns of a schema and the fields of its structs that hold values, and lists of values.

    Examples
    --------
    >>> schema = pa.schema({"a": pa.struct({"b": pa.int64()}), "x": pa.list_(pa.string())})
    >>> [(field.attribute, field.in_list) for field in fields_below(schema)]
    [('`a`.`b`', False), ('x', True)]
    """
    for names in _paths(schema):
        place = find_field(schema, names)
        if place is not None and not isinstance(place.type, pa.StructType):
            yield place


def field_names(schema: pa.Schema) -> list[str]:
    """Return the names of columns and of fields of structs, with dots, for hints."""
    return [".".join(path) for path in _paths(schema)]


def in_another_case(missing: Iterable[str], schema: pa.Schema) -> dict[str, str]:
    """Return names of a schema by the missing fields that differ from them only in the case of letters.

    Examples
    --------
    >>> in_another_case(["commandline", "Image"], pa.schema({"CommandLine": pa.string()}))
    {'commandline': 'CommandLine'}
    """
    by_folded_name = {name.casefold(): name for name in field_names(schema)}
    return {name: by_folded_name[name.casefold()] for name in missing if name.casefold() in by_folded_name}


def _paths(schema: pa.Schema) -> Iterator[tuple[str, ...]]:
    """Yield the names on the paths of columns and of fields of structs."""
    todo: list[tuple[tuple[str, ...], pa.DataType]] = [((field.name,), field.type) for field in reversed(list(schema))]
    while todo:
        path, data_type = todo.pop()
        data_type = _value_type_of(data_type)
        yield path
        if isinstance(data_type, pa.StructType):
            todo += [((*path, field.name), field.type) for field in reversed(list(data_type))]


def _value_type_of(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type
