"""Parser: every clause, operator and literal of the language becomes its node."""

import contextlib
import pickle
import random
import re
import time
from fractions import Fraction

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.clauses import MAX_LIMIT
from cer_gpu.ceql.parser import parse
from cer_gpu.errors import QuerySyntaxError


def query(text):
    return parse(text)


def formula(text):
    return parse(f"SELECT * FROM S WHERE {text}").formula


def filter_(text):
    filtered = formula(f"A FILTER {text}")
    assert isinstance(filtered, s.Filtered)
    return filtered.filter


def predicate(text):
    variable_filter = filter_(f"A[{text}]")
    assert isinstance(variable_filter, s.VariableFilter)
    return variable_filter.predicate


def expression(text):
    comparison = predicate(f"{text} = 0")
    assert isinstance(comparison, s.Comparison)
    return comparison.left


# short names for expected trees
def event(name, stream=None):
    return s.EventType(s.Name(name, stream))


def var(name, tested):
    return s.VariableFilter(s.Name(name), tested)


def seq(left, right):
    return s.Sequence(left, right, contiguous=False)


def both(left, right):
    return s.Conjunction(left, right)


def then_next(left, right):
    return s.Sequence(left, right, contiguous=False, next=True)


def without(left, right, *absent):
    return s.Sequence(left, right, contiguous=False, absent=absent)


def absent(name, variable=None, filter_=None):
    return s.Absence(s.Name(name), None if variable is None else s.Name(variable), filter_)


def times(inner, n_min, n_max, how=";"):
    return s.Iteration(inner, how == ":", n_min=n_min, n_max=n_max, next=how == "->")


def contiguous(left, right):
    return s.Sequence(left, right, contiguous=True)


def as_(inner, name):
    return s.Assign(inner, s.Name(name))


def plus(inner):
    return s.Iteration(inner, contiguous=False)


def contiguous_plus(inner):
    return s.Iteration(inner, contiguous=True)


def and_(*operands):
    return s.And(operands)


def or_(*operands):
    return s.Or(operands)


def filters_and(*operands):
    return s.FilterAnd(operands)


def filters_or(*operands):
    return s.FilterOr(operands)


def number(text):
    return s.Literal(int(text) if text.isdigit() else float(text), text)


A, B, C, D = (event(name) for name in "ABCD")
a, b, c, d = (s.Attribute(name) for name in "abcd")
ONE = number("1")
P = s.Comparison("=", a, ONE)  # a = 1
Q = s.Comparison("<", b, number("2"))  # b < 2
R = s.Comparison(">", c, number("3"))  # c > 3


