"""Passes from a checked query to its plan, in their order, and the checks against a schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from cer_gpu.automaton.atom_graph import build_atom_graph
from cer_gpu.automaton.cea import build_cea
from cer_gpu.automaton.chain import ChainStep, are_neighbours, find_chain
from cer_gpu.automaton.normal_form import Atom, Both, guards_of, normal_form, unrelated, variable_name
from cer_gpu.automaton.parallel_pattern import NotParallelError, build_parallel
from cer_gpu.automaton.strategies import STRATEGIES
from cer_gpu.automaton.trailing import followed
from cer_gpu.ceql.syntax import Name, QuerySyntax, relations, variable_filters
from cer_gpu.ceql.traversal import walk
from cer_gpu.ceql.variables import column_names
from cer_gpu.ceql.variables import variables as variables_of
from cer_gpu.columnar.clocks import time_column_type, window_length
from cer_gpu.columnar.fields import column_type
from cer_gpu.errors import QueryError
from cer_gpu.output.measures import measures_of, type_errors_of
from cer_gpu.partition.partitions import PartitionKeys
from cer_gpu.planning.plan import Plan
from cer_gpu.predicates.binder import type_errors
from cer_gpu.predicates.guards import type_column_type
from cer_gpu.predicates.relations import relation_errors


def plan_of(
    syntax: QuerySyntax,
    type_column: str | None,
    time_column: str | None,
    time_unit: str | None,
    *,
    in_parallel: bool = True,
) -> Plan:
    """Run the passes from a checked query to its plan.

    1. `normal_form`: every filter moves to the event that it filters.
    2. `build_cea`: the automaton, of linear size, of a pattern without conjunctions.
    3. `build_parallel`: the parallelised automaton of a pattern with filters between events, or with a conjunction, if
       its joins allow that (and `in_parallel`).
    4. `build_atom_graph`: else its atoms, and where the filters between events are tested.
    5. `find_chain`: the steps of any other pattern that stacks can evaluate.
    """
    streams = tuple(name.name for name in syntax.streams)
    known = variables_of(syntax.formula)
    measures = measures_of(syntax, known)
    items = syntax.select.items
    everything = column_names(syntax.formula)
    variables = everything if items is None else [variable_name(item.variable) for item in items]
    for name in measures.variables:
        variables += everything if name is None else [name]
    attributes: dict[str, Name] | None = None
    written = [item for item in items or () if item.written]
    if written and all(item.attributes is not None for item in written):
        attributes = {name.name: name for item in written for name in item.attributes or ()}
    formula = normal_form(syntax.formula, typed=type_column is not None, streams=streams)
    selected = frozenset(variables)
    waiting = followed(formula)
    if waiting is not None:
        # what SELECT drops is needed until the absence is known
        formula = waiting
        selected = selected.union(*(part.labels for part in walk(formula) if isinstance(part, Atom)))
    alone = unrelated(formula)
    guards = guards_of(formula)
    conjunction = any(isinstance(part, Both) for part in walk(formula))
    strategy = STRATEGIES[syntax.select.strategy]
    graph, parallel, against_parallel = None, None, None
    if conjunction or alone is not formula:
        chain = "" if conjunction else find_chain(alone, guards, selected)
        n_steps = 0 if isinstance(chain, str) else len(chain)
        try:
            parallel = build_parallel(formula, guards, selected, n_steps) if in_parallel else None
        except NotParallelError as error:
            against_parallel = str(error)
        if parallel is None:
            graph = build_atom_graph(formula, guards, selected, n_steps)
        steps: tuple[ChainStep, ...] | str = (
            f"the query has {'a conjunction' if conjunction else 'filters between events'}"
        )
    else:
        steps = find_chain(formula, guards, selected, strict=strategy.consecutive)
        close = not isinstance(steps, str) and any(step.neighbour for step in steps)
        followed_at_once = syntax.partition and not isinstance(steps, str) and are_neighbours(steps)
        if syntax.within is None and close and not followed_at_once:
            steps = "there is no WITHIN, and stacks would keep what no neighbour followed"
    if waiting is not None:
        steps = "an absence at the end may take back what was found"
    return Plan(
        text=syntax.text,
        guards=guards,
        cea=None if conjunction else build_cea(alone, selected, guards),
        graph=graph,
        parallel=parallel,
        against_parallel=against_parallel,
        chain=None if isinstance(steps, str) else steps,
        against_chain=steps if isinstance(steps, str) else None,
        strategy=strategy,
        variables=tuple(dict.fromkeys(variables)),
        attributes=None if attributes is None else tuple(attributes.values()),
        head=syntax.head,
        unread=syntax.unread,
        streams=streams,
        partition=syntax.partition,
        within=syntax.within,
        consume=syntax.consume,
        limit=syntax.limit,
        type_column=type_column,
        time_column=time_column,
        time_unit=time_unit,
        relations=syntax.relations,
        chooses_first=syntax.chooses_first,
        trailing=waiting is not None,
        measures=measures,
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
    predicates = [item.predicate for item in variable_filters(syntax.formula)]
    errors: list[QueryError] = [*type_errors(predicates, schema, text)]
    errors += relation_errors([relation.predicate for relation in relations(syntax.formula)], schema, text)
    errors += type_errors_of(measures_of(syntax, variables_of(syntax.formula)), schema, text)
    selected = [name for item in syntax.select.items or () for name in item.attributes or ()]
    selected += syntax.unread
    tests: list[Callable[[], object]] = [
        *(partial(column_type, schema, name.name, text, name.span) for name in selected),
        *(partial(PartitionKeys, (names,), schema, text) for names in syntax.partition),
    ]
    if type_column is not None:
        tests.append(partial(type_column_type, schema, type_column))
    within = syntax.within
    if within is not None and (within.kind != "time" or time_column is not None):
        tests.append(partial(window_length, within, schema, time_column, time_unit, text))
    if time_column is not None and (within is None or within.kind != "time"):
        tests.append(partial(time_column_type, schema, time_column))
    for test in tests:
        try:
            test()
        except QueryError as error:
            errors.append(error)
    return errors
