"""Hypothesis strategies for quantifiers, options, next-match, absence, LAG, functions, measures and HAVING.

`formulas` draws all operators of formulas in combination, with filters on single events; with `related=True` there are
filters between events, too, and absences that read what stands before them.  `whole_queries` adds all clauses.  No
strategy draws a query that is refused (`refused_queries`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import partial

import join_strategies as j
import reference as ref
import strategies as s
from hypothesis import strategies as st

TYPES = ("A", "A", "B", "B", "C")
types = st.sampled_from((*TYPES, *TYPES, ref.ANY))
VARIABLES = ("x", "y", "z", "x", "B")
COMPARING = ("NEXT", "LAST", "MAX")


@dataclass(frozen=True)
class Scope:
    """Variables that stand before a formula in enclosing sequences, and those of them that may hold several events."""

    known: frozenset[str] = frozenset()
    several: frozenset[str] = field(default=frozenset())

    def behind(self, formula: ref.Formula) -> Scope:
        """Return the scope of what follows the formula."""
        own = frozenset(ref.defined_variables(formula))
        several = self.several | ref.variables_of_several(formula)[0] | (self.known & own)
        return Scope(self.known | own, frozenset(several))


# ------------------------------------------------------------------------------- events that are next, or absent


@st.composite
def readings(draw, variable, scope, own):
    """Draw a filter between an event that must be absent and one that stands before it."""
    names = sorted(scope.known - own)
    name = draw(st.sampled_from(names))
    one_alone = name not in scope.several
    which = draw(st.sampled_from(["EACH", "EACH", "EACH", "LAST"] if one_alone else ["FIRST", "LAST", "EACH"]))
    spots = [(variable, "EACH"), (name, which)]
    one = draw(j.predicates_of(draw(st.permutations(spots))))
    return ref.Relation(one)


@st.composite
def event_conditions(draw, variable, scope, own, related):
    """Draw a filter inside the parentheses of an event that is next or absent."""
    single = st.builds(ref.Unary, st.just(variable), s.likely_conditions)
    if not related or not scope.known - own or draw(st.integers(0, 2)) == 2:
        one = draw(single)
    else:
        one = draw(readings(variable, scope, own))
    if draw(st.integers(0, 4)) == 4:
        joint = draw(st.sampled_from([ref.FilterAnd, ref.FilterOr]))
        other = draw(readings(variable, scope, own)) if related and scope.known - own else draw(single)
        return joint(*draw(st.permutations([one, other])))
    return one


@st.composite
def absent_events(draw, scope, related):
    """Draw R, R AS x, or one of them with a FILTER."""
    event = ref.EventType(draw(st.sampled_from((*TYPES, *TYPES, "C", "C", s.UNSEEN_TYPE, ref.ANY))))
    shape = draw(st.sampled_from(["type", "type", "filter", "as", "filter as", "filter as"]))
    if shape == "type":
        return event
    named = ref.As(event, draw(st.sampled_from(["w", "no"]))) if "as" in shape else event
    if shape == "as":
        return named
    own = ref.defined_variables(named)
    return ref.Filter(named, draw(event_conditions(ref.variables_in_order(named)[-1], scope, own, related)))


@st.composite
def absences(draw, scope, related):
    return tuple(draw(absent_events(scope, related)) for _ in range(draw(st.sampled_from([1, 1, 1, 2]))))


@st.composite
def single_events(draw, scope, related):
    """Draw one event, as it stands behind an arrow."""
    event = ref.EventType(draw(types))
    shape = draw(st.sampled_from(["type", "type", "type", "as", "filter", "filter as", "not", "or"]))
    if shape == "not":
        return ref.Not(event.name, draw(st.none() | s.likely_conditions))
    if shape == "or":
        return ref.Or(draw(single_events(scope, related)), draw(single_events(scope, related)))
    named = ref.As(event, draw(st.sampled_from(VARIABLES))) if "as" in shape else event
    if "filter" not in shape:
        return named
    own = ref.defined_variables(named)
    return ref.Filter(named, draw(event_conditions(ref.variables_in_order(named)[-1], scope, own, related)))


@st.composite
def next_events(draw, scope, related, pluses):
    """Draw what may stand behind an arrow: one event, or an iteration of one."""
    event = draw(single_events(scope, related))
    shape = draw(st.sampled_from(["one"] * 5 + ["plus", "times", "option", "next"] if pluses else ["one"]))
    if shape == "plus":
        return draw(st.sampled_from([ref.Plus, ref.ContigPlus]))(event)
    if shape == "option":
        return ref.Times(event, 0, 1)
    if shape == "one":
        return event
    return ref.Times(event, *draw(bounds), "->" if shape == "next" else draw(st.sampled_from(";:")))


@st.composite
def next_of(draw, left, right, scope, related):
    """Draw `left -> right`, or `left ; !R -> right`."""
    free = ref.may_be_empty(left) or ref.may_be_empty(right) or draw(st.integers(0, 3)) > 0
    return ref.Next(left, right, () if free else draw(absences(scope, related)))


# -------------------------------------------------------------------------------------------------- formulas

bounds = st.sampled_from([(2, 2), (1, 2), (2, 3), (0, 2), (0, None), (2, None), (1, None), (3, 3), (1, 1), (1, 3)])


@st.composite
def formulas(draw, depth=3, pluses=2, related=False, conjunctions=True, scope=None, whole=False):
    """Draw formulas of this depth at most, with at most `pluses` iterations inside one another.

    `related`: with filters between events; `conjunctions`: with ALL; `whole`: the formula of a query, which is more
    than one event and never empty.
    """
    scope = Scope() if scope is None else scope

    def part(inside=scope, pluses=pluses):
        return draw(formulas(depth - 1, pluses, related, conjunctions, inside))

    if whole:
        formula = part()
        if ref.may_be_empty(formula) or ref.is_one_event(formula):
            event = ref.EventType(draw(types))
            pair = draw(st.permutations([formula, event]))
            formula = draw(st.sampled_from([ref.Seq, ref.Seq, ref.Contig]))(*pair)
        return formula
    if depth == 0:
        return draw(leaves())
    shapes = ["leaf", "seq", "seq", "contig", "or", "as", "filter", "option", "option"]
    shapes += ["absent", "absent", "absent", "next", "next", "next"]
    shapes += ["times", "times", "times", "arrows", "plus", "contigplus"] if pluses else []
    shapes += ["all"] if conjunctions else []
    shape = draw(st.sampled_from(shapes))
    match shape:
        case "leaf":
            return draw(leaves())
        case "seq" | "contig" | "absent" | "next":
            left = part()
            inside = scope.behind(left)
            if shape == "next":
                return draw(next_of(left, draw(next_events(inside, related, pluses)), inside, related))
            if shape == "contig":
                formula = ref.Contig(left, part(inside))
            else:
                right = part(inside)
                free = shape == "seq" or ref.may_be_empty(left) or ref.may_be_empty(right)
                formula = ref.Seq(left, right, () if free else draw(absences(inside, related)))
        case "or":
            formula = ref.Or(part(), part())
        case "all":
            formula = ref.All(part(), part())
        case "as":
            formula = ref.As(part(), draw(st.sampled_from(VARIABLES)))
        case "filter":
            formula = part()
            variables = ref.defined_variables(formula)
            return ref.Filter(formula, draw(s.filters(variables, s.likely_conditions))) if variables else formula
        case "option":
            formula = ref.Times(part(), 0, 1)
        case "times":
            formula = ref.Times(part(pluses=pluses - 1), *draw(bounds), draw(st.sampled_from(";;:")))
        case "arrows":
            formula = ref.Times(draw(single_events(scope, related)), *draw(bounds), "->")
        case "plus":
            formula = ref.Plus(part(pluses=pluses - 1))
        case _:
            formula = ref.ContigPlus(part(pluses=pluses - 1))
    if related and draw(st.integers(0, 2)) == 2:
        return draw(filtered(formula, scope))
    return formula


@st.composite
def leaves(draw):
    """Draw one event."""
    event = ref.EventType(draw(s.types))
    shape = draw(st.sampled_from(["type", "type", "type", "as", "as", "not"]))
    if shape == "as":
        return ref.As(event, draw(st.sampled_from(VARIABLES)))
    return ref.Not(event.name, draw(st.none() | s.likely_conditions)) if shape == "not" else event


@st.composite
def filtered(draw, formula, scope):
    """Draw the formula with a filter between events of it, and of what stands before it."""
    own = ref.defined_variables(formula)
    if not own:
        return formula
    several = ref.variables_of_several(formula)[0]
    return ref.Filter(formula, draw(j.conditions(sorted(own | scope.known), sorted(several), sorted(own))))


plain = formulas(whole=True, conjunctions=False)
with_all = formulas(whole=True)
related = formulas(whole=True, related=True)


@st.composite
def chains(draw, most=4):
    """Draw a chain of single steps, some of them with quantifiers, and with arrows and absences between them."""
    formula = draw(single_events(Scope(), False))
    for _ in range(draw(st.integers(1, most - 1))):
        scope = Scope().behind(formula)
        shape = draw(st.sampled_from(["seq", "seq", "contig", "next", "next", "absent", "absent"]))
        if shape == "next":
            formula = draw(next_of(formula, draw(next_events(scope, False, 1)), scope, False))
            continue
        right = draw(single_events(scope, False))
        quantifier = draw(st.sampled_from(["none", "none", "none", "option", "times"]))
        if quantifier == "option":
            right = ref.Times(right, 0, 1)
        elif quantifier == "times":
            right = ref.Times(right, *draw(bounds), draw(st.sampled_from([";", ";", ":", "->"])))
        if shape == "contig":
            formula = ref.Contig(formula, right)
        else:
            free = shape == "seq" or ref.may_be_empty(formula) or ref.may_be_empty(right)
            formula = ref.Seq(formula, right, () if free else draw(absences(scope, False)))
    return formula


rest_formulas = st.one_of(chains(), chains(), plain, plain, with_all, related, related)


# --------------------------------------------------------------------------------------------------- queries


def whole_queries(rest=True, formula=None, **kinds):
    """Return a strategy for queries with any of the clauses; `rest`: with the operators of this module."""
    if rest and formula is None:
        formula = rest_formulas
    return choosing_first(s.full_queries(formula=formula, **kinds))


@st.composite
def choosing_first(draw, queries):
    """Draw a query, now and then with THEN WITHIN."""
    query = draw(queries)
    if may_choose_first(query) and draw(st.integers(0, 3)) == 3:
        return replace(query, chooses_first=True)
    return query


def may_choose_first(query):
    """Return True if THEN WITHIN is allowed: not with filters between events, ALL, or an absence at the end."""
    formula = query.formula
    conjunctive = any(isinstance(node, ref.All) for node in ref.descendants(formula))
    windowed = query.each_step is not None or any(isinstance(node, ref.Windowed) for node in ref.descendants(formula))
    barred = conjunctive or windowed or ref.relates_events(formula) or ref.trails(formula)
    return query.within is not None and not barred


@st.composite
def full_cases(draw, queries=None, stream_for=j.join_streams, **kinds):
    """Draw a query with any of the clauses and a stream for it, longer if it is split into substreams."""
    query = draw(whole_queries(**kinds) if queries is None else queries)
    stream = draw(stream_for(query, longest_of_all(query)))
    return query, [{**event, ref.STREAM: query.streams[0]} for event in stream]


def longest_of_all(query):
    """Return a length of stream at which brute force stays fast."""
    return s.longest_stream(query.formula) * (3 if query.partition_by else 2) // 2


def cases_of_several_streams(formula=rest_formulas, **kinds):
    """Return a strategy for queries over several streams (`strategies.cases_of_several_streams`)."""
    return s.cases_of_several_streams(stream_for=j.join_streams, formula=formula, **kinds)


@st.composite
def long_cases(draw, formula=rest_formulas, longest=250, **kinds):
    """Draw a query with a narrow window and a long stream; strategies choose in the window (`ref.evaluate_long`)."""
    kinds = {"strategies": s.STRATEGIES, **kinds}
    return draw(s.long_full_cases(formula=formula, longest=longest, pool_of=j.join_values, **kinds))


# --------------------------------------------------------------------------- absence at the end of a pattern


@st.composite
def trailing_queries(draw, related=False, choosing=False):
    """Draw queries with an absence at their end, with a window and without CONSUME."""
    body = draw(formulas(depth=2, pluses=1, related=related, whole=True) if related else chains() | plain)
    formula = ref.Trailing(body, draw(absences(Scope().behind(body), related))) if not ref.may_be_empty(body) else None
    if formula is None:
        event = ref.EventType("A")
        formula = ref.Trailing(ref.Seq(event, body), draw(absences(Scope().behind(ref.Seq(event, body)), related)))
    around = draw(st.sampled_from(["none", "none", "none", "as", "filter"]))
    if around == "as":
        formula = ref.As(formula, "u")
    elif around == "filter" and ref.defined_variables(body):
        formula = ref.Filter(formula, draw(s.filters(ref.defined_variables(body), s.likely_conditions)))
    query = draw(s.full_queries(choosing=choosing, formula=st.just(formula)))
    if not ref.trails(query.formula) or isinstance(query.formula, ref.Seq):  # `full_queries` put it behind an iteration
        query = replace(query, formula=formula)
    within = query.within or ("events", draw(st.sampled_from([2, 3, 4, 6])))
    return replace(query, formula=formula, within=within, consume="NONE", streams=("S",), select=_known(query, formula))


def _known(query, formula):
    """Return what the query selects, if the formula has all of it."""
    known = query.select if not isinstance(query.select, tuple) else {*query.select} <= ref.defined_variables(formula)
    return query.select if known else "*"


def trailing_cases(related=False, choosing=False):
    return full_cases(queries=trailing_queries(related, choosing))


# ------------------------------------------------------------------------------------------- LAG and functions

lags = st.sampled_from([1, 1, 1, 2, 3, 7])
operators = s.comparison_operators


@st.composite
def lag_conditions(draw):
    """Draw a predicate on an event and those before it in the stream."""
    lag = draw(lags)
    shape = draw(st.sampled_from(["number", "number", "text", "jump", "null", "constant", "mixed", "set", "both"]))
    number = draw(st.sampled_from(["n", "m", "v", "st.n"]))
    match shape:
        case "text":
            name = draw(st.sampled_from(["s", "t"]))
            return ref.Compare(draw(operators), ref.Attr(name), ref.Attr("s", lag=lag))
        case "jump":
            difference = ref.Arith("-", ref.Attr(number), ref.Attr(number, lag=lag))
            return ref.Compare(draw(operators), difference, ref.Const(draw(st.sampled_from([0, 1, -1]))))
        case "null":
            return ref.IsNull(ref.Attr(number, lag=lag), draw(st.booleans()))
        case "constant":
            return ref.Compare(draw(operators), ref.Attr("n", lag=lag), ref.Const(1))
        case "mixed":
            return ref.Compare(draw(operators), ref.Attr("n"), ref.Attr("v", lag=lag))
        case "set":
            return ref.In(ref.Attr("s", lag=lag), (ref.Const("a"), ref.Const("b")), draw(st.booleans()))
        case "both":
            join = draw(st.sampled_from([ref.PredAnd, ref.PredOr]))
            return join(draw(s.plain_comparisons), ref.Compare("<>", ref.Attr("n"), ref.Attr("n", lag=lag)))
    return ref.Compare(draw(operators), ref.Attr(number), ref.Attr(number, lag=lag))


@st.composite
def lag_relations(draw, one, other):
    """Draw a filter between events that reads an event before one of them."""
    name = draw(st.sampled_from(["n", "m", "v"]))
    before = ref.VarAttr(one, name, lag=draw(lags))
    difference = ref.Arith("-", ref.VarAttr(one, name), before)
    left = draw(st.sampled_from([before, difference]))
    return ref.Relation(ref.Compare(draw(operators), left, ref.VarAttr(other, name)))


def text_values(texts=("s", "t"), numbers=("n", "m")):
    """Draw expressions of texts over columns of texts and numbers."""
    words = st.sampled_from(["", "a", "b", "ab", "A", "é"]).map(ref.Const)
    places = st.sampled_from([-2, -1, 0, 1, 2]).map(ref.Const) | st.sampled_from(numbers).map(ref.Attr)
    return st.recursive(
        st.sampled_from(texts).map(ref.Attr) | words,
        lambda inner: st.one_of(
            st.tuples(inner, inner | st.sampled_from(numbers).map(ref.Attr)).map(partial(ref.Strings, "concat")),
            st.tuples(inner, places).map(partial(ref.Strings, "substring")),
            st.tuples(inner, places, places).map(partial(ref.Strings, "substring")),
            st.tuples(inner, inner, inner).map(partial(ref.Strings, "between")),
            st.builds(ref.Call, st.sampled_from(["lower", "upper"]), inner),
        ),
        max_leaves=4,
    )


@st.composite
def text_conditions(draw):
    """Draw a predicate with functions of texts."""
    values = text_values()
    one, other = draw(values), draw(values)
    match draw(st.sampled_from(["place", "number", "compared", "length", "test", "test"])):
        case "place":
            return ref.Compare(
                draw(operators), ref.Strings("indexof", (one, other)), ref.Const(draw(st.integers(0, 2)))
            )
        case "number":
            value = ref.Strings("number", (ref.Strings("string", (ref.Attr("n"),)),))
            return ref.Compare(draw(operators), value, ref.Const(draw(st.sampled_from([0, 1.5, -1]))))
        case "compared":
            return ref.Compare(draw(operators), one, ref.Const(draw(st.sampled_from(["a", "A", "b", "ab", "a1"]))))
        case "length":
            return ref.Compare(draw(operators), ref.Call("length", one), ref.Const(draw(st.integers(0, 3))))
    function = draw(st.sampled_from(["startswith", "endswith", "contains"]))
    return ref.Compare("=", ref.Strings(function, (one, other)), ref.Const(draw(st.booleans())))


@st.composite
def function_conditions(draw):
    """Draw a predicate with a function of an attribute."""
    shape = draw(st.sampled_from(["abs", "round", "case", "length", "difference", "texts", "texts"]))
    number = draw(st.sampled_from(["n", "v", "m", "w"]))
    match shape:
        case "abs":
            return ref.Compare(draw(operators), ref.Call("abs", ref.Attr(number)), ref.Const(1))
        case "round":
            value = ref.Call("round", ref.Attr(number), draw(st.sampled_from([0, 0, 0, 1])))
            return ref.Compare(draw(operators), value, ref.Const(draw(st.sampled_from([0, 2, -2]))))
        case "case":
            function = draw(st.sampled_from(["lower", "upper"]))
            text = ref.Const(draw(st.sampled_from(["a", "A", "É", "AB"])))
            return ref.Compare(draw(operators), ref.Call(function, ref.Attr(draw(st.sampled_from(["s", "t"])))), text)
        case "length":
            return ref.Compare(draw(operators), ref.Call("length", ref.Attr("s")), ref.Const(1))
        case "texts":
            return draw(text_conditions())
    difference = ref.Arith("-", ref.Attr("n"), ref.Attr("m"))
    return ref.Compare(draw(operators), ref.Call("abs", difference), ref.Const(draw(st.sampled_from([1, 2]))))


time_functions = st.builds(
    ref.Compare,
    operators,
    st.builds(
        ref.Call,
        st.sampled_from(["minute", "hour", "day", "weekday", "week", "month", "year"]),
        st.just(ref.Attr(ref.TIME)),
    ),
    st.sampled_from([0, 1, 2, 3, 5]).map(ref.Const),
)


@st.composite
def lag_formulas(draw):
    """Draw formulas whose filters read events before an event in the stream."""
    conditions = st.one_of(lag_conditions(), lag_conditions(), lag_conditions(), function_conditions())
    kind = draw(st.sampled_from(["old", "chain", "absent", "related"]))
    if kind == "old":
        return draw(s.formulas(depth=3, conditions=conditions, whole=True))
    a, b, c = (ref.As(ref.EventType(draw(types)), name) for name in "xyz")
    filtered_b = ref.Filter(b, ref.Unary("y", draw(conditions)))
    if kind == "related":
        return ref.Filter(ref.Seq(a, filtered_b), draw(lag_relations(*draw(st.permutations(["x", "y"])))))
    if kind == "absent":
        return ref.Seq(a, c, (filtered_b,))
    return draw(st.sampled_from([ref.Next, ref.Seq, ref.Contig]))(a, ref.Plus(filtered_b))


def lag_queries(**kinds):
    """Return a strategy for queries with LAG and functions, with any of the clauses."""
    return s.full_queries(formula=lag_formulas(), **kinds)


def lag_cases(**kinds):
    return full_cases(queries=lag_queries(**kinds))


# ------------------------------------------------------------------------------------------ measures and HAVING

NUMBERS = ("n", "m", "v", "w", "st.n")
MEASURED = (*NUMBERS, "s", "t")


@st.composite
def measure_leaves(draw, variables, several, numbers=True):
    """Draw an aggregate or an attribute of one event, of numbers, or of any type."""
    variable = draw(st.sampled_from(variables))
    functions = ["COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST", "LAST"] + ([] if variable in several else ["EACH"] * 3)
    function = draw(st.sampled_from(functions if numbers else ["LIST", "LIST", "MIN", "MAX", "FIRST", "LAST"]))
    name = draw(st.sampled_from(NUMBERS if numbers else MEASURED))
    if function == "COUNT":
        return ref.Aggregate("COUNT", variable)
    if function in ("FIRST", "LAST", "EACH"):
        return ref.VarAttr(variable, name, function)
    return ref.Aggregate(function, variable, name)


@st.composite
def measures(draw, variables, several):
    """Draw an expression: a leaf, or arithmetic between two or with a constant."""
    shape = draw(st.sampled_from(["leaf", "leaf", "any", "difference", "difference", "scaled", "count"]))
    leaf = measure_leaves(variables, several)
    match shape:
        case "any":
            return draw(measure_leaves(variables, several, numbers=False))
        case "difference":
            return ref.Arith(draw(st.sampled_from("-+*")), draw(leaf), draw(leaf))
        case "scaled":
            return ref.Arith(draw(st.sampled_from("+-*")), draw(leaf), ref.Const(draw(st.sampled_from([2, 0.5, 1]))))
        case "count":
            return ref.Aggregate("COUNT")
    return draw(leaf)


@st.composite
def measure_queries(draw, choosing=False, formula=None):
    """Draw queries with measures, half of them with HAVING."""
    formula = st.one_of(s.formulas(whole=True), j.join_formulas(), rest_formulas) if formula is None else formula
    query = draw(s.full_queries(choosing=choosing, formula=formula))
    variables = sorted(ref.defined_variables(query.formula))
    if not variables:
        event = ref.EventType("A")
        query, variables = replace(query, formula=ref.Seq(event, query.formula)), ["A"]
    several = ref.variables_of_several(query.formula)[0]
    # `MAX (` would begin a measure
    fewest = 1 if query.strategy in ("MAX", "LAST") else 0
    items = draw(st.lists(st.sampled_from(variables), min_size=fewest, max_size=2, unique=True))
    columns = [f"m{k}" for k in range(draw(st.integers(1, 3)))]
    drawn = tuple((name, draw(measures(variables, several))) for name in columns)
    query = replace(query, select=tuple(items), brackets=(), measures=drawn)
    if draw(st.booleans()):
        query = replace(query, having=draw(having(query, several)))
    return query


@st.composite
def having(draw, query, several):
    """Draw a condition over the measures that are numbers, and over aggregates of the variables that are selected."""
    numeric = [name for name, measure in query.measures if is_number(measure)]
    shown = ref.bound_variables(query)
    tests = [
        ref.Compare(draw(operators), ref.Attr(name), ref.Const(draw(st.sampled_from([0, 1, 2])))) for name in numeric
    ]
    if shown:
        count = ref.Aggregate("COUNT", draw(st.sampled_from(shown)))
        tests.append(ref.Compare(draw(operators), count, ref.Const(draw(st.sampled_from([1, 2])))))
    if len(numeric) > 1:
        tests.append(ref.Compare(draw(operators), ref.Attr(numeric[0]), ref.Attr(numeric[1])))
    if numeric:
        tests.append(ref.IsNull(ref.Attr(numeric[0]), draw(st.booleans())))
    if not tests:
        tests.append(ref.IsNull(ref.Attr(query.measures[0][0]), negated=True))
    test = draw(st.sampled_from(tests))
    if draw(st.integers(0, 3)) == 3:
        join = draw(st.sampled_from([ref.PredAnd, ref.PredOr]))
        return join(test, ref.PredNot(draw(st.sampled_from(tests))))
    return test


def is_number(measure):
    """Return True if the values of a measure are numbers."""
    match measure:
        case ref.Aggregate("LIST"):
            return False
        case ref.Aggregate(_, _, name) | ref.VarAttr(_, name):
            return name is None or name in NUMBERS
    return True


@st.composite
def measure_columns(draw, name, length):
    """Draw the values of one column: numbers whose sums are exact."""
    if name == s.ORDER_COLUMN:
        return draw(s.columns(name, length))
    pool = j.join_values(name) if name not in s.FLOAT_COLUMNS else (0.0, 1.0, 2.0, 1.5, -2.5)
    pool = pool * 2 + (None,) * draw(st.sampled_from([0, 0, 1, 3]))
    return draw(st.lists(st.sampled_from(pool), min_size=length, max_size=length))


@st.composite
def measure_streams(draw, query, longest=None):
    longest = s.longest_stream(query.formula) if longest is None else longest
    shortest = draw(st.sampled_from([longest - 1, longest * 2 // 3, longest * 2 // 3, 0]))
    return draw(s.streams(query, longest, measure_columns, shortest))


def measure_cases(**kinds):
    return full_cases(queries=measure_queries(**kinds), stream_for=measure_streams)


def measure_stream(query, length, rng: random.Random):
    """Return a random stream of about this length for the query."""
    return s.long_stream(query, rng, length, j.join_values)
