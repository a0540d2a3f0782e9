"""The states of the substreams of a stream, event by event, and the ends of matches among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cer_gpu.arrays import Array, Bools, Int32, Int64, UInt64
from cer_gpu.backend.forecasts import states as loops
from cer_gpu.columnar.columns import numbers_of
from cer_gpu.errors import OptionError
from cer_gpu.output.outputs import CLOCK, PARTITION, SYMBOL
from cer_gpu.planning.state_steps import StateSteps, state_steps, with_symbols

MAX_KNOWN_SYMBOLS = (1 << loops.BITS) - 2
"""Symbols that are told apart; all others are one more."""
OTHER = MAX_KNOWN_SYMBOLS + 1
"""Number of a symbol that is not among them."""
MAX_ORDER = 6
"""Most last symbols in a state."""
_KEY = (PARTITION, SYMBOL, CLOCK)


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
class StatesRead:
    """Events of a batch with their states.

    Attributes
    ----------
    rows : pyarrow.RecordBatch
        ``end``, ``end_time`` and keys.
    partitions : int32, shape (n,)
    times : int64, shape (n,)
        In units of the time column; zeros where there is none.
    clocks : uint64, shape (n,)
        The bits of the clocks of ages.
    states : int64, shape (n,)
        After each event.
    before : int64, shape (n,)
        State of the substream before the event; -1: it is the first one.
    ends : bool, shape (n,)
        True: a match ends there.
    order : int64, shape (n,)
        Numbers of the events in the order in which they were read.
    """

    rows: pa.RecordBatch
    partitions: Int32
    times: Int64
    clocks: UInt64
    states: Int64
    before: Int64
    ends: Bools
    order: Int64

    def at(self, rows: Int64) -> StatesRead:
        """Return some of the events."""
        return StatesRead(
            self.rows.take(pa.array(rows)),
            self.partitions[rows],
            self.times[rows],
            self.clocks[rows],
            self.states[rows],
            self.before[rows],
            self.ends[rows],
            self.order[rows],
        )


class StateReader:
    """Reader of the states of a stream of events of one schema.

    Parameters
    ----------
    query
        A compiled query that is evaluated event by event.
    form
        Form of the states; without `words`, symbols are numbered as they come.
    evaluation
        Evaluation of the query with `with_symbols`.
    grows
        True: words that have no number get one.
    ends : int64, shape (n,), or None
        Positions where matches end, ascending; None: the steps tell.
    """

    def __init__(self, query: Any, form: StateForm, evaluation: Any, *, grows: bool, ends: Int64 | None) -> None:
        self.form = form
        self._query, self._evaluation, self._grows, self._ends = query, evaluation, grows, ends
        self._words = {word: i + 1 for i, word in enumerate(form.words)}
        self._steps: StateSteps | None = None
        self._of_symbols: list[Array] = []
        self._followed: loops.Followed | None = None
        self._n_read = 0

    @property
    def words(self) -> tuple[int, ...]:
        """Bit vectors of the symbols met so far, from 1 on."""
        return tuple(self._words)

    def take(self, rows: pa.RecordBatch) -> StatesRead:
        """Return the events of rows of the evaluation with their states."""
        binding, table = self._evaluation._execution.binding, self._evaluation._execution.table
        if self._steps is None:
            self._steps = state_steps(self._query._bindings.plan_over(binding.schema))
        symbols, partitions = (numbers_of(rows.column(name)) for name in (SYMBOL, PARTITION))
        n = rows.num_rows
        times = np.zeros(n, np.int64)
        if binding.time_type is not None:
            times = numbers_of(rows.column("end_time")).astype(np.int64, copy=False)
        clocks, ages = self._clocks(rows, times, binding)
        self._number(table.words)
        moves, bars, numbers = self._of_symbols
        steps = loops.StateMoves(moves, bars, numbers, np.int64(len(self._steps.steps)))
        followed = self._room(int(partitions.max(initial=-1)) + 1, clocks.dtype)
        states, before, ends = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.bool_)
        loops.follow_states(
            symbols,
            partitions,
            clocks,
            tuple(steps),
            tuple(followed),
            tuple(ages),
            self.form.bits,
            states,
            before,
            ends,
        )
        if self._ends is not None:
            positions = numbers_of(rows.column("end"))
            at = np.searchsorted(self._ends, positions)
            known = np.append(self._ends, -1)  # no position
            ends = known[at] == positions
        names = [name for name in rows.schema.names if name not in _KEY]
        order = np.arange(self._n_read, self._n_read + n)
        self._n_read += n
        return StatesRead(rows.select(names), partitions, times, clocks.view(np.uint64), states, before, ends, order)

    @property
    def no_rows(self) -> pa.RecordBatch:
        """No event, with the columns of `StatesRead.rows`."""
        schema = self._evaluation._execution.result_schema
        return pa.RecordBatch.from_pylist([], schema=pa.schema([each for each in schema if each.name not in _KEY]))

    def age_class(self, now: Any, start: Any) -> int:
        """Return the class of the age that lies between two clocks, given by their bits."""
        length, clock = self._evaluation._execution.binding.window_length, np.array([now, start], np.uint64)
        if isinstance(length, np.float64):
            age = float(np.diff(clock.view(np.float64)[::-1])[0])
        else:
            age = float(clock[0] - clock[1])
        width = float(self._ages(length).width)
        return 0 if width <= 0 else min(self.form.ages - 1, int(age / width))

    def _clocks(self, rows: pa.RecordBatch, times: Int64, binding: Any) -> tuple[Array, loops.Ages]:
        """Return the clocks of ages, and their classes."""
        length, clocks = binding.window_length, numbers_of(rows.column(CLOCK))
        if length is not None:
            return clocks.view(length.dtype), self._ages(length)
        if binding.time_type is not None:
            clocks = times.view(np.uint64) ^ np.uint64(1 << 63)
        return clocks, self._ages(length)

    def _ages(self, length: np.uint64 | np.float64 | None) -> loops.Ages:
        n_ages = np.int64(self.form.ages)
        if length is None:
            return loops.Ages(np.uint64(2**64 - 1), np.float64(self.form.width), n_ages)
        width = np.float64((float(length) + (0.0 if isinstance(length, np.float64) else 1.0)) / self.form.ages)
        return loops.Ages(length, width, n_ages)

    def _number(self, words: list[int]) -> None:
        """Add the symbols that are new to the table of the evaluation."""
        known = len(self._of_symbols[0]) if self._of_symbols else 0
        if known == len(words):
            return
        assert self._steps is not None
        moves, bars, numbers = (list[int]() for _ in range(3))
        for word in words[known:]:
            moves.append(sum(1 << k for k, step in enumerate(self._steps.steps) if _any_of(word, step.guards)))
            bars.append(sum(1 << k for k, step in enumerate(self._steps.steps) if _any_of(word, step.barring)))
            numbers.append(self._numbered(word) if known + len(numbers) else 0)
        made: list[Array] = [np.array(moves, np.uint64), np.array(bars, np.uint64), np.array(numbers, np.int64)]
        before = self._of_symbols or [each[:0] for each in made]
        self._of_symbols = [np.concatenate([old, new]) for old, new in zip(before, made, strict=True)]

    def _numbered(self, word: int) -> int:
        if word not in self._words:
            if not self._grows or len(self._words) == MAX_KNOWN_SYMBOLS:
                return OTHER
            self._words[word] = len(self._words) + 1
        return self._words[word]

    def _room(self, n: int, clock: npt.DTypeLike) -> loops.Followed:
        """Return the states of the substreams, with room for so many."""
        assert self._steps is not None
        width = max(len(self._steps.steps), 1)
        old = self._followed
        n_old = 0 if old is None else len(old.live)
        if old is None or n_old < n:
            size = max(n, 2 * n_old, 16)
            latest, live = np.zeros((size, width), clock), np.zeros(size, np.uint64)
            last, states = np.zeros(size, np.int64), np.full(size, -1, np.int64)
            made = loops.Followed(latest, live, last, states)
            for new, before in zip(made, old or (), strict=False):
                new[:n_old] = before
            self._followed = old = made
        return old

    def snapshot(self) -> dict[str, Array]:
        """Return the states of the substreams, as arrays by name; {}: no event was read."""
        return {} if self._followed is None else self._followed._asdict()

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from a snapshot."""
        self._followed = loops.Followed(**arrays) if arrays else None


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


