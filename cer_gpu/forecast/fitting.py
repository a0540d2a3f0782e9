"""Learning of forecasts from a history in one pass, or from parts of it whose counts add up.

States are named in words: ``1 of 2 steps (a), 1 to 2 hours ago; last event LANDED with delay > 120``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int64
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.forecasts.states import BITS
from cer_gpu.columnar.clocks import TIME_UNITS, per_second
from cer_gpu.columnar.columns import numbers_of
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.errors import OptionError, QueryErrorContext
from cer_gpu.explain.ceql_text import name_text, predicate_text
from cer_gpu.forecast.lengths import IN_EVENTS, IN_TIME, edges_of, parse_lengths
from cer_gpu.forecast.model import Forecast, WithinLengths
from cer_gpu.forecast.reading import (
    MAX_ORDER,
    MAX_STATE_SYMBOLS,
    OTHER,
    FollowedEvents,
    StateForm,
    StateReader,
    check_forecastable,
    follow_all,
)
from cer_gpu.forecast.tree import AGE, ROOT, STEP, ContextTree, build_tree
from cer_gpu.forecast.wait_counts import StateNumbers, WaitCounter, WaitCounts
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.planning.state_steps import state_steps, with_symbols
from cer_gpu.runtime.reading.symbols import NO_EVENTS, EventBuffers

_FACTS = b"cer_gpu history"
_COUNTS = ("seen_times", "seen_events", "cut_times", "cut_events")


@dataclass(frozen=True)
class HistoryPart:
    """Counts of the events of some substreams.

    Attributes
    ----------
    words : tuple of int
        Bit vectors of the symbols of the states, from 1 on.
    counts : WaitCounts
    n_ends : int
        Events that end a match.
    """

    words: tuple[int, ...]
    counts: WaitCounts
    n_ends: int

    def to_bytes(self) -> bytes:
        """Return it as an Arrow IPC stream."""
        counts = self.counts
        columns = {"states": pa.array(counts.states)}
        for name in _COUNTS:
            each: Int64 = getattr(counts, name)
            columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(each.ravel()), each.shape[1])
        facts = json.dumps({"words": [hex(word) for word in self.words], "n_ends": self.n_ends})
        table = pa.table(columns).replace_schema_metadata({_FACTS: facts})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        written: bytes = sink.getvalue().to_pybytes()
        return written

    @classmethod
    def from_bytes(cls, written: bytes) -> HistoryPart:
        """Return a part that was written."""
        with pa.ipc.open_stream(written) as reader:
            table = reader.read_all().combine_chunks()
        facts = json.loads(table.schema.metadata[_FACTS])
        counted = []
        for name in _COUNTS:
            column = table.column(name).combine_chunks()
            size = column.type.list_size
            counted.append(numbers_of(column.flatten()).reshape(table.num_rows, size).astype(np.int64))
        states = numbers_of(table.column("states").combine_chunks())
        return cls(tuple(int(word, 16) for word in facts["words"]), WaitCounts(states, *counted), facts["n_ends"])


def joined_parts(parts: Sequence[HistoryPart], order: int) -> HistoryPart:
    """Return the counts of the whole history, in an order of states and symbols that does not depend on its parts."""
    words = tuple(sorted({word for part in parts for word in part.words}))[:MAX_STATE_SYMBOLS]
    numbers = {word: i + 1 for i, word in enumerate(words)}
    codes = np.concatenate([_renumber(part, numbers, order) for part in parts])
    states, rows = np.unique(codes, return_inverse=True)
    counted = []
    for name in _COUNTS:
        each = [getattr(part.counts, name) for part in parts]
        sums = np.zeros((len(states), each[0].shape[1]), np.int64)
        np.add.at(sums, rows, np.concatenate(each))
        counted.append(sums)
    return HistoryPart(words, WaitCounts(states, *counted), sum(part.n_ends for part in parts))


def _renumber(part: HistoryPart, numbers: dict[int, int], order: int) -> Int64:
    """Return the states of a part with other numbers of symbols."""
    own = np.full(OTHER + 1, OTHER, np.int64)
    own[0] = 0
    own[1 : len(part.words) + 1] = [numbers.get(word, OTHER) for word in part.words]
    states = part.counts.states
    renumbered = states >> BITS * order << BITS * order
    for i in range(order):
        renumbered |= own[states >> BITS * i & OTHER] << BITS * i
    return renumbered


_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class StateWords:
    """Words of the parts of a state.

    Attributes
    ----------
    steps : tuple of str
        Names of the steps of the query.
    symbols : tuple of str
        Words for the symbols, from 1 on.
    classes : tuple of str
        Words for the age classes.
    """

    steps: tuple[str, ...]
    symbols: tuple[str, ...]
    classes: tuple[str, ...]

    def of_context(self, level: int, step: int, age: int, symbols: Sequence[int]) -> str:
        """Return the words for a context."""
        if level == ROOT:
            return "any event"
        state = "no step reached"
        if step:
            state = f"{step} of {len(self.steps)} steps ({self.steps[step - 1]})"
            if level >= AGE:
                state += f", {self.classes[age]} ago"
        shown = [self._symbol(each) for each in symbols[: max(level - AGE, 0)]]
        return "; ".join([state, *(f"{'last event' if not i else 'before it'} {each}" for i, each in enumerate(shown))])

    def _symbol(self, number: int) -> str:
        if number == 0:
            return "none"
        return "another one" if number == OTHER or number > len(self.symbols) else self.symbols[number - 1]


def state_words(
    plan: LogicalPlan, form: StateForm, length: int | float | None, per_second: Fraction | None
) -> StateWords:
    """Return the words for the states of a query.

    Parameters
    ----------
    plan
    form
    length
        Horizon of the window, in units of its clock.
    per_second
        Units of that clock in a second, or None if it is no time.
    """
    guards = with_symbols(plan).guards
    steps = state_steps(plan).steps
    types = {guard.event_type for guard in guards}
    names = []
    for step in steps:
        own = [name for name in step.names if name not in types and ">" not in name]
        names.append(own[0] if own else " or ".join(dict.fromkeys(guard_words(guards[guard]) for guard in step.guards)))
    symbols = tuple(_symbol_words(word, guards, len(plan.guards)) for word in form.words)
    width = form.width if length is None else float(length) / form.ages
    unit = " events" if plan.window == "events" or (length is None and plan.time_column is None) else ""
    edges = [_amount(k * width, per_second, unit) for k in range(form.ages + 1)]
    classes = [f"{low} to {high}" for low, high in pairwise(edges)]
    if length is None:
        classes[-1] = f"more than {edges[-2]}"
    return StateWords(tuple(names), symbols, tuple(classes))


def guard_words(guard: Guard) -> str:
    """Return the words for an event that satisfies a guard."""
    event = "any event" if guard.event_type is None else name_text(guard.event_type)
    if guard.stream is not None:
        event += f" of stream {name_text(guard.stream)}"
    return event if guard.predicate is None else f"{event} with {predicate_text(guard.predicate)}"


def _symbol_words(word: int, guards: tuple[Guard, ...], n_own: int) -> str:
    own = [guard_words(guard) for i, guard in enumerate(guards[:n_own]) if word >> i & 1]
    if own:
        return " and ".join(dict.fromkeys(own))
    types = [guard_words(guard) for i, guard in enumerate(guards) if i >= n_own and word >> i & 1]
    return f"another {types[0]}" if types else "of no step"


def _amount(amount: float, per_second: Fraction | None, unit: str) -> str:
    if per_second is None:
        return f"{amount:g}{unit}"
    seconds = amount / float(per_second)
    for name, size in _UNITS:
        if seconds >= size or name == "second":
            number = f"{round(seconds / size, 1):g}"
            return f"{number} {name}{'' if number == '1' else 's'}"
    return f"{seconds:g}"


def contexts_in_words(tree: ContextTree, form: StateForm, words: StateWords) -> list[str]:
    """Return the words for the contexts of a tree."""
    description = []
    for level, context in zip(tree.levels.tolist(), tree.contexts.tolist(), strict=True):
        if level == STEP:
            description.append(words.of_context(level, context, 0, ()))
            continue
        n_symbols = max(level - AGE, 0)
        own = StateForm(n_symbols, form.ages, form.width)
        description.append(words.of_context(level, *own.parts(context)))
    return description


@dataclass(frozen=True)
class FitRequest:
    """Parameters of `CompiledQuery.fit`.  They can be pickled.

    Attributes
    ----------
    within, order, ages, min_cases
    """

    within: WithinLengths
    order: int
    ages: int
    min_cases: int

    def __post_init__(self) -> None:
        """Refuse numbers that are out of bounds."""
        _check("order", self.order, 0, MAX_ORDER)
        _check("ages", self.ages, 1, 8)
        _check("min_cases", self.min_cases, 1, 1 << 62)


class Learning:
    """Learning of the forecast of one query: counts of one history, or of several parts of it, which add up.

    Parameters
    ----------
    query
    schema
        That of the events.
    request

    Attributes
    ----------
    reader : StateReader
        Reads the events of a part.

    Raises
    ------
    OptionError
        When a length cannot be read, or the query cannot be forecast.
    QueryTypeError
        When the query does not match the events.
    """

    def __init__(self, query: Any, schema: pa.Schema, request: FitRequest) -> None:
        check_forecastable(query)
        self._query, self._schema, self._request = query, schema, request
        self._binding = query._bindings.bind(schema)
        time_type = self._binding.time_type
        self._lengths = parse_lengths(request.within, time_type, query.time_unit)
        self._edges = {kind: edges_of(self._lengths, kind) for kind in (IN_TIME, IN_EVENTS)}
        clock = IN_EVENTS if time_type is None else IN_TIME
        longest = max((each.amount for each in self._lengths if each.kind == clock), default=0)
        self._form = StateForm(request.order, request.ages, longest / request.ages)
        self._numbers, self._counter = StateNumbers(), WaitCounter(self._edges[IN_TIME], self._edges[IN_EVENTS])
        self.reader: StateReader = StateReader(query, self._form, self._count, grows=True)

    def _count(self, events: FollowedEvents) -> EventBuffers:
        self._counter.add(events, self._numbers.number(events.states), len(self._numbers))
        return NO_EVENTS

    def part(self, until: int | None = None) -> HistoryPart:
        """Return the counts of the events that were read.

        Parameters
        ----------
        until
            Time of the last event of the whole history; None for the last event that was read.
        """
        counts = self._counter.finish(self._numbers.codes, until)
        return HistoryPart(self.reader.words, counts, self._counter.n_ends)

    def forecast(self, part: HistoryPart) -> Forecast:
        """Return the forecast that counts make."""
        request, binding, query = self._request, self._binding, self._query
        tree = build_tree(part.counts, self._edges, self._lengths, self._form.bits, request.min_cases)
        window = None if binding.window_length is None else binding.window_length.item()
        in_time = binding.time_type is not None and (window is None or binding.window_column == query.time_column)
        form = StateForm(request.order, request.ages, self._form.width, part.words)
        plan = query._bindings.plan_over(self._schema)
        words = state_words(plan, form, window, _per_second(binding.time_type, query.time_unit) if in_time else None)
        facts = {
            "n_ends": part.n_ends,
            "time_type": binding.time_type,
            "words": contexts_in_words(tree, form, words),
            "about": _about(plan, int(tree.cases[0]), part.n_ends, request.order),
        }
        return Forecast(query, form, self._lengths, self._edges, tree, facts)


def fit_forecasts(
    queries: Mapping[str, Any], history: Any, request: FitRequest, options: EvaluationOptions
) -> dict[str, Forecast]:
    """Learn the forecasts of queries from a history, which is read once; errors begin with the name of the query."""
    learning: dict[str, Learning] = {}
    source = next(iter(queries.values()))._open_source(history, sort=options.sort)
    for name, query in queries.items():
        try:
            with QueryErrorContext(name):
                learning[name] = Learning(query, source.schema, request)
        except OptionError as error:
            raise OptionError(f"query {name!r}: {error}") if name else error from None
    follow_all({name: each.reader for name, each in learning.items()}, source, options)
    return {name: each.forecast(each.part()) for name, each in learning.items()}


def _about(plan: LogicalPlan, n_events: int, n_ends: int, order: int) -> list[str]:
    """Return lines on the history, and on what states leave out."""
    steps = state_steps(plan)
    lines = [f"Learned from {n_events:,} events, {n_ends:,} of which end a match."]
    if not steps.steps:
        lines.append(f"A state has no steps ({steps.reason}): it is the last {order} events alone.")
    elif steps.reason:
        lines.append(f"In a state, {steps.reason}; what is counted are the matches of the query itself.")
    return lines


def _check(name: str, value: object, least: int, greatest: int) -> None:
    if type(value) is not int or not least <= value <= greatest:
        bounds = f"from {least} on" if greatest >= 1 << 62 else f"from {least} to {greatest}"
        raise OptionError(f"{name} must be a number {bounds}, got {value!r}")


def _per_second(time_type: pa.DataType, time_unit: str | None) -> Fraction | None:
    if pa.types.is_integer(time_type):
        return None if time_unit is None else Fraction(TIME_UNITS[time_unit])
    return per_second(time_type)