# ---- formulas ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("A", A),
        ("S>A", event("A", "S")),
        ("(A)", A),
        ("((A))", A),
        ("A AS x", as_(A, "x")),
        ("A ; B", seq(A, B)),
        ("A : B", contiguous(A, B)),
        ("A OR B", s.Disjunction(A, B)),
        ("A ALL B", both(A, B)),
        ("A all B", both(A, B)),
        ("A +", plus(A)),
        ("A :+", contiguous_plus(A)),
        ("A FILTER A[a = 1]", s.Filtered(A, var("A", P))),
        ("NOT(A)", s.Negation(s.Name("A"), None, None)),
        ("NOT(S>A)", s.Negation(s.Name("A", "S"), None, None)),
        ("NOT(A FILTER A[a = 1])", s.Negation(s.Name("A"), None, var("A", P))),
        ("NOT(A AS x FILTER x[a = 1])", s.Negation(s.Name("A"), s.Name("x"), var("x", P))),
        # postfix operators in any order
        ("A AS x AS y", as_(as_(A, "x"), "y")),
        ("A AS x + :+", contiguous_plus(plus(as_(A, "x")))),
        ("A + AS x :+", contiguous_plus(as_(plus(A), "x"))),
        ("A :+ AS x +", plus(as_(contiguous_plus(A), "x"))),
        ("A+:+", contiguous_plus(plus(A))),
        ("A++", plus(plus(A))),
        ("NOT(A) AS x +", plus(as_(s.Negation(s.Name("A"), None, None), "x"))),
        ("(A ; B) AS x +", plus(as_(seq(A, B), "x"))),
        # quantifiers
        ("A?", times(A, 0, 1)),
        ("A*", times(A, 0, None)),
        ("A:*", times(A, 0, None, ":")),
        ("A{2}", times(A, 2, 2)),
        ("A{2,}", times(A, 2, None)),
        ("A { 2 , 4 }", times(A, 2, 4)),
        ("A{0,1}", times(A, 0, 1)),
        ("A:{2,3}", times(A, 2, 3, ":")),
        ("A ->+", times(A, 1, None, "->")),
        ("A ->*", times(A, 0, None, "->")),
        ("A ->{2,3}", times(A, 2, 3, "->")),
        ("A AS x? AS y{2}", times(as_(times(as_(A, "x"), 0, 1), "y"), 2, 2)),
        ("A FILTER A.a = 1{2}", times(s.Filtered(A, var("A", P)), 2, 2)),
        # the next event
        ("A -> B", then_next(A, B)),
        ("A -> B ; C", seq(then_next(A, B), C)),
        ("A ; B -> C", then_next(seq(A, B), C)),
        ("A -> B : C -> D", contiguous(then_next(A, B), then_next(C, D))),
        ("A -> B+ AS x", then_next(A, as_(plus(B), "x"))),
        ("A FILTER A.a = 1 -> B", then_next(s.Filtered(A, var("A", P)), B)),
        ("S>A->B", then_next(event("A", "S"), B)),
        # absences
        ("A ; !B ; C", without(A, C, absent("B"))),
        ("A ; !(B) ; C", without(A, C, absent("B"))),
        ("A ; !B ; !C ; D", without(A, D, absent("B"), absent("C"))),
        ("A ; B ; !(C AS c FILTER c[a = 1]) ; D", without(seq(A, B), D, absent("C", "c", var("c", P)))),
        ("A ; !B ; C ; D", seq(without(A, C, absent("B")), D)),
        ("A ; !B ; C -> D", then_next(without(A, C, absent("B")), D)),
        ("A : B ; !C ; D", contiguous(A, without(B, D, absent("C")))),
        ("A FILTER A.a = 1 ; !B ; C", without(s.Filtered(A, var("A", P)), C, absent("B"))),
        ("A ; !B", s.TrailingAbsence(A, (absent("B"),))),
        ("A ; !B ; !C", s.TrailingAbsence(A, (absent("B"), absent("C")))),
        ("A FILTER A.a = 1 ; !B", s.TrailingAbsence(s.Filtered(A, var("A", P)), (absent("B"),))),
        ("(A ; !B) AS x", as_(s.TrailingAbsence(A, (absent("B"),)), "x")),
        # left-associative
        ("A ; B ; C", seq(seq(A, B), C)),
        ("A : B : C", contiguous(contiguous(A, B), C)),
        ("A OR B OR C", s.Disjunction(s.Disjunction(A, B), C)),
        ("A ; (B ; C)", seq(A, seq(B, C))),
        ("A ALL B ALL C", both(both(A, B), C)),
        ("A ALL (B ALL C)", both(A, both(B, C))),
        # binding: AS, + and :+, then ;, then :, then ALL, then OR, then FILTER
        ("A ; B AS x", seq(A, as_(B, "x"))),
        ("A ; B +", seq(A, plus(B))),
        ("A : B :+", contiguous(A, contiguous_plus(B))),
        ("A ; B : C", contiguous(seq(A, B), C)),
        ("A : B ; C", contiguous(A, seq(B, C))),
        ("A OR B ; C", s.Disjunction(A, seq(B, C))),
        ("A : B OR C : D", s.Disjunction(contiguous(A, B), contiguous(C, D))),
        ("A OR B : C ; D", s.Disjunction(A, contiguous(B, seq(C, D)))),
        ("A ALL B ; C", both(A, seq(B, C))),
        ("A : B ALL C : D", both(contiguous(A, B), contiguous(C, D))),
        ("A ALL B OR C ALL D", s.Disjunction(both(A, B), both(C, D))),
        ("A OR B ALL C", s.Disjunction(A, both(B, C))),
        ("A ALL B + AS x", both(A, as_(plus(B), "x"))),
        ("(A ALL B) ; C", seq(both(A, B), C)),
        ("(A ALL B)+ AS x", as_(plus(both(A, B)), "x")),
        ("A ALL NOT(B)", both(A, s.Negation(s.Name("B"), None, None))),
        ("A ALL B FILTER A[a = 1]", s.Filtered(both(A, B), var("A", P))),
        ("A ALL (B FILTER B[a = 1])", both(A, s.Filtered(B, var("B", P)))),
        # ALL is a name where no operator may stand
        ("ALL ALL all", both(event("ALL"), event("all"))),
        ("A AS all ALL B AS ALL", both(as_(A, "all"), as_(B, "ALL"))),
        ("(A OR B) ; C", seq(s.Disjunction(A, B), C)),
        ("A ; B FILTER A[a = 1]", s.Filtered(seq(A, B), var("A", P))),
        ("A OR B FILTER A[a = 1]", s.Filtered(s.Disjunction(A, B), var("A", P))),
        ("A ; (B FILTER B[a = 1])", seq(A, s.Filtered(B, var("B", P)))),
        ("A FILTER A[a = 1] FILTER A[b < 2]", s.Filtered(s.Filtered(A, var("A", P)), var("A", Q))),
    ],
)
def test_formulas_parse_to_their_trees(text, tree):
    assert formula(text) == tree


# an operator after a filter takes the whole filtered formula as its left side
@pytest.mark.parametrize(
    ("text", "parenthesised"),
    [
        ("A FILTER A[a=1] ; B", "(A FILTER A[a=1]) ; B"),
        ("A ; B FILTER A[a=1] ; C", "((A ; B) FILTER A[a=1]) ; C"),
        ("A FILTER A[a=1] : B ; C", "(A FILTER A[a=1]) : (B ; C)"),
        ("A FILTER A[a=1] ; B ; C : D", "(((A FILTER A[a=1]) ; B) ; C) : D"),
        ("A FILTER A[a=1] ; B FILTER B[b=2] ; C", "(((A FILTER A[a=1]) ; B) FILTER B[b=2]) ; C"),
        ("A FILTER A[a=1] ; B AS x OR C", "((A FILTER A[a=1]) ; (B AS x)) OR C"),
        ("A FILTER A[a=1] ALL B", "(A FILTER A[a=1]) ALL B"),
        ("A FILTER A.a=1 ALL B", "(A FILTER A[a=1]) ALL B"),
        ("A ALL B FILTER A[a=1] ALL C", "((A ALL B) FILTER A[a=1]) ALL C"),
        ("A FILTER A[a=1] ALL B : C ; D", "(A FILTER A[a=1]) ALL (B : (C ; D))"),
        ("A FILTER A[a=1] ; B : C ALL D", "(((A FILTER A[a=1]) ; B) : C) ALL D"),
        ("A FILTER A[a=1] ALL B OR C ALL D", "((A FILTER A[a=1]) ALL B) OR (C ALL D)"),
        ("A FILTER A[a=1] OR B ALL C", "(A FILTER A[a=1]) OR (B ALL C)"),
        ("A FILTER A[a=1] OR A[b=2] ALL B", "(A FILTER (A[a=1] OR A[b=2])) ALL B"),
        ("A FILTER A[a=1] OR B", "(A FILTER A[a=1]) OR B"),
        ("A FILTER A[a=1] OR (B)", "(A FILTER A[a=1]) OR B"),
        ("A FILTER A[a=1] OR (B FILTER B[b=2])", "(A FILTER A[a=1]) OR (B FILTER B[b=2])"),
        ("A FILTER A[a=1] OR B ; C", "(A FILTER A[a=1]) OR (B ; C)"),
        ("A FILTER A[a=1] OR A[b=2] OR B", "(A FILTER (A[a=1] OR A[b=2])) OR B"),
        ("A FILTER A[a=1] AS x", "(A FILTER A[a=1]) AS x"),
        ("A ; B FILTER A[a=1] AS x", "((A ; B) FILTER A[a=1]) AS x"),
        ("A FILTER A[a=1] + ; B", "((A FILTER A[a=1]) +) ; B"),
        ("A FILTER A[a=1] :+ AS x", "((A FILTER A[a=1]) :+) AS x"),
    ],
)
def test_a_formula_goes_on_after_a_filter(text, parenthesised):
    assert formula(text) == formula(parenthesised)


