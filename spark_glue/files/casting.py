"""Types of stored columns against the types that Spark has for them, and values of an order column as integers."""

from __future__ import annotations

import pyarrow as pa

from spark_glue.files.stored_events import DirectReadError

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MS_PER_DAY = 86_400_000


def readable(stored: pa.DataType, wanted: pa.DataType, *, int96: bool = False) -> str | None:
    """Return None if a task can read a stored column as Spark does, else the reason.

    Parameters
    ----------
    stored
        Type of the column in the file.
    wanted
        Type of the column in the events.
    int96
        True if the file has timestamps of Parquet's type INT96.

    Returns
    -------
    str or None
        Such as ``"int64, and int32 in the events"``.
    """
    plain, wanted = _plain_kind(stored), _plain_kind(wanted)
    if int96:
        fine = wanted == pa.timestamp("us", "UTC")
        return None if fine else f"INT96, and {wanted} in the events"
    if pa.types.is_struct(wanted) and pa.types.is_struct(plain):
        for part in wanted:
            if len(plain.get_all_field_indices(part.name)) != 1:
                return f"{stored}, which has no field {part.name!r} (or more than one)"
            if (reason := readable(plain.field(part.name).type, part.type)) is not None:
                return f"field {part.name!r} is {reason}"
        return None
    if pa.types.is_list(wanted) and _is_list(plain):
        reason = readable(plain.value_type, wanted.value_type)
        return None if reason is None else f"a list whose elements are {reason}"
    return None if _casts(plain, wanted) else f"{stored}, and {wanted} in the events"


def _plain_kind(kind: pa.DataType) -> pa.DataType:
    """Return the type without dictionaries and runs, and with offsets of one width."""
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_list,
            pa.types.is_large_list,
            pa.types.is_fixed_size_list,
            pa.types.is_list_view,
            pa.types.is_large_list_view,
        )
    )


def _casts(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return True if every value of one plain type has one meaning in the other, which Spark gives it, too."""
    if stored == wanted and not pa.types.is_nested(stored):
        return True
    if pa.types.is_integer(wanted):
        if pa.types.is_integer(stored):
            return _range(wanted)[0] <= _range(stored)[0] and _range(stored)[1] <= _range(wanted)[1]
        counts = pa.types.is_duration(stored) or (pa.types.is_timestamp(stored) and stored.unit == "ns")
        return bool(counts and wanted == pa.int64())
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(stored)) and (stored.tz is None) == (wanted.tz is None)
    if pa.types.is_duration(wanted):
        # Spark's intervals are microseconds, stored as plain integers
        return bool(stored == pa.int64() and wanted.unit == "us")
    if pa.types.is_date32(wanted):
        return bool(pa.types.is_date64(stored))
    if pa.types.is_decimal128(wanted):
        return bool(
            pa.types.is_decimal(stored)
            and not pa.types.is_decimal256(stored)
            and stored.scale == wanted.scale
            and stored.precision <= wanted.precision
        )
    return bool(pa.types.is_float64(wanted) and pa.types.is_float32(stored))


def _range(kind: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    if pa.types.is_unsigned_integer(kind):
        return 0, (1 << kind.bit_width) - 1
    return -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1


def orders(kind: pa.DataType, name: str) -> None:
    """Raise unless values of a type ascend with integers of 64 bits.

    Raises
    ------
    DirectReadError
        If the type is no integer, timestamp or date, or an unsigned integer of 64 bits.
    """
    signed = pa.types.is_integer(kind) and kind != pa.uint64()
    if not (signed or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise DirectReadError(
            f"the stream is ordered by {name!r} first, which is {kind}: "
            f"files are put in order only by integers, timestamps and dates"
        )


def in_unit(value: int, stored: pa.DataType, wanted: pa.DataType, *, up: bool) -> int:
    """Return a stored value in the unit of the events.

    Parameters
    ----------
    value
        The value as an integer in the unit of `stored`.
    stored, wanted
        Types for which `readable` returns None, of an order column.
    up
        True to round up, False to round down.
    """
    if pa.types.is_date64(stored) and pa.types.is_date32(wanted):
        times, by = 1, _MS_PER_DAY
    elif pa.types.is_timestamp(stored) and pa.types.is_timestamp(wanted):
        times, by = _PER_SECOND[wanted.unit], _PER_SECOND[stored.unit]
    else:
        return value
    return -(-value * times // by) if up else value * times // by
