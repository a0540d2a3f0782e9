"""Queries with predicates that CEQL has no words for: written with a column in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import cer_gpu
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.traversal import mapped
from cer_gpu.planning.passes import plan_of


def compiled_with(nodes: Mapping[str, s.Predicate], text: str, **options: Any) -> cer_gpu.Query:
    """Compile a query in which each ``name = TRUE`` stands for the predicate of that name, about the same event.

    Parameters
    ----------
    nodes
        Predicates by the names of columns that no event has; their attributes name no variable.
    text
    options
        Of `plan_of`: type_column, time_column, time_unit.
    """

    def written(test: s.Comparison) -> s.Predicate:
        column = test.left
        if not isinstance(column, s.Attribute) or column.name not in nodes:
            return test
        named = lambda attribute: replace(attribute, variable=column.variable)  # noqa: E731
        return mapped(nodes[column.name], s.Attribute, named)

    return compiled_as(text, s.Comparison, written, **options)


def compiled_as(text: str, kind: type[Any], change: Callable[[Any], Any], **options: Any) -> cer_gpu.Query:
    """Compile a query with other nodes in place of those of a kind; options are those of `compiled_with`."""
    syntax = parse(text)
    syntax = replace(syntax, formula=mapped(syntax.formula, kind, change))
    plan = plan_of(syntax, options.get("type_column", "type"), options.get("time_column"), options.get("time_unit"))
    return cer_gpu.Query(plan)
