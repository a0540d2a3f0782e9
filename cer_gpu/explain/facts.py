"""Facts about a query, and a line for each pass of its plan: plain data for text, pictures and JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cer_gpu.automaton.cea import ANY, CEA, FINAL, INITIAL, Transition
from cer_gpu.automaton.chain import Rejection
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
    is_plain,
    variable_name,
)
from cer_gpu.automaton.parallel_pattern import ParallelPattern
from cer_gpu.automaton.rma import CURRENT, RMA, RegisterCondition, RegisterFormula, RegisterTransition
from cer_gpu.automaton.rma_construction import UnboundedFilterError, build_rma
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import names_of, path_of
from cer_gpu.ceql.properties import why_not_properties
from cer_gpu.ceql.syntax import ANY_TYPE, QuerySyntax
from cer_gpu.ceql.traversal import children, fold, mapped, walk
from cer_gpu.ceql.variables import variables
from cer_gpu.explain.analysis import FindMatches, TestCounts, analyse_events, atomic_predicates, count_tests, type_tests
from cer_gpu.explain.ceql_text import guard_text, name_text, predicate_text, stream_of_variable, variable_text
from cer_gpu.explain.explanation import Explanation, check_detail
from cer_gpu.explain.in_short import columns_named
from cer_gpu.explain.joins import FilterPlaces, join_plan
from cer_gpu.explain.models import (
    choice_facts,
    join_facts,
    model_facts,
    parallel_model_facts,
    relation_facts,
    why_not_parallel,
)
from cer_gpu.explain.parallel_facts import ParallelFacts
from cer_gpu.explain.plain_words import in_words
from cer_gpu.explain.step_names import place_names, step_names, tests_string
from cer_gpu.io.source import Source
from cer_gpu.output.outputs import OUTPUTS
from cer_gpu.planning.binding import Binding, Bindings
from cer_gpu.planning.pattern_spans import TAKES_BACK
from cer_gpu.planning.physical import physical_plan
from cer_gpu.planning.plan import LogicalPlan
from cer_gpu.runtime.join_plan import JoinPlan

MAX_SHOWN = 50
"""Most atoms of a formula, and most guards, that a line shows."""


def pass_facts(plan: LogicalPlan) -> list[dict[str, str]]:
    """Return name and line of each pass, in the order of `cer_gpu.planning.passes.PASSES`."""
    return [{"name": name, "did": line(plan)} for name, line in LINES.items()]


def _selection(plan: LogicalPlan) -> str:
    measures = ", ".join(measure.name for measure in plan.measures.measures)
    variables = ", ".join(variable_text(name, plan.streams) for name in plan.variables) or "no variable"
    attributes = "" if plan.attributes is None else f", of their events {', '.join(a.name for a in plan.attributes)}"
    return f"selects {variables}{attributes}{f'; measures {measures}' if measures else ''}"


def _normal_form(plan: LogicalPlan) -> str:
    n_atoms = sum(isinstance(part, Atom) for part in walk(plan.formula))
    return normal_form_text(plan.formula, plan.streams) if n_atoms <= MAX_SHOWN else f"a formula of {n_atoms:,} atoms"


def _trailing(plan: LogicalPlan) -> str:
    if plan.trailing:
        return "the next event that must be absent at the end retracts the match before it"
    return "nothing, because there is no absence at the end"


def _neighbours(plan: LogicalPlan) -> str:
    if not plan.moved_joins:
        return "nothing, because no join predicate compares neighbours alone"
    shown = [predicate_text(predicate) for predicate in plan.moved_joins[:MAX_SHOWN]]
    return f"rewritten as predicates over one event, which reads those before it by LAG: {', '.join(shown)}"


def _guards(plan: LogicalPlan) -> str:
    shown = [guard_text(guard) for guard in plan.guards[:MAX_SHOWN]]
    more = ["..."] if len(plan.guards) > MAX_SHOWN else []
    return f"tests of single events: {len(plan.guards):,} ({', '.join([*shown, *more])})"


def _chain(plan: LogicalPlan) -> str:
    return f"no, because {plan.why_not_chain}" if plan.chain is None else f"yes, of {len(plan.chain)} steps"


_UNRELATED = "there is neither a join predicate nor a conjunction"


def _recent(plan: LogicalPlan) -> str:
    if plan.recent is None:
        return "no, because the strategy is not RECENT"
    steps, keys = len(plan.recent.steps), len(plan.recent.keys)
    return f"yes, steps {steps:,}, keys of equal columns {keys:,}"


def _parallel_line(plan: LogicalPlan) -> str:
    if plan.parallel is not None:
        n_states, n_transitions = len(plan.parallel.states), len(plan.parallel.transitions)
        return f"yes, a parallelised automaton: states {n_states:,}, transitions {n_transitions:,}"
    return f"no, because {plan.why_not_parallel or ('it was not requested' if plan.relates else _UNRELATED)}"


def _graph(plan: LogicalPlan) -> str:
    if plan.graph is None:
        return f"none, because {_UNRELATED if plan.parallel is None else 'the pattern is parallel'}"
    atoms, edges, filters = len(plan.graph.atoms), len(plan.graph.edges), len(plan.graph.relations)
    return f"atoms {atoms:,}, edges {edges:,}, join predicates {filters:,}"


def _automaton_line(plan: LogicalPlan) -> str:
    if plan.cea is None:
        return "none, because the pattern has a conjunction"
    without = ", without the join predicates" if plan.relates else ""
    return f"states {plan.cea.n_states:,}, transitions {len(plan.cea.transitions):,}{without}"


LINES: Mapping[str, Callable[[LogicalPlan], str]] = {
    "selection": _selection,
    "normal form": _normal_form,
    "trailing absence": _trailing,
    "neighbours": _neighbours,
    "guards": _guards,
    "chain": _chain,
    "recent": _recent,
    "parallel": _parallel_line,
    "atom graph": _graph,
    "automaton": _automaton_line,
}


def normal_form_text(formula: NormalForm, streams: Collection[str] = ()) -> str:
    """Return a formula in LP-normal form as text: every filter on one event is at its event."""

    def single(text: str) -> str:
        return f"({text})" if " " in text else text

    def side(part: NormalForm, text: str, around: NormalForm, optional: bool) -> str:
        if optional:
            return f"{single(text)}?"
        return text if isinstance(part, Atom | Repeat) or _leads(part, around) else single(text)

    def combine(part: NormalForm, below: list[str]) -> str:
        match part:
            case Atom():
                names = [
                    name
                    for name in part.labels - {part.guard.event_type, ANY_TYPE}
                    if stream_of_variable(name, streams) is None
                ]
                return " AS ".join([guard_text(part.guard, part.negated), *map(name_text, sorted(names))])
            case Repeat():
                times = "+" if (part.n_min, part.n_max) == (1, None) else f"{{{part.n_min},{part.n_max or ''}}}"
                return f"{single(below[0])}{':' if part.contiguous else ''}{times}{_absent(part.absent, ' without ')}"
            case Related():
                return f"{single(below[0])} FILTER {predicate_text(part.relation.predicate)}"
            case Trailing():
                return f"{single(below[0])}{_absent(part.absent, ' ; ')}"
            case Either():
                sign, optional = " OR ", (False, False)
            case Both():
                sign, optional = " ALL ", part.optional
            case Then():
                sign, optional = f"{_absent(part.absent, ' ; ')} {':' if part.contiguous else ';'} ", part.optional
        sides = zip((part.left, part.right), below, optional, strict=True)
        return sign.join(side(each, text, part, missing) for each, text, missing in sides)

    return fold(formula, combine, children)


def _leads(part: NormalForm, around: NormalForm) -> bool:
    """Return True for the left side of an operator of its own kind, which needs no parentheses."""
    if isinstance(part, Then) and isinstance(around, Then):
        return part is around.left and part.contiguous == around.contiguous
    return type(part) is type(around) and part is children(around)[0]


def _absent(absent: tuple[Absent, ...], before: str) -> str:
    texts = (f"!{guard_text(each.guard, each.negated)}" for each in absent)
    return "".join(f"{before}{text}" for text in texts)


_CURRENT = "~"
_MARKED, _UNMARKED, _NONE = "●", "○", "∅"


def rma_facts(automaton: RMA) -> dict[str, Any]:
    """Return an automaton in the form of `cer_gpu.explain.facts.automaton_facts`, for the same pictures.

    The text of a transition is ``f/rs/R/o``, as in the paper's figure 1: formula, register selection, write registers
    and output.  `kept` names the event ``~`` if the output is ``●``.
    """
    order = [automaton.start, *(state for state in range(automaton.n_states) if state != automaton.start)]
    numbers = {state: number for number, state in enumerate(order)}  # pictures begin with state 0
    return {
        "states": [{"id": numbers[state], "kind": _state_kind(automaton, state)} for state in order],
        "transitions": [
            {
                "source": numbers[t.source],
                "target": numbers[t.target],
                "formula": formula_text(t),
                "selection": [_register(register) for register in t.selection],
                "writes": [_register(register) for register in sorted(t.writes)],
                "text": _parts_text(t),
                "kept": [_CURRENT] if t.marked else [],
            }
            for t in automaton.transitions
        ],
        "silent": [{"source": numbers[source], "target": numbers[target]} for source, target in automaton.silent],
        "registers": [{"name": _register(i), "holds": name} for i, name in enumerate(automaton.registers)],
    }


def rma_text(automaton: RMA) -> str:
    """Return an automaton as text: a line for its states, one for each register, and one for each transition.

    A transition is written ``f/rs/R/o``, as in `rma_facts`.
    """
    finals = ", ".join(map(str, sorted(automaton.finals))) or "none"
    states = "1 state" if automaton.n_states == 1 else f"{automaton.n_states:,} states"
    lines = [f"{states}: {automaton.start} is the start, final: {finals}"]
    lines += [f"{_register(i)} holds {name}" for i, name in enumerate(automaton.registers)]
    for t in automaton.transitions:
        lines.append(f"{t.source} → {t.target}  {_parts_text(t)}")
    lines += [f"{source} → {target}  ε" for source, target in automaton.silent]
    return "\n".join(lines)


def formula_text(transition: RegisterTransition) -> str:
    """Return the guard of a transition; the name of a register is before the attributes of its event."""
    literals = [_literal_text(formula, required) for formula, required in transition.guard]
    return " AND ".join(literals) or "TRUE"


def _parts_text(transition: RegisterTransition) -> str:
    writes = ", ".join(map(_register, sorted(transition.writes)))
    selection = ", ".join(map(_register, transition.selection))
    if len(transition.selection) > 1:
        selection = f"({selection})"
    output = _MARKED if transition.marked else _UNMARKED
    return f"{formula_text(transition)}/{selection}/{f'{{{writes}}}' if writes else _NONE}/{output}"


def _literal_text(formula: RegisterFormula, required: bool) -> str:
    text = " AND ".join(_condition_text(condition) for condition in formula) or "TRUE"
    return text if required else f"NOT({text})"


def _condition_text(condition: RegisterCondition) -> str:
    if isinstance(condition.test, Guard):
        return guard_text(condition.test, condition.negated)
    text = predicate_text(_of_registers(condition))
    if isinstance(condition.test, s.Or):
        text = f"({text})"
    return f"NOT({text})" if condition.negated else text


def _of_registers(condition: RegisterCondition) -> Any:
    """Return the predicate of a condition with registers in place of its variables."""
    registers = dict(zip(condition.variables, condition.selection, strict=True))

    def named(node: s.Attribute) -> s.Attribute:
        if node.variable is None:
            return node
        register = registers[variable_name(node.variable)]
        if node.aggregate is not None:
            return replace(node, variable=None if register == CURRENT else s.Name(_register(register)))
        name = node.name if register == CURRENT else path_of((_register(register), *names_of(node.name)))
        return s.Attribute(name, node.span, lag=node.lag)

    return mapped(condition.test, s.Attribute, named)


def _register(register: int) -> str:
    return _CURRENT if register == CURRENT else f"r{register + 1}"


def _state_kind(automaton: RMA, state: int) -> str:
    if state == automaton.start:
        return "initial"
    return "final" if automaton.is_final(state) else "inner"


def graph_facts(
    plan: JoinPlan,
    names: Sequence[str],
    guards: Sequence[Guard],
    streams: Sequence[str] = (),
    selected: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return a graph in the form of `cer_gpu.explain.facts.automaton_facts`, for the same pictures.

    State 0 means that no event is read, every other an atom: `label` is its name, and the sign before the test of an
    event says if it comes later (``;``), or at the very next position (``:``).  Atoms that bar are no states, as no
    match holds their events: they are in the gaps of the transitions (``; !R ; B``), and in `absences`.

    Parameters
    ----------
    plan
    names
        Names of the atoms of its graph (`cer_gpu.explain.step_names.step_names`).
    guards
        `LogicalPlan.guards`.
    streams
        Those that FROM names.
    selected
        The query's own variables if `GraphAtom.selected` has others besides, else None.
    """
    graph = plan.graph
    tests = [tests_string(atom.tests, guards) for atom in graph.atoms]
    labels = [label_strings(atom.selected, streams, selected) for atom in graph.atoms]
    events = [i for i, atom in enumerate(graph.atoms) if not atom.bars]
    numbers = {atom: number for number, atom in enumerate(events, 1)}

    def edge(source: int, target: int, sign: str) -> dict[str, Any]:
        return {
            "source": source,
            "target": numbers[target],
            "text": sign + tests[target],
            "kept": labels[target],
            "takes_back": TAKES_BACK in graph.atoms[target].selected,
        }

    def sign(contiguous: bool, absent: tuple[int, ...]) -> str:
        gap = "".join(f"; {names[graph.absences[number].atom]} " for number in absent)
        return f"{gap}{':' if contiguous else ';'} "

    first = [edge(0, i, "") for i in events if graph.atoms[i].initial]
    steps = [each for each in graph.edges if not each.bars]
    later = {(numbers[each.source], each.target, sign(each.contiguous, each.absent)): None for each in steps}
    return {
        "model": "atoms",
        "states": [
            {"id": 0, "kind": "initial", "name": ""},
            *(
                {"id": numbers[i], "kind": "final" if graph.atoms[i].final else "inner", "label": names[i]}
                for i in events
            ),
        ],
        "transitions": [*first, *(edge(*ends) for ends in sorted(later))],
        "silent": [],
        "absences": _absent_facts(plan, names, tests, numbers),
    }


