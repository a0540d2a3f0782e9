"""Join predicates over neighbours as predicates over one event: ``PREV(r).x`` in a contiguous run is ``LAG(x)``.

In a contiguous run, and between single events that are joined by ``:``, the events before an event are known: they are
those just before it in the substream.  A predicate that compares them is one of the last of them, which reads the
others by LAG.  The pattern then needs no join for it.  The last event of such a run, or its first, becomes an event by
itself where another join predicate reads it (``LAST(r).x``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cer_gpu.automaton.normal_form import Atom, Both, Either, NormalForm, Related, Repeat, Then
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children, fold, mapped, walk, with_children

MAX_DISTANCE = 64
"""Greatest number of events between neighbours that are compared."""
MAX_RUN_STEPS = 16
"""Most events of a run of fixed length that become steps by themselves."""


def without_neighbour_joins(formula: NormalForm, sites: Iterator[int]) -> tuple[NormalForm, tuple[s.Predicate, ...]]:
    """Return a pattern whose predicates over neighbours are predicates over one event, and these predicates.

    Parameters
    ----------
    formula
    sites
        Numbers of further definitions.
    """
    moved: list[s.Predicate] = []
    runs: list[int] = []

    def combine(node: NormalForm, below: list[NormalForm]) -> NormalForm:
        rebuilt: NormalForm = (
            node if all(a is b for a, b in zip(below, children(node), strict=True)) else (with_children(node, below))
        )
        if not isinstance(rebuilt, Related):
            return rebuilt
        body = _in_run(rebuilt, runs) or _between_atoms(rebuilt)
        if body is None:
            return rebuilt
        moved.append(rebuilt.relation.predicate)
        return body

    # join predicates of absences stay as they are: `children` of a Then are its two sides
    rewritten = fold(formula, combine, children)
    if runs:
        rewritten = _with_single_ends(rewritten, frozenset(runs), sites)
    return rewritten, tuple(moved)


# ---- runs ----------------------------------------------------------------------------------------------------------


def _in_run(related: Related, runs: list[int]) -> NormalForm | None:
    """Return the body of a predicate over the events of a run, whose events but the first are tested by LAG."""
    predicate, roles = related.relation.predicate, related.relation.roles
    attributes = list(s.attributes(predicate))
    if len(roles) != 1 or len(roles[0].sites) != 1 or not attributes:
        return None
    (site,) = roles[0].sites
    if {each.event for each in attributes} != {"EACH", "PREV"} and {each.event for each in attributes} != {"PREV"}:
        return None
    if any(each.event == "PREV" and each.aggregate is not None for each in attributes):
        return None
    if not _is_comparable(predicate):
        return None
    run = _only_place(related.body, site)
    if not isinstance(run, Repeat) or not run.contiguous or run.absent or not isinstance(run.body, Atom):
        return None
    if run.body.negated:
        return None
    runs.append(site)
    return _replaced(related.body, run, _run_with_test(run, _on_event(predicate, {})))


def _run_with_test(run: Repeat, predicate: s.Predicate) -> NormalForm:
    """Return a run whose events but the first pass a test."""
    assert isinstance(run.body, Atom)
    if run.n_max == 1:
        return run.body
    later = _with_predicate(run.body, predicate)
    if run.n_min == run.n_max and run.n_min <= MAX_RUN_STEPS:
        steps: NormalForm = run.body  # of a chain
        for _ in range(run.n_min - 1):
            steps = Then(steps, later, contiguous=True)
        return steps
    n_max = None if run.n_max is None else run.n_max - 1
    n_min = max(run.n_min - 1, 1)
    others = later if n_max == 1 else replace(run, body=later, n_min=n_min, n_max=n_max)
    return Then(run.body, others, contiguous=True, optional=(False, run.n_min == 1))


def _with_single_ends(formula: NormalForm, runs: frozenset[int], sites: Iterator[int]) -> NormalForm:
    """Return a pattern in which join predicates read FIRST and LAST of the runs as events by themselves."""
    while True:
        step = _single_end(formula, runs, sites)
        if step is None:
            return formula
        formula = step


def _single_end(formula: NormalForm, runs: frozenset[int], sites: Iterator[int]) -> NormalForm | None:
    """Return a pattern where one more end of a run is an event by itself, or None if there is none to make."""
    for node in walk(formula):
        if not isinstance(node, Related):
            continue
        for role in node.relation.roles:
            which = {each.event for each in s.attributes(node.relation.predicate) if each.variable == role.variable}
            if len(role.sites) != 1 or not role.sites <= runs or len(which) != 1 or not which <= {"FIRST", "LAST"}:
                continue
            (site,), (end,) = role.sites, which
            new = next(sites)
            marked = _with_end(node.body, site, new, last=end == "LAST")
            if marked is None:
                continue
            name = s.Name(f"the {end.lower()} {role.variable.name}", None, role.variable.span)
            relation = _renamed(node.relation, role, s.Role(name, frozenset({new}), role.always, True))
            return _replaced(formula, node, replace(node, body=marked, relation=relation))
    return None


def _renamed(relation: s.Relation, old: s.Role, new: s.Role) -> s.Relation:
    def renamed(attribute: s.Attribute) -> s.Attribute:
        if attribute.variable != old.variable:
            return attribute
        return replace(attribute, variable=new.variable, event="EACH")

    predicate = mapped(relation.predicate, s.Attribute, renamed)
    roles = tuple(new if role is old else role for role in relation.roles)
    return replace(relation, predicate=predicate, roles=roles)


def _with_end(body: NormalForm, site: int, new: int, *, last: bool) -> NormalForm | None:
    """Return a formula in which the first or last event of a definition has one more; None if it is not one place."""
    run = _run_of(body, site)
    if run is None:
        return None
    marked = _mark_end(run, last, new)
    return None if marked is None else _replaced(body, run, marked)


def _run_of(body: NormalForm, site: int) -> NormalForm | None:
    """Return the run of a definition as `_run_with_test` made it."""
    todo = [body]
    while todo:
        node = todo.pop()
        atoms = [part for part in walk(node) if isinstance(part, Atom)]
        inside = [site in atom.sites for atom in atoms]
        if not any(inside):
            continue
        if all(inside):
            return node
        if isinstance(node, Repeat | Either | Both):
            return None
        todo += children(node)
    return None


def _mark_end(run: NormalForm, last: bool, new: int) -> NormalForm | None:
    match run:
        case Atom():
            return replace(run, sites=run.sites | {new})
        case Repeat(body=Atom() as body, contiguous=True, absent=()):
            if run.n_max is not None and run.n_max > MAX_DISTANCE:
                return None
            marked, n_max = replace(body, sites=body.sites | {new}), None if run.n_max is None else run.n_max - 1
            others = body if n_max == 1 else replace(run, n_min=max(run.n_min - 1, 1), n_max=n_max)
            if last:
                return Then(others, marked, contiguous=True, optional=(run.n_min == 1, False))
            return Then(marked, others, contiguous=True, optional=(False, run.n_min == 1))
        case Then(contiguous=True, absent=(), optional=(False, False)):
            side = run.right if last else run.left
            marked_side = _mark_end(side, last, new)
            if marked_side is None:
                return None
            return replace(run, right=marked_side) if last else replace(run, left=marked_side)
        case Then(contiguous=True, absent=(), optional=(False, True)) if not last:
            marked_side = _mark_end(run.left, last, new)
            return None if marked_side is None else replace(run, left=marked_side)
    return None


# ---- single events -------------------------------------------------------------------------------------------------


def _between_atoms(related: Related) -> NormalForm | None:
    """Return the body of a predicate over single events that are neighbours, the last of which is tested by LAG."""
    predicate, roles = related.relation.predicate, related.relation.roles
    attributes = list(s.attributes(predicate))
    if len(roles) < 2 or any(len(role.sites) != 1 or not role.always for role in roles):
        return None
    if any(each.event != "EACH" for each in attributes) or not _is_comparable(predicate):
        return None
    places = {}
    operands = list(_operands(related.body))
    for role in roles:
        (site,) = role.sites
        places_of_role = [k for k, (part, _) in enumerate(operands) if _has_site(part, site)]
        if len(places_of_role) != 1:
            return None
        atom = operands[places_of_role[0]][0]
        if not isinstance(atom, Atom) or atom.negated:
            return None
        places[role.variable] = places_of_role[0]
    first, last = min(places.values()), max(places.values())
    if first == last or last - first > MAX_DISTANCE:
        return None
    between = operands[first : last + 1]
    if not all(isinstance(part, Atom) for part, _ in between) or not all(joined for _, joined in between[1:]):
        return None
    if any(each.aggregate is not None and places[each.variable] != last for each in attributes if each.variable):
        return None
    target = operands[last][0]
    assert isinstance(target, Atom)
    distances = {variable: last - place for variable, place in places.items()}
    return _replaced(related.body, target, _with_predicate(target, _on_event(predicate, distances)))


def _operands(formula: NormalForm) -> Iterator[tuple[NormalForm, bool]]:
    """Yield the operands of a sequence from left to right, each with True if it follows at the very next position.

    A side that may be missing is one operand with what it is joined to.
    """
    match formula:
        case Then(absent=(), optional=(False, False)):
            yield from _operands(formula.left)
            for k, (part, joined) in enumerate(_operands(formula.right)):
                yield part, (formula.contiguous if k == 0 else joined)
        case Then(optional=(False, False)):
            yield from _operands(formula.left)
            for k, (part, joined) in enumerate(_operands(formula.right)):
                yield part, joined and k > 0
        case Related():
            yield from _operands(formula.body)
        case _:
            yield formula, False


# ---- predicates ----------------------------------------------------------------------------------------------------


def _is_comparable(predicate: s.Predicate) -> bool:
    """Return True for a predicate that reads the attributes of events, and neither their positions nor lists."""
    return not any(isinstance(node, s.Apart | s.Element | s.AnyElement) for node in walk(predicate))


def _on_event(predicate: s.Predicate, distances: dict[s.Name, int]) -> s.Predicate:
    """Return a predicate over the last of some neighbours; `distances` are those of the variables from it."""

    def lagged(attribute: s.Attribute) -> s.Attribute:
        distance = 1 if attribute.event == "PREV" else distances.get(attribute.variable, 0) if attribute.variable else 0
        lag = attribute.lag + distance
        return replace(attribute, variable=None, event="EACH", lag=lag, in_match=distance > 0 and attribute.lag == 0)

    on_event: s.Predicate = mapped(predicate, s.Attribute, lagged)
    return on_event


def _with_predicate(atom: Atom, predicate: s.Predicate) -> Atom:
    own = atom.guard.predicate
    both = predicate if own is None else s.joined(s.And, (own, predicate))
    return replace(atom, guard=replace(atom.guard, predicate=both))


# ---- places --------------------------------------------------------------------------------------------------------


def _has_site(formula: NormalForm, site: int) -> bool:
    return any(isinstance(part, Atom) and site in part.sites for part in walk(formula))


def _only_place(body: NormalForm, site: int) -> NormalForm | None:
    """Return the repetition of the one event of a definition, or None if a match may have it at several places."""
    todo, places = [body], []
    while todo:
        node = todo.pop()
        if not _has_site(node, site):
            continue
        if isinstance(node, Repeat | Atom):
            places.append(node)
        elif isinstance(node, Either | Both):
            return None
        else:
            todo += children(node)
    return places[0] if len(places) == 1 else None


def _replaced(formula: NormalForm, old: NormalForm, new: NormalForm) -> NormalForm:
    """Return a formula with another part in the place of one, the same object."""

    def combine(node: NormalForm, below: list[NormalForm]) -> NormalForm:
        if node is old:
            return new
        same = all(a is b for a, b in zip(below, children(node), strict=True))
        rebuilt: NormalForm = node if same else with_children(node, below)
        return rebuilt

    return fold(formula, combine, lambda node: () if node is old else children(node))
