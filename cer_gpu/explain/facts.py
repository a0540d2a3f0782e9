"""Facts about a query as plain data, from which text, pictures and JSON are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cer_gpu.automaton.cea import ANY, CEA, FINAL, INITIAL, Transition
from cer_gpu.automaton.chain import Rejection
from cer_gpu.automaton.normal_form import Atom, NormalForm, is_plain
from cer_gpu.automaton.parallel_pattern import ParallelPattern
from cer_gpu.automaton.rma_construction import UnboundedFilterError, build_rma
from cer_gpu.ceql.properties import why_not_properties
from cer_gpu.ceql.syntax import QuerySyntax
from cer_gpu.ceql.traversal import walk
from cer_gpu.ceql.variables import variables
from cer_gpu.explain.analysis import FindMatches, analyse_events, count_tests
from cer_gpu.explain.choices import choice_facts
from cer_gpu.explain.counting import TestCounts, atomic_predicates, type_tests
from cer_gpu.explain.explanation import Explanation
from cer_gpu.explain.graph_facts import graph_facts, kept_texts
from cer_gpu.explain.joins import FilterPlaces, join_plan
from cer_gpu.explain.models import join_facts, model_facts, parallel_model_facts, why_not_parallel
from cer_gpu.explain.parallel_facts import ParallelFacts
from cer_gpu.explain.passes import pass_facts
from cer_gpu.explain.recent import relation_facts
from cer_gpu.explain.rma_facts import rma_facts
from cer_gpu.explain.step_names import place_names, step_names
from cer_gpu.explain.words import in_words
from cer_gpu.explain.writing import guard_text, predicate_text, stream_of_variable, variable_text
from cer_gpu.io.source import Source
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.binding import Binding, Bindings
from cer_gpu.planning.physical import physical_plan
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.planning.trailing import TAKES_BACK


def explain(
    bindings: Bindings,
    notes: tuple[str, ...],
    source: Source | None = None,
    matches: FindMatches | None = None,
) -> Explanation:
    """Explain a query; see `cer_gpu.Query.explain`.

    Parameters
    ----------
    bindings, notes
        Compiled query, and the remarks on it.
    source
        Events in which to count those that satisfy each predicate; None: no counts.
    matches
        Function that yields the complex events of a source, to measure the evaluation; None: no measurement.
    """
    plan = bindings.plan
    syntax, formula = plan.syntax, plan.formula
    binding = counts = analysis = None
    if source is not None:
        binding = bindings.bind(source.schema)
        if matches is None:
            counts = count_tests(source, bindings)
        else:
            counts, analysis = analyse_events(source, bindings, matches)
    facts: dict[str, Any] = {
        "query": plan.text,
        "words": in_words(syntax, formula, plan.strategy),
        **_model(plan, plan.pattern, binding),
        "variables": _variable_facts(syntax, formula, plan),
        "properties": why_not_properties(syntax.formula),
        **_tests(plan, counts),
        "plan": {**choice_facts(plan, binding), "partners": _partners(plan, formula)},
        "passes": pass_facts(plan),
        "events": None if counts is None else {"n": counts.n_events, "n_relevant": counts.n_relevant},
        "analysis": analysis,
        "notes": [*notes, *(counts.notes if counts is not None else ())],
    }
    return Explanation(facts)


def _model(plan: LogicalPlan, formula: NormalForm, binding: Binding | None) -> dict[str, Any]:
    """Return model and automaton, the filters between events, and the pairs of steps between which they are tested."""
    if plan.parallel is not None:
        return _parallel(plan, plan.parallel, formula)
    joins = join_plan(plan, binding)
    automaton: dict[str, Any] = {"model": "CEA", "why_not_registers": None}
    if joins is None:
        assert plan.cea is not None
        automaton |= automaton_facts(plan.cea, plan.streams, plan.variables if plan.trailing else None)
        related = [] if plan.recent is None else relation_facts(plan, plan.recent)
        return {
            "model": model_facts(plan),
            "relations": related,
            "steps": [],
            "presumed": False,
            "automaton": automaton,
        }
    names = step_names(joins.graph, formula)
    if plan.cea is None or not is_plain(formula):
        lacking = "conjunction (ALL)" if plan.cea is None else "absences, options or counts"
        automaton |= {
            **graph_facts(joins, names, plan.guards, plan.streams, plan.variables if plan.trailing else None),
            "why_not_registers": f"their construction has no {lacking}",
        }
    else:
        try:
            automaton |= {"model": "RMA", **rma_facts(build_rma(formula, frozenset(plan.variables)))}
        except UnboundedFilterError as error:
            automaton |= {"why_not_registers": error.message.partition(": ")[2]}
            automaton |= automaton_facts(plan.cea, plan.streams)
    places = FilterPlaces(joins, names)
    return {
        "model": join_facts(plan, places, automaton["why_not_registers"], why_not_parallel(plan, formula)),
        "relations": places.relation_facts(),
        "steps": places.step_facts(),
        "presumed": binding is None,
        "automaton": automaton,
    }


def _parallel(plan: LogicalPlan, pattern: ParallelPattern, formula: NormalForm) -> dict[str, Any]:
    """Return the same of a parallelised automaton."""
    facts = ParallelFacts(pattern, place_names(pattern.graph, formula), plan.guards, plan.streams)
    return {
        "model": parallel_model_facts(plan, facts),
        "relations": facts.relation_facts(),
        "steps": facts.step_facts(),
        "presumed": False,
        "automaton": {"why_not_registers": None, **facts.automaton()},
    }


def _partners(plan: LogicalPlan, formula: NormalForm) -> dict[str, Any] | None:
    """Return the semi-joins by which events without partners are dropped, or why there are none; None: not asked."""
    if plan.parallel is None:
        return None
    joins = physical_plan(plan, OUTPUTS["positions"]).semi_joins
    if isinstance(joins, Rejection):
        return {"joins": [], "why": joins.reason}
    names = place_names(plan.parallel.graph, plan.pattern)
    return {"joins": ParallelFacts(plan.parallel, names, plan.guards, plan.streams).partners(joins), "why": None}


def automaton_facts(cea: CEA, streams: Sequence[str] = (), selected: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the states and transitions of an automaton, with the texts of their guards.

    A transition whose event must not satisfy any of some guards has their texts as `barred`.  One that `takes_back` is
    that of an event which is to be absent at the end of the pattern.  Variables of `kept` that are not
    `selected` are left out; None: there are none.
    """
    kinds = {INITIAL: "initial", FINAL: "final"}

    def text(t: Transition) -> str:
        event = "any event" if t.guard == ANY else guard_text(cea.guards[t.guard], t.negated)
        barred = _barred(cea, t)
        return f"{event} but {' or '.join(barred)}" if barred else event

    return {
        "states": [{"id": i, "kind": kinds.get(i, "inner")} for i in range(cea.n_states)],
        "transitions": [
            {
                "source": t.source,
                "target": t.target,
                "guard": None if t.guard == ANY else t.guard,
                "negated": t.negated,
                "barred": _barred(cea, t),
                "takes_back": TAKES_BACK in t.kept,
                "text": text(t),
                "kept": kept_texts(t.kept, streams, selected),
            }
            for t in cea.transitions
        ],
        "silent": [{"source": source, "target": target} for source, target in cea.silent],
    }


