"""Queries, streams and automata of the paper on PCEA, and their meaning by brute force, for tests."""

from hypothesis import strategies as st
from reference_pcea import PCEA, Event, Pattern, PceaTransition, Variable, chain, equality

from cer_gpu.automaton.conjunctive import ConjunctAtom


def _parts(text):
    for part in text.split(")"):
        if part.strip(", "):
            relation, _, terms = part.partition("(")
            yield relation.strip(", "), [term.strip() for term in terms.split(",") if term.strip()]


def query_of(text):
    """The atoms of a query such as "T(x), S(x, y)" without constants."""
    return tuple(ConjunctAtom(kind, frozenset(terms)) for kind, terms in _parts(text))


Q0 = query_of("T(x), S(x, y), R(x, y)")
"""Query of figure 2."""
Q1_OF_SECTION_4 = query_of("T(x), R(x, y), S(y), T(x)")
"""Query Q1 of section 4 without its constant: it is not hierarchical."""
Q1 = query_of("R(x, y, z), S(x, y, v), T(x, w), U(x, y)")
Q2 = query_of("R(x, y, z), R(x, y, v), U(x, y)")
"""Queries of figures 3 and 4."""


@st.composite
def queries(draw, kinds="RST", most=5, names="uvwxyz"):
    """Any query without constants."""
    variables = st.frozensets(st.sampled_from(names), max_size=4)
    return tuple(draw(st.lists(st.builds(ConjunctAtom, st.sampled_from(kinds), variables), min_size=1, max_size=most)))


@st.composite
def hierarchical_variables(draw, most=5, names="uvwxyz"):
    """Variables of the atoms of a hierarchical query: the paths of a random forest."""
    parents = [draw(st.integers(-1, i - 1)) for i in range(draw(st.integers(0, len(names))))]
    chosen = draw(st.lists(st.integers(-1, len(parents) - 1), min_size=1, max_size=most))
    found = []
    for node in chosen:
        path = set()
        while node >= 0:
            path.add(names[node])
            node = parents[node]
        found.append(frozenset(path))
    return found


# ---- events and atoms with terms ------------------------------------------------------------------------------------


def stream_of(text):
    """The events of a stream such as "S(2, 11), T(2)"."""
    return [Event(relation, tuple(map(int, values))) for relation, values in _parts(text)]


def atoms_of(text):
    """The atoms of a query such as "T(x), S(2, y)"; numbers are constants."""
    return tuple(
        Pattern(relation, tuple(int(term) if term.isdigit() else Variable(term) for term in terms))
        for relation, terms in _parts(text)
    )


def atom(text):
    (found,) = atoms_of(text)
    return found


def joins(earlier, later):
    """The paper's notation (Tx, Sxy)."""
    return equality(atoms_of(earlier), atom(later))


STREAM = stream_of("S(2, 11), T(2), R(1, 10), S(2, 11), T(1), R(2, 11), S(4, 13), T(1)")
"""Stream S0 of section 2."""
DOT = "●"


def c0():
    """Automaton C0 of example 2.1."""
    return chain(
        ["q0", "q1", "q2"],
        [("q0", atom("T(x)"), DOT)],
        [
            ("q0", atom("S(x, y)"), joins("T(x)", "S(x, y)"), DOT, "q1"),
            ("q1", atom("R(x, y)"), joins("S(x, y)", "R(x, y)"), DOT, "q2"),
        ],
        ["q2"],
    )


def p0():
    """Automaton P0 of figure 1, on the right."""
    t, s, r = map(atom, ["T(x)", "S(x, y)", "R(x, y)"])
    dot = frozenset(DOT)
    gathered = (("q0", equality([t], r)), ("q1", equality([s], r)))
    return PCEA(
        ("q0", "q1", "q2"),
        (
            PceaTransition((), t, dot, "q0"),
            PceaTransition((), s, dot, "q1"),
            PceaTransition(gathered, r, dot, "q2"),
        ),
        frozenset(["q2"]),
    )


def at(*positions, label=DOT):
    """The valuation of one label."""
    return frozenset((label, position) for position in positions)


def to_atoms(*positions):
    """The valuation of a t-homomorphism: the positions of the atoms 0, 1, ..."""
    return frozenset(enumerate(positions))


# ---- the definition -------------------------------------------------------------------------------------------------


def t_homomorphisms(query, stream):
    """The t-homomorphisms of a query to a whole stream, as valuations."""

    def extended(number, chosen, values):
        if number == len(query):
            yield frozenset(enumerate(chosen))
            return
        pattern = query[number]
        for position, event in enumerate(stream):
            if event.relation != pattern.relation or len(event.values) != len(pattern.terms):
                continue
            mapped = dict(values)
            if all(
                (mapped.setdefault(term, value) if isinstance(term, Variable) else term) == value
                for term, value in zip(pattern.terms, event.values, strict=True)
            ):
                yield from extended(number + 1, [*chosen, position], mapped)

    return set(extended(0, [], {}))


def by_last_event(query, stream):
    """The t-homomorphisms of a query by the position of their last event."""
    found = [set() for _ in stream]
    for valuation in t_homomorphisms(query, stream):
        found[max(position for _, position in valuation)].add(valuation)
    return found


# ---- random queries and streams with terms --------------------------------------------------------------------------

VALUES = (1, 2)


@st.composite
def streams(draw, query, n_more=4):
    """A stream of instances of the atoms of a query in any order, most of them with the values of one homomorphism."""
    common = {term: draw(st.sampled_from(VALUES)) for pattern in query for term in pattern.terms}
    chosen = [*query, *draw(st.lists(st.sampled_from(query), max_size=n_more))]

    def value(term):
        if not isinstance(term, Variable):
            return term
        return common[term] if draw(st.integers(0, 5)) else draw(st.sampled_from(VALUES))

    return [Event(p.relation, tuple(map(value, p.terms))) for p in draw(st.permutations(chosen))]


@st.composite
def hierarchical_atoms(draw, relations, distinct=False, most=4):
    """Atoms of a hierarchical query over relations with their numbers of terms; variables may repeat."""
    found = []
    left = list(relations)
    for variables in draw(hierarchical_variables(most=most, names="vwxyz"[: draw(st.integers(1, 5))])):
        fitting = [relation for relation in left if relations[relation] >= len(variables)]
        if not fitting:
            continue
        relation = draw(st.sampled_from(fitting))
        if distinct:
            left.remove(relation)
        names = [Variable(name) for name in sorted(variables)]
        more = st.sampled_from([*names, *names, *VALUES])
        terms = [*names, *(draw(more) for _ in range(relations[relation] - len(names)))]
        found.append(Pattern(relation, tuple(draw(st.permutations(terms)))))
    return tuple(found) or (Pattern(max(relations, key=relations.get), (*VALUES, *VALUES)[: max(relations.values())]),)
