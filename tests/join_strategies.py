"""Hypothesis strategies for filters between events: predicates, formulas that hold them, and streams that match.

Columns have few values, so that joins find partners; at times integers and floats near 2**53, NaN and NULL.
"""

from __future__ import annotations

import functools
import random
from decimal import Decimal

import reference as ref
import strategies as s
from hypothesis import strategies as st

# of the columns that `strategies` knows, those at the front are drawn more often
INTS = ("n", "n", "n", "m", "m", "st.n", "odd name")
FLOATS = ("v", "v", "v", "w", "w", "st.q r.v")
STRINGS = ("s", "s", "s", "t", "t", "st.q r.s")
EXACT = (*s.UNSIGNED_COLUMNS * 2, *s.DECIMAL_COLUMNS, "n")
OPERATORS = ("<", ">", "<=", ">=", "=", "<>")
TYPES = ("A", "A", "A", "B", "B", "C")
types = st.sampled_from((*TYPES, ref.ANY))
DURATIONS = (0, 500, 1000, 2000, 3000, 5000, 90_000, 3_660_000, s.DAY, 2 * s.DAY, 3 * s.DAY + 1500)
ODD_NAMES = ("first", "PREV", "Last", "is", "between", "days", "st", "b c", "limit")

Spot = tuple[str, str]  # a variable, and which of its events


# ------------------------------------------------------------------------------------------------ predicates


def at(spot: Spot, name: str) -> ref.VarAttr:
    """Return an attribute of the event at the spot."""
    return ref.VarAttr(spot[0], name, spot[1])


def about(predicate, spot: Spot):
    """Return the predicate about the event at the spot, instead of the filtered event."""
    return _replaced(predicate, lambda attribute: at(spot, attribute.name))


def _replaced(node, change):
    if isinstance(node, ref.Attr):
        return change(node)
    if isinstance(node, tuple):
        return tuple(_replaced(part, change) for part in node)
    names = getattr(node, "__dataclass_fields__", ())
    return type(node)(**{name: _replaced(getattr(node, name), change) for name in names}) if names else node


def _plus(expression, number):
    return ref.Arith("+", expression, ref.Const(number))


@st.composite
def equalities(draw, one, other):
    columns = draw(st.sampled_from([INTS, INTS, STRINGS, FLOATS, s.BOOL_COLUMNS, EXACT, s.TIME_COLUMNS]))
    names = st.sampled_from(columns)
    left = draw(names)
    right = draw(st.sampled_from([left, left, draw(names)]))
    return ref.Compare(draw(st.sampled_from(["=", "=", "=", "<>"])), at(one, left), at(other, right))


@st.composite
def orders(draw, one, other):
    columns = draw(st.sampled_from([INTS, FLOATS, STRINGS, EXACT, s.TIME_COLUMNS, s.LENGTH_COLUMNS]))
    left, right = draw(st.sampled_from(columns)), draw(st.sampled_from(columns))
    return ref.Compare(draw(st.sampled_from(OPERATORS[:5])), at(one, left), at(other, right))


@st.composite
def mixed_kinds(draw, one, other):
    """Draw a comparison of an integer with a float, either side first."""
    terms = [
        at(one, draw(st.sampled_from((*INTS[:5], *s.UNSIGNED_COLUMNS)))),
        at(other, draw(st.sampled_from(FLOATS[:5]))),
    ]
    left, right = draw(st.permutations(terms))
    return ref.Compare(draw(st.sampled_from(OPERATORS)), left, right)


@st.composite
def bands(draw, one, other):
    columns = draw(st.sampled_from([INTS, INTS, FLOATS, ("n", *s.UNSIGNED_COLUMNS)]))
    left, right = at(one, draw(st.sampled_from(columns))), at(other, draw(st.sampled_from(columns)))
    low, high = draw(st.integers(-2, 0)), draw(st.integers(0, 2))
    shape = draw(st.sampled_from(["between", "difference", "range", "function", "between", "distance"]))
    if shape == "distance":
        distance = ref.Call("abs", ref.Arith("-", left, right))
        return ref.Compare(draw(st.sampled_from(["<=", "<", "="])), distance, ref.Const(high))
    if shape == "difference":
        return ref.Compare(draw(st.sampled_from(["<=", ">=", "="])), ref.Arith("-", left, right), ref.Const(high))
    if shape == "between":
        return ref.Between(left, _plus(right, low), _plus(right, high), draw(st.integers(0, 3)) == 3)
    if shape == "range":
        bounds = [(_plus(right, low), _plus(right, high)), (right, None), (None, right)]
        return ref.InRange(left, *draw(st.sampled_from(bounds)))
    return ref.InRange(left, _plus(right, low), _plus(right, high), True)


