"""Hypothesis strategies: queries of every shape, streams to evaluate them on, and cuts of streams into batches.

Streams are short and nested iteration makes them shorter, because the reference is exponential. They have
few types and few values, so that events overlap, tie and match. Only columns that the query reads are drawn.

`queries` and `cases` hold WHERE, SELECT, WITHIN and LIMIT; `full_queries` and `full_cases` the other clauses too;
`cases_of_several_streams` several streams in FROM.
"""

from __future__ import annotations

import functools
import random
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from itertools import accumulate

import reference as ref
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sizes import ALL, scaled

CONJUNCTIONS = True  # the tests of the whole language draw formulas with ALL, too

# upon the profile that conftest.py loads
property_settings = settings(
    max_examples=scaled(ALL),
    deadline=None,
    # some tests need a kind of query that few draws are, and a filtered draw is cheap
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
n_cases = {"passed": 0}  # of all tests by `property_test`; conftest.py reports it


def property_test(share=1.0):
    """Make a test of `data` a property test on this share of the random cases (`sizes`), and count them."""

    def decorate(test):
        @functools.wraps(test)
        def counted(**arguments):
            test(**arguments)
            n_cases["passed"] += 1

        return settings(property_settings, max_examples=scaled(share * ALL))(given(data=st.data())(counted))

    return decorate


TYPES = ("A", "B", "C")
UNSEEN_TYPE = "D"  # now and then in a query, rarely in a stream
VARIABLES = ("x", "x", "y", "limit", "B")

INT_COLUMNS = ("n", "m", "odd name", "st.n")  # those with a dot are fields of structs
FLOAT_COLUMNS = ("v", "w", "st.q r.v")
STRING_COLUMNS = ("s", "t", "st.q r.s")
BOOL_COLUMNS = ("flag", "open")
MOMENT_COLUMNS = ("day", "hour")  # in milliseconds, in no order: only for PARTITION BY
# only between events and in keys: uint64 up to its end, decimals of several scales, times and lengths of several units
UNSIGNED_COLUMNS = ("u",)
DECIMAL_COLUMNS = ("d", "e")
TIME_COLUMNS = ("at", "since")  # in milliseconds, in no order
LENGTH_COLUMNS = ("took",)  # in milliseconds
ORDER_COLUMN = "seq"  # never NULL, never decreasing: for WITHIN n [seq]

BIG = 2**53 + 1  # no float64 of its own
INTS = (0, 1, 2, 3, -1, -2, 7, 100)
EXTREME_INTS = (2**63 - 1, -(2**63), BIG, BIG - 1, -BIG)
FLOATS = (0.0, -0.0, 1.0, 1.5, 2.0, -1.0, 0.1, -2.5)
EXTREME_FLOATS = (float("nan"), float("inf"), float("-inf"), 1e308, float(BIG - 1))
# by code point U+FFFD precedes U+1F525, by UTF-16 code unit it does not
STRINGS = ("a", "b", "ab", "", "A", "it's", "é", "\ufffd", "\U0001f525", "a.b", "ba", "10.1.2.3", "fe80::1")
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

GLOBS = ("a*", "*b", "?", "*", "", "[!a]*", "[a-b][^A]", "A?", "a.b", "ab", "*[.:]*", "É", "[*]")
NETWORKS = ("10.0.0.0/8", "10.1.2.3", "0.0.0.0/0", "10.1.2.0/30", "fe80::/10", "::/0")

# the time of a stream is in milliseconds
DAY, HOUR = 86_400_000, 3_600_000
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
    """Draw a lower and an upper bound, not both absent."""
    low, high = draw(constants), draw(constants)
    which = draw(st.integers(0, 3))
    return (None if which == 1 else low), (None if which == 2 else high)


@st.composite
def braced_ranges(draw):
    kinds = [(int_attributes, int_constants), (float_attributes, float_constants), (arithmetic, arithmetic)]
    operand, bound = draw(st.sampled_from(kinds))
    low, high = draw(bounds(bound))
    return ref.InRange(draw(operand), low, high)


def _sets(operands, elements):
    values = st.lists(elements, min_size=1, max_size=3).map(tuple)
    return st.builds(ref.In, operands, values, st.booleans())


comparisons = st.one_of(  # the plainest first: a failing example shrinks to them
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
    st.builds(
        ref.Glob, string_attributes, st.lists(st.sampled_from(GLOBS), min_size=1, max_size=3).map(tuple), st.booleans()
    ),
    st.builds(ref.Cidr, string_attributes, st.lists(st.sampled_from(NETWORKS), min_size=1, max_size=3).map(tuple)),
    _sets(int_attributes, int_constants),
    _sets(float_attributes, float_constants | int_constants),
    _sets(string_attributes, string_constants),
    _sets(arithmetic, arithmetic),
    braced_ranges(),
    st.builds(
        ref.InRange,
        arithmetic,
        int_constants | float_constants | arithmetic,
        int_constants | float_constants | arithmetic,
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

types = st.sampled_from(TYPES * 3 + (UNSEEN_TYPE, ref.ANY, ref.ANY))


def filters(variables, conditions=predicates):
    """Return a strategy for filters over some of the variables."""
    one = st.builds(ref.Unary, st.sampled_from(sorted(variables)), conditions)
    return one | st.recursive(
        one,
        lambda part: st.builds(ref.FilterAnd, part, part) | st.builds(ref.FilterOr, part, part),
        max_leaves=3,
    )


@st.composite
def formulas(draw, depth=3, pluses=2, conditions=predicates, whole=False):
    """Draw formulas of this depth at most, with at most `pluses` iterations inside one another.

    `whole`: the formula of a query, which is more than one event.
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
    """Return the depth of iterations inside one another."""
    deepest = max((nested_pluses(part) for part in ref.children(formula)), default=0)
    return deepest + (isinstance(formula, ref.Plus) or _repeats(formula))


def _repeats(node):
    """Return True for a quantifier that allows more than one of its formula."""
    return isinstance(node, ref.Times) and node.most != 1 and node.joint != ":"


def longest_stream(formula):
    """Return a length of stream at which brute force stays fast."""
    pluses = sum(isinstance(node, ref.Plus | ref.All) or _repeats(node) for node in ref.descendants(formula))
    if nested_pluses(formula) > 1:
        return 8
    return (14, 12, 10, 8)[min(pluses, 3)]


lengths = st.sampled_from([3, 2, 1, 0, 4, 5, 6, 8])


@st.composite
def queries(draw, windows="any", limits=False, depth=4, conditions=predicates, formula=None):
    """Draw queries with ALL as their strategy, without PARTITION BY and CONSUME BY.

    `windows` is the kind of WITHIN ("any" for any or none, one kind, or None); `limits`: there is a LIMIT; `formula`:
    a strategy for formulas other than the usual ones.
    """
    formula = draw(formulas(depth=depth, conditions=conditions, whole=True) if formula is None else formula)
    variables = sorted(ref.defined_variables(formula))
    select = draw(st.sampled_from(["*", "*", "some", "some", "NONE"] if variables else ["*", "NONE"]))
    if select == "some":
        select = tuple(draw(st.lists(st.sampled_from(variables), min_size=1, max_size=3, unique=True)))
    kinds = [None, "events", "time", "attribute"] if windows == "any" else [windows]
    kind = draw(st.sampled_from(kinds))
    within = None
    if kind == "events":
        within = ("events", draw(lengths))
    elif kind == "time":
        seconds = lengths | st.sampled_from([30, 90, 3600, 3661, 86_400, 180_000, 259_200])
        within = ("time", 1000 * draw(seconds))
    elif kind == "attribute":
        within = ("attribute", draw(lengths), ORDER_COLUMN)
    limit = draw(st.integers(0, 4)) if limits else None
    return ref.Query(formula, select=select, within=within, limit=limit)


STRATEGIES = ("ALL", "NEXT", "LAST", "MAX", "STRICT")
KEY_KINDS = (INT_COLUMNS, FLOAT_COLUMNS, STRING_COLUMNS, BOOL_COLUMNS, MOMENT_COLUMNS)
KEY_KINDS += (UNSIGNED_COLUMNS, DECIMAL_COLUMNS, TIME_COLUMNS, LENGTH_COLUMNS)


@st.composite
def partition_keys(draw):
    """Draw one bracket or two of PARTITION BY, each of columns of one kind."""
    brackets = []
    for kind in draw(st.lists(st.sampled_from(KEY_KINDS), min_size=1, max_size=2, unique=True)):
        names = draw(st.lists(st.sampled_from(kind), min_size=1, max_size=2, unique=True))
        brackets.append(tuple(names))
    return tuple(brackets)


@st.composite
def brackets(draw, n_items):
    """Draw attributes for some of the selected variables, at times for all."""
    some = [ref.TYPE, ref.TIME, "m", "v", "s", "flag", "st.n", "st.q r.s"]
    one = st.lists(st.sampled_from(some), min_size=1, max_size=3, unique=True).map(tuple)
    each = draw(st.sampled_from([one, st.none() | one]))
    return tuple(draw(each) for _ in range(n_items))


# most events satisfy one of these, so that iterations under a filter survive too
likely_conditions = st.one_of(
    st.just(ref.Compare(">=", ref.Attr("m"), ref.Const(0))),
    st.just(ref.Compare("<>", ref.Attr("s"), ref.Const("a"))),
    st.just(ref.Compare("<", ref.Attr("w"), ref.Const(2.0))),
    plain_comparisons,
    predicates,
)


@st.composite
def full_queries(
    draw, choosing=False, streams=("S",), typed=True, ambiguous=False, strategies=STRATEGIES, depth=3, formula=None
):
    """Draw queries with any of the clauses.

    `choosing`: ANY or LIMIT, so that there are several right answers; without it there is neither.
    `typed`: events have types; without, the type of each is the name of its stream.
    `ambiguous`: many complex events have several valuations, which only their variables tell apart.
    `formula`: a strategy for formulas other than the usual ones.
    """
    query = draw(queries(depth=depth, conditions=likely_conditions, formula=formula))
    formula, select = query.formula, query.select
    several = ref.Seq | ref.Contig | ref.Next | ref.All | ref.Plus | ref.ContigPlus | ref.Times
    if not any(isinstance(node, several) for node in ref.descendants(formula)):
        formula = ref.Seq(ref.Plus(ref.EventType(draw(types))), formula)
    if ambiguous:
        formula = draw(ambiguous_formulas(formula))
    if not typed:
        names = dict(zip((*TYPES, UNSEEN_TYPE), streams * 4, strict=False))
        formula = renamed(formula, names)
        if isinstance(select, tuple):
            select = tuple(dict.fromkeys(names.get(name, name) for name in select))
    if len(streams) > 1 or draw(st.integers(0, 3)) == 3:
        formula = draw(naming_streams(formula, streams, typed))
        if isinstance(select, tuple):
            known = sorted(ref.variables_of_streams(formula, streams)) + list(select)
            select = tuple(draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True)))
    # in brackets st.n is an attribute of the variable st, if there is one
    in_brackets = isinstance(select, tuple) and "st" not in ref.defined_variables(formula) and draw(st.booleans())
    strategy = draw(st.sampled_from(strategies))
    limit = None
    if choosing:
        strategy = draw(st.sampled_from([strategy, "ANY"]))
        limit = draw(st.sampled_from([1, 2, 3, 0])) if strategy != "ANY" or draw(st.integers(0, 3)) == 3 else None
    variables = ref.defined_variables(formula)  # columns of "bindings" have different names
    keys = draw(st.just(()) | partition_keys() | partition_keys())
    return replace(
        query,
        formula=formula,
        select=select,
        strategy=strategy,
        limit=limit,
        partition_by=tuple(names for names in keys if names[0] not in variables),
        consume=draw(st.sampled_from(["NONE", "NONE", "ANY", "PARTITION"])),
        streams=streams,
        brackets=draw(brackets(len(select))) if in_brackets else (),
    )


@st.composite
def ambiguous_formulas(draw, formula):
    """Draw the formula with events of some types in one variable or another."""
    if isinstance(formula, ref.EventType):
        either = ref.As(formula, "x") if draw(st.booleans()) else formula
        others = [formula, formula, replace(formula, name=ref.ANY)]
        return draw(st.sampled_from([formula, ref.Or(either, ref.As(draw(st.sampled_from(others)), "y"))]))
    if isinstance(formula, ref.Times) and formula.joint == "->":
        return formula
    if isinstance(formula, ref.Next):  # what is behind the arrow is one event
        return replace(formula, left=draw(ambiguous_formulas(formula.left)))
    return _with_parts(formula, lambda part: draw(ambiguous_formulas(part)))


def _with_parts(formula, change):
    """Return the formula with each of its direct subformulas changed; events that must be absent are none."""
    parts = {field.name: getattr(formula, field.name) for field in fields(formula)}
    return replace(formula, **{name: change(part) for name, part in parts.items() if isinstance(part, ref.Formula)})


@st.composite
def naming_streams(draw, formula, streams, typed=True):
    """Draw the formula with a stream's name before some of the types, and of the variables in filters."""
    if isinstance(formula, ref.EventType | ref.Not):
        own = streams if typed or formula.name == ref.ANY else [formula.name]
        return replace(formula, stream=draw(st.sampled_from([None, None, *own])))
    formula = _with_parts(formula, lambda part: draw(naming_streams(part, streams, typed)))
    if ref.absences(formula):
        absent = tuple(draw(naming_streams(event, streams, typed)) for event in ref.absences(formula))
        field = "until" if isinstance(formula, ref.Plus | ref.Times) else "absent"
        formula = replace(formula, **{field: absent})
    if not isinstance(formula, ref.Filter):
        return formula
    known = ref.variables_of_streams(formula.body, streams)

    def named(condition):
        if isinstance(condition, ref.Relation):
            return draw(relation_of_stream(condition, formula.body, known))
        if not isinstance(condition, ref.Unary):
            return replace(condition, left=named(condition.left), right=named(condition.right))
        options = sorted({f"{stream}>{condition.variable}" for stream in streams} & known)
        return replace(condition, variable=draw(st.sampled_from([condition.variable, *options])))

    return replace(formula, condition=named(formula.condition))


@st.composite
def relation_of_stream(draw, relation, body, known):
    """Draw the filter between events, now and then with a stream's name before one of its variables."""
    read = [node for node in ref.descendants(relation) if isinstance(node, ref.VarAttr)]
    # an attribute `st.p` stays as it is: behind a variable with a stream nothing could tell it from one of `st`
    others = {node.variable for node in read if node.event != "EACH" or "." in node.name}
    variables = {node.variable for node in read} & ref.defined_variables(body) - others
    options = sorted(name for name in known if name.rpartition(">")[2] in variables)
    if not options or draw(st.booleans()):
        return relation
    name = draw(st.sampled_from(options))
    return renamed(relation, {name.rpartition(">")[2]: name})


def renamed(node, names):
    """Return the formula or filter with other names for types and variables: `names` maps old ones to new ones."""
    if isinstance(node, tuple):
        return tuple(renamed(part, names) for part in node)
    if not is_dataclass(node):
        return node
    changes = {field.name: renamed(getattr(node, field.name), names) for field in fields(node)}
    if isinstance(node, ref.EventType | ref.Not | ref.As):
        changes["name"] = names.get(node.name, node.name)
    if isinstance(node, ref.Unary | ref.VarAttr):
        changes["variable"] = names.get(node.variable, node.variable)
    return replace(node, **changes)


# --------------------------------------------------------------------------------------------------- streams


def usual_values(name):
    """Return the usual values of a column."""
    if name in FLOAT_COLUMNS:
        return FLOATS
    if name in STRING_COLUMNS:
        return STRINGS
    return (False, True) if name in BOOL_COLUMNS else INTS


@st.composite
def columns(draw, name, length, extreme=False):
    """Draw the values of one column."""
    if name == ORDER_COLUMN:
        return draw(rising(length, st.sampled_from([0, 1, 1, 2, 5])))
    pool = usual_values(name)
    rare = {"n": EXTREME_INTS, "v": EXTREME_FLOATS}.get(name, ())
    if rare and (extreme or draw(st.booleans())):
        pool += rare
    if draw(st.booleans()):
        pool += (None,) * 3
    return draw(st.lists(st.sampled_from(pool), min_size=length, max_size=length))


@st.composite
def key_columns(draw, name, length):
    """Draw the values of a column that PARTITION BY names: few different ones."""
    if name in FLOAT_COLUMNS:
        pool = [[0.0, -0.0], [float("nan"), -float("nan")], [1.5], [float("-inf")]]  # equal ones together
    elif name in MOMENT_COLUMNS:
        hours = name == "hour" or draw(st.booleans())
        pool = [[k * HOUR] for k in (0, 1, 5, 23)] if hours else [[k * DAY] for k in (0, 1, -1, 15706)]
    elif name in INT_COLUMNS:
        pool = [[k] for k in (0, 1, -1, 2, *(EXTREME_INTS if draw(st.integers(0, 3)) == 3 else ()))]
    elif name in UNSIGNED_COLUMNS:
        pool = [[0], [1], [2**63 - 1], [2**63], [2**64 - 1]]
    elif name in DECIMAL_COLUMNS:
        pool = [[Decimal(text)] for text in ("0", "-0.01", "9999999999999999.98", "9999999999999999.99")]
    elif name in TIME_COLUMNS + LENGTH_COLUMNS:
        pool = [[0], [1], [-1000], [9_223_372_036_854], [253_402_300_799_000]]
    else:
        pool = [[value] for value in (STRINGS if name in STRING_COLUMNS else (False, True))]
    indices = st.integers(0, len(pool) - 1)
    used = draw(st.lists(indices, min_size=2, max_size=draw(st.sampled_from([2, 2, 3])), unique=True))
    values = [value for k in used for value in pool[k]] * 3 + [None] * draw(st.sampled_from([0, 0, 1, 2]))
    return draw(st.lists(st.sampled_from(values), min_size=length, max_size=length))


@st.composite
def rising(draw, length, steps):
    """Draw a list that never decreases."""
    return list(accumulate(draw(st.lists(steps, min_size=length, max_size=length))))


@st.composite
def times(draw, length):
    """Draw times in milliseconds, with ties, all multiples of one grain."""
    grain = draw(st.sampled_from(TIME_GRAINS))
    epoch = draw(st.sampled_from(EPOCHS))
    ticks = draw(rising(length, st.sampled_from([0, 0, 1, 1, 2, 3])))
    return [epoch + grain * t for t in ticks]


@st.composite
def streams(draw, query, longest=None, values=columns, shortest=0):
    """Draw a stream for the query: the columns that it reads, by the strategy `values`, with times."""
    longest = longest_stream(query.formula) if longest is None else longest
    length = draw(st.integers(longest // 2, longest) | st.integers(longest - 2, longest) | st.integers(0, longest))
    length = max(length, shortest)
    nodes = ref.descendants(query.formula)
    mentioned = sorted({node.name for node in nodes if isinstance(node, ref.EventType | ref.Not)})
    if draw(st.integers(0, 4)) < 4:  # seldom are there events of a type of this name
        mentioned = [name for name in mentioned if name != ref.ANY]
    others = [UNSEEN_TYPE] if draw(st.integers(0, 9)) == 9 else list(TYPES[:1])
    pool = mentioned * 3 + others + ([None] if draw(st.integers(0, 4)) == 4 else [])
    data = {ref.TYPE: draw(st.lists(st.sampled_from(pool), min_size=length, max_size=length))}
    data[ref.TIME] = draw(times(length))
    keys = {name for names in query.partition_by for name in names}
    for name in sorted(ref.attributes(query)):
        data[name] = draw(key_columns(name, length) if name in keys else values(name, length))
    sparse = draw(st.booleans())
    return [with_structs(dict(zip(data, row, strict=True)), sparse) for row in zip(*data.values(), strict=True)]


def with_structs(event, sparse):
    """Return the event with dotted fields in structs; `sparse`: a struct of NULLs alone is NULL itself."""
    found = {}
    for name, value in event.items():
        first, dot, rest = name.partition(".")
        if dot:
            found.setdefault(first, {})[rest] = value
        else:
            found[first] = value
    return {name: _struct(value, sparse) if isinstance(value, dict) else value for name, value in found.items()}


def _struct(fields_, sparse):
    value = with_structs(fields_, sparse)
    return None if sparse and all(part is None for part in value.values()) else value


@st.composite
def cases(draw, stream_for=streams, **kinds):
    """Draw a query and a stream for it."""
    query = draw(queries(**kinds))
    return query, draw(stream_for(query))


@st.composite
def full_cases(draw, stream_for=streams, **kinds):
    """Draw a query with any of the clauses and a stream for it, longer if it is split into substreams."""
    query = draw(full_queries(**kinds))
    stream = draw(stream_for(query, _longest_of_all(query)))
    return query, [{**event, ref.STREAM: query.streams[0]} for event in stream]


def _longest_of_all(query):
    """Return a length of stream for the query: longer if it is split, shorter if iteration meets ambiguity."""
    nodes = list(ref.descendants(query.formula))
    ambiguous = sum(isinstance(node, ref.Or) for node in nodes) > 1 and any(isinstance(n, ref.Plus) for n in nodes)
    return longest_stream(query.formula) * (2 if query.partition_by else 1) * (2 if ambiguous else 3) // 3


STREAM_NAMES = ("S", "T", "all")


@st.composite
def cases_of_several_streams(draw, typed=True, stream_for=streams, **kinds):
    """Draw a query over several streams, and the streams by name; in some of them a column may be all NULL."""
    names = STREAM_NAMES[: draw(st.integers(2 if typed else 1, 3))]
    query = draw(full_queries(streams=names, typed=typed, **kinds))
    stream = draw(stream_for(query, _longest_of_all(query)))
    owners = [draw(st.sampled_from(names)) for _ in stream]
    in_mapping = draw(st.permutations(names))
    by_name = {name: [e for e, owner in zip(stream, owners, strict=True) if owner == name] for name in in_mapping}
    optional = sorted(name for name in ref.attributes(query) - {ORDER_COLUMN} if "." not in name)
    for name in names[1:]:
        missing = draw(st.sampled_from(optional)) if optional and draw(st.integers(0, 3)) == 3 else None
        for event in by_name[name]:
            event.update({ref.TYPE: event[ref.TYPE] if typed else name}, **({missing: None} if missing else {}))
    if not typed:
        for event in by_name[names[0]]:
            event[ref.TYPE] = names[0]
    in_order = sorted(event[ORDER_COLUMN] for event in stream) if ORDER_COLUMN in ref.attributes(query) else []
    for event, value in zip(_in_merged_order(by_name), in_order, strict=False):
        event[ORDER_COLUMN] = value
    return query, by_name


def _in_merged_order(by_name):
    """Return the events themselves, in the order of `ref.merged`."""
    return sorted((event for stream in by_name.values() for event in stream), key=lambda event: event[ref.TIME])


@st.composite
def predicate_cases(draw):
    """Draw one predicate, over many events of one type whose columns are full of extremes."""
    query = _one_predicate(draw(comparisons | predicates))
    return query, draw(_streams_of_one_type(query))


@st.composite
def arithmetic_cases(draw):
    """Draw arithmetic compared with its value for one of the events, so that any other value shows."""
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
    sparse = draw(st.booleans())
    return [with_structs(dict(zip(data, row, strict=True)), sparse) for row in zip(*data.values(), strict=True)]


@st.composite
def long_cases(draw):
    """Draw a query with a narrow window in events, and a stream much longer than it."""
    query = replace(draw(queries(windows=None, depth=3)), within=("events", draw(st.integers(1, 5))))
    return query, draw(streams(query, longest=60))


@st.composite
def long_full_cases(
    draw, ambiguous=False, longest=250, formula=None, strategies=("ALL", "STRICT"), pool_of=usual_values
):
    """Draw a query of any clauses with a narrow window, and a long stream in which partitions come and go.

    The strategies are those that brute force can follow window by window (`ref.evaluate_long`).
    """
    choosing = draw(st.booleans())
    query = draw(full_queries(choosing=choosing, ambiguous=ambiguous, strategies=strategies, formula=formula))
    n = draw(st.sampled_from([3, 2, 1, 0, 4] if ambiguous else [3, 2, 1, 0, 4, 5, 6]))
    windows = st.sampled_from([("events", n), ("time", 1000 * n), ("attribute", n, ORDER_COLUMN)])
    query = replace(query, within=draw(windows))
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))
    return query, long_stream(query, rng, longest, pool_of)


def long_stream(query, rng, longest=250, pool_of=usual_values):
    """Return a random stream of up to `longest` events for the query, with values from the pools of columns."""
    length = rng.randint(1 if longest < 1000 else longest // 2, longest)
    named = {n.name for n in ref.descendants(query.formula) if isinstance(n, ref.EventType | ref.Not)}
    mentioned = sorted(named - {ref.ANY} if rng.random() < 0.8 else named) or [TYPES[0]]
    pool = mentioned * rng.randint(1, 3) + ["none of them"] * rng.randint(0, 4)
    rate = rng.choice([0.5, 1, 2])
    data = {
        ref.TYPE: rng.choices(pool, k=length),
        ref.TIME: [1000 * t for t in sorted(rng.choices(range(int(length * rate) + 1), k=length))],
        ref.STREAM: [query.streams[0]] * length,
    }
    keys = {name for names in query.partition_by for name in names}
    for name in sorted(ref.attributes(query)):
        if name == ORDER_COLUMN:
            data[name] = sorted(rng.choices(range(int(length * rate) + 1), k=length))
        elif name in keys:
            # three keys at a time, which give way to others, and come again after 800 events
            data[name] = [_key(name, p // 20 % 40 + rng.randrange(3)) for p in range(length)]
            data[name] = [value if rng.random() < 0.95 else None for value in data[name]]
        else:
            data[name] = rng.choices([*pool_of(name), None], k=length)
    sparse = rng.random() < 0.5
    return [with_structs(dict(zip(data, row, strict=True)), sparse) for row in zip(*data.values(), strict=True)]


def _key(name, n):
    """Return the n-th value of a column that PARTITION BY names."""
    if name in FLOAT_COLUMNS:
        return [0.0, float("nan"), -0.0, 1.5, -1.5, 2.0**40, float("-inf")][n] if n < 7 else n / 8
    if name in STRING_COLUMNS:
        return "k" * (n % 5) + str(n)
    if name in BOOL_COLUMNS:
        return n % 2 == 0
    if name in DECIMAL_COLUMNS:
        return Decimal(n) / 4
    if name in UNSIGNED_COLUMNS:
        return 2**63 - 3 + n
    return n * DAY if name in MOMENT_COLUMNS + TIME_COLUMNS + LENGTH_COLUMNS else n - 3


def cuts(length):
    """Return a strategy for the places where a stream is cut into batches; an equal pair gives an empty batch."""
    return st.lists(st.integers(0, length), max_size=5).map(sorted)


# ----------------------------------------------------------------------------------------- predicates of time


def time_comparisons(moment):
    """Return comparisons of the time with literals such as ``'2013-01-01 05:00:00'``, written by `moment`."""
    instants = st.builds(
        lambda epoch, ticks, grain: epoch + grain * ticks,
        st.sampled_from(EPOCHS),
        st.integers(0, 4),
        st.sampled_from((1000, 86_400_000)),
    )
    literals = instants.map(lambda ms: ref.Const(ms, text=f"'{moment(ms)}'"))
    return st.builds(ref.Compare, comparison_operators, st.just(ref.Attr(ref.TIME)), literals)