# ---- filters -----------------------------------------------------------------------------------------------

AP, AQ, AR = (var("A", p) for p in (P, Q, R))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("A[a=1]", AP),
        ("(A[a=1])", AP),
        ("x[a=1]", var("x", P)),
        ("S>x[a=1]", s.VariableFilter(s.Name("x", "S"), P)),
        ("A[a=1] AND A[b<2]", filters_and(AP, AQ)),
        ("A[a=1] OR A[b<2]", filters_or(AP, AQ)),
        ("A[a=1] OR A[b<2] AND A[c>3]", filters_or(AP, filters_and(AQ, AR))),
        ("A[a=1] AND A[b<2] OR A[c>3]", filters_or(filters_and(AP, AQ), AR)),
        ("(A[a=1] OR A[b<2]) AND A[c>3]", filters_and(filters_or(AP, AQ), AR)),
        ("A[a=1] AND (A[b<2] OR A[c>3])", filters_and(AP, filters_or(AQ, AR))),
        ("A[a=1] AND A[b<2] AND A[c>3]", filters_and(AP, AQ, AR)),
        ("A[a=1] OR A[b<2] OR A[c>3]", filters_or(AP, AQ, AR)),
        ("A[a=1] OR ((A[b<2]))", filters_or(AP, AQ)),
    ],
)
def test_filters_parse_to_their_trees(text, tree):
    assert filter_(text) == tree


# an OR joins filters if a name with a bracket follows, whatever stands between
@pytest.mark.parametrize(
    "between", [" ", "\n", "/* B[ */", " -- B[b=1]\n", " /* x */ ( /* y */ ", "(/**/(", " S > ", " S /* of */ > "]
)
def test_comments_do_not_change_the_operands_of_or(between):
    closed = ")" * between.count("(")
    assert isinstance(formula(f"A FILTER A[a=1] OR{between}B[b<2]{closed}"), s.Filtered)
    assert isinstance(formula(f"A FILTER A[a=1] OR{between}B{closed}"), s.Disjunction)
    assert isinstance(formula(f"A FILTER A[a=1] OR{between}`B`/*[*/{closed} FILTER B[b<2]"), s.Filtered)


SPACES = [
    "",
    " ",
    "\n",
    " " * 3_000,
    "\n    " * 1_000,
    "/* B[p = 1] */" * 300,
    "-- ( B[\n" * 300,
    " /**/ -- '\n\t" * 200,
]
TOKENS = (
    "( A AS x OR NOT ( B FILTER B [ p = 1 ] ) FILTER x [ p = 1 ] OR ( x [ p = 2 ] AND x [ q > 3 ] ) OR C ; S > D ) +"
)


@pytest.mark.parametrize("space", SPACES[3:], ids=lambda space: repr(space[:9]))
def test_white_space_after_or_is_parsed_in_bounded_time(space):
    begin = time.process_time()
    for rest in ("B", "x[p = 2]", "((x[p = 2]))", "((B))", "(S > x[p = 2])", "", "("):
        with contextlib.suppress(QuerySyntaxError):
            formula(f"A AS x FILTER x[p = 1] OR{space} {rest}")
    assert time.process_time() - begin < 2


def test_white_space_comments_and_parentheses_may_stand_between_any_tokens():
    rng = random.Random(19)
    expected = formula(TOKENS)
    for _ in range(40):
        text = "".join(token + " " + rng.choice(SPACES) for token in TOKENS.split())
        wrapped = re.sub(r"\b(A|C|D)\b(?!\s*\()", lambda m: "(" * 3 + m[0] + ")" * 3 if m[0] == "C" else m[0], text)
        begin = time.process_time()
        assert formula(wrapped) == expected
        assert time.process_time() - begin < 2


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_parentheses_do_not_change_the_operands_of_or(n):
    opened, closed = "(\n" * n, " )" * n
    first, second = var("A", P), var("A", Q)
    assert formula(f"A FILTER {opened}A[a=1]{closed} OR {opened}A[b<2]{closed}") == s.Filtered(
        A, filters_or(first, second)
    )
    filtered = s.Filtered(A, filters_or(first, second))
    assert formula(f"A FILTER A[a=1] OR {opened}A[b<2]{closed} OR {opened}B{closed}") == s.Disjunction(filtered, B)
    assert formula(f"A FILTER A[a=1] OR {opened}A[b<2]{closed} OR {opened}B : C{closed} OR D") == s.Disjunction(
        s.Disjunction(filtered, contiguous(B, C)), D
    )


def test_no_or_of_filters_follows_an_or_of_formulas():
    with pytest.raises(QuerySyntaxError, match=r"found '\['"):
        formula("A FILTER A[a=1] OR B OR A[b<2]")


def like(operand, regex):
    return s.Like("LIKE", operand, (s.Literal(regex),))