@st.composite
def linear(draw, one, other):
    """Draw a comparison such as `b.v > 1.05 * a.v + 2`."""
    left, right = (at(spot, draw(st.sampled_from((*INTS[:5], *FLOATS[:5])))) for spot in (one, other))
    factor, offset = draw(st.sampled_from([1.05, 0.5, 2, -1, 1])), draw(st.sampled_from([0, 1, -2, 0.5]))
    scaled = ref.Arith(draw(st.sampled_from("***/%")), ref.Const(factor), right)
    return ref.Compare(draw(st.sampled_from(OPERATORS)), left, ref.Arith("+", scaled, ref.Const(offset)))


@st.composite
def inseparable(draw, one, other, third):
    """Draw a comparison such as `a.n * b.m > c.n`."""
    names = [draw(st.sampled_from(INTS[:5] + FLOATS[:1])) for _ in range(3)]
    mixed = ref.Arith(draw(st.sampled_from("**+-/%")), at(one, names[0]), at(other, names[1]))
    return ref.Compare(draw(st.sampled_from(OPERATORS)), mixed, at(third, names[2]))


@st.composite
def time_distances(draw, one, other):
    """Draw a comparison of a difference of times with a length of time, or of two times."""
    later, earlier = draw(st.sampled_from([(ref.TIME, ref.TIME), s.TIME_COLUMNS, s.TIME_COLUMNS[::-1]]))
    difference = ref.Arith("-", at(one, later), at(other, earlier))
    length = ref.DurationConst(draw(st.sampled_from(DURATIONS)))
    if later != ref.TIME and draw(st.integers(0, 2)) == 2:
        length = at(draw(st.sampled_from([one, other])), s.LENGTH_COLUMNS[0])
    shape = draw(st.sampled_from(["less", "less", "mirrored", "between", "order"]))
    if shape == "order":
        return ref.Compare(draw(st.sampled_from(OPERATORS)), at(one, ref.TIME), at(other, ref.TIME))
    if shape == "between":
        return ref.Between(difference, ref.DurationConst(0), length, draw(st.integers(0, 3)) == 3)
    if shape == "mirrored":
        return ref.Compare(draw(st.sampled_from([">=", ">", "<"])), length, difference)
    return ref.Compare(draw(st.sampled_from(OPERATORS)), difference, length)


@st.composite
def memberships(draw, one, other):
    columns = draw(st.sampled_from([INTS, STRINGS]))
    constants = {INTS: st.sampled_from([0, 1, 2]), STRINGS: st.sampled_from(["a", "b"])}[columns]
    values = [at(other, draw(st.sampled_from(columns))), ref.Const(draw(constants))]
    return ref.In(at(one, draw(st.sampled_from(columns))), tuple(draw(st.permutations(values))), draw(st.booleans()))


@st.composite
def parts_of_texts(draw, one, other):
    """Draw a test of the texts of two events, or of more texts of theirs, perhaps in small letters."""
    names = st.sampled_from(STRINGS)
    text, part = (draw(st.sampled_from([plain, plain, ref.Call("lower", plain)])) for plain in
                  (at(one, draw(names)), at(other, draw(names))))  # fmt: skip
    spare = st.sampled_from([at(one, "t"), at(other, "s"), ref.Const("a"), ref.Const("")])
    more = draw(st.lists(spare, max_size=2)) if draw(st.integers(0, 3)) == 3 else []
    function = draw(st.sampled_from(["contains", "contains", "startswith", "endswith"]))
    texts = ref.Strings(function, (text, *draw(st.permutations([part, *more]))))
    shape = draw(st.sampled_from(["true", "true", "true", "false", "unlike", "null"]))
    if shape == "null":
        return ref.IsNull(texts, draw(st.booleans()))
    return ref.Compare("<>" if shape == "unlike" else "=", texts, ref.Const(shape != "false"))