def label_strings(labels: Iterable[str], streams: Sequence[str], selected: Sequence[str] | None) -> list[str]:
    """Return the variables that hold an event as strings, sorted; without those that are not `selected`, if given."""
    return sorted(variable_text(name, streams) for name in labels if selected is None or name in selected)


def _absent_facts(
    plan: JoinPlan, names: Sequence[str], tests: Sequence[str], numbers: Mapping[int, int]
) -> list[dict[str, Any]]:
    """Return the events that are absent from gaps, each with the states before the gap, and how it is tested there.

    One is tested `at_once` where the event before the gap alone decides which events bar it, and a mark at that event
    records it.  Others are searched among all events of the gap while matches are listed.
    """
    graph, facts = plan.graph, []
    for number, absence in enumerate(graph.absences):
        sources = sorted({edge.source for edge in graph.edges if number in edge.absent})
        facts.append(
            {
                "name": names[absence.atom],
                "text": tests[absence.atom],
                "filters": [predicate_text(graph.relations[r].predicate) for r in absence.relations],
                "after": [numbers[source] for source in sources],
                "at_once": [numbers[source] for source in sources if (number, source) in plan.watched],
            }
        )
    return facts


def explain(
    bindings: Bindings,
    notes: tuple[str, ...],
    source: Source | None = None,
    matches: FindMatches | None = None,
    detail: str = "summary",
) -> Explanation:
    """Explain a query; see `cer_gpu.Query.explain`.

    Parameters
    ----------
    bindings, notes
        Compiled query, and the remarks on it.
    source
        Events in which to count those that satisfy each predicate, or None to count nothing.
    matches
        Function that yields the matches of a source, to measure the evaluation, or None to measure nothing.
    detail
        Detail of the text (`cer_gpu.explain.text.DETAILS`).
    """
    check_detail(detail)
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
        "columns": columns_named(plan),
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
    return Explanation(facts, detail)


