"""Formulas written with as few parentheses as the binding of the operators allows, and read again."""

from hypothesis import strategies as st
from strategies import property_test

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import parse

FILTER, OR, ALL, CONTIGUOUS, SEQUENCE, POSTFIX, ATOM = range(7)  # from the loosest to the tightest
FILTERS = ["{0}[p = 1]", "{0}[p = 1] AND {0}[q > 2]", "{0}[p = 1] OR {0}[q > 2]"]


@st.composite
def written(draw, least=FILTER, right=False, depth=4):
    """Return a formula as text, and with all its parentheses, where an operator of at least this binding may stand.

    A filtered formula may stand without parentheses where nothing is written to the left of it.
    """
    kind = draw(st.sampled_from(range(7))) if depth else ATOM
    below = depth - 1
    match kind:
        case 6:
            name = draw(st.sampled_from("ABC"))
            return name, name
        case 5:
            text, full = draw(written(POSTFIX, right, below))
            sign = draw(st.sampled_from(["+", ":+", "AS x", "?", "*", ":*", "{2}", "{1,}", ":{2,3}", "->+", "->{1,2}"]))
            text, full = f"{text} {sign}", f"({full}) {sign}"
        case 0:
            text, full = draw(written(FILTER, False, below))
            filter_ = draw(st.sampled_from(FILTERS)).format("A")
            text, full = f"{text} FILTER {filter_}", f"({full}) FILTER {filter_}"
        case _:
            sign = {OR: "OR", ALL: "ALL", CONTIGUOUS: ":"}.get(kind) or draw(st.sampled_from([";", "->", "; !C ;"]))
            first, first_full = draw(written(kind, right, below))
            second, second_full = draw(written(kind + 1, True, below))
            text, full = f"{first} {sign} {second}", f"({first_full}) {sign} ({second_full})"
    needed = right if kind == FILTER else kind < least
    return (f"({text})" if needed or draw(st.integers(0, 9)) == 0 else text), full


def formula(text):
    return parse(f"SELECT * FROM S WHERE {text}").formula


@property_test(1.0)
def test_a_formula_means_what_it_means_with_all_parentheses(data):
    text, full = data.draw(written())
    assert formula(text) == formula(full)


def test_each_operator_binds_as_documented():
    text = "A ALL B OR C : D ; E AS x ALL F + FILTER A[p = 1] ALL G"
    full = "(((A ALL B) OR ((C : (D ; (E AS x))) ALL (F +))) FILTER A[p = 1]) ALL G"
    assert formula(text) == formula(full)
    assert isinstance(formula(text), s.Conjunction)
