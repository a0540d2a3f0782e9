"""Options for reading text files: CSV, times in JSON lines, and the formats of times."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.clocks import UNITS_PER_SECOND
from cer_gpu.columnar.columns import is_string
from cer_gpu.columnar.memory_limit import size_in_bytes
from cer_gpu.errors import OptionError
from cer_gpu.io.compression import MAX_DECOMPRESSED
from cer_gpu.io.string_types import UTC, name_of_type, type_of_name

EPOCH_FORMAT = "epoch"
_FORMS = {
    **dict.fromkeys("mdHIMSye", r"\d{1,2}"),
    "Y": r"\d{4}",
    "j": r"\d{1,3}",
    **dict.fromkeys("bBhaA", r"[^\d\s]+"),
    "p": "[AaPp][Mm]",
    "z": r"(?:Z|[+-]\d\d:?\d\d)",
    "%": "%",
    "T": r"\d{1,2}:\d\d:\d\d",
    "D": r"\d\d/\d\d/\d\d",
    "F": r"\d{4}-\d{1,2}-\d{1,2}",
    "R": r"\d{1,2}:\d\d",
}
"""Directives of formats, and what they match; `f` is also allowed once, after the seconds."""
_BEFORE_FRACTION = re.compile(r"%[ST][.,]%f")


def check_format(format: str) -> None:
    """Refuse a time format with an unknown directive, or with a fraction that does not follow seconds.

    Raises
    ------
    OptionError
    """
    if format in ("", EPOCH_FORMAT):
        return
    directives = re.findall(r"%(.?)", format)
    unknown = next((each for each in directives if each != "f" and each not in _FORMS), None)
    if not directives or unknown is not None:
        what = "has no directive" if not directives else f"has %{unknown}, which is none"
        raise OptionError(
            f"the time format {format!r} {what}\n"
            "expected: directives of strptime, such as %d/%m/%Y %H:%M:%S.%f, or epoch (seconds since 1970)"
        )
    if "f" in directives and len(_BEFORE_FRACTION.findall(format)) != directives.count("f"):
        raise OptionError(f"the time format {format!r} has %f, which stands behind %S and a point or comma: %S.%f")


def parse_times(values: pa.Array, format: str) -> pa.Array:
    """Return strings in a format, or numbers for "epoch", as timestamps; others are NULL.

    Timestamps are in microseconds, or in nanoseconds if a fraction has more than six digits, and in UTC if the format
    has %z and for "epoch".
    """
    if format == EPOCH_FORMAT:
        return _epoch(values)
    strings = pc.utf8_trim_whitespace(values.cast(pa.string()))
    fractions = None
    if _BEFORE_FRACTION.search(format):
        before, _, behind = format.partition("%f")
        mark = before[-1]
        before = before[:-1]
        pattern = f"^(?P<a>{_regex_of_format(before)})(?:[{mark}](?P<f>\\d{{1,9}}))?(?P<b>{_regex_of_format(behind)})$"
        parts = pc.extract_regex(strings, pattern)
        fractions = pc.struct_field(parts, "f")
        strings = pc.binary_join_element_wise(pc.struct_field(parts, "a"), pc.struct_field(parts, "b"), "")
        format = before + behind
    unit = "us" if fractions is None or (pc.max(pc.utf8_length(fractions)).as_py() or 0) <= 6 else "ns"
    times = pc.strptime(strings, format=format, unit=unit, error_is_null=True)
    if fractions is None:
        return times
    n_digits = len(str(UNITS_PER_SECOND[unit])) - 1
    units = pc.utf8_rpad(fractions.fill_null(""), n_digits, "0").cast(pa.int64())
    return pc.add(times.cast(pa.int64()), units).cast(times.type)


def _regex_of_format(format: str) -> str:
    return re.sub(r"%(.)|(.)", lambda sign: _FORMS[sign[1]] if sign[1] else re.escape(sign[2]), format)


def _epoch(values: pa.Array) -> pa.Array:
    """Return seconds since 1970, with any fraction, as times in UTC."""
    if pa.types.is_integer(values.type):
        return values.cast(pa.timestamp("s", UTC)).cast(pa.timestamp("us", UTC))
    strings = pc.utf8_trim_whitespace(values) if is_string(values.type) else values.cast(pa.string())
    parts = pc.extract_regex(strings, r"^(?P<s>-?\d{1,12})(?:[.,](?P<f>\d{1,9})\d*)?$")
    fractions = pc.struct_field(parts, "f").fill_null("")
    unit = "us" if (pc.max(pc.utf8_length(pc.utf8_rtrim(fractions, "0"))).as_py() or 0) <= 6 else "ns"
    n_digits = len(str(UNITS_PER_SECOND[unit])) - 1
    units = pc.utf8_slice_codeunits(pc.utf8_rpad(fractions, 9, "0"), 0, n_digits).cast(pa.int64())
    negative = pc.starts_with(strings, "-").fill_null(False)
    seconds = pc.struct_field(parts, "s").cast(pa.int64())
    whole = pc.multiply(seconds, UNITS_PER_SECOND[unit])
    timestamps = pc.if_else(negative, pc.subtract(whole, units), pc.add(whole, units))
    return timestamps.cast(pa.timestamp(unit, UTC))


def time_type_by(strings: pa.Array, format: str) -> pa.DataType | None:
    """Return the type of times in a format, or None if some strings do not match it or all are NULL."""
    nonblank = strings.drop_null()
    nonblank = nonblank.filter(pc.not_equal(nonblank, "")) if is_string(nonblank.type) else nonblank
    if len(nonblank):
        with contextlib.suppress(pa.ArrowInvalid):
            times = parse_times(nonblank, format)
            return None if times.null_count else times.type
    return None


TEXT_HINT = (
    "tell how they are written: time_format={{{0!r}: '%d/%m/%Y %H:%M:%S'}} (--time-format '{0}=%d/%m/%Y %H:%M:%S')"
)
"""Advice on times of text files that are not in ISO 8601, as `cer_gpu.io.source.Source.time_hint`."""


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Options for reading text files; `cer_gpu.Files` and the command line use the same names.

    Attributes
    ----------
    null_values
        Strings of NULL in CSV; by default (None) those of pyarrow, such as the empty field, ``NA``, ``N/A``, ``NULL``,
        ``null`` and ``NaN``.  In string columns, only the empty field is NULL, if it is among them.
    strings_can_be_null
        True: all of them are NULL in string columns, too.
    quoted_strings_can_be_null
        False: quoted fields are never NULL; in string columns, all other such fields are.
    empty_is_text
        True: an empty field of a string column is the empty string.
    delimiter
        Separator of CSV; by default (None) the most frequent one in the header.
    decimal_comma
        True: numbers of CSV have a decimal comma.
    time_format
        Time format as of `strptime`, or "" for only ISO 8601; string columns that match it are times.
    time_formats
        Time formats by column name; "epoch" means seconds since 1970.
    column_types
        Types of columns, by name; others are inferred from the first block of each file.
    max_decompressed
        Maximum size of a compressed file after decompression.
    """

    null_values: tuple[str, ...] | None = None
    strings_can_be_null: bool = False
    quoted_strings_can_be_null: bool = True
    empty_is_text: bool = False
    delimiter: str | None = None
    decimal_comma: bool = False
    time_format: str = ""
    time_formats: tuple[tuple[str, str], ...] = ()
    column_types: tuple[tuple[str, pa.DataType], ...] = ()
    max_decompressed: int = MAX_DECOMPRESSED

    def __post_init__(self) -> None:
        """Check the options.

        Raises
        ------
        OptionError
        """
        if self.delimiter is not None and len(self.delimiter.encode()) != 1:
            raise OptionError(f"delimiter must be one character of ASCII, such as ';', got {self.delimiter!r}")
        if self.empty_is_text and (self.strings_can_be_null or not self.quoted_strings_can_be_null):
            raise OptionError("empty_is_text excludes strings_can_be_null and quoted_strings_can_be_null=False")
        for format in (self.time_format, *dict(self.time_formats).values()):
            check_format(format)
        if self.time_format == EPOCH_FORMAT:
            raise OptionError(
                "time_format='epoch' needs the name of a column\nhint: {'ts': 'epoch'} (--time-format ts=epoch)"
            )

    @classmethod
    def from_values(
        cls,
        *,
        null_values: Sequence[str] | None = None,
        time_format: str | Mapping[str, str] | None = None,
        column_types: Mapping[str, pa.DataType | str] | None = None,
        max_decompressed: str | int | None = None,
        **others: Any,
    ) -> TextOptions:
        """Return the options for the arguments of `cer_gpu.Files`.

        Raises
        ------
        OptionError
            When a value is invalid.
        """
        if null_values is not None and (
            isinstance(null_values, str) or not all(isinstance(text, str) for text in null_values)
        ):
            raise OptionError(f"null_values must be a list of texts, such as ['', 'NA'], got {null_values!r}")
        by_column = {} if time_format is None or isinstance(time_format, str) else dict(time_format)
        types = {
            name: type_of_name(kind) if isinstance(kind, str) else kind for name, kind in (column_types or {}).items()
        }
        return cls(
            null_values=None if null_values is None else tuple(null_values),
            time_format=time_format if isinstance(time_format, str) else by_column.pop("", ""),
            time_formats=tuple(by_column.items()),
            column_types=tuple(types.items()),
            max_decompressed=(
                MAX_DECOMPRESSED if max_decompressed is None else size_in_bytes(max_decompressed, "max_decompressed")
            ),
            **others,
        )

    def with_types(self, types: Mapping[str, pa.DataType]) -> TextOptions:
        """Return these options with other types of columns."""
        return replace(self, column_types=tuple({**dict(self.column_types), **types}.items()))

    def named(self) -> dict[str, Any]:
        """Return the options as `from_values` takes them."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        formats, default = dict(own.pop("time_formats")), own.pop("time_format")
        own["time_format"] = {**({"": default} if default else {}), **formats} or None
        own["column_types"] = dict(self.column_types) or None
        return own

    def facts(self) -> dict[str, Any]:
        """Return the options by command-line name, as JSON values, or None for defaults."""
        facts: dict[str, Any] = {}
        for name, value in self.named().items():
            usual = value == getattr(USUAL, name, None) or value is None
            facts[f"--{name.replace('_', '-')}"] = None if usual else value
        if self.null_values is not None:
            facts["--null-values"] = list(self.null_values)
        if self.column_types:
            facts["--column-types"] = {name: name_of_type(kind) for name, kind in self.column_types}
        return facts


USUAL = TextOptions()
