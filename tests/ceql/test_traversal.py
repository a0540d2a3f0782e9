"""Traversal that all passes share, and the one bound on the nesting of a query."""

import pickle
import sys

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.grammar import MAX_NESTING
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.properties import why_not_properties
from cer_gpu.ceql.traversal import children, fold, walk

EVENTS = pa.table({"type": ["A", "B", "A"], "p": [1, 2, 3]})


def formula(text):
    return parse(f"SELECT * FROM S WHERE {text}").formula


def test_walk_yields_parents_first_from_left_to_right():
    kinds = [
        type(node).__name__ for node in walk(formula("A AS x ; NOT(B FILTER B[p = 1]) FILTER x[NOT p IN {2, -q}]"))
    ]
    assert " ".join(kinds) == (
        "Filtered Sequence Assign EventType Negation VariableFilter Comparison Attribute Literal "
        "VariableFilter Not Membership Attribute Literal Negative Attribute"
    )


def test_children_are_collected_from_every_field():
    negation = formula("NOT(A)")
    assert children(negation) == []
    both = formula("A FILTER A[p = 1] AND A[p = 2]")
    assert children(both) == [both.formula, both.filter]
    assert children(both.filter) == list(both.filter.operands)


def test_fold_combines_children_first_and_from_left_to_right():
    seen = []

    def descend(node):
        seen.append(f"down {type(node).__name__}")
        return s.subformulas(node)

    def combine(node, below):
        seen.append(f"up {type(node).__name__}")
        return f"({' '.join(below)})" if below else node.event.name

    assert fold(formula("(A ; B) OR C"), combine, descend) == "((A B) C)"
    assert " ".join(seen) == (
        "down Disjunction down Sequence down EventType up EventType down EventType up EventType up Sequence "
        "down EventType up EventType up Disjunction"
    )


# ---- nesting ------------------------------------------------------------------------------------------------------


def alternating(n, *signs):
    return "".join(f"(p = {i} {signs[i % 2]} " for i in range(n)) + "p = 0" + ")" * n


LEVELS = {  # WHERE with n levels, besides those of an event type, or of a comparison and its operands
    "NOT": lambda n: f"A FILTER A[{'NOT ' * n}p = 1]",
    "a sign": lambda n: f"A FILTER A[{'- ' * n}p = 1]",
    "a sum": lambda n: f"A FILTER A[{' + '.join(['p'] * (n + 1))} = 1]",
    "a difference in parentheses": lambda n: f"A FILTER A[{'p - (' * n}p{')' * n} = 1]",
    "a quotient": lambda n: f"A FILTER A[{'p / (' * n}p{')' * n} = 1]",
    "AND and OR of predicates": lambda n: f"A FILTER A[{alternating(n, 'AND', 'OR')}]",
    "AND and OR of filters": lambda n: (
        "A FILTER " + "".join(f"(A[p = {i}] {('AND', 'OR')[i % 2]} " for i in range(n)) + "A[p = 0]" + ")" * n
    ),
    "; and OR": lambda n: "(" * n + "A" + "".join(f" {(';', 'OR')[i % 2]} B)" for i in range(n)),
    "+": lambda n: "A" + "+" * n,
}


def in_a_deep_stack(frames, call):
    return in_a_deep_stack(frames - 1, call) if frames else call()


@pytest.mark.parametrize("shape", LEVELS)
def test_a_query_just_within_the_bound_passes_every_stage(shape):
    text = f"SELECT * FROM S WHERE {LEVELS[shape](MAX_NESTING - 4)}"

    def all_stages():
        query = cer_gpu.compile(text, schema=EVENTS.schema)
        query = pickle.loads(pickle.dumps(query))
        assert str(query.explain(EVENTS, detail="all"))
        return query.evaluate(EVENTS).num_rows

    assert in_a_deep_stack(300, all_stages) >= 0


