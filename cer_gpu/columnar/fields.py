"""Lookup of columns, and of fields of structs in them, by the names of attributes (`cer_gpu.ceql.paths`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.ceql.paths import dotted, names_of, path_of
from cer_gpu.ceql.syntax import Span
from cer_gpu.errors import QueryTypeError, did_you_mean

_ADDED = "$"
"""Prefix of the names of columns added to events, such as row numbers, which hints leave out."""


def attribute_type(schema: pa.Schema, attribute: str) -> pa.DataType | None:
    """Return the type of a column or field, or None if there is none, or more than one, of that name."""
    data_type: pa.Schema | pa.DataType = schema
    for name in names_in(schema, attribute):
        holder = _nested_schema(data_type)
        if holder is None or len(holder.get_all_field_indices(name)) != 1:
            return None
        data_type = holder.field(name).type
    return data_type


def column_type(schema: pa.Schema, attribute: str, text: str | None, span: Span | None) -> pa.DataType:
    """Return the type of a column or field, or of its values for a dictionary.

    Raises
    ------
    QueryTypeError
        When there is no column or field, or more than one, of that name.
    """
    data_type = attribute_type(schema, attribute)
    if data_type is None:
        message, hint = _describe_missing(schema, attribute)
        start, end = span or (None, None)
        raise QueryTypeError(message, text, start, end, hint)
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def fields_hint(attribute: str, data_type: pa.DataType) -> str | None:
    """Return a hint with the fields of a struct, for use in place of the struct; None: the type is no struct."""
    holder = _nested_schema(data_type)
    return f"its fields are {', '.join(f'{dotted(attribute)}.{field.name}' for field in holder)}" if holder else None


def array_of(batch: pa.RecordBatch, attribute: str) -> pa.Array:
    """Return an existing column or field of a batch; a field of a NULL struct is NULL."""
    column, *names = names_in(batch.schema, attribute)
    array = batch.column(column)
    for name in names:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        array = pc.struct_field(array, [array.type.get_field_index(name)])
    return array


def with_column(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return a batch with a column for the field at a dotted path, unless there is one."""
    if name in batch.schema.names or len(names_in(batch.schema, name)) == 1:
        return batch
    return batch.append_column(name, array_of(batch, name))


def is_field_column(schema: pa.Schema, name: str) -> bool:
    """Return True if a column is one that `with_column` adds: the schema also has the field at its path."""
    return "." in name and name in schema.names and len(_path_with_dots(schema, name)) > 1


def columns_with(schema: pa.Schema, attributes: Iterable[str]) -> list[str]:
    """Return the columns of attributes or of the structs around them, in their order, each once."""
    return list(dict.fromkeys(names_in(schema, attribute)[0] for attribute in attributes))


def narrowest(schema: pa.Schema, attributes: Collection[str]) -> list[str]:
    """Return attributes without those nested in others, in the order of the columns."""
    paths = {names_in(schema, attribute) for attribute in attributes}
    by_column: dict[str, list[tuple[str, ...]]] = {}
    for path in sorted(paths):
        if not any(path[:n] in paths for n in range(1, len(path))):
            by_column.setdefault(path[0], []).append(path)
    return [path_of(path) for name in schema.names for path in by_column.get(name, ())]


def retyped(schema: pa.Schema, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return a schema with other types of some columns, and at its end with those of them that it lacks."""
    own = dict(types)
    fields = [field.with_type(own.pop(field.name, field.type)) for field in schema]
    return pa.schema([*fields, *own.items()])


def batch_of(attributes: Sequence[str], arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return a batch with just these columns and fields, such that `array_of` returns them again."""
    tree: dict[str, object] = {}
    for attribute, array in zip(attributes, arrays, strict=True):
        *above, name = names_of(attribute)
        holder = tree
        for each in above:
            holder = holder.setdefault(each, {})  # type: ignore[assignment]
        holder[name] = array
    return pa.RecordBatch.from_arrays([_struct_array(each) for each in tree.values()], names=list(tree))


def _struct_array(tree: object) -> pa.Array:
    if not isinstance(tree, Mapping):
        return tree
    return pa.StructArray.from_arrays([_struct_array(each) for each in tree.values()], names=list(tree))


def names_in(schema: pa.Schema, attribute: str) -> tuple[str, ...]:
    """Return the names on the path of an attribute; a name that is a column's is never read as a path.

    A name with dots that is no column's, as the options of times and types have it, is read as a path.
    """
    names = names_of(attribute)
    if len(names) == 1:
        is_path = "." in attribute and not schema.get_all_field_indices(attribute)
        return _path_with_dots(schema, attribute) if is_path else names
    return (attribute,) if schema.get_all_field_indices(attribute) else names


def _path_with_dots(schema: pa.Schema, attribute: str) -> tuple[str, ...]:
    """Return the path to the one field of a struct with this dotted name, else the name alone."""
    parts = attribute.split(".")
    for n in range(len(parts) - 1, 0, -1):
        column = ".".join(parts[:n])
        if len(schema.get_all_field_indices(column)) != 1:
            continue
        holder = _nested_schema(schema.field(column).type)
        for name in parts[n:]:
            if holder is None or len(holder.get_all_field_indices(name)) != 1:
                break
            holder = _nested_schema(holder.field(name).type)
        else:
            return (column, *parts[n:])
    return (attribute,)


def _nested_schema(holder: pa.Schema | pa.DataType) -> pa.Schema | pa.StructType | None:
    """Return the schema, or the struct (perhaps of a dictionary's values), that has fields, or None without any."""
    if isinstance(holder, pa.Schema):
        return holder
    holder = holder.value_type if pa.types.is_dictionary(holder) else holder
    return holder if pa.types.is_struct(holder) else None


def _describe_missing(schema: pa.Schema, attribute: str) -> tuple[str, str | None]:
    """Return the message and the hint for an attribute that is not there."""
    names = names_of(attribute)
    data_type: pa.Schema | pa.DataType = schema
    for depth, name in enumerate(names):
        holder, above = _nested_schema(data_type), dotted(path_of(names[:depth])) if depth else ""
        if holder is None:
            return f"column {above!r} is {data_type}, and has no field {name!r}", _in_backquotes(schema, attribute)
        n_fields = len(holder.get_all_field_indices(name))
        if n_fields != 1:
            kind, whose = ("field", f"the struct {above!r} has") if depth else ("column", "the events have")
            how_many = f"no {kind}" if not n_fields else f"{n_fields} {kind}s"
            field_names = [dotted(field.name) for field in holder if depth or not field.name.startswith(_ADDED)]
            hint = _in_backquotes(schema, attribute) or did_you_mean(name, field_names, f"{kind}s")
            return f"{whose} {how_many} {name!r}", "rename all but one" if n_fields else hint
        data_type = holder.field(name).type
    raise AssertionError(attribute)


def _in_backquotes(schema: pa.Schema, attribute: str) -> str | None:
    """Return a hint if the whole path, with dots, is the name of a column."""
    name = dotted(attribute)
    return f"a column is called so: `{name}`" if name != attribute and name in schema.names else None
