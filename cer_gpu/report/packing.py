"""Numbers and texts of a report as objects that JSON can hold."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Int64

MAX_CELL = 120
"""Most characters of one value."""

_FRACTION = re.compile(r"^([^.]*?)(?:\.(\d+))?(Z?)$")


def packed(values: Array) -> dict[str, Any]:
    """Return numbers, divided by their greatest common divisor, as base64 of the narrowest type that holds them.

    Integers beyond 2**53 become the nearest float64, the only numbers that the page computes with.
    """
    is_whole = values.dtype.kind in "iu" or bool(np.all(values == np.floor(values)))
    if is_whole and len(values) and values.min() >= 0 and values.max() < 2**53:
        whole = values.astype(np.int64)
        unit = int(np.gcd.reduce(whole)) or 1
        whole //= unit
        kind = next((k for k in ("u1", "u2", "u4") if whole.max() <= np.iinfo(k).max), "f8")
        return {"type": kind, "unit": unit, "data": _base64(whole.astype(f"<{kind}"))}
    return {"type": "f8", "unit": 1, "data": _base64(values.astype("<f8"))}


def _base64(values: Array) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def distinct(column: pa.ChunkedArray) -> tuple[list[str | None], Int64, int]:
    """Return the distinct texts of a column, the index of each row's, and the length of all of them."""
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    values = coded.dictionary.to_pylist()
    return values, coded.indices.to_numpy().astype(np.int64), sum(len(value or "") + 3 for value in values)


def size(texts: pa.Table) -> int:
    """Return about how many bytes the columns of a table of texts take on a page."""
    return sum(distinct(column)[2] + 2 * len(column) for column in texts.columns)


def coded(name: str, column: pa.ChunkedArray, kind: pa.DataType, digits: int | None = None) -> dict[str, Any]:
    """Return a column of texts: its name, distinct values and the code of each row's, and if these are numbers.

    Parameters
    ----------
    kind
        Type of the values behind the texts.
    digits
        Least number of digits of the fractions of seconds of timestamps.
    """
    values, codes, _ = distinct(column)
    if pa.types.is_timestamp(kind):
        values = in_one_format(values, max(fraction_digits(values), digits or 0))
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return {"name": name[:MAX_CELL], "is_number": is_number, "values": values, "codes": packed(codes)}


# ---- times --------------------------------------------------------------------------------------------------------


def fraction_digits(texts: Sequence[str | None]) -> int:
    """Return the number of digits that the fractions of seconds need in all texts of timestamps: 0, 3, 6 or 9."""
    fractions = {match[2] for text in texts if text is not None and (match := _FRACTION.match(text)) and match[2]}
    most = max((len(fraction.rstrip("0")) for fraction in fractions), default=0)
    return -(-most // 3) * 3


def in_one_format(texts: Sequence[str | None], digits: int) -> list[str | None]:
    """Return texts of timestamps (ISO 8601) with a space for the T, and so many digits of a fraction each."""
    made = list[str | None]()
    for text in texts:
        match = None if text is None else _FRACTION.match(text)
        if text is None or match is None:
            made.append(text)
            continue
        fraction = "." + (match[2] or "").ljust(digits, "0")[:digits] if digits else ""
        made.append(match[1].replace("T", " ") + fraction + match[3])
    return made
