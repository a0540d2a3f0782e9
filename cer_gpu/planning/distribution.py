"""Exact ways to distribute the events of a query to several evaluations, which together find what one would."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import combinations

from cer_gpu.automaton.recent_pattern import RecentPattern
from cer_gpu.ceql.one_event import NameTest, may_be_one
from cer_gpu.ceql.step_keys import StepwiseKeys
from cer_gpu.ceql.syntax import Attribute
from cer_gpu.planning.pattern_spans import same_clock
from cer_gpu.planning.plan import LogicalPlan

_OWN_KEYS = "an OVER aggregate has keys of its own, whose events may be anywhere before"
_PIPES = "{} chooses among the results of all events"


@dataclass(frozen=True)
class Distribution:
    """Ways to distribute the events of a query.

    Attributes
    ----------
    why_not_keys : str or None
        Reason why distribution by key is not exact, or None if it is.
    why_not_ranges : str or None
        Reason why distribution by ranges of the stream, each with the window before it, is not exact, or None if it is.
    why_not_merging : str or None
        Reason why results of several threads have another order than those of one, or None if they have the order of
        ends.
    why_not_key_tasks : str or None
        Reason why tasks that get the events of some keys only are not exact, or None if they are, if keys are.
    shared : tuple of (str or None, str)
        Column of each event type (None for all) whose value all events of a match share, so that events can be
        distributed to tasks by it; empty if there is none.
    """

    why_not_keys: str | None
    why_not_ranges: str | None
    why_not_merging: str | None = None
    shared: tuple[tuple[str | None, str], ...] = ()
    why_not_key_tasks: str | None = None

    @property
    def threads(self) -> str:
        """Way to distribute to threads: "range", "key", or "one" if one thread evaluates everything."""
        if self.why_not_merging is not None:
            return "one"
        if self.why_not_ranges is None:
            return "range"
        return "key" if self.why_not_keys is None else "one"

    @property
    def why_not_threads(self) -> str | None:
        """Reason why one thread evaluates everything, or None if several help."""
        return self.why_not_merging or self.why_not_ranges if self.threads == "one" else None

    @property
    def tasks(self) -> dict[str, str | None]:
        """Ways to distribute to Spark tasks, best first, each with the reason why it is not exact, or None if it is."""
        by_key = None if self.shared else self.why_not_keys or self.why_not_key_tasks
        return {"key": by_key, "range": self.why_not_ranges, "broadcast": None}


def distribution_by_starts(plan: LogicalPlan) -> Distribution:
    """Determine the ways to distribute the events where rows are the starts of a chain (output "funnel")."""
    of_all = plan.window in ("time", "attribute")
    return replace(
        distribution_of(plan),
        why_not_ranges="a start is known only after the range",
        why_not_key_tasks="an event of any key tells that a window has passed" if of_all else _why_not_key_tasks(plan),
        shared=(),
    )


def distribution_of(plan: LogicalPlan) -> Distribution:
    """Determine the ways to distribute the events of a query."""
    merging = "matches that end with an absence come in the order in which they are known"
    shared = () if plan.partition else _shared(plan)
    return Distribution(
        _why_not_keys(plan),
        _why_not_ranges(plan),
        merging if plan.trailing else None,
        shared=shared,
        why_not_key_tasks=_why_not_key_tasks(plan),
    )


def _shared(plan: LogicalPlan) -> tuple[tuple[str | None, str], ...]:
    """Return the column of each event type whose value all events of a match share; empty if there is none."""
    pattern = plan.parallel
    if plan.looks_back:
        return ()  # another task may have the events before
    if plan.every is not None or plan.pipes:
        return ()  # another task may have found those that LIMIT n EVERY d counts
    if plan.step_keys is not None:
        return _key_of_steps(plan, plan.step_keys)
    if plan.recent is not None:
        return () if plan.consume != "NONE" or plan.counts_positions else _key_of(plan, plan.recent)
    if pattern is None or plan.consume != "NONE" or not pattern.without_choice:
        return ()  # an event that is a match by itself may have no such value
    atoms = pattern.graph.atoms
    for members in pattern.variables:
        columns_of: dict[str | None, set[str]] = {}
        for member in members:
            ((guard, _),) = atoms[member.place].tests
            column = member.expression.name if isinstance(member.expression, Attribute) else ""
            columns_of.setdefault(plan.guards[guard].event_type, set()).add(column)
        everywhere = {member.place for member in members} == set(range(len(atoms)))
        if everywhere and all(all(columns) for columns in columns_of.values()) and (shared := _of_types(columns_of)):
            return shared
    return ()


def _key_of(plan: LogicalPlan, pattern: RecentPattern) -> tuple[tuple[str | None, str], ...]:
    """Return the column of each event type whose value is a key of SELECT RECENT; empty if there is none."""
    absences = pattern.absences
    if any(absence.key is None for absence in absences):
        return ()  # such an event drops what waits under other keys
    for number, key in enumerate(pattern.keys):
        columns_of: dict[str | None, set[str]] = {}
        for step, columns in zip(pattern.steps, key, strict=True):
            for event in step.events:
                columns_of.setdefault(plan.guards[event.guard].event_type, set()).update(
                    column.name for column in columns
                )
        for absence in absences:
            own = absence.key[number] if absence.key is not None else None
            assert isinstance(own, Attribute)
            columns_of.setdefault(plan.guards[absence.guard].event_type, set()).add(own.name)
        negated = any(event.negated for step in pattern.steps for event in step.events)
        if not negated and (shared := _of_types(columns_of)):
            return shared
    return ()


def _key_of_steps(plan: LogicalPlan, keys: StepwiseKeys) -> tuple[tuple[str | None, str], ...]:
    """Return the column of each event type whose value is a key by step; empty if there is none."""
    pattern = plan.recent
    if pattern is None or keys.samples:
        return ()  # samples come in the order of their keys
    events = [event for step in pattern.steps for event in step.events]
    guards = [*(event.guard for event in events), *(absence.guard for absence in pattern.absences)]
    for own in zip(*keys.roles, strict=True):
        if any(key.attribute is None or key.in_list or key.nullable for key in own):
            continue
        columns_of: dict[str | None, set[str]] = {}
        for guard, key in zip(guards, own, strict=True):
            columns_of.setdefault(plan.guards[guard].event_type, set()).add(str(key.attribute))
        if shared := _of_types(columns_of):
            return shared
    return ()


def _of_types(columns_of: dict[str | None, set[str]]) -> tuple[tuple[str | None, str], ...]:
    """Return the one column of each type; empty if an event may be of types with several."""
    for one, other in combinations(columns_of, 2):
        if columns_of[one] != columns_of[other] and may_be_one(((NameTest(one), False), (NameTest(other), False))):
            return ()
    if any(len(columns) > 1 for columns in columns_of.values()):
        return ()
    return tuple((event_type, column) for event_type, (column,) in columns_of.items())


def _why_not_keys(plan: LogicalPlan) -> str | None:
    if plan.step_keys is not None:
        return "samples come in the order of their keys" if plan.step_keys.samples else "each step has keys of its own"
    if not plan.partition:
        return "the query has no PARTITION BY"
    if any(aggregate.keys is not None for aggregate in plan.over_aggregates):
        return _OWN_KEYS
    if plan.pipes:
        return _PIPES.format(plan.pipes[0].kind)
    if plan.consume == "ANY":
        return "CONSUME BY ANY forgets what all partitions have read"
    return None


def _why_not_key_tasks(plan: LogicalPlan) -> str | None:
    let_names = {column.column: column.name for column in plan.made_columns}
    of_let = [let_names[name] for names in plan.partition_keys for name in names if name in let_names]
    if of_let:
        return f"the key {of_let[0]!r} is a column of LET, which is made from the events by the engine alone"
    if any(name.nocase for names in plan.partition for name in names):
        return "keys that ignore letter case are compared by the engine alone"
    return "the ancestors of a process may have other keys" if plan.tests_descent else None


def _why_not_ranges(plan: LogicalPlan) -> str | None:
    if plan.lags_beyond_match:
        return "LAG reads events that may lie before the range"
    if plan.trailing:
        return "an absence at the end is known only after the range"
    if plan.pipes:
        return _PIPES.format(plan.pipes[0].kind)
    if plan.window is None:
        return "the query has no WITHIN, so that a match may begin anywhere before"
    if plan.window == "events" and plan.partition:
        return "WITHIN n EVENTS counts the events of a partition, which may lie anywhere before"
    if plan.strategy.why_not_ranges is not None and not plan.chooses_within:
        return plan.strategy.why_not_ranges
    if plan.every is not None:
        return "LIMIT n EVERY d depends on what was kept before"
    if plan.limit is not None:
        return "LIMIT keeps the first of an order that depends on the events before the window"
    if plan.consume != "NONE":
        return f"CONSUME BY {plan.consume} depends on what was found before"
    if plan.window_attribute in {column.column for column in plan.made_columns}:
        return "the window is of a column of LET, in which the events are not cut"
    if plan.tests_descent:
        return "ancestors of a process may lie before the range"
    if any(aggregate.keys is not None for aggregate in plan.over_aggregates):
        return _OWN_KEYS
    if plan.nests_over_aggregates:
        return "an OVER aggregate reads another one, further back than a range does"
    lengths = [aggregate.over for aggregate in plan.over_aggregates if aggregate.over is not None]
    if any(not same_clock(length, plan.within) for length in lengths if plan.within is not None):
        return "an OVER aggregate has another clock than WITHIN"
    return None


def at_or_before(value: float, length: float) -> float:
    """Return a lower bound of all x with ``value - x <= length``, however that is rounded."""
    return value - length - 4 * sys.float_info.epsilon * max(abs(value), abs(length))
