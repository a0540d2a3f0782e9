"""Passes from a checked query to its plan, in their order, and the checks against a schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import pyarrow as pa

from cer_gpu.automaton.atom_graph import AtomGraph, build_atom_graph
from cer_gpu.automaton.cea import CEA, build_cea
from cer_gpu.automaton.chain import ChainStep, Rejection, are_neighbours, find_chain
from cer_gpu.automaton.normal_form import (
    Absent,
    Atom,
    Both,
    Either,
    Guard,
    NormalForm,
    Related,
    Repeat,
    Then,
    Trailing,
    absences,
    guards_of,
    normal_form,
    unrelated,
    variable_name,
)
from cer_gpu.automaton.parallel_pattern import NotParallelError, ParallelPattern, build_parallel
from cer_gpu.automaton.recent import NotRecentError, in_gaps
from cer_gpu.automaton.recent_graph import build_any_recent
from cer_gpu.automaton.recent_pattern import RecentPattern
from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.functions import NO_EVENT_WITHIN
from cer_gpu.ceql.one_event import may_be_one
from cer_gpu.ceql.scopes import one_predicate
from cer_gpu.ceql.syntax import (
    FilterOr,
    Name,
    Preceded,
    Predicate,
    QuerySyntax,
    Windowed,
    Within,
    attributes,
    lengths,
    relations,
    variable_filters,
)
from cer_gpu.ceql.traversal import children, fold, walk, with_children
from cer_gpu.ceql.variables import column_names
from cer_gpu.ceql.variables import variables as variables_of
from cer_gpu.columnar.clocks import time_column_type, window_length
from cer_gpu.columnar.fields import column_type
from cer_gpu.errors import QueryError
from cer_gpu.expressions.binder import Binder, type_errors
from cer_gpu.expressions.relations import RelationBinder
from cer_gpu.output.bound_measures import QueryMeasures, measures_of, type_errors_of
from cer_gpu.partition.partitions import PartitionKeys
from cer_gpu.partition.step_keys import KeysByStep
from cer_gpu.planning.column_binding import let_errors
from cer_gpu.planning.neighbour_joins import without_neighbour_joins
from cer_gpu.planning.pattern_spans import Spans, followed, hoisted, lasts_for, window_of
from cer_gpu.planning.plan import Every, LogicalPlan
from cer_gpu.planning.spaced_chains import spaced_chain
from cer_gpu.predicates.guards import type_column_type


@dataclass(frozen=True)
class _Silence:
    """An absence after a part of a pattern: compared with the last event of the part, and the filter that does it."""

    absent: Absent
    near: s.Relation


_Spread = tuple[NormalForm, list[_Silence]]


class Silences:
    """Rewriting of the absences with FOR in the middle of one pattern, as in ``(f ; !R FOR d) ; g``.

    R comes after the end of f in one of three places: in a gap between two later events of the match, at such an event,
    or after the last one.  The absence thus becomes one in each gap that follows, a test of each event that follows,
    and one at the end of the pattern; all of them compare the clock of R with that of the last event of f.

    Parameters
    ----------
    spans
        Makes the filters that compare clocks.
    text
        The query, for messages.
    """

    def __init__(self, spans: Spans, text: str) -> None:
        self._spans, self._text = spans, text
        # by the span of FOR in the text, which copies share: hidden definitions of the event before, and of the absent
        self._sites: dict[s.Span, tuple[int, int]] = {}

    def spread(self, formula: NormalForm, length: s.Within | None) -> NormalForm:
        """Return a whole pattern whose absences with FOR are all in gaps, or at its end.

        Parameters
        ----------
        formula
        length
            Longest FOR after a part of the pattern, and after the whole (`cer_gpu.planning.pattern_spans.lasts_for`).

        Raises
        ------
        QueryError
            When an event that follows could be the absent one, and only a filter within the absence decides it.
        """
        body, ending = (formula.body, formula.absent) if isinstance(formula, Trailing) else (formula, ())
        pending: list[_Silence] = []
        if any(absent.length is not None for absent in absences(body)):
            body, pending = fold(body, self._spread, children)
        own: list[Absent] = []
        for absent in ending:
            if absent.length is None or absent.length == length:
                own.append(replace(absent, length=None))
            else:
                body, silence = self._before_absence(body, absent, absent.length)
                own.append(silence.absent)
        own += (silence.absent for silence in pending)
        return Trailing(body, tuple(own), length) if own else body

    def _spread(self, formula: NormalForm, below: list[_Spread]) -> _Spread:
        """Return a part of the pattern, and the absences that reach beyond it; no absence with FOR is elsewhere."""
        match formula:
            case Then():
                (left, pending), (right, later) = below
                between: list[Absent] = []
                for absent in formula.absent:
                    if absent.length is None:
                        between.append(absent)
                    else:
                        left, silence = self._before_absence(left, absent, absent.length)
                        pending = [*pending, silence]
                right = reduce(self._without_absent, pending, right)
                gap = () if formula.contiguous else (*between, *(silence.absent for silence in pending))
                return replace(formula, left=left, right=right, absent=gap), [*pending, *later]
            case Related():
                return replace(formula, body=below[0][0]), below[0][1]
            case Either():
                # copies, for a disjunction of filters: the same absences reach beyond both
                (left, pending), (right, others) = below
                assert pending == others
                return Either(left, right), pending
        return formula, []

    def _before_absence(self, left: NormalForm, absent: Absent, length: s.Within) -> tuple[NormalForm, _Silence]:
        """Return the part before an absence, which names its last event, and the absence."""
        event = Atom(absent.guard, frozenset(), absent.negated, absent.sites, absent.stream)
        sites = self._sites.setdefault(length.span, self._spans.two_sites())
        left, marked, near = self._spans.following_within(left, event, length, sites)
        assert isinstance(marked, Atom)
        own = replace(absent, relations=(*absent.relations, near), sites=marked.sites, length=None)
        return left, _Silence(own, near)

    def _without_absent(self, formula: NormalForm, silence: _Silence) -> NormalForm:
        """Return a part that follows an absence: none of its events is the absent one, nor is one in its gaps."""

        def without(part: NormalForm, below: list[NormalForm]) -> NormalForm:
            match part:
                case Atom():
                    return self._other(part, silence)
                case Both():
                    raise self._silence_error(silence, "ALL follows an absence FOR a time")
                case Then() | Repeat() if not part.contiguous:
                    part = replace(part, absent=(*part.absent, silence.absent))
            rebuilt: NormalForm = with_children(part, below)
            return rebuilt

        return fold(formula, without, children)

    def _other(self, atom: Atom, silence: _Silence) -> NormalForm:
        """Return an event that is not the absent one, or comes after its time."""
        absent = silence.absent
        if not may_be_one(((absent.guard, absent.negated), (atom.guard, atom.negated))):
            return atom
        negated = atom.negated or absent.negated
        if not negated and absent.guard.predicate is None and len(absent.relations) == 1:
            predicate = s.Not(silence.near.predicate, silence.near.span)
            (site,) = (site for role in silence.near.roles[:1] for site in role.sites)
            return Related(replace(atom, sites=atom.sites | {site}), replace(silence.near, predicate=predicate))
        raise self._silence_error(
            silence, "what follows an absence FOR a time could itself be the event that must be absent"
        )

    def _silence_error(self, silence: _Silence, message: str) -> QueryError:
        return QueryError(message, self._text, *silence.near.span, hint=_HINT)


_HINT = "let an event of another type follow, or leave the filter out of the absence; of the whole gap it is A ; !B ; C"


def preceded(formula: NormalForm, absences: Sequence[s.Absence]) -> NormalForm:
    """Return the matches of a formula before whose first event none of the absent ones comes.

    ``!(R) FOR d ; f`` holds for the matches of f whose first event is clear of R: no R comes strictly before it and
    at most d before it.  That is a test of one event, so that it moves to the atoms that may be the first one.
    """
    tests = [_clear_of(absence) for absence in absences]
    return beginning_with(formula, tests[0] if len(tests) == 1 else s.joined(s.And, tests, absences[0].span))


def _clear_of(absence: s.Absence) -> s.Comparison:
    assert absence.length is not None
    predicate = None if absence.filter is None else one_predicate(absence.filter)
    event = None if absence.event.name == s.ANY_TYPE else absence.event
    aggregate = s.OverAggregate(NO_EVENT_WITHIN, event, None, predicate, absence.length, absence.span)
    column = s.Attribute(f"`!{absence.event.name}`", absence.span, aggregate=aggregate)
    return s.Comparison("=", column, s.Literal(True, "", absence.span), absence.span)


def beginning_with(formula: NormalForm, test: s.Predicate) -> NormalForm:
    """Return the matches of a formula whose first event passes a test.

    A sequence whose first part may be missing becomes an alternative for each case; of an iteration, the first one
    is by itself.  A first event that is negated, and conjunctions, are refused earlier.
    """
    match formula:
        case Atom():
            assert not formula.negated
            own = formula.guard.predicate
            predicate = test if own is None else s.joined(s.And, [own, test])
            return replace(formula, guard=replace(formula.guard, predicate=predicate))
        case Either():
            return Either(beginning_with(formula.left, test), beginning_with(formula.right, test))
        case Then():
            with_left = replace(formula, left=beginning_with(formula.left, test), optional=(False, formula.optional[1]))
            return Either(with_left, beginning_with(formula.right, test)) if formula.optional[0] else with_left
        case Repeat():
            first = beginning_with(formula.body, test)
            if formula.n_max == 1:
                return first
            n_max = None if formula.n_max is None else formula.n_max - 1
            others = formula.body if n_max == 1 else replace(formula, n_min=max(formula.n_min - 1, 1), n_max=n_max)
            return Then(first, others, formula.contiguous, formula.absent, (False, formula.n_min == 1))
        case Related() | Trailing():
            return replace(formula, body=beginning_with(formula.body, test))
    raise AssertionError(f"refused before: {formula}")


@dataclass
class Draft:
    """Plan under construction: each pass sets what later passes read.

    Attributes
    ----------
    in_parallel : bool
        True if the pattern may become a parallelised automaton.
    spans : Spans
        Maker of filters for windows within the pattern.
    selected : frozenset of str
        Variables whose events are selected.
    pattern : NormalForm
        The formula that is evaluated: `formula`, or that of an absence at its end (`cer_gpu.planning.pattern_spans`).
    alone : NormalForm
        `pattern` without its join predicates.
    chain : tuple of ChainStep or Rejection
        Steps of `alone` as a chain, or the reason why it is none.
    steps : tuple of ChainStep or Rejection
        Steps that stacks evaluate in place of an automaton, or the reason why there are none.

    The others are those of `LogicalPlan`.
    """

    syntax: QuerySyntax
    type_column: str | None
    in_parallel: bool
    spans: Spans
    measures: QueryMeasures = field(init=False)
    variables: tuple[str, ...] = field(init=False)
    attributes: tuple[Name, ...] | None = None
    selected: frozenset[str] = field(init=False)
    formula: NormalForm = field(init=False)
    within: Within | None = None
    lasts: Within | None = None
    pattern: NormalForm = field(init=False)
    trailing: bool = False
    alone: NormalForm = field(init=False)
    guards: tuple[Guard, ...] = field(init=False)
    conjunction: bool = field(init=False)
    chain: tuple[ChainStep, ...] | Rejection = field(init=False)
    steps: tuple[ChainStep, ...] | Rejection = field(init=False)
    parallel: ParallelPattern | None = None
    why_not_parallel: str | None = None
    graph: AtomGraph | None = None
    recent: RecentPattern | None = None
    cea: CEA | None = None
    moved_joins: tuple[Predicate, ...] = ()

    @property
    def relates(self) -> bool:
        """True if the pattern has join predicates, or a conjunction."""
        return self.conjunction or self.alone is not self.pattern

    @property
    def n_steps(self) -> int:
        """Number of steps of the chain, or 0 if there is none."""
        return 0 if isinstance(self.chain, Rejection) else len(self.chain)


def _selection_pass(draft: Draft) -> None:
    """Find the variables and attributes that SELECT and its measures name."""
    syntax = draft.syntax
    draft.measures = measures_of(syntax, variables_of(syntax.formula))
    items, everything = syntax.select.items, column_names(syntax.formula)
    variables = everything if items is None else [variable_name(item.variable) for item in items]
    for name in draft.measures.variables:
        variables += everything if name is None else [name]
    draft.variables, draft.selected = tuple(dict.fromkeys(variables)), frozenset(variables)
    written = [item for item in items or () if item.written]
    if written and all(item.attributes is not None for item in written):
        draft.attributes = tuple({name.name: name for item in written for name in item.attributes or ()}.values())


def _normalise(draft: Draft) -> None:
    """Move every filter to the event that it filters, and make filters of the windows within the pattern."""
    syntax, spans = draft.syntax, draft.spans
    streams, typed = [name.name for name in syntax.streams], draft.type_column is not None

    def windows(body: NormalForm, formula: Windowed | Preceded) -> NormalForm:
        if isinstance(formula, Preceded):
            return preceded(body, formula.absent)
        return spans.windowed(body, formula.within)

    draft.formula = normal_form(syntax.formula, typed=typed, streams=streams, windows=windows)
    draft.lasts = lasts_for(syntax.formula)
    draft.formula = Silences(spans, syntax.text).spread(draft.formula, draft.lasts)
    if syntax.each_step is not None:
        draft.formula = spans.each_step(draft.formula, syntax.each_step)
    draft.within = window_of(syntax, draft.formula)


def _follow(draft: Draft) -> None:
    """Replace an absence at the end by the event that would retract the match that it follows."""
    waiting = followed(draft.formula, draft.spans, draft.syntax.within)
    draft.trailing, draft.pattern = waiting is not None, waiting or draft.formula
    if draft.trailing:  # what SELECT drops is needed until the absence is decided
        atoms = (part for part in walk(draft.pattern) if isinstance(part, Atom))
        draft.selected = draft.selected.union(*(atom.labels for atom in atoms))


def _neighbours(draft: Draft) -> None:
    """Make join predicates over neighbours predicates over one event, which reads the others by LAG."""
    if STRATEGIES[draft.syntax.select.strategy].pending:
        draft.pattern = in_gaps(draft.pattern)
    else:
        draft.pattern, draft.moved_joins = without_neighbour_joins(draft.pattern, draft.spans.sites)


def _guard(draft: Draft) -> None:
    """Collect the tests of single events, and separate the join predicates."""
    draft.alone, draft.guards = unrelated(draft.pattern), guards_of(draft.pattern)
    draft.conjunction = any(isinstance(part, Both) for part in walk(draft.pattern))


def _chain(draft: Draft) -> None:
    """Find the steps of a chain, and whether stacks can evaluate them in place of an automaton."""
    syntax, relates = draft.syntax, draft.relates
    strict = not relates and STRATEGIES[syntax.select.strategy].consecutive
    if draft.conjunction:
        draft.chain = Rejection("the query has a conjunction")
    else:
        draft.chain = find_chain(draft.alone, draft.guards, draft.selected, strict=strict)
    draft.steps = draft.chain
    if STRATEGIES[syntax.select.strategy].pending:
        draft.steps = Rejection(f"the strategy is {syntax.select.strategy}")
    elif draft.conjunction:
        draft.steps = Rejection("the query has a conjunction")
    elif relates:
        consecutive = STRATEGIES[syntax.select.strategy].consecutive
        chain = find_chain(draft.alone, draft.guards, draft.selected, strict=consecutive)
        draft.steps = chain if isinstance(chain, Rejection) else spaced_chain(chain, draft.pattern, draft.within)
    if not isinstance(draft.steps, Rejection):
        close = any(step.neighbour for step in draft.steps)
        by_bits = syntax.partition and are_neighbours(draft.steps) and not relates
        if draft.within is None and close and not by_bits:
            draft.steps = Rejection("there is no WITHIN, and stacks would keep what no neighbour followed")
    if draft.trailing:
        draft.steps = Rejection("an absence at the end may take back what was found")


def _recent_pass(draft: Draft) -> None:
    """Build the steps of SELECT RECENT, for each of which one partial match is pending."""
    syntax = draft.syntax
    if not STRATEGIES[syntax.select.strategy].pending:
        return
    try:
        draft.recent = build_any_recent(draft.pattern, draft.guards, draft.selected, trailing=draft.trailing)
    except NotRecentError as error:
        alternatives = (node.span for node in walk(syntax.formula) if isinstance(node, FilterOr))
        span = error.span or next(alternatives, syntax.formula.span)
        raise QueryError(str(error), syntax.text, *span, hint=error.hint) from None


def _parallelise(draft: Draft) -> None:
    """Build the parallelised automaton of a pattern that relates events, if its joins allow that."""
    if not (draft.relates and draft.in_parallel and draft.recent is None):
        return
    try:
        draft.parallel = build_parallel(draft.pattern, draft.guards, draft.selected, draft.n_steps)
    except NotParallelError as error:
        draft.why_not_parallel = str(error)


def _atom_graph_pass(draft: Draft) -> None:
    """Place the join predicates of any other such pattern at its atoms."""
    if draft.relates and draft.parallel is None and draft.recent is None:
        draft.graph = build_atom_graph(draft.pattern, draft.guards, draft.selected, draft.n_steps)


def _automaton_pass(draft: Draft) -> None:
    """Build the automaton, of linear size, of a pattern without conjunctions and without its join predicates."""
    draft.cea = None if draft.conjunction else build_cea(draft.alone, draft.selected, draft.guards)


PASSES: tuple[tuple[str, Callable[[Draft], None]], ...] = (
    ("selection", _selection_pass),
    ("normal form", _normalise),
    ("trailing absence", _follow),
    ("neighbours", _neighbours),
    ("guards", _guard),
    ("chain", _chain),
    ("recent", _recent_pass),
    ("parallel", _parallelise),
    ("atom graph", _atom_graph_pass),
    ("automaton", _automaton_pass),
)
"""Passes from a checked query to its plan, in their order; `cer_gpu.explain.facts` says what each did."""


def plan_of(
    syntax: QuerySyntax,
    type_column: str | None,
    time_column: str | None,
    time_unit: str | None,
    *,
    in_parallel: bool = True,
) -> LogicalPlan:
    """Run the passes from a checked query to its plan."""
    syntax = hoisted(syntax)
    draft = Draft(syntax, type_column, in_parallel, Spans(time_column, time_unit))
    for _, run in PASSES:
        run(draft)
    return LogicalPlan(
        text=syntax.text,
        syntax=syntax,
        formula=draft.formula,
        pattern=draft.pattern,
        guards=draft.guards,
        cea=draft.cea,
        graph=draft.graph,
        parallel=draft.parallel,
        recent=draft.recent,
        why_not_parallel=draft.why_not_parallel,
        chain=None if isinstance(draft.steps, Rejection) else draft.steps,
        why_not_chain=draft.steps.reason if isinstance(draft.steps, Rejection) else None,
        strategy=STRATEGIES[syntax.select.strategy],
        variables=draft.variables,
        attributes=draft.attributes,
        head=syntax.head,
        unread=syntax.unread,
        streams=tuple(name.name for name in syntax.streams),
        partition=syntax.partition,
        within=draft.within,
        lasts=draft.lasts,
        consume=syntax.consume,
        limit=syntax.limit,
        every=None if syntax.every is None or syntax.limit is None else Every(syntax.limit, syntax.every),
        type_column=type_column,
        time_column=time_column,
        time_unit=time_unit,
        relations=syntax.relations,
        chooses_first=syntax.chooses_first,
        trailing=draft.trailing,
        measures=draft.measures,
        pipes=syntax.pipes,
        moved_joins=draft.moved_joins,
        step_keys=syntax.step_keys,
    )


def strategy_notes(syntax: QuerySyntax) -> list[str]:
    """Return a remark if the strategy chooses before the window applies (THEN WITHIN)."""
    within, strategy = syntax.within, STRATEGIES[syntax.select.strategy]
    if within is None or strategy.too_long is None or not syntax.chooses_first:
        return []
    length = " ".join(syntax.text[slice(*within.span)].split())
    outcome = strategy.too_long.format(length if length.isprintable() else "the window")
    return [f"{strategy.name} chooses before WITHIN is looked at: {outcome}"]


def schema_errors(
    syntax: QuerySyntax, schema: pa.Schema, type_column: str | None, time_column: str | None, time_unit: str | None
) -> list[QueryError]:
    """Return the errors of a query against a schema: tests, attributes, keys, type and time column, window."""
    text = syntax.text
    schema, of_let = let_errors(syntax, schema)
    predicates = [item.predicate for item in variable_filters(syntax.formula)]
    related = [relation.predicate for relation in relations(syntax.formula)]
    over_aggregates = (
        attribute.aggregate for predicate in (*predicates, *related) for attribute in attributes(predicate)
    )
    predicates += (
        aggregate.predicate
        for aggregate in over_aggregates
        if aggregate is not None and aggregate.predicate is not None
    )
    errors: list[QueryError] = [*of_let, *type_errors(predicates, Binder(schema, text).bind)]
    errors += type_errors(related, RelationBinder(schema, text).condition)
    errors += type_errors_of(measures_of(syntax, variables_of(syntax.formula)), schema, text)
    selected = [name for item in syntax.select.items or () for name in item.attributes or ()]
    selected += syntax.unread
    tests: list[Callable[[], object]] = [
        *(partial(column_type, schema, name.name, text, name.span) for name in selected),
        *(partial(PartitionKeys, (names,), schema, text) for names in syntax.partition),
        *([] if syntax.step_keys is None else [partial(KeysByStep, syntax.step_keys, schema, text)]),
    ]
    if type_column is not None:
        tests.append(partial(type_column_type, schema, type_column))
    measurable = [length for length in lengths(syntax) if length.kind != "time" or time_column is not None]
    tests += (partial(window_length, length, schema, time_column, time_unit, text) for length in measurable)
    if time_column is not None and not any(length.kind == "time" for length in measurable):
        tests.append(partial(time_column_type, schema, time_column))
    for test in tests:
        try:
            test()
        except QueryError as error:
            errors.append(error)
    return errors