def _barred(cea: CEA, transition: Transition) -> list[str]:
    return [guard_text(cea.guards[guard], negated) for guard, negated in transition.barred]


def _tests(plan: LogicalPlan, counts: TestCounts | None) -> dict[str, Any]:
    """Return types, atomic predicates and guards, each with the number of events that satisfy it, if counted."""

    def counted(facts: list[dict[str, Any]], numbers: Any) -> list[dict[str, Any]]:
        if counts is None:
            return facts
        return [{**fact, "n_events": int(n)} for fact, n in zip(facts, numbers, strict=True)]

    types = [{"type": test.event_type, "stream": test.stream, "text": guard_text(test)} for test in type_tests(plan)]
    predicates = [
        {"text": predicate_text(test.predicate)} for test in atomic_predicates(plan) if test.predicate is not None
    ]
    guards = [{"id": i, "text": guard_text(guard)} for i, guard in enumerate(plan.guards)]
    return {
        "types": counted(types, counts and counts.types),
        "predicates": counted(predicates, counts and counts.predicates),
        "guards": counted(guards, counts and counts.guards),
    }


def _variable_facts(syntax: QuerySyntax, formula: NormalForm, plan: LogicalPlan) -> list[dict[str, Any]]:
    """Return the variables with the events that they can hold."""
    held: dict[str, dict[str, None]] = {}
    selected = frozenset(plan.variables)
    # a type with an alias has no column of its own, but * keeps its events
    everything = syntax.select.items is None
    for atom in (part for part in walk(formula) if isinstance(part, Atom)):
        event = guard_text(replace(atom.guard, predicate=None))
        for name in sorted(atom.labels):
            if stream_of_variable(name, plan.streams) is None or name in selected:
                held.setdefault(name, {})[event] = None
    defined = variables(syntax.formula)
    facts = []
    for name, events in held.items():
        stream = stream_of_variable(name, plan.streams)
        whole = name if stream is None else name[len(stream) + 1 :]
        facts.append(
            {
                "name": variable_text(name, plan.streams),
                "types": list(events),
                "kept": name in selected or (everything and stream is None),
                "several": whole in defined.several,
                # within one stream, it depends on the events
                "always": name in defined.always if stream is None else None,
            }
        )
    return facts
