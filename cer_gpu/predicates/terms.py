"""The tests of a query as typed terms over numbered slots: what a generator of code gets to see, and nothing else.

A term names no column and holds no constant: it has the slots in which both are handed in, and the few names below.
So code made of it cannot hold any text of a query or of the data, and queries of one shape share their code.

Values are int64, uint64 or float64 (`I8`, `U8`, `F8`).  A test is TRUE or it is not: where anything that it reads is
NULL (a column, a division of integers by zero), it is not, negated or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

I8, U8, F8 = "i8", "u8", "f8"
BIT = "bit"
STORED = ("i1", "i2", "i4", I8, "u1", "u2", "u4", U8, "f4", F8, BIT)
"""How values lie in memory: their kind and bytes, or packed bits."""
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%")
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Column:
    """The values of a column (of booleans: 0 and 1; of a dictionary: the codes); every `stride`-th that is stored."""

    slot: int
    stored: str
    stride: int = 1

    @property
    def dtype(self) -> str:
        """The type of its values in terms."""
        return F8 if self.stored in ("f4", F8) else U8 if self.stored == U8 else I8


@dataclass(frozen=True)
class Constant:
    """A number, by its place among the constants of its type."""

    slot: int
    dtype: str


@dataclass(frozen=True)
class ToFloat:
    """An integer as a float64, the nearest, ties to even."""

    operand: Value
    dtype = F8


@dataclass(frozen=True)
class ToInt64:
    """A uint64 as an int64; 2**63 and more wrap around."""

    operand: Value
    dtype = I8


@dataclass(frozen=True)
class Negative:
    """``-operand`` of an int64, which wraps around, or of a float64."""

    operand: Value

    @property
    def dtype(self) -> str:
        """The type of its operand."""
        return self.operand.dtype


@dataclass(frozen=True)
class Arithmetic:
    """``left op right``, both int64 or both float64 (docs/language.md, "Numbers")."""

    op: str
    left: Value
    right: Value

    @property
    def dtype(self) -> str:
        """The type of its operands."""
        return self.left.dtype

    @property
    def divides(self) -> bool:
        """Whether it is NULL where `right` is 0."""
        return self.op in "/%" and self.dtype == I8


Value = Column | Constant | ToFloat | ToInt64 | Negative | Arithmetic


@dataclass(frozen=True)
class Compare:
    """``left op right`` (or NOT that) of two values of one type, or of an int64 and, right, a uint64, exactly."""

    op: str
    left: Value
    right: Value
    negated: bool = False


@dataclass(frozen=True)
class Known:
    """Whether a value is not NULL."""

    operand: Value


@dataclass(frozen=True)
class Lookup:
    """What a table says of the code of a row; a code outside the table is that of its last entry, which is FALSE."""

    codes: Column
    table: int


@dataclass(frozen=True)
class Given:
    """An answer for each row that something else has found, by its place among these."""

    slot: int


@dataclass(frozen=True)
class Fixed:
    """The same answer for all rows."""

    holds: bool


@dataclass(frozen=True)
class And:
    """Whether all of some tests (at least one) are TRUE."""

    tests: tuple[Test, ...]


@dataclass(frozen=True)
class Or:
    """Whether one of some tests (at least one) is TRUE."""

    tests: tuple[Test, ...]


Test = Compare | Known | Lookup | Given | Fixed | And | Or


@dataclass(frozen=True)
class Program:
    """All guards of a query: which bits of each event's word are set.

    Attributes
    ----------
    n_guards
        Bits of a word.
    types, streams
        Codes of each event's type and stream, by which two tables give the guards that they allow; None: all.
    tests
        The guards that have a test besides, in ascending order.
    """

    n_guards: int
    types: Column | None
    streams: Column | None
    tests: tuple[tuple[int, Test], ...]

    @property
    def word(self) -> str:
        """The type of a word, or of one of its parts where there are more than 16 guards."""
        return "u1" if self.n_guards <= 8 else "u2" if self.n_guards <= 16 else U8

    @property
    def n_parts(self) -> int:
        """How many numbers a word has."""
        return 1 if self.n_guards <= 16 else (self.n_guards + 63) // 64


def parts(term: Value | Test) -> Iterator[Value | Test]:
    """Yield a term and all that it is made of, each after its own parts."""
    match term:
        case ToFloat() | ToInt64() | Negative() | Known():
            yield from parts(term.operand)
        case Arithmetic() | Compare():
            yield from parts(term.left)
            yield from parts(term.right)
        case Lookup():
            yield term.codes
        case And() | Or():
            for test in term.tests:
                yield from parts(test)
    yield term


def columns_in(term: Value | Test) -> list[Column]:
    """Return the columns that a term reads, in order, each once."""
    return list(dict.fromkeys(part for part in parts(term) if isinstance(part, Column)))


def divisors_in(term: Value | Test) -> list[Value]:
    """Return the integers that a term divides by, in order, each once."""
    return list(dict.fromkeys(part.right for part in parts(term) if isinstance(part, Arithmetic) and part.divides))