# ---- predicates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a=1 AND b<2", and_(P, Q)),
        ("a=1 OR b<2", or_(P, Q)),
        ("NOT a=1", s.Not(P)),
        ("NOT NOT a=1", s.Not(s.Not(P))),
        ("a=1 OR b<2 AND c>3", or_(P, and_(Q, R))),
        ("a=1 AND b<2 OR c>3", or_(and_(P, Q), R)),
        ("NOT a=1 AND b<2", and_(s.Not(P), Q)),
        ("NOT (a=1 AND b<2)", s.Not(and_(P, Q))),
        ("(a=1 OR b<2) AND c>3", and_(or_(P, Q), R)),
        ("a=1 AND b<2 AND c>3", and_(P, Q, R)),
        ("((a=1))", P),
        # tests
        ("a LIKE 'x.*y'", like(a, "x.*y")),
        ("a NOT LIKE 'x'", s.Not(like(a, "x"))),
        ("NOT a LIKE 'x'", s.Not(like(a, "x"))),
        ("a GLOB 'x*'", s.StringTest("GLOB", a, (s.Literal("x*"),))),
        ("a NOT glob {'x', 'it''s'} nocase", s.Not(s.StringTest("GLOB", a, (s.Literal("x"), s.Literal("it's")), True))),
        ("cidr(a, '10.0.0.0/8', '::/0')", s.StringTest("CIDR", a, (s.Literal("10.0.0.0/8"), s.Literal("::/0")))),
        ("(CIDR(a, '::/0')) AND NOT (a=1)", and_(s.StringTest("CIDR", a, (s.Literal("::/0"),)), s.Not(P))),
        ("ANY(a) = 1", s.AnyElement(s.Comparison("=", s.Element(a), ONE))),
        ("1 = any(a)", s.AnyElement(s.Comparison("=", ONE, s.Element(a)))),
        ("ANY(a).b.c LIKE 'x'", s.AnyElement(like(s.Element(a, ("b", "c")), "x"))),
        ("ANY(a) NOT LIKE 'x'", s.AnyElement(s.Not(like(s.Element(a), "x")))),
        ("NOT ANY(a) LIKE 'x'", s.Not(s.AnyElement(like(s.Element(a), "x")))),
        ("any = 1", s.Comparison("=", s.Attribute("any"), ONE)),
        ("glob GLOB 'nocase'", s.StringTest("GLOB", s.Attribute("glob"), (s.Literal("nocase"),))),
        ("a IN {1}", s.Membership(a, (ONE,))),
        ("a IN {1, 2.5}", s.Membership(a, (ONE, number("2.5")))),
        ("a IN {'u', 'v'}", s.Membership(a, (s.Literal("u"), s.Literal("v")))),
        ("a IN {-1, b}", s.Membership(a, (s.Negative(ONE), b))),
        ("a NOT IN {1}", s.Not(s.Membership(a, (ONE,)))),
        ("a IN {1..2}", and_(s.Comparison(">=", a, ONE), s.Comparison("<=", a, number("2")))),
        ("a IN {1.5..2.5}", and_(s.Comparison(">=", a, number("1.5")), s.Comparison("<=", a, number("2.5")))),
        ("a IN {1.e0..2.}", and_(s.Comparison(">=", a, number("1.e0")), s.Comparison("<=", a, number("2.")))),
        ("a IN {-1..1}", and_(s.Comparison(">=", a, s.Negative(ONE)), s.Comparison("<=", a, ONE))),
        ("a IN {1..}", s.Comparison(">=", a, ONE)),
        ("a IN {..1}", s.Comparison("<=", a, ONE)),
        ("a NOT IN {..1}", s.Not(s.Comparison("<=", a, ONE))),
        ("a IN RANGE(1, b)", and_(s.Comparison(">=", a, ONE), s.Comparison("<=", a, b))),
        ("a + 1 IN RANGE(b, c)", predicate("a + 1 >= b AND a + 1 <= c")),
        ("a NOT IN RANGE(1, 2)", s.Not(predicate("a IN RANGE(1, 2)"))),
        ("a BETWEEN 1 AND b", predicate("a IN RANGE(1, b)")),
        ("a NOT BETWEEN 1 AND b", s.Not(predicate("a IN RANGE(1, b)"))),
        ("a BETWEEN 1 AND 2 AND b<2", predicate("a IN RANGE(1, 2) AND b<2")),
        ("NOT a BETWEEN 1 AND 2 OR a=1", or_(s.Not(predicate("a IN RANGE(1, 2)")), P)),
        ("a + 1 BETWEEN b AND c", predicate("a + 1 IN RANGE(b, c)")),
        ("a IS NULL", s.IsNull(a)),
        ("a IS NOT NULL", s.Not(s.IsNull(a))),
        ("NOT a / b IS NULL AND a=1", and_(s.Not(s.IsNull(s.Arithmetic("/", a, b))), P)),
        ("a - b <= 5 MINUTES", s.Comparison("<=", s.Arithmetic("-", a, b), s.Duration(Fraction(300)))),
        ("1 hour 30 minutes >= a", s.Comparison(">=", s.Duration(Fraction(5400)), a)),
        ("a < -1.5 DAYS", s.Comparison("<", a, s.Negative(s.Duration(Fraction(129_600))))),
        ("a BETWEEN 1 DAY AND 1 DAY 2 SECONDS", predicate("a IN RANGE(86400 SECONDS, 86402 SECONDS)")),
        ("a + b IN {1, 2}", s.Membership(s.Arithmetic("+", a, b), (ONE, number("2")))),
    ],
)
def test_predicates_parse_to_their_trees(text, tree):
    assert predicate(text) == tree


