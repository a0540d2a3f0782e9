"""Typed terms over numbered slots: the one form of expressions and predicates that every target evaluates.

A term names no column and holds no constant: it has their slots, and the few names below.  Code generated from it
therefore holds no text of a query or of the data, and queries of one shape share their code.

Values are int64, uint64 or float64 (`I8`, `U8`, `F8`), or integers of 128 bits (`WIDE`), in which numbers of unlike
types, scales and units are compared exactly, and in which integers are computed whose values may not fit int64
(`cer_gpu.expressions.arithmetic`).  Coercions are terms of their own.  A test has two values, TRUE or not
TRUE: negated or not, it is not TRUE if anything that it reads is NULL (a column, a division of integers by zero).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

I8, U8, F8, WIDE = "i8", "u8", "f8", "wide"
BIT = "bit"
STORED = ("i1", "i2", "i4", I8, "u1", "u2", "u4", U8, "f4", F8, BIT)
"""Layouts of values in memory: kind and bytes, or packed bits."""
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True)
class Column:
    """Values of a column (booleans: 0 and 1; a dictionary: its codes), every `stride`-th of the stored ones."""

    slot: int
    stored: str
    stride: int = 1

    @property
    def dtype(self) -> str:
        """Type of its values in terms."""
        return F8 if self.stored in ("f4", F8) else U8 if self.stored == U8 else I8


@dataclass(frozen=True)
class Constant:
    """A number, by its slot among the constants of its type."""

    slot: int
    dtype: str


@dataclass(frozen=True)
class ToFloat:
    """An integer as the nearest float64, ties to even."""

    operand: Value
    dtype = F8


@dataclass(frozen=True)
class ToWide:
    """An int64 or uint64 times `factor`, exactly: 1 to 10^18, which takes scales and units to a finer one."""

    operand: Value
    factor: int = 1
    dtype = WIDE


@dataclass(frozen=True)
class Apply:
    """An operator of `cer_gpu.expressions.operators` on operands of one type, which is that of its value.

    Attributes
    ----------
    op : str
    operands : tuple of Value
    beyond : bool
        True if an integer may have more than 128 bits: NumPy computes it with Python's integers, and a program
        (`cer_gpu.backend.joins.filters`) notes that it does not fit.
    """

    op: str
    operands: tuple[Value, ...]
    beyond: bool = False

    @property
    def dtype(self) -> str:
        """Type of its operands."""
        return self.operands[0].dtype

    @property
    def divides(self) -> bool:
        """True for a division or remainder of integers, which is NULL if the divisor is 0."""
        return self.op in ("/", "%") and self.dtype in (I8, WIDE)


@dataclass(frozen=True)
class Text:
    """The number of a string, one numbering for all columns; `ranked`: its place in the order of the strings."""

    column: str
    ranked: bool
    dtype = I8


@dataclass(frozen=True)
class OfEvent:
    """A value of one of several events: a column of it, for join predicates.

    Attributes
    ----------
    event
        Hashable name of the event (`cer_gpu.expressions.relation_terms.Argument`).
    operand : Value
        Over the columns of that event.
    """

    event: Any
    operand: Value

    @property
    def dtype(self) -> str:
        """Type of its operand."""
        return self.operand.dtype


Value = Column | Constant | ToFloat | ToWide | Apply | Text | OfEvent


@dataclass(frozen=True)
class Compare:
    """``left op right``, or its negation, compared exactly: of one type, or a float64 (`left`) and a `WIDE`."""

    op: str
    left: Value
    right: Value
    negated: bool = False


@dataclass(frozen=True)
class StringRelation:
    """Test of two strings by their numbers: `left` contains `right`, begins or ends with it; or its negation.

    Attributes
    ----------
    function : str
        "contains", "startswith" or "endswith".
    left, right : Value
        Strings of two events.
    negated : bool
    """

    function: str
    left: Value
    right: Value
    negated: bool = False


@dataclass(frozen=True)
class IsNotNull:
    """Test that a value is not NULL, or that it is."""

    operand: Value
    negated: bool = False


@dataclass(frozen=True)
class Lookup:
    """Entry of a table at the code of a row; NULL and codes outside the table read the last entry, FALSE."""

    codes: Column
    table: int


@dataclass(frozen=True)
class ExternalPredicate:
    """Results for each row that are computed outside of terms, by their slot."""

    slot: int


@dataclass(frozen=True)
class ConstantPredicate:
    """The same result for all rows."""

    holds: bool


@dataclass(frozen=True)
class And:
    """Conjunction of one or more tests."""

    tests: tuple[BoundPredicate, ...]


@dataclass(frozen=True)
class Or:
    """Disjunction of one or more tests."""

    tests: tuple[BoundPredicate, ...]


@dataclass(frozen=True)
class TestOfEvent:
    """A test of one of several events."""

    event: Any
    operand: BoundPredicate


BoundPredicate = (
    Compare | StringRelation | IsNotNull | Lookup | ExternalPredicate | ConstantPredicate | And | Or | TestOfEvent
)


@dataclass(frozen=True)
class GuardProgram:
    """All guards of a query, as the tests that set the bits of each event's word.

    Attributes
    ----------
    n_guards
        Bits of a word.
    types, streams
        Codes of each event's type and stream, which index two tables of the guards that they allow, or None for all.
    tests
        Guards with a further test, in ascending order, each with that.
    """

    n_guards: int
    types: Column | None
    streams: Column | None
    tests: tuple[tuple[int, BoundPredicate], ...]

    @property
    def codes(self) -> dict[str, Column]:
        """The codes that there are, as "types" and "streams", the names of their tables."""
        tables = {"types": self.types, "streams": self.streams}
        return {name: column for name, column in tables.items() if column is not None}

    @property
    def word(self) -> str:
        """Type of a word, or of one of its parts for more than 16 guards."""
        return "u1" if self.n_guards <= 8 else "u2" if self.n_guards <= 16 else U8

    @property
    def n_parts(self) -> int:
        """Number of parts of a word."""
        return 1 if self.n_guards <= 16 else (self.n_guards + 63) // 64


RAW, IN_ORDER = "raw", "in order"


@dataclass(frozen=True)
class Sides:
    """Sides of join predicates, as 64 bits each.

    Attributes
    ----------
    values : tuple of (str, Value)
        `RAW`: an int64, or the bits of a uint64 or float64; `IN_ORDER`: an int64 in the order of the values.
    """

    values: tuple[tuple[str, Value], ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns that are read, each once, by their slots."""
        read = {column.slot: column for _, value in self.values for column in columns_in(value)}
        return tuple(read[slot] for slot in sorted(read))


