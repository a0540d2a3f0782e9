"""Predicates and guards as CEQL text, with as few parentheses as it needs."""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Context, Decimal
from fractions import Fraction

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.ceql import functions
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.paths import LET_MARK, names_of, string_literal
from cer_gpu.ceql.patterns import STRING_TESTS

_PLAIN = re.compile(r"[^\W\d]\w*")
_RESERVED = frozenset("AND AS BETWEEN FALSE FILTER IN IS LIKE NOT NULL OR RANGE TRUE".split())  # noqa: SIM905
_SUM, _PRODUCT, _FACTOR = range(3)  # precedence of arithmetic, rising
_EITHER, _BOTH, _SINGLE = range(3)  # precedence of predicates, rising


def name_text(name: str) -> str:
    """Return a name, in backquotes unless it is an identifier."""
    return name if _PLAIN.fullmatch(name) and name.upper() not in _RESERVED else f"`{name}`"


def attribute_text(name: str) -> str:
    """Return the name of an attribute: that of a column, or the path of a field of a struct."""
    return ".".join(map(name_text, names_of(name.partition(LET_MARK)[0])))


def variable_text(name: str, streams: Collection[str]) -> str:
    """Return a variable ``x``, or ``S>x`` where S is one of the streams (`cer_gpu.automaton.normal_form`)."""
    stream = stream_of_variable(name, streams)
    return name_text(name) if stream is None else f"{name_text(stream)}>{name_text(name[len(stream) + 1 :])}"


def stream_of_variable(name: str, streams: Collection[str]) -> str | None:
    """Return the stream of the variable ``S>x``, or None for a variable of all streams."""
    return next((stream for stream in streams if name.startswith(f"{stream}>")), None)


def guard_text(guard: Guard, negated: bool = False) -> str:
    """Return the text of a guard, ``S>R[predicate]``, or of its negation."""
    event = "" if guard.event_type is None else name_text(guard.event_type)
    if guard.stream is not None:
        event = f"{name_text(guard.stream)}>{event or '*'}"
    if guard.predicate is not None:
        event += f"[{predicate_text(guard.predicate)}]"
    event = event or "any event"
    return f"NOT({event})" if negated else event


def predicate_text(predicate: s.Predicate) -> str:
    """Return the text of a predicate, which parses to the same predicate."""
    return _predicate(predicate, _EITHER)


def expression_text(expression: s.Expression) -> str:
    """Return the text of an expression."""
    return _expression(expression)


def _predicate(predicate: s.Predicate, around: int) -> str:
    match predicate:
        case s.Or():
            text, own = " OR ".join(_predicate(operand, _BOTH) for operand in predicate.operands), _EITHER
        case s.And():
            text, own = " AND ".join(_predicate(operand, _SINGLE) for operand in predicate.operands), _BOTH
        case s.Not(operand=s.StringTest() | s.Membership() | s.IsNull() as leaf) if not _is_call(leaf):
            text, own = _leaf(leaf, "NOT "), _SINGLE
        case s.Not():
            text, own = f"NOT {_predicate(predicate.operand, _SINGLE)}", _SINGLE
        case s.Comparison() | s.StringTest() | s.Membership() | s.IsNull() | s.AnyElement() | s.Apart():
            text, own = _leaf(predicate), _SINGLE
    return f"({text})" if own < around else text