@pytest.mark.parametrize(
    ("sign", "means"),
    [("=", "="), ("==", "="), ("<>", "<>"), ("!=", "<>"), ("<", "<"), ("<=", "<="), (">", ">"), (">=", ">=")],
)
@pytest.mark.parametrize("space", ["", " "])
def test_comparison_signs_parse_with_and_without_spaces(sign, means, space):
    assert predicate(f"a{space}{sign}{space}b") == s.Comparison(means, a, b)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", s.Arithmetic("+", a, s.Arithmetic("*", b, c))),
        ("a * b + c", s.Arithmetic("+", s.Arithmetic("*", a, b), c)),
        ("(a + b) * c", s.Arithmetic("*", s.Arithmetic("+", a, b), c)),
        ("a - b - c", s.Arithmetic("-", s.Arithmetic("-", a, b), c)),
        ("a / b % c", s.Arithmetic("%", s.Arithmetic("/", a, b), c)),
        ("-a * b", s.Arithmetic("*", s.Negative(a), b)),
        ("a * -b", s.Arithmetic("*", a, s.Negative(b))),
        ("- - a", s.Negative(s.Negative(a))),
        ("-(a + b)", s.Negative(s.Arithmetic("+", a, b))),
        ("+a", a),
        ("a - +b", s.Arithmetic("-", a, b)),
        ("a-1", s.Arithmetic("-", a, ONE)),
    ],
)
def test_arithmetic_binds_as_usual(text, tree):
    assert expression(text) == tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("007", 7),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.e3", 1000.0),
        ("2.", 2.0),
        ("2.5E-3", 0.0025),
        ("1e+2", 100.0),
        ("9223372036854775808", 2**63),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", float(2**64)),  # more than 64 bits
        ("'text'", "text"),
        ("''", ""),
        ("'it''s'", "it's"),
        ("''''", "'"),
        ("'a -- b /* c */ \"d\"'", 'a -- b /* c */ "d"'),
        ("'two\nlines'", "two\nlines"),
        ("'é🔥'", "é🔥"),
        ("TRUE", True),
        ("false", False),
    ],
)
def test_literals_have_their_values_and_types(text, value):
    literal = expression(text)
    assert isinstance(literal, s.Literal)
    assert literal.value == value
    assert type(literal.value) is type(value)


def test_a_number_keeps_its_digits():
    assert expression("0.10000000000000000001").text == "0.10000000000000000001"


def test_literals_of_different_types_are_different():
    assert len({expression("1"), expression("1.0"), expression("TRUE"), expression("1.00")}) == 4


# ---- clauses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["ALL", "ANY", "NEXT", "NXT", "LAST", "MAX", "STRICT"])
def test_a_strategy_stands_before_any_select_list(word):
    assert query(f"SELECT {word} * FROM S WHERE A").select.strategy == ("NEXT" if word == "NXT" else word)
    assert query(f"SELECT {word} x, y FROM S WHERE A").select.items == query("SELECT x, y FROM S WHERE A").select.items
    assert query(f"SELECT {word} NONE FROM S WHERE A").select.items == ()


def test_select_lists_variables_and_their_attributes():
    assert query("SELECT * FROM S WHERE A").select == s.Select(None, "ALL")
    assert query("SELECT NONE FROM S WHERE A").select == s.Select((), "ALL")
    assert query("SELECT x, S>y, z[a], S>u[a, `b c`] FROM S WHERE A").select.items == (
        s.SelectItem(s.Name("x")),
        s.SelectItem(s.Name("y", "S")),
        s.SelectItem(s.Name("z"), (s.Name("a"),)),
        s.SelectItem(s.Name("u", "S"), (s.Name("a"), s.Name("b c"))),
    )


def test_from_is_optional_and_lists_streams():
    assert query("SELECT * WHERE A").streams == ()
    assert query("SELECT * FROM S WHERE A").streams == (s.Name("S"),)
    assert query("SELECT * FROM S, T , `U V` WHERE A").streams == (s.Name("S"), s.Name("T"), s.Name("U V"))


def test_partition_by_lists_keys_with_alternative_names():
    assert query("SELECT * FROM S WHERE A").partition == ()
    assert query("SELECT * FROM S WHERE A PARTITION BY [a]").partition == ((s.Name("a"),),)
    several = query("SELECT * FROM S WHERE A PARTITION BY [a], [b, c], [`d e`]").partition
    assert several == ((s.Name("a"),), (s.Name("b"), s.Name("c")), (s.Name("d e"),))


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("10 EVENTS", s.Within("events", Fraction(10))),
        ("1 event", s.Within("events", Fraction(1))),
        ("0 EVENTS", s.Within("events", Fraction(0))),
        ("1e3 EVENTS", s.Within("events", Fraction(1000))),
        ("30000 [stock_time]", s.Within("attribute", Fraction(30000), s.Name("stock_time"))),
        ("0.1 [`my clock`]", s.Within("attribute", Fraction(1, 10), s.Name("my clock"))),
        ("2 DAYS", s.Within("time", Fraction(172_800))),
        ("1 day 30 minutes", s.Within("time", Fraction(88_200))),
        ("1 DAY 1 HOUR 1 MINUTE 1 SECOND", s.Within("time", Fraction(90_061))),
        ("2 HOURS", s.Within("time", Fraction(7200))),
        ("1 hour", s.Within("time", Fraction(3600))),
        ("1 Minute", s.Within("time", Fraction(60))),
        ("30 minutes", s.Within("time", Fraction(1800))),
        ("1 SECOND", s.Within("time", Fraction(1))),
        ("0.25 seconds", s.Within("time", Fraction(1, 4))),
        ("1 HOURS 30 MINUTES", s.Within("time", Fraction(5400))),
        ("1 HOUR 5 SECONDS", s.Within("time", Fraction(3605))),
        ("2 MINUTES 3.5 SECONDS", s.Within("time", Fraction(247, 2))),
        ("1 HOUR 1 MINUTE 1 SECOND", s.Within("time", Fraction(3661))),
    ],
)
def test_within_parses_to_an_exact_length(text, window):
    assert query(f"SELECT * FROM S WHERE A WITHIN {text}").within == window


def test_a_query_without_within_has_no_window():
    assert query("SELECT * FROM S WHERE A").within is None


