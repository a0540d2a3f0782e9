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


def queries_in(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Return the query files of a folder and of those in it, by their names without the ending ``.ceql``.

    Names are sorted; a file in a folder within is named ``inner/name``.

    Raises
    ------
    OptionError
        When there is no such folder, or no query file in it.
    """
    root = Path(folder)
    if not root.is_dir():
        seen = "a file" if root.exists() else "nothing"
        raise OptionError(f"{folder}: expected a folder of query files, found {seen}")
    files = {path.relative_to(root).with_suffix("").as_posix(): path for path in root.rglob("*.ceql") if path.is_file()}
    if not files:
        raise OptionError(f"{folder}: expected query files (*.ceql), found none")
    return dict(sorted(files.items()))


def with_hint_of_a_file(error: CerError, text: object) -> CerError:
    """Return an error in a query, with a hint if the text of the query is the name of a file."""
    if not isinstance(error, QuerySyntaxError) or not isinstance(text, str):
        return error
    if not text.endswith(".ceql") and not os.path.isfile(text):
        return error
    hint = f'that is a file: cer_gpu.compile(Path("{text}"))'
    return QuerySyntaxError(error.message, error.text, error.start, error.end, hint)
