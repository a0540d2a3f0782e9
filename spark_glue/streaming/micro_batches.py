"""A query over the micro-batches of a stream on the driver, with files that are committed batch by batch."""

from __future__ import annotations

import itertools
import os
import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from cer_gpu.engine.evaluation_options import options_by_name
from cer_gpu.errors import CerError, CheckpointError
from spark_glue.row_positions import quoted, wire_names
from spark_glue.stage import plain_schema
from spark_glue.streaming.grouped import check_stream_order, endless_work, read_columns
from spark_glue.streaming.stream_evaluation import (
    BLOB,
    PACKED,
    GroupStream,
    Pack,
    StreamEvaluation,
    microseconds,
    unpacked,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_glue.work import Work

_STATE = re.compile(r"state-(\d+)")


@options_by_name
def match_batches(
    query: Any,
    out: str,
    *,
    order_by: str | Sequence[str] = "ts",
    checkpoint: str,
    lateness: Any = "10s",
    output: str | None = None,
    by_partition: bool = False,
) -> BatchMatcher:
    """Return a function for ``df.writeStream.foreachBatch``, which writes the matches of a stream as files.

    One evaluator on the driver evaluates the whole stream, for queries whose events cannot be distributed by key.
    Micro-batch N writes ``batch-N.parquet`` and then its state, each of them whole or not at all; a micro-batch that
    Spark repeats begins with the state before it and writes the same file again.  The files thus hold each complex
    event exactly once, whatever is killed meanwhile.

    Parameters
    ----------
    query : Query or QuerySet
        Result of `cer_gpu.compile` or `cer_gpu.compile_all`; its time column, if it has one, is the first of
        `order_by`.
    out
        Folder of the files, on this machine or as a URI that pyarrow knows (``hdfs://``, ``s3://``, ``gs://``).
    order_by
        As for `match_stream`.
    checkpoint
        Folder of the states, for this stream alone; the option "checkpointLocation" of the stream is another.
    lateness
        An event is late, and left out, if an earlier micro-batch has an event that is later by more than this.
    output
        As for ``query.evaluate``; by default (None) "measures" where SELECT has some, else "events".
    by_partition
        True to fetch the partitions of a micro-batch one by one, for micro-batches larger than
        `spark.driver.maxResultSize`.  They are in the memory of the driver together, with the columns that are read.

    Returns
    -------
    BatchMatcher
        Called with the DataFrame of a micro-batch and its number.

    Raises
    ------
    OptionError
        When `query` is not compiled, or the lateness is no time.

    Examples
    --------
    >>> spark_glue.match_batches(query, "found", checkpoint="states")  # doctest: +SKIP
    """
    order = (order_by,) if isinstance(order_by, str) else tuple(order_by)
    return BatchMatcher(
        endless_work(query, output), order, microseconds(lateness), out, checkpoint, by_partition=by_partition
    )


class BatchMatcher:
    """Evaluation of the micro-batches of one stream, one after the other; created by `match_batches`."""

    def __init__(
        self, work: Work, order: tuple[str, ...], lateness: int, out: str, checkpoint: str, *, by_partition: bool
    ) -> None:
        self._work, self._order, self._lateness = work, order, lateness
        self._out, self._checkpoint = out, checkpoint
        self._by_partition = by_partition
        self._live: tuple[int, GroupStream] | None = None  # the last micro-batch, and the stream after it

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the live stream, which begins again with the last state."""
        return {**self.__dict__, "_live": None}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Evaluate a micro-batch, write its matches, and store the state after it.

        Raises
        ------
        CheckpointError
            When the folder of states is of another stream, or has not the state before this micro-batch.
        CerError
            As `Evaluator.push`.
        """
        out, states = Folder(self._out), Folder(self._checkpoint)
        order = check_stream_order(df, self._work, self._order)
        events, schema = self._collect_events(df, order)
        live, self._live = self._live, None
        stream = live[1] if live is not None and live[0] == batch_id - 1 else self._stream(states, batch_id, schema)
        try:
            with out.writer(f"batch-{batch_id}.parquet") as sink, pq.ParquetWriter(sink, schema) as writer:
                for matches in itertools.chain(stream.push(events), stream.advance_by_events()):
                    writer.write_batch(matches.cast(schema))
        except (OSError, pa.ArrowException) as error:
            raise CerError(f"cannot write the matches of micro-batch {batch_id} to {self._out!r}: {error}") from None
        with states.writer(f"state-{batch_id}") as sink:
            sink.write(stream.to_bytes())
        for number in _stored_batch_ids(states):
            if number < batch_id - 1:
                states.delete(f"state-{number}")
        self._live = batch_id, stream

    def _stream(self, states: Folder, batch_id: int, schema: pa.Schema) -> GroupStream:
        """Return the stream before a micro-batch."""
        batch_ids = _stored_batch_ids(states)
        last = max(batch_ids, default=-1)
        if batch_id not in (last, last + 1) or (batch_id and batch_id - 1 not in batch_ids):
            available = f"those after {', '.join(map(str, batch_ids))}" if batch_ids else "none"
            raise CheckpointError(
                f"micro-batch {batch_id} begins with the state after {batch_id - 1}, and {self._checkpoint!r} has "
                f"{available}\n"
                "hint: the folder is for one stream and its checkpointLocation: begin both anew, or name the right one"
            )
        evaluation = StreamEvaluation(self._work, schema, self._order, self._lateness)
        return evaluation.resume(states.read(f"state-{batch_id - 1}")) if batch_id else evaluation.begin()

    def _collect_events(self, df: DataFrame, order: Sequence[str]) -> tuple[pa.Table, pa.Schema]:
        """Return the events of a micro-batch, and the schema of the matches."""
        from pyspark.sql import functions as sf

        from spark_glue.schema import to_arrow

        all_events = to_arrow(df.schema)
        columns = read_columns(self._work, all_events, order)
        df = df.select(
            *(sf.col(quoted(name)).alias(alias) for name, alias in zip(columns, wire_names(columns), strict=True))
        )
        pack = Pack(to_arrow(df.schema), tuple(columns), order[0])
        schema = plain_schema(self._work.output_schema(all_events))
        if not self._by_partition:
            return pa.Table.from_batches([pack.events(df.toArrow())]), schema
        one = sf.lit(0).cast("int").alias("$group")
        rows = df.select(one, *map(quoted, wire_names(columns))).mapInArrow(pack, PACKED).select(BLOB).toLocalIterator()
        return pa.Table.from_batches([unpacked(bytes(row[0]), pack.packed) for row in rows], pack.packed), schema


class Folder:
    """Folder, created if missing, whose files appear whole or not at all.

    Parameters
    ----------
    path
        A path of this machine, or a URI.
    """

    def __init__(self, path: str) -> None:
        try:
            if re.match(r"[a-z][a-z0-9+.-]+://", path):
                self._files, self._path = pyarrow.fs.FileSystem.from_uri(path)
            else:
                self._files, self._path = pyarrow.fs.LocalFileSystem(), os.path.abspath(path)
            self._files.create_dir(self._path, recursive=True)
        except (OSError, pa.ArrowException) as error:
            raise CerError(f"cannot use the folder {path!r}: {error}") from None

    def names(self) -> list[str]:
        """Return the names of the files."""
        return [each.base_name for each in self._files.get_file_info(pyarrow.fs.FileSelector(self._path))]

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        with self._files.open_input_stream(f"{self._path}/{name}") as source:
            content: bytes = source.read()
        return content

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._files.delete_file(f"{self._path}/{name}")

    def writer(self, name: str) -> Whole:
        """Return a context in which to write a file, which replaces one of that name at its end."""
        return Whole(self._files, self._path, name)


class Whole:
    """File that takes its name once it is written; before, its name begins with a dot, and readers pass it over.

    Nobody can guess that name: a symbolic link planted there by others is never followed.
    """

    def __init__(self, files: pyarrow.fs.FileSystem, folder: str, name: str) -> None:
        self._files, self._target = files, f"{folder}/{name}"
        self._part = f"{folder}/.{name}-{secrets.token_hex(8)}.part"

    def __enter__(self) -> Any:
        """Return the stream to write to."""
        self._sink = self._files.open_output_stream(self._part)
        return self._sink

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Give the file its name, or delete it after an error."""
        self._sink.close()
        if kind is not None:
            self._files.delete_file(self._part)
            return
        if isinstance(self._files, pyarrow.fs.LocalFileSystem):
            with open(self._part, "rb") as written:
                os.fsync(written.fileno())
        elif self._files.get_file_info(self._target).type != pyarrow.fs.FileType.NotFound:
            self._files.delete_file(self._target)  # HDFS does not replace; the micro-batch is not committed yet
        self._files.move(self._part, self._target)


def _stored_batch_ids(states: Folder) -> list[int]:
    """Return the micro-batches whose states are there, in their order."""
    return sorted(int(match[1]) for match in map(_STATE.fullmatch, states.names()) if match)