def _model(plan: LogicalPlan, formula: NormalForm, binding: Binding | None) -> dict[str, Any]:
    """Return model and automaton, the join predicates, and the pairs of steps between which they are tested."""
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
            "why_not_registers": f"the construction does not cover {lacking}",
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
    """Return the same for a parallelised automaton."""
    facts = ParallelFacts(pattern, place_names(pattern.graph, formula), plan.guards, plan.streams)
    return {
        "model": parallel_model_facts(plan, facts),
        "relations": facts.relation_facts(),
        "steps": facts.step_facts(),
        "presumed": False,
        "automaton": {"why_not_registers": None, **facts.automaton()},
    }


def _partners(plan: LogicalPlan, formula: NormalForm) -> dict[str, Any] | None:
    """Return the semi-joins that drop events without partners, or why there are none; None without joins."""
    if plan.parallel is None:
        return None
    joins = physical_plan(plan, OUTPUTS["positions"]).semi_joins
    if isinstance(joins, Rejection):
        return {"joins": [], "why": joins.reason}
    names = place_names(plan.parallel.graph, plan.pattern)
    return {"joins": ParallelFacts(plan.parallel, names, plan.guards, plan.streams).partners(joins), "why": None}


def automaton_facts(cea: CEA, streams: Sequence[str] = (), selected: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the states and transitions of an automaton, with their guards as strings.

    A transition whose event must not satisfy any of some guards has these guards as `barred`.  One that `takes_back` is
    that of an event which is to be absent at the end of the pattern.  Variables of `kept` that are not
    `selected` are left out, or None if there are none.
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
                "takes_back": TAKES_BACK in t.selected,
                "text": text(t),
                "kept": label_strings(t.selected, streams, selected),
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
    events_of: dict[str, dict[str, None]] = {}
    selected = frozenset(plan.variables)
    # a type with an alias has no column of its own, but * selects its events
    everything = syntax.select.items is None
    for atom in (part for part in walk(formula) if isinstance(part, Atom)):
        event = guard_text(replace(atom.guard, predicate=None))
        for name in sorted(atom.labels):
            if stream_of_variable(name, plan.streams) is None or name in selected:
                events_of.setdefault(name, {})[event] = None
    defined = variables(syntax.formula)
    facts = []
    for name, events in events_of.items():
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
