"""Logical plan: the query, without the choice of its evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cer_gpu.automaton.atom_graph import AtomGraph
from cer_gpu.automaton.cea import CEA
from cer_gpu.automaton.chain import ChainStep, Rejection, are_spaced
from cer_gpu.automaton.normal_form import Guard, NormalForm
from cer_gpu.automaton.parallel_pattern import ParallelPattern
from cer_gpu.automaton.recent_pattern import RecentPattern
from cer_gpu.automaton.strategies import Strategy
from cer_gpu.ceql.functions import DESCENDANT
from cer_gpu.ceql.one_event import EventTest, name_test
from cer_gpu.ceql.paths import dotted
from cer_gpu.ceql.step_keys import StepwiseKeys
from cer_gpu.ceql.syntax import (
    Apart,
    Expression,
    HeadVariable,
    LetColumn,
    Name,
    OverAggregate,
    Pipe,
    Predicate,
    QuerySyntax,
    Within,
    aggregates_in,
    attributes,
)
from cer_gpu.output.bound_measures import NO_MEASURES, QueryMeasures
from cer_gpu.output.reductions import Aggregation
from cer_gpu.output.weights import Linear


@dataclass(frozen=True)
class Every:
    """LIMIT n EVERY d: at most `n` matches of a partition in any length `within`."""

    n: int
    within: Within


@dataclass(frozen=True)
class LogicalPlan:
    """A compiled query: the automaton, the clauses, and the options of `cer_gpu.compile`.

    Attributes
    ----------
    syntax : QuerySyntax
        The checked query.
    formula : NormalForm
        Its pattern in LP-normal form.
    pattern : NormalForm
        The formula that is evaluated: `formula`, or one with the matches that an absence at its end may retract.
    guards : tuple of Guard
        Tests of single events.
    cea : CEA or None
        Automaton of the pattern, without its join predicates, or None if it has a conjunction.
    graph : AtomGraph or None
        Atoms of a pattern with join predicates, or with a conjunction, or None if it has neither, or is
        `parallel`.
    parallel : ParallelPattern or None
        The pattern as a parallelised automaton, where its joins allow that.
    why_not_parallel : str or None
        Reason why they do not.
    recent : RecentPattern or None
        The pattern as SELECT RECENT evaluates it, or None for another strategy.
    chain : tuple of ChainStep or None
        Steps of a pattern that stacks can evaluate in place of the automaton.
    why_not_chain : str or None
        Reason why there is no chain.
    variables : tuple of str
        Columns of "bindings".
    attributes : tuple of Name or None
        Attributes of the events in "events", or None for all columns.
    head : tuple of HeadVariable or None
        Head of a conjunctive query, whose matches are choices of an event for each atom; None for others.
    unread : tuple of Name
        Attributes of the atoms that nothing reads, but events must have.
    relations : tuple of (str, tuple of str)
        Columns of types whose atoms have arguments by position.
    chooses_first : bool
        True if the strategy chooses before the window drops what is longer (THEN WITHIN).
    every : Every or None
        LIMIT n EVERY d, whose n is the limit at each end, too.
    trailing : bool
        True if the pattern ends with an absence: its matches are pending (`cer_gpu.planning.pattern_spans`).
    lasts : Within or None
        Length for which they are pending after their last event (FOR), or None if until the window from their first
        event has passed.
    measures : QueryMeasures
        Measures of SELECT, and HAVING.
    pipes : tuple of Pipe
        Choices among all results, after all clauses.
    moved_joins : tuple of Predicate
        Join predicates over neighbours, which are predicates over one event (`cer_gpu.planning.neighbour_joins`).
    reads_symbols : bool
        True: no match is searched, and each event is output with its symbol (`cer_gpu.planning.state_steps`).
    aggregate : Aggregation or None
        Aggregate that "count" shows in place of the number of matches; `measures` has its expression.
    weights : Linear or Rejection or None
        The terms of the aggregate, by which nothing need be listed, or the reason why matches are.
    step_keys : StepwiseKeys or None
        Keys of events by the steps of `recent`, in place of `partition`.
    tests_starts : bool
        True: the plan of a funnel whose starts are tested one by one, by the tests of `recent`.
    """

    text: str
    syntax: QuerySyntax = field(compare=False, repr=False)
    formula: NormalForm = field(compare=False, repr=False)
    pattern: NormalForm = field(compare=False, repr=False)
    guards: tuple[Guard, ...]
    cea: CEA | None
    graph: AtomGraph | None
    parallel: ParallelPattern | None
    why_not_parallel: str | None
    chain: tuple[ChainStep, ...] | None
    why_not_chain: str | None
    strategy: Strategy
    variables: tuple[str, ...]
    attributes: tuple[Name, ...] | None
    head: tuple[HeadVariable, ...] | None
    unread: tuple[Name, ...]
    streams: tuple[str, ...]
    partition: tuple[tuple[Name, ...], ...]
    within: Within | None
    consume: str
    limit: int | None
    every: Every | None
    type_column: str | None
    time_column: str | None
    time_unit: str | None
    relations: tuple[tuple[str, tuple[str, ...]], ...] = ()
    chooses_first: bool = False
    trailing: bool = False
    lasts: Within | None = None
    measures: QueryMeasures = NO_MEASURES
    aggregate: Aggregation | None = None
    weights: Linear | Rejection | None = None
    recent: RecentPattern | None = None
    pipes: tuple[Pipe, ...] = ()
    moved_joins: tuple[Predicate, ...] = ()
    reads_symbols: bool = False
    step_keys: StepwiseKeys | None = None
    tests_starts: bool = False

    @property
    def identity(self) -> dict[str, Any]:
        """Facts that identify the query: its text, and the options of its compilation."""
        facts: dict[str, Any] = {
            name: getattr(self, name) for name in ("text", "type_column", "time_column", "time_unit")
        }
        return {**facts, "relations": [[name, list(columns)] for name, columns in self.relations or ()]}

    @property
    def having(self) -> Predicate | None:
        """Condition of HAVING."""
        return self.measures.having

    @property
    def single(self) -> frozenset[str]:
        """Columns of "bindings" that hold at most one event."""
        return frozenset(name for name in self.variables if name.rpartition(">")[2] in self.measures.single)

    @property
    def negates(self) -> bool:
        """True if some event of the pattern must not satisfy a guard."""
        if self.cea is not None:
            return any(t.negated or any(negated for _, negated in t.barred) for t in self.cea.transitions)
        graph = self.graph if self.parallel is None else self.parallel.graph
        if graph is None:  # each event is read, whatever it satisfies
            return False
        return any(negated for atom in graph.atoms for _, negated in atom.tests)

    @property
    def relates(self) -> bool:
        """True if the pattern has join predicates, or a conjunction."""
        return self.graph is not None or self.parallel is not None

    @property
    def is_spaced(self) -> bool:
        """True if stacks evaluate the windows within the pattern, and gaps at each step, as bounds of a chain."""
        return self.chain is not None and are_spaced(self.chain)

    @property
    def counts_positions(self) -> bool:
        """True if a filter compares the positions of events in the stream, or in the substream of PARTITION BY."""
        return any(each.within.kind == "events" for each in self.distances)

    @property
    def distances(self) -> list[Apart]:
        """Bounds on the distance of two events, by windows within the pattern."""
        return [predicate for predicate in self.predicates if isinstance(predicate, Apart)]

    @property
    def event_types(self) -> tuple[str, ...]:
        """The types of events that the query names, in its pattern and in its OVER aggregates, each once."""
        tests: list[EventTest] = [
            *self.guards,
            *(name_test(aggregate.event) for aggregate in self.over_aggregates if aggregate.event is not None),
        ]
        types = dict.fromkeys(test.event_type for test in tests if test.event_type is not None)
        return () if self.type_column is None else tuple(types)

    @property
    def looks_back(self) -> bool:
        """True if a predicate reads earlier events of the stream: ``LAG``, or an OVER aggregate."""
        return self.longest_lag > 0 or bool(self.over_aggregates)

    @cached_property
    def made_columns(self) -> tuple[LetColumn, ...]:
        """Columns of LET that are made from the events, each after those that it reads."""
        return tuple(column for column in self.syntax.let if column.is_made)

    @property
    def _values(self) -> list[Expression | Predicate]:
        """Predicates, and expressions of columns that are made."""
        return [*self.predicates, *(column.expression for column in self.made_columns)]

    @cached_property
    def longest_lag(self) -> int:
        """Most events that ``LAG`` goes back, or 0 if there is none."""
        return max((each.lag for node in self._values for each in attributes(node)), default=0)

    @property
    def lags_beyond_match(self) -> bool:
        """True if ``LAG`` reads events that need not be of the match."""
        return any(each.lag and not each.in_match for node in self._values for each in attributes(node))

    @cached_property
    def over_aggregates(self) -> list[OverAggregate]:
        """OVER aggregates in the predicates, and in their own filters, each once."""
        return list(dict.fromkeys(aggregate for node in self._values for aggregate in aggregates_in(node)))

    @property
    def tests_descent(self) -> bool:
        """True if a predicate tests whether a process descends from another, which any event before may decide."""
        return any(aggregate.function == DESCENDANT for aggregate in self.over_aggregates)

    @property
    def nests_over_aggregates(self) -> bool:
        """True if an OVER aggregate reads another one."""
        back = {c.column for c in self.made_columns if any(each.looks_back for each in attributes(c.expression))}
        return any(
            aggregate.attribute in back or any(True for below in aggregate.below for _ in aggregates_in(below))
            for aggregate in self.over_aggregates
        )

    @property
    def predicates(self) -> list[Predicate]:
        """Predicates on single events, and between events."""
        tests = [guard.predicate for guard in self.guards if guard.predicate is not None]
        if self.parallel is not None:
            return [*tests, *self.parallel.predicates]
        if self.recent is not None:
            return [*tests, *self.recent.equalities, *self.recent.predicates]
        return tests if self.graph is None else [*tests, *(relation.predicate for relation in self.graph.relations)]

    @property
    def chooses_within(self) -> bool:
        """True if there is a window, and matches rule out only those within it."""
        return self.strategy.compares and self.within is not None and not self.chooses_first

    @property
    def several_streams(self) -> bool:
        """True if FROM names several streams, so that events need a column of streams."""
        return len(self.streams) > 1

    @property
    def partition_keys(self) -> tuple[tuple[str, ...], ...]:
        """Column names in each bracket of PARTITION BY."""
        return tuple(tuple(name.name for name in names) for names in self.partition)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the columns of keys in results."""
        if self.step_keys is not None:
            return self.step_keys.columns
        return tuple(dotted(names[0].name) for names in self.partition)

    @property
    def nullable_partition_keys(self) -> frozenset[tuple[str, ...]]:
        """Brackets of PARTITION BY for which NULL is a value like any other."""
        return frozenset(
            tuple(name.name for name in names) for names in self.partition if any(name.nullable for name in names)
        )

    @property
    def window(self) -> str | None:
        """Kind of the window: "events", "time" or "attribute", or None if there is no window."""
        return None if self.within is None else self.within.kind

    @property
    def window_attribute(self) -> str | None:
        """Column of WITHIN n [attribute]."""
        return None if self.within is None or self.within.attribute is None else self.within.attribute.name