def _leaf(leaf: s.Leaf, negation: str = "") -> str:
    match leaf:
        case s.Comparison(left=s.Attribute(aggregate=s.OverAggregate(function=functions.NO_EVENT_WITHIN) as aggregate)):
            such = "" if aggregate.predicate is None else f" with {_predicate(aggregate.predicate, _SINGLE)}"
            assert aggregate.event is not None
            assert aggregate.over is not None
            return f"no {qualified_name_text(aggregate.event)}{such} in the {limit_text(aggregate.over)} before it"
        case s.Comparison(left=s.Attribute(aggregate=s.OverAggregate(over=None)), op="=", right=s.Literal(value=True)):
            return _expression(leaf.left)
        case s.Comparison("=", s.Call() as call, s.Literal(value=True)) if call.function.rstrip("~") in functions.TESTS:
            return _expression(call)
        case s.Comparison():
            return f"{_expression(leaf.left)} {leaf.op} {_expression(leaf.right)}"
        case s.StringTest() if _is_call(leaf):
            return f"{leaf.name}({', '.join([_expression(leaf.operand), *map(string_literal, leaf.strings)])})"
        case s.StringTest():
            patterns = ", ".join(map(string_literal, leaf.strings))
            patterns = patterns if len(leaf.strings) == 1 else f"{{{patterns}}}"
            nocase = " NOCASE" if leaf.nocase else ""
            return f"{_expression(leaf.operand)} {negation}{leaf.name} {patterns}{nocase}"
        case s.AnyElement():
            return _of_element(leaf.test)
        case s.Membership():
            return f"{_expression(leaf.operand)} {negation}IN {{{', '.join(map(_expression, leaf.values))}}}"
        case s.IsNull():
            return f"{_expression(leaf.operand)} IS {negation}NULL"
        case s.Apart():
            return f"{_clock_words(leaf.later)} is at most {limit_text(leaf.within)} after {_clock_words(leaf.earlier)}"


def _clock_words(clock: s.Attribute) -> str:
    """Return the words for the event of a clock; in an automaton with registers it is an attribute."""
    if clock.variable is None:
        return attribute_text(clock.name)
    if clock.aggregate is not None:
        return f"the {over_aggregate_text(clock.aggregate)} of {clock.variable.name}"
    return "the one before" if clock.event == "PREV" else clock.variable.name


def _is_call(leaf: s.Leaf) -> bool:
    return isinstance(leaf, s.StringTest) and STRING_TESTS[leaf.name].call != ""


def _of_element(test: s.Predicate) -> str:
    """Return the text of a test of the elements of a list: an interval is one test, of one element."""
    match test:
        case s.And((s.Comparison() as low, s.Comparison() as high)):
            return f"{_expression(low.left)} BETWEEN {_expression(low.right)} AND {_expression(high.right)}"
        case s.Not(s.And((s.Comparison() as low, s.Comparison() as high))):
            return f"{_expression(low.left)} NOT BETWEEN {_expression(low.right)} AND {_expression(high.right)}"
        case s.Not(s.Comparison() as bound):  # NOT IN {lo..}
            opposite = {">=": "{{{}..}}", "<=": "{{..{}}}"}[bound.op].format(_expression(bound.right))
            return f"{_expression(bound.left)} NOT IN {opposite}"
        case _:
            return _predicate(test, _SINGLE)


def _expression(expression: s.Expression, around: int = _SUM) -> str:
    match expression:
        case s.Attribute():
            return _attribute_of_leaf(expression)
        case s.Element():
            return ".".join((f"ANY({_attribute_of_leaf(expression.list)})", *map(name_text, expression.fields)))
        case s.Literal():
            return _text_of_literal(expression)
        case s.Duration():
            return length_text(expression.length)
        case s.Call():
            return f"{expression.function}({', '.join(map(_expression, expression.operands))})"
        case s.Aggregate():
            return _aggregate_text(expression)
        case s.Negative():
            operand = _expression(expression.operand, _FACTOR)
            # "--" would begin a comment
            return f"-({operand})" if operand.startswith("-") else f"-{operand}"
        case s.Arithmetic():
            own = _SUM if expression.op in "+-" else _PRODUCT
            text = f"{_expression(expression.left, own)} {expression.op} {_expression(expression.right, own + 1)}"
            return f"({text})" if own < around else text


def _attribute_of_leaf(attribute: s.Attribute) -> str:
    text, variable = attribute_text(attribute.name), attribute.variable
    if attribute.aggregate is not None:
        text = over_aggregate_text(attribute.aggregate)
        return text if variable is None else f"{text} at {qualified_name_text(variable)}"
    if variable is not None:
        name = qualified_name_text(variable)
        text = f"{name}.{text}" if attribute.event == "EACH" else f"{attribute.event}({name}).{text}"
    if not attribute.lag:
        return text
    return f"LAG({text})" if attribute.lag == 1 else f"LAG({text}, {attribute.lag})"


