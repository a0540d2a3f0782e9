"""Join predicates as bound to a schema: comparisons of two columns, or programs; and the events they read."""

from __future__ import annotations

from dataclasses import dataclass

from cer_gpu.backend.joins.filters import COLUMN, COMPARE_INTEGERS
from cer_gpu.ceql import syntax as s
from cer_gpu.expressions.terms import COMPARISONS

EACH, PREV, FIRST, LAST = "EACH", "PREV", "FIRST", "LAST"


@dataclass(frozen=True)
class Argument:
    """An event that a filter reads: that chosen for a variable (EACH), the one before it (PREV), FIRST or LAST."""

    variable: str
    event: str


@dataclass(frozen=True)
class Comparison:
    """``left op right``: two columns, each of one argument; `ranked`: strings by their order."""

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

    @property
    def instructions(self) -> list[tuple[int, int, int]]:
        """The same as a program (`FilterProgram.instructions`)."""
        left, right = 1 + self.left_column, 1 + self.right_column
        sides = [(COLUMN, 0, -left), (COLUMN, 1, -right)] if self.ranked else [(COLUMN, 0, left), (COLUMN, 1, right)]
        return [*sides, (COMPARE_INTEGERS, COMPARISONS.index(self.op), 0)]


@dataclass(frozen=True)
class FilterProgram:
    """Instructions (`cer_gpu.backend.joins.filters`) that leave one truth on the stack.

    Attributes
    ----------
    arguments : tuple of Argument
    code : tuple of (int, int, int)
        `COLUMN` names an argument by its index, and a column from 0 on; the rank of a string, by ``-1 - column``.
    """

    arguments: tuple[Argument, ...]
    code: tuple[tuple[int, int, int], ...]

    @property
    def instructions(self) -> list[tuple[int, int, int]]:
        """Instructions for events with the bits of their valid columns before these."""
        return [(op, a, 1 + b) if op == COLUMN and b >= 0 else (op, a, b) for op, a, b in self.code]

    @property
    def ranked(self) -> bool:
        """True if it compares strings by their order."""
        return any(op == COLUMN and b < 0 for op, _, b in self.code)


Condition = Comparison | FilterProgram


def arguments_of(predicate: s.Predicate | s.Expression) -> tuple[Argument, ...]:
    """Return the events that a predicate or expression reads, each once, in order."""
    return tuple(dict.fromkeys(argument_of(a) for a in s.attributes(predicate)))


def argument_of(attribute: s.Attribute) -> Argument:
    """Return the event that an attribute is read of."""
    assert attribute.variable is not None
    return Argument(attribute.variable.name, attribute.event)
