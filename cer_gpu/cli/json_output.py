"""Output for programs: errors as plain data, and plain data as JSON."""

from __future__ import annotations

import json
from typing import Any

from cer_gpu.errors import QueryError


def to_json(value: Any) -> str:
    """Return plain data as JSON on one line, in ASCII, so that every terminal and pipe takes it."""
    return json.dumps(value, allow_nan=False)


def error_facts(error: Exception, name: str | None = None) -> dict[str, Any]:
    """Return an error as plain data: type, message, hint, and position in the query.

    Parameters
    ----------
    error
    name
        The query file, if the error lies there.
    """
    message, _, hint = error_text(error).partition("\nhint: ")
    facts: dict[str, Any] = {"type": type(error).__name__, "message": message, "hint": hint or None, "file": name}
    if isinstance(error, QueryError):
        facts |= {"message": error.message, "hint": error.hint}
        if error.text is not None and error.start is not None:
            before = error.text[: error.start]
            facts |= {
                "start": error.start,
                "end": error.end,
                "line": before.count("\n") + 1,
                "column": len(before) - before.rfind("\n"),
            }
    return facts


def error_text(error: Exception) -> str:
    """Return the message of an error, with the file name for an error of the operating system."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