def over_aggregate_text(aggregate: s.OverAggregate) -> str:
    """Return an OVER aggregate: ``AVG(BUY.amount FILTER amount > 0) OVER 30 DAYS``."""
    if aggregate.condition is not None and aggregate.predicate is not None:
        holds = f"{_predicate(aggregate.condition, _EITHER)}, {_predicate(aggregate.predicate, _EITHER)}"
        return f"RISES({holds}{own_keys_text(aggregate, ' PARTITION BY ')})"
    if aggregate.over is None:
        events = "any event" if aggregate.event is None else qualified_name_text(aggregate.event)
        such = "" if aggregate.predicate is None else f" FILTER {_predicate(aggregate.predicate, _EITHER)}"
        return f"DESCENDANT({events}{such})"
    function, *distinct = aggregate.function.split()
    of = "*" if aggregate.event is None else qualified_name_text(aggregate.event)
    of += "" if aggregate.attribute is None else f".{attribute_text(aggregate.attribute)}"
    test = "" if aggregate.predicate is None else f" FILTER {_predicate(aggregate.predicate, _EITHER)}"
    length = f"{limit_text(aggregate.over)}{own_keys_text(aggregate, ' PARTITION BY ')}"
    of += " NOCASE" if aggregate.nocase else ""
    return f"{function}({' '.join([*distinct, of])}{test}) OVER {length}"


def own_keys_text(aggregate: s.OverAggregate, before: str = "") -> str:
    """Return the keys that an OVER aggregate has of its own, after some words, or "" if it has none."""
    if aggregate.keys is None:
        return ""
    keys = [", ".join(map(_own_key, key)) for key in aggregate.keys] or [""]
    return before + ", ".join(f"[{key}]" for key in keys)


def _own_key(part: s.OwnKey) -> str:
    such = "" if part.predicate is None else f" FILTER {_predicate(part.predicate, _EITHER)}"
    return f"{key_text(part.name)}{such}"


def key_text(name: s.Name) -> str:
    """Return a column of a key as it is written."""
    return f"{attribute_text(name.name)}{' NOCASE' if name.nocase else ''}"


def _aggregate_text(aggregate: s.Aggregate) -> str:
    if aggregate.attribute is not None:
        operand = _attribute_of_leaf(aggregate.attribute)
    else:
        operand = "*" if aggregate.variable is None else qualified_name_text(aggregate.variable)
    return f"{aggregate.function}({operand})"


def qualified_name_text(variable: s.Name) -> str:
    """Return a variable, with its stream if it has one."""
    return ("" if variable.stream is None else f"{name_text(variable.stream)}>") + name_text(variable.name)


def limit_text(within: s.Within) -> str:
    """Return the length of a window: ``5 MINUTES``, ``10 EVENTS`` or ``3 [price]``."""
    if within.kind == "time":
        return length_text(within.length)
    number = _decimal(within.length)
    return f"{number} EVENTS" if within.attribute is None else f"{number} [{attribute_text(within.attribute.name)}]"


def length_text(length: Fraction) -> str:
    """Return a duration, as in ``1 HOURS 30 MINUTES``."""
    parts, rest = [], length
    for unit, seconds in _UNITS.items():
        n, rest = divmod(rest, seconds)
        parts += [f"{n} {unit}"] if n else []
    parts += [f"{_decimal(rest)} SECONDS"] if rest or not parts else []
    return " ".join(parts)


_UNITS = {"DAYS": 86_400, "HOURS": 3_600, "MINUTES": 60}
_EXACT = Context(prec=20_000)


def _decimal(number: Fraction) -> str:
    """Return a number that has finitely many decimals with all of them."""
    return format(_EXACT.divide(Decimal(number.numerator), Decimal(number.denominator)), "f")


def _text_of_literal(literal: s.Literal) -> str:
    if isinstance(literal.value, bool):
        return "TRUE" if literal.value else "FALSE"
    return string_literal(literal.value) if isinstance(literal.value, str) else literal.text
