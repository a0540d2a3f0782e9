"""Every exception that the package raises on purpose, with messages made for the person who reads them.

A message says what was expected, what came, where (a caret under the query text, or the row and the
column) and, where there is one, a hint.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NULL_HINT = "price = price holds where there is a value; no comparison with NULL is ever true"


WIDEST_LINE = 120
"""Characters of a line of the query that a message shows."""


class CerError(Exception):
    """Base class: catching it catches everything that a user of the package can cause."""


class OptionError(CerError, ValueError):
    """An argument of a call (or an option of the command line) is wrong."""


class QueryError(CerError):
    """The query is wrong.

    Parameters
    ----------
    message
        What was expected and what came, in one line.
    text
        The whole query text, or None where there is none.
    start, end
        Offsets into `text` of the part that is wrong (end exclusive).
    hint
        What to write instead.
    """

    def __init__(
        self,
        message: str,
        text: str | None = None,
        start: int | None = None,
        end: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.text = text
        self.start = start
        self.end = end
        self.hint = hint
        super().__init__(self._render())

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with every field: workers send these errors to the driver."""
        return type(self), (self.message, self.text, self.start, self.end, self.hint)

    def _render(self) -> str:
        lines = [self.message]
        if self.text is not None and self.start is not None:
            lines += underline(self.text, self.start, self.end)
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class QuerySyntaxError(QueryError):
    """The text is not a CEQL query."""


class QueryTypeError(QueryError):
    """The query does not fit the schema of the events: an unknown column or types that cannot be compared."""


class QueryTooLargeError(QueryError):
    """The query needs more automaton states or symbols than the bound allows."""


class EventsError(CerError):
    """The events are wrong: a source that cannot be read, or a column of a type that cannot be used."""


class TimeOrderError(EventsError):
    """A timestamp decreases or is missing."""


class CheckpointError(CerError, ValueError):
    """A checkpoint that is damaged, of another version, or of another query."""


class DeviceError(CerError):
    """The device that was asked for cannot be used here."""


def underline(text: str, start: int, end: int | None = None) -> list[str]:
    """Return the line of `text` that holds `start`, and a line of carets under ``text[start:end]``.

    Of a long line only the part around `start` is shown.
    """
    start = min(start, len(text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    first, last, before, after = line_start, line_end, "", ""
    if line_end - line_start > WIDEST_LINE:
        first = max(line_start, min(start - WIDEST_LINE // 2, line_end - WIDEST_LINE))
        last = first + WIDEST_LINE
        before, after = "..." if first > line_start else "", "..." if last < line_end else ""
    stop = last if end is None else min(end, last)
    width = max(1, stop - start) if end is not None else 1
    number = text.count("\n", 0, start) + 1
    prefix = (f"  line {number}: " if "\n" in text.strip() else "  ") + before
    # tabs are kept in front of the caret, so that it stays under its text
    gap = "".join("\t" if c == "\t" else " " for c in text[first:start])
    return [prefix + text[first:last] + after, " " * len(prefix) + gap + "^" * width]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to `name` (letter case ignored), or None when none is close."""
    by_folded = {k.casefold(): k for k in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str], what: str = "known") -> str | None:
    """Return a hint with the nearest name, else the list of what there is, else None."""
    known = list(known)
    close = nearest(name, known)
    if close is not None:
        return f"did you mean {close!r}?"
    if not known:
        return None
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"{what}: {shown}"
