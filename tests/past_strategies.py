"""Hypothesis strategies for OVER aggregates, and for absences counted back."""

from __future__ import annotations

import reference as ref
import strategies as s
from hypothesis import strategies as st
from rest_strategies import full_cases

TYPES = ("A", "A", "B", "C")
types = st.sampled_from((*TYPES, ref.ANY))
lengths = st.sampled_from([0, 1, 1, 2, 3, 5])
extents = st.one_of(
    lengths.map(lambda n: ("events", n)),
    lengths.map(lambda n: ("events", n)),
    lengths.map(lambda n: ("time", 1000 * n)),
    lengths.map(lambda n: ("attribute", n, s.ORDER_COLUMN)),
)
operators = s.comparison_operators

# columns with extreme integers are in no sum, which could be beyond int64
OF = {
    "COUNT": ["n", "v", "s", "st.n", "flag", None, None],
    "COUNT DISTINCT": ["n", "m", "v", "w", "s", "t", "flag"],
    "SUM": ["m", "v", "w", "st.n"],
    "AVG": ["n", "m", "v", "w"],
    "MIN": ["n", "m", "v", "w"],
    "MAX": ["n", "m", "v", "w"],
    "STDDEV": ["n", "m", "v", "w"],
    "VARIANCE": ["n", "m", "v", "w"],
}


@st.composite
def aggregates(draw, functions=tuple(OF), depth=1):
    """Draw an OVER aggregate, whose filter may read the past by itself."""
    function = draw(st.sampled_from(functions))
    name = draw(st.sampled_from(OF[function]))
    plain = st.none() | s.plain_comparisons | s.plain_comparisons
    condition = draw(plain | plain | plain | past_tests(depth - 1) if depth else plain)
    of = None if name is None else ref.Attr(name)
    return ref.Over(function, draw(st.sampled_from([*TYPES, None])), of, condition, draw(extents))


@st.composite
def past_tests(draw, depth=0):
    """Draw a comparison of an aggregate with a constant, perhaps where it begins to hold."""
    over = draw(aggregates(("COUNT", "COUNT DISTINCT", "MAX", "AVG"), depth))
    test = ref.Compare(draw(operators), over, ref.Const(draw(st.sampled_from([0, 1, 2, 3]))))
    if draw(st.booleans()):
        return test
    either = draw(st.booleans())
    condition = ref.PredOr(test, draw(s.plain_comparisons)) if either else test
    chosen = draw(s.plain_comparisons) if depth == 0 or draw(st.booleans()) else draw(past_tests(depth - 1))
    return ref.Rises(condition, chosen)


@st.composite
def extreme_strings(draw):
    """Draw MIN or MAX of strings, over the past."""
    condition = draw(st.none() | s.plain_comparisons)
    function, of = draw(st.sampled_from(["MIN", "MAX"])), draw(s.string_attributes)
    return ref.Over(function, draw(st.sampled_from([*TYPES, None])), of, condition, draw(extents))


@st.composite
def conditions(draw):
    """Draw a predicate on an event that reads an OVER aggregate."""
    over = draw(aggregates())
    number = ref.Attr(draw(st.sampled_from(["n", "m", "v"])))
    kinds = ["constant", "constant", "own", "share", "null", "both", "function", "either", "rises", "rises", "string"]
    match draw(st.sampled_from(kinds)):
        case "rises":
            return draw(past_tests(2))
        case "string":
            other = draw(st.one_of(s.string_attributes, s.string_constants, extreme_strings()))
            return ref.Compare(draw(operators), draw(extreme_strings()), other)
        case "constant":
            return ref.Compare(draw(operators), over, ref.Const(draw(st.sampled_from([0, 1, 2, 3, 0.5]))))
        case "own":
            return ref.Compare(draw(operators), number, over)
        case "share":
            part = ref.Arith("*", over, ref.Const(draw(st.sampled_from([2, 0.5]))))
            return ref.Compare(draw(operators), part, number)
        case "null":
            return ref.IsNull(over, draw(st.booleans()))
        case "both":
            return ref.Compare(draw(operators), over, draw(aggregates()))
        case "function":
            # the integers of AVG are floats, and STDDEV and VARIANCE have nothing below 0
            mean = draw(aggregates(("AVG", "STDDEV", "VARIANCE", "COUNT")))
            return ref.Compare(draw(operators), ref.Call("abs", mean), ref.Const(1))
    join = draw(st.sampled_from([ref.PredAnd, ref.PredOr]))
    return join(draw(s.plain_comparisons), ref.Compare(">", over, ref.Const(1)))


