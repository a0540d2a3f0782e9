"""The public class `Forecast`: what a history says of the states of a query, and of the partial matches at its end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cer_gpu.arrays import Int32, Int64
from cer_gpu.backend.forecasts.states import AGES, mark_last
from cer_gpu.columnar.columns import numbers_of
from cer_gpu.columnar.memory import Scratch, read_only
from cer_gpu.engine.evaluation_options import EvaluationOptions, Lateness, Sort, options_by_name
from cer_gpu.errors import OptionError, without_events_warnings
from cer_gpu.forecast.estimates import Floats, quartiles, wilson
from cer_gpu.forecast.lengths import IN_EVENTS, IN_TIME, Horizon
from cer_gpu.forecast.reading import (
    FollowedEvents,
    StateForm,
    StateReader,
    check_forecastable,
    every_event,
    follow_all,
    read_rows,
    readable_again,
)
from cer_gpu.forecast.saving import save_forecast
from cer_gpu.forecast.scoring import SCORES, Score, score_rows
from cer_gpu.forecast.tree import ContextTree
from cer_gpu.forecast.wait_counts import StateNumbers, WaitCounter
from cer_gpu.output.outputs import CLOCK, PARTITION, STATE_CODE, without_states
from cer_gpu.runtime.reading.symbols import NO_EVENTS, EventBuffers

_FEW = 1 << 16
"""Rows of last events that are gathered before those are dropped that are no longer the last ones."""


class LastOfEach:
    """Choice of the last event of each substream in each block."""

    def __init__(self) -> None:
        self._seen, self._blocks, self._marks = np.zeros(0, np.int64), 0, Scratch(np.bool_)

    def __call__(self, events: FollowedEvents) -> EventBuffers:
        """Return the last events of a block."""
        n = len(events.states)
        if not len(events.partitions):
            return events.at(slice(max(n - 1, 0), n))
        if events.n_partitions > len(self._seen):
            self._seen = np.zeros(2 * events.n_partitions, np.int64)
        self._blocks += 1
        marks = self._marks.empty(n)
        mark_last(read_only(events.partitions), self._seen, self._blocks, marks)
        return events.at(np.flatnonzero(marks))


def last_rows(read: Iterable[pa.RecordBatch], reader: StateReader) -> pa.RecordBatch:
    """Return the last of the rows of each substream, in the order of the rows."""
    gathered, n, n_max = list[pa.RecordBatch](), 0, _FEW
    for rows in read:
        gathered.append(rows)
        n += rows.num_rows
        if n > n_max:
            gathered = [_lasts(gathered)]
            n = gathered[0].num_rows
            n_max = 2 * n + _FEW
    return _lasts(gathered or [reader.no_rows])


def _lasts(gathered: list[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.concat_batches(gathered)
    partitions = numbers_of(rows.column(PARTITION))
    _, back = np.unique(partitions[::-1], return_index=True)
    return rows.take(pa.array(np.sort(len(partitions) - 1 - back)))


def starts_under_way(model: Any, events: Any, options: EvaluationOptions) -> pa.RecordBatch:
    """Return the forecasts for partial matches that are under way at the end of the events.

    Raises
    ------
    OptionError
        When the query is no chain, of which alone the funnel is known.
    """
    query, events = model.query, readable_again(events)
    if "funnel" not in query.outputs:
        raise OptionError(
            "at='starts' forecasts each partial match of a sequence of steps (one with output='funnel'), and this "
            "query is not such a sequence\n"
            "hint: use at='last', which forecasts after the last event of each substream"
        )
    funnel_options = {name: getattr(options, name) for name in ("device", "sort", "lateness", "late")}
    with without_events_warnings():
        funnel = query.evaluate(events, output="funnel", **funnel_options)
    funnel = funnel.filter(pc.equal(funnel["stopped"], "end")).sort_by("start")
    starts, steps = funnel["start"].to_numpy(), funnel["step"].to_numpy()
    reader, read = read_rows(query, events, model._form, options, every_event)
    partitions, clocks = np.full(len(starts), -1, np.int64), np.zeros(len(starts), np.uint64)

    def noting_starts() -> Iterable[pa.RecordBatch]:
        for rows in read:
            positions = numbers_of(rows.column("end"))
            order = np.argsort(positions, kind="stable")
            at = order[np.minimum(np.searchsorted(positions, starts, sorter=order), len(order) - 1)]
            here = positions[at] == starts
            partitions[here] = numbers_of(rows.column(PARTITION))[at[here]]
            clocks[here] = numbers_of(rows.column(CLOCK))[at[here]]
            yield rows

    lasts = last_rows(noting_starts(), reader)
    started = np.flatnonzero(partitions >= 0)
    of_last = numbers_of(lasts.column(PARTITION))
    order = np.argsort(of_last)
    at = order[np.searchsorted(of_last, partitions[started], sorter=order)]
    rows = lasts.take(pa.array(at))
    states: Int64 = np.zeros(len(at), np.int64)
    if len(at):
        ages = reader.age_classes(numbers_of(rows.column(CLOCK)), clocks[started])
        symbols = numbers_of(rows.column(STATE_CODE)) & ((1 << model._form.bits) - 1)
        states = (steps[started] * AGES + ages) << model._form.bits | symbols
    shown: pa.RecordBatch = model._rows(rows, model._numbers().of(states))
    at_state = shown.schema.get_field_index("state")
    for name, values in (("step", steps), ("start", starts)):
        shown = shown.add_column(at_state, pa.field(name, pa.int64()), pa.array(values[started], pa.int64()))
    return shown


WithinLengths = str | timedelta | Sequence[str | timedelta]
AT = ("last", "events", "starts")
_QUARTILES = ("quarter", "half", "three_quarters")


class Forecast:
    """Probabilities that a match ends, and by when, from each state of a query; the result of `Query.fit`.

    Immutable, and can be pickled and shared.

    Attributes
    ----------
    query : Query
        The query of which it forecasts matches.
    lengths : tuple of str
        The lengths within which a match may end, as they were requested.
    order : int
        Number of the last events that a state distinguishes.
    n_events : int
        Events of the history, those without a key left out.
    n_ends : int
        Events of the history that end a match.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE A ; B")
    >>> model = query.fit(pa.table({"type": ["A", "C", "B", "C"] * 500}), within=["2 events"])
    >>> print(model.forecast(pa.table({"type": ["C", "A"]})).column("probability_2_events").to_pylist()[0] > 0.9)
    True
    """

    def __init__(
        self,
        query: Any,
        form: StateForm,
        lengths: tuple[Horizon, ...],
        edges: dict[str, Int64],
        tree: ContextTree,
        facts: dict[str, Any],
    ) -> None:
        self.query: Any = query
        self._form, self._lengths, self._edges, self._tree, self._facts = form, lengths, edges, tree, facts

    @property
    def lengths(self) -> tuple[str, ...]:
        """The lengths within which a match may end."""
        return tuple(each.text for each in self._lengths)

    @property
    def order(self) -> int:
        """Number of the last events that a state distinguishes."""
        return self._form.order

    @property
    def n_events(self) -> int:
        """Events of the history."""
        return int(self._tree.cases[0])

    @property
    def n_ends(self) -> int:
        """Events of the history that end a match."""
        return int(self._facts["n_ends"])

    def __repr__(self) -> str:
        """Show what it was learned from."""
        lengths = ", ".join(self.lengths)
        return f"<Forecast of {lengths}: {self.n_events:,} events, {self.n_ends:,} ends, {len(self._tree)} states>"

    @options_by_name
    def forecast(
        self,
        events: Any,
        *,
        at: str = "last",
        sort: Sort = False,
        lateness: Lateness | None = None,
        late: str = "raise",
        device: str = "auto",
    ) -> pa.Table:
        """Forecast matches after events.

        Parameters
        ----------
        events
            Anything that `Query.evaluate` takes: all events of each substream, from a point on at which nothing is
            under way.
        at
            "last": after the last event of each substream; "events": after each event; "starts": for each partial match
            under way at the end of the events (a row of the output "funnel" that ended there), after the last event
            of its substream.
        sort, lateness, late, device
            As of `cer_gpu.EvaluationOptions`.

        Returns
        -------
        pyarrow.Table
            In the order of the events: ``position`` (int64), ``time`` where there is a time column, the keys, ``state``
            (string, in words), and for each length ``probability_...``, ``low_...`` and ``high_...`` (float64; the 95%
            interval of Wilson), such as ``probability_1_hour``; ``cases`` (int64, the events of the history for
            it); ``quarter``, ``half`` and ``three_quarters``: the time after which a match has ended with that
            probability (a duration, or a number of events; NULL where that takes longer than four times the longest
            length).  "starts" has besides ``start`` (int64), the position of the first event, and ``step`` (int64),
            the steps reached.

        Raises
        ------
        OptionError
            For another `at`.
        CerError
            As `Query.evaluate`.
        """
        options = EvaluationOptions(sort=sort, lateness=lateness, late=late, device=device)
        return pa.Table.from_batches(self._batches(events, at, options))

    @options_by_name
    def output_schema(self, schema: pa.Schema, *, at: str = "last") -> pa.Schema:
        """Return the schema of `forecast` for events of a schema.

        Raises
        ------
        OptionError
            For another `at`.
        QueryTypeError
            When the query does not match the events.
        """
        return self.forecast(schema.empty_table(), at=at).schema

    def _batches(self, events: Any, at: str, options: EvaluationOptions) -> Iterator[pa.RecordBatch]:
        """Yield forecasts, one batch at least."""
        if at not in AT:
            raise OptionError(f"at must be one of {', '.join(map(repr, AT))}, got {at!r}")
        if at == "starts":
            yield starts_under_way(self, events, options)
            return
        choose = LastOfEach() if at == "last" else every_event
        reader, read = read_rows(self.query, events, self._form, options, choose)
        numbers, some = self._numbers(), False
        for rows in read if at == "events" else [last_rows(read, reader)]:
            some = True
            yield self._rows(rows, numbers.of(numbers_of(rows.column(STATE_CODE))))
        if not some:
            yield self._rows(reader.no_rows, np.zeros(0, np.int64))

    def _numbers(self) -> ContextNumbers:
        return ContextNumbers(self._tree)

    def _probabilities(self) -> Floats:
        """Return the probabilities of each context, a column for each length."""
        columns = [
            self._tree.ended[each.kind][:, np.searchsorted(self._edges[each.kind], each.amount)]
            for each in self._lengths
        ]
        return np.stack(columns, axis=1)

    def _rows(self, rows: pa.RecordBatch, contexts: Int64) -> pa.RecordBatch:
        """Return forecasts for events, given the numbers of their contexts."""
        names = {"end": "position", "end_time": "time"}
        rows = without_states(rows)
        columns = dict(zip((names.get(name, name) for name in rows.schema.names), rows.columns, strict=True))
        columns |= {"state": self._descriptions.take(pa.array(contexts))}
        for length in self._lengths:
            at = int(np.searchsorted(self._edges[length.kind], length.amount))
            probability = self._tree.ended[length.kind][:, at]
            low, high = wilson(probability, self._tree.observed[length.kind][:, at])
            for name, each in (("probability", probability), ("low", low), ("high", high)):
                columns[f"{name}_{length.column}"] = pa.array(each[contexts])
        columns["cases"] = pa.array(self._tree.cases[contexts])
        for name, values in zip(_QUARTILES, self._quartiles, strict=True):
            columns[name] = values.take(pa.array(contexts))
        return pa.RecordBatch.from_pydict(columns)

    @cached_property
    def _descriptions(self) -> pa.Array:
        return pa.array(self._facts["words"], pa.string())

    @cached_property
    def _quartiles(self) -> list[pa.Array]:
        """Quartiles of the waiting time from each context: durations where the lengths are times, else events."""
        kind = IN_TIME if len(self._edges[IN_TIME]) else IN_EVENTS
        times = quartiles(self._tree.ended[kind], self._edges[kind])
        unit = None
        if kind == IN_TIME and not pa.types.is_integer(self._facts["time_type"]):
            unit = pa.duration("s" if pa.types.is_date(self._facts["time_type"]) else self._facts["time_type"].unit)
        numbers = [pa.array(np.nan_to_num(np.ceil(each)).astype(np.int64), mask=np.isnan(each)) for each in times.T]
        return numbers if unit is None else [each.cast(unit) for each in numbers]

    @options_by_name
    def score(
        self,
        events: Any,
        *,
        sort: Sort = False,
        lateness: Lateness | None = None,
        late: str = "raise",
        device: str = "auto",
    ) -> Score:
        """Compare the forecasts after each event with what came: on events that the model was not learned from.

        Events whose outcome the end of the events hides are left out, for the lengths for which it does.

        Parameters
        ----------
        events, sort, lateness, late, device
            As of `forecast`.

        Returns
        -------
        Score
            Brier score, log loss and the area under the curve for each length, each with that of the base rate of
            the history, and a table of calibration.
        """
        options = EvaluationOptions(sort=sort, lateness=lateness, late=late, device=device)
        check_forecastable(self.query)
        numbers = self._numbers()
        counter = WaitCounter(self._edges[IN_TIME], self._edges[IN_EVENTS])

        def count(followed: FollowedEvents) -> EventBuffers:
            counter.add(followed, numbers.of(followed.states).astype(np.int32), len(self._tree))
            return NO_EVENTS

        reader = StateReader(self.query, self._form, count, grows=False)
        follow_all({"": reader}, self.query._open_source(events, sort=options.sort), options)
        counts = counter.finish(np.arange(len(self._tree)))
        rows, tables = [], []
        for length in self._lengths:
            at = int(np.searchsorted(self._edges[length.kind], length.amount))
            seen, cut = counts.of(length.kind)
            ended, others = seen[:, : at + 1].sum(1), seen[:, at + 1 :].sum(1) + cut[:, at + 1 :].sum(1)
            row, table = score_rows(length.text, self._tree.ended[length.kind][:, at], ended, others)
            rows.append(row)
            tables.append(table)
        return Score(pa.Table.from_pylist(rows, schema=SCORES), pa.concat_tables(tables))

    def explain(self) -> str:
        """Return the tree of states in words, each with its probabilities and their number of cases."""
        children: dict[int, list[int]] = {}
        for number, parent in enumerate(self._tree.parents.tolist()):
            children.setdefault(parent, []).append(number)
        lines = [*self._facts["about"], ""]
        todo = [(0, 0)]
        while todo:
            number, depth = todo.pop()
            probabilities = []
            for length in self._lengths:
                at = int(np.searchsorted(self._edges[length.kind], length.amount))
                probabilities.append(f"{100 * self._tree.ended[length.kind][number, at]:.3g}% within {length.text}")
            description = (
                f"{self._descriptions[number]}: {', '.join(probabilities)} ({self._tree.cases[number]:,} cases)"
            )
            lines.append("  " * depth + description)
            todo += [(child, depth + 1) for child in reversed(children.get(number, []))]
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to an Arrow IPC file, from which `cer_gpu.load_forecast` reads it.

        Raises
        ------
        OSError
            When the file cannot be written.
        """
        save_forecast(self, path)


class ContextNumbers:
    """The contexts used for states, looked up once for each state.

    Attributes
    ----------
    contexts : int64, shape (states,)
        Context of each number.
    """

    def __init__(self, tree: ContextTree) -> None:
        self._tree, self._numbers = tree, StateNumbers()
        self.contexts: Int64 = np.zeros(0, np.int64)

    def number(self, states: Int64) -> Int32:
        """Return the numbers of states, valid until the next call."""
        numbers = self._numbers.number(states)
        if len(self._numbers) > len(self.contexts):
            fresh = self._tree.lookup(self._numbers.codes[len(self.contexts) :])
            self.contexts = np.concatenate([self.contexts, fresh])
        return numbers

    def of(self, states: Int64) -> Int64:
        """Return the numbers of the contexts used for states."""
        numbers = self.number(states)
        contexts: Int64 = self.contexts[numbers]
        return contexts
