"""Lengths within which a match may end, in time or in events of the substream, and the bins of waiting times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.errors import OptionError
from cer_gpu.order.reorder_buffer import parse_lateness

IN_TIME, IN_EVENTS = "time", "events"
_BEYOND = 4
"""Waiting times are resolved up to so many times the longest length."""
_BINS = 48
"""Bins of waiting times besides those that end with a requested length."""
_LONGEST = 1 << 61


@dataclass(frozen=True)
class Horizon:
    """A length: `amount` units of the time column, or events of the substream.

    Attributes
    ----------
    text : str
        As it was requested.
    kind : str
        "time" or "events".
    amount : int
    """

    text: str
    kind: str
    amount: int

    @property
    def column(self) -> str:
        """The text as a part of a column's name: ``1_hour``."""
        return re.sub(r"\W+", "_", self.text.strip().lower()).strip("_")


def parse_lengths(
    within: str | timedelta | Sequence[str | timedelta], time_type: pa.DataType | None, time_unit: str | None
) -> tuple[Horizon, ...]:
    """Return the requested lengths, each once, in their order.

    Parameters
    ----------
    within
        Texts as ``"10 minutes"`` or ``"100 events"``, or timedeltas; one, or several.
    time_type
        Type of the time column, or None if there is none.
    time_unit
        Unit of an integer time column.

    Raises
    ------
    OptionError
        When one cannot be read, is 0, or is a time and there is no time column.
    """
    texts = [within] if isinstance(within, str | timedelta) else list(within)
    if not texts:
        raise OptionError("expected a length at least, got none\nhint: within=['1 hour'] (--within '1 hour')")
    lengths = [_length(each, time_type, time_unit) for each in texts]
    if len({each.column for each in lengths}) < len(lengths):
        raise OptionError(f"within names one length twice: {', '.join(each.text for each in lengths)}")
    return tuple(lengths)


def _length(value: str | timedelta, time_type: pa.DataType | None, time_unit: str | None) -> Horizon:
    if not isinstance(value, str | timedelta):
        raise OptionError(f"expected a length as '10 minutes' or '100 events', got {value!r}")
    counted = re.fullmatch(r"\s*(\d+)\s*events?\s*", value, re.IGNORECASE) if isinstance(value, str) else None
    if counted is not None:
        amount, kind = int(counted[1]), IN_EVENTS
    elif time_type is None:
        raise OptionError(
            f"the length {value!r} is a time, and no time column is named\n"
            "hint: time_column=... (--time-column), or a number of events: '100 events'"
        )
    elif isinstance(value, str) and re.fullmatch(r"[\s\d.]*", value):
        raise OptionError(f"the length {value!r} has no unit\nexpected: '10 minutes', '1 hour', '100 events'")
    else:
        amount, kind = int(parse_lateness(value, time_type, time_unit, what="length")), IN_TIME
    if not 0 < amount < _LONGEST // _BEYOND:
        raise OptionError(f"the length {value!r} is {amount:,} units: expected more than 0, and less than 2^59")
    return Horizon(value.strip() if isinstance(value, str) else str(value), kind, amount)


def edges_of(lengths: Sequence[Horizon], kind: str) -> Int64:
    """Return the ends of the bins of waiting times of a kind; empty if no length of that kind is requested.

    Each length ends a bin, so that no case of another bin is on both sides of it.
    """
    amounts = [each.amount for each in lengths if each.kind == kind]
    if not amounts:
        return np.zeros(0, np.int64)
    longest = max(amounts) * _BEYOND
    spread = np.geomspace(max(1.0, longest / 4096), float(longest), _BINS)
    edges: Int64 = np.unique(np.concatenate([np.array(amounts, np.int64), spread.astype(np.int64)]))
    return edges[edges > 0]
