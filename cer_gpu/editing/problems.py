"""Errors and warnings of a query, each with its place in the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cer_gpu.ceql.syntax import QuerySyntax
from cer_gpu.compilation import CompiledQuery, analyse_member
from cer_gpu.errors import CerError, QueryError
from cer_gpu.lints import lint


@dataclass(frozen=True)
class Problem:
    """An error, or a warning, of a query.

    Attributes
    ----------
    message : str
        With the hint, on a line of its own.
    start, end : int
        Offsets in the text (end exclusive).
    is_warning : bool
    """

    message: str
    start: int
    end: int
    is_warning: bool = False


def compiled_or_errors(
    text: str, schema: pa.Schema | None, options: Mapping[str, Any]
) -> tuple[CompiledQuery | None, Sequence[CerError]]:
    """Compile a query of any language, or return its errors, those of the options too."""
    try:
        return analyse_member(text, schema=schema, **options)
    except CerError as error:
        return None, [error]


def problems(text: str, schema: pa.Schema | None = None, options: Mapping[str, Any] | None = None) -> list[Problem]:
    """Return all that ``cer-gpu check`` tells of a query; of an empty text, nothing.

    Parameters
    ----------
    text
    schema
        That of the events, if it is known.
    options
        Those of `cer_gpu.compile`, but `schema`.

    Examples
    --------
    >>> from cer_gpu.editing.problems import problems
    >>> for found in problems("SELECT * FROM S WHERE A AS sale ; B FILTER sail[x > 1] WITHIN 9 EVENTS"):
    ...     print(found.start, found.end, found.message)
    43 47 FILTER names 'sail', which the formula does not define
    hint: did you mean 'sale'?
    """
    if not text.strip():
        return []
    query, errors = compiled_or_errors(text, schema, options or {})
    found = [_problem(text, error, is_warning=False) for error in errors]
    if query is not None:
        found += [_problem(text, error, is_warning=True) for error in _warnings(query, schema)]
    return found


def _warnings(query: CompiledQuery, schema: pa.Schema | None) -> Iterator[QueryError]:
    """Yield warnings, those that the schema gives and those of the text alone, each once."""
    syntax = query.syntax
    if not isinstance(syntax, QuerySyntax):
        return
    told = set()
    for known in (schema, None) if schema is not None else (None,):
        for each in lint(syntax, language=query.language, schema=known):
            place = (each.kind, each.found.start, each.found.end)
            if place not in told:
                told.add(place)
                yield each.found


def _problem(text: str, error: CerError, *, is_warning: bool) -> Problem:
    """Return an error at its place; one without a place stands at the first line with text."""
    start, end, message = None, None, str(error)
    if isinstance(error, QueryError):
        start, end = error.start, error.end
        message = error.message + (f"\nhint: {error.hint}" if error.hint else "")
    if start is None:
        start, end = len(text) - len(text.lstrip()), None
    start = min(start, len(text))
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    end = line_end if end is None else min(end, len(text))
    return Problem(message, start, max(end, start), is_warning)
