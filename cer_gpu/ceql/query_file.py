"""Queries in files, and names of files in place of queries."""

from __future__ import annotations

import os
from pathlib import Path

from cer_gpu.errors import CerError, OptionError, QuerySyntaxError


def read_query_file(path: str | os.PathLike[str]) -> str:
    """Read the text of a query file.

    Raises
    ------
    OptionError
        When the file cannot be read, or is not in UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionError(f"{path}: is not text in UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise OptionError(f"{path}: cannot be read: {error.strerror}") from None


def with_hint_of_a_file(error: CerError, text: object) -> CerError:
    """Return an error in a query, with a hint if the text of the query is the name of a file."""
    if not isinstance(error, QuerySyntaxError) or not isinstance(text, str):
        return error
    if not text.endswith(".ceql") and not os.path.isfile(text):
        return error
    hint = f'that is a file: cer_gpu.compile(Path("{text}"))'
    return QuerySyntaxError(error.message, error.text, error.start, error.end, hint)
