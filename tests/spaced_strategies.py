"""Hypothesis strategies for chains with gaps at each step and windows around some of their steps, by one clock."""

from __future__ import annotations

from dataclasses import replace

import reference as ref
import rest_strategies as rest
import strategies as s
from hypothesis import strategies as st

QUANTIFIERS = ("one", "one", "one", "plus", "next plus", "two", "two or more", "one or two", "two or three", "next")


@st.composite
def steps(draw, quantifiers=QUANTIFIERS):
    """Draw a step of a chain, and return it with its quantifier."""
    event = ref.EventType(draw(st.sampled_from(s.TYPES)))
    quantifier = draw(st.sampled_from(quantifiers))
    if quantifier == "one" and draw(st.integers(0, 5)) == 5:
        event = ref.Or(event, ref.EventType(draw(st.sampled_from(s.TYPES))))
    bodies = {
        "plus": ref.Plus(event),
        "next plus": ref.Times(event, 1, None, "->"),
        "two": ref.Times(event, 2, 2),
        "two or more": ref.Times(event, 2, None),
        "one or two": ref.Times(event, 1, 2),
        "two or three": ref.Times(event, 2, 3),
        "next": ref.Times(event, 1, 3, "->"),
    }
    return bodies.get(quantifier, event), quantifier


@st.composite
def chains(draw, length):
    """Draw a chain; `length` draws the length of a window."""
    parts = draw(st.lists(steps(), min_size=2, max_size=4))

    def part_of(first, last):
        if first == last:
            formula, quantifier = parts[first]
            inside = quantifier != "one"
        else:
            middle = draw(st.integers(first, last - 1))
            left, right = part_of(first, middle), part_of(middle + 1, last)
            joint = draw(st.sampled_from([";", ";", ";", "absent", "absent", ":", "->"]))
            inside = True
            if joint == "->" and isinstance(right, ref.EventType):
                formula = ref.Next(left, right)
            elif joint == ":":
                formula = ref.Contig(left, right)
            else:
                absent = (ref.EventType(draw(st.sampled_from(s.TYPES))),) if joint == "absent" else ()
                formula = ref.Seq(left, right, absent)
        if inside and draw(st.integers(0, 3)) == 3:
            formula = ref.Windowed(formula, draw(length))
        return formula

    return part_of(0, len(parts) - 1)


@st.composite
def queries(draw, choosing=False):
    """Draw a query whose pattern is a chain with gaps and local windows, nearly all of them by the clock of WITHIN."""
    clock = draw(st.sampled_from(["events", "time", "attribute"]))

    def lengths(least, most):
        def length(n):
            return {"events": ("events", n), "time": ("time", 1000 * n)}.get(clock, ("attribute", n, s.ORDER_COLUMN))

        return st.integers(least, most).map(length)

    query = draw(s.full_queries(formula=chains(lengths(0, 5)), strategies=("ALL", "ALL", "STRICT"), choosing=choosing))
    return replace(
        query,
        select="*",
        brackets=(),
        each_step=draw(st.none() | lengths(0, 4) | lengths(0, 4)),
        within=draw(st.none() | lengths(2, 9)),
    )


def cases(choosing=False):
    """Return a strategy for such queries, each with a stream."""
    return rest.full_cases(queries=queries(choosing))
