"""The output of a query by its name, and the plan for an aggregate over all matches of an end."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from cer_gpu.automaton.chain import MAX_STEPS, Rejection
from cer_gpu.automaton.chain_sums import MAX_ROWS, n_sums
from cer_gpu.automaton.normal_form import Atom, Both, Guard, NormalForm, Related, Repeat, guards_of
from cer_gpu.automaton.recent import NotRecentError, build_recent
from cer_gpu.automaton.recent_pattern import RecentPattern
from cer_gpu.automaton.strategies import ALL
from cer_gpu.ceql.parser import parse_aggregate
from cer_gpu.ceql.step_keys import OwnKeys, StepwiseKeys
from cer_gpu.ceql.syntax import Attribute, Expression, Measure, Windowed
from cer_gpu.ceql.traversal import walk
from cer_gpu.errors import OptionError, QueryError, did_you_mean
from cer_gpu.output.bound_measures import QueryMeasures, measure_errors
from cer_gpu.output.form import Output
from cer_gpu.output.outputs import OUTPUTS, Aggregated, EventsRead, Weighed
from cer_gpu.output.reductions import Aggregation
from cer_gpu.output.weights import Linear, linear
from cer_gpu.planning.pattern_spans import same_clock
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.runtime.progress.table import (
    FunnelStep,
    NoFunnelError,
    first_events,
    funnel_steps,
    needs_tests,
    relates,
)

_STRATEGIES = ("ALL", "RECENT")
"""Strategies that need nothing but the steps that each start reaches."""


def funnel_of(plan: LogicalPlan) -> tuple[FunnelStep, ...] | RecentPattern:
    """Return the steps of a plan's pattern, or, where starts are to be tested one by one, its steps with their tests.

    Raises
    ------
    NoFunnelError
        When the query has no progress, with the reason, and a hint.
    """
    if plan.tests_starts:
        assert plan.recent is not None
        return plan.recent
    formula = _funnel_formula(plan)
    if plan.step_keys is not None:
        return funnel_steps(formula, plan.guards, _with_step_keys(plan.recent, plan.step_keys))
    keyed = _keyed_steps(plan) if relates(formula) else None
    if keyed is None and needs_tests(formula):
        return _tested_steps(formula, _funnel_guards(plan, formula))
    return funnel_steps(formula, plan.guards, keyed)


def funnel_plan(plan: LogicalPlan) -> LogicalPlan:
    """Return the plan that evaluates the funnel of a query: its own, or one whose starts are tested one by one."""
    with suppress(NoFunnelError):
        steps = funnel_of(plan)
        if isinstance(steps, RecentPattern) and not plan.tests_starts:
            guards = _funnel_guards(plan, _funnel_formula(plan))
            return replace(plan, guards=guards, graph=None, parallel=None, chain=None, recent=steps, tests_starts=True)
    return plan


def _funnel_guards(plan: LogicalPlan, formula: NormalForm) -> tuple[Guard, ...]:
    """Return the guards of a plan, and after them those that only the funnel reads."""
    return tuple(dict.fromkeys([*plan.guards, *guards_of(first_events(formula))]))


def _tested_steps(formula: NormalForm, guards: tuple[Guard, ...]) -> RecentPattern:
    """Return the steps of a pattern with the tests of its join predicates."""
    variables = frozenset[str]().union(*(part.labels for part in walk(formula) if isinstance(part, Atom)))
    try:
        pattern = build_recent(first_events(formula), guards, variables, keyed=False)
    except NotRecentError as error:
        raise NoFunnelError(error.reason, error.hint) from None
    if len(pattern.steps) > MAX_STEPS:
        raise NoFunnelError(f"it has more than {MAX_STEPS} steps", "a shorter chain")
    return pattern


def _funnel_formula(plan: LogicalPlan) -> NormalForm:
    """Return the pattern whose steps are those of a funnel; raises NoFunnelError where the query has none."""
    if plan.head is not None:
        raise NoFunnelError(
            "it is a conjunctive query, whose atoms have no order", "write the chain in CEQL: A ; B ; C"
        )
    if any(isinstance(part, Both) for part in walk(plan.formula)):
        raise NoFunnelError("its events come in any order", "write them in their order: A ; B ; C")
    for clause, is_present, hint in (
        (
            f"SELECT {plan.strategy.name}",
            plan.strategy.name not in _STRATEGIES,
            "leave it out: each step is the earliest event",
        ),
        (f"CONSUME BY {plan.consume}", plan.consume != "NONE", "leave it out: each start is reported by itself"),
        ("measures", bool(plan.measures.measures), "SELECT *, and join the rows with the events by their positions"),
        ("HAVING", plan.having is not None, "filter the rows of the table"),
        ("LIMIT", plan.limit is not None, "leave it out; limit=... ends after so many rows"),
        ("a pipe", bool(plan.pipes), "leave it out: each start has a row"),
    ):
        if is_present:
            raise NoFunnelError(f"it has {clause}", hint)
    formula, step = plan.formula, plan.syntax.each_step
    if step is not None and isinstance(formula, Related):
        if plan.within is None or not same_clock(step, plan.within):
            raise NoFunnelError("EACH STEP is measured by another clock than WITHIN", "one of the two alone")
        if any(isinstance(part, Repeat) and part.n_min != part.n_max for part in walk(formula)):
            raise NoFunnelError(
                "a repeated step may reach on beyond EACH STEP by more events than it needs",
                "write how often: B{2}; or WITHIN for the whole pattern",
            )
        formula = formula.body  # without the filter of EACH STEP
    if any(isinstance(part, Windowed) for part in walk(plan.syntax.formula)):
        raise NoFunnelError("it has a window within the pattern", "WITHIN for the whole pattern")
    return formula


def _with_step_keys(pattern: RecentPattern | None, keys: StepwiseKeys) -> RecentPattern:
    """Return the steps with their keys by step, if each event has one of these."""
    assert pattern is not None
    if any(key.attribute is None or key.in_list or key.nullable for role in keys.roles for key in role):
        raise NoFunnelError("an event may have several keys, or none", "keys of one value, without ?")
    of_absences = iter(keys.absences)
    steps = tuple(
        replace(step, absent=tuple(replace(each, key=_key_columns(next(of_absences))) for each in step.absent))
        for step in pattern.steps
    )
    of_steps = tuple(
        tuple((column,) for column in of_key) for of_key in zip(*map(_key_columns, keys.steps), strict=True)
    )
    return replace(pattern, steps=steps, keys=of_steps)


def _key_columns(keys: OwnKeys) -> tuple[Attribute, ...]:
    return tuple(Attribute(str(key.attribute), key.span) for key in keys)


def _keyed_steps(plan: LogicalPlan) -> RecentPattern | None:
    """Return the steps with their keys, if all join predicates are equalities that all steps, and absences, share."""
    pattern = plan.recent
    if pattern is None and not plan.trailing:
        with suppress(NotRecentError):
            pattern = build_recent(plan.pattern, plan.guards, frozenset())
    if pattern is None or pattern.tests or not pattern.keys or (plan.partition and plan.window == "events"):
        return None
    unlike = any(absence.key is None for absence in pattern.absences)
    return None if unlike or any(len(columns) > 1 for key in pattern.keys for columns in key) else pattern


def funnel_names(plan: LogicalPlan) -> list[str]:
    """Return a name for each step of a plan's funnel: its variable, else the types that it may have."""
    names = []
    steps = funnel_of(plan)
    guards = plan.guards
    if isinstance(steps, RecentPattern):
        guards = _funnel_guards(plan, _funnel_formula(plan))
        steps = tuple(
            FunnelStep(
                tuple(event.guard for event in step.events),
                (),
                frozenset[str]().union(*(event.labels for event in step.events)),
            )
            for step in steps.steps
        )
    for step in steps:
        types = [guards[guard].event_type or "any event" for guard in step.guards]
        of_streams = tuple(f"{stream}>" for stream in plan.streams)  # the same variables, of one stream
        aliases = sorted(label for label in step.labels if label not in types and not label.startswith(of_streams))
        names.append(aliases[0] if aliases else " OR ".join(dict.fromkeys(types)))
    return names


