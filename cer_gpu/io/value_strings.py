"""Formatting of Arrow columns as strings, a whole column at a time: JSON lines, CSV, and plain cells.

| values | plain | JSON | CSV |
| --- | --- | --- | --- |
| NULL | NULL | ``null`` | nothing |
| booleans, integers, decimals | digits, exactly | the same | the same |
| floats | the shortest string that is read as it | the same; NaN and infinities are ``null`` | as plain |
| string | itself | escaped, in quotes | in quotes, each quote doubled |
| timestamps, dates, times of day | ISO 8601, in UTC with a Z where there is a zone | the same, in quotes | as plain |
| durations | hours, minutes, seconds: ``1:12:07``, ``2d 0:00:00.5`` | ISO 8601, in quotes: ``PT1H12M7S`` | the same |
| binary | base64 | the same, in quotes | as plain |
| lists, structs | JSON | arrays, objects | JSON in quotes; a list of integers: numbers with a space between |
| maps | JSON | an array of ``{"key": ..., "value": ...}`` | JSON in quotes |
| intervals | JSON | ``[months, days, nanoseconds]`` | JSON in quotes |

Dictionaries and run-end encodings are written as their values, extension types as their storage, and a value of a union
as one of its own type.  Bytes in a string column that are not UTF-8 become U+FFFD.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.clocks import UNITS_PER_SECOND
from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.dictionary_encoding import bytes_of

TEXT = pa.large_string()

_FIRST_SECOND, _LAST_SECOND = -62_167_219_200, 253_402_300_799  # years 0 to 9999, of four digits


def json_lines(batch: pa.RecordBatch) -> pa.Buffer:
    """Return a batch as JSON, one object per line."""
    parts = _object_parts(batch.schema.names, batch.columns, batch.num_rows)
    return _data(_together(*parts, "\n"))


def csv_lines(batch: pa.RecordBatch) -> pa.Buffer:
    """Return a batch as CSV without its header."""
    *columns, last = map(to_csv, batch.columns)
    return _data(_together(*columns, _together(last, "\n"), separator=","))


def csv_header(names: list[str]) -> bytes:
    """Return the first line of a CSV file, with names quoted if necessary."""
    fields = [
        '"' + name.replace('"', '""') + '"' if not name or re.search(r'[",\r\n]', name) else name for name in names
    ]
    return (",".join(fields) + "\n").encode()


def plain_values(values: pa.Array) -> pa.Array:
    """Return values as large strings; NULL stays NULL."""
    kind = values.type
    if _is_layout(kind):
        return _through_layout(values, plain_values)
    if is_string(kind):
        return _utf8(values.cast(TEXT))
    if pa.types.is_floating(kind):
        return _floats(values)
    if pa.types.is_timestamp(kind):
        return _timestamps(values)
    if pa.types.is_duration(kind):
        return _durations(values)
    if _is_binary(kind):
        strings = [None if v is None else base64.b64encode(v).decode("ascii") for v in values.to_pylist()]
        return pa.array(strings, TEXT)
    if _is_simple(kind):
        return values.cast(TEXT)
    return pc.if_else(values.is_valid(), json_strings(values), pa.scalar(None, TEXT))


def json_strings(values: pa.Array) -> pa.Array:
    """Return values as JSON, in large strings, none of which is NULL."""
    if _is_layout(values.type):
        return _through_layout(values, json_strings).fill_null("null")
    strings = _together(*_json_parts(values))
    return strings if values.null_count == 0 else pc.if_else(values.is_valid(), strings, "null")


def to_csv(values: pa.Array) -> pa.Array:
    """Return values as fields of CSV, in large strings, none of which is NULL."""
    kind = values.type
    if _is_layout(kind):
        return _through_layout(values, to_csv).fill_null("")
    if is_quoted(kind):
        return _together('"', pc.replace_substring(plain_values(values), '"', '""'), '"').fill_null("")
    if pa.types.is_duration(kind):
        return _iso_durations(values).fill_null("")
    if not _is_list(kind):
        return plain_values(values).fill_null("")
    joined = _join_json_lists(values, " ")
    return joined if values.null_count == 0 else pc.if_else(values.is_valid(), joined, "")


def is_quoted(kind: pa.DataType) -> bool:
    """Return True if values of a type are, or for a layout may be, quoted in CSV."""
    if _is_list(kind):
        return not pa.types.is_integer(kind.value_type)
    return is_string(kind) or _is_layout(kind) or not _is_simple(kind)


# ---- types --------------------------------------------------------------------------------------------------------


def _is_layout(kind: pa.DataType) -> bool:
    """Return True if a type is only a layout of values of another type."""
    return bool(
        pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) or isinstance(kind, pa.BaseExtensionType)
    )


def _through_layout(values: pa.Array, render: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Render the values of a layout; those of a dictionary only once each, unless it is longer than the array."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return render(values.storage)
    if pa.types.is_run_end_encoded(kind):
        return render(pc.run_end_decode(values))
    if len(values.dictionary) > len(values):
        return render(values.dictionary_decode())
    return render(values.dictionary).take(values.indices)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def _is_simple(kind: pa.DataType) -> bool:
    """Return True if Arrow itself, or a function below, renders single values of a type."""
    return not pa.types.is_nested(kind) and not pa.types.is_interval(kind)


# ---- single values ------------------------------------------------------------------------------------------------


def _floats(values: pa.Array) -> pa.Array:
    strings = values.cast(TEXT)
    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())
    # a whole number without an exponent would look like an integer
    whole = pc.and_(pc.equal(pc.floor(values), values), pc.is_finite(values))
    if not pc.any(whole).as_py():
        return strings
    bare = pc.and_not(whole, pc.match_substring(strings, "e"))
    return pc.if_else(bare, _together(strings, ".0"), strings)


def _timestamps(values: pa.Array) -> pa.Array:
    kind = values.type
    utc = values.view(pa.timestamp(kind.unit))
    strings = utc.cast(TEXT)
    per_second = UNITS_PER_SECOND[kind.unit]
    bounds = pc.min_max(utc.view(pa.int64())).as_py()
    if bounds["min"] is None or (
        _FIRST_SECOND * per_second <= bounds["min"] and bounds["max"] < (_LAST_SECOND + 1) * per_second
    ):
        strings = pc.binary_replace_slice(strings, 10, 11, "T")
    else:
        strings = pc.replace_substring_regex(strings, r"^([-\d]+) ", r"\1T")
    return strings if kind.tz is None else _together(strings, "Z")


def _durations(values: pa.Array) -> pa.Array:
    """Return durations as ``1:12:07``, whatever their unit, with days before and a fraction after."""
    sign, days, hours, minutes, seconds, fraction = _parts_of_durations(values)
    day = pc.if_else(pc.equal(days, 0), "", _together(days.cast(TEXT), "d "))
    return _together(sign, day, hours.cast(TEXT), ":", _two(minutes), ":", _two(seconds), fraction)


def _iso_durations(values: pa.Array) -> pa.Array:
    """Return durations in ISO 8601, such as ``PT1H12M7S``, without zero components."""
    sign, days, hours, minutes, seconds, fraction = _parts_of_durations(values)
    descriptions = [
        pc.if_else(pc.equal(part, 0), "", _together(part.cast(TEXT), unit))
        for part, unit in ((days, "D"), (hours, "H"), (minutes, "M"))
    ]
    whole = pc.and_(pc.equal(seconds, 0), pc.equal(fraction, ""))
    nothing = pc.and_(whole, pc.equal(_together(*descriptions), ""))
    last = pc.if_else(pc.and_(whole, pc.invert(nothing)), "", _together(seconds.cast(TEXT), fraction, "S"))
    of_day = _together(descriptions[1], descriptions[2], last)
    return _together(sign, "P", descriptions[0], pc.if_else(pc.equal(of_day, ""), "", _together("T", of_day)))


def _parts_of_durations(values: pa.Array) -> tuple[pa.Array, ...]:
    """Return signs, days, hours, minutes, seconds, and fractions as strings with a point, without trailing zeros."""
    per_second = UNITS_PER_SECOND[values.type.unit]
    numbers = values.cast(pa.int64())
    stored = numbers.fill_null(0).to_numpy()
    units = np.abs(stored).view(np.uint64)  # the least int64, too
    mask = None if not numbers.null_count else np.asarray(numbers.is_null())

    def part(own: npt.NDArray[np.uint64]) -> pa.Array:
        return pa.array(own, mask=mask)

    seconds, rest = np.divmod(units, np.uint64(per_second))
    digits = pc.utf8_lpad(part(rest).cast(TEXT), len(str(per_second)) - 1, "0") if per_second > 1 else None
    fraction = pa.repeat(pa.scalar("", TEXT), len(values))
    if digits is not None:
        fraction = pc.if_else(pc.equal(part(rest), 0), "", _together(".", pc.utf8_rtrim(digits, "0")))
    sign = pc.if_else(pc.less(numbers, 0), pa.scalar("-", TEXT), pa.scalar("", TEXT))
    minutes, hours = seconds // np.uint64(60), seconds // np.uint64(3600)
    components = (hours // np.uint64(24), hours % np.uint64(24), minutes % np.uint64(60), seconds % np.uint64(60))
    return (sign, *map(part, components), fraction.cast(TEXT))


def _two(numbers: pa.Array) -> pa.Array:
    """Return numbers as strings of two digits."""
    return pc.utf8_lpad(numbers.cast(TEXT), 2, "0")


def _escaped(strings: pa.Array) -> pa.Array:
    """Escape strings for JSON, without the quotes."""
    offsets, data = _bytes(strings)
    # few strings change, if any: only those with one of these bytes
    special = np.flatnonzero((data < 0x20) | (data == ord('"')) | (data == ord("\\")))
    if not len(special):
        return strings
    rows = np.unique(np.searchsorted(offsets, special + offsets[0], side="right") - 1)
    mask = np.zeros(len(strings), np.bool_)
    mask[rows] = True
    changed = strings.take(pa.array(rows)).to_pylist()
    escaped = [None if t is None else json.dumps(t, ensure_ascii=False)[1:-1] for t in changed]
    return pc.replace_with_mask(strings, pa.array(mask), pa.array(escaped, TEXT))


def _utf8(strings: pa.Array) -> pa.Array:
    """Replace all bytes of strings that are not UTF-8."""
    _, data = _bytes(strings)
    if not len(data) or data.max() < 0x80:
        return strings
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        raw = strings.view(pa.large_binary()).to_pylist()
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in raw], TEXT)
    return strings


def _bytes(strings: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the offsets of large strings, and the bytes between the first and the last offset."""
    offsets, data = bytes_of(strings)
    return offsets, data[offsets[0] : offsets[-1]]


