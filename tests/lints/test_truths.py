"""A test is called never or always TRUE only if trying all values says the same."""

import itertools
import math
import operator
import random

import pytest
from sizes import seeds

import cer_gpu
from cer_gpu.ceql import syntax as s
from cer_gpu.lints.truths import Contradiction, truths

VALUES = (None, 0, 1, 1.5, 2, 3, math.nan)
OPS = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def drawn(draw, depth):
    kind = draw.random()
    if depth and kind < 0.6:
        parts = [drawn(draw, depth - 1) for _ in range(draw.choice((2, 2, 3)))]
        return "(" + draw.choice((" AND ", " OR ")).join(parts) + ")"
    if depth and kind < 0.75:
        return f"NOT ({drawn(draw, depth - 1)})"
    name = draw.choice("xy")
    if kind < 0.85:
        return f"{name} IS {draw.choice(('', 'NOT '))}NULL"
    if kind < 0.9:
        listed = ", ".join(map(str, draw.sample(range(4), draw.choice((1, 2)))))
        return f"{name} {draw.choice(('', 'NOT '))}IN {{{listed}}}"
    if kind < 0.95:
        return f"x {draw.choice(list(OPS))} y"
    return f"{name} {draw.choice(list(OPS))} {draw.randrange(4)}"


def value(node, event):
    return event[node.name] if isinstance(node, s.Attribute) else node.value


def truth(node, event):
    """TRUE, FALSE or None, by the definitions."""
    match node:
        case s.And():
            parts = [truth(each, event) for each in node.operands]
            return False if False in parts else None if None in parts else True
        case s.Or():
            parts = [truth(each, event) for each in node.operands]
            return True if True in parts else None if None in parts else False
        case s.Not():
            below = truth(node.operand, event)
            return None if below is None else not below
        case s.IsNull():
            return value(node.operand, event) is None
        case s.Membership():
            own = value(node.operand, event)
            return None if own is None else any(own == value(each, event) for each in node.values)
        case s.Comparison():
            both = value(node.left, event), value(node.right, event)
            return None if None in both else OPS[node.op](*both)
    raise AssertionError(node)


def predicate_of(text):
    query = cer_gpu.compile(f"SELECT * FROM S WHERE A AS a FILTER a[{text}]")
    return query.syntax.formula.filter.predicate


@pytest.mark.parametrize("seed", seeds(300))
def test_what_is_said_holds_for_all_values(seed):
    predicate = predicate_of(drawn(random.Random(seed), 3))
    found = [truths(predicate, lambda attribute: None, nan=nan)[id(predicate)] for nan in (True, False)]
    events = [dict(zip("xy", values, strict=True)) for values in itertools.product(VALUES, VALUES)]
    if isinstance(found[0].if_true, Contradiction):
        assert True not in [truth(predicate, event) for event in events]
    if isinstance(found[1].if_false, Contradiction):
        plain = [event for event in events if not any(map(_is_nan, event.values()))]
        assert False not in [truth(predicate, event) for event in plain]


@pytest.mark.parametrize("seed", seeds(200))
def test_of_conjunctions_over_one_value_all_is_said(seed):
    draw = random.Random(seed)
    tests = [f"x {draw.choice(list(OPS))} {draw.randrange(4)}" for _ in range(draw.choice((2, 3)))]
    predicate = predicate_of(" AND ".join(tests))
    never = isinstance(truths(predicate, lambda attribute: None, nan=True)[id(predicate)].if_true, Contradiction)
    values = [n / 2 for n in range(-2, 9)] + [math.nan]
    assert never == (True not in [truth(predicate, {"x": each}) for each in values])


def _is_nan(value):
    return value is not None and math.isnan(value)
