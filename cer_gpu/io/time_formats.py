"""Times in formats of `strptime`, with fractions of seconds (%f), and as seconds since 1970."""

from __future__ import annotations

import contextlib
import re

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.columnar.clocks import UNITS_PER_SECOND
from cer_gpu.columnar.columns import is_string
from cer_gpu.errors import OptionError
from cer_gpu.io.text_types import UTC

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
"""Directives of formats, and what they match; `f` besides, which stands once, behind the seconds."""
_BEFORE_FRACTION = re.compile(r"%[ST][.,]%f")


def check_format(format: str) -> None:
    """Refuse a format of times that has an unknown directive, or a fraction that does not follow seconds.

    Raises
    ------
    OptionError
    """
    if format in ("", EPOCH_FORMAT):
        return
    found = re.findall(r"%(.?)", format)
    unknown = next((each for each in found if each != "f" and each not in _FORMS), None)
    if not found or unknown is not None:
        what = "has no directive" if not found else f"has %{unknown}, which is none"
        raise OptionError(
            f"the time format {format!r} {what}\n"
            "expected: directives of strptime, such as %d/%m/%Y %H:%M:%S.%f, or epoch (seconds since 1970)"
        )
    if "f" in found and len(_BEFORE_FRACTION.findall(format)) != found.count("f"):
        raise OptionError(f"the time format {format!r} has %f, which stands behind %S and a point or comma: %S.%f")


def parse_times(values: pa.Array, format: str) -> pa.Array:
    """Return texts in a format, or with "epoch" numbers, as timestamps; others are NULL.

    They are microseconds, or nanoseconds if a fraction has more than six digits, and in UTC if the format has %z and
    for "epoch".
    """
    if format == EPOCH_FORMAT:
        return _epoch(values)
    texts = pc.utf8_trim_whitespace(values.cast(pa.string()))
    fractions = None
    if _BEFORE_FRACTION.search(format):
        before, _, behind = format.partition("%f")
        mark = before[-1]
        before = before[:-1]
        pattern = f"^(?P<a>{_pattern(before)})(?:[{mark}](?P<f>\\d{{1,9}}))?(?P<b>{_pattern(behind)})$"
        parts = pc.extract_regex(texts, pattern)
        fractions = pc.struct_field(parts, "f")
        texts = pc.binary_join_element_wise(pc.struct_field(parts, "a"), pc.struct_field(parts, "b"), "")
        format = before + behind
    unit = "us" if fractions is None or (pc.max(pc.utf8_length(fractions)).as_py() or 0) <= 6 else "ns"
    times = pc.strptime(texts, format=format, unit=unit, error_is_null=True)
    if fractions is None:
        return times
    n_digits = len(str(UNITS_PER_SECOND[unit])) - 1
    units = pc.utf8_rpad(fractions.fill_null(""), n_digits, "0").cast(pa.int64())
    return pc.add(times.cast(pa.int64()), units).cast(times.type)


def _pattern(format: str) -> str:
    return re.sub(r"%(.)|(.)", lambda found: _FORMS[found[1]] if found[1] else re.escape(found[2]), format)


def _epoch(values: pa.Array) -> pa.Array:
    """Return seconds since 1970, with any fraction, as times in UTC."""
    if pa.types.is_integer(values.type):
        return values.cast(pa.timestamp("s", UTC)).cast(pa.timestamp("us", UTC))
    texts = pc.utf8_trim_whitespace(values) if is_string(values.type) else values.cast(pa.string())
    parts = pc.extract_regex(texts, r"^(?P<s>-?\d{1,12})(?:[.,](?P<f>\d{1,9})\d*)?$")
    fractions = pc.struct_field(parts, "f").fill_null("")
    unit = "us" if (pc.max(pc.utf8_length(pc.utf8_rtrim(fractions, "0"))).as_py() or 0) <= 6 else "ns"
    n_digits = len(str(UNITS_PER_SECOND[unit])) - 1
    units = pc.utf8_slice_codeunits(pc.utf8_rpad(fractions, 9, "0"), 0, n_digits).cast(pa.int64())
    negative = pc.starts_with(texts, "-").fill_null(False)
    seconds = pc.struct_field(parts, "s").cast(pa.int64())
    whole = pc.multiply(seconds, UNITS_PER_SECOND[unit])
    moments = pc.if_else(negative, pc.subtract(whole, units), pc.add(whole, units))
    return moments.cast(pa.timestamp(unit, UTC))


def time_type_by(texts: pa.Array, format: str) -> pa.DataType | None:
    """Return the type of times of texts in a format; None: some have another one, or there are none."""
    told = texts.drop_null()
    told = told.filter(pc.not_equal(told, "")) if is_string(told.type) else told
    if len(told):
        with contextlib.suppress(pa.ArrowInvalid):
            times = parse_times(told, format)
            return None if times.null_count else times.type
    return None
