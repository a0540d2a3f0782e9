"""Member of an evaluation whose query begins when all rows are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from cer_gpu.columnar.clocks import Clock
from cer_gpu.columnar.columns import as_type
from cer_gpu.columnar.fields import array_of, attribute_type
from cer_gpu.columnar.resident import refuse_resident
from cer_gpu.engine.blocks import Batch, EventBlock
from cer_gpu.engine.checkpoint import NamedState
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.query_execution import QueryExecution
from cer_gpu.engine.shared_state import SharedState
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.order.streams import STREAM_COLUMN


class OfTable(Protocol):
    """A query whose results begin when all rows are read (`cer_gpu.row_patterns.row_pattern_query`)."""

    @property
    def text(self) -> str:
        """The query as it was written."""

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the names of the columns that it reads."""

    def _columns_read(self, schema: pa.Schema) -> list[str]:
        """Return the names of the columns that it reads, and those of fields of structs, with dots."""

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of its results."""

    def _table_results(self, table: pa.Table, schema: pa.Schema, device: str) -> Iterator[pa.RecordBatch]:
        """Yield its results over a table."""


class BufferedExecution(QueryExecution):
    """Evaluation of one query over the whole table, whose rows are collected.

    Parameters
    ----------
    query, options
    """

    def __init__(self, query: OfTable, options: EvaluationOptions) -> None:
        super().__init__(options)
        self._query = query
        self._schema: pa.Schema | None = None
        self._table_results = pa.schema([])
        self._held: list[pa.RecordBatch] = []
        self._attributes: list[str] = []

    @property
    def identity(self) -> dict[str, Any]:
        """The text."""
        return {"text": self._query.text}

    @property
    def result_schema(self) -> pa.Schema:
        """Schema of the results; without columns before the first batch."""
        return self._table_results

    def clone(self, options: EvaluationOptions, sharing: SharedState | None) -> BufferedExecution:
        """See `QueryExecution`."""
        return BufferedExecution(self._query, options)

    def expect(self, schema: pa.Schema) -> bool:
        """See `QueryExecution`."""
        added = (ROW_COLUMN, STREAM_COLUMN, self.options.position_column)
        schema = pa.schema([field for field in schema if field.name not in added])
        results, names = self._query.output_schema(schema), self._query._columns_read(schema) or schema.names[:1]
        self._attributes = self._attributes or self._query.columns(schema)
        if self._schema is not None:
            return False
        self._schema, self._table_results = pa.schema([(name, attribute_type(schema, name)) for name in names]), results
        return True

    @property
    def attributes(self) -> list[str]:
        """Columns that are read, known after `expect`."""
        return list(self._attributes)

    def refuse_resident(self, batch: pa.RecordBatch) -> None:
        """See `QueryExecution`."""
        refuse_resident(batch, self.attributes, "MATCH_RECOGNIZE")

    def process(self, block: EventBlock, clocks: dict[str, Clock], batch: Batch) -> Iterator[pa.RecordBatch]:
        """Collect the rows of a block."""
        assert self._schema is not None
        names, batch = self._schema.names, block.columns.batch
        self._held.append(pa.RecordBatch.from_arrays([array_of(batch, name) for name in names], names=names))
        yield from ()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the results over all rows."""
        if self._schema is None:
            return
        table, self._held = collected(self._held, self._schema), []
        n_told, (part, n_parts) = 0, self.options.shard or (0, 1)
        for rows in self._query._table_results(table, self._table_results, self.options.device):
            if n_parts > 1:
                number = np.arange(n_told, n_told + rows.num_rows)
                n_told += rows.num_rows
                rows = rows.take(pa.array(np.flatnonzero(number % n_parts == part)))
            if self.options.last_result is not None:
                rows = rows.slice(0, self.options.last_result - self._n_found)
            self._n_found += rows.num_rows
            self.add_matches(rows.num_rows)
            yield rows
            if self.limit_reached:
                return

    def snapshot(self, state: NamedState) -> None:
        """Add the rows to a checkpoint."""
        super().snapshot(state)
        if self._schema is not None:
            state.schemas["results"] = self._table_results
            state.tables["held"] = collected(self._held, self._schema)

    def restore(self, state: NamedState) -> None:
        """See `QueryExecution`."""
        super().restore(state)
        if "held" in state.tables:
            self._table_results, self._schema = state.schemas["results"], state.tables["held"].schema
            self._held = state.tables["held"].to_batches()


def collected(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema as one table; files may give texts as codes, in some batches or in all.

    Raises
    ------
    EventsError
        When a value of a later batch does not fit the type of the first.
    """
    columns = []
    for each in schema:
        chunks, whose = [batch.column(each.name) for batch in batches], f"column {each.name!r}"
        if len({chunk.type for chunk in chunks}) > 1:
            chunks = [chunk if chunk.type == each.type else as_type(chunk, each.type, whose) for chunk in chunks]
        columns.append(pa.chunked_array(chunks, None if chunks else each.type))
    return pa.table(columns, names=schema.names)