NO_SIDES = Sides()


def parts(term: Value | BoundPredicate) -> Iterator[Value | BoundPredicate]:
    """Yield the terms within a term in postorder, itself last; of tables of codes, the column of codes."""
    match term:
        case ToFloat() | ToWide() | IsNotNull() | OfEvent() | TestOfEvent():
            yield from parts(term.operand)
        case Apply():
            for operand in term.operands:
                yield from parts(operand)
        case Compare() | StringRelation():
            yield from parts(term.left)
            yield from parts(term.right)
        case Lookup():
            yield term.codes
        case And() | Or():
            for test in term.tests:
                yield from parts(test)
    yield term


def columns_in(term: Value | BoundPredicate) -> list[Column]:
    """Return the columns that a term reads, in order, each once."""
    return list(dict.fromkeys(part for part in parts(term) if isinstance(part, Column)))


def goes_beyond(term: Value | BoundPredicate) -> bool:
    """Return True if a term computes an integer that may have more than 128 bits."""
    return any(isinstance(part, Apply) and part.beyond for part in parts(term))


def divisors_in(term: Value | BoundPredicate) -> list[Value]:
    """Return the integers that a term divides by, in order, each once."""
    return list(dict.fromkeys(part.operands[1] for part in parts(term) if isinstance(part, Apply) and part.divides))
