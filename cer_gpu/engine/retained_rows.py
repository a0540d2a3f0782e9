"""Rows of the stream that results may show, retained for as long as a match to come may hold the event.

Beside attributes of events these are row numbers of the input as it came: positions within the engine count the events
in the order in which they are evaluated, and results name rows of the input in their place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int32, Int64
from cer_gpu.columnar.fields import array_of
from cer_gpu.engine.blocks import Batch
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN
from cer_gpu.output.form import Output
from cer_gpu.output.retention import Retained


class RowNumbers:
    """Rows of the input, by position.

    Parameters
    ----------
    output
        Output whose positions are exchanged for rows.
    names_streams
        True: rows are those of several streams, which the results name.
    waits
        True: complex events are reported behind the batch in which they end.

    Attributes
    ----------
    retained : Retained or None
        Rows, and their streams; None: results name only the events that end them.
    """

    def __init__(self, output: Output, names_streams: bool, *, waits: bool = False) -> None:
        self._columns, self._schema = output.columns_of_positions, output.result_schema
        self._attributes = [ROW_COLUMN, STREAM_COLUMN] if names_streams else [ROW_COLUMN]
        kinds = [pa.int64(), pa.string()]
        schema = pa.schema(list(zip(self._attributes, kinds, strict=False)))
        only_ends = (output.counted or output.most_at_an_end == 1) and not waits
        self.retained: Retained | None = None if only_ends else Retained(schema, self._attributes)

    def add(self, positions: Int64, batch: pa.RecordBatch, rows: Int32) -> None:
        """Retain the row numbers of relevant events."""
        if self.retained is not None:
            self.retained.add(positions, batch, rows)

    def exchange(self, results: pa.RecordBatch, batch: Batch | None) -> pa.RecordBatch:
        """Return results that end in a batch (None if they waited), with rows of the input in place of positions."""
        columns, streams = results.columns, []
        for i in self._columns:
            is_list = pa.types.is_list(columns[i].type)
            made = self._rows_at_positions(columns[i].flatten() if is_list else columns[i], batch)
            if is_list:
                begin = columns[i].offsets[0].as_py() if len(columns[i]) else 0
                offsets = pa.array(columns[i].offsets.to_numpy() - begin)
                made = [pa.ListArray.from_arrays(offsets, column) for column in made]
            columns[i] = made[0]
            streams += made[1:]
        return pa.RecordBatch.from_arrays([*columns, *streams], schema=self._schema)

    def _rows_at_positions(self, positions: pa.Array, batch: Batch | None) -> list[pa.Array]:
        """Return the rows at positions, and their streams if these are named; NULL stays NULL."""
        known = positions.drop_null().to_numpy()
        if self.retained is not None:
            columns: list[pa.Array] = self.retained.take(known).flatten()
        else:
            assert batch is not None
            rows = pa.array(batch.rows_at(known))
            columns = [array_of(batch.events, name).take(rows) for name in self._attributes]
            columns = [c.cast(pa.string()) if pa.types.is_dictionary(c.type) else c for c in columns]
        if positions.null_count:
            valid = np.asarray(positions.is_valid())
            places = pa.array(np.cumsum(valid) - 1, mask=~valid)
            columns = [column.take(places) for column in columns]
        return columns


class RetainedRows:
    """Rows that the results of one query may show.

    Parameters
    ----------
    attributes
        Attributes of events, or None if results show none.
    numbers
        Row numbers of the input, or None if results name positions.
    given_in_partitions
        True: events with given positions are in partitions; runtimes then tell of numbers of events.
    window_in_clocks
        True: the window is one of the clocks of all events.

    Attributes
    ----------
    names_rows : bool
        True if results name rows of the input in place of positions.
    """

    def __init__(
        self,
        attributes: Retained | None,
        numbers: RowNumbers | None,
        *,
        given_in_partitions: bool,
        window_in_clocks: bool,
    ) -> None:
        self._attributes, self._numbers = attributes, numbers
        self._by_number, self._in_clocks = given_in_partitions, window_in_clocks
        of_rows = None if numbers is None else numbers.retained
        self._retained = {
            name: each for name, each in (("retained", attributes), ("rows", of_rows)) if each is not None
        }
        self.names_rows: bool = numbers is not None
        # (number, given position) of the first event of each batch
        self._begins: list[tuple[int, int]] = [(0, 0)]

    @property
    def is_empty(self) -> bool:
        """True if results show neither attributes nor row numbers."""
        return self._attributes is None and self._numbers is None

    def add(self, positions: Int64, batch: pa.RecordBatch, rows: Int32) -> None:
        """Retain the relevant events of a batch, at some of its rows."""
        for each in self._retained.values():
            each.add(positions, batch, rows)

    def with_row_numbers(self, results: pa.RecordBatch, batch: Batch | None) -> pa.RecordBatch:
        """Return results that end in a batch (None if they were pending), with row numbers if results name rows."""
        return results if self._numbers is None else self._numbers.exchange(results, batch)

    def end_batch(self, batch: Batch, live: Callable[[], int | Int64]) -> None:
        """Drop the rows that no match to come can hold, once there are many.

        Parameters
        ----------
        batch
        live
            Returns the first position, or all positions (ascending), that matches to come may hold.
        """
        if not self._retained:
            return
        if self._by_number and self._in_clocks and batch.given is not None and len(batch.given):
            self._begins.append((batch.first, int(batch.given[0])))
        if any(each.wants_trim for each in self._retained.values()):
            positions = live()
            for each in self._retained.values():
                if isinstance(positions, int):
                    each.keep_from(self._given_at(positions))
                else:
                    each.keep(positions)

    def _given_at(self, position: int) -> int:
        """Return a given position at or before that of the event with this number, from the begins of the batches."""
        if not self._by_number:
            return position
        while len(self._begins) > 1 and self._begins[1][0] <= position:
            self._begins.pop(0)
        return self._begins[0][1]

    # ---- checkpoints ----------------------------------------------------------------------------------------

    def snapshot(self, state: NamedState) -> None:
        """Add the rows to a checkpoint."""
        for name, each in self._retained.items():
            state.arrays[name], state.tables[name] = each.snapshot()

    def restore(self, state: NamedState) -> None:
        """Continue from a checkpoint."""
        for name, each in self._retained.items():
            each.restore(state.arrays[name], state.tables[name])
