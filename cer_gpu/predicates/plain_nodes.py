"""Nodes of the language of values as plain data, which JSON can hold, and back: no class but those listed is made.

Spans are left out: they show places in a text that is not there, and nodes are equal without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from functools import cache
from typing import Any

from cer_gpu.ceql import values as v

_CLASSES: dict[str, type[Any]] = {
    each.__name__: each
    for each in (
        v.Name,
        v.Literal,
        v.Duration,
        v.Within,
        v.OwnKey,
        v.OverAggregate,
        v.Attribute,
        v.Negative,
        v.Arithmetic,
        v.Call,
        v.Aggregate,
        v.Element,
        v.Comparison,
        v.TextTest,
        v.Like,
        v.Membership,
        v.IsNull,
        v.Not,
        v.And,
        v.Or,
        v.AnyElement,
        v.Apart,
    )
}
_FRACTION = "/"


_NAMES = {name: tuple(each.name for each in fields(kind) if each.name != "span") for name, kind in _CLASSES.items()}


def to_plain(value: Any) -> Any:
    """Return a node, or a value in one, as lists, texts, numbers and None.

    Raises
    ------
    ValueError
        When it is of a class that is not listed.
    RecursionError
        When it is nested deeper than Python's stack.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, tuple):
        return [None, *map(to_plain, value)]
    if isinstance(value, Fraction):
        return [_FRACTION, value.numerator, value.denominator]
    kind = type(value)
    if _CLASSES.get(kind.__name__) is not kind:
        raise ValueError(f"{kind.__name__} is no node of the language of values")
    return [kind.__name__, *(to_plain(getattr(value, name)) for name in _NAMES[kind.__name__])]


def from_plain(data: Any) -> Any:
    """Return what `to_plain` was given.

    Raises
    ------
    KeyError, TypeError, ValueError
        When it is nothing that `to_plain` returns.
    """
    if not isinstance(data, list):
        return data
    kind = data[0]
    if kind is None:
        return tuple([from_plain(each) for each in data[1:]])
    if kind == _FRACTION:
        return Fraction(*data[1:])
    return _makers(kind)(*[from_plain(each) if type(each) is list else each for each in data[1:]])


@cache
def _makers(name: str) -> Callable[..., Any]:
    kind = _CLASSES[name]
    names = _NAMES[name]
    if [each.name for each in fields(kind)][: len(names)] == list(names):
        return kind
    return lambda *values: kind(**dict(zip(names, values, strict=True)))
