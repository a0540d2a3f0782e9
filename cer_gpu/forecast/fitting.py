"""Learning of forecasts from a history in one pass, or from parts of it whose counts add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from cer_gpu.columnar.clocks import TIME_UNITS, per_second
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.errors import OptionError, QueryErrorContext
from cer_gpu.forecast.counting import StateNumbers, WaitCounter
from cer_gpu.forecast.lengths import IN_EVENTS, IN_TIME, edges_of, parse_lengths
from cer_gpu.forecast.model import Forecast, WithinLengths
from cer_gpu.forecast.parts import HistoryPart
from cer_gpu.forecast.reading import MAX_ORDER, FollowedEvents, StateForm, StateReader, check_forecastable, follow_all
from cer_gpu.forecast.tree import build_tree
from cer_gpu.forecast.words import contexts_in_words, state_words
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.planning.state_steps import state_steps
from cer_gpu.runtime.reading.symbols import NO_EVENTS, EventBuffers


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
    asked

    Attributes
    ----------
    reader : StateReader
        Reads the events of a part.

    Raises
    ------
    OptionError
        When a length cannot be read, or the query cannot be forecast.
    QueryTypeError
        When the query does not fit the events.
    """

    def __init__(self, query: Any, schema: pa.Schema, asked: FitRequest) -> None:
        check_forecastable(query)
        self._query, self._schema, self._asked = query, schema, asked
        self._binding = query._bindings.bind(schema)
        time_type = self._binding.time_type
        self._lengths = parse_lengths(asked.within, time_type, query.time_unit)
        self._edges = {kind: edges_of(self._lengths, kind) for kind in (IN_TIME, IN_EVENTS)}
        clock = IN_EVENTS if time_type is None else IN_TIME
        longest = max((each.amount for each in self._lengths if each.kind == clock), default=0)
        self._form = StateForm(asked.order, asked.ages, longest / asked.ages)
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
            Time of the last event of the whole history; None: that of the last event that was read.
        """
        counts = self._counter.finish(self._numbers.codes, until)
        return HistoryPart(self.reader.words, counts, self._counter.n_ends)

    def forecast(self, part: HistoryPart) -> Forecast:
        """Return the forecast that counts make."""
        asked, binding, query = self._asked, self._binding, self._query
        tree = build_tree(part.counts, self._edges, self._lengths, self._form.bits, asked.min_cases)
        window = None if binding.window_length is None else binding.window_length.item()
        in_time = binding.time_type is not None and (window is None or binding.window_column == query.time_column)
        form = StateForm(asked.order, asked.ages, self._form.width, part.words)
        plan = query._bindings.plan_over(self._schema)
        words = state_words(plan, form, window, _per_second(binding.time_type, query.time_unit) if in_time else None)
        facts = {
            "n_ends": part.n_ends,
            "time_type": binding.time_type,
            "words": contexts_in_words(tree, form, words),
            "about": _about(plan, int(tree.cases[0]), part.n_ends, asked.order),
        }
        return Forecast(query, form, self._lengths, self._edges, tree, facts)


def fit_forecasts(
    queries: Mapping[str, Any], history: Any, asked: FitRequest, options: EvaluationOptions
) -> dict[str, Forecast]:
    """Learn the forecasts of queries from a history, which is read once; errors begin with the name of the query."""
    learning: dict[str, Learning] = {}
    source = next(iter(queries.values()))._open_source(history, sort=options.sort)
    for name, query in queries.items():
        try:
            with QueryErrorContext(name):
                learning[name] = Learning(query, source.schema, asked)
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


def _check(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        bounds = f"from {least} on" if most >= 1 << 62 else f"from {least} to {most}"
        raise OptionError(f"{name} must be a number {bounds}, got {value!r}")


def _per_second(time_type: pa.DataType, time_unit: str | None) -> Fraction | None:
    if pa.types.is_integer(time_type):
        return None if time_unit is None else Fraction(TIME_UNITS[time_unit])
    return per_second(time_type)
