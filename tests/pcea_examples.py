"""Queries, streams and automata of the paper on PCEA, and their meaning by brute force, for tests."""

from hypothesis import strategies as st

from cer_gpu.automaton.conjunctive import QueryAtom


def query_of(text):
    """The atoms of a query such as "T(x), S(x, y)" without constants."""
    atoms = [part.partition("(") for part in text.split(")") if part.strip(", ")]
    return tuple(
        QueryAtom(kind.strip(", "), frozenset(filter(None, (x.strip() for x in terms.split(",")))))
        for kind, _, terms in atoms
    )


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
    return tuple(draw(st.lists(st.builds(QueryAtom, st.sampled_from(kinds), variables), min_size=1, max_size=most)))


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
