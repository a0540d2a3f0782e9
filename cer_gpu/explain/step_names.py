"""Names for the events of a pattern, by the variables and types of the query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from cer_gpu.automaton.atom_graph import AtomGraph
from cer_gpu.automaton.normal_form import Absent, Atom, Guard, NormalForm, Repeat, Then, copies_of
from cer_gpu.ceql.syntax import ANY_TYPE
from cer_gpu.ceql.traversal import children, fold
from cer_gpu.explain.ceql_text import guard_text, name_text

MAX_NAMES = 8
"""Most events that one name lists."""


def place_names(graph: AtomGraph, formula: NormalForm) -> list[str]:
    """Return a name for each place of a formula: a variable, that of a filter first, else its type.

    A name that is not unique is followed by its number.  That of an event to be absent is its type after a ``!``.

    Parameters
    ----------
    graph
        Graph of the formula, for its join predicates.
    formula
    """
    names = []
    for atom in _events_in_order(formula):
        kind = "any event" if atom.guard.event_type is None else name_text(atom.guard.event_type)
        kind = f"NOT({kind})" if atom.negated else kind
        if isinstance(atom, Absent):
            names.append(f"!{kind}")
            continue
        labels = (label for label in atom.labels if ">" not in label and label.isprintable())
        aliases = sorted(label for label in labels if label not in (atom.guard.event_type, ANY_TYPE))
        related = [v for relation in graph.relations for v in relation.variables if v in aliases]
        if atom.negated:
            names.append(kind)
        elif aliases:
            names.append(name_text((related or aliases)[0]))
        else:
            names.append(kind)
    return _with_numbers(names)


def _events_in_order(formula: NormalForm) -> list[Atom | Absent]:
    """Return the events of a formula in the order in which an atom graph numbers its places."""

    def below(part: NormalForm) -> Sequence[NormalForm]:
        return [part.body] * copies_of(part) if isinstance(part, Repeat) else children(part)

    def placed(part: NormalForm, places_below: list[list[Atom | Absent]]) -> list[Atom | Absent]:
        if isinstance(part, Atom):
            return [part]
        places = [place for each in places_below for place in each]
        if isinstance(part, Then) or (isinstance(part, Repeat) and (part.n_max is None or len(places_below) > 1)):
            places += part.absent
        return places

    return fold(formula, placed, below)


def step_names(graph: AtomGraph, formula: NormalForm) -> list[str]:
    """Return a name for each atom of a graph, that of its place in the formula.

    In a conjunction an event may be at several places at once, and what came before it may distinguish atoms.
    """
    places = place_names(graph, formula)
    names = [at_once([places[place] for place in atom.places]) for atom in graph.atoms]
    return _with_numbers(_with_order(graph, names, _with_history(graph, places, names)))


def at_once(names: Sequence[str]) -> str:
    """Return the name of an event that is at several places."""
    return names[0] if len(names) == 1 else f"{listed(names)} at once"


def listed(names: Iterable[str]) -> str:
    """Return names as a list in words, a long one cut short."""
    shown = list(names)
    if len(shown) > MAX_NAMES:
        shown = [*shown[: MAX_NAMES - 1], f"{len(shown) - MAX_NAMES + 1:,} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def tests_string(tests: Iterable[tuple[int, bool]], guards: Sequence[Guard]) -> str:
    """Return the text of the tests of one event (`GraphAtom.tests`)."""
    return " AND ".join(guard_text(guards[guard], negated) for guard, negated in tests)


def _with_numbers(names: Sequence[str]) -> list[str]:
    often = Counter(names)
    return [name if often[name] == 1 else f"{name} (step {i})" for i, name in enumerate(names, 1)]


def _with_history(graph: AtomGraph, places: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return names, to which those of several atoms add the events that came before some of these, but not all."""
    often = Counter(names)
    if len(often) == len(names):
        return list(names)
    before = _before(graph)
    common: dict[str, int] = {}
    always_before = [-1] * len(places)  # what comes before each place, wherever it is read
    for atom, name, seen in zip(graph.atoms, names, before, strict=True):
        common[name] = common.get(name, -1) & seen
        for place in atom.places:
            always_before[place] &= seen
    described = []
    for name, seen in zip(names, before, strict=True):
        own = [place for place in range(len(places)) if (seen & ~common[name]) >> place & 1]
        last = [place for place in own if not any(always_before[other] >> place & 1 for other in own if other != place)]
        described.append(
            f"{name} after {listed(places[place] for place in last)}" if last and often[name] > 1 else name
        )
    return described


def _with_order(graph: AtomGraph, names: Sequence[str], described: Sequence[str]) -> list[str]:
    """Return the names found so far, to which those of several atoms add the one atom that comes right before."""
    often = Counter(described)
    if len(often) == len(described):
        return list(described)
    before: dict[int, set[int]] = {}
    for edge in graph.edges:
        before.setdefault(edge.target, set()).add(edge.source)
    ordered = list(described)
    for i, name in enumerate(described):
        sources = [] if graph.atoms[i].initial else sorted(before.get(i, ()))
        if often[name] > 1 and len(sources) == 1 and often[described[sources[0]]] == 1:
            ordered[i] = f"{names[i]} after {described[sources[0]]}"
    return ordered


def _before(graph: AtomGraph) -> list[int]:
    """Return the places that every path to an atom has passed before it, as bits."""
    own = [sum(1 << place for place in atom.places) for atom in graph.atoms]
    before = [0 if atom.initial else -1 for atom in graph.atoms]
    after: dict[int, list[int]] = {}
    for edge in graph.edges:
        after.setdefault(edge.source, []).append(edge.target)
    todo = [i for i, atom in enumerate(graph.atoms) if atom.initial]
    while todo:
        atom = todo.pop()
        seen = before[atom] | own[atom]
        for target in after.get(atom, ()):
            if before[target] & ~seen:
                before[target] &= seen
                todo.append(target)
    return [0 if seen < 0 else seen for seen in before]
