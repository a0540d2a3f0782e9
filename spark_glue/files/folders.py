"""Facts encoded in the paths of files: values of hive folders, and numbers of buckets."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from spark_glue.files.stored_events import DirectReadError
from spark_glue.files.stores import address_of

NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_BUCKET = re.compile(r".*_(\d+)(?:\..*)?", re.DOTALL)
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")


def folder_values(path: str, kinds: Mapping[str, pa.DataType | None]) -> tuple[tuple[str, Any], ...]:
    """Return the values encoded in the folders of a file.

    Parameters
    ----------
    path
        Path or URI of the file.
    kinds
        Types of the columns, by their names; with None the value stays a string.

    Returns
    -------
    tuple of (str, Any)
        In the order of `kinds`; None for NULL.

    Raises
    ------
    DirectReadError
        If a folder of a column is missing, or its text is no value of the type, or the type cannot be encoded in
        folders.
    """
    strings: dict[str, str] = {}
    for part in address_of(path).path.split("/")[:-1]:
        name, separator, value = part.partition("=")
        if separator:
            strings[_unescape(name)] = _unescape(value)
    missing = [name for name in kinds if name not in strings]
    if missing:
        raise DirectReadError(f"{path}: no folder tells the column {missing[0]!r}")
    return tuple((name, _value_of_folder(path, name, strings[name], kind)) for name, kind in kinds.items())


def _unescape(text: str) -> str:
    """Return the unescaped text: Spark escapes single characters of ASCII."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def _value_of_folder(path: str, name: str, text: str, kind: pa.DataType | None) -> Any:
    if text == NULL:
        return None
    if kind is None or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return text
    parse = _parser(kind)
    if parse is None:
        raise DirectReadError(f"{path}: the folder column {name!r} is {kind}, which folders tell in ways of their own")
    try:
        value = parse(text)
        return pa.scalar(value, kind).as_py()
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        raise DirectReadError(f"{path}: the folder column {name!r} is {kind}, and its value {text!r}") from error


def _parser(kind: pa.DataType) -> Callable[[str], Any] | None:
    """Return the function that parses values of a type, or None for timestamps, which depend on the session's zone."""
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_decimal(kind):
        return Decimal
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return datetime.datetime.fromisoformat
    return None


def _boolean(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE


def bucket_of(path: str) -> int:
    """Return the number of the bucket that Spark wrote into the name of a file, as ``part-..._00003.c000.parquet``.

    Raises
    ------
    DirectReadError
        If the name has none.
    """
    match = _BUCKET.fullmatch(address_of(path).path.rsplit("/", 1)[-1])
    if match is None:
        raise DirectReadError(f"{path}: the name tells no bucket, and the table is bucketed")
    return int(match[1])