def with_aggregate(plan: LogicalPlan, text: str) -> LogicalPlan:
    """Return the plan for ``output="count"`` with an aggregate in place of the number of matches.

    Raises
    ------
    QueryError
        When the text is no aggregate, or names variables that are not selected.
    OptionError
        When HAVING chooses among the matches.
    """
    if plan.having is not None:
        raise OptionError(
            "an aggregate covers all matches of an end, and HAVING drops some\n"
            "hint: leave out HAVING, or aggregate the table of output='measures'"
        )
    function, operand = parse_aggregate(text)
    aggregate = Aggregation(function, " ".join(text.split()))
    selected = plan.measures
    if operand is None:
        return replace(plan, measures=QueryMeasures((), None, selected.single, selected.several), aggregate=aggregate)
    measures = QueryMeasures((Measure(operand, aggregate.name),), None, selected.single, selected.several)
    errors: list[QueryError] = list(measure_errors(measures, text))
    if errors:
        raise errors[0]
    for name in measures.variables:
        if name not in plan.variables:
            hint = did_you_mean(str(name), plan.variables, "variables of SELECT")
            raise OptionError(f"the aggregate names {name!r}, which SELECT does not keep\nhint: {hint}")
    return replace(plan, measures=measures, aggregate=aggregate, weights=_weights(plan, operand))