@st.composite
def null_tests(draw, one, other):
    left, right = at(one, draw(st.sampled_from(INTS))), at(other, draw(st.sampled_from(INTS)))
    return ref.IsNull(ref.Arith(draw(st.sampled_from("/%+")), left, right), draw(st.sampled_from([True, True, False])))


single_events = st.one_of(
    s.plain_comparisons,
    st.builds(ref.IsNull, st.sampled_from(INTS).map(ref.Attr), st.booleans()),
    st.builds(
        ref.Between, st.sampled_from(INTS).map(ref.Attr), st.just(ref.Const(0)), st.just(ref.Const(2)), st.booleans()
    ),
    s.predicates,
)
KINDS = [equalities, equalities, orders, orders, bands, linear, mixed_kinds, time_distances, memberships, null_tests]
KINDS += [parts_of_texts]


@st.composite
def tests_of(draw, spots):
    """Draw one comparison between events at two of the spots or three."""
    one, other = draw(st.permutations(spots))[:2]
    kind = draw(st.sampled_from([*KINDS, inseparable]))
    return draw(kind(one, other, draw(st.sampled_from(spots))) if kind is inseparable else kind(one, other))


@st.composite
def predicates_of(draw, spots):
    """Draw a predicate over events at two or more spots: mostly one comparison."""
    shape = draw(st.sampled_from(["one"] * 6 + ["and", "or", "not", "single"]))
    first = draw(tests_of(spots))
    if shape == "not":
        return ref.PredNot(first)
    if shape in ("and", "or"):
        return {"and": ref.PredAnd, "or": ref.PredOr}[shape](first, draw(tests_of(spots)))
    if shape == "single":
        join = draw(st.sampled_from([ref.PredAnd, ref.PredOr]))
        return join(*draw(st.permutations([about(draw(single_events), draw(st.sampled_from(spots))), first])))
    return first


@st.composite
def relations(draw, variables, several=()):
    """Draw a filter between events of the variables; `several`: those that may hold more than one event."""
    if several and draw(st.booleans()):
        variable = draw(st.sampled_from(sorted(several)))
        spots = [(variable, "EACH"), (variable, draw(st.sampled_from(["PREV", "PREV", "FIRST", "LAST"])))]
        if len(variables) > 1 and draw(st.integers(0, 3)) == 3:
            spots.append((draw(st.sampled_from(variables)), "EACH"))
    elif len(variables) == 1:
        spots = [(variables[0], event) for event in draw(st.permutations(["EACH", "FIRST", "LAST", "PREV"]))[:2]]
    else:
        chosen = draw(st.permutations(variables))[: draw(st.sampled_from([2, 2, 3]))]
        events = st.sampled_from(["EACH"] * 9 + ["FIRST", "LAST", "PREV"])
        spots = [(variable, draw(events)) for variable in chosen]
    return ref.Relation(draw(predicates_of(list(dict.fromkeys(spots)))))


@st.composite
def conditions(draw, variables, several=(), own=()):
    """Draw filters between events of the variables, at times beside an `x[p]` of one of its `own`."""
    parts = [draw(relations(variables, several)) for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2, 2, 3])))]
    if own and draw(st.integers(0, 3)) == 3:
        parts.append(ref.Unary(draw(st.sampled_from(own)), draw(s.likely_conditions | single_events)))
        parts = draw(st.permutations(parts))
    join = st.sampled_from([ref.FilterAnd, ref.FilterOr, ref.FilterAnd])
    if len(parts) == 3 and draw(st.booleans()):
        return draw(join)(parts[0], draw(join)(parts[1], parts[2]))
    return functools.reduce(lambda left, right: draw(join)(left, right), parts)


# -------------------------------------------------------------------------------------------------- formulas


