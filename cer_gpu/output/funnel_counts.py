"""Aggregation of the output "funnel": how many starts reach each step, how fast, and what stops them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int64
from cer_gpu.columnar.clocks import UNITS_PER_SECOND
from cer_gpu.runtime.progress.buffers import STOPPED

STOPS = STOPPED[1:]
"""The reasons why a start stops."""


_LENGTHS = ((86_400, "days"), (3_600, "hours"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "us"))


@dataclass(frozen=True)
class FunnelRow:
    """A step of a funnel.

    Attributes
    ----------
    name : str
    n_reached : int
        Starts that reached it.
    of_previous, of_first : float or None
        Fraction of the starts that reached the step before, and of all starts; None for the first step, or if
        there are no starts.
    median : float or None
        Median of the time from the start to the step, in units of the time column, or of the distance in positions
        if there is none; None for the first step, or if no start reached it.
    stopped : dict from str to int
        Starts that reached no further step, by the reason, one of `STOPS`.
    """

    name: str
    n_reached: int
    of_previous: float | None
    of_first: float | None
    median: float | None
    stopped: dict[str, int]


class FunnelCounts:
    """Counts over rows of "funnel"; stores a number for each start and step reached, for exact medians.

    Parameters
    ----------
    names
        Names of the steps.
    time_unit
        Unit of a time column of integers, or None if unknown.
    """

    def __init__(self, names: list[str], time_unit: str | None = None) -> None:
        self._time_unit = time_unit or ""
        self._names = names
        self._stopped = np.zeros((len(names), len(STOPS)), np.int64)
        self._apart: list[list[Int64]] = [[] for _ in names]
        self._time_type: pa.DataType | None = None

    @property
    def unit(self) -> str:
        """Unit of the medians: "positions", or that of the time column, as "ms"; "" if it has none."""
        if self._time_type is None:
            return "positions"
        if pa.types.is_date32(self._time_type):
            return "days"
        return "ms" if pa.types.is_date64(self._time_type) else getattr(self._time_type, "unit", self._time_unit)

    def seconds(self, median: float) -> float | None:
        """Return a median in seconds, or None if it is not a duration."""
        if self.unit == "days":
            return 86_400 * median
        return median / UNITS_PER_SECOND[self.unit] if self.unit in UNITS_PER_SECOND else None

    def median_in_words(self, median: float | None) -> str:
        """Return a median in words, or "" if there is none."""
        if median is None:
            return ""
        seconds = self.seconds(median)
        if seconds is None:
            number = f"{median:,.0f}" if median == int(median) else f"{median:,.1f}"
            return f"{number} {self.unit}".rstrip()
        for length, name in _LENGTHS:
            if abs(seconds) >= length:
                return f"{seconds / length:,.3g} {name}"
        return f"{seconds * 1e9:,.3g} ns"

    def take(self, rows: pa.RecordBatch) -> None:
        """Count rows."""
        if not rows.num_rows:
            return
        steps = rows.column("step").to_numpy()
        for number, ending in enumerate(STOPS):
            mask = np.asarray(pc.equal(rows.column("stopped"), ending))
            self._stopped[:, number] += np.bincount(steps[mask] - 1, minlength=len(self._names))
        column = rows.column("positions")
        if "times" in rows.schema.names:
            column = rows.column("times")
            self._time_type = column.type.value_type
        values = column.flatten()
        if self._time_type is not None:
            width = pa.int32() if values.type.bit_width == 32 else pa.int64()
            values = values.cast(width, safe=False) if pa.types.is_integer(values.type) else values.view(width)
        numbers = values.to_numpy(zero_copy_only=False).astype(np.int64)
        firsts = np.cumsum(steps) - steps
        for k in range(1, len(self._names)):
            at = firsts[steps > k]
            self._apart[k].append(numbers[at + k] - numbers[at])

    @property
    def n_starts(self) -> int:
        """Number of rows so far."""
        return int(self._stopped.sum())

    @property
    def rows(self) -> list[FunnelRow]:
        """The steps."""
        reached = self._stopped.sum(axis=1)[::-1].cumsum()[::-1].tolist()
        funnel = []
        for k, name in enumerate(self._names):
            apart = np.concatenate(self._apart[k]) if self._apart[k] else np.empty(0, np.int64)
            fractions = [reached[k] / reached[of] if k and reached[of] else None for of in (k - 1, 0)]
            stopped = dict(zip(STOPS, self._stopped[k].tolist(), strict=True))
            median = float(np.median(apart)) if len(apart) else None
            funnel.append(FunnelRow(name, reached[k], fractions[0], fractions[1], median, stopped))
        return funnel
