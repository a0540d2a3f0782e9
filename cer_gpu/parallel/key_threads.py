"""The partitions of one stream on several threads: each reads all events, and evaluates its share of the keys.

The complex events of a batch are merged by their ends; those of two threads never end at the same event.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.engine.evaluator import Evaluator
from cer_gpu.parallel.channel import Channel, ChannelReader

KEY_BATCH_ROWS = 1 << 20
"""Most rows that all threads read before their results are merged."""
BATCHES_AHEAD = 2
"""Most batches that threads read before the results of an earlier one are merged."""
MOST_WAITING_BATCHES = 16
"""Most batches of results of one thread that wait to be merged."""


class _Worker:
    """One share of the keys, on a thread of its own."""

    def __init__(self, evaluator: Evaluator, reading: ChannelReader) -> None:
        self.evaluator = evaluator
        self._reading = reading
        self._batches: queue.Queue[pa.RecordBatch | None] = queue.Queue()
        # pieces of results; (None,) after the last piece of a batch
        self._found: Channel[tuple[pa.RecordBatch | None]] = Channel(reading, MOST_WAITING_BATCHES)

    def run(self) -> None:
        """Evaluate batches until there are no more."""
        with self._found.filling():
            while (batch := self._reading.next_of(self._batches)) is not None:
                for found in self.evaluator.push_batches(batch):
                    self._found.check()
                    if found.num_rows:
                        self._found.put((found,))
                self._found.put((None,))

    def push(self, batch: pa.RecordBatch | None) -> None:
        """Hand over the next batch, or None after the last one."""
        self._batches.put(batch)

    def next(self) -> pa.RecordBatch | None:
        """Return the next piece of the results of a batch, or None after the last one."""
        found = self._found.get()
        return None if found is None else found[0]


def on_threads_by_key(
    evaluator: Evaluator, batches: Iterable[pa.RecordBatch], n_threads: int
) -> Iterator[pa.RecordBatch]:
    """Yield the complex events of a stream, in the order of their ends.

    Parameters
    ----------
    evaluator
        Evaluator that `may_be_cut` and knows the schema, of a query whose events may be dealt by key.  It evaluates
        nothing itself: its numbers of events and complex events become those of the workers together.
    batches
    n_threads
    """
    reading = ChannelReader()
    workers = [_Worker(evaluator._of_keys(k, n_threads), reading) for k in range(n_threads)]
    n_ahead = 0
    threads = [threading.Thread(target=worker.run, name="cer_gpu") for worker in workers]
    try:
        for thread in threads:
            thread.start()
        for batch in batches:
            for begin in range(0, batch.num_rows, KEY_BATCH_ROWS):
                for worker in workers:
                    worker.push(batch.slice(begin, KEY_BATCH_ROWS))
                n_ahead += 1
                if n_ahead > BATCHES_AHEAD:
                    n_ahead -= 1
                    yield from _merged(workers)
        for _ in range(n_ahead):
            yield from _merged(workers)
    finally:
        reading.stop()
        for worker in workers:
            worker.push(None)
        evaluator.n_events = evaluator.n_pushed = max(worker.evaluator.n_events for worker in workers)
        evaluator.n_matches = sum(worker.evaluator.n_matches for worker in workers)
        for thread in threads:
            thread.join()
    yield from evaluator.finish_batches()


def _merged(workers: list[_Worker]) -> Iterator[pa.RecordBatch]:
    """Yield the results of one batch, in the order of their ends."""
    pieces = [worker.next() for worker in workers]
    while any(piece is not None for piece in pieces):
        # complex events that end up to here are complete: later pieces of each worker end after it
        bound = min(_ends(piece)[-1] for piece in pieces if piece is not None)
        ready: list[pa.RecordBatch] = []
        for k, piece in enumerate(pieces):
            if piece is None:
                continue
            n = int(np.searchsorted(_ends(piece), bound, "right"))
            if n:
                ready.append(piece.slice(0, n))
                pieces[k] = piece.slice(n) if n < piece.num_rows else workers[k].next()
        yield ready[0] if len(ready) == 1 else _by_end(pa.concat_batches(ready))


def _by_end(found: pa.RecordBatch) -> pa.RecordBatch:
    return found.take(pa.array(np.argsort(_ends(found), kind="stable")))


def _ends(found: pa.RecordBatch) -> Int64:
    ends: Int64 = found.column("end").to_numpy()
    return ends
