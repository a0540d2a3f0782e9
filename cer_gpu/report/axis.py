"""Axis of a report: times, numbers or positions, counted from an origin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Array, Int64
from cer_gpu.columnar.clocks import UNITS_PER_SECOND
from cer_gpu.query import Query

DAYS = -1
"""Digits of an axis of dates, which have no time of day."""


def axis_of(query: Query, drawn: pa.Table) -> tuple[dict[str, Any], Array, Array]:
    """Return the axis, and the starts and ends of complex events on it, counted from its origin.

    Moments and durations are in milliseconds.  The origin is a text, as it may exceed the integers of JavaScript.
    ``digits`` are those of the fraction of a second that the moments need, or `DAYS`; ``zone`` is that of the column,
    whose moments are shown in UTC.
    """
    if query.time_column is None:
        return _axis("position"), *(drawn[name].to_numpy() for name in ("start", "end"))
    kind = drawn.schema.field("start_time").type
    times = [_integers(drawn[name].combine_chunks()) for name in ("start_time", "end_time")]
    low = int(times[0].min())
    named = {"column": query.time_column}
    if pa.types.is_integer(kind):
        # the difference of any two 64-bit integers fits an unsigned one, even where it wraps around
        moved = [(values - values.dtype.type(low)).view(np.uint64) for values in times]
        return _axis("number", query.time_unit or "", low, **named), moved[0], moved[1]
    if pa.types.is_date32(kind):
        scale, per_second, digits = 86_400_000, 1, DAYS
    else:
        per_second = UNITS_PER_SECOND[getattr(kind, "unit", "ms")]
        scale, digits = 1000 // per_second, DAYS if pa.types.is_date64(kind) else _digits(times, per_second)
    if scale:
        origin, moved = low * scale, [(values - low) * float(scale) for values in times]
    else:
        low -= low % (per_second // 1000)
        origin, moved = low // (per_second // 1000), [(values - low) / (per_second // 1000) for values in times]
    if pa.types.is_duration(kind):
        return _axis("duration", origin=origin, **named), moved[0], moved[1]
    zone = getattr(kind, "tz", None) or ""
    return _axis("moment", "Z" if zone else "", origin, digits=digits, zone=zone, **named), moved[0], moved[1]


def _axis(kind: str, unit: str = "", origin: int = 0, **others: Any) -> dict[str, Any]:
    return {"kind": kind, "unit": unit, "origin": str(origin), **others}


def _digits(times: list[Int64], per_second: int) -> int:
    """Return how many digits of the fraction of a second times need: 0, 3, 6 or 9."""
    digits = 0
    while 10**digits < per_second and any((values % (per_second // 10**digits)).any() for values in times):
        digits += 3
    return digits


def _integers(values: pa.Array) -> Array:
    """Return the 64-bit integers behind times."""
    kind = values.type
    if pa.types.is_uint64(kind):
        return values.to_numpy()  # type: ignore[no-any-return]
    storage = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    plain_values = values if pa.types.is_integer(kind) else values.view(storage)
    return plain_values.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]
