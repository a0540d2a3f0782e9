"""The stateful operator of `match_stream`: one evaluator for each group, whose state is Spark's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from cer_gpu.errors import CerError
from spark_glue.streaming.stream_evaluation import BLOB, GroupStream, StreamEvaluation, packed_state, unpacked

STATE = "state"
STATE_SCHEMA = "stream binary, timer long"
LARGEST_STATE = 1 << 30
"""Bytes of the state of one group; Spark passes it as one message."""
NO_TIMER = -(2**63)


class GroupProcessor(StatefulProcessor):
    """Evaluation of the events of each group, micro-batch by micro-batch.

    Parameters
    ----------
    evaluation
    events : pyarrow.Schema
        Schema of the packed events.
    match_schema : pyarrow.Schema
        Schema of the matches.
    """

    def __init__(self, evaluation: StreamEvaluation, events: pa.Schema, match_schema: pa.Schema) -> None:
        self._evaluation, self._events, self._match_schema = evaluation, events, match_schema

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the handle to the state."""
        self._handle = handle
        self._state = handle.getValueState(STATE, STATE_SCHEMA)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Evaluate the events of a group in a micro-batch, up to the watermark."""
        batches = [unpacked(bytes(blob), self._events) for frame in rows for blob in frame[BLOB]]
        stream, timer = self._stream(key)
        yield from self._frames(stream.push(pa.Table.from_batches(batches, self._events)))
        yield from self._advance(stream, timerValues)
        self._keep_state(stream, timer)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Evaluate the buffered events of a group up to the watermark, which has passed its deadline."""
        stream, _ = self._stream(key)
        yield from self._advance(stream, timerValues)
        self._keep_state(stream, NO_TIMER)  # Spark deletes the one that expired

    def close(self) -> None:
        """Do nothing: all state is Spark's."""

    def _stream(self, key: Any) -> tuple[GroupStream, int]:
        """Return the stream of a group, and its timer."""
        stored = self._state.get() if self._state.exists() else None
        if stored is None:
            return self._evaluation.begin(int(key[0])), NO_TIMER
        return self._evaluation.resume(bytes(stored[0]), int(key[0])), int(stored[1])

    def _advance(self, stream: GroupStream, timers: Any) -> Iterable[pd.DataFrame]:
        watermark = timers.getCurrentWatermarkInMs()
        return self._frames(stream.advance_watermark(watermark * 1000)) if watermark > 0 else ()  # 0: none yet

    def _frames(self, matches: Iterator[pa.RecordBatch]) -> Iterator[pd.DataFrame]:
        for blob in packed_state(matches, self._match_schema):
            yield pd.DataFrame({BLOB: [blob]})

    def _keep_state(self, stream: GroupStream, timer: int) -> None:
        """Store the state of a group, with a timer for its deadline."""
        deadline = stream.next_deadline
        wanted = NO_TIMER if deadline is None else -(-deadline // 1000)
        if wanted != timer:
            if timer != NO_TIMER:
                self._handle.deleteTimer(timer)
            if wanted != NO_TIMER:
                self._handle.registerTimer(wanted)
        blob = stream.to_bytes()
        if len(blob) > LARGEST_STATE:
            raise CerError(
                f"the state of one group has {len(blob):,} bytes, and {LARGEST_STATE:,} fit\n"
                "hint: more groups, a shorter window, a shorter lateness, or smaller micro-batches"
            )
        self._state.update((blob, wanted))
