"""Leaves of the expressions of MATCH_RECOGNIZE: values of rows, aggregates, CLASSIFIER, MATCH_NUMBER and NULL."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowValue:
    """A column at a row of the match, or `offset` rows of the partition from it (PREV: negative, NEXT: positive).

    Attributes
    ----------
    column : str
    variable : str or None
        A variable or subset, or None for all rows of the match.
    first : bool
        True: the `nth` of the variable's rows (from 0); False: the `nth` from the last.
    nth, offset : int
    final : bool or None
        True for FINAL, False for RUNNING, None where neither is written.
    """

    column: str
    variable: str | None = None
    first: bool = False
    nth: int = 0
    offset: int = 0
    final: bool | None = None

    @property
    def is_current(self) -> bool:
        """True if it is the last row of the variable, or one at an offset from it."""
        return not self.first and self.nth == 0


@dataclass(frozen=True)
class RowAggregate:
    """``function(variable.column)``; `column` None: COUNT of rows."""

    function: str
    column: str | None
    variable: str | None = None
    final: bool | None = None


@dataclass(frozen=True)
class Classifier:
    """The variable of the last row, or of the last row of a variable or subset."""

    variable: str | None = None
    first: bool = False
    nth: int = 0
    final: bool | None = None


@dataclass(frozen=True)
class MatchNumber:
    """The number of the match in its partition, from 1."""

    final: bool | None = None


@dataclass(frozen=True)
class Null:
    """The value NULL."""

    final: bool | None = None


RowLeaf = RowValue | RowAggregate | Classifier | MatchNumber | Null


def shown_leaf(leaf: RowLeaf) -> str:
    """Return a leaf as it is written."""
    semantics = {True: "FINAL ", False: "RUNNING ", None: ""}[leaf.final]
    match leaf:
        case RowValue():
            shown = leaf.column if leaf.variable is None else f"{leaf.variable}.{leaf.column}"
            if leaf.first or leaf.nth:
                shown = f"{'FIRST' if leaf.first else 'LAST'}({shown}{f', {leaf.nth}' if leaf.nth else ''})"
            if leaf.offset:
                shown = f"{'PREV' if leaf.offset < 0 else 'NEXT'}({shown}, {abs(leaf.offset)})"
            return semantics + shown
        case RowAggregate():
            column = "*" if leaf.column is None else leaf.column
            return f"{semantics}{leaf.function}({column if leaf.variable is None else f'{leaf.variable}.{column}'})"
        case Classifier():
            return f"{semantics}CLASSIFIER({leaf.variable or ''})"
    return "NULL" if isinstance(leaf, Null) else "MATCH_NUMBER()"


def name_among(leaf: RowLeaf, leaves: dict[str, RowLeaf]) -> str:
    """Return the name of a leaf among others, with which it is noted there."""
    name = shown_leaf(leaf)
    while leaves.setdefault(name, leaf) != leaf:
        name += "'"
    return name