@st.composite
def absences(draw):
    """Draw an absence counted back."""
    event = ref.EventType(draw(types))
    name = draw(st.sampled_from([event.name, "r"]))
    named = event if name == event.name else ref.As(event, name)
    if draw(st.booleans()):
        named = ref.Filter(named, ref.Unary(name, draw(s.plain_comparisons)))
    return ref.AbsentFor(named, draw(extents))


@st.composite
def preceded(draw, body):
    """Draw an absence, or two, counted back from a formula."""
    return ref.Preceded(tuple(draw(st.lists(absences(), min_size=1, max_size=2))), draw(body))


@st.composite
def formulas_after_absence(draw):
    """Draw formulas in which absences are counted back: at the beginning, and in parentheses anywhere."""
    one = types.map(ref.EventType)
    named = st.builds(ref.As, one, st.sampled_from(["x", "y"]))
    filtered = st.builds(lambda f, p: ref.Filter(ref.As(f, "z"), ref.Unary("z", p)), one, s.plain_comparisons)
    event = one | named | filtered
    several = st.one_of(
        event,
        st.builds(ref.Plus, event),
        st.builds(ref.ContigPlus, event),
        st.builds(ref.Times, event, st.sampled_from([1, 2]), st.sampled_from([2, 3, None])),
        st.builds(ref.Or, event, event),
        st.builds(ref.Seq, event, st.builds(ref.Plus, event)),
        st.builds(ref.Seq, st.builds(ref.Times, event, st.just(0), st.sampled_from([1, None])), event),
        st.builds(ref.Contig, event, event),
        st.builds(ref.Next, event, event),
    )
    part = preceded(several)
    return draw(
        st.one_of(
            part,
            st.builds(ref.Seq, event, part),
            st.builds(ref.Seq, part, event),
            st.builds(ref.Contig, event, part),
            st.builds(ref.Plus, preceded(st.one_of(event, st.builds(ref.Seq, event, event)))),
            st.builds(ref.Or, part, event),
            st.builds(ref.Or, part, part),
            preceded(st.builds(ref.Or, part, event)),
            st.builds(lambda f: ref.As(f, "u"), part),
        )
    )


@st.composite
def related_formulas(draw):
    """Draw filters between events that read an OVER aggregate of one of them."""
    a, b = (ref.As(ref.EventType(draw(types)), name) for name in "xy")
    over, name = draw(aggregates(("COUNT", "SUM", "MAX", "AVG"))), draw(st.sampled_from(["n", "m", "v"]))
    if draw(st.integers(0, 3)) == 0:
        over = draw(extreme_strings())
        name = draw(st.sampled_from(s.STRING_COLUMNS))
    over = ref.Over(over.function, over.type, over.of, over.condition, over.within, "y")
    test = ref.Compare(draw(operators), over, ref.VarAttr("x", name))
    if draw(st.booleans()):
        test = ref.PredAnd(ref.Compare("=", ref.VarAttr("x", "n"), ref.VarAttr("y", "n")), test)
    return ref.Filter(ref.Seq(a, b), ref.Relation(test))


KINDS = {
    "conditions": s.formulas(depth=2, conditions=conditions(), whole=True),
    "absences": formulas_after_absence(),
    "between events": related_formulas(),
}


def cases(kind, **kinds):
    """Return a strategy for queries of a kind, with their events."""
    return full_cases(queries=s.full_queries(formula=KINDS[kind], **kinds))
