"""Evaluation of one stream across micro-batches: its events, sorted, and the state that is stored between them.

Positions count the events of the stream in the order in which they are evaluated, so that they do not depend on the
cut into micro-batches.  This module needs no Spark.

Events and matches as Arrow bytes in rows of Spark: what pandas would change stays as it is.

Spark's stateful operator hands rows to Python by pandas, one at a time, where an integer with NULL becomes a float and
times get other units.  A row that holds the events of a group as one Arrow record batch avoids both, and moves some
thousand events at the cost of one row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Bools, Int64
from cer_gpu.columnar.fields import batch_of
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.errors import CheckpointError, QueryTypeError
from cer_gpu.order.reorder_buffer import ReorderBuffer, parse_lateness
from spark_glue.distribution import PART_MATCHES
from spark_glue.stage import plain_batch
from spark_glue.survey import sort_key

if TYPE_CHECKING:
    from spark_glue.work import Work, WorkEvaluator


def in_order(events: pa.Table, order: Sequence[str]) -> pa.Table:
    """Return events in the order of some columns; ties are ordered by all other columns.

    NULLs come first, NaN after all numbers, and -0.0 with 0.0, as Spark orders.  Events that agree on everything are
    the same, so that a batch that is read again gives the same table.

    Parameters
    ----------
    events : pyarrow.Table
    order
        Names of columns without nested values.
    """
    keys = [sort_key(_concat_column(events.column(name))) for name in order]
    rows = _order_of_rows(keys, np.arange(events.num_rows))
    same = np.ones(max(len(rows) - 1, 0), np.bool_)
    for key in keys:
        same &= _equals_next(key.take(pa.array(rows)))
    tied = np.concatenate([[False], same]) | np.concatenate([same, [False]]) if len(rows) else np.zeros(0, np.bool_)
    if tied.any():
        places = np.flatnonzero(tied)
        among = rows[places]
        runs = np.cumsum(~np.concatenate([[False], same]))[places]
        others = [_concat_column(events.column(i)).take(pa.array(among)) for i in range(events.num_columns)]
        order_among = _order_of_rows(
            [pa.array(runs), *(key for each in others for key in _ties(each))], np.arange(len(among))
        )
        rows[places] = among[order_among]
    return events if (rows[1:] > rows[:-1]).all() else events.take(pa.array(rows))


def _order_of_rows(keys: list[pa.Array], rows: Int64) -> Int64:
    """Return rows in the order of keys of theirs."""
    # a key that flags NULLs puts these first: the option to do so has changed between versions of Arrow
    columns = [part for key in keys for part in ((key.is_valid().cast(pa.uint8()), key) if key.null_count else (key,))]
    table = pa.table([*columns, pa.array(rows)], names=[str(i) for i in range(len(columns) + 1)])
    indices: Int64 = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]).to_numpy()
    return rows[indices]


def _equals_next(values: pa.Array) -> Any:
    """Return which values equal the next one, NULL being equal to NULL."""
    one, other = values.slice(0, max(len(values) - 1, 0)), values.slice(1)
    both = pc.and_(one.is_null(), other.is_null())
    return pc.or_(pc.fill_null(pc.equal(one, other), False), both).to_numpy(zero_copy_only=False)


def _ties(values: pa.Array) -> list[pa.Array]:
    """Return keys that are equal only where values are the same, bit by bit."""
    kind = values.type
    if pa.types.is_null(kind):
        return []
    if pa.types.is_struct(kind):
        present = values.is_valid().cast(pa.uint8())
        return [present, *(key for field in values.flatten() for key in _ties(field))]
    if pa.types.is_floating(kind):
        width = kind.bit_width
        bits = values.fill_null(0.0).to_numpy().view(f"i{width // 8}")
        return [pa.array(bits, mask=_missing(values))]
    if pa.types.is_boolean(kind):
        return [values.cast(pa.uint8())]
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return [pa.array([None if each is None else repr(each) for each in values.to_pylist()], pa.string())]
    return [values]


def _missing(values: pa.Array) -> Bools:
    missing: Bools = values.is_null().to_numpy(zero_copy_only=False)
    return missing


def _concat_column(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


_MAGIC = b"CERSTRM1"
_OFFSET = 1 << 63
"""Key of the time 0 (`cer_gpu.order.times`): times of Spark are signed."""


@dataclass(frozen=True)
class StreamEvaluation:
    """Evaluation that streams have in common.

    Attributes
    ----------
    work : Work
    match_schema : pyarrow.Schema
        Schema of the matches, in types of Spark.
    order : tuple of str
        Columns that order the events, the time first.
    lateness : int
        In microseconds.
    groups : int
        Number of groups to which events are distributed.
    """

    work: Work
    match_schema: pa.Schema
    order: tuple[str, ...]
    lateness: int
    groups: int = 1

    def begin(self, number: int = 0) -> GroupStream:
        """Return the stream of a group, before its first event."""
        evaluator = self.work.evaluator(EvaluationOptions(), self.match_schema)
        return GroupStream(self, number, evaluator, ReorderBuffer(self.order[0], self.lateness, "drop"))

    def resume(self, blob: bytes, number: int = 0) -> GroupStream:
        """Return the stream of a group that continues from the state of `GroupStream.to_bytes`.

        Raises
        ------
        CheckpointError
            When the state is damaged, of another query, or of other options.
        """
        if not blob.startswith(_MAGIC):
            raise CheckpointError(
                f"expected the state of a stream, got {blob[:8]!r}...\nhint: begin with a new checkpoint"
            )
        begin = len(_MAGIC) + 8
        n_header = int.from_bytes(blob[len(_MAGIC) : begin], "little")
        header = json.loads(blob[begin : begin + n_header])
        for name, value in self._options(number).items():
            if header["options"].get(name) != value:
                raise CheckpointError(
                    f"the checkpoint is of a stream with {name}={header['options'].get(name)!r}, and this one has "
                    f"{name}={value!r}\nhint: {name}={header['options'].get(name)!r}, or a new checkpoint"
                )
        rest = begin + n_header
        evaluator = self.work.restore(blob[rest : rest + header["n_evaluator"]], self.match_schema)
        buffered = blob[rest + header["n_evaluator"] :]
        table = pa.ipc.open_stream(buffered).read_all() if buffered else None
        return GroupStream(self, number, evaluator, ReorderBuffer.restore(table, header["reorder"]))

    def _options(self, number: int) -> dict[str, Any]:
        order, groups = list(self.order), self.groups
        return {
            "output": self.work.output,
            "order_by": order,
            "lateness": self.lateness,
            "groups": groups,
            "group": number,
        }


class GroupStream:
    """Stream of one group of events; created by `StreamEvaluation`."""

    def __init__(
        self, evaluation: StreamEvaluation, number: int, evaluator: WorkEvaluator, reorder: ReorderBuffer
    ) -> None:
        self._evaluation = evaluation
        self._number = number
        self._evaluator = evaluator
        self._reorder = reorder

    @property
    def n_late(self) -> int:
        """Events so far that came too late, and were left out."""
        return self._reorder.n_late

    @property
    def next_deadline(self) -> int | None:
        """Earliest watermark, in microseconds, that has an effect; None if nothing is buffered or pending."""
        buffered, waiting = self._reorder.least, self._evaluator.next_deadline
        times = [time for time in (None if buffered is None else buffered - _OFFSET, waiting) if time is not None]
        return min(times, default=None)

    def push(self, events: pa.Table) -> Iterator[pa.RecordBatch]:
        """Take the events of a micro-batch, in any order, and yield the matches that become known."""
        for batch in in_order(events, self._evaluation.order).to_batches():
            yield from self._evaluate(self._reorder.push(batch))

    def advance_watermark(self, time: int) -> Iterator[pa.RecordBatch]:
        """Take the promise that events earlier than a time are late, and yield the matches that become known.

        Parameters
        ----------
        time
            In microseconds.
        """
        yield from self._evaluate(self._reorder.advance_watermark(min(max(time + _OFFSET, 0), 2**64 - 1)))
        if self._evaluation.work.time_column is not None:
            yield from map(self._with_spark_types, self._evaluator.advance_watermark_batches(time))

    def advance_by_events(self) -> Iterator[pa.RecordBatch]:
        """Advance to the time that the events so far and the lateness allow."""
        greatest = self._reorder.greatest
        if greatest is not None:
            yield from self.advance_watermark(greatest - _OFFSET - self._evaluation.lateness)

    def to_bytes(self) -> bytes:
        """Return the state, from which `StreamEvaluation.resume` continues."""
        buffered, facts = self._reorder.snapshot()
        evaluator = self._evaluator.checkpoint()
        options = self._evaluation._options(self._number)
        header = json.dumps({"options": options, "reorder": facts, "n_evaluator": len(evaluator)}).encode()
        return b"".join([_MAGIC, len(header).to_bytes(8, "little"), header, evaluator, _to_bytes(buffered)])

    def _evaluate(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from map(self._with_spark_types, self._evaluator.push_batches(batch))

    def _with_spark_types(self, matches: pa.RecordBatch) -> pa.RecordBatch:
        """Return matches with types of Spark, and with numbers that no other group gives."""
        if self._evaluation.work.numbered:
            at = matches.schema.get_field_index("match")
            numbers = pc.add(matches.column(at), self._number * PART_MATCHES)
            matches = matches.set_column(at, matches.schema.field(at), numbers)
        return plain_batch(matches)


def microseconds(lateness: Any) -> int:
    """Return a lateness ("10s", "250ms", a timedelta) in microseconds.

    Raises
    ------
    OptionError
        When it is no time, or negative.
    """
    return int(parse_lateness(lateness, pa.timestamp("us"), None))


def check_times(times: pa.Array | pa.ChunkedArray, name: str) -> None:
    """Refuse events without a time.

    Raises
    ------
    QueryTypeError
        With their number among those read at once.
    """
    if times.null_count:
        raise QueryTypeError(
            f"the stream is ordered by {name!r} first, which is NULL in {times.null_count:,} of {len(times):,} events",
            hint=f"leave them out: df.filter(col({name!r}).isNotNull())",
        )


def _to_bytes(table: pa.Table | None) -> bytes:
    if table is None:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


GROUP, BLOB = "group", "blob"
PACKED = f"{GROUP} int, {BLOB} binary"
"""Schema of packed events, as Spark writes it."""
PACK_ROWS, PACK_BYTES = 1 << 17, 1 << 26
"""Events, and bytes of events, that a task packs at once."""
MATCH_ROWS = 1 << 16
"""Matches of a packed row."""


@dataclass(frozen=True)
class Pack:
    """Function for ``mapInArrow`` from events, with their group first, to packed events.

    Attributes
    ----------
    schema : pyarrow.Schema
        Schema of the columns after the group.
    attributes : tuple of str
        Columns and fields of the query that they are.
    time : str
        The attribute among them that has the time.
    """

    schema: pa.Schema
    attributes: tuple[str, ...]
    time: str

    @property
    def packed(self) -> pa.Schema:
        """Schema of the packed events."""
        return batch_of(self.attributes, [pa.nulls(0, field.type) for field in self.schema]).schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield packed events, a row for each group of some events; those without a group are left out."""
        buffered: list[pa.RecordBatch] = []
        n_rows = n_bytes = 0
        for batch in batches:
            buffered.append(batch)
            n_rows, n_bytes = n_rows + batch.num_rows, n_bytes + batch.nbytes
            if n_rows >= PACK_ROWS or n_bytes >= PACK_BYTES:
                yield from self._pack(pa.Table.from_batches(buffered))
                buffered, n_rows, n_bytes = [], 0, 0
        if n_rows:
            yield from self._pack(pa.Table.from_batches(buffered))

    def events(self, table: pa.Table) -> pa.RecordBatch:
        """Return the events of rows without their group, in the types that the query sees."""
        columns = [
            pa.concat_arrays(column.chunks).cast(field.type) if column.num_chunks else pa.nulls(0, field.type)
            for column, field in zip(table.columns, self.schema, strict=True)
        ]
        check_times(columns[self.attributes.index(self.time)], self.time)
        return batch_of(self.attributes, columns)

    def _pack(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        groups, events = table.column(0).combine_chunks(), self.events(table.remove_column(0))
        if groups.null_count:
            mask = groups.is_valid()
            groups, events = groups.drop_null(), events.filter(mask)
        numbers = groups.to_numpy(zero_copy_only=False)
        order = np.argsort(numbers, kind="stable")
        numbers, events = numbers[order], events.take(pa.array(order))
        begins = np.flatnonzero(np.diff(numbers, prepend=-1))
        blobs = [
            events.slice(begin, end - begin).serialize().to_pybytes()
            for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(numbers)], strict=True)
        ]
        if blobs:
            columns = [pa.array(numbers[begins], pa.int32()), pa.array(blobs, pa.binary())]
            yield pa.record_batch(columns, [GROUP, BLOB])