def test_consume_by_is_none_by_default():
    assert query("SELECT * FROM S WHERE A").consume == "NONE"
    for policy in ("NONE", "ANY", "PARTITION"):
        assert query(f"SELECT * FROM S WHERE A CONSUME BY {policy.lower()}").consume == policy


def test_limit_is_at_most_max_limit():
    assert query("SELECT * FROM S WHERE A").limit is None
    assert query("SELECT * FROM S WHERE A LIMIT 7").limit == 7
    assert query("SELECT * FROM S WHERE A LIMIT 0").limit == 0
    assert query(f"SELECT * FROM S WHERE A LIMIT {10**30}").limit == MAX_LIMIT


def test_all_clauses_parse_together():
    text = """
    SELECT MAX x, S>y[a] FROM S WHERE A AS x ; B AS y FILTER x[a = 1]
    PARTITION BY [k] WITHIN 5 EVENTS CONSUME BY PARTITION LIMIT 3 ;
    """
    assert query(text) == s.QuerySyntax(
        text=text,
        select=s.Select((s.SelectItem(s.Name("x")), s.SelectItem(s.Name("y", "S"), (s.Name("a"),))), "MAX"),
        formula=s.Filtered(seq(as_(A, "x"), as_(B, "y")), var("x", P)),
        streams=(s.Name("S"),),
        partition=((s.Name("k"),),),
        within=s.Within("events", Fraction(5)),
        consume="PARTITION",
        limit=3,
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * WHERE A FROM S",
        "SELECT * FROM S WHERE A LIMIT 1 WITHIN 5 EVENTS",
        "SELECT * FROM S WHERE A WITHIN 5 EVENTS PARTITION BY [a]",
        "SELECT * FROM S WHERE A WITHIN 5 EVENTS WITHIN 6 EVENTS",
        "SELECT * FROM S WHERE A WITHIN 5 SECONDS 1 HOURS",
        "SELECT * FROM S WHERE A WITHIN 5 HOURS 1 DAYS",
        "SELECT * FROM S WHERE A WITHIN 1 DAYS 1 DAYS",
        "SELECT * FROM S WHERE A WITHIN 5 EVENTS 1 HOURS",
        "SELECT *, x FROM S WHERE A AS x",
        "SELECT * NONE FROM S WHERE A",
        "SELECT MAX ANY * FROM S WHERE A",
        "SELECT * FROM S WHERE A ; WITHIN 5 EVENTS",
        "SELECT * FROM S WHERE A ;; B",
        "SELECT * FROM S WHERE A SELECT * FROM S WHERE B",
    ],
)
def test_clauses_come_in_order_and_once(text):
    with pytest.raises(QuerySyntaxError):
        query(text)


# ---- names, keywords, comments -----------------------------------------------------------------------------

WORDS = tuple(
    re.findall(
        r"[A-Z]+",
        """
        ALL AND ANY AS BETWEEN BY CONSUME DAY DAYS EVENT EVENTS FALSE FILTER FIRST FROM HOUR HOURS IN IS LAST LIKE LIMIT
        MAX MINUTE MINUTES NEXT NONE NOT NULL NXT OR PARTITION PREV RANGE SECOND SECONDS SELECT STRICT TRUE WHERE WITHIN
        """,
    )
)
EVERYTHING = (
    "SELECT MAX x FROM S WHERE (NOT(A FILTER A[a LIKE 'u' AND b NOT IN {1}]) AS x ; B+ : C:+ OR D ALL E) "
    "FILTER x[a IN RANGE(1, 2) OR NOT b = TRUE OR c <> FALSE] AND x[a=1] OR x[b<2 OR c IS NOT NULL] "
    "AND B.a BETWEEN PREV(B).a AND FIRST(B).a + LAST(B).b AND D.t - C.t < 1 DAY 3 MINUTES "
    "PARTITION BY [k] WITHIN 2 DAYS 1 HOURS 2 MINUTES 3 SECONDS CONSUME BY ANY LIMIT 3"
)


@pytest.mark.parametrize("change", [str.lower, str.upper, str.swapcase, str.title])
def test_keywords_may_be_of_any_letter_case(change):
    keywords = set(WORDS)
    words = EVERYTHING.replace("(", " ( ").replace(")", " ) ").split()
    text = " ".join(change(word) if word in keywords else word for word in words)
    assert query(text) == query(EVERYTHING)


def test_any_white_space_separates_tokens():
    spaced = EVERYTHING.replace(" ", "\r\n \t\f\v")
    assert query(spaced) == query(EVERYTHING)


def test_comments_are_ignored():
    commented = EVERYTHING.replace(" ", " /* any; 'text' [ */ -- to the end [of] the 'line\n /**/ ")
    assert query(commented) == query(EVERYTHING)
    assert query(EVERYTHING + " -- done") == query(EVERYTHING)


@pytest.mark.parametrize("word", WORDS)
def test_a_keyword_in_backquotes_is_a_name(word):
    quoted = f"`{word}`"
    text = f"SELECT {quoted} FROM {quoted} WHERE {quoted} AS {quoted} FILTER {quoted}[{quoted} > 1] WITHIN 5 [{quoted}]"
    parsed = query(text)
    assert parsed.select.items == (s.SelectItem(s.Name(word)),)
    assert parsed.formula == s.Filtered(as_(event(word), word), var(word, s.Comparison(">", s.Attribute(word), ONE)))
    assert parsed.within == s.Within("attribute", Fraction(5), s.Name(word))


@pytest.mark.parametrize("word", [w.lower() for w in WORDS if w not in ("NOT", "TRUE", "FALSE")])
def test_most_keywords_are_names_where_the_grammar_accepts_no_keyword(word):
    tree = formula(f"A AS {word} ; {word} FILTER {word}[{word} = 1] AND B[b < {word} AND {word} < 2]")
    attribute = s.Attribute(word)
    tested = filters_and(
        var(word, s.Comparison("=", attribute, ONE)),
        var("B", and_(s.Comparison("<", b, attribute), s.Comparison("<", attribute, number("2")))),
    )
    assert tree == s.Filtered(seq(as_(A, word), event(word)), tested)


