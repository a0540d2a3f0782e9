"""Passes from a query to its plan (`cer_gpu.planning.passes`), each with a line on what it did to this query."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from cer_gpu.automaton.normal_form import Absent, Atom, Both, Either, NormalForm, Related, Repeat, Then, Trailing
from cer_gpu.ceql.syntax import ANY_TYPE
from cer_gpu.ceql.traversal import children, fold, walk
from cer_gpu.explain.ceql_text import guard_text, name_text, predicate_text, stream_of_variable, variable_text
from cer_gpu.planning.plan import LogicalPlan

MAX_SHOWN = 50
"""Most atoms of a formula, and most guards, that a line shows."""


def pass_facts(plan: LogicalPlan) -> list[dict[str, str]]:
    """Return name and line of each pass, in the order of `cer_gpu.planning.passes.PASSES`."""
    return [{"name": name, "did": line(plan)} for name, line in LINES.items()]


def _selection(plan: LogicalPlan) -> str:
    measures = ", ".join(measure.name for measure in plan.measures.measures)
    kept = ", ".join(variable_text(name, plan.streams) for name in plan.variables) or "no variable"
    attributes = "" if plan.attributes is None else f", of their events {', '.join(a.name for a in plan.attributes)}"
    return f"selects {kept}{attributes}{f'; measures {measures}' if measures else ''}"


def _normal_form(plan: LogicalPlan) -> str:
    n_atoms = sum(isinstance(part, Atom) for part in walk(plan.formula))
    return normal_form_text(plan.formula, plan.streams) if n_atoms <= MAX_SHOWN else f"a formula of {n_atoms:,} atoms"


def _trailing(plan: LogicalPlan) -> str:
    if plan.trailing:
        return "the next event that must be absent at the end retracts the match before it"
    return "nothing, because there is no absence at the end"


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


def _parallel(plan: LogicalPlan) -> str:
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
    "guards": _guards,
    "chain": _chain,
    "recent": _recent,
    "parallel": _parallel,
    "atom graph": _graph,
    "automaton": _automaton_line,
}


def normal_form_text(formula: NormalForm, streams: Collection[str] = ()) -> str:
    """Return a formula in LP-normal form as text: every filter on one event stands at its event."""

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
                times = "+" if (part.least, part.most) == (1, None) else f"{{{part.least},{part.most or ''}}}"
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