def _weights(plan: LogicalPlan, operand: Expression) -> Linear | Rejection:
    """Return the terms of an aggregate that lists no matches, else the reason to list them."""
    if plan.chain is None or plan.relates:
        return Rejection(plan.why_not_chain or "the pattern is no chain")
    if plan.strategy is not ALL:
        return Rejection(f"the strategy is {plan.strategy.name}")
    if plan.trailing:
        return Rejection("the pattern ends with an absence")
    for clause, is_present in (
        ("PARTITION BY", plan.partition),
        ("CONSUME BY", plan.consume != "NONE"),
        ("LIMIT", plan.limit is not None),
    ):
        if is_present:
            return Rejection(f"the query has {clause}")
    if any(step.neighbour for step in plan.chain):
        return Rejection("events are to be neighbours")
    if n_sums(plan.chain) > MAX_ROWS:
        return Rejection("the pattern has many steps")
    return linear(operand, plan.chain)


def output_of(plan: LogicalPlan, name: str) -> type[Output]:
    """Return the output of a name for a plan.

    Raises
    ------
    OptionError
        When there is none of that name, or the query cannot have it.
    """
    if plan.reads_symbols:
        return EventsRead
    if name not in OUTPUTS:
        hint = did_you_mean(str(name), OUTPUTS, "outputs")
        raise OptionError(f"output must be one of {', '.join(OUTPUTS)}, got {name!r}\nhint: {hint}")
    output = OUTPUTS[name]
    if output.counted and plan.aggregate is not None and plan.aggregate.function != "COUNT" and not plan.pipes:
        return Weighed if isinstance(plan.weights, Linear) else Aggregated
    reason = why_not_output(plan, output)
    if reason is not None:
        raise OptionError(reason)
    return output


def why_not_output(plan: LogicalPlan, output: type[Output]) -> str | None:
    """Return the reason why a query cannot have an output, with a hint, or None if it can."""
    if plan.pipes and (output.counted or output.by_starts or output.most_at_an_end == 1):
        return (
            f"{plan.pipes[0].kind} chooses among matches, which the output {output.name!r} does not list\n"
            "hint: output='positions', 'bindings', 'events', 'rows' or 'measures'"
        )
    if output.by_starts:
        try:
            funnel_of(plan)
        except NoFunnelError as error:
            reason, hint = error.args
            return (
                "output='funnel' tells how far each start of a chain of single events gets, and the query is none: "
                f"{reason}\nhint: {hint}"
            )
        return None
    if output.measured and not plan.measures.measures:
        return (
            "output='measures' shows the measures of SELECT, and the query has none\n"
            "hint: name some: SELECT a.price, COUNT(b) AS n, MAX(b.price) FROM ..."
        )
    if plan.having is not None and not output.may_choose:
        those = " or ".join(repr(each.name) for each in OUTPUTS.values() if each.may_choose)
        return (
            f"HAVING chooses among valuations, which the output {output.name!r} does not list one by one\n"
            f"hint: output={those}"
        )
    return None
