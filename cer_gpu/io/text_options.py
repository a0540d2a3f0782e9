"""Options for reading text files: CSV, and times in JSON lines, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from cer_gpu.columnar.memory_limit import size_in_bytes
from cer_gpu.errors import OptionError
from cer_gpu.io.containers.compression import MAX_DECOMPRESSED
from cer_gpu.io.text_types import name_of_type, type_of_name
from cer_gpu.io.time_formats import EPOCH_FORMAT, check_format

TEXT_HINT = (
    "tell how they are written: time_format={{{0!r}: '%d/%m/%Y %H:%M:%S'}} (--time-format '{0}=%d/%m/%Y %H:%M:%S')"
)
"""Advice on times of text files that are not in ISO 8601, as `cer_gpu.io.source.Source.time_hint`."""


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Options for reading text files, which `cer_gpu.Files` and the command line have by the same names.

    Attributes
    ----------
    null_values
        Texts of NULL in CSV; None: those of pyarrow, such as the empty field, ``NA``, ``N/A``, ``NULL``, ``null`` and
        ``NaN``.  In columns of text, only the empty field is NULL, if it is among them.
    strings_can_be_null
        True: in columns of text, all of them.
    quoted_strings_can_be_null
        True: between quotes, too; False: of columns of text, too, all that are not between quotes.
    empty_is_text
        True: an empty field of a column of text is the empty text.
    delimiter
        Separator of CSV; None: the one that the header has most of.
    decimal_comma
        True: numbers of CSV have a comma in place of the point.
    time_format
        Format of times as of `strptime`, "" for ISO 8601 alone: columns of text that have it are times.
    time_formats
        The same by the name of the column, for this column only; "epoch": seconds since 1970.
    column_types
        Types of columns, by name; of others, the first block of all files tells it.
    max_decompressed
        Most bytes of a compressed file after decompression.
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
    def given(
        cls,
        *,
        null_values: Sequence[str] | None = None,
        time_format: str | Mapping[str, str] | None = None,
        column_types: Mapping[str, pa.DataType | str] | None = None,
        max_decompressed: str | int | None = None,
        **others: Any,
    ) -> TextOptions:
        """Return the options that `cer_gpu.Files` has.

        Raises
        ------
        OptionError
            When one has no such value.
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
        """Return the options as `given` takes them."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        formats, default = dict(own.pop("time_formats")), own.pop("time_format")
        own["time_format"] = {**({"": default} if default else {}), **formats} or None
        own["column_types"] = dict(self.column_types) or None
        return own

    def facts(self) -> dict[str, Any]:
        """Return the options by their names on the command line, as values of JSON; None: as usual."""
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
