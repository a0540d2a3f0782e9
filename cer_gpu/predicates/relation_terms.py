"""Filters between events as bound to a schema: comparisons of two columns, programs, and what their binders share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cer_gpu.ceql import syntax as s
from cer_gpu.columnar.moments import has_zone
from cer_gpu.predicates.binder import Binder
from cer_gpu.predicates.side_columns import SideColumn

EACH, PREV, FIRST, LAST = "EACH", "PREV", "FIRST", "LAST"


@dataclass(frozen=True)
class Argument:
    """An event that a filter reads: that chosen for a variable (EACH), the one before it (PREV), FIRST or LAST."""

    variable: str
    event: str


@dataclass(frozen=True)
class Comparison:
    """``left op right``: two columns, each of one argument; `ranked`: texts by their order."""

    op: str
    left: Argument
    left_column: int
    right: Argument
    right_column: int
    ranked: bool = False

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The events that it reads."""
        return (self.left, self.right)


@dataclass(frozen=True)
class Program:
    """Instructions that leave one truth on the stack; COLUMN names an argument by its index."""

    arguments: tuple[Argument, ...]
    code: tuple[tuple[int, int, int], ...]


Condition = Comparison | Program


def arguments_of(predicate: s.Predicate | s.Expression) -> tuple[Argument, ...]:
    """Return the events that a predicate or expression reads, each once, in order."""
    return tuple(dict.fromkeys(argument_of(a) for a in s.attributes(predicate)))


def argument_of(attribute: s.Attribute) -> Argument:
    """Return the event that an attribute is read of."""
    assert attribute.variable is not None
    return Argument(attribute.variable.name, attribute.event)


class Shared:
    """State that the binders of all filters of a query share.

    Parameters
    ----------
    schema : pyarrow.Schema
    text : str
        The query, for error messages.

    Attributes
    ----------
    single : Binder
        Binder of expressions and predicates over one event.
    columns : dict from SideColumn to int
    constants : dict from int to int
        Constants of programs: int64, or the bits of a float64.
    """

    def __init__(self, schema: pa.Schema, text: str) -> None:
        self.single = Binder(schema, text)
        self.columns: dict[SideColumn, int] = {}
        self.constants: dict[int, int] = {}

    def column(self, column: SideColumn) -> int:
        """Return the number of a column."""
        return self.columns.setdefault(column, len(self.columns))

    def constant(self, value: int | float) -> int:
        """Return the number of a constant."""
        bits = int(np.float64(value).view(np.int64)) if isinstance(value, float) else value
        return self.constants.setdefault(bits, len(self.constants))

    def check_comparable(self, x: s.Expression, y: s.Expression, span: s.Span) -> None:
        """Refuse a time of day beside a date, and a local time beside an instant."""
        assert isinstance(x, s.Attribute)
        assert isinstance(y, s.Attribute)
        a, b = self.single.column(x), self.single.column(y)
        if pa.types.is_time(a) != pa.types.is_time(b) or has_zone(a) != has_zone(b):
            raise self.single.error(f"cannot compare {self.single.describe(x)} with {self.single.describe(y)}", span)
