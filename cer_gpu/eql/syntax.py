"""Abstract syntax of EQL: immutable nodes as parsed, before columns are known.

`cer_gpu.eql.eql_query` lowers them to formulas and predicates, which depend on the schema: a field may be a column, the
path to a field of a struct, a list, or missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from cer_gpu.ceql.syntax import Pipe
from cer_gpu.ceql.traversal import Node
from cer_gpu.ceql.values import Span, Within

ANY_CATEGORY = "any"
"""Category of an event query that takes events of every category."""


def _span() -> Span:
    return field(default=(0, 0), compare=False, repr=False)


# ---- values and conditions -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field(Node):
    """``a.b.c`` or ``?a.b.c``: a field by the names on its path; `optional` where it may be missing."""

    names: tuple[str, ...]
    optional: bool = False
    span: Span = _span()

    @property
    def name(self) -> str:
        """The names with dots."""
        return ".".join(self.names)


@dataclass(frozen=True)
class ConstantValue(Node):
    """A string, number, boolean, or null (None); `text` is a number as written."""

    value: str | int | float | bool | None
    text: str = ""
    span: Span = _span()


@dataclass(frozen=True)
class FunctionCall(Node):
    """``name(operand, ...)`` or ``name~(operand, ...)``."""

    name: str
    nocase: bool
    operands: tuple[EqlExpression, ...]
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("operands",)


@dataclass(frozen=True)
class Minus(Node):
    """``-operand``."""

    operand: EqlExpression
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("operand",)


@dataclass(frozen=True)
class BinaryOperation(Node):
    """``left op right`` with op one of ``+ - * / %``."""

    op: str
    left: EqlExpression
    right: EqlExpression
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("left", "right")


@dataclass(frozen=True)
class Comparison(Node):
    """``left op right`` with op one of ``== != < <= > >=``."""

    op: str
    left: EqlExpression
    right: EqlExpression
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("left", "right")


@dataclass(frozen=True)
class Match(Node):
    """``left op value`` or ``left op (value, ...)`` with op one of ``: like regex in``; `nocase` with ``~``."""

    op: str
    nocase: bool
    left: EqlExpression
    values: tuple[EqlExpression, ...]
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("left", "values")


@dataclass(frozen=True)
class Lineage(Node):
    """``descendant of [event]``."""

    relation: str
    event: EventFilter
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("event",)


@dataclass(frozen=True)
class NotCondition(Node):
    """``not operand``."""

    operand: EqlExpression
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("operand",)


@dataclass(frozen=True)
class _Flat(Node):
    """``operand and operand`` or ``operand or operand``, flat: two or more, none of them of the same kind."""

    operands: tuple[EqlExpression, ...]
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("operands",)


class And(_Flat):
    """``operand and operand ...``."""


class Or(_Flat):
    """``operand or operand ...``."""


EqlExpression = (
    Field
    | ConstantValue
    | FunctionCall
    | Minus
    | BinaryOperation
    | Comparison
    | Match
    | Lineage
    | NotCondition
    | And
    | Or
)
"""A value or a condition; `cer_gpu.eql.conditions` checks which of the two is expected."""


# ---- queries -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EventFilter(Node):
    """``category where condition``; `category` is None for events of any category."""

    category: str | None
    condition: EqlExpression
    span: Span = _span()
    category_span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("condition",)


@dataclass(frozen=True)
class Term(Node):
    """``[event]`` of a sequence or sample, with its own ``by``, ``with runs=`` and ``as``; ``![event]`` if `absent`."""

    event: EventFilter
    keys: tuple[Field, ...] = ()
    runs: int = 1
    absent: bool = False
    name: str | None = None
    span: Span = _span()
    parts: ClassVar[tuple[str, ...]] = ("event", "keys")


@dataclass(frozen=True)
class EqlSyntax(Node):
    """A whole query.

    Attributes
    ----------
    text : str
    kind : str
        "event", "sequence" or "sample".
    terms : tuple of Term
        For an event query, its event alone.
    keys : tuple of Field
        The fields of ``by`` before the terms.
    maxspan : Within or None
    until : Term or None
    pipes : tuple of Pipe
    """

    text: str = field(compare=False, repr=False)
    kind: str
    terms: tuple[Term, ...]
    keys: tuple[Field, ...] = ()
    maxspan: Within | None = None
    until: Term | None = None
    pipes: tuple[Pipe, ...] = ()
    parts: ClassVar[tuple[str, ...]] = ("terms", "keys", "until")
