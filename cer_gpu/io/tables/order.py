"""Order of the names of a table's files."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"(\d+)")


def natural(text: str) -> list[tuple[str, int]]:
    """Return a key by which names are sorted, numbers in them as numbers."""
    parts = _DIGITS.split(text)
    return [
        (words, int(number) if number else -1)
        for words, number in zip(parts[::2], [*parts[1::2], ""], strict=True)
    ]  # fmt: skip
