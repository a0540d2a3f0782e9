"""How many rows of an output there are, how many complex events they stand for, and how to say it."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc

_ROWS = {"positions": "complex event", "events": "complex event", "bindings": "row of bindings", "count": "position"}
"""What one row of an output is."""


class Tally:
    """Counts the rows of one output, up to a limit.

    Parameters
    ----------
    output
        One of `cer_gpu.query.OUTPUTS`.
    limit
        How many rows are wanted; None: all.

    Attributes
    ----------
    output, limit
        As given.
    n_rows : int
        Rows so far.
    """

    def __init__(self, output: str, limit: int | None = None) -> None:
        self.n_rows = 0
        self.output = output
        self.limit = limit
        self._n_counted = 0

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Count the rows of a batch that are wanted, and return them."""
        wanted = batch if self.limit is None else batch.slice(0, self.limit - self.n_rows)
        self.n_rows += wanted.num_rows
        if self.output == "count" and wanted.num_rows:
            # the sum of counts that fit 64 bits may not
            self._n_counted += int(pc.sum(wanted.column("count").cast(pa.decimal128(38, 0))).as_py())
        return wanted

    @property
    def is_full(self) -> bool:
        """Whether there are as many rows as are wanted."""
        return self.n_rows == self.limit

    @property
    def n_complex_events(self) -> int | None:
        """How many complex events the rows stand for; None where that is not known: several valuations can be one."""
        if self.output == "bindings":
            return None
        return self._n_counted if self.output == "count" else self.n_rows

    @property
    def rows(self) -> str:
        """Say how many rows there are."""
        return counted(self.n_rows, _ROWS[self.output])

    def __str__(self) -> str:
        """Say what was found."""
        if self.output != "count":
            return self.rows
        return f"{counted(self._n_counted, 'complex event')} at {self.rows}"


class Pace:
    """How fast events are evaluated, which is measured after the first batch: the engine is loaded in that."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._n_batches = 0
        self._first: tuple[float, int] | None = None

    def before_a_batch(self, n_read: int) -> None:
        """Take note that a batch of events is wanted, after so many events were evaluated."""
        self._n_batches += 1
        if self._n_batches == 2 and n_read:
            self._first = time.perf_counter(), n_read

    def finish(self, n_read: int) -> None:
        """Take note of the end.

        Sets `seconds`, `rate` (events a second; None where there are too few to tell) and `start`, the seconds that
        are left of all (None where the rate is that of all).
        """
        now = time.perf_counter()
        self.seconds = now - self._begun
        self.rate: float | None = None
        self.start: float | None = None
        if self._first is None:
            self.rate = n_read / self.seconds if self._n_batches > 2 else None
            return
        since, n_before = self._first
        if n_read >= 2 * n_before:
            self.rate = (n_read - n_before) / (now - since)
            self.start = max(self.seconds - n_read / self.rate, 0.0)

    def __str__(self) -> str:
        """Say how long it took, and how fast it was."""
        start = "" if self.start is None else f" ({self.start:.2f} s to start)"
        return f"{self.seconds:.2f} s{start}" + ("" if self.rate is None else f", {self.rate:,.0f} rows/s")


def counted(n: int, what: str) -> str:
    """Say how many there are."""
    head, of, rest = what.partition(" of ")
    return f"{n:,} {head}" + ("" if n == 1 else "s") + of + rest
