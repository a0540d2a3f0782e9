"""Words on a query, and on the column under the cursor, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cer_gpu.editing.known import KnownEvents, fields_on_path
from cer_gpu.editing.problems import compiled_or_errors
from cer_gpu.printable import printable

_WORD = re.compile(r"(?!\d)[\w@]+(?:\.(?!\d)[\w@]+)*|`[^`]*`")


def hover_text(text: str, offset: int, known: KnownEvents, options: Mapping[str, Any] | None = None) -> str | None:
    """Return what the query means, and before it the column at a place; None: neither is known.

    Parameters
    ----------
    text, offset
        The query, and a place in it.
    known
        Columns of the events.
    options
        Those of `cer_gpu.compile`, but `schema`.

    Examples
    --------
    >>> from cer_gpu.editing.hovering import hover_text
    >>> from cer_gpu.editing.known import KnownEvents
    >>> print(hover_text("SELECT * FROM S WHERE A ; B WITHIN 9 EVENTS", 0, KnownEvents()).splitlines()[2])
      1. an event A
    """
    parts = []
    column = _column_at(text, offset, known)
    if column is not None:
        parts.append(f"column `{printable(column[0])}`: {printable(column[1])}")
    query, _ = compiled_or_errors(text, known.schema, options or {}) if text.strip() else (None, ())
    if query is not None:
        explanation = query.explain()
        parts.append("```text\n" + "\n".join(map(printable, explanation.words)) + "\n```")
        model = explanation.to_dict().get("model")
        if model is not None:
            parts.append(printable(f"{model['name']} ({model['title']}): {model['why']}"))
        parts += [f"note: {printable(note)}" for note in query.notes]
    return "\n\n".join(parts) or None


def _column_at(text: str, offset: int, known: KnownEvents) -> tuple[str, str] | None:
    """Return the name and the type of the column, or the field of a struct, under the cursor."""
    if known.schema is None:
        return None
    match = next((each for each in _WORD.finditer(text) if each.start() <= offset <= each.end()), None)
    if match is None:
        return None
    names = match[0].split(".")
    for path in ([match[0].strip("`")], names, names[1:]):  # a name with dots, a path, and one behind a variable
        for field in (fields_on_path(known.schema, path[:-1]) or []) if path else []:
            if field.name == path[-1]:
                return ".".join(path), str(field.type)
    return None
