"""Protocol of symbol tables: they map bit vectors of guards to the symbols that a runtime reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from cer_gpu.arrays import Bools


class Table(ABC):
    """Symbols met so far, numbered as they appear; events of symbol 0 change nothing.

    Attributes
    ----------
    ending : bool array, shape (symbols,)
        True for symbols whose events may end matches.
    labels : list of frozenset of str
        Variables of each mark.
    has_gaps : bool
        True if an event that satisfies no guard can end runs (contiguity).
    """

    ending: Bools
    labels: list[frozenset[str]]
    has_gaps: bool

    @abstractmethod
    def symbol(self, word: int) -> int:
        """Return the symbol of a bit vector (bit g: the event satisfies guard g)."""

    @abstractmethod
    def met(self, n_shown: int) -> dict[str, Any] | None:
        """Return the numbers of states and symbols met, and the first `n_shown` states, or None without states."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the numbering, for JSON."""

    @abstractmethod
    def restore(self, snapshot: dict[str, Any]) -> None:
        """Adopt the numbering of another evaluation of the same query."""


class NumberedAlphabet(Table):
    """Table without determinised states: a symbol is the set of tests that its events pass, as bits."""

    def __init__(self) -> None:
        self._symbols: dict[int, int] = {}
        self._symbol(0)  # for events that pass no test

    @property
    def n_symbols(self) -> int:
        """Number of symbols met so far."""
        return len(self._symbols)

    def symbol(self, word: int) -> int:
        """Return the symbol of a bit vector (bit g: the event satisfies guard g)."""
        return self._symbol(self.passed_tests(word))

    def _symbol(self, passed: int) -> int:
        symbol = self._symbols.get(passed)
        if symbol is None:
            symbol = self._symbols[passed] = len(self._symbols)
            self.add_symbol(symbol, passed)
        return symbol

    @abstractmethod
    def passed_tests(self, word: int) -> int:
        """Return the tests that an event passes, given its bit vector."""

    @abstractmethod
    def add_symbol(self, symbol: int, passed: int) -> None:
        """Add a new symbol to the tables."""

    def met(self, n_shown: int) -> None:
        """Return None, as there are no determinised states."""

    def snapshot(self) -> dict[str, Any]:
        """Return the numbering of symbols, for JSON."""
        return {"symbols": [hex(passed) for passed in self._symbols]}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Adopt the numbering of another evaluation of the same query."""
        for passed in snapshot["symbols"]:
            self._symbol(passed if isinstance(passed, int) else int(passed, 16))  # once, chains had numbers