@dataclass(frozen=True)
class Unpack:
    """Function for ``mapInArrow`` from packed matches to matches of a schema."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the matches."""
        for batch in batches:
            for blob in batch.column(0):
                yield unpacked(blob.as_py(), self.schema)


def packed_state(matches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
    """Yield matches as packed rows of bounded size.

    Parameters
    ----------
    matches
    schema
        Their schema; only the nullability of its fields may be another one.
    """
    buffered: list[pa.RecordBatch] = []
    n_rows = n_bytes = 0
    for batch in matches:
        for piece in _pieces(batch.cast(schema)):
            buffered.append(piece)
            n_rows, n_bytes = n_rows + piece.num_rows, n_bytes + piece.nbytes
            if n_rows >= MATCH_ROWS or n_bytes >= PACK_BYTES:
                yield pa.concat_batches(buffered).serialize().to_pybytes()
                buffered, n_rows, n_bytes = [], 0, 0
    if n_rows:
        yield pa.concat_batches(buffered).serialize().to_pybytes()


def unpacked(blob: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return the record batch of a packed row, given its schema."""
    return pa.ipc.read_record_batch(pa.py_buffer(blob), schema)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for begin in range(0, batch.num_rows, MATCH_ROWS):
        yield batch.slice(begin, MATCH_ROWS)
