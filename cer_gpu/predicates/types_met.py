"""Which of the event types that a query names occur: a misspelt one finds nothing, and is no error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from cer_gpu.errors import nearest

MOST_KNOWN = 1000
"""Types that are remembered, for one to be proposed in place of one that is missing."""
MOST_LISTED = 8
"""Types that are named where none is close."""


class TypesMet:
    """The types that are among the events, as far as their dictionaries say: the values that a type column can have.

    Threads may share one.

    Parameters
    ----------
    wanted
        The types that the query names.
    """

    def __init__(self, wanted: Iterable[str]) -> None:
        self._missing = dict.fromkeys(wanted)
        self._known: dict[str, None] = {}

    def add(self, values: Sequence[str | None]) -> None:
        """Take note of the values of a dictionary."""
        if self._missing:
            there = set(values)
            for name in [name for name in list(self._missing) if name in there]:
                self._missing.pop(name, None)  # another thread may have been first
        if len(self._known) < MOST_KNOWN:
            new = (value for value in values if value)
            self._known.update(dict.fromkeys(islice(new, MOST_KNOWN)))

    @property
    def notes(self) -> list[str]:
        """What there is to say once all events were read: a remark on each type that none has."""
        return [f"no event has the type {name!r}" + self._instead(name) for name in self._missing]

    def _instead(self, name: str) -> str:
        close = nearest(name, self._known)
        if close is not None:
            return f"; did you mean {close!r}?"
        if not self._known:
            return ""
        shown = sorted(self._known)
        more = ", ..." if len(shown) > MOST_LISTED else ""
        return f"; there are {', '.join(map(repr, shown[:MOST_LISTED]))}{more}"


def types_named(event_types: Iterable[str | None], type_column: str | None) -> TypesMet:
    """Return what is to be met of a query; nothing where there is no type column."""
    return TypesMet(name for name in event_types if name is not None and type_column is not None)
