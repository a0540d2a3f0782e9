"""Types of the columns of text files, inferred from strings; common types of blocks and files; times in strings.

| strings | type |
| --- | --- |
| dates and times in ISO 8601 | timestamp[us], with nanoseconds only if a fraction has more than six digits |
| the same, all with an offset or Z | the same in UTC |
| dates alone | date32 |

Thus a file without fractions, or without times of day, has the same types as one with them, or types that widen to
these.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.clocks import has_zone
from cer_gpu.columnar.columns import is_string, plain_array
from cer_gpu.columnar.fields import attribute_type, retyped
from cer_gpu.errors import EventsError, OptionError, QueryTypeError
from cer_gpu.io.source import Source, with_batches, with_field_column

UTC = "UTC"
MICROSECONDS = pa.timestamp("us")
_UNITS = ("s", "ms", "us", "ns")
_LIKE_TIME = re.compile(r"\d{4}-?\d\d-?\d\d")
_WITH_ZONE = r"(?:Z|[+-]\d\d(?::?\d\d)?)$"
_TIME_OF_DAY = r"^\d\d:\d\d(?::\d\d)?$"
_NAMED_TYPE = re.compile(r"(timestamp|duration|time)\[(s|ms|us|ns)(?:, *(?:tz=)?([^\]]+))?\]")
_ALIASES = {"text": "string", "str": "string", "float": "float64", "int": "int64", "integer": "int64", "date": "date32"}


class WiderTypes(EventsError):
    """Value of a text file that does not have the type of its column, inferred from earlier values.

    Parameters
    ----------
    message
    types
        Types of columns that hold all values of the file.
    """

    def __init__(self, message: str, types: dict[str, pa.DataType]) -> None:
        super().__init__(message)
        self.types: dict[str, pa.DataType]
        self.types = types

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the types."""
        return type(self), (self.args[0], self.types)


def type_of_name(name: str) -> pa.DataType:
    """Return the type of a name such as ``float64``, ``string``, ``timestamp[us]`` or ``timestamp[us, UTC]``.

    Raises
    ------
    OptionError
        When it is not the name of a type.
    """
    text = name.strip()
    if (named := _NAMED_TYPE.fullmatch(text)) is not None:
        kind, unit, zone = named.groups()
        if kind == "timestamp":
            return pa.timestamp(unit, zone)
        if zone is None and kind == "duration":
            return pa.duration(unit)
    with contextlib.suppress(ValueError, KeyError):
        return pa.type_for_alias(_ALIASES.get(text, text))
    raise OptionError(
        f"expected the name of a type, got {name!r}\n"
        "hint: such as string, int64, float64, bool, date32, timestamp[us] or timestamp[us, UTC]"
    )


def name_of_type(data_type: pa.DataType) -> str:
    """Return the name of a type, which `type_of_name` parses."""
    if has_zone(data_type):
        return f"timestamp[{data_type.unit}, {data_type.tz}]"
    return {"double": "float64", "float": "float32", "date32[day]": "date32"}.get(str(data_type), str(data_type))


# ---- times in strings -----------------------------------------------------------------------------------------------


def time_type(strings: pa.Array) -> pa.DataType | None:
    """Return the type of strings that are all times in ISO 8601, or None if they are not, or only some have a zone.

    Parameters
    ----------
    strings
        An array of strings; NULL and blank strings are ignored.
    """
    strings = _nonblank_strings(strings)
    if not len(strings) or not _LIKE_TIME.match(strings[0].as_py().strip()):
        return None
    zoned = pc.match_substring_regex(strings[:1], _WITH_ZONE)[0].as_py()
    for unit in ("us", "ns"):
        kind = pa.timestamp(unit, UTC if zoned else None)
        with contextlib.suppress(pa.ArrowInvalid):
            strings.cast(kind)
            return kind
    return None


