"""The states of the substreams of a stream, event by event, and the ends of matches among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32, Int64, UInt64
from cer_gpu.backend.forecasts import states as loops
from cer_gpu.columnar.columns import numbers_of
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.engine.execution_group import StreamInput
from cer_gpu.errors import OptionError, QueryErrorContext
from cer_gpu.order.row_column import ROW_COLUMN
from cer_gpu.planning.state_steps import StateSteps, state_steps, with_symbols
from cer_gpu.runtime.events import RelevantEvents
from cer_gpu.runtime.reading.symbols import EventBuffers

MAX_STATE_SYMBOLS = (1 << loops.BITS) - 2
"""Symbols that are distinguished; all others are one more."""
OTHER = MAX_STATE_SYMBOLS + 1
"""Number of a symbol that is not among them."""
MAX_ORDER = 6
"""Most last symbols in a state."""
_PIECE = 1 << 17
"""Most events that are followed at once: what is known of each stays in a cache near the processor."""


@dataclass(frozen=True)
class StateForm:
    """Form of the states: a state of one stream is that of another with the same form.

    Attributes
    ----------
    order : int
        Number of the last symbols in a state.
    ages : int
        Number of classes of the age of a partial match.
    width : float
        Horizon of a class where the query has no window, in units of its clock.
    words : tuple of int
        Bit vectors of the symbols, from 1 on.
    """

    order: int
    ages: int
    width: float
    words: tuple[int, ...] = ()

    @property
    def bits(self) -> int:
        """Bits of the last symbols in a state."""
        return self.order * loops.BITS

    def parts(self, state: int) -> tuple[int, int, list[int]]:
        """Return the step, the age class, and the last symbols of a state, the newest first."""
        upper = state >> self.bits
        symbols = [state >> loops.BITS * i & (1 << loops.BITS) - 1 for i in range(self.order)]
        return upper // loops.AGES, upper % loops.AGES, symbols


@dataclass(frozen=True)
class FollowedEvents:
    """Events of a block with the states of their substreams, valid until the next block.

    Attributes
    ----------
    reported : int64, shape (n,)
        Positions.
    partitions : int32, shape (n,), or (0,)
        Empty: all are of partition 0.
    n_partitions : int
        Partitions so far.
    times : int64, shape (n,), or (0,)
        In units of the time column.
    clocks : uint64, shape (n,)
        The bits of the clocks of ages.
    states : int64, shape (n,)
        After each event.
    ends : bool, shape (n,)
        True where a match ends.
    """

    reported: Int64
    partitions: Int32
    n_partitions: int
    times: Int64
    clocks: UInt64
    states: Int64
    ends: Bools

    def at(self, rows: Int64 | slice) -> EventBuffers:
        """Return some of the events, to be rows."""
        states = self.states[rows].copy()
        partitions = self.partitions[rows].copy() if len(self.partitions) else np.zeros(len(states), np.int32)
        times = self.times[rows].copy() if len(self.times) else self.times
        return EventBuffers(self.reported[rows].copy(), times, partitions, states, self.clocks[rows].copy())


Choose = Callable[[FollowedEvents], EventBuffers]
"""Choice of the events of a block that become rows."""


def every_event(events: FollowedEvents) -> EventBuffers:
    """Return all events of a block, to be rows."""
    return events.at(slice(None))


class StateReader:
    """Reader of the states of a stream of events of one schema: the taker of the events of an evaluation.

    Parameters
    ----------
    query
        A compiled query that is evaluated event by event.
    form
        Form of the states; without `words`, symbols are numbered as they come.
    choose
        Returns the events of a block that become rows of the evaluation.
    grows
        True to give a number to words without one.

    Attributes
    ----------
    query
    evaluation : Evaluator
        Evaluation of the query with `with_symbols`, whose events it takes.
    """

    def __init__(self, query: Any, form: StateForm, choose: Choose, *, grows: bool) -> None:
        self.form = form
        self.evaluation: Any = None
        self.query: Any = query
        self._choose, self._grows = choose, grows
        self._words = {word: i + 1 for i, word in enumerate(form.words)}
        self._steps: StateSteps | None = None
        self._of_symbols: list[Array] = []
        self._followed: loops.Followed | None = None
        self._ends: Int64 | None = None
        self._states, self._marks, self._clock_bits = Scratch(np.int64), Scratch(np.bool_), Scratch(np.uint64)

    @property
    def words(self) -> tuple[int, ...]:
        """Bit vectors of the symbols met so far, from 1 on."""
        return tuple(self._words)

    def begin(self, options: EvaluationOptions) -> Any:
        """Begin an evaluation that hands over its events, and return the query with `with_symbols`."""
        read = self.query._changed(with_symbols)
        self.evaluation = read._checked_evaluator(replace(options, event_taker=self))
        return read

    def expect_ends(self, ends: Int64) -> None:
        """Take the positions at which matches end among the next events, ascending; else the steps determine them."""
        self._ends = ends

    def __call__(self, events: RelevantEvents, words: list[int]) -> EventBuffers:
        """Return the events that become rows."""
        binding = self._binding
        if self._steps is None:
            self._steps = state_steps(self.query._bindings.plan_over(binding.schema))
        n, partitions = len(events.symbols), events.partitions
        clocks = self._clocks(events, binding)
        self._number(words)
        moves, bars, numbers = self._of_symbols
        steps = loops.StateMoves(moves, bars, numbers, np.int64(len(self._steps.steps)))
        n_partitions = int(partitions.max(initial=0)) + 1
        followed = self._substream_states(n_partitions, clocks.dtype)
        states, ends = self._states.empty(n), self._marks.empty(n)
        loops.follow_states(
            read_only(events.symbols),
            read_only(partitions),
            read_only(clocks),
            tuple(steps),
            tuple(followed),
            tuple(self.ages(binding.window_length)),
            self.form.bits,
            states,
            ends,
        )
        if self._ends is not None:
            loops.mark_ends(read_only(events.positions), read_only(self._ends), ends)
        bits = clocks.view(np.uint64)
        return self._choose(FollowedEvents(events.reported, partitions, n_partitions, events.times, bits, states, ends))

    @property
    def _binding(self) -> Any:
        return self.evaluation._execution.binding

    @property
    def no_rows(self) -> pa.RecordBatch:
        """No event, with the columns of the rows of the evaluation."""
        return pa.RecordBatch.from_pylist([], schema=self.evaluation._execution.result_schema)

    def age_classes(self, now: UInt64, starts: UInt64) -> Int64:
        """Return the classes of the ages between clocks, given by their bits."""
        length = self._binding.window_length
        edges = self.ages(length).edges
        ages = now.view(edges.dtype) - starts.view(edges.dtype)
        classes: Int64 = np.searchsorted(edges, ages, "right").astype(np.int64)
        return classes

    def _clocks(self, events: RelevantEvents, binding: Any) -> Array:
        """Return the clocks of ages: the window's, else the times, else positions."""
        if binding.window_length is not None or binding.time_type is None:
            return events.window_clocks
        clocks: UInt64 = self._clock_bits.empty(len(events.times))
        np.bitwise_xor(events.times.view(np.uint64), np.uint64(1 << 63), out=clocks)  # in the order of times
        return clocks

    def ages(self, length: np.uint64 | np.float64 | None) -> loops.Ages:
        """Return the classes of ages, given the length of the window, or None if there is none."""
        n = self.form.ages
        if isinstance(length, np.float64):
            return loops.Ages(length, np.array([float(length) * k / n for k in range(1, n)], np.float64))
        if length is not None:
            return loops.Ages(length, np.array([-(-k * (int(length) + 1) // n) for k in range(1, n)], np.uint64))
        edges = [math.ceil(k * self.form.width) for k in range(1, n)] if self.form.width > 0 else []
        return loops.Ages(np.uint64(2**64 - 1), np.array(edges, np.uint64))

    def _number(self, words: list[int]) -> None:
        """Add the symbols that are new to the table of the evaluation."""
        n_numbered = len(self._of_symbols[0]) if self._of_symbols else 0
        if n_numbered == len(words):
            return
        assert self._steps is not None
        moves, bars, numbers = (list[int]() for _ in range(3))
        for word in words[n_numbered:]:
            moves.append(sum(1 << k for k, step in enumerate(self._steps.steps) if _any_of(word, step.guards)))
            bars.append(sum(1 << k for k, step in enumerate(self._steps.steps) if _any_of(word, step.barring)))
            numbers.append(self._number_of(word) if n_numbered + len(numbers) else 0)
        added: list[Array] = [np.array(moves, np.uint64), np.array(bars, np.uint64), np.array(numbers, np.int64)]
        before = self._of_symbols or [each[:0] for each in added]
        self._of_symbols = [np.concatenate([old, new]) for old, new in zip(before, added, strict=True)]

    def _number_of(self, word: int) -> int:
        if word not in self._words:
            if not self._grows or len(self._words) == MAX_STATE_SYMBOLS:
                return OTHER
            self._words[word] = len(self._words) + 1
        return self._words[word]

    def _substream_states(self, n: int, clock: npt.DTypeLike) -> loops.Followed:
        """Return the states of the substreams, with space for so many."""
        assert self._steps is not None
        width = max(len(self._steps.steps), 1)
        old = self._followed
        n_old = 0 if old is None else len(old.live)
        if old is None or n_old < n:
            size = max(n, 2 * n_old, 16)
            latest, live = np.zeros((size, width), clock), np.zeros(size, np.uint64)
            followed = loops.Followed(latest, live, np.full(size, -1, np.int64))
            for new, before in zip(followed, old or (), strict=False):
                new[:n_old] = before
            self._followed = old = followed
        return old

    def snapshot(self) -> dict[str, Array]:
        """Return the state of the substreams, as arrays by name; {} if no event was read."""
        return {} if self._followed is None else self._followed._asdict()

    def restore(self, blob: bytes, arrays: dict[str, Array]) -> Any:
        """Go on from a checkpoint of the evaluation, and a snapshot; return the evaluation."""
        self.evaluation = self.query._changed(with_symbols)._restored_evaluator(blob, event_taker=self)
        self._followed = loops.Followed(**arrays) if arrays else None
        return self.evaluation

    @property
    def states(self) -> Int64:
        """State of each substream after its last event; -1: it has none."""
        states: Int64 = np.zeros(0, np.int64) if self._followed is None else self._followed.states
        return states


def _any_of(word: int, guards: tuple[int, ...]) -> bool:
    return any(word >> guard & 1 for guard in guards)


def check_forecastable(query: Any) -> None:
    """Refuse a query whose matches are known only long after their ends, or not event by event.

    Raises
    ------
    OptionError
    """
    if query.reads_whole_table:
        raise OptionError(
            "forecasts are for queries that are evaluated event by event, and MATCH_RECOGNIZE reads the whole table\n"
            "hint: write the pattern in CEQL (docs/reference/ceql_patterns.md)"
        )
    if query._plan.trailing:
        raise OptionError(
            "forecasts are for matches that end with an event, and this pattern ends with an absence\n"
            "hint: forecast the absent event itself: A ; B in place of A ; !B, and take 1 - its probability"
        )
    keys = query._plan.step_keys
    if keys is not None and keys.samples:
        raise OptionError(
            "forecasts are for matches that are known where they end, and samples are known at the end of the events\n"
            "hint: a sequence of the same events"
        )


def read_rows(
    query: Any,
    events: Any,
    form: StateForm,
    options: EvaluationOptions,
    choose: Callable[[FollowedEvents], EventBuffers],
) -> tuple[StateReader, Iterator[pa.RecordBatch]]:
    """Return the reader of the states of a stream, and the rows of the events that `choose` returns.

    Raises
    ------
    QueryTypeError
        When the query does not match the events.
    """
    check_forecastable(query)
    reader = StateReader(query, form, choose, grows=False)
    read = reader.begin(options)
    source = read._open_source(events, sort=options.sort)
    return reader, read._match_source(source, reader.evaluation)


def follow_all(readers: Mapping[str, StateReader], source: Any, options: EvaluationOptions) -> None:
    """Follow all events of a source, and the ends of matches among them, in one pass.

    A query whose steps do not determine the ends exactly is also evaluated, batch by batch.

    Parameters
    ----------
    readers
        By the names of their queries, with which errors begin.
    source, options
    """
    plain = EvaluationOptions(device=options.device)
    beside, names = dict[str, Any](), dict[str, None]()
    schema = pa.schema([each for each in source.schema if each.name != ROW_COLUMN])
    for name, reader in readers.items():
        query = reader.query
        with QueryErrorContext(name):
            reader.begin(plain)
            if not state_steps(query._bindings.plan_over(schema)).exact:
                output = "ends" if "ends" in query.outputs else query.default_output
                beside[name] = query._checked_evaluator(replace(plain, output=output))
            for each in (reader.evaluation, *([beside[name]] if name in beside else [])):
                each.expect(schema)
                names |= dict.fromkeys(each.attributes(schema))
    first = next(iter(readers.values()))
    with source.locating(lambda: first.evaluation.n_events):
        for batch in _sorted_batches(source, list(names), first.query, options):
            for begin in range(0, batch.num_rows, _PIECE):
                piece = batch.slice(begin, _PIECE)
                for name, reader in readers.items():
                    if name in beside:
                        reader.expect_ends(np.unique(numbers_of(beside[name].push(piece).column("end"))))
                    reader.evaluation.push(piece)


def _sorted_batches(source: Any, names: list[str], query: Any, options: EvaluationOptions) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a source in the order of time, without row numbers: positions are numbers in this order."""
    intake = StreamInput(query.time_column, query.time_unit, options.lateness, options.late)
    intake.expect(source.schema)
    for batch in source.batches(names):
        yield from map(_without_rows, intake.push(batch))
    yield from map(_without_rows, intake.finish())


def _without_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns([ROW_COLUMN]) if ROW_COLUMN in batch.schema.names else batch


def readable_again(events: Any) -> Any:
    """Return events that can be read twice: a reader, or an iterator, is read into memory."""
    if isinstance(events, pa.RecordBatchReader):
        return events.read_all()
    return list(events) if isinstance(events, Iterator) else events
