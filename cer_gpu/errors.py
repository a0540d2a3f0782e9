"""Exceptions that the package raises on purpose, with messages for the person who reads them.

A message says what was expected, what came, where (a caret under the query text, or the row and the
column) and, where there is one, a hint.
"""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cer_gpu.printable import counted, printable, printable_lines

NULL_HINT = "write price IS NULL or price IS NOT NULL; no comparison with NULL is ever true"


WIDEST_LINE = 120
"""Most characters of a line of the query that a message shows."""


class CerError(Exception):
    """Base class of all errors that a user of the package can cause.

    Examples
    --------
    >>> import cer_gpu
    >>> try:
    ...     cer_gpu.compile("SELECT * FROM S WHERE A ;; B")
    ... except cer_gpu.CerError as error:
    ...     print(type(error).__name__)
    QuerySyntaxError
    """

    def __str__(self) -> str:
        """Return the message, in which names, values and foreign strings are safe to print."""
        return printable_lines(super().__str__())


class OptionError(CerError, ValueError):
    """Error in an argument of a call, or in an option of the command line.

    Examples
    --------
    >>> import cer_gpu
    >>> cer_gpu.compile("SELECT * FROM S WHERE A", time_column="ts", time_unit="hours")
    Traceback (most recent call last):
        ...
    cer_gpu.errors.OptionError: time_unit must be one of s, ms, us, ns, got 'hours'
    """


class QueryError(CerError):
    """Error in a query.

    Parameters
    ----------
    message
        One line: the expected text and the given one.
    text
        The whole query text, or None if there is none.
    start, end
        Offsets of the error in `text` (end exclusive).
    hint
        Advice: the text to write instead.

    Examples
    --------
    >>> import cer_gpu
    >>> cer_gpu.compile("SELECT * FROM S WHERE A AS sale ; B FILTER sail[x > 1]")
    Traceback (most recent call last):
        ...
    cer_gpu.errors.QueryError: FILTER names 'sail', which the formula does not define
      SELECT * FROM S WHERE A AS sale ; B FILTER sail[x > 1]
                                                 ^^^^
    hint: did you mean 'sale'?
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
    """Text that is not a CEQL query.

    Examples
    --------
    >>> import cer_gpu
    >>> try:
    ...     cer_gpu.compile("SELECT * FROM S WHERE A WITHN 5 EVENTS")
    ... except cer_gpu.QuerySyntaxError as error:
    ...     print(error.hint)
    did you mean WITHIN?
    """


class QueryTypeError(QueryError):
    """Query that does not match the schema of the events: an unknown column or types that cannot be compared.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE A FILTER A[price > 1]")
    >>> try:
    ...     query.evaluate(pa.table({"type": ["A"], "prize": [2]}))
    ... except cer_gpu.QueryTypeError as error:
    ...     print(error.hint)
    did you mean 'prize'?
    """


class QueryTooLargeError(QueryError):
    """Query that needs more automaton states or symbols than the bound allows.

    Examples
    --------
    >>> import cer_gpu
    >>> try:
    ...     cer_gpu.compile("SELECT * FROM S WHERE " + "(" * 200 + "A+" + ")+" * 200)
    ... except cer_gpu.QueryTooLargeError as error:
    ...     print(error.message)
    the query is nested more than 100 levels deep
    """


class EventsError(CerError):
    """Error in the events: a source that cannot be read, or a column of a type that cannot be used.

    Examples
    --------
    >>> import cer_gpu
    >>> try:
    ...     cer_gpu.compile("SELECT * FROM S WHERE A").evaluate(7)
    ... except cer_gpu.EventsError as error:
    ...     print(str(error).rpartition("; ")[2])
    got int
    """


class TimeOrderError(EventsError):
    """Timestamp that decreases or is missing.

    Attributes
    ----------
    event : int or None
        Number of the event, or None if it is not known.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE A WITHIN 5 [ts]")
    >>> try:
    ...     query.evaluate(pa.table({"type": ["A", "A"], "ts": [2, 1]}))
    ... except cer_gpu.TimeOrderError as error:
    ...     print(str(error).splitlines()[0])
    the 'ts' of event 1 (1) is less than the one before (2)
    """

    def __init__(self, message: str, event: int | None = None) -> None:
        super().__init__(message)
        self.event: int | None = event


class CheckpointError(CerError, ValueError):
    """Checkpoint that is damaged, of another version, or of another query.

    Examples
    --------
    >>> import cer_gpu
    >>> try:
    ...     cer_gpu.compile("SELECT * FROM S WHERE A").restore(b"something else")
    ... except cer_gpu.CheckpointError as error:
    ...     print(str(error).splitlines()[0])
    expected the bytes that checkpoint() returned, got b'somethin'...
    """


class DeviceError(CerError):
    """Requested device that cannot be used here.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE A")
    >>> query.evaluate(pa.table({"type": ["A"]}), device="cuda")                    # doctest: +SKIP
    Traceback (most recent call last):
        ...
    cer_gpu.errors.DeviceError: ...
    """


class OutOfMemoryError(CerError, MemoryError):
    """Memory that ran out; mostly, because there are more matches than it can hold.

    Examples
    --------
    >>> import cer_gpu
    >>> try:
    ...     found = query.evaluate(events)                                          # doctest: +SKIP
    ... except cer_gpu.OutOfMemoryError:
    ...     counts = query.evaluate(events, output="count")                         # doctest: +SKIP
    """


FEWER = "WITHIN, or a shorter one, makes them fewer; limit=... (--limit) stops early; output='count' lists none"
"""Advice against too many matches, for calls and for the command line."""


def out_of_memory(n_matches: int | None = None) -> OutOfMemoryError:
    """Return the error for memory that ran out after so many matches, or an unknown number if None."""
    after = "" if n_matches is None else f" after {counted(n_matches, 'match')}"
    return OutOfMemoryError(f"memory ran out{after}\nhint: {FEWER}")


def no_memory(n: int, what: str, hint: str = "add WITHIN, or a shorter one") -> EventsError:
    """Return the error for partial matches that the memory does not hold."""
    return EventsError(f"no memory for more than {n} {what}\nhint: {hint}")


def underline(text: str, start: int, end: int | None = None) -> list[str]:
    """Return the line of `text` that holds `start`, and a line of carets under ``text[start:end]``.

    A long line is cut to the text around `start`.
    """
    start = min(start, len(text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    line_end -= text[line_start:line_end].endswith("\r")
    start = min(start, line_end)
    first, last, before, after = line_start, line_end, "", ""
    if line_end - line_start > WIDEST_LINE:
        first = max(line_start, min(start - WIDEST_LINE // 2, line_end - WIDEST_LINE))
        last = first + WIDEST_LINE
        before, after = "..." if first > line_start else "", "..." if last < line_end else ""
    width = 1 if end is None else max(1, len(_on_its_line(text[start : min(end, last)])))
    number = text.count("\n", 0, start) + 1
    prefix = (f"  line {number}: " if "\n" in text.strip() else "  ") + before
    # tabs in front of the caret stay tabs, so that it is under its text
    gap = "".join("\t" if c == "\t" else " " for c in _on_its_line(text[first:start]))
    return [prefix + _on_its_line(text[first:last]) + after, " " * len(prefix) + gap + "^" * width]


def _on_its_line(text: str) -> str:
    """Return a part of a line as it is shown: all but tabs escaped that would not be one character on it."""
    return "\t".join(map(printable, text.split("\t")))


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the known name closest to `name` (letter case ignored), or None if none is close."""
    by_folded = {k.casefold(): k for k in candidates}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def nearest_file(name: str, candidates: Iterable[str]) -> str | None:
    """Return the file name closest to `name`, or None; endings, which most names share, do not make names close."""
    stem, ending = _split(name)
    by_stem: dict[str, str] = {}
    for other in candidates:
        its_stem, its_ending = _split(other)
        if its_ending == ending or its_stem not in by_stem:
            by_stem[its_stem] = other
    close = nearest(stem, by_stem)
    return None if close is None else by_stem[close]