def mixed_zones(strings: pa.Array) -> tuple[int, int] | None:
    """Return the rows of a time with an offset or Z and of one without, or None unless all strings are times."""
    nonblank = _nonblank_strings(strings)
    if not len(nonblank) or not _LIKE_TIME.match(nonblank[0].as_py().strip()):
        return None
    zoned = pc.match_substring_regex(nonblank, _WITH_ZONE)
    if time_type(nonblank.filter(zoned)) is None or time_type(nonblank.filter(pc.invert(zoned))) is None:
        return None
    first_with, first_without = nonblank.filter(zoned)[0], nonblank.filter(pc.invert(zoned))[0]
    return pc.index(strings, first_with).as_py(), pc.index(strings, first_without).as_py()


def _nonblank_strings(strings: pa.Array) -> pa.Array:
    """Return the strings that are neither NULL nor blank, trimmed."""
    strings = pc.utf8_trim_whitespace(strings.drop_null())
    return strings.filter(pc.not_equal(strings, ""))


def to_times(strings: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return strings in ISO 8601 as times of a type.

    Raises
    ------
    pyarrow.ArrowInvalid
        When a string is not such a time.
    """
    with contextlib.suppress(pa.ArrowInvalid):
        return strings.cast(kind)
    trimmed = pc.utf8_trim_whitespace(strings)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed).cast(kind)


# ---- common types ---------------------------------------------------------------------------------------------


def type_of_strings(strings: pa.Array) -> pa.DataType:
    """Return the narrowest type of strings, as the CSV reader infers it, with the times of this module."""
    nonblank = _nonblank_strings(strings)
    if not len(nonblank):
        return pa.null()
    for kind in (pa.int64(), pa.bool_(), pa.date32(), pa.float64()):
        with contextlib.suppress(pa.ArrowInvalid):
            nonblank.cast(kind)
            return kind
    if pc.all(pc.match_substring_regex(nonblank, _TIME_OF_DAY)).as_py():
        return pa.time32("s")
    return time_type(nonblank) or pa.string()


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type to which values of two types are cast exactly or with an error, or None."""
    if a.equals(b) or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return _common_struct(a, b)
    if pa.types.is_list(a) and pa.types.is_list(b):
        inner = common_type(a.value_type, b.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        return pa.int64() if pa.types.is_signed_integer(a) and pa.types.is_signed_integer(b) else None
    if (_is_number(a) and pa.types.is_floating(b)) or (pa.types.is_floating(a) and _is_number(b)):
        return pa.float64()
    if pa.types.is_date32(a) and pa.types.is_timestamp(b):
        a, b = b, a
    if pa.types.is_timestamp(a) and pa.types.is_date32(b):
        return None if has_zone(a) else a
    if pa.types.is_timestamp(a) and pa.types.is_timestamp(b) and has_zone(a) == has_zone(b):
        return pa.timestamp(max(a.unit, b.unit, key=_UNITS.index), a.tz)  # the zone is only for display
    return a if is_string(a) and is_string(b) else None


def _common_struct(a: pa.StructType, b: pa.StructType) -> pa.DataType | None:
    fields = {field.name: field.type for field in a}
    if len(fields) < a.num_fields or len({field.name for field in b}) < b.num_fields:
        return None
    for field in b:
        kind = common_type(fields.get(field.name, pa.null()), field.type)
        if kind is None:
            return None
        fields[field.name] = kind
    return pa.struct(list(fields.items()))


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


def zones_differ(a: pa.DataType, b: pa.DataType) -> bool:
    """Return True if both are types of dates or timestamps, one with a time zone and one without."""
    both = all(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) for kind in (a, b))
    return both and has_zone(a) != has_zone(b)


def cast_column(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column cast to its type over all files; missing fields of a struct are NULL.

    Raises
    ------
    pyarrow.ArrowInvalid
        When a value cannot be cast exactly: an integer to a float, or a fraction of a second with more digits.
    """
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        own = {field.name: i for i, field in enumerate(array.type)}
        fields = [
            cast_column(array.field(own[field.name]), field.type)
            if field.name in own
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    return array.cast(kind)


def first_misfit(array: pa.Array, kind: pa.DataType) -> int | None:
    """Return the first row whose value cannot be cast to a type, or None if there is none."""
    if pa.types.is_null(kind):
        row = int(pc.index(array.is_valid(), True).as_py())
        return None if row < 0 else row
    low, high = 0, len(array)
    if _casts(array, kind):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _casts(array.slice(low, middle - low), kind):
            low = middle
        else:
            high = middle
    return low


def _casts(array: pa.Array, kind: pa.DataType) -> bool:
    if is_string(array.type):
        array = pc.utf8_trim_whitespace(array)
        if pa.types.is_time(kind):
            return bool(pc.all(pc.match_substring_regex(array, _TIME_OF_DAY)).as_py() in (True, None))
    try:
        array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def inexact_integer(strings: pa.Array) -> int | None:
    """Return the first row that is an integer without an exact float, or None."""
    trimmed = pc.utf8_trim_whitespace(strings).fill_null("")
    rows = np.flatnonzero(pc.match_substring_regex(trimmed, r"^[+-]?[0-9]{16,}$").to_numpy(zero_copy_only=False))
    return next((int(row) for row in rows if int(float(trimmed[row].as_py())) != int(trimmed[row].as_py())), None)


_HINT = "make timestamps of it first, as pyarrow.compute.strptime"


def with_times(source: Source, name: str) -> Source:
    """Return a source whose times are timestamps, if they are strings in ISO 8601; all are checked first.

    Parameters
    ----------
    source
    name
        The time column.

    Raises
    ------
    QueryTypeError
        When they are other strings, or the events can be read only once.
    EventsError
        When only some have an offset or Z.
    """
    kind = attribute_type(source.schema, name)
    if kind is not None and source.n_rows == 0 and name in source.schema.names:  # a frame without rows has no types
        return _without_rows(source, name) if pa.types.is_null(kind) or is_string(kind) else source
    if kind is None or not is_string(kind.value_type if pa.types.is_dictionary(kind) else kind):
        return source
    source = with_field_column(source, name)
    type_of_times = _type_of_times(source, name) if source.rereadable else None
    if type_of_times is None:
        raise QueryTypeError(
            f"the time column {name!r} must be a timestamp, a date, a duration or an integer, and is {kind}",
            hint=source.time_hint.format(name) if source.time_hint else _HINT,
        )
    times = type_of_times

    def cast(batch: pa.RecordBatch) -> pa.RecordBatch:
        if name not in batch.schema.names:
            return batch
        at = batch.schema.names.index(name)
        return batch.set_column(at, name, to_times(plain_array(batch.column(at)), times))

    return with_batches(source, cast, schema=retyped(source.schema, {name: times}))


def _without_rows(source: Source, name: str) -> Source:
    schema = source.schema.set(source.schema.names.index(name), pa.field(name, MICROSECONDS))
    return replace(source, schema=schema, read=lambda columns: iter(()), parts=None)


def _type_of_times(source: Source, name: str) -> pa.DataType | None:
    """Return the common type of all times of a column of strings, or None if some are not times or all are NULL."""
    time_kind: pa.DataType = pa.null()
    n_rows = 0
    for batch in source.batches([name]):
        strings = plain_array(batch.column(name)).cast(pa.string())
        kind = pa.null() if strings.null_count == len(strings) else time_type(strings)
        common = None if kind is None else common_type(time_kind, kind)
        if common is None:
            rows = mixed_zones(strings)
            if rows is None and kind is not None:
                rows = 0, 0
            if rows is not None:
                row = max(rows)
                raise EventsError(
                    f"the time column {name!r} has times with an offset or Z and without: {strings[row].as_py()!r} in "
                    f"event {n_rows + row:,} is unlike those before\nhint: give all an offset, or none"
                )
            return None
        time_kind = common
        n_rows += batch.num_rows
    return None if pa.types.is_null(time_kind) else time_kind
