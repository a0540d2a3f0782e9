"""Formulas, streams and a definition by brute force for the tests of register match automata.

Formulas are LP-normal forms made by hand: `atom`, `then`, `either`, `plus` and `related`.
"""

import itertools
import math
import operator

from hypothesis import strategies as st

from cer_gpu.automaton.normal_form import Atom, Either, Guard, Related, Repeat, Then
from cer_gpu.automaton.rma_construction import UnboundedFilterError, build_rma
from cer_gpu.ceql import syntax as s

SENSORS = [
    {"type": "T", "id": 1, "value": 22},
    {"type": "T", "id": 1, "value": 24},
    {"type": "T", "id": 2, "value": 32},
    {"type": "H", "id": 1, "value": 70},
    {"type": "H", "id": 1, "value": 68},
    {"type": "T", "id": 2, "value": 33},
]
"""The stream of table 1."""

COMPARISONS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, ">": operator.gt}


# ---- formulas -------------------------------------------------------------------------------------------------------


def attribute(text, event="EACH"):
    """``x.a``, or ``a`` of the event of a guard."""
    variable, _, name = text.rpartition(".")
    return s.Attribute(name, variable=s.Name(variable) if variable else None, event=event)


def compare(left, op, right):
    right = s.Literal(right, str(right)) if isinstance(right, int) else attribute(right)
    return s.Comparison(op, attribute(left), right)


def atom(event_type, site=-1, predicate=None, labels=("x",), negated=False):
    sites = frozenset() if site < 0 else frozenset({site})
    return Atom(Guard(event_type, predicate), frozenset(labels), negated, sites)


def then(*parts, contiguous=False):
    return parts[0] if len(parts) == 1 else Then(then(*parts[:-1], contiguous=contiguous), parts[-1], contiguous)


def either(left, right):
    return Either(left, right)


def plus(body, contiguous=False):
    return Repeat(body, contiguous)


def related(body, predicate, number=0, **roles):
    """``body FILTER predicate``; a role names a variable and the site, or the sites, that define it.

    The `number` stands for the place in the text.
    """
    sets = {name: frozenset([sites] if isinstance(sites, int) else sites) for name, sites in roles.items()}
    made = [s.Role(s.Name(name), sites) for name, sites in sets.items()]
    return Related(body, s.Relation(predicate, tuple(made), (number, number + 1)))


def expression_1():
    return related(then(atom("T", 0), atom("H", 1)), compare("x.id", "=", "y.id"), x=0, y=1)


def expression_4():
    low = atom("T", 0, compare("value", "<", -40))
    high = atom("T", 0, compare("value", ">", 50))
    return related(then(either(low, high), atom("T", 1)), compare("y.id", "=", "x.id"), y=1, x=0)


def nested():
    """``((T AS x1 ; T AS x2 FILTER x1.value = x2.value) ; (H AS x3 ; H AS x4 FILTER x3.value = x4.value)+)+``."""
    first = related(then(atom("T", 1), atom("T", 2)), compare("x1.value", "=", "x2.value"), x1=1, x2=2)
    second = related(then(atom("H", 3), atom("H", 4)), compare("x3.value", "=", "x4.value"), x3=3, x4=4)
    return plus(then(first, plus(second)))


# ---- evaluation -----------------------------------------------------------------------------------------------------


def truth(predicate, value_of):
    """Truth value of a comparison, a negation or a conjunction; None: unknown."""
    match predicate:
        case s.Comparison(op, left, right):
            a, b = (side.value if isinstance(side, s.Literal) else value_of(side) for side in (left, right))
            return None if a is None or b is None else COMPARISONS[op](a, b)
        case s.Not(operand):
            found = truth(operand, value_of)
            return None if found is None else not found
        case s.And(operands):
            found = [truth(operand, value_of) for operand in operands]
            return False if False in found else None if None in found else True
    raise TypeError(predicate)


def guard_holds(guard, event):
    if guard.event_type is not None and event["type"] != guard.event_type:
        return False
    return guard.predicate is None or truth(guard.predicate, lambda attribute: event[attribute.name]) is True


def holds(condition, events):
    """The evaluator that the interpreter of automata calls."""
    if isinstance(condition.test, Guard):
        return guard_holds(condition.test, *events)
    by_name = dict(zip(condition.variables, events, strict=True))
    return truth(condition.test, lambda attribute: by_name[attribute.variable.name][attribute.name]) is True


# ---- the definition -------------------------------------------------------------------------------------------------


def valuations(formula, stream, left=(), after=-1, contiguous=False):
    """Yield the valuations that begin later than `after`, or just then: lists of (index, atom).

    `left` are the events of left operands around the formula, within the current iteration.
    """
    match formula:
        case Atom():
            begins = range(after + 1, len(stream))
            for i in begins[:1] if contiguous else begins:
                if guard_holds(formula.guard, stream[i]) != formula.negated:
                    yield [(i, formula)]
        case Either():
            yield from valuations(formula.left, stream, left, after, contiguous)
            yield from valuations(formula.right, stream, left, after, contiguous)
        case Then():
            for first in valuations(formula.left, stream, left, after, contiguous):
                for rest in valuations(formula.right, stream, (*left, *first), first[-1][0], formula.contiguous):
                    yield first + rest
        case Repeat():
            for first in valuations(formula.body, stream, left, after, contiguous):
                yield first
                rests = valuations(formula, stream, left, first[-1][0], formula.contiguous)
                yield from (first + rest for rest in rests)
        case Related():
            for found in valuations(formula.body, stream, left, after, contiguous):
                if passes(formula, found, left, stream):
                    yield found


