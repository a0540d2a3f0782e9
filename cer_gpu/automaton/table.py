"""The protocol of symbol tables: bit vectors of guards to the symbols that a runtime reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt


class Table(ABC):
    """The symbols met so far, numbered as they appear; symbol 0 is that of events that change nothing.

    Attributes
    ----------
    ending : bool array, shape (symbols,)
        Symbols whose events may end complex events.
    labels : list of frozenset of str
        The variables that each mark stands for.
    has_gaps : bool
        True: an event that satisfies no guard can end partial matches (contiguity).
    """

    ending: npt.NDArray[np.bool_]
    labels: list[frozenset[str]]
    has_gaps: bool

    @abstractmethod
    def symbol(self, word: int) -> int:
        """Return the symbol of a bit vector (bit g: the event satisfies guard g)."""

    @abstractmethod
    def met(self, most: int) -> dict[str, Any] | None:
        """Return the determinised states and symbols met so far, at most so many states; None: none are made."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the numbering, as JSON can say it."""

    @abstractmethod
    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over the numbering of another evaluation of the same query."""
