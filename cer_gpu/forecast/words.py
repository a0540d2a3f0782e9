"""States in words: ``1 of 2 steps (a), 1 to 2 hours ago; last event LANDED with delay > 120``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.explain.ceql_text import name_text, predicate_text
from cer_gpu.forecast.reading import OTHER, StateForm
from cer_gpu.forecast.tree import AGE, ROOT, STEP, ContextTree
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.planning.state_steps import state_steps, with_symbols

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
        told = "no step reached"
        if step:
            told = f"{step} of {len(self.steps)} steps ({self.steps[step - 1]})"
            if level >= AGE:
                told += f", {self.classes[age]} ago"
        shown = [self._symbol(each) for each in symbols[: max(level - AGE, 0)]]
        return "; ".join([told, *(f"{'last event' if not i else 'before it'} {each}" for i, each in enumerate(shown))])

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
        Units of that clock in a second; None: it is no time.
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
    told = []
    for level, context in zip(tree.levels.tolist(), tree.contexts.tolist(), strict=True):
        if level == STEP:
            told.append(words.of_context(level, context, 0, ()))
            continue
        n_symbols = max(level - AGE, 0)
        own = StateForm(n_symbols, form.ages, form.width)
        told.append(words.of_context(level, *own.parts(context)))
    return told
