"""Evaluation of one stream across micro-batches: its events, put in order, and the state that is kept between them.

Positions count the events of the stream in the order in which they are evaluated, so that they do not depend on the
cut into micro-batches.  This module needs no Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.errors import CheckpointError, QueryTypeError
from cer_gpu.order.reorder_buffer import ReorderBuffer, parse_lateness
from spark_glue.distribution import PART_MATCHES
from spark_glue.stage import plain_batch
from spark_glue.streaming.ordering import in_order

if TYPE_CHECKING:
    from spark_glue.work import Work, WorkEvaluator

_MAGIC = b"CERSTRM1"
_OFFSET = 1 << 63
"""Key of the time 0 (`cer_gpu.order.times`): times of Spark are signed."""


@dataclass(frozen=True)
class StreamEvaluation:
    """Evaluation that streams have in common.

    Attributes
    ----------
    work : Work
    found : pyarrow.Schema
        Schema of the complex events, in types of Spark.
    order : tuple of str
        Columns that order the events, the time first.
    lateness : int
        In microseconds.
    groups : int
        Number of groups to which events are dealt.
    """

    work: Work
    found: pa.Schema
    order: tuple[str, ...]
    lateness: int
    groups: int = 1

    def begin(self, number: int = 0) -> GroupStream:
        """Return the stream of a group, before its first event."""
        evaluator = self.work.evaluator(EvaluationOptions(), self.found)
        return GroupStream(self, number, evaluator, ReorderBuffer(self.order[0], self.lateness, "drop"))

    def resume(self, blob: bytes, number: int = 0) -> GroupStream:
        """Return the stream of a group that goes on from the state of `GroupStream.to_bytes`.

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
        evaluator = self.work.restore(blob[rest : rest + header["n_evaluator"]], self.found)
        held = blob[rest + header["n_evaluator"] :]
        table = pa.ipc.open_stream(held).read_all() if held else None
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
    """Stream of one group of events; made by `StreamEvaluation`."""

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
        """Least time, in microseconds, to which `advance` can have an effect now; None: nothing waits."""
        held, waiting = self._reorder.least, self._evaluator.next_deadline
        times = [time for time in (None if held is None else held - _OFFSET, waiting) if time is not None]
        return min(times, default=None)

    def push(self, events: pa.Table) -> Iterator[pa.RecordBatch]:
        """Take the events of a micro-batch, in any order, and yield the complex events that become known."""
        for batch in in_order(events, self._evaluation.order).to_batches():
            yield from self._evaluate(self._reorder.push(batch))

    def advance_watermark(self, time: int) -> Iterator[pa.RecordBatch]:
        """Take the promise that events earlier than a time are late, and yield the complex events that become known.

        Parameters
        ----------
        time
            In microseconds.
        """
        yield from self._evaluate(self._reorder.advance_watermark(min(max(time + _OFFSET, 0), 2**64 - 1)))
        if self._evaluation.work.time_column is not None:
            yield from map(self._given, self._evaluator.advance_watermark_batches(time))

    def advance_by_events(self) -> Iterator[pa.RecordBatch]:
        """Advance to the time that the events so far and the lateness allow."""
        greatest = self._reorder.greatest
        if greatest is not None:
            yield from self.advance_watermark(greatest - _OFFSET - self._evaluation.lateness)

    def to_bytes(self) -> bytes:
        """Return the state, from which `StreamEvaluation.resume` goes on."""
        held, facts = self._reorder.snapshot()
        evaluator = self._evaluator.checkpoint()
        options = self._evaluation._options(self._number)
        header = json.dumps({"options": options, "reorder": facts, "n_evaluator": len(evaluator)}).encode()
        return b"".join([_MAGIC, len(header).to_bytes(8, "little"), header, evaluator, _to_bytes(held)])

    def _evaluate(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from map(self._given, self._evaluator.push_batches(batch))

    def _given(self, found: pa.RecordBatch) -> pa.RecordBatch:
        """Return complex events with types of Spark, and with numbers that no other group gives."""
        if self._evaluation.work.numbered:
            at = found.schema.get_field_index("match")
            numbers = pc.add(found.column(at), self._number * PART_MATCHES)
            found = found.set_column(at, found.schema.field(at), numbers)
        return plain_batch(found)


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
    found: bytes = sink.getvalue().to_pybytes()
    return found
