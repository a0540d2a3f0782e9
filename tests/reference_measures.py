"""Measures and HAVING for the reference: the values of expressions over what the variables of a row hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import reference as ref

MeasureRow = tuple[int, int, tuple[Any, ...]]  # (start, end, values of the measures)
Candidate = tuple[MeasureRow, bool]  # a row, and True if HAVING keeps it
Held = Mapping[str, tuple[int, ...]]


def rows(query: ref.Query, stream: Sequence[ref.Event], most: int | None = None) -> list[MeasureRow]:
    """Return every row of a query with measures, sorted; LIMIT is ignored, ANY is refused."""
    return [row for row, kept in candidates(query, stream, most) if kept]


def candidates(
    query: ref.Query, stream: Sequence[ref.Event], most: int | None = None, long: bool = False
) -> list[Candidate]:
    """Return every row before HAVING, sorted; `long` as for `reference.bindings_long`."""
    bound = (ref.bindings_long if long else ref.bindings)(query, stream, most)
    return sorted((_candidate(query, stream, row) for row in bound), key=repr)


def is_choice(query: ref.Query, candidates: Sequence[Candidate], rows: Sequence[MeasureRow]) -> bool:
    """Return True if ANY, HAVING and LIMIT may leave `rows` of the candidates.

    ANY chooses one row of each end, and HAVING may drop that one.
    """
    kept = [row for row, passes in candidates if passes]
    if query.strategy != "ANY":
        return ref.is_choice(query, kept, rows)
    ends = [row[1] for row in rows]
    must = {row[1] for row in kept} - {row[1] for row, passes in candidates if not passes}
    none_allowed = query.limit == 0
    return (
        len(set(ends)) == len(ends)
        and all(row in kept for row in rows)
        and (not ends if none_allowed else must <= set(ends))
    )


def _candidate(query: ref.Query, stream: Sequence[ref.Event], row: ref.BoundRow) -> Candidate:
    held = dict(row[3])
    values = {name: value_of(measure, held, row[2], stream) for name, measure in query.measures}
    having = query.having
    passes = having is None or ref.holds(_resolved(having, held, row[2], stream), {**values})
    plain = tuple("NaN" if value != value else value for value in values.values())
    return (row[0], row[1], plain), passes


def value_of(measure: ref.Expression, held: Held, kept: tuple[int, ...], stream: Sequence[ref.Event]) -> Any:
    """Return the value of a measure, None for NULL.

    `held` are the positions that each variable holds, and `kept` those of the complex event.
    """
    return ref.value_of(_resolved(measure, held, kept, stream), {})


def _resolved(node: Any, held: Held, kept: tuple[int, ...], stream: Sequence[ref.Event]) -> Any:
    """Return the expression or predicate with the values of its aggregates and attributes of variables."""
    match node:
        case ref.Aggregate("COUNT", None):
            return ref.Const(len(kept))
        case ref.Aggregate(function, variable, name):
            events = [stream[p] for p in held[variable]]
            return ref.Const(
                _aggregated(function, [ref.attribute(event, name) for event in events] if name else events)
            )
        case ref.VarAttr(variable, name, which):
            positions = held[variable]
            if which == "EACH" and len(positions) > 1:
                raise ValueError(f"{variable} holds several events")
            at = positions[-1 if which == "LAST" else 0] if positions else None
            return ref.Const(None if at is None else ref.attribute(stream[at], name))
        case tuple():
            return tuple(_resolved(part, held, kept, stream) for part in node)
    names = getattr(node, "__dataclass_fields__", ())
    return (
        replace(node, **{name: _resolved(getattr(node, name), held, kept, stream) for name in names}) if names else node
    )


def _aggregated(function: str, values: list[Any]) -> Any:
    """Return the aggregate: NULL of no values, but COUNT is 0; LIST has the NULLs among the values, too."""
    if function == "COUNT":
        return len(values)
    if function == "LIST":
        return values or None
    known = [value for value in values if value is not None]
    if not known:
        return None
    if function in ("MIN", "MAX"):
        ordered = [value for value in known if value == value] or known  # NaN only where there is nothing else
        return min(ordered) if function == "MIN" else max(ordered)
    total = sum(known)
    if function == "AVG":
        return total / len(known)
    return total if isinstance(total, int) else math.fsum(known)