@st.composite
def steps(draw, name):
    """Draw one step of a chain with the variable it defines, and True if that may hold several events."""
    event = ref.EventType(draw(types))
    named = event if name is None else ref.As(event, name)
    variable = event.name if name is None else name
    repeated = ["plus", "plus", "as plus", "contigplus", "either plus"]
    shape = draw(st.sampled_from(["one"] * 8 + [*repeated, "either", "perhaps"]))
    if shape == "plus":
        return ref.Plus(named), variable, True
    if shape == "as plus":
        return ref.As(ref.Plus(event), variable), variable, True
    if shape == "contigplus":
        return ref.ContigPlus(named), variable, True
    if shape in ("either", "perhaps", "either plus"):
        other = ref.EventType(draw(types))
        either = ref.Or(named, other if shape == "perhaps" else ref.As(other, variable))
        return (ref.Plus(either), variable, True) if shape == "either plus" else (either, variable, False)
    return named, variable, False


@st.composite
def chains_of_steps(draw, most=4):
    """Draw from two steps to `most`, each as (formula, variable, may hold several)."""
    n = draw(st.integers(2, most))
    kind = draw(st.sampled_from(["plain", "plain", "plain", "types", "odd", "again"]))
    names = {"plain": list("abcd"), "types": [None] * n, "odd": draw(st.permutations(ODD_NAMES)), "again": list("abab")}
    names = names[kind]
    return [draw(steps(name)) for name in names[:n]]


@st.composite
def joined(draw, parts):
    """Draw a sequence of formulas: left-associative, mostly with `;`, at times with NOT(...) between."""
    join = st.sampled_from([ref.Seq] * 5 + [ref.Contig])
    if draw(st.integers(0, 9)) == 9:
        parts = list(parts)
        parts.insert(draw(st.integers(0, len(parts))), ref.Not(draw(types), draw(st.none() | s.likely_conditions)))
    return functools.reduce(lambda left, right: draw(join)(left, right), parts)


def _names(found):
    return list(dict.fromkeys(variable for _, variable, _ in found))


def _several(found):
    names = [variable for _, variable, _ in found]
    return {variable for _, variable, many in found if many or names.count(variable) > 1}


@st.composite
def chains(draw):
    """Draw a chain with one filter at its end, over all of its steps."""
    found = draw(chains_of_steps())
    body = draw(joined([formula for formula, _, _ in found]))
    return ref.Filter(body, draw(conditions(_names(found), _several(found), _names(found))))


@st.composite
def stepwise_chains(draw):
    """Draw a chain in which steps have filters of their own, which read the steps before."""
    found = draw(chains_of_steps())
    parts = [found[0][0]]
    for k, (formula, variable, many) in enumerate(found[1:], start=1):
        if k == 1 or draw(st.booleans()):
            known = _names(found[: k + 1])
            formula = ref.Filter(formula, draw(conditions(known, {variable} if many else (), (variable,))))
        parts.append(formula)
    return draw(joined(parts))


@st.composite
def filters_in_iterations(draw):
    """Draw `A AS x ; (B AS y ; C AS z FILTER ...)+`, whose filter may read x; without x, too, and nested."""
    before = draw(steps("x"))
    inside = draw(chains_of_steps(most=3))
    outer = [before] if draw(st.integers(0, 4)) else []
    body = draw(joined([formula for formula, _, _ in inside]))
    known = _names(outer + inside)
    body = ref.Filter(body, draw(conditions(known, _several(inside), _names(inside))))
    if draw(st.integers(0, 4)) == 4:
        event = ref.As(ref.EventType(draw(types)), "z")
        body = draw(joined([event, body]))
        body = ref.Filter(body, draw(relations(["z", *_names(outer)])))
    iteration = draw(st.sampled_from([ref.Plus, ref.Plus, ref.ContigPlus]))(body)
    return draw(joined([*(formula for formula, _, _ in outer), iteration]))


@st.composite
def relations_on_whole_paths(draw, variables):
    """Draw a filter that reads FIRST, LAST, PREV or three events."""
    spots = [(v, event) for v in variables for event in ("FIRST", "FIRST", "LAST", "LAST", "EACH", "PREV")]
    chosen = draw(st.lists(st.sampled_from(spots), min_size=2, max_size=3, unique=True))
    if len(chosen) == 3 and draw(st.booleans()):
        return ref.Relation(draw(inseparable(*chosen)))
    return ref.Relation(draw(predicates_of(chosen)))


