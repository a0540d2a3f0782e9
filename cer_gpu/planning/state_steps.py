"""The plan by which forecasts read a stream: every event of each substream with its symbol, and the steps it makes.

papers: 004, section 6.  A state need not be exact to be a state: it is any function of the events so far, and waiting
times are counted from it.  Steps are therefore followed without the join predicates that are no key.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from cer_gpu.automaton.normal_form import (
    Absent,
    Atom,
    Guard,
    NormalForm,
    Repeat,
    Trailing,
    choices,
    sequence,
    unrelated,
)
from cer_gpu.automaton.recent import NotRecentError, build_recent
from cer_gpu.automaton.recent_pattern import RecentPattern
from cer_gpu.automaton.strategies import ALL
from cer_gpu.ceql.step_keys import StepwiseKeys
from cer_gpu.ceql.syntax import Name, Windowed
from cer_gpu.ceql.traversal import walk
from cer_gpu.output.bound_measures import NO_MEASURES
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.runtime.progress.table import relates

MAX_STATE_STEPS = 60
"""Most steps that a state distinguishes."""


@dataclass(frozen=True)
class StateStep:
    """A step that the state of a substream follows: an event that satisfies one of `guards`.

    None of `barring` comes between the step before and this one.  Both are indices of `LogicalPlan.guards`; `names` are
    the variables that hold the event.
    """

    guards: tuple[int, ...]
    barring: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class StateSteps:
    """The steps of a query as its state follows them.

    Attributes
    ----------
    steps : tuple of StateStep
        Empty if the state has no step.
    reason : str
        Reason why there are none, or what they leave out; "" if they leave out nothing.
    exact : bool
        True: an event that satisfies the last step, while one before it is live, ends a match, and no other event does.
    """

    steps: tuple[StateStep, ...]
    reason: str
    exact: bool


class _NoStepsError(Exception):
    """Reason why a pattern has no steps in one order."""


def state_steps(plan: LogicalPlan) -> StateSteps:
    """Return the steps that the state of a substream follows."""
    formula = plan.formula
    if isinstance(formula, Trailing):
        formula = formula.body
    left_out = set[str]()
    if relates(plan.formula) and not _keys_alone(plan):
        left_out.add("join predicates")
    if plan.step_keys is not None and len(_plain_keys(plan.step_keys)) < len(plan.step_keys.names):
        left_out.add("keys that are lists, or unlike fields")
    number = {guard: i for i, guard in enumerate(plan.guards)}
    try:
        if plan.head is not None:
            raise _NoStepsError("the atoms of a conjunctive query have no order")
        if plan.step_keys is not None and plan.step_keys.samples:
            raise _NoStepsError("the events of a sample have no order")
        steps = _state_step_list(unrelated(formula), number, (), left_out)
        if len(steps) > MAX_STATE_STEPS:
            raise _NoStepsError(f"it has more than {MAX_STATE_STEPS} steps")
    except _NoStepsError as error:
        return StateSteps((), str(error), False)
    reason = f"steps are followed without {' and '.join(sorted(left_out))}" if left_out else ""
    plain = plan.strategy.name in ("ALL", "ANY") and plan.consume == "NONE" and plan.limit != 0
    clauses = plan.every, plan.having, plan.syntax.each_step
    bounded = any(isinstance(part, Windowed) for part in walk(plan.syntax.formula))
    exact = plain and not left_out and not relates(plan.formula) and not plan.pipes and not bounded
    return StateSteps(tuple(steps), reason, exact and not plan.trailing and all(each is None for each in clauses))


def _state_step_list(
    formula: NormalForm, number: dict[Guard, int], barring: tuple[Absent, ...], left_out: set[str]
) -> list[StateStep]:
    """Return the steps of a part, whose first step `barring` events bar; what they leave out is added to `left_out`."""
    steps: list[StateStep] = []
    for part, joint in sequence(formula):
        if any(joint.optional):
            left_out.add("steps that may be missing")
            if joint.optional[1]:
                continue
            steps = []
        if joint.contiguous:
            left_out.add("the demand for neighbours (`:`)")
        before = joint.absent if steps else barring
        if isinstance(part, Repeat):
            if part.contiguous:
                left_out.add("the demand for neighbours (`:`)")
            if part.n_max is not None and part.n_max != part.n_min and part.absent:
                left_out.add("the most repetitions")
            for k in range(part.n_min):
                steps += _state_step_list(part.body, number, part.absent if k else before, left_out)
                if len(steps) > MAX_STATE_STEPS:
                    break
        else:
            steps.append(_state_step(part, number, before, left_out))
    return steps


def _state_step(
    part: NormalForm, number: dict[Guard, int], barring: tuple[Absent, ...], left_out: set[str]
) -> StateStep:
    atoms = []
    for each in choices(part):
        if not isinstance(each, Atom):
            raise _NoStepsError("its events come in more than one order")
        atoms.append(each)
    if any(atom.negated for atom in atoms):
        raise _NoStepsError("a step is NOT(...)")
    bars = [each for each in barring if not each.negated and each.length is None]
    if len(bars) < len(barring):
        left_out.add("absences for a length, or of NOT(...)")
    types = [number[atom.guard] for atom in atoms]
    names = sorted(frozenset[str]().union(*(atom.labels for atom in atoms)))
    return StateStep(
        tuple(dict.fromkeys(types)), tuple(dict.fromkeys(number[each.guard] for each in bars)), tuple(names)
    )


def _keyed_steps(plan: LogicalPlan) -> RecentPattern | None:
    """Return the steps of a pattern with the keys that they share, or None if it is no chain of steps."""
    if plan.recent is not None or plan.trailing:
        return plan.recent
    with suppress(NotRecentError):
        return build_recent(plan.pattern, plan.guards, frozenset())
    return None


def _shared_columns(plan: LogicalPlan) -> list[str]:
    """Return the columns that join predicates demand to be equal in all steps."""
    pattern = _keyed_steps(plan) if relates(plan.formula) else None
    columns = [] if pattern is None else [{column.name for step in key for column in step} for key in pattern.keys]
    return [next(iter(names)) for names in columns if len(names) == 1]


def _plain_keys(keys: StepwiseKeys) -> list[Name]:
    """Return the keys that are one column in all steps."""
    columns = []
    for own in zip(*keys.roles, strict=True):
        (first, *others) = dict.fromkeys(own)
        if not others and first.attribute is not None and not first.in_list:
            columns.append(Name(first.attribute, span=first.span, nullable=first.nullable))
    return columns


def _keys_alone(plan: LogicalPlan) -> bool:
    """Return True if all join predicates are equalities of one column in all steps."""
    pattern = _keyed_steps(plan)
    return pattern is not None and not pattern.tests and len(_shared_columns(plan)) == len(pattern.keys)


def with_symbols(plan: LogicalPlan) -> LogicalPlan:
    """Return the plan that outputs each event of each substream with its symbol, and searches no match.

    A symbol says which guards an event satisfies, and which of their types it has.  The columns that
    join predicates demand to be equal in all steps are keys, as those of PARTITION BY.
    """
    types = dict.fromkeys(Guard(each.event_type, None, each.stream) for each in plan.guards)
    more = tuple(each for each in types if each not in plan.guards and each.event_type is not None)
    columns = {name.name for names in plan.partition for name in names}
    keys = [Name(name) for name in dict.fromkeys(_shared_columns(plan)) if name not in columns]
    keys += [] if plan.step_keys is None else _plain_keys(plan.step_keys)
    return replace(
        plan,
        guards=(*plan.guards, *more),
        cea=None,
        graph=None,
        parallel=None,
        recent=None,
        chain=None,
        strategy=ALL,
        head=None,
        unread=(),
        partition=(*plan.partition, *((name,) for name in keys)),
        step_keys=None,
        consume="NONE",
        limit=None,
        every=None,
        trailing=False,
        lasts=None,
        measures=NO_MEASURES,
        aggregate=None,
        weights=None,
        pipes=(),
        reads_symbols=True,
    )
