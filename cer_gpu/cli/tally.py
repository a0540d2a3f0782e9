"""Counts of the rows and matches of outputs, and the rate of an evaluation, in words."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cer_gpu.expressions.targets.arrow import exact_sum
from cer_gpu.output.form import Output
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.printable import counted
from cer_gpu.rules.alerts import ALERTS


@dataclass(frozen=True)
class OtherRows:
    """Form of rows that are not an output of a query, with the attributes of `Output` that commands need."""

    row: str
    row_each: bool
    counted: bool = False
    numbered: bool = False
    most_at_an_end: int = 0
    keeps_events: bool = False
    by_starts: bool = False


ONE_ROW, ALL_ROWS = "one row per match", "all rows per match"
FORMS: Mapping[str, type[Output] | OtherRows] = {
    **OUTPUTS,
    ONE_ROW: OtherRows("match", row_each=True),
    ALL_ROWS: OtherRows("row of matches", row_each=False),
    ALERTS: OtherRows("alert", row_each=True),
}
"""Forms of rows: the outputs of queries, the rows of statements, and alerts of rules."""


class Tally:
    """Counts the rows of one output, up to a limit.

    Parameters
    ----------
    output
        One of `FORMS`.
    limit
        Number of matches after which the evaluation ends; None for all.

    Attributes
    ----------
    output, limit
        See Parameters.
    n_rows : int
        Number of rows so far.
    """

    def __init__(self, output: str, limit: int | None = None) -> None:
        self.n_rows: int = 0
        self.output = output
        self._form = FORMS[output]
        self.limit = limit
        self._n_counted = 0
        self._first_match: int | None = None
        self._n_recounted = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch."""
        self.n_rows += batch.num_rows
        if self._form.counted and batch.num_rows:
            self._n_counted += exact_sum(batch.column("count"))
        if self._form.numbered and batch.num_rows:
            numbers = batch.column("match")
            self._first_match = numbers[0].as_py() if self._first_match is None else self._first_match
            self._n_counted = numbers[-1].as_py() + 1 - self._first_match

    def add(self, other: Tally) -> None:
        """Add the counts of another tally of the same output."""
        self.n_rows += other.n_rows
        self._n_counted += other._n_counted

    def take_counts(self, batch: pa.RecordBatch) -> None:
        """Count the matches in a batch of output "count", in place of those listed so far."""
        self._n_recounted += exact_sum(batch.column("count"))
        self.n_rows = max(self.n_rows, self._n_recounted)

    @property
    def n_listed(self) -> int:
        """Number of rows so far that are listed matches; 0 if rows are something else."""
        listed = self._form.most_at_an_end != 1 and not self._form.counted and not self._form.by_starts
        return self.n_rows if listed else 0

    @property
    def limit_reached(self) -> bool:
        """True once the limit is reached."""
        return self.limit == (self._n_counted if self._form.numbered else self.n_rows)

    @property
    def n_matches(self) -> int | None:
        """Number of matches in the rows, or None if a row is neither one match nor a count of them."""
        if self._form.counted or self._form.numbered:
            return self._n_counted
        return self.n_rows if self._form.row_each else None

    @property
    def facts(self) -> dict[str, Any]:
        """The counts as plain data."""
        return {
            "output": self.output,
            "n_rows": self.n_rows,
            "n_matches": self.n_matches,
            "limit_reached": self.limit_reached,
        }

    @property
    def nothing(self) -> str:
        """The words for no matches."""
        return "no matches"

    @property
    def rows(self) -> str:
        """Number of rows, in words."""
        return counted(self.n_rows, self._form.row)

    def __str__(self) -> str:
        """Return the counts in words."""
        if not self._form.counted and not self._form.numbered:
            return self.rows
        return f"{counted(self._n_counted, 'match')} {'at' if self._form.counted else 'in'} {self.rows}"


class Totals:
    """Tallies of the matches of queries, and their sums.

    Parameters
    ----------
    outputs
        Output of each query.
    limit
        Limit of each `Tally`.

    Attributes
    ----------
    of : dict from str to Tally
    """

    def __init__(self, outputs: Mapping[str, str], limit: int | None = None) -> None:
        self.of: dict[str, Tally] = {name: Tally(output, limit) for name, output in outputs.items()}

    @property
    def output(self) -> str | None:
        """The output of all queries, or None if they have several."""
        outputs = {tally.output for tally in self.of.values()}
        return outputs.pop() if len(outputs) == 1 else None

    @property
    def n_rows(self) -> int:
        """Number of rows so far."""
        return sum(tally.n_rows for tally in self.of.values())

    @property
    def n_listed(self) -> int:
        """Number of rows so far that are listed (`Tally.n_listed`)."""
        return sum(tally.n_listed for tally in self.of.values())

    @property
    def limit_reached(self) -> bool:
        """True once all queries have reached the limit."""
        return all(tally.limit_reached for tally in self.of.values())

    @property
    def n_matches(self) -> int | None:
        """Number of matches, or None if a row of an output is neither a match nor a count of them."""
        numbers = [tally.n_matches for tally in self.of.values()]
        return None if None in numbers else sum(n for n in numbers if n is not None)

    @property
    def counts_in_words(self) -> str:
        """The counts in words, with queries of the same output together."""
        together: dict[str, Tally] = {}
        for tally in self.of.values():
            together.setdefault(tally.output, Tally(tally.output)).add(tally)
        return " and ".join(map(str, together.values()))

    def __str__(self) -> str:
        """Return the counts in words, and the number of queries."""
        return self.counts_in_words + (f" of {counted(len(self.of), 'query')}" if len(self.of) > 1 else "")


class Throughput:
    """Rate of an evaluation, measured after the first batch, which loads the engine."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._n_batches = 0
        self._first: tuple[float, int] | None = None

    def before_a_batch(self, n_read: int) -> None:
        """Record the request for a batch of events, when `n_read` events have been evaluated."""
        self._n_batches += 1
        if self._n_batches == 2 and n_read:
            self._first = time.perf_counter(), n_read

    def finish(self, n_read: int) -> None:
        """Record the end.

        Set `seconds`, `rate` (events per second, or None if there are too few to measure) and `start` (seconds before
        events are evaluated at that rate, or None if the rate is that of the whole run).
        """
        now = time.perf_counter()
        self.seconds: float = now - self._begun
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
        """Return duration and rate in words."""
        start = "" if self.start is None else f" ({self.start:.2f} s to start)"
        return f"{self.seconds:.2f} s{start}" + ("" if self.rate is None else f", {self.rate:,.0f} rows/s")