@st.composite
def filters_on_whole_paths(draw):
    """Draw sequences, most of whose steps hold several events, with filters that are tested on whole paths."""
    names = "abc"[: draw(st.integers(1, 3))]
    parts = []
    for name in names:
        event = ref.As(ref.EventType(draw(st.sampled_from(("A", "A", "B", "C", ref.ANY)))), name)
        parts.append(ref.Plus(event) if draw(st.integers(0, 3)) else event)
    if len(parts) == 3 and draw(st.integers(0, 3)) == 3:
        join = draw(st.sampled_from([ref.Or, ref.Or, ref.All]))
        parts = [join(parts[0], parts[1]), parts[2]]
        parts = [ref.Plus(parts[0]), parts[1]] if draw(st.booleans()) else parts
    body = draw(joined(parts))
    shape = draw(st.sampled_from(["chain", "chain", "iteration", "after", "twice"]))
    if shape == "twice":
        body = ref.Filter(body, draw(relations_on_whole_paths(names)))
    if shape == "after":
        return ref.Seq(
            ref.Plus(ref.As(ref.EventType("A"), "x")), ref.Filter(body, draw(relations_on_whole_paths([*names, "x"])))
        )
    body = ref.Filter(body, draw(relations_on_whole_paths(names)))
    if shape == "iteration":
        body = ref.Plus(body)
        if draw(st.booleans()):
            body = ref.Filter(
                ref.Seq(body, ref.As(ref.EventType("B"), "y")), draw(relations_on_whole_paths([*names, "y"]))
            )
    return body


@st.composite
def disjunctions_of_chains(draw):
    """Draw chains under OR, with filters inside and over both."""
    left, right = draw(chains_of_steps(most=2)), draw(chains_of_steps(most=2))
    formulas = []
    for found in (left, right):
        formula = draw(joined([part for part, _, _ in found]))
        if draw(st.booleans()):
            formula = ref.Filter(formula, draw(conditions(_names(found), _several(found))))
        formulas.append(formula)
    body = ref.Or(*formulas)
    before = draw(steps("x"))
    if draw(st.booleans()):
        return ref.Filter(body, draw(conditions(_names(left + right), _several(left + right))))
    return ref.Filter(
        draw(joined([before[0], body])), draw(conditions(_names([before, *left, *right]), _several(left)))
    )


@st.composite
def placed(draw, formula, outer=frozenset()):
    """Draw the formula with filters between events at some places; `outer` are the variables that stand before it."""
    match formula:
        case ref.Seq(left, right) | ref.Contig(left, right):
            known = outer | ref.defined_variables(left)
            formula = type(formula)(draw(placed(left, outer)), draw(placed(right, known)))
        case ref.Or(left, right) | ref.All(left, right):
            formula = type(formula)(draw(placed(left, outer)), draw(placed(right, outer)))
        case ref.As(body, name):
            formula = ref.As(draw(placed(body, outer)), name)
        case ref.Filter(body, condition):
            formula = ref.Filter(draw(placed(body, outer)), condition)
        case ref.Plus(body) | ref.ContigPlus(body):
            formula = type(formula)(draw(placed(body, outer)))
    own = ref.defined_variables(formula)
    likely = 2 if isinstance(formula, ref.Seq | ref.Contig | ref.Plus) else 5
    if own | outer and draw(st.integers(0, likely)) == likely:
        return ref.Filter(formula, draw(conditions(sorted(own | outer), (), sorted(own))))
    return formula


@st.composite
def random_formulas(draw):
    """Draw any formula, with filters between events at random places of it."""
    formula = draw(s.formulas(depth=3, conditions=s.likely_conditions, whole=True))
    if not ref.defined_variables(formula):
        formula = ref.Seq(ref.EventType("A"), formula)
    return draw(placed(formula))


@st.composite
def join_formulas(draw):
    """Draw a formula with at least one filter between events."""
    formula = draw(
        st.one_of(
            chains(),
            chains(),
            stepwise_chains(),
            filters_in_iterations(),
            disjunctions_of_chains(),
            random_formulas(),
            random_formulas(),
        )
    )
    if ref.relates_events(formula):
        return formula
    spots = [(variable, "EACH") for variable in sorted(ref.defined_variables(formula))]
    if len(spots) == 1:
        spots.append((spots[0][0], "PREV"))
    return ref.Filter(formula, ref.Relation(draw(equalities(*spots[:2]) | orders(*spots[:2]))))