@pytest.mark.parametrize(
    ("shape", "n"),
    [*((shape, n) for shape in LEVELS for n in (MAX_NESTING + 1, 1_100)), ("NOT", 10_000), ("+", 10_000)],
)
def test_deeper_nesting_is_refused_with_a_hint(shape, n):
    with pytest.raises(cer_gpu.QueryTooLargeError, match=f"nested more than {MAX_NESTING} levels deep") as caught:
        cer_gpu.compile(f"SELECT * FROM S WHERE {LEVELS[shape](n)}")
    assert caught.value.hint
    assert max(map(len, str(caught.value).split("\n"))) < 300


LONG = {  # long queries that are not deep
    "parentheses of formulas": lambda n: "(" * n + "A" + ")" * n,
    "parentheses of filters": lambda n: "A FILTER " + "(" * n + "A[p = 1]" + ")" * n,
    "parentheses of predicates": lambda n: "A FILTER A[" + "(" * n + "p = 1" + ")" * n + "]",
    "parentheses of expressions": lambda n: "A FILTER A[" + "(" * n + "p" + ")" * n + " = 1]",
    "A ; A ; ...": lambda n: " ; ".join(["A"] * n),
    "A ; (A ; ...)": lambda n: "A ; (" * n + "A" + ")" * n,
    "A ; B : A ; B : ...": lambda n: " : ".join(["A ; B"] * (n // 2)),
    "A OR A OR ...": lambda n: " OR ".join(["A"] * n),
    "A AS x AS y ...": lambda n: "A" + "".join(f" AS x{i}" for i in range(n)),
    "A FILTER ... FILTER ...": lambda n: "A" + "".join(f" FILTER A[p = {i}]" for i in range(n)),
    "A FILTER ... ; A FILTER ... ; ...": lambda n: " ; ".join(f"A AS x{i} FILTER x{i}[p = {i}]" for i in range(n)),
    "FILTER ... AND ...": lambda n: "A FILTER " + " AND ".join(f"A[p = {i}]" for i in range(n)),
    "FILTER ... OR ...": lambda n: "A FILTER " + " OR ".join(f"A[p = {i}]" for i in range(n)),
    "p AND p ...": lambda n: f"A FILTER A[{' AND '.join(f'p <> {i}' for i in range(n))}]",
    "p OR p ...": lambda n: f"A FILTER A[{' OR '.join(f'p = {i}' for i in range(n))}]",
    "IN {...}": lambda n: f"A FILTER A[p IN {{{', '.join(map(str, range(n)))}}}]",
}


@pytest.mark.long("queries of tens of thousands of parts")
@pytest.mark.parametrize("shape", LONG)
def test_long_queries_compile(shape):
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {LONG[shape](1_100)}")
    assert pickle.loads(pickle.dumps(query)).text == query.text
    why_not_properties(parse(query.text).formula)


@pytest.mark.long("queries of tens of thousands of parts")
@pytest.mark.parametrize("shape", ["A ; A ; ...", "A OR A OR ...", "A FILTER ... ; A FILTER ... ; ...", "p OR p ..."])
def test_long_queries_are_explained(shape):
    assert str(cer_gpu.compile(f"SELECT * FROM S WHERE {LONG[shape](1_100)}").explain(detail="all"))


# ---- linear time --------------------------------------------------------------------------------------------------


def n_calls(function, *arguments):
    """Return the number of calls of Python functions; a pass repeated for each filter would more than double it."""
    n = 0

    def count(frame, event, argument):
        nonlocal n
        n += event == "call"

    sys.setprofile(count)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return n


GROWING = LONG | {
    "nested to the left": lambda n: "(" * n + "A" + "".join(f" ; B AS x{i} FILTER x{i}[p > {i}])" for i in range(n)),
    "nested to the right": lambda n: "".join(f"(B AS x{i} ; " for i in range(n)) + "A" + " FILTER A[p > 0])" * n,
    "all filters at the end": lambda n: (
        " ; ".join(f"A AS x{i}" for i in range(n)) + " FILTER " + " AND ".join(f"x{i}[p > {i}]" for i in range(n))
    ),
    "all filters on all": lambda n: "(" + LONG["A ; A ; ..."](n) + ")" + LONG["A FILTER ... FILTER ..."](n)[1:],
    "OR of all filters": lambda n: " OR ".join(f"(A AS x{i} FILTER x{i}[p = {i}])" for i in range(n)),
    "repeated, OR of all filters": lambda n: "A+ FILTER " + " OR ".join(f"A[p = {i}]" for i in range(n)),
}


@pytest.mark.long("counts calls for long queries")
@pytest.mark.parametrize("shape", GROWING)
def test_compiling_a_query_of_twice_the_length_takes_about_twice_the_calls(shape):
    def compile_and_search(n):
        query = cer_gpu.compile(f"SELECT * FROM S WHERE {GROWING[shape](n)}")
        why_not_properties(parse(query.text).formula)

    compile_and_search(10)
    assert n_calls(compile_and_search, 160) < 2.2 * n_calls(compile_and_search, 80)


RELATED = {
    "all filters between events at the end": lambda n: (
        " ; ".join(f"A AS x{i}" for i in range(n + 1))
        + " FILTER "
        + " AND ".join(f"x{i}.p < x{i + 1}.p" for i in range(n))
    ),
    "each filter behind its step": lambda n: (
        "A AS x0" + "".join(f" ; A AS x{i + 1} FILTER x{i}.p < x{i + 1}.p" for i in range(n))
    ),
    "filters to the left": lambda n: "A AS x ; " + " ; ".join(f"(B AS y{i} FILTER y{i}.p > x.p)" for i in range(n)),
    "OR of filters between events": lambda n: (
        "A AS x ; B AS y FILTER " + " OR ".join(f"x.p = y.p AND x.q = {i}" for i in range(n))
    ),
    "all filters behind a conjunction": lambda n: (
        " ALL ".join(f"A AS x{i}" for i in range(n + 1))
        + " FILTER "
        + " AND ".join(f"x{i}.p = x{i + 1}.p" for i in range(n))
    ),
    "each filter behind its part": lambda n: (
        "A AS x0" + "".join(f" ALL A AS x{i + 1} FILTER x{i}.p = x{i + 1}.p" for i in range(n))
    ),
    "a conjunction in brackets": lambda n: f"A AS x ; B AS y FILTER y[{' AND '.join(f'p{i} > x.p' for i in range(n))}]",
}


@pytest.mark.long("counts calls for long queries")
@pytest.mark.parametrize("shape", RELATED)
def test_resolving_filters_between_events_of_twice_the_number_takes_about_twice_the_calls(shape):
    def parse_and_search(n):
        why_not_properties(formula(RELATED[shape](n)))

    parse_and_search(10)
    assert n_calls(parse_and_search, 160) < 2.2 * n_calls(parse_and_search, 80)
    assert list(s.relations(formula(RELATED[shape](1_100))))


ATOMS = {
    "a star": lambda n: ", ".join(f"T(id = x, a{i} = y{i})" for i in range(n)),
    "a chain": lambda n: ", ".join(f"T(id = x{i}, a = x{i + 1})" for i in range(n)),
    "one atom": lambda n: f"T({', '.join(f'a{i} = x' for i in range(n))})",
    "a long head": lambda n: f"T({', '.join(f'a{i} = x{i}' for i in range(n))})",
}


@pytest.mark.long("counts calls for long queries")
@pytest.mark.parametrize("shape", ATOMS)
def test_reading_a_conjunctive_query_of_twice_the_length_takes_about_twice_the_calls(shape):
    def read(n):
        head = ", ".join(f"x{i}" for i in range(n)) if shape == "a long head" else ""
        return parse(f"Q({head}) <- {ATOMS[shape](n)}")

    read(10)
    assert n_calls(read, 160) < 2.2 * n_calls(read, 80)
    assert read(1_100).head is not None


def test_a_chain_of_all_is_one_level_and_its_alternation_with_or_is_many():
    assert formula(" ALL ".join(["A"] * 5_000)).right == formula("A")
    with pytest.raises(cer_gpu.QueryTooLargeError, match=f"nested more than {MAX_NESTING} levels deep"):
        formula("(" * MAX_NESTING + "A" + "".join(f" {('ALL', 'OR')[i % 2]} B)" for i in range(MAX_NESTING)))