def _one_to_json(value: pa.Scalar) -> str:
    """Render a value of a type that cannot be rendered by columns: a union or an interval."""
    inner = value.value if isinstance(value, pa.UnionScalar) else value
    if inner is None or not inner.is_valid:
        return "null"
    if isinstance(value, pa.UnionScalar):
        return str(json_strings(pa.array([inner], inner.type))[0])
    return json.dumps(inner.as_py())


# ---- many values --------------------------------------------------------------------------------------------------


def _together(*parts: pa.Array | str, separator: str = "") -> pa.Array:
    """Concatenate strings row by row; a row is NULL if one of its strings is."""
    strings = [pa.scalar(part, TEXT) if isinstance(part, str) else part for part in _merge_constants(parts)]
    return pc.binary_join_element_wise(*strings, pa.scalar(separator, TEXT)) if len(strings) > 1 else strings[0]


def _merge_constants(parts: Iterable[pa.Array | str]) -> Iterator[pa.Array | str]:
    """Yield parts, with adjacent constants merged into one."""
    for constant, side_by_side in itertools.groupby(parts, lambda part: isinstance(part, str)):
        if constant:
            yield "".join(side_by_side)
        else:
            yield from side_by_side


def _json_parts(values: pa.Array) -> list[pa.Array | str]:
    """Return the parts to join for the JSON of values; the result is meaningless for NULL rows.

    Nested parts are joined together with the whole, as each join copies all bytes.
    """
    kind = values.type
    if is_string(kind):
        return ['"', _escaped(plain_values(values)), '"']
    if _is_binary(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return ['"', plain_values(values), '"']
    if pa.types.is_duration(kind):
        return ['"', _iso_durations(values), '"']
    if pa.types.is_floating(kind):
        return [pc.if_else(pc.is_finite(values), plain_values(values), "null")]
    if pa.types.is_struct(kind):
        return _object_parts([field.name for field in kind], values.flatten(), len(values))
    if pa.types.is_map(kind):
        # a cast would be wrong for a slice
        entries = pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
        return [json_strings(pa.ListArray.from_arrays(pa.array(values.offsets.to_numpy()), entries))]
    if _is_list(kind):
        return ["[", _join_json_lists(values, ", "), "]"]
    if _is_simple(kind):
        return [plain_values(values)]
    return [pa.array([_one_to_json(value) for value in values], TEXT)]


def _object_parts(names: list[str], columns: list[pa.Array], n_rows: int) -> list[pa.Array | str]:
    parts: list[pa.Array | str] = []
    for name, column in zip(names, columns, strict=True):
        parts.append((", " if parts else "{") + json.dumps(name, ensure_ascii=False) + ": ")
        parts += [json_strings(column)] if column.null_count or _is_layout(column.type) else _json_parts(column)
    return [*parts, "}"] if parts else [pa.repeat(pa.scalar("{}", TEXT), n_rows)]


def _join_json_lists(lists: pa.Array, separator: str) -> pa.Array:
    """Return the JSON of the values of each list, joined to one string, which is empty for a NULL list."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(pc.list_value_length(lists).fill_null(0), out=offsets[1:])
    strings = json_strings(pc.list_flatten(lists))
    return pc.binary_join(pa.LargeListArray.from_arrays(pa.array(offsets), strings), pa.scalar(separator, TEXT))


def _data(strings: pa.Array) -> pa.Buffer:
    """Return the concatenated bytes of strings."""
    _, data = _bytes(strings)
    return pa.py_buffer(data)