def state_evaluation(query: Any, options: Any) -> tuple[Any, Any]:
    """Return the query that reads all events with their symbols, and an evaluation of it."""
    read = query._changed(with_symbols)
    return read, read._checked_evaluator(options)


def read_states(
    query: Any, events: Any, form: StateForm, options: Any, *, grows: bool
) -> tuple[StateReader, Iterator[StatesRead]]:
    """Return the reader of the states of a stream, and its events.

    Raises
    ------
    QueryTypeError
        When the query does not fit the events.
    """
    check_forecastable(query)
    events = readable_again(events)
    read, evaluation = state_evaluation(query, options)
    source = read._open_source(events, sort=options.sort)
    plan = query._bindings.plan_over(source.schema)
    ends = None if state_steps(plan).exact else match_ends(query, events, options)
    reader = StateReader(query, form, evaluation, grows=grows, ends=ends)
    return reader, (reader.take(rows) for rows in read._match_source(source, evaluation))


def readable_again(events: Any) -> Any:
    """Return events that can be read twice: those of a reader, or of an iterator, are read into memory."""
    if isinstance(events, pa.RecordBatchReader):
        return events.read_all()
    return list(events) if isinstance(events, Iterator) else events


def match_ends(query: Any, events: Any, options: Any) -> Int64:
    """Return the positions where matches of a query end, each once, ascending."""
    output = "ends" if "ends" in query.outputs else query.default_output
    asked = {name: getattr(options, name) for name in ("device", "sort", "lateness", "late", "max_memory")}
    found = query.evaluate(events, output=output, **asked)
    ends: Int64 = np.unique(found.column("end").to_numpy())
    return ends
