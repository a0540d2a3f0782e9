"""Hypothesis strategies: queries of every shape, streams to run them on, and cuts of streams into batches.

Streams are short and nested iteration makes them shorter, because the reference is exponential. They have
few types and few values, so that events overlap, tie and match. Only columns that the query reads are drawn.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import accumulate

import reference as ref
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# Hypothesis loads its "ci" profile, which derandomizes, wherever the environment has CI; this builds upon it.
property_settings = settings(
    max_examples=int(os.environ.get("CER_GPU_EXAMPLES", "300")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TYPES = ("A", "B", "C")
UNSEEN_TYPE = "D"  # now and then in a query, rarely in a stream
VARIABLES = ("x", "x", "y", "limit", "B")

INT_COLUMNS = ("n", "m", "odd name")
FLOAT_COLUMNS = ("v", "w")
STRING_COLUMNS = ("s", "t")
BOOL_COLUMNS = ("flag",)
ORDER_COLUMN = "seq"  # never NULL, never decreasing: for WITHIN n [seq]

BIG = 2**53 + 1  # no float64 of its own
INTS = (0, 1, 2, 3, -1, -2, 7, 100)
EXTREME_INTS = (2**63 - 1, -(2**63), BIG, BIG - 1, -BIG)
FLOATS = (0.0, -0.0, 1.0, 1.5, 2.0, -1.0, 0.1, -2.5)
EXTREME_FLOATS = (float("nan"), float("inf"), float("-inf"), 1e308, float(BIG - 1))
# by code point U+FFFD precedes U+1F525, by UTF-16 code unit it does not
STRINGS = ("a", "b", "ab", "", "A", "it's", "é", "\ufffd", "\U0001f525", "a.b", "ba")
# regular expressions on which RE2 and Python agree, for strings without line ends
REGEXES = (
    "a",
    "^a",
    "b$",
    "^$",
    "a.",
    r"a\.b",
    "[a-b]+",
    "^(a|é)$",
    "x?",
    "b{1,2}",
    "(?i)a",
    "'",
    "^.$",
    "[^a]",
)

# the time of a stream is in milliseconds
TIME_GRAINS = (500, 1000, 86_400_000)  # half seconds, seconds, days
EPOCHS = (0, 1_356_998_400_000, -86_400_000)  # 1970, 2013, before 1970


# ------------------------------------------------------------------------------------------------ predicates

int_constants = st.sampled_from(INTS + INTS + (2**63 - 1, BIG, -BIG)).map(ref.Const)
float_constants = st.sampled_from([*FLOATS, float(BIG - 1)]).map(ref.Const)
string_constants = st.sampled_from(STRINGS).map(ref.Const)
int_attributes = st.sampled_from(INT_COLUMNS).map(ref.Attr)
float_attributes = st.sampled_from(FLOAT_COLUMNS).map(ref.Attr)
string_attributes = st.sampled_from(STRING_COLUMNS).map(ref.Attr)
comparison_operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
numbers = int_attributes | int_constants | float_attributes | float_constants
arithmetic = st.recursive(
    numbers,
    lambda part: st.builds(ref.Neg, part) | st.builds(ref.Arith, st.sampled_from("+-*/%"), part, part),
    max_leaves=4,
)


@st.composite
def bounds(draw, constants):
    """A lower and an upper bound, not both absent."""
    low, high = draw(constants), draw(constants)
    which = draw(st.integers(0, 3))
    return (None if which == 1 else low), (None if which == 2 else high)


@st.composite
def braced_ranges(draw):
    attribute, constants = draw(st.sampled_from([(int_attributes, int_constants), (float_attributes, float_constants)]))
    low, high = draw(bounds(constants))
    return ref.InRange(draw(attribute), low, high)


def _sets(attributes, constants):
    values = st.lists(constants, min_size=1, max_size=3).map(tuple)
    return st.builds(ref.In, attributes, values, st.booleans())


comparisons = st.one_of(  # the plainest first: those are what a failing example shrinks to
    st.builds(ref.Compare, comparison_operators, int_attributes, int_constants),
    st.builds(ref.Compare, comparison_operators, float_attributes, float_constants),
    st.builds(ref.Compare, comparison_operators, string_attributes, string_constants),
    st.builds(ref.Compare, comparison_operators, string_attributes, string_attributes),
    st.builds(ref.Compare, comparison_operators, string_constants, string_attributes),
    st.builds(ref.Compare, comparison_operators, numbers, numbers),
    st.builds(ref.Compare, comparison_operators, arithmetic, arithmetic),
    st.builds(
        ref.Compare,
        st.sampled_from(["=", "<>"]),
        st.sampled_from(BOOL_COLUMNS).map(ref.Attr),
        st.booleans().map(ref.Const),
    ),
    st.builds(ref.Like, string_attributes, st.sampled_from(REGEXES)),
    _sets(int_attributes, int_constants),
    _sets(float_attributes, float_constants | int_constants),
    _sets(string_attributes, string_constants),
    braced_ranges(),
    st.builds(
        ref.InRange,
        arithmetic,
        int_constants | float_constants,
        int_constants | float_constants,
        st.just(True),
    ),
)
plain_comparisons = st.one_of(
    st.builds(ref.Compare, comparison_operators, st.just(ref.Attr("m")), st.sampled_from(INTS[:4]).map(ref.Const)),
    st.builds(ref.Compare, comparison_operators, st.just(ref.Attr("w")), st.just(ref.Const(1.0))),
    st.builds(ref.In, st.just(ref.Attr("s")), st.just((ref.Const("a"), ref.Const("b"))), st.booleans()),
)
predicates = plain_comparisons | st.recursive(
    comparisons,
    lambda part: st.builds(ref.PredNot, part) | st.builds(ref.PredAnd, part, part) | st.builds(ref.PredOr, part, part),
    max_leaves=4,
)


# -------------------------------------------------------------------------------------------------- formulas

types = st.sampled_from(TYPES + TYPES + (UNSEEN_TYPE,))


def filters(variables, conditions=predicates):
    """Filters over some of the variables."""
    one = st.builds(ref.Unary, st.sampled_from(sorted(variables)), conditions)
    return one | st.recursive(
        one,
        lambda part: st.builds(ref.FilterAnd, part, part) | st.builds(ref.FilterOr, part, part),
        max_leaves=3,
    )


@st.composite
def formulas(draw, depth=3, pluses=2, conditions=predicates, whole=False):
    """Formulas of this depth at most, with at most `pluses` iterations inside one another.

    `whole`: the formula of a query, which is not just one event.
    """
    if depth == 0:
        shape = "type"
    else:
        shapes = ["seq", "seq", "as", "or", "contig", "filter", "filter", "plus", "plus", "contigplus"]
        if pluses == 0:
            shapes = shapes[:-3]
        if not whole:
            shapes = ["type", "type", *shapes, "not"]
        shape = draw(st.sampled_from(shapes))

    def part(pluses=pluses):
        return draw(formulas(depth=depth - 1, pluses=pluses, conditions=conditions))

    if shape == "type":
        return ref.EventType(draw(types))
    if shape == "not":
        return ref.Not(draw(types), draw(st.none() | conditions))
    if shape == "as":
        return ref.As(part(), draw(st.sampled_from(VARIABLES)))
    if shape == "filter":
        body = part()
        variables = ref.defined_variables(body)
        return ref.Filter(body, draw(filters(variables, conditions))) if variables else body
    if shape == "plus":
        return ref.Plus(part(pluses - 1))
    if shape == "contigplus":
        return ref.ContigPlus(part(pluses - 1))
    return {"seq": ref.Seq, "contig": ref.Contig, "or": ref.Or}[shape](part(), part())


def nested_pluses(formula):
    """How deep iterations stand inside one another."""
    deepest = max((nested_pluses(part) for part in ref.children(formula)), default=0)
    return deepest + isinstance(formula, ref.Plus)


def longest_stream(formula):
    """A length of stream at which brute force stays fast."""
    pluses = sum(isinstance(node, ref.Plus) for node in ref.descendants(formula))
    if nested_pluses(formula) > 1:
        return 8
    return (14, 12, 10, 8)[min(pluses, 3)]


@st.composite
def queries(draw, windows="any", limits=False, depth=4, conditions=predicates):
    """Queries with ALL as their strategy, no partition and no CONSUME.

    `windows` says which WITHIN there is: "any" for any or none, one kind, or None; `limits` whether there is LIMIT.
    """
    formula = draw(formulas(depth=depth, conditions=conditions, whole=True))
    variables = sorted(ref.defined_variables(formula))
    select = draw(st.sampled_from(["*", "*", "some", "some", "NONE"] if variables else ["*", "NONE"]))
    if select == "some":
        select = tuple(draw(st.lists(st.sampled_from(variables), min_size=1, max_size=3, unique=True)))
    kinds = [None, "events", "time", "attribute"] if windows == "any" else [windows]
    kind = draw(st.sampled_from(kinds))
    within = None
    if kind == "events":
        within = ("events", draw(st.integers(0, 8)))
    elif kind == "time":
        seconds = st.integers(0, 6) | st.sampled_from([3600, 3661, 86_400, 180_000, 259_200])
        within = ("time", 1000 * draw(seconds))
    elif kind == "attribute":
        within = ("attribute", draw(st.integers(0, 8)), ORDER_COLUMN)
    limit = draw(st.integers(1, 4)) if limits else None
    return ref.Query(formula, select=select, within=within, limit=limit)


@st.composite
def full_queries(draw):
    """Queries with any strategy but ANY, partitions and CONSUME too."""
    query = draw(queries())
    return replace(
        query,
        strategy=draw(st.sampled_from(["ALL", "NEXT", "LAST", "MAX", "STRICT"])),
        partition_by=draw(st.sampled_from([(), (("m",),), (("m", "s"),), (("m",), ("s", "t"))])),
        consume=draw(st.sampled_from(["NONE", "ANY", "PARTITION"])),
    )


# --------------------------------------------------------------------------------------------------- streams


@st.composite
def columns(draw, name, length, extreme=False):
    """The values of one column."""
    if name in INT_COLUMNS:
        common, rare = INTS, EXTREME_INTS if name == "n" else ()
    elif name in FLOAT_COLUMNS:
        common, rare = FLOATS, EXTREME_FLOATS if name == "v" else ()
    elif name in STRING_COLUMNS:
        common, rare = STRINGS, ()
    elif name in BOOL_COLUMNS:
        common, rare = (False, True), ()
    elif name == ORDER_COLUMN:
        return draw(rising(length, st.sampled_from([0, 1, 1, 2, 5])))
    else:
        raise KeyError(name)
    pool = common
    if rare and (extreme or draw(st.booleans())):
        pool += rare
    if draw(st.booleans()):
        pool += (None,) * 3
    return draw(st.lists(st.sampled_from(pool), min_size=length, max_size=length))


@st.composite
def rising(draw, length, steps):
    """A list that never decreases."""
    return list(accumulate(draw(st.lists(steps, min_size=length, max_size=length))))


@st.composite
def times(draw, length):
    """Times in milliseconds, with ties, all multiples of one grain."""
    grain = draw(st.sampled_from(TIME_GRAINS))
    epoch = draw(st.sampled_from(EPOCHS))
    ticks = draw(rising(length, st.sampled_from([0, 0, 1, 1, 2, 3])))
    return [epoch + grain * t for t in ticks]


@st.composite
def streams(draw, query, longest=None):
    """A stream for the query: the columns that it reads, with times."""
    longest = longest_stream(query.formula) if longest is None else longest
    length = draw(st.integers(longest // 2, longest) | st.integers(longest - 2, longest) | st.integers(0, longest))
    nodes = ref.descendants(query.formula)
    mentioned = sorted({node.name for node in nodes if isinstance(node, ref.EventType | ref.Not)})
    others = [UNSEEN_TYPE] if draw(st.integers(0, 9)) == 9 else list(TYPES[:1])
    pool = mentioned * 3 + others + ([None] if draw(st.integers(0, 4)) == 4 else [])
    data = {ref.TYPE: draw(st.lists(st.sampled_from(pool), min_size=length, max_size=length))}
    data[ref.TIME] = draw(times(length))
    for name in sorted(ref.attributes(query)):
        data[name] = draw(columns(name, length))
    return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]


@st.composite
def cases(draw, **kinds):
    """A query and a stream for it."""
    query = draw(queries(**kinds))
    return query, draw(streams(query))


@st.composite
def predicate_cases(draw):
    """One predicate, over many events of one type whose columns are full of extremes."""
    query = _one_predicate(draw(comparisons | predicates))
    return query, draw(_streams_of_one_type(query))


@st.composite
def arithmetic_cases(draw):
    """Arithmetic compared with what it gives for one of the events, so that any other value shows."""
    operator = draw(st.sampled_from("+-*/%"))
    left, right = draw(st.sampled_from([("n", "m"), ("m", "n"), ("n", "n"), ("v", "w"), ("n", "v"), ("v", "m")]))
    operand = draw(st.sampled_from([ref.Attr(right), ref.Neg(ref.Attr(right)), *map(ref.Const, (0, -1, 3, -0.0))]))
    expression = ref.Arith(operator, ref.Attr(left), operand)
    stream = draw(_streams_of_one_type(_one_predicate(ref.Compare("=", expression, expression))))
    value = ref.value_of(expression, draw(st.sampled_from(stream)))
    if value == -(2**63):  # no literal of its own
        constant = ref.Arith("-", ref.Const(1 - 2**63), ref.Const(1))
    elif isinstance(value, int) or (isinstance(value, float) and 1e-4 < abs(value) < 1e15):
        constant = ref.Const(value)
    else:
        constant = ref.Const(0)
    comparison = ref.Compare(draw(comparison_operators), expression, constant)
    query = _one_predicate(draw(st.sampled_from([comparison, ref.PredNot(comparison)])))
    return query, stream


def _one_predicate(predicate):
    return ref.Query(ref.Filter(ref.EventType("A"), ref.Unary("A", predicate)))


@st.composite
def _streams_of_one_type(draw, query):
    length = draw(st.sampled_from([40, 9]))
    data = {ref.TYPE: ["A"] * length, ref.TIME: [0] * length}
    for name in sorted(ref.attributes(query)):
        data[name] = draw(columns(name, length, extreme=True))
    return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]


@st.composite
def long_cases(draw):
    """A query with a narrow window in events, and a stream much longer than it."""
    query = replace(draw(queries(windows=None, depth=3)), within=("events", draw(st.integers(1, 5))))
    return query, draw(streams(query, longest=60))


def cuts(length):
    """Places where a stream of this length is cut into batches; the same place twice gives an empty batch."""
    return st.lists(st.integers(0, length), max_size=5).map(sorted)


# ----------------------------------------------------------------------------------------- predicates of time


def time_comparisons(moment):
    """Comparisons of the time with literals such as ``'2013-01-01 05:00:00'``, written by `moment`."""
    instants = st.builds(
        lambda epoch, ticks, grain: epoch + grain * ticks,
        st.sampled_from(EPOCHS),
        st.integers(0, 4),
        st.sampled_from((1000, 86_400_000)),
    )
    literals = instants.map(lambda ms: ref.Const(ms, text=f"'{moment(ms)}'"))
    return st.builds(ref.Compare, comparison_operators, st.just(ref.Attr(ref.TIME)), literals)
