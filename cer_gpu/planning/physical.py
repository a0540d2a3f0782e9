"""Physical plan: model, runtime, distribution and buffering of events, with the reasons.

`PhysicalPlan` is a value.  `explain`, threads, Spark's strategies and shards all read it, and so does the evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache

from cer_gpu.automaton.alphabet import Table
from cer_gpu.automaton.atom_graph import AtomGraph, AtomTable, build_atom_graph
from cer_gpu.automaton.chain import Chain, Rejection, are_neighbours, nests_windows
from cer_gpu.automaton.chain_sums import MAX_ROWS, n_sums
from cer_gpu.automaton.determinize import Determinization
from cer_gpu.automaton.keyed_recent import KeyedRecentTable, RecentTable
from cer_gpu.automaton.latest_starts import WindowTable
from cer_gpu.automaton.normal_form import Repeat, Then, is_plain
from cer_gpu.automaton.parallel_pattern import ParallelTable
from cer_gpu.automaton.recent_pattern import RecentPattern
from cer_gpu.automaton.recogniser import Recogniser, RecogniserTable, build_recogniser
from cer_gpu.automaton.rma import SharedRegisterError
from cer_gpu.automaton.rma_construction import UnboundedFilterError
from cer_gpu.automaton.semi_joins import SemiJoin, semi_joins
from cer_gpu.automaton.strategies import ALL, Strategy
from cer_gpu.ceql.traversal import walk
from cer_gpu.errors import QueryTooLargeError
from cer_gpu.output.form import Output
from cer_gpu.output.outputs import Aggregated, BindingsOutput, CountedEnds, Ends, EventsOutput, PositionsOutput
from cer_gpu.planning.distribution import Distribution, distribution_by_starts, distribution_of
from cer_gpu.planning.outputs import funnel_of
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.runtime.progress.table import FunnelTable, KeyedFunnelTable
from cer_gpu.runtime.reading.symbols import EventTable
from cer_gpu.runtime.registry import RUNTIMES

WIDEST = 6
"""Longest window, in events, for which a recogniser is tried."""

MAX_FILTERED_ATOMS = 63
"""Most atoms of a pattern whose events are filtered by their neighbours: a word has a bit for each, and one more."""

_LISTS_BY_EVENTS = ("instances", "stacks", "keyed_stacks")
"""Runtimes that list the matches of one end in the order of their events, whatever other events are."""
_OF_NEIGHBOURS = ("neighbours", "neighbour_counter")
"""Runtimes that read neighbours alone, as quickly as they would be filtered."""


def recogniser_of(plan: LogicalPlan) -> Recogniser | None:
    """Return the recogniser of a plan for the ends of its matches, or None if it has none.

    There is none for a conjunction, for absences, options and counted repetitions, for a window of more than `WIDEST`
    events, partitions, several streams, CONSUME BY, LIMIT and strategies, for windows within the pattern, for filters
    that registers cannot test, and where the automaton is too large.
    """
    if plan.graph is None or plan.cea is None or plan.distances:
        return None
    if plan.partition or plan.several_streams or plan.consume != "NONE" or plan.limit is not None:
        return None
    if plan.within is None or plan.within.kind != "events" or plan.within.length >= WIDEST + 1:
        return None
    if plan.strategy.name != "ALL":
        return None
    return _cached_recogniser(
        _RecogniserKey(plan.text, plan.relations, plan.type_column, int(plan.within.length), plan)
    )


@dataclass(frozen=True)
class _RecogniserKey:
    """Query and window that a recogniser is made for; equal queries share it, whatever else their plans say."""

    text: str
    relations: tuple[tuple[str, tuple[str, ...]], ...]
    type_column: str | None
    width: int
    plan: LogicalPlan = field(compare=False)


@lru_cache(maxsize=32)
def _cached_recogniser(key: _RecogniserKey) -> Recogniser | None:
    plan = key.plan
    if plan.graph is None or not is_plain(plan.formula):
        return None
    try:
        return build_recogniser(plan.formula, plan.graph, plan.guards, key.width)
    except (UnboundedFilterError, QueryTooLargeError, SharedRegisterError):
        return None


class Model(StrEnum):
    """Automaton models."""

    CEA = "CEA"
    RMA = "RMA"
    PCEA = "PCEA"


@dataclass(frozen=True)
class PhysicalPlan:
    """Plan of the evaluation of one query for one output.

    Attributes
    ----------
    plan : LogicalPlan
        Without clauses that have no influence on the output.
    output : type of Output
    model : Model
    runtime : str
        One of `cer_gpu.runtime.registry.RUNTIMES`.
    reason : str
        Reason for the runtime, which `explain` shows.
    defers_events : bool
        True: events are buffered until one may end a match (`cer_gpu.runtime.deferred_events`).
    distribution : Distribution
    waits : bool
        True: matches are pending until the end of their window (`cer_gpu.engine.pending_matches`), where `limit`
        applies; or starts are pending until something stops them (`cer_gpu.engine.pending_results`).
    strategy : Strategy
        Choice among the pending ones.
    limit : int
        Most of them at one end; 0 for all.
    """

    plan: LogicalPlan
    output: type[Output]
    model: Model
    runtime: str
    reason: str
    defers_events: bool
    distribution: Distribution
    waits: bool = False
    strategy: Strategy = ALL
    limit: int = 0

    @property
    def engine(self) -> str:
        """Family of the runtime (`Runtime.engine`)."""
        return RUNTIMES[self.runtime].engine

    @property
    def labelled(self) -> bool:
        """True if matches that differ only in the variables of their events are different."""
        return self.waits or self.output.is_labelled(self.plan.head)

    @property
    def counted(self) -> bool:
        """True if the runtime counts matches instead of listing them."""
        return self.output.counted and not self.waits

    @property
    def limits_rows(self) -> bool:
        """True if LIMIT applies to the rows that HAVING selects, and not to the matches that are listed."""
        return self.plan.having is not None and self.plan.limit is not None and self.output.may_choose

    @cached_property
    def semi_joins(self) -> list[SemiJoin] | Rejection:
        """Semi-joins that drop events without partners unread, or the reason why there are none."""
        plan = self.plan
        if plan.parallel is None:
            return Rejection("the pattern has no parallelised automaton")
        if self.waits:
            return Rejection("matches wait for the end of their windows")
        if plan.within is None:
            return Rejection("there is no WITHIN, so that a partner may come at any time")
        if plan.partition and plan.within.kind == "events":
            return Rejection("the window counts the events of each partition")
        return semi_joins(plan.parallel)

    @property
    def counts_keys(self) -> bool:
        """True if an event costs the runtime about as much as a look for its partners."""
        return self.runtime == "conjunction_counter"

    @cached_property
    def contiguity(self) -> AtomGraph | None:
        """Graph by which events are dropped whose neighbours fit no place of the pattern, or None if all are read."""
        plan = self.plan
        if self.waits or self.output.each_event or plan.recent is not None or plan.parallel is not None:
            return None  # other events decide, too
        if not (self.reorders or self.runtime in _LISTS_BY_EVENTS) or self.runtime in _OF_NEIGHBOURS:
            return None
        if not any(isinstance(node, Then | Repeat) and node.contiguous for node in walk(plan.pattern)):
            return None
        try:
            graph = plan.graph or build_atom_graph(plan.pattern, plan.guards, frozenset())
        except QueryTooLargeError:
            return None
        return graph if len(graph.atoms) <= MAX_FILTERED_ATOMS else None

    @cached_property
    def is_of_single_events(self) -> bool:
        """True if each match is one event that satisfies the only guard, and no clause chooses among them."""
        plan, cea = self.plan, self.plan.cea
        if cea is None or len(cea.transitions) != 1 or cea.silent or len(plan.guards) != 1 or self.labelled:
            return False
        (transition,) = cea.transitions
        if (
            transition.negated
            or transition.barred
            or not transition.selected
            or plan.partition
            or plan.consume != "NONE"
        ):
            return False
        clauses = plan.recent, plan.head, plan.having, plan.every, plan.aggregate
        chooses = self.waits or plan.limit == 0 or bool(plan.pipes) or any(each is not None for each in clauses)
        return not chooses and self.output in (PositionsOutput, EventsOutput, Ends)

    @property
    def reorders(self) -> bool:
        """True if the order of the matches of one end does not matter."""
        return self.counted or (self.output.most_at_an_end == 1 and not self.waits)

    @property
    def distributes_rows(self) -> bool:
        """True if a shard is a part of the decided or chosen matches, and the runtime finds all."""
        chosen_later = self.plan.every is not None or bool(self.plan.pipes)
        return self.limits_rows or self.waits or self.output.whole_ends or chosen_later

    def table(self) -> Table:
        """Make the table that gives events their symbols."""
        plan = self.plan
        if self.output.each_event:
            return EventTable()
        if self.output.by_starts:
            steps = funnel_of(plan)
            if isinstance(steps, RecentPattern):
                return RecentTable(steps)
            return KeyedFunnelTable(steps) if steps[0].keys else FunnelTable(steps)
        if plan.recent is not None:
            keys = plan.step_keys
            return RecentTable(plan.recent) if keys is None else KeyedRecentTable(plan.recent, keys)
        if plan.parallel is not None:
            return ParallelTable(plan.parallel, strict=plan.strategy.consecutive)
        if plan.graph is not None and self.runtime == "recogniser":
            recogniser = recogniser_of(plan)
            assert recogniser is not None
            return RecogniserTable(plan.graph, recogniser)
        if plan.graph is not None:
            return AtomTable(plan.graph, strict=plan.strategy.consecutive)
        if RUNTIMES[self.runtime].reads_chain:
            assert plan.chain is not None
            return Chain(plan.chain)
        assert plan.cea is not None
        if plan.chooses_within:
            return WindowTable(plan.cea, plan.strategy, labelled=self.labelled)
        return Determinization(plan.cea, plan.strategy, labelled=self.labelled)


@dataclass(frozen=True)
class _PlanRequest:
    """Facts on which the choice of a runtime depends."""

    plan: LogicalPlan
    output: type[Output]
    shard: bool

    @property
    def tests_starts(self) -> bool:
        """True if starts are tested one by one."""
        return self.output.by_starts and isinstance(funnel_of(self.plan), RecentPattern)

    @property
    def relates(self) -> bool:
        """True if the pattern has join predicates."""
        return self.plan.graph is not None

    @property
    def gathers(self) -> bool:
        """True if the pattern is a parallelised automaton."""
        return self.plan.parallel is not None

    @property
    def counts_conjunction(self) -> bool:
        """True if the matches of a conjunction can be counted by keys: each event has one place in it."""
        plan, pattern = self.plan, self.plan.parallel
        if pattern is None or plan.partition or not (self.output.counted and not self.output.weighed):
            return False
        whole = pattern.n_conjunction == len(pattern.graph.atoms) > 1
        alone = whole and not pattern.shares_events and not pattern.ambiguous
        return alone and self.finds_the_same and not plan.strategy.consecutive

    @property
    def pends(self) -> bool:
        """True if the strategy holds one pending partial match for each step and key."""
        return self.plan.recent is not None

    @property
    def branches(self) -> bool:
        """True if it does, and the steps are repeated, or may be left out."""
        return self.plan.recent is not None and self.plan.recent.graph is not None

    @property
    def recognises(self) -> bool:
        """True if only ends are requested, and a recogniser of few states finds them."""
        return self.output.most_at_an_end == 1 and recogniser_of(self.plan) is not None

    @property
    def is_chain(self) -> bool:
        """True if the pattern is a chain, and stacks can choose what the strategy does."""
        return self.plan.chain is not None and self.plan.strategy.on_chains

    @property
    def chooses_within(self) -> bool:
        """True if the strategy compares matches, and only those within the window."""
        return self.plan.chooses_within

    @property
    def counts_chain(self) -> bool:
        """True if the matches of a chain can be counted step by step."""
        steps = self.plan.chain or ()
        summed = self.is_chain and not any(step.neighbour for step in steps) and n_sums(steps) <= MAX_ROWS
        return self.output.counted and summed and not self.plan.partition and not self.plan.is_spaced

    @property
    def counts_paths(self) -> bool:
        """True if the matches of a chain with gaps can be counted along its stacks."""
        spaced = self.output.counted and self.is_chain and self.plan.is_spaced
        return spaced and not nests_windows(self.plan.chain or ())

    @property
    def lists_chain(self) -> bool:
        """True if instance stacks can list the matches of a chain."""
        # a step whose variables depend on the guard has no mark of its own
        labelled = self.output.is_labelled(self.plan.head)
        unclear = labelled and any(step.labels is None for step in self.plan.chain or ())
        return not self.output.counted and self.is_chain and not self.shard and not unclear

    @property
    def is_of_neighbours(self) -> bool:
        """True if each event of a match is right after the one before it, in its partition."""
        together = self.is_chain and bool(self.plan.partition) and are_neighbours(self.plan.chain or ())
        return together and not self.plan.is_spaced

    @property
    def finds_the_same(self) -> bool:
        """True if no match or count depends on events, or matches, before the window."""
        return self.plan.strategy.independent and self.plan.consume == "NONE"


@dataclass(frozen=True)
class Choice:
    """A runtime, the condition for its choice, the reason, the condition for buffering events, and the model."""

    runtime: str
    condition: Callable[[_PlanRequest], bool]
    reason: str
    may_hold_back: Callable[[_PlanRequest], bool]
    model: Model = Model.CEA


_STACKS = "the pattern is a chain; each step has a stack of events, and nothing is determinised"
_NEIGHBOURS = (
    "the pattern is a chain of neighbours; the last events of each partition are kept, and nothing is determinised"
)
_COUNTER = "matches are counted, not listed"

_KEY_COUNTER = "matches are counted by the values that they share, and not listed"

_WEIGHER = "matches are weighed as they are counted, not listed"

_INSTANCES = "each event is stored once per step that it satisfies, and found again by the join predicates"

_PRODUCTS = "partial matches are stored under the values that they share, and gathered by the event that joins them"

_WINDOWS = "each window in which a match ends is evaluated by itself, and {strategy} chooses within it"

_RECENT = "one partial match is pending per step and key, and an event advances it"

_BRANCHES = "one partial match is pending per step and key, and an event moves the one that started last"

_RECOGNISER = "only ends are requested, and one run with registers finds them"

_FUNNEL = "the pattern is a chain; the starts of a partition that wait for the same step advance together"

_TESTED = "each start that waits for a step is tested by the join predicates, or by what may lie in between"

_EVENTS = "each event is passed on as it is read"

CHOICES = (
    Choice("events", lambda request: request.output.each_event, _EVENTS, lambda request: False),
    Choice("tested_funnel", lambda request: request.tests_starts, _TESTED, lambda request: False),
    Choice("funnel", lambda request: request.output.by_starts, _FUNNEL, lambda request: False),
    Choice("recent_graph", lambda request: request.branches, _BRANCHES, lambda request: False),
    Choice("recent", lambda request: request.pends, _RECENT, lambda request: False),
    Choice(
        "conjunction_counter",
        lambda request: request.counts_conjunction,
        _KEY_COUNTER,
        lambda request: False,
        Model.PCEA,
    ),
    Choice("products", lambda request: request.gathers, _PRODUCTS, lambda request: request.finds_the_same, Model.PCEA),
    Choice("recogniser", lambda request: request.recognises, _RECOGNISER, lambda request: True, Model.RMA),
    Choice("instances", lambda request: request.relates, _INSTANCES, lambda request: request.finds_the_same, Model.RMA),
    Choice(
        "window_counter",
        lambda request: request.chooses_within and request.output.counted,
        _COUNTER,
        lambda request: True,
    ),
    Choice("window_lister", lambda request: request.chooses_within, _WINDOWS, lambda request: True),
    Choice("chain_weigher", lambda request: request.output.weighed, _WEIGHER, lambda request: True),
    Choice(
        "keyed_stack_counter",
        lambda request: request.counts_paths and bool(request.plan.partition),
        _COUNTER,
        lambda request: True,
    ),
    Choice("stack_counter", lambda request: request.counts_paths, _COUNTER, lambda request: True),
    Choice("chain_counter", lambda request: request.counts_chain, _COUNTER, lambda request: True),
    Choice(
        "neighbour_counter",
        lambda request: request.output.counted and request.is_of_neighbours,
        _COUNTER,
        lambda request: True,
    ),
    Choice("counter", lambda request: request.output.counted, _COUNTER, lambda request: request.finds_the_same),
    Choice(
        "neighbours",
        lambda request: request.lists_chain and request.is_of_neighbours,
        _NEIGHBOURS,
        lambda request: True,
    ),
    Choice(
        "keyed_stacks",
        lambda request: request.lists_chain and bool(request.plan.partition),
        _STACKS,
        lambda request: True,
    ),
    Choice("stacks", lambda request: request.lists_chain, _STACKS, lambda request: True),
    Choice("automaton", lambda request: True, "determinised on demand", lambda request: False),
)
"""The runtimes; the first whose condition holds is chosen."""


_OF_SPACED = ("stacks", "keyed_stacks", "stack_counter", "keyed_stack_counter")
"""Runtimes that know bounds on the distances of events within a chain."""


def physical_plan(plan: LogicalPlan, output: type[Output], *, shard: bool = False) -> PhysicalPlan:
    """Choose the runtime of a query, and the ways to distribute and buffer its events.

    Parameters
    ----------
    plan
    output
    shard
        True if only a shard of the matches is listed.
    """
    if output is Ends and plan.every is not None and plan.every.n > 1:
        output = CountedEnds  # each end takes as many of the n as it has matches
    if plan.trailing or (plan.step_keys is not None and plan.step_keys.samples):
        return _waiting_plan(plan, output)
    return _immediate_plan(plan, output, shard=shard)


def _immediate_plan(plan: LogicalPlan, output: type[Output], *, shard: bool = False) -> PhysicalPlan:
    """Return the plan of a pattern whose matches are decided where they end."""
    if output.most_at_an_end == 1:
        plan = _without_choice(plan)
    plan, chosen = _runtime_for(plan, output, shard)
    request = _PlanRequest(plan, output, shard)
    reason = chosen.reason.format(strategy=plan.strategy.name)
    why_not_chain = plan.why_not_chain if plan.strategy.on_chains else f"the strategy is {plan.strategy.name}"
    if chosen.runtime == "automaton" and why_not_chain is not None:
        reason += f" (no stacks: {why_not_chain})"
    if plan.distances:
        why = why_not_chain or _why_not_spaced(plan, output)
        reason += f" (no stacks for the windows within the pattern: {why})"
    elif plan.is_spaced and chosen.runtime in _OF_SPACED:
        reason += "; gaps and windows within the pattern bound how far back an event continues"
    if output is Aggregated and isinstance(plan.weights, Rejection):
        reason += f" (matches are listed for the aggregate: {plan.weights.reason})"
    waits = plan.within is not None and not plan.partition and not output.retains(plan.head, plan.having)
    return PhysicalPlan(
        plan,
        output,
        chosen.model,
        chosen.runtime,
        reason,
        waits and chosen.may_hold_back(request),
        distribution_by_starts(plan) if output.by_starts else distribution_of(plan),
        waits=output.by_starts,
    )


def _runtime_for(plan: LogicalPlan, output: type[Output], shard: bool) -> tuple[LogicalPlan, Choice]:
    """Choose a runtime; return the plan as it reads it, and the choice.

    Stacks take the windows within a chain as bounds, and other runtimes as join predicates.
    """
    if plan.is_spaced and plan.relates:
        alone = replace(plan, graph=None, parallel=None)
        chosen = next(choice for choice in CHOICES if choice.condition(_PlanRequest(alone, output, shard)))
        if chosen.runtime in _OF_SPACED:
            return alone, chosen
    request = _PlanRequest(plan, output, shard)
    return plan, next(choice for choice in CHOICES if choice.condition(request))


def _why_not_spaced(plan: LogicalPlan, output: type[Output]) -> str:
    """Return the reason why stacks do not evaluate a chain with windows within it."""
    if output.by_starts:
        return "each start is followed by itself"
    if output.counted:
        return "matches are counted, and there is a window within another"
    labelled = output.is_labelled(plan.head) and any(step.labels is None for step in plan.chain or ())
    return "an event of a step may be one of several variables" if labelled else "only a shard of the matches is listed"


def _waiting_plan(plan: LogicalPlan, output: type[Output]) -> PhysicalPlan:
    """Return the plan of a pattern with an absence at its end, or of samples: all that its runtime lists is pending."""
    of_rows = plan.having is not None and output.may_choose  # LIMIT comes after HAVING
    all_listed = replace(plan, strategy=ALL, limit=plan.limit if of_rows or not plan.limit else None, trailing=False)
    physical = _immediate_plan(all_listed, BindingsOutput)
    limit = plan.strategy.most_at_an_end or (0 if of_rows else plan.limit or 0)
    return replace(
        physical,
        output=output,
        defers_events=False,
        distribution=distribution_of(plan),
        waits=True,
        strategy=plan.strategy,
        limit=limit,
    )


def _without_choice(plan: LogicalPlan) -> LogicalPlan:
    """Return a plan without choices among the matches of one end, where each end has one of them in any case.

    The positions where matches end stay the same: those of `SELECT MAX ... WITHIN` are those of `SELECT ALL`.
    """
    keeps_one = plan.strategy.most_at_an_end or plan.strategy.compares
    if keeps_one and (plan.strategy.too_long is None or plan.within is None or plan.chooses_within):
        plan = replace(plan, strategy=ALL)
    graph = None if plan.graph is None else replace(plan.graph, ambiguous=False)
    parallel = None if plan.parallel is None else replace(plan.parallel, ambiguous=False)
    return replace(plan, graph=graph, parallel=parallel, limit=0 if plan.limit == 0 else None)
