"""Evaluation of one stream on several threads: each reads all events, for its shard of the keys or of the queries.

The matches of a query and a batch are merged by their ends; matches of two threads never end at the same event.
The rows of "funnel" are merged by their starts: they come later than these, so that rows wait until no thread holds
an earlier start.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.engine.execution_group import ExecutionGroup, NamedBatches
from cer_gpu.parallel.channel import Channel, ChannelReader
from cer_gpu.parallel.stream_splitter import StreamSplitter

KEY_BATCH_ROWS = 1 << 20
"""Most rows that all threads read before their results are merged, of one query or of few."""
BATCHES_AHEAD = 2
"""Most batches that threads read before the results of an earlier one are merged."""
MAX_WAITING_BATCHES = 16
"""Most batches of results of one thread that wait to be merged."""


class _Worker:
    """One shard of the work, on a thread of its own."""

    def __init__(self, group: ExecutionGroup, reading: ChannelReader) -> None:
        self.group = group
        self._reading = reading
        self._batches: queue.Queue[pa.RecordBatch | None] = queue.Queue()
        # pieces of results; None after the last piece of a batch
        self._results: Channel[tuple[str, pa.RecordBatch | None]] = Channel(reading, MAX_WAITING_BATCHES)
        self._waiting: dict[str, deque[pa.RecordBatch]] = defaultdict(deque)  # read while another query was requested
        self._is_read = False
        self._firsts: deque[dict[str, int]] = deque()  # after each batch
        self.first_held: dict[str, int] = {}

    def run(self) -> None:
        """Evaluate batches until there are no more, and end the stream."""
        with self._results.filling():
            while (batch := self._reading.next_of(self._batches)) is not None:
                self._put(self.group.push(batch))
            self._results.check()
            self._put(self.group.finish())

    def _put(self, pieces: NamedBatches) -> None:
        for name, batch in pieces:
            self._results.check()
            if batch.num_rows:
                self._results.put((name, batch))
        self._firsts.append(StreamSplitter.first_pending(self.group))
        self._results.put(("", None))

    def push(self, batch: pa.RecordBatch | None) -> None:
        """Hand over the next batch, or None after the last one."""
        self._batches.put(batch)

    def begin(self) -> None:
        """Go on to the results of the next batch."""
        self._is_read = False

    def first(self) -> str | None:
        """Return the query of some piece of the results of a batch; None after the last one."""
        name = next((name for name, pieces in self._waiting.items() if pieces), None)
        if name is not None or not self._read_piece():
            return name
        return self.first()

    def next(self, name: str) -> pa.RecordBatch | None:
        """Return the next piece of the results of a query and a batch; None after the last one."""
        waiting = self._waiting[name]
        while not waiting and self._read_piece():
            pass
        return waiting.popleft() if waiting else None

    def _read_piece(self) -> bool:
        """Read a piece; return False if the batch has no more."""
        if self._is_read:
            return False
        piece = self._results.get()
        if piece is None or piece[1] is None:
            if piece is not None:
                self.first_held = self._firsts.popleft()
            self._is_read = True
            return False
        self._waiting[piece[0]].append(piece[1])
        return True


def on_threads_by_key(splitter: StreamSplitter, batches: Iterable[pa.RecordBatch], n_threads: int) -> NamedBatches:
    """Yield the matches of a stream, in the order of their ends for each query.

    Parameters
    ----------
    splitter
        Splitter of a group that `may_split`, whose counts become the totals of the workers.
    batches
    n_threads
    """
    reading = ChannelReader()
    workers = [_Worker(splitter.shard_group(k, n_threads), reading) for k in range(n_threads)]
    by_starts = {name: list[pa.RecordBatch]() for name in splitter.first_pending(splitter.group)}
    n_ahead = 0
    threads = [threading.Thread(target=worker.run, name="cer_gpu") for worker in workers]
    n_rows = KEY_BATCH_ROWS * splitter.group.block_factor
    try:
        for thread in threads:
            thread.start()
        for batch in batches:
            for begin in range(0, batch.num_rows, n_rows):
                for worker in workers:
                    worker.push(batch.slice(begin, n_rows))
                n_ahead += 1
                if n_ahead > BATCHES_AHEAD:
                    n_ahead -= 1
                    yield from _merge_results(workers, by_starts)
        for worker in workers:
            worker.push(None)
        for _ in range(n_ahead + 1):  # and what is known at the end
            yield from _merge_results(workers, by_starts)
    finally:
        reading.stop()
        for worker in workers:
            worker.push(None)
        n_events = splitter.group.input.n_pushed = max(worker.group.blocks.n_events for worker in workers)
        for worker in workers:
            splitter.take_over(n_events, worker.group.n_matches, splitter.tallies(worker.group))
        for thread in threads:
            thread.join()
        splitter.group.input.close()


def _merge_results(workers: list[_Worker], by_starts: dict[str, list[pa.RecordBatch]]) -> NamedBatches:
    """Yield the results of one batch: query by query, each in the order of their ends, or of their starts.

    Parameters
    ----------
    workers
    by_starts
        The queries whose rows come in the order of their starts, each with the rows that wait for earlier ones.
    """
    for worker in workers:
        worker.begin()
    while (name := next((name for worker in workers if (name := worker.first()) is not None), None)) is not None:
        if name in by_starts:
            for worker in workers:
                while (matches := worker.next(name)) is not None:
                    by_starts[name].append(matches)
            continue
        for matches in _merge_query(name, workers):
            yield name, matches
    for name, waiting in by_starts.items():
        if waiting:
            rows = pa.concat_batches(waiting)
            rows = rows.take(pa.array(np.argsort(rows.column("start").to_numpy(), kind="stable")))
            bound = min(worker.first_held[name] for worker in workers if name in worker.first_held)
            n = int(np.searchsorted(rows.column("start").to_numpy(), bound))
            by_starts[name] = [rows.slice(n)] if n < rows.num_rows else []
            if n:
                yield name, rows.slice(0, n)


def _merge_query(name: str, workers: list[_Worker]) -> Iterator[pa.RecordBatch]:
    pieces = [worker.next(name) for worker in workers]
    while any(piece is not None for piece in pieces):
        if sum(piece is not None for piece in pieces) == 1:
            k = next(k for k, piece in enumerate(pieces) if piece is not None)
            yield pieces[k]
            pieces[k] = workers[k].next(name)
            continue
        # matches that end up to here are complete: later pieces of each worker end after it
        bound = min(_end_positions(piece)[-1] for piece in pieces if piece is not None)
        ready: list[pa.RecordBatch] = []
        for k, piece in enumerate(pieces):
            if piece is None:
                continue
            n = int(np.searchsorted(_end_positions(piece), bound, "right"))
            if n:
                ready.append(piece.slice(0, n))
                pieces[k] = piece.slice(n) if n < piece.num_rows else workers[k].next(name)
        yield ready[0] if len(ready) == 1 else _sort_by_end(pa.concat_batches(ready))


def _sort_by_end(matches: pa.RecordBatch) -> pa.RecordBatch:
    return matches.take(pa.array(np.argsort(_end_positions(matches), kind="stable")))


def _end_positions(matches: pa.RecordBatch) -> Int64:
    ends: Int64 = matches.column("end").to_numpy()
    return ends
