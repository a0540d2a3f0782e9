"""The evaluation of a query that a command line shows or writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from cer_gpu.cli.given_events import Streams
from cer_gpu.cli.progress import Watched
from cer_gpu.order.reorder import LATE
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.query import Query
from cer_gpu.stages import Stages

MANY = 10_000_000
"""Complex events after which a run without a file counts the rest, and on a terminal gives advice."""
ADVICE = "WITHIN makes them fewer, --limit stops early, --output count lists none"


class Evaluation:
    """Evaluation of a query over its events, by the API.

    Attributes
    ----------
    schema : pyarrow.Schema
        Schema of the results.
    n_rows : int or None
        Number of events, where it is known.
    drops_late : bool
        True if events that are too late are dropped.
    """

    def __init__(
        self,
        query: Query,
        streams: Streams,
        device: str,
        output: str,
        stages: Stages,
        *,
        sort: bool,
        lateness: str | None,
        late: str | None,
        threads: int | None,
        limit: int | None,
    ) -> None:
        self._query = query
        self._threads = threads
        self._reorders = lateness is not None or late is not None
        self._keeps_order = not sort and not self._reorders and not streams.are_named
        self._n_before = 0  # events that an evaluation before this one has read
        self._counting = partial(
            Evaluation,
            query,
            streams,
            device,
            "count",
            stages,
            sort=sort,
            lateness=lateness,
            late=late,
            threads=threads,
            limit=None,
        )
        self.drops_late = late == "drop"
        options: dict[str, Any] = {"lateness": lateness or "0", "late": late or LATE[0]} if self._reorders else {}
        self.evaluator = query.evaluator(device=device, output=output, stages=stages, limit=limit, **options)
        self._source = query.source(streams.open(), sort=sort)
        self.schema = query.output_schema(self._source.schema, output)
        self.n_rows = self._source.n_rows

    def batches(self, tick: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """Yield the results; `tick` is called before each batch of events."""
        return self._query.matches(Watched(self._source, tick), self.evaluator, self._threads)

    @property
    def n_read(self) -> int:
        """Number of events read, late ones too."""
        n_read = self.evaluator.n_pushed if self._reorders else self.evaluator.n_events
        return max(n_read, self._n_before)

    def n_done(self, batch: pa.RecordBatch) -> int:
        """Return the number of events up to the last complex event of a batch of results."""
        if self._keeps_order and batch.num_rows and "end" in batch.schema.names:
            return int(batch.column("end")[-1].as_py()) + 1
        return self.n_read

    def counting(self, n_done: int) -> Evaluation | None:
        """Return an evaluation that counts what this one lists, from the first event on.

        None where that would not be faster after `n_done` events: a row is not a complex event, the count lists them
        too, most events are done, or the events can be read only once.
        """
        options = self.evaluator
        if not OUTPUTS[options.output].row_each or options.limit is not None or not self._source.rereadable:
            return None
        if not self._query.physical_plan("count").counted or (self.n_rows is not None and 2 * n_done > self.n_rows):
            return None
        counting = self._counting()
        counting._n_before = self.n_read
        return counting

    def advice(self, found: str, n_done: int, *, counts: bool) -> str:
        """Return advice, a line, after `n_done` events with very many complex events, of which `found` tells."""
        of_all = "" if self.n_rows is None else f" of {self.n_rows:,}"
        share = f" ({n_done / self.n_rows:.1%})" if self.n_rows else ""
        rest = "the rest is only counted; " if counts else ""
        return f"{found} in {n_done:,}{of_all} rows{share}; {rest}{ADVICE}"