def sites_of(formula):
    match formula:
        case Atom():
            return formula.sites
        case Then() | Either():
            return sites_of(formula.left) | sites_of(formula.right)
        case _:
            return sites_of(formula.body)


def passes(formula, found, left, stream):
    """True if the filter is TRUE for every choice of one event of each of its variables."""
    choices = []
    for role in formula.relation.roles:
        place = found if sites_of(formula.body) & role.sites else left
        choices.append([stream[i] for i, atom in place if atom.sites & role.sites])
    names = [role.variable.name for role in formula.relation.roles]
    for events in itertools.product(*choices):
        by_name = dict(zip(names, events, strict=True))
        value = truth(formula.relation.predicate, lambda a, by_name=by_name: by_name[a.variable.name][a.name])
        if value is not True:
            return False
    return True


def matches_by_definition(formula, stream, w=math.inf):
    """Sets of marked indices by the index of the last event, of the valuations whose events span less than `w`."""
    found = {}
    for valuation in valuations(formula, stream):
        first, last = valuation[0][0], valuation[-1][0]
        if last - first < w:
            found.setdefault(last, set()).add(frozenset(i for i, atom in valuation if atom.labels))
    return found


# ---- random formulas and streams ------------------------------------------------------------------------------------

VALUES = (None, 1, 2, 3)


@st.composite
def streams(draw, longest=6):
    event = st.fixed_dictionaries({"type": st.sampled_from("AAB"), "k": st.sampled_from(VALUES)})
    return draw(st.lists(event, min_size=1, max_size=longest))


@st.composite
def formulas(draw, depth=3):
    """A formula with filters that registers can test; its sites are the numbers of its atoms, from left to right."""
    n_sites, n_filters = itertools.count(), itertools.count()

    def part(depth, before):
        kinds = ["atom"] if depth == 0 else ["atom", "either", "then", "then", "then", "plus"]
        match draw(st.sampled_from(kinds)):
            case "atom":
                unmarked = draw(st.integers(0, 7)) == 0
                guard = draw(st.sampled_from([None, None, None, compare("k", "<", 3)]))
                made = atom(
                    draw(st.sampled_from(["A", "A", "B", None])),
                    next(n_sites),
                    guard,
                    () if unmarked else ("x",),
                    unmarked,
                )
            case "either":
                made = either(part(depth - 1, before), part(depth - 1, before))
            case "then":
                first = part(depth - 1, before)
                made = Then(first, part(depth - 1, before | sites_of(first)), draw(st.integers(0, 3)) == 0)
            case "plus":
                made = plus(part(depth - 1, before), draw(st.booleans()))
        return related_somehow(made, before) if draw(st.booleans()) else made

    def related_somehow(made, before):
        inner = sorted(sites_of(made))
        known = st.sampled_from([inner, inner, sorted(before) or inner])
        roles = {}
        for name in "xyz"[: draw(st.sampled_from([1, 2, 2, 2, 3]))]:
            site = st.sampled_from(draw(known))
            roles[name] = {draw(site), draw(site)} if draw(st.integers(0, 5)) == 0 else {draw(site)}
        return related(made, draw(predicates(sorted(roles))), next(n_filters), **roles)

    return testable(part(depth, frozenset()))


def testable(formula):
    """A formula without its filters that registers cannot test."""
    while True:
        try:
            build_rma(formula)
        except UnboundedFilterError as error:
            formula = _without(formula, error.start)
        else:
            return formula


def _without(formula, number):
    match formula:
        case Atom():
            return formula
        case Either():
            return Either(_without(formula.left, number), _without(formula.right, number))
        case Then():
            return Then(_without(formula.left, number), _without(formula.right, number), formula.contiguous)
        case Repeat():
            return Repeat(_without(formula.body, number), formula.contiguous)
        case Related():
            body = _without(formula.body, number)
            return body if formula.relation.span[0] == number else Related(body, formula.relation)


@st.composite
def predicates(draw, names):
    name = st.sampled_from(names)
    one = st.builds(lambda x, op, y: compare(f"{x}.k", op, f"{y}.k"), name, st.sampled_from(sorted(COMPARISONS)), name)
    both = st.builds(lambda a, b: s.And((a, b)), one, one)
    return draw(st.one_of(one, one, both, st.builds(s.Not, one)))


def unwritten_reads(automaton):
    """Return the transitions that read a register that a trail to their source has not written (section 4).

    An automaton without such transitions never evaluates a formula on an empty register.
    """
    steps = [(t.source, t.target, t.writes) for t in automaton.transitions]
    steps += [(source, target, frozenset()) for source, target in automaton.silent]
    written = {automaton.start: frozenset()}  # on all walks to a state
    changed = True
    while changed:
        changed = False
        for source, target, writes in steps:
            if source in written:
                now = written[source] | writes
                now &= written.get(target, now)
                changed |= written.get(target) != now
                written[target] = now
    return {t for t in automaton.transitions if t.source in written and not t.reads <= written[t.source]}
