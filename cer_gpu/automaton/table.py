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
        True for symbols whose events may end complex events.
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
    def met(self, most: int) -> dict[str, Any] | None:
        """Return the numbers of states and symbols met, and the first `most` states; None: there are no states."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the numbering, for JSON."""

    @abstractmethod
    def restore(self, snapshot: dict[str, Any]) -> None:
        """Adopt the numbering of another evaluation of the same query."""
