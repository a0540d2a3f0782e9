"""The evaluation of one query over a stream of batches; all state is carried from batch to batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cer_gpu.automaton.cea import CEA
from cer_gpu.automaton.determinize import Determinization
from cer_gpu.ceql.syntax import Within
from cer_gpu.engine.clocks import Clock, Window, ordered, time_column_type, times_to_arrow, window_length
from cer_gpu.engine.columns import Block
from cer_gpu.engine.predicates import GuardWords
from cer_gpu.engine.run import MatchBuffers, Run
from cer_gpu.engine.strings import StringCoder
from cer_gpu.engine.symbols import SymbolTable
from cer_gpu.errors import CerError, EventsError, OptionError, QueryTypeError

BLOCK_ROWS = 1 << 16
"""Rows evaluated at once: the temporaries of the predicates stay in the cache."""


@dataclass(frozen=True)
class Plan:
    """What is known of a query before its events: what the evaluation needs of its text, and the options."""

    text: str
    cea: CEA
    within: Within | None
    limit: int | None
    type_column: str | None
    time_column: str | None
    time_unit: str | None


class Binding:
    """A plan over one schema: typed tests, the window in units of its column, the schema of the results.

    Raises
    ------
    QueryTypeError
        When the query does not fit the schema.
    """

    def __init__(self, plan: Plan, schema: pa.Schema) -> None:
        text = plan.text
        self.guards = GuardWords(plan.cea.guards, schema, plan.type_column, text)
        self.time_type = None if plan.time_column is None else time_column_type(schema, plan.time_column)
        if plan.time_unit is not None and (self.time_type is None or not pa.types.is_integer(self.time_type)):
            raise QueryTypeError(
                f"time_unit={plan.time_unit!r} is the unit of an integer time column, and "
                + ("none is named" if self.time_type is None else f"{plan.time_column!r} is {self.time_type}")
            )
        self.window_column: str | None = None
        self.window_length: np.uint64 | np.float64 | None = None
        if plan.within is not None:
            self.window_column, self.window_length = window_length(
                plan.within, schema, plan.time_column, plan.time_unit, text
            )
        self.clocks = [name for name in (plan.time_column, self.window_column) if name is not None]
        self.columns = list(dict.fromkeys([*self.guards.columns, *self.clocks]))
        self.types = [schema.field(name).type for name in self.columns]

    def fits(self, schema: pa.Schema) -> bool:
        """Return whether a batch of this schema can be evaluated with the binding as it is."""
        return all(len(schema.get_all_field_indices(n)) == 1 for n in self.columns) and self.types == [
            schema.field(n).type for n in self.columns
        ]


def output_schema(time_type: pa.DataType | None) -> pa.Schema:
    """Return the schema of the results ("positions")."""
    fields = [("start", pa.int64()), ("end", pa.int64()), ("positions", pa.list_(pa.int64()))]
    if time_type is not None:
        fields += [("start_time", time_type), ("end_time", time_type)]
    return pa.schema(fields)


class Evaluator:
    """Evaluates a query batch by batch: `push` events, `finish` at the end.

    Made by `cer_gpu.Query.evaluator`.  The concatenated results do not depend on how the stream is cut.

    Attributes
    ----------
    n_events : int
        Events read so far.
    n_matches : int
        Complex events found so far.
    """

    def __init__(self, plan: Plan) -> None:
        self.n_events = 0
        self.n_matches = 0
        self._plan = plan
        self._table = Determinization(plan.cea)
        self._limit = plan.limit or 0
        self._binding: Binding | None = None
        self._coders: dict[str, StringCoder] = {}
        self._refusal = ""  # why no more events are taken

    def push(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Read the events of a batch and return the complex events that end in it.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            The next events.  Its columns may change their types, those that tell the time excepted.

        Returns
        -------
        pyarrow.RecordBatch
            In the order of their ends; `push_batches` gives the same in pieces of bounded size.

        Raises
        ------
        QueryTypeError
            At the first batch, when the query does not fit its schema.
        TimeOrderError
            When a time decreases or is missing.
        """
        pieces = list(self.push_batches(batch))
        if len(pieces) == 1:
            return pieces[0]
        assert self._binding is not None
        return pa.concat_batches(pieces) if pieces else empty_batch(output_schema(self._binding.time_type))

    def push_batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Read the events of a batch and yield the complex events that end in it, in pieces of bounded size.

        The pieces must all be read before the next batch is pushed; the batch is evaluated while they are.
        """
        if self._refusal:
            raise OptionError(f"{self._refusal}: make a new evaluator")
        if not isinstance(batch, pa.RecordBatch):
            raise EventsError(f"expected a pyarrow.RecordBatch, got {type(batch).__name__}")
        binding = self._bind(batch.schema)
        self._refusal = "the matches of the batch before were not all read"
        return self._evaluate(binding, batch.select(binding.columns) if binding.columns else batch)

    def _evaluate(self, binding: Binding, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        try:
            for start in range(0, batch.num_rows, BLOCK_ROWS):
                for found in self._block(binding, Block(batch.slice(start, BLOCK_ROWS), self._coders)):
                    yield self._to_arrow(found)
        except CerError:
            self._refusal = "an error ended the stream"
            raise
        rest = self._run.flush()
        if len(rest.spans):
            yield self._to_arrow(rest)
        self._refusal = ""

    def finish(self) -> pa.RecordBatch:
        """End the stream and return what was still held back (nothing, as every match is reported at its end).

        Where no batch was pushed, the types of start_time and end_time are not known and the columns are left out.
        """
        self._refusal = "the stream is finished"
        time_type = None if self._binding is None else self._binding.time_type
        return empty_batch(output_schema(time_type))

    def finish_batches(self) -> Iterator[pa.RecordBatch]:
        """End the stream and yield what was still held back."""
        self._refusal = "the stream is finished"
        return iter(())

    # ---- one block --------------------------------------------------------------------------------------

    def _bind(self, schema: pa.Schema) -> Binding:
        binding = self._binding
        if binding is None or not binding.fits(schema):
            fresh = Binding(self._plan, schema)
            if binding is None:
                self._begin(fresh)
            binding = self._binding = fresh
        return binding

    def _begin(self, binding: Binding) -> None:
        plan = self._plan
        self._symbols = SymbolTable(self._table, binding.guards.dtype, binding.guards.n_guards)
        self._window = None if binding.window_length is None else Window(binding.window_length)
        self._clocks = {name: Clock(name) for name in binding.clocks}
        self._run = Run(
            self._table,
            windowed=self._window is not None,
            timed=plan.time_column is not None,
            limit=self._limit,
        )

    def _block(self, binding: Binding, block: Block) -> Iterator[MatchBuffers]:
        times = {name: clock.read(block) for name, clock in self._clocks.items()}
        symbols, rows = self._symbols.select(binding.guards.words(block))
        positions = rows + np.int64(self.n_events)
        self.n_events += block.n_rows
        if not len(rows):
            return
        lows = clocks = np.empty(0, np.int64)
        if self._plan.time_column is not None:
            clocks = times[self._plan.time_column][rows].astype(np.int64)
        if self._window is not None:
            column = binding.window_column
            moments = positions if column is None else times[column][rows]
            lows = self._window.lows(ordered(moments), self._run.n_relevant)
        yield from self._run.feed(symbols, positions, lows, clocks)

    def _to_arrow(self, found: MatchBuffers) -> pa.RecordBatch:
        assert self._binding is not None
        n = len(found.spans)
        self.n_matches += n
        columns: list[pa.Array] = [
            pa.array(found.spans[:, 0]),
            pa.array(found.spans[:, 1]),
            pa.ListArray.from_arrays(pa.array(found.offsets), pa.array(found.positions)),
        ]
        time_type = self._binding.time_type
        if time_type is not None:
            columns += [times_to_arrow(found.times[:, k], time_type) for k in (0, 1)]
        return pa.RecordBatch.from_arrays(columns, schema=output_schema(time_type))


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
