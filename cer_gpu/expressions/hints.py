"""Words and hints for messages about types."""

from __future__ import annotations

import re

import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.clocks import ZoneError
from cer_gpu.columnar.columns import BOOLEAN, TEMPORAL

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


def article(data_type: pa.DataType) -> str:
    """Return the name of a type with its article."""
    name = str(data_type)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def timestamp_hint(data_type: pa.DataType, error: ValueError) -> str:
    """Return a hint for a quoted timestamp that cannot be read."""
    if isinstance(error, ZoneError):
        return str(error)
    if pa.types.is_time(data_type):
        return "write '12:30:00'"
    return "write it as in '2013-01-31' or '2013-01-31 12:30:00'"


def comparison_hint(kinds: set[str], left: s.Expression, right: s.Expression) -> str | None:
    """Return a hint for a comparison of unlike kinds."""
    if TEMPORAL in kinds:
        return "write timestamps in quotes: '2013-01-31 12:30:00'"
    if BOOLEAN in kinds:
        return "booleans are compared with TRUE and FALSE"
    number = next((x.text for x in (left, right) if isinstance(x, s.Literal) and x.text), None)
    if number is not None:
        return f"write '{number}' to compare it as a text, character by character"
    text = next((x.value for x in (left, right) if isinstance(x, s.Literal) and isinstance(x.value, str)), None)
    if text is not None and _NUMBER.fullmatch(text):
        return f"write {text} without quotes to compare it as a number"
    return None