# --------------------------------------------------------------------------------------------------- streams


def join_values(name):
    """Return the usual values of a column: few, so that events find partners."""
    if name in s.FLOAT_COLUMNS:
        return (0.0, -0.0, 1.0, 2.0, 1.5)
    if name in s.STRING_COLUMNS:
        return ("a", "b", "ab", "\ufffd", "\U0001f525")
    if name in s.DECIMAL_COLUMNS:
        return (Decimal(0), Decimal("0.25"), Decimal(1), Decimal(2))
    if name in s.TIME_COLUMNS + s.LENGTH_COLUMNS:
        return (0, 1000, 1500, 2000)
    return (False, True) if name in s.BOOL_COLUMNS else (0, 1, 2, 3)


EXTREMES = {
    "n": (s.BIG, s.BIG - 1, -s.BIG, 2**63 - 1, -(2**63), 1),
    "m": (s.BIG, s.BIG + 1, 2**63 - 1, 0, 1),
    "v": (float(s.BIG - 1), float(s.BIG + 1), -float(s.BIG), 2.0**63, float("nan"), float("inf"), -0.0, 1.0),
    "w": (float("nan"), float("-inf"), float(s.BIG - 1), 0.1, 0.0),
    "u": (2**64 - 1, 2**64 - 2, 2**63, 2**63 - 1, 1),
    "d": (Decimal("9999999999999999.99"), Decimal("9999999999999999.98"), Decimal(s.BIG), Decimal(1)),
    "e": (Decimal("9999999999999999.99"), Decimal("-9999999999999999.99"), Decimal(s.BIG), Decimal(1)),
    "at": (253_402_300_799_000, -62_135_596_800_000, 9_223_372_036_854, 1, 0),
    "since": (253_402_300_799_000, -62_135_596_800_000, 0, 1000),
    "took": (10**13, -(10**13), 1, 0),
}


@st.composite
def join_columns(draw, name, length):
    """Draw the values of one column."""
    if name == s.ORDER_COLUMN:
        return draw(s.columns(name, length))
    extreme = name in EXTREMES and draw(st.integers(0, 3)) == 3
    pool = EXTREMES[name] if extreme else join_values(name)
    if draw(st.integers(0, 2)) == 2:
        pool = pool * 2 + (None,) * draw(st.sampled_from([1, 3]))
    return draw(st.lists(st.sampled_from(pool), min_size=length, max_size=length))


@st.composite
def join_streams(draw, query, longest=None):
    """Draw a stream for the query: seldom a short one, on which few steps find their events."""
    longest = s.longest_stream(query.formula) if longest is None else longest
    shortest = draw(st.sampled_from([longest - 1, longest * 2 // 3, longest * 2 // 3, 0]))
    return draw(s.streams(query, longest, join_columns, shortest))


def join_cases(**kinds):
    """Return a strategy for queries with filters between events, with streams for them (`strategies.cases`)."""
    return s.cases(stream_for=join_streams, formula=join_formulas(), **kinds)


def full_join_cases(**kinds):
    """Return a strategy for such queries with any of the clauses (`strategies.full_cases`)."""
    return s.full_cases(stream_for=join_streams, formula=join_formulas(), **kinds)


def cases_on_whole_paths(**kinds):
    """Return a strategy for such queries whose filters read whole paths, with any of the clauses."""
    return s.full_cases(stream_for=join_streams, formula=filters_on_whole_paths(), **kinds)


def join_cases_of_several_streams(**kinds):
    """Return a strategy for such queries over several streams (`strategies.cases_of_several_streams`)."""
    return s.cases_of_several_streams(stream_for=join_streams, formula=join_formulas(), **kinds)


def long_join_cases(**kinds):
    """Return a strategy for such queries with long streams (`strategies.long_full_cases`), with every strategy."""
    kinds = {"strategies": s.STRATEGIES, **kinds}
    return s.long_full_cases(formula=join_formulas(), pool_of=join_values, **kinds)


def join_stream(query, length, rng: random.Random):
    """Return a random stream of about this length for the query."""
    return s.long_stream(query, rng, length, join_values)
