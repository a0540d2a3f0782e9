"""Events on their way to an evaluation: put in order if some may be late, and refused once the stream has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from cer_gpu.columnar.clocks import time_column_type
from cer_gpu.columnar.fields import with_column
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.options import Lateness
from cer_gpu.errors import CerError, OptionError, out_of_memory
from cer_gpu.order.lateness import parse_lateness
from cer_gpu.order.reorder_buffer import ReorderBuffer
from cer_gpu.order.rows import with_rows


class StreamInput:
    """Entrance of the events of one stream.

    Parameters
    ----------
    time_column, time_unit
        As of `cer_gpu.compile`.
    lateness, late
        As of `cer_gpu.Query.evaluate`; checked before.
    begin
        Number of the first event.

    Attributes
    ----------
    n_pushed : int
        Events pushed so far.
    refusal : str
        The reason why no more events are accepted; empty if they are.
    """

    def __init__(
        self, time_column: str | None, time_unit: str | None, lateness: Lateness | None, late: str, begin: int = 0
    ) -> None:
        self.n_pushed: int = begin
        self.refusal: str = ""
        self._time_column, self._time_unit = time_column, time_unit
        self._lateness, self._late = lateness, late
        self._reorder: ReorderBuffer | None = None

    def expect(self, schema: pa.Schema) -> None:
        """Read lateness in the unit of the time column; the first schema counts."""
        if self._lateness is not None and self._reorder is None:
            assert self._time_column is not None
            units = parse_lateness(self._lateness, time_column_type(schema, self._time_column), self._time_unit)
            self._reorder = ReorderBuffer(self._time_column, units, self._late)

    @property
    def n_late(self) -> int:
        """Number of events so far that came later than allowed."""
        return 0 if self._reorder is None else self._reorder.n_late

    @property
    def least(self) -> int | None:
        """Key of the earliest event that waits; None: none does."""
        return None if self._reorder is None else self._reorder.least

    def check_open(self) -> None:
        """Raise OptionError if no more events are accepted."""
        if self.refusal:
            raise OptionError(f"{self.refusal}: make a new evaluator")

    def begin(self) -> None:
        """Refuse further events until those that are being evaluated, under `reading`, were read to the end."""
        self.refusal = "the matches of the batch before were not all read"

    @contextmanager
    def reading(self, n_matches: Callable[[], int]) -> Iterator[None]:
        """Accept more events after this block, unless an error ends it.

        Parameters
        ----------
        n_matches
            Returns the number of complex events so far, for the message when memory runs out.
        """
        try:
            yield
        except (CerError, MemoryError) as error:
            self.refusal = "an error ended the stream"
            if isinstance(error, CerError):
                raise
            raise out_of_memory(n_matches()) from None
        self.refusal = ""

    def push(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take the next events, and return those that are due; if some may be late, with the numbers of their rows."""
        ready = [batch]
        if self._reorder is not None:
            assert self._time_column is not None
            ready = self._reorder.push(with_rows(with_column(batch, self._time_column), self.n_pushed))
        self.n_pushed += batch.num_rows
        return ready

    def advance_watermark(self, key: int) -> list[pa.RecordBatch]:
        """Return the events that wait, up to the time of a key, and take none from now on that is earlier."""
        return [] if self._reorder is None else self._reorder.advance_watermark(key)

    def finish(self) -> list[pa.RecordBatch]:
        """Return the events that still wait; none after an error, or after the end."""
        return [] if self._reorder is None or self.refusal else self._reorder.finish()

    def close(self) -> None:
        """Accept no more events."""
        self.refusal = "the stream is finished"

    def snapshot(self, state: NamedState) -> None:
        """Add the events that wait to a checkpoint."""
        if self._reorder is not None:
            rows, facts = self._reorder.snapshot()
            state.facts["reorder"] = facts
            if rows is not None:
                state.tables["reorder"] = rows

    def restore(self, state: NamedState) -> None:
        """Go on from a checkpoint, after `expect`."""
        if self._reorder is not None:
            self._reorder = ReorderBuffer.restore(state.tables.get("reorder"), state.facts["reorder"])
