"""Notes on event types that a query names and no event has: a misspelt type finds nothing, and is no error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from cer_gpu.errors import nearest

MAX_KNOWN = 1000
"""Most types to remember, as candidates to propose in place of a missing one."""
MAX_NAMED_TYPES = 8
"""Most types to list if none is close to the missing one."""


class SeenEventTypes:
    """Event types met, by the dictionaries of the type column: its possible values.

    Threads may share one.

    Parameters
    ----------
    wanted
        Types that the query names.
    """

    def __init__(self, wanted: Iterable[str]) -> None:
        self._missing = dict.fromkeys(wanted)
        self._known: dict[str, None] = {}

    def add(self, values: Sequence[str | None]) -> None:
        """Add the values of a dictionary."""
        if self._missing:
            there = set(values)
            for name in [name for name in list(self._missing) if name in there]:
                self._missing.pop(name, None)  # another thread may have been first
        if len(self._known) < MAX_KNOWN:
            new = (value for value in values if value)
            self._known.update(dict.fromkeys(islice(new, MAX_KNOWN)))

    @property
    def notes(self) -> list[str]:
        """Remarks on the types that no event has, once all events were read."""
        return [f"no event has the type {name!r}" + self._instead(name) for name in self._missing]

    def _instead(self, name: str) -> str:
        close = nearest(name, self._known)
        if close is not None:
            return f"; did you mean {close!r}?"
        if not self._known:
            return ""
        shown = sorted(self._known)
        more = ", ..." if len(shown) > MAX_NAMED_TYPES else ""
        return f"; there are {', '.join(map(repr, shown[:MAX_NAMED_TYPES]))}{more}"


def types_named(event_types: Iterable[str | None], type_column: str | None) -> SeenEventTypes:
    """Return the types to be met of a query; none without a type column."""
    return SeenEventTypes(name for name in event_types if name is not None and type_column is not None)
