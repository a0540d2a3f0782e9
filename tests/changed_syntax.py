"""Queries whose syntax other languages than CEQL write: parsed from CEQL, and changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.syntax import Pipe, QuerySyntax
from cer_gpu.planning.passes import plan_of
from cer_gpu.query import Query


def changed(
    text: str,
    change: Callable[[QuerySyntax], QuerySyntax],
    *,
    time_column: str | None = None,
    time_unit: str | None = None,
) -> Query:
    """Return the query of a text, compiled from its changed syntax."""
    return Query(plan_of(change(parse(text)), "type", time_column, time_unit))


def with_nullable(text: str, *names: str, **options: str | None) -> Query:
    """Return a query to which NULL is a value of some keys of PARTITION BY."""

    def change(syntax: QuerySyntax) -> QuerySyntax:
        brackets = (
            tuple(replace(name, nullable=name.name in names) for name in bracket) for bracket in syntax.partition
        )
        return replace(syntax, partition=tuple(brackets))

    return changed(text, change, **options)


def with_pipes(text: str, *pipes: tuple[str, int], **options: str | None) -> Query:
    """Return a query with pipes behind it, each as its kind and number."""
    return changed(text, lambda syntax: replace(syntax, pipes=tuple(Pipe(*pipe) for pipe in pipes)), **options)