def _split(name: str) -> tuple[str, str]:
    """Return a file name without its ending, and that (as ``.csv.gz``), in lower case."""
    stem, ending = os.path.splitext(name.casefold())
    inner, before = os.path.splitext(stem) if ending in (".gz", ".bz2", ".zst", ".lz4") else (stem, "")
    return inner, before + ending


def did_you_mean(name: str, candidates: Iterable[str], what: str = "known") -> str | None:
    """Return a hint with the nearest name, else with all known names, else None."""
    candidates = list(candidates)
    close = nearest(name, candidates)
    if close is not None:
        return f"did you mean {close!r}?"
    if not candidates:
        return None
    shown = ", ".join(candidates[:12]) + (", ..." if len(candidates) > 12 else "")
    return f"{what}: {shown}"


class EventsWarning(UserWarning):
    """A remark on events that were read: a type of the query that none has, events without a key, and the like.

    Given by `warnings`, once for each remark and place of the call.

    Examples
    --------
    >>> import cer_gpu, pyarrow as pa, warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     found = cer_gpu.compile("SELECT * FROM S WHERE BYU").evaluate(pa.table({"type": ["BUY"]}))
    >>> print(caught[0].message)
    no event has the type 'BYU'; did you mean 'BUY'?
    """


_silent: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def without_events_warnings() -> Iterator[None]:
    """Evaluate within the block without `EventsWarning`."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def warn_of_events(notes: Iterable[str]) -> None:
    """Warn of remarks on events, at the place outside of the package from which it was called."""
    if _silent.get():
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    for note in notes:
        warnings.warn(note, EventsWarning, stacklevel=level)


_PACKAGE = f"{__package__}."
"""Beginning of the names of modules; paths of their files may be those of the machine that made an archive."""


class QueryErrorContext:
    """Context in which errors in a query begin with its name, if it has one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Name the query of an error."""
        if self._name and isinstance(error, QueryError):
            message = f"query {self._name!r}: {error.message}"
            raise type(error)(message, error.text, error.start, error.end, error.hint) from None