@pytest.mark.parametrize("word", ["not", "true", "false"])
def test_the_other_keywords_are_names_of_variables(word):
    assert formula(f"A AS {word} FILTER {word}[a = 1]") == s.Filtered(as_(A, word), var(word, P))


def test_names_keep_their_letter_case():
    assert formula("`my type` AS `it's (a) name;`") == as_(event("my type"), "it's (a) name;")
    assert formula("`A`") == A
    assert formula("_a1 ; Z_9") == seq(event("_a1"), event("Z_9"))
    assert formula("a") != formula("A")  # letter case counts in names


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM S WHERE A ASSET",
        "SELECT * FROM S WHERE A ORB",
        "SELECT * FROMS WHERE A",
        "SELECT * FROM S WHERE A FILTERx[a = 1]",
        "SELECT * FROM S WHERE A LIMIT10",
        "SELECT * FROM S WHERE A WITHIN 10 EVENTSx",
        "SELECT * FROM S WHERE A FILTER A[a INRANGE(1, 2)]",
        "SELECT * FROM S WHERE A FILTER A[a = 1 ANDb = 2]",
    ],
)
def test_keywords_are_whole_words(text):
    with pytest.raises(QuerySyntaxError):
        query(text)


def test_a_name_may_begin_with_a_keyword():
    assert formula("NOTE ; ORDER OR ANDES") == s.Disjunction(seq(event("NOTE"), event("ORDER")), event("ANDES"))
    assert predicate("NOTa = 1") == s.Comparison("=", s.Attribute("NOTa"), ONE)
    assert predicate("trueish = falsehood") == s.Comparison("=", s.Attribute("trueish"), s.Attribute("falsehood"))
    assert query("SELECT nonesuch, maximum FROM S WHERE A").select.items == (
        s.SelectItem(s.Name("nonesuch")),
        s.SelectItem(s.Name("maximum")),
    )


# ---- whole queries -------------------------------------------------------------------------------------------


def test_nodes_are_immutable_hashable_and_can_be_pickled():
    parsed = query(EVERYTHING)
    assert hash(parsed) == hash(query(EVERYTHING.replace(" ", "\n")))
    assert pickle.loads(pickle.dumps(parsed)) == parsed
    with pytest.raises(AttributeError):
        parsed.limit = 4


def test_spans_point_into_the_text():
    text = "SELECT x FROM S WHERE A AS x ; B FILTER x[price > 100 AND name = 'N']"
    parsed = query(text)
    filter_span = parsed.formula.filter.span
    assert text[slice(*parsed.select.items[0].variable.span)] == "x"
    assert text[slice(*parsed.formula.formula.span)] == "A AS x ; B"
    assert text[slice(*filter_span)] == "x[price > 100 AND name = 'N']"
    assert text[slice(*parsed.formula.filter.predicate.operands[1].span)] == "name = 'N'"


@pytest.mark.long("queries of tens of thousands of parts")
def test_long_queries_parse():
    assert query("SELECT * FROM S WHERE " + " ; ".join(["A"] * 20_000)).formula.right == A
    assert query("SELECT * FROM S WHERE " + "(" * 5_000 + "A" + ")" * 5_000).formula == A


@pytest.mark.parametrize("text", [None, b"SELECT * FROM S WHERE A", 7])
def test_a_query_is_a_string(text):
    with pytest.raises(QuerySyntaxError, match="expected the text of a query, got"):
        query(text)


@pytest.mark.parametrize("part", ["`\ud800`", "A FILTER A[a = '\ud800']", "A FILTER A[a LIKE '\udcff']", "A -- \udcff"])
def test_half_a_surrogate_pair_is_refused_where_it_stands(part):
    text = f"SELECT * FROM S WHERE {part}"
    with pytest.raises(QuerySyntaxError, match="half of a surrogate pair") as caught:
        query(text)
    assert text[caught.value.start] in "\ud800\udcff"
    assert str(caught.value).encode()


@pytest.mark.parametrize("text", ["A FILTER A[p = 1 AND q = 2 AND r = 3]", "A FILTER A[p = 1 OR q = 2 OR r = 3]"])
def test_flat_operators_have_a_binary_form_too(text):
    predicate = parse(f"SELECT * FROM S WHERE {text}").formula.filter.predicate
    first, second, third = predicate.operands
    assert predicate.right is third
    assert (predicate.left.left, predicate.left.right) == (first, second)
    assert type(predicate.left) is type(predicate)


