"""Learning of a `Forecast` from a history, in one pass."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pyarrow as pa

from cer_gpu.columnar.clocks import TIME_UNITS, per_second
from cer_gpu.engine.evaluation_options import EvaluationOptions
from cer_gpu.errors import OptionError
from cer_gpu.forecast.counting import StateNumbers, WaitCounter
from cer_gpu.forecast.lengths import IN_EVENTS, IN_TIME, edges_of, parse_lengths
from cer_gpu.forecast.model import Forecast, WithinLengths
from cer_gpu.forecast.reading import MAX_ORDER, StateForm, check_forecastable, read_states, readable_again
from cer_gpu.forecast.tree import build_tree
from cer_gpu.forecast.words import contexts_in_words, state_words
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.planning.state_steps import state_steps


def fit_forecast(
    query: Any,
    history: Any,
    within: WithinLengths,
    order: int,
    ages: int,
    min_cases: int,
    options: EvaluationOptions,
) -> Forecast:
    """Learn a forecast from a history, as `CompiledQuery.fit` says."""
    _check("order", order, 0, MAX_ORDER)
    _check("ages", ages, 1, 8)
    _check("min_cases", min_cases, 1, 1 << 62)
    check_forecastable(query)
    history = readable_again(history)
    schema = query._open_source(history, sort=options.sort).schema
    binding = query._bindings.bind(schema)
    time_type = binding.time_type
    lengths = parse_lengths(within, time_type, query.time_unit)
    edges = {kind: edges_of(lengths, kind) for kind in (IN_TIME, IN_EVENTS)}
    clock = IN_EVENTS if time_type is None else IN_TIME
    longest = max((each.amount for each in lengths if each.kind == clock), default=0)
    form = StateForm(order, ages, longest / ages)
    reader, read = read_states(query, history, form, options, grows=True)
    numbers, counter, n_ends = StateNumbers(), WaitCounter(edges[IN_TIME], edges[IN_EVENTS]), 0
    for each in read:
        found = numbers.number(each.states)
        counter.add(each, found, len(numbers))
        n_ends += int(each.ends.sum())
    tree = build_tree(counter.finish(numbers.codes), edges, lengths, form.bits, min_cases)
    window = None if binding.window_length is None else binding.window_length.item()
    in_time = time_type is not None and (window is None or binding.window_column == query.time_column)
    form = StateForm(order, ages, form.width, reader.words)
    plan = query._bindings.plan_over(schema)
    words = state_words(plan, form, window, _per_second(time_type, query.time_unit) if in_time else None)
    facts = {
        "n_ends": n_ends,
        "time_type": time_type,
        "words": contexts_in_words(tree, form, words),
        "about": _about(plan, int(tree.cases[0]), n_ends, order),
    }
    return Forecast(query, form, lengths, edges, tree, facts)


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
