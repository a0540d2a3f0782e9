"""Source of compiled code from terms over one row; a term that occurs twice is computed once.

The text depends only on the spellings of operators, on slots and on positions of bits: on the shape of the terms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from cer_gpu.expressions import terms as t
from cer_gpu.expressions.operators import compare_type, spelling


class TermWriter(ABC):
    """Writer of statements that compute terms, each under a name of its own.

    Attributes
    ----------
    TARGET : str
        Attribute of `Spelling` that this target has operators from.
    TRUTH : str
        Type of a truth, as `_assign_name` takes it.
    ZERO, WIDE_ZERO : str
        The int64 0, and the wide integer 0.
    """

    TARGET = ""
    TRUTH = "truth"
    ZERO = WIDE_ZERO = ""

    def __init__(self) -> None:
        self._begin_source()

    def _begin_source(self) -> None:
        self._lines: list[str] = []
        self._names: dict[object, str] = {}

    # ---- what differs between targets ---------------------------------------------------------------------

    @abstractmethod
    def _assign_name(self, key: object, kind: str, expression: str) -> str:
        """Append the statement that names an expression of a type (of terms, or `TRUTH`), and return the name."""

    @abstractmethod
    def _constant_source(self, term: t.Constant) -> str:
        """Return an expression of a constant."""

    @abstractmethod
    def _column_source(self, term: t.Column) -> str:
        """Return an expression of a column at the row."""

    @abstractmethod
    def _convert_source(self, term: t.ToFloat | t.ToWide, operand: str) -> str:
        """Return an expression of an operand in another type."""

    @abstractmethod
    def _valid_name(self, column: t.Column) -> str | None:
        """Return the name of the truth that a column is not NULL at the row, or None if it never is."""

    @abstractmethod
    def _looked_up(self, term: t.Lookup) -> str:
        """Return an expression of the entry of a table at the row, a truth."""

    @abstractmethod
    def _external_truth(self, term: t.ExternalPredicate) -> str:
        """Return an expression of a boolean computed before."""

    @abstractmethod
    def _truth(self, holds: bool) -> str:
        """Return a constant truth."""

    @abstractmethod
    def _negation(self, truth: str) -> str:
        """Return an expression of the negation of a truth."""

    @abstractmethod
    def _join_truths(self, truths: Sequence[str], every: bool) -> str:
        """Return an expression that holds if all, or any, of some booleans do."""

    # ---- terms --------------------------------------------------------------------------------------------

    def _spell(self, op: str, dtype: str, **operands: str) -> str:
        """Return an operator on operands of a type."""
        text: str = getattr(spelling(op, dtype), self.TARGET)
        return text.format(**operands)

    def _value_name(self, term: t.Value) -> str:
        """Return the name of a value."""
        if term in self._names:
            return self._names[term]
        match term:
            case t.Constant():
                expression = self._constant_source(term)
            case t.Column():
                expression = self._column_source(term)
            case t.ToFloat() | t.ToWide():
                expression = self._convert_source(term, self._value_name(term.operand))
            case t.Apply():
                operands = dict(zip("xy", map(self._value_name, term.operands), strict=False))
                expression = self._spell(term.op, term.dtype, **operands)
            case _:
                raise AssertionError(term)  # it reads several events
        return self._assign_name(term, term.dtype, expression)

    def _truth_name(self, term: t.BoundPredicate) -> str:
        """Return the name of the truth of a test."""
        if term in self._names:
            return self._names[term]
        every = True
        match term:
            case t.Compare():
                of = compare_type(term.left.dtype, term.right.dtype)
                holds = self._spell(term.op, of, x=self._value_name(term.left), y=self._value_name(term.right))
                truths = [self._negation(holds) if term.negated else holds, *self._all_not_null(term.left, term.right)]
            case t.IsNotNull():
                truths = self._all_not_null(term.operand) or [self._truth(True)]
                if term.negated:
                    truths = [self._negation(f"({self._join_truths(truths, True)})")]
            case t.Lookup():
                truths = [self._looked_up(term)]
            case t.ExternalPredicate():
                truths = [self._external_truth(term)]
            case t.ConstantPredicate():
                truths = [self._truth(term.holds)]
            case t.And() | t.Or():
                truths, every = [self._truth_name(test) for test in term.tests], isinstance(term, t.And)
            case _:
                raise AssertionError(term)
        return self._assign_name(term, self.TRUTH, self._join_truths(truths, every))

    def _all_not_null(self, *terms: t.Value) -> list[str]:
        """Return the names of truths that all hold if nothing in the terms is NULL."""
        names: dict[str, None] = {}
        for term in terms:
            valid = (self._valid_name(column) for column in t.columns_in(term))
            names |= dict.fromkeys(name for name in valid if name is not None)
            for divisor in t.divisors_in(term):
                name = self._value_name(divisor)
                key = ("nonzero", name)
                zero = self.WIDE_ZERO if divisor.dtype == t.WIDE else self.ZERO
                nonzero = self._spell("<>", divisor.dtype, x=name, y=zero)
                names[self._names.get(key) or self._assign_name(key, self.TRUTH, nonzero)] = None
        return list(names)