# ---- filters without brackets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("qualified", "in_brackets"),
    [
        ("A AS x FILTER x.p > 0.5", "A AS x FILTER x[p > 0.5]"),
        ("A AS x FILTER x.st.p > 0.5", "A AS x FILTER x[st.p > 0.5]"),
        ("A AS x FILTER `x`.`o d`.p > 0.5", "A AS x FILTER x[`o d`.p > 0.5]"),
        ("A FILTER 5 < A.p", "A FILTER A[5 < p]"),
        ("A FILTER (A.p + A.q) * 2 - 1 >= -A.r", "A FILTER A[(p + q) * 2 - 1 >= -r]"),
        ("A FILTER A.s LIKE 'x' AND A.p NOT IN {1, 2}", "A FILTER A[s LIKE 'x'] AND A[p NOT IN {1, 2}]"),
        ("A FILTER A.p IN {1..A.q} OR A.p IN RANGE(A.q, 9)", "A FILTER A[p IN {1..q}] OR A[p IN RANGE(q, 9)]"),
        ("A ; B FILTER (A.p = 1 OR B[p = 2]) AND B.q = 3", "A ; B FILTER (A[p = 1] OR B[p = 2]) AND B[q = 3]"),
        ("(A FILTER A.p = 1)+", "(A FILTER A[p = 1])+"),
        ("A FILTER (A.p = 1) +", "A FILTER A[p = 1] +"),
        ("NOT(A AS x FILTER x.p = 1)", "NOT(A AS x FILTER x[p = 1])"),
        ("A FILTER A.p = 1 ; B : C", "A FILTER A[p = 1] ; B : C"),
        ("A FILTER A.p = 1 FILTER A.q = 2", "A FILTER A[p = 1] FILTER A[q = 2]"),
        # what follows OR tells whether it joins filters or formulas
        ("A FILTER A.p = 1 OR B", "A FILTER A[p = 1] OR B"),
        ("A FILTER A.p = 1 OR B ; C", "A FILTER A[p = 1] OR B ; C"),
        ("A FILTER A.p = 1 OR (((B)))", "A FILTER A[p = 1] OR (((B)))"),
        ("A FILTER A.p = 1 OR ((A.q = 2))", "A FILTER A[p = 1] OR ((A[q = 2]))"),
        ("A FILTER A.p = 1 OR ((A.q) = 2)", "A FILTER A[p = 1] OR ((A[q = 2]))"),
        ("A FILTER A.p = 1 OR 2 = A.q ; B", "A FILTER A[p = 1] OR A[2 = q] ; B"),
        ("A FILTER A.p = 1 OR NOT(B)", "A FILTER A[p = 1] OR NOT(B)"),
        ("A FILTER A.p = 1 OR NOT (A.p) = 2", "A FILTER A[p = 1] OR A[NOT p = 2]"),
        ("A FILTER A.p = 1 OR NOT(B AS x FILTER x.p = 1)", "A FILTER A[p = 1] OR NOT(B AS x FILTER x[p = 1])"),
        ("A AS x FILTER NOT x.p > 1 AND NOT NOT x.q IN {1}", "A AS x FILTER x[NOT p > 1] AND x[NOT NOT q IN {1}]"),
        ("A AS x FILTER x.p IS NULL OR x.q IS NOT NULL", "A AS x FILTER x[p IS NULL] OR x[q IS NOT NULL]"),
        ("A FILTER A.p BETWEEN 1 AND 2 AND A.q = 3", "A FILTER A[p BETWEEN 1 AND 2] AND A[q = 3]"),
        ("A FILTER A.p NOT BETWEEN 1 AND A.q ; B", "A FILTER A[p NOT BETWEEN 1 AND q] ; B"),
        ("A FILTER A.q - A.p < 2 DAYS ; B", "A FILTER A[q - p < 2 DAYS] ; B"),
    ],
)
def test_a_test_of_one_variable_needs_no_brackets(qualified, in_brackets):
    assert formula(qualified) == formula(in_brackets)


def test_filters_between_events_say_the_same_with_and_without_brackets():
    for where in ("A AS a ; B AS b", "A+ AS a ; B+ AS b"):
        bare = formula(f"{where} FILTER b.p > a.p + PREV(b).p")
        assert bare == formula(f"{where} FILTER b[p > a.p + PREV(b).p]")
        assert isinstance(bare.filter, s.Relation)


@pytest.mark.parametrize(
    ("text", "event"),
    [("x.p", "EACH"), ("FIRST(x).p", "FIRST"), ("last ( /**/ x ) . p", "LAST"), ("Prev(x).`p`", "PREV")],
)
@pytest.mark.parametrize("where", ["A+ AS x ; B AS y FILTER y[q > {}]", "A+ AS x ; B AS y FILTER {} < y.q"])
def test_attributes_may_be_of_the_first_the_last_or_the_previous_event(text, event, where):
    found = [a for a in s.attributes(formula(where.format(text)).filter.predicate) if a.variable.name == "x"]
    assert found == [s.Attribute("p", variable=s.Name("x"), event=event)]


def test_spans_of_attributes_and_variables_point_into_the_text():
    text = "SELECT * FROM S WHERE A+ AS x ; B AS `y z` FILTER `y z`.p > FIRST(x).st.q"
    relation = parse(text).formula.filter
    shown = [(text[slice(*a.span)], text[slice(*a.variable.span)]) for a in s.attributes(relation.predicate)]
    assert shown == [("`y z`.p", "`y z`"), ("FIRST(x).st.q", "x")]


@pytest.mark.parametrize(
    "text", ["AVG(x).p > 1", "`FIRST`(x).p > 1", "FIRST(x) > 1", "FIRST(x.p) > 1", "FIRST x.p > 1"]
)
def test_only_first_last_and_prev_stand_before_a_variable(text):
    with pytest.raises(QuerySyntaxError):
        formula(f"A AS x FILTER {text} > 1")


@pytest.mark.parametrize(
    ("qualified", "in_brackets"),
    [
        ("NOT (B.p > 4)", "B[NOT (p > 4)]"),
        ("NOT (B.p > 4 AND B.p < 8)", "B[NOT (p > 4 AND p < 8)]"),
        ("NOT (B.p > 8 OR NOT ((B.p) > 2 AND B.p <> 3))", "B[NOT (p > 8 OR NOT ((p) > 2 AND p <> 3))]"),
        ("A[p > 5] OR NOT (NOT (B.p > 4))", "A[p > 5] OR B[NOT (NOT (p > 4))]"),
    ],
)
def test_not_before_parentheses_negates_qualified_tests(qualified, in_brackets):
    plans = [cer_gpu.compile(f"SELECT * WHERE A ; B FILTER {text}") for text in (qualified, in_brackets)]
    events = pa.table({"type": ["A", *["B"] * 12], "p": [5, *range(12)]})
    first, second = (plan.evaluate(events)["positions"].to_pylist() for plan in plans)
    assert first == second
    assert 0 < len(first) < 12
