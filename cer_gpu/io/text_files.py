"""Shared parts of the readers of CSV and JSON lines: truncated files, times in formats, error messages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.clocks import has_zone
from cer_gpu.columnar.columns import is_string
from cer_gpu.errors import EventsError
from cer_gpu.io.string_types import UTC, cast_column, name_of_type
from cer_gpu.io.text_options import EPOCH_FORMAT, parse_times, time_type_by


@contextlib.contextmanager
def reading_to_its_end(opened: Any, at_first: Any, *, may_end_before: bool = False) -> Iterator[None]:
    """Raise EOFError at the end of a block if a file was truncated while the block read it.

    Parameters
    ----------
    opened
        The file that the block reads; only a plain local file has a size to compare.
    at_first
        The same file, opened before.
    may_end_before
        True if the last bytes may not be data, and need not be read.
    """
    broken = None
    try:
        yield
    except pa.ArrowInvalid as error:  # a row in which the file now ends can be damaged
        broken = error
    if isinstance(opened, pa.OSFile) and isinstance(at_first, pa.OSFile):
        n_bytes = max(opened.size(), at_first.size())  # as they were when they were opened
        all_read = broken is None and not may_end_before
        if opened.tell() < n_bytes and (all_read or not opened.read_at(1, n_bytes - 1)):
            raise EOFError(
                f"it was cut short while it was read: it had {n_bytes:,} bytes\n"
                "hint: write files under another name and rename them, so that each has its rows at once"
            )
    if broken is not None:
        raise broken


def checked_for_rounding(
    batches: Iterable[pa.RecordBatch], names: Iterable[str], check: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    """Yield batches; call `check` once for a column before its first batch with floats that may be rounded integers.

    Parameters
    ----------
    batches
    names
        Columns to check.
    check
        Takes the name of such a column, and raises an error if one of its values was rounded.
    """
    unchecked = list(names)
    for batch in batches:
        for name in [each for each in unchecked if _may_be_rounded(batch.column(each))]:
            check(name)
            unchecked.remove(name)
        yield batch


def _may_be_rounded(values: pa.Array) -> bool:
    """Return True if floats are so large that integers in the file may have been rounded."""
    if not pa.types.is_float64(values.type):
        return False
    return bool(pc.any(pc.greater_equal(pc.abs(values), float(1 << 53)), min_count=0).as_py())


def rounded_message(file: str, name: str, row: int, value: object) -> str:
    """Return the message on an integer in a column of floats that has no exact float."""
    return (
        f"{file}: column {name!r} is read as floats, and has {value} in row {row:,}, which is no float exactly\n"
        f"hint: {declared([(name, pa.string())])}"
    )


def read_type(own: pa.DataType | None, kind: pa.DataType) -> pa.DataType:
    """Return the type with which to read a column, given its type in the file and its type over all files.

    Integers that become floats are read as integers: floats would be rounded silently.
    """
    return own if own is not None and pa.types.is_integer(own) and pa.types.is_floating(kind) else kind


def time_type_of_format(format: str, values: pa.Array | None, declared_type: pa.DataType | None) -> pa.DataType:
    """Return the type of a column with a time format: the declared one, or microseconds unless values need more."""
    if declared_type is not None:
        return declared_type
    inferred = None if values is None else time_type_by(values, format)
    return inferred or pa.timestamp("us", UTC if format == EPOCH_FORMAT or "%z" in format else None)


def in_format(values: pa.Array, format: str, kind: pa.DataType, name: str, where: str, first: int) -> pa.Array:
    """Return values parsed as times of a format.

    Parameters
    ----------
    values, format
    kind
        Type of the times.
    name, where, first
        Name of the column, of the file, and row of the first value, for messages.

    Raises
    ------
    EventsError
        When one has another format.
    """
    try:
        times = cast_column(parse_times(values, format), kind)
    except pa.ArrowInvalid as error:
        raise EventsError(
            f"{where}: column {name!r} is {kind} by its first rows: {error}\n"
            f"hint: {declared([(name, pa.timestamp('ns', kind.tz))])}"
        ) from None
    if times.null_count > values.null_count:
        wrong = pc.and_(pc.is_null(times), pc.is_valid(values))
        if is_string(values.type):
            wrong = pc.and_(wrong, pc.not_equal(pc.utf8_trim_whitespace(values), ""))
        row = pc.index(wrong.fill_null(False), True).as_py()
        if row >= 0:
            raise EventsError(
                f"{where}: column {name!r} has {values[row].as_py()!r} in row {first + row:,}, and no time of the "
                f"format {format!r}"
            )
    return times


def mixed_zones_message(
    name: str, file: str, row: int, value: str, other_file: str, other_row: int, other_value: str
) -> str:
    """Return the message on times of which only some have an offset or Z."""
    return (
        f"column {name!r} has times with an offset or Z and without: {value!r} in row {row:,} of {file}, "
        f"{other_value!r} in row {other_row:,} of {other_file}\n"
        f"hint: give all an offset, or none; as text they are read with {declared([(name, pa.string())])}"
    )


def declared(types: Iterable[tuple[str, pa.DataType]]) -> str:
    """Return the option that declares types of columns, for a hint."""
    own = [(name, name_of_type(kind)) for name, kind in types]
    python = ", ".join(f"{name!r}: {kind!r}" for name, kind in own)
    shell = ",".join(f"{name}={kind}" for name, kind in own)
    return f"column_types={{{python}}} (--column-types '{shell}')"


def zone_word(data_type: pa.DataType) -> str:
    """Return in words whether times of a type have a zone."""
    return "with an offset or Z" if has_zone(data_type) else "without an offset"
